#ifndef TOOLS_SCORE_MATH_H
#define TOOLS_SCORE_MATH_H

/*
 * The math reward: whether the answer in a response equals the gold answer, as mathematics rather than as text.
 *
 * Extraction (mode auto), behind the last </think> (a <think> left open: no answer): the last closed \boxed or \fbox (only
 * open ones: no answer); the last "#### X" line; <answer>X</answer>, or what stands behind the last "answer is", "answer:";
 * the whole response, where it is one line and nothing but an answer; the last formula with a value; the last number. The
 * last two and the answer line are searched for in the last 16 KiB, the first two anywhere. Other modes take one step:
 * boxed, hash, answer_line, last_number; gsm8k_strict compares the last "#### N" of the last 300 characters as text, commas
 * dropped; choice adds the last letter A to J that stands alone.
 *
 * Equality: exact rationals exactly; where a decimal fraction takes part, to half a unit of the sixth decimal (gold below
 * 0.001: half a thousandth of it); roots, powers, pi, e, functions, a+bi in long double to 1e-12 relative. Tuples in order,
 * sets and lists without, intervals with their ends, unions in any order. 50% equals 0.5, and 50 with percent_lenient. A unit
 * on one side only is ignored, two different ones differ. A single letter A to J as gold is a choice: "(B) 12" is B. What
 * does not parse (variables, relations, matrices, or beyond the bounds of math_parts.h) is compared as text, blanks aside.
 *
 * Where Python's math-verify decides otherwise, on purpose: an open <think> hides its box; 50 and 50% are equal; 28% and 0.28
 * too, both ways; 1/0 as gold is unscored rather than wrong; golds below 0.001 are not all equal; equal text is no proof for
 * golds without a value; a tuple is not a set; "5 cm" and "5 m" differ; the last box counts even where an earlier one parses.
 *
 * options: mode ("auto"), percent_lenient (true), single_answer (false; several different boxes: 0), allow_bare_number (true;
 * the last step of auto), words (false; five is 5), strict_think (true; else the tags mean nothing). name and weight are
 * passed over. Another key, or a wrong type, fails with EX_CONFIG.
 */

#include "libcommon/die.h"
#include "libcommon/json.h"

struct math_result {
	double score;           /* 0 or 1; NaN: unscored: the gold answer is empty or, as 1/0, has no value */
	char *extracted;        /* what was read out of the response, or NULL; the caller frees */
	char *reason;           /* why, in a few words, or NULL; the caller frees */
};

/* options: the parameters of the reward function in the recipe (an object), or NULL.  Safe from several threads at once. */
int math_reward(struct math_result *m, const char *response, size_t n, const char *gold, size_t gold_n,
		const struct json *options, struct err *e) MUST_CHECK;

#endif
