#include "tools/score/score.h"

#include "libcommon/xalloc.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct piece { const char *s; size_t n; };

static struct piece trimmed(const char *s, size_t n)
{
	while (n && isspace((unsigned char)*s)) {
		s++;
		n--;
	}
	while (n && isspace((unsigned char)s[n - 1]))
		n--;
	return (struct piece){ s, n };
}

static int need_gold(const struct question *q, struct err *e)
{
	return q->gold ? 0 : err_set(e, EX_DATAERR, "the row has no answer to compare with");
}

static void compare(struct verdict *v, struct piece found, const char *gold)
{
	struct piece g = trimmed(gold, strlen(gold));

	v->value = found.n == g.n && !memcmp(found.s, g.s, g.n);
	v->extracted = xstrndup(found.s, found.n);
}

int judge_exact(struct verdict *v, const struct reward *r, const struct question *q, struct err *e)
{
	(void)r;
	if (need_gold(q, e))
		return -1;
	compare(v, trimmed(q->s->text, q->s->text_bytes), q->gold);
	return 0;
}

static bool is_letter(const char *s, size_t at, size_t n)
{
	bool before = at && isalnum((unsigned char)s[at - 1]), after = at + 1 < n && isalnum((unsigned char)s[at + 1]);

	return s[at] >= 'A' && s[at] <= 'J' && !before && !after;
}

/* The last letter A to J that stands alone, with or without brackets. */
int judge_choice(struct verdict *v, const struct reward *r, const struct question *q, struct err *e)
{
	struct piece g, found = { "", 0 };

	(void)r;
	if (need_gold(q, e))
		return -1;
	g = trimmed(q->gold, strlen(q->gold));
	while (g.n && (*g.s == '(' || *g.s == '[')) {
		g.s++;
		g.n--;
	}
	if (!g.n || toupper((unsigned char)*g.s) < 'A' || toupper((unsigned char)*g.s) > 'J')
		return err_set(e, EX_DATAERR, "gold answer \"%s\", wanted a letter A to J", q->gold);
	for (size_t i = q->s->text_bytes; i-- > 0 && !found.n;)
		if (is_letter(q->s->text, i, q->s->text_bytes))
			found = (struct piece){ q->s->text + i, 1 };
	v->value = found.n && *found.s == toupper((unsigned char)*g.s);
	v->extracted = found.n ? xstrndup(found.s, 1) : NULL;
	v->reason = found.n ? NULL : xstrdup("no letter stands alone");
	return 0;
}

/* -- patterns ------------------------------------------------------------------------------------------------------ */

static const char *param(const struct reward *r, const char *key)
{
	const struct json *v = json_get(r->params, key);

	return json_is(v, JSON_STRING) ? v->text : NULL;
}

void reward_pattern_compile(struct reward *r)
{
	const char *text = param(r, "pattern");
	PCRE2_SIZE at;
	int code;

	if (!text)
		die(EX_CONFIG, "reward %s: no pattern, wanted a regular expression", r->name);
	r->state = pcre2_compile((PCRE2_SPTR)text, PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP | PCRE2_DOTALL | PCRE2_MATCH_INVALID_UTF,
				 &code, &at, NULL);
	if (!r->state) {
		char why[160];

		pcre2_get_error_message(code, (PCRE2_UCHAR *)why, sizeof(why));
		die(EX_CONFIG, "reward %s: pattern %s: at byte %zu: %s", r->name, text, at, why);
	}
}

void reward_pattern_free(struct reward *r)
{
	pcre2_code_free(r->state);
}

/* The last match: its group 1 where the pattern has one, else all of it.  1 found, 0 not, -1 a pattern that runs away. */
static int last_match(struct piece *found, const struct reward *r, const struct question *q, struct err *e)
{
	pcre2_match_data *m = pcre2_match_data_create_from_pattern(r->state, NULL);
	pcre2_match_context *limits = pcre2_match_context_create(NULL);
	size_t at = 0;
	int rc = 0, hit = 0;

	pcre2_set_match_limit(limits, 1000000);
	pcre2_set_depth_limit(limits, 10000);
	while (at <= q->s->text_bytes) {
		const PCRE2_SIZE *o = pcre2_get_ovector_pointer(m);
		int g;

		rc = pcre2_match(r->state, (PCRE2_SPTR)q->s->text, q->s->text_bytes, at, 0, m, limits);
		if (rc < 0)
			break;
		g = rc > 1 && o[2] != PCRE2_UNSET ? 1 : 0;
		*found = (struct piece){ q->s->text + o[2 * g], o[2 * g + 1] - o[2 * g] };
		hit = 1;
		at = o[1] > at ? o[1] : at + 1;
	}
	pcre2_match_context_free(limits);
	pcre2_match_data_free(m);
	if (rc < 0 && rc != PCRE2_ERROR_NOMATCH)
		return err_set(e, EX_DATAERR, "the pattern takes too many steps on this response");
	return hit;
}

int judge_regex(struct verdict *v, const struct reward *r, const struct question *q, struct err *e)
{
	struct piece found = { "", 0 };
	int hit;

	if (need_gold(q, e))
		return -1;
	hit = last_match(&found, r, q, e);
	if (hit < 0)
		return -1;
	if (hit)
		compare(v, trimmed(found.s, found.n), q->gold);
	else
		*v = (struct verdict){ .value = 0, .reason = xstrdup("the pattern does not match") };
	return 0;
}

int judge_format(struct verdict *v, const struct reward *r, const struct question *q, struct err *e)
{
	struct piece found;
	int hit = last_match(&found, r, q, e);

	if (hit < 0)
		return -1;
	*v = (struct verdict){ .value = hit, .reason = hit ? NULL : xstrdup("the pattern does not match") };
	return 0;
}

/*
 * 1 up to `target` tokens of response, falling in a line to 0 at `limit`: parameters target (0) and limit (policy's
 * max_total_sequence_length is no default here: a limit must be given).
 */
int judge_length(struct verdict *v, const struct reward *r, const struct question *q, struct err *e)
{
	struct json_doc d = { .file = "reward length" };
	double target, limit, n = (double)(q->s->length - q->s->prompt_length);

	if (json_real_or(&d, r->params, "target", 0, &target, e) || json_real_or(&d, r->params, "limit", 512, &limit, e))
		return -1;
	if (!(limit > target) || target < 0)
		return err_set(e, EX_CONFIG, "reward length: target %g, limit %g: wanted 0 <= target < limit", target, limit);
	v->value = n <= target ? 1 : n >= limit ? 0 : (limit - n) / (limit - target);
	return 0;
}
