#include "tools/shared/scoring.h"

#include <string.h>

static const char *const keys[] = {
	"policy.train_global_batch_size", "loss_fn.token_level_loss", "loss_fn.use_importance_sampling_correction",
	"loss_fn.truncated_importance_sampling_type", "loss_fn.truncated_importance_sampling_ratio",
	"loss_fn.truncated_importance_sampling_ratio_min", "loss_fn.sequence_level_importance_ratios",
	"grpo.adv_estimator.normalize_rewards", "grpo.adv_estimator.use_leave_one_out_baseline", "grpo.overlong_filtering",
	"grpo.advantage_clip_low", "grpo.advantage_clip_high", "grpo.seq_logprob_error_threshold",
};
enum { KEYS = sizeof(keys) / sizeof(*keys) };

void scoring_put(struct json_out *o, const struct recipe *r, const char *algorithm, double temperature)
{
	json_begin(o, '{');
	json_add_str(o, "algorithm", algorithm);
	json_add_real(o, "temperature", temperature);
	json_key(o, "keys");
	json_begin(o, '{');
	for (int i = 0; i < KEYS; i++) {
		json_key(o, keys[i]);
		json_put(o, recipe_value(r, keys[i]));
	}
	json_end(o);
	json_end(o);
}

static char *text_of(const struct json *v)
{
	struct json_out o = { 0 };

	json_put(&o, v);
	return str_detach(&o.s);
}

int scoring_check(const struct json *scoring, const char *file, const struct recipe *r, const char *algorithm, struct err *e)
{
	const struct json *had = json_get(scoring, "algorithm"), *fixed = json_get(scoring, "keys");

	if (!json_eq_str(had, algorithm))
		return err_set(e, EX_CONFIG, "%s: scored for algorithm %s, this run is %s", file,
			       json_is(had, JSON_STRING) ? had->text : "?", algorithm);
	for (int i = 0; i < KEYS; i++) {
		const struct json *was = json_get(fixed, keys[i]), *is = recipe_value(r, keys[i]);

		if (!was || json_equal(was, is))
			continue;
		return err_set(e, EX_CONFIG, "%s: scored with %s = %s, this recipe says %s (%s); score again, or use the same recipe",
			       file, keys[i], text_of(was), text_of(is), recipe_where(r, keys[i]));
	}
	return 0;
}
