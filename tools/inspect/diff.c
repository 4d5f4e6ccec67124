#include "tools/inspect/inspect.h"
#include "tools/inspect/values.h"

#include "libcommon/xalloc.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Two tensors of one type and shape, element by element. */
struct difference {
	long n, differ, first;          /* elements; of them different; the first of those, -1: none */
	long unlike;                    /* of the different ones, those where a NaN or infinity stands on one side */
	double most, square, scale;     /* max and sum of squares of the differences, sum of squares of the first tensor */
};

static void add_pair(struct difference *d, double x, double y)
{
	double by = x - y;

	if (!isfinite(by)) {
		d->unlike++;
		return;
	}
	d->most = fmax(d->most, fabs(by));
	d->square += by * by;
}

static void compare_values(struct difference *d, struct checkpoint *a, long i, struct checkpoint *b, long j)
{
	enum dtype t = a->tensor[i].dtype;
	size_t size = dtype_size(t);
	char *x, *y;

	*d = (struct difference){ .n = tensor_volume(a->tensor + i), .first = -1 };
	x = xmalloc((size_t)(d->n < PIECE ? d->n : PIECE) * size + 1);
	y = xmalloc((size_t)(d->n < PIECE ? d->n : PIECE) * size + 1);
	for (long from = 0; from < d->n; from += PIECE) {
		long m = d->n - from < PIECE ? d->n - from : PIECE;

		read_elements(x, a, i, from, m);
		read_elements(y, b, j, from, m);
		for (long k = 0; k < m; k++) {
			double v = element_value(x, t, k);

			if (isfinite(v))
				d->scale += v * v;
			if (!memcmp(x + (size_t)k * size, y + (size_t)k * size, size))
				continue;
			if (!d->differ++)
				d->first = from + k;
			add_pair(d, v, element_value(y, t, k));
		}
	}
	free(x);
	free(y);
}

static void put_values(struct json_out *o, struct checkpoint *a, long i, struct checkpoint *b, long j)
{
	struct difference d;

	compare_values(&d, a, i, b, j);
	json_add_int(o, "elements", d.n);
	json_add_int(o, "differ", d.differ);
	json_add_int(o, "first", d.first);
	json_add_real(o, "max", d.most);
	json_add_real(o, "rms", sqrt(d.square / (double)d.n));
	json_add_real(o, "relative", sqrt(d.square / d.scale));
	json_add_int(o, "not_finite", d.unlike);
}

static void print_one(struct json_out *o, bool json)
{
	json_end(o);
	if (!json)
		putchar('\n');
	print_facts(o, json);
}

static void begin(struct json_out *o, const struct checkpoint_tensor *t)
{
	json_begin(o, '{');
	json_add_str(o, "tensor", t->name);
	json_add_str(o, "slot", slot_name(t->slot));
}

static void put_kind(struct json_out *o, const char *key, const struct checkpoint_tensor *t)
{
	char *text, shape[160];

	text = xasprintf("%s %s", dtype_name(t->dtype), shape_text(shape, t->shape, t->rank));
	json_add_str(o, key, text);
	free(text);
}

/* The slot itself: where the weight is float32, it would also stand for the master. */
static long find_exact(const struct checkpoint *c, const struct checkpoint_tensor *t)
{
	long j = checkpoint_find(c, t->name, t->slot);

	return j >= 0 && c->tensor[j].slot == t->slot ? j : -1;
}

static void print_only(const struct checkpoint *c, long i, bool json)
{
	struct json_out o = { 0 };

	begin(&o, c->tensor + i);
	json_add_str(&o, "only_in", c->dir);
	print_one(&o, json);
}

/* 1 when this tensor differs; layouts never matter, since sums are over elements. */
static int compare_tensor(struct checkpoint *a, long i, struct checkpoint *b, bool json)
{
	const struct checkpoint_tensor *t = a->tensor + i, *u;
	struct json_out o = { 0 };
	long j = find_exact(b, t);

	if (j < 0) {
		print_only(a, i, json);
		return 1;
	}
	u = b->tensor + j;
	if (t->dtype == u->dtype && t->role == u->role && shape_equal(t->shape, t->rank, u->shape, u->rank) &&
	    digest_equal(a->sum[i], b->sum[j]))
		return 0;
	begin(&o, t);
	if (t->role != u->role) {
		json_add_str(&o, "first_role", role_name(t->role));
		json_add_str(&o, "second_role", role_name(u->role));
	}
	if (t->dtype != u->dtype || !shape_equal(t->shape, t->rank, u->shape, u->rank)) {
		put_kind(&o, "first_is", t);
		put_kind(&o, "second_is", u);
	} else {
		put_values(&o, a, i, b, j);
	}
	print_one(&o, json);
	return 1;
}

static const struct manifest_file *find_side(const struct checkpoint *c, const char *name)
{
	for (long i = 0; i < c->sides; i++)
		if (!strcmp(c->side[i].name, name))
			return c->side + i;
	return NULL;
}

/* The files of hf/ that one of them lacks or has otherwise; those of both are listed from the first. */
static long put_sides(struct json_out *o, const struct checkpoint *a, const struct checkpoint *b, bool common_too)
{
	long differ = 0;

	for (long i = 0; i < a->sides; i++) {
		const struct manifest_file *f = a->side + i, *g = find_side(b, f->name);

		if (strncmp(f->name, "hf/", 3) || (g && (!common_too || digest_equal(f->hash, g->hash))))
			continue;
		json_put_str(o, f->name);
		differ++;
	}
	return differ;
}

/* What is not in the tensors but makes another model: its config and its tokenizer. */
static long put_files(struct json_out *o, const struct checkpoint *a, const struct checkpoint *b)
{
	long differ = put_sides(o, a, b, true) + put_sides(o, b, a, false);

	if (a->has_tokenizer != b->has_tokenizer ||
	    (a->has_tokenizer && !digest_equal(a->tokenizer_digest, b->tokenizer_digest))) {
		json_put_str(o, "tokenizer.h5");
		differ++;
	}
	return differ;
}

int diff_checkpoints(const char *one, const char *two, bool json)
{
	struct checkpoint a, b;
	struct json_out o = { 0 };
	struct err e = ERR_INIT;
	long differ = 0, same = 0, files;

	if (checkpoint_open(&a, one, &e) || checkpoint_open(&b, two, &e))
		die_err(&e);
	for (long i = 0; i < a.n; i++) {
		int d = compare_tensor(&a, i, &b, json);

		differ += d;
		same += !d;
	}
	for (long i = 0; i < b.n; i++)
		if (find_exact(&a, b.tensor + i) < 0) {
			print_only(&b, i, json);
			differ++;
		}
	json_begin(&o, '{');
	json_add_int(&o, "tensors_differ", differ);
	json_add_int(&o, "tensors_equal", same);
	json_key(&o, "files_differ");
	json_begin(&o, '[');
	files = put_files(&o, &a, &b);
	json_end(&o);
	json_add_int(&o, "first_step", a.counters.step);
	json_add_int(&o, "second_step", b.counters.step);
	print_one(&o, json);
	checkpoint_close(&a);
	checkpoint_close(&b);
	return differ || files;
}
