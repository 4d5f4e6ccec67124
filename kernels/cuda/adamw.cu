#include "kernels/cuda/backend.h"
#include "kernels/cuda/device.h"

/*
 * adamw reads w, m, v and the gradient and writes w, m, v and the bf16 copy: 30 bytes a parameter, 7 ms for 1e9 of them on an
 * H200 at 4.3 TB/s.  sumsq reads 4 bytes a value: 0.93 ms for 1e9.
 */

enum { THREADS = 256, WARPS = THREADS / 32, WIDTH = 4, PIECE = 16384 };

static __global__ void __launch_bounds__(THREADS)
adamw_kernel(float *w, float *m, float *v, bf16 *low, const float *grad, long n, struct adamw h, bool wide)
{
	long at = ((long)blockIdx.x * THREADS + threadIdx.x) * WIDTH;
	float x[WIDTH], a[WIDTH], b[WIDTH], g[WIDTH];

	load_wide(x, w, at, n, wide);
	load_wide(a, m, at, n, wide);
	load_wide(b, v, at, n, wide);
	load_wide(g, grad, at, n, wide);
#pragma unroll
	for (int i = 0; i < WIDTH; i++) {
		float d = g[i] * h.grad_scale;

		a[i] = h.beta1 * a[i] + h.rest1 * d;
		b[i] = h.beta2 * b[i] + h.rest2 * d * d;
		x[i] = x[i] - h.lr * (a[i] / h.bias1 / (sqrtf(b[i] / h.bias2) + h.eps) + h.weight_decay * x[i]);
	}
	store_wide(w, x, at, n, wide);
	store_wide(m, a, at, n, wide);
	store_wide(v, b, at, n, wide);
	if (!low)
		return;
	if (wide && at + WIDTH <= n) {
		*reinterpret_cast<uint2 *>(low + at) = make_uint2(two_halves(x[0], x[1]), two_halves(x[2], x[3]));
		return;
	}
#pragma unroll
	for (int i = 0; i < WIDTH; i++)
		if (at + i < n)
			from_float(low[at + i], x[i]);
}

void adamw_cuda(float *w, float *m, float *v, uint16_t *low, const float *grad, long n, const struct adamw *h)
{
	bool wide = is_wide(w) && is_wide(m) && is_wide(v) && is_wide(grad) && (uintptr_t)low % 8 == 0;

	ck_launch({ "adamw", dim3(ck_blocks(n, THREADS * WIDTH)), dim3(THREADS), 0 }, adamw_kernel, w, m, v, (bf16 *)low, grad, n, *h, wide);
}

/* sum[block] of a piece: each thread its values in ascending order, then block_sum(). */
static __global__ void __launch_bounds__(THREADS) sumsq_kernel(double *sum, const float *x, long n, bool wide)
{
	long first = (long)blockIdx.x * PIECE, end = min(first + PIECE, n);
	float v[WIDTH];
	double s = 0;

	for (long at = first + threadIdx.x * WIDTH; at < end; at += THREADS * WIDTH) {
		load_wide(v, x, at, end, wide);
#pragma unroll
		for (int i = 0; i < WIDTH; i++)
			s += (double)v[i] * (double)v[i];
	}
	s = block_sum<WARPS>(s);
	if (!threadIdx.x)
		sum[blockIdx.x] = s;
}

static __global__ void __launch_bounds__(THREADS) join_kernel(double *sum, const double *part, long n)
{
	double s = 0;

	for (long i = threadIdx.x; i < n; i += THREADS)
		s += part[i];
	s = block_sum<WARPS>(s);
	if (!threadIdx.x)
		*sum = s;
}

double sumsq_cuda(const float *x, long n)
{
	unsigned pieces = ck_blocks(n, PIECE);
	double *part = (double *)cuda_scratch(CUDA_SCRATCH_A, (pieces + 1) * sizeof(double)), s = 0;

	if (!n)
		return 0;
	ck_launch({ "sumsq", dim3(pieces), dim3(THREADS), 0 }, sumsq_kernel, part + 1, x, n, is_wide(x));
	ck_launch({ "sumsq", dim3(1), dim3(THREADS), 0 }, join_kernel, part, part + 1, (long)pieces);
	cuda_download(&s, part, sizeof(s), "sumsq");
	return s;
}
