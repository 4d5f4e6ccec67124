#ifndef TOOLS_SCORE_MATH_H
#define TOOLS_SCORE_MATH_H

/*
 * The math reward: whether the answer in a response equals the gold answer, as mathematics rather than as text.
 */

#include "libcommon/die.h"
#include "libcommon/json.h"

struct math_result {
	double score;           /* 0 or 1; NaN: unscored */
	char *extracted;        /* what was read out of the response, or NULL; the caller frees */
	char *reason;           /* why, in a few words, or NULL; the caller frees */
};

/* options: the parameters of the reward function in the recipe (an object), or NULL.  Safe from several threads at once. */
int math_reward(struct math_result *m, const char *response, size_t n, const char *gold, size_t gold_n,
		const struct json *options, struct err *e) MUST_CHECK;

#endif
