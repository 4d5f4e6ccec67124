#include "formats/jinja_text.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <utf8proc.h>

static int too_deep(struct jrender *r, int depth)
{
	return depth > JINJA_NESTING ?
		       jfail(r, "a value is nested more than %d deep", JINJA_NESTING) :
		       jstep(r, 1);
}

static int put_real(struct jrender *r, struct jbuf *b, double v, const char *nan, const char *inf,
		    const char *minus_inf)
{
	char buf[32];

	if (isnan(v))
		return jbuf_puts(r, b, nan);
	if (isinf(v))
		return jbuf_puts(r, b, v > 0 ? inf : minus_inf);
	return jbuf_puts(r, b, real_repr(buf, v));
}

static int put_int(struct jrender *r, struct jbuf *b, long v)
{
	char buf[32];

	snprintf(buf, sizeof(buf), "%ld", v);
	return jbuf_puts(r, b, buf);
}

static bool printable(int32_t c)
{
	switch (utf8proc_category(c)) {
	case UTF8PROC_CATEGORY_CC:
	case UTF8PROC_CATEGORY_CF:
	case UTF8PROC_CATEGORY_CS:
	case UTF8PROC_CATEGORY_CO:
	case UTF8PROC_CATEGORY_CN:
	case UTF8PROC_CATEGORY_ZL:
	case UTF8PROC_CATEGORY_ZP: return false;
	case UTF8PROC_CATEGORY_ZS: return c == ' ';
	default: return true;
	}
}

static int repr_str(struct jrender *r, struct jbuf *b, const struct jvalue *v)
{
	bool dbl = memchr(v->s, '\'', v->n) && !memchr(v->s, '"', v->n);
	char quote[2] = { dbl ? '"' : '\'', 0 }, esc[16];
	int32_t c;
	int rc = v->markup ? jbuf_puts(r, b, "Markup(") : 0;

	rc = rc || jbuf_puts(r, b, quote) ? -1 : 0;
	for (size_t i = 0, k; !rc && i < v->n; i += k) {
		int32_t tag = v->tags ? v->tags[i] : v->tag;

		k = jinja_utf8_get(v->s + i, v->n - i, &c);
		if (c == quote[0] || c == '\\')
			snprintf(esc, sizeof(esc), "\\%c", (char)c);
		else if (c == '\n' || c == '\r' || c == '\t')
			snprintf(esc, sizeof(esc), "\\%c", c == '\n' ? 'n' : c == '\r' ? 'r' : 't');
		else if (printable(c)) {
			rc = jbuf_add(r, b, v->s + i, k, tag, NULL);
			continue;
		} else
			snprintf(esc, sizeof(esc),
				 c < 0x100   ? "\\x%02x" :
				 c < 0x10000 ? "\\u%04x" :
					       "\\U%08x",
				 (unsigned)c);
		rc = jbuf_add(r, b, esc, strlen(esc), tag, NULL);
	}
	return rc || jbuf_puts(r, b, quote) || (v->markup && jbuf_puts(r, b, ")")) ? -1 : 0;
}

static int repr_range(struct jrender *r, struct jbuf *b, const struct jlist *l)
{
	char buf[100];

	if (l->step == 1)
		snprintf(buf, sizeof(buf), "range(%ld, %ld)", l->start, l->stop);
	else
		snprintf(buf, sizeof(buf), "range(%ld, %ld, %ld)", l->start, l->stop, l->step);
	return jbuf_puts(r, b, buf);
}

static int repr_list(struct jrender *r, struct jbuf *b, const struct jlist *l, int depth)
{
	static const char *const open[] = { "[",           "(", "", "dict_keys([", "dict_values([",
					    "dict_items([" };
	static const char *const close[] = { "]", ")", "", "])", "])", "])" };

	if (l->kind == LIST_GENERATOR)
		return jfail(r, "a generator is printed as it is; |list turns it into its items");
	if (l->kind == LIST_RANGE)
		return repr_range(r, b, l);
	if (jbuf_puts(r, b, open[l->kind]))
		return -1;
	for (long i = 0; i < l->n; i++) {
		if ((i && jbuf_puts(r, b, ", ")) || jv_repr(r, b, &l->v[i], depth + 1))
			return -1;
	}
	return (l->kind == LIST_TUPLE && l->n == 1 && jbuf_puts(r, b, ",")) ||
			       jbuf_puts(r, b, close[l->kind]) ?
		       -1 :
		       0;
}

static int repr_dict(struct jrender *r, struct jbuf *b, const struct jdict *d, int depth)
{
	if (jbuf_puts(r, b, "{"))
		return -1;
	for (long i = 0; i < d->n; i++) {
		if ((i && jbuf_puts(r, b, ", ")) || jv_repr(r, b, &d->key[i], depth + 1) ||
		    jbuf_puts(r, b, ": ") || jv_repr(r, b, &d->value[i], depth + 1))
			return -1;
	}
	return jbuf_puts(r, b, "}");
}

int jv_repr(struct jrender *r, struct jbuf *b, const struct jvalue *v, int depth)
{
	if (too_deep(r, depth))
		return -1;
	switch (v->type) {
	case V_UNDEFINED: return jbuf_puts(r, b, depth ? "Undefined" : "");
	case V_NONE: return jbuf_puts(r, b, "None");
	case V_BOOL: return jbuf_puts(r, b, v->b ? "True" : "False");
	case V_INT: return put_int(r, b, v->i);
	case V_FLOAT: return put_real(r, b, v->f, "nan", "inf", "-inf");
	case V_BIG: return jbuf_add(r, b, v->s, v->n, TAG_TEMPLATE, NULL);
	case V_STR: return repr_str(r, b, v);
	case V_LIST: return repr_list(r, b, v->list, depth);
	case V_DICT: return repr_dict(r, b, v->dict, depth);
	default: return jfail(r, "a %s has no text of its own", jv_type(v));
	}
}

int jv_print(struct jrender *r, struct jbuf *b, const struct jvalue *v)
{
	return v->type == V_STR ? jbuf_addv(r, b, v) : jv_repr(r, b, v, 0);
}

int jv_string(struct jrender *r, const struct jvalue *v, struct jvalue *out)
{
	struct jbuf b = { 0 };

	if (v->type == V_STR) {
		*out = *v;
		return 0;
	}
	if (jv_repr(r, &b, v, 0))
		return jbuf_release(&b), -1;
	return jbuf_value(r, &b, out);
}

static int put_json_escape(struct jrender *r, struct jbuf *b, int32_t c, int32_t tag)
{
	static const char from[] = "\"\\\n\r\t\b\f", to[] = "\"\\nrtbf";
	const char *p = c > 0 && c < 0x80 ? strchr(from, (int)c) : NULL;
	char esc[16];

	if (p)
		snprintf(esc, sizeof(esc), "\\%c", to[p - from]);
	else if (c < 0x10000)
		snprintf(esc, sizeof(esc), "\\u%04x", (unsigned)c);
	else
		snprintf(esc, sizeof(esc), "\\u%04x\\u%04x",
			 0xD800u + ((unsigned)(c - 0x10000) >> 10),
			 0xDC00u + ((unsigned)(c - 0x10000) & 0x3FF));
	return jbuf_add(r, b, esc, strlen(esc), tag, NULL);
}

static int put_json_str(struct jrender *r, struct jbuf *b, const struct jvalue *v, bool ascii)
{
	int rc = jbuf_puts(r, b, "\"");
	size_t from = 0;
	int32_t c;

	for (size_t i = 0, k; !rc && i < v->n; i += k) {
		struct jvalue plain;

		k = jinja_utf8_get(v->s + i, v->n - i, &c);
		if (c >= 0x20 && c != '"' && c != '\\' && (!ascii || c < 0x7F || c == 0x7F))
			continue;
		plain = jv_sub(v, from, i - from);
		rc = jbuf_addv(r, b, &plain) ||
				     put_json_escape(r, b, c, v->tags ? v->tags[i] : v->tag) ?
			     -1 :
			     0;
		from = i + k;
	}
	if (!rc) {
		struct jvalue plain = jv_sub(v, from, v->n - from);

		rc = jbuf_addv(r, b, &plain);
	}
	return rc || jbuf_puts(r, b, "\"") ? -1 : 0;
}

static int newline(struct jrender *r, struct jbuf *b, const struct jvalue *indent, int depth)
{
	if (!indent || indent->type == V_NONE)
		return 0;
	if (jbuf_puts(r, b, "\n"))
		return -1;
	for (int i = 0; i < depth; i++) {
		if (indent->type == V_STR && jbuf_addv(r, b, indent))
			return -1;
		for (long j = 0; indent->type == V_INT && j < indent->i; j++) {
			if (jbuf_puts(r, b, " "))
				return -1;
		}
	}
	return 0;
}

static int separator(struct jrender *r, struct jbuf *b, const struct jvalue *separators, int which,
		     const char *def)
{
	if (!separators)
		return jbuf_puts(r, b, def);
	return jbuf_addv(r, b, &separators->list->v[which]);
}

static int json_key_of(struct jrender *r, struct jbuf *b, const struct jvalue *k, bool ascii)
{
	if (k->type == V_STR)
		return put_json_str(r, b, k, ascii);
	if (k->type > V_BIG || k->type == V_UNDEFINED)
		return jfail(r, "tojson: keys must be strings, numbers or none, found %s",
			     jv_type(k));
	return jbuf_puts(r, b, "\"") || jv_json(r, b, k, NULL, ascii, false, NULL, 0) ||
			       jbuf_puts(r, b, "\"") ?
		       -1 :
		       0;
}

/* The places of d's keys in the order of writing. */
static int key_order(struct jrender *r, const struct jdict *d, bool sort, long **order)
{
	if (!(*order = jalloc(r, (size_t)d->n, sizeof(**order))))
		return -1;
	for (long i = 0; i < d->n; i++) {
		long j = i, at = i;
		int c;

		for (; sort && j > 0; j--) {
			if (jv_cmp(r, &d->key[(*order)[j - 1]], &d->key[at], &c))
				return -1;
			if (c <= 0)
				break;
			(*order)[j] = (*order)[j - 1];
		}
		(*order)[j] = at;
	}
	return 0;
}

int jv_json(struct jrender *r, struct jbuf *b, const struct jvalue *v, const struct jvalue *indent,
	    bool ascii, bool sort, const struct jvalue *separators, int depth)
{
	const char *comma = indent && indent->type != V_NONE ? "," : ", ";
	bool dict = v->type == V_DICT;
	long n = dict ? v->dict->n : v->type == V_LIST ? v->list->n : 0, *order = NULL;

	if (too_deep(r, depth))
		return -1;
	switch (v->type) {
	case V_NONE: return jbuf_puts(r, b, "null");
	case V_BOOL: return jbuf_puts(r, b, v->b ? "true" : "false");
	case V_FLOAT: return put_real(r, b, v->f, "NaN", "Infinity", "-Infinity");
	case V_STR: return put_json_str(r, b, v, ascii);
	case V_INT:
	case V_BIG: return jv_repr(r, b, v, 0);
	case V_DICT: break;
	case V_LIST:
		if (v->list->kind <= LIST_TUPLE)
			break;
		/* fall through */
	default:
		return jfail(r, "tojson: a %s%s is not JSON serializable", jv_type(v),
			     v->type == V_UNDEFINED ? " value" : "");
	}
	if (!n)
		return jbuf_puts(r, b, dict ? "{}" : "[]");
	if (dict && key_order(r, v->dict, sort, &order))
		return -1;
	if (jbuf_puts(r, b, dict ? "{" : "["))
		return -1;
	for (long i = 0; i < n; i++) {
		if ((i && separator(r, b, separators, 0, comma)) ||
		    newline(r, b, indent, depth + 1))
			return -1;
		if (dict && (json_key_of(r, b, &v->dict->key[order[i]], ascii) ||
			     separator(r, b, separators, 1, ": ")))
			return -1;
		if (jv_json(r, b, dict ? &v->dict->value[order[i]] : &v->list->v[i], indent, ascii,
			    sort, separators, depth + 1))
			return -1;
	}
	return newline(r, b, indent, depth) || jbuf_puts(r, b, dict ? "}" : "]") ? -1 : 0;
}
