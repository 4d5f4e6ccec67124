#ifndef TOOLS_SHARED_REPLAY_H
#define TOOLS_SHARED_REPLAY_H

/*
 * Experts that a rollout wrote down (policy.router_replay.enabled) and that score and train-step
 * visit again: expert_ids by token, by layer among those that have experts, and by slot.  Only the
 * choice is taken over; the weights come from the live routers, so their gradients flow.  The last
 * token of a sample is never run by a rollout: its ids are -1, and its router chooses.
 */

#include "formats/samples.h"
#include "libcommon/recipe.h"
#include "tools/shared/packed.h"

/* Does the recipe ask for it?  78 where the model has no experts. */
bool replay_wanted(const struct recipe *r, const struct model_config *c);
/*
 * A sample as a sequence, with replay its experts.  Ends the program (65) where the sample has
 * none, or they are not those of such a model: other layers or slots, ids that are no experts, one
 * twice, -1 before the last token.  path: in messages.
 */
struct sequence sample_sequence(const struct samples *set, const struct sample *s, bool replay,
				const struct model_config *c, const char *path);

#endif
