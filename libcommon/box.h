#ifndef LIBCOMMON_BOX_H
#define LIBCOMMON_BOX_H

/*
 * A box: (start, extent) in each dimension of a logical tensor.  Everything that moves parameters (save, load, reshard) is
 * intersection of boxes; there is no divisibility rule, and empty boxes (an extent of 0) are normal.
 */

#include "libcommon/tensor.h"

struct box {
	int rank;
	long start[TENSOR_RANK];
	long extent[TENSOR_RANK];
};

struct box box_whole(const long *shape, int rank);
long box_volume(const struct box *b);           /* 1 for rank 0 */
bool box_inside(const struct box *b, const long *shape, int rank); /* start, extent >= 0 and end <= shape */
/* The common part; returns its volume (0: none, *out then has extents of 0). */
long box_intersect(struct box *out, const struct box *a, const struct box *b);
/* Copy the elements of `part` from src, which holds the box `from` densely, to dst, which holds `to`. part lies in both. */
void box_copy(void *dst, const struct box *to, const void *src, const struct box *from, const struct box *part, size_t elem);
/*
 * Walk `part` of a tensor held densely as box `in` in runs of contiguous elements: fn(arg, offset in `in`,
 * flat index in the whole tensor of that shape, length).
 */
void box_runs(const struct box *part, const struct box *in, const long *shape,
	      void (*fn)(void *arg, long offset, long flat, long n), void *arg);
/* Do the n boxes tile the shape exactly once?  -1 with the first hole or overlap in the message (EX_DATAERR, named by `what`). */
int box_tiling(const struct box *b, long n, const long *shape, int rank, const char *what, struct err *e) MUST_CHECK;
/* A contiguous flat range [first, first + n) of a tensor as boxes, in order: at most 2 rank - 1 of them.  Returns their number. */
int box_of_range(struct box out[2 * TENSOR_RANK], const long *shape, int rank, long first, long n);

#endif
