#ifndef KERNELS_MODEL_CACHE_H
#define KERNELS_MODEL_CACHE_H

/*
 * A paged KV cache and the pass that extends sequences in it.  A block is 64 positions in every layer; blocks are
 * counted references, so that sequences share the full blocks of a common prompt.
 *
 *	cache_new(m, blocks, max_rows, max_want)
 *	cache_reserve(c, &s, positions)         blocks for positions 0 .. positions - 1; false when none is left
 *	cache_extend(c, rows, n, logits)        runs n rows, puts their keys, gives logits where wanted
 *	cache_fork(c, &child, &parent, length)  shares full blocks, copies the last partial one
 *	cache_drop(c, &s)
 */

#include "kernels/model/model.h"

struct cache;

struct cached {                 /* one sequence; zero is empty */
	int *block;             /* owned */
	long blocks, cap;
};

struct cache_row {
	struct cached *seq;
	int id;                 /* token at this position */
	long position;
	bool want;              /* logits of this row */
};

/* At most max_rows rows a call, of which at most max_want want logits. */
struct cache *cache_new(struct model *m, long blocks, long max_rows, long max_want);
void cache_free(struct cache *c);
size_t cache_block_bytes(const struct model *m);        /* all layers */
size_t cache_bytes(const struct model *m, long blocks, long max_rows, long max_want); /* what cache_new() will take */
long cache_free_blocks(const struct cache *c);
bool cache_reserve(struct cache *c, struct cached *s, long positions) MUST_CHECK;
bool cache_fork(struct cache *c, struct cached *child, const struct cached *parent, long length) MUST_CHECK;
void cache_drop(struct cache *c, struct cached *s);
/*
 * rows in any order of sequences; rows of one sequence ascending and adjacent.  logits: fp32 [wanted rows, vocab] in
 * the order of the rows, in memory of the cache, valid until the next call.
 */
const float *cache_extend(struct cache *c, const struct cache_row *row, long n);
/* The experts that every row of the next calls visits go to experts[n, model_expert_layers(), k]; NULL: nowhere. */
void cache_note_experts(struct cache *c, int *experts);

#endif
