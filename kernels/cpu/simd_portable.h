#ifndef KERNELS_CPU_SIMD_PORTABLE_H
#define KERNELS_CPU_SIMD_PORTABLE_H

/* Vectors of four floats in the compiler's own terms: any machine.  A multiply and an add are
 * two roundings here. */

#include "kernels/cpu/simd.h"

enum { LANES = 4 };
typedef float vf __attribute__((vector_size(16)));
typedef int32_t vi __attribute__((vector_size(16)));
typedef uint32_t vw __attribute__((vector_size(16)));

INLINE vf vf_load(const float *p) { vf v; memcpy(&v, p, 16); return v; }
INLINE void vf_store(float *p, vf v) { memcpy(p, &v, 16); }
INLINE vf vf_set(float f) { return (vf){ f, f, f, f }; }
INLINE vf vf_add(vf a, vf b) { return a + b; }
INLINE vf vf_sub(vf a, vf b) { return a - b; }
INLINE vf vf_mul(vf a, vf b) { return a * b; }
INLINE vf vf_fma(vf a, vf b, vf c) { return a * b + c; }
INLINE vw vw_load(const uint32_t *p) { vw v; memcpy(&v, p, 16); return v; }
INLINE void vw_store(uint32_t *p, vw v) { memcpy(p, &v, 16); }
INLINE vf vf_low(vw v) { return (vf)(v << 16); }
INLINE vf vf_high(vw v) { return (vf)(v & 0xffff0000u); }
INLINE vf vf_pick(vi mask, vf yes, vf no) { return (vf)(((vi)yes & mask) | ((vi)no & ~mask)); }
INLINE vf vf_max(vf a, vf b) { return vf_pick(a > b, a, b); }      /* b where either is NaN */

INLINE float vf_top(vf v)
{
	float a = v[0] > v[1] ? v[0] : v[1], b = v[2] > v[3] ? v[2] : v[3];

	return a > b ? a : b;
}

/* 2^t: exactly 1 at 0, exactly 0 below -126 and at -inf, NaN at NaN. */
INLINE vf vf_exp2(vf t)
{
	vf x = vf_max(vf_set(-200), t), y = vf_pick(x < vf_set(200), x, vf_set(200)), f, p;
	vi n = __builtin_convertvector(y, vi);
	vw bits;

	n += (vi)(y < __builtin_convertvector(n, vf));
	f = x - __builtin_convertvector(n, vf);
	p = vf_set(2.0817915e-4f);
	p = p * f + vf_set(1.26921661e-3f);
	p = p * f + vf_set(9.65219506e-3f);
	p = p * f + vf_set(5.54960236e-2f);
	p = p * f + vf_set(2.40227204e-1f);
	p = p * f + vf_set(6.93147171e-1f);
	p = p * f + vf_set(1);
	bits = (vw)(n + 127) << 23;
	return vf_pick(t < vf_set(-126), vf_set(0), p * (vf)bits);
}

#endif
