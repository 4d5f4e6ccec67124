#include "formats/tokenizer_stages.h"

#include <stdlib.h>
#include <string.h>

void pieces_release(struct pieces *p)
{
	str_release(&p->s);
	free(p->v);
	memset(p, 0, sizeof(*p));
}

static void add_piece(struct pieces *p, size_t start, size_t end, bool first)
{
	if (start == end)
		return;
	GROW(p->v, p->n, p->cap);
	p->v[p->n++] = (struct piece){ start, end, first };
}

/* -- splitting: pieces come and go as ranges of one string -- */

struct range {
	size_t start, end;
	bool match;
};

struct ranges {
	struct range *v;
	long n, cap;
};

static void add_range(struct ranges *r, size_t start, size_t end, bool match)
{
	GROW(r->v, r->n, r->cap);
	r->v[r->n++] = (struct range){ start, end, match };
}

/* The next match of a step's pattern or literal in s at or after from; as pattern_find(). */
static int find(const struct step *s, struct matcher **m, const char *text, size_t n, size_t from,
		size_t *start, size_t *end, struct err *e)
{
	const char *at;

	if (s->pattern)
		return pattern_find(s->pattern, m, text, n, from, start, end, e);
	at = s->a.n ? memmem(text + from, n - from, s->a.s, s->a.n) : NULL;
	if (!at)
		return 0;
	*start = (size_t)(at - text);
	*end = *start + s->a.n;
	return 1;
}

/* Cut s into matches and what lies between them. */
static int cut(struct ranges *r, const struct step *step, struct matcher **m, const char *s,
	       size_t n, struct err *e)
{
	size_t done = 0, from = 0, start, end;
	int rc;

	r->n = 0;
	while (from <= n && (rc = find(step, m, s, n, from, &start, &end, e))) {
		if (rc < 0)
			return -1;
		if (start > done)
			add_range(r, done, start, step->invert);
		if (start < end)
			add_range(r, start, end, !step->invert);
		done = end;
		from = end;
		if (start == end) /* an empty match: look on behind the next character */
			do
				from++;
			while (from < n && ((unsigned char)s[from] & 0xc0) == 0x80);
	}
	if (done < n)
		add_range(r, done, n, step->invert);
	return 0;
}

static void join_forward(struct ranges *r, enum behaviour how)
{
	long k = 0;
	bool before = false;

	for (long i = 0; i < r->n; i++) {
		struct range x = r->v[i];
		bool join = how == CONTIGUOUS ? x.match == before : x.match && !before;

		if (join && k)
			r->v[k - 1].end = x.end;
		else
			r->v[k++] = x;
		before = x.match;
	}
	r->n = k;
}

static void join_backward(struct ranges *r)
{
	long k = r->n;
	bool after = false;

	for (long i = r->n; i-- > 0;) {
		struct range x = r->v[i];

		if (x.match && !after && k < r->n)
			r->v[k].start = x.start;
		else
			r->v[--k] = x;
		after = x.match;
	}
	memmove(r->v, r->v + k, (size_t)(r->n - k) * sizeof(*r->v));
	r->n -= k;
}

static void join(struct ranges *r, enum behaviour how)
{
	long k = 0;

	switch (how) {
	case REMOVED:
		for (long i = 0; i < r->n; i++)
			if (!r->v[i].match)
				r->v[k++] = r->v[i];
		r->n = k;
		break;
	case MERGED_WITH_PREVIOUS:
	case CONTIGUOUS:
		join_forward(r, how);
		break;
	case MERGED_WITH_NEXT:
		join_backward(r);
		break;
	default:
		break;
	}
}

static int split(const struct step *step, enum behaviour how, struct pieces *out,
		 struct matcher **m, struct ranges *r, const struct pieces *in, struct err *e)
{
	str_add(&out->s, in->s.s, in->s.len);
	for (long i = 0; i < in->n; i++) {
		const struct piece *p = &in->v[i];

		if (cut(r, step, m, in->s.s + p->start, p->end - p->start, e))
			return -1;
		join(r, how);
		for (long j = 0; j < r->n; j++)
			add_piece(out, p->start + r->v[j].start, p->start + r->v[j].end,
				  p->first && !r->v[j].start);
	}
	return 0;
}

/* -- steps that rewrite pieces -- */

/* A blank in front of every piece that has none. */
static void prefix_spaces(struct pieces *out, const struct pieces *in)
{
	for (long i = 0; i < in->n; i++) {
		const struct piece *p = &in->v[i];
		size_t start = out->s.len;

		if (in->s.s[p->start] != ' ')
			str_putc(&out->s, ' ');
		str_add(&out->s, in->s.s + p->start, p->end - p->start);
		add_piece(out, start, out->s.len, p->first);
	}
}

static void metaspace(const struct step *step, struct pieces *out, const struct pieces *in)
{
	for (long i = 0; i < in->n; i++) {
		const struct piece *p = &in->v[i];
		const char *s = in->s.s + p->start;
		size_t n = p->end - p->start, start = out->s.len, sign = step->a.n;
		bool there = s[0] == ' ' || (n >= sign && !memcmp(s, step->a.s, sign));

		if (!there &&
		    (step->scheme == SCHEME_ALWAYS || (step->scheme == SCHEME_FIRST && p->first)))
			str_add(&out->s, step->a.s, sign);
		for (size_t k = 0; k < n; k++)
			if (s[k] == ' ')
				str_add(&out->s, step->a.s, sign);
			else
				str_putc(&out->s, s[k]);
		add_piece(out, start, out->s.len, p->first);
	}
}

static void move(struct pieces *to, struct pieces *from)
{
	struct pieces x = *to;

	*to = *from;
	*from = x;
	str_cut(&from->s, 0);
	from->n = 0;
}

static int one_step(const struct step *step, struct pieces *p, struct pieces *q, struct matcher **m,
		    struct ranges *r, struct err *e)
{
	enum behaviour how = step->kind == PRE_SPLIT ? step->behaviour : ISOLATED;
	bool splits = true;

	switch (step->kind) {
	case PRE_SPLIT:
		break;
	case PRE_DIGITS:
		how = step->individual ? ISOLATED : CONTIGUOUS;
		break;
	case PRE_BYTE_LEVEL:
		if (step->prefix_space) {
			prefix_spaces(q, p);
			move(p, q);
		}
		splits = step->use_regex;
		break;
	case PRE_METASPACE:
		metaspace(step, q, p);
		move(p, q);
		splits = step->individual;
		how = MERGED_WITH_NEXT;
		break;
	default:
		bug("step %d in a pre-tokeniser", step->kind);
	}
	if (!splits)
		return 0;
	if (split(step, how, q, m, r, p, e))
		return -1;
	move(p, q);
	return 0;
}

int pretokenize(const struct tokenizer *t, struct pieces *out, struct matcher **m, const char *s,
		size_t n, bool first, struct err *e)
{
	struct pieces q = { 0 };
	struct ranges r = { 0 };
	int rc = 0;

	str_cut(&out->s, 0);
	out->n = 0;
	str_add(&out->s, s, n);
	add_piece(out, 0, n, first);
	for (int i = 0; i < t->pre.n && !rc; i++)
		rc = one_step(&t->pre.v[i], out, &q, m, &r, e);
	pieces_release(&q);
	free(r.v);
	return rc;
}
