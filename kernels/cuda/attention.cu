#include "kernels/cuda/attention.h"

#include "kernels/cuda/backend.h"

/*
 * The host's side of attention, and the pages.  A page is, for each kv head, keys [64][width] and then values [64][width], width = d
 * rounded up to 16 bytes, zeros past d: what a tile of keys wants, in pieces of 16 bytes one after the other.
 *
 * kv_put moves each row of k and v once from memory and once into its page: 4 kv_heads d e bytes.
 */

static long page_width(long d, enum dtype t)
{
	long each = 16 / (long)dtype_size(t);

	return (d + each - 1) / each * each;
}

size_t kv_page_bytes_cuda(const struct attention_shape *s, enum dtype t)
{
	attention_check(s, t);
	return (size_t)(s->kv_heads * 2 * TILE * page_width(s->head_dim, t)) * dtype_size(t);
}

struct put_row { void *page; long at; };

enum { PUT_THREADS = 256 };

/* A thread has 16 bytes of a page's row. */
template <class T> __global__ void __launch_bounds__(PUT_THREADS)
kv_put_kernel(const struct put_row *row, const T *k, const T *v, long rows, int kv_heads, int d, int width, bool wide)
{
	const int chunks = width / WIDE<T>;
	long i = (long)blockIdx.x * PUT_THREADS + threadIdx.x, r = i / (2L * kv_heads * chunks);
	int rest = (int)(i - r * (2L * kv_heads * chunks)), head = rest / (2 * chunks), chunk = rest % (2 * chunks);
	bool value = chunk >= chunks;
	float x[WIDE<T>];

	if (r >= rows)
		return;
	chunk -= value ? chunks : 0;
	load_wide(x, (value ? v : k) + (r * kv_heads + head) * d, (long)chunk * WIDE<T>, d, wide);
	store_wide((T *)row[r].page + ((head * 2 + value) * (long)TILE + row[r].at) * width, x, (long)chunk * WIDE<T>, width, true);
}

template <class T> static void put_rows(const struct kv_row *row, const T *k, const T *v, long rows, const struct attention_shape *s,
					enum dtype t)
{
	long width = page_width(s->head_dim, t), n = rows * s->kv_heads * 2 * (width / WIDE<T>);
	bool wide = is_wide(k) && is_wide(v) && s->head_dim % WIDE<T> == 0;
	std::vector<put_row> to((size_t)rows);

	for (long r = 0; r < rows; r++)
		to[(size_t)r] = { row[r].page[row[r].position / TILE], row[r].position % TILE };
	ck_launch({ "kv_put", dim3(ck_blocks(n, PUT_THREADS)), dim3(PUT_THREADS), 0 }, kv_put_kernel<T>, cuda_upload_array(to.data(), rows), k, v,
		  rows, s->kv_heads, s->head_dim, width, wide);
}

void kv_put_cuda(const struct kv_row *row, const void *k, const void *v, long rows, const struct attention_shape *s, enum dtype t)
{
	attention_check(s, t);
	if (t == DTYPE_BF16)
		put_rows(row, (const bf16 *)k, (const bf16 *)v, rows, s, t);
	else
		put_rows(row, (const float *)k, (const float *)v, rows, s, t);
}

static struct attend attend_of(void *out, float *lse, const void *q, const struct attention_shape *s, enum dtype t)
{
	struct attend a = {};

	attention_check(s, t);
	a.out = out;
	a.lse = lse;
	a.q = q;
	a.heads = (int)s->heads;
	a.kv_heads = (int)s->kv_heads;
	a.group = (int)(s->heads / s->kv_heads);
	a.d = (int)s->head_dim;
	a.scale = s->scale;
	a.c = (float)(s->scale * 1.4426950408889634);
	a.wide = (uintptr_t)q % 16 == 0 && (uintptr_t)out % 16 == 0 && s->head_dim * (long)dtype_size(t) % 16 == 0;
	return a;
}

/* -- splits with a block each ------------------------------------------------------------------------------- */

enum { JOIN_WARPS = 4, JOIN_COLUMNS = ATTENTION_HEAD_DIM / 32 };

/* A warp a row: its splits in ascending order, by the operations that a block does that has them all. */
template <class T> __global__ void __launch_bounds__(32 * JOIN_WARPS) join_splits_kernel(const struct attend a)
{
	const struct row_tile t = a.tile[blockIdx.x / a.kv_heads];
	const int lane = threadIdx.x % 32, kv_head = blockIdx.x % a.kv_heads;
	const int splits = (t.first + t.rows - 1) / a.group / ATTENTION_SPLIT + 1;

	for (int at = threadIdx.x / 32; at < t.rows; at += JOIN_WARPS) {
		const float *p = a.part + ((long)blockIdx.x * a.splits * a.most + at) * (a.d + 2);
		long row = row_of(t, t.first + at, a.heads, a.group, kv_head);
		float o[JOIN_COLUMNS], m = p[a.d], l = p[a.d + 1], by;

#pragma unroll
		for (int n = 0; n < JOIN_COLUMNS; n++)
			o[n] = n * 32 + lane < a.d ? p[n * 32 + lane] : 0.f;
		for (int i = 1; i < splits; i++) {
			float x, y;

			p += (long)a.most * (a.d + 2);
			join_split(m, l, x, y, p[a.d], p[a.d + 1], a.c);
#pragma unroll
			for (int n = 0; n < JOIN_COLUMNS; n++)
				if (n * 32 + lane < a.d)
					o[n] = o[n] * x + p[n * 32 + lane] * y;
		}
		if (a.lse && !lane)
			a.lse[row] = m * a.scale + logf(l);
		by = 1.f / l;
#pragma unroll
		for (int n = 0; n < JOIN_COLUMNS; n++)
			if (n * 32 + lane < a.d)
				from_float(((T *)a.out)[row * a.d + n * 32 + lane], o[n] * by);
	}
}

static void attend_list(struct attend a, const struct row_tile *tile, long n, bool few, enum dtype t, const char *op)
{
	long blocks = n * a.kv_heads;

	a.tile = cuda_upload_array(tile, n);
	a.tiles = (int)n;
	if (few && a.splits > 1)
		a.part = (float *)cuda_scratch(CUDA_SCRATCH_A, (size_t)(blocks * a.splits * a.most * (a.d + 2)) * 4);
	if (t == DTYPE_BF16)
		attend_bf16(a, few, op);
	else
		attend_f32(a, few, op);
	if (!a.part)
		return;
	struct ck_grid g = { op, dim3(ck_blocks(blocks, 1)), dim3(32 * JOIN_WARPS), 0 };
	if (t == DTYPE_BF16)
		ck_launch(g, join_splits_kernel<bf16>, a);
	else
		ck_launch(g, join_splits_kernel<float>, a);
}

static const size_t PART_BYTES = 256 << 20;

/* The dearest first; few: as many at once as have room for their parts. */
static void attend_all(struct attend a, std::vector<row_tile> &tiles, bool few, enum dtype t, const char *op)
{
	long n = (long)tiles.size(), step = n;

	if (!n)
		return;
	std::stable_sort(tiles.begin(), tiles.end(), dearer);
	a.splits = (tiles[0].first + tiles[0].rows - 1) / a.group / ATTENTION_SPLIT + 1;
	for (const auto &i : tiles)
		a.most = max(a.most, i.rows);
	if (few) {
		step = (long)(PART_BYTES / ((size_t)a.kv_heads * a.splits * a.most * (a.d + 2) * 4));
		step = step < 1 ? 1 : step;
	}
	for (long i = 0; i < n; i += step)
		attend_list(a, tiles.data() + i, min(step, n - i), few, t, op);
}

/* Tiles of few rows, and all tiles where they are too few to keep the device busy, are cut into splits. */
static void attend_tiles(const struct attend &a, const std::vector<row_tile> &tiles, enum dtype t, const char *op)
{
	std::vector<row_tile> few, many;
	long longest = 0, blocks = 0;

	for (const auto &i : tiles) {
		longest = max(longest, (long)(i.first + i.rows - 1) / a.group);
		blocks += i.rows > ATTEND_FEW ? a.kv_heads : 0;
	}
	for (const auto &i : tiles) {
		if (i.rows > ATTEND_FEW && (longest < ATTENTION_SPLIT || blocks >= cuda_processors))
			many.push_back(i);
		else
			for (int at = 0; at < i.rows; at += ATTEND_FEW)
				few.push_back({ i.q, i.key, i.first + at, min((int)ATTEND_FEW, i.rows - at) });
	}
	attend_all(a, many, false, t, op);
	attend_all(a, few, true, t, op);
}

static long rows_of_tile(long d, enum dtype t)
{
	return t == DTYPE_BF16 ? attend_rows_bf16(d) : attend_rows_f32(d);
}

void attention_fwd_cuda(void *out, float *lse, const void *q, const void *k, const void *v, const struct attention_piece *piece, long pieces,
			const struct attention_shape *s, enum dtype t)
{
	struct attend a = attend_of(out, lse, q, s, t);
	std::vector<row_tile> tiles;

	a.k = k;
	a.stride = s->kv_heads * a.d;
	a.head = a.width = a.d;
	a.value = ((intptr_t)v - (intptr_t)k) / (intptr_t)dtype_size(t);
	a.wide_keys = (uintptr_t)k % 16 == 0 && (uintptr_t)v % 16 == 0 && a.d * (long)dtype_size(t) % 16 == 0;
	for (long i = 0; i < pieces; i++)
		cut_rows(tiles, piece[i].q - (piece[i].keys - piece[i].n), piece[i].k, piece[i].keys - piece[i].n, piece[i].keys, a.group,
			 rows_of_tile(a.d, t));
	attend_tiles(a, tiles, t, "attention_fwd");
}

void attention_cached_cuda(void *out, const void *q, const struct kv_row *row, long rows, const struct attention_shape *s, enum dtype t)
{
	struct attend a = attend_of(out, nullptr, q, s, t);
	std::vector<const void *> page;
	std::vector<row_tile> tiles;

	a.stride = a.width = (int)page_width(a.d, t);
	a.value = TILE * a.stride;
	a.head = 2 * a.value;
	a.wide_keys = true;
	for (long r = 0, n; r < rows; r += n) {
		long p = row[r].position;

		for (n = 1; r + n < rows && row[r + n].page == row[r].page && row[r + n].position == p + n; n++)
			;
		cut_rows(tiles, r - p, (long)page.size(), p, p + n, a.group, rows_of_tile(a.d, t));
		page.insert(page.end(), row[r].page, row[r].page + (p + n - 1) / TILE + 1);
	}
	a.page = cuda_upload_array(page.data(), (long)page.size());
	attend_tiles(a, tiles, t, "attention_cached");
}

void cut_pieces(std::vector<row_tile> *tiles, std::vector<key_tile> *key, const struct attention_piece *piece, long pieces, long group,
		long rows, long most)
{
	for (long i = 0, n; i < pieces; i += n) {
		long keys = 0, first = (long)tiles->size();

		for (n = 0; i + n < pieces && piece[i + n].k == piece[i].k; n++) {
			const struct attention_piece *p = piece + i + n;

			keys = max(keys, p->keys);
			cut_rows(*tiles, p->q - (p->keys - p->n), p->k, p->keys - p->n, p->keys, group, rows);
		}
		for (long at = 0; key && at < keys; at += most)
			key->push_back({ piece[i].k, (int)at, (int)keys, (int)first, (int)((long)tiles->size() - first) });
	}
}

/* -- backward --------------------------------------------------------------------------------------------- */

enum { STAT_WARPS = 8 };

/* A warp a row of a head: lse in powers of two, and dout . out.  4 d bytes of bf16 are read: 4096 positions of 32 heads of 128: 16 us. */
template <class T> __global__ void __launch_bounds__(32 * STAT_WARPS)
delta_kernel(float *lse2, float *delta, const T *dout, const T *out, const float *lse, long rows, int d, bool wide)
{
	long row = (long)blockIdx.x * STAT_WARPS + threadIdx.x / 32;
	float x[WIDE<T>], y[WIDE<T>], s = 0;

	if (row >= rows)
		return;
	for (int at = threadIdx.x % 32 * WIDE<T>; at < d; at += 32 * WIDE<T>) {
		load_wide(x, dout + row * d, at, d, wide);
		load_wide(y, out + row * d, at, d, wide);
#pragma unroll
		for (int i = 0; i < WIDE<T>; i++)
			s += x[i] * y[i];
	}
	s = warp_sum(s);
	if (threadIdx.x % 32 == 0) {
		lse2[row] = lse[row] * 1.44269504f;
		delta[row] = s;
	}
}

/* delta and lse2 of rows first .. first + n - 1 of all heads. */
template <class T> static void deltas(float *lse2, float *delta, const T *dout, const T *out, const float *lse, long first, long n, int d)
{
	bool wide = is_wide(dout) && is_wide(out) && d % WIDE<T> == 0;

	ck_launch({ "attention_bwd", dim3(ck_blocks(n, STAT_WARPS)), dim3(32 * STAT_WARPS), 0 }, delta_kernel<T>, lse2 + first, delta + first,
		  dout + first * d, out + first * d, lse + first, n, d, wide);
}

void attention_bwd_cuda(void *dq, void *dk, void *dv, enum dtype tkv, const void *dout, const void *out, const float *lse, const void *q,
			const void *k, const void *v, const struct attention_piece *piece, long pieces, const struct attention_shape *s,
			enum dtype t)
{
	struct attend_bwd a = {};
	long first = 0, end = 0;
	float *stat;

	attention_check(s, t);
	for (long i = 0; i < pieces; i++) {
		if (!piece[i].n)
			continue;
		first = end ? min(first, piece[i].q) : piece[i].q;
		end = max(end, piece[i].q + piece[i].n);
	}
	a.dq = dq;
	a.dk = dk;
	a.dv = dv;
	a.dout = dout;
	a.q = q;
	a.k = k;
	a.v = v;
	a.heads = (int)s->heads;
	a.kv_heads = (int)s->kv_heads;
	a.group = (int)(s->heads / s->kv_heads);
	a.d = (int)s->head_dim;
	a.scale = s->scale;
	a.c = (float)(s->scale * 1.4426950408889634);
	a.wide = a.wide_out = s->head_dim * (long)dtype_size(t) % 16 == 0;
	for (const void *p : { dout, q, k, v })
		a.wide = a.wide && (uintptr_t)p % 16 == 0;
	for (const void *p : { (const void *)dq, (const void *)dk, (const void *)dv })
		a.wide_out = a.wide_out && (uintptr_t)p % 16 == 0;
	stat = (float *)cuda_scratch(CUDA_SCRATCH_A, (size_t)(2 * end * s->heads) * 4);
	a.lse2 = stat;
	a.delta = stat + end * s->heads;
	if (t == DTYPE_BF16)
		deltas(stat, stat + end * s->heads, (const bf16 *)dout, (const bf16 *)out, lse, first * s->heads, (end - first) * s->heads, a.d);
	else
		deltas(stat, stat + end * s->heads, (const float *)dout, (const float *)out, lse, first * s->heads, (end - first) * s->heads, a.d);
	if (t == DTYPE_BF16)
		attend_bwd_bf16(a, piece, pieces, tkv);
	else
		attend_bwd_f32(a, piece, pieces, tkv);
}
