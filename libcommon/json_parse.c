#include "libcommon/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libcommon/file.h"
#include "libcommon/json_index.h"
#include "libcommon/utf8.h"

struct parser {
	const char *p, *end;
	const char *file;
	int line;
	int depth;
	struct arena *arena;
	char *out;                      /* where the next decoded text goes */
	struct json_member *stack;      /* members of the containers that are open; owned */
	size_t n, cap;
	struct err *e;
};

static int value(struct parser *ps, struct json *v);

static int wrong(struct parser *ps, const char *wanted)
{
	unsigned char c = ps->p < ps->end ? (unsigned char)*ps->p : 0;
	char found[32];

	if (ps->p >= ps->end)
		snprintf(found, sizeof(found), "the end of the text");
	else if (c > 0x20 && c < 0x7f)
		snprintf(found, sizeof(found), "'%c'", c);
	else
		snprintf(found, sizeof(found), "byte 0x%02x", c);
	return err_set(ps->e, EX_DATAERR, "%s:%d: found %s, wanted %s", ps->file, ps->line, found, wanted);
}

static int refuse(struct parser *ps, const char *what, const char *wanted)
{
	return err_set(ps->e, EX_DATAERR, "%s:%d: found %s, wanted %s", ps->file, ps->line, what, wanted);
}

static void blanks(struct parser *ps)
{
	for (; ps->p < ps->end; ps->p++) {
		if (*ps->p == '\n')
			ps->line++;
		else if (*ps->p != ' ' && *ps->p != '\t' && *ps->p != '\r')
			return;
	}
}

static int hex4(struct parser *ps, unsigned *c)
{
	*c = 0;
	for (int i = 0; i < 4; i++, ps->p++) {
		int d = ps->p < ps->end ? *ps->p : 0;

		if (d >= '0' && d <= '9')
			d -= '0';
		else if ((d | 32) >= 'a' && (d | 32) <= 'f')
			d = (d | 32) - 'a' + 10;
		else
			return wrong(ps, "four hexadecimal digits after \\u");
		*c = *c << 4 | (unsigned)d;
	}
	return 0;
}

static int unicode_escape(struct parser *ps)
{
	unsigned c, low;

	if (hex4(ps, &c))
		return -1;
	if (c >= 0xdc00 && c < 0xe000)
		return refuse(ps, "a low surrogate alone", "a pair of surrogates");
	if (c >= 0xd800 && c < 0xdc00) {
		if (ps->end - ps->p < 2 || ps->p[0] != '\\' || ps->p[1] != 'u')
			return refuse(ps, "a high surrogate alone", "a pair of surrogates");
		ps->p += 2;
		if (hex4(ps, &low))
			return -1;
		if (low < 0xdc00 || low >= 0xe000)
			return refuse(ps, "a high surrogate alone", "a pair of surrogates");
		c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
	}
	ps->out += utf8_put(ps->out, c);
	return 0;
}

static int escape(struct parser *ps)
{
	static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
	const char *at;

	ps->p++;
	if (ps->p < ps->end && *ps->p == 'u') {
		ps->p++;
		return unicode_escape(ps);
	}
	at = ps->p < ps->end && *ps->p ? strchr(from, *ps->p) : NULL;
	if (!at)
		return wrong(ps, "one of \"\\/bfnrtu after a backslash");
	*ps->out++ = to[at - from];
	ps->p++;
	return 0;
}

/* Copies bytes that need no thought, eight at a time; may write past `out` by 8. */
static void plain(struct parser *ps)
{
	const uint64_t ones = 0x0101010101010101u, high = ones << 7;

	while (ps->end - ps->p >= 8) {
		uint64_t w, quote, slash;

		memcpy(&w, ps->p, 8);
		quote = w ^ ones * '"';
		slash = w ^ ones * '\\';
		if (((w - ones * 0x20) | (quote - ones) | (slash - ones) | w) & high)
			break;
		memcpy(ps->out, &w, 8);
		ps->out += 8;
		ps->p += 8;
	}
	while (ps->p < ps->end && (signed char)*ps->p >= 0x20 && *ps->p != '"' && *ps->p != '\\')
		*ps->out++ = *ps->p++;
}

/* At the opening quote. */
static int string(struct parser *ps, const char **text, size_t *n)
{
	*text = ps->out;
	ps->p++;
	for (;;) {
		size_t len;
		bool good;

		plain(ps);
		if (ps->p >= ps->end)
			return wrong(ps, "a closing '\"'");
		if (*ps->p == '"')
			break;
		if (*ps->p == '\\') {
			if (escape(ps))
				return -1;
			continue;
		}
		len = utf8_step(ps->p, (size_t)(ps->end - ps->p), &good);
		if (!good)
			return wrong(ps, "valid UTF-8");
		if (len == 1)
			return wrong(ps, "control characters written as \\u00XX");
		memcpy(ps->out, ps->p, len);
		ps->out += len;
		ps->p += len;
	}
	ps->p++;
	*n = (size_t)(ps->out - *text);
	*ps->out++ = 0;
	return 0;
}

static bool digit(const struct parser *ps)
{
	return ps->p < ps->end && *ps->p >= '0' && *ps->p <= '9';
}

static int digits(struct parser *ps)
{
	if (!digit(ps))
		return wrong(ps, "a digit");
	while (digit(ps))
		ps->p++;
	return 0;
}

static int number(struct parser *ps, struct json *v)
{
	const char *start = ps->p;

	v->type = JSON_NUMBER;
	if (*ps->p == '-')
		ps->p++;
	if (ps->p < ps->end && *ps->p == '0') {
		ps->p++;
		if (digit(ps))
			return refuse(ps, "a number with a leading zero", "none");
	} else if (digits(ps)) {
		return -1;
	}
	if (ps->p < ps->end && *ps->p == '.') {
		ps->p++;
		if (digits(ps))
			return -1;
	}
	if (ps->p < ps->end && (*ps->p | 32) == 'e') {
		ps->p++;
		if (ps->p < ps->end && (*ps->p == '+' || *ps->p == '-'))
			ps->p++;
		if (digits(ps))
			return -1;
	}
	v->n = (size_t)(ps->p - start);
	v->text = memcpy(ps->out, start, v->n);
	ps->out += v->n;
	*ps->out++ = 0;
	return 0;
}

static int word(struct parser *ps, struct json *v, const char *w, enum json_type t)
{
	size_t n = strlen(w);

	if ((size_t)(ps->end - ps->p) < n || memcmp(ps->p, w, n))
		return wrong(ps, "a value");
	ps->p += n;
	v->type = t;
	v->n = 0;
	v->text = NULL;
	return 0;
}

static struct json_member *push(struct parser *ps)
{
	GROW(ps->stack, ps->n, ps->cap);
	return &ps->stack[ps->n++];
}

/* After a member: 1 another follows, 0 the bracket was closed. */
static int next(struct parser *ps, char close, const char *wanted)
{
	blanks(ps);
	if (ps->p >= ps->end || (*ps->p != ',' && *ps->p != close))
		return wrong(ps, wanted);
	return *ps->p++ == ',';
}

static int array(struct parser *ps, struct json *v)
{
	size_t base = ps->n;
	int more = 1;

	v->type = JSON_ARRAY;
	ps->p++;
	blanks(ps);
	if (ps->p < ps->end && *ps->p == ']') {
		ps->p++;
		more = 0;
	}
	while (more > 0) {
		struct json item;

		if (value(ps, &item))
			return -1;
		push(ps)->value = item;
		more = next(ps, ']', "',' or ']'");
	}
	if (more < 0)
		return -1;
	v->n = ps->n - base;
	v->item = arena_alloc(ps->arena, v->n * sizeof(*v->item));
	for (size_t i = 0; i < v->n; i++)
		v->item[i] = ps->stack[base + i].value;
	ps->n = base;
	return 0;
}

static int member(struct parser *ps)
{
	struct json_member m;

	blanks(ps);
	if (ps->p >= ps->end || *ps->p != '"')
		return wrong(ps, "a key in '\"'");
	if (string(ps, &m.key, &m.keylen))
		return -1;
	blanks(ps);
	if (ps->p >= ps->end || *ps->p != ':')
		return wrong(ps, "':'");
	ps->p++;
	if (value(ps, &m.value))
		return -1;
	*push(ps) = m;
	return 0;
}

static int object(struct parser *ps, struct json *v)
{
	size_t base = ps->n;
	const struct json_member *twice;
	int more = 1;

	v->type = JSON_OBJECT;
	ps->p++;
	blanks(ps);
	if (ps->p < ps->end && *ps->p == '}') {
		ps->p++;
		more = 0;
	}
	while (more > 0) {
		if (member(ps))
			return -1;
		more = next(ps, '}', "',' or '}'");
	}
	if (more < 0)
		return -1;
	v->n = ps->n - base;
	v->member = arena_alloc(ps->arena, json_object_bytes(v->n));
	if (v->n)
		memcpy(v->member, ps->stack + base, v->n * sizeof(*v->member));
	ps->n = base;
	twice = json_index(v);
	if (twice)
		return err_set(ps->e, EX_DATAERR, "%s:%d: found the key \"%s\" twice, wanted it once", ps->file,
			       twice->value.line, twice->key);
	return 0;
}

static int value(struct parser *ps, struct json *v)
{
	int rc;

	blanks(ps);
	v->line = ps->line;
	if (ps->p >= ps->end)
		return wrong(ps, "a value");
	switch (*ps->p) {
	case '{':
	case '[':
		if (ps->depth == JSON_DEPTH)
			return refuse(ps, "brackets nested deeper than 512", "at most 512");
		ps->depth++;
		rc = *ps->p == '{' ? object(ps, v) : array(ps, v);
		ps->depth--;
		return rc;
	case '"':
		v->type = JSON_STRING;
		return string(ps, &v->text, &v->n);
	case 't':
		return word(ps, v, "true", JSON_TRUE);
	case 'f':
		return word(ps, v, "false", JSON_FALSE);
	case 'n':
		return word(ps, v, "null", JSON_NULL);
	default:
		if (*ps->p == '-' || digit(ps))
			return number(ps, v);
		return wrong(ps, "a value");
	}
}

static int document(struct parser *ps, struct json *root)
{
	if (value(ps, root))
		return -1;
	blanks(ps);
	return ps->p < ps->end ? wrong(ps, "nothing after the value") : 0;
}

int json_parse(struct json_doc *d, const char *text, size_t n, const char *file, int line0, struct err *e)
{
	struct parser ps = { .p = text, .end = text + n, .line = line0, .e = e };
	int rc;

	memset(d, 0, sizeof(*d));
	/* The index of an object counts in 32 bits, and lines in an int. */
	if (n >= (size_t)1 << 31)
		return err_set(e, EX_DATAERR, "%s: %zu bytes of JSON, wanted less than 2 GiB", file, n);
	d->file = arena_strndup(&d->arena, file, strlen(file));
	ps.file = d->file;
	ps.arena = &d->arena;
	/* Decoded text with its NUL is never longer than its source: a string loses two quotes, and a
	 * number is followed by a delimiter or by the end. */
	ps.out = arena_alloc(&d->arena, n + 16);
	rc = document(&ps, &d->root);
	free(ps.stack);
	if (rc)
		json_release(d);
	return rc;
}

int json_read(struct json_doc *d, const char *path, size_t most, struct err *e)
{
	struct str text = { 0 };
	int rc;

	memset(d, 0, sizeof(*d));
	rc = file_read(&text, path, most ? most : (size_t)1 << 30, e);
	if (!rc)
		rc = json_parse(d, text.s ? text.s : "", text.len,
				strcmp(path, "-") ? path : "standard input", 1, e);
	str_release(&text);
	return rc;
}

void json_release(struct json_doc *d)
{
	arena_release(&d->arena);
	memset(d, 0, sizeof(*d));
}
