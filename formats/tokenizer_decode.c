#include "formats/tokenizer_stages.h"

#include <stdlib.h>
#include <string.h>

/* The decoder's steps work on a list of strings, one a token at first. */
struct strings {
	struct str s; /* end to end */
	size_t *end;
	long n, cap;
};

static void close_string(struct strings *l)
{
	GROW(l->end, l->n, l->cap);
	l->end[l->n++] = l->s.len;
}

static struct text string_at(const struct strings *l, long i)
{
	size_t start = i ? l->end[i - 1] : 0;

	return (struct text){ l->s.s ? l->s.s + start : "", l->end[i] - start };
}

static struct text spelling(const struct tokenizer *t, long id)
{
	const struct added_token *a = added_find(t, id);

	return a ? a->content : vocab_text(t, id);
}

/* -- steps -- */

static void add_replaced(struct str *out, struct text x, struct text a, struct text b)
{
	const char *at, *end = x.s + x.n;

	for (; a.n && (at = memmem(x.s, (size_t)(end - x.s), a.s, a.n)); x.s = at + a.n) {
		str_add(out, x.s, (size_t)(at - x.s));
		str_add(out, b.s, b.n);
	}
	str_add(out, x.s, (size_t)(end - x.s));
}

static void add_bytes(struct str *out, struct text x)
{
	if (!spelling_bytes(out, x.s, x.n))
		str_add(out, x.s, x.n);
}

static void byte_level(struct strings *to, const struct strings *from)
{
	struct str bytes = { 0 };

	for (long i = 0; i < from->n; i++)
		add_bytes(&bytes, string_at(from, i));
	utf8_add_lossy(&to->s, bytes.s ? bytes.s : "", bytes.len);
	close_string(to);
	str_release(&bytes);
}

/* A run of byte tokens is its text, or one U+FFFD for each where it is not UTF-8. */
static void close_run(struct strings *to, struct str *run)
{
	size_t bad;

	if (!run->len)
		return;
	if (utf8_is_valid(run->s, run->len, &bad))
		str_add(&to->s, run->s, run->len);
	else
		for (size_t i = 0; i < run->len; i++)
			str_add(&to->s, "\xef\xbf\xbd", 3);
	close_string(to);
	str_cut(run, 0);
}

static void byte_fallback(struct strings *to, const struct strings *from)
{
	struct str run = { 0 };

	for (long i = 0; i < from->n; i++) {
		struct text x = string_at(from, i);
		int b = byte_token(x.s, x.n);

		if (b >= 0) {
			str_putc(&run, b);
			continue;
		}
		close_run(to, &run);
		str_add(&to->s, x.s, x.n);
		close_string(to);
	}
	close_run(to, &run);
	str_release(&run);
}

static struct text stripped(const struct step *d, struct text x)
{
	for (int i = 0; i < d->start && d->a.n && x.n >= d->a.n && !memcmp(x.s, d->a.s, d->a.n);
	     i++) {
		x.s += d->a.n;
		x.n -= d->a.n;
	}
	for (int i = 0;
	     i < d->stop && d->a.n && x.n >= d->a.n && !memcmp(x.s + x.n - d->a.n, d->a.s, d->a.n);
	     i++)
		x.n -= d->a.n;
	return x;
}

static struct text metaspace_sign(const struct step *d, bool first)
{
	return first && d->scheme != SCHEME_NEVER ? (struct text){ "", 0 } :
						    (struct text){ " ", 1 };
}

static void each(const struct step *d, struct strings *to, const struct strings *from)
{
	for (long i = 0; i < from->n; i++) {
		struct text x = string_at(from, i);

		if (d->kind == DEC_REPLACE)
			add_replaced(&to->s, x, d->a, d->b);
		else if (d->kind == DEC_METASPACE)
			add_replaced(&to->s, x, d->a, metaspace_sign(d, !i));
		else {
			x = stripped(d, x);
			str_add(&to->s, x.s, x.n);
		}
		close_string(to);
	}
}

static void run_step(const struct step *d, struct strings *to, const struct strings *from)
{
	switch (d->kind) {
	case DEC_BYTE_LEVEL:
		byte_level(to, from);
		break;
	case DEC_BYTE_FALLBACK:
		byte_fallback(to, from);
		break;
	case DEC_FUSE:
		str_add(&to->s, from->s.s, from->s.len);
		close_string(to);
		break;
	case DEC_REPLACE:
	case DEC_METASPACE:
	case DEC_STRIP:
		each(d, to, from);
		break;
	default:
		bug("step %d in a decoder", d->kind);
	}
}

int tokenizer_decode(const struct tokenizer *t, const int *ids, long n, bool skip_special,
		     struct str *out)
{
	struct strings a = { 0 }, b = { 0 };

	for (long i = 0; i < n; i++) {
		struct text x;

		if (!tokenizer_knows(t, ids[i]) || (skip_special && t->kind[ids[i]] & KIND_SPECIAL))
			continue;
		x = spelling(t, ids[i]);
		/* The engine joins with blanks where a file names no decoder. */
		if (!t->dec.n && a.n)
			str_putc(&a.s, ' ');
		str_add(&a.s, x.s, x.n);
		close_string(&a);
	}
	for (int k = 0; k < t->dec.n; k++) {
		struct strings swap = a;

		a = b;
		b = swap;
		a.n = 0;
		str_cut(&a.s, 0);
		run_step(&t->dec.v[k], &a, &b);
	}
	str_add(out, a.s.s, a.s.len);
	str_release(&a.s);
	str_release(&b.s);
	free(a.end);
	free(b.end);
	return 0;
}

/* -- as tokens arrive -- */

static bool has_step(const struct tokenizer *t, enum step_kind kind)
{
	for (int k = 0; k < t->dec.n; k++)
		if (t->dec.v[k].kind == kind)
			return true;
	return false;
}

/* The bytes of a token; `first` where it begins the text. */
static void add_piece(const struct tokenizer *t, struct str *out, long id, bool first)
{
	struct text x = spelling(t, id);
	struct str y = { 0 };
	int b = has_step(t, DEC_BYTE_FALLBACK) ? byte_token(x.s, x.n) : -1;

	if (b >= 0) {
		str_putc(out, b);
		return;
	}
	if (has_step(t, DEC_BYTE_LEVEL)) {
		add_bytes(out, x);
		return;
	}
	if (!t->dec.n && !first)
		str_putc(out, ' ');
	str_add(&y, x.s, x.n);
	for (int k = 0; k < t->dec.n; k++) {
		const struct step *d = &t->dec.v[k];
		struct text now = { y.s, y.len };
		struct str z = { 0 };

		if (d->kind == DEC_STRIP && first)
			now = stripped(d, now);
		if (d->kind == DEC_REPLACE)
			add_replaced(&z, now, d->a, d->b);
		else if (d->kind == DEC_METASPACE)
			add_replaced(&z, now, d->a, metaspace_sign(d, first));
		else
			str_add(&z, now.s, now.n);
		str_release(&y);
		y = z;
	}
	str_add(out, y.s, y.len);
	str_release(&y);
}

void tokenizer_piece(const struct tokenizer *t, int id, struct str *out)
{
	if (tokenizer_knows(t, id))
		add_piece(t, out, id, false);
}

/* How many bytes at the end of s may still become a character. */
static size_t unfinished(const char *s, size_t n)
{
	for (size_t back = 1; back < 4 && back <= n; back++) {
		bool good;

		if (((unsigned char)s[n - back] & 0xc0) == 0x80)
			continue;
		return utf8_step(s + n - back, back, &good) == back && !good &&
				       (unsigned char)s[n - back] >= 0xc2 &&
				       (unsigned char)s[n - back] < 0xf5 ?
			       back :
			       0;
	}
	return 0;
}

void tokenizer_stream(const struct tokenizer *t, struct token_stream *s, int id, bool skip_special,
		      struct str *out)
{
	struct str bytes = { 0 };
	size_t keep;

	if (!tokenizer_knows(t, id) || (skip_special && t->kind[id] & KIND_SPECIAL))
		return;
	str_add(&bytes, (const char *)s->held, (size_t)s->nheld);
	add_piece(t, &bytes, id, !s->began);
	s->began = true;
	keep = unfinished(bytes.s, bytes.len);
	utf8_add_lossy(out, bytes.s, bytes.len - keep);
	memcpy(s->held, bytes.s + bytes.len - keep, keep);
	s->nheld = (int)keep;
	str_release(&bytes);
}

void tokenizer_stream_end(struct token_stream *s, struct str *out)
{
	utf8_add_lossy(out, (const char *)s->held, (size_t)s->nheld);
	memset(s, 0, sizeof(*s));
}
