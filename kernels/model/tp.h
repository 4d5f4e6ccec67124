#ifndef KERNELS_MODEL_TP_H
#define KERNELS_MODEL_TP_H

/*
 * Tensor parallelism: what the ranks of a TP group do around the products of a layer.
 *
 * Every rank has some heads, some of the MLP's width and some of the vocabulary (m->here).  The
 * residual stream is split by rows (sequence parallelism: rank i of n has rows i R / n .. (i + 1) R
 * / n - 1), or, in a cache's pass of few rows, all ranks have it whole.  "own" rows are those that
 * this rank has, R >= own all of them.
 *
 *	h = tp_gather(t, x)
 *		own rows to all rows, for a product with a matrix whose outputs are cut
 *	tp_row_linear(t, y, ty, x, ...)
 *		y[own] = x[R] W^T + b of a matrix whose K is cut: the fp32 sums travel, and are
 *		joined by the tree of all chunks and rounded once, as one rank does
 *	tp_linear_dx(t, dx, dy, w, add) ... and at the end tp_finish_dx(t, dx)
 *		the gradient of tp_gather(): every rank's part of it summed in fp32 in order of
 *		ranks, own rows, rounded
 *
 * With one rank these are the plain ops, without a copy.
 */

#include "kernels/model/model.h"

struct tp {
	const struct model *m;
	struct comm *c;
	bool split;             /* rows are split over the ranks */
	long R, first, own;     /* rows of all; of this rank; tp_rows() sets them */
	void *all;              /* [R, H] of type t: what tp_gather() gives, until the next */
	float *sum;             /* fp32, [R, H], or the parts of this rank of each row */
	float *got;             /* fp32, what comes from the other ranks */
	/* chunks of o_proj, of a dense and a shared expert's down_proj; blocks of the vocabulary */
	struct tree_cut o, down, shared, vocab;
	long *cut;              /* owned: memory of the four */
	size_t *out, *in;       /* owned: [2 ranks] bytes or elements a rank */
};

/* memory NULL: only count.  At most `rows` rows. */
size_t tp_carve(struct tp *t, const struct model *m, long rows, bool split, char *memory);
void tp_init(struct tp *t, const struct model *m, bool split);
void tp_release(struct tp *t);
void tp_rows(struct tp *t, long rows);
/* The first row of a rank; of rank `size`: R. */
static inline long tp_first(const struct tp *t, long rank)
{
	return t->R * rank / t->c->size;
}
/* Most rows that a rank owns of `rows`. */
long tp_most(const struct model *m, long rows, bool split);

const void *tp_gather(struct tp *t, const void *x);
/* y of type ty, as the model's or F32. */
void tp_row_linear(struct tp *t, void *y, enum dtype ty, const void *x, const struct weight *w,
		   const struct weight *bias, const struct tree_cut *c);
void tp_linear_dx(struct tp *t, void *dx, const void *dy, const struct matrix *w, bool add);
void tp_finish_dx(struct tp *t, void *dx);
/* Rows of the embedding, each from the rank that holds it; its gradient. */
void tp_embed(struct tp *t, void *y, const struct weight *table, const int *ids);
void tp_embed_bwd(struct tp *t, const struct weight *table, const void *dy, const int *ids);
/*
 * z[n, V] from the columns of all ranks; `local` those of this one, `stage` [n, V] scratch.  One
 * rank: local itself.
 */
const float *tp_logits(struct tp *t, float *z, const float *local, float *stage, long n);

/*
 * How the chunks of a matrix whose last dimension is cut lie over its TP (ETP) group: first[ranks +
 * 1].  Where cuts fall between chunks, by chunks; else the k of each rank are one chunk.
 */
void tp_chunk_cut(long *first, const struct param *p, const struct layout *l);

#endif
