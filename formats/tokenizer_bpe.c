#include "formats/tokenizer_stages.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/*
 * Byte-pair encoding of one word: merge the adjacent pair of lowest rank, the leftmost on ties,
 * until there is none. Short words scan for it; long ones (a whole text may be one word) keep
 * candidates in a heap, O(n log n).
 */

enum {
	SHORT_WORD = 32, /* symbols */
	CACHE_WORD = 64,
	CACHE_IDS = 14 /* bytes and ids of a word that is worth remembering */
};

struct symbol {
	int id; /* -1: merged into its left neighbour */
	int prev, next; /* or -1 */
	uint32_t rank; /* short words: of the pair that begins here */
	int to;
};

struct candidate {
	uint32_t rank;
	int at, to;
};

/* Words and their ids, direct-mapped. */
struct word_cache {
	long mask;
	struct cached {
		uint64_t hash;
		unsigned char len, n;
		char word[CACHE_WORD];
		int id[CACHE_IDS];
	} slot[];
};

void bpe_release(struct bpe *b)
{
	free(b->sym);
	free(b->heap);
	free(b->cache);
	str_release(&b->spelt);
	memset(b, 0, sizeof(*b));
}

void bpe_use_cache(struct bpe *b, size_t text_bytes)
{
	long slots = 64;

	if (text_bytes < 2048 || b->cache)
		return;
	while (slots < 16384 && (size_t)slots * 16 < text_bytes)
		slots *= 2;
	b->cache = xcalloc(1, sizeof(*b->cache) + (size_t)slots * sizeof(b->cache->slot[0]));
	b->cache->mask = slots - 1;
}

static const struct merge_slot *pair(const struct tokenizer *t, const struct bpe *b, int x, int y)
{
	uint64_t key = (uint64_t)(uint32_t)x << 32 | (uint32_t)y;

	for (size_t i = mix64(key ^ t->pair_seed) & t->pair_mask; t->by_pair[i].to >= 0;
	     i = (i + 1) & t->pair_mask)
		if (t->by_pair[i].key == key)
			return b->no_special && t->kind[t->by_pair[i].to] & KIND_SPECIAL ?
				       NULL :
				       &t->by_pair[i];
	return NULL;
}

/* -- symbols -- */

static void add_symbol(struct bpe *b, long *n, int id)
{
	GROW(b->sym, *n, b->symcap);
	b->sym[*n] = (struct symbol){ id, (int)*n - 1, -1, UINT32_MAX, 0 };
	if (*n)
		b->sym[*n - 1].next = (int)*n;
	(*n)++;
}

/* What becomes of a character (or, byte-level, of a byte's character) that the vocabulary lacks. */
static void add_unknown(const struct tokenizer *t, struct bpe *b, long *n, const char *s,
			size_t len, bool *fused)
{
	if (t->byte_fallback && t->all_bytes && !t->byte_level) {
		for (size_t i = 0; i < len; i++)
			add_symbol(b, n, t->byte_id[(unsigned char)s[i]]);
		*fused = false;
		return;
	}
	if (t->unk < 0)
		return;
	if (!(t->fuse_unk && *fused))
		add_symbol(b, n, t->unk);
	*fused = true;
}

static long symbols(const struct tokenizer *t, struct bpe *b, const char *s, size_t n)
{
	bool fused = false;
	long k = 0;
	size_t len;

	for (size_t i = 0; i < n; i += len) {
		uint32_t c;
		int id;

		len = t->byte_level ? 1 : utf8_get(&c, s + i, n - i);
		id = t->byte_level ? t->byte_id[(unsigned char)s[i]] : vocab_find(t, s + i, len);
		if (id >= 0 && b->no_special && t->kind[id] & KIND_SPECIAL)
			id = -1;
		if (id < 0) {
			add_unknown(t, b, &k, s + i, len, &fused);
			continue;
		}
		add_symbol(b, &k, id);
		fused = false;
	}
	return k;
}

/* -- merging -- */

static void look(const struct tokenizer *t, struct bpe *b, int i)
{
	struct symbol *s = &b->sym[i];
	const struct merge_slot *m = s->next < 0 ? NULL : pair(t, b, s->id, b->sym[s->next].id);

	s->rank = m ? m->rank : UINT32_MAX;
	s->to = m ? m->to : 0;
}

static void join(struct bpe *b, int i, int to)
{
	struct symbol *s = &b->sym[i], *gone = &b->sym[s->next];

	s->id = to;
	s->next = gone->next;
	gone->id = -1;
	if (s->next >= 0)
		b->sym[s->next].prev = i;
}

static void merge_short(const struct tokenizer *t, struct bpe *b, long n)
{
	for (int i = 0; i < n; i++)
		look(t, b, i);
	for (;;) {
		int best = 0;

		for (int i = 0; i >= 0; i = b->sym[i].next)
			if (b->sym[i].rank < b->sym[best].rank)
				best = i;
		if (b->sym[best].rank == UINT32_MAX)
			return;
		join(b, best, b->sym[best].to);
		look(t, b, best);
		if (b->sym[best].prev >= 0)
			look(t, b, b->sym[best].prev);
	}
}

static bool before(const struct candidate *a, const struct candidate *b)
{
	return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static void push(const struct tokenizer *t, struct bpe *b, int i)
{
	const struct symbol *s = &b->sym[i];
	const struct merge_slot *m = s->next < 0 ? NULL : pair(t, b, s->id, b->sym[s->next].id);
	struct candidate c;
	long k;

	if (!m)
		return;
	c = (struct candidate){ m->rank, i, m->to };
	GROW(b->heap, b->heapn, b->heapcap);
	for (k = b->heapn++; k && before(&c, &b->heap[(k - 1) / 2]); k = (k - 1) / 2)
		b->heap[k] = b->heap[(k - 1) / 2];
	b->heap[k] = c;
}

static struct candidate pop(struct bpe *b)
{
	struct candidate top = b->heap[0], c = b->heap[--b->heapn];
	long k = 0, next;

	while ((next = 2 * k + 1) < b->heapn) {
		if (next + 1 < b->heapn && before(&b->heap[next + 1], &b->heap[next]))
			next++;
		if (!before(&b->heap[next], &c))
			break;
		b->heap[k] = b->heap[next];
		k = next;
	}
	b->heap[k] = c;
	return top;
}

static void merge_long(const struct tokenizer *t, struct bpe *b, long n)
{
	b->heapn = 0;
	for (int i = 0; i + 1 < n; i++)
		push(t, b, i);
	while (b->heapn) {
		struct candidate c = pop(b);
		const struct symbol *s = &b->sym[c.at];
		const struct merge_slot *m;

		if (s->id < 0 || s->next < 0)
			continue;
		m = pair(t, b, s->id, b->sym[s->next].id);
		if (!m || m->to != c.to)
			continue; /* a neighbour has changed since */
		join(b, c.at, c.to);
		push(t, b, c.at);
		if (s->prev >= 0)
			push(t, b, s->prev);
	}
}

static void merge_word(const struct tokenizer *t, struct bpe *b, struct token_list *out,
		       const char *s, size_t n)
{
	long k = symbols(t, b, s, n);

	if (k > SHORT_WORD)
		merge_long(t, b, k);
	else if (k > 1)
		merge_short(t, b, k);
	for (int i = k ? 0 : -1; i >= 0; i = b->sym[i].next)
		token_list_add(out, b->sym[i].id);
}

/* -- words -- */

/* The id of a whole word, as ignore_merges wants it, or -1. */
static int whole_word(const struct tokenizer *t, struct bpe *b, const char *s, size_t n)
{
	int id;

	if (!t->byte_level) {
		id = vocab_find(t, s, n);
	} else {
		char c[4];

		str_cut(&b->spelt, 0);
		for (size_t i = 0; i < n; i++)
			str_add(&b->spelt, c, utf8_put(c, byte_char((unsigned char)s[i])));
		id = vocab_find(t, b->spelt.s, b->spelt.len);
	}
	return id >= 0 && b->no_special && t->kind[id] & KIND_SPECIAL ? -1 : id;
}

static void encode_word(const struct tokenizer *t, struct bpe *b, struct token_list *out,
			const char *s, size_t n)
{
	int id = t->ignore_merges ? whole_word(t, b, s, n) : -1;

	if (id >= 0)
		token_list_add(out, id);
	else
		merge_word(t, b, out, s, n);
}

void bpe_word(const struct tokenizer *t, struct bpe *b, struct token_list *out, const char *s,
	      size_t n)
{
	struct cached *c;
	uint64_t hash;
	long was = out->n;

	if (!b->cache || n > CACHE_WORD || n < 2) {
		encode_word(t, b, out, s, n);
		return;
	}
	hash = hash64(s, n);
	c = &b->cache->slot[(long)(hash & LONG_MAX) & b->cache->mask];
	if (c->hash == hash && c->len == n && !memcmp(c->word, s, n)) {
		for (int i = 0; i < c->n; i++)
			token_list_add(out, c->id[i]);
		return;
	}
	encode_word(t, b, out, s, n);
	if (out->n - was > CACHE_IDS)
		return;
	c->hash = hash;
	c->len = (unsigned char)n;
	c->n = (unsigned char)(out->n - was);
	memcpy(c->word, s, n);
	memcpy(c->id, out->id + was, (size_t)c->n * sizeof(*c->id));
}
