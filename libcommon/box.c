#include "libcommon/box.h"

#include <string.h>

struct box box_whole(const long *shape, int rank)
{
	struct box b = { .rank = rank };

	for (int i = 0; i < rank; i++)
		b.extent[i] = shape[i];
	return b;
}

long box_volume(const struct box *b)
{
	long n = 1;

	for (int i = 0; i < b->rank; i++)
		if (b->extent[i] == 0)
			return 0;
	for (int i = 0; i < b->rank; i++)
		if (__builtin_mul_overflow(n, b->extent[i], &n))
			bug("the extents of a box were not checked");
	return n;
}

bool box_inside(const struct box *b, const long *shape, int rank)
{
	if (b->rank != rank)
		return false;
	for (int i = 0; i < rank; i++)
		if (b->start[i] < 0 || b->extent[i] < 0 || b->start[i] > shape[i] ||
		    b->extent[i] > shape[i] - b->start[i])
			return false;
	return true;
}

long box_intersect(struct box *out, const struct box *a, const struct box *b)
{
	struct box c = { .rank = a->rank };
	bool empty = false;

	if (a->rank != b->rank)
		bug("boxes of rank %d and %d", a->rank, b->rank);
	for (int i = 0; i < a->rank; i++) {
		long enda = a->start[i] + a->extent[i], endb = b->start[i] + b->extent[i];
		long end = enda < endb ? enda : endb;

		c.start[i] = a->start[i] > b->start[i] ? a->start[i] : b->start[i];
		c.extent[i] = end - c.start[i];
		empty |= c.extent[i] <= 0;
	}
	if (empty)
		memset(c.extent, 0, sizeof(c.extent));
	*out = c;
	return empty ? 0 : box_volume(&c);
}

/* Elements from one index to the next along each dimension of a dense array. */
static void strides(long *stride, const long *extent, int rank)
{
	long n = 1;

	for (int i = rank - 1; i >= 0; i--) {
		stride[i] = n;
		n *= extent[i];
	}
}

static long offset_in(const long *stride, const long *start, const struct box *part)
{
	long at = 0;

	for (int i = 0; i < part->rank; i++)
		at += (part->start[i] - start[i]) * stride[i];
	return at;
}

/*
 * Two dense arrays, walked together over `part`: fn for each run that is contiguous in both.  at[]
 * and stride[] are in elements; the innermost dimensions that both arrays hold in full melt into
 * one run.
 */
struct walk {
	int outer;                      /* dimensions that are stepped through */
	long run;                       /* elements a run */
	long at[2];
	long stride[2][TENSOR_RANK];
	long index[TENSOR_RANK];
};

static void walk_init(struct walk *w, const struct box *part, const long *start0,
		      const long *extent0, const long *start1, const long *extent1)
{
	int i = part->rank;

	memset(w, 0, sizeof(*w));
	strides(w->stride[0], extent0, part->rank);
	strides(w->stride[1], extent1, part->rank);
	w->at[0] = offset_in(w->stride[0], start0, part);
	w->at[1] = offset_in(w->stride[1], start1, part);
	w->run = 1;
	while (i > 0) {
		i--;
		w->run *= part->extent[i];
		if (part->extent[i] != extent0[i] || part->extent[i] != extent1[i])
			break;
	}
	w->outer = i;
}

static bool walk_next(struct walk *w, const struct box *part)
{
	for (int i = w->outer - 1; i >= 0; i--) {
		w->at[0] += w->stride[0][i];
		w->at[1] += w->stride[1][i];
		if (++w->index[i] < part->extent[i])
			return true;
		w->at[0] -= w->stride[0][i] * part->extent[i];
		w->at[1] -= w->stride[1][i] * part->extent[i];
		w->index[i] = 0;
	}
	return false;
}

static void check_within(const struct box *part, const struct box *in)
{
	struct box c;

	if (box_intersect(&c, part, in) != box_volume(part))
		bug("a part outside its box");
}

void box_copy(void *dst, const struct box *to, const void *src, const struct box *from,
	      const struct box *part, size_t elem)
{
	struct walk w;

	check_within(part, to);
	check_within(part, from);
	if (box_volume(part) == 0)
		return;
	walk_init(&w, part, to->start, to->extent, from->start, from->extent);
	do
		memcpy((char *)dst + (size_t)w.at[0] * elem,
		       (const char *)src + (size_t)w.at[1] * elem, (size_t)w.run * elem);
	while (walk_next(&w, part));
}

void box_runs(const struct box *part, const struct box *in, const long *shape,
	      void (*fn)(void *arg, long offset, long flat, long n), void *arg)
{
	static const long origin[TENSOR_RANK];
	struct walk w;

	check_within(part, in);
	if (box_volume(part) == 0)
		return;
	walk_init(&w, part, in->start, in->extent, origin, shape);
	do
		fn(arg, w.at[0], w.at[1], w.run);
	while (walk_next(&w, part));
}

int box_of_range(struct box out[2 * TENSOR_RANK], const long *shape, int rank, long first, long n)
{
	struct box whole = box_whole(shape, rank);
	long stride[TENSOR_RANK], end, at = first;
	int boxes = 0;

	if (first < 0 || n < 0 || __builtin_add_overflow(first, n, &end) ||
	    end > box_volume(&whole))
		bug("the range %ld + %ld of a tensor of %ld", first, n, box_volume(&whole));
	strides(stride, shape, rank);
	if (rank == 0 && n)
		out[boxes++] = whole;
	while (rank && at < end) {
		struct box *b = &out[boxes++];
		long rest = at;
		int d = 0;

		/* The outermost dimension of which a whole slice begins here and fits. */
		while (at % stride[d] || end - at < stride[d])
			d++;
		*b = whole;
		for (int i = 0; i <= d; i++) {
			b->start[i] = rest / stride[i];
			b->extent[i] = 1;
			rest %= stride[i];
		}
		long room = shape[d] - b->start[d], slices = (end - at) / stride[d];
		b->extent[d] = slices < room ? slices : room;
		at += b->extent[d] * stride[d];
	}
	return boxes;
}
