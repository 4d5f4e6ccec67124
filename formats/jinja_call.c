#include "formats/jinja_eval.h"

#include <string.h>

#include "formats/jinja_method.h"
#include "formats/jinja_text.h"

enum function { F_RANGE, F_DICT, F_NAMESPACE, F_RAISE, F_STRFTIME };

const struct jvalue *jarg(const struct jargs *a, long i, const char *key)
{
	if (i >= 0 && i < a->n && (!a->key || !a->key[i]))
		return &a->v[i];
	for (long k = 0; key && a->key && k < a->n; k++) {
		if (a->key[k] && !strcmp(a->key[k], key))
			return &a->v[k];
	}
	return NULL;
}

int jarg_int(struct jrender *r, const struct jargs *a, long i, const char *key, long def, long *out)
{
	const struct jvalue *v = jarg(a, i, key);

	*out = def;
	if (!v)
		return 0;
	if (v->type != V_INT && v->type != V_BOOL)
		return jfail(r, "%s: found %s, wanted an integer", key ? key : "argument",
			     jv_type(v));
	*out = v->type == V_BOOL ? v->b : v->i;
	return 0;
}

static int bind_method(struct jrender *r, const struct jvalue *o, const char *name,
		       struct jvalue *out)
{
	*out = (struct jvalue){ .type = V_METHOD };
	if (!(out->method = jalloc(r, 1, sizeof(*out->method))))
		return -1;
	*out->method = (struct jmethod){ *o, name };
	return 0;
}

int jinja_getattr(struct jrender *r, const struct jvalue *o, const char *name, struct jvalue *out)
{
	const struct jvalue *v;

	if (o->type == V_UNDEFINED)
		return jfail(r, "'%.80s' is undefined", o->s);
	if (o->type == V_LOOP) {
		if (!jinja_loop_attr(r, o->loop, name, out))
			return 0;
		if (!strcmp(name, "cycle") || !strcmp(name, "changed"))
			return bind_method(r, o, name, out);
	}
	if (method_of(o, name))
		return bind_method(r, o, name, out);
	v = o->type == V_DICT || o->type == V_NAMESPACE ? jv_finds(o->dict, name) : NULL;
	*out = v ? *v : jv_undefined(name);
	return v ? jstep(r, o->dict->n / 16) : 0;
}

int jinja_getitem(struct jrender *r, const struct jvalue *o, const struct jvalue *key,
		  struct jvalue *out)
{
	const struct jvalue *v;
	long i, n;

	if (o->type == V_UNDEFINED)
		return jfail(r, "'%.80s' is undefined", o->s);
	*out = jv_undefined(key->type == V_STR ? key->s : "an item");
	if (o->type == V_DICT) {
		if (jstep(r, o->dict->n / 16))
			return -1;
		if ((v = jv_find(o->dict, key)))
			return *out = *v, 0;
	}
	if ((key->type == V_INT || key->type == V_BOOL) &&
	    (o->type == V_STR || (o->type == V_LIST && o->list->kind <= LIST_RANGE))) {
		if (jv_len(r, o, &n))
			return -1;
		i = key->type == V_BOOL ? key->b : key->i;
		i += i < 0 ? n : 0;
		if (i < 0 || i >= n)
			return 0;
		if (o->type == V_LIST)
			return *out = o->list->v[i], 0;
		n = (long)utf8_offset(o->s, o->n, i);
		*out = jv_sub(o, (size_t)n, utf8_offset(o->s + n, o->n - (size_t)n, 1));
		return jstep(r, (long)o->n / 256);
	}
	if (key->type == V_STR) {
		char name[64];

		if (key->n >= sizeof(name))
			return 0;
		memcpy(name, key->s, key->n);
		name[key->n] = 0;
		if (method_of(o, name))
			return bind_method(r, o, method_of(o, name)->name, out);
		if (o->type == V_LOOP && !jinja_loop_attr(r, o->loop, name, out))
			return 0;
		if (o->type == V_NAMESPACE && (v = jv_find(o->dict, key)))
			*out = *v;
	}
	return 0;
}

static long clamp(long v, long n, long low, long high)
{
	if (v < 0)
		v = v < -n - 1 ? low : v + n;
	return v < low ? low : v > high ? high : v;
}

int jinja_slice(struct jrender *r, const struct jvalue *o, const struct jvalue part[3],
		struct jvalue *out)
{
	long v[3] = { 0, 0, 1 }, n, from, to;
	struct jvalue l;
	struct jbuf b = { 0 };

	if (o->type == V_UNDEFINED)
		return jfail(r, "'%.80s' is undefined", o->s);
	if (o->type != V_STR && (o->type != V_LIST || o->list->kind > LIST_RANGE))
		return jfail(r, "a %s has no slices", jv_type(o));
	for (int i = 0; i < 3; i++) {
		if (part[i].type == V_INT || part[i].type == V_BOOL)
			v[i] = part[i].type == V_BOOL ? part[i].b : part[i].i;
		else if (part[i].type != V_NONE)
			return jfail(r, "a slice: found %s, wanted an integer", jv_type(&part[i]));
	}
	if (v[2] == 0)
		return jfail(r, "a slice's step is zero");
	if (jv_len(r, o, &n))
		return -1;
	from = part[0].type == V_NONE ? (v[2] > 0 ? 0 : n - 1) :
					clamp(v[0], n, v[2] > 0 ? 0 : -1, v[2] > 0 ? n : n - 1);
	to = part[1].type == V_NONE ? (v[2] > 0 ? n : -1) :
				      clamp(v[1], n, v[2] > 0 ? 0 : -1, v[2] > 0 ? n : n - 1);
	if (o->type == V_STR && v[2] == 1) {
		size_t at = utf8_offset(o->s, o->n, from);

		*out = jv_sub(o, at, to > from ? utf8_offset(o->s + at, o->n - at, to - from) : 0);
		return jstep(r, (long)o->n / 256);
	}
	if (jv_iter(r, o, &l) || (o->type == V_LIST && jv_list(r, out, o->list->kind)))
		return -1;
	if (o->type == V_LIST && o->list->kind == LIST_RANGE) {
		const struct jlist *l0 = o->list;

		out->list->start = l0->start + from * l0->step;
		out->list->stop = l0->start + to * l0->step;
		if (__builtin_mul_overflow(l0->step, v[2], &out->list->step))
			return jfail(r, "an integer is out of range");
	}
	while (v[2] > 0 ? from < to : from > to) {
		if (o->type == V_STR ? jbuf_addv(r, &b, &l.list->v[from]) :
				       jstep(r, 1) || jv_push(r, out, l.list->v[from]))
			return jbuf_release(&b), -1;
		if (__builtin_add_overflow(from, v[2], &from))
			break;
	}
	return o->type == V_STR ? jbuf_value(r, &b, out) : 0;
}

static int call_range(struct jrender *r, const struct jargs *a, struct jvalue *out)
{
	long v[3] = { 0, 0, 1 }, n;

	if (a->n < 1 || a->n > 3)
		return jfail(r, "range: wants 1 to 3 arguments, found %ld", a->n);
	for (long i = 0; i < a->n; i++) {
		if (jarg_int(r, a, i, NULL, 0, &v[i]))
			return -1;
	}
	if (a->n == 1) {
		v[1] = v[0];
		v[0] = 0;
	}
	if (v[2] == 0)
		return jfail(r, "range: the step is zero");
	if (jv_list(r, out, LIST_RANGE))
		return -1;
	out->list->start = v[0];
	out->list->stop = v[1];
	out->list->step = v[2];
	for (n = v[0]; v[2] > 0 ? n < v[1] : n > v[1];) {
		if (out->list->n >= 100000)
			return jfail(r, "range: more than 100000 items");
		if (jv_push(r, out, jv_int(n)))
			return -1;
		if (__builtin_add_overflow(n, v[2], &n))
			break;
	}
	return jstep(r, out->list->n / 16);
}

/* dict(...) and namespace(...): a dict or pairs, then keywords. */
static int call_dict(struct jrender *r, const struct jargs *a, bool namespace, struct jvalue *out)
{
	struct jvalue l;

	if (jv_dict(r, out))
		return -1;
	for (long i = 0; i < a->n; i++) {
		const struct jvalue *v = &a->v[i];

		if (a->key && a->key[i]) {
			if (namespace && a->key[i][0] == '_')
				return jfail(
					r,
					"a namespace takes no attribute that begins with an underscore");
			if (jv_put(r, out->dict, jv_lit(a->key[i]), *v))
				return -1;
		} else if (v->type == V_DICT) {
			for (long k = 0; k < v->dict->n; k++) {
				if (jv_put(r, out->dict, v->dict->key[k], v->dict->value[k]))
					return -1;
			}
		} else {
			if (jv_iter(r, v, &l))
				return -1;
			for (long k = 0; k < l.list->n; k++) {
				struct jvalue pair;

				if (jv_iter(r, &l.list->v[k], &pair))
					return -1;
				if (pair.list->n != 2)
					return jfail(r, "dict: wants pairs");
				if (jv_put(r, out->dict, pair.list->v[0], pair.list->v[1]))
					return -1;
			}
		}
	}
	if (namespace)
		out->type = V_NAMESPACE;
	return 0;
}

static int call_function(struct jrender *r, int f, const struct jargs *a, struct jvalue *out)
{
	const struct jvalue *v = jarg(a, 0, NULL);
	struct jvalue s;

	switch ((enum function)f) {
	case F_RANGE: return call_range(r, a, out);
	case F_DICT:
	case F_NAMESPACE: return call_dict(r, a, f == F_NAMESPACE, out);
	case F_RAISE:
		v = v ? v : jarg(a, -1, "message");
		if (!v || jv_string(r, v, &s))
			return jfail(r, "raise_exception() without a message");
		return jfail(r, "%.*s", (int)(s.n < 800 ? s.n : 800), s.s);
	case F_STRFTIME:
		v = v ? v : jarg(a, -1, "format");
		if (!v || v->type != V_STR)
			return jfail(r, "strftime_now: wants a format");
		return jtext_date(r, v, out);
	}
	return jfail(r, "no such function");
}

static int call_loop_method(struct jrender *r, const struct jmethod *m, const struct jargs *a,
			    struct jvalue *out)
{
	struct jloop *l = m->self.loop;
	struct jvalue now;

	if (m->name[1] == 'y') {
		if (!a->n)
			return jfail(r, "loop.cycle() without arguments");
		*out = a->v[l->index % a->n];
		return 0;
	}
	if (jv_list(r, &now, LIST_TUPLE))
		return -1;
	for (long i = 0; i < a->n; i++) {
		if (jv_push(r, &now, a->v[i]))
			return -1;
	}
	*out = jv_bool(!l->has_changed || !jv_eq(&now, &l->changed));
	l->changed = now;
	l->has_changed = true;
	return 0;
}

int jinja_call(struct jrender *r, const struct jvalue *f, const struct jargs *a, struct jvalue *out)
{
	const struct method *m;

	*out = jv_none();
	switch (f->type) {
	case V_UNDEFINED: return jfail(r, "'%.80s' is undefined", f->s);
	case V_MACRO: return jinja_macro_call(r, f->macro, a, out);
	case V_LOOP:
		return a->n == 1 ? jinja_loop_call(r, f->loop, &a->v[0], out) :
				   jfail(r, "loop() wants one argument");
	case V_FUNCTION: return call_function(r, f->function, a, out);
	case V_METHOD:
		if (f->method->self.type == V_LOOP)
			return call_loop_method(r, f->method, a, out);
		m = method_of(&f->method->self, f->method->name);
		if (a->n > m->most)
			return jfail(r, "%s: wants at most %d arguments, found %ld", m->name,
				     m->most, a->n);
		return m->call(r, f->method, a, out);
	default: return jfail(r, "'%s' object is not callable", jv_type(f));
	}
}

int jinja_globals(struct jrender *r, struct jscope *s)
{
	static const char *const name[] = { "range", "dict", "namespace", "raise_exception",
					    "strftime_now" };

	for (int i = 0; i < (int)(sizeof(name) / sizeof(*name)); i++) {
		struct jvalue f = { .type = V_FUNCTION };

		f.function = i;
		if (jv_put(r, &s->vars, jv_lit(name[i]), f))
			return -1;
	}
	return 0;
}
