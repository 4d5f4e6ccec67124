#include "formats/tokenizer_stages.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TYPE_NORMAL = 1, TYPE_UNKNOWN, TYPE_CONTROL, TYPE_USER, TYPE_UNUSED, TYPE_BYTE };
enum { TOKENS_MOST = 1 << 24 };
#define UNDERLINE "\xe2\x96\x81" /* U+2581, which stands for a blank */

/* -- what `tokenizer.ggml.pre` names -- */

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define LLAMA3_TAIL "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define LLAMA3 CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}" LLAMA3_TAIL
#define QWEN2 CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}" LLAMA3_TAIL
#define QWEN35 \
	CONTRACTIONS \
		"|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*" \
		"|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define O200K_LIKE(tail, digits) \
	"[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" tail "|[^\\r\\n\\p{L}\\p{N}]?" UPPER \
	"+" LOWER "*" tail "|" digits \
	"| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define O200K O200K_LIKE(CONTRACTIONS "?", "\\p{N}{1,3}")
#define TEKKEN O200K_LIKE("", "\\p{N}")
/* U+4E00 to 9FA5, 3040 to 309F, 30A0 to 30FF */
#define CJK "[\xe4\xb8\x80-\xe9\xbe\xa5\xe3\x81\x80-\xe3\x82\x9f\xe3\x82\xa0-\xe3\x83\xbf]+"
#define DEEPSEEK3 \
	"[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+" \
	"| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"

static const struct pre {
	const char *name;
	bool nfc, digits, gpt2, ignore_merges, add_bos; /* add_bos: where the file does not say */
	const char *split[3];
} pres[] = {
	{ "gpt-2", .gpt2 = true },
	{ "gpt2", .gpt2 = true },
	{ "olmo", .gpt2 = true },
	{ "smollm", .digits = true, .gpt2 = true },
	{ "llama-bpe", .ignore_merges = true, .add_bos = true, .split = { LLAMA3 } },
	{ "llama3", .ignore_merges = true, .add_bos = true, .split = { LLAMA3 } },
	{ "llama-v3", .ignore_merges = true, .add_bos = true, .split = { LLAMA3 } },
	{ "qwen2", .nfc = true, .split = { QWEN2 } },
	{ "deepseek-r1-qwen", .nfc = true, .split = { QWEN2 } },
	{ "qwen35", .nfc = true, .split = { QWEN35 } },
	{ "gpt-4o", .ignore_merges = true, .split = { O200K } },
	{ "tekken", .ignore_merges = true, .add_bos = true, .split = { TEKKEN } },
	{ "deepseek-v3", .split = { "\\p{N}{1,3}", CJK, DEEPSEEK3 } },
};

static int add_split(struct tokenizer *t, const char *pattern, const char *file, struct err *e)
{
	struct step *s = step_add(t, &t->pre, PRE_SPLIT, file, e);

	if (!s)
		return -1;
	s->regex = true;
	s->a = tok_text(t, pattern, strlen(pattern));
	return 0;
}

static int use_pre(struct tokenizer *t, const struct pre *p, const char *file, struct err *e)
{
	struct step *s;

	t->ignore_merges = p->ignore_merges;
	if (p->nfc && !step_add(t, &t->norm, NORM_NFC, file, e))
		return -1;
	if (p->digits) {
		if (!(s = step_add(t, &t->pre, PRE_DIGITS, file, e)))
			return -1;
		s->individual = true;
	}
	for (int i = 0; i < 3 && p->split[i]; i++)
		if (add_split(t, p->split[i], file, e))
			return -1;
	if (!(s = step_add(t, &t->pre, PRE_BYTE_LEVEL, file, e)))
		return -1;
	s->use_regex = p->gpt2;
	return step_add(t, &t->dec, DEC_BYTE_LEVEL, file, e) ? 0 : -1;
}

static const struct pre *find_pre(const char *name, const char *file, struct err *e)
{
	for (size_t i = 0; name && i < sizeof(pres) / sizeof(pres[0]); i++)
		if (!strcmp(pres[i].name, name))
			return &pres[i];
	err_set(e, EX_UNAVAILABLE,
		"%s: tokenizer.ggml.pre: %s \"%.40s\", want one of gpt-2, smollm, llama-bpe, qwen2, "
		"qwen35, gpt-4o, tekken, deepseek-v3, olmo, deepseek-r1-qwen",
		file, name ? "found" : "missing", name ? name : "");
	return NULL;
}

/* -- byte-level BPE -- */

static int type_of(const struct tokenizer_source *s, long id)
{
	return s->token_type ? s->token_type[id] : TYPE_NORMAL;
}

static int source_merges(struct tokenizer *t, const struct tokenizer_source *s, const char *file,
			 struct err *e)
{
	long cap = 0;

	for (long i = 0; i < s->nmerges; i++) {
		const char *m = s->merges[i],
			   *blank =
				   s->merge_len[i] ? memchr(m + 1, ' ', s->merge_len[i] - 1) : NULL;
		struct text a, b;
		size_t bad;

		if (!blank || !utf8_is_valid(m, s->merge_len[i], &bad))
			return err_set(
				e, EX_DATAERR,
				"%s: tokenizer.ggml.merges[%ld]: found \"%.*s\", want \"a b\"",
				file, i, (int)(s->merge_len[i] < 40 ? s->merge_len[i] : 40), m);
		a = tok_text(t, m, (size_t)(blank - m));
		b = tok_text(t, blank + 1, s->merge_len[i] - a.n - 1);
		if (merge_add_text(t, &cap, a, b, file, e))
			return -1;
	}
	return 0;
}

/* -- SentencePiece BPE -- */

/*
 * SentencePiece merges the adjacent pair whose union has the highest score.  The same as merges
 * in the order of falling scores, and for one score by falling lengths, which is how the engine's
 * converter orders them, so that an exported tokenizer.json gives the same ids.
 */
struct scored {
	struct merge m;
	float score;
	int na, nb; /* characters */
};

static int by_score(const void *pa, const void *pb)
{
	const struct scored *a = pa, *b = pb;

	if (a->score != b->score)
		return a->score > b->score ? -1 : 1;
	if (a->na != b->na)
		return a->na > b->na ? -1 : 1;
	if (a->nb != b->nb)
		return a->nb > b->nb ? -1 : 1;
	if (a->m.to != b->m.to)
		return a->m.to < b->m.to ? -1 : 1;
	return (a->m.a > b->m.a) - (a->m.a < b->m.a);
}

struct scored_list {
	struct scored *v;
	long n, cap;
};

static int characters(const char *s, size_t n)
{
	int k = 0;

	for (size_t i = 0; i < n; i++)
		k += ((unsigned char)s[i] & 0xc0) != 0x80;
	return k;
}

/* All ways to make one token of two. */
static void add_ways(struct scored_list *l, const struct tokenizer *t, int id, float score)
{
	struct text x = vocab_text(t, id);
	int all = characters(x.s, x.n), left = 0;

	for (size_t i = 1; i < x.n; i++) {
		int a, b;

		if (((unsigned char)x.s[i] & 0xc0) == 0x80)
			continue;
		left++;
		a = vocab_find(t, x.s, i);
		b = a < 0 ? -1 : vocab_find(t, x.s + i, x.n - i);
		if (b < 0)
			continue;
		GROW(l->v, l->n, l->cap);
		l->v[l->n++] = (struct scored){ { a, b, id }, score, left, all - left };
	}
}

static int spm_merges(struct tokenizer *t, const struct tokenizer_source *s, const char *file,
		      struct err *e)
{
	struct scored_list l = { 0 };
	long cap = 0;
	int rc = 0;

	for (long id = 0; id < s->n && !rc; id++) {
		int type = type_of(s, id);

		if (type != TYPE_NORMAL && type != TYPE_USER)
			continue;
		if (s->scores[id] != s->scores[id])
			rc = err_set(e, EX_DATAERR,
				     "%s: tokenizer.ggml.scores[%ld] is not a number", file, id);
		else if (s->token_len[id] > TOK_MAX_SPM)
			rc = err_set(e, EX_DATAERR,
				     "%s: tokenizer.ggml.tokens[%ld]: %zu bytes, want at most %d",
				     file, id, s->token_len[id], TOK_MAX_SPM);
		else
			add_ways(&l, t, (int)id, s->scores[id]);
	}
	if (l.n)
		qsort(l.v, (size_t)l.n, sizeof(*l.v), by_score);
	for (long i = 0; i < l.n && !rc; i++)
		merge_add(t, &cap, l.v[i].m.a, l.v[i].m.b, l.v[i].m.to);
	free(l.v);
	return rc;
}

static struct step *step_with(struct tokenizer *t, struct steps *l, enum step_kind kind,
			      const char *a, const char *b, const char *file, struct err *e)
{
	struct step *s = step_add(t, l, kind, file, e);

	if (s) {
		s->a = tok_text(t, a, strlen(a));
		s->b = tok_text(t, b, strlen(b));
	}
	return s;
}

/*
 * The blank goes in front of every stretch of text between control tokens, as llama.cpp and the
 * tokenizer.json files of Llama 2 have it: what follows a BOS that a template wrote is encoded as
 * if the text began there.
 */
static int spm_steps(struct tokenizer *t, bool prefix, const char *file, struct err *e)
{
	struct step *strip;

	t->byte_fallback = t->fuse_unk = true;
	if ((prefix && !step_with(t, &t->norm, NORM_PREPEND, UNDERLINE, "", file, e)) ||
	    !step_with(t, &t->norm, NORM_REPLACE, " ", UNDERLINE, file, e) ||
	    !step_with(t, &t->dec, DEC_REPLACE, UNDERLINE, " ", file, e) ||
	    !step_add(t, &t->dec, DEC_BYTE_FALLBACK, file, e) ||
	    !step_add(t, &t->dec, DEC_FUSE, file, e))
		return -1;
	if (!prefix)
		return 0;
	strip = step_with(t, &t->dec, DEC_STRIP, " ", "", file, e);
	if (!strip)
		return -1;
	strip->start = 1;
	return 0;
}

/* -- both -- */

/*
 * Converters fill a vocabulary up to the rows of the embedding with tokens that no text has: they
 * are holes.
 */
static bool is_padding(const struct tokenizer_source *s, long id)
{
	char name[32];
	int n = snprintf(name, sizeof(name), "[PAD%ld]", id);

	return type_of(s, id) == TYPE_UNUSED && s->token_len[id] == (size_t)n &&
	       !memcmp(s->tokens[id], name, (size_t)n);
}

static int source_vocab(struct tokenizer *t, const struct tokenizer_source *s, const char *file,
			struct err *e)
{
	struct text *by_id;
	int rc = 0;

	if (s->n <= 0 || s->n > TOKENS_MOST)
		return err_set(e, EX_DATAERR, "%s: tokenizer.ggml.tokens: %ld tokens, want 1 to %d",
			       file, s->n, TOKENS_MOST);
	by_id = xcalloc((size_t)s->n, sizeof(*by_id));
	for (long i = 0; i < s->n && !rc; i++) {
		size_t bad;

		if (is_padding(s, i))
			continue;
		by_id[i] = (struct text){ s->tokens[i], s->token_len[i] };
		if (!utf8_is_valid(s->tokens[i], s->token_len[i], &bad))
			rc = err_set(e, EX_DATAERR,
				     "%s: tokenizer.ggml.tokens[%ld] is not UTF-8 at byte %zu",
				     file, i, bad);
		else if (type_of(s, i) < TYPE_NORMAL || type_of(s, i) > TYPE_BYTE)
			rc = err_set(e, EX_DATAERR,
				     "%s: tokenizer.ggml.token_type[%ld]: found %d, want 1 to 6",
				     file, i, type_of(s, i));
	}
	if (!rc)
		rc = vocab_set(t, by_id, s->n, file, e);
	free(by_id);
	return rc;
}

static int source_added(struct tokenizer *t, const struct tokenizer_source *s, const char *file,
			struct err *e)
{
	struct added_token *v = xcalloc((size_t)s->n, sizeof(*v));
	long n = 0;
	int rc;

	for (long i = 0; i < s->n; i++) {
		int type = type_of(s, i);
		bool special = type == TYPE_CONTROL || type == TYPE_UNKNOWN;

		if (!special && type != TYPE_USER)
			continue;
		v[n++] =
			(struct added_token){ .content = tok_text(t, s->tokens[i], s->token_len[i]),
					      .id = (int)i,
					      .special = special };
	}
	rc = added_set(t, v, n, file, e);
	free(v);
	return rc;
}

static void add_eos(struct tokenizer *t, long id)
{
	for (long i = 0; i < t->neos; i++)
		if (t->eos[i] == id)
			return;
	if (id < 0)
		return;
	t->eos = xrealloc_array(t->eos, (size_t)t->neos + 1, sizeof(*t->eos));
	t->eos[t->neos++] = (int)id;
}

static int *one(int id, long *n)
{
	int *v = xmalloc(sizeof(*v));

	*v = id;
	*n = 1;
	return v;
}

static int source_names(struct tokenizer *t, const struct tokenizer_source *s, bool spm, bool bos,
			const char *file, struct err *e)
{
	long id[] = { s->bos, s->eos, s->eot, s->unk, s->pad };
	bool add_bos = s->add_bos < 0 ? bos : s->add_bos, add_eos_too = s->add_eos > 0;

	for (int i = 0; i < 5; i++)
		if (id[i] < -1 || id[i] >= t->size)
			return err_set(e, EX_DATAERR,
				       "%s: tokenizer.ggml: special token id %ld, want 0 to %ld",
				       file, id[i], t->size - 1);
	t->bos = (int)s->bos;
	t->pad = (int)s->pad;
	t->unk_name = (int)s->unk;
	t->unk = spm ? (int)s->unk : -1;
	add_eos(t, s->eos);
	add_eos(t, s->eot);
	if (add_bos && s->bos < 0 && s->add_bos > 0)
		return err_set(e, EX_DATAERR,
			       "%s: tokenizer.ggml.add_bos_token without a bos_token_id", file);
	if (add_eos_too && s->eos < 0)
		return err_set(e, EX_DATAERR,
			       "%s: tokenizer.ggml.add_eos_token without an eos_token_id", file);
	if (add_bos && s->bos >= 0)
		t->before = one(t->bos, &t->nbefore);
	if (add_eos_too)
		t->after = one((int)s->eos, &t->nafter);
	return 0;
}

static int fill(struct tokenizer *t, const struct tokenizer_source *s, const char *file,
		struct err *e)
{
	bool spm = s->model && !strcmp(s->model, "llama");
	const struct pre *pre = NULL;

	if (!spm && !(s->model && !strcmp(s->model, "gpt2")))
		return err_set(e, EX_UNAVAILABLE,
			       "%s: tokenizer.ggml.model: found \"%.40s\", want gpt2 or llama",
			       file, s->model ? s->model : "nothing");
	if (spm && !s->scores)
		return err_set(e, EX_DATAERR,
			       "%s: tokenizer.ggml.scores: missing, and the model is llama", file);
	if (!spm && !(pre = find_pre(s->pre, file, e)))
		return -1;
	if (source_vocab(t, s, file, e))
		return -1;
	if (spm ? spm_merges(t, s, file, e) || spm_steps(t, s->add_space_prefix, file, e) :
		  use_pre(t, pre, file, e) || source_merges(t, s, file, e))
		return -1;
	if (source_added(t, s, file, e) || source_names(t, s, spm, spm || pre->add_bos, file, e))
		return -1;
	return tokenizer_finish(t, file, e);
}

int tokenizer_from_source(struct tokenizer **out, const struct tokenizer_source *s,
			  const char *file, struct err *e)
{
	struct tokenizer *t = tokenizer_new();

	if (fill(t, s, file, e)) {
		tokenizer_free(t);
		return -1;
	}
	*out = t;
	return 0;
}

int tokenizer_bytes(struct tokenizer **out)
{
	enum { N = 259 };
	static const char *const name[3] = { "<|bos|>", "<|eos|>", "<|pad|>" };
	const char *tokens[N];
	size_t len[N];
	int type[N];
	char spelt[256][4];
	struct tokenizer_source s = TOKENIZER_SOURCE_INIT;
	struct err e = ERR_INIT;

	for (int i = 0; i < N; i++) {
		type[i] = i < 256 ? TYPE_NORMAL : TYPE_CONTROL;
		tokens[i] = i < 256 ? spelt[i] : name[i - 256];
		len[i] = i < 256 ? utf8_put(spelt[i], byte_char((unsigned char)i)) :
				   strlen(tokens[i]);
	}
	s.model = "gpt2";
	s.pre = "gpt-2";
	s.n = N;
	s.tokens = tokens;
	s.token_len = len;
	s.token_type = type;
	s.bos = 256;
	s.eos = 257;
	s.pad = 258;
	s.add_bos = 1;
	if (tokenizer_from_source(out, &s, "the byte vocabulary", &e))
		bug("%s", e.msg);
	return 0;
}
