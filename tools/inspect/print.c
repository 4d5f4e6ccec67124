#include "tools/inspect/inspect.h"

#include "libcommon/utf8.h"

#include <stdio.h>
#include <unistd.h>

/*
 * What a terminal obeys instead of showing it: C0 and C1 controls, DEL, and the marks that turn the
 * direction of a line or break it.
 */
static unsigned control(const char *s, size_t len)
{
	const unsigned char *c = (const unsigned char *)s;
	unsigned u = c[0];

	if (len == 2)
		u = (c[0] & 31u) << 6 | (c[1] & 63u);
	if (len == 3)
		u = (c[0] & 15u) << 12 | (c[1] & 63u) << 6 | (c[2] & 63u);
	if (len > 3)
		return 0;
	if (u < 0x20 || (u >= 0x7f && u < 0xa0) || u == 0x200e || u == 0x200f || u == 0x61c ||
	    (u >= 0x2028 && u <= 0x202e) || (u >= 0x2066 && u <= 0x2069))
		return u ? u : 0x110000;
	return 0;
}

/* \xNN or \uNNNN for what must not reach a terminal; line breaks and tabs stay where `lines` says so. */
void add_safe(struct str *out, const char *s, size_t n, bool lines)
{
	while (n) {
		bool good;
		size_t len = utf8_step(s, n, &good);
		unsigned u = good ? control(s, len) : 0;

		if (!good)
			for (size_t i = 0; i < len; i++)
				str_printf(out, "\\x%02x", (unsigned char)s[i]);
		else if (!u || (lines && (*s == '\n' || *s == '\t')))
			str_add(out, s, len);
		else if (len == 1)
			str_printf(out, "\\x%02x", (unsigned char)*s);
		else
			str_printf(out, "\\u%04x", u);
		s += len;
		n -= len;
	}
}

/* In JSON such characters stand in strings only, where \u says the same. */
void print_json_text(const char *s, size_t n)
{
	size_t from = 0;

	for (size_t i = 0; i < n;) {
		bool good;
		size_t len = utf8_step(s + i, n - i, &good);
		unsigned u = good ? control(s + i, len) : 0;

		if (u >= 0x7f && u < 0x110000) {
			fwrite(s + from, 1, i - from, stdout);
			printf("\\u%04x", u);
			from = i + len;
		}
		i += len;
	}
	fwrite(s + from, 1, n - from, stdout);
}

void print_safe(const char *s, size_t n)
{
	struct str t = { 0 };

	add_safe(&t, s, n, true);
	fwrite(t.s ? t.s : "", 1, t.len, stdout);
	str_release(&t);
}

void print_raw(const char *s, size_t n)
{
	if (isatty(STDOUT_FILENO))
		print_safe(s, n);
	else
		fwrite(s, 1, n, stdout);
	putchar('\n');
}

static bool is_simple(const struct json *v)
{
	return v->type != JSON_ARRAY && v->type != JSON_OBJECT;
}

/* One line; an array of simple values is a list with commas, anything deeper stays JSON. */
static void add_value(struct str *out, const struct json *v)
{
	bool simple = v->type == JSON_ARRAY;

	for (size_t i = 0; simple && i < v->n; i++)
		simple = is_simple(v->item + i);
	if (v->type == JSON_STRING) {
		add_safe(out, v->text, v->n, false);
	} else if (v->type == JSON_NULL) {
		str_puts(out, "none");
	} else if (v->type == JSON_TRUE || v->type == JSON_FALSE) {
		str_puts(out, v->type == JSON_TRUE ? "yes" : "no");
	} else if (simple) {
		for (size_t i = 0; i < v->n; i++) {
			str_puts(out, i ? ", " : "");
			add_value(out, v->item + i);
		}
	} else {
		struct json_out o = { 0 };

		json_put(&o, v);
		add_safe(out, o.s.s, o.s.len, false);
		json_out_release(&o);
	}
}

static void add_object(struct str *out, const struct json *v, int indent)
{
	int wide = 0;

	for (size_t i = 0; i < v->n; i++)
		if (v->member[i].value.type != JSON_OBJECT && (int)v->member[i].keylen > wide)
			wide = v->member[i].keylen < 40 ? (int)v->member[i].keylen : 40;
	for (size_t i = 0; i < v->n; i++) {
		const struct json_member *m = v->member + i;
		struct str key = { 0 };

		add_safe(&key, m->key, m->keylen, false);
		if (m->value.type == JSON_OBJECT) {
			str_printf(out, "%*s%s\n", indent, "", key.s ? key.s : "");
			add_object(out, &m->value, indent + 2);
		} else {
			str_printf(out, "%*s%-*s  ", indent, "", wide, key.s ? key.s : "");
			add_value(out, &m->value);
			str_putc(out, '\n');
		}
		str_release(&key);
	}
}

void print_facts(struct json_out *o, bool json)
{
	if (json) {
		print_json_text(o->s.s, o->s.len);
		putchar('\n');
	} else {
		struct str text = { 0 };
		struct json_doc d;
		struct err e = ERR_INIT;

		if (json_parse(&d, o->s.s, o->s.len, "facts", 1, &e))
			bug("%s", e.msg);
		add_object(&text, &d.root, 0);
		fwrite(text.s ? text.s : "", 1, text.len, stdout);
		str_release(&text);
		json_release(&d);
	}
	json_out_release(o);
}
