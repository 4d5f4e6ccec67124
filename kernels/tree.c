#include "kernels/tree.h"

long tree_split(long n)
{
	long h = 1;

	while (h * 2 < n)
		h *= 2;
	return h;
}

/* The parts of [first, end) within the node of n leaves that begins at `at`. */
static long parts_in(long *leaves, long at, long n, long first, long end)
{
	long h, left;

	if (first >= at + n || end <= at)
		return 0;
	if (first <= at && at + n <= end) {
		if (leaves)
			*leaves = n;
		return 1;
	}
	h = tree_split(n);
	left = parts_in(leaves, at, h, first, end);
	return left + parts_in(leaves ? leaves + left : NULL, at + h, n - h, first, end);
}

long tree_parts(long *leaves, long first, long n, long all)
{
	return n > 0 ? parts_in(leaves, 0, all, first, first + n) : 0;
}

long tree_parts_of(const struct tree_cut *c, long rank)
{
	return tree_parts(NULL, c->first[rank], c->first[rank + 1] - c->first[rank],
			  tree_leaves(c));
}

long tree_parts_all(const struct tree_cut *c)
{
	long n = 0;

	for (long r = 0; r < c->ranks; r++)
		n += tree_parts_of(c, r);
	return n;
}
