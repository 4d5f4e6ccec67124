#include "formats/jinja_eval.h"

#include <string.h>

#include "formats/jinja_text.h"

enum test {
	IS_BOOLEAN, IS_CALLABLE, IS_DEFINED, IS_DIVISIBLE, IS_ENDING, IS_EQ, IS_ESCAPED, IS_EVEN,
	IS_FALSE, IS_FILTER, IS_FLOAT, IS_GE, IS_GT, IS_IN, IS_INTEGER, IS_ITERABLE, IS_LE,
	IS_LOWER, IS_LT, IS_MAPPING, IS_NE, IS_NONE, IS_NUMBER, IS_ODD, IS_SAME, IS_SEQUENCE,
	IS_STARTING, IS_STRING, IS_TEST, IS_TRUE, IS_UNDEFINED, IS_UPPER,
};

static const struct test_name {
	const char *name;
	enum test test;
	int wants; /* arguments */
} tests[] = {
	{ "boolean", IS_BOOLEAN, 0 },
	{ "callable", IS_CALLABLE, 0 },
	{ "defined", IS_DEFINED, 0 },
	{ "divisibleby", IS_DIVISIBLE, 1 },
	{ "endswith", IS_ENDING, 1 },
	{ "eq", IS_EQ, 1 },
	{ "equalto", IS_EQ, 1 },
	{ "==", IS_EQ, 1 },
	{ "escaped", IS_ESCAPED, 0 },
	{ "even", IS_EVEN, 0 },
	{ "false", IS_FALSE, 0 },
	{ "filter", IS_FILTER, 0 },
	{ "float", IS_FLOAT, 0 },
	{ "ge", IS_GE, 1 },
	{ ">=", IS_GE, 1 },
	{ "gt", IS_GT, 1 },
	{ ">", IS_GT, 1 },
	{ "greaterthan", IS_GT, 1 },
	{ "in", IS_IN, 1 },
	{ "integer", IS_INTEGER, 0 },
	{ "iterable", IS_ITERABLE, 0 },
	{ "le", IS_LE, 1 },
	{ "<=", IS_LE, 1 },
	{ "lower", IS_LOWER, 0 },
	{ "lt", IS_LT, 1 },
	{ "<", IS_LT, 1 },
	{ "lessthan", IS_LT, 1 },
	{ "mapping", IS_MAPPING, 0 },
	{ "ne", IS_NE, 1 },
	{ "!=", IS_NE, 1 },
	{ "none", IS_NONE, 0 },
	{ "number", IS_NUMBER, 0 },
	{ "odd", IS_ODD, 0 },
	{ "sameas", IS_SAME, 1 },
	{ "sequence", IS_SEQUENCE, 0 },
	{ "startswith", IS_STARTING, 1 },
	{ "string", IS_STRING, 0 },
	{ "test", IS_TEST, 0 },
	{ "true", IS_TRUE, 0 },
	{ "undefined", IS_UNDEFINED, 0 },
	{ "upper", IS_UPPER, 0 },
};

static const struct test_name *find(const char *name)
{
	for (size_t i = 0; i < sizeof(tests) / sizeof(*tests); i++) {
		if (!strcmp(tests[i].name, name))
			return &tests[i];
	}
	return NULL;
}

bool jinja_has_test(const char *name)
{
	return find(name) != NULL;
}

static int order(struct jrender *r, enum test t, const struct jvalue *v, const struct jvalue *w,
		 bool *out)
{
	int c;

	if (jv_cmp(r, v, w, &c))
		return -1;
	*out = c != 2 && (t == IS_LT ? c < 0 : t == IS_LE ? c <= 0 : t == IS_GT ? c > 0 : c >= 0);
	return 0;
}

/* Does v leave `wanted` when divided by `by`? */
static int leaves(struct jrender *r, const struct jvalue *v, const struct jvalue *by, long wanted,
		  bool *out)
{
	struct jvalue rest, want = jv_int(wanted);

	if (v->type == V_STR)
		return jfail(r, "found a string, wanted a number");
	if (jv_arith(r, OP_MOD, v, by, &rest))
		return -1;
	*out = jv_eq(&rest, &want);
	return 0;
}

static bool named(const struct jvalue *v, bool (*has)(const char *))
{
	return v->type == V_STR && v->n < 40 && strlen(v->s) >= v->n && has(v->s);
}

static bool same(const struct jvalue *v, const struct jvalue *w)
{
	if (v->type != w->type)
		return false;
	return v->type == V_LIST ? v->list == w->list :
	       v->type == V_DICT ? v->dict == w->dict :
				   jv_eq(v, w);
}

static bool ends(const struct jvalue *v, const struct jvalue *w, bool at_end)
{
	return v->type == V_STR && w->type == V_STR && w->n <= v->n &&
	       !memcmp(v->s + (at_end ? v->n - w->n : 0), w->s, w->n);
}

int jinja_test(struct jrender *r, const char *name, const struct jvalue *v, const struct jargs *a,
	       bool *out)
{
	const struct test_name *t = find(name);
	const struct jvalue *w = jarg(a, 0, NULL);
	struct jvalue text, two = jv_int(2);

	if (!t)
		return jfail(r, "no test named \"%.40s\"", name);
	if (a->n != t->wants || (t->wants && !w))
		return jfail(r, "test %s: found %ld arguments, wanted %d", name, a->n, t->wants);
	switch (t->test) {
	case IS_BOOLEAN: *out = v->type == V_BOOL; break;
	case IS_CALLABLE:
		*out = v->type >= V_MACRO || v->type == V_LOOP || v->type == V_UNDEFINED;
		break;
	case IS_DEFINED: *out = v->type != V_UNDEFINED; break;
	case IS_UNDEFINED: *out = v->type == V_UNDEFINED; break;
	case IS_DIVISIBLE: return leaves(r, v, w, 0, out);
	case IS_EVEN: return leaves(r, v, &two, 0, out);
	case IS_ODD: return leaves(r, v, &two, 1, out);
	case IS_STARTING: *out = ends(v, w, false); break;
	case IS_ENDING: *out = ends(v, w, true); break;
	case IS_EQ: *out = jv_eq(v, w); break;
	case IS_NE: *out = !jv_eq(v, w); break;
	case IS_GE:
	case IS_GT:
	case IS_LE:
	case IS_LT: return order(r, t->test, v, w, out);
	case IS_IN: return jv_contains(r, w, v, out);
	case IS_ESCAPED: *out = v->type == V_STR && v->markup; break;
	case IS_FALSE: *out = v->type == V_BOOL && !v->b; break;
	case IS_TRUE: *out = v->type == V_BOOL && v->b; break;
	case IS_FILTER: *out = named(v, jinja_has_filter); break;
	case IS_TEST: *out = named(v, jinja_has_test); break;
	case IS_FLOAT: *out = v->type == V_FLOAT; break;
	case IS_INTEGER: *out = v->type == V_INT || v->type == V_BIG; break;
	case IS_NUMBER: *out = jv_number(v) || v->type == V_BIG; break;
	case IS_ITERABLE:
		*out = v->type == V_STR || v->type == V_LIST || v->type == V_DICT ||
		       v->type == V_UNDEFINED || v->type == V_LOOP;
		break;
	case IS_SEQUENCE:
		*out = v->type == V_STR || v->type == V_DICT || v->type == V_UNDEFINED ||
		       (v->type == V_LIST && v->list->kind <= LIST_RANGE);
		break;
	case IS_MAPPING: *out = v->type == V_DICT; break;
	case IS_NONE: *out = v->type == V_NONE; break;
	case IS_STRING: *out = v->type == V_STR; break;
	case IS_SAME: *out = same(v, w); break;
	case IS_LOWER:
	case IS_UPPER:
		if (jv_string(r, v, &text))
			return -1;
		*out = jtext_all_case(&text, t->test == IS_UPPER);
		break;
	}
	return 0;
}
