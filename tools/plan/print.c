#include "tools/plan/plan.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static double gib(double bytes)
{
	return bytes / (1L << 30);
}

static void print_layout(const struct plan *p, long i)
{
	const struct layout *l = &p->layout;

	printf("%2ld. TP %ld  PP %ld  CP %ld  DP %ld", i + 1, l->tp, l->pp, l->cp, l->dp);
	if (l->ep * l->etp > 1)
		printf("  EP %ld  ETP %ld", l->ep, l->etp);
	printf("  %s  %ld micro-batches\n", p->recompute ? "activations made again" : "activations kept", p->micro_batches);
}

static void print_terms(const struct plan *p)
{
	const struct memory *m = &p->memory;
	const struct step_time *t = &p->time;

	printf("    memory  %.1f GiB on stage %ld: weights %.1f, gradients %.1f, optimizer %.1f, activations %.1f, head %.1f, buffers %.1f, rest 5 %%\n",
	       gib(m->total), m->stage, gib(m->weights), gib(m->gradients), gib(m->optimizer), gib(m->activations), gib(m->head), gib(m->buffers));
	printf("    update  %.3g s, %.0f %% of the peak: arithmetic %.3g, pipeline bubble %.3g, TP %.3g, EP %.3g, CP %.3g, PP %.3g, DP %.3g, optimizer %.3g\n",
	       t->total, 100 * t->share, t->compute, t->bubble, t->tensor, t->expert, t->context, t->pipeline, t->data, t->optimizer);
}

static void print_rollout(const struct rollout_plan *r, const struct job *j)
{
	if (j->sft)
		return;
	if (!r->tp) {
		printf("sampling: the model fits no node of this cluster\n");
		return;
	}
	printf("sampling: TP %ld, %ld copies, %ld sequences at once in each, %.1f GiB: prefill %.3g s, decode %.3g s for %.0f samples\n", r->tp,
	       r->copies, r->at_once, gib(r->memory), r->prefill, r->decode, j->samples);
}

static void print_counts(const struct plans *p, const struct job *j, const struct cluster *c)
{
	printf("%ld GPUs (%s, %ld a node, %.0f GB each), %.2f billion parameters, updates of %.0f sequences of %.0f tokens\n", c->gpus, c->name,
	       c->gpus_per_node, c->memory / 1e9, model_elements(&j->model) / 1e9, j->batch, j->mean_prompt + j->mean_response);
	printf("%ld layouts: %ld fit, %ld are too large; %ld the model or the batch does not allow\n", p->tried, p->n, p->too_large, p->impossible);
}

void print_yaml(const struct plan *p, const struct cluster *c)
{
	const struct layout *l = &p->layout;
	long first = 0, last = 0;

	for (long i = 0; i < l->layers; i++) {
		first += layout_stage(l, i) == 0;
		last += layout_stage(l, i) == l->pp - 1;
	}
	printf("policy:\n  megatron_cfg:\n    enabled: true         # its optimizer and scheduler hold then, too\n"
	       "    tensor_model_parallel_size: %ld\n    sequence_parallel: %s\n"
	       "    pipeline_model_parallel_size: %ld\n    context_parallel_size: %ld\n    expert_model_parallel_size: %ld\n"
	       "    expert_tensor_parallel_size: %ld\n    activation_checkpointing: %s\n",
	       l->tp, l->tp > 1 ? "true" : "false", l->pp, l->cp, l->ep, l->etp, p->recompute ? "true" : "false");
	if (l->pp > 1 && l->layers % l->pp)
		printf("    num_layers_in_first_pipeline_stage: %ld\n    num_layers_in_last_pipeline_stage: %ld\n", first, last);
	printf("cluster:\n  gpus_per_node: %ld\n  num_nodes: %ld\n", c->gpus < c->gpus_per_node ? c->gpus : c->gpus_per_node,
	       (c->gpus + c->gpus_per_node - 1) / c->gpus_per_node);
}

void print_plans(const struct plans *p, const struct rollout_plan *r, const struct job *j, const struct cluster *c, long n)
{
	print_counts(p, j, c);
	for (long i = 0; i < p->n && i < n; i++) {
		print_layout(p->plan + i, i);
		print_terms(p->plan + i);
	}
	print_rollout(r, j);
	printf("\n# the first of them, for a recipe\n");
	print_yaml(p->plan, c);
}

static void put_plan(struct json_out *o, const struct plan *p)
{
	const struct memory *m = &p->memory;
	const struct step_time *t = &p->time;
	const struct { const char *key; double v; } part[] = {
		{ "memory", m->total }, { "memory/weights", m->weights }, { "memory/gradients", m->gradients },
		{ "memory/optimizer", m->optimizer }, { "memory/activations", m->activations }, { "memory/head", m->head },
		{ "memory/buffers", m->buffers }, { "seconds", t->total }, { "seconds/compute", t->compute },
		{ "seconds/bubble", t->bubble }, { "seconds/tp", t->tensor }, { "seconds/ep", t->expert }, { "seconds/cp", t->context },
		{ "seconds/pp", t->pipeline }, { "seconds/dp", t->data }, { "seconds/optimizer", t->optimizer }, { "share_of_peak", t->share },
	};

	json_begin(o, '{');
	json_key(o, "layout");
	layout_to_json(o, &p->layout);
	json_add_bool(o, "activation_checkpointing", p->recompute);
	json_add_int(o, "micro_batches", p->micro_batches);
	for (size_t i = 0; i < sizeof(part) / sizeof(*part); i++)
		json_add_real(o, part[i].key, part[i].v);
	json_end(o);
}

void print_json(const struct plans *p, const struct rollout_plan *r, const struct job *j, const struct cluster *c, long n)
{
	struct json_out o = { 0 };

	json_begin(&o, '{');
	json_add_int(&o, "gpus", c->gpus);
	json_key(&o, "cluster");
	cluster_put(&o, c);
	json_add_real(&o, "parameters", model_elements(&j->model));
	json_add_int(&o, "tried", p->tried);
	json_add_int(&o, "fit", p->n);
	json_key(&o, "plans");
	json_begin(&o, '[');
	for (long i = 0; i < p->n && i < n; i++)
		put_plan(&o, p->plan + i);
	json_end(&o);
	json_key(&o, "rollout");
	json_begin(&o, '{');
	json_add_int(&o, "tp", r->tp);
	json_add_int(&o, "copies", r->copies);
	json_add_int(&o, "at_once", r->at_once);
	json_add_real(&o, "memory", r->memory);
	json_add_real(&o, "seconds/prefill", r->prefill);
	json_add_real(&o, "seconds/decode", r->decode);
	json_end(&o);
	json_end(&o);
	puts(o.s.s);
	json_out_release(&o);
}
