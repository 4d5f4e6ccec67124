#include "tools/inspect/inspect.h"

#include "libcommon/xalloc.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LISTED = 10, FIELDS = 64 };      /* samples that are named; fields that a sample can have */

struct field { char name[48]; long samples; double most; };
struct fields { struct field f[FIELDS]; int n; };

static struct field *field_of_name(struct fields *all, const char *name)
{
	for (int i = 0; i < all->n; i++)
		if (!strcmp(all->f[i].name, name))
			return all->f + i;
	if (all->n == FIELDS)
		bug("more than %d fields in a sample", FIELDS);
	all->f[all->n].most = NAN;
	snprintf(all->f[all->n].name, sizeof(all->f[0].name), "%s", name);
	return all->f + all->n++;
}

/* The largest difference of numbers at the same place; NaN: none was compared. */
static double distance(const struct json *x, const struct json *y)
{
	double most = 0;

	if (json_is(x, JSON_NUMBER) && json_is(y, JSON_NUMBER))
		return fabs(strtod(x->text, NULL) - strtod(y->text, NULL));
	if (json_is(x, JSON_ARRAY) && json_is(y, JSON_ARRAY))
		for (size_t i = 0; i < x->n && i < y->n; i++)
			most = fmax(most, distance(x->item + i, y->item + i));
	return most;
}

static void add_field(struct fields *all, struct str *names, const char *name, const struct json *x, const struct json *y)
{
	struct field *f;

	if (x && y && json_equal(x, y))
		return;
	f = field_of_name(all, name);
	f->samples++;
	if (x && y)
		f->most = fmax(f->most, distance(x, y));
	str_printf(names, "%s%s", names->len ? ", " : "", name);
}

static void parse(struct json_doc *d, const struct samples *s, long i)
{
	struct str line = { 0 };
	struct err e = ERR_INIT;

	samples_put_jsonl(&line, s, i);
	if (json_parse(d, line.s, line.len, "sample", 1, &e))
		die_err(&e);
	str_release(&line);
}

/* Numbers are compared as the shortest decimals that read back as the same bits. */
static bool compare_sample(struct fields *all, struct str *names, const struct samples *a, long i, const struct samples *b, long j)
{
	struct json_doc x, y;

	str_cut(names, 0);
	parse(&x, a, i);
	parse(&y, b, j);
	for (size_t k = 0; k < x.root.n; k++)
		add_field(all, names, x.root.member[k].key, &x.root.member[k].value, json_get(&y.root, x.root.member[k].key));
	for (size_t k = 0; k < y.root.n; k++)
		if (!json_get(&x.root, y.root.member[k].key))
			add_field(all, names, y.root.member[k].key, NULL, &y.root.member[k].value);
	json_release(&x);
	json_release(&y);
	return names->len;
}

static int by_identity(const struct sample *x, const struct sample *y)
{
	long p[3] = { x->prompt_id, x->visit, x->sample_index }, q[3] = { y->prompt_id, y->visit, y->sample_index };

	for (int k = 0; k < 3; k++)
		if (p[k] != q[k])
			return p[k] < q[k] ? -1 : 1;
	return 0;
}

static int by_pointer(const void *a, const void *b)
{
	return by_identity(*(const struct sample *const *)a, *(const struct sample *const *)b);
}

static struct sample **sorted(const struct samples *s)
{
	struct sample **p = xmalloc(((size_t)s->n + 1) * sizeof(*p));

	for (long i = 0; i < s->n; i++)
		p[i] = s->s + i;
	qsort(p, (size_t)s->n, sizeof(*p), by_pointer);
	return p;
}

static void print_pair(const struct sample *s, const char *key, const char *what, bool json)
{
	struct json_out o = { 0 };

	json_begin(&o, '{');
	json_add_int(&o, "prompt_id", s->prompt_id);
	json_add_int(&o, "visit", s->visit);
	json_add_int(&o, "sample_index", s->sample_index);
	json_add_str(&o, key, what);
	json_end(&o);
	print_facts(&o, json);
	if (!json)
		putchar('\n');
}

static void print_end(const struct fields *all, long differ, long same, bool json)
{
	struct json_out o = { 0 };

	json_begin(&o, '{');
	json_add_int(&o, "samples_differ", differ);
	json_add_int(&o, "samples_equal", same);
	json_key(&o, "fields");
	json_begin(&o, '{');
	for (int k = 0; k < all->n; k++) {
		json_key(&o, all->f[k].name);
		json_begin(&o, '{');
		json_add_int(&o, "samples", all->f[k].samples);
		json_add_real(&o, "max", all->f[k].most);
		json_end(&o);
	}
	json_end(&o);
	json_end(&o);
	print_facts(&o, json);
}

int diff_samples(const char *one, const char *two, bool json)
{
	struct samples a = { 0 }, b = { 0 };
	struct fields all = { 0 };
	struct str names = { 0 };
	struct err e = ERR_INIT;
	struct sample **p, **q;
	long differ = 0, same = 0, i = 0, j = 0;

	if (samples_read_any(&a, one, &e) || samples_read_any(&b, two, &e))
		die_err(&e);
	p = sorted(&a);
	q = sorted(&b);
	while (i < a.n || j < b.n) {
		int side = i == a.n ? 1 : j == b.n ? -1 : by_identity(p[i], q[j]);

		if (!side && !compare_sample(&all, &names, &a, p[i] - a.s, &b, q[j] - b.s))
			same++;
		else if (differ++ < LISTED)
			print_pair(side > 0 ? q[j] : p[i], side ? "only_in" : "differs_in",
				   side ? (side < 0 ? one : two) : names.s, json);
		i += side <= 0;
		j += side >= 0;
	}
	print_end(&all, differ, same, json);
	free(p);
	free(q);
	str_release(&names);
	samples_release(&a);
	samples_release(&b);
	return differ != 0;
}
