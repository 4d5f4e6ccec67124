#include "formats/jinja_text.h"

#include <string.h>
#include <utf8proc.h>

size_t jinja_utf8_get(const char *s, size_t n, int32_t *c)
{
	utf8proc_ssize_t k = utf8proc_iterate((const utf8proc_uint8_t *)s, (utf8proc_ssize_t)n, c);

	if (k > 0)
		return (size_t)k;
	*c = 0xFFFD;
	return n > 0;
}

long utf8_count(const char *s, size_t n)
{
	long k = 0;

	for (size_t i = 0; i < n; i++)
		k += ((unsigned char)s[i] & 0xC0) != 0x80;
	return k;
}

size_t utf8_offset(const char *s, size_t n, long index)
{
	size_t i = 0;

	while (i < n && index > 0) {
		i++;
		while (i < n && ((unsigned char)s[i] & 0xC0) == 0x80)
			i++;
		index--;
	}
	return i;
}

bool uni_space(int32_t c)
{
	return (c >= 9 && c <= 13) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
	       c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
	       c == 0x202F || c == 0x205F || c == 0x3000;
}

static bool in_set(const struct jvalue *chars, int32_t c)
{
	int32_t d;

	if (!chars)
		return uni_space(c);
	if (!jwork(chars->n))
		return false;
	for (size_t i = 0; i < chars->n; i += jinja_utf8_get(chars->s + i, chars->n - i, &d)) {
		jinja_utf8_get(chars->s + i, chars->n - i, &d);
		if (d == c)
			return true;
	}
	return false;
}

struct jvalue jtext_strip(const struct jvalue *s, const struct jvalue *chars, bool left, bool right)
{
	size_t a = 0, b = s->n;
	int32_t c;

	while (left && a < b) {
		size_t k = jinja_utf8_get(s->s + a, b - a, &c);

		if (!in_set(chars, c))
			break;
		a += k;
	}
	while (right && b > a) {
		size_t k = b - 1;

		while (k > a && ((unsigned char)s->s[k] & 0xC0) == 0x80)
			k--;
		jinja_utf8_get(s->s + k, b - k, &c);
		if (!in_set(chars, c))
			break;
		b = k;
	}
	return jv_sub(s, a, b - a);
}

long jtext_find(const struct jvalue *s, const struct jvalue *what, bool last)
{
	const char *p;

	if (what->n > s->n)
		return -1;
	if (!last)
		return (p = memmem(s->s, s->n, what->s, what->n)) ? p - s->s : -1;
	for (size_t i = s->n - what->n + 1; i-- > 0;) {
		if (!jwork(1 + what->n / 16))
			break;
		if (!memcmp(s->s + i, what->s, what->n))
			return (long)i;
	}
	return -1;
}

static int32_t tag_at(const struct jvalue *s, size_t i)
{
	return s->tags ? s->tags[i] : s->tag;
}

static int add_sub(struct jrender *r, struct jbuf *b, const struct jvalue *s, size_t at, size_t n)
{
	struct jvalue v = jv_sub(s, at, n);

	return jbuf_addv(r, b, &v);
}

/* Finish a string that was made from s. */
static int finish(struct jrender *r, struct jbuf *b, const struct jvalue *s, int rc,
		  struct jvalue *out)
{
	bool markup = s->markup;

	if (rc) {
		jbuf_release(b);
		return -1;
	}
	rc = jbuf_value(r, b, out);
	out->markup = markup;
	return rc;
}

static bool is_cased(int32_t c)
{
	utf8proc_category_t k = utf8proc_category(c);

	return k == UTF8PROC_CATEGORY_LU || k == UTF8PROC_CATEGORY_LL || k == UTF8PROC_CATEGORY_LT;
}

/* What does not count between the letters of a word (Case_Ignorable). */
static bool case_ignorable(int32_t c)
{
	static const int32_t marks[] = { 0x27, 0x2E, 0x3A, 0xB7, 0x387, 0x55F, 0x5F4, 0x2018, 0x2019,
		0x2024, 0x2027, 0xFE13, 0xFE52, 0xFE55, 0xFF07, 0xFF0E, 0xFF1A };
	utf8proc_category_t k = utf8proc_category(c);

	for (size_t i = 0; i < sizeof(marks) / sizeof(*marks); i++) {
		if (c == marks[i])
			return true;
	}
	return k == UTF8PROC_CATEGORY_MN || k == UTF8PROC_CATEGORY_ME || k == UTF8PROC_CATEGORY_CF ||
	       k == UTF8PROC_CATEGORY_LM || k == UTF8PROC_CATEGORY_SK;
}

/* The capital sigma ends a word: a letter before it and none after. */
static bool final_sigma(const struct jvalue *s, size_t at, size_t k)
{
	bool before = false;
	int32_t c;

	for (size_t p = at; p > 0;) {
		size_t end = p--;

		while (p > 0 && ((unsigned char)s->s[p] & 0xC0) == 0x80)
			p--;
		jinja_utf8_get(s->s + p, end - p, &c);
		before = is_cased(c);
		if (!case_ignorable(c))
			break;
	}
	for (size_t p = at + k; before && p < s->n;) {
		p += jinja_utf8_get(s->s + p, s->n - p, &c);
		if (!case_ignorable(c))
			return !is_cased(c);
	}
	return before;
}

static int32_t lower(const struct jvalue *s, size_t at, size_t k, int32_t c)
{
	if (c != 0x3A3)
		return utf8proc_tolower(c);
	return final_sigma(s, at, k) ? 0x3C2 : 0x3C3;
}

/* Where jinja's title filter begins a word: after white space, -, and opening brackets. */
static bool breaks_word(int32_t c)
{
	return uni_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
}

int jtext_case(struct jrender *r, const struct jvalue *s, enum jcase how, struct jvalue *out)
{
	struct jbuf b = { 0 };
	bool start = true;
	int rc = jstep(r, (long)s->n / 64);

	for (size_t i = 0, k; !rc && i < s->n; i += k) {
		int32_t c, d;
		utf8proc_uint8_t u[4];
		const char *special = NULL;
		bool up = how == CASE_UPPER || (how != CASE_LOWER && start);

		k = jinja_utf8_get(s->s + i, s->n - i, &c);
		if (!up && c == 0x130) {
			special = "i\u0307";
			rc = jbuf_add(r, &b, special, strlen(special), tag_at(s, i), NULL);
		}
		if (up &&
		    (special = uni_special_upper(c, how != CASE_UPPER && how != CASE_FILTER_TITLE)))
			rc = jbuf_add(r, &b, special, strlen(special), tag_at(s, i), NULL);
		d = !up                                           ? lower(s, i, k, c) :
		    how == CASE_UPPER || how == CASE_FILTER_TITLE ? utf8proc_toupper(c) :
								    utf8proc_totitle(c);
		if (!special && d == c)
			rc = jbuf_add(r, &b, s->s + i, k, tag_at(s, i), NULL);
		else if (!special)
			rc = jbuf_add(r, &b, (char *)u, (size_t)utf8proc_encode_char(d, u),
				      tag_at(s, i), NULL);
		start = how == CASE_TITLE ? !is_cased(c) :
					    how == CASE_FILTER_TITLE && breaks_word(c);
	}
	return finish(r, &b, s, rc, out);
}

bool jtext_class(int32_t c, const char *what)
{
	utf8proc_category_t k = utf8proc_category(c);
	bool letter = k == UTF8PROC_CATEGORY_LU || k == UTF8PROC_CATEGORY_LL ||
		      k == UTF8PROC_CATEGORY_LT || k == UTF8PROC_CATEGORY_LM ||
		      k == UTF8PROC_CATEGORY_LO;

	if (what[0] == 'd')
		return k == UTF8PROC_CATEGORY_ND;
	return letter ||
	       (what[2] == 'n' && (k == UTF8PROC_CATEGORY_ND || k == UTF8PROC_CATEGORY_NL ||
				   k == UTF8PROC_CATEGORY_NO));
}

bool jtext_all_case(const struct jvalue *s, bool upper)
{
	bool some = false;
	int32_t c;

	for (size_t i = 0; i < s->n; i += jinja_utf8_get(s->s + i, s->n - i, &c)) {
		utf8proc_category_t k;

		jinja_utf8_get(s->s + i, s->n - i, &c);
		k = utf8proc_category(c);
		if (k == UTF8PROC_CATEGORY_LT ||
		    k == (upper ? UTF8PROC_CATEGORY_LL : UTF8PROC_CATEGORY_LU))
			return false;
		some |= k == (upper ? UTF8PROC_CATEGORY_LU : UTF8PROC_CATEGORY_LL);
	}
	return some;
}

int jtext_replace(struct jrender *r, const struct jvalue *s, const struct jvalue *from,
		  const struct jvalue *to, long count, struct jvalue *out)
{
	struct jbuf b = { 0 };
	size_t at = 0;
	int rc = 0;

	while (!rc && count != 0) {
		struct jvalue rest = jv_sub(s, at, s->n - at);
		long hit = jtext_find(&rest, from, false);
		int32_t c;
		size_t step = from->n;

		if (hit < 0 || (rc = jstep(r, 1)))
			break;
		rc = add_sub(r, &b, s, at, (size_t)hit) || jbuf_addv(r, &b, to) ? -1 : 0;
		at += (size_t)hit;
		/* An empty pattern stands between all code points and at both ends. */
		if (!from->n) {
			if (at >= s->n) {
				at = s->n;
				break;
			}
			step = jinja_utf8_get(s->s + at, s->n - at, &c);
			if (!rc)
				rc = add_sub(r, &b, s, at, step);
		}
		at += step;
		count--;
	}
	if (!rc)
		rc = add_sub(r, &b, s, at, s->n - at);
	return finish(r, &b, s, rc, out);
}

/* Without a separator: words between runs of white space. */
static int split_words(struct jrender *r, const struct jvalue *s, long max, bool right,
		       struct jvalue *out)
{
	struct jvalue rest = *s, word;
	int32_t c;

	for (;;) {
		size_t k = 0, from = 0, space = 0;

		rest = jtext_strip(&rest, NULL, !right, right);
		if (!rest.n)
			return 0;
		if (jstep(r, 1 + (right ? (long)rest.n / 64 : 0)))
			return -1;
		for (size_t i = 0, w; i < rest.n; i += w) {
			w = jinja_utf8_get(rest.s + i, rest.n - i, &c);
			if (!uni_space(c))
				continue;
			from = i;
			space = w;
			if (!right)
				break;
		}
		if (max == 0 || !space)
			return jv_push(r, out, rest);
		k = right ? from + space : 0;
		word = right ? jv_sub(&rest, k, rest.n - k) : jv_sub(&rest, 0, from);
		if (jv_push(r, out, word))
			return -1;
		rest = right ? jv_sub(&rest, 0, from) :
			       jv_sub(&rest, from + space, rest.n - from - space);
		max--;
	}
}

int jtext_split(struct jrender *r, const struct jvalue *s, const struct jvalue *sep, long max,
		bool right, struct jvalue *out)
{
	struct jvalue rest = *s;
	struct jlist *l;

	if (jv_list(r, out, LIST_LIST))
		return -1;
	l = out->list;
	if (sep && !sep->n)
		return jfail(r, "split: empty separator");
	if (!sep && split_words(r, s, max, right, out))
		return -1;
	while (sep) {
		long hit = max == 0 ? -1 : jtext_find(&rest, sep, right);
		size_t after;

		if (jstep(r, 1))
			return -1;
		if (hit < 0) {
			if (jv_push(r, out, rest))
				return -1;
			break;
		}
		after = (size_t)hit + sep->n;
		if (jv_push(r, out,
			    right ? jv_sub(&rest, after, rest.n - after) :
				    jv_sub(&rest, 0, (size_t)hit)))
			return -1;
		rest = right ? jv_sub(&rest, 0, (size_t)hit) : jv_sub(&rest, after, rest.n - after);
		max--;
	}
	for (long i = 0, j = l->n - 1; right && i < j; i++, j--) {
		struct jvalue t = l->v[i];

		l->v[i] = l->v[j];
		l->v[j] = t;
	}
	return 0;
}

int jtext_escape(struct jrender *r, const struct jvalue *s, struct jvalue *out)
{
	static const char from[] = "&<>'\"", *const to[] = { "&amp;", "&lt;", "&gt;", "&#39;",
							     "&#34;" };
	struct jbuf b = { 0 };
	size_t at = 0;
	int rc = 0;

	if (s->markup) {
		*out = *s;
		return 0;
	}
	for (size_t i = 0; !rc && i < s->n; i++) {
		const char *p = s->s[i] ? strchr(from, s->s[i]) : NULL;

		if (!p)
			continue;
		rc = add_sub(r, &b, s, at, i - at) ||
				     jbuf_add(r, &b, to[p - from], strlen(to[p - from]),
					      tag_at(s, i), NULL) ?
			     -1 :
			     0;
		at = i + 1;
	}
	if (!rc)
		rc = add_sub(r, &b, s, at, s->n - at);
	rc = finish(r, &b, s, rc, out);
	out->markup = true;
	return rc;
}

size_t jtext_break(const char *s, size_t n)
{
	int32_t c;
	size_t k = jinja_utf8_get(s, n, &c);

	if (c == '\r' && n > 1 && s[1] == '\n')
		return 2;
	return (c >= 10 && c <= 13) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
			       c == 0x2029 ?
		       k :
		       0;
}

int jtext_indent(struct jrender *r, const struct jvalue *s, const struct jvalue *width, bool first,
		 bool blank, struct jvalue *out)
{
	struct jbuf b = { 0 };
	size_t at = 0;
	bool head = true;
	int rc = 0;

	while (!rc) {
		size_t end = at, brk = 0;

		while (end < s->n && !(brk = jtext_break(s->s + end, s->n - end)))
			end++;
		if ((head ? first : blank || end > at))
			rc = jbuf_addv(r, &b, width);
		if (!rc)
			rc = add_sub(r, &b, s, at, end - at);
		if (!rc && brk && (rc = jstep(r, 1)) == 0)
			rc = jbuf_puts(r, &b, "\n");
		if (!brk)
			break;
		at = end + brk;
		head = false;
	}
	return finish(r, &b, s, rc, out);
}

int jtext_reverse(struct jrender *r, const struct jvalue *s, struct jvalue *out)
{
	struct jbuf b = { 0 };
	int rc = jstep(r, (long)s->n / 16);

	for (size_t at = s->n, end = s->n; !rc && at > 0; end = at) {
		at--;
		while (at > 0 && ((unsigned char)s->s[at] & 0xC0) == 0x80)
			at--;
		rc = add_sub(r, &b, s, at, end - at);
	}
	return finish(r, &b, s, rc, out);
}
