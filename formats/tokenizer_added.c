#include "formats/tokenizer_stages.h"

#include <stdlib.h>
#include <string.h>

/* A trie over bytes; the root's children are a table, all others lists of siblings. */
struct node {
	int child, sibling; /* or 0 */
	int which; /* index of the added token that ends here, or -1 */
	unsigned char byte;
};

struct trie {
	struct node *node; /* node[0] is the root */
	long n, cap;
	int first[256]; /* the root's children, or 0 */
};

static int child(const struct trie *tr, int at, unsigned char b)
{
	int c = at ? tr->node[at].child : tr->first[b];

	while (c && tr->node[c].byte != b)
		c = tr->node[c].sibling;
	return c;
}

static void insert(struct trie *tr, const char *s, size_t n, int which)
{
	int at = 0;

	for (size_t i = 0; i < n; i++) {
		unsigned char b = (unsigned char)s[i];
		int c = child(tr, at, b);

		if (!c) {
			GROW(tr->node, tr->n, tr->cap);
			c = (int)tr->n++;
			tr->node[c] = (struct node){ 0, at ? tr->node[at].child : 0, -1, b };
			*(at ? &tr->node[at].child : &tr->first[b]) = c;
		}
		at = c;
	}
	if (tr->node[at].which < 0)
		tr->node[at].which = which;
}

int trie_new(struct trie **out, const struct tokenizer *t, bool normalized, struct err *e)
{
	struct trie *tr = xcalloc(1, sizeof(*tr));
	struct str s = { 0 };
	int rc = 0;

	GROW(tr->node, 0, tr->cap);
	tr->node[tr->n++] = (struct node){ 0, 0, -1, 0 };
	for (long i = 0; i < t->nadded && !rc; i++) {
		const struct added_token *a = &t->added[i];

		if (a->normalized != normalized || !a->content.n)
			continue;
		str_cut(&s, 0);
		if (normalized)
			rc = normalize(t, &s, NULL, a->content.s, NULL, a->content.n, e);
		else
			str_add(&s, a->content.s, a->content.n);
		if (s.len)
			insert(tr, s.s, s.len, (int)i);
	}
	str_release(&s);
	if (rc || tr->n == 1) {
		trie_free(tr);
		tr = NULL;
	}
	*out = tr;
	return rc;
}

void trie_free(struct trie *tr)
{
	if (tr)
		free(tr->node);
	free(tr);
}

/* The longest token at s + from that touches no mark; its index, or -1. */
static int longest(const struct trie *tr, const char *s, const char *mark, size_t n, size_t from,
		   size_t *end)
{
	int which = -1, at = 0;

	for (size_t i = from; i < n && !(mark && mark[i]); i++) {
		at = child(tr, at, (unsigned char)s[i]);
		if (!at)
			break;
		if (tr->node[at].which >= 0) {
			which = tr->node[at].which;
			*end = i + 1;
		}
	}
	return which;
}

static size_t char_before(const char *s, size_t i)
{
	do
		i--;
	while (i && ((unsigned char)s[i] & 0xc0) == 0x80);
	return i;
}

static bool is_word(const struct tokenizer *t, struct matcher **m, const char *s, size_t n)
{
	struct err ignored = ERR_INIT;
	size_t start, end;
	uint32_t c;
	size_t len = utf8_get(&c, s, n);

	return len && pattern_find(t->word, m, s, len, 0, &start, &end, &ignored) == 1;
}

static bool stands_alone(const struct tokenizer *t, struct matcher **m, const char *s, size_t n,
			 size_t start, size_t end)
{
	size_t before = start ? char_before(s, start) : 0;

	return !(start && is_word(t, m, s + before, n - before)) &&
	       !(end < n && is_word(t, m, s + end, n - end));
}

static size_t spaces_before(const char *s, size_t n, size_t i)
{
	while (i) {
		size_t before = char_before(s, i);
		uint32_t c;

		if (!utf8_get(&c, s + before, n - before) || !is_space(c))
			break;
		i = before;
	}
	return i;
}

static size_t spaces_after(const char *s, size_t n, size_t i)
{
	while (i < n) {
		uint32_t c;
		size_t len = utf8_get(&c, s + i, n - i);

		if (!len || !is_space(c))
			break;
		i += len;
	}
	return i;
}

void trie_match(const struct tokenizer *t, const struct trie *tr, struct matcher **m, const char *s,
		const char *mark, size_t n, struct added_match **v, long *nv)
{
	size_t done = 0; /* text up to here is spoken for */
	long cap = 0;

	*v = NULL;
	*nv = 0;
	if (!tr)
		return;
	for (size_t i = 0, end; i < n;) {
		const struct added_token *a;
		struct added_match x;
		int which = tr->first[(unsigned char)s[i]] ? longest(tr, s, mark, n, i, &end) : -1;

		if (which < 0) {
			i++;
			continue;
		}
		a = &t->added[which];
		x = (struct added_match){ i, end, a->id };
		i = end;
		if (a->single_word && !stands_alone(t, m, s, n, x.start, x.end))
			continue;
		if (a->lstrip) {
			size_t start = spaces_before(s, n, x.start);

			x.start = start > done ? start : done < x.start ? done : x.start;
		}
		if (a->rstrip)
			x.end = spaces_after(s, n, x.end);
		GROW(*v, *nv, cap);
		(*v)[(*nv)++] = x;
		done = x.end;
	}
}
