#include "kernels/cuda/linear.h"

#include "kernels/cuda/linear_product.h"

/*
 * Backward products (linear_kernel.h), and the column sums of dbias: m n e bytes, 8192 x 4096 of
 * bf16: 16 us. Runs of RUN rows are summed apart, a column a thread, and joined in order.
 */

enum { THREADS = 256, RUN = 64 };

template <class T> __global__ void __launch_bounds__(THREADS)
	dbias_kernel(float *part, const T *dy, long rows, long n)
{
	long c = (long)blockIdx.x * THREADS + threadIdx.x, first = (long)blockIdx.y * RUN,
	     end = min(first + RUN, rows);
	float s = 0;

	if (c >= n)
		return;
#pragma unroll 8
	for (long r = first; r < end; r++)
		s += to_float(dy[r * n + c]);
	part[blockIdx.y * n + c] = s;
}

/* dbias[c] + part[0][c] + part[1][c] + ... */
static __global__ void __launch_bounds__(THREADS)
	dbias_join_kernel(float *dbias, const float *part, long runs, long n)
{
	long c = (long)blockIdx.x * THREADS + threadIdx.x;
	float s;

	if (c >= n)
		return;
	s = dbias[c];
#pragma unroll 8
	for (long i = 0; i < runs; i++)
		s += part[i * n + c];
	dbias[c] = s;
}

template <class T> static void column_sums(float *dbias, const T *dy, long m, long n)
{
	constexpr long MOST = 65535; /* runs are a grid's y */

	for (long first = 0; first < m; first += MOST * RUN) {
		long rows = m - first < MOST * RUN ? m - first : MOST * RUN,
		     runs = (rows + RUN - 1) / RUN;
		float *part = (float *)cuda_scratch(CUDA_SCRATCH_A, (size_t)(runs * n) * 4);

		ck_launch({ "linear_dw", dim3(ck_blocks(n, THREADS), (unsigned)runs), dim3(THREADS),
			    0 },
			  dbias_kernel<T>, part, dy + first * n, rows, n);
		ck_launch({ "linear_dw", dim3(ck_blocks(n, THREADS)), dim3(THREADS), 0 },
			  dbias_join_kernel, dbias, part, runs, n);
	}
}

static struct product weights_of(const char *op, float *dw, const void *dy, const void *x, long m,
				 long n, long k, enum dtype t)
{
	long wide = 16 / (long)dtype_size(t);
	struct product p = {};

	p.op = op;
	p.a = dy;
	p.b = x;
	p.y = dw;
	p.lda = line_of(op, n);
	p.ldb = line_of(op, k);
	p.ldy = k;
	p.m = n;
	p.n = k;
	p.k = m;
	p.chunks = 1;
	p.f32 = true;
	p.wide_a = (uintptr_t)dy % 16 == 0 && n % wide == 0;
	p.wide_b = (uintptr_t)x % 16 == 0 && k % wide == 0;
	p.paired = k % 2 == 0 && (uintptr_t)dw % 8 == 0;
	return p;
}

void linear_dw_cuda(float *dw, float *dbias, const void *dy, const void *x, long m, long n, long k,
		    enum dtype t)
{
	struct product p = weights_of("linear_dw", dw, dy, x, m, n, k, t);

	if (m <= 0)
		return;
	if (dw && t == DTYPE_BF16)
		product_run<bf16, DW>(p, nullptr, 1);
	else if (dw)
		product_run<float, DW>(p, nullptr, 1);
	if (dbias && t == DTYPE_BF16)
		column_sums(dbias, (const bf16 *)dy, m, n);
	else if (dbias)
		column_sums(dbias, (const float *)dy, m, n);
}

/* Experts are a grid's y. */
void grouped_dw_cuda(float *dw, const void *dy, const void *x, const long *offset, long experts,
		     long n, long k, enum dtype t)
{
	constexpr long MOST = 65535;
	struct product p = weights_of("grouped_dw", dw, dy, x, 0, n, k, t);

	if (experts <= 0 || !offset[experts])
		return;
	for (long e = 0; e < experts; e += MOST) {
		long z = experts - e < MOST ? experts - e : MOST;

		p.y = dw + e * n * k;
		p.offset = cuda_upload_array(offset + e, z + 1);
		if (t == DTYPE_BF16)
			product_run<bf16, DW>(p, nullptr, z);
		else
			product_run<float, DW>(p, nullptr, z);
	}
}

static void run_dx(const char *op, void *dx, enum dtype tx, const void *dy, const struct matrix *w,
		   long m, bool add, const struct experts *all)
{
	long wide = 16 / (long)dtype_size(w->t);
	struct product p = {};

	if (!w->backward)
		bug("%s with a matrix that is not ready for it", op);
	if (tx != w->t && tx != DTYPE_F32)
		bug("%s to a type that is neither w's nor float32", op);
	p.op = op;
	p.a = dy;
	p.b = w->fwd;
	p.y = dx;
	p.lda = line_of(op, w->n);
	p.packed = matrix_packed(w);
	p.ldb = line_of(op, w->chunks * p.packed);
	p.ldy = w->k;
	p.m = m;
	p.n = p.ldb;
	p.k = w->n;
	p.chunks = w->chunks;
	p.f32 = tx == DTYPE_F32;
	p.add = add;
	p.wide_a = (uintptr_t)dy % 16 == 0 && w->n % wide == 0;
	p.wide_b = true;
	p.paired = w->k % 2 == 0 && (uintptr_t)dx % (2 * dtype_size(tx)) == 0;
	if (w->t == DTYPE_BF16)
		product_run<bf16, DX>(p, all, 1);
	else
		product_run<float, DX>(p, all, 1);
}

void linear_dx_cuda(void *dx, enum dtype tx, const void *dy, const struct matrix *w, long m,
		    bool add)
{
	run_dx("linear_dx", dx, tx, dy, w, m, add, nullptr);
}

void grouped_dx_cuda(void *dx, enum dtype tx, const void *dy, const struct matrix *w,
		     const long *offset, long experts, bool add)
{
	struct experts all = { w, offset, experts };

	if (experts > 0)
		run_dx("grouped_dx", dx, tx, dy, w, offset[experts], add, &all);
}
