#include "tools/score/score.h"

#include "kernels/advantage.h"
#include "kernels/loss_weights.h"
#include "libcommon/xalloc.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static long tokens(const struct sample *s)
{
	return s->length - s->prompt_length;
}

static bool same_group(const struct sample *a, const struct sample *b)
{
	return a->prompt_id == b->prompt_id && a->visit == b->visit;
}

/* Clamp, then a straight line from one range to the other (reward_scaling). */
static double scaled(double x, const struct recipe *r)
{
	double a = recipe_real(r, "grpo.reward_scaling.source_min"), b = recipe_real(r, "grpo.reward_scaling.source_max");
	double c = recipe_real(r, "grpo.reward_scaling.target_min"), d = recipe_real(r, "grpo.reward_scaling.target_max");

	if (!recipe_bool(r, "grpo.reward_scaling.enabled"))
		return x;
	if (!(b > a))
		die(EX_CONFIG, "%s: grpo.reward_scaling: source_min %g, source_max %g: wanted min < max",
		    recipe_where(r, "grpo.reward_scaling.source_max"), a, b);
	x = x < a ? a : x > b ? b : x;
	return c + (x - a) / (b - a) * (d - c);
}

/* Cut-off samples scaled down, or DAPO's soft penalty for length: min(0, -(n - (L - buffer)) / buffer * penalty). */
static double shaped(double x, const struct sample *s, const struct recipe *r)
{
	static const char *const keys[] = { "grpo.reward_shaping.max_response_length", "grpo.reward_shaping.overlong_buffer_length",
					    "grpo.reward_shaping.overlong_buffer_penalty" };
	double limit, buffer, over;

	if (!recipe_bool(r, "grpo.reward_shaping.enabled"))
		return x;
	if (!recipe_is_null(r, "grpo.reward_shaping.stop_properly_penalty_coef"))
		return s->truncated ? x * recipe_real(r, "grpo.reward_shaping.stop_properly_penalty_coef") : x;
	for (int i = 0; i < 3; i++)
		if (recipe_is_null(r, keys[i]))
			die(EX_CONFIG, "%s: %s: null, wanted a number while reward_shaping is enabled", recipe_where(r, keys[i]), keys[i]);
	limit = (double)recipe_int(r, "grpo.reward_shaping.max_response_length");
	buffer = (double)recipe_int(r, "grpo.reward_shaping.overlong_buffer_length");
	if (buffer < 1)
		die(EX_CONFIG, "%s: %s: found 0, wanted at least 1 token", recipe_where(r, keys[1]), keys[1]);
	over = ((double)tokens(s) - (limit - buffer)) / buffer * recipe_real(r, "grpo.reward_shaping.overlong_buffer_penalty");
	return over > 0 ? x - over : x;
}

static double clipped(double a, const struct recipe *r)
{
	if (!recipe_is_null(r, "grpo.advantage_clip_low") && a < recipe_real(r, "grpo.advantage_clip_low"))
		a = recipe_real(r, "grpo.advantage_clip_low");
	if (!recipe_is_null(r, "grpo.advantage_clip_high") && a > recipe_real(r, "grpo.advantage_clip_high"))
		a = recipe_real(r, "grpo.advantage_clip_high");
	return a;
}

/* Beyond this their squares, or float32, could overflow, and an advantage be 0 or infinite. */
#define REWARD_MAX 1e30

static double checked(double x, const struct sample *s)
{
	if (fabs(x) > REWARD_MAX)
		die(EX_DATAERR, "sample (prompt %ld, %ld): found reward %g, wanted one of at most %g in size", (long)s->prompt_id,
		    (long)s->sample_index, x, REWARD_MAX);
	return x;
}

static void advantages(struct learning *l, struct samples *set, const struct recipe *r)
{
	double *reward = xmalloc((size_t)set->n * sizeof(double)), *a = xmalloc((size_t)set->n * sizeof(double));
	long to;

	for (long i = 0; i < set->n; i++)
		reward[i] = set->s[i].reward_valid ?
			checked(shaped(scaled(set->s[i].reward, r), set->s + i, r), set->s + i) : (double)NAN;
	for (long from = 0; from < set->n; from = to) {
		for (to = from; to < set->n && same_group(set->s + from, set->s + to);)
			to++;
		group_advantages(a + from, reward + from, to - from, recipe_bool(r, "grpo.adv_estimator.use_leave_one_out_baseline"),
				 recipe_bool(r, "grpo.adv_estimator.normalize_rewards"));
		l->groups++;
		l->flat_groups += group_std(reward + from, to - from) <= 1e-6;
	}
	for (long i = 0; i < set->n; i++) {
		struct sample *s = set->s + i;

		s->advantages = arena_alloc(&set->arena, (size_t)tokens(s) * sizeof(float) + 1);
		for (long t = 0; t < tokens(s); t++)
			s->advantages[t] = (float)clipped(a[i], r);
	}
	free(reward);
	free(a);
}

/* mean over the sampled tokens of exp|gen - prev| */
static double sequence_error(const struct sample *s)
{
	double sum = 0;
	long n = 0;

	for (long t = 0; t < tokens(s); t++)
		if (!s->loss_mask || s->loss_mask[t]) {
			sum += exp(fabs((double)s->logprobs[t] - (double)s->prev_logprobs[t]));
			n++;
		}
	return n ? sum / (double)n : 0;
}

static bool kept(struct learning *l, const struct sample *s, const struct recipe *r)
{
	if (!s->reward_valid || s->finish_reason == FINISH_NONFINITE)
		return false;
	if (s->truncated && recipe_bool(r, "grpo.overlong_filtering")) {
		l->filtered++;
		return false;
	}
	if (!recipe_is_null(r, "grpo.seq_logprob_error_threshold") &&
	    !(sequence_error(s) <= recipe_real(r, "grpo.seq_logprob_error_threshold"))) {
		l->masked_by_error++;
		return false;
	}
	return true;
}

static struct importance_config importance(const struct recipe *r)
{
	const char *kind = recipe_str(r, "loss_fn.truncated_importance_sampling_type");
	struct importance_config c = { .kind = IMPORTANCE_NONE, .min = 0, .max = INFINITY };

	c.sequence_level = recipe_bool(r, "loss_fn.sequence_level_importance_ratios");
	if (c.sequence_level && recipe_bool(r, "loss_fn.token_level_loss"))
		die(EX_CONFIG, "%s: loss_fn.sequence_level_importance_ratios: wants loss_fn.token_level_loss false",
		    recipe_where(r, "loss_fn.sequence_level_importance_ratios"));
	if (!recipe_bool(r, "loss_fn.use_importance_sampling_correction")) {
		if (kind)
			die(EX_CONFIG, "%s: loss_fn.truncated_importance_sampling_type: wants loss_fn.use_importance_sampling_correction true",
			    recipe_where(r, "loss_fn.truncated_importance_sampling_type"));
		return c;
	}
	c.kind = !kind ? IMPORTANCE_PLAIN : !strcmp(kind, "tis") ? IMPORTANCE_TIS : !strcmp(kind, "icepop") ? IMPORTANCE_ICEPOP
	       : IMPORTANCE_SEQ_MASK;
	if (!recipe_is_null(r, "loss_fn.truncated_importance_sampling_ratio"))
		c.max = recipe_real(r, "loss_fn.truncated_importance_sampling_ratio");
	else if (kind)
		die(EX_CONFIG, "%s: loss_fn.truncated_importance_sampling_type %s: wants truncated_importance_sampling_ratio, its upper bound",
		    recipe_where(r, "loss_fn.truncated_importance_sampling_type"), kind);
	if (!recipe_is_null(r, "loss_fn.truncated_importance_sampling_ratio_min"))
		c.min = recipe_real(r, "loss_fn.truncated_importance_sampling_ratio_min");
	return c;
}

/* Silence would train on uncorrected weights. */
static void need_recorded(const struct samples *set, const char *key)
{
	for (long i = 0; i < set->n; i++)
		if (!set->s[i].logprobs)
			die(EX_DATAERR, "sample (prompt %ld, %ld): no logprobs of the sampler, which %s needs", set->s[i].prompt_id,
			    set->s[i].sample_index, key);
}

static void weights(struct learning *l, struct samples *set, const struct recipe *r)
{
	struct weighed *w = xcalloc((size_t)set->n, sizeof(*w));
	long batch = recipe_int(r, "policy.train_global_batch_size"), weighed = 0;
	bool kl = recipe_real(r, "loss_fn.reference_policy_kl_penalty") > 0;
	struct importance_config c = importance(r);

	if (c.kind != IMPORTANCE_NONE)
		need_recorded(set, "loss_fn.use_importance_sampling_correction");
	if (!recipe_is_null(r, "grpo.seq_logprob_error_threshold"))
		need_recorded(set, "grpo.seq_logprob_error_threshold");
	for (long i = 0; i < set->n; i++) {
		struct sample *s = set->s + i;

		w[i] = (struct weighed){ tokens(s), s->loss_mask, kept(l, s, r), arena_alloc(&set->arena, (size_t)tokens(s) * 4 + 1) };
		s->loss_weights[LOSS_POLICY] = w[i].w;
		s->update = i / batch;
		s->unit = i;
	}
	for (long i = 0; i < set->n; i += batch)
		loss_weights(w + i, set->n - i < batch ? set->n - i : batch, recipe_bool(r, "loss_fn.token_level_loss"));
	for (long i = 0; i < set->n; i++) {
		struct sample *s = set->s + i;
		double mean;
		long outside;

		if (kl)
			s->loss_weights[LOSS_KL] = samples_copy(set, w[i].w, (size_t)tokens(s) * sizeof(float));
		if (!s->logprobs || !s->prev_logprobs || !w[i].keep)
			continue;
		importance_weights(w[i].w, s->prev_logprobs, s->logprobs, s->loss_mask, tokens(s), &c, &mean, &outside);
		l->importance += mean;
		l->outside += outside;
		weighed++;
	}
	if (weighed)
		l->importance /= (double)weighed;
	free(w);
}

void score_learning(struct learning *l, struct samples *set, const struct recipe *r)
{
	memset(l, 0, sizeof(*l));
	advantages(l, set, r);
	weights(l, set, r);
}
