#ifndef LIBCOMMON_ROPE_H
#define LIBCOMMON_ROPE_H

/*
 * Rotary embeddings in config.json: rope_theta and rope_scaling (transformers 4), rope_parameters
 * (5), or both, which then must say the same.  Part of model_config; rope_frequencies() is in
 * model_config.h.
 */

#include "libcommon/model_config.h"

/* From the members of o, the object that holds hidden_size and the like; max_position, head_dim and
 * the family's own theta (rope.theta) are in c already. */
int rope_from_json(struct model_config *c, const struct json_doc *d, const struct json *o,
		   struct err *e) MUST_CHECK;
/* rope_theta, rope_scaling and rope_parameters, as members of the object that is being written. */
void rope_to_json(struct json_out *o, const struct rope_config *r);
int rope_check(const struct rope_config *r, const char *file, struct err *e) MUST_CHECK;

#endif
