#include "tools/train-step/train.h"

#include "libcommon/progress.h"
#include "libcommon/xalloc.h"
#include "tools/shared/replay.h"
#include "tools/shared/scoring.h"
#include "tools/shared/timing.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int by_update(const void *a, const void *b)
{
	const struct sample *x = *(const struct sample *const *)a, *y = *(const struct sample *const *)b;

	if (x->update != y->update)
		return x->update < y->update ? -1 : 1;
	return x < y ? -1 : 1;
}

static void need(const void *array, const char *name, const struct sample *s, const char *path)
{
	if (!array)
		die(EX_DATAERR, "%s: sample (prompt %ld, %ld): no %s, wanted one a token; score the samples with this recipe",
		    path, s->prompt_id, s->sample_index, name);
}

/* Every token that counts needs its number: a NaN there would be a wrong gradient. */
static void need_numbers(const float *v, const float *w, const char *name, const struct sample *s, const char *path)
{
	for (long i = 0; i < s->length - s->prompt_length; i++)
		if (w[i] != 0 && !isfinite(v[i]))
			die(EX_DATAERR, "%s: sample (prompt %ld, %ld): %s of token %ld is not finite, though the token counts", path,
			    s->prompt_id, s->sample_index, name, i);
}

static void need_weights(const float *w, const struct sample *s, const char *path)
{
	for (long i = 0; w && i < s->length - s->prompt_length; i++)
		if (!isfinite(w[i]))
			die(EX_DATAERR, "%s: sample (prompt %ld, %ld): the loss weight of token %ld is not finite", path, s->prompt_id,
			    s->sample_index, i);
}

/* Updates are numbered from 0 without a gap: an empty one would still move the weights by their momentum. */
static long count_updates(const struct sample *const *order, long n, const char *path)
{
	long have = 0;

	for (long i = 0; i < n; i++) {
		if (order[i]->update > have)
			die(EX_DATAERR, "%s: sample (prompt %ld, %ld): update %ld, but none has update %ld", path, order[i]->prompt_id,
			    order[i]->sample_index, order[i]->update, have);
		if (i + 1 == n || order[i + 1]->update > have)
			have++;
	}
	return have;
}

static void check_ids(const struct sample *s, const struct model_config *cfg, const char *path)
{
	if (s->length > cfg->max_position)
		die(EX_DATAERR, "%s: sample (prompt %ld, %ld): %ld tokens, the model has %ld positions", path, s->prompt_id,
		    s->sample_index, s->length, cfg->max_position);
	if (s->prompt_length < 1)
		die(EX_DATAERR, "%s: sample (prompt %ld, %ld): prompt_length %ld, wanted at least 1", path, s->prompt_id,
		    s->sample_index, s->prompt_length);
	for (long i = 0; i < s->length; i++)
		if (s->token_ids[i] >= cfg->vocab)
			die(EX_DATAERR, "%s: sample (prompt %ld, %ld): token id %d, the model's vocabulary has %ld", path,
			    s->prompt_id, s->sample_index, s->token_ids[i], cfg->vocab);
}

static void make_lesson(struct lesson *l, const struct sample *s, const struct recipe *r, const struct sequence *q,
			bool same_arithmetic, const char *path)
{
	double beta = recipe_real(r, "loss_fn.reference_policy_kl_penalty");
	bool free_ratio = recipe_bool(r, "loss_fn.force_on_policy_ratio") || recipe_bool(r, "loss_fn.disable_ppo_ratio");

	for (int i = 0; i < LOSS_TERMS; i++)
		need_weights(s->loss_weights[i], s, path);
	need(s->loss_weights[LOSS_POLICY], "loss_weights/policy", s, path);
	need(s->advantages, "advantages", s, path);
	need_numbers(s->advantages, s->loss_weights[LOSS_POLICY], "advantages", s, path);
	if (!free_ratio) {
		need(s->prev_logprobs, "prev_logprobs", s, path);
		need_numbers(s->prev_logprobs, s->loss_weights[LOSS_POLICY], "prev_logprobs", s, path);
	}
	if (beta > 0) {
		need(s->loss_weights[LOSS_KL], "loss_weights/kl", s, path);
		need(s->reference_logprobs, "reference_logprobs", s, path);
		need_numbers(s->reference_logprobs, s->loss_weights[LOSS_KL], "reference_logprobs", s, path);
		if (recipe_bool(r, "loss_fn.use_on_policy_kl_approximation")) {
			need(s->logprobs, "logprobs of the sampler", s, path);
			need_numbers(s->logprobs, s->loss_weights[LOSS_KL], "logprobs", s, path);
		}
	}
	*l = (struct lesson){
		.s = *q,
		.x = { .n = s->length - s->prompt_length, .prev = s->prev_logprobs, .gen = s->logprobs,
		       .ref = s->reference_logprobs, .advantage = s->advantages, .w_policy = s->loss_weights[LOSS_POLICY],
		       .w_kl = beta > 0 ? s->loss_weights[LOSS_KL] : NULL, .w_nll = s->loss_weights[LOSS_NLL] },
		.recorded = same_arithmetic ? s->logprobs : NULL,
		.generated = s->logprobs,
	};
}

static void check_set(const struct rl *b, const char *path, const struct checkpoint *c, const struct recipe *r, const char *algorithm)
{
	const struct json *scoring = json_get(&b->set.manifest.root, "scoring");
	char want[33], found[33];
	struct err e = ERR_INIT;

	if (!b->set.n)
		die(EX_DATAERR, "%s: no samples", path);
	if (json_is(scoring, JSON_OBJECT) && scoring_check(scoring, path, r, algorithm, &e))
		die_err(&e);
	for (long i = 0; i < b->set.n; i++) {
		const struct sample *s = b->set.s + i;
		bool known = s->policy.hi || s->policy.lo;

		if (s->update < 0)
			die(EX_DATAERR, "%s: sample (prompt %ld, %ld) is not scored; run cairn score first", path, s->prompt_id, s->sample_index);
		if (s->update >= b->set.n)
			die(EX_DATAERR, "%s: sample (prompt %ld, %ld): update %ld, there are %ld samples", path, s->prompt_id,
			    s->sample_index, s->update, b->set.n);
		if (known && !digest_equal(s->policy, c->weights_digest))
			die(EX_DATAERR, "%s: sample (prompt %ld, %ld): sampled by policy %s, this checkpoint is %s", path, s->prompt_id,
			    s->sample_index, digest_hex(found, s->policy), digest_hex(want, c->weights_digest));
		if (known && s->step != c->counters.step + 1)
			die(EX_DATAERR, "%s: samples for step %ld, the checkpoint wants step %ld", path, s->step, c->counters.step + 1);
	}
}

void rl_open(struct rl *b, const char *path, const struct checkpoint *c, const struct recipe *r, const char *algorithm,
	     const struct ops *k, const struct model_config *cfg)
{
	uint64_t own = ops_fingerprint(k);
	const struct sample **order;
	bool replay = replay_wanted(r, cfg);
	double start = seconds_now();
	struct err e = ERR_INIT;

	memset(b, 0, sizeof(*b));
	if (samples_read_any(&b->set, path, &e))
		die_err(&e);
	timing_add(TIMING_LOAD, start);
	check_set(b, path, c, r, algorithm);
	b->step = c->counters.step + 1;
	order = xmalloc((size_t)b->set.n * sizeof(*order));
	for (long i = 0; i < b->set.n; i++)
		order[i] = b->set.s + i;
	qsort(order, (size_t)b->set.n, sizeof(*order), by_update);
	b->updates = count_updates(order, b->set.n, path);
	b->lesson = xcalloc((size_t)b->set.n, sizeof(*b->lesson));
	b->first = xcalloc((size_t)b->updates + 1, sizeof(*b->first));
	for (long i = 0; i < b->set.n; i++) {
		const struct sample *s = order[i];
		/* Only the first update still has the policy that sampled. */
		bool same = s->update == 0 && s->fingerprint == own && s->logprobs && digest_equal(s->policy, c->weights_digest);

		check_ids(s, cfg, path);
		struct sequence q = sample_sequence(&b->set, s, replay, cfg, path);

		make_lesson(b->lesson + i, s, r, &q, same, path);
		b->first[s->update + 1] = i + 1;
	}
	free(order);
}

void rl_release(struct rl *b)
{
	free(b->lesson);
	free(b->first);
	samples_release(&b->set);
	memset(b, 0, sizeof(*b));
}
