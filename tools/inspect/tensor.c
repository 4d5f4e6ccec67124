#include "tools/inspect/inspect.h"

#include "formats/checkpoint.h"
#include "libcommon/xalloc.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void open_checkpoint(struct checkpoint *c, const char *dir)
{
	struct err e = ERR_INIT;

	if (checkpoint_open(c, dir, &e))
		die_err(&e);
}

static long volume(const struct checkpoint_tensor *t)
{
	struct box b = box_whole(t->shape, t->rank);

	return box_volume(&b);
}

static long find(const struct checkpoint *c, const char *name, const char *slot)
{
	for (int s = 0; s < SLOT_COUNT; s++)
		if (!strcmp(slot_name((enum slot)s), slot)) {
			long i = checkpoint_find(c, name, (enum slot)s);

			if (i < 0)
				die(EX_DATAERR, "%s: no %s of a tensor %s", c->dir, slot, name);
			return i;
		}
	die(EX_USAGE, "--slot %s: wanted weight, master, exp_avg, exp_avg_sq or momentum", slot);
}

static void put_statistics(struct json_out *o, const float *x, long n)
{
	double low = INFINITY, high = -INFINITY, sum = 0, square = 0;
	long nan = 0, inf = 0, finite = 0;

	for (long i = 0; i < n; i++) {
		double v = (double)x[i];

		nan += isnan(v);
		inf += isinf(v);
		if (!isfinite(v))
			continue;
		finite++;
		low = fmin(low, v);
		high = fmax(high, v);
		sum += v;
		square += v * v;
	}
	json_add_real(o, "min", low);
	json_add_real(o, "max", high);
	json_add_real(o, "mean", sum / (double)finite);
	json_add_real(o, "rms", sqrt(square / (double)finite));
	json_add_int(o, "nan", nan);
	json_add_int(o, "inf", inf);
	json_key(o, "first");
	json_begin(o, '[');
	for (long i = 0; i < n && i < 8; i++)
		json_put_float(o, x[i]);
	json_end(o);
}

static void put_boxes(struct json_out *o, const struct checkpoint *c, long t)
{
	json_key(o, "boxes");
	json_begin(o, '[');
	for (long i = 0; i < checkpoint_boxes(c, t); i++) {
		struct box b;
		const char *file = checkpoint_box(&b, c, t, i);
		char start[160], extent[160];

		json_begin(o, '{');
		json_add_str(o, "file", file);
		json_add_str(o, "start", shape_text(start, b.start, b.rank));
		json_add_str(o, "extent", shape_text(extent, b.extent, b.rank));
		json_end(o);
	}
	json_end(o);
}

void print_tensor(const char *dir, const char *name, const char *slot, bool json)
{
	struct json_out o = { .indent = json ? 0 : 2 };
	struct checkpoint c;
	struct err e = ERR_INIT;
	char shape[160], hex[33];
	float *x;
	long t;

	open_checkpoint(&c, dir);
	t = find(&c, name, slot);
	json_begin(&o, '{');
	json_add_str(&o, "name", name);
	json_add_str(&o, "slot", slot);
	json_add_str(&o, "role", role_name(c.tensor[t].role));
	json_add_str(&o, "dtype", dtype_name(c.tensor[t].dtype));
	json_add_str(&o, "shape", shape_text(shape, c.tensor[t].shape, c.tensor[t].rank));
	json_add_str(&o, "sum", digest_hex(hex, c.sum[t]));
	put_boxes(&o, &c, t);
	if (dtype_is_float(c.tensor[t].dtype)) {
		x = xmalloc((size_t)volume(c.tensor + t) * sizeof(float));
		if (checkpoint_read_f32(x, &c, t, NULL, &e))
			die_err(&e);
		put_statistics(&o, x, volume(c.tensor + t));
		free(x);
	}
	json_end(&o);
	puts(o.s.s);
	json_out_release(&o);
	checkpoint_close(&c);
}

/* -- two checkpoints ------------------------------------------------------------------------------------------------ */

static void put_values(struct checkpoint *a, long i, struct checkpoint *b, long j)
{
	long n = volume(a->tensor + i), differ = 0;
	float *x = xmalloc((size_t)n * sizeof(float)), *y = xmalloc((size_t)n * sizeof(float));
	struct err e = ERR_INIT;
	double most = 0, square = 0;

	if (checkpoint_read_f32(x, a, i, NULL, &e) || checkpoint_read_f32(y, b, j, NULL, &e))
		die_err(&e);
	for (long k = 0; k < n; k++) {
		double d = fabs((double)x[k] - (double)y[k]);

		differ += memcmp(x + k, y + k, sizeof(float)) != 0;
		most = fmax(most, d);
		square += d * d;
	}
	printf("%s (%s): %ld of %ld elements differ, by at most %.9g, rms %.9g\n", a->tensor[i].name, slot_name(a->tensor[i].slot),
	       differ, n, most, sqrt(square / (double)n));
	free(x);
	free(y);
}

/* 1 when this tensor differs; layouts never matter, since sums are over elements. */
static int compare(struct checkpoint *a, long i, struct checkpoint *b)
{
	const struct checkpoint_tensor *t = a->tensor + i;
	long j = checkpoint_find(b, t->name, t->slot);
	char was[160], is[160];

	if (j < 0 || (t->slot == SLOT_MASTER && b->tensor[j].slot != SLOT_MASTER)) {
		printf("%s (%s): only in %s\n", t->name, slot_name(t->slot), a->dir);
		return 1;
	}
	if (t->dtype != b->tensor[j].dtype || !shape_equal(t->shape, t->rank, b->tensor[j].shape, b->tensor[j].rank)) {
		printf("%s (%s): %s %s, and %s %s\n", t->name, slot_name(t->slot), dtype_name(t->dtype), shape_text(was, t->shape, t->rank),
		       dtype_name(b->tensor[j].dtype), shape_text(is, b->tensor[j].shape, b->tensor[j].rank));
		return 1;
	}
	if (digest_equal(a->sum[i], b->sum[j]))
		return 0;
	if (dtype_is_float(t->dtype))
		put_values(a, i, b, j);
	else
		printf("%s (%s): its elements differ\n", t->name, slot_name(t->slot));
	return 1;
}

int diff_checkpoints(const char *one, const char *two)
{
	struct checkpoint a, b;
	long differ = 0;

	open_checkpoint(&a, one);
	open_checkpoint(&b, two);
	for (long i = 0; i < a.n; i++)
		differ += compare(&a, i, &b);
	for (long i = 0; i < b.n; i++)
		if (checkpoint_find(&a, b.tensor[i].name, b.tensor[i].slot) < 0) {
			printf("%s (%s): only in %s\n", b.tensor[i].name, slot_name(b.tensor[i].slot), b.dir);
			differ++;
		}
	printf("%ld of %ld tensors differ\n", differ, a.n > b.n ? a.n : b.n);
	checkpoint_close(&a);
	checkpoint_close(&b);
	return differ != 0;
}
