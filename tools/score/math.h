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
 * Where Python's math-verify decides otherwise, on purpose (tests/tools/compare_math_verify.py prints every case): an
 * open <think> hides its box, and a closed one all before it; #### and a letter with its text, "E: some words", count;
 * 12.5% as gold equals 12.5; 1/0 and ln 0 as gold are unscored; golds below 0.001 do not all equal each other; "5 cm" and
 * "5 m", 10 am and 10 pm, 204 in base 5 and 204, 2x and 2X differ; "x=1, y=2" is not "2, 1"; a false equation is not its
 * right side; the real cube root of -8 is -2; complex numbers, scientific notation and Unicode signs are read.
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
