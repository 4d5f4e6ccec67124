#include "kernels/cpu/rows.h"

#include "libcommon/xalloc.h"

#include <stdlib.h>

WIDE static void widen_bf16(float *out, const uint16_t *in, long n)
{
	for (long i = 0; i < n; i++)
		out[i] = bf16_to_f32(in[i]);
}

WIDE static void narrow_bf16(uint16_t *out, const float *in, long n)
{
	for (long i = 0; i < n; i++) {
		union { float f; uint32_t u; } x = { in[i] };
		uint32_t near = (x.u + 0x7fff + (x.u >> 16 & 1)) >> 16;
		uint32_t nan = x.u >> 16 | 0x40;

		out[i] = (uint16_t)((x.u & 0x7fffffff) > 0x7f800000 ? nan : near);
	}
}

void widen(float *out, const void *in, long n, enum dtype t)
{
	if (t == DTYPE_BF16)
		widen_bf16(out, in, n);
	else if (out != in)
		memcpy(out, in, (size_t)n * 4);
}

void narrow(void *out, const float *in, long n, enum dtype t)
{
	if (t == DTYPE_BF16)
		narrow_bf16(out, in, n);
	else if (out != in)
		memcpy(out, in, (size_t)n * 4);
}

const float *as_f32(float *buf, const void *in, long n, enum dtype t)
{
	if (t == DTYPE_F32)
		return in;
	widen(buf, in, n, t);
	return buf;
}

/* Kept until the thread ends: a row buffer is small, and its first touch is not free. */
float *row_scratch(int slot, long n)
{
	static _Thread_local struct { float *p; long n; } own[4];

	if (own[slot].n < n) {
		big_free(own[slot].p);
		own[slot].p = big_alloc((size_t)n * sizeof(float), "a row of activations");
		own[slot].n = n;
	}
	return own[slot].p;
}
