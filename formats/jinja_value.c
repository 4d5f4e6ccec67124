#include "formats/jinja.h"

#include <errno.h>
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

static _Thread_local size_t work;

bool jwork(size_t n)
{
	work += n;
	return work <= 16 * (size_t)JINJA_STEPS;
}

void jwork_reset(void)
{
	work = 0;
}

int jstep(struct jrender *r, long n)
{
	r->steps += n + (long)(work / 16);
	work %= 16;
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

static void run_add(struct jbuf *b, size_t end, int32_t tag)
{
	if (b->nrun && b->run[b->nrun - 1].tag == tag) {
		b->run[b->nrun - 1].end = end;
		return;
	}
	GROW(b->run, b->nrun, b->cap);
	b->run[b->nrun++] = (struct jrun){ end, tag };
}

int jbuf_add(struct jrender *r, struct jbuf *b, const char *s, size_t n, int32_t tag,
	     const int32_t *tags)
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
int jv_from_json(struct jrender *r, struct jvalue *out, const struct json *v, int32_t tag,
		 int depth)
{
	if (depth > JINJA_NESTING)
		return jfail(r, "a value is nested more than %d deep", JINJA_NESTING);
	*out = jv_none();
	switch (v->type) {
	case JSON_NULL: return 0;
	case JSON_FALSE:
	case JSON_TRUE: *out = jv_bool(v->type == JSON_TRUE); return 0;
	case JSON_NUMBER: return from_number(r, out, v);
	case JSON_STRING: *out = jv_str(v->text, v->n, tag); return 0;
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

			if (jv_from_json(r, &x, &v->member[i].value, tag, depth + 1) ||
			    dict_push(r, out->dict, key, x))
				return -1;
		}
		return 0;
	}
	return 0;
}
