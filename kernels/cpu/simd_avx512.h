#ifndef KERNELS_CPU_SIMD_AVX512_H
#define KERNELS_CPU_SIMD_AVX512_H

/* The vectors of simd_portable.h as sixteen floats of AVX-512. */

#include "kernels/cpu/simd.h"

#include <immintrin.h>

enum { LANES = 16 };
typedef __m512 vf;
typedef __m512i vw;

INLINE vf vf_load(const float *p) { return _mm512_loadu_ps(p); }
INLINE void vf_store(float *p, vf v) { _mm512_storeu_ps(p, v); }
INLINE vf vf_set(float f) { return _mm512_set1_ps(f); }
INLINE vf vf_add(vf a, vf b) { return _mm512_add_ps(a, b); }
INLINE vf vf_sub(vf a, vf b) { return _mm512_sub_ps(a, b); }
INLINE vf vf_mul(vf a, vf b) { return _mm512_mul_ps(a, b); }
INLINE vf vf_fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }
INLINE vf vf_max(vf a, vf b) { return _mm512_max_ps(a, b); }
INLINE float vf_top(vf v) { return _mm512_reduce_max_ps(v); }
INLINE vw vw_load(const uint32_t *p) { return _mm512_loadu_si512(p); }
INLINE vf vf_low(vw v) { return _mm512_castsi512_ps(_mm512_slli_epi32(v, 16)); }

INLINE vf vf_high(vw v)
{
	return _mm512_castsi512_ps(_mm512_and_si512(v, _mm512_set1_epi32((int)0xffff0000)));
}

INLINE vf vf_exp2(vf t)
{
	vf f = _mm512_reduce_ps(t, 1), p = vf_set(2.0817915e-4f);      /* t - floor t; 0 for -inf */

	p = vf_fma(p, f, vf_set(1.26921661e-3f));
	p = vf_fma(p, f, vf_set(9.65219506e-3f));
	p = vf_fma(p, f, vf_set(5.54960236e-2f));
	p = vf_fma(p, f, vf_set(2.40227204e-1f));
	p = vf_fma(p, f, vf_set(6.93147171e-1f));
	p = vf_fma(p, f, vf_set(1));
	p = _mm512_scalef_ps(p, t);
	return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(t, vf_set(-126), _CMP_NLT_UQ), p);
}

#endif
