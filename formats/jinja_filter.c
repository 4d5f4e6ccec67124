#include "formats/jinja.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct filter {
	const char *name;
	int (*call)(struct jrender *, const struct filter *, const struct jvalue *, const struct jargs *, struct jvalue *);
	int most;               /* arguments */
};

static bool flag(const struct jargs *a, long i, const char *key)
{
	const struct jvalue *v = jarg(a, i, key);

	return v && jv_true(v);
}

/* The argument's text; false where there is none. */
static bool text_arg(const struct jargs *a, long i, const char *key, struct jvalue *out)
{
	const struct jvalue *v = jarg(a, i, key);

	if (!v || v->type != V_STR)
		return false;
	*out = *v;
	return true;
}

/* -- attributes by path: "a.b.0" ------------------------------------------------------------------- */

static int by_path(struct jrender *r, const struct jvalue *v, const struct jvalue *path, struct jvalue *out)
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
static int sort_key(struct jrender *r, const struct jvalue *v, const struct jvalue *attribute, bool cased, struct jvalue *out)
{
	struct jvalue s = *v;

	if (attribute && attribute->type != V_NONE && by_path(r, v, attribute, &s))
		return -1;
	*out = s;
	return s.type == V_STR && !cased ? jtext_case(r, &s, CASE_LOWER, out) : 0;
}

/* -- strings --------------------------------------------------------------------------------------- */

static int f_case(struct jrender *r, const struct filter *f, const struct jvalue *v, const struct jargs *a, struct jvalue *out)
{
	enum jcase how = f->name[0] == 'u' ? CASE_UPPER : f->name[0] == 'l' ? CASE_LOWER :
		f->name[0] == 't' ? CASE_FILTER_TITLE : CASE_CAPITALIZE;
	struct jvalue s;

	(void)a;
	return jv_string(r, v, &s) ? -1 : jtext_case(r, &s, how, out);
}

static int f_trim(struct jrender *r, const struct filter *f, const struct jvalue *v, const struct jargs *a, struct jvalue *out)
{
	struct jvalue s, chars;
	bool given = text_arg(a, 0, "chars", &chars);

	(void)f;
	if (jv_string(r, v, &s))
		return -1;
	*out = jtext_strip(&s, given ? &chars : NULL, true, true);
	return 0;
}

static int f_string(struct jrender *r, const struct filter *f, const struct jvalue *v, const struct jargs *a, struct jvalue *out)
{
	struct jvalue s;

	(void)a;
	if (jv_string(r, v, &s))
		return -1;
	if (f->name[0] == 'e')
		return jtext_escape(r, &s, out);
	*out = s;
	out->markup |= !strcmp(f->name, "safe");
	return 0;
}

static int f_replace(struct jrender *r, const struct filter *f, const struct jvalue *v, const struct jargs *a, struct jvalue *out)
{
	const struct jvalue *from = jarg(a, 0, "old"), *to = jarg(a, 1, "new"), *count = jarg(a, 2, "count");
	struct jvalue s, x, y;
	long n = -1;

	(void)f;
	if (!from || !to)
		return jfail(r, "replace: wants two arguments");
	if (count && count->type != V_NONE && jarg_int(r, a, 2, "count", -1, &n))
		return -1;
	if (jv_string(r, v, &s) || jv_string(r, from, &x) || jv_string(r, to, &y) || jtext_replace(r, &s, &x, &y, n, out))
		return -1;
	out->markup = false;
	return 0;
}

static int f_indent(struct jrender *r, const struct filter *f, const struct jvalue *v, const struct jargs *a, struct jvalue *out)
{
	struct jvalue width;
	struct jbuf b = { 0 };
	long n;

	(void)f;
	if (v->type != V_STR)
		return jfail(r, "indent: found %s, wanted a string", jv_type(v));
	if (!text_arg(a, 0, "width", &width)) {
		if (jarg_int(r, a, 0, "width", 4, &n))
			return -1;
		for (; n > 0; n--) {
			if (jbuf_puts(r, &b, " "))
				return jbuf_release(&b), -1;
		}
		if (jbuf_value(r, &b, &width))
			return -1;
	}
	return jtext_indent(r, v, &width, flag(a, 1, "first"), flag(a, 2, "blank"), out);
}

static int f_join(struct jrender *r, const struct filter *f, const struct jvalue *v, const struct jargs *a, struct jvalue *out)
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

static int f_wordcount(struct jrender *r, const struct filter *f, const struct jvalue *v, const struct jargs *a, struct jvalue *out)
{
	struct jvalue s;
	bool in = false;
	long n = 0;
	int32_t c;

	(void)f;
	(void)a;
	if (jv_string(r, v, &s))
		return -1;
	for (size_t i = 0; i < s.n; i += jinja_utf8_get(s.s + i, s.n - i, &c)) {
		bool word;

		jinja_utf8_get(s.s + i, s.n - i, &c);
		word = c == '_' || jtext_class(c, "alnum");
		n += word && !in;
		in = word;
	}
	*out = jv_int(n);
	return 0;
}

static int f_format(struct jrender *r, const struct filter *f, const struct jvalue *v, const struct jargs *a, struct jvalue *out)
{
	struct jvalue s, args;

	(void)f;
	if (jv_string(r, v, &s) || jv_list(r, &args, LIST_TUPLE))
		return -1;
	for (long i = 0; i < a->n; i++) {
		if (a->key && a->key[i])
			return jfail(r, "format: arguments by keyword are not supported");
		if (jv_push(r, &args, a->v[i]))
			return -1;
	}
	return jtext_format(r, &s, &args, out);
}

static int f_tojson(struct jrender *r, const struct filter *f, const struct jvalue *v, const struct jargs *a, struct jvalue *out)
{
	const struct jvalue *indent = jarg(a, 1, "indent"), *sep = jarg(a, 2, "separators");
	struct jvalue zero = jv_int(0), one = jv_int(1);
	struct jbuf b = { 0 };

	(void)f;
	if (sep && sep->type == V_NONE)
		sep = NULL;
	if (sep && (sep->type != V_LIST || sep->list->n != 2 || sep->list->v[0].type != V_STR || sep->list->v[1].type != V_STR))
		return jfail(r, "tojson: separators: wanted two strings");
	if (indent && indent->type == V_BOOL)
		indent = indent->b ? &one : &zero;
	if (indent && indent->type != V_INT && indent->type != V_STR && indent->type != V_NONE)
		return jfail(r, "tojson: indent: found %s, wanted an integer", jv_type(indent));
	if (jv_json(r, &b, v, indent, flag(a, 0, "ensure_ascii"), flag(a, 3, "sort_keys"), sep, 0))
		return jbuf_release(&b), -1;
	return jbuf_value(r, &b, out);
}

/* -- numbers --------------------------------------------------------------------------------------- */

/* float(text) of Python. */
static bool parse_real(const struct jvalue *s, double *out)
{
	struct jvalue t = jtext_strip(s, NULL, true, true);
	char buf[400], *end;
	size_t k = 0;

	if (!t.n || t.n >= sizeof(buf))
		return false;
	for (size_t i = 0; i < t.n; i++) {
		if (t.s[i] == '_' && i && i + 1 < t.n && t.s[i - 1] >= '0' && t.s[i - 1] <= '9' && t.s[i + 1] >= '0' && t.s[i + 1] <= '9')
			continue;
		if (!t.s[i] || !strchr("0123456789+-.eEinfatyINFATY", t.s[i]))
			return false;
		buf[k++] = t.s[i];
	}
	buf[k] = 0;
	*out = strtod(buf, &end);
	return !*end;
}

static bool parse_int(const struct jvalue *s, long base, long *out)
{
	struct jvalue t = jtext_strip(s, NULL, true, true);
	char buf[80], *end;
	size_t k = 0;

	if (!t.n || t.n >= sizeof(buf) || base < 0 || base == 1 || base > 36)
		return false;
	for (size_t i = 0; i < t.n; i++) {
		if (t.s[i] == '_' && i && i + 1 < t.n)
			continue;
		buf[k++] = t.s[i];
	}
	buf[k] = 0;
	errno = 0;
	*out = strtol(buf, &end, (int)base);
	return !*end && k == strlen(buf) && !errno && buf[0] != ' ';
}

/* The integer that a double above 2^63 is. */
static int big_int(struct jrender *r, double d, struct jvalue *out)
{
	char *s = jalloc(r, 320, 1);

	if (!s)
		return -1;
	*out = jv_str(s, (size_t)snprintf(s, 320, "%.0f", d), TAG_TEMPLATE);
	out->type = V_BIG;
	return 0;
}

static int f_number(struct jrender *r, const struct filter *f, const struct jvalue *v, const struct jargs *a, struct jvalue *out)
{
	bool whole = f->name[0] == 'i';
	const struct jvalue *def = jarg(a, 0, "default");
	long base, i;
	double d;

	*out = def ? *def : whole ? jv_int(0) : jv_float(0);
	if (v->type == V_UNDEFINED)
		return jfail(r, "'%.80s' is undefined", v->s);
	if (whole && jarg_int(r, a, 1, "base", 10, &base))
		return -1;
	if (v->type == V_BIG)
		return *out = whole ? *v : jv_float(strtod(v->s, NULL)), 0;
	if (v->type == V_STR && whole && parse_int(v, base, &i))
		return *out = jv_int(i), 0;
	if (v->type == V_STR ? !parse_real(v, &d) : !jv_number(v))
		return 0;
	if (v->type != V_STR)
		d = jv_real(v);
	if (!whole)
		*out = jv_float(d);
	else if (v->type == V_INT || v->type == V_BOOL)
		*out = jv_int(v->type == V_BOOL ? v->b : v->i);
	else if (fabs(d) < 9.2e18)
		*out = jv_int((long)d);
	else if (isfinite(d))
		return big_int(r, d, out);
	return 0;
}

static int f_abs(struct jrender *r, const struct filter *f, const struct jvalue *v, const struct jargs *a, struct jvalue *out)
{
	(void)f;
	(void)a;
	if (!jv_number(v))
		return jfail(r, "abs: found %s, wanted a number", jv_type(v));
	if (v->type == V_FLOAT)
		return *out = jv_float(fabs(v->f)), 0;
	*out = jv_int(v->type == V_BOOL ? v->b : v->i);
	if (out->i < 0 && __builtin_sub_overflow(0L, out->i, &out->i))
		return jfail(r, "an integer is out of range");
	return 0;
}

static int f_round(struct jrender *r, const struct filter *f, const struct jvalue *v, const struct jargs *a, struct jvalue *out)
{
	struct jvalue method = jv_lit("common");
	char buf[400];
	double scale, d;
	long digits;

	(void)f;
	if (!jv_number(v) || jarg_int(r, a, 0, "precision", 0, &digits))
		return jfail(r, "round: found %s, wanted a number", jv_type(v));
	text_arg(a, 1, "method", &method);
	d = jv_real(v);
	if (digits < -18 || digits > 60)
		return jfail(r, "round: a precision of %ld, wanted -18 to 60", digits);
	scale = pow(10, (double)digits);
	if (jv_is(&method, "ceil") || jv_is(&method, "floor"))
		return *out = jv_float((jv_is(&method, "ceil") ? ceil(d * scale) : floor(d * scale)) / scale), 0;
	if (!jv_is(&method, "common"))
		return jfail(r, "round: the method is common, ceil or floor");
	if (v->type != V_FLOAT && digits >= 0)
		return *out = jv_int(v->type == V_BOOL ? v->b : v->i), 0;
	if (digits >= 0 && isfinite(d)) {
		snprintf(buf, sizeof(buf), "%.*f", (int)digits, d);
		d = strtod(buf, NULL);
	} else if (isfinite(d)) {
		d = nearbyint(d * scale) / scale;
	}
	*out = v->type == V_FLOAT ? jv_float(d) : jv_int((long)d);
	return 0;
}

static int f_sum(struct jrender *r, const struct filter *f, const struct jvalue *v, const struct jargs *a, struct jvalue *out)
{
	const struct jvalue *attribute = jarg(a, 0, "attribute"), *start = jarg(a, 1, "start");
	struct jvalue l, item, total = start ? *start : jv_int(0);

	(void)f;
	if (jv_iter(r, v, &l))
		return -1;
	for (long i = 0; i < l.list->n; i++) {
		item = l.list->v[i];
		if (attribute && attribute->type != V_NONE && by_path(r, &l.list->v[i], attribute, &item))
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

/* -- sequences ------------------------------------------------------------------------------------- */

static int f_default(struct jrender *r, const struct filter *f, const struct jvalue *v, const struct jargs *a, struct jvalue *out)
{
	const struct jvalue *d = jarg(a, 0, "default_value");

	(void)r;
	(void)f;
	*out = *v;
	if (v->type == V_UNDEFINED || (flag(a, 1, "boolean") && !jv_true(v)))
		*out = d ? *d : jv_lit("");
	return 0;
}

static int f_length(struct jrender *r, const struct filter *f, const struct jvalue *v, const struct jargs *a, struct jvalue *out)
{
	long n;

	(void)f;
	(void)a;
	if (jv_len(r, v, &n))
		return -1;
	*out = jv_int(n);
	return jstep(r, v->type == V_STR ? (long)v->n / 256 : 0);
}

static int f_end(struct jrender *r, const struct filter *f, const struct jvalue *v, const struct jargs *a, struct jvalue *out)
{
	bool last = f->name[0] == 'l';
	struct jvalue l;

	(void)a;
	if (last && v->type == V_LIST && v->list->kind == LIST_GENERATOR)
		return jfail(r, "last: a generator cannot be reversed");
	if (jv_iter(r, v, &l))
		return -1;
	*out = l.list->n ? l.list->v[last ? l.list->n - 1 : 0] : jv_undefined("the sequence was empty");
	return 0;
}

static int f_list(struct jrender *r, const struct filter *f, const struct jvalue *v, const struct jargs *a, struct jvalue *out)
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

static int f_reverse(struct jrender *r, const struct filter *f, const struct jvalue *v, const struct jargs *a, struct jvalue *out)
{
	struct jvalue l;

	(void)f;
	(void)a;
	if (v->type == V_STR)
		return jtext_reverse(r, v, out);
	if (jv_iter(r, v, &l) || jv_list(r, out, v->type == V_LIST && v->list->kind == LIST_GENERATOR ? LIST_LIST : LIST_GENERATOR))
		return -1;
	for (long i = l.list->n; i-- > 0;) {
		if (jv_push(r, out, l.list->v[i]))
			return -1;
	}
	return jstep(r, l.list->n / 16);
}

static int f_items(struct jrender *r, const struct filter *f, const struct jvalue *v, const struct jargs *a, struct jvalue *out)
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
static int merge_sort(struct jrender *r, struct jvalue *v, struct jvalue *key, long n, bool reverse, struct jvalue *room)
{
	long half = n / 2, i = 0, j = half, k = 0;
	int c;

	if (n < 2)
		return 0;
	if (merge_sort(r, v, key, half, reverse, room) || merge_sort(r, v + half, key + half, n - half, reverse, room))
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
static int sorted(struct jrender *r, const struct jvalue *list, const struct jvalue *key, bool reverse, struct jvalue *out)
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

static int f_sort(struct jrender *r, const struct filter *f, const struct jvalue *v, const struct jargs *a, struct jvalue *out)
{
	const struct jvalue *attribute = jarg(a, 2, "attribute");
	struct jvalue l, key, k;

	(void)f;
	if (jv_iter(r, v, &l) || jv_list(r, &key, LIST_LIST))
		return -1;
	for (long i = 0; i < l.list->n; i++) {
		if (sort_key(r, &l.list->v[i], attribute, flag(a, 1, "case_sensitive"), &k) || jv_push(r, &key, k))
			return -1;
	}
	return sorted(r, &l, &key, flag(a, 0, "reverse"), out);
}

static int f_dictsort(struct jrender *r, const struct filter *f, const struct jvalue *v, const struct jargs *a, struct jvalue *out)
{
	struct jvalue by = jv_lit("key"), l, key, k;
	struct jargs none = { 0 };

	(void)f;
	text_arg(a, 1, "by", &by);
	if (!jv_is(&by, "key") && !jv_is(&by, "value"))
		return jfail(r, "dictsort: by is key or value");
	if (f_items(r, f, v, &none, &l) || jv_list(r, &key, LIST_LIST))
		return -1;
	for (long i = 0; i < l.list->n; i++) {
		const struct jvalue *pair = l.list->v[i].list->v;

		if (sort_key(r, &pair[jv_is(&by, "value")], NULL, flag(a, 0, "case_sensitive"), &k) || jv_push(r, &key, k))
			return -1;
	}
	return sorted(r, &l, &key, flag(a, 2, "reverse"), out);
}

static int f_extreme(struct jrender *r, const struct filter *f, const struct jvalue *v, const struct jargs *a, struct jvalue *out)
{
	const struct jvalue *attribute = jarg(a, 1, "attribute");
	bool most = f->name[1] == 'a', cased = flag(a, 0, "case_sensitive");
	struct jvalue l, best, k;
	int c;

	if (jv_iter(r, v, &l))
		return -1;
	*out = jv_undefined("the sequence was empty");
	for (long i = 0; i < l.list->n; i++) {
		if (sort_key(r, &l.list->v[i], attribute, cased, &k) || (i && jv_cmp(r, &k, &best, &c)))
			return -1;
		if (i && (c == 2 || (most ? c <= 0 : c >= 0)))
			continue;
		best = k;
		*out = l.list->v[i];
	}
	return 0;
}

static int f_unique(struct jrender *r, const struct filter *f, const struct jvalue *v, const struct jargs *a, struct jvalue *out)
{
	const struct jvalue *attribute = jarg(a, 1, "attribute");
	struct jvalue l, k, seen;

	(void)f;
	if (jv_iter(r, v, &l) || jv_dict(r, &seen) || jv_list(r, out, LIST_GENERATOR))
		return -1;
	for (long i = 0; i < l.list->n; i++) {
		if (sort_key(r, &l.list->v[i], attribute, flag(a, 0, "case_sensitive"), &k))
			return -1;
		if (jv_find(seen.dict, &k))
			continue;
		if (jv_put(r, seen.dict, k, jv_none()) || jv_push(r, out, l.list->v[i]))
			return -1;
	}
	return 0;
}

static int f_attr(struct jrender *r, const struct filter *f, const struct jvalue *v, const struct jargs *a, struct jvalue *out)
{
	struct jvalue name;

	(void)f;
	if (!text_arg(a, 0, "name", &name))
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

static int f_map(struct jrender *r, const struct filter *f, const struct jvalue *v, const struct jargs *a, struct jvalue *out)
{
	const struct jvalue *attribute = jarg(a, -1, "attribute"), *def = jarg(a, -1, "default"), *name = jarg(a, 0, NULL);
	struct jargs rest = rest_of(a, 1);
	struct jvalue l, x;

	(void)f;
	if (!attribute && (!name || name->type != V_STR))
		return jfail(r, "map: wants the name of a filter, or attribute=");
	if (jv_iter(r, v, &l) || jv_list(r, out, LIST_GENERATOR))
		return -1;
	for (long i = 0; i < l.list->n; i++) {
		if (jstep(r, 1))
			return -1;
		if (attribute ? by_path(r, &l.list->v[i], attribute, &x) : jinja_filter(r, name->s, &l.list->v[i], &rest, &x))
			return -1;
		if (attribute && def && x.type == V_UNDEFINED)
			x = *def;
		if (jv_push(r, out, x))
			return -1;
	}
	return 0;
}

/* select, reject, selectattr, rejectattr */
static int f_select(struct jrender *r, const struct filter *f, const struct jvalue *v, const struct jargs *a, struct jvalue *out)
{
	bool keep = f->name[0] == 's', by = strlen(f->name) > 6;
	const struct jvalue *attribute = by ? jarg(a, 0, NULL) : NULL, *test = jarg(a, by, NULL);
	struct jargs rest = rest_of(a, 1 + by);
	struct jvalue l, x;

	if ((by && !attribute) || (test && test->type != V_STR))
		return jfail(r, "%s: wants %sthe name of a test", f->name, by ? "an attribute and " : "");
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

static const struct filter filters[] = {
	{ "abs", f_abs, 0 }, { "attr", f_attr, 1 }, { "capitalize", f_case, 0 }, { "count", f_length, 0 },
	{ "d", f_default, 2 }, { "default", f_default, 2 }, { "dictsort", f_dictsort, 3 }, { "e", f_string, 0 },
	{ "escape", f_string, 0 }, { "first", f_end, 0 }, { "float", f_number, 1 }, { "format", f_format, 99 },
	{ "indent", f_indent, 3 }, { "int", f_number, 2 }, { "items", f_items, 0 }, { "join", f_join, 2 },
	{ "last", f_end, 0 }, { "length", f_length, 0 }, { "list", f_list, 0 }, { "lower", f_case, 0 },
	{ "map", f_map, 99 }, { "max", f_extreme, 2 }, { "min", f_extreme, 2 }, { "reject", f_select, 99 },
	{ "rejectattr", f_select, 99 }, { "replace", f_replace, 3 }, { "reverse", f_reverse, 0 }, { "round", f_round, 2 },
	{ "safe", f_string, 0 }, { "select", f_select, 99 }, { "selectattr", f_select, 99 }, { "sort", f_sort, 3 },
	{ "string", f_string, 0 }, { "sum", f_sum, 2 }, { "title", f_case, 0 }, { "tojson", f_tojson, 4 },
	{ "trim", f_trim, 1 }, { "unique", f_unique, 2 }, { "upper", f_case, 0 }, { "wordcount", f_wordcount, 0 },
};

static const struct filter *find(const char *name)
{
	for (size_t i = 0; i < sizeof(filters) / sizeof(*filters); i++) {
		if (!strcmp(filters[i].name, name))
			return &filters[i];
	}
	return NULL;
}

bool jinja_has_filter(const char *name)
{
	return find(name) != NULL;
}

int jinja_filter(struct jrender *r, const char *name, const struct jvalue *v, const struct jargs *a, struct jvalue *out)
{
	const struct filter *f = find(name);

	if (!f)
		return jfail(r, "no filter named \"%.40s\"", name);
	if (a->n > f->most)
		return jfail(r, "%s: wants at most %d arguments, found %ld", name, f->most, a->n);
	return f->call(r, f, v, a, out);
}
