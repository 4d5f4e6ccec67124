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

/* -- patterns ------------------------------------------------------------------------------------------------------ */

static const char *param(const struct reward *r, const char *key)
{
	const struct json *v = json_get(r->params, key);

	return json_is(v, JSON_STRING) ? v->text : NULL;
}

/* Parameter group; without one the first where the pattern has any, else the whole match. */
static void choose_group(struct reward *r)
{
	struct json_doc d = { .file = "reward" };
	struct err e = ERR_INIT;
	uint32_t groups = 0;
	long want;

	pcre2_pattern_info(r->state, PCRE2_INFO_CAPTURECOUNT, &groups);
	if (json_int_or(&d, r->params, "group", groups ? 1 : 0, &want, &e)) {
		e.code = EX_CONFIG;
		die_err(&e);
	}
	if (want < 0 || want > (long)groups)
		die(EX_CONFIG, "reward %s: group %ld, wanted 0 to the %u that the pattern has", r->name, want, groups);
	r->group = r->answer ? (int)want : 0;
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
	choose_group(r);
}

void reward_pattern_free(struct reward *r)
{
	pcre2_code_free(r->state);
}

/*
 * Steps are bounded in all, by the number of the match and not by time, so that every machine gives the same answer: the k-th
 * match may take a k-th part of the first one's.
 */
enum { FIRST_STEPS = 4000000, LEAST_STEPS = 1000, MOST_MATCHES = 65536 };

/* The last match: 1 found, 0 not, -1 a pattern that runs away. */
static int last_match(struct piece *found, const struct reward *r, const struct question *q, struct err *e)
{
	pcre2_match_data *m = pcre2_match_data_create_from_pattern(r->state, NULL);
	pcre2_match_context *limits = pcre2_match_context_create(NULL);
	size_t at = 0;
	int rc = 0, hit = 0;

	pcre2_set_depth_limit(limits, 10000);
	for (int k = 1; at <= q->s->text_bytes; k++) {
		const PCRE2_SIZE *o = pcre2_get_ovector_pointer(m) + 2 * r->group;

		rc = PCRE2_ERROR_MATCHLIMIT;
		if (k > MOST_MATCHES)
			break;
		pcre2_set_match_limit(limits, (uint32_t)(FIRST_STEPS / k > LEAST_STEPS ? FIRST_STEPS / k : LEAST_STEPS));
		rc = pcre2_match(r->state, (PCRE2_SPTR)q->s->text, q->s->text_bytes, at, 0, m, limits);
		if (rc < 0)
			break;
		if (o[0] != PCRE2_UNSET && o[0] <= o[1]) {
			*found = (struct piece){ q->s->text + o[0], o[1] - o[0] };
			hit = 1;
		}
		o = pcre2_get_ovector_pointer(m);
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

/* 1 up to `target` tokens of response (default 0), falling in a line to 0 at `limit` (default 512). */
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
