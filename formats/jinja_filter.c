#include "formats/jinja_filter.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool filter_flag(const struct jargs *a, long i, const char *key)
{
	const struct jvalue *v = jarg(a, i, key);

	return v && jv_true(v);
}

bool filter_text(const struct jargs *a, long i, const char *key, struct jvalue *out)
{
	const struct jvalue *v = jarg(a, i, key);

	if (!v || v->type != V_STR)
		return false;
	*out = *v;
	return true;
}

static int f_case(struct jrender *r, const struct filter *f, const struct jvalue *v,
		  const struct jargs *a, struct jvalue *out)
{
	enum jcase how = f->name[0] == 'u' ? CASE_UPPER :
			 f->name[0] == 'l' ? CASE_LOWER :
			 f->name[0] == 't' ? CASE_FILTER_TITLE :
					     CASE_CAPITALIZE;
	struct jvalue s;

	(void)a;
	return jv_string(r, v, &s) ? -1 : jtext_case(r, &s, how, out);
}

static int f_trim(struct jrender *r, const struct filter *f, const struct jvalue *v,
		  const struct jargs *a, struct jvalue *out)
{
	struct jvalue s, chars;
	bool given = filter_text(a, 0, "chars", &chars);

	(void)f;
	if (jv_string(r, v, &s))
		return -1;
	*out = jtext_strip(&s, given ? &chars : NULL, true, true);
	return 0;
}

static int f_string(struct jrender *r, const struct filter *f, const struct jvalue *v,
		    const struct jargs *a, struct jvalue *out)
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

static int f_replace(struct jrender *r, const struct filter *f, const struct jvalue *v,
		     const struct jargs *a, struct jvalue *out)
{
	const struct jvalue *from = jarg(a, 0, "old"), *to = jarg(a, 1, "new"),
			    *count = jarg(a, 2, "count");
	struct jvalue s, x, y;
	long n = -1;

	(void)f;
	if (!from || !to)
		return jfail(r, "replace: wants two arguments");
	if (count && count->type != V_NONE && jarg_int(r, a, 2, "count", -1, &n))
		return -1;
	if (jv_string(r, v, &s) || jv_string(r, from, &x) || jv_string(r, to, &y) ||
	    jtext_replace(r, &s, &x, &y, n, out))
		return -1;
	out->markup = false;
	return 0;
}

static int f_indent(struct jrender *r, const struct filter *f, const struct jvalue *v,
		    const struct jargs *a, struct jvalue *out)
{
	struct jvalue width;
	struct jbuf b = { 0 };
	long n;

	(void)f;
	if (v->type != V_STR)
		return jfail(r, "indent: found %s, wanted a string", jv_type(v));
	if (!filter_text(a, 0, "width", &width)) {
		if (jarg_int(r, a, 0, "width", 4, &n))
			return -1;
		for (; n > 0; n--) {
			if (jbuf_puts(r, &b, " "))
				return jbuf_release(&b), -1;
		}
		if (jbuf_value(r, &b, &width))
			return -1;
	}
	return jtext_indent(r, v, &width, filter_flag(a, 1, "first"), filter_flag(a, 2, "blank"),
			    out);
}

static int f_wordcount(struct jrender *r, const struct filter *f, const struct jvalue *v,
		       const struct jargs *a, struct jvalue *out)
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

static int f_format(struct jrender *r, const struct filter *f, const struct jvalue *v,
		    const struct jargs *a, struct jvalue *out)
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

static int f_tojson(struct jrender *r, const struct filter *f, const struct jvalue *v,
		    const struct jargs *a, struct jvalue *out)
{
	const struct jvalue *indent = jarg(a, 1, "indent"), *sep = jarg(a, 2, "separators");
	struct jvalue zero = jv_int(0), one = jv_int(1);
	struct jbuf b = { 0 };

	(void)f;
	if (sep && sep->type == V_NONE)
		sep = NULL;
	if (sep && (sep->type != V_LIST || sep->list->n != 2 || sep->list->v[0].type != V_STR ||
		    sep->list->v[1].type != V_STR))
		return jfail(r, "tojson: separators: wanted two strings");
	if (indent && indent->type == V_BOOL)
		indent = indent->b ? &one : &zero;
	if (indent && indent->type != V_INT && indent->type != V_STR && indent->type != V_NONE)
		return jfail(r, "tojson: indent: found %s, wanted an integer", jv_type(indent));
	if (jv_json(r, &b, v, indent, filter_flag(a, 0, "ensure_ascii"),
		    filter_flag(a, 3, "sort_keys"), sep, 0))
		return jbuf_release(&b), -1;
	return jbuf_value(r, &b, out);
}

/* float(text) of Python. */
static bool parse_real(const struct jvalue *s, double *out)
{
	struct jvalue t = jtext_strip(s, NULL, true, true);
	char buf[400], *end;
	size_t k = 0;

	if (!t.n || t.n >= sizeof(buf))
		return false;
	for (size_t i = 0; i < t.n; i++) {
		if (t.s[i] == '_' && i && i + 1 < t.n && t.s[i - 1] >= '0' && t.s[i - 1] <= '9' &&
		    t.s[i + 1] >= '0' && t.s[i + 1] <= '9')
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

static int f_number(struct jrender *r, const struct filter *f, const struct jvalue *v,
		    const struct jargs *a, struct jvalue *out)
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

static int f_abs(struct jrender *r, const struct filter *f, const struct jvalue *v,
		 const struct jargs *a, struct jvalue *out)
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

static int f_round(struct jrender *r, const struct filter *f, const struct jvalue *v,
		   const struct jargs *a, struct jvalue *out)
{
	struct jvalue method = jv_lit("common");
	char buf[400];
	double scale, d;
	long digits;

	(void)f;
	if (!jv_number(v) || jarg_int(r, a, 0, "precision", 0, &digits))
		return jfail(r, "round: found %s, wanted a number", jv_type(v));
	filter_text(a, 1, "method", &method);
	d = jv_real(v);
	if (digits < -18 || digits > 60)
		return jfail(r, "round: a precision of %ld, wanted -18 to 60", digits);
	scale = pow(10, (double)digits);
	if (jv_is(&method, "ceil") || jv_is(&method, "floor"))
		return *out = jv_float(
			       (jv_is(&method, "ceil") ? ceil(d * scale) : floor(d * scale)) /
			       scale),
		       0;
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

static const struct filter filters[] = {
	{ "abs", f_abs, 0 },
	{ "attr", f_attr, 1 },
	{ "capitalize", f_case, 0 },
	{ "count", f_length, 0 },
	{ "d", f_default, 2 },
	{ "default", f_default, 2 },
	{ "dictsort", f_dictsort, 3 },
	{ "e", f_string, 0 },
	{ "escape", f_string, 0 },
	{ "first", f_end, 0 },
	{ "float", f_number, 1 },
	{ "format", f_format, 99 },
	{ "indent", f_indent, 3 },
	{ "int", f_number, 2 },
	{ "items", f_items, 0 },
	{ "join", f_join, 2 },
	{ "last", f_end, 0 },
	{ "length", f_length, 0 },
	{ "list", f_list, 0 },
	{ "lower", f_case, 0 },
	{ "map", f_map, 99 },
	{ "max", f_extreme, 2 },
	{ "min", f_extreme, 2 },
	{ "reject", f_select, 99 },
	{ "rejectattr", f_select, 99 },
	{ "replace", f_replace, 3 },
	{ "reverse", f_reverse, 0 },
	{ "round", f_round, 2 },
	{ "safe", f_string, 0 },
	{ "select", f_select, 99 },
	{ "selectattr", f_select, 99 },
	{ "sort", f_sort, 3 },
	{ "string", f_string, 0 },
	{ "sum", f_sum, 2 },
	{ "title", f_case, 0 },
	{ "tojson", f_tojson, 4 },
	{ "trim", f_trim, 1 },
	{ "unique", f_unique, 2 },
	{ "upper", f_case, 0 },
	{ "wordcount", f_wordcount, 0 },
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

int jinja_filter(struct jrender *r, const char *name, const struct jvalue *v, const struct jargs *a,
		 struct jvalue *out)
{
	const struct filter *f = find(name);

	if (!f)
		return jfail(r, "no filter named \"%.40s\"", name);
	if (a->n > f->most)
		return jfail(r, "%s: wants at most %d arguments, found %ld", name, f->most, a->n);
	return f->call(r, f, v, a, out);
}
