#include "tools/plan/plan.h"

#include <string.h>

/* Packed: bins of train_mb_tokens; else train_micro_batch_size sequences of the mean length. */
static double micro_rows(const struct recipe *r, double mean)
{
	if (recipe_bool(r, "policy.sequence_packing.enabled"))
		return (double)recipe_int(r, "policy.sequence_packing.train_mb_tokens");
	return mean * (double)recipe_int(r, "policy.train_micro_batch_size");
}

void job_init(struct job *j, const struct recipe *r, double mean_prompt, double mean_response)
{
	const char *precision = recipe_str(r, "policy.precision");
	struct err e = ERR_INIT;
	const char *name;

	if (recipe_algorithm(&name, r, &e))
		die_err(&e);
	j->sft = !strcmp(name, "sft");
	j->longest = (double)recipe_int(r, "policy.max_total_sequence_length");
	j->mean_prompt = mean_prompt >= 0 ? mean_prompt : j->longest / 8;
	j->mean_response = mean_response >= 0 ? mean_response : j->longest / 4;
	j->batch = (double)recipe_int(r, "policy.train_global_batch_size");
	j->samples = j->sft ? j->batch : (double)(recipe_int(r, "grpo.num_prompts_per_step") * recipe_int(r, "grpo.num_generations_per_prompt"));
	j->rows = micro_rows(r, j->mean_prompt + j->mean_response);
	if (j->rows < j->longest && recipe_bool(r, "policy.sequence_packing.enabled"))
		j->rows = j->longest; /* a sequence is never cut */
	j->weight_bytes = precision && !strcmp(precision, "float32") ? 4 : 2;
	j->recompute_asked = recipe_bool(r, "policy.megatron_cfg.activation_checkpointing") ||
			     recipe_bool(r, "policy.dtensor_cfg.activation_checkpointing");
	j->reference = !j->sft && recipe_real(r, "loss_fn.reference_policy_kl_penalty") > 0;
	if (j->mean_prompt + j->mean_response > j->longest)
		die(EX_USAGE, "%g prompt and %g response tokens on average are more than policy.max_total_sequence_length %g",
		    j->mean_prompt, j->mean_response, j->longest);
	if (j->mean_prompt + j->mean_response < 1)
		die(EX_USAGE, "sequences of %g tokens on average, wanted at least 1", j->mean_prompt + j->mean_response);
}
