#include "libcommon/json.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libcommon/json_index.h"

const struct json *json_get(const struct json *o, const char *key)
{
	return json_get_n(o, key, strlen(key));
}

const struct json *json_path(const struct json *o, const char *path)
{
	for (;;) {
		size_t n = strcspn(path, ".");

		o = json_get_n(o, path, n);
		if (!o || !path[n])
			return o;
		path += n + 1;
	}
}

bool json_is(const struct json *v, enum json_type t)
{
	return v && v->type == t;
}

bool json_is_bool(const struct json *v)
{
	return json_is(v, JSON_TRUE) || json_is(v, JSON_FALSE);
}

bool json_eq_str(const struct json *v, const char *s)
{
	return json_is(v, JSON_STRING) && v->n == strlen(s) && !memcmp(v->text, s, v->n);
}

bool json_equal(const struct json *a, const struct json *b)
{
	if (!a || !b)
		return a == b;
	if (a->type != b->type || a->n != b->n)
		return false;
	switch (a->type) {
	case JSON_NUMBER:
	case JSON_STRING:
		return !memcmp(a->text, b->text, a->n);
	case JSON_ARRAY:
		for (size_t i = 0; i < a->n; i++)
			if (!json_equal(&a->item[i], &b->item[i]))
				return false;
		return true;
	case JSON_OBJECT:
		for (size_t i = 0; i < a->n; i++) {
			const struct json_member *m = &a->member[i];

			if (!json_equal(&m->value, json_get_n(b, m->key, m->keylen)))
				return false;
		}
		return true;
	default:
		return true;
	}
}

const char *json_type_name(const struct json *v)
{
	static const char *const names[] = {
		"null", "false", "true", "a number", "a string", "an array", "an object"
	};

	return v ? names[v->type] : "nothing";
}

static int missing(const struct json_doc *d, const char *what, struct err *e)
{
	return err_set(e, EX_DATAERR, "%s: %s: missing", d->file, what);
}

static int unfit(const struct json_doc *d, const struct json *v, const char *what, const char *wanted, struct err *e)
{
	if (v->type == JSON_NUMBER || v->type == JSON_STRING) {
		const char *q = v->type == JSON_STRING ? "\"" : "";

		return err_set(e, EX_DATAERR, "%s:%d: %s: found %s%.60s%s%s, wanted %s", d->file, v->line, what, q,
			       v->text, v->n > 60 ? "..." : "", q, wanted);
	}
	return err_set(e, EX_DATAERR, "%s:%d: %s: found %s, wanted %s", d->file, v->line, what,
		       json_type_name(v), wanted);
}

static bool whole(const struct json *v)
{
	return v->type == JSON_NUMBER && !v->text[strcspn(v->text, ".eE")];
}

int json_int(const struct json_doc *d, const struct json *v, const char *what, long *out, struct err *e)
{
	if (!v)
		return missing(d, what, e);
	if (!whole(v))
		return unfit(d, v, what, "an integer", e);
	errno = 0;
	*out = strtol(v->text, NULL, 10);
	return errno ? unfit(d, v, what, "an integer of 64 bits", e) : 0;
}

int json_u64(const struct json_doc *d, const struct json *v, const char *what, uint64_t *out, struct err *e)
{
	if (!v)
		return missing(d, what, e);
	if (!whole(v) || v->text[0] == '-')
		return unfit(d, v, what, "an integer from 0", e);
	errno = 0;
	*out = strtoull(v->text, NULL, 10);
	return errno ? unfit(d, v, what, "an integer below 2^64", e) : 0;
}

int json_real(const struct json_doc *d, const struct json *v, const char *what, double *out, struct err *e)
{
	if (!v)
		return missing(d, what, e);
	if (v->type != JSON_NUMBER)
		return unfit(d, v, what, "a number", e);
	*out = strtod(v->text, NULL);
	return isfinite(*out) ? 0 : unfit(d, v, what, "a number in the range of a double", e);
}

int json_bool(const struct json_doc *d, const struct json *v, const char *what, bool *out, struct err *e)
{
	if (!v)
		return missing(d, what, e);
	if (!json_is_bool(v))
		return unfit(d, v, what, "true or false", e);
	*out = v->type == JSON_TRUE;
	return 0;
}

int json_str(const struct json_doc *d, const struct json *v, const char *what, const char **out, struct err *e)
{
	if (!v)
		return missing(d, what, e);
	if (v->type != JSON_STRING)
		return unfit(d, v, what, "a string", e);
	if (strlen(v->text) != v->n)
		return unfit(d, v, what, "a string without \\u0000", e);
	*out = v->text;
	return 0;
}

static bool absent(const struct json **v, const struct json *o, const char *key)
{
	*v = json_get(o, key);
	return !*v || (*v)->type == JSON_NULL;
}

int json_int_or(const struct json_doc *d, const struct json *o, const char *key, long def, long *out, struct err *e)
{
	const struct json *v;

	*out = def;
	return absent(&v, o, key) ? 0 : json_int(d, v, key, out, e);
}

int json_real_or(const struct json_doc *d, const struct json *o, const char *key, double def, double *out,
		 struct err *e)
{
	const struct json *v;

	*out = def;
	return absent(&v, o, key) ? 0 : json_real(d, v, key, out, e);
}

int json_bool_or(const struct json_doc *d, const struct json *o, const char *key, bool def, bool *out, struct err *e)
{
	const struct json *v;

	*out = def;
	return absent(&v, o, key) ? 0 : json_bool(d, v, key, out, e);
}

int json_str_or(const struct json_doc *d, const struct json *o, const char *key, const char *def, const char **out,
		struct err *e)
{
	const struct json *v;

	*out = def;
	return absent(&v, o, key) ? 0 : json_str(d, v, key, out, e);
}
