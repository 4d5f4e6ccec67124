#include "tools/score/math_parts.h"

#include <ctype.h>
#include <string.h>

/* Other spellings of one sign, UTF-8 first.  Longest match is not needed: none is the start of another. */
static const struct { const char *from, *to; } signs[] = {
	{ "−", "-" }, { "–", "-" }, { "‐", "-" }, { "‑", "-" }, { "×", "\\times " }, { "÷", "\\div " }, { "·", "\\cdot " },
	{ "⋅", "\\cdot " }, { "∙", "\\cdot " }, { "π", "\\pi " }, { "𝜋", "\\pi " }, { "√", "\\sqrt " }, { "≤", "\\le " },
	{ "⩽", "\\le " }, { "≥", "\\ge " }, { "⩾", "\\ge " }, { "≠", "\\ne " }, { "≈", "\\approx " }, { "∞", "\\infty " },
	{ "∪", "\\cup " }, { "∩", "\\cap " }, { "∈", "\\in " }, { "±", "\\pm " }, { "∓", "\\mp " }, { "°", "\\degree " },
	{ "ℝ", "\\mathbb{R}" }, { "∅", "\\emptyset " }, { "½", "\\frac{1}{2}" }, { "⅓", "\\frac{1}{3}" }, { "⅔", "\\frac{2}{3}" },
	{ "¼", "\\frac{1}{4}" }, { "¾", "\\frac{3}{4}" }, { "⁄", "/" }, { "€", "" }, { "£", "" }, { "¥", "" }, { "¢", " cents " },
	{ "\u00a0", " " }, { "\u2009", " " }, { "\u202f", " " }, { "\u2003", " " }, { "\u3000", " " }, { "\u200b", "" },
	{ "\ufeff", "" }, { "’", "'" }, { "‘", "'" }, { "“", "\"" }, { "”", "\"" }, { "，", "," }, { "、", "," }, { "。", "." },
};

static const char *const raised[] = { "⁰", "¹", "²", "³", "⁴", "⁵", "⁶", "⁷", "⁸", "⁹", "⁻" };

static size_t raised_at(struct math_piece p, char *c)
{
	for (size_t i = 0; i < sizeof(raised) / sizeof(*raised); i++) {
		size_t n = math_starts(p, raised[i]);

		if (n) {
			*c = "0123456789-"[i];
			return n;
		}
	}
	return 0;
}

/* ²³ becomes ^{23}. */
static size_t put_raised(struct str *out, struct math_piece p)
{
	size_t all = 0, n;
	char c = 0;

	while ((n = raised_at((struct math_piece){ p.s + all, p.n - all }, &c))) {
		if (!all)
			str_puts(out, "^{");
		str_putc(out, c);
		all += n;
	}
	if (all)
		str_putc(out, '}');
	return all;
}

static size_t put_sign(struct str *out, struct math_piece p)
{
	const unsigned char *u = (const unsigned char *)p.s;

	if (p.n >= 3 && u[0] == 0xef && (u[1] == 0xbc || u[1] == 0xbd)) {
		int c = ((u[1] & 3) << 6 | (u[2] & 63)) + 0x20;   /* full width forms U+FF01.. */

		if (c > 0x20 && c < 0x7f) {
			str_putc(out, c);
			return 3;
		}
	}
	for (size_t i = 0; i < sizeof(signs) / sizeof(*signs); i++) {
		size_t n = math_starts(p, signs[i].from);

		if (n) {
			str_puts(out, signs[i].to);
			return n;
		}
	}
	return put_raised(out, p);
}

static void plain_signs(struct str *out, struct math_piece p)
{
	while (p.n) {
		unsigned char c = (unsigned char)*p.s;
		size_t n = c < 0x80 ? 0 : put_sign(out, p);

		if (!n) {
			n = 1;
			str_putc(out, c < 0x20 || c == 0x7f ? ' ' : c);
		}
		p.s += n;
		p.n -= n;
	}
}

/* -- commands -------------------------------------------------------------------------------------------- */

/* to NULL: a wrapper, of which the contents stay.  "" and " ": dropped. */
static const struct { const char *name, *to; } commands[] = {
	{ "left", "" }, { "right", "" }, { "big", "" }, { "Big", "" }, { "bigg", "" }, { "Bigg", "" }, { "bigl", "" }, { "bigr", "" },
	{ "Bigl", "" }, { "Bigr", "" }, { "biggl", "" }, { "biggr", "" }, { "Biggl", "" }, { "Biggr", "" }, { "middle", "" },
	{ "displaystyle", " " }, { "textstyle", " " }, { "scriptstyle", " " }, { "limits", "" }, { "nolimits", "" }, { "quad", " " },
	{ "qquad", " " }, { "thinspace", " " }, { "bf", " " }, { "rm", " " }, { "it", " " },
	{ "text", NULL }, { "textbf", NULL }, { "textit", NULL }, { "textrm", NULL }, { "textsf", NULL }, { "texttt", NULL },
	{ "textnormal", NULL }, { "mathrm", NULL }, { "mathbf", NULL }, { "mathit", NULL }, { "mathsf", NULL }, { "mathtt", NULL },
	{ "mbox", NULL }, { "hbox", NULL }, { "operatorname", NULL }, { "boxed", NULL }, { "fbox", NULL }, { "boldsymbol", NULL },
	{ "bm", NULL }, { "emph", NULL }, { "underline", NULL },
	{ "dfrac", "\\frac " }, { "tfrac", "\\frac " }, { "cfrac", "\\frac " }, { "dbinom", "\\binom " }, { "tbinom", "\\binom " },
	{ "leq", "\\le " }, { "leqslant", "\\le " }, { "geq", "\\ge " }, { "geqslant", "\\ge " }, { "neq", "\\ne " },
	{ "lbrace", "\\{" }, { "rbrace", "\\}" }, { "lvert", "|" }, { "rvert", "|" }, { "vert", "|" }, { "mid", "|" },
	{ "lbrack", "[" }, { "rbrack", "]" }, { "ast", "*" }, { "varnothing", "\\emptyset " }, { "R", "\\mathbb{R}" },
	{ "Reals", "\\mathbb{R}" }, { "reals", "\\mathbb{R}" }, { "simeq", "\\approx " }, { "infin", "\\infty " }, { "colon", ":" },
	{ "degrees", "\\degree " }, { "dollar", "" }, { "textdollar", "" }, { "percent", "%" }, { "euro", "" }, { "pounds", "" },
};

/* Braces opened so far: 'w' a wrapper's, '{' an ordinary one. */
struct plain { struct str out, braces; };

static size_t name_length(struct math_piece p)
{
	size_t n = 0;

	while (n < p.n && isalpha((unsigned char)p.s[n]))
		n++;
	return n;
}

static size_t skip_blanks(struct math_piece p, size_t at)
{
	while (at < p.n && p.s[at] == ' ')
		at++;
	return at;
}

/* p starts behind the backslash; returns the bytes used. */
static size_t put_command(struct plain *t, struct math_piece p)
{
	size_t n = name_length(p), at;

	for (size_t i = 0; n && i < sizeof(commands) / sizeof(*commands); i++) {
		if (strlen(commands[i].name) != n || memcmp(commands[i].name, p.s, n))
			continue;
		if (commands[i].to) {
			str_puts(&t->out, commands[i].to);
			return n;
		}
		at = skip_blanks(p, n + (n < p.n && p.s[n] == '*'));
		str_putc(&t->out, ' ');
		if (at < p.n && p.s[at] == '{') {
			str_putc(&t->braces, 'w');
			at++;
		}
		return at;
	}
	str_putc(&t->out, '\\');
	str_add(&t->out, p.s, n);
	if (n && (n == p.n || p.s[n] != '{'))
		str_putc(&t->out, ' ');
	return n;
}

/* A backslash and something that is no letter. */
static size_t put_escape(struct plain *t, struct math_piece p)
{
	if (!p.n)
		return 0;
	if (strchr("{}", *p.s)) {
		str_putc(&t->out, '\\');
		str_putc(&t->out, *p.s);
	} else if (strchr("%#&_", *p.s)) {
		str_putc(&t->out, *p.s);
	} else if (*p.s == '|') {
		str_putc(&t->out, '|');
	} else if (*p.s == '\\') {
		str_puts(&t->out, "\\\\");
	} else if (*p.s != '!' && *p.s != '$') {
		str_putc(&t->out, ' ');         /* \, \; \: "\ " and \( \) \[ \] */
	}
	return 1;
}

/* ^\circ, ^{\circ}; 0: something else. */
static size_t degree_at(struct math_piece p)
{
	size_t at = skip_blanks(p, 1), n;
	bool brace = at < p.n && p.s[at] == '{';

	at = skip_blanks(p, at + brace);
	n = math_starts((struct math_piece){ p.s + at, p.n - at }, "\\circ");
	if (!n)
		return 0;
	at += n;
	if (!brace)
		return at;
	at = skip_blanks(p, at);
	return at < p.n && p.s[at] == '}' ? at + 1 : 0;
}

static void put_brace(struct plain *t, char c)
{
	if (c == '{') {
		str_putc(&t->braces, '{');
	} else if (t->braces.len) {
		bool wrapper = t->braces.s[t->braces.len - 1] == 'w';

		str_cut(&t->braces, t->braces.len - 1);
		c = wrapper ? ' ' : '}';
	}
	str_putc(&t->out, c);
}

/* 2**3 is a power, **3** is bold. */
static size_t put_stars(struct plain *t, struct math_piece p)
{
	char before = t->out.len ? t->out.s[t->out.len - 1] : ' ';

	if (p.n < 2 || p.s[1] != '*') {
		str_putc(&t->out, '*');
		return 1;
	}
	if ((isalnum((unsigned char)before) || before == ')') && p.n > 2 && (isalnum((unsigned char)p.s[2]) || strchr("(-", p.s[2])))
		str_putc(&t->out, '^');
	return 2;
}

static void plain_commands(struct plain *t, struct math_piece p)
{
	while (p.n) {
		struct math_piece rest = { p.s + 1, p.n - 1 };
		size_t n = 1, d;

		if (*p.s == '\\') {
			n += rest.n && isalpha((unsigned char)*rest.s) ? put_command(t, rest) : put_escape(t, rest);
		} else if (*p.s == '^' && (d = degree_at(p))) {
			str_puts(&t->out, "\\degree ");
			n = d;
		} else if (*p.s == '{' || *p.s == '}') {
			put_brace(t, *p.s);
		} else if (*p.s == '*') {
			n = put_stars(t, p);
		} else if (*p.s != '$') {
			str_putc(&t->out, *p.s == '~' ? ' ' : *p.s);
		}
		p.s += n;
		p.n -= n;
	}
}

/* -- thousands --------------------------------------------------------------------------------------------- */

static size_t digits_at(const char *s, size_t n)
{
	size_t i = 0;

	while (i < n && isdigit((unsigned char)s[i]))
		i++;
	return i;
}

/* The length of a mark of thousands with exactly three digits behind it, or 0. */
static size_t mark_at(struct math_piece p, bool comma)
{
	size_t n = math_starts(p, "{,}");

	if (!n && comma)
		n = math_starts(p, ",");
	if (!n)
		n = math_starts(p, " ");
	return n && digits_at(p.s + n, p.n - n) == 3 ? n : 0;
}

/* A number starts at p: its length, with marks; *marks is how many bytes of them. */
static size_t grouped_at(struct math_piece p, bool comma, size_t *marks, bool *by_comma)
{
	size_t n = digits_at(p.s, p.n), m;
	bool mixed = false;
	char mark = 0;

	*marks = 0;
	if (n > 3 || *p.s == '0')
		return n;
	while ((m = mark_at((struct math_piece){ p.s + n, p.n - n }, comma))) {
		mixed |= mark && p.s[n] != mark;
		mark = p.s[n];
		n += m + 3;
		*marks += m;
	}
	if (*marks && (mixed || (p.n > n + 1 && p.s[n] == ',' && comma && isdigit((unsigned char)p.s[n + 1])))) {
		*marks = 0;
		return digits_at(p.s, p.n);
	}
	*by_comma |= mark == ',';
	return n;
}

/* Inside brackets a comma divides. */
static void plain_groups(struct str *out, struct math_piece p, bool groups, bool *grouped)
{
	int depth = 0;
	char before = ' ';

	for (size_t i = 0, n; i < p.n; i += n) {
		size_t marks = 0;

		n = 1;
		if (strchr("([", p.s[i]) || (p.s[i] == '{' && before == '\\'))
			depth++;
		else if (depth && (strchr(")]", p.s[i]) || (p.s[i] == '}' && before == '\\')))
			depth--;
		if (isdigit((unsigned char)p.s[i]) && before != '.')
			n = grouped_at((struct math_piece){ p.s + i, p.n - i }, groups && !depth, &marks, grouped);
		else if (isdigit((unsigned char)p.s[i]))
			n = digits_at(p.s + i, p.n - i);
		for (size_t k = 0; k < n; k++)
			if (!marks || isdigit((unsigned char)p.s[i + k]))
				str_putc(out, p.s[i + k]);
		before = p.s[i + n - 1];
	}
}

/* -- all of it ------------------------------------------------------------------------------------------------ */

size_t math_starts(struct math_piece p, const char *s)
{
	size_t n = strlen(s);

	return p.n >= n && !memcmp(p.s, s, n) ? n : 0;
}

struct math_piece math_from(struct math_piece p, size_t at)
{
	return (struct math_piece){ p.s + at, p.n - at };
}

struct math_piece math_trim(struct math_piece p)
{
	while (p.n && isspace((unsigned char)*p.s)) {
		p.s++;
		p.n--;
	}
	while (p.n && isspace((unsigned char)p.s[p.n - 1]))
		p.n--;
	return p;
}

static struct math_piece without_stops(struct math_piece p)
{
	p = math_trim(p);
	while (p.n && strchr(".,;:", p.s[p.n - 1])) {
		p.n--;
		p = math_trim(p);
	}
	return p;
}

const char *math_plain(struct math_work *w, struct math_piece p, bool groups, bool *grouped)
{
	struct str first = { 0 }, last = { 0 };
	struct plain t = { { 0 }, { 0 } };
	struct math_piece rest;
	const char *out;

	*grouped = false;
	plain_signs(&first, p);
	plain_commands(&t, (struct math_piece){ first.s, first.len });
	plain_groups(&last, (struct math_piece){ t.out.s, t.out.len }, groups, grouped);
	rest = without_stops((struct math_piece){ last.s, last.len });
	out = arena_strndup(&w->arena, rest.n ? rest.s : "", rest.n);
	str_release(&first);
	str_release(&t.out);
	str_release(&t.braces);
	str_release(&last);
	return out;
}

/* A blank stays only where dropping it would join two words or two numbers. */
static bool blank_counts(char before, char after)
{
	return (isalpha((unsigned char)before) && isalpha((unsigned char)after)) ||
	       (isdigit((unsigned char)before) && isdigit((unsigned char)after));
}

static void put_word(struct str *out, const char *s, size_t n, bool command)
{
	for (size_t i = 0; i < n; i++)
		str_putc(out, n > 1 && !command ? tolower((unsigned char)s[i]) : s[i]);
}

const char *math_key(struct math_work *w, const char *s, size_t n)
{
	struct str out = { 0 };
	const char *key;

	for (size_t i = 0; i < n;) {
		size_t k = name_length((struct math_piece){ s + i, n - i });
		char before = out.len ? out.s[out.len - 1] : 0;

		if (k) {
			put_word(&out, s + i, k, before == '\\');
			i += k;
		} else if (s[i] == ' ') {
			i = skip_blanks((struct math_piece){ s, n }, i);
			if (i < n && blank_counts(before, s[i]))
				str_putc(&out, ' ');
		} else if (s[i] == '{' && before != '\\' && i + 2 < n && s[i + 2] == '}' && s[i + 1] != '\\') {
			if (blank_counts(before, s[i + 1]))
				str_putc(&out, ' ');
			str_putc(&out, s[i + 1]);
			i += 3;
		} else {
			if (s[i] != '"')
				str_putc(&out, s[i]);
			i++;
		}
	}
	key = arena_strndup(&w->arena, out.len ? out.s : "", out.len);
	str_release(&out);
	return key;
}

int math_letter(const char *plain, bool prefix)
{
	const char *p = plain + strspn(plain, " \"");
	bool bracket = *p == '(' || *p == '[';
	int c, closed;

	p += bracket;
	p += strspn(p, " ");
	c = toupper((unsigned char)*p);
	if (c < 'A' || c > 'J')
		return 0;
	p++;
	p += strspn(p, " ");
	closed = *p == ')' || *p == ']';
	if (bracket && !closed)
		return 0;
	p += closed;
	if (!p[strspn(p, " \".")])
		return c;
	return prefix && (closed || ((*p == ':' || *p == '.') && p[1] == ' ')) ? c : 0;
}
