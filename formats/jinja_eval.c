#include "formats/jinja_eval.h"

int jinja_deeper(struct jrender *r)
{
	return ++r->depth > JINJA_DEPTH ? jfail(r, "nested too deep") : 0;
}

struct jvalue jscope_get(const struct jscope *s, const char *name)
{
	for (; s; s = s->up) {
		const struct jvalue *v = jv_finds(&s->vars, name);

		if (v)
			return *v;
	}
	return jv_undefined(name);
}

static int eval_args(struct jrender *r, const struct jnode *n, struct jscope *s, struct jargs *a)
{
	*a = (struct jargs){ .key = n->key, .n = n->n };
	if (n->n && !(a->v = jalloc(r, (size_t)n->n, sizeof(*a->v))))
		return -1;
	for (long i = 0; i < n->n; i++) {
		if (jinja_eval(r, n->list[i], s, &a->v[i]))
			return -1;
	}
	return 0;
}

static int eval_display(struct jrender *r, const struct jnode *n, struct jscope *s,
			struct jvalue *out)
{
	struct jvalue k, v, all;

	if (n->type == J_DICT ? jv_dict(r, &all) :
				jv_list(r, &all, n->type == J_LIST ? LIST_LIST : LIST_TUPLE))
		return -1;
	for (long i = 0; i < n->n; i += 1 + (n->type == J_DICT)) {
		if (jinja_eval(r, n->list[i], s, &k))
			return -1;
		if (n->type != J_DICT) {
			if (jv_push(r, &all, k))
				return -1;
		} else if (jinja_eval(r, n->list[i + 1], s, &v) || jv_put(r, all.dict, k, v)) {
			return -1;
		}
	}
	*out = all;
	return 0;
}

static int eval_item(struct jrender *r, const struct jnode *n, struct jscope *s, struct jvalue *out)
{
	struct jvalue o, k[3];

	if (jinja_eval(r, n->a, s, &o))
		return -1;
	if (n->b->type != J_SLICE) {
		if (jinja_eval(r, n->b, s, &k[0]))
			return -1;
		r->line = n->line;
		return jinja_getitem(r, &o, &k[0], out);
	}
	for (int i = 0; i < 3; i++) {
		k[i] = jv_none();
		if (n->b->list[i] && jinja_eval(r, n->b->list[i], s, &k[i]))
			return -1;
	}
	r->line = n->line;
	return jinja_slice(r, &o, k, out);
}

int jinja_invoke(struct jrender *r, const struct jnode *n, struct jscope *s,
		 const struct jvalue *caller, struct jvalue *out)
{
	struct jvalue f;
	struct jargs a;

	if (jinja_eval(r, n->a, s, &f) || eval_args(r, n, s, &a))
		return -1;
	a.caller = caller ? *caller : jv_undefined("caller");
	r->line = n->line;
	return jinja_call(r, &f, &a, out);
}

static int eval_filter(struct jrender *r, const struct jnode *n, struct jscope *s,
		       struct jvalue *out)
{
	struct jvalue v;
	struct jargs a;

	if (jinja_eval(r, n->a, s, &v) || eval_args(r, n, s, &a))
		return -1;
	r->line = n->line;
	return jinja_filter(r, n->name, &v, &a, out);
}

static int eval_test(struct jrender *r, const struct jnode *n, struct jscope *s, struct jvalue *out)
{
	struct jvalue v;
	struct jargs a;
	bool yes;

	if (jinja_eval(r, n->a, s, &v) || eval_args(r, n, s, &a))
		return -1;
	r->line = n->line;
	if (jinja_test(r, n->name, &v, &a, &yes))
		return -1;
	*out = jv_bool(yes != n->flag);
	return 0;
}

static int compare_one(struct jrender *r, enum jop op, const struct jvalue *a,
		       const struct jvalue *b, bool *yes)
{
	int c;

	if (op == OP_EQ || op == OP_NE) {
		*yes = jv_eq(a, b) == (op == OP_EQ);
		return 0;
	}
	if (op == OP_IN || op == OP_NOTIN) {
		if (jv_contains(r, b, a, yes))
			return -1;
		*yes = *yes == (op == OP_IN);
		return 0;
	}
	if (jv_cmp(r, a, b, &c))
		return -1;
	/* 2: one of them is no number */
	*yes = c != 2 && (op == OP_LT ? c < 0 :
			  op == OP_LE ? c <= 0 :
			  op == OP_GT ? c > 0 :
					c >= 0);
	return 0;
}

static int eval_compare(struct jrender *r, const struct jnode *n, struct jscope *s,
			struct jvalue *out)
{
	struct jvalue a, b;
	bool yes = true;

	if (jinja_eval(r, n->a, s, &a))
		return -1;
	for (long i = 0; yes && i < n->n; i++) {
		if (jinja_eval(r, n->list[i]->a, s, &b))
			return -1;
		r->line = n->line;
		if (compare_one(r, n->list[i]->op, &a, &b, &yes))
			return -1;
		a = b;
	}
	*out = jv_bool(yes);
	return 0;
}

static int eval_concat(struct jrender *r, const struct jnode *n, struct jscope *s,
		       struct jvalue *out)
{
	struct jbuf b = { 0 };
	struct jvalue v;

	for (long i = 0; i < n->n; i++) {
		if (jinja_eval(r, n->list[i], s, &v) || jv_print(r, &b, &v))
			return jbuf_release(&b), -1;
	}
	return jbuf_value(r, &b, out);
}

static int eval_logic(struct jrender *r, const struct jnode *n, struct jscope *s,
		      struct jvalue *out)
{
	if (n->type == J_COND) {
		if (jinja_eval(r, n->a, s, out))
			return -1;
		if (jv_true(out))
			return jinja_eval(r, n->b, s, out);
		*out = jv_undefined("the inline if-expression without else");
		return n->c ? jinja_eval(r, n->c, s, out) : 0;
	}
	if (jinja_eval(r, n->a, s, out))
		return -1;
	if (n->type == J_NOT)
		return *out = jv_bool(!jv_true(out)), 0;
	return jv_true(out) == (n->type == J_AND) ? jinja_eval(r, n->b, s, out) : 0;
}

static int eval_arith(struct jrender *r, const struct jnode *n, struct jscope *s,
		      struct jvalue *out)
{
	struct jvalue a, b;

	if (jinja_eval(r, n->a, s, &a))
		return -1;
	if (n->type != J_BINARY) {
		struct jvalue zero = a.type == V_FLOAT ? jv_float(-0.0) : jv_int(0);

		r->line = n->line;
		if (!jv_number(&a))
			return a.type == V_UNDEFINED ?
				       jfail(r, "'%.80s' is undefined", a.s) :
				       jfail(r, "bad operand of unary %c: %s",
					     n->type == J_NEG ? '-' : '+', jv_type(&a));
		return jv_arith(r, n->type == J_NEG ? OP_SUB : OP_ADD, &zero, &a, out);
	}
	if (jinja_eval(r, n->b, s, &b))
		return -1;
	r->line = n->line;
	return jv_arith(r, n->op, &a, &b, out);
}

static int eval_node(struct jrender *r, const struct jnode *n, struct jscope *s, struct jvalue *out)
{
	struct jvalue o;

	switch (n->type) {
	case J_CONST: return *out = n->value, 0;
	case J_NAME: return *out = jscope_get(s, n->name), 0;
	case J_LIST:
	case J_TUPLE:
	case J_DICT: return eval_display(r, n, s, out);
	case J_GETATTR:
		if (jinja_eval(r, n->a, s, &o))
			return -1;
		r->line = n->line;
		return jinja_getattr(r, &o, n->name, out);
	case J_GETITEM: return eval_item(r, n, s, out);
	case J_INVOKE: return jinja_invoke(r, n, s, NULL, out);
	case J_FILTER: return eval_filter(r, n, s, out);
	case J_TEST: return eval_test(r, n, s, out);
	case J_COND:
	case J_NOT:
	case J_AND:
	case J_OR: return eval_logic(r, n, s, out);
	case J_NEG:
	case J_POS:
	case J_BINARY: return eval_arith(r, n, s, out);
	case J_CONCAT: return eval_concat(r, n, s, out);
	case J_COMPARE: return eval_compare(r, n, s, out);
	default: bug("not an expression: %d", n->type);
	}
}

int jinja_eval(struct jrender *r, const struct jnode *n, struct jscope *s, struct jvalue *out)
{
	int rc;

	r->line = n->line;
	if (jinja_deeper(r) || jstep(r, 1))
		return -1;
	rc = eval_node(r, n, s, out);
	r->depth--;
	return rc;
}
