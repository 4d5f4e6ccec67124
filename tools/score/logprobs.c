#include "tools/score/score.h"

#include "libcommon/rng.h"
#include "libcommon/xalloc.h"
#include "tools/shared/replay.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static float temperature_of(const struct samples *set)
{
	double t = set->s[0].temperature;

	for (long i = 0; i < set->n; i++)
		if (set->s[i].temperature != t)
			die(EX_DATAERR, "sample (prompt %ld, %ld): temperature %g, others %g; wanted one", set->s[i].prompt_id,
			    set->s[i].sample_index, set->s[i].temperature, t);
	return t > 0 ? (float)t : 1;
}

static void check_lengths(const struct samples *set, const struct model_config *c, const char *dir)
{
	for (long i = 0; i < set->n; i++) {
		const struct sample *s = set->s + i;

		if (s->prompt_length < 1)
			die(EX_DATAERR, "sample (prompt %ld, %ld): no prompt, wanted at least one token before the response", s->prompt_id,
			    s->sample_index);
		if (s->length > c->max_position)
			die(EX_DATAERR, "sample (prompt %ld, %ld): %ld tokens, %s has %ld positions", s->prompt_id, s->sample_index,
			    s->length, dir, c->max_position);
		for (long t = 0; t < s->length; t++)
			if (s->token_ids[t] >= c->vocab)
				die(EX_DATAERR, "sample (prompt %ld, %ld): token id %d, the vocabulary of %s has %ld", s->prompt_id,
				    s->sample_index, s->token_ids[t], dir, c->vocab);
	}
}

/* lp[i] of the samples that `pick` names, under that checkpoint: with the experts of the rollout only if it is their policy's. */
static void under(float **lp, const struct samples *set, const long *pick, long n, const char *dir, bool policy,
		  const struct recipe *r, const struct ops *k, const char *what)
{
	struct sequence *q = xmalloc((size_t)n * sizeof(*q));
	struct model_config cfg;
	struct checkpoint c;
	struct mesh mesh;
	struct model m;
	bool replay;

	load_checkpoint(&c, dir);
	load_config(&cfg, &c);
	start_mesh_forward(&mesh, r, &cfg);
	load_model(&m, &c, k, &mesh, start_precision(r, &c), 0, 0);
	check_lengths(set, &m.table.config, dir);
	replay = policy && replay_wanted(r, &m.table.config);
	for (long i = 0; i < n; i++)
		q[i] = sample_sequence(set, set->s + pick[i], replay, &m.table.config, "samples");
	packed_logprobs(&m, lp, NULL, q, n, r, temperature_of(set), what);
	model_release(&m);
	mesh_release(&mesh);
	checkpoint_close(&c);
	free(q);
}

static float *room(struct samples *set, const struct sample *s)
{
	size_t n = (size_t)(s->length - s->prompt_length);
	float *p = arena_alloc(&set->arena, n * sizeof(float) + 1);

	for (size_t i = 0; i < n; i++)
		p[i] = NAN;
	return p;
}

static bool recorded_here(const struct sample *s, const struct digest *policy, uint64_t fingerprint)
{
	if (!s->logprobs || s->fingerprint != fingerprint || !fingerprint)
		return false;
	return policy ? digest_equal(s->policy, *policy) : s->policy.hi || s->policy.lo;
}

/* A share of what was recorded, chosen by the seed, must come out again to the bit. */
static void recheck(const struct samples *set, const long *pick, long n, const char *dir, const struct recipe *r, const struct ops *k)
{
	float **lp = xmalloc((size_t)n * sizeof(*lp));

	for (long i = 0; i < n; i++)
		lp[i] = xmalloc((size_t)(set->s[pick[i]].length - set->s[pick[i]].prompt_length) * sizeof(float) + 1);
	under(lp, set, pick, n, dir, true, r, k, "checking log-probabilities");
	for (long i = 0; i < n; i++) {
		const struct sample *s = set->s + pick[i];

		for (long t = 0; t < s->length - s->prompt_length; t++)
			if ((!s->loss_mask || s->loss_mask[t]) && memcmp(lp[i] + t, s->logprobs + t, sizeof(float)))
				die(EX_SOFTWARE, "sample (prompt %ld, %ld), token %ld: recorded log-probability %.9g, recomputed %.9g:"
				    " the same weights on the same arithmetic must give the same bits", s->prompt_id, s->sample_index, t,
				    (double)s->logprobs[t], (double)lp[i][t]);
		free(lp[i]);
	}
	free(lp);
}

/* One in 1 / share, and always the sample with the least draw: a small set is looked at too. */
static long draw(long *check, const struct samples *set, const long *recorded, long n, double share, uint64_t seed)
{
	float least = 1;
	long first = -1, count = 0;

	if (share <= 0)
		return 0;
	for (long i = 0; i < n; i++) {
		const struct sample *s = set->s + recorded[i];
		float u = rng_uniform(rng_key(seed, RNG_CHECK, (uint64_t)s->visit), (uint64_t)s->prompt_id, (uint32_t)s->sample_index,
				      (uint32_t)s->step);

		if ((double)u < share)
			check[count++] = recorded[i];
		if (u < least) {
			least = u;
			first = recorded[i];
		}
	}
	if (!count && first >= 0)
		check[count++] = first;
	return count;
}

/* Whether the loss looks at the policy before the update at all. */
static bool prev_needed(const struct recipe *r)
{
	return recipe_bool(r, "loss_fn.use_importance_sampling_correction") || !recipe_is_null(r, "grpo.seq_logprob_error_threshold") ||
	       !(recipe_bool(r, "loss_fn.force_on_policy_ratio") || recipe_bool(r, "loss_fn.disable_ppo_ratio"));
}

void score_prev(struct samples *set, const char *policy, const struct recipe *r, const struct ops *k)
{
	long *missing = xmalloc((size_t)set->n * sizeof(long)), *check = xmalloc((size_t)set->n * sizeof(long)), nm = 0, nc = 0;
	long *recorded = xmalloc((size_t)set->n * sizeof(long)), nr = 0;
	double share = recipe_real(r, "cairn.recompute_share");
	uint64_t own = ops_fingerprint(k), seed = (uint64_t)recipe_int(r, "grpo.seed");
	struct digest digest;
	struct checkpoint c;

	if (policy) {
		load_checkpoint(&c, policy);
		digest = c.weights_digest;
		checkpoint_close(&c);
	}
	for (long i = 0; i < set->n; i++) {
		struct sample *s = set->s + i;

		if (!recorded_here(s, policy ? &digest : NULL, own)) {
			missing[nm++] = i;
			continue;
		}
		s->prev_logprobs = s->logprobs;
		recorded[nr++] = i;
	}
	if (policy)
		nc = draw(check, set, recorded, nr, share, seed);
	if (!prev_needed(r))
		nm = 0;
	if (nm && !policy)
		die(EX_USAGE, "%ld samples have no log-probabilities of this arithmetic; give --policy CKPT, the checkpoint that training starts"
		    " from", nm);
	if (nm) {
		float **lp = xmalloc((size_t)nm * sizeof(*lp));

		for (long i = 0; i < nm; i++)
			lp[i] = set->s[missing[i]].prev_logprobs = room(set, set->s + missing[i]);
		under(lp, set, missing, nm, policy, true, r, k, "policy log-probabilities");
		free(lp);
	}
	if (nc)
		recheck(set, check, nc, policy, r, k);
	free(missing);
	free(recorded);
	free(check);
}

void score_reference(struct samples *set, const char *reference, const struct recipe *r, const struct ops *k)
{
	long *all = xmalloc((size_t)set->n * sizeof(long));
	float **lp = xmalloc((size_t)set->n * sizeof(*lp));

	if (!reference)
		die(EX_USAGE, "loss_fn.reference_policy_kl_penalty is %g (%s): give --reference CKPT, or set it to 0",
		    recipe_real(r, "loss_fn.reference_policy_kl_penalty"), recipe_where(r, "loss_fn.reference_policy_kl_penalty"));
	for (long i = 0; i < set->n; i++) {
		all[i] = i;
		lp[i] = set->s[i].reference_logprobs = room(set, set->s + i);
	}
	under(lp, set, all, set->n, reference, false, r, k, "reference log-probabilities");
	free(all);
	free(lp);
}
