#include "formats/jinja_tree.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "formats/jinja_text.h"
#include "libcommon/utf8.h"

struct lexer {
	struct jtokens *out;
	struct arena *arena;
	const char *s; /* newlines are all \n */
	size_t n, at;
	int line;
	bool line_starting; /* the byte before `at` ended a line, or there is none */
	const char *file;
	struct err *e;
};

static int lex_fail(struct lexer *l, const char *what)
{
	return err_set(l->e, EX_DATAERR, "%s:%d: %s", l->file, l->line, what);
}

static struct jtok *push(struct lexer *l, enum jtok_type type, const char *s, size_t n)
{
	struct jtokens *o = l->out;

	GROW(o->t, o->n, o->cap);
	o->t[o->n] = (struct jtok){ .type = type, .line = l->line, .s = s, .n = n };
	return &o->t[o->n++];
}

static void count_lines(struct lexer *l, size_t from, size_t to)
{
	for (size_t i = from; i < to; i++)
		l->line += l->s[i] == '\n';
}

/* Bytes of white space at `at` (as \s of a Unicode pattern). */
static size_t space_len(const struct lexer *l, size_t at)
{
	size_t from = at;

	while (at < l->n) {
		int32_t c;
		size_t k = jinja_utf8_get(l->s + at, l->n - at, &c);

		if (!uni_space(c))
			break;
		at += k;
	}
	return at - from;
}

static size_t name_len(const struct lexer *l, size_t at)
{
	size_t from = at;

	while (at < l->n && (isalnum((unsigned char)l->s[at]) || l->s[at] == '_' ||
			     (unsigned char)l->s[at] >= 0x80))
		at++;
	return at - from;
}

static bool starts(const struct lexer *l, size_t at, const char *what)
{
	size_t k = strlen(what);

	return l->n - at >= k && !memcmp(l->s + at, what, k);
}

/* At "{%" or "%}" spelling NAME between: the length of the whole tag, or 0. */
static size_t word_tag(const struct lexer *l, size_t at, const char *name, bool end)
{
	size_t p = at + 2;

	if (p < l->n && (l->s[p] == '-' || l->s[p] == '+'))
		p++;
	p += space_len(l, p);
	if (!starts(l, p, name))
		return 0;
	p += strlen(name);
	p += space_len(l, p);
	if (starts(l, p, "-%}"))
		return p + 3 + space_len(l, p + 3) - at;
	if (end && starts(l, p, "+%}"))
		return p + 3 - at;
	if (!starts(l, p, "%}"))
		return 0;
	p += 2;
	if (end && p < l->n && l->s[p] == '\n')
		p++;
	return p - at;
}

/* The text before a tag, cut as its sign and lstrip_blocks want it. */
static void push_text(struct lexer *l, size_t from, size_t tag, char sign, bool variable)
{
	struct jvalue whole = jv_str(l->s + from, tag - from, 0), kept = whole;

	if (sign == '-') {
		kept = jtext_strip(&whole, NULL, false, true);
	} else if (sign != '+' && !variable) {
		size_t p = tag;

		while (p > from && l->s[p - 1] != '\n')
			p--;
		if ((p > from || l->line_starting) && tag > p && space_len(l, p) >= tag - p)
			kept.n = p - from;
	}
	if (kept.n)
		push(l, T_TEXT, arena_strndup(l->arena, kept.s, kept.n), kept.n);
	count_lines(l, from, tag);
}

static char sign_at(const struct lexer *l, size_t at)
{
	return at < l->n && (l->s[at] == '-' || l->s[at] == '+') ? l->s[at] : 0;
}

static int skip_comment(struct lexer *l, size_t tag)
{
	size_t body = tag + 2 + (sign_at(l, tag + 2) != 0), p = body;
	char before;

	for (;; p++) {
		if (p + 1 >= l->n)
			return lex_fail(l, "a comment {# is not closed");
		if (l->s[p] == '#' && l->s[p + 1] == '}')
			break;
	}
	before = p > body ? l->s[p - 1] : 0;
	p += 2;
	if (before == '-')
		p += space_len(l, p);
	else if (before != '+' && p < l->n && l->s[p] == '\n')
		p++;
	count_lines(l, tag, p);
	l->at = p;
	return 0;
}

static int raw_block(struct lexer *l, size_t tag, size_t begin)
{
	size_t from = tag + begin, p;

	count_lines(l, tag, from);
	l->line_starting = from > 0 && l->s[from - 1] == '\n';
	l->at = from;
	/* At the very end jinja2 does not miss its endraw. */
	if (from == l->n)
		return 0;
	for (p = from; p + 1 < l->n; p++) {
		size_t k;

		if (l->s[p] != '{' || l->s[p + 1] != '%' || !(k = word_tag(l, p, "endraw", true)))
			continue;
		push_text(l, from, p, sign_at(l, p + 2), false);
		count_lines(l, p, p + k);
		l->at = p + k;
		return 0;
	}
	return lex_fail(l, "{% raw %} without {% endraw %}");
}

/* One escape of Python's, at s[0] == '\\'; its length, 0 where it is malformed.  Decoded it is
 * never longer. */
static size_t unescape(char *d, size_t *dn, const char *s, size_t n)
{
	static const char from[] = "\\'\"abfnrtv", to[] = "\\'\"\a\b\f\n\r\t\v";
	int digits = s[1] == 'x' ? 2 : s[1] == 'u' ? 4 : s[1] == 'U' ? 8 : 0;
	const char *p = strchr(from, s[1]);
	uint32_t c = 0;
	size_t k;

	*dn = 0;
	if (s[1] == '\n')
		return 2;
	if (s[1] && p)
		return d[0] = to[p - from], *dn = 1, 2;
	if (digits) {
		for (k = 2; k < 2 + (size_t)digits; k++) {
			if (k >= n || !isxdigit((unsigned char)s[k]))
				return 0;
			c = c << 4 |
			    (uint32_t)(isdigit((unsigned char)s[k]) ? s[k] - '0' :
								      (s[k] | 32) - 'a' + 10);
		}
		if (c > 0x10FFFF || (c >= 0xD800 && c < 0xE000))
			return 0;
		return *dn = utf8_put(d, c), k;
	}
	if (s[1] >= '0' && s[1] <= '7') {
		for (k = 1; k < 4 && k < n && s[k] >= '0' && s[k] <= '7'; k++)
			c = c * 8 + (uint32_t)(s[k] - '0');
		return *dn = utf8_put(d, c), k;
	}
	if (s[1] == 'N')
		return 0;
	d[0] = '\\';
	d[1] = s[1];
	return *dn = 2, 2;
}

static int lex_string(struct lexer *l)
{
	size_t p = l->at + 1, n = 0;
	char quote = l->s[l->at], *d;

	while (p < l->n && l->s[p] != quote)
		p += l->s[p] == '\\' ? 2 : 1;
	if (p >= l->n)
		return lex_fail(l, "a string is not closed");
	d = arena_alloc(l->arena, p - l->at + 8);
	for (size_t i = l->at + 1; i < p;) {
		size_t k = 1, dn = 1;

		if (l->s[i] != '\\')
			d[n] = l->s[i];
		else if (!(k = unescape(d + n, &dn, l->s + i, p - i)))
			return lex_fail(l, "a string holds a malformed escape");
		n += dn;
		i += k;
	}
	d[n] = 0;
	push(l, T_STRING, d, n);
	count_lines(l, l->at, p + 1);
	l->at = p + 1;
	return 0;
}

static int lex_number(struct lexer *l)
{
	const char *s = l->s + l->at, *end = l->s + l->n;
	int base = 10;
	char digits[64], *stop;
	size_t k = 0, p = 0;
	bool real = false;
	struct jtok *t;

	if (*s == '0' && s + 1 < end && strchr("xXoObB", s[1])) {
		base = (s[1] | 32) == 'x' ? 16 : (s[1] | 32) == 'o' ? 8 : 2;
		p = 2;
	}
	for (; s + p < end; p++) {
		bool digit =
			base == 16 ? isxdigit((unsigned char)s[p]) : isdigit((unsigned char)s[p]);

		if (!digit && s[p] == '_')
			continue;
		if (!digit && base == 10 && !real && s[p] == '.' && s + p + 1 < end &&
		    isdigit((unsigned char)s[p + 1]))
			digit = real = true;
		else if (!digit && base == 10 && (s[p] | 32) == 'e' && s + p + 1 < end) {
			size_t q = p + 1 + (s[p + 1] == '-' || s[p + 1] == '+');

			if (s + q >= end || !isdigit((unsigned char)s[q]))
				break;
			real = true;
			while (p < q && k < sizeof(digits) - 1)
				digits[k++] = s[p++];
			base = 11;
			p--;
			continue;
		}
		if (!digit || k >= sizeof(digits) - 1)
			break;
		digits[k++] = s[p];
	}
	digits[k] = 0;
	t = push(l, real ? T_FLOAT : T_INT, arena_strndup(l->arena, s, p), p);
	errno = 0;
	if (real)
		t->f = strtod(digits, &stop);
	else
		t->i = strtol(digits, &stop, base);
	if (errno == ERANGE && !real)
		return lex_fail(l, "an integer is out of range");
	if (*stop || !k)
		return lex_fail(l, "a malformed number");
	l->at += p;
	return 0;
}

static int lex_operator(struct lexer *l)
{
	static const char *const op[] = { "//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
					  "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
					  ">",  "<",  "=",  ".",  ":",  "|",  ",", ";" };

	for (size_t i = 0; i < sizeof(op) / sizeof(*op); i++) {
		if (!starts(l, l->at, op[i]))
			continue;
		push(l, T_OP, op[i], strlen(op[i]));
		l->at += strlen(op[i]);
		return 0;
	}
	return err_set(l->e, EX_DATAERR, "%s:%d: unexpected character 0x%02x in a tag", l->file,
		       l->line, (unsigned)(unsigned char)l->s[l->at]);
}

/* The inside of {{ }} or {% %} and its end. */
static int lex_inside(struct lexer *l, bool variable)
{
	const char *end = variable ? "}}" : "%}", *minus = variable ? "-}}" : "-%}";
	int open = 0;

	while (l->at < l->n) {
		char c = l->s[l->at];
		size_t k = space_len(l, l->at);
		int rc = 0;

		if (k) {
			count_lines(l, l->at, l->at + k);
			l->at += k;
			continue;
		}
		if (!open && (starts(l, l->at, minus) || starts(l, l->at, end) ||
			      (!variable && starts(l, l->at, "+%}")))) {
			size_t p = l->at + (c == '-' || c == '+') + 2;

			push(l, variable ? T_VAR_END : T_BLOCK_END, "", 0);
			if (c == '-')
				p += space_len(l, p);
			else if (!variable && c != '+' && p < l->n && l->s[p] == '\n')
				p++;
			count_lines(l, l->at, p);
			l->at = p;
			return 0;
		}
		if (isdigit((unsigned char)c)) {
			rc = lex_number(l);
		} else if ((k = name_len(l, l->at))) {
			push(l, T_NAME, arena_strndup(l->arena, l->s + l->at, k), k);
			l->at += k;
		} else if (c == '"' || c == '\'') {
			rc = lex_string(l);
		} else {
			open += (c == '(' || c == '[' || c == '{') -
				(c == ')' || c == ']' || c == '}');
			rc = open < 0 ? lex_fail(l, "a bracket is closed that was not opened") :
					lex_operator(l);
		}
		if (rc)
			return rc;
	}
	return lex_fail(l, variable ? "{{ is not closed" : "{% is not closed");
}

static int lex_template(struct lexer *l)
{
	while (l->at < l->n) {
		size_t from = l->at, tag = from, raw;
		char kind;

		while (tag + 1 < l->n &&
		       !(l->s[tag] == '{' && strchr("%{#", l->s[tag + 1]) && l->s[tag + 1]))
			tag++;
		if (tag + 1 >= l->n) {
			push(l, T_TEXT, arena_strndup(l->arena, l->s + from, l->n - from),
			     l->n - from);
			break;
		}
		kind = l->s[tag + 1];
		raw = kind == '%' ? word_tag(l, tag, "raw", false) : 0;
		push_text(l, from, tag, sign_at(l, tag + 2), kind == '{');
		if (raw) {
			if (raw_block(l, tag, raw))
				return -1;
		} else if (kind == '#') {
			if (skip_comment(l, tag))
				return -1;
		} else {
			push(l, kind == '{' ? T_VAR_BEGIN : T_BLOCK_BEGIN, "", 0);
			l->at = tag + 2 + (sign_at(l, tag + 2) != 0);
			if (lex_inside(l, kind == '{'))
				return -1;
		}
		l->line_starting = l->s[l->at - 1] == '\n';
	}
	push(l, T_EOF, "", 0);
	return 0;
}

int jinja_lex(struct jtokens *out, struct arena *a, const char *text, size_t n, const char *file,
	      struct err *e)
{
	struct lexer l = {
		.out = out, .arena = a, .line = 1, .line_starting = true, .file = file, .e = e
	};
	char *s = arena_alloc(a, n + 1);
	size_t k = 0;

	for (size_t i = 0; i < n; i++) {
		if (text[i] == '\r' && i + 1 < n && text[i + 1] == '\n')
			continue;
		s[k++] = text[i] == '\r' ? '\n' : text[i];
	}
	if (k && s[k - 1] == '\n')
		k--;
	s[k] = 0;
	l.s = s;
	l.n = k;
	return lex_template(&l);
}
