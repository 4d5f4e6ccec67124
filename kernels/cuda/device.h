#ifndef KERNELS_CUDA_DEVICE_H
#define KERNELS_CUDA_DEVICE_H

/* What kernels share: 16 bytes at a time as floats, and sums whose order depends on nothing but the shape of a block. */

#include "kernels/cuda/ck.h"

#define DEVICE static __device__ __forceinline__

/* Values of type T in 16 bytes. */
template <class T> constexpr int WIDE = 16 / (int)sizeof(T);

/* Of `long i` and an array: do 16-byte accesses at p + a multiple of WIDE<T> stay aligned. */
template <class T> static inline bool is_wide(const T *p)
{
	return (uintptr_t)p % 16 == 0;
}

DEVICE float to_float(float x) { return x; }
DEVICE float to_float(bf16 x) { return __bfloat162float(x); }
DEVICE void from_float(float &y, float x) { y = x; }
DEVICE void from_float(bf16 &y, float x) { y = __float2bfloat16_rn(x); }

/* Two bf16 of one register. */
DEVICE float low_half(uint32_t u) { return __uint_as_float(u << 16); }
DEVICE float high_half(uint32_t u) { return __uint_as_float(u & 0xffff0000u); }
DEVICE uint32_t two_halves(float low, float high)
{
	__nv_bfloat162 h = __floats2bfloat162_rn(low, high);
	uint32_t u;

	memcpy(&u, &h, 4);
	return u;
}

DEVICE void unpack(float (&x)[4], const uint4 &u)
{
	x[0] = __uint_as_float(u.x);
	x[1] = __uint_as_float(u.y);
	x[2] = __uint_as_float(u.z);
	x[3] = __uint_as_float(u.w);
}

DEVICE void unpack(float (&x)[8], const uint4 &u)
{
	x[0] = low_half(u.x), x[1] = high_half(u.x), x[2] = low_half(u.y), x[3] = high_half(u.y);
	x[4] = low_half(u.z), x[5] = high_half(u.z), x[6] = low_half(u.w), x[7] = high_half(u.w);
}

DEVICE uint4 packed(const float (&x)[4])
{
	return make_uint4(__float_as_uint(x[0]), __float_as_uint(x[1]), __float_as_uint(x[2]), __float_as_uint(x[3]));
}

DEVICE uint4 packed(const float (&x)[8])
{
	return make_uint4(two_halves(x[0], x[1]), two_halves(x[2], x[3]), two_halves(x[4], x[5]), two_halves(x[6], x[7]));
}

/*
 * WIDE<T> values of p[0 .. n - 1] from `at` on; beyond n: zeros, and nothing is stored.  wide: p is 16-byte aligned and at a multiple
 * of WIDE<T>; it decides how memory is reached and never what is computed.
 */
template <class T> DEVICE void load_wide(float (&x)[WIDE<T>], const T *p, long at, long n, bool wide)
{
	if (wide && at + WIDE<T> <= n) {
		unpack(x, *reinterpret_cast<const uint4 *>(p + at));
		return;
	}
#pragma unroll
	for (int i = 0; i < WIDE<T>; i++)
		x[i] = at + i < n ? to_float(p[at + i]) : 0.f;
}

template <class T> DEVICE void store_wide(T *p, const float (&x)[WIDE<T>], long at, long n, bool wide)
{
	if (wide && at + WIDE<T> <= n) {
		*reinterpret_cast<uint4 *>(p + at) = packed(x);
		return;
	}
#pragma unroll
	for (int i = 0; i < WIDE<T>; i++)
		if (at + i < n)
			from_float(p[at + i], x[i]);
}

/* All lanes get the sum of all, by the tree of a butterfly: the same bits in each. */
DEVICE float warp_sum(float v)
{
#pragma unroll
	for (int o = 16; o; o >>= 1)
		v += __shfl_xor_sync(~0u, v, o);
	return v;
}

DEVICE double warp_sum(double v)
{
#pragma unroll
	for (int o = 16; o; o >>= 1)
		v += __shfl_xor_sync(~0u, v, o);
	return v;
}

/* The sum over a block of WARPS warps, to all its threads; all of them call it. */
template <int WARPS, class T> DEVICE T block_sum(T v)
{
	CK_SHARED(T, part, [WARPS]);
	T s = 0;

	v = warp_sum(v);
	if (WARPS == 1)
		return v;
	__syncthreads();        /* who still reads the last sum */
	if (threadIdx.x % 32 == 0)
		part[threadIdx.x / 32] = v;
	__syncthreads();
#pragma unroll
	for (int i = 0; i < WARPS; i++)
		s += part[i];
	return s;
}

#endif
