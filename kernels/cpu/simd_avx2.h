#ifndef KERNELS_CPU_SIMD_AVX2_H
#define KERNELS_CPU_SIMD_AVX2_H

/* The vectors of simd_portable.h as eight floats of AVX2 with FMA. */

#include "kernels/cpu/simd.h"

#include <immintrin.h>

enum { LANES = 8 };
typedef __m256 vf;
typedef __m256i vw;

INLINE vf vf_load(const float *p) { return _mm256_loadu_ps(p); }
INLINE void vf_store(float *p, vf v) { _mm256_storeu_ps(p, v); }
INLINE vf vf_set(float f) { return _mm256_set1_ps(f); }
INLINE vf vf_add(vf a, vf b) { return _mm256_add_ps(a, b); }
INLINE vf vf_sub(vf a, vf b) { return _mm256_sub_ps(a, b); }
INLINE vf vf_mul(vf a, vf b) { return _mm256_mul_ps(a, b); }
INLINE vf vf_fma(vf a, vf b, vf c) { return _mm256_fmadd_ps(a, b, c); }
INLINE vf vf_max(vf a, vf b) { return _mm256_max_ps(a, b); }

INLINE float vf_top(vf v)
{
	__m128 m = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));

	m = _mm_max_ps(m, _mm_movehl_ps(m, m));
	return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
}

INLINE vw vw_load(const uint32_t *p)
{
	return _mm256_loadu_si256((const __m256i *)(const void *)p);
}

INLINE vf vf_low(vw v) { return _mm256_castsi256_ps(_mm256_slli_epi32(v, 16)); }

INLINE vf vf_high(vw v)
{
	return _mm256_castsi256_ps(_mm256_and_si256(v, _mm256_set1_epi32((int)0xffff0000)));
}

INLINE vf vf_exp2(vf t)
{
	vf x = _mm256_min_ps(vf_set(200), vf_max(vf_set(-200), t));
	vf floor = _mm256_floor_ps(x), f = vf_sub(x, floor), p;
	__m256i n = _mm256_add_epi32(_mm256_cvttps_epi32(floor), _mm256_set1_epi32(127));
	__m256i bits = _mm256_slli_epi32(n, 23);

	p = vf_set(2.0817915e-4f);
	p = vf_fma(p, f, vf_set(1.26921661e-3f));
	p = vf_fma(p, f, vf_set(9.65219506e-3f));
	p = vf_fma(p, f, vf_set(5.54960236e-2f));
	p = vf_fma(p, f, vf_set(2.40227204e-1f));
	p = vf_fma(p, f, vf_set(6.93147171e-1f));
	p = vf_fma(p, f, vf_set(1));
	p = vf_mul(p, _mm256_castsi256_ps(bits));
	return _mm256_andnot_ps(_mm256_cmp_ps(t, vf_set(-126), _CMP_LT_OQ), p);
}

#endif
