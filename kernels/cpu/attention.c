#include "kernels/attention.h"

#include <math.h>
#include <string.h>

#include "kernels/cpu/attention_kernel.h"
#include "kernels/cpu/backend.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/scratch.h"
#include "libcommon/pool.h"

enum {
	POSITIONS = 16, /* of a query tile; divides ATTENTION_TILE: one diagonal block a tile */
	FEW_PARTS = 8   /* tiles and kv heads a thread, below which splits are dealt instead */
};
#define FLOOR (-1e30f) /* -inf, but for FLOOR - FLOOR */

/* Neighbouring positions of one sequence, all heads. */
struct query_tile {
	const char *q;
	char *out;
	float *lse; /* or NULL */
	void *const *page;
	long position, n;
};

struct attention_job {
	struct attention_plan plan;
	const struct query_tile *tile;
	long tiles;
};

struct attention_plan attention_plan(const struct attention_shape *s, enum dtype t)
{
	long per = t == DTYPE_BF16 ? 2 : 1;
	struct attention_plan a = { .linear = linear_kernel(),
				    .rows = attention_kernel(),
				    .t = t,
				    .heads = s->heads,
				    .kv_heads = s->kv_heads,
				    .d = s->head_dim,
				    .width = (s->head_dim + LINE - 1) / LINE * LINE,
				    .scale = s->scale,
				    .c = (float)(s->scale * 1.4426950408889634) };

	if ((t != DTYPE_F32 && t != DTYPE_BF16) || s->kv_heads <= 0 || s->heads <= 0 ||
	    s->heads % s->kv_heads || s->head_dim <= 0 || s->head_dim % 2 ||
	    s->head_dim > ATTENTION_HEAD_DIM)
		bug("attention in %s: %ld heads, %ld kv heads of %ld", dtype_name(t), s->heads,
		    s->kv_heads, s->head_dim);
	a.form = t == DTYPE_F32 ? WEIGHT_F32 : a.linear->pairs ? WEIGHT_PAIRS : WEIGHT_WIDE;
	a.q_bytes = a.form == WEIGHT_PAIRS ? 2 : 4;
	a.group = a.heads / a.kv_heads;
	a.key_words = a.d / per * ATTENTION_TILE;
	a.value_words = ATTENTION_TILE / per * a.width;
	return a;
}

void attention_left(const struct attention_plan *a, void *out, const void *x, long stride, long n)
{
	for (long i = 0; i < n; i++) {
		const char *row = (const char *)x + i * stride * (long)dtype_size(a->t);
		char *d = (char *)out + i * a->d * a->q_bytes;

		if (a->form == WEIGHT_WIDE)
			a->linear->widen((float *)(void *)d, (const void *)row, a->d);
		else
			memcpy(d, row, (size_t)(a->d * a->q_bytes));
	}
}

void attention_product(const struct attention_plan *a, float *y, long ldy, const void *x, long rs,
		       long ks, const uint32_t *w, long ldw, long k, long rows, long cols,
		       bool zero, const void *ahead)
{
	long most = rows < 6 ? rows : 6, per = a->t == DTYPE_BF16 ? 2 : 1;
	void (*tile)(const struct tile_args *) =
		a->t == DTYPE_BF16 ? a->linear->tile_bf16 : a->linear->tile_f32;

	for (long col = 0; col < cols; col += 64)
		for (long r = 0, parts = (rows + most - 1) / most; parts; parts--) {
			long n = (rows - r + parts - 1) / parts;

			tile(&(struct tile_args){ .y = y + r * ldy + col,
						  .ldy = ldy,
						  .x = (const char *)x + r * rs,
						  .rs = rs,
						  .ks = ks,
						  .w = w + col,
						  .ldw = ldw,
						  .steps = k / per,
						  .odd = (int)(k % per),
						  .rows = (int)n,
						  .cols = (int)(cols - col < 64 ? cols - col : 64),
						  .zero = zero,
						  .ahead = (const char *)ahead + col * 4,
						  .by = ldw * 4 });
			r += n;
		}
}

size_t kv_page_bytes_cpu(const struct attention_shape *s, enum dtype t)
{
	struct attention_plan a = attention_plan(s, t);

	return (size_t)(a.kv_heads * (a.key_words + a.value_words)) * 4;
}

static void put_bf16(const struct attention_plan *a, uint32_t *page, long at, const uint16_t *k,
		     const uint16_t *v)
{
	uint16_t *value = (uint16_t *)(void *)(page + a->key_words + at / 2 * a->width) + at % 2;

	for (long i = 0; i < a->d / 2; i++)
		page[i * ATTENTION_TILE + at] = k[2 * i] | (uint32_t)k[2 * i + 1] << 16;
	for (long i = 0; i < a->width; i++)
		value[2 * i] = i < a->d ? v[i] : 0;
}

static void put_f32(const struct attention_plan *a, uint32_t *page, long at, const float *k,
		    const float *v)
{
	uint32_t *value = page + a->key_words + at * a->width;

	for (long i = 0; i < a->d; i++)
		memcpy(page + i * ATTENTION_TILE + at, k + i, 4);
	memcpy(value, v, (size_t)a->d * 4);
	memset(value + a->d, 0, (size_t)(a->width - a->d) * 4);
}

static void put_row(const struct attention_plan *a, uint32_t *page, long at, const char *k,
		    const char *v)
{
	long bytes = a->d * (long)dtype_size(a->t);

	for (long h = 0; h < a->kv_heads;
	     h++, k += bytes, v += bytes, page += a->key_words + a->value_words) {
		if (a->t == DTYPE_BF16)
			put_bf16(a, page, at, (const void *)k, (const void *)v);
		else
			put_f32(a, page, at, (const void *)k, (const void *)v);
	}
}

struct put_job {
	struct attention_plan plan;
	const struct kv_row *row;
	const char *k, *v;
	long rows, parts;
};

/* Parts end where a page does, so that no two write into a word together. */
static bool starts_part(const struct kv_row *row, long r)
{
	return r == 0 || row[r].page != row[r - 1].page || row[r].position % ATTENTION_TILE == 0;
}

static void put_part(void *arg, long part, int thread)
{
	const struct put_job *j = arg;
	long bytes = j->plan.kv_heads * j->plan.d * (long)dtype_size(j->plan.t);
	long r = j->rows * part / j->parts, end = j->rows * (part + 1) / j->parts;

	(void)thread;
	while (r < end && !starts_part(j->row, r))
		r++;
	for (; r < j->rows && (r < end || !starts_part(j->row, r)); r++) {
		const struct kv_row *row = j->row + r;

		put_row(&j->plan, row->page[row->position / ATTENTION_TILE],
			row->position % ATTENTION_TILE, j->k + r * bytes, j->v + r * bytes);
	}
}

void kv_put_cpu(const struct kv_row *row, const void *k, const void *v, long rows,
		const struct attention_shape *s, enum dtype t)
{
	struct put_job j = {
		attention_plan(s, t), row, k, v, rows, rows < 64 ? 1 : (rows + 31) / 32
	};

	pool_run(put_part, &j, j.parts);
}

/* The rows of one call: scores of one tile of keys, the split's (m, l, o), and those of the
 * splits before it. */
struct state {
	char *q;
	float *s, *m, *l, *o, *total_m, *total_l, *total_o;
};

static struct state state_of(const struct attention_plan *a, long rows, int thread)
{
	size_t q = (size_t)(rows * a->d * a->q_bytes + 63) / 64 * 64;
	char *p = scratch(SCRATCH_ROWS, thread,
			  q + (size_t)(rows * (ATTENTION_TILE + LINE + 3 + 2 * a->width)) * 4 + 64);
	float *f = (float *)(void *)(p + q);
	struct state s = { .q = p, .s = f };

	s.l = s.s + rows * ATTENTION_TILE;
	s.o = s.l + rows * LINE;
	s.total_o = s.o + rows * a->width;
	s.m = s.total_o + rows * a->width;
	s.total_m = s.m + rows;
	s.total_l = s.total_m + rows;
	return s;
}

/* `n` rows from row r on against the first nkeys keys of a page. */
static void attend(const struct attention_plan *a, struct state *s, long r, long n, int nkeys,
		   const uint32_t *page, const uint32_t *next)
{
	const uint32_t *v = page + a->key_words;
	long left = a->form == WEIGHT_WIDE ? 8 : 4, line = (nkeys + LINE - 1) / LINE * LINE;

	attention_product(a, s->s + r * ATTENTION_TILE, ATTENTION_TILE,
			  s->q + r * a->d * a->q_bytes, a->d * a->q_bytes, left, page,
			  ATTENTION_TILE, a->d, n, line, true, v);
	for (long i = r; i < r + n; i++)
		a->rows->softmax(s->s + i * ATTENTION_TILE, nkeys, a->c, s->m + i, s->l + i * LINE,
				 s->o + i * a->width, a->width, a->t == DTYPE_BF16);
	attention_product(a, s->o + r * a->width, a->width, s->s + r * ATTENTION_TILE,
			  ATTENTION_TILE * 4, left, v, a->width, nkeys, n, a->width, false, next);
}

static void begin_split(const struct attention_plan *a, struct state *s, long rows)
{
	for (long i = 0; i < rows; i++)
		s->m[i] = FLOOR;
	memset(s->l, 0, (size_t)(rows * LINE) * 4);
	memset(s->o, 0, (size_t)(rows * a->width) * 4);
}

static void end_split(const struct attention_plan *a, struct state *s, const float *m,
		      const float *l, const float *o, long rows, bool first)
{
	for (long i = 0; i < rows; i++) {
		float sum = 0, *total = s->total_o + i * a->width;

		for (int j = 0; j < LINE; j++)
			sum += l[i * LINE + j];
		if (first) {
			s->total_m[i] = m[i];
			s->total_l[i] = sum;
			memcpy(total, o + i * a->width, (size_t)a->width * 4);
		} else {
			a->rows->merge(s->total_m + i, s->total_l + i, total, m[i], sum,
				       o + i * a->width, a->c, a->width);
		}
	}
}

static void finish_rows(const struct attention_plan *a, const struct query_tile *t,
			const struct state *s, long kv_head)
{
	long size = (long)dtype_size(a->t);

	for (long r = 0; r < t->n * a->group; r++) {
		long at = r / a->group * a->heads + kv_head * a->group + r % a->group;
		float *o = s->total_o + r * a->width;

		for (long i = 0; i < a->d; i++)
			o[i] /= s->total_l[r];
		a->linear->finish(t->out + at * a->d * size, a->t, o, NULL, a->t, a->d, false);
		if (t->lse)
			t->lse[at] = s->total_m[r] * a->scale + logf(s->total_l[r]);
	}
}

static void attend_split(const struct attention_plan *a, const struct query_tile *t,
			 struct state *s, long kv_head, long split)
{
	long first = split * ATTENTION_SPLIT, last = t->position + t->n - 1, g = a->group;

	begin_split(a, s, t->n * g);
	for (long k = first; k < first + ATTENTION_SPLIT && k <= last; k += ATTENTION_TILE) {
		long in_page = kv_head * (a->key_words + a->value_words),
		     more = k + ATTENTION_TILE <= last;
		const uint32_t *page = (const uint32_t *)t->page[k / ATTENTION_TILE] + in_page;
		const uint32_t *next =
			(const uint32_t *)t->page[k / ATTENTION_TILE + more] + in_page;

		if (k + ATTENTION_TILE <= t->position + 1) {
			attend(a, s, 0, t->n * g, ATTENTION_TILE, page, next);
			continue;
		}
		for (long i = 0; i < t->n; i++)
			attend(a, s, i * g, g, (int)(t->position + i + 1 - k), page, next);
	}
}

static void load_queries(const struct attention_plan *a, const struct query_tile *t,
			 struct state *s, long kv_head)
{
	for (long i = 0; i < t->n; i++)
		attention_left(a, s->q + i * a->group * a->d * a->q_bytes,
			       t->q + (i * a->heads + kv_head * a->group) * a->d *
					       (long)dtype_size(a->t),
			       a->d, a->group);
}

static long splits_of(const struct query_tile *t)
{
	return (t->position + t->n + ATTENTION_SPLIT - 1) / ATTENTION_SPLIT;
}

static void attention_part(void *arg, long part, int thread)
{
	const struct attention_job *j = arg;
	const struct attention_plan *a = &j->plan;
	/* From the last tile to the first: the dearest begin. */
	const struct query_tile *t = j->tile + (j->tiles - 1 - part / a->kv_heads);
	long kv_head = part % a->kv_heads;
	struct state s = state_of(a, t->n * a->group, thread);

	load_queries(a, t, &s, kv_head);
	for (long split = 0; split < splits_of(t); split++) {
		attend_split(a, t, &s, kv_head, split);
		end_split(a, &s, s.m, s.l, s.o, t->n * a->group, split == 0);
	}
	finish_rows(a, t, &s, kv_head);
}

/*
 * The same with the splits of a row dealt to threads, for a few rows with many keys: every split
 * leaves its (m, l, o) in memory, and they are merged afterwards in the same order.
 */
struct partial_job {
	struct attention_job job;
	long most;   /* rows of a tile and kv head, */
	long splits; /* ... splits of one */
	float *memory;
};

static float *partial_at(const struct partial_job *p, long tile, long kv_head, long split)
{
	const struct attention_plan *a = &p->job.plan;

	return p->memory + ((tile * a->kv_heads + kv_head) * p->splits + split) * p->most *
				   (1 + LINE + a->width);
}

static void split_part(void *arg, long part, int thread)
{
	const struct partial_job *p = arg;
	const struct attention_plan *a = &p->job.plan;
	long split = part % p->splits, kv_head = part / p->splits % a->kv_heads,
	     tile = part / p->splits / a->kv_heads;
	const struct query_tile *t = p->job.tile + tile;
	long rows = t->n * a->group;
	float *to = partial_at(p, tile, kv_head, split);
	struct state s;

	if (split >= splits_of(t))
		return;
	s = state_of(a, rows, thread);
	load_queries(a, t, &s, kv_head);
	attend_split(a, t, &s, kv_head, split);
	memcpy(to, s.m, (size_t)rows * 4);
	memcpy(to + p->most, s.l, (size_t)(rows * LINE) * 4);
	memcpy(to + p->most * (1 + LINE), s.o, (size_t)(rows * a->width) * 4);
}

static void merge_part(void *arg, long part, int thread)
{
	const struct partial_job *p = arg;
	const struct attention_plan *a = &p->job.plan;
	long kv_head = part % a->kv_heads, tile = part / a->kv_heads;
	const struct query_tile *t = p->job.tile + tile;
	struct state s = state_of(a, t->n * a->group, thread);

	for (long split = 0; split < splits_of(t); split++) {
		const float *of = partial_at(p, tile, kv_head, split);

		end_split(a, &s, of, of + p->most, of + p->most * (1 + LINE), t->n * a->group,
			  split == 0);
	}
	finish_rows(a, t, &s, kv_head);
}

static void run_tiles(const struct attention_plan *a, const struct query_tile *tile, long tiles)
{
	struct attention_job j = { *a, tile, tiles };
	struct partial_job p = { .job = j };
	long parts = tiles * a->kv_heads;

	if (parts < FEW_PARTS * pool_threads())
		for (long i = 0; i < tiles; i++) {
			p.most = tile[i].n * a->group > p.most ? tile[i].n * a->group : p.most;
			p.splits = splits_of(tile + i) > p.splits ? splits_of(tile + i) : p.splits;
		}
	if (p.splits < 2 || pool_threads() == 1) {
		pool_run(attention_part, &j, parts);
		return;
	}
	p.memory = scratch(SCRATCH_SPLITS, 0,
			   (size_t)(parts * p.splits * p.most * (1 + LINE + a->width)) * 4);
	pool_run(split_part, &p, parts * p.splits);
	pool_run(merge_part, &p, parts);
}

/* Cut rows into tiles: neighbours of one sequence, never over a multiple of POSITIONS. */
static void attend_rows(const struct attention_plan *a, char *out, float *lse, const char *q,
			const struct kv_row *row, long rows)
{
	struct query_tile *tile = scratch(SCRATCH_LIST, 0, (size_t)rows * sizeof(*tile));
	long tiles = 0, bytes = a->heads * a->d * (long)dtype_size(a->t);

	for (long r = 0; r < rows; r++) {
		struct query_tile *t = tile + tiles - 1;

		if (r && row[r].page == t->page && row[r].position == t->position + t->n &&
		    row[r].position % POSITIONS) {
			t->n++;
			continue;
		}
		tile[tiles++] = (struct query_tile){
			q + r * bytes, out + r * bytes, lse ? lse + r * a->heads : NULL,
			row[r].page,   row[r].position, 1
		};
	}
	run_tiles(a, tile, tiles);
}

void attention_cached_cpu(void *out, const void *q, const struct kv_row *row, long rows,
			  const struct attention_shape *s, enum dtype t)
{
	struct attention_plan a = attention_plan(s, t);

	attend_rows(&a, out, NULL, q, row, rows);
}

/* Pieces from piece[i] on that share their keys: how many, and the most keys of one. */
long attention_group(long *keys, const struct attention_piece *piece, long i, long pieces)
{
	long n = 0;

	*keys = 0;
	for (; i + n < pieces && piece[i + n].k == piece[i].k; n++)
		*keys = piece[i + n].keys > *keys ? piece[i + n].keys : *keys;
	return n;
}

/* Where the keys of all pieces lie: pages of each group, and the row of every key. */
struct key_rows {
	void **page;
	struct kv_row *row;
	long pages, rows;
};

static struct key_rows key_rows(const struct attention_piece *piece, long pieces, long page_bytes)
{
	struct key_rows m = { 0 };
	long at = 0, r = 0, keys;
	char *memory;

	for (long i = 0; i < pieces; i += attention_group(&keys, piece, i, pieces)) {
		attention_group(&keys, piece, i, pieces);
		m.pages += (keys + ATTENTION_TILE - 1) / ATTENTION_TILE;
		m.rows += keys;
	}
	memory = scratch(SCRATCH_SHARED, 0, (size_t)(m.pages * page_bytes));
	m.page = scratch(SCRATCH_PARTIAL, 0, (size_t)m.pages * sizeof(*m.page) +
						      (size_t)m.rows * sizeof(struct kv_row));
	m.row = (struct kv_row *)(void *)(m.page + m.pages);
	for (long i = 0; i < m.pages; i++)
		m.page[i] = memory + i * page_bytes;
	for (long i = 0; i < pieces; i += attention_group(&keys, piece, i, pieces)) {
		attention_group(&keys, piece, i, pieces);
		for (long p = 0; p < keys; p++)
			m.row[r++] = (struct kv_row){ m.page + at, p };
		at += (keys + ATTENTION_TILE - 1) / ATTENTION_TILE;
	}
	return m;
}

/* Tiles never over a multiple of POSITIONS. */
static long tile_piece(struct query_tile *tile, const struct attention_plan *a,
		       const struct attention_piece *piece, void *const *page, char *out, float *lse,
		       const char *q)
{
	long tiles = 0, bytes = a->heads * a->d * (long)dtype_size(a->t), n;

	for (long i = 0; i < piece->n; i += n) {
		long position = piece->keys - piece->n + i, at = piece->q + i;

		n = POSITIONS - position % POSITIONS;
		n = n < piece->n - i ? n : piece->n - i;
		tile[tiles++] = (struct query_tile){ q + at * bytes, out + at * bytes,
						     lse ? lse + at * a->heads : NULL, page,
						     position, n };
	}
	return tiles;
}

void attention_fwd_cpu(void *out, float *lse, const void *q, const void *k, const void *v,
		       const struct attention_piece *piece, long pieces,
		       const struct attention_shape *s, enum dtype t)
{
	struct attention_plan a = attention_plan(s, t);
	struct key_rows m = key_rows(piece, pieces, (long)kv_page_bytes_cpu(s, t));
	long bytes = a.kv_heads * a.d * (long)dtype_size(t), tiles = 0, most = 0, keys, at = 0, r = 0;
	struct query_tile *tile;

	for (long i = 0; i < pieces; i++)
		most += piece[i].n / POSITIONS + 2;
	tile = scratch(SCRATCH_LIST, 0, (size_t)most * sizeof(*tile));
	for (long i = 0, n; i < pieces; i += n) {
		n = attention_group(&keys, piece, i, pieces);
		for (long j = i; j < i + n; j++)
			tiles += tile_piece(tile + tiles, &a, piece + j, m.page + at, out, lse, q);
		at += (keys + ATTENTION_TILE - 1) / ATTENTION_TILE;
	}
	/* Groups whose keys lie end to end are put at once. */
	for (long i = 0, run; i < pieces && m.rows; r += run) {
		long first = piece[i].k;

		for (run = 0; i < pieces && piece[i].k == first + run; run += keys)
			i += attention_group(&keys, piece, i, pieces);
		kv_put_cpu(m.row + r, (const char *)k + first * bytes, (const char *)v + first * bytes,
			   run, s, t);
	}
	run_tiles(&a, tile, tiles);
}
