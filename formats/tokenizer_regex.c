#include "formats/tokenizer_stages.h"

#include <stdlib.h>
#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

const char GPT2_PATTERN[] =
	"'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
/* Rust's \w, which these steps of the engine use, is wider than PCRE2's. */
#define WORD "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{200c}\\x{200d}"
const char WORD_PATTERN[] = "[" WORD "]";
const char WHITESPACE_PATTERN[] = "[" WORD "]+|[^" WORD "\\s]+";
const char PUNCTUATION_PATTERN[] = "[\\p{P}$+<=>^`|~]";

/*
 * Patterns were written for Oniguruma.  What differs: its \s is White_Space, PCRE2's has U+180E
 * as well, so \s and \S are spelt out.  "&&" in a class is an intersection there, and is refused.
 */
#define SPACES \
	"\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"

/*
 * The limit of steps for one place where a match may begin: this, and four for each byte of
 * text.  A pattern that really splits text needs about one step for a character; (a+)+$ and its
 * kind need 2^n.
 */
enum {
	STEPS_LIMIT = 4000000,
	STEPS_A_BYTE = 4,
	LONG_TEXT = 1 << 18,
	STACK_FIRST = 32 << 10,
	STACK_MOST = 16 << 20,
	HEAP_KIB = 64 << 10
};

struct pattern {
	pcre2_code *code;
	char *source; /* for messages */
};

struct matcher {
	pcre2_match_data *data;
	pcre2_match_context *context;
	pcre2_jit_stack *stack;
	uint32_t limit;
};

static int translate(struct str *out, const char *s, size_t n, const char *file, struct err *e)
{
	bool in_class = false;

	for (size_t i = 0; i < n; i++) {
		if (s[i] == '\\' && i + 1 < n) {
			i++;
			if (s[i] == 's')
				str_puts(out, in_class ? SPACES : "[" SPACES "]");
			else if (s[i] == 'S' && !in_class)
				str_puts(out, "[^" SPACES "]");
			else
				str_add(out, s + i - 1, 2);
			continue;
		}
		if (in_class && i + 1 < n && s[i] == '&' && s[i + 1] == '&')
			return err_set(
				e, EX_UNAVAILABLE,
				"%s: pattern %.60s: an intersection of classes (&&) is not built",
				file, s);
		if (in_class && s[i] == '[') {
			const char *close =
				i + 1 < n && s[i + 1] == ':' ? memmem(s + i, n - i, ":]", 2) : NULL;

			if (!close)
				return err_set(e, EX_UNAVAILABLE,
					       "%s: pattern %.60s: a class in a class is not built",
					       file, s);
			str_add(out, s + i, (size_t)(close + 2 - s) - i);
			i = (size_t)(close + 1 - s);
			continue;
		}
		if (s[i] == '[') {
			in_class = true;
			str_putc(out, '[');
			if (i + 1 < n && s[i + 1] == '^')
				str_putc(out, s[++i]);
			if (i + 1 < n && s[i + 1] == ']') {
				str_puts(out, "\\]");
				i++;
			}
			continue;
		}
		if (s[i] == ']')
			in_class = false;
		str_putc(out, s[i]);
	}
	return 0;
}

int pattern_new(struct pattern **out, const char *regex, size_t n, const char *file, struct err *e)
{
	struct str s = { 0 };
	struct pattern *p;
	PCRE2_SIZE at;
	char why[160];
	uint32_t backrefs = 0;
	int code;

	if (n > TOK_MAX_PATTERN)
		return err_set(e, EX_DATAERR, "%s: pattern of %zu bytes, want at most %d", file, n,
			       TOK_MAX_PATTERN);
	if (translate(&s, regex, n, file, e)) {
		str_release(&s);
		return -1;
	}
	p = xcalloc(1, sizeof(*p));
	p->source = xstrndup(regex, n);
	p->code = pcre2_compile((PCRE2_SPTR)(s.s ? s.s : ""), s.len,
				PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &code, &at, NULL);
	str_release(&s);
	if (!p->code) {
		pcre2_get_error_message(code, (PCRE2_UCHAR *)why, sizeof(why));
		pattern_free(p);
		return err_set(e, EX_DATAERR, "%s: pattern %.60s: %s", file, regex, why);
	}
	pcre2_pattern_info(p->code, PCRE2_INFO_BACKREFMAX, &backrefs);
	if (backrefs) { /* their cost is not counted in steps, and no tokenizer has them */
		pattern_free(p);
		return err_set(e, EX_UNAVAILABLE,
			       "%s: pattern %.60s: a back reference is not built", file, regex);
	}
	/* Where that cannot be, pcre2_match() interprets, with the same matches. */
	pcre2_jit_compile(p->code, PCRE2_JIT_COMPLETE);
	*out = p;
	return 0;
}

void pattern_free(struct pattern *p)
{
	if (!p)
		return;
	pcre2_code_free(p->code);
	free(p->source);
	free(p);
}

static struct matcher *matcher_new(void)
{
	struct matcher *m = xcalloc(1, sizeof(*m));

	m->data = pcre2_match_data_create(1, NULL);
	m->context = pcre2_match_context_create(NULL);
	if (!m->data || !m->context)
		die(EX_UNAVAILABLE, "out of memory for matching patterns");
	pcre2_set_heap_limit(m->context, HEAP_KIB);
	return m;
}

void matcher_release(struct matcher *m)
{
	if (!m)
		return;
	pcre2_match_data_free(m->data);
	pcre2_match_context_free(m->context);
	pcre2_jit_stack_free(m->stack);
	free(m);
}

static void set_limit(struct matcher *m, size_t n)
{
	uint32_t limit = STEPS_LIMIT + (n < LONG_TEXT ? 0 : STEPS_A_BYTE * (uint32_t)n);

	if (m->limit == limit)
		return;
	m->limit = limit;
	pcre2_set_match_limit(m->context, limit);
}

int pattern_find(const struct pattern *p, struct matcher **mp, const char *s, size_t n, size_t from,
		 size_t *start, size_t *end, struct err *e)
{
	struct matcher *m = *mp ? *mp : (*mp = matcher_new());
	int rc;

	set_limit(m, n);
again:
	rc = pcre2_match(p->code, (PCRE2_SPTR)s, n, from, PCRE2_NO_UTF_CHECK, m->data, m->context);
	if (rc == PCRE2_ERROR_NOMATCH)
		return 0;
	if (rc == PCRE2_ERROR_JIT_STACKLIMIT && !m->stack) {
		m->stack = pcre2_jit_stack_create(STACK_FIRST, STACK_MOST, NULL);
		pcre2_jit_stack_assign(m->context, NULL, m->stack);
		goto again;
	}
	if (rc < 0)
		return err_set(e, EX_DATAERR,
			       "pattern %.60s: more than %u steps at byte %zu of a text of %zu",
			       p->source, m->limit, from, n);
	*start = pcre2_get_ovector_pointer(m->data)[0];
	*end = pcre2_get_ovector_pointer(m->data)[1];
	/* \K within an assertion can leave a match that begins anywhere. */
	if (*start < from)
		*start = from;
	if (*start > *end)
		*end = *start;
	return 1;
}
