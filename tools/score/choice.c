#include "tools/score/score.h"

#include "libcommon/xalloc.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/*
 * The letter that a response chooses.  In this order: what the last complete \boxed{} holds; the letter behind the last "answer"
 * (with "is", ":", brackets and stars between); the response itself, where it begins with a letter and a mark, or is only a letter.
 * A letter in running text is no choice: "A" and "I" are words.
 */

struct reader { const char *s, *end; };

static bool word_ends(const struct reader *r, const char *p)
{
	return p >= r->end || !(isalnum((unsigned char)*p) || *p == '_');
}

/* Blanks, brackets, stars and dollar signs, and the commands that wrap a letter: \text{ \mathrm{ \textbf{ \( ... */
static void skip_wrapping(struct reader *r)
{
	while (r->s < r->end) {
		if (*r->s == '\\') {
			r->s++;
			while (r->s < r->end && isalpha((unsigned char)*r->s))
				r->s++;
		} else if (memchr(" \t\r\n([{*$\"'", *r->s, 10)) {
			r->s++;
		} else {
			return;
		}
	}
}

/* A letter of its own at the reader, of either case; 0: none. */
static int letter(struct reader r)
{
	skip_wrapping(&r);
	if (r.s < r.end && isalpha((unsigned char)*r.s) && word_ends(&r, r.s + 1))
		return toupper((unsigned char)*r.s);
	return 0;
}

/* The last \boxed{...} whose braces close; false: none. */
static bool last_box(struct reader *box, const char *s, size_t n)
{
	bool found = false;

	for (size_t i = 0; i + 7 <= n; i++) {
		long depth = 1;
		size_t k = i + 7;

		if (memcmp(s + i, "\\boxed{", 7))
			continue;
		for (; k < n && depth; k++)
			depth += s[k] == '{' ? 1 : s[k] == '}' ? -1 : 0;
		if (depth)
			break; /* nothing behind it closes this one either */
		*box = (struct reader){ s + i + 7, s + k - 1 };
		found = true;
	}
	return found;
}

static int behind_answer(const char *s, size_t n)
{
	int found = 0;

	for (size_t i = 0; i + 6 <= n; i++) {
		struct reader r = { s + i + 6, s + n };
		int c;

		if (strncasecmp(s + i, "answer", 6))
			continue;
		for (;;) {
			skip_wrapping(&r);
			if (r.end - r.s >= 2 && !strncasecmp(r.s, "is", 2) && word_ends(&r, r.s + 2))
				r.s += 2;
			else if (r.s < r.end && (*r.s == ':' || *r.s == '='))
				r.s++;
			else
				break;
		}
		c = letter(r);
		/* "the answer is a number": a small letter needs a mark or an end behind it. */
		if (c && (isupper((unsigned char)*r.s) || r.s + 1 == r.end || r.s[1] != ' '))
			found = c;
	}
	return found;
}

static int whole(const char *s, size_t n)
{
	struct reader r = { s, s + n };
	int c = letter(r);

	skip_wrapping(&r);
	if (!c)
		return 0;
	r.s++;
	if (r.s < r.end && memchr(").:]}*", *r.s, 6))
		return c;
	while (r.s < r.end && isspace((unsigned char)*r.s))
		r.s++;
	return r.s == r.end ? c : 0;
}

int choice_letter(const char *s, size_t n)
{
	struct reader box;
	int c;

	if (last_box(&box, s, n))
		return letter(box);
	if (memmem(s, n, "\\boxed{", 7))
		return 0; /* a box that never closes is an answer that was cut off */
	c = behind_answer(s, n);
	return c ? c : whole(s, n);
}

int judge_choice(struct verdict *v, const struct reward *r, const struct question *q, struct err *e)
{
	int want, found;
	char text[2] = "";

	(void)r;
	if (!q->gold)
		return err_set(e, EX_DATAERR, "the row has no answer to compare with");
	want = choice_letter(q->gold, strlen(q->gold));
	if (!want)
		return err_set(e, EX_DATAERR, "the row's answer is %.40s, wanted a letter", q->gold);
	found = choice_letter(q->s->text, q->s->text_bytes);
	text[0] = (char)found;
	*v = (struct verdict){ found == want, found ? xstrdup(text) : NULL, found ? NULL : xstrdup("no letter is chosen") };
	return 0;
}
