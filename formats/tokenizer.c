#include "formats/tokenizer_stages.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void token_list_add(struct token_list *l, int id)
{
	GROW(l->id, l->n, l->cap);
	l->id[l->n++] = id;
}

void token_list_release(struct token_list *l)
{
	free(l->id);
	memset(l, 0, sizeof(*l));
}

struct tokenizer *tokenizer_new(void)
{
	struct tokenizer *t = xcalloc(1, sizeof(*t));

	t->bos = t->pad = t->unk = t->unk_name = -1;
	return t;
}

static void steps_release(struct steps *s)
{
	for (int i = 0; i < s->n; i++)
		pattern_free(s->v[i].pattern);
}

void tokenizer_free(struct tokenizer *t)
{
	if (!t)
		return;
	steps_release(&t->norm);
	steps_release(&t->pre);
	steps_release(&t->dec);
	pattern_free(t->word);
	trie_free(t->plain);
	trie_free(t->normal);
	free(t->kind);
	free(t->texts);
	free(t->text_at);
	free(t->merge);
	free(t->added);
	free(t->eos);
	free(t->before);
	free(t->after);
	free(t->by_text);
	free(t->by_pair);
	arena_release(&t->arena);
	free(t);
}

struct text tok_text(struct tokenizer *t, const char *s, size_t n)
{
	return (struct text){ arena_strndup(&t->arena, s, n), n };
}

uint64_t mix64(uint64_t x)
{
	x = (x ^ x >> 33) * 0xff51afd7ed558ccdu;
	x = (x ^ x >> 33) * 0xc4ceb9fe1a85ec53u;
	return x ^ x >> 33;
}

/* -- the vocabulary -- */

struct text vocab_text(const struct tokenizer *t, long id)
{
	if (id < 0 || id >= t->size || !(t->kind[id] & KIND_VOCAB))
		return (struct text){ "", 0 };
	return (struct text){ t->texts + t->text_at[id], t->text_at[id + 1] - t->text_at[id] - 1 };
}

static size_t text_slot(const struct tokenizer *t, const char *s, size_t n)
{
	size_t i = mix64(hash64(s, n) ^ t->text_seed) & t->text_mask;

	for (; t->by_text[i]; i = (i + 1) & t->text_mask) {
		struct text have = vocab_text(t, t->by_text[i] - 1);

		if (have.n == n && !memcmp(have.s, s, n))
			break;
	}
	return i;
}

int vocab_find(const struct tokenizer *t, const char *s, size_t n)
{
	return t->by_text ? t->by_text[text_slot(t, s, n)] - 1 : -1;
}

/* A power of two that n entries fill at most half. */
static size_t table_size(long n)
{
	size_t size = 16;

	while (size < 2 * (size_t)n)
		size *= 2;
	return size;
}

int vocab_index(struct tokenizer *t, const char *file, struct err *e)
{
	size_t size = table_size(t->size);

	t->text_seed = hash64(t->texts, t->text_at[t->size]);
	t->text_mask = size - 1;
	t->by_text = xcalloc(size, sizeof(*t->by_text));
	for (long id = 0; id < t->size; id++) {
		struct text x = vocab_text(t, id);
		size_t i;

		if (!(t->kind[id] & KIND_VOCAB))
			continue;
		i = text_slot(t, x.s, x.n);
		if (t->by_text[i])
			return err_set(e, EX_DATAERR,
				       "%s: tokens %d and %ld have one spelling \"%.40s\"", file,
				       t->by_text[i] - 1, id, x.s);
		t->by_text[i] = (int)id + 1;
	}
	return 0;
}

int vocab_set(struct tokenizer *t, const struct text *by_id, long size, const char *file,
	      struct err *e)
{
	size_t bytes = 0, at = 0;

	for (long i = 0; i < size; i++) {
		bytes += by_id[i].n + 1;
		if (bytes > TOK_MAX_TEXT)
			return err_set(e, EX_DATAERR, "%s: vocabulary of more than %zu bytes", file,
				       TOK_MAX_TEXT);
	}
	t->size = size;
	t->kind = xcalloc((size_t)size, 1);
	t->texts = xmalloc(bytes);
	t->text_at = xmalloc(((size_t)size + 1) * sizeof(*t->text_at));
	for (long i = 0; i < size; i++) {
		t->text_at[i] = (uint32_t)at;
		t->kind[i] = by_id[i].s ? KIND_VOCAB : 0;
		if (by_id[i].n)
			memcpy(t->texts + at, by_id[i].s, by_id[i].n);
		at += by_id[i].n;
		t->texts[at++] = 0;
	}
	t->text_at[size] = (uint32_t)at;
	return vocab_index(t, file, e);
}

/* -- merges -- */

void merge_add(struct tokenizer *t, long *cap, int a, int b, int to)
{
	GROW(t->merge, t->nmerge, *cap);
	t->merge[t->nmerge++] = (struct merge){ a, b, to };
}

int merge_add_text(struct tokenizer *t, long *cap, struct text a, struct text b, const char *file,
		   struct err *e)
{
	char small[256], *joined = a.n + b.n <= sizeof(small) ? small : xmalloc(a.n + b.n);
	int ia = vocab_find(t, a.s, a.n), ib = vocab_find(t, b.s, b.n), to;

	memcpy(joined, a.s, a.n);
	memcpy(joined + a.n, b.s, b.n);
	to = vocab_find(t, joined, a.n + b.n);
	if (joined != small)
		free(joined);
	if (ia < 0 || ib < 0 || to < 0)
		return err_set(e, EX_DATAERR,
			       "%s: merge %ld: \"%.*s\" and \"%.*s\": %s is not in the vocabulary",
			       file, t->nmerge, (int)(a.n < 40 ? a.n : 40), a.s,
			       (int)(b.n < 40 ? b.n : 40), b.s,
			       ia < 0 ? "the first" :
			       ib < 0 ? "the second" :
					"their union");
	merge_add(t, cap, ia, ib, to);
	return 0;
}

static void merge_index(struct tokenizer *t)
{
	size_t size = table_size(t->nmerge);

	t->pair_seed = t->nmerge ? hash64(t->merge, (size_t)t->nmerge * sizeof(*t->merge)) : 0;
	t->pair_mask = size - 1;
	t->by_pair = xmalloc(size * sizeof(*t->by_pair));
	for (size_t i = 0; i < size; i++)
		t->by_pair[i].to = -1;
	for (long r = 0; r < t->nmerge; r++) {
		uint64_t key = (uint64_t)(uint32_t)t->merge[r].a << 32 | (uint32_t)t->merge[r].b;
		size_t i = mix64(key ^ t->pair_seed) & t->pair_mask;

		while (t->by_pair[i].to >= 0 && t->by_pair[i].key != key)
			i = (i + 1) & t->pair_mask;
		t->by_pair[i] = (struct merge_slot){ key, (uint32_t)r, t->merge[r].to };
	}
}

/* -- added tokens -- */

const struct added_token *added_find(const struct tokenizer *t, long id)
{
	long lo = 0, hi = t->nadded;

	while (lo < hi) {
		long mid = (lo + hi) / 2;

		if (t->added[mid].id < id)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < t->nadded && t->added[lo].id == id ? &t->added[lo] : NULL;
}

static int by_id(const void *pa, const void *pb)
{
	const struct added_token *a = pa, *b = pb;

	return (a->id > b->id) - (a->id < b->id);
}

static int by_content(const void *pa, const void *pb)
{
	const struct added_token *const *a = pa, *const *b = pb;
	size_t n = (*a)->content.n < (*b)->content.n ? (*a)->content.n : (*b)->content.n;
	int c = memcmp((*a)->content.s, (*b)->content.s, n);

	return c ? c : ((*a)->content.n > (*b)->content.n) - ((*a)->content.n < (*b)->content.n);
}

/* Two ids for one spelling would make the text ambiguous. */
static int added_distinct(const struct tokenizer *t, const char *file, struct err *e)
{
	const struct added_token **v = xmalloc((size_t)t->nadded * sizeof(*v));
	int rc = 0;

	for (long i = 0; i < t->nadded; i++)
		v[i] = &t->added[i];
	qsort(v, (size_t)t->nadded, sizeof(*v), by_content);
	for (long i = 1; i < t->nadded && !rc; i++)
		if (!by_content(&v[i - 1], &v[i]))
			rc = err_set(e, EX_DATAERR,
				     "%s: added tokens %d and %d have one spelling \"%.40s\"", file,
				     v[i - 1]->id, v[i]->id, v[i]->content.s);
	free(v);
	return rc;
}

int added_set(struct tokenizer *t, const struct added_token *v, long n, const char *file,
	      struct err *e)
{
	long size = t->size;

	t->added = xmalloc((size_t)n * sizeof(*v));
	if (n)
		memcpy(t->added, v, (size_t)n * sizeof(*v));
	t->nadded = n;
	qsort(t->added, (size_t)n, sizeof(*v), by_id);
	for (long i = 0; i < n; i++) {
		const struct added_token *a = &t->added[i];

		if (a->id < 0 || a->id >= t->size + n + TOK_MAX_HOLES)
			return err_set(e, EX_DATAERR,
				       "%s: added token \"%.40s\": id %d, want at most %ld", file,
				       a->content.s, a->id, t->size + n + TOK_MAX_HOLES);
		if (a->content.n > TOK_MAX_ADDED)
			return err_set(e, EX_DATAERR,
				       "%s: added token %d: spelling of %zu bytes, want at most %d",
				       file, a->id, a->content.n, TOK_MAX_ADDED);
		if (i && a->id == a[-1].id)
			return err_set(e, EX_DATAERR,
				       "%s: two added tokens have the id %d: \"%.40s\", \"%.40s\"",
				       file, a->id, a[-1].content.s, a->content.s);
		size = a->id >= size ? a->id + 1L : size;
	}
	t->kind = xrealloc(t->kind, (size_t)size);
	t->text_at = xrealloc(t->text_at, ((size_t)size + 1) * sizeof(*t->text_at));
	for (long i = t->size; i < size; i++) {
		t->kind[i] = 0;
		t->text_at[i + 1] = t->text_at[t->size];
	}
	t->size = size;
	for (long i = 0; i < n; i++)
		t->kind[t->added[i].id] |=
			(uint8_t)(KIND_ADDED | (t->added[i].special ? KIND_SPECIAL : 0));
	return added_distinct(t, file, e);
}

/* -- steps -- */

struct step *step_add(struct tokenizer *t, struct steps *s, enum step_kind kind, const char *file,
		      struct err *e)
{
	if (!s->v)
		s->v = arena_calloc(&t->arena, TOK_MAX_STEPS, sizeof(*s->v));
	if (s->n == TOK_MAX_STEPS) {
		err_set(e, EX_DATAERR,
			"%s: more than %d steps in a normalizer, pre_tokenizer or decoder", file,
			TOK_MAX_STEPS);
		return NULL;
	}
	s->v[s->n].kind = kind;
	s->v[s->n].a = s->v[s->n].b = (struct text){ "", 0 };
	return &s->v[s->n++];
}

static int step_compile(struct step *s, const char *file, struct err *e)
{
	switch (s->kind) {
	case PRE_SPLIT:
		return s->regex ? pattern_new(&s->pattern, s->a.s, s->a.n, file, e) : 0;
	case PRE_DIGITS:
		return pattern_new(&s->pattern, "\\p{N}", 5, file, e);
	case PRE_BYTE_LEVEL:
		return s->use_regex ? pattern_new(&s->pattern, GPT2_PATTERN, strlen(GPT2_PATTERN),
						  file, e) :
				      0;
	default:
		return 0;
	}
}

static int steps_compile(struct steps *s, const char *file, struct err *e)
{
	for (int i = 0; i < s->n; i++)
		if (step_compile(&s->v[i], file, e))
			return -1;
	return 0;
}

/* -- finishing -- */

static int ids_check(const struct tokenizer *t, const int *v, long n, const char *what,
		     const char *file, struct err *e)
{
	for (long i = 0; i < n; i++)
		if (v[i] != -1 && !tokenizer_knows(t, v[i]))
			return err_set(e, EX_DATAERR,
				       "%s: %s: id %d, want one of a token (0 to %ld)", file, what,
				       v[i], t->size - 1);
	return 0;
}

static void byte_ids(struct tokenizer *t)
{
	t->all_bytes = true;
	for (int b = 0; b < 256; b++) {
		char s[8];
		size_t n = t->byte_level ? utf8_put(s, byte_char((unsigned char)b)) :
					   (size_t)snprintf(s, sizeof(s), "<0x%02X>", (unsigned)b);

		t->byte_id[b] = vocab_find(t, s, n);
		t->all_bytes &= t->byte_id[b] >= 0;
	}
}

int tokenizer_finish(struct tokenizer *t, const char *file, struct err *e)
{
	if (steps_compile(&t->norm, file, e) || steps_compile(&t->pre, file, e) ||
	    pattern_new(&t->word, WORD_PATTERN, strlen(WORD_PATTERN), file, e))
		return -1;
	for (int i = 0; i + 1 < t->pre.n; i++)
		if (t->pre.v[i].kind == PRE_BYTE_LEVEL)
			return err_set(e, EX_UNAVAILABLE,
				       "%s: a pre_tokenizer step after ByteLevel is not built",
				       file);
	t->byte_level = t->pre.n && t->pre.v[t->pre.n - 1].kind == PRE_BYTE_LEVEL;
	if (ids_check(t, t->before, t->nbefore, "post_processor", file, e) ||
	    ids_check(t, t->after, t->nafter, "post_processor", file, e) ||
	    ids_check(t, &t->bos, 1, "bos", file, e) ||
	    ids_check(t, t->eos, t->neos, "eos", file, e) ||
	    ids_check(t, &t->pad, 1, "pad", file, e) || ids_check(t, &t->unk, 1, "unk", file, e) ||
	    ids_check(t, &t->unk_name, 1, "unk", file, e))
		return -1;
	byte_ids(t);
	merge_index(t);
	if (trie_new(&t->plain, t, false, e) || trie_new(&t->normal, t, true, e))
		return err_prefix(e, "%s", file);
	return 0;
}

/* -- what it knows -- */

long tokenizer_size(const struct tokenizer *t)
{
	return t->size;
}

bool tokenizer_knows(const struct tokenizer *t, long id)
{
	return id >= 0 && id < t->size && t->kind[id];
}

bool tokenizer_is_special(const struct tokenizer *t, long id)
{
	return tokenizer_knows(t, id) && t->kind[id] & KIND_SPECIAL;
}

int tokenizer_bos(const struct tokenizer *t)
{
	return t->bos;
}

int tokenizer_pad(const struct tokenizer *t)
{
	return t->pad;
}

int tokenizer_unk(const struct tokenizer *t)
{
	return t->unk >= 0 ? t->unk : t->unk_name;
}

const int *tokenizer_eos(const struct tokenizer *t, long *n)
{
	*n = t->neos;
	return t->eos;
}

int tokenizer_id(const struct tokenizer *t, const char *spelling)
{
	size_t n = strlen(spelling);

	for (long i = 0; i < t->nadded; i++)
		if (t->added[i].content.n == n && !memcmp(t->added[i].content.s, spelling, n))
			return t->added[i].id;
	return vocab_find(t, spelling, n);
}

const char *tokenizer_spelling(const struct tokenizer *t, long id)
{
	const struct added_token *a = added_find(t, id);

	return a ? a->content.s : tokenizer_knows(t, id) ? vocab_text(t, id).s : NULL;
}

bool tokenizer_adds_bos(const struct tokenizer *t)
{
	return t->nbefore && t->bos >= 0 && t->before[0] == t->bos;
}

struct digest tokenizer_digest(const struct tokenizer *t)
{
	struct str blob = { 0 };
	struct digest d;

	tokenizer_pack_into(t, &blob);
	d = hash128(blob.s, blob.len);
	str_release(&blob);
	return d;
}
