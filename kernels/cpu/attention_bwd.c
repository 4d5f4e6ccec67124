#include "kernels/attention.h"

#include <string.h>

#include "kernels/cpu/attention_kernel.h"
#include "kernels/cpu/backend.h"
#include "kernels/cpu/scratch.h"
#include "libcommon/pool.h"

/*
 * Rows of a kv head are taken in tiles of 16 positions, all heads of its group; keys in tiles of
 * 64.  Both are packed first as the operands that the products want: the left ones dense, the right
 * ones as keys (lanes are keys) and as values (lanes are columns).
 */
enum { POSITIONS = 16 };

struct row_tile {			/* of one kv head */
	char *q, *dout;			/* left operands [rows, d] */
	uint32_t *q_words, *dout_words; /* right operands [row step][width] */
	float *delta, *lse2;		/* [rows]; lse in powers of two */
};

struct key_tile {	   /* of one kv head */
	uint32_t *k, *v;   /* [step of d][64] */
	uint32_t *k_words; /* [step of keys][width] */
};

struct group {			     /* pieces with the same keys */
	long first, keys;	     /* rows of the keys */
	long row_tile, row_tiles, key_tile; /* numbers of its first, and how many */
};

struct row_place { /* of a row tile: rows q .. q + n - 1 at positions from `position` on */
	long group, q, position, n;
};

struct key_place {
	long group, index;
};

struct bwd {
	struct attention_plan plan;
	char *dq, *dk, *dv;
	enum dtype tkv;
	const char *dout, *out, *q, *k, *v;
	const float *lse;
	struct group *group;
	struct row_place *row_place;
	struct key_place *key_place;
	long groups, row_tiles, key_tiles;
	long rows; /* of a row tile: 16 x group */
	/* Bytes: of a left operand, of words, of a tile of rows; of keys, of a tile of keys. */
	size_t left, words, row_bytes, keys, key_bytes;
	char *row_memory, *key_memory;
};

static long size_of(const struct bwd *b)
{
	return (long)dtype_size(b->plan.t);
}

static struct row_tile row_tile(const struct bwd *b, long tile, long kv_head)
{
	char *p = b->row_memory + (size_t)(tile * b->plan.kv_heads + kv_head) * b->row_bytes;
	struct row_tile t = { .q = p, .dout = p + b->left };

	t.q_words = (uint32_t *)(void *)(p + 2 * b->left);
	t.dout_words = (uint32_t *)(void *)(p + 2 * b->left + b->words);
	t.delta = (float *)(void *)(p + 2 * b->left + 2 * b->words);
	t.lse2 = t.delta + b->rows;
	return t;
}

static struct key_tile key_tile(const struct bwd *b, long tile, long kv_head)
{
	char *p = b->key_memory + (size_t)(tile * b->plan.kv_heads + kv_head) * b->key_bytes;

	return (struct key_tile){ (uint32_t *)(void *)p, (uint32_t *)(void *)(p + b->keys),
				  (uint32_t *)(void *)(p + 2 * b->keys) };
}

static float at(const struct bwd *b, const char *p, long i)
{
	return b->plan.t == DTYPE_BF16 ? bf16_to_f32(((const uint16_t *)(const void *)p)[i])
				       : ((const float *)(const void *)p)[i];
}

/* The heads of a group are neighbours, positions are not: gather, then pack. */
static void pack_row_tile(void *arg, long part, int thread)
{
	const struct bwd *b = arg;
	const struct attention_plan *a = &b->plan;
	long tile = part / a->kv_heads, kv_head = part % a->kv_heads, bytes = a->d * size_of(b),
	     g = a->group;
	const struct row_place *at_row = b->row_place + tile;
	struct row_tile t = row_tile(b, tile, kv_head);
	char *q = scratch(SCRATCH_X, thread, (size_t)(2 * b->rows * bytes)),
	     *dout = q + b->rows * bytes;

	memset(q, 0, (size_t)(2 * b->rows * bytes));
	for (long r = 0; r < b->rows; r++) {
		t.delta[r] = 0;
		t.lse2[r] = 1e30f; /* a row that is not there has weights of zero */
	}
	for (long i = 0; i < at_row->n; i++) {
		long head = (at_row->q + i) * a->heads + kv_head * g;

		memcpy(q + i * g * bytes, b->q + head * bytes, (size_t)(g * bytes));
		memcpy(dout + i * g * bytes, b->dout + head * bytes, (size_t)(g * bytes));
		for (long r = 0; r < g; r++) {
			float sum = 0;

			for (long e = (head + r) * a->d; e < (head + r + 1) * a->d; e++)
				sum += at(b, b->dout, e) * at(b, b->out, e);
			t.delta[i * g + r] = sum;
			t.lse2[i * g + r] = b->lse[head + r] * 1.44269504f;
		}
	}
	attention_left(a, t.q, q, a->d, b->rows);
	attention_left(a, t.dout, dout, a->d, b->rows);
	pack_columns(t.q_words, (int)a->width, q, a->d, a->d, b->rows, a->t);
	pack_columns(t.dout_words, (int)a->width, dout, a->d, a->d, b->rows, a->t);
}

static void pack_key_tile(void *arg, long part, int thread)
{
	const struct bwd *b = arg;
	const struct attention_plan *a = &b->plan;
	long tile = part / a->kv_heads, kv_head = part % a->kv_heads, ld = a->kv_heads * a->d;
	const struct group *s = b->group + b->key_place[tile].group;
	long p0 = b->key_place[tile].index * ATTENTION_TILE,
	     n = s->keys - p0 < ATTENTION_TILE ? s->keys - p0 : ATTENTION_TILE;
	long offset = ((s->first + p0) * ld + kv_head * a->d) * size_of(b);
	struct key_tile t = key_tile(b, tile, kv_head);

	(void)thread;
	memset(t.k, 0, b->key_bytes);
	pack_rows(t.k, ATTENTION_TILE, b->k + offset, ld, n, a->d, a->t);
	pack_rows(t.v, ATTENTION_TILE, b->v + offset, ld, n, a->d, a->t);
	pack_columns(t.k_words, (int)a->width, b->k + offset, ld, a->d, n, a->t);
}

/* p and ds [rows, 64] of one row tile and one key tile. */
static void weights(const struct bwd *b, float *p, float *ds, const struct row_tile *r,
		    const struct key_tile *k, long position, long key_index)
{
	const struct attention_plan *a = &b->plan;
	long ks = a->form == WEIGHT_WIDE ? 8 : 4,
	     first = position - key_index * ATTENTION_TILE + 1;

	attention_product(a, p, ATTENTION_TILE, r->q, a->d * a->q_bytes, ks, k->k, ATTENTION_TILE,
			  a->d, b->rows, ATTENTION_TILE, true, k->v);
	attention_product(a, ds, ATTENTION_TILE, r->dout, a->d * a->q_bytes, ks, k->v,
			  ATTENTION_TILE, a->d, b->rows, ATTENTION_TILE, true, k->k_words);
	for (long i = 0; i < b->rows; i++) {
		long nkeys = first + i / a->group;

		a->rows->backward(p + i * ATTENTION_TILE, ds + i * ATTENTION_TILE,
				  (int)(nkeys < ATTENTION_TILE ? nkeys : ATTENTION_TILE), a->c,
				  r->lse2[i], r->delta[i], a->scale, a->t == DTYPE_BF16);
	}
}

/* dq [rows, width] += ds k */
static void add_dq(const struct bwd *b, float *dq, const float *ds, const struct key_tile *k)
{
	const struct attention_plan *a = &b->plan;

	attention_product(a, dq, a->width, ds, ATTENTION_TILE * 4, a->form == WEIGHT_WIDE ? 8 : 4,
			  k->k_words, a->width, ATTENTION_TILE, b->rows, a->width, false,
			  k->k_words);
}

/* y [64 keys, width] += w^T x, w [rows, 64], x the words of the rows */
static void add_across(const struct bwd *b, float *y, const float *w, const uint32_t *x,
		       uint32_t *pairs)
{
	const struct attention_plan *a = &b->plan;
	const void *left = w;

	if (a->form == WEIGHT_PAIRS) {
		pack_columns(pairs, ATTENTION_TILE, w, 2 * ATTENTION_TILE, ATTENTION_TILE, b->rows,
			     DTYPE_BF16);
		left = pairs;
	}
	attention_product(a, y, a->width, left, 4,
			  ATTENTION_TILE * (a->form == WEIGHT_WIDE ? 8 : 4), x, a->width, b->rows,
			  ATTENTION_TILE, a->width, false, x);
}

struct work {
	float *p, *ds, *a, *b;
	uint32_t *pairs;
};

static struct work work_of(const struct bwd *b, int thread)
{
	long tile = b->rows * ATTENTION_TILE,
	     acc = (b->rows > ATTENTION_TILE ? b->rows : ATTENTION_TILE) * b->plan.width;
	float *f = scratch(SCRATCH_ROWS, thread, (size_t)(3 * tile + 2 * acc) * 4);

	return (struct work){ f, f + tile, f + 3 * tile, f + 3 * tile + acc,
			      (uint32_t *)(void *)(f + 2 * tile) };
}

static void dq_part(void *arg, long part, int thread)
{
	const struct bwd *b = arg;
	const struct attention_plan *a = &b->plan;
	long tile = b->row_tiles - 1 - part / a->kv_heads, kv_head = part % a->kv_heads,
	     g = a->group;
	const struct row_place *p = b->row_place + tile;
	struct row_tile r = row_tile(b, tile, kv_head);
	struct work w = work_of(b, thread);

	memset(w.a, 0, (size_t)(b->rows * a->width) * 4);
	for (long i = 0; i <= p->position / ATTENTION_TILE; i++) {
		struct key_tile k = key_tile(b, b->group[p->group].key_tile + i, kv_head);

		weights(b, w.p, w.ds, &r, &k, p->position, i);
		add_dq(b, w.a, w.ds, &k);
	}
	for (long i = 0; i < p->n * g; i++)
		a->linear->finish(
			b->dq + ((p->q + i / g) * a->heads + kv_head * g + i % g) * a->d *
					size_of(b),
			a->t, w.a + i * a->width, NULL, a->t, a->d, false);
}

static void dkv_part(void *arg, long part, int thread)
{
	const struct bwd *b = arg;
	const struct attention_plan *a = &b->plan;
	long tile = part / a->kv_heads, kv_head = part % a->kv_heads;
	const struct group *s = b->group + b->key_place[tile].group;
	long index = b->key_place[tile].index, p0 = index * ATTENTION_TILE;
	struct key_tile k = key_tile(b, tile, kv_head);
	struct work w = work_of(b, thread);

	memset(w.a, 0, (size_t)(ATTENTION_TILE * a->width) * 4);
	memset(w.b, 0, (size_t)(ATTENTION_TILE * a->width) * 4);
	for (long i = s->row_tile; i < s->row_tile + s->row_tiles; i++) {
		struct row_tile r = row_tile(b, i, kv_head);

		if (b->row_place[i].position < p0)
			continue;
		weights(b, w.p, w.ds, &r, &k, b->row_place[i].position, index);
		add_across(b, w.a, w.ds, r.q_words, w.pairs);
		add_across(b, w.b, w.p, r.dout_words, w.pairs);
	}
	for (long i = 0; i < ATTENTION_TILE && p0 + i < s->keys; i++) {
		long to = ((s->first + p0 + i) * a->kv_heads + kv_head) * a->d *
			  (long)dtype_size(b->tkv);

		a->linear->finish(b->dk + to, b->tkv, w.a + i * a->width, NULL, a->t, a->d, false);
		a->linear->finish(b->dv + to, b->tkv, w.b + i * a->width, NULL, a->t, a->d, false);
	}
}

/* Tiles of rows never cross a multiple of POSITIONS, so each lies beside one diagonal tile of keys. */
static void list_rows(struct bwd *b, const struct attention_piece *piece, long group)
{
	for (long i = 0, n; i < piece->n; i += n) {
		long position = piece->keys - piece->n + i;

		n = POSITIONS - position % POSITIONS;
		n = n < piece->n - i ? n : piece->n - i;
		b->row_place[b->row_tiles++] = (struct row_place){ group, piece->q + i, position, n };
	}
}

static void list_tiles(struct bwd *b, const struct attention_piece *piece, long pieces)
{
	for (long i = 0, n, keys; i < pieces; i += n) {
		struct group *s = b->group + b->groups;

		n = attention_group(&keys, piece, i, pieces);
		*s = (struct group){ piece[i].k, keys, b->row_tiles, 0, b->key_tiles };
		for (long j = i; j < i + n; j++)
			list_rows(b, piece + j, b->groups);
		s->row_tiles = b->row_tiles - s->row_tile;
		for (long j = 0; j * ATTENTION_TILE < keys; j++)
			b->key_place[b->key_tiles++] = (struct key_place){ b->groups, j };
		b->groups++;
	}
}

static void lay_out(struct bwd *b)
{
	const struct attention_plan *a = &b->plan;
	size_t per = a->t == DTYPE_BF16 ? 2 : 1;

	b->rows = POSITIONS * a->group;
	b->left = (size_t)(b->rows * a->d * a->q_bytes);
	b->words = (size_t)(b->rows * a->width) * 4 / per;
	b->row_bytes = (2 * b->left + 2 * b->words + (size_t)b->rows * 8 + 63) / 64 * 64;
	b->keys = (size_t)a->key_words * 4;
	b->key_bytes = 2 * b->keys + (size_t)a->value_words * 4;
	b->row_memory =
		scratch(SCRATCH_SHARED, 0, (size_t)(b->row_tiles * a->kv_heads) * b->row_bytes);
	b->key_memory =
		scratch(SCRATCH_PARTIAL, 0, (size_t)(b->key_tiles * a->kv_heads) * b->key_bytes);
}

void attention_bwd_cpu(void *dq, void *dk, void *dv, enum dtype tkv, const void *dout,
		       const void *out, const float *lse, const void *q, const void *k,
		       const void *v, const struct attention_piece *piece, long pieces,
		       const struct attention_shape *s, enum dtype t)
{
	struct bwd b = { .plan = attention_plan(s, t),
			 .dq = dq,
			 .dk = dk,
			 .dv = dv,
			 .tkv = tkv,
			 .dout = dout,
			 .out = out,
			 .q = q,
			 .k = k,
			 .v = v,
			 .lse = lse };
	long rows = 0, keys = 0;

	for (long i = 0; i < pieces; i++) {
		rows += piece[i].n / POSITIONS + 2;
		keys += piece[i].keys / ATTENTION_TILE + 1;
	}
	b.group = scratch(SCRATCH_LIST, 0,
			  (size_t)pieces * sizeof(*b.group) + (size_t)rows * sizeof(*b.row_place) +
				  (size_t)keys * sizeof(*b.key_place));
	b.row_place = (struct row_place *)(void *)(b.group + pieces);
	b.key_place = (struct key_place *)(void *)(b.row_place + rows);
	list_tiles(&b, piece, pieces);
	lay_out(&b);
	pool_run(pack_row_tile, &b, b.row_tiles * b.plan.kv_heads);
	pool_run(pack_key_tile, &b, b.key_tiles * b.plan.kv_heads);
	pool_run(dq_part, &b, b.row_tiles * b.plan.kv_heads);
	pool_run(dkv_part, &b, b.key_tiles * b.plan.kv_heads);
}
