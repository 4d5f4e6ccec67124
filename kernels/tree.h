#ifndef KERNELS_TREE_H
#define KERNELS_TREE_H

/*
 * The fixed tree by which partial sums are joined (design section 5, "One order of summation for
 * all layouts"), and how its leaves lie over ranks.  A node over n leaves has a left child over h
 * of them, the largest power of two below n, and a right one over the rest; for 8: ((0+1)+(2+3)) +
 * ((4+5)+(6+7)).  The shape of a node depends on n alone.
 *
 * A rank that holds a run of leaves sums the largest whole nodes in it: its parts.  With the parts
 * of all ranks the rest of the tree is joined, so the sum has the same bits whatever the cut:
 *
 *	leaves 0-7 over three ranks:  0 1 | 2 3 4 | 5 6 7     parts:  [0 1]  [2 3] [4]  [5] [6 7]
 */

#include <stdbool.h>
#include <stddef.h>

struct tree_cut {
	long ranks;
	const long *first;      /* [ranks + 1] rank r holds leaves first[r] .. first[r + 1] - 1 */
};

enum { TREE_DEPTH = 64 };

/* n partial sums, `stride` floats apart. */
static inline float tree_join(const float *p, long n, long stride)
{
	long h = 1;

	if (n == 1)
		return p[0];
	while (h * 2 < n)
		h *= 2;
	return tree_join(p, h, stride) + tree_join(p + h * stride, n - h, stride);
}

/* Where a node over n leaves is split. */
long tree_split(long n);
/*
 * The parts of the run of n leaves from `first` on, of a tree over `all`: how many, and (leaves not
 * NULL) the leaves of each.
 */
long tree_parts(long *leaves, long first, long n, long all);
/* How many parts rank r has; all ranks together. */
long tree_parts_of(const struct tree_cut *c, long rank);
long tree_parts_all(const struct tree_cut *c);
static inline long tree_leaves(const struct tree_cut *c)
{
	return c->first[c->ranks];
}

#endif
