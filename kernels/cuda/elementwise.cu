#include "kernels/cuda/backend.h"
#include "kernels/cuda/device.h"

/*
 * One pass over memory, 16 bytes a thread and access.  On an H200 the floor is the traffic at 4.3 TB/s: for n values of e bytes
 *
 *	add, swiglu_fwd    3 n e     4096 rows of 14336 in bf16: 352 MB, 82 us
 *	swiglu_bwd         5 n e                                 587 MB, 137 us
 *	rope               2 n e     (cos and sin come from cache)
 */

enum { THREADS = 256 };

/* A thread has one group of WIDE<T> values. */
template <class T> static struct ck_grid over(const char *op, long n)
{
	return { op, dim3(ck_blocks(n, (long)THREADS * WIDE<T>)), dim3(THREADS), 0 };
}

DEVICE long group(int width)
{
	return ((long)blockIdx.x * blockDim.x + threadIdx.x) * width;
}

DEVICE float sigmoid(float x)
{
	return 1.f / (1.f + expf(-x));
}

template <class T> __global__ void __launch_bounds__(THREADS) add_kernel(T *y, const T *a, const T *b, long n, bool wide)
{
	float s[WIDE<T>], x[WIDE<T>];
	long at = group(WIDE<T>);

	load_wide(s, a, at, n, wide);
	load_wide(x, b, at, n, wide);
#pragma unroll
	for (int i = 0; i < WIDE<T>; i++)
		s[i] += x[i];
	store_wide(y, s, at, n, wide);
}

template <class T> static void add_of(void *y, const void *a, const void *b, long n)
{
	bool wide = is_wide(y) && is_wide(a) && is_wide(b);

	ck_launch(over<T>("add", n), add_kernel<T>, (T *)y, (const T *)a, (const T *)b, n, wide);
}

void add_cuda(void *y, const void *a, const void *b, long n, enum dtype t)
{
	t == DTYPE_BF16 ? add_of<bf16>(y, a, b, n) : add_of<float>(y, a, b, n);
}

template <class T> __global__ void __launch_bounds__(THREADS) swiglu_kernel(T *y, const T *gate, const T *up, long n, bool wide)
{
	float g[WIDE<T>], u[WIDE<T>];
	long at = group(WIDE<T>);

	load_wide(g, gate, at, n, wide);
	load_wide(u, up, at, n, wide);
#pragma unroll
	for (int i = 0; i < WIDE<T>; i++)
		u[i] *= g[i] / (1.f + expf(-g[i]));
	store_wide(y, u, at, n, wide);
}

template <class T> static void swiglu_of(void *y, const void *gate, const void *up, long n)
{
	bool wide = is_wide(y) && is_wide(gate) && is_wide(up);

	ck_launch(over<T>("swiglu_fwd", n), swiglu_kernel<T>, (T *)y, (const T *)gate, (const T *)up, n, wide);
}

void swiglu_fwd_cuda(void *y, const void *gate, const void *up, long n, enum dtype t)
{
	t == DTYPE_BF16 ? swiglu_of<bf16>(y, gate, up, n) : swiglu_of<float>(y, gate, up, n);
}

/* A thread has read all of its group before it writes: dgate and dup may be any of the inputs. */
template <class T> __global__ void __launch_bounds__(THREADS)
swiglu_bwd_kernel(T *dgate, T *dup, const T *dy, const T *gate, const T *up, long n, bool wide)
{
	float d[WIDE<T>], g[WIDE<T>], u[WIDE<T>];
	long at = group(WIDE<T>);

	load_wide(d, dy, at, n, wide);
	load_wide(g, gate, at, n, wide);
	load_wide(u, up, at, n, wide);
#pragma unroll
	for (int i = 0; i < WIDE<T>; i++) {
		float s = sigmoid(g[i]), silu = g[i] * s;

		g[i] = d[i] * u[i] * (s * (1.f + g[i] * (1.f - s)));
		u[i] = d[i] * silu;
	}
	store_wide(dgate, g, at, n, wide);
	store_wide(dup, u, at, n, wide);
}

template <class T> static void swiglu_bwd_of(void *dgate, void *dup, const void *dy, const void *gate, const void *up, long n)
{
	bool wide = is_wide(dgate) && is_wide(dup) && is_wide(dy) && is_wide(gate) && is_wide(up);

	ck_launch(over<T>("swiglu_bwd", n), swiglu_bwd_kernel<T>, (T *)dgate, (T *)dup, (const T *)dy, (const T *)gate, (const T *)up, n,
		  wide);
}

void swiglu_bwd_cuda(void *dgate, void *dup, const void *dy, const void *gate, const void *up, long n, enum dtype t)
{
	t == DTYPE_BF16 ? swiglu_bwd_of<bf16>(dgate, dup, dy, gate, up, n) : swiglu_bwd_of<float>(dgate, dup, dy, gate, up, n);
}

/* A thread has WIDE<T> pairs (j, j + d / 2) of one head of one row; `groups` of them cover a head. */
template <class T> __global__ void __launch_bounds__(THREADS)
rope_kernel(T *x, const int *position, const float *cos, const float *sin, long rows, long heads, long d, long groups, float sign,
	    bool wide)
{
	long i = (long)blockIdx.x * THREADS + threadIdx.x, at = i % groups * WIDE<T>, head = i / groups, half = d / 2;
	float a[WIDE<T>], b[WIDE<T>];
	const float *c, *s;

	if (head >= rows * heads)
		return;
	x += head * d;
	c = cos + position[head / heads] * half;
	s = sin + position[head / heads] * half;
	load_wide(a, x, at, half, wide);
	load_wide(b, x + half, at, half, wide);
#pragma unroll
	for (int j = 0; j < WIDE<T>; j++) {
		float w = at + j < half ? c[at + j] : 0.f, q = at + j < half ? sign * s[at + j] : 0.f, old = a[j];

		a[j] = old * w - b[j] * q;
		b[j] = b[j] * w + old * q;
	}
	store_wide(x, a, at, half, wide);
	store_wide(x + half, b, at, half, wide);
}

template <class T>
static void rope_of(void *x, const int *position, const float *cos, const float *sin, long rows, long heads, long d, float sign)
{
	long groups = (d / 2 + WIDE<T> - 1) / WIDE<T>;
	bool wide = is_wide(x) && d / 2 % WIDE<T> == 0;

	ck_launch({ "rope", dim3(ck_blocks(rows * heads * groups, THREADS)), dim3(THREADS), 0 }, rope_kernel<T>, (T *)x, position, cos, sin,
		  rows, heads, d, groups, sign, wide);
}

void rope_cuda(void *x, const int *position, const float *cos, const float *sin, long rows, long heads, long d, bool inverse, enum dtype t)
{
	const int *at = cuda_upload_array(position, rows);
	float sign = inverse ? -1.f : 1.f;

	t == DTYPE_BF16 ? rope_of<bf16>(x, at, cos, sin, rows, heads, d, sign) : rope_of<float>(x, at, cos, sin, rows, heads, d, sign);
}
