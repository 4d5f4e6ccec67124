#include "formats/jinja_eval.h"

#include <string.h>

enum { FLOW_BREAK = 1, FLOW_CONTINUE = 2 }; /* beside 0 and -1 */

static int run_list(struct jrender *r, struct jnode *const *list, long n, struct jscope *s);

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

static int assign(struct jrender *r, const struct jnode *target, struct jscope *s, struct jvalue v)
{
	struct jvalue l, o;

	r->line = target->line;
	if (target->type == J_NAME)
		return scope_set(r, s, target->name, v);
	if (target->type == J_GETATTR) {
		o = jscope_get(s, target->a->name);
		if (o.type != V_NAMESPACE)
			return jfail(
				r,
				"cannot assign an attribute of a %s: only a namespace() takes one",
				jv_type(&o));
		if (target->name[0] == '_')
			return jfail(
				r, "a namespace takes no attribute that begins with an underscore");
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
static int capture(struct jrender *r, const struct jnode *body, struct jscope *s,
		   struct jvalue *out)
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
static int loop_items(struct jrender *r, const struct jnode *n, struct jscope *s,
		      const struct jvalue *from, struct jvalue *items)
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
		if (!(inner = scope_new(r, s)) || assign(r, n->a, inner, all.list->v[i]) ||
		    jinja_eval(r, n->c, inner, &yes))
			return -1;
		if (jv_true(&yes) && jv_push(r, items, all.list->v[i]))
			return -1;
	}
	return 0;
}

static int run_loop(struct jrender *r, const struct jnode *n, struct jscope *s,
		    const struct jvalue *from, int depth)
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
		if (jbuf_add(r, old, b.s.s + at, b.run[i].end - (size_t)at,
			     b.run[i].tag | TAG_GENERATION, NULL))
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

	if (macro_new(r, n->b, s, &caller) || jinja_invoke(r, n->a, s, &caller, &v))
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
	case J_TEXT: return jbuf_addv(r, r->out, &n->value);
	case J_PRINT: return jinja_eval(r, n->a, s, &v) || jv_print(r, r->out, &v) ? -1 : 0;
	case J_IF: return run_if(r, n, s);
	case J_FOR: return jinja_eval(r, n->b, s, &v) ? -1 : run_loop(r, n, s, &v, 0);
	case J_SET: return jinja_eval(r, n->b, s, &v) ? -1 : assign(r, n->a, s, v);
	case J_SETBLOCK:
	case J_FILTERBLOCK: return run_set_block(r, n, s);
	case J_MACRO: return macro_new(r, n, s, &v) ? -1 : scope_set(r, s, n->name, v);
	case J_CALL: return run_call(r, n, s);
	case J_WITH: return run_with(r, n, s);
	case J_BREAK: return FLOW_BREAK;
	case J_CONTINUE: return FLOW_CONTINUE;
	case J_GENERATION: return run_generation(r, n, s);
	default: bug("not a statement: %d", n->type);
	}
}

static int run_list(struct jrender *r, struct jnode *const *list, long n, struct jscope *s)
{
	int rc = 0;

	if (jinja_deeper(r))
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
	int rc = run_list(r, root->list, root->n, s);

	return jstep(r, 0) ? -1 : rc;
}

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
				return jfail(r, "macro '%.80s' takes no argument '%.80s'", n->name,
					     a->key[i]);
			if (jv_finds(&s->vars, n->key[at]))
				return jfail(r, "macro '%.80s' got '%.80s' twice", n->name,
					     a->key[i]);
		} else if (at >= n->n) {
			return jfail(r, "macro '%.80s' takes no more than %ld arguments", n->name,
				     n->n);
		}
		if (scope_set(r, s, n->key[at], a->v[i]))
			return -1;
	}
	for (long i = 0; i < n->n; i++) {
		struct jvalue v = jv_undefined(n->key[i]);

		if (jv_finds(&s->vars, n->key[i]))
			continue;
		if ((n->list2[i] && jinja_eval(r, n->list2[i], s, &v)) ||
		    scope_set(r, s, n->key[i], v))
			return -1;
	}
	if (a->caller.type == V_MACRO && scope_set(r, s, "caller", a->caller))
		return -1;
	return capture(r, n->c, s, out) < 0 ? -1 : 0;
}

int jinja_loop_call(struct jrender *r, struct jloop *l, const struct jvalue *items,
		    struct jvalue *out)
{
	struct jbuf b = { 0 }, *old = r->out;
	int rc;

	if (!l->node->flag)
		return jfail(r, "loop() is for loops that are marked recursive");
	if (jinja_deeper(r))
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
