#ifndef LIBCOMMON_SHARD_H
#define LIBCOMMON_SHARD_H

/*
 * Who stores what in a layout: the pieces that a checkpoint in it has.
 *
 * Weights.  Each distinct param_box() of the ranks of a stage is one piece, written by one of the ranks that hold it; the copies (over TP
 * and over CP and DP) are shared out so that ranks write about the same number of bytes.
 *
 * Optimizer state (ZeRO-1).  The trained parameters of a stage, dense ones and experts apart, each as the param_box() of the rank, lie
 * end to end in table order: the arena.  Of its total elements T, member i of the n that hold the same arena (dense: the DP x CP
 * ranks in order of (dp, cp); experts: the EDP ranks) owns [cut(i), cut(i + 1)), cut(i) = i T / n moved down to the first element of a
 * row (a slice of dimension 0) of the box in which it lies.  Where ranks of a TP group hold copies of a box (norms; k and v of a group
 * that they share), each keeps the state of its part, and the first of them writes it.  A tied embedding is in the first stage's
 * arena alone: the last stage gets its value from there.
 */

#include "libcommon/param.h"

struct shard_piece {
	long param;             /* index in the table */
	long rank;              /* who writes it */
	struct box box;         /* of the whole tensor; not empty */
};

struct shard_pieces { struct shard_piece *piece; long n, cap; };        /* owned */

/* In table order, then by where the box begins. */
void shard_weights(struct shard_pieces *out, const struct param_table *t, const struct layout *l);
void shard_optimizer(struct shard_pieces *out, const struct param_table *t, const struct layout *l);
void shard_pieces_release(struct shard_pieces *s);

/* A part of the arena: n elements from `first` on, all of one parameter, being `box` of the whole tensor. */
struct arena_part { long param, first, n; struct box box; };
struct shard_arena {
	/* owned: the place of every trained parameter of the stage, in table order; n is 0 where the rank's box is empty */
	struct arena_part *whole; long params;
	long total;
	struct arena_part *own; long parts;     /* what this rank updates, none of them empty; owned */
	long first, n;                          /* together: [first, first + n) */
	size_t *count;                          /* elements that each member owns, in order; owned */
	long members;
};
/* The arena of the rank at `at`: dense parameters or experts. */
void shard_arena_init(struct shard_arena *a, const struct param_table *t, const struct layout *l, const struct place *at,
		      bool expert);
void shard_arena_release(struct shard_arena *a);

#endif
