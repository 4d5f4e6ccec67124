#include "formats/tokenizer_stages.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

/* n bytes of text whose marks are all `m`; without marks out_mark is NULL. */
static void put(struct str *out, struct str *out_mark, const char *s, size_t n, char m)
{
	str_add(out, s, n);
	for (size_t i = 0; out_mark && i < n; i++)
		str_putc(out_mark, m);
}

static void copy(struct str *out, struct str *out_mark, const char *s, const char *mark, size_t n)
{
	str_add(out, s, n);
	if (out_mark)
		str_add(out_mark, mark, n);
}

/* -- NFC (Unicode Standard Annex 15) -- */

/*
 * As the engine knows it, which is Unicode 9: marks that came later (here: up to Unicode 15) are
 * starters, and U+11938, the one later composite, is no composite.
 */
static const utf8proc_int32_t later_marks[][2] = {
	{ 0x7fd, 0x7fd },     { 0x898, 0x89f },     { 0x8ca, 0x8d3 },     { 0x9fe, 0x9fe },
	{ 0xc3c, 0xc3c },     { 0xd3b, 0xd3c },     { 0xeba, 0xeba },     { 0x1715, 0x1715 },
	{ 0x1abf, 0x1ace },   { 0x1df6, 0x1dfa },   { 0xa82c, 0xa82c },   { 0x10d24, 0x10d27 },
	{ 0x10eab, 0x10eac }, { 0x10efd, 0x10eff }, { 0x10f46, 0x10f50 }, { 0x10f82, 0x10f85 },
	{ 0x11070, 0x11070 }, { 0x1133b, 0x1133b }, { 0x1145e, 0x1145e }, { 0x11839, 0x1183a },
	{ 0x1193d, 0x1193e }, { 0x11943, 0x11943 }, { 0x119e0, 0x119e0 }, { 0x11a34, 0x11a34 },
	{ 0x11a47, 0x11a47 }, { 0x11a99, 0x11a99 }, { 0x11d42, 0x11d42 }, { 0x11d44, 0x11d45 },
	{ 0x11d97, 0x11d97 }, { 0x11f41, 0x11f42 }, { 0x16ff0, 0x16ff1 }, { 0x1e08f, 0x1e08f },
	{ 0x1e130, 0x1e136 }, { 0x1e2ae, 0x1e2ae }, { 0x1e2ec, 0x1e2ef }, { 0x1e4ec, 0x1e4ef },
};
enum { LATER_COMPOSITE = 0x11938, LATER_SECOND = 0x11930 };

static bool is_later(utf8proc_int32_t c)
{
	for (size_t i = 0; i < sizeof(later_marks) / sizeof(later_marks[0]); i++)
		if (c <= later_marks[i][1])
			return c >= later_marks[i][0];
	return false;
}

struct codes {
	utf8proc_int32_t *v;
	long n, cap;
};

static void decompose(struct codes *c, const char *s, size_t n)
{
	size_t len;

	for (size_t i = 0; i < n; i += len) {
		utf8proc_int32_t buf[32];
		uint32_t code;
		int boundclass = 0;
		utf8proc_ssize_t k;

		len = utf8_get(&code, s + i, n - i);
		buf[0] = (utf8proc_int32_t)code;
		k = code == LATER_COMPOSITE ?
			    1 :
			    utf8proc_decompose_char((utf8proc_int32_t)code, buf, 32,
						    UTF8PROC_STABLE | UTF8PROC_DECOMPOSE,
						    &boundclass);
		for (utf8proc_ssize_t j = 0; j < k; j++) {
			GROW(c->v, c->n, c->cap);
			c->v[c->n++] = buf[j];
		}
	}
}

static int combining_class(utf8proc_int32_t c)
{
	int class = c < 0x300 ? 0 : utf8proc_get_property(c)->combining_class;

	return class && is_later(c) ? 0 : class;
}

/*
 * Stable sort by combining class; by counting, so that a million marks take no longer than a
 * million letters.
 */
static void sort_marks(utf8proc_int32_t *v, long n)
{
	long at[257] = { 0 };
	utf8proc_int32_t *sorted = xmalloc((size_t)n * sizeof(*v));

	for (long i = 0; i < n; i++)
		at[combining_class(v[i]) + 1]++;
	for (int k = 0; k < 256; k++)
		at[k + 1] += at[k];
	for (long i = 0; i < n; i++)
		sorted[at[combining_class(v[i])]++] = v[i];
	memcpy(v, sorted, (size_t)n * sizeof(*v));
	free(sorted);
}

static void order(struct codes *c)
{
	for (long i = 0, end; i < c->n; i = end) {
		bool sorted = true;

		end = i + 1;
		if (!combining_class(c->v[i]))
			continue;
		for (; end < c->n && combining_class(c->v[end]); end++)
			sorted &= combining_class(c->v[end - 1]) <= combining_class(c->v[end]);
		if (!sorted)
			sort_marks(c->v + i, end - i);
	}
}

/* Compose from left to right; what came after Unicode 9 composes with nothing before it. */
static void compose(struct str *out, struct codes *c)
{
	for (long i = 0, end; i < c->n; i = end) {
		utf8proc_ssize_t k;
		char bytes[4];

		for (end = i + 1; end < c->n && c->v[end] != LATER_SECOND && !is_later(c->v[end]);
		     end++)
			;
		k = utf8proc_normalize_utf32(c->v + i, end - i, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
		for (utf8proc_ssize_t j = 0; j < k; j++)
			str_add(out, bytes, utf8_put(bytes, (unsigned)c->v[i + j]));
	}
}

/* Nothing below U+0300 changes under NFC, if nothing from there on follows. */
static bool may_change(const char *s, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if ((unsigned char)s[i] >= 0xcc)
			return true;
	return false;
}

/*
 * A segment: characters that compose with nothing outside it.  A changed segment is somebody
 * else's as a whole if a part of it is.
 */
static void nfc_segment(struct str *out, struct str *out_mark, const char *s, const char *mark,
			size_t n)
{
	struct codes c = { 0 };
	struct str to = { 0 };
	char m = 0;

	decompose(&c, s, n);
	order(&c);
	compose(&to, &c);
	if (to.len == n && !memcmp(to.s, s, n)) {
		copy(out, out_mark, s, mark, n);
	} else {
		for (size_t i = 0; mark && i < n; i++)
			m |= mark[i];
		put(out, out_mark, to.s, to.len, m);
	}
	str_release(&to);
	free(c.v);
}

void nfc(struct str *out, struct str *out_mark, const char *s, const char *mark, size_t n)
{
	for (size_t i = 0, end; i < n; i = end) {
		/* ASCII begins a segment: it never composes with what stands before it. */
		for (end = i + 1; end < n && !(s[end] & 0x80); end++)
			;
		if (end < n) {
			copy(out, out_mark, s + i, mark ? mark + i : NULL, end - 1 - i);
			i = end - 1;
			while (end < n && (s[end] & 0x80))
				end++;
		}
		if (may_change(s + i, end - i))
			nfc_segment(out, out_mark, s + i, mark ? mark + i : NULL, end - i);
		else
			copy(out, out_mark, s + i, mark ? mark + i : NULL, end - i);
	}
}

/* -- the others -- */

static void replace(const struct step *r, struct str *out, struct str *out_mark, const char *s,
		    const char *mark, size_t n, size_t most)
{
	for (size_t i = 0; i < n && out->len <= most;) {
		const char *at = r->a.n ? memmem(s + i, n - i, r->a.s, r->a.n) : NULL;
		size_t k = at ? (size_t)(at - s) : n;
		char m = 0;

		copy(out, out_mark, s + i, mark ? mark + i : NULL, k - i);
		if (!at)
			return;
		for (i = k; i < k + r->a.n; i++)
			m |= mark ? mark[i] : 0;
		put(out, out_mark, r->b.s, r->b.n, m);
	}
}

static void one_step(const struct step *r, struct str *out, struct str *out_mark, const char *s,
		     const char *mark, size_t n, size_t most)
{
	switch (r->kind) {
	case NORM_NFC:
		nfc(out, out_mark, s, mark, n);
		break;
	case NORM_PREPEND:
		if (n)
			put(out, out_mark, r->a.s, r->a.n, 0);
		copy(out, out_mark, s, mark, n);
		break;
	case NORM_REPLACE:
		replace(r, out, out_mark, s, mark, n, most);
		break;
	default:
		bug("step %d in a normaliser", r->kind);
	}
}

static void swap(struct str *a, struct str *b)
{
	struct str x = *a;

	*a = *b;
	*b = x;
}

int normalize(const struct tokenizer *t, struct str *out, struct str *out_mark, const char *s,
	      const char *mark, size_t n, struct err *e)
{
	struct str a = { 0 }, am = { 0 };
	size_t most = 32 * n + (1 << 16); /* replacements may not multiply without end */
	int rc = 0;

	str_cut(out, 0);
	copy(out, NULL, s, NULL, n);
	if (mark) {
		str_cut(out_mark, 0);
		copy(out_mark, NULL, mark, NULL, n);
	}
	for (int i = 0; i < t->norm.n && !rc; i++) {
		swap(out, &a);
		str_cut(out, 0);
		if (mark) {
			swap(out_mark, &am);
			str_cut(out_mark, 0);
		}
		one_step(&t->norm.v[i], out, mark ? out_mark : NULL, a.s, mark ? am.s : NULL, a.len,
			 most);
		if (out->len > most)
			rc = err_set(e, EX_DATAERR,
				     "the normalizer makes more than %zu bytes of %zu", most, n);
	}
	str_release(&a);
	str_release(&am);
	return rc;
}
