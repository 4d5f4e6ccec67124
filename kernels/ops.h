#ifndef KERNELS_OPS_H
#define KERNELS_OPS_H

/*
 * A backend is one table of functions, chosen once by ops_find(); nothing above it branches.
 *
 * Types.  `t` is the type of weights and activations: DTYPE_F32 or DTYPE_BF16.  Arithmetic, statistics,
 * logits, losses and weight gradients are fp32 whatever t is; a result is rounded to t once, at its end.
 *
 * Invariance (design section 5).  The value of a row never depends on how many other rows there are, where they
 * lie, how sequences are packed, on threads, or on whether keys come from a cache:
 *  - a product is, per chunk of K (struct matrix, `chunks`), one chain in a fixed order of k; chunks are
 *    joined by the fixed tree of tree_join() and then bias is added, then rounded;
 *  - attention walks key tiles of ATTENTION_TILE from position 0; each ATTENTION_SPLIT keys start afresh from m = -inf
 *    and end as (m, l, o) in fp32, merged in ascending order; masked and tail keys contribute exact zeros;
 *  - sums over the vocabulary go by VOCAB_BLOCK, each from its own maximum, joined in ascending pairs (tree_join order);
 *  - weight gradients are sums over rows in row order, independent of threads.
 *
 * Shapes are row-major.  Pointers are to the backend's memory (plain memory on the CPU), which the host does not touch but through
 * put, get, copy, zero, rows_gather and rows_scatter; one may point into an allocation.  Plain memory everywhere, read before the call
 * returns and written when it does:
 *  - what says which rows are meant: ids (of tokens), position, index, target, offset, piece, row and its pages, tree cuts, how, allowed;
 *  - what the head gives and takes a number of for each row: lp, lse, entropy, dlp (but attention's and route's lse are the backend's);
 *  - id and lp of sample().
 * Outputs never alias inputs unless a comment says so.  Wrong shapes are the programmer's: bug().
 */

#include "kernels/tree.h"
#include "libcommon/tensor.h"

enum { ATTENTION_TILE = 64, ATTENTION_SPLIT = 512, VOCAB_BLOCK = 1024 };

/* A weight w[n, k] (out, in; Hugging Face's order) made ready for products. */
struct matrix {
	enum dtype t;
	long n, k;
	long chunks;            /* divides k; pieces of K summed apart */
	bool backward;          /* also ready for linear_dx */
	void *fwd, *bwd;        /* the backend's packed forms, owned */
	size_t fwd_bytes, bwd_bytes;
};

/* Query rows q .. q + n - 1 are the last n positions of a sequence whose `keys` positions are rows k .. k + keys - 1 of the keys. */
struct attention_piece { long q, n, k, keys; };

struct attention_shape {
	long heads, kv_heads, head_dim;
	float scale;            /* 1 / sqrt(head_dim) for all present families */
};

/* One query row against cached keys: positions 0..position of the sequence whose pages these are. */
struct kv_row {
	void *const *page;      /* page[i] holds positions 64 i .. 64 i + 63 of one layer, all kv heads */
	long position;          /* of this row; its key and value are already in the cache */
};

struct routing {
	long experts, k;        /* of which each row visits k */
	bool norm;              /* the k weights are made to sum to 1 */
};

/* What is added to the gradient of router logits by losses of their own: d/dp (NULL: none), and z_scale lse p (kernels/moe.h). */
struct router_loss {
	const float *dp;        /* [experts], the same for all rows */
	float z_scale;
};

struct adamw {                  /* decoupled weight decay (Loshchilov & Hutter, 2019) */
	float lr, beta1, beta2, eps, weight_decay;
	float bias1, bias2;     /* 1 - beta1^t, 1 - beta2^t, computed in double */
	float grad_scale;       /* the clip factor */
	float rest1, rest2;     /* 1 - beta1, 1 - beta2, computed in double: from 0.999f it would be 1e-5 off */
};

struct sample_row {             /* how to draw one token from one row of logits */
	float u;                /* uniform in [0, 1) */
	float temperature;      /* 0: greedy, lowest id on ties */
	float top_p;            /* 1: off */
	float min_p;            /* 0: off */
	long top_k;             /* 0: off */
};

struct comm_device;

struct ops {
	const char *name;       /* "cpu" */
	const char *isa;        /* "avx512bf16", "avx512", "avx2", "portable"; for cuda the architecture */

	void *(*alloc)(size_t bytes, const char *what);         /* zeroed; dies naming what and bytes */
	void (*release)(void *p);
	void (*put)(void *dev, const void *host, size_t bytes);
	void (*get)(void *host, const void *dev, size_t bytes);
	void (*copy)(void *to, const void *from, size_t bytes); /* both the backend's */
	void (*zero)(void *p, size_t bytes);
	/* Rows of so many bytes: to[r] = from[index[r]], or to[index[r]] = from[r], where no two rows go to one place. */
	void (*rows_gather)(void *to, const void *from, const int *index, long rows, size_t bytes);
	void (*rows_scatter)(void *to, const void *from, const int *index, long rows, size_t bytes);
	/* The first bytes of each row; rows begin so many bytes apart. */
	void (*columns_copy)(void *to, size_t to_row, const void *from, size_t from_row, size_t bytes, long rows);
	/* Bytes that alloc() could still give; 0: as many as the host has. */
	size_t (*room)(void);

	/* -- products ------------------------------------------------------------------------ */
	void (*matrix_init)(struct matrix *w, enum dtype t, long n, long k, long chunks, bool backward);
	void (*matrix_load)(struct matrix *w, const void *rows); /* [n, k] of type w->t */
	void (*matrix_release)(struct matrix *w);
	/* y[m, n] = x[m, k] w^T + bias (or no bias: NULL); y has type ty (t, or F32 for logits), bias type t. */
	void (*linear_fwd)(void *y, enum dtype ty, const void *x, const struct matrix *w, const void *bias, long m);
	/*
	 * The same with K cut over ranks, w being the chunks first .. first + w->chunks - 1 of `all`.  linear_parts: y[part][m, n],
	 * the fp32 sums of this rank's parts (tree_parts()).  linear_join: parts[.][m, n] of all ranks in order, bias as above.
	 */
	void (*linear_parts)(float *y, const void *x, const struct matrix *w, long first, long all, long m);
	void (*linear_join)(void *y, enum dtype t, const float *parts, const struct tree_cut *c, const void *bias, long m, long n);
	/* dx[m, k] (+)= dy[m, n] w, of type tx (t or F32); w->backward.  add: onto what dx holds, in fp32, rounded once. */
	void (*linear_dx)(void *dx, enum dtype tx, const void *dy, const struct matrix *w, long m, bool add);
	/* dw[n, k] += dy^T x in fp32;  dbias[n] += column sums of dy (either NULL: not wanted). */
	void (*linear_dw)(float *dw, float *dbias, const void *dy, const void *x, long m, long n, long k, enum dtype t);

	/* -- attention: causal, grouped-query -------------------------------------------------- */
	/* q, out: [rows, heads, d]; k, v: [key rows, kv_heads, d] (k after RoPE).  lse[rows, heads]: log sum exp(scale q.k), for the
	 * backward pass (NULL: not wanted).  Pieces have rows of their own; those of one sequence share its keys, and stand together.
	 *   out_i = sum_{j <= i} softmax_j(scale q_i . k_j) v_j, i and j positions */
	void (*attention_fwd)(void *out, float *lse, const void *q, const void *k, const void *v, const struct attention_piece *piece,
			      long pieces, const struct attention_shape *s, enum dtype t);
	/* dq of the pieces' rows; dk, dv, of type tkv (t or F32), of their keys, summed over the pieces of a sequence.  A piece
	 * may have n = 0.  Deterministic whatever the threads. */
	void (*attention_bwd)(void *dq, void *dk, void *dv, enum dtype tkv, const void *dout, const void *out, const float *lse,
			      const void *q, const void *k, const void *v, const struct attention_piece *piece, long pieces,
			      const struct attention_shape *s, enum dtype t);
	/* A page: keys and values of 64 positions of one layer, all kv heads, in the order the arithmetic reads them. */
	size_t (*kv_page_bytes)(const struct attention_shape *s, enum dtype t);
	/* Put k, v [rows, kv_heads, d] into the pages of their rows at their positions. */
	void (*kv_put)(const struct kv_row *row, const void *k, const void *v, long rows, const struct attention_shape *s, enum dtype t);
	/* The same bits as attention_fwd.  Rows of one sequence that follow each other are taken together. */
	void (*attention_cached)(void *out, const void *q, const struct kv_row *row, long rows,
				 const struct attention_shape *s, enum dtype t);

	/* -- the rest of a block --------------------------------------------------------------- */
	void (*embed_fwd)(void *y, const void *table, const int *ids, long rows, long hidden, enum dtype t);
	/* dtable[ids[r]] += dy[r] in row order. */
	void (*embed_bwd)(float *dtable, const void *dy, const int *ids, long rows, long hidden, enum dtype t);
	/* rstd[r] = 1 / sqrt(mean_c(x[r,c]^2) + eps);  y[r,c] = x[r,c] rstd[r] w[c].  rstd NULL: not kept. */
	void (*rmsnorm_fwd)(void *y, float *rstd, const void *x, const void *w, long rows, long cols, float eps, enum dtype t);
	/* dx[r,c] (+)= rstd (dy w - x rstd^2 mean_c(dy w x));  dw[c] += sum_r dy x rstd (NULL:
	 * not wanted).  add as in linear_dx. */
	void (*rmsnorm_bwd)(void *dx, float *dw, const void *dy, const void *x, const void *w, const float *rstd,
			    long rows, long cols, bool add, enum dtype t);
	/* Rotate-half RoPE in place on x[rows, heads, d]: pairs (j, j + d/2), angle table cos, sin [max_position, d/2];
	 * inverse: the transpose, for gradients. */
	void (*rope)(void *x, const int *position, const float *cos, const float *sin, long rows, long heads, long d,
		     bool inverse, enum dtype t);
	/* y = silu(gate) up, silu(g) = g / (1 + exp(-g)). */
	void (*swiglu_fwd)(void *y, const void *gate, const void *up, long n, enum dtype t);
	void (*swiglu_bwd)(void *dgate, void *dup, const void *dy, const void *gate, const void *up, long n, enum dtype t);
	void (*add)(void *y, const void *a, const void *b, long n, enum dtype t);       /* y may be a or b */

	/* -- experts: kernels/moe.h --------------------------------------------------------------- */
	/* From logits z[rows, E]: id[rows, k], weight[rows, k]; p[rows, E] (may be z) and lse[rows] = log sum_e exp(z) (NULL: not
	 * wanted).  given: id holds the experts already, but -1 in the first slot of a row that is to choose.  A row with NaN or +inf has NaN weights. */
	void (*route)(int *id, float *weight, float *p, float *lse, const float *z, long rows, const struct routing *s, bool given);
	/* dz[rows, E] of type t from dweight[rows, k]. */
	void (*route_bwd)(void *dz, const float *dweight, const int *id, const float *weight, const float *p, const float *lse,
			  const struct router_loss *own, long rows, const struct routing *s, enum dtype t);
	/* offset[E + 1] (plain memory), from[rows k], place[rows k] of id[rows, k]. */
	void (*sort_slots)(long *offset, int *from, int *place, const int *id, long rows, const struct routing *s);
	/* linear_fwd, linear_dx and linear_dw (without bias) of rows offset[e] .. with w[e], e = 0 .. experts - 1; dw[experts, n, k]. */
	void (*grouped_fwd)(void *y, enum dtype ty, const void *x, const struct matrix *w, const long *offset, long experts);
	void (*grouped_dx)(void *dx, enum dtype tx, const void *dy, const struct matrix *w, const long *offset, long experts, bool add);
	void (*grouped_dw)(float *dw, const void *dy, const void *x, const long *offset, long experts, long n, long k, enum dtype t);
	/* y[i] = x[from[i]] for i = 0 .. rows - 1, from as sort_slots() gives it */
	void (*permute)(void *y, const void *x, const int *from, long rows, long cols, enum dtype t);
	/* y[r] = sum_s weight[r,s] o[place[r,s]] + gate[r] shared[r];  o[rows k, cols] and shared[rows, cols] (NULL: none) are fp32. */
	void (*combine)(void *y, const float *o, const int *place, const float *weight, const float *gate, const float *shared,
			long rows, long k, long cols, enum dtype t);
	/* For i = place[r k + s] (NULL: i = r k + s): dweight[r k + s] = dact[i] . act[i]; then both rows are multiplied by weight. */
	void (*weigh_bwd)(float *dweight, void *dact, void *act, const int *place, const float *weight, long rows, long k,
			  long cols, enum dtype t);
	/* dx[r] = sum_s d[place[r k + s]] with d[rows k, cols] in fp32 */
	void (*unpermute)(void *dx, const float *d, const int *place, long rows, long k, long cols, enum dtype t);
	/* y = 1 / (1 + exp(-x));  dx (type t) = dy y (1 - y) */
	void (*sigmoid_fwd)(float *y, const float *x, long n);
	void (*sigmoid_bwd)(void *dx, const float *dy, const float *y, long n, enum dtype t);

	/* -- the head -------------------------------------------------------------------------- */
	/* From logits z[rows, V] fp32:  lse[r] = log sum_v exp(z[r,v] / T),  lp[r] = z[r,target] / T - lse[r];
	 * entropy[r] = -sum p log p (NULL: not wanted).  A row with NaN, +inf or all -inf gives lp = NaN. */
	void (*logprob)(float *lp, float *lse, float *entropy, const float *z, const int *target, long rows, long V,
			float temperature);
	/*
	 * The same with the vocabulary cut over ranks between blocks (c: leaves are blocks): z[rows, n] are the columns of `rank`,
	 * which begin at VOCAB_BLOCK first[rank].  logprob_parts: out[rows, 3 parts + 1], the blocks' statistics and the target's z / T;
	 * logprob_join: those of all ranks, one after the other, to what logprob() gives.
	 */
	void (*logprob_parts)(float *out, const float *z, const int *target, long rows, long n, const struct tree_cut *c, long rank,
			      float temperature);
	void (*logprob_join)(float *lp, float *lse, float *entropy, const float *all, const int *target, long rows,
			     const struct tree_cut *c);
	/* dz[r,v] = dlp[r] / T ((v == target) - exp(z[r,v] / T - lse[r])), of type t, for linear_dx and linear_dw.  Of a cut
	 * vocabulary: the local columns, with lse of the whole, and targets counted from the first (outside 0 .. V - 1: elsewhere). */
	void (*logprob_bwd)(void *dz, const float *dlp, const float *lse, const float *z, const int *target, long rows, long V,
			    float temperature, enum dtype t);
	/* Draw a token of each row.  Only ids with allowed[id] != 0 (NULL: all).  lp as logprob() of that id at the row's
	 * temperature (1 where it is 0) over the whole vocabulary, same bits.  NaN, +inf or all -inf among the logits: id = -1. */
	void (*sample)(int *id, float *lp, const float *z, const struct sample_row *how, const uint8_t *allowed, long rows, long V);

	/* -- the optimizer --------------------------------------------------------------------- */
	/* g = grad_scale grad;  m = b1 m + (1-b1) g;  v = b2 v + (1-b2) g^2;
	 * w -= lr (m / bias1 / (sqrt(v / bias2) + eps) + weight_decay w);  low (NULL: none) = bf16(w). */
	void (*adamw)(float *w, float *m, float *v, uint16_t *low, const float *grad, long n, const struct adamw *h);
	double (*sumsq)(const float *x, long n);        /* in a fixed order, in double */

	const struct comm_device *ranks;        /* libcommon/comm.h: how this memory goes between ranks; NULL: as plain memory does */
};

/* "cpu", "cuda", "cuda:N" or "auto".  NULL with e set (69) when that backend cannot run here.  isa NULL: the best. */
const struct ops *ops_find(const char *device, const char *isa, struct err *e);

/* Which device "cuda" and "auto" mean: 0, if not told.  Ranks of a host have one each. */
void ops_local_device(int device);

/*
 * XXH3-64 of the outputs of every forward op on fixed vectors: same fingerprint, same bits.
 */
uint64_t ops_fingerprint(const struct ops *k);

#endif
