#include "tools/score/math_parts.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* The bytes of \boxed or \fbox and the blanks behind it, or 0. */
static size_t box_at(struct math_piece p)
{
	size_t n = math_starts(p, "\\boxed") ? 6 : math_starts(p, "\\fbox") ? 5 : 0;

	if (!n || (n < p.n && isalpha((unsigned char)p.s[n])))
		return 0;
	while (n < p.n && p.s[n] == ' ')
		n++;
	return n;
}

static struct math_piece bare_box(struct math_piece p)
{
	size_t n = 0;

	while (n < p.n && !isspace((unsigned char)p.s[n]) && p.s[n] != '$')
		n++;
	return (struct math_piece){ p.s, n };
}

struct boxes {
	struct math_piece *p;   /* closed ones, in the order in which they end */
	size_t *open;           /* start of the contents of what is open; odd: of a box (2 * start + 1) */
	size_t n, cap, opened, open_cap, seen;
};

static void open_brace(struct boxes *b, size_t start, bool box)
{
	GROW(b->open, b->opened, b->open_cap);
	b->open[b->opened++] = 2 * start + box;
	b->seen += box;
}

static void close_brace(struct boxes *b, struct math_piece p, size_t at)
{
	size_t start;

	if (!b->opened)
		return;
	start = b->open[--b->opened];
	if (start % 2 == 0)
		return;
	GROW(b->p, b->n, b->cap);
	b->p[b->n++] = (struct math_piece){ p.s + start / 2, at - start / 2 };
}

/* One pass: a box that never closes hides none that does. */
static void find_boxes(struct boxes *b, struct math_piece p)
{
	for (size_t i = 0, n; i < p.n; i++) {
		if (p.s[i] == '\\' && (n = box_at(math_from(p, i)))) {
			i += n;
			if (i < p.n && p.s[i] == '{') {
				open_brace(b, i + 1, true);
				continue;
			}
			GROW(b->p, b->n, b->cap);
			b->p[b->n++] = bare_box(math_from(p, i < p.n ? i : p.n));
			b->seen++;
			i--;
		} else if (p.s[i] == '\\') {
			i++;
		} else if (p.s[i] == '{') {
			open_brace(b, i + 1, false);
		} else if (p.s[i] == '}') {
			close_brace(b, p, i);
		}
	}
}

static void boxes_release(struct boxes *b)
{
	free(b->p);
	free(b->open);
}

/* The one that starts last: of nested ones, the inner. */
static struct math_piece last_box(const struct boxes *b)
{
	struct math_piece last = b->p[0];

	for (size_t i = 1; i < b->n; i++)
		if (b->p[i].s > last.s)
			last = b->p[i];
	return last;
}

int math_last_box(struct math_piece *found, const char *s, size_t n)
{
	struct boxes b = { 0 };
	int rc;

	find_boxes(&b, (struct math_piece){ s, n });
	rc = b.n ? 1 : b.seen ? -1 : 0;
	if (rc > 0)
		*found = last_box(&b);
	boxes_release(&b);
	return rc;
}

static bool boxes_differ(struct math_work *w, const struct boxes *b, struct math_piece last)
{
	struct math_answer one, other;
	bool differ = false;

	math_read(&one, w, last, true);
	for (size_t i = 0; i < b->n && !differ; i++) {
		if (b->p[i].n == last.n && !memcmp(b->p[i].s, last.s, last.n))
			continue;
		if (math_starts(math_trim(b->p[i]), "\\boxed") || math_starts(math_trim(b->p[i]), "\\fbox"))
			continue;
		math_read(&other, w, b->p[i], true);
		differ = !math_equal(&one, &other, w->options);
	}
	return differ;
}

int math_by_box(struct math_piece *found, const char **how, struct math_work *w, struct math_piece p)
{
	struct boxes b = { 0 };
	int rc;

	find_boxes(&b, p);
	rc = b.n ? 1 : b.seen ? -1 : 0;
	*how = rc > 0 ? "boxed" : "the box is not closed";
	if (rc > 0) {
		*found = math_trim(last_box(&b));
		if (w->options->single_answer && boxes_differ(w, &b, *found)) {
			*how = "several boxed answers";
			rc = -1;
		}
	}
	boxes_release(&b);
	return rc;
}
