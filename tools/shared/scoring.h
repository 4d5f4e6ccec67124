#ifndef TOOLS_SHARED_SCORING_H
#define TOOLS_SHARED_SCORING_H

/*
 * What a score fixed for good: the recipe keys that its normalisation and its advantages depend on.  score writes them into the
 * manifest; a train-step whose recipe says otherwise is refused, since its weights would mean something else.
 */

#include "libcommon/json.h"
#include "libcommon/recipe.h"

/* {"algorithm": ..., "temperature": ..., "keys": {KEY: VALUE, ...}} */
void scoring_put(struct json_out *o, const struct recipe *r, const char *algorithm, double temperature);
/* EX_CONFIG naming the first key that differs, with both values. */
int scoring_check(const struct json *scoring, const char *file, const struct recipe *r, const char *algorithm, struct err *e) MUST_CHECK;

#endif
