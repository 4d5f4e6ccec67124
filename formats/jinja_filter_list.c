#include "formats/jinja_filter.h"

#include <stdlib.h>
#include <string.h>

static int by_path(struct jrender *r, const struct jvalue *v, const struct jvalue *path,
		   struct jvalue *out)
{
	size_t from = 0;

	*out = *v;
	if (path->type != V_STR)
		return jinja_getitem(r, v, path, out);
	while (from <= path->n) {
		const char *dot = memchr(path->s + from, '.', path->n - from);
		size_t k = dot ? (size_t)(dot - path->s) - from : path->n - from;
		struct jvalue o = *out, key = jv_sub(path, from, k);
		char *name = jalloc(r, k + 1, 1);

		if (!name)
			return -1;
		memcpy(name, path->s + from, k);
		key.s = name;
		key.tags = NULL;
		if (k && k < 18 && strspn(name, "0123456789") == k)
			key = jv_int(strtol(name, NULL, 10));
		if (jinja_getitem(r, &o, &key, out))
			return -1;
		from += k + 1;
	}
	return 0;
}

/* What sort and the like compare: the attribute, without case. */
static int sort_key(struct jrender *r, const struct jvalue *v, const struct jvalue *attribute,
		    bool cased, struct jvalue *out)
{
	struct jvalue s = *v;

	if (attribute && attribute->type != V_NONE && by_path(r, v, attribute, &s))
		return -1;
	*out = s;
	return s.type == V_STR && !cased ? jtext_case(r, &s, CASE_LOWER, out) : 0;
}

/* All keys that sort(attribute="a,b") names, as a list: equal ones are never asked for order. */
static int sort_keys(struct jrender *r, const struct jvalue *v, const struct jvalue *attribute,
		     bool cased, struct jvalue *out)
{
	struct jvalue parts, comma = jv_lit(","), k;

	if (jv_list(r, out, LIST_LIST))
		return -1;
	if (!attribute || attribute->type != V_STR)
		return sort_key(r, v, attribute, cased, &k) ? -1 : jv_push(r, out, k);
	if (jtext_split(r, attribute, &comma, -1, false, &parts))
		return -1;
	for (long i = 0; i < parts.list->n; i++) {
		if (sort_key(r, v, &parts.list->v[i], cased, &k) || jv_push(r, out, k))
			return -1;
	}
	return 0;
}

int f_default(struct jrender *r, const struct filter *f, const struct jvalue *v,
	      const struct jargs *a, struct jvalue *out)
{
	const struct jvalue *d = jarg(a, 0, "default_value");

	(void)r;
	(void)f;
	*out = *v;
	if (v->type == V_UNDEFINED || (filter_flag(a, 1, "boolean") && !jv_true(v)))
		*out = d ? *d : jv_lit("");
	return 0;
}

int f_length(struct jrender *r, const struct filter *f, const struct jvalue *v,
	     const struct jargs *a, struct jvalue *out)
{
	long n;

	(void)f;
	(void)a;
	if (jv_len(r, v, &n))
		return -1;
	*out = jv_int(n);
	return jstep(r, v->type == V_STR ? (long)v->n / 256 : 0);
}

int f_end(struct jrender *r, const struct filter *f, const struct jvalue *v, const struct jargs *a,
	  struct jvalue *out)
{
	bool last = f->name[0] == 'l';
	struct jvalue l;

	(void)a;
	if (last && v->type == V_LIST && v->list->kind == LIST_GENERATOR)
		return jfail(r, "last: a generator cannot be reversed");
	if (jv_iter(r, v, &l))
		return -1;
	*out = l.list->n ? l.list->v[last ? l.list->n - 1 : 0] :
			   jv_undefined("the sequence was empty");
	return 0;
}

int f_list(struct jrender *r, const struct filter *f, const struct jvalue *v, const struct jargs *a,
	   struct jvalue *out)
{
	struct jvalue l;

	(void)f;
	(void)a;
	if (jv_iter(r, v, &l) || jv_list(r, out, LIST_LIST))
		return -1;
	for (long i = 0; i < l.list->n; i++) {
		if (jv_push(r, out, l.list->v[i]))
			return -1;
	}
	return jstep(r, l.list->n / 16);
}

int f_reverse(struct jrender *r, const struct filter *f, const struct jvalue *v,
	      const struct jargs *a, struct jvalue *out)
{
	struct jvalue l;

	(void)f;
	(void)a;
	if (v->type == V_STR)
		return jtext_reverse(r, v, out);
	if (jv_iter(r, v, &l) ||
	    jv_list(r, out,
		    v->type == V_LIST && v->list->kind == LIST_GENERATOR ? LIST_LIST :
									   LIST_GENERATOR))
		return -1;
	for (long i = l.list->n; i-- > 0;) {
		if (jv_push(r, out, l.list->v[i]))
			return -1;
	}
	return jstep(r, l.list->n / 16);
}

int f_items(struct jrender *r, const struct filter *f, const struct jvalue *v,
	    const struct jargs *a, struct jvalue *out)
{
	struct jmethod m = { .self = *v, .name = "items" };
	struct jvalue method = { .type = V_METHOD };

	(void)f;
	method.method = &m;
	if (v->type == V_UNDEFINED)
		return jv_list(r, out, LIST_GENERATOR);
	if (v->type != V_DICT)
		return jfail(r, "items: found %s, wanted a dict", jv_type(v));
	if (jinja_call(r, &method, a, out))
		return -1;
	out->list->kind = LIST_GENERATOR;
	return 0;
}

/* Stable merge of v[0..n) by key, with room for n. */
static int merge_sort(struct jrender *r, struct jvalue *v, struct jvalue *key, long n, bool reverse,
		      struct jvalue *room)
{
	long half = n / 2, i = 0, j = half, k = 0;
	int c;

	if (n < 2)
		return 0;
	if (merge_sort(r, v, key, half, reverse, room) ||
	    merge_sort(r, v + half, key + half, n - half, reverse, room))
		return -1;
	while (i < half || j < n) {
		bool right = i == half;

		if (i < half && j < n) {
			if (jv_cmp(r, &key[j], &key[i], &c))
				return -1;
			right = c != 2 && (reverse ? c > 0 : c < 0);
		}
		room[k] = v[right ? j : i];
		room[n + k++] = key[right ? j++ : i++];
	}
	memcpy(v, room, (size_t)n * sizeof(*v));
	memcpy(key, room + n, (size_t)n * sizeof(*v));
	return 0;
}

/* A copy of the list, in the order of keys that `key` (a list as long) holds. */
static int sorted(struct jrender *r, const struct jvalue *list, const struct jvalue *key,
		  bool reverse, struct jvalue *out)
{
	long n = list->list->n;
	struct jvalue *room = jalloc(r, 2 * (size_t)n, sizeof(*room));

	if (!room || jv_list(r, out, LIST_LIST))
		return -1;
	for (long i = 0; i < n; i++) {
		if (jv_push(r, out, list->list->v[i]))
			return -1;
	}
	return merge_sort(r, out->list->v, key->list->v, n, reverse, room);
}

int f_sort(struct jrender *r, const struct filter *f, const struct jvalue *v, const struct jargs *a,
	   struct jvalue *out)
{
	const struct jvalue *attribute = jarg(a, 2, "attribute");
	struct jvalue l, key, k;

	(void)f;
	if (jv_iter(r, v, &l) || jv_list(r, &key, LIST_LIST))
		return -1;
	for (long i = 0; i < l.list->n; i++) {
		if (sort_keys(r, &l.list->v[i], attribute, filter_flag(a, 1, "case_sensitive"),
			      &k) ||
		    jv_push(r, &key, k))
			return -1;
	}
	return sorted(r, &l, &key, filter_flag(a, 0, "reverse"), out);
}

int f_dictsort(struct jrender *r, const struct filter *f, const struct jvalue *v,
	       const struct jargs *a, struct jvalue *out)
{
	struct jvalue by = jv_lit("key"), l, key, k;
	struct jargs none = { 0 };

	(void)f;
	filter_text(a, 1, "by", &by);
	if (!jv_is(&by, "key") && !jv_is(&by, "value"))
		return jfail(r, "dictsort: by is key or value");
	if (v->type == V_UNDEFINED)
		return jfail(r, "'%.80s' is undefined", v->s);
	if (f_items(r, f, v, &none, &l) || jv_list(r, &key, LIST_LIST))
		return -1;
	for (long i = 0; i < l.list->n; i++) {
		const struct jvalue *pair = l.list->v[i].list->v;

		if (sort_key(r, &pair[jv_is(&by, "value")], NULL,
			     filter_flag(a, 0, "case_sensitive"), &k) ||
		    jv_push(r, &key, k))
			return -1;
	}
	return sorted(r, &l, &key, filter_flag(a, 2, "reverse"), out);
}

int f_extreme(struct jrender *r, const struct filter *f, const struct jvalue *v,
	      const struct jargs *a, struct jvalue *out)
{
	const struct jvalue *attribute = jarg(a, 1, "attribute");
	bool most = f->name[1] == 'a', cased = filter_flag(a, 0, "case_sensitive");
	struct jvalue l, best, k;
	int c;

	if (jv_iter(r, v, &l))
		return -1;
	*out = jv_undefined("the sequence was empty");
	for (long i = 0; i < l.list->n; i++) {
		if (sort_key(r, &l.list->v[i], attribute, cased, &k) ||
		    (i && jv_cmp(r, &k, &best, &c)))
			return -1;
		if (i && (c == 2 || (most ? c <= 0 : c >= 0)))
			continue;
		best = k;
		*out = l.list->v[i];
	}
	return 0;
}

int f_unique(struct jrender *r, const struct filter *f, const struct jvalue *v,
	     const struct jargs *a, struct jvalue *out)
{
	const struct jvalue *attribute = jarg(a, 1, "attribute");
	struct jvalue l, k, seen;

	(void)f;
	if (jv_iter(r, v, &l) || jv_dict(r, &seen) || jv_list(r, out, LIST_GENERATOR))
		return -1;
	for (long i = 0; i < l.list->n; i++) {
		if (sort_key(r, &l.list->v[i], attribute, filter_flag(a, 0, "case_sensitive"), &k))
			return -1;
		if (jv_find(seen.dict, &k))
			continue;
		if (jv_put(r, seen.dict, k, jv_none()) || jv_push(r, out, l.list->v[i]))
			return -1;
	}
	return 0;
}

int f_attr(struct jrender *r, const struct filter *f, const struct jvalue *v, const struct jargs *a,
	   struct jvalue *out)
{
	struct jvalue name;

	(void)f;
	if (!filter_text(a, 0, "name", &name))
		return jfail(r, "attr: wants a name");
	if (v->type == V_DICT)
		return *out = jv_undefined(name.s), 0;
	return jinja_getitem(r, v, &name, out);
}

/* The arguments after the first `skip`. */
static struct jargs rest_of(const struct jargs *a, long skip)
{
	struct jargs rest = *a;

	skip = skip < a->n ? skip : a->n;
	rest.v += skip;
	rest.n -= skip;
	rest.key = a->key ? a->key + skip : NULL;
	return rest;
}

int f_map(struct jrender *r, const struct filter *f, const struct jvalue *v, const struct jargs *a,
	  struct jvalue *out)
{
	const struct jvalue *attribute = jarg(a, -1, "attribute"), *def = jarg(a, -1, "default"),
			    *name = jarg(a, 0, NULL);
	struct jargs rest = rest_of(a, 1);
	struct jvalue l, x;

	(void)f;
	if (!attribute && (!name || name->type != V_STR))
		return jfail(r, "map: wants the name of a filter, or attribute=");
	/* What is false is empty, iterable or not. */
	if (!jv_true(v))
		return jv_list(r, out, LIST_GENERATOR);
	if (jv_iter(r, v, &l) || jv_list(r, out, LIST_GENERATOR))
		return -1;
	for (long i = 0; i < l.list->n; i++) {
		if (jstep(r, 1))
			return -1;
		if (attribute ? by_path(r, &l.list->v[i], attribute, &x) :
				jinja_filter(r, name->s, &l.list->v[i], &rest, &x))
			return -1;
		if (attribute && def && x.type == V_UNDEFINED)
			x = *def;
		if (jv_push(r, out, x))
			return -1;
	}
	return 0;
}

/* select, reject, selectattr, rejectattr */
int f_select(struct jrender *r, const struct filter *f, const struct jvalue *v,
	     const struct jargs *a, struct jvalue *out)
{
	bool keep = f->name[0] == 's', by = strlen(f->name) > 6;
	const struct jvalue *attribute = by ? jarg(a, 0, NULL) : NULL, *test = jarg(a, by, NULL);
	struct jargs rest = rest_of(a, 1 + by);
	struct jvalue l, x;

	if ((by && !attribute) || (test && test->type != V_STR))
		return jfail(r, "%s: wants %sthe name of a test", f->name,
			     by ? "an attribute and " : "");
	/* What is false is empty, iterable or not. */
	if (!jv_true(v))
		return jv_list(r, out, LIST_GENERATOR);
	if (jv_iter(r, v, &l) || jv_list(r, out, LIST_GENERATOR))
		return -1;
	for (long i = 0; i < l.list->n; i++) {
		bool yes;

		x = l.list->v[i];
		if (jstep(r, 1) || (attribute && by_path(r, &l.list->v[i], attribute, &x)))
			return -1;
		yes = jv_true(&x);
		if (test && jinja_test(r, test->s, &x, &rest, &yes))
			return -1;
		if (yes == keep && jv_push(r, out, l.list->v[i]))
			return -1;
	}
	return 0;
}

int f_join(struct jrender *r, const struct filter *f, const struct jvalue *v, const struct jargs *a,
	   struct jvalue *out)
{
	const struct jvalue *d = jarg(a, 0, "d"), *attribute = jarg(a, 1, "attribute");
	struct jvalue l, sep = jv_lit(""), item;
	struct jbuf b = { 0 };

	(void)f;
	if (jv_iter(r, v, &l) || (d && jv_string(r, d, &sep)))
		return -1;
	for (long i = 0; i < l.list->n; i++) {
		item = l.list->v[i];
		if (jstep(r, 1) || (attribute && by_path(r, &l.list->v[i], attribute, &item)) ||
		    (i && jbuf_addv(r, &b, &sep)) || jv_print(r, &b, &item))
			return jbuf_release(&b), -1;
	}
	return jbuf_value(r, &b, out);
}

int f_sum(struct jrender *r, const struct filter *f, const struct jvalue *v, const struct jargs *a,
	  struct jvalue *out)
{
	const struct jvalue *attribute = jarg(a, 0, "attribute"), *start = jarg(a, 1, "start");
	struct jvalue l, item, total = start ? *start : jv_int(0);

	(void)f;
	if (jv_iter(r, v, &l))
		return -1;
	for (long i = 0; i < l.list->n; i++) {
		item = l.list->v[i];
		if (attribute && attribute->type != V_NONE &&
		    by_path(r, &l.list->v[i], attribute, &item))
			return -1;
		if (item.type == V_STR)
			return jfail(r, "sum: found a string, wanted numbers");
		if (jstep(r, 1) || jv_arith(r, OP_ADD, &total, &item, out))
			return -1;
		total = *out;
	}
	*out = total;
	return 0;
}
