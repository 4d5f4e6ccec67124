#include "formats/jinja_method.h"

#include <string.h>

#include "formats/jinja_text.h"

static int arg_str(struct jrender *r, const struct jargs *a, long i, const char *key,
		   const char *what, const struct jvalue **out)
{
	*out = jarg(a, i, key);
	if (!*out || (*out)->type != V_STR)
		return jfail(r, "%s: found %s, wanted a string", what,
			     *out ? jv_type(*out) : "no argument");
	return 0;
}

static int str_strip(struct jrender *r, const struct jmethod *m, const struct jargs *a,
		     struct jvalue *out)
{
	const struct jvalue *chars = jarg(a, 0, NULL);

	if (chars && chars->type == V_NONE)
		chars = NULL;
	if (chars && chars->type != V_STR)
		return jfail(r, "%s: found %s, wanted a string", m->name, jv_type(chars));
	*out = jtext_strip(&m->self, chars, m->name[0] != 'r', m->name[0] != 'l');
	return 0;
}

static int str_split(struct jrender *r, const struct jmethod *m, const struct jargs *a,
		     struct jvalue *out)
{
	const struct jvalue *sep = jarg(a, 0, "sep");
	long max;

	if (sep && sep->type == V_NONE)
		sep = NULL;
	if (sep && sep->type != V_STR)
		return jfail(r, "%s: found %s, wanted a string", m->name, jv_type(sep));
	if (jarg_int(r, a, 1, "maxsplit", -1, &max))
		return -1;
	return jtext_split(r, &m->self, sep, max, m->name[0] == 'r', out);
}

static int str_splitlines(struct jrender *r, const struct jmethod *m, const struct jargs *a,
			  struct jvalue *out)
{
	const struct jvalue *s = &m->self, *keep = jarg(a, 0, "keepends");
	size_t from = 0;

	if (jv_list(r, out, LIST_LIST))
		return -1;
	while (from < s->n) {
		size_t end = from, brk = 0;

		while (end < s->n && !(brk = jtext_break(s->s + end, s->n - end)))
			end++;
		if (jstep(r, 1) ||
		    jv_push(r, out,
			    jv_sub(s, from, end - from + (keep && jv_true(keep) ? brk : 0))))
			return -1;
		from = end + brk;
	}
	return 0;
}

static int str_replace(struct jrender *r, const struct jmethod *m, const struct jargs *a,
		       struct jvalue *out)
{
	const struct jvalue *from, *to;
	long count;

	if (arg_str(r, a, 0, NULL, "replace", &from) || arg_str(r, a, 1, NULL, "replace", &to) ||
	    jarg_int(r, a, 2, "count", -1, &count))
		return -1;
	return jtext_replace(r, &m->self, from, to, count, out);
}

static bool has_affix(const struct jvalue *s, const struct jvalue *part, bool end)
{
	return part->type == V_STR && part->n <= s->n &&
	       !memcmp(s->s + (end ? s->n - part->n : 0), part->s, part->n);
}

static int str_affix(struct jrender *r, const struct jmethod *m, const struct jargs *a,
		     struct jvalue *out)
{
	const struct jvalue *part = jarg(a, 0, NULL);
	bool end = m->name[0] == 'e', yes = false;

	if (part && part->type == V_LIST && part->list->kind == LIST_TUPLE) {
		for (long i = 0; i < part->list->n; i++)
			yes |= has_affix(&m->self, &part->list->v[i], end);
	} else if (arg_str(r, a, 0, NULL, m->name, &part)) {
		return -1;
	} else {
		yes = has_affix(&m->self, part, end);
	}
	*out = jv_bool(yes);
	return 0;
}

static int str_remove(struct jrender *r, const struct jmethod *m, const struct jargs *a,
		      struct jvalue *out)
{
	bool end = m->name[6] == 's';
	const struct jvalue *part;

	if (arg_str(r, a, 0, NULL, m->name, &part))
		return -1;
	*out = m->self;
	if (has_affix(&m->self, part, end))
		*out = jv_sub(&m->self, end ? 0 : part->n, m->self.n - part->n);
	return 0;
}

static int str_case(struct jrender *r, const struct jmethod *m, const struct jargs *a,
		    struct jvalue *out)
{
	enum jcase how = m->name[0] == 'u' ? CASE_UPPER :
			 m->name[0] == 'l' ? CASE_LOWER :
			 m->name[0] == 't' ? CASE_TITLE :
					     CASE_CAPITALIZE;

	(void)a;
	return jtext_case(r, &m->self, how, out);
}

static int str_find(struct jrender *r, const struct jmethod *m, const struct jargs *a,
		    struct jvalue *out)
{
	bool last = m->name[0] == 'r';
	const struct jvalue *what;
	long at;

	if (arg_str(r, a, 0, NULL, m->name, &what) || jstep(r, (long)(m->self.n / 64)))
		return -1;
	at = jtext_find(&m->self, what, last);
	if (at < 0 && m->name[last] == 'i')
		return jfail(r, "%s: substring not found", m->name);
	*out = jv_int(at < 0 ? -1 : utf8_count(m->self.s, (size_t)at));
	return 0;
}

static int str_count(struct jrender *r, const struct jmethod *m, const struct jargs *a,
		     struct jvalue *out)
{
	const struct jvalue *what;
	struct jvalue rest = m->self;
	long n = 0, at;

	if (arg_str(r, a, 0, NULL, "count", &what))
		return -1;
	if (!what->n)
		return *out = jv_int(utf8_count(rest.s, rest.n) + 1), 0;
	while ((at = jtext_find(&rest, what, false)) >= 0) {
		rest = jv_sub(&rest, (size_t)at + what->n, rest.n - (size_t)at - what->n);
		n++;
	}
	*out = jv_int(n);
	return 0;
}

static int str_join(struct jrender *r, const struct jmethod *m, const struct jargs *a,
		    struct jvalue *out)
{
	const struct jvalue *of = jarg(a, 0, NULL);
	struct jbuf b = { 0 };
	struct jvalue l;

	if (!of)
		return jfail(r, "join: no argument");
	if (jv_iter(r, of, &l))
		return -1;
	for (long i = 0; i < l.list->n; i++) {
		int rc = l.list->v[i].type == V_STR ? 0 :
						      jfail(r, "join: found %s, wanted a string",
							    jv_type(&l.list->v[i]));

		if (rc || (i && jbuf_addv(r, &b, &m->self)) || jbuf_addv(r, &b, &l.list->v[i]))
			return jbuf_release(&b), -1;
	}
	return jbuf_value(r, &b, out);
}

static int str_partition(struct jrender *r, const struct jmethod *m, const struct jargs *a,
			 struct jvalue *out)
{
	bool last = m->name[0] == 'r';
	const struct jvalue *sep, *s = &m->self;
	struct jvalue none = jv_lit("");
	long at;
	size_t k;

	if (arg_str(r, a, 0, NULL, m->name, &sep) || jv_list(r, out, LIST_TUPLE))
		return -1;
	at = jtext_find(s, sep, last);
	if (at < 0)
		return jv_push(r, out, last ? none : *s) || jv_push(r, out, none) ||
				       jv_push(r, out, last ? *s : none) ?
			       -1 :
			       0;
	k = (size_t)at;
	return jv_push(r, out, jv_sub(s, 0, k)) || jv_push(r, out, jv_sub(s, k, sep->n)) ||
			       jv_push(r, out, jv_sub(s, k + sep->n, s->n - k - sep->n)) ?
		       -1 :
		       0;
}

static int str_is(struct jrender *r, const struct jmethod *m, const struct jargs *a,
		  struct jvalue *out)
{
	const struct jvalue *s = &m->self;
	bool yes = s->n > 0;
	int32_t c;

	(void)r;
	(void)a;
	if (!strcmp(m->name, "isupper") || !strcmp(m->name, "islower"))
		return *out = jv_bool(jtext_all_case(s, m->name[2] == 'u')), 0;
	for (size_t i = 0; yes && i < s->n; i += jinja_utf8_get(s->s + i, s->n - i, &c)) {
		jinja_utf8_get(s->s + i, s->n - i, &c);
		yes = m->name[2] == 's' ? uni_space(c) : jtext_class(c, m->name + 2);
	}
	*out = jv_bool(yes);
	return 0;
}

static int dict_get(struct jrender *r, const struct jmethod *m, const struct jargs *a,
		    struct jvalue *out)
{
	const struct jvalue *key = jarg(a, 0, NULL), *def = jarg(a, 1, NULL), *v;

	if (!key)
		return jfail(r, "get: no argument");
	v = jv_find(m->self.dict, key);
	*out = v ? *v : def ? *def : jv_none();
	return jstep(r, 1 + m->self.dict->n / 16);
}

static int dict_view(struct jrender *r, const struct jmethod *m, const struct jargs *a,
		     struct jvalue *out)
{
	const struct jdict *d = m->self.dict;
	enum jlist_kind kind = m->name[0] == 'k' ? LIST_KEYS :
			       m->name[0] == 'v' ? LIST_VALUES :
						   LIST_ITEMS;

	(void)a;
	if (jv_list(r, out, kind))
		return -1;
	for (long i = 0; i < d->n; i++) {
		struct jvalue pair = kind == LIST_KEYS ? d->key[i] : d->value[i];

		if (kind == LIST_ITEMS &&
		    (jv_list(r, &pair, LIST_TUPLE) || jv_push(r, &pair, d->key[i]) ||
		     jv_push(r, &pair, d->value[i])))
			return -1;
		if (jstep(r, 1) || jv_push(r, out, pair))
			return -1;
	}
	return 0;
}

static int list_append(struct jrender *r, const struct jmethod *m, const struct jargs *a,
		       struct jvalue *out)
{
	const struct jvalue *v = jarg(a, 0, NULL);

	*out = jv_none();
	return v ? jv_push(r, &m->self, *v) : jfail(r, "append: no argument");
}

static int list_pop(struct jrender *r, const struct jmethod *m, const struct jargs *a,
		    struct jvalue *out)
{
	struct jlist *l = m->self.list;
	long at;

	if (jarg_int(r, a, 0, NULL, -1, &at))
		return -1;
	if (at < 0)
		at += l->n;
	if (at < 0 || at >= l->n)
		return jfail(r, "pop: index out of range");
	*out = l->v[at];
	l->n--;
	for (; at < l->n; at++)
		l->v[at] = l->v[at + 1];
	return 0;
}

static int list_index(struct jrender *r, const struct jmethod *m, const struct jargs *a,
		      struct jvalue *out)
{
	const struct jvalue *v = jarg(a, 0, NULL);
	long n = 0, first = -1;

	for (long i = 0; v && i < m->self.list->n; i++) {
		if (!jv_eq(&m->self.list->v[i], v))
			continue;
		n++;
		if (first < 0)
			first = i;
	}
	if (jstep(r, 1 + m->self.list->n / 16))
		return -1;
	if (m->name[0] == 'i' && first < 0)
		return jfail(r, "index: no such item");
	*out = jv_int(m->name[0] == 'i' ? first : n);
	return 0;
}

static int no_method(struct jrender *r, const struct jmethod *m, const struct jargs *a,
		     struct jvalue *out)
{
	(void)a;
	(void)out;
	return jfail(r, "%s.%s() is not allowed in a template", jv_type(&m->self), m->name);
}

static const struct method methods[] = {
	{ V_STR, "strip", str_strip, 1 },
	{ V_STR, "lstrip", str_strip, 1 },
	{ V_STR, "rstrip", str_strip, 1 },
	{ V_STR, "split", str_split, 2 },
	{ V_STR, "rsplit", str_split, 2 },
	{ V_STR, "splitlines", str_splitlines, 1 },
	{ V_STR, "replace", str_replace, 3 },
	{ V_STR, "startswith", str_affix, 1 },
	{ V_STR, "endswith", str_affix, 1 },
	{ V_STR, "removeprefix", str_remove, 1 },
	{ V_STR, "removesuffix", str_remove, 1 },
	{ V_STR, "upper", str_case, 0 },
	{ V_STR, "lower", str_case, 0 },
	{ V_STR, "title", str_case, 0 },
	{ V_STR, "capitalize", str_case, 0 },
	{ V_STR, "find", str_find, 1 },
	{ V_STR, "rfind", str_find, 1 },
	{ V_STR, "index", str_find, 1 },
	{ V_STR, "rindex", str_find, 1 },
	{ V_STR, "count", str_count, 1 },
	{ V_STR, "join", str_join, 1 },
	{ V_STR, "partition", str_partition, 1 },
	{ V_STR, "rpartition", str_partition, 1 },
	{ V_STR, "isdigit", str_is, 0 },
	{ V_STR, "isalpha", str_is, 0 },
	{ V_STR, "isalnum", str_is, 0 },
	{ V_STR, "isspace", str_is, 0 },
	{ V_STR, "isupper", str_is, 0 },
	{ V_STR, "islower", str_is, 0 },
	{ V_DICT, "get", dict_get, 2 },
	{ V_DICT, "items", dict_view, 0 },
	{ V_DICT, "keys", dict_view, 0 },
	{ V_DICT, "values", dict_view, 0 },
	{ V_DICT, "pop", no_method, 9 },
	{ V_DICT, "update", no_method, 9 },
	{ V_DICT, "clear", no_method, 9 },
	{ V_DICT, "popitem", no_method, 9 },
	{ V_DICT, "setdefault", no_method, 9 },
	{ V_DICT, "copy", no_method, 9 },
	{ V_DICT, "fromkeys", no_method, 9 },
	{ V_LIST, "append", list_append, 1 },
	{ V_LIST, "pop", list_pop, 1 },
	{ V_LIST, "index", list_index, 1 },
	{ V_LIST, "count", list_index, 1 },
	{ V_LIST, "insert", no_method, 9 },
	{ V_LIST, "extend", no_method, 9 },
	{ V_LIST, "remove", no_method, 9 },
	{ V_LIST, "sort", no_method, 9 },
	{ V_LIST, "clear", no_method, 9 },
	{ V_LIST, "copy", no_method, 9 },
	{ V_LIST, "reverse", no_method, 9 },
};

const struct method *method_of(const struct jvalue *o, const char *name)
{
	bool plain = o->type != V_LIST || o->list->kind == LIST_LIST;
	bool sequence = o->type == V_LIST && o->list->kind <= LIST_RANGE;

	for (size_t i = 0; i < sizeof(methods) / sizeof(*methods); i++) {
		const struct method *m = &methods[i];

		if (m->of == o->type && !strcmp(m->name, name) && 
		    (plain || (sequence && m->call == list_index)))
			return m;
	}
	return NULL;
}
