#include "libcommon/box.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libcommon/xalloc.h"

/*
 * Boxes tile a shape when none reaches outside, no two overlap and their volumes add up.  Overlaps
 * are sought by cutting space in two as long as a cut parts the boxes well, then by a sweep along
 * one dimension.  A hole is named by its first element in C order, found one coordinate after the
 * other: along each, the volume covered by the cross-section changes only where a box begins or
 * ends.
 */

enum { FEW = 32 };

static const char *box_text(char buf[400], const struct box *b)
{
	char start[160], extent[160];

	snprintf(buf, 400, "%s + %s", shape_text(start, b->start, b->rank),
		 shape_text(extent, b->extent, b->rank));
	return buf;
}

static long box_end(const struct box *b, int d)
{
	return b->start[d] + b->extent[d];
}

static bool overlap(const struct box *a, const struct box *b)
{
	for (int i = 0; i < a->rank; i++)
		if (a->start[i] >= box_end(b, i) || b->start[i] >= box_end(a, i))
			return false;
	return true;
}

static int by_long(const void *a, const void *b)
{
	long x = *(const long *)a, y = *(const long *)b;

	return (x > y) - (x < y);
}

static int by_start(const void *a, const void *b, void *dim)
{
	const struct box *x = *(const struct box *const *)a, *y = *(const struct box *const *)b;
	int d = *(int *)dim;

	return (x->start[d] > y->start[d]) - (x->start[d] < y->start[d]);
}

struct pair { const struct box *a, *b; };

/* In order of their starts along d, each against those that have not ended yet. */
static bool sweep(struct pair *found, const struct box **b, long n, int d)
{
	const struct box **open = xmalloc((size_t)n * sizeof(*open));
	long opened = 0;
	bool hit = false;

	qsort_r(b, (size_t)n, sizeof(*b), by_start, &d);
	for (long i = 0; i < n && !hit; i++) {
		long kept = 0;

		for (long j = 0; j < opened && !hit; j++) {
			if (box_end(open[j], d) <= b[i]->start[d])
				continue;
			hit = overlap(open[j], b[i]);
			if (hit)
				*found = (struct pair){ open[j], b[i] };
			open[kept++] = open[j];
		}
		open[kept++] = b[i];
		opened = kept;
	}
	free(open);
	return hit;
}

struct cut { int dim; long at, below, above; };

/* At the median of the starts, in the dimension that leaves the smaller larger part. */
static struct cut best_cut(const struct box **b, long n)
{
	struct cut best = { .dim = -1 };
	long *starts = xmalloc((size_t)n * sizeof(*starts));

	for (int d = 0; d < b[0]->rank; d++) {
		struct cut c = { .dim = d };

		for (long i = 0; i < n; i++)
			starts[i] = b[i]->start[d];
		qsort(starts, (size_t)n, sizeof(*starts), by_long);
		c.at = starts[n / 2];
		for (long i = 0; i < n; i++) {
			c.below += b[i]->start[d] < c.at;
			c.above += box_end(b[i], d) > c.at;
		}
		long most = c.below > c.above ? c.below : c.above;
		long before = best.below > best.above ? best.below : best.above;
		if (best.dim < 0 || most < before)
			best = c;
	}
	free(starts);
	return best;
}

static int dimension_to_sweep(const struct box **b, long n)
{
	long most = -1;
	int best = 0;

	for (int d = 0; d < b[0]->rank; d++) {
		long changes = 0;

		qsort_r(b, (size_t)n, sizeof(*b), by_start, &d);
		for (long i = 1; i < n; i++)
			changes += b[i]->start[d] != b[i - 1]->start[d];
		if (changes > most) {
			most = changes;
			best = d;
		}
	}
	return best;
}

static bool find_overlap(struct pair *found, const struct box **b, long n)
{
	if (n < 2)
		return false;
	if (b[0]->rank == 0) {
		*found = (struct pair){ b[0], b[1] };
		return true;
	}
	if (n <= FEW)
		return sweep(found, b, n, 0);

	/* A box across the cut lies on both sides; only cuts across few of them pay. */
	struct cut c = best_cut(b, n);
	if (c.below > n - n / 4 || c.above > n - n / 4 || c.below + c.above > n + n / 16)
		return sweep(found, b, n, dimension_to_sweep(b, n));

	const struct box **half = xmalloc((size_t)(c.below + c.above) * sizeof(*half));
	const struct box **low = half, **high = half + c.below;
	for (long i = 0; i < n; i++) {
		if (b[i]->start[c.dim] < c.at)
			*low++ = b[i];
		if (box_end(b[i], c.dim) > c.at)
			*high++ = b[i];
	}
	bool hit = find_overlap(found, half, c.below);
	hit = hit || find_overlap(found, half + c.below, c.above);
	free(half);
	return hit;
}

struct event { long at, change; };

static int by_place(const void *a, const void *b)
{
	return by_long(&((const struct event *)a)->at, &((const struct event *)b)->at);
}

/* Of boxes that do not overlap and leave a hole: its first element, in C order. */
static void find_hole(long *hole, const struct box **b, long n, const long *shape, int rank)
{
	struct event *event = xmalloc((size_t)(2 * n + 1) * sizeof(*event));

	for (int d = 0; d < rank; d++) {
		long slice = 1, covered = 0, events = 0, kept = 0;

		for (int i = d + 1; i < rank; i++)
			slice *= shape[i];
		event[events++] = (struct event){ 0, 0 };
		for (long i = 0; i < n; i++) {
			long area = 1;

			for (int k = d + 1; k < rank; k++)
				area *= b[i]->extent[k];
			event[events++] = (struct event){ b[i]->start[d], area };
			event[events++] = (struct event){ box_end(b[i], d), -area };
		}
		qsort(event, (size_t)events, sizeof(*event), by_place);
		for (long i = 0; i < events; i++) {
			covered += event[i].change;
			hole[d] = event[i].at;
			if ((i + 1 == events || event[i + 1].at > event[i].at) && covered < slice)
				break;
		}
		for (long i = 0; i < n; i++)
			if (b[i]->start[d] <= hole[d] && hole[d] < box_end(b[i], d))
				b[kept++] = b[i];
		n = kept;
	}
	free(event);
}

static int check_boxes(const struct box **used, long *uses, const struct box *b, long n,
		       const long *shape, int rank, const char *what, struct err *e)
{
	char text[160], box[400];

	*uses = 0;
	for (long i = 0; i < n; i++) {
		if (b[i].rank != rank)
			return err_set(e, EX_DATAERR, "%s: box %ld has %d dimensions, wanted %d",
				       what, i, b[i].rank, rank);
		if (!box_inside(&b[i], shape, rank))
			return err_set(e, EX_DATAERR,
				       "%s: box %ld, %s, reaches outside the shape %s", what, i,
				       box_text(box, &b[i]), shape_text(text, shape, rank));
		if (box_volume(&b[i]))
			used[(*uses)++] = &b[i];
	}
	return 0;
}

static int check_tiling(const struct box **used, const struct box *b, long n, const long *shape,
			int rank, const char *what, struct err *e)
{
	struct box whole = box_whole(shape, rank);
	long uses, covered = 0, hole[TENSOR_RANK];
	char one[400], two[400], text[160];
	struct pair p;

	if (check_boxes(used, &uses, b, n, shape, rank, what, e))
		return -1;
	if (find_overlap(&p, used, uses))
		return err_set(e, EX_DATAERR, "%s: boxes %ld and %ld overlap: %s and %s", what,
			       (long)(p.a - b), (long)(p.b - b), box_text(one, p.a),
			       box_text(two, p.b));
	for (long i = 0; i < uses; i++)
		covered += box_volume(used[i]);
	if (covered == box_volume(&whole))
		return 0;
	find_hole(hole, used, uses, shape, rank);
	return err_set(e, EX_DATAERR,
		       "%s: the boxes leave a hole at %s: %ld of %ld elements are there", what,
		       shape_text(text, hole, rank), covered, box_volume(&whole));
}

int box_tiling(const struct box *b, long n, const long *shape, int rank, const char *what,
	       struct err *e)
{
	const struct box **used;
	long volume = 1;
	int status;

	if (rank < 0 || rank > TENSOR_RANK)
		return err_set(e, EX_DATAERR, "%s: %d dimensions, wanted at most %d", what, rank,
			       TENSOR_RANK);
	for (int i = 0; i < rank; i++)
		if (shape[i] < 0 ||
		    __builtin_mul_overflow(volume, shape[i] ? shape[i] : 1, &volume))
			return err_set(e, EX_DATAERR, "%s: a shape of more than 2^63 elements",
				       what);
	used = xmalloc((size_t)(n ? n : 1) * sizeof(*used));
	status = check_tiling(used, b, n, shape, rank, what, e);
	free(used);
	return status;
}
