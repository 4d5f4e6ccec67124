#ifndef KERNELS_CPU_BF16_WIDE_H
#define KERNELS_CPU_BF16_WIDE_H

/* A BF16 step without bf16 instructions: x is widened beforehand, w here; the even k first, then
 * the odd one. */

#include "libcommon/tensor.h"

enum { BF16_PAIRS = 0 };

INLINE void bf16_half(vf c[8][4], const int mr, const int nv, const char *x, long rs,
		      const uint32_t *w, const int high)
{
	vf b[4];

	UNROLL for (int j = 0; j < nv; j++) {
		vw v = vw_load(w + LANES * j);
		b[j] = high ? vf_high(v) : vf_low(v);
	}
	UNROLL for (int i = 0; i < mr; i++) {
		vf a = vf_set(float_at(x + i * rs));
		UNROLL for (int j = 0; j < nv; j++)
			c[i][j] = vf_fma(a, b[j], c[i][j]);
	}
}

INLINE void bf16_step(vf c[8][4], const int mr, const int nv, const char *x, long rs, long ks,
		      const uint32_t *w)
{
	bf16_half(c, mr, nv, x, rs, w, 0);
	bf16_half(c, mr, nv, x + ks / 2, rs, w, 1);
}

/* n floats, in place, to a left operand: floats that bf16 can hold. */
INLINE void bf16_left(float *x, const int n)
{
	for (int i = 0; i < n; i++)
		x[i] = bf16_to_f32(f32_to_bf16(x[i]));
}

INLINE void bf16_last(vf c[8][4], const int mr, const int nv, const char *x, long rs,
		      const uint32_t *w)
{
	bf16_half(c, mr, nv, x, rs, w, 0);
}

#endif
