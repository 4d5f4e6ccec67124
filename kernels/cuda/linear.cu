#include "kernels/cuda/linear.h"

#include "kernels/cuda/linear_product.h"

/*
 * Matrices and forward products (linear_kernel.h). The joining of chunks or of ranks' parts
 * reads `parts` m n floats and writes m n values: 8 parts of 16 x 4096: 2 MB, from L2.
 */

enum { THREADS = 256 };

/* -- matrices -------------------------------------------------------------------------------- */

long matrix_packed(const struct matrix *w)
{
	long wide = w->t == DTYPE_BF16 ? WIDE<bf16> : WIDE<float>;

	return (w->k / w->chunks + wide - 1) / wide * wide;
}

void matrix_init_cuda(struct matrix *w, enum dtype t, long n, long k, long chunks, bool backward)
{
	if ((t != DTYPE_F32 && t != DTYPE_BF16) || n <= 0 || k <= 0 || chunks <= 0 || k % chunks)
		bug("a matrix of [%ld, %ld] in %ld chunks", n, k, chunks);
	*w = {};
	w->t = t;
	w->n = n;
	w->k = k;
	w->chunks = chunks;
	w->backward = backward; /* of the same memory */
	w->fwd_bytes = (size_t)(n * chunks * matrix_packed(w)) * dtype_size(t);
	w->fwd = alloc_cuda(w->fwd_bytes, "a matrix");
}

template <class T> __global__ void __launch_bounds__(THREADS)
	pack_kernel(T *to, const T *rows, long n, long length, long packed)
{
	long i = (long)blockIdx.x * THREADS + threadIdx.x;

	if (i < n)
		to[i] = i % packed < length ? rows[i / packed * length + i % packed] : T(0.f);
}

void matrix_load_cuda(struct matrix *w, const void *rows)
{
	long length = w->k / w->chunks, packed = matrix_packed(w), n = w->n * w->chunks * packed;
	struct ck_grid g = { "matrix_load", dim3(ck_blocks(n, THREADS)), dim3(THREADS), 0 };

	if (length == packed)
		copy_cuda(w->fwd, rows, w->fwd_bytes);
	else if (w->t == DTYPE_BF16)
		ck_launch(g, pack_kernel<bf16>, (bf16 *)w->fwd, (const bf16 *)rows, n, length,
			  packed);
	else
		ck_launch(g, pack_kernel<float>, (float *)w->fwd, (const float *)rows, n, length,
			  packed);
}

void matrix_release_cuda(struct matrix *w)
{
	release_cuda(w->fwd);
	*w = {};
}

/* -- joining --------------------------------------------------------------------------------- */

/* The sums of N parts, `stride` apart, by the tree; N is a power of two. */
template <int N> DEVICE float tree_of(const float *v)
{
	if constexpr (N == 1)
		return v[0];
	else
		return tree_of<N / 2>(v) + tree_of<N / 2>(v + N / 2);
}

template <int N> DEVICE float join_of(const float *p, long stride)
{
	float v[N];

#pragma unroll
	for (int i = 0; i < N; i++)
		v[i] = p[i * stride];
	return tree_of<N>(v);
}

enum { WAITING = 24 };  /* sums that wait for their right neighbours: the depth of the tree */

/*
 * After part i as many sums are joined as `joins` says, or as the tree over single chunks has
 * there.
 */
DEVICE float join_any(const float *p, long n, long stride, const int *joins)
{
	float s[WAITING] = {}, v = 0;

	for (long i = 0; i < n; i++) {
		int todo = joins ? joins[i] : i + 1 == n ? __popc((unsigned)i) : __ffs(~(int)i) - 1;

		v = p[i * stride];
		for (; todo > 0; todo--) {
			v = s[0] + v;
#pragma unroll
			for (int j = 0; j + 1 < WAITING; j++)
				s[j] = s[j + 1];
		}
#pragma unroll
		for (int j = WAITING - 1; j > 0; j--)
			s[j] = s[j - 1];
		s[0] = v;
	}
	return v;
}

/* N: parts that are single chunks; 0: any. */
template <class T, int N> __global__ void __launch_bounds__(THREADS)
	join_kernel(T *y, const float *parts, const T *bias, long n, long size, long parts_n,
		    const int *joins)
{
	long i = (long)blockIdx.x * THREADS + threadIdx.x;
	float v;

	if (i >= size)
		return;
	if constexpr (N != 0)
		v = join_of<N>(parts + i, size);
	else
		v = join_any(parts + i, parts_n, size, joins);
	if (bias)
		v += to_float(bias[i % n]);
	from_float(y[i], v);
}

/* As above, from bf16 with y in fp32. */
template <int N> __global__ void __launch_bounds__(THREADS)
join_logits_kernel(float *y, const float *parts, const bf16 *bias, long n, long size, long parts_n)
{
	long i = (long)blockIdx.x * THREADS + threadIdx.x;
	float v;

	if (i >= size)
		return;
	if constexpr (N != 0)
		v = join_of<N>(parts + i, size);
	else
		v = join_any(parts + i, parts_n, size, nullptr);
	y[i] = bias ? v + to_float(bias[i % n]) : v;
}

template <class T> static void join(const char *op, T *y, const float *parts, const T *bias, long m,
				    long n, long chunks, const int *joins)
{
	struct ck_grid g = { op, dim3(ck_blocks(m * n, THREADS)), dim3(THREADS), 0 };

	ck_launch(g,
		  joins		? join_kernel<T, 0>
		  : chunks == 8 ? join_kernel<T, 8>
		  : chunks == 4 ? join_kernel<T, 4>
		  : chunks == 2 ? join_kernel<T, 2>
				: join_kernel<T, 0>,
		  y, parts, bias, n, m * n, chunks, joins);
}

/* As the last parameter of linear_join says: after each part, how many sums are whole. */
static long joins_of(int *joins, const long *leaves, long n, long part)
{
	long h;

	if (leaves[part] == n)
		return part + 1;
	h = tree_split(n);
	part = joins_of(joins, leaves, h, part);
	part = joins_of(joins, leaves, n - h, part);
	joins[part - 1]++;
	return part;
}

void linear_join_cuda(void *y, enum dtype t, const float *parts, const struct tree_cut *c,
		      const void *bias, long m, long n)
{
	long all = tree_leaves(c), count = tree_parts_all(c), at = 0;
	std::vector<long> leaves(count);
	std::vector<int> joins(count);
	const int *on_device;

	for (long r = 0; r < c->ranks; r++)
		at += tree_parts(leaves.data() + at, c->first[r], c->first[r + 1] - c->first[r],
				 all);
	joins_of(joins.data(), leaves.data(), all, 0);
	on_device = cuda_upload_array(joins.data(), count);
	if (t == DTYPE_BF16)
		join("linear_join", (bf16 *)y, parts, (const bf16 *)bias, m, n, count, on_device);
	else
		join("linear_join", (float *)y, parts, (const float *)bias, m, n, count, on_device);
}

/* -- products -------------------------------------------------------------------------------- */

static struct product forward_of(const char *op, void *y, enum dtype ty, const void *x,
				 const struct matrix *w, const void *bias, long m)
{
	long length = w->k / w->chunks, wide = 16 / (long)dtype_size(w->t);
	struct product p = {};

	if (ty != w->t && ty != DTYPE_F32)
		bug("%s to a type that is neither w's nor float32", op);
	p.op = op;
	p.a = x;
	p.b = w->fwd;
	p.y = y;
	p.bias = bias;
	p.lda = line_of(op, w->k);
	p.packed = matrix_packed(w);
	p.ldb = line_of(op, w->chunks * p.packed);
	p.ldy = w->n;
	p.m = m;
	p.n = w->n;
	p.k = length;
	p.chunks = w->chunks;
	p.f32 = ty == DTYPE_F32;
	p.wide_a = (uintptr_t)x % 16 == 0 && length % wide == 0;
	p.wide_b = true;
	p.paired = w->n % 2 == 0 && (uintptr_t)y % (2 * dtype_size(ty)) == 0;
	return p;
}

static void run(const struct product &p, enum dtype t, const struct experts *x, long z)
{
	if (t == DTYPE_BF16)
		product_run<bf16, FWD>(p, x, z);
	else
		product_run<float, FWD>(p, x, z);
}

/* Few blocks, and chunks to share out. */
static bool to_be_split(const struct product *p, enum dtype t, const struct experts *x)
{
	long high = product_is_small(p, x) ? 16 : 64,
	     wide = high == 16 && t == DTYPE_BF16 ? 32 : 64;

	return p->chunks > 1 && p->chunks < 65536 &&
	       2 * product_blocks(p, x, high, wide) <= cuda_processors;
}

/* Each chunk's sums, [chunks][m][n] of scratch. */
static float *run_split(struct product p, enum dtype t, const struct experts *x)
{
	p.y = cuda_scratch(CUDA_SCRATCH_A, (size_t)(p.chunks * p.m * p.n) * 4);
	p.f32 = true;
	p.split = true;
	p.paired = p.n % 2 == 0;
	run(p, t, x, p.chunks);
	return (float *)p.y;
}

static void forward(const struct product &p, enum dtype t, const struct experts *x)
{
	const float *parts;

	if (!p.m)
		return;
	if (!to_be_split(&p, t, x)) {
		run(p, t, x, 1);
		return;
	}
	parts = run_split(p, t, x);
	if (t == DTYPE_F32)
		join(p.op, (float *)p.y, parts, (const float *)p.bias, p.m, p.n, p.chunks, nullptr);
	else if (!p.f32)
		join(p.op, (bf16 *)p.y, parts, (const bf16 *)p.bias, p.m, p.n, p.chunks, nullptr);
	else
		ck_launch({ p.op, dim3(ck_blocks(p.m * p.n, THREADS)), dim3(THREADS), 0 },
			  p.chunks == 8	  ? join_logits_kernel<8>
			  : p.chunks == 4 ? join_logits_kernel<4>
					  : join_logits_kernel<0>,
			  (float *)p.y, parts, (const bf16 *)p.bias, p.n, p.m * p.n, p.chunks);
}

void linear_fwd_cuda(void *y, enum dtype ty, const void *x, const struct matrix *w,
		     const void *bias, long m)
{
	forward(forward_of("linear_fwd", y, ty, x, w, bias, m), w->t, nullptr);
}

void grouped_fwd_cuda(void *y, enum dtype ty, const void *x, const struct matrix *w,
		      const long *offset, long experts)
{
	struct experts all = { w, offset, experts };

	if (experts > 0)
		forward(forward_of("grouped_fwd", y, ty, x, w, nullptr, offset[experts]), w->t,
			&all);
}

void linear_parts_cuda(float *y, const void *x, const struct matrix *w, long first, long all,
		       long m)
{
	struct product p = forward_of("linear_parts", y, DTYPE_F32, x, w, nullptr, m);
	std::vector<long> leaves(tree_parts(nullptr, first, w->chunks, all));
	bool split = to_be_split(&p, w->t, nullptr);
	const char *xa = (const char *)p.a, *wa = (const char *)p.b;
	const float *sums = split && m ? run_split(p, w->t, nullptr) : nullptr;
	long at = 0;

	tree_parts(leaves.data(), first, w->chunks, all);
	for (size_t i = 0; i < leaves.size() && m; i++, y += m * w->n) {
		p.a = xa + at * p.k * (long)dtype_size(w->t);
		p.b = wa + at * p.packed * (long)dtype_size(w->t);
		p.y = y;
		p.chunks = leaves[i];
		p.paired = w->n % 2 == 0 && (uintptr_t)y % 8 == 0;
		if (split)
			join("linear_parts", y, sums + at * m * w->n, (const float *)nullptr, m,
			     w->n, p.chunks, nullptr);
		else
			run(p, w->t, nullptr, 1);
		at += leaves[i];
	}
}
