#include <vector>

#include "kernels/cuda/backend.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/logprob.h"

/*
 * Draws a token of each row of logits z[R, V].  A block a row; no row is sorted and nothing of V values is written.
 *
 * Weights p = exp((z - top) / T) are in (0, 1], and their order is that of the keys ONE - bits(p), the most likely first, of equals the
 * lower id.  A cut (top-k, top-p) and the draw itself ask the same question: at which place in that order does the sum of counts or
 * of weights pass a goal?  It is answered ten bits of the key at a time by histograms in shared memory.  Weights are summed as integers,
 * p 2^scale with scale such that V of them fit 64 bits (44 bits after the point at a vocabulary of 262144): exact, whatever the order
 * of the threads.
 *
 * Bytes: the top reads 4 R V from memory, 155 MB for 256 rows of 151936, 36 us on an H200 at 4.3 TB/s; the log-probability of what was
 * drawn reads it once more.  Other passes read the row from the second-level cache and are bound by some 40 operations a value, 40 us
 * a pass for these rows: one for the first ten bits, and one that gathers those up to the cut into a list of LIST, where there are no
 * more, as with nearly every top-k and top-p; only of a flatter row all is passed over again for each ten bits.  Without a cut ids are
 * taken in their order: a pass for the sums of SEGMENTS runs of ids, then one of the runs.
 */

enum { THREADS = 512, WARPS = THREADS / 32, DIGIT = 10, BINS = 1 << DIGIT, LIST = 1536 };

static const unsigned ONE = 0x3f800000;         /* the bits of 1.f */
static const unsigned NONE = ~0u;               /* the key of what cannot be drawn */

/* What may be drawn of one row. */
struct row_weights {
	const float *z;
	const uint8_t *allowed;
	long V;
	float top, inverse, scale;
	bool wide;
};

struct candidate { unsigned key; int id; };

struct candidates {
	struct candidate of[LIST];
	unsigned n;
};

/* Of each digit how many, and the sum of their weights in two halves. */
struct bins { unsigned count[BINS], low[BINS], high[BINS]; };

/* Before a place in the order. */
struct before { unsigned bin, count; uint64_t mass; };

/* A place in the order: how many come up to and with it, their weights' sum, its key, and how many of the same key come before it. */
struct cut { unsigned count; uint64_t mass; unsigned key, tie; };

enum goal_of { BY_COUNT, BY_MASS };

/* The bits of the CPU's exp (kernels/cpu/rows.h), so that the same ids are drawn. */
DEVICE float exp_of(float x)
{
	float t, n, r, p;
	int k, half;

	x = x < -110.f ? -110.f : x;
	t = x * 1.44269504f + 12582912.f;
	n = t - 12582912.f;
	k = (int)(__float_as_uint(t) - 0x4b400000u);
	r = x - n * 0.693359375f;
	r = r - n * -2.12194440e-4f;
	p = 1.98756915e-4f;
	p = p * r + 1.39819994e-3f;
	p = p * r + 8.33345205e-3f;
	p = p * r + 4.16657962e-2f;
	p = p * r + 1.66666657e-1f;
	p = p * r + 5.00000000e-1f;
	p = p * r * r + r + 1.f;
	half = k >> 1;
	return p * __uint_as_float(((unsigned)half + 127u) << 23) * __uint_as_float(((unsigned)(k - half) + 127u) << 23);
}

DEVICE unsigned key_of(const struct row_weights &w, float z)
{
	float p = exp_of((z - w.top) * w.inverse);

	return p > 0.f ? ONE - min(__float_as_uint(p), ONE) : NONE;
}

DEVICE uint64_t mass_of(const struct row_weights &w, unsigned key)
{
	return (uint64_t)(__uint_as_float(ONE - key) * w.scale);
}

DEVICE void keys_at(unsigned (&key)[4], const struct row_weights &w, long at)
{
	float z[4];

	load_wide(z, w.z, at, w.V, w.wide);
#pragma unroll
	for (int i = 0; i < 4; i++)
		key[i] = at + i < w.V && (!w.allowed || w.allowed[at + i]) ? key_of(w, z[i]) : NONE;
}

/* f(key, id) of each that may be drawn: of the list, or (NULL) of the row. */
template <class F> DEVICE void each(const struct row_weights &w, const struct candidates *list, F f)
{
	unsigned key[4];

	for (unsigned i = threadIdx.x; list && i < list->n; i += THREADS)
		f(list->of[i].key, list->of[i].id);
	for (long at = 4 * (long)threadIdx.x; !list && at < w.V; at += 4 * THREADS) {
		keys_at(key, w, at);
#pragma unroll
		for (int i = 0; i < 4; i++)
			if (key[i] != NONE)
				f(key[i], (int)at + i);
	}
}

DEVICE void bins_clear(struct bins *b)
{
	__syncthreads();        /* who still reads them */
	for (int i = threadIdx.x; i < BINS; i += THREADS)
		b->count[i] = b->low[i] = b->high[i] = 0;
	__syncthreads();
}

/* 64 bits by two sums of 32: the carry is of whose addition passes the end. */
DEVICE void bins_add(struct bins *b, unsigned bin, uint64_t mass)
{
	unsigned low = (unsigned)mass, high = (unsigned)(mass >> 32), old = atomicAdd(&b->low[bin], low);

	high += old + low < old;
	if (high)
		atomicAdd(&b->high[bin], high);
	atomicAdd(&b->count[bin], 1u);
}

DEVICE uint64_t bin_mass(const struct bins *b, int bin)
{
	return (uint64_t)b->high[bin] << 32 | b->low[bin];
}

/* The first bin with which the sum passes the goal, which that of all does; all of a block call it. */
DEVICE struct before locate(const struct bins *b, uint64_t goal, enum goal_of by)
{
	CK_SHARED(struct before, warp, [WARPS]);
	CK_SHARED(struct before, found, );
	enum { EACH = BINS / THREADS };
	int lane = threadIdx.x % 32, me = threadIdx.x / 32;
	struct before to = { 0, 0, 0 }, at;

	__syncthreads();
	for (int i = 0; i < EACH; i++) {
		to.count += b->count[EACH * threadIdx.x + i];
		to.mass += bin_mass(b, EACH * threadIdx.x + i);
	}
	at = to;
#pragma unroll
	for (int o = 1; o < 32; o *= 2) {
		unsigned count = __shfl_up_sync(~0u, to.count, o);
		uint64_t mass = __shfl_up_sync(~0u, to.mass, o);

		to.count += lane >= o ? count : 0;
		to.mass += lane >= o ? mass : 0;
	}
	at.count = to.count - at.count;
	at.mass = to.mass - at.mass;
	if (lane == 31)
		warp[me] = to;
	__syncthreads();
	for (int i = 0; i < me; i++) {
		at.count += warp[i].count;
		at.mass += warp[i].mass;
	}
	for (int i = 0; i < EACH; i++) {
		uint64_t had = by == BY_MASS ? at.mass : at.count, mass;

		at.bin = EACH * threadIdx.x + i;
		mass = bin_mass(b, (int)at.bin);
		if (had <= goal && had + (by == BY_MASS ? mass : b->count[at.bin]) > goal)
			found = at;
		at.count += b->count[at.bin];
		at.mass += mass;
	}
	__syncthreads();
	return found;
}

/* The place with which the sum passes the goal.  first: the histogram of the highest digit. */
DEVICE struct cut select(const struct row_weights &w, const struct candidates *list, const struct bins *first, struct bins *next,
			 uint64_t goal, enum goal_of by)
{
	struct before at = locate(first, goal, by), sum = at;
	unsigned key = at.bin;
	struct cut c;
	uint64_t left, one;

	for (int low = DIGIT; low >= 0; low -= DIGIT) {
		bins_clear(next);
		each(w, list, [&](unsigned k, int) {
			if (k >> (low + DIGIT) == key)
				bins_add(next, k >> low & (BINS - 1), mass_of(w, k));
		});
		at = locate(next, goal - (by == BY_MASS ? sum.mass : sum.count), by);
		sum.count += at.count;
		sum.mass += at.mass;
		key = key << DIGIT | at.bin;
	}
	left = goal - (by == BY_MASS ? sum.mass : sum.count);
	one = mass_of(w, key);
	c.key = key;
	c.tie = (unsigned)(by == BY_MASS ? left / one : left);
	c.count = sum.count + c.tie + 1;
	c.mass = sum.mass + (c.tie + 1) * one;
	return c;
}

/* -- in the order of ids --------------------------------------------------------------------------------------- */

/* What ids weigh when they are taken in their order: their weight, or 1 if they have the key. */
struct pick { bool by_key; unsigned key; };

DEVICE uint64_t pick_mass(const struct row_weights &w, const struct pick &p, unsigned key)
{
	return key == NONE ? 0 : p.by_key ? key == p.key : mass_of(w, key);
}

DEVICE uint64_t warp_total(uint64_t v)
{
#pragma unroll
	for (int o = 16; o; o >>= 1)
		v += __shfl_xor_sync(~0u, v, o);
	return v;
}

DEVICE uint64_t four(const struct row_weights &w, const struct pick &p, long at, uint64_t (&m)[4])
{
	unsigned key[4];
	uint64_t s = 0;

	keys_at(key, w, at);
#pragma unroll
	for (int i = 0; i < 4; i++) {
		m[i] = pick_mass(w, p, key[i]);
		s += m[i];
	}
	return s;
}

/* Ids in each of BINS runs, which warps take together 128 at a time. */
DEVICE long run_length(long V)
{
	return ((V + BINS - 1) / BINS + 127) / 128 * 128;
}

/* The sums of the runs, as bins; of all, to all threads. */
DEVICE uint64_t run_sums(struct bins *b, const struct row_weights &w, const struct pick &p)
{
	CK_SHARED(uint64_t, part, [WARPS]);
	long run = run_length(w.V), me = threadIdx.x / 32, lane = threadIdx.x % 32;
	uint64_t m[4], all = 0;

	bins_clear(b);
	for (long i = me; i * run < w.V; i += WARPS) {
		uint64_t s = 0;

		for (long at = i * run; at < min((i + 1) * run, w.V); at += 128)
			s += four(w, p, at + 4 * lane, m);
		s = warp_total(s);
		all += s;
		if (!lane) {
			b->low[i] = (unsigned)s;
			b->high[i] = (unsigned)(s >> 32);
		}
	}
	if (!lane)
		part[me] = all;
	__syncthreads();
	all = 0;
	for (int i = 0; i < WARPS; i++)
		all += part[i];
	return all;
}

/* The first warp looks through the run in which the sum passes the goal, and writes the id. */
DEVICE void run_find(int *id, const struct bins *b, const struct row_weights &w, const struct pick &p, uint64_t goal)
{
	struct before run = locate(b, goal, BY_MASS);
	long lane = threadIdx.x % 32, begin = run.bin * run_length(w.V);
	uint64_t m[4], sum = run.mass;

	if (threadIdx.x >= 32)
		return;
	for (long at = begin; at < w.V && sum <= goal; at += 128) {
		uint64_t own = four(w, p, at + 4 * lane, m), to = own, had;

#pragma unroll
		for (int o = 1; o < 32; o *= 2) {
			uint64_t s = __shfl_up_sync(~0u, to, o);

			to += lane >= o ? s : 0;
		}
		had = sum + to - own;
#pragma unroll
		for (int i = 0; i < 4; i++) {
			if (had <= goal && had + m[i] > goal)
				*id = (int)(at + 4 * lane) + i;
			had += m[i];
		}
		sum += __shfl_sync(~0u, to, 31);
	}
}

/* The one of the list that has the key and so many before it. */
DEVICE void list_find(int *id, const struct candidates *list, const struct cut &c)
{
	for (unsigned i = threadIdx.x; i < list->n; i += THREADS) {
		unsigned less = 0;

		if (list->of[i].key != c.key)
			continue;
		for (unsigned j = 0; j < list->n; j++)
			less += list->of[j].key == c.key && list->of[j].id < list->of[i].id;
		if (less == c.tie)
			*id = list->of[i].id;
	}
}

/* -- cuts ----------------------------------------------------------------------------------------------------- */

DEVICE uint64_t share(float of, uint64_t all)
{
	uint64_t goal = (uint64_t)((double)of * (double)all);

	return min(goal, all - 1);
}

/* The smallest set that has at least top_p of all ends where the sum passes this. */
DEVICE uint64_t nucleus(float top_p, uint64_t all)
{
	double goal = ceil((double)top_p * (double)all);

	return goal < 1 ? 0 : min((uint64_t)goal, all) - 1;
}

/* The highest key whose weight is at least min_p; always that of the most likely. */
DEVICE unsigned most_key(float min_p)
{
	return min_p <= 0 ? NONE : ONE - min(__float_as_uint(min_p), ONE);
}

/* How many there are in the bins up to `last`, and their sum; to all threads. */
DEVICE struct before bins_sum(const struct bins *b, int last)
{
	CK_SHARED(struct before, part, [WARPS]);
	struct before s = { 0, 0, 0 };

	__syncthreads();
	for (int i = threadIdx.x; i <= last; i += THREADS) {
		s.count += b->count[i];
		s.mass += bin_mass(b, i);
	}
	s.count = __reduce_add_sync(~0u, s.count);
	s.mass = warp_total(s.mass);
	if (threadIdx.x % 32 == 0)
		part[threadIdx.x / 32] = s;
	__syncthreads();
	s = { 0, 0, 0 };
	for (int i = 0; i < WARPS; i++) {
		s.count += part[i].count;
		s.mass += part[i].mass;
	}
	return s;
}

/* Gathers those whose first digit is at most `last`; their order in the list means nothing. */
DEVICE void gather(struct candidates *list, const struct row_weights &w, unsigned last)
{
	if (!threadIdx.x)
		list->n = 0;
	__syncthreads();
	each(w, nullptr, [&](unsigned key, int id) {
		if (key >> 2 * DIGIT <= last)
			list->of[atomicAdd(&list->n, 1u)] = { key, id };
	});
	__syncthreads();
}

/* Those that are likely enough for min-p, of what is listed. */
DEVICE struct before likely(const struct row_weights &w, const struct candidates *list, struct bins *next, unsigned most)
{
	bins_clear(next);
	each(w, list, [&](unsigned key, int) {
		if (key <= most)
			bins_add(next, key & (BINS - 1), mass_of(w, key));
	});
	return bins_sum(next, BINS - 1);
}

/* top-k, of what is left top-p, of what is left min-p; the last place that is left. */
DEVICE struct cut cut_of(const struct row_weights &w, const struct sample_row &h, const struct candidates *list, const struct bins *first,
			 struct bins *next, const struct before &all, bool by_count)
{
	struct cut c = { all.count, all.mass, NONE, 0 };
	unsigned most = most_key(h.min_p);

	if (by_count)
		c = select(w, list, first, next, (uint64_t)h.top_k - 1, BY_COUNT);
	if (h.top_p < 1.f)
		c = select(w, list, first, next, nucleus(h.top_p, c.mass), BY_MASS);
	if (h.min_p > 1.f)
		return { 1, mass_of(w, 0), 0, 0 };
	if (most < c.key) {
		struct before b = likely(w, list, next, most);

		c.count = b.count;
		c.mass = b.mass;
	}
	return c;
}

/* What is asked about lies in the first digits up to `last`: if the list holds all of those, the rest is done with it alone. */
DEVICE void draw_cut(int *id, const struct row_weights &w, const struct sample_row &h, struct bins *first, struct bins *next,
		     struct candidates *room)
{
	const struct candidates *list = nullptr;
	unsigned last = min(most_key(h.min_p), ONE) >> 2 * DIGIT;
	struct before all;
	struct cut c;
	bool by_count;

	bins_clear(first);
	each(w, nullptr, [&](unsigned key, int) { bins_add(first, key >> 2 * DIGIT, mass_of(w, key)); });
	all = bins_sum(first, BINS - 1);
	by_count = h.top_k > 0 && h.top_k < (long)all.count;
	if (by_count)
		last = locate(first, (uint64_t)h.top_k - 1, BY_COUNT).bin;
	else if (h.top_p < 1.f)
		last = locate(first, nucleus(h.top_p, all.mass), BY_MASS).bin;
	if (bins_sum(first, (int)last).count <= LIST) {
		gather(room, w, last);
		list = room;
	}
	c = cut_of(w, h, list, first, next, all, by_count);
	c = select(w, list, first, next, share(h.u, c.mass), BY_MASS);
	if (list) {
		list_find(id, list, c);
		return;
	}
	struct pick p = { true, c.key };

	run_sums(next, w, p);
	run_find(id, next, w, p, c.tie);
}

/* -- a row ----------------------------------------------------------------------------------------------------- */

/* Of all that may be drawn the highest, of equals the lowest id; 0 if there is none or a row is not to be drawn from. */
DEVICE uint64_t highest(const float *z, const uint8_t *allowed, long V, bool wide)
{
	CK_SHARED(uint64_t, part, [WARPS]);
	uint64_t top = 0;
	bool bad = false;
	float x[4];

	for (long at = 4 * (long)threadIdx.x; at < V; at += 4 * THREADS) {
		load_wide(x, z, at, V, wide);
#pragma unroll
		for (int i = 0; i < 4; i++) {
			unsigned u = __float_as_uint(x[i] + 0.f);       /* one zero */
			uint64_t key = (uint64_t)(u & 0x80000000u ? ~u : u | 0x80000000u) << 32 | (~0u - (unsigned)(at + i));

			if (at + i >= V)
				continue;
			bad = bad || !(x[i] < INFINITY);
			if (x[i] > -INFINITY && (!allowed || allowed[at + i]))
				top = max(top, key);
		}
	}
#pragma unroll
	for (int o = 16; o; o >>= 1)
		top = max(top, __shfl_xor_sync(~0u, top, o));
	if (threadIdx.x % 32 == 0)
		part[threadIdx.x / 32] = top;
	bad = __syncthreads_or(bad);
	for (int i = 0; i < WARPS; i++)
		top = max(top, part[i]);
	return bad ? 0 : top;
}

static __global__ void __launch_bounds__(THREADS)
sample_kernel(int *id, const float *z, const struct sample_row *how, const float *inverse, const uint8_t *allowed, long V, float scale,
	      bool wide)
{
	CK_SHARED(struct bins, first, );
	CK_SHARED(struct bins, next, );
	CK_SHARED(struct candidates, list, );
	long r = blockIdx.x;
	struct sample_row h = how[r];
	uint64_t best;
	int top;

	z += r * V;
	id += r;
	best = highest(z, allowed, V, wide);
	top = best ? (int)(~0u - (unsigned)best) : -1;
	if (!best || h.temperature <= 0) {
		if (!threadIdx.x)
			*id = top;
		return;
	}
	struct row_weights w = { z, allowed, V, z[top], inverse[r], scale, wide };

	if (h.top_k > 0 || h.top_p < 1.f || h.min_p > 0) {
		draw_cut(id, w, h, &first, &next, &list);
		return;
	}
	struct pick p = { false, 0 };
	uint64_t all = run_sums(&first, w, p);

	run_find(id, &first, w, p, share(h.u, all));
}

void sample_cuda(int *id, float *lp, const float *z, const struct sample_row *how, const uint8_t *allowed, long rows, long V)
{
	std::vector<float> inverse((size_t)rows);
	int bits = 0;

	if (!rows)
		return;
	for (long r = 0; r < rows; r++)
		inverse[(size_t)r] = 1.f / (how[r].temperature > 0 ? how[r].temperature : 1.f);
	while (V >> bits)
		bits++;
	const float *inv = cuda_upload_array(inverse.data(), rows), *out;
	int *drawn = (int *)cuda_scratch(CUDA_SCRATCH_C, (size_t)rows * sizeof(*drawn));

	ck_launch({ "sample", dim3(ck_blocks(rows, 1)), dim3(THREADS), 0 }, sample_kernel, drawn, z, cuda_upload_array(how, rows), inv,
		  allowed ? cuda_upload_array(allowed, V) : nullptr, V, ldexpf(1.f, 62 - bits), is_wide(z) && V % 4 == 0);
	out = cuda_logprob_rows("sample", z, drawn, rows, V, { inv, 0 });
	cuda_download(id, drawn, (size_t)rows * sizeof(*id), "sample");
	cuda_download(lp, out, (size_t)rows * sizeof(*lp), "sample");
}
