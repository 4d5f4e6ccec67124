#include "kernels/cuda/logprob.h"

#include <vector>

#include "kernels/cuda/backend.h"
#include "kernels/cuda/device.h"

/*
 * Log-probabilities, entropy and their gradient from logits z[R, V] in float32.  On an H200 at 4.3 TB/s:
 *
 *	logprob, logprob_parts   4 R V bytes, read once            1700 rows of 151936: 1.03 GB, 240 us; about 15 operations a value
 *	logprob_bwd              (4 + e) R V                       in bf16 1.55 GB, 360 us
 *	logprob_join             12 bytes a part and row           nothing beside these
 *
 * A warp has one VOCAB_BLOCK of one row and keeps all of it in registers, 8 loads of 16 bytes a lane under way together: maximum, sum of
 * exp and sum of exp times exponent from one reading.  The 12 bytes that are left of each 4096 are joined by a second kernel, a block a
 * row, by the shape of tree_join().  So even few rows fill the device, and float32 logits live only as long as the head's chunk of them.
 */

enum { WARPS = 8, THREADS = 32 * WARPS, TREE_THREADS = 64, TREE_SHARED = 1024, PER_LANE = VOCAB_BLOCK / 128 };

/* Of a run of blocks: maximum m, s = sum exp(x - m), e = sum exp(x - m) (x - m), with x = z / T. */
struct vocab_part { float m, s, e; };

static const float LOWEST = -110.f;     /* exp of it is 0 */

DEVICE float power(float x)
{
	return ck_exp2(x * 1.44269504f);
}

DEVICE float inverse_of(const struct cuda_inverse &inverse, long row)
{
	return inverse.of_row ? inverse.of_row[row] : inverse.all;
}

/* Of four values at a time: a maximum passes NaN by, the sums do not. */
DEVICE struct vocab_part block_part(const float *z, long n, float inv, bool wide)
{
	float x[PER_LANE][4], m = -INFINITY, s = 0, e = 0;
	long lane = threadIdx.x % 32;

#pragma unroll
	for (int j = 0; j < PER_LANE; j++)
		load_wide(x[j], z, 4 * (lane + 32 * j), n, wide);
#pragma unroll
	for (int j = 0; j < PER_LANE; j++)
#pragma unroll
		for (int i = 0; i < 4; i++) {
			x[j][i] = 4 * (lane + 32 * j) + i < n ? x[j][i] * inv : -INFINITY;
			m = fmaxf(m, x[j][i]);
		}
#pragma unroll
	for (int o = 16; o; o >>= 1)
		m = fmaxf(m, __shfl_xor_sync(~0u, m, o));
#pragma unroll
	for (int j = 0; j < PER_LANE; j++)
#pragma unroll
		for (int i = 0; i < 4; i++) {
			float d = x[j][i] - (m == -INFINITY ? 0.f : m), p = power(d);

			s += p;
			e += p * (d < LOWEST ? LOWEST : d);
		}
	return { m, warp_sum(s), warp_sum(e) };
}

/* part[row][block] of a vocabulary of n, or of a rank's n columns of it. */
static __global__ void __launch_bounds__(THREADS)
blocks_kernel(struct vocab_part *to, const float *z, long rows, long n, long blocks, struct cuda_inverse inverse, bool wide)
{
	long w = (long)blockIdx.x * WARPS + threadIdx.x / 32, row = w / blocks, at = w % blocks * VOCAB_BLOCK;
	struct vocab_part p;

	if (row >= rows)
		return;
	p = block_part(z + row * n + at, min(n - at, (long)VOCAB_BLOCK), inverse_of(inverse, row), wide);
	if (threadIdx.x % 32 == 0)
		to[w] = p;
}

DEVICE struct vocab_part join(const struct vocab_part &a, const struct vocab_part &b)
{
	float m = a.m > b.m ? a.m : b.m, da, db, xa, xb;

	if (m == -INFINITY)
		return { m, a.s + b.s, a.e + b.e };
	da = a.m == -INFINITY ? LOWEST : a.m - m;
	db = b.m == -INFINITY ? LOWEST : b.m - m;
	xa = power(da);
	xb = power(db);
	return { m, a.s * xa + b.s * xb, xa * (a.e + a.s * da) + xb * (b.e + b.s * db) };
}

/* Neighbours first, then neighbours of those: what is left over at an end waits.  This is tree_join()'s shape.  All of a block call it. */
DEVICE struct vocab_part tree(struct vocab_part *p, long n)
{
	for (long step = 1; step < n; step *= 2) {
		for (long i = 2 * step * threadIdx.x; i + step < n; i += 2 * step * TREE_THREADS)
			p[i] = join(p[i], p[i + step]);
		__syncthreads();
	}
	return p[0];
}

/* The same, where it is fast if there is room. */
DEVICE struct vocab_part tree_of(struct vocab_part *from, long n)
{
	CK_SHARED(struct vocab_part, near, [TREE_SHARED]);

	if (n > TREE_SHARED)
		return tree(from, n);
	for (long i = threadIdx.x; i < n; i += TREE_THREADS)
		near[i] = from[i];
	__syncthreads();
	return tree(near, n);
}

/* lp, lse and entropy stand `rows` apart.  x: the target's z / T. */
DEVICE void finish(float *to, long rows, const struct vocab_part &p, float x)
{
	double log_s = log((double)p.s), l = (double)p.m + log_s;

	if (!isfinite(p.m) || !isfinite(p.s))
		l = (double)NAN;
	to[0] = (float)((double)x - l);
	to[rows] = (float)l;
	to[2 * rows] = (float)(log_s - (double)p.e / (double)p.s);
}

static __global__ void __launch_bounds__(TREE_THREADS)
whole_kernel(float *to, struct vocab_part *from, const float *z, const int *target, long rows, long V, long blocks, struct cuda_inverse inverse)
{
	long r = blockIdx.x;
	struct vocab_part p = tree_of(from + r * blocks, blocks);

	if (!threadIdx.x)
		finish(to + r, rows, p, target[r] < 0 ? NAN : z[r * V + target[r]] * inverse_of(inverse, r));
}

static const struct vocab_part *blocks_of(const char *op, const float *z, long rows, long n, struct cuda_inverse inverse)
{
	long blocks = (n + VOCAB_BLOCK - 1) / VOCAB_BLOCK;
	struct vocab_part *p = (struct vocab_part *)cuda_scratch(CUDA_SCRATCH_A, (size_t)(rows * blocks) * sizeof(*p));

	ck_launch({ op, dim3(ck_blocks(rows * blocks, WARPS)), dim3(THREADS), 0 }, blocks_kernel, p, z, rows, n, blocks, inverse,
		  is_wide(z) && n % 4 == 0);
	return p;
}

float *cuda_logprob_rows(const char *op, const float *z, const int *target, long rows, long V, struct cuda_inverse inverse)
{
	float *to = (float *)cuda_scratch(CUDA_SCRATCH_B, (size_t)rows * 3 * sizeof(*to));
	const struct vocab_part *p = blocks_of(op, z, rows, V, inverse);

	ck_launch({ op, dim3(ck_blocks(rows, 1)), dim3(TREE_THREADS), 0 }, whole_kernel, to, (struct vocab_part *)p, z, target, rows, V,
		  (V + VOCAB_BLOCK - 1) / VOCAB_BLOCK, inverse);
	return to;
}

static void give(float *lp, float *lse, float *entropy, const float *from, long rows, const char *op)
{
	std::vector<float> all((size_t)rows * 3);
	size_t bytes = (size_t)rows * sizeof(float);

	cuda_download(all.data(), from, 3 * bytes, op);
	memcpy(lp, all.data(), bytes);
	if (lse)
		memcpy(lse, all.data() + rows, bytes);
	if (entropy)
		memcpy(entropy, all.data() + 2 * rows, bytes);
}

void logprob_cuda(float *lp, float *lse, float *entropy, const float *z, const int *target, long rows, long V, float temperature)
{
	if (!rows)
		return;
	const float *to = cuda_logprob_rows("logprob", z, cuda_upload_array(target, rows), rows, V, { nullptr, 1.f / temperature });
	give(lp, lse, entropy, to, rows, "logprob");
}

/* -- the vocabulary over ranks ------------------------------------------------------------------------------ */

/* Part i of a row has the blocks leaf[i] .. leaf[i + 1] - 1.  begin: of the columns, in the vocabulary. */
static __global__ void __launch_bounds__(TREE_THREADS)
parts_kernel(float *out, struct vocab_part *from, const long *leaf, const float *z, const int *target, long parts, long n, long begin, float inv)
{
	long r = blockIdx.x / parts, i = blockIdx.x % parts, hit = target[r] - begin;
	long blocks = (n + VOCAB_BLOCK - 1) / VOCAB_BLOCK;
	struct vocab_part p = tree_of(from + r * blocks + leaf[i], leaf[i + 1] - leaf[i]);

	if (threadIdx.x)
		return;
	out += r * (3 * parts + 1);
	out[3 * i] = p.m;
	out[3 * i + 1] = p.s;
	out[3 * i + 2] = p.e;
	if (!i)
		out[3 * parts] = hit >= 0 && hit < n ? z[r * n + hit] * inv : 0.f;
}

void logprob_parts_cuda(float *out, const float *z, const int *target, long rows, long n, const struct tree_cut *c, long rank,
			float temperature)
{
	long leaf[2 * TREE_DEPTH + 1] = { 0 }, first = c->first[rank], parts;
	float inv = 1.f / temperature;

	parts = tree_parts(leaf + 1, first, c->first[rank + 1] - first, tree_leaves(c));
	for (long i = 0; i < parts; i++)
		leaf[i + 1] += leaf[i];
	if (!parts || !rows) {
		zero_cuda(out, (size_t)rows * sizeof(*out));
		return;
	}
	const long *l = cuda_upload_array(leaf, parts + 1);
	const int *t = cuda_upload_array(target, rows);
	struct vocab_part *p = (struct vocab_part *)blocks_of("logprob_parts", z, rows, n, { nullptr, inv });

	ck_launch({ "logprob_parts", dim3(ck_blocks(rows * parts, 1)), dim3(TREE_THREADS), 0 }, parts_kernel, out, p, l, z, t, parts, n,
		  first * VOCAB_BLOCK, inv);
}

/* Where a part, or a target's z / T, of row r lies: at + r * stride. */
struct part_place { long at, stride; };

/* What is left of the tree: parts `to` becomes the join of `to` and `with`, one step after the other. */
struct part_step { int to, with; };

struct parts_rest {
	std::vector<struct part_place> part, x;      /* x: of each rank's */
	std::vector<struct part_step> step;
	std::vector<long> leaves;
};

/* The node over n blocks whose first part is the next one: where its join ends up. */
static int rest_node(struct parts_rest *t, size_t *part, long n)
{
	long h;
	int left, right;

	if (t->leaves[*part] == n)
		return (int)(*part)++;
	h = tree_split(n);
	left = rest_node(t, part, h);
	right = rest_node(t, part, n - h);
	t->step.push_back({ left, right });
	return left;
}

static struct parts_rest rest_of(const struct tree_cut *c, long rows)
{
	struct parts_rest t;
	long leaves[2 * TREE_DEPTH], at = 0;
	size_t part = 0;

	for (long r = 0; r < c->ranks; r++) {
		long n = tree_parts(leaves, c->first[r], c->first[r + 1] - c->first[r], tree_leaves(c)), stride = 3 * n + 1;

		for (long i = 0; i < n; i++) {
			t.part.push_back({ at + 3 * i, stride });
			t.leaves.push_back(leaves[i]);
		}
		t.x.push_back({ at + 3 * n, stride });
		at += rows * stride;
	}
	rest_node(&t, &part, tree_leaves(c));
	return t;
}

/* A thread a row.  p[part][row]. */
static __global__ void __launch_bounds__(TREE_THREADS)
rest_kernel(float *to, struct vocab_part *p, const float *all, const struct part_place *place, long parts, const struct part_step *step, const long *x,
	    long rows)
{
	long r = (long)blockIdx.x * TREE_THREADS + threadIdx.x;

	if (r >= rows)
		return;
	for (long i = 0; i < parts; i++) {
		const float *a = all + place[i].at + r * place[i].stride;

		p[i * rows + r] = { a[0], a[1], a[2] };
	}
	for (long i = 0; i < parts - 1; i++)
		p[step[i].to * rows + r] = join(p[step[i].to * rows + r], p[step[i].with * rows + r]);
	finish(to + r, rows, p[r], all[x[r]]);
}

void logprob_join_cuda(float *lp, float *lse, float *entropy, const float *all, const int *target, long rows, const struct tree_cut *c)
{
	struct parts_rest t = rest_of(c, rows);
	long parts = (long)t.part.size();
	std::vector<long> x((size_t)rows);

	if (!rows)
		return;
	for (long r = 0; r < rows; r++) {
		size_t owner = 0;

		while (target[r] >= c->first[owner + 1] * VOCAB_BLOCK)
			owner++;
		x[(size_t)r] = t.x[owner].at + r * t.x[owner].stride;
	}
	float *to = (float *)cuda_scratch(CUDA_SCRATCH_B, (size_t)rows * 3 * sizeof(*to));
	struct vocab_part *p = (struct vocab_part *)cuda_scratch(CUDA_SCRATCH_A, (size_t)(rows * parts) * sizeof(*p));
	const struct part_place *place = cuda_upload_array(t.part.data(), parts);
	const struct part_step *step = cuda_upload_array(t.step.data(), parts - 1);

	ck_launch({ "logprob_join", dim3(ck_blocks(rows, TREE_THREADS)), dim3(TREE_THREADS), 0 }, rest_kernel, to, p, all, place, parts, step,
		  cuda_upload_array(x.data(), rows), rows);
	give(lp, lse, entropy, to, rows, "logprob_join");
}

/* -- backward ------------------------------------------------------------------------------------------------ */

/* A thread has WIDE<T> values; `each` blocks cover a row.  A row without a gradient is zero even where it has no log-probability. */
template <class T> __global__ void __launch_bounds__(THREADS)
logprob_bwd_kernel(T *dz, const float *dlp, const float *lse, const float *z, const int *target, long V, long each, float inv, bool wide)
{
	long r = blockIdx.x / each, at = (blockIdx.x % each * THREADS + threadIdx.x) * WIDE<T>;
	float g = dlp[r] * inv, l = lse[r], x[WIDE<T>];
	long hit = target[r] - at;

	if (at >= V)
		return;
	z += r * V;
#pragma unroll
	for (int j = 0; j < WIDE<T>; j += 4) {
		float four[4];

		load_wide(four, z, at + j, V, wide);
#pragma unroll
		for (int i = 0; i < 4; i++)
			x[j + i] = four[i];
	}
#pragma unroll
	for (int i = 0; i < WIDE<T>; i++) {
		x[i] = -g * power(x[i] * inv - l);
		x[i] = g == 0 ? 0.f : hit == i ? x[i] + g : x[i];
	}
	store_wide(dz + r * V, x, at, V, wide);
}

template <class T>
static void bwd(T *dz, const float *dlp, const float *lse, const float *z, const int *target, long rows, long V, float inv)
{
	long each = (V + (long)THREADS * WIDE<T> - 1) / ((long)THREADS * WIDE<T>);

	ck_launch({ "logprob_bwd", dim3(ck_blocks(rows * each, 1)), dim3(THREADS), 0 }, logprob_bwd_kernel<T>, dz, dlp, lse, z, target, V, each, inv,
		  is_wide(dz) && is_wide(z) && V % WIDE<T> == 0);
}

void logprob_bwd_cuda(void *dz, const float *dlp, const float *lse, const float *z, const int *target, long rows, long V, float temperature,
		      enum dtype t)
{
	float inv = 1.f / temperature;

	if (!rows || !V)
		return;
	dlp = cuda_upload_array(dlp, rows);
	lse = cuda_upload_array(lse, rows);
	target = cuda_upload_array(target, rows);
	if (t == DTYPE_BF16)
		bwd((bf16 *)dz, dlp, lse, z, target, rows, V, inv);
	else
		bwd((float *)dz, dlp, lse, z, target, rows, V, inv);
}
