#include "formats/jinja.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int jfail(struct jrender *r, const char *fmt, ...)
{
	char what[900];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(what, sizeof(what), fmt, ap);
	va_end(ap);
	if (r->e->code)
		return -1;
	return err_set(r->e, EX_DATAERR, "%s:%d: %s", r->file, r->line, what);
}

int jstep(struct jrender *r, long n)
{
	r->steps += n;
	return r->steps > JINJA_STEPS ? jfail(r, "more than %d steps", JINJA_STEPS) : 0;
}

void *jalloc(struct jrender *r, size_t n, size_t size)
{
	if (n > JINJA_VALUES / size || n * size > JINJA_VALUES - r->bytes) {
		jfail(r, "more than %d MiB of values", JINJA_VALUES >> 20);
		return NULL;
	}
	r->bytes += n * size + 16;
	if (r->bytes > JINJA_VALUES)
		r->bytes = JINJA_VALUES;
	return arena_calloc(&r->arena, n ? n : 1, size);
}

/* -- growing strings ---------------------------------------------------------------------------- */

static void run_add(struct jbuf *b, size_t end, int32_t tag)
{
	if (b->nrun && b->run[b->nrun - 1].tag == tag) {
		b->run[b->nrun - 1].end = end;
		return;
	}
	GROW(b->run, b->nrun, b->cap);
	b->run[b->nrun++] = (struct jrun){ end, tag };
}

int jbuf_add(struct jrender *r, struct jbuf *b, const char *s, size_t n, int32_t tag, const int32_t *tags)
{
	size_t from = b->s.len;

	if (!n)
		return 0;
	if (n > JINJA_OUTPUT - from)
		return jfail(r, "more than %d MiB of text", JINJA_OUTPUT >> 20);
	str_add(&b->s, s, n);
	if (!tags)
		run_add(b, from + n, tag);
	for (size_t i = 0; tags && i < n;) {
		size_t k = i + 1;

		while (k < n && tags[k] == tags[i])
			k++;
		run_add(b, from + k, tags[i]);
		i = k;
	}
	return 0;
}

int jbuf_addv(struct jrender *r, struct jbuf *b, const struct jvalue *s)
{
	return jbuf_add(r, b, s->s, s->n, s->tag, s->tags);
}

int jbuf_puts(struct jrender *r, struct jbuf *b, const char *s)
{
	return jbuf_add(r, b, s, strlen(s), TAG_TEMPLATE, NULL);
}

void jbuf_release(struct jbuf *b)
{
	str_release(&b->s);
	free(b->run);
	*b = (struct jbuf){ 0 };
}

int jbuf_value(struct jrender *r, struct jbuf *b, struct jvalue *out)
{
	char *s = jalloc(r, b->s.len + 1, 1);
	int32_t *tags = NULL;
	size_t at = 0;
	int rc = -1;

	*out = jv_str("", 0, TAG_TEMPLATE);
	if (!s || (b->nrun > 1 && !(tags = jalloc(r, b->s.len, sizeof(*tags)))))
		goto out;
	if (b->s.len)
		memcpy(s, b->s.s, b->s.len);
	for (long i = 0; tags && i < b->nrun; i++) {
		for (; at < b->run[i].end; at++)
			tags[at] = b->run[i].tag;
	}
	*out = jv_str(s, b->s.len, b->nrun == 1 ? b->run[0].tag : TAG_TEMPLATE);
	out->tags = tags;
	rc = 0;
out:
	jbuf_release(b);
	return rc;
}

/* -- making ------------------------------------------------------------------------------------- */

struct jvalue jv_undefined(const char *name)
{
	struct jvalue v = { .type = V_UNDEFINED };

	v.s = name;
	return v;
}

struct jvalue jv_none(void)
{
	return (struct jvalue){ .type = V_NONE };
}

struct jvalue jv_bool(bool b)
{
	struct jvalue v = { .type = V_BOOL };

	v.b = b;
	return v;
}

struct jvalue jv_int(long i)
{
	struct jvalue v = { .type = V_INT };

	v.i = i;
	return v;
}

struct jvalue jv_float(double f)
{
	struct jvalue v = { .type = V_FLOAT };

	v.f = f;
	return v;
}

struct jvalue jv_str(const char *s, size_t n, int32_t tag)
{
	struct jvalue v = { .type = V_STR, .tag = tag, .n = n };

	v.s = s;
	return v;
}

struct jvalue jv_lit(const char *s)
{
	return jv_str(s, strlen(s), TAG_TEMPLATE);
}

struct jvalue jv_sub(const struct jvalue *s, size_t at, size_t n)
{
	struct jvalue v = *s;

	v.s += at;
	v.n = n;
	if (v.tags)
		v.tags += at;
	return v;
}

int jv_list(struct jrender *r, struct jvalue *out, enum jlist_kind kind)
{
	*out = (struct jvalue){ .type = V_LIST };
	if (!(out->list = jalloc(r, 1, sizeof(*out->list))))
		return -1;
	out->list->kind = kind;
	return 0;
}

int jv_push(struct jrender *r, const struct jvalue *list, struct jvalue v)
{
	struct jlist *l = list->list;

	if (l->n == l->cap) {
		long cap = l->cap ? 2 * l->cap : 4;
		struct jvalue *more = jalloc(r, (size_t)cap, sizeof(*more));

		if (!more)
			return -1;
		if (l->n)
			memcpy(more, l->v, (size_t)l->n * sizeof(*more));
		l->v = more;
		l->cap = cap;
	}
	l->v[l->n++] = v;
	return 0;
}

int jv_dict(struct jrender *r, struct jvalue *out)
{
	*out = (struct jvalue){ .type = V_DICT };
	return (out->dict = jalloc(r, 1, sizeof(*out->dict))) ? 0 : -1;
}

struct jvalue *jv_find(const struct jdict *d, const struct jvalue *key)
{
	for (long i = 0; i < d->n; i++) {
		if (jv_eq(&d->key[i], key))
			return &d->value[i];
	}
	return NULL;
}

struct jvalue *jv_finds(const struct jdict *d, const char *key)
{
	struct jvalue k = jv_lit(key);

	return jv_find(d, &k);
}

static int dict_push(struct jrender *r, struct jdict *d, struct jvalue key, struct jvalue v)
{
	if (d->n == d->cap) {
		long cap = d->cap ? 2 * d->cap : 8;
		struct jvalue *more = jalloc(r, 2 * (size_t)cap, sizeof(*more));

		if (!more)
			return -1;
		if (d->n) {
			memcpy(more, d->key, (size_t)d->n * sizeof(*more));
			memcpy(more + cap, d->value, (size_t)d->n * sizeof(*more));
		}
		d->key = more;
		d->value = more + cap;
		d->cap = cap;
	}
	d->key[d->n] = key;
	d->value[d->n++] = v;
	return 0;
}

int jv_put(struct jrender *r, struct jdict *d, struct jvalue key, struct jvalue v)
{
	struct jvalue *old = jv_find(d, &key);

	if (jstep(r, 1 + d->n / 16))
		return -1;
	if (key.type == V_DICT || (key.type == V_LIST && key.list->kind == LIST_LIST))
		return jfail(r, "a %s cannot be a key", jv_type(&key));
	if (old)
		return *old = v, 0;
	return dict_push(r, d, key, v);
}

static int from_number(struct jrender *r, struct jvalue *out, const struct json *v)
{
	char *s;

	errno = 0;
	if (strpbrk(v->text, ".eE")) {
		*out = jv_float(strtod(v->text, NULL));
		return 0;
	}
	*out = jv_int(strtol(v->text, NULL, 10));
	if (errno != ERANGE)
		return 0;
	if (!(s = jalloc(r, v->n + 1, 1)))
		return -1;
	memcpy(s, v->text, v->n);
	*out = jv_str(s, v->n, TAG_TEMPLATE);
	out->type = V_BIG;
	return 0;
}

/* Strings are borrowed from the document, which outlives the rendering.  The reader has seen to
 * it that keys differ, so members are pushed without looking. */
int jv_from_json(struct jrender *r, struct jvalue *out, const struct json *v, int32_t tag, int depth)
{
	if (depth > JINJA_NESTING)
		return jfail(r, "a value is nested more than %d deep", JINJA_NESTING);
	*out = jv_none();
	switch (v->type) {
	case JSON_NULL:
		return 0;
	case JSON_FALSE:
	case JSON_TRUE:
		*out = jv_bool(v->type == JSON_TRUE);
		return 0;
	case JSON_NUMBER:
		return from_number(r, out, v);
	case JSON_STRING:
		*out = jv_str(v->text, v->n, tag);
		return 0;
	case JSON_ARRAY:
		if (jv_list(r, out, LIST_LIST))
			return -1;
		for (size_t i = 0; i < v->n; i++) {
			struct jvalue x;

			if (jv_from_json(r, &x, &v->item[i], tag, depth + 1) || jv_push(r, out, x))
				return -1;
		}
		return 0;
	case JSON_OBJECT:
		if (jv_dict(r, out))
			return -1;
		for (size_t i = 0; i < v->n; i++) {
			struct jvalue x, key = jv_str(v->member[i].key, v->member[i].keylen, tag);

			if (jv_from_json(r, &x, &v->member[i].value, tag, depth + 1) || dict_push(r, out->dict, key, x))
				return -1;
		}
		return 0;
	}
	return 0;
}

/* -- asking ------------------------------------------------------------------------------------- */

bool jv_number(const struct jvalue *v)
{
	return v->type == V_INT || v->type == V_FLOAT || v->type == V_BOOL;
}

double jv_real(const struct jvalue *v)
{
	return v->type == V_FLOAT ? v->f : v->type == V_BOOL ? (double)v->b : (double)v->i;
}

bool jv_true(const struct jvalue *v)
{
	switch (v->type) {
	case V_UNDEFINED:
	case V_NONE:
		return false;
	case V_BOOL:
		return v->b;
	case V_INT:
		return v->i != 0;
	case V_FLOAT:
		return v->f != 0;
	case V_STR:
		return v->n != 0;
	case V_LIST:
		return v->list->kind == LIST_GENERATOR || v->list->n != 0;
	case V_DICT:
		return v->dict->n != 0;
	default:
		return true;
	}
}

bool jv_is(const struct jvalue *v, const char *s)
{
	return v->type == V_STR && v->n == strlen(s) && !memcmp(v->s, s, v->n);
}

static bool eq(const struct jvalue *a, const struct jvalue *b, int depth);

static bool list_eq(const struct jlist *a, const struct jlist *b, int depth)
{
	if (a == b)
		return true;
	if (a->kind != b->kind || a->kind == LIST_GENERATOR || a->kind == LIST_VALUES || a->n != b->n)
		return false;
	for (long i = 0; i < a->n; i++) {
		if (!eq(&a->v[i], &b->v[i], depth))
			return false;
	}
	return true;
}

static bool dict_eq(const struct jdict *a, const struct jdict *b, int depth)
{
	if (a->n != b->n)
		return false;
	for (long i = 0; i < a->n; i++) {
		const struct jvalue *v = jv_find(b, &a->key[i]);

		if (!v || !eq(&a->value[i], v, depth))
			return false;
	}
	return true;
}

/* Integers and doubles compare by value, exactly. */
static int cmp_numbers(const struct jvalue *a, const struct jvalue *b)
{
	long x, y;
	double p, q;

	if (a->type != V_FLOAT && b->type != V_FLOAT) {
		x = a->type == V_BOOL ? a->b : a->i;
		y = b->type == V_BOOL ? b->b : b->i;
		return (x > y) - (x < y);
	}
	p = jv_real(a);
	q = jv_real(b);
	return p < q ? -1 : p > q ? 1 : p == q ? 0 : 2;
}

/* Values that are nested deeper than a template can be (made by a loop) differ from all others. */
static bool eq(const struct jvalue *a, const struct jvalue *b, int depth)
{
	if (depth > JINJA_DEPTH)
		return false;
	if (jv_number(a) && jv_number(b))
		return cmp_numbers(a, b) == 0;
	if (a->type != b->type)
		return false;
	switch (a->type) {
	case V_UNDEFINED:
	case V_NONE:
		return true;
	case V_STR:
	case V_BIG:
		return a->n == b->n && (a->s == b->s || !memcmp(a->s, b->s, a->n));
	case V_LIST:
		return list_eq(a->list, b->list, depth + 1);
	case V_DICT:
		return dict_eq(a->dict, b->dict, depth + 1);
	case V_FUNCTION:
		return a->function == b->function;
	default:
		return a->loop == b->loop;
	}
}

bool jv_eq(const struct jvalue *a, const struct jvalue *b)
{
	return eq(a, b, 0);
}

int jv_cmp(struct jrender *r, const struct jvalue *a, const struct jvalue *b, int *c)
{
	if (jstep(r, 1))
		return -1;
	if (jv_number(a) && jv_number(b)) {
		*c = cmp_numbers(a, b);
		return 0;
	}
	if (a->type == V_STR && b->type == V_STR) {
		size_t n = a->n < b->n ? a->n : b->n;

		*c = n ? memcmp(a->s, b->s, n) : 0;
		*c = *c ? (*c > 0) - (*c < 0) : (a->n > b->n) - (a->n < b->n);
		return 0;
	}
	if (a->type == V_LIST && b->type == V_LIST && a->list->kind == b->list->kind && a->list->kind <= LIST_TUPLE) {
		const struct jlist *x = a->list, *y = b->list;

		for (long i = 0; i < x->n && i < y->n; i++) {
			int rc;

			if (jv_eq(&x->v[i], &y->v[i]))
				continue;
			if (++r->depth > JINJA_DEPTH)
				return jfail(r, "nested too deep");
			rc = jv_cmp(r, &x->v[i], &y->v[i], c);
			r->depth--;
			return rc;
		}
		*c = (x->n > y->n) - (x->n < y->n);
		return 0;
	}
	if (a->type == V_UNDEFINED || b->type == V_UNDEFINED)
		return jfail(r, "'%.80s' is undefined", a->type == V_UNDEFINED ? a->s : b->s);
	return jfail(r, "%s and %s have no order", jv_type(a), jv_type(b));
}

int jv_contains(struct jrender *r, const struct jvalue *box, const struct jvalue *v, bool *yes)
{
	struct jvalue l;

	if (box->type == V_STR) {
		if (v->type != V_STR)
			return jfail(r, "'in' a string wants a string, found %s", jv_type(v));
		*yes = jtext_find(box, v, false) >= 0;
		return jstep(r, (long)(box->n / 256));
	}
	if (box->type == V_DICT) {
		if (v->type == V_DICT || (v->type == V_LIST && v->list->kind == LIST_LIST))
			return jfail(r, "a %s cannot be a key", jv_type(v));
		*yes = jv_find(box->dict, v) != NULL;
		return jstep(r, 1 + box->dict->n / 16);
	}
	if (jv_iter(r, box, &l) || jstep(r, 1 + l.list->n / 16))
		return -1;
	*yes = false;
	for (long i = 0; i < l.list->n && !*yes; i++)
		*yes = jv_eq(&l.list->v[i], v);
	return 0;
}

int jv_iter(struct jrender *r, const struct jvalue *v, struct jvalue *list)
{
	int32_t c;

	if (v->type == V_LIST && v->list->kind != LIST_GENERATOR) {
		*list = *v;
		return 0;
	}
	if (jv_list(r, list, LIST_LIST))
		return -1;
	switch (v->type) {
	case V_UNDEFINED:
		return 0;
	case V_LIST:
		if (!v->list->consumed) {
			list->list->v = v->list->v;
			list->list->n = list->list->cap = v->list->n;
		}
		v->list->consumed = true;
		return 0;
	case V_STR:
		for (size_t i = 0, k; i < v->n; i += k) {
			k = jinja_utf8_get(v->s + i, v->n - i, &c);
			if (jv_push(r, list, jv_sub(v, i, k)))
				return -1;
		}
		return 0;
	case V_DICT:
		for (long i = 0; i < v->dict->n; i++) {
			if (jv_push(r, list, v->dict->key[i]))
				return -1;
		}
		return 0;
	default:
		return jfail(r, "'%s' object is not iterable", jv_type(v));
	}
}

int jv_len(struct jrender *r, const struct jvalue *v, long *n)
{
	*n = 0;
	if (v->type == V_UNDEFINED)
		return 0;
	if (v->type == V_STR)
		*n = utf8_count(v->s, v->n);
	else if (v->type == V_DICT)
		*n = v->dict->n;
	else if (v->type == V_LIST && v->list->kind != LIST_GENERATOR)
		*n = v->list->n;
	else
		return jfail(r, "object of type '%s' has no length", jv_type(v));
	return 0;
}

const char *jv_type(const struct jvalue *v)
{
	static const char *const list[] = { "list", "tuple", "range", "dict_keys", "dict_values", "dict_items", "generator" };
	static const char *const other[] = { "Undefined", "NoneType", "bool", "int", "float", "int", "str", "list", "dict",
		"Namespace", "LoopContext", "Macro", "method", "function" };

	return v->type == V_LIST ? list[v->list->kind] : other[v->type];
}

/* -- arithmetic ----------------------------------------------------------------------------------- */

static long as_int(const struct jvalue *v)
{
	return v->type == V_BOOL ? v->b : v->i;
}

static int pow_int(struct jrender *r, long a, long b, struct jvalue *out)
{
	long y = 1;

	if (b < 0)
		return *out = jv_float(pow((double)a, (double)b)), a ? 0 : jfail(r, "division by zero");
	while (b > 0) {
		if ((b & 1) && __builtin_mul_overflow(y, a, &y))
			return jfail(r, "an integer is out of range");
		b >>= 1;
		if (b && __builtin_mul_overflow(a, a, &a))
			return jfail(r, "an integer is out of range");
	}
	*out = jv_int(y);
	return 0;
}

static int arith_int(struct jrender *r, enum jop op, long a, long b, struct jvalue *out)
{
	long y = 0;
	bool over = false;

	if ((op == OP_DIV || op == OP_FLOORDIV || op == OP_MOD) && b == 0)
		return jfail(r, "division by zero");
	switch (op) {
	case OP_ADD: over = __builtin_add_overflow(a, b, &y); break;
	case OP_SUB: over = __builtin_sub_overflow(a, b, &y); break;
	case OP_MUL: over = __builtin_mul_overflow(a, b, &y); break;
	case OP_DIV: return *out = jv_float((double)a / (double)b), 0;
	case OP_POW: return pow_int(r, a, b, out);
	case OP_FLOORDIV:
	case OP_MOD:
		if (b == -1) {
			over = op == OP_FLOORDIV && __builtin_sub_overflow(0L, a, &y);
			break;
		}
		y = a % b;
		if (y && (y < 0) != (b < 0))
			y += b;
		if (op == OP_FLOORDIV)
			y = (a - y) / b;
		break;
	default:
		bug("not an arithmetic operator: %d", op);
	}
	if (over)
		return jfail(r, "an integer is out of range");
	*out = jv_int(y);
	return 0;
}

static int arith_real(struct jrender *r, enum jop op, double a, double b, struct jvalue *out)
{
	double y = 0;

	if ((op == OP_DIV || op == OP_FLOORDIV || op == OP_MOD) && b == 0)
		return jfail(r, "division by zero");
	switch (op) {
	case OP_ADD: y = a + b; break;
	case OP_SUB: y = a - b; break;
	case OP_MUL: y = a * b; break;
	case OP_DIV: y = a / b; break;
	case OP_POW: y = pow(a, b); break;
	case OP_FLOORDIV:
	case OP_MOD:
		y = fmod(a, b);
		if (y != 0 && (y < 0) != (b < 0))
			y += b;
		if (op == OP_FLOORDIV)
			y = round((a - y) / b);
		else if (y == 0)
			y = copysign(0, b);
		break;
	default:
		bug("not an arithmetic operator: %d", op);
	}
	*out = jv_float(y);
	return 0;
}

static int repeat(struct jrender *r, const struct jvalue *v, long k, struct jvalue *out)
{
	struct jbuf b = { 0 };

	if (v->type == V_LIST && jv_list(r, out, v->list->kind))
		return -1;
	for (long i = 0; i < k; i++) {
		if (jstep(r, 1) || (v->type == V_STR && jbuf_addv(r, &b, v)))
			return jbuf_release(&b), -1;
		for (long j = 0; v->type == V_LIST && j < v->list->n; j++) {
			if (jstep(r, 1) || jv_push(r, out, v->list->v[j]))
				return -1;
		}
	}
	return v->type == V_STR ? jbuf_value(r, &b, out) : 0;
}

static int add_strings(struct jrender *r, const struct jvalue *a, const struct jvalue *b, struct jvalue *out)
{
	struct jvalue x = *a, y = *b;
	struct jbuf buf = { 0 };
	bool markup = a->markup || b->markup;

	if (markup && (jtext_escape(r, a, &x) || jtext_escape(r, b, &y)))
		return -1;
	if (jbuf_addv(r, &buf, &x) || jbuf_addv(r, &buf, &y))
		return jbuf_release(&buf), -1;
	if (jbuf_value(r, &buf, out))
		return -1;
	out->markup = markup;
	return 0;
}

int jv_arith(struct jrender *r, enum jop op, const struct jvalue *a, const struct jvalue *b, struct jvalue *out)
{
	static const char *const name[] = { "+", "-", "*", "/", "//", "%", "**" };
	bool lists = a->type == V_LIST && b->type == V_LIST && a->list->kind == b->list->kind && a->list->kind <= LIST_TUPLE;

	if (jv_number(a) && jv_number(b)) {
		if (a->type == V_FLOAT || b->type == V_FLOAT)
			return arith_real(r, op, jv_real(a), jv_real(b), out);
		return arith_int(r, op, as_int(a), as_int(b), out);
	}
	if (op == OP_MOD && a->type == V_STR)
		return jtext_format(r, a, b, out);
	if (op == OP_ADD && a->type == V_STR && b->type == V_STR)
		return add_strings(r, a, b, out);
	if (op == OP_ADD && lists) {
		if (jv_list(r, out, a->list->kind))
			return -1;
		for (long i = 0; i < a->list->n + b->list->n; i++) {
			if (jstep(r, 1) || jv_push(r, out, i < a->list->n ? a->list->v[i] : b->list->v[i - a->list->n]))
				return -1;
		}
		return 0;
	}
	if (op == OP_MUL && (a->type == V_STR || (a->type == V_LIST && a->list->kind <= LIST_TUPLE)) && (b->type == V_INT || b->type == V_BOOL))
		return repeat(r, a, as_int(b), out);
	if (op == OP_MUL && (b->type == V_STR || (b->type == V_LIST && b->list->kind <= LIST_TUPLE)) && (a->type == V_INT || a->type == V_BOOL))
		return repeat(r, b, as_int(a), out);
	if (a->type == V_UNDEFINED || b->type == V_UNDEFINED)
		return jfail(r, "'%.80s' is undefined", a->type == V_UNDEFINED ? a->s : b->s);
	return jfail(r, "'%s' between %s and %s", name[op], jv_type(a), jv_type(b));
}
