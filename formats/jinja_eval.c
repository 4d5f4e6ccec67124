#include "formats/jinja.h"

#include <string.h>

enum { FLOW_BREAK = 1, FLOW_CONTINUE = 2 };     /* beside 0 and -1 */

static int run_list(struct jrender *r, struct jnode *const *list, long n, struct jscope *s);

static int deeper(struct jrender *r)
{
	return ++r->depth > JINJA_DEPTH ? jfail(r, "nested too deep") : 0;
}

static struct jscope *scope_new(struct jrender *r, struct jscope *up)
{
	struct jscope *s = jalloc(r, 1, sizeof(*s));

	if (s)
		s->up = up;
	return s;
}

static int scope_set(struct jrender *r, struct jscope *s, const char *name, struct jvalue v)
{
	return jv_put(r, &s->vars, jv_lit(name), v);
}

static struct jvalue scope_get(const struct jscope *s, const char *name)
{
	for (; s; s = s->up) {
		const struct jvalue *v = jv_finds(&s->vars, name);

		if (v)
			return *v;
	}
	return jv_undefined(name);
}

static int macro_new(struct jrender *r, const struct jnode *n, struct jscope *s, struct jvalue *out)
{
	*out = (struct jvalue){ .type = V_MACRO };
	if (!(out->macro = jalloc(r, 1, sizeof(*out->macro))))
		return -1;
	*out->macro = (struct jmacro){ n, s };
	for (; s && !s->kept; s = s->up)
		s->kept = true;
	return 0;
}

/* -- expressions -------------------------------------------------------------------------------- */

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

static int eval_display(struct jrender *r, const struct jnode *n, struct jscope *s, struct jvalue *out)
{
	struct jvalue k, v, all;

	if (n->type == J_DICT ? jv_dict(r, &all) : jv_list(r, &all, n->type == J_LIST ? LIST_LIST : LIST_TUPLE))
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

static int eval_invoke(struct jrender *r, const struct jnode *n, struct jscope *s, const struct jvalue *caller,
		       struct jvalue *out)
{
	struct jvalue f;
	struct jargs a;

	if (jinja_eval(r, n->a, s, &f) || eval_args(r, n, s, &a))
		return -1;
	a.caller = caller ? *caller : jv_undefined("caller");
	r->line = n->line;
	return jinja_call(r, &f, &a, out);
}

static int eval_filter(struct jrender *r, const struct jnode *n, struct jscope *s, struct jvalue *out)
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

static int compare_one(struct jrender *r, enum jop op, const struct jvalue *a, const struct jvalue *b, bool *yes)
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
	*yes = c != 2 && (op == OP_LT ? c < 0 : op == OP_LE ? c <= 0 : op == OP_GT ? c > 0 : c >= 0);
	return 0;
}

static int eval_compare(struct jrender *r, const struct jnode *n, struct jscope *s, struct jvalue *out)
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

static int eval_concat(struct jrender *r, const struct jnode *n, struct jscope *s, struct jvalue *out)
{
	struct jbuf b = { 0 };
	struct jvalue v;

	for (long i = 0; i < n->n; i++) {
		if (jinja_eval(r, n->list[i], s, &v) || jv_print(r, &b, &v))
			return jbuf_release(&b), -1;
	}
	return jbuf_value(r, &b, out);
}

static int eval_logic(struct jrender *r, const struct jnode *n, struct jscope *s, struct jvalue *out)
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

static int eval_arith(struct jrender *r, const struct jnode *n, struct jscope *s, struct jvalue *out)
{
	struct jvalue a, b;

	if (jinja_eval(r, n->a, s, &a))
		return -1;
	if (n->type != J_BINARY) {
		struct jvalue zero = a.type == V_FLOAT ? jv_float(-0.0) : jv_int(0);

		r->line = n->line;
		if (!jv_number(&a))
			return a.type == V_UNDEFINED ? jfail(r, "'%.80s' is undefined", a.s) :
				jfail(r, "bad operand of unary %c: %s", n->type == J_NEG ? '-' : '+', jv_type(&a));
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
	case J_CONST:
		return *out = n->value, 0;
	case J_NAME:
		return *out = scope_get(s, n->name), 0;
	case J_LIST:
	case J_TUPLE:
	case J_DICT:
		return eval_display(r, n, s, out);
	case J_GETATTR:
		if (jinja_eval(r, n->a, s, &o))
			return -1;
		r->line = n->line;
		return jinja_getattr(r, &o, n->name, out);
	case J_GETITEM:
		return eval_item(r, n, s, out);
	case J_INVOKE:
		return eval_invoke(r, n, s, NULL, out);
	case J_FILTER:
		return eval_filter(r, n, s, out);
	case J_TEST:
		return eval_test(r, n, s, out);
	case J_COND:
	case J_NOT:
	case J_AND:
	case J_OR:
		return eval_logic(r, n, s, out);
	case J_NEG:
	case J_POS:
	case J_BINARY:
		return eval_arith(r, n, s, out);
	case J_CONCAT:
		return eval_concat(r, n, s, out);
	case J_COMPARE:
		return eval_compare(r, n, s, out);
	default:
		bug("not an expression: %d", n->type);
	}
}

int jinja_eval(struct jrender *r, const struct jnode *n, struct jscope *s, struct jvalue *out)
{
	int rc;

	r->line = n->line;
	if (deeper(r) || jstep(r, 1))
		return -1;
	rc = eval_node(r, n, s, out);
	r->depth--;
	return rc;
}

/* -- statements --------------------------------------------------------------------------------- */

static int assign(struct jrender *r, const struct jnode *target, struct jscope *s, struct jvalue v)
{
	struct jvalue l, o;

	r->line = target->line;
	if (target->type == J_NAME)
		return scope_set(r, s, target->name, v);
	if (target->type == J_GETATTR) {
		o = scope_get(s, target->a->name);
		if (o.type != V_NAMESPACE)
			return jfail(r, "cannot assign an attribute of a %s: only a namespace() takes one", jv_type(&o));
		if (target->name[0] == '_')
			return jfail(r, "a namespace takes no attribute that begins with an underscore");
		return jv_put(r, o.dict, jv_lit(target->name), v);
	}
	if (jv_iter(r, &v, &l))
		return -1;
	if (l.list->n != target->n)
		return jfail(r, "%ld values to unpack, wanted %ld", l.list->n, target->n);
	for (long i = 0; i < target->n; i++) {
		if (assign(r, target->list[i], s, l.list->v[i]))
			return -1;
	}
	return 0;
}

/* What a body prints, as a string. */
static int capture(struct jrender *r, const struct jnode *body, struct jscope *s, struct jvalue *out)
{
	struct jbuf b = { 0 }, *old = r->out;
	int rc;

	r->out = &b;
	rc = run_list(r, body->list, body->n, s);
	r->out = old;
	if (rc < 0)
		return jbuf_release(&b), -1;
	return jbuf_value(r, &b, out) ? -1 : rc;
}

/* The items that pass the loop's own `if`. */
static int loop_items(struct jrender *r, const struct jnode *n, struct jscope *s, const struct jvalue *from, struct jvalue *items)
{
	struct jvalue all, yes;
	struct jscope *inner;

	if (jv_iter(r, from, &all))
		return -1;
	if (!n->c)
		return *items = all, 0;
	if (jv_list(r, items, LIST_LIST))
		return -1;
	for (long i = 0; i < all.list->n; i++) {
		if (!(inner = scope_new(r, s)) || assign(r, n->a, inner, all.list->v[i]) || jinja_eval(r, n->c, inner, &yes))
			return -1;
		if (jv_true(&yes) && jv_push(r, items, all.list->v[i]))
			return -1;
	}
	return 0;
}

static int run_loop(struct jrender *r, const struct jnode *n, struct jscope *s, const struct jvalue *from, int depth)
{
	struct jvalue items, loop = { .type = V_LOOP };
	struct jscope *inner = NULL;
	int rc = 0;

	if (loop_items(r, n, s, from, &items) || !(loop.loop = jalloc(r, 1, sizeof(*loop.loop))))
		return -1;
	*loop.loop = (struct jloop){ .node = n, .scope = s, .items = items.list, .depth = depth };
	for (long i = 0; i < items.list->n; i++) {
		loop.loop->index = i;
		if ((!inner || inner->kept) && !(inner = scope_new(r, s)))
			return -1;
		inner->vars.n = 0;
		if (assign(r, n->a, inner, items.list->v[i]) || scope_set(r, inner, "loop", loop))
			return -1;
		if ((rc = run_list(r, n->list, n->n, inner)) < 0)
			return -1;
		if (rc == FLOW_BREAK)
			break;
	}
	if (!items.list->n && n->n2)
		return (inner = scope_new(r, s)) ? run_list(r, n->list2, n->n2, inner) : -1;
	return 0;
}

static int run_set_block(struct jrender *r, const struct jnode *n, struct jscope *s)
{
	struct jscope *inner = scope_new(r, s);
	struct jvalue v;
	int rc;

	if (!inner || (rc = capture(r, n->c, inner, &v)) < 0)
		return -1;
	if (rc)
		return rc;
	if (scope_set(r, inner, " body", v) || jinja_eval(r, n->b, inner, &v))
		return -1;
	return n->type == J_SETBLOCK ? assign(r, n->a, s, v) : jv_print(r, r->out, &v);
}

static int run_generation(struct jrender *r, const struct jnode *n, struct jscope *s)
{
	struct jscope *inner = scope_new(r, s);
	struct jbuf b = { 0 }, *old = r->out;
	int rc;

	if (!inner)
		return -1;
	r->out = &b;
	rc = run_list(r, n->c->list, n->c->n, inner);
	r->out = old;
	for (long i = 0, at = 0; rc >= 0 && i < b.nrun; at = (long)b.run[i++].end) {
		if (jbuf_add(r, old, b.s.s + at, b.run[i].end - (size_t)at, b.run[i].tag | TAG_GENERATION, NULL))
			rc = -1;
	}
	jbuf_release(&b);
	return rc;
}

static int run_with(struct jrender *r, const struct jnode *n, struct jscope *s)
{
	struct jscope *inner = scope_new(r, s);
	struct jvalue v;

	if (!inner)
		return -1;
	for (long i = 0; i < n->n2; i++) {
		if (jinja_eval(r, n->list2[i], s, &v) || scope_set(r, inner, n->key[i], v))
			return -1;
	}
	return run_list(r, n->list, n->n, inner);
}

static int run_call(struct jrender *r, const struct jnode *n, struct jscope *s)
{
	struct jvalue caller, v;

	if (macro_new(r, n->b, s, &caller) || eval_invoke(r, n->a, s, &caller, &v))
		return -1;
	return jv_print(r, r->out, &v);
}

static int run_if(struct jrender *r, const struct jnode *n, struct jscope *s)
{
	struct jvalue v;

	for (;;) {
		if (jinja_eval(r, n->a, s, &v))
			return -1;
		if (jv_true(&v))
			return run_list(r, n->list, n->n, s);
		if (n->n2 != 1 || n->list2[0]->type != J_IF)
			return run_list(r, n->list2, n->n2, s);
		n = n->list2[0];
	}
}

static int run_node(struct jrender *r, const struct jnode *n, struct jscope *s)
{
	struct jvalue v;

	switch (n->type) {
	case J_TEXT:
		return jbuf_addv(r, r->out, &n->value);
	case J_PRINT:
		return jinja_eval(r, n->a, s, &v) || jv_print(r, r->out, &v) ? -1 : 0;
	case J_IF:
		return run_if(r, n, s);
	case J_FOR:
		return jinja_eval(r, n->b, s, &v) ? -1 : run_loop(r, n, s, &v, 0);
	case J_SET:
		return jinja_eval(r, n->b, s, &v) ? -1 : assign(r, n->a, s, v);
	case J_SETBLOCK:
	case J_FILTERBLOCK:
		return run_set_block(r, n, s);
	case J_MACRO:
		return macro_new(r, n, s, &v) ? -1 : scope_set(r, s, n->name, v);
	case J_CALL:
		return run_call(r, n, s);
	case J_WITH:
		return run_with(r, n, s);
	case J_BREAK:
		return FLOW_BREAK;
	case J_CONTINUE:
		return FLOW_CONTINUE;
	case J_GENERATION:
		return run_generation(r, n, s);
	default:
		bug("not a statement: %d", n->type);
	}
}

static int run_list(struct jrender *r, struct jnode *const *list, long n, struct jscope *s)
{
	int rc = 0;

	if (deeper(r))
		return -1;
	for (long i = 0; !rc && i < n; i++) {
		r->line = list[i]->line;
		rc = jstep(r, 1) ? -1 : run_node(r, list[i], s);
	}
	r->depth--;
	return rc;
}

int jinja_run(struct jrender *r, const struct jnode *root, struct jscope *s)
{
	return run_list(r, root->list, root->n, s);
}

/* -- calls back in -------------------------------------------------------------------------------- */

int jinja_macro_call(struct jrender *r, struct jmacro *m, const struct jargs *a, struct jvalue *out)
{
	struct jscope *s = scope_new(r, m->scope);
	const struct jnode *n = m->node;

	if (!s)
		return -1;
	for (long i = 0; i < a->n; i++) {
		long at = i;

		if (a->key && a->key[i]) {
			for (at = 0; at < n->n && strcmp(n->key[at], a->key[i]); at++)
				continue;
			if (at == n->n)
				return jfail(r, "macro '%.80s' takes no argument '%.80s'", n->name, a->key[i]);
			if (jv_finds(&s->vars, n->key[at]))
				return jfail(r, "macro '%.80s' got '%.80s' twice", n->name, a->key[i]);
		} else if (at >= n->n) {
			return jfail(r, "macro '%.80s' takes no more than %ld arguments", n->name, n->n);
		}
		if (scope_set(r, s, n->key[at], a->v[i]))
			return -1;
	}
	for (long i = 0; i < n->n; i++) {
		struct jvalue v = jv_undefined(n->key[i]);

		if (jv_finds(&s->vars, n->key[i]))
			continue;
		if ((n->list2[i] && jinja_eval(r, n->list2[i], s, &v)) || scope_set(r, s, n->key[i], v))
			return -1;
	}
	if (a->caller.type == V_MACRO && scope_set(r, s, "caller", a->caller))
		return -1;
	return capture(r, n->c, s, out) < 0 ? -1 : 0;
}

int jinja_loop_call(struct jrender *r, struct jloop *l, const struct jvalue *items, struct jvalue *out)
{
	struct jbuf b = { 0 }, *old = r->out;
	int rc;

	if (!l->node->flag)
		return jfail(r, "loop() is for loops that are marked recursive");
	if (deeper(r))
		return -1;
	r->out = &b;
	rc = run_loop(r, l->node, l->scope, items, l->depth + 1);
	r->out = old;
	r->depth--;
	if (rc < 0)
		return jbuf_release(&b), -1;
	return jbuf_value(r, &b, out);
}

int jinja_loop_attr(struct jrender *r, struct jloop *l, const char *name, struct jvalue *out)
{
	long n = l->items->n, i = l->index;

	(void)r;
	if (!strcmp(name, "index"))
		*out = jv_int(i + 1);
	else if (!strcmp(name, "index0"))
		*out = jv_int(i);
	else if (!strcmp(name, "revindex"))
		*out = jv_int(n - i);
	else if (!strcmp(name, "revindex0"))
		*out = jv_int(n - i - 1);
	else if (!strcmp(name, "first"))
		*out = jv_bool(i == 0);
	else if (!strcmp(name, "last"))
		*out = jv_bool(i == n - 1);
	else if (!strcmp(name, "length"))
		*out = jv_int(n);
	else if (!strcmp(name, "depth"))
		*out = jv_int(l->depth + 1);
	else if (!strcmp(name, "depth0"))
		*out = jv_int(l->depth);
	else if (!strcmp(name, "previtem"))
		*out = i > 0 ? l->items->v[i - 1] : jv_undefined("there is no previous item");
	else if (!strcmp(name, "nextitem"))
		*out = i + 1 < n ? l->items->v[i + 1] : jv_undefined("there is no next item");
	else
		return 1;
	return 0;
}
