/*
 * Answers: the first line is the gold answer, the second the options (JSON, or nothing), the rest the response.  Whatever is
 * given gets a verdict of 0, 1 or unscored with a reason, and the same one a second time.
 *
 * clang -fsanitize=fuzzer,address,undefined ...; corpus in tests/fuzz/corpus/math.
 */

#include "tools/score/math.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void result_release(struct math_result *m)
{
	free(m->extracted);
	free(m->reason);
}

static int same_text(const char *a, const char *b)
{
	return a && b ? !strcmp(a, b) : a == b;
}

static size_t line(const char **s, const char **rest, size_t *n)
{
	const char *end = memchr(*rest, '\n', *n);
	size_t len = end ? (size_t)(end - *rest) : *n;

	*s = *rest;
	*rest += len + (end != NULL);
	*n -= len + (end != NULL);
	return len;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *rest = (const char *)data, *gold, *options;
	size_t gold_n = line(&gold, &rest, &size), options_n = line(&options, &rest, &size);
	struct math_result m, again;
	struct json_doc d;
	struct err e = ERR_INIT;
	int has = options_n && !json_parse(&d, options, options_n, "options", 1, &e);

	if (math_reward(&m, rest, size, gold, gold_n, has ? &d.root : NULL, &e)) {
		if (e.code != EX_CONFIG || !*e.msg)
			abort();
	} else {
		if (!m.reason || !*m.reason || !(isnan(m.score) || m.score == 0 || m.score == 1))
			abort();
		if (math_reward(&again, rest, size, gold, gold_n, has ? &d.root : NULL, &e))
			abort();
		if (!(m.score == again.score || (isnan(m.score) && isnan(again.score))) ||
		    !same_text(m.extracted, again.extracted) || !same_text(m.reason, again.reason))
			abort();
		result_release(&m);
		result_release(&again);
	}
	if (has)
		json_release(&d);
	return 0;
}
