#include "libcommon/json.h"

#include <stdio.h>
#include <string.h>

#include "libcommon/utf8.h"

static void line(struct json_out *o)
{
	str_putc(&o->s, '\n');
	for (int i = 0; i < o->depth * o->indent; i++)
		str_putc(&o->s, ' ');
}

/* What stands between the last value and the next one. */
static void before(struct json_out *o)
{
	if (o->after_key) {
		o->after_key = false;
		return;
	}
	if (!o->depth)
		return;
	if (o->comma[o->depth])
		str_puts(&o->s, o->indent == 0 ? ", " : ",");
	o->comma[o->depth] = true;
	if (o->indent > 0)
		line(o);
}

void json_begin(struct json_out *o, char bracket)
{
	before(o);
	if (o->depth + 1 >= JSON_OUT_DEPTH)
		bug("JSON written deeper than %d", JSON_OUT_DEPTH);
	o->depth++;
	o->comma[o->depth] = false;
	o->close[o->depth] = bracket == '{' ? '}' : ']';
	str_putc(&o->s, bracket);
}

void json_end(struct json_out *o)
{
	char close;
	bool some;

	if (!o->depth || o->after_key)
		bug("json_end without json_begin, or after a key");
	close = o->close[o->depth];
	some = o->comma[o->depth];
	o->depth--;
	if (some && o->indent > 0)
		line(o);
	str_putc(&o->s, close);
}

static void quoted(struct str *t, const char *s, size_t n)
{
	static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";

	str_putc(t, '"');
	while (n) {
		const char *at = *s ? strchr(from, *s) : NULL;
		size_t len, run = 0;
		bool good;

		while (run < n && (signed char)s[run] >= 0x20 && s[run] != '"' && s[run] != '\\')
			run++;
		if (run) {
			str_add(t, s, run);
			s += run;
			n -= run;
			continue;
		}
		len = utf8_step(s, n, &good);
		if (at) {
			str_putc(t, '\\');
			str_putc(t, to[at - from]);
		} else if (!good) {
			str_puts(t, "\xef\xbf\xbd");
		} else if (len == 1) {
			str_printf(t, "\\u%04x", (unsigned char)*s);
		} else {
			str_add(t, s, len);
		}
		s += len;
		n -= len;
	}
	str_putc(t, '"');
}

static void key_n(struct json_out *o, const char *key, size_t n)
{
	if (!o->depth || o->close[o->depth] != '}' || o->after_key)
		bug("a JSON key outside an object, or after a key");
	before(o);
	quoted(&o->s, key, n);
	str_puts(&o->s, o->indent < 0 ? ":" : ": ");
	o->after_key = true;
}

void json_key(struct json_out *o, const char *key)
{
	key_n(o, key, strlen(key));
}

static void put_word(struct json_out *o, const char *s)
{
	before(o);
	str_puts(&o->s, s);
}

void json_put_null(struct json_out *o)
{
	put_word(o, "null");
}

void json_put_bool(struct json_out *o, bool v)
{
	put_word(o, v ? "true" : "false");
}

void json_put_int(struct json_out *o, long v)
{
	before(o);
	str_printf(&o->s, "%ld", v);
}

void json_put_u64(struct json_out *o, uint64_t v)
{
	before(o);
	str_printf(&o->s, "%llu", (unsigned long long)v);
}

void json_put_real(struct json_out *o, double v)
{
	char buf[32];

	put_word(o, __builtin_isfinite(v) ? real_repr(buf, v) : "null");
}

void json_put_float(struct json_out *o, float v)
{
	char buf[32];

	put_word(o, __builtin_isfinite(v) ? float_repr(buf, v) : "null");
}

void json_put_strn(struct json_out *o, const char *s, size_t n)
{
	before(o);
	quoted(&o->s, s, n);
}

void json_put_str(struct json_out *o, const char *s)
{
	json_put_strn(o, s, strlen(s));
}

void json_put(struct json_out *o, const struct json *v)
{
	switch (v->type) {
	case JSON_NULL:
		json_put_null(o);
		break;
	case JSON_FALSE:
	case JSON_TRUE:
		json_put_bool(o, v->type == JSON_TRUE);
		break;
	case JSON_NUMBER:
		put_word(o, v->text);
		break;
	case JSON_STRING:
		json_put_strn(o, v->text, v->n);
		break;
	case JSON_ARRAY:
		json_begin(o, '[');
		for (size_t i = 0; i < v->n; i++)
			json_put(o, &v->item[i]);
		json_end(o);
		break;
	case JSON_OBJECT:
		json_begin(o, '{');
		for (size_t i = 0; i < v->n; i++) {
			key_n(o, v->member[i].key, v->member[i].keylen);
			json_put(o, &v->member[i].value);
		}
		json_end(o);
		break;
	}
}

void json_add_int(struct json_out *o, const char *key, long v)
{
	json_key(o, key);
	json_put_int(o, v);
}

void json_add_real(struct json_out *o, const char *key, double v)
{
	json_key(o, key);
	json_put_real(o, v);
}

void json_add_bool(struct json_out *o, const char *key, bool v)
{
	json_key(o, key);
	json_put_bool(o, v);
}

void json_add_str(struct json_out *o, const char *key, const char *s)
{
	json_key(o, key);
	if (s)
		json_put_str(o, s);
	else
		json_put_null(o);
}

void json_out_release(struct json_out *o)
{
	str_release(&o->s);
	memset(o, 0, sizeof(*o));
}
