#include "tools/plan/plan.h"

#include <math.h>

/*
 * Sampling.  Each copy of the model holds the sequences that fit; a step of all of them reads the weights once and every sequence's keys
 * once.  The longest response is taken to reach the recipe's limit, so the weights are read that often at least.
 */
static bool rollout_with(struct rollout_plan *o, const struct job *j, const struct cluster *c, long tp)
{
	double n = (double)tp, mean = j->mean_prompt + j->mean_response, copies = floor((double)c->gpus / n), active = 0;
	double weights = model_elements(&j->model) * j->weight_bytes / n, kv = kv_bytes(&j->model, j->weight_bytes) / n;
	double room = c->memory * 0.95 - weights - (2L << 30), fit = floor(room / (kv * mean)), each = ceil(j->samples / copies);
	double limit = j->longest - j->mean_prompt, steps, read, flops;

	if (copies < 1 || fit < 1)
		return false;
	for (long i = 0; i < j->model.layers; i++)
		active += layer_flops(&j->model, i) + expert_flops(&j->model, i) + attention_flops(&j->model, mean / 2);
	flops = (active + head_flops(&j->model)) / n;
	*o = (struct rollout_plan){ .tp = tp, .copies = (long)copies, .at_once = (long)(fit < each ? fit : each) };
	steps = each * j->mean_response / (double)o->at_once;
	steps = steps < limit ? limit : steps;
	read = steps * weights + each * j->mean_response * (j->mean_prompt + j->mean_response / 2) * kv;
	o->decode = read / c->bandwidth;
	if (o->decode < each * j->mean_response * flops / (c->peak * c->efficiency))
		o->decode = each * j->mean_response * flops / (c->peak * c->efficiency);
	if (tp > 1) {           /* every rank adds the float32 parts of all, twice a layer */
		double parts = 2 * (double)j->model.layers * (n - 1);

		o->decode += steps * parts * c->latency + each * j->mean_response * parts * 4 * (double)j->model.hidden / c->node_link;
	}
	o->prefill = each * j->mean_prompt * flops / (c->peak * c->efficiency);
	o->total = o->prefill + o->decode;
	o->memory = weights + (double)o->at_once * kv * mean + (2L << 30);
	return true;
}

bool plan_rollout(struct rollout_plan *out, const struct job *j, const struct cluster *c)
{
	struct rollout_plan best = { 0 }, one;

	for (long tp = 1; tp <= c->gpus_per_node && tp <= c->gpus; tp++) {
		if (j->model.heads % tp || (j->model.kv_heads % tp && tp % j->model.kv_heads))
			continue;
		if (rollout_with(&one, j, c, tp) && (!best.tp || one.total < best.total))
			best = one;
	}
	*out = best;
	return best.tp > 0;
}
