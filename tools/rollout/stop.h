#ifndef TOOLS_ROLLOUT_STOP_H
#define TOOLS_ROLLOUT_STOP_H

/*
 * When a response ends by what it says.  Stop strings are looked for in the decoded text as it grows, control tokens spelt
 * out, part of a character never counted: the token that completes one is the last, and `text` is what stands before it.  Where
 * one token completes several, the one that begins first cuts.
 */

#include "formats/tokenizer.h"

struct stops {                  /* borrowed, fixed for a run */
	const struct tokenizer *t;
	const int *id; long ids;
	const char *const *string; long strings;
};

struct stop_text {              /* one response as it grows; zero is empty */
	struct token_stream stream;
	struct str text;        /* as decoded, with the spelling of control tokens; only where there are stop strings */
};

bool stop_is_id(const struct stops *s, int id);
/* One more token; true when a stop string is complete, *cut is then where it begins. */
bool stop_text_add(struct stop_text *x, size_t *cut, const struct stops *s, int id);
void stop_text_release(struct stop_text *x);
/*
 * Append the response as a reader wants it: without control tokens, up to byte `cut` of stop_text (-1: all of it), always
 * valid UTF-8.
 */
void response_text(struct str *out, const struct tokenizer *t, const int *ids, long n, long cut);

#endif
