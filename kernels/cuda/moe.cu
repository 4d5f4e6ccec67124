#include "kernels/cuda/backend.h"
#include "kernels/cuda/device.h"

/*
 * Layers with experts, what is not a product (kernels/moe.h).  For R rows with k of E experts and C columns, e bytes each, an H200 at
 * 4.3 TB/s needs, for 4096 rows, k = 8, E = 128, C = 2048 in bfloat16 (activations of experts 768 wide):
 *
 *	route, route_bwd   8 R E, (4 + e) R E     a warp a row; 4 MB, 1 us
 *	sort_slots         16 R k + 8 E R k / 256 0.5 MB: launches and a download, some 20 us
 *	combine            4 R k C + e R C        285 MB, 66 us; once more 4 R C with a shared expert
 *	unpermute          as combine
 *	weigh_bwd          4 e R k C              201 MB, 47 us; what is read twice comes from cache the second time
 *	sigmoid            8 n
 *
 * 16 bytes a thread and access; sums over slots in their order in registers.
 */

enum { THREADS = 256, WARPS = THREADS / 32, SLOTS = 256, DOT_WARPS = 4, DOT_THREADS = 32 * DOT_WARPS };

DEVICE float warp_max(float m)
{
#pragma unroll
	for (int o = 16; o; o >>= 1)
		m = fmaxf(m, __shfl_xor_sync(~0u, m, o));
	return m;
}

/* -- routing --------------------------------------------------------------------------------------------------- */

/* In the order of z; of equals the lower expert is the higher.  NaN is lowest: such a row has no weights, but experts. */
DEVICE uint64_t rank_of(float z, long e)
{
	unsigned u = __float_as_uint(z + 0.f);

	u = u & 0x80000000u ? ~u : u | 0x80000000u;
	return (uint64_t)(isnan(z) ? 1 : u) << 32 | (~0u - (unsigned)e);
}

/* The k highest in falling order: each is the highest below the last.  All of a warp call it. */
DEVICE void choose(int *id, const float *z, long experts, long k)
{
	uint64_t last = ~(uint64_t)0;
	long lane = threadIdx.x % 32;

	for (long s = 0; s < k; s++) {
		uint64_t best = 0;

		for (long e = lane; e < experts; e += 32) {
			uint64_t rank = rank_of(z[e], e);

			best = rank < last ? max(best, rank) : best;
		}
#pragma unroll
		for (int o = 16; o; o >>= 1)
			best = max(best, __shfl_xor_sync(~0u, best, o));
		last = best;
		if (!lane)
			id[s] = (int)(~0u - (unsigned)best);
	}
	__syncwarp();
}

/* p may be z: the logits of the chosen are kept in weight before. */
static __global__ void __launch_bounds__(THREADS)
route_kernel(int *id, float *weight, float *p, float *lse, const float *z, long rows, struct routing s, bool given)
{
	long r = (long)blockIdx.x * WARPS + threadIdx.x / 32, lane = threadIdx.x % 32;
	float m = -INFINITY, sum = 0, top = -INFINITY, all = 0;

	if (r >= rows)
		return;
	id += r * s.k;
	weight += r * s.k;
	p += r * s.experts;
	z += r * s.experts;
	if (!given || id[0] < 0) {
		__syncwarp();
		choose(id, z, s.experts, s.k);
	}
	for (long i = lane; i < s.k; i += 32) {
		weight[i] = z[id[i]];
		top = fmaxf(top, weight[i]);
	}
	for (long e = lane; e < s.experts; e += 32)
		m = fmaxf(m, z[e]);
	m = warp_max(m);
	top = s.norm ? warp_max(top) : m;
	for (long e = lane; e < s.experts; e += 32)
		sum += expf(z[e] - m);
	for (long i = lane; i < s.k; i += 32)
		all += expf(weight[i] - top);
	sum = warp_sum(sum);
	all = s.norm ? warp_sum(all) : sum;
	__syncwarp();
	for (long e = lane; e < s.experts; e += 32)
		p[e] = expf(z[e] - m) / sum;
	for (long i = lane; i < s.k; i += 32)
		weight[i] = isnan(sum) ? NAN : expf(weight[i] - top) / all;
	if (lse && !lane)
		lse[r] = (float)((double)m + log((double)sum));
}

void route_cuda(int *id, float *weight, float *p, float *lse, const float *z, long rows, const struct routing *s, bool given)
{
	if (s->k < 1 || s->k > s->experts)
		bug("%ld of %ld experts", s->k, s->experts);
	ck_launch({ "route", dim3(ck_blocks(rows, WARPS)), dim3(THREADS), 0 }, route_kernel, id, weight, p, lse, z, rows, *s, given);
}

/* dp NULL: none; lse NULL: no z loss. */
template <class T> __global__ void __launch_bounds__(THREADS)
route_bwd_kernel(T *dz, const float *dweight, const int *id, const float *weight, const float *p, const float *lse, const float *dp,
		 float z_scale, long rows, struct routing s)
{
	long r = (long)blockIdx.x * WARPS + threadIdx.x / 32, lane = threadIdx.x % 32;
	float sum = 0, own = 0, z;

	if (r >= rows)
		return;
	id += r * s.k;
	weight += r * s.k;
	dweight += r * s.k;
	p += r * s.experts;
	for (long i = lane; i < s.k; i += 32)
		sum += dweight[i] * weight[i];
	sum = warp_sum(sum);
	for (long e = lane; dp && e < s.experts; e += 32)
		own += p[e] * dp[e];
	own = warp_sum(own);
	z = lse ? z_scale * lse[r] : 0.f;
	for (long e = lane; e < s.experts; e += 32) {
		float d = s.norm ? 0.f : -p[e] * sum;

		for (long i = 0; i < s.k; i++)
			if (id[i] == e)
				d += s.norm ? weight[i] * (dweight[i] - sum) : weight[i] * dweight[i];
		if (dp || lse)
			d += p[e] * ((dp ? dp[e] - own : 0.f) + z);
		from_float(dz[r * s.experts + e], d);
	}
}

void route_bwd_cuda(void *dz, const float *dweight, const int *id, const float *weight, const float *p, const float *lse,
		    const struct router_loss *own, long rows, const struct routing *s, enum dtype t)
{
	struct ck_grid g = { "route_bwd", dim3(ck_blocks(rows, WARPS)), dim3(THREADS), 0 };
	float scale = own ? own->z_scale : 0;
	const float *dp = own ? own->dp : nullptr, *l = scale != 0 ? lse : nullptr;

	if (t == DTYPE_BF16)
		ck_launch(g, route_bwd_kernel<bf16>, (bf16 *)dz, dweight, id, weight, p, l, dp, scale, rows, *s);
	else
		ck_launch(g, route_bwd_kernel<float>, (float *)dz, dweight, id, weight, p, l, dp, scale, rows, *s);
}

/* -- slots by expert --------------------------------------------------------------------------------------------- */

/* count[chunk][E] of SLOTS slots each. */
static __global__ void __launch_bounds__(SLOTS) count_kernel(int *count, const int *id, long slots, long experts)
{
	CK_DYN_SHARED(raw);
	int *n = (int *)raw;
	long i = (long)blockIdx.x * SLOTS + threadIdx.x;

	for (long e = threadIdx.x; e < experts; e += SLOTS)
		n[e] = 0;
	__syncthreads();
	if (i < slots)
		atomicAdd(&n[id[i]], 1);
	__syncthreads();
	for (long e = threadIdx.x; e < experts; e += SLOTS)
		count[blockIdx.x * experts + e] = n[e];
}

/* count[chunk][e] becomes how many of e's come before the chunk; offset[E + 1].  One block. */
static __global__ void __launch_bounds__(THREADS) offset_kernel(long *offset, int *count, long chunks, long experts)
{
	for (long e = threadIdx.x; e < experts; e += THREADS) {
		int sum = 0;

		for (long c = 0; c < chunks; c++) {
			int n = count[c * experts + e];

			count[c * experts + e] = sum;
			sum += n;
		}
		offset[e + 1] = sum;
	}
	__syncthreads();
	if (threadIdx.x)
		return;
	offset[0] = 0;
	for (long e = 0; e < experts; e++)
		offset[e + 1] += offset[e];
}

/* A slot comes after those of its expert that stand before it. */
static __global__ void __launch_bounds__(SLOTS)
place_kernel(int *from, int *place, const int *id, const long *offset, const int *count, long slots, long experts, long k)
{
	CK_SHARED(int, expert, [SLOTS]);
	long i = (long)blockIdx.x * SLOTS + threadIdx.x, at;
	int mine = i < slots ? id[i] : -1, before = 0;

	expert[threadIdx.x] = mine;
	__syncthreads();
	if (i >= slots)
		return;
	for (unsigned j = 0; j < threadIdx.x; j++)
		before += expert[j] == mine;
	at = offset[mine] + count[blockIdx.x * experts + mine] + before;
	place[i] = (int)at;
	from[at] = (int)(i / k);
}

void sort_slots_cuda(long *offset, int *from, int *place, const int *id, long rows, const struct routing *s)
{
	long slots = rows * s->k, chunks = (slots + SLOTS - 1) / SLOTS;
	int *count = (int *)cuda_scratch(CUDA_SCRATCH_A, (size_t)(chunks * s->experts) * sizeof(*count));
	long *begin = (long *)cuda_scratch(CUDA_SCRATCH_B, (size_t)(s->experts + 1) * sizeof(*begin));
	struct ck_grid g = { "sort_slots", dim3((unsigned)chunks), dim3(SLOTS), 0 }, counts = g;

	counts.shared = (size_t)s->experts * sizeof(int);
	ck_launch(counts, count_kernel, count, id, slots, s->experts);
	ck_launch({ "sort_slots", dim3(1), dim3(THREADS), 0 }, offset_kernel, begin, count, chunks, s->experts);
	ck_launch(g, place_kernel, from, place, id, begin, count, slots, s->experts, s->k);
	cuda_download(offset, begin, (size_t)(s->experts + 1) * sizeof(*offset), "sort_slots");
}

/* -- rows of slots ----------------------------------------------------------------------------------------------- */

/* x of WIDE<T> floats. */
template <int N> DEVICE void load_floats(float (&x)[N], const float *p, long at, long n, bool wide)
{
#pragma unroll
	for (int j = 0; j < N; j += 4) {
		float four[4];

		load_wide(four, p, at + j, n, wide);
#pragma unroll
		for (int i = 0; i < 4; i++)
			x[j + i] = four[i];
	}
}

/* A thread has WIDE<T> columns of a row; `each` blocks cover it.  weight NULL: all 1. */
template <class T> __global__ void __launch_bounds__(THREADS)
slots_kernel(T *y, const float *o, const int *place, const float *weight, const float *gate, const float *shared, long k, long cols,
	     long each, bool wide)
{
	long r = blockIdx.x / each, at = (blockIdx.x % each * THREADS + threadIdx.x) * WIDE<T>;
	float sum[WIDE<T>], x[WIDE<T>];

	if (at >= cols)
		return;
	for (long s = 0; s < k; s++) {
		float w = weight ? weight[r * k + s] : 1.f;

		load_floats(x, o + place[r * k + s] * cols, at, cols, wide);
#pragma unroll
		for (int i = 0; i < WIDE<T>; i++)
			sum[i] = s ? sum[i] + w * x[i] : w * x[i];
	}
	if (shared) {
		load_floats(x, shared + r * cols, at, cols, wide);
#pragma unroll
		for (int i = 0; i < WIDE<T>; i++)
			sum[i] += gate[r] * x[i];
	}
	store_wide(y + r * cols, sum, at, cols, wide);
}

template <class T> static void slots_of(const char *op, T *y, const float *o, const int *place, const float *weight, const float *gate,
					const float *shared, long rows, long k, long cols)
{
	long each = (cols + (long)THREADS * WIDE<T> - 1) / ((long)THREADS * WIDE<T>);
	bool wide = is_wide(y) && is_wide(o) && (!shared || is_wide(shared)) && cols % WIDE<T> == 0;

	ck_launch({ op, dim3(ck_blocks(rows * each, 1)), dim3(THREADS), 0 }, slots_kernel<T>, y, o, place, weight, gate, shared, k, cols, each,
		  wide);
}

void combine_cuda(void *y, const float *o, const int *place, const float *weight, const float *gate, const float *shared, long rows, long k,
		  long cols, enum dtype t)
{
	if (t == DTYPE_BF16)
		slots_of("combine", (bf16 *)y, o, place, weight, gate, shared, rows, k, cols);
	else
		slots_of("combine", (float *)y, o, place, weight, gate, shared, rows, k, cols);
}

void unpermute_cuda(void *dx, const float *d, const int *place, long rows, long k, long cols, enum dtype t)
{
	if (t == DTYPE_BF16)
		slots_of("unpermute", (bf16 *)dx, d, place, nullptr, nullptr, nullptr, rows, k, cols);
	else
		slots_of("unpermute", (float *)dx, d, place, nullptr, nullptr, nullptr, rows, k, cols);
}

/* A block a slot. */
template <class T> __global__ void __launch_bounds__(DOT_THREADS)
weigh_kernel(float *dweight, T *dact, T *act, const int *place, const float *weight, long cols, bool wide)
{
	long slot = blockIdx.x, row = place ? place[slot] : slot;
	float d[WIDE<T>], a[WIDE<T>], dot = 0, w = weight[slot];

	dact += row * cols;
	act += row * cols;
	for (long at = (long)threadIdx.x * WIDE<T>; at < cols; at += (long)DOT_THREADS * WIDE<T>) {
		load_wide(d, dact, at, cols, wide);
		load_wide(a, act, at, cols, wide);
#pragma unroll
		for (int i = 0; i < WIDE<T>; i++) {
			dot += d[i] * a[i];
			d[i] *= w;
			a[i] *= w;
		}
		store_wide(dact, d, at, cols, wide);
		store_wide(act, a, at, cols, wide);
	}
	dot = block_sum<DOT_WARPS>(dot);
	if (!threadIdx.x)
		dweight[slot] = dot;
}

template <class T>
static void weigh(float *dweight, T *dact, T *act, const int *place, const float *weight, long slots, long cols)
{
	ck_launch({ "weigh_bwd", dim3(ck_blocks(slots, 1)), dim3(DOT_THREADS), 0 }, weigh_kernel<T>, dweight, dact, act, place, weight, cols,
		  is_wide(dact) && is_wide(act) && cols % WIDE<T> == 0);
}

void weigh_bwd_cuda(float *dweight, void *dact, void *act, const int *place, const float *weight, long rows, long k, long cols,
		    enum dtype t)
{
	if (t == DTYPE_BF16)
		weigh(dweight, (bf16 *)dact, (bf16 *)act, place, weight, rows * k, cols);
	else
		weigh(dweight, (float *)dact, (float *)act, place, weight, rows * k, cols);
}

/* -- gates ------------------------------------------------------------------------------------------------------- */

static __global__ void __launch_bounds__(THREADS) sigmoid_kernel(float *y, const float *x, long n)
{
	long i = (long)blockIdx.x * THREADS + threadIdx.x;

	if (i < n)
		y[i] = 1.f / (1.f + expf(-x[i]));
}

template <class T> __global__ void __launch_bounds__(THREADS) sigmoid_bwd_kernel(T *dx, const float *dy, const float *y, long n)
{
	long i = (long)blockIdx.x * THREADS + threadIdx.x;

	if (i < n)
		from_float(dx[i], dy[i] * (y[i] * (1.f - y[i])));
}

void sigmoid_fwd_cuda(float *y, const float *x, long n)
{
	ck_launch({ "sigmoid_fwd", dim3(ck_blocks(n, THREADS)), dim3(THREADS), 0 }, sigmoid_kernel, y, x, n);
}

void sigmoid_bwd_cuda(void *dx, const float *dy, const float *y, long n, enum dtype t)
{
	struct ck_grid g = { "sigmoid_bwd", dim3(ck_blocks(n, THREADS)), dim3(THREADS), 0 };

	if (t == DTYPE_BF16)
		ck_launch(g, sigmoid_bwd_kernel<bf16>, (bf16 *)dx, dy, y, n);
	else
		ck_launch(g, sigmoid_bwd_kernel<float>, (float *)dx, dy, y, n);
}
