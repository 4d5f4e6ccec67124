#include "libcommon/box.h"

#include <time.h>

#include "libcommon/rng.h"
#include "tests/lib/tap.h"

static uint32_t turn;

static long draw(long n)
{
	uint32_t w[4];

	philox4x32(w, (uint32_t[4]){ turn++ }, rng_key(11, RNG_TEST, 0));
	return n > 0 ? (long)(w[0] % (uint32_t)n) : 0;
}

/* Cut boxes in two at random places (the ends too, which leaves empty boxes) until there are n. */
static long random_tiling(struct box *b, long n, const long *shape, int rank)
{
	long have = 1;

	b[0] = box_whole(shape, rank);
	while (have < n && rank) {
		struct box *one = &b[draw(have)], *two = &b[have];
		int d = (int)draw(rank);
		long at = draw(one->extent[d] + 1);

		*two = *one;
		one->extent[d] = at;
		two->start[d] += at;
		two->extent[d] -= at;
		have++;
	}
	for (long i = have - 1; i > 0; i--) {
		long j = draw(i + 1);
		struct box t = b[i];

		b[i] = b[j];
		b[j] = t;
	}
	return have;
}

static void random_shape(long *shape, int rank)
{
	for (int i = 0; i < rank; i++)
		shape[i] = 1 + draw(rank > 3 ? 5 : 30);
}

static void tilings(void)
{
	static struct box b[400];
	int tiled = 0, holes = 0, overlaps = 0, twice = 0, wanted = 0, cases = 0;
	struct err e = ERR_INIT;

	for (int t = 0; t < 400; t++) {
		int rank = t % 6;
		long shape[TENSOR_RANK], n;

		random_shape(shape, rank);
		n = random_tiling(b, 1 + draw(399), shape, rank);
		cases++;
		tiled += box_tiling(b, n, shape, rank, "x", &e) == 0;

		long i = draw(n);
		while (box_volume(&b[i]) == 0)
			i = (i + 1) % n;
		struct box gone = b[i];
		char at[160], want[200];

		b[i] = b[n - 1];
		snprintf(want, sizeof(want), "hole at %s:", shape_text(at, gone.start, rank));
		holes += box_tiling(b, n - 1, shape, rank, "x", &e) == -1 && e.code == EX_DATAERR &&
			 strstr(e.msg, want);
		b[n - 1] = gone;
		b[n] = gone;
		twice += n == 400 ||
			 (box_tiling(b, n + 1, shape, rank, "x", &e) == -1 && strstr(e.msg, "overla"
											    "p"));

		/* One element further where there is room: overlap, and never a tiling. */
		for (int d = 0; d < rank; d++)
			if (gone.start[d] + gone.extent[d] < shape[d]) {
				wanted++;
				b[n - 1].extent[d]++;
				overlaps += box_tiling(b, n, shape, rank, "x", &e) == -1 &&
					    strstr(e.msg, "overlap");
				b[n - 1].extent[d]--;
			}
	}
	ok(tiled == cases, "%d random tilings are accepted, empty boxes and all", tiled);
	ok(holes == cases, "without one box its first element is the hole");
	ok(twice == cases, "one box twice is an overlap");
	ok(overlaps == wanted && wanted > 400, "a box one element too long is an overlap, %d times",
	   wanted);
}

static void tiling_corners(void)
{
	struct err e = ERR_INIT;
	struct box b[3] = { { 2, { 0, 0 }, { 2, 3 } }, { 2, { 2, 0 }, { 1, 3 } }, { 0 } };
	long most = 0x7fffffffffffffff;

	ok(box_tiling(b, 2, (long[]){ 3, 3 }, 2, "w", &e) == 0, "two boxes");
	ok(box_tiling(b, 2, (long[]){ 4, 3 }, 2, "w", &e) == -1, "%s", e.msg);
	is_str(e.msg, "w: the boxes leave a hole at [3, 0]: 9 of 12 elements are there",
	       "names what is missing");
	ok(box_tiling(b, 2, (long[]){ 2, 3 }, 2, "w", &e) == -1 && strstr(e.msg, "outside"), "%s",
	   e.msg);
	ok(box_tiling(b, 2, (long[]){ 3, 3, 1 }, 3, "w", &e) == -1 && strstr(e.msg, "dimensions"),
	   "%s", e.msg);
	ok(box_tiling(b, 0, (long[]){ 3, 3 }, 2, "w", &e) == -1 && strstr(e.msg, "[0, 0]"),
	   "no boxes: %s", e.msg);
	ok(box_tiling(b, 0, (long[]){ 3, 0 }, 2, "w", &e) == 0, "no boxes tile nothing");
	ok(box_tiling(b, 1, (long[]){ most, most }, 2, "w", &e) == -1 && e.code == EX_DATAERR, "%s",
	   e.msg);
	ok(box_tiling(&b[2], 1, NULL, 0, "w", &e) == 0, "a scalar");
	ok(box_tiling(&b[2], 0, NULL, 0, "w", &e) == -1, "a scalar without a box");
	b[0].extent[0] = -1;
	ok(box_tiling(b, 2, (long[]){ 3, 3 }, 2, "w", &e) == -1, "a negative extent");
	b[0].extent[0] = most;
	b[0].start[0] = most;
	ok(box_tiling(b, 2, (long[]){ 3, 3 }, 2, "w", &e) == -1, "an end beyond 2^63");
}

/* 100,000 boxes within seconds, also where no cut parts them: half columns above half rows. */
static void many(void)
{
	long n = 100000;
	struct box *b = malloc((size_t)n * sizeof(*b));
	struct err e = ERR_INIT;
	clock_t start = clock();

	for (long i = 0; i < n; i++)
		b[i] = (struct box){ 2, { i / 100 * 7, i % 100 * 3 }, { 7, 3 } };
	ok(box_tiling(b, n, (long[]){ 7000, 300 }, 2, "grid", &e) == 0, "a grid of 100000 boxes");
	b[77777].extent[1]++;
	ok(box_tiling(b, n, (long[]){ 7000, 300 }, 2, "grid", &e) == -1, "%s", e.msg);
	for (long i = 0; i < n; i++)
		b[i] = i < n / 2 ? (struct box){ 2, { 0, i }, { n / 2, 1 } }
				 : (struct box){ 2, { i, 0 }, { 1, n / 2 } };
	ok(box_tiling(b, n, (long[]){ n, n / 2 }, 2, "cross", &e) == 0, "columns over rows");
	for (long i = 0; i < n; i++)
		b[i] = (struct box){ 3, { i % 46, i / 46 % 46, i / 2116 }, { 1, 1, 1 } };
	ok(box_tiling(b, 97336, (long[]){ 46, 46, 46 }, 3, "cube", &e) == 0, "a cube");
	double seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
	ok(seconds < 10, "all of it in %.2f s", seconds);
	free(b);
}

struct seen { long *flat; const unsigned char *data; long bad, n, last; };

static void note(void *arg, long offset, long flat, long n)
{
	struct seen *s = arg;

	s->bad += flat <= s->last || n <= 0;
	s->last = flat + n - 1;
	for (long i = 0; i < n; i++)
		s->bad += s->flat[offset + i] != flat + i;
	s->n += n;
}

/* The flat indices of a box's elements, by counting through the tensor. */
static long list_flat(long *flat, const struct box *b, const long *shape)
{
	long at[TENSOR_RANK] = { 0 }, n = 0, total = 1;

	for (int i = 0; i < b->rank; i++)
		total *= shape[i];
	for (long k = 0; k < total; k++) {
		int in = 1;

		for (int i = 0; i < b->rank; i++)
			in &= at[i] >= b->start[i] && at[i] < b->start[i] + b->extent[i];
		if (in)
			flat[n++] = k;
		for (int i = b->rank - 1; i >= 0 && ++at[i] == shape[i]; i--)
			at[i] = 0;
	}
	return n;
}

static struct box random_box(const struct box *in)
{
	struct box b = *in;

	for (int i = 0; i < b.rank; i++) {
		long first = draw(in->extent[i] + 1), last = draw(in->extent[i] + 1);

		if (draw(3) == 0)
			continue;
		b.start[i] += first < last ? first : last;
		b.extent[i] = labs(last - first);
	}
	return b;
}

static void copies(void)
{
	static long a[30000], b[30000], part_flat[30000];
	int bad_copy = 0, bad_runs = 0, bad_volume = 0;

	for (int t = 0; t < 300; t++) {
		int rank = t % 5;
		long shape[TENSOR_RANK];

		random_shape(shape, rank);
		struct box whole = box_whole(shape, rank), x = random_box(&whole),
			   y = random_box(&whole), part;
		long nx = list_flat(a, &x, shape), volume = box_intersect(&part, &x, &y), ny;

		bad_volume += nx != box_volume(&x) || volume != box_volume(&part);
		ny = list_flat(b, &y, shape);
		if (volume)
			bad_volume += list_flat(part_flat, &part, shape) != volume;
		for (long i = 0; i < ny; i++)
			b[i] = -b[i] - 1;
		box_copy(b, &y, a, &x, &part, sizeof(*a));

		/* Where y's element lies in x it is now its own index, elsewhere as before. */
		long *want = malloc(sizeof(*want) * (size_t)(ny + 1)), copied = 0;
		list_flat(want, &y, shape);
		for (long i = 0, j = 0; i < ny; i++) {
			while (j < nx && a[j] < want[i])
				j++;
			int both = j < nx && a[j] == want[i];
			bad_copy += b[i] != (both ? want[i] : -want[i] - 1);
			copied += both;
		}
		bad_volume += copied != volume;
		free(want);

		struct seen s = { .flat = a, .last = -1 };
		box_runs(&part, &x, shape, note, &s);
		bad_runs += s.bad || s.n != volume;
	}
	ok(!bad_volume, "intersections have the right volume");
	ok(!bad_copy, "box_copy() moves the common part and nothing else");
	ok(!bad_runs, "box_runs() gives flat indices in order");
}

static void count_run(void *arg, long offset, long flat, long n)
{
	(void)offset, (void)flat, (void)n;
	++*(long *)arg;
}

static void ranges(void)
{
	int bad = 0, too_many = 0;
	long runs = 0, shape2[] = { 6, 4 };
	struct box rows = { 2, { 1, 0 }, { 3, 4 } }, out[2 * TENSOR_RANK];

	for (int t = 0; t < 2000; t++) {
		int rank = t % 6;
		long shape[TENSOR_RANK], total = 1, at;

		random_shape(shape, rank);
		for (int i = 0; i < rank; i++)
			total *= shape[i];
		long first = draw(total), n = draw(total - first + 1);
		int k = box_of_range(out, shape, rank, first, n);

		too_many += k > (rank ? 2 * rank - 1 : 1);
		at = first;
		for (int i = 0; i < k; i++) {
			static long flat[30000];
			long m = list_flat(flat, &out[i], shape);

			bad += m == 0 || m > 30000;
			for (long j = 0; j < m; j++)
				bad += flat[j] != at + j;
			at += m;
		}
		bad += at != first + n;
	}
	ok(!bad, "ranges as boxes: each element once, in order");
	ok(!too_many, "at most 2 rank - 1 boxes");
	ok(box_of_range(out, shape2, 2, 5, 14) == 3 && out[0].start[1] == 1 &&
		   out[0].extent[1] == 3 && out[1].extent[0] == 2 && out[2].start[0] == 4 &&
		   out[2].extent[1] == 3,
	   "a matrix: a tail, rows, a head");
	box_runs(&rows, &rows, shape2, count_run, &runs);
	ok(runs == 1, "whole rows are one run");
}

int main(void)
{
	tilings();
	tiling_corners();
	many();
	copies();
	ranges();
	return done();
}
