#include "formats/jinja.h"

#include <string.h>

#include "formats/jinja_text.h"

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
	case V_NONE: return false;
	case V_BOOL: return v->b;
	case V_INT: return v->i != 0;
	case V_FLOAT: return v->f != 0;
	case V_STR: return v->n != 0;
	case V_LIST: return v->list->kind == LIST_GENERATOR || v->list->n != 0;
	case V_DICT: return v->dict->n != 0;
	default: return true;
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
	if (a->kind != b->kind || a->kind == LIST_GENERATOR || a->kind == LIST_VALUES ||
	    a->n != b->n)
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
	if (depth > JINJA_DEPTH || !jwork(1 + (a->type == V_STR ? a->n / 64 : 0)))
		return false;
	if (jv_number(a) && jv_number(b))
		return cmp_numbers(a, b) == 0;
	if (a->type != b->type)
		return false;
	switch (a->type) {
	case V_UNDEFINED:
	case V_NONE: return true;
	case V_STR:
	case V_BIG: return a->n == b->n && (a->s == b->s || !memcmp(a->s, b->s, a->n));
	case V_LIST: return list_eq(a->list, b->list, depth + 1);
	case V_DICT: return dict_eq(a->dict, b->dict, depth + 1);
	case V_FUNCTION: return a->function == b->function;
	default: return a->loop == b->loop;
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
	if (a->type == V_LIST && b->type == V_LIST && a->list->kind == b->list->kind &&
	    a->list->kind <= LIST_TUPLE) {
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
	struct jvalue one;
	int32_t c;

	if (v->type == V_LIST && v->list->kind != LIST_GENERATOR) {
		*list = *v;
		return 0;
	}
	if (jv_list(r, list, LIST_LIST))
		return -1;
	switch (v->type) {
	case V_UNDEFINED: return 0;
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
			one = jv_sub(v, i, k);
			one.markup = false;
			if (jv_push(r, list, one))
				return -1;
		}
		return 0;
	case V_DICT:
		for (long i = 0; i < v->dict->n; i++) {
			if (jv_push(r, list, v->dict->key[i]))
				return -1;
		}
		return 0;
	default: return jfail(r, "'%s' object is not iterable", jv_type(v));
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
	static const char *const list[] = { "list", "tuple", "range", "dict_keys", "dict_values",
		"dict_items", "generator" };
	static const char *const other[] = { "Undefined", "NoneType", "bool", "int", "float",
		"int beyond 64 bits", "str", "list", "dict", "Namespace", "LoopContext", "Macro",
		"method", "function" };

	return v->type == V_LIST ? list[v->list->kind] : other[v->type];
}
