#ifndef KERNELS_CUDA_ATTENTION_H
#define KERNELS_CUDA_ATTENTION_H

/*
 * What the kernels of attention share.
 *
 * Rows.  The rows of one kv head of one sequence are numbered f = position group + head of the group, so that the heads that read
 * the same keys lie side by side in a tile of the tensor cores, for prefill and decode alike.  A tile is a run of them.
 *
 * A row's arithmetic does not know where in a tile it lies, nor which rows share it: rows of an mma are independent, and a tile of keys
 * that is wholly past a row leaves its m, l and o as they are (w = 0, 2^0 = 1).  So any tiling gives the same bits.
 */

#include <algorithm>
#include <vector>

#include "kernels/cuda/device.h"

extern "C" {
#include "kernels/attention.h"
}

enum { TILE = ATTENTION_TILE, SPLIT_TILES = ATTENTION_SPLIT / ATTENTION_TILE };

#define ATTENTION_FLOOR (-1e30f)        /* -inf, but for the difference of two */

/* Rows first .. first + rows - 1 of each kv head. */
struct row_tile {
	long q;                 /* where the row of position 0 would lie in q */
	long key;               /* the first row of its keys; or of pages, its place in the list */
	int first, rows;
};

struct attend {
	void *out;
	float *lse;
	const void *q, *k;
	const void *const *page;        /* or NULL: keys are rows of k */
	long stride, head, value;       /* elements from one key to the next, to that of the next kv head, to its value */
	const struct row_tile *tile;
	int tiles, splits;              /* splits: of the longest */
	/* [tile][kv head][splits][most rows][d + 2], (m, l) last: a block for each split; or NULL: one for all splits of its rows. */
	float *part;
	int most;
	int heads, kv_heads, group, d;
	int width;                      /* of a row of keys: d, or more of a page */
	float scale, c;                 /* c = scale log2 e */
	bool wide, wide_keys;           /* 16 bytes at a time from q and to out; of keys and values */
};

struct attend_bwd {
	void *dq, *dk, *dv;
	const void *dout, *q, *k, *v;
	const float *lse2, *delta;      /* [rows, heads]: lse log2 e, dout . out */
	const struct row_tile *tile;
	const struct key_tile *key;
	int heads, kv_heads, group, d;
	float scale, c;
	bool wide, wide_out;
};

/* Keys from position `first` on, of a sequence with `keys` of them, and the tiles of rows that may see them. */
struct key_tile {
	long key;
	int first, keys;
	int tile, tiles;
};

/* Of a row f: its row among [rows, heads] */
DEVICE long row_of(const struct row_tile &t, int f, int heads, int group, int kv_head)
{
	int position = f / group;

	return (t.q + position) * heads + kv_head * group + (f - position * group);
}

/* Tile j of the keys of a kv head, or of their values */
template <class T> DEVICE const T *keys_of(const struct attend &a, const struct row_tile &t, int kv_head, int j, bool values)
{
	const T *k = a.page ? (const T *)a.page[t.key + j] : (const T *)a.k + (t.key + (long)j * TILE) * a.stride;

	return k + kv_head * a.head + (values ? a.value : 0);
}

/* (m, l) of the splits so far and of the next become one; a and b are what their o is multiplied by. */
DEVICE void join_split(float &m, float &l, float &a, float &b, float m1, float l1, float c)
{
	float is = fmaxf(m, m1);

	a = ck_exp2(m * c - is * c);
	b = ck_exp2(m1 * c - is * c);
	l = l * a + l1 * b;
	m = is;
}

/* -- the host's side --------------------------------------------------------------------------------------- */

static inline void attention_check(const struct attention_shape *s, enum dtype t)
{
	if ((t != DTYPE_F32 && t != DTYPE_BF16) || s->kv_heads <= 0 || s->heads <= 0 || s->heads % s->kv_heads || s->head_dim <= 0 ||
	    s->head_dim > ATTENTION_HEAD_DIM)
		bug("attention: %ld heads, %ld kv heads of %ld", s->heads, s->kv_heads, s->head_dim);
}

/* Tiles of `most` rows, never over a multiple of it, of positions p0 .. p1 - 1. */
static inline void cut_rows(std::vector<row_tile> &out, long q, long key, long p0, long p1, long group, long most)
{
	long f = p0 * group, end = p1 * group;

	if (end > 0x7fffffff)
		bug("attention over %ld positions of %ld heads", p1, group);
	for (long n; f < end; f += n) {
		n = most - f % most;
		n = n < end - f ? n : end - f;
		out.push_back({ q, key, (int)f, (int)n });
	}
}

/* Blocks of tiles with more keys begin first. */
static inline bool dearer(const struct row_tile &x, const struct row_tile &y)
{
	return x.first + x.rows > y.first + y.rows;
}

/* Rows of a tile: ATTEND_FEW at most where they are few, each split then having a block of its own (part); else attend_rows_*(). */
enum { ATTEND_FEW = 16 };
long attend_rows_bf16(long d);
long attend_rows_f32(long d);
void attend_bf16(const struct attend &a, bool few, const char *op);
void attend_f32(const struct attend &a, bool few, const char *op);

/*
 * For the backward pass: the tiles of `rows` rows of all pieces, in their order; with keys, those of `most` of them for each run of
 * pieces that share them.
 */
void cut_pieces(std::vector<row_tile> *tiles, std::vector<key_tile> *key, const struct attention_piece *piece, long pieces, long group,
		long rows, long most);
void attend_bwd_bf16(struct attend_bwd a, const struct attention_piece *piece, long pieces, enum dtype tkv);
void attend_bwd_f32(struct attend_bwd a, const struct attention_piece *piece, long pieces, enum dtype tkv);

#endif
