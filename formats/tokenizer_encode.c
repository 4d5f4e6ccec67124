#include "formats/tokenizer_stages.h"

#include <stdlib.h>
#include <string.h>

/* One call of tokenizer_encode(). */
struct encoder {
	const struct tokenizer *t;
	struct token_list *out;
	struct matcher *matcher;
	struct bpe bpe;
	struct pieces pieces;
	struct str text, mark; /* normalised */
	bool added; /* look for added tokens */
};

/* Text without added tokens; `first` where it begins the whole text. */
static int encode_plain(struct encoder *c, const char *s, size_t n, bool first, struct err *e)
{
	if (!n)
		return 0;
	if (pretokenize(c->t, &c->pieces, &c->matcher, s, n, first, e))
		return -1;
	for (long i = 0; i < c->pieces.n; i++) {
		const struct piece *p = &c->pieces.v[i];

		bpe_word(c->t, &c->bpe, c->out, c->pieces.s.s + p->start, p->end - p->start);
	}
	return 0;
}

/* Text between added tokens that are matched as written. */
static int encode_normal(struct encoder *c, const char *s, const char *mark, size_t n, bool first,
			 struct err *e)
{
	struct added_match *v;
	size_t done = 0;
	long nv;
	int rc = 0;

	if (!n)
		return 0;
	if (normalize(c->t, &c->text, &c->mark, s, mark, n, e))
		return -1;
	trie_match(c->t, c->added ? c->t->normal : NULL, &c->matcher, c->text.s,
		   mark ? c->mark.s : NULL, c->text.len, &v, &nv);
	for (long i = 0; i < nv && !rc; i++) {
		if (v[i].start > done)
			rc = encode_plain(c, c->text.s + done, v[i].start - done, first && !done,
					  e);
		token_list_add(c->out, v[i].id);
		done = v[i].end;
	}
	if (!rc && done < c->text.len)
		rc = encode_plain(c, c->text.s + done, c->text.len - done, first && !done, e);
	free(v);
	return rc;
}

static int encode_text(struct encoder *c, const char *s, const char *mark, size_t n, struct err *e)
{
	struct added_match *v;
	size_t done = 0;
	long nv;
	int rc = 0;

	trie_match(c->t, c->added ? c->t->plain : NULL, &c->matcher, s, mark, n, &v, &nv);
	for (long i = 0; i < nv && !rc; i++) {
		if (v[i].start > done)
			rc = encode_normal(c, s + done, mark ? mark + done : NULL,
					   v[i].start - done, !done, e);
		token_list_add(c->out, v[i].id);
		done = v[i].end;
	}
	if (!rc && done < n)
		rc = encode_normal(c, s + done, mark ? mark + done : NULL, n - done, !done, e);
	free(v);
	return rc;
}

/* One byte for each of text: is it in a span? */
static int spans_mark(char **mark, const struct token_span *spans, long nspans, size_t n,
		      struct err *e)
{
	size_t done = 0;

	*mark = NULL;
	for (long i = 0; i < nspans; i++) {
		if (spans[i].start < done || spans[i].end < spans[i].start || spans[i].end > n)
			return err_set(
				e, EX_DATAERR,
				"span %ld of a text of %zu bytes: %zu to %zu, want ascending ranges",
				i, n, spans[i].start, spans[i].end);
		done = spans[i].end;
	}
	if (!nspans)
		return 0;
	*mark = xcalloc(n + 1, 1);
	for (long i = 0; i < nspans; i++)
		memset(*mark + spans[i].start, 1, spans[i].end - spans[i].start);
	return 0;
}

static void add_all(struct token_list *out, const int *id, long n)
{
	for (long i = 0; i < n; i++)
		token_list_add(out, id[i]);
}

/* What the post-processor puts in front; a BOS that is there already is not doubled. */
static void add_before(const struct tokenizer *t, struct token_list *out, long was)
{
	long skip = tokenizer_adds_bos(t) && out->n > was && out->id[was] == t->bos;
	long k = t->nbefore - skip;

	if (k <= 0)
		return;
	add_all(out, t->before, k);
	memmove(out->id + was + k, out->id + was, (size_t)(out->n - k - was) * sizeof(*out->id));
	memcpy(out->id + was, t->before, (size_t)k * sizeof(*out->id));
}

int tokenizer_encode_spans(const struct tokenizer *t, const char *text, size_t n,
			   const struct token_span *spans, long nspans, unsigned flags,
			   struct token_list *out, struct err *e)
{
	struct encoder c = { .t = t, .out = out, .added = !(flags & TOK_NO_ADDED) };
	long was = out->n;
	size_t bad;
	char *mark;
	int rc;

	if (n > TOK_MAX_TEXT)
		return err_set(e, EX_DATAERR, "text of %zu bytes, want at most %zu", n,
			       TOK_MAX_TEXT);
	if (!utf8_is_valid(text, n, &bad))
		return err_set(e, EX_DATAERR, "text is not UTF-8 at byte %zu of %zu", bad, n);
	if (spans_mark(&mark, spans, nspans, n, e))
		return -1;
	c.bpe.no_special = nspans || !c.added;
	bpe_use_cache(&c.bpe, n);
	rc = encode_text(&c, text, mark, n, e);
	if (rc)
		out->n = was;
	if (!rc && flags & TOK_SPECIALS) {
		add_before(t, out, was);
		add_all(out, t->after, t->nafter);
	}
	free(mark);
	bpe_release(&c.bpe);
	pieces_release(&c.pieces);
	matcher_release(c.matcher);
	str_release(&c.text);
	str_release(&c.mark);
	return rc;
}

int tokenizer_encode(const struct tokenizer *t, const char *text, size_t n, unsigned flags,
		     struct token_list *out, struct err *e)
{
	return tokenizer_encode_spans(t, text, n, NULL, 0, flags, out, e);
}
