#include "kernels/cuda/backend.h"
#include "kernels/cuda/device.h"

/*
 * A row of up to NARROW values is a warp's, of more a block's; which of them depends on the columns alone, and so does the order of
 * the sums: thread i adds up groups i, i + THREADS, ... of WIDE<T> values, in ascending order, then come the trees of device.h.  The
 * row's second reading comes from cache.  Bytes for R rows of C values, e each, on an H200 at 4.3 TB/s:
 *
 *	rmsnorm_fwd    2 R C e        4096 x 4096 in bf16: 67 MB, 16 us
 *	rmsnorm_bwd    dx 3 R C e (4 when added to), dw 2 R C e, since what a column sums a row's block does not see
 */

enum { NARROW = 512, WARPS = 8, THREADS = 32 * WARPS, RUN = 64 };

/* W warps a row. */
template <int W> struct line {
	long row;
	int thread, threads;
};

template <int W> DEVICE struct line<W> my_line(void)
{
	if (W == 1)
		return { (long)blockIdx.x * WARPS + threadIdx.x / 32, (int)threadIdx.x % 32, 32 };
	return { (long)blockIdx.x, (int)threadIdx.x, THREADS };
}

template <int W> DEVICE float line_sum(float v)
{
	return block_sum<W>(v);
}

template <class T, int W> __global__ void __launch_bounds__(THREADS)
rmsnorm_kernel(T *y, float *rstd, const T *x, const T *w, long rows, long cols, float eps, bool wide)
{
	struct line<W> l = my_line<W>();
	float v[WIDE<T>], k[WIDE<T>], s = 0, r;

	if (l.row >= rows)
		return;
	x += l.row * cols;
	y += l.row * cols;
	for (long at = (long)l.thread * WIDE<T>; at < cols; at += (long)l.threads * WIDE<T>) {
		load_wide(v, x, at, cols, wide);
#pragma unroll
		for (int i = 0; i < WIDE<T>; i++)
			s += v[i] * v[i];
	}
	r = 1.f / sqrtf(line_sum<W>(s) / (float)cols + eps);
	if (rstd && !l.thread)
		rstd[l.row] = r;
	for (long at = (long)l.thread * WIDE<T>; at < cols; at += (long)l.threads * WIDE<T>) {
		load_wide(v, x, at, cols, wide);
		load_wide(k, w, at, cols, wide);
#pragma unroll
		for (int i = 0; i < WIDE<T>; i++)
			v[i] = v[i] * r * k[i];
		store_wide(y, v, at, cols, wide);
	}
}

template <class T, int W> __global__ void __launch_bounds__(THREADS)
rmsnorm_dx_kernel(T *dx, const T *dy, const T *x, const T *w, const float *rstd, long rows, long cols, bool add, bool wide)
{
	struct line<W> l = my_line<W>();
	float v[WIDE<T>], g[WIDE<T>], k[WIDE<T>], o[WIDE<T>], s = 0, r, c;

	if (l.row >= rows)
		return;
	x += l.row * cols;
	dy += l.row * cols;
	dx += l.row * cols;
	r = rstd[l.row];
	for (long at = (long)l.thread * WIDE<T>; at < cols; at += (long)l.threads * WIDE<T>) {
		load_wide(v, x, at, cols, wide);
		load_wide(g, dy, at, cols, wide);
		load_wide(k, w, at, cols, wide);
#pragma unroll
		for (int i = 0; i < WIDE<T>; i++)
			s += g[i] * k[i] * v[i];
	}
	c = r * r * (line_sum<W>(s) / (float)cols);
	for (long at = (long)l.thread * WIDE<T>; at < cols; at += (long)l.threads * WIDE<T>) {
		load_wide(v, x, at, cols, wide);
		load_wide(g, dy, at, cols, wide);
		load_wide(k, w, at, cols, wide);
		if (add)
			load_wide(o, dx, at, cols, wide);
#pragma unroll
		for (int i = 0; i < WIDE<T>; i++) {
			float d = r * (g[i] * k[i] - v[i] * c);

			o[i] = add ? o[i] + d : d;
		}
		store_wide(dx, o, at, cols, wide);
	}
}

/* part[run][c]: the rows of a run, in their order.  A thread has one column; a warp reads 32 side by side. */
template <class T> __global__ void __launch_bounds__(THREADS)
rmsnorm_dw_kernel(float *part, const T *dy, const T *x, const float *rstd, long rows, long cols)
{
	long c = (long)blockIdx.x * THREADS + threadIdx.x, first = (long)blockIdx.y * RUN, end = min(first + RUN, rows);
	float s = 0;

	if (c >= cols)
		return;
#pragma unroll 8
	for (long r = first; r < end; r++)
		s += to_float(dy[r * cols + c]) * to_float(x[r * cols + c]) * rstd[r];
	part[blockIdx.y * cols + c] = s;
}

/* dw[c] += part[0][c] + part[1][c] + ... */
static __global__ void __launch_bounds__(THREADS) join_runs_kernel(float *dw, const float *part, long runs, long cols)
{
	long c = (long)blockIdx.x * THREADS + threadIdx.x;
	float s = 0;

	if (c >= cols)
		return;
	for (long i = 0; i < runs; i++)
		s += part[i * cols + c];
	dw[c] += s;
}

static struct ck_grid a_row_each(const char *op, long rows, long cols)
{
	return { op, dim3(cols <= NARROW ? ck_blocks(rows, WARPS) : ck_blocks(rows, 1)), dim3(THREADS), 0 };
}

template <class T> static void fwd(T *y, float *rstd, const T *x, const T *w, long rows, long cols, float eps)
{
	bool wide = is_wide(y) && is_wide(x) && is_wide(w) && cols % WIDE<T> == 0;

	ck_launch(a_row_each("rmsnorm_fwd", rows, cols), cols <= NARROW ? rmsnorm_kernel<T, 1> : rmsnorm_kernel<T, WARPS>, y, rstd, x, w, rows,
		  cols, eps, wide);
}

void rmsnorm_fwd_cuda(void *y, float *rstd, const void *x, const void *w, long rows, long cols, float eps, enum dtype t)
{
	if (t == DTYPE_BF16)
		fwd((bf16 *)y, rstd, (const bf16 *)x, (const bf16 *)w, rows, cols, eps);
	else
		fwd((float *)y, rstd, (const float *)x, (const float *)w, rows, cols, eps);
}

template <class T> static void bwd(T *dx, float *dw, const T *dy, const T *x, const T *w, const float *rstd, long rows, long cols, bool add)
{
	bool wide = is_wide(dx) && is_wide(dy) && is_wide(x) && is_wide(w) && cols % WIDE<T> == 0;
	long runs = (rows + RUN - 1) / RUN;

	/* Runs are a grid's y. */
	for (long first = 0; dw && first < runs; first += 65535) {
		long n = runs - first < 65535 ? runs - first : 65535, skip = first * RUN;
		float *part = (float *)cuda_scratch(CUDA_SCRATCH_A, (size_t)(n * cols) * 4);

		ck_launch({ "rmsnorm_bwd", dim3(ck_blocks(cols, THREADS), (unsigned)n), dim3(THREADS), 0 }, rmsnorm_dw_kernel<T>, part,
			  dy + skip * cols, x + skip * cols, rstd + skip, rows - skip, cols);
		ck_launch({ "rmsnorm_bwd", dim3(ck_blocks(cols, THREADS)), dim3(THREADS), 0 }, join_runs_kernel, dw, part, n, cols);
	}
	ck_launch(a_row_each("rmsnorm_bwd", rows, cols), cols <= NARROW ? rmsnorm_dx_kernel<T, 1> : rmsnorm_dx_kernel<T, WARPS>, dx, dy, x, w,
		  rstd, rows, cols, add, wide);
}

void rmsnorm_bwd_cuda(void *dx, float *dw, const void *dy, const void *x, const void *w, const float *rstd, long rows, long cols, bool add,
		      enum dtype t)
{
	if (t == DTYPE_BF16)
		bwd((bf16 *)dx, dw, (const bf16 *)dy, (const bf16 *)x, (const bf16 *)w, rstd, rows, cols, add);
	else
		bwd((float *)dx, dw, (const float *)dy, (const float *)x, (const float *)w, rstd, rows, cols, add);
}
