#include "formats/jinja.h"

#include <math.h>
#include <string.h>

#include "formats/jinja_text.h"

static long as_int(const struct jvalue *v)
{
	return v->type == V_BOOL ? v->b : v->i;
}

static int pow_int(struct jrender *r, long a, long b, struct jvalue *out)
{
	long y = 1;

	if (b < 0)
		return *out = jv_float(pow((double)a, (double)b)),
		       a ? 0 : jfail(r, "division by zero");
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
	default: bug("not an arithmetic operator: %d", op);
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
	default: bug("not an arithmetic operator: %d", op);
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

static int add_strings(struct jrender *r, const struct jvalue *a, const struct jvalue *b,
		       struct jvalue *out)
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

int jv_arith(struct jrender *r, enum jop op, const struct jvalue *a, const struct jvalue *b,
	     struct jvalue *out)
{
	static const char *const name[] = { "+", "-", "*", "/", "//", "%", "**" };
	bool lists = a->type == V_LIST && b->type == V_LIST && a->list->kind == b->list->kind &&
		     a->list->kind <= LIST_TUPLE;

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
			if (jstep(r, 1) ||
			    jv_push(r, out,
				    i < a->list->n ? a->list->v[i] : b->list->v[i - a->list->n]))
				return -1;
		}
		return 0;
	}
	if (op == OP_MUL &&
	    (a->type == V_STR || (a->type == V_LIST && a->list->kind <= LIST_TUPLE)) &&
	    (b->type == V_INT || b->type == V_BOOL))
		return repeat(r, a, as_int(b), out);
	if (op == OP_MUL &&
	    (b->type == V_STR || (b->type == V_LIST && b->list->kind <= LIST_TUPLE)) &&
	    (a->type == V_INT || a->type == V_BOOL))
		return repeat(r, b, as_int(a), out);
	if (a->type == V_UNDEFINED || b->type == V_UNDEFINED)
		return jfail(r, "'%.80s' is undefined", a->type == V_UNDEFINED ? a->s : b->s);
	return jfail(r, "'%s' between %s and %s", name[op], jv_type(a), jv_type(b));
}
