#include "tools/shared/replay.h"

#include "libcommon/xalloc.h"

#include <stdlib.h>

bool replay_wanted(const struct recipe *r, const struct model_config *c)
{
	static const char key[] = "policy.router_replay.enabled";

	if (!recipe_bool(r, key))
		return false;
	if (!c->moe.experts)
		die(EX_CONFIG, "%s: %s is true, but %s has no experts", recipe_where(r, key), key,
		    c->architecture);
	return true;
}

/* One layer of one token; seen[e] is the number of the last such look at e. */
static const char *wrong(const int32_t *id, const struct moe_config *m, bool last, long *seen,
			 long look)
{
	if (id[0] < 0 && last)
		return NULL;
	for (long s = 0; s < m->experts_per_token; s++) {
		if (id[s] < 0 || id[s] >= m->experts)
			return "no expert of this model";
		if (seen[id[s]] == look)
			return "the same expert twice";
		seen[id[s]] = look;
	}
	return NULL;
}

static void check(const struct samples *set, const struct sample *s, const struct model_config *c,
		  const char *path)
{
	long layers = model_config_moe_layers(c), k = c->moe.experts_per_token, look = 0;
	long *seen = xcalloc((size_t)c->moe.experts, sizeof(*seen));

	if (!s->expert_ids)
		die(EX_DATAERR,
		    "%s: sample (prompt %ld, %ld): no expert_ids, wanted those of its rollout "
		    "(policy.router_replay.enabled)",
		    path, s->prompt_id, s->sample_index);
	if (set->expert_layers != layers || set->expert_slots != k)
		die(EX_DATAERR,
		    "%s: expert_ids of %d layers and %d slots, the model has %ld and %ld", path,
		    set->expert_layers, set->expert_slots, layers, k);
	for (long t = 0; t < s->length; t++)
		for (long l = 0; l < layers; l++) {
			const char *why = wrong(s->expert_ids + (t * layers + l) * k, &c->moe,
						t + 1 == s->length, seen, ++look);

			if (why)
				die(EX_DATAERR,
				    "%s: sample (prompt %ld, %ld): expert_ids of token %ld, layer "
				    "%ld: %s",
				    path, s->prompt_id, s->sample_index, t, l, why);
		}
	free(seen);
}

struct sequence sample_sequence(const struct samples *set, const struct sample *s, bool replay,
				const struct model_config *c, const char *path)
{
	struct sequence q = { .ids = s->token_ids,
			      .n = s->length,
			      .prompt = s->prompt_length,
			      .mask = s->loss_mask };

	if (!replay)
		return q;
	check(set, s, c, path);
	q.experts = s->expert_ids;
	q.per = (long)set->expert_layers * set->expert_slots;
	return q;
}
