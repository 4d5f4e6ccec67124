#include "tools/inspect/inspect.h"
#include "tools/inspect/values.h"

#include "libcommon/xalloc.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST = 8, BOXES = 64 };         /* values and boxes that are listed */

static long find(const struct checkpoint *c, const char *name, const char *slot)
{
	long i = -1;
	int s = 0;

	while (s < SLOT_COUNT && strcmp(slot_name((enum slot)s), slot))
		s++;
	if (s == SLOT_COUNT)
		die(EX_USAGE, "--slot: found %s, wanted weight, master, exp_avg, exp_avg_sq or momentum", slot);
	if (checkpoint_find(c, name, SLOT_WEIGHT) < 0) {
		const char **names = xcalloc((size_t)c->n + 1, sizeof(*names)), *near;

		for (long k = 0, n = 0; k < c->n; k++)
			if (c->tensor[k].slot == SLOT_WEIGHT)
				names[n++] = c->tensor[k].name;
		near = nearest(name, names);
		die(EX_DATAERR, "%s: found no tensor %s%s%s", c->dir, name, near ? "; the nearest is " : "", near ? near : "");
	}
	i = checkpoint_find(c, name, (enum slot)s);
	if (i < 0)
		die(EX_DATAERR, "%s: %s: found no slot %s", c->dir, name, slot);
	return i;
}

struct statistics { double low, high, sum, square; long finite, nan, inf; };

static void add_element(struct statistics *s, double v)
{
	s->nan += isnan(v);
	s->inf += isinf(v) != 0;
	if (!isfinite(v))
		return;
	s->low = s->finite ? fmin(s->low, v) : v;
	s->high = s->finite ? fmax(s->high, v) : v;
	s->sum += v;
	s->square += v * v;
	s->finite++;
}

static void put_first(struct json_out *o, const void *p, enum dtype t, long n)
{
	char buf[32];

	json_key(o, "first");
	json_begin(o, '[');
	for (long i = 0; i < n && i < FIRST; i++) {
		const char *text = element_text(buf, p, t, i);
		struct json v = { .type = JSON_NUMBER, .text = text, .n = strlen(text) };

		/* What JSON has no number for is a word. */
		if (strchr("0123456789", text[strlen(text) - 1]))
			json_put(o, &v);
		else
			json_put_str(o, text);
	}
	json_end(o);
}

static void put_statistics(struct json_out *o, struct checkpoint *c, long t)
{
	enum dtype type = c->tensor[t].dtype;
	long n = tensor_volume(c->tensor + t);
	char *piece = xmalloc((size_t)(n < PIECE ? n : PIECE) * dtype_size(type) + 1);
	struct statistics s = { 0 };

	for (long from = 0; from < n; from += PIECE) {
		long m = n - from < PIECE ? n - from : PIECE;

		read_elements(piece, c, t, from, m);
		for (long i = 0; i < m; i++)
			add_element(&s, element_value(piece, type, i));
		if (!from)
			put_first(o, piece, type, m);
	}
	json_add_real(o, "min", s.finite ? s.low : NAN);
	json_add_real(o, "max", s.finite ? s.high : NAN);
	json_add_real(o, "mean", s.sum / (double)s.finite);
	json_add_real(o, "rms", sqrt(s.square / (double)s.finite));
	json_add_int(o, "nan", s.nan);
	json_add_int(o, "inf", s.inf);
	free(piece);
}

static void put_extents(struct json_out *o, const char *key, const long *v, int n)
{
	json_key(o, key);
	json_begin(o, '[');
	for (int i = 0; i < n; i++)
		json_put_int(o, v[i]);
	json_end(o);
}

static void put_boxes(struct json_out *o, const struct checkpoint *c, long t)
{
	long n = checkpoint_boxes(c, t);

	json_add_int(o, "number_of_boxes", n);
	json_key(o, "boxes");
	json_begin(o, '[');
	for (long i = 0; i < n && i < BOXES; i++) {
		struct box b;
		const char *file = checkpoint_box(&b, c, t, i);

		json_begin(o, '{');
		json_add_str(o, "file", file);
		put_extents(o, "start", b.start, b.rank);
		put_extents(o, "extent", b.extent, b.rank);
		json_end(o);
	}
	json_end(o);
}

void print_tensor(const char *dir, const char *name, const char *slot, bool json)
{
	struct json_out o = { 0 };
	struct checkpoint c;
	struct err e = ERR_INIT;
	char hex[33];
	long t;

	if (checkpoint_open(&c, dir, &e))
		die_err(&e);
	t = find(&c, name, slot);
	json_begin(&o, '{');
	json_add_str(&o, "name", name);
	json_add_str(&o, "slot", slot_name(c.tensor[t].slot));
	json_add_str(&o, "role", role_name(c.tensor[t].role));
	json_add_str(&o, "dtype", dtype_name(c.tensor[t].dtype));
	put_extents(&o, "shape", c.tensor[t].shape, c.tensor[t].rank);
	json_add_int(&o, "elements", tensor_volume(c.tensor + t));
	json_add_str(&o, "sum", digest_hex(hex, c.sum[t]));
	put_boxes(&o, &c, t);
	put_statistics(&o, &c, t);
	json_end(&o);
	print_facts(&o, json);
	checkpoint_close(&c);
}
