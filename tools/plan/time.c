#include "tools/plan/plan.h"

#include <math.h>

/*
 * Seconds of one optimizer update.  Products run at `efficiency` of the peak, less with few rows; passes over activations
 * run at the memory's bandwidth; every byte that is sent counts in full: nothing is taken to overlap.
 */

static double larger(double a, double b)
{
	return a > b ? a : b;
}

static bool beyond_node(const struct cluster *c, double stride, double n)
{
	return stride * n > (double)c->gpus_per_node;
}

/* A group of `n` ranks that lie `stride` apart reaches beyond a node, or not. */
static double link_of(const struct cluster *c, double stride, double n)
{
	return beyond_node(c, stride, n) ? c->net_link : c->node_link;
}

/* The same for what all of the group send at once: as measured of the largest group of no more ranks that lies alike. */
static double group_link(const struct cluster *c, double stride, double n)
{
	double rate = link_of(c, stride, n);

	for (int k = 1; k < CLUSTER_SUMS && (double)(1L << k) <= n; k++)
		if (c->sum_link[k] > 0 && beyond_node(c, 1, (double)(1L << k)) == beyond_node(c, stride, n))
			rate = c->sum_link[k];
	return rate;
}

static double steps_of(const struct cluster *c, double stride, double n)
{
	return c->latency * (n - 1) * (beyond_node(c, stride, n) ? 5 : 1);
}

/* Share of the peak of a product with so many rows: a tile of 256 rows is filled in part, and its start is paid. */
static double efficiency(const struct cluster *c, double rows)
{
	return c->efficiency * rows / (rows + 256);
}

struct micro { double rows, keys, forward, backward; };

/* Forward and backward of a micro-batch on stage s: arithmetic alone. */
static struct micro stage_compute(const struct plan *p, const struct job *j, const struct cluster *c, long s, double rows)
{
	const struct model_config *m = &j->model;
	const struct layout *l = &p->layout;
	double mean = j->mean_prompt + j->mean_response, local = rows / (double)(l->cp * l->tp);
	double rate = c->peak * efficiency(c, rows / (double)l->cp), experts = m->moe.experts ? (double)m->moe.experts : 1;
	/* The rows that an expert sees: those of all ranks that send to it. */
	double expert_rate = c->peak * efficiency(c, local * (double)(l->ep * l->etp * m->moe.experts_per_token) / experts);
	struct micro t = { .rows = rows, .keys = mean / 2 };

	for (long i = 0; i < m->layers; i++) {
		double seconds = (layer_flops(m, i) + attention_flops(m, t.keys)) * local / rate;
		double kept = layer_kept(m, i, j->weight_bytes, false);

		if (layout_stage(l, i) != s)
			continue;
		seconds += expert_flops(m, i) > 0 ? expert_flops(m, i) * local / expert_rate : 0;
		t.forward += seconds + 1.5 * kept * local / c->bandwidth;
		t.backward += 2 * seconds + 3 * kept * local / c->bandwidth;
	}
	if (p->recompute)
		t.backward += t.forward;
	if (s == l->pp - 1) {
		t.forward += head_flops(m) * local / rate;
		t.backward += 3 * head_flops(m) * local / rate; /* logits are made again */
	}
	return t;
}

/* Bytes of a TP group's exchange a layer and micro-batch: gathers in the model's type, sums as float32 parts. */
static double tensor_time(const struct plan *p, const struct job *j, const struct cluster *c, double rows)
{
	const struct layout *l = &p->layout;
	double n = (double)l->tp, part = (n - 1) / n * rows / (double)l->cp * (double)j->model.hidden, wb = j->weight_bytes;
	double forward = part * (2 * wb + 2 * 4), backward = part * (2 * wb + 2 * 4 + 2 * wb);
	double calls = p->recompute ? 14 : 10;

	if (l->tp == 1)
		return 0;
	return (forward * (p->recompute ? 2 : 1) + backward) / group_link(c, 1, n) + calls * steps_of(c, 1, n);
}

static double expert_time(const struct plan *p, const struct job *j, const struct cluster *c, double rows)
{
	const struct layout *l = &p->layout;
	double n = (double)(l->ep * l->etp), ways = p->recompute ? 6 : 4;
	double bytes = 1.3 * (double)j->model.moe.experts_per_token * rows / (double)(l->cp * l->tp) * (double)j->model.hidden * j->weight_bytes;

	if (n <= 1)
		return 0;
	return ways * (bytes * (n - 1) / n / group_link(c, 1, n) + steps_of(c, 1, n));
}

/* Keys and values of the others forward, their gradients back in float32, and the keys once more. */
static double context_time(const struct plan *p, const struct job *j, const struct cluster *c, double rows)
{
	const struct layout *l = &p->layout;
	double n = (double)l->cp, part = (n - 1) / n * rows * 2 * (double)(j->model.kv_heads * j->model.head_dim) / (double)l->tp;

	if (l->cp == 1)
		return 0;
	return part * (2 * j->weight_bytes + 4) / group_link(c, (double)l->tp, n) + 3 * steps_of(c, (double)l->tp, n);
}

/* Gradients to their owners in float32, new weights back. */
static double data_time(const struct plan *p, const struct job *j, const struct cluster *c)
{
	const struct layout *l = &p->layout;
	double dense = p->memory.gradients / 4, experts = 0, n = (double)(l->dp * l->cp), e = (double)layout_edp(l), t = 0;

	for (long i = 0; i < j->model.layers; i++)
		if (layout_stage(l, i) == p->memory.stage)
			experts += layer_experts(&j->model, i) / (double)(l->ep * l->etp);
	dense -= experts;
	if (n > 1)
		t += dense * (4 + j->weight_bytes) * (n - 1) / n / group_link(c, (double)l->tp, n);
	if (e > 1)
		t += experts * (4 + j->weight_bytes) * (e - 1) / e / group_link(c, (double)(l->ep * l->etp), e);
	return t;
}

void plan_time(struct plan *p, const struct job *j, const struct cluster *c)
{
	const struct layout *l = &p->layout;
	struct step_time *t = &p->time;
	double mean = j->mean_prompt + j->mean_response, tokens = j->batch * mean, share = tokens / (double)l->dp, worst = 0;
	double model = 0, m, rows, layers = 0, sparse = 0;

	*t = (struct step_time){ 0 };
	m = ceil(share / (0.95 * j->rows)); /* bins are packed to about 95 % */
	rows = share / m;
	p->micro_batches = (long)m;
	for (long s = 0; s < l->pp; s++) {
		struct micro x = stage_compute(p, j, c, s, rows);
		double on = 0, moe = 0;

		for (long i = 0; i < j->model.layers; i++) {
			on += layout_stage(l, i) == s;
			moe += layout_stage(l, i) == s && layer_experts(&j->model, i) > 0;
		}
		worst = larger(worst, x.forward + x.backward);
		layers = larger(layers, on);
		sparse = larger(sparse, moe);
	}
	t->compute = m * worst;
	t->tensor = m * layers * tensor_time(p, j, c, rows);
	t->expert = m * sparse * expert_time(p, j, c, rows);
	t->context = m * layers * context_time(p, j, c, rows);
	if (l->pp > 1) {
		double stage = (double)(l->tp * l->cp * l->dp), bytes = rows / (double)(l->cp * l->tp) * (double)j->model.hidden * j->weight_bytes;

		t->bubble = (double)(l->pp - 1) / m * (t->compute + t->tensor + t->expert + t->context);
		t->pipeline = 2 * m * (bytes / link_of(c, stage, 2) + steps_of(c, stage, 2));
	}
	t->data = data_time(p, j, c);
	t->optimizer = (p->memory.optimizer * 2 + p->memory.gradients) / c->bandwidth;
	t->total = t->compute + t->bubble + t->tensor + t->expert + t->context + t->pipeline + t->data + t->optimizer;
	for (long i = 0; i < j->model.layers; i++)
		model += 3 * (layer_flops(&j->model, i) + expert_flops(&j->model, i) + attention_flops(&j->model, mean / 2));
	t->share = (model + 3 * head_flops(&j->model)) * tokens / (t->total * c->peak * (double)c->gpus);
}
