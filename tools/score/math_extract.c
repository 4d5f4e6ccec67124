#include "tools/score/math_parts.h"

#include <ctype.h>
#include <string.h>

enum {
	WHOLE = 512,            /* bytes of a response that may be an answer without a marker */
	WORDS = 64,             /* the same when it is text */
	PAUSE = 40,             /* bytes between "answer" and its "is" or ":" */
	FORMULAS = 8            /* from the end, that are tried */
};

static struct math_piece line_of(struct math_piece p)
{
	const char *end = memchr(p.s, '\n', p.n);

	return math_trim((struct math_piece){ p.s, end ? (size_t)(end - p.s) : p.n });
}

/* Where `s` stands last, or p.n. */
static size_t last_of(struct math_piece p, const char *s)
{
	for (size_t i = p.n; i-- > 0;)
		if (p.s[i] == *s && math_starts(math_from(p, i), s))
			return i;
	return p.n;
}

static bool has_text(const struct math_value *v)
{
	for (int i = 0; i < v->kids; i++)
		if (has_text(v->kid[i]))
			return true;
	return v->type == VALUE_TEXT;
}

/* True: a value comes of it, with no text in it. */
static bool parses(struct math_work *w, struct math_piece p)
{
	struct math_answer a;

	math_read(&a, w, p, true);
	return a.value && !has_text(a.value);
}

/* -- markers -------------------------------------------------------------------------------------------------- */

/* #### is a heading, too: one that does not parse, with text below it, is passed over. */
static bool by_hash(struct math_piece *found, struct math_work *w, struct math_piece p, bool only)
{
	for (size_t at, n = p.n, tries = 0; tries < FORMULAS; tries++) {
		struct math_piece line, rest;

		at = last_of((struct math_piece){ p.s, n }, "####");
		if (at == n)
			return false;
		rest = math_from(p, at + 4);
		line = line_of(rest);
		*found = line;
		if (only || !math_trim(math_from(rest, (size_t)(line.s - rest.s) + line.n)).n || parses(w, line))
			return line.n > 0;
		n = at;
	}
	return false;
}

/* $...$, $$...$$, \(...\), \[...\] starting at p: the length of all, or 0. A dollar before a blank is money. */
static size_t formula_at(struct math_piece *inner, struct math_piece p)
{
	const char *close = math_starts(p, "$$") ? "$$" : math_starts(p, "$") ? "$" : math_starts(p, "\\(") ? "\\)" : math_starts(p, "\\[") ? "\\]" : NULL;
	size_t n = close ? strlen(close) : 0, end = n;

	if (!close || end >= p.n || (n == 1 && isspace((unsigned char)p.s[1])))
		return 0;
	for (; end < p.n; end++) {
		if (n == 1 && p.s[end] == '\n')
			return 0;
		if (math_starts(math_from(p, end), close) && !(n == 1 && p.s[end - 1] == '\\'))
			break;
		if (end > MATH_ANSWER)
			return 0;
	}
	if (end >= p.n || end == n)
		return 0;
	if (n == 1 && (isspace((unsigned char)p.s[end - 1]) || (end + 1 < p.n && isdigit((unsigned char)p.s[end + 1]))))
		return 0;
	*inner = math_trim((struct math_piece){ p.s + n, end - n });
	return end + n;
}

static bool first_formula(struct math_piece *found, struct math_piece p)
{
	for (size_t i = 0; i < p.n; i++) {
		if (formula_at(found, math_from(p, i)))
			return true;
		if (p.s[i] == '\\')
			i++;
	}
	return false;
}

/* The last formula that has a value. */
static bool by_formula(struct math_piece *found, struct math_work *w, struct math_piece p)
{
	struct math_piece last[FORMULAS], inner;
	size_t n = 0, used;

	for (size_t i = 0; i < p.n; i += used) {
		used = formula_at(&inner, math_from(p, i));
		if (used)
			last[n++ % FORMULAS] = inner;
		else
			used = p.s[i] == '\\' ? 2 : 1;
	}
	for (size_t k = 1; k <= n && k <= FORMULAS; k++) {
		*found = last[(n - k) % FORMULAS];
		if (parses(w, *found))
			return true;
	}
	return false;
}

/* -- bare numbers ----------------------------------------------------------------------------------------------- */

static size_t digits(struct math_piece p)
{
	size_t n = 0;

	while (n < p.n && isdigit((unsigned char)p.s[n]))
		n++;
	return n;
}

/* 1,234.50  .5  3/4  12%: the bytes of the number that starts at p, or 0. */
static size_t number_at(struct math_piece p)
{
	size_t n = digits(p), more;

	while (n && n + 4 <= p.n && p.s[n] == ',' && digits(math_from(p, n + 1)) == 3)
		n += 4;
	if (n < p.n && p.s[n] == '.' && (more = digits(math_from(p, n + 1))))
		n += 1 + more;
	if (!n)
		return 0;
	if (n < p.n && p.s[n] == '/' && (more = digits(math_from(p, n + 1))))
		n += 1 + more;
	if (n < p.n && p.s[n] == '%')
		n++;
	else if (n + 1 < p.n && p.s[n] == '\\' && p.s[n + 1] == '%')
		n += 2;
	return n;
}

/* A sign counts where it cannot be a minus between two things or a hyphen. */
static struct math_piece with_sign(struct math_piece p, size_t at, size_t n)
{
	bool minus = at && p.s[at - 1] == '-' && (at == 1 || (!isalnum((unsigned char)p.s[at - 2]) && !strchr(")}]-", p.s[at - 2])));

	return (struct math_piece){ p.s + at - minus, n + minus };
}

static bool find_number(struct math_piece *found, struct math_piece p, bool last)
{
	bool any = false;

	for (size_t i = 0, n; i < p.n; i += n ? n : 1) {
		n = number_at(math_from(p, i));
		if (!n)
			continue;
		*found = with_sign(p, i, n);
		any = true;
		if (!last)
			break;
	}
	return any;
}

/* -- sentences ------------------------------------------------------------------------------------------------- */

static struct math_piece sentence(struct math_piece p)
{
	for (size_t i = 0; i + 1 < p.n; i++)
		if (p.s[i] == '.' && isspace((unsigned char)p.s[i + 1]))
			return math_trim((struct math_piece){ p.s, i });
	return p;
}

/*
 * What stands behind "answer is": a formula, else all of it, else a letter with its text, else its first number, or
 * the last of an equation.
 */
static bool from_sentence(struct math_piece *found, struct math_work *w, struct math_piece p)
{
	bool grouped;
	struct math_piece all;

	p = line_of(math_trim(p));
	while (p.n && strchr("*_", *p.s))
		p = math_trim(math_from(p, 1));
	if (!p.n)
		return false;
	all = sentence(p);
	if (first_formula(found, all))
		return true;
	*found = all;
	if (parses(w, all) || math_letter(math_plain(w, all, true, &grouped), true))
		return true;
	if (!find_number(found, all, memchr(all.s, '=', all.n) != NULL))
		*found = all;
	return true;
}

/* Behind "answer": the bytes up to and with " is", ":" or "=", or 0. */
static size_t verb_at(struct math_piece p)
{
	for (size_t i = 0; i < p.n && i < PAUSE; i++) {
		if (strchr(".\n0123456789", p.s[i]))
			return 0;
		if (p.s[i] == ':' || p.s[i] == '=')
			return i + 1;
		if (i && i + 3 < p.n && p.s[i - 1] == ' ' && !strncasecmp(p.s + i, "is", 2) && strchr(" :\n", p.s[i + 2]))
			return i + 2 + (p.s[i + 2] == ':');
	}
	return 0;
}

static bool by_tag(struct math_piece *found, struct math_piece p)
{
	size_t end = last_of(p, "</answer>"), at;

	if (end == p.n)
		return false;
	at = last_of((struct math_piece){ p.s, end }, "<answer>");
	if (at == end)
		return false;
	*found = math_trim((struct math_piece){ p.s + at + 8, end - at - 8 });
	return true;
}

static bool by_answer_line(struct math_piece *found, struct math_work *w, struct math_piece p)
{
	if (by_tag(found, p))
		return true;
	for (size_t i = p.n, n, tries = 0; i-- > 0 && tries < FORMULAS;) {
		if (p.n - i < 7 || tolower((unsigned char)p.s[i]) != 'a' || strncasecmp(p.s + i, "answer", 6))
			continue;
		n = verb_at(math_from(p, i + 6));
		if (!n)
			continue;
		tries++;
		if (from_sentence(found, w, math_from(p, i + 6 + n)))
			return true;
	}
	return false;
}

/* A short text is an answer when it holds no number, or no word: Paris, x + 1, 204_5. */
static bool is_term(struct math_piece p)
{
	struct math_piece number;
	bool command = false;

	if (p.n > WORDS || memchr(p.s, '=', p.n))
		return false;
	if (!find_number(&number, p, true))
		return true;
	for (size_t i = 0; i + 1 < p.n; i++) {
		command = p.s[i] == '\\' || (command && isalpha((unsigned char)p.s[i]));
		if (!command && isalpha((unsigned char)p.s[i]) && isalpha((unsigned char)p.s[i + 1]))
			return false;
	}
	return true;
}

/* A short response of one line that is nothing but an answer. */
static bool by_whole(struct math_piece *found, struct math_work *w, struct math_piece p)
{
	bool grouped;

	*found = math_trim(p);
	if (!found->n || found->n > WHOLE || memchr(found->s, '\n', found->n))
		return false;
	if (w->options->mode == MATH_CHOICE)
		return math_letter(math_plain(w, *found, true, &grouped), true);
	return parses(w, *found) || is_term(*found);
}

static bool by_letter(struct math_piece *found, struct math_piece p)
{
	for (size_t i = p.n; i-- > 0;)
		if (p.s[i] >= 'A' && p.s[i] <= 'J' && (!i || !isalnum((unsigned char)p.s[i - 1])) &&
		    (i + 1 == p.n || !isalnum((unsigned char)p.s[i + 1]))) {
			*found = (struct math_piece){ p.s + i, 1 };
			return true;
		}
	return false;
}

/* -- all of it ---------------------------------------------------------------------------------------------------- */

/* The last 300 characters, not bytes. */
static struct math_piece last_characters(struct math_piece p, int n)
{
	size_t at = p.n;

	while (at && n) {
		at--;
		n -= ((unsigned char)p.s[at] & 0xc0) != 0x80;
	}
	return math_from(p, at);
}

/* The last match of "#### (-?[0-9.,]+)". */
static bool by_gsm8k(struct math_piece *found, struct math_piece p)
{
	bool any = false;

	p = last_characters(p, 300);
	for (size_t i = 0; i + 5 < p.n; i++) {
		size_t n = 5 + (p.s[i + 5] == '-'), start = n;

		if (!math_starts(math_from(p, i), "#### "))
			continue;
		while (i + n < p.n && (isdigit((unsigned char)p.s[i + n]) || p.s[i + n] == '.' || p.s[i + n] == ','))
			n++;
		if (n == start)
			continue;
		*found = (struct math_piece){ p.s + i + 5, n - 5 };
		any = true;
		i += n - 1;
	}
	return any;
}

static bool by_any(struct math_piece *found, const char **how, struct math_work *w, struct math_piece p, struct math_piece tail)
{
	const struct math_options *o = w->options;
	int box = math_by_box(found, how, w, p);

	if (box)
		return box > 0;
	*how = "####";
	if (by_hash(found, w, p, false))
		return true;
	*how = "answer line";
	if (by_answer_line(found, w, tail))
		return true;
	*how = "whole response";
	if (by_whole(found, w, p))
		return true;
	*how = "last formula";
	if (by_formula(found, w, tail))
		return true;
	*how = "last letter";
	if (o->mode == MATH_CHOICE && by_letter(found, tail))
		return true;
	*how = "last number";
	if (o->allow_bare_number && find_number(found, tail, true))
		return true;
	*how = "no answer found";
	return false;
}

static bool by_mode(struct math_piece *found, const char **how, struct math_work *w, struct math_piece p)
{
	struct math_piece tail = math_from(p, p.n > MATH_TAIL ? p.n - MATH_TAIL : 0);
	bool ok;

	switch (w->options->mode) {
	case MATH_BOXED:
		ok = math_by_box(found, how, w, p) > 0;
		*how = ok || strcmp(*how, "boxed") ? *how : "no box";
		return ok;
	case MATH_HASH: ok = by_hash(found, w, p, true); *how = "####"; break;
	case MATH_ANSWER_LINE: ok = by_answer_line(found, w, tail); *how = "answer line"; break;
	case MATH_LAST_NUMBER: ok = find_number(found, tail, true); *how = "last number"; break;
	case MATH_GSM8K_STRICT: ok = by_gsm8k(found, p); *how = "####"; break;
	default: return by_any(found, how, w, p, tail);
	}
	if (!ok)
		*how = "no answer found";
	return ok;
}

bool math_extract(struct math_piece *found, const char **how, struct math_work *w, const char *s, size_t n)
{
	struct math_piece p = { s, n };
	size_t end;

	if (w->options->strict_think) {
		end = last_of(p, "</think>");
		if (end < p.n)
			p = math_from(p, end + 8);
		if (last_of(p, "<think>") < p.n) {
			*how = "thinking is not closed";
			return false;
		}
	}
	return by_mode(found, how, w, p);
}
