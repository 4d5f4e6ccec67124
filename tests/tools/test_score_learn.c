/* Advantages and weights of an update: cases worked by hand. */
#include "tools/score/score.h"

#include "tests/lib/tap.h"

static const char plain[] = "grpo: {normalize_rewards: false, use_leave_one_out_baseline: false}\n"
			    "loss_fn: {reference_policy_kl_penalty: 0.0}\n";

static struct recipe *recipe(const char *const *words, int n)
{
	struct recipe *r;
	struct err e = ERR_INIT;

	if (recipe_parse(&r, plain, strlen(plain), "test", words, n, NULL, 0, &e))
		die_err(&e);
	return r;
}

/* n sampled tokens behind one of prompt; NaN: unscored */
static struct sample *add(struct samples *set, long prompt, long index, double reward, long n)
{
	struct sample *s = samples_append(set);
	int32_t *ids = arena_calloc(&set->arena, (size_t)n + 1, sizeof(*ids));

	s->prompt_id = prompt;
	s->sample_index = index;
	s->order = prompt;
	s->prompt_length = 1;
	s->length = n + 1;
	s->token_ids = ids;
	s->has_reward = true;
	s->reward_valid = isfinite(reward);
	s->reward = reward;
	s->temperature = 1;
	return s;
}

static float *floats(struct samples *set, const float *v, long n)
{
	return samples_copy(set, v, (size_t)n * sizeof(float));
}

static struct learning learn(struct samples *set, const char *const *words, int n)
{
	struct recipe *r = recipe(words, n);
	struct learning l;

	score_learning(&l, set, r);
	recipe_free(r);
	return l;
}

static void advantages(const char *what, const double *reward, const long *prompt, long n, const char *const *words, int nw,
		       const double *want)
{
	struct samples set = { 0 };

	for (long i = 0; i < n; i++)
		add(&set, prompt ? prompt[i] : 0, i, reward[i], 2);
	learn(&set, words, nw);
	for (long i = 0; i < n; i++) {
		is_num((double)set.s[i].advantages[0], want[i], 1e-6, "%s: sample %ld", what, i);
		ok(set.s[i].advantages[0] == set.s[i].advantages[1], "%s: sample %ld: the same for every token", what, i);
		if (isnan(reward[i]))
			ok(set.s[i].loss_weights[LOSS_POLICY][0] == 0, "%s: sample %ld: unscored weighs nothing", what, i);
	}
	samples_release(&set);
}

static void weights(const char *what, struct samples *set, const char *const *words, int n, const double *want)
{
	learn(set, words, n);
	for (long i = 0; i < set->n; i++)
		for (long t = 0; t < set->s[i].length - 1; t++)
			is_num((double)set->s[i].loss_weights[LOSS_POLICY][t], *want++, 1e-7, "%s: sample %ld token %ld", what, i, t);
	samples_release(set);
}

static void baselines(void)
{
	static const char *const std[] = { "grpo.normalize_rewards=true" };
	static const char *const loo[] = { "grpo.normalize_rewards=true", "grpo.use_leave_one_out_baseline=true" };
	static const char *const clip[] = { "grpo.advantage_clip_high=0.2", "grpo.advantage_clip_low=-0.5" };
	const double null[] = { 1, NAN, 0, 1 }, none[] = { NAN, NAN }, zero[] = { 0, 0 };
	const double lone[] = { 0.35f, 0.35f, 0.35f, 0.35f, 0.35f, 0.35f, 0.35f, 0.95f };
	const double tenth[] = { 0.1f, 0.1f, 0.1f, 0.1f, 0.1f, 0.1f, 0.1f, 0.1f, 0.1f, 0.1f }, still[10] = { 0 };
	const double q = -0.08571429 / (0.22677868 + 1e-6), pq[] = { 1, 0, 1, 1 };
	const long two[] = { 0, 0, 1, 1 };

	advantages("one unscored, mean only", null, NULL, 4, NULL, 0, (double[]){ 1.0 / 3, 0, -2.0 / 3, 1.0 / 3 });
	advantages("one unscored, deviation", null, NULL, 4, std, 1, (double[]){ 0.57734927, 0, -1.15469854, 0.57734927 });
	advantages("all unscored", none, NULL, 2, std, 1, zero);
	advantages("one apart, leave-one-out", lone, NULL, 8, loo, 2, (double[]){ q, q, q, q, q, q, q, 0.6 });
	advantages("ten tenths", tenth, NULL, 10, std, 1, still);
	advantages("by prompt", pq, two, 4, NULL, 0, (double[]){ 0.5, -0.5, 0, 0 });
	advantages("clipped", null, NULL, 4, clip, 2, (double[]){ 0.2, 0, -0.5, 0.2 });
}

static void rewards_shaped(void)
{
	static const char *const scale[] = { "grpo.reward_scaling.enabled=true", "grpo.reward_scaling.target_min=-1" };
	static const char *const over[] = { "grpo.reward_shaping.enabled=true", "grpo.reward_shaping.max_response_length=8",
					    "grpo.reward_shaping.overlong_buffer_length=4" };
	static const char *const stop[] = { "grpo.reward_shaping.enabled=true", "grpo.reward_shaping.stop_properly_penalty_coef=0.5" };
	struct samples set = { 0 };

	/* 0 and 3 become -1 and 1: mean 0 */
	advantages("scaled", (double[]){ 0, 3 }, NULL, 2, scale, 2, (double[]){ -1, 1 });

	/* 7 tokens are 3 of 4 into the zone: 1 - 0.75; 10 are 6 of 4, not floored: 1 - 1.5 */
	add(&set, 0, 0, 1, 4);
	add(&set, 0, 1, 1, 7);
	add(&set, 0, 2, 1, 10);
	learn(&set, over, 3);
	is_num((double)set.s[0].advantages[0], 0.75, 1e-6, "overlong: inside the limit 1, mean 0.25");
	is_num((double)set.s[1].advantages[0], 0, 1e-6, "overlong: three quarters of the penalty");
	is_num((double)set.s[2].advantages[0], -0.75, 1e-6, "overlong: beyond the limit it goes on");
	is_num(set.s[1].reward, 1, 0, "the reward itself stays what the verifier said");
	set.s[1].truncated = true;
	learn(&set, stop, 2);
	is_num((double)set.s[1].advantages[0], 0.5 - 2.5 / 3, 1e-6, "cut off: half the reward");
	is_num((double)set.s[2].advantages[0], 1 - 2.5 / 3, 1e-6, "cut off: length does not count then");
	samples_release(&set);
}

static void normalisation(void)
{
	static const char *const filter[] = { "grpo.overlong_filtering=true" };
	static const char *const cut[] = { "policy.train_global_batch_size=2" };
	static const char *const sequence[] = { "loss_fn.token_level_loss=false" };
	struct samples set = { 0 };

	/* A mean of micro-batch means would weigh the lone token 1/2. */
	add(&set, 0, 0, 1, 1);
	add(&set, 0, 1, 0, 3);
	weights("token mean", &set, NULL, 0, (double[]){ 0.25, 0.25, 0.25, 0.25 });

	for (int i = 0; i < 3; i++)
		add(&set, 0, i, i, i < 2 ? 2 : 4)->truncated = i == 2;
	weights("cut-off sample filtered", &set, filter, 1, (double[]){ 0.25, 0.25, 0.25, 0.25, 0, 0, 0, 0 });
	for (int i = 0; i < 3; i++)
		add(&set, 0, i, i, i < 2 ? 2 : 4)->truncated = true;
	weights("all filtered", &set, filter, 1, (double[8]){ 0 });

	/* The real end token counts, what was padded behind it does not. */
	add(&set, 0, 0, 1, 4)->loss_mask = samples_copy(&set, (uint8_t[]){ 1, 1, 0, 0 }, 4);
	weights("end token before padding", &set, NULL, 0, (double[]){ 0.5, 0.5, 0, 0 });

	for (int i = 0; i < 3; i++)
		add(&set, 0, i, i, i + 1);
	learn(&set, cut, 1);
	ok(set.s[0].update == 0 && set.s[1].update == 0 && set.s[2].update == 1, "updates of two samples");
	ok(set.s[0].unit == 0 && set.s[2].unit == 2, "each sequence is a unit");
	samples_release(&set);
	for (int i = 0; i < 3; i++)
		add(&set, 0, i, i, i + 1);
	weights("sequence level", &set, sequence, 1, (double[]){ 1.0 / 3, 1.0 / 6, 1.0 / 6, 1.0 / 9, 1.0 / 9, 1.0 / 9 });
}

/* Two tokens with ratios 2 and 1/2, and a sequence without difference. */
static void importance(struct samples *set)
{
	struct sample *s = add(set, 0, 0, 1, 2);

	s->logprobs = floats(set, (float[]){ -1, -1 }, 2);
	s->prev_logprobs = floats(set, (float[]){ -1 + 0.69314718f, -1 - 0.69314718f }, 2);
	s = add(set, 0, 1, 0, 2);
	s->logprobs = floats(set, (float[]){ -1, -2 }, 2);
	s->prev_logprobs = s->logprobs;
}

#define ON "loss_fn.use_importance_sampling_correction=true"
#define RATIO(x) "loss_fn.truncated_importance_sampling_ratio=" x
#define KIND(x) "loss_fn.truncated_importance_sampling_type=" x

static void corrections(void)
{
	static const char *const on[] = { ON };
	static const char *const tis[] = { ON, KIND("tis"), RATIO("1.5"), "loss_fn.truncated_importance_sampling_ratio_min=0.8" };
	static const char *const icepop[] = { ON, KIND("icepop"), RATIO("1.5") };
	static const char *const mask[] = { ON, KIND("seq-mask-tis"), RATIO("1.5"), "loss_fn.truncated_importance_sampling_ratio_min=0.999" };
	static const char *const error[] = { "grpo.seq_logprob_error_threshold=1.5" };
	struct samples set = { 0 };
	struct learning l;

	importance(&set);
	weights("off", &set, NULL, 0, (double[]){ 0.25, 0.25, 0.25, 0.25 });
	importance(&set);
	weights("plain", &set, on, 1, (double[]){ 0.5, 0.125, 0.25, 0.25 });
	importance(&set);
	weights("tis", &set, tis, 4, (double[]){ 0.375, 0.2, 0.25, 0.25 });
	importance(&set);
	weights("icepop", &set, icepop, 3, (double[]){ 0, 0.125, 0.25, 0.25 });
	importance(&set);
	set.s[0].prev_logprobs[1] = -1; /* geometric mean sqrt 2, then 1 */
	weights("seq-mask keeps", &set, mask, 4, (double[]){ 0.5, 0.25, 0.25, 0.25 });
	importance(&set);
	set.s[0].prev_logprobs[0] = -1; /* geometric mean sqrt 1/2 */
	weights("seq-mask drops", &set, mask, 4, (double[]){ 0, 0, 0.25, 0.25 });

	/* mean exp|d| is 2 for the first sequence, 1 for the second */
	importance(&set);
	l = learn(&set, error, 1);
	ok(l.masked_by_error == 1, "one sequence is beyond the error threshold");
	is_num((double)set.s[0].loss_weights[LOSS_POLICY][0], 0, 0, "and weighs nothing");
	is_num((double)set.s[1].loss_weights[LOSS_POLICY][0], 0.5, 0, "the other has all the weight");
	samples_release(&set);
}

static void shuffling(void)
{
	struct samples set = { 0 }, again = { 0 };
	double sum = 0;
	bool moved = false, same = true;

	for (int i = 0; i < 16; i++) {
		add(&set, i, 0, i == 5 ? NAN : i, 1);
		add(&again, i, 0, i == 5 ? NAN : i, 1);
	}
	score_shuffle(&set, 3);
	score_shuffle(&again, 3);
	for (int i = 0; i < 16; i++) {
		moved |= i != 5 && set.s[i].reward != i;
		same &= i == 5 || set.s[i].reward == again.s[i].reward;
		sum += i == 5 ? 0 : set.s[i].reward;
	}
	ok(moved, "rewards move");
	ok(same, "the same way for the same seed");
	is_num(sum, 115, 0, "none is lost");
	ok(!set.s[5].reward_valid && isnan(set.s[5].reward), "an unscored sample stays unscored");
	samples_release(&set);
	samples_release(&again);
}

int main(void)
{
	baselines();
	rewards_shaped();
	normalisation();
	corrections();
	shuffling();
	return done();
}
