#ifndef KERNELS_MODEL_CP_H
#define KERNELS_MODEL_CP_H

/*
 * Context parallelism: how the rows of a packed batch lie over the ranks of a CP group, and the
 * exchange of keys and values.
 *
 * Each sequence is cut into 2 CP chunks whose lengths differ by one at most; rank r has chunks r
 * and 2 CP - 1 - r, so that all have about as much of the causal triangle (zigzag).  The rows that
 * do not divide go round the ranks from sequence to sequence: no rank has more than ceil(rows /
 * CP), whatever the lengths.  Everything but attention works on the own rows alone; in attention a
 * chunk is a piece (kernels/ops.h) whose keys are all earlier positions, gathered from all ranks,
 * so every row has the bits that it has on one rank.  The gradients of keys and values are summed
 * in fp32 in order of ranks.
 */

#include "kernels/model/model.h"

struct cp {
	struct comm *c;
	long rows, own, begin;  /* of the batch; of this rank; its first in `row` */
	long *first;            /* [size + 1] rank r has rows row[first[r]] .. of the batch */
	int *row;               /* [rows] rows of the batch, rank after rank, as each has them */
	int *position;          /* [own] position of each own row in its sequence */
	struct attention_piece *piece;  /* [pieces] own rows against the keys of the batch */
	long pieces;
	size_t *bytes;          /* [size] */
};

void cp_init(struct cp *c, struct comm *group, long max_rows);  /* group: borrowed */
void cp_release(struct cp *c);
void cp_plan(struct cp *c, const struct batch *b);
static inline long cp_most(const struct comm *group, long rows)
{
	return (rows + group->size - 1) / group->size;
}

/*
 * all[rows, row bytes] in the order of the batch, from mine[own]; stage: as large as all.  One
 * rank: mine itself.  The backend's memory.
 */
const void *cp_gather(struct cp *c, const struct ops *k, void *all, const void *mine, void *stage,
		      size_t row_bytes);
/* out[own, n] = the sum over ranks of in[rows, n]; stage: as large as in.  The backend's memory. */
void cp_scatter_sum(struct cp *c, const struct ops *k, float *out, const float *in, float *stage,
		    long n);
/* A number of each row, of all ranks; plain memory, stage as above. */
void cp_numbers(struct cp *c, float *all, const float *mine, float *stage);
/* The own rows of a number or of bytes a row; plain memory. */
void cp_pick(const struct cp *c, void *mine, const void *all, size_t row_bytes);

#endif
