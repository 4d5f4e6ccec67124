#include "tools/plan/plan.h"

#include "libcommon/xalloc.h"

#include <math.h>

static const double HEAD_CHUNK = 256 << 20;     /* logits at a time (kernels/model/head.c), and their gradient in the model's type */
static const double LIBRARY = 1 << 30;          /* what a communication library keeps for itself */

/* Elements that a rank of stage s holds: split and whole ones, and of experts. */
static void stage_elements(double *dense, double *experts, const struct layout *l, const struct model_config *m, long s)
{
	double table = (double)(m->vocab * m->hidden) / (double)l->tp;

	*dense = *experts = 0;
	for (long i = 0; i < m->layers; i++) {
		if (layout_stage(l, i) != s)
			continue;
		*dense += layer_split(m, i) / (double)l->tp + layer_whole(m, i);
		*experts += layer_experts(m, i) / (double)(l->ep * l->etp);
	}
	if (s == 0)
		*dense += table;
	if (s == l->pp - 1)
		*dense += (double)m->hidden + (s == 0 && m->tied ? 0 : table);
}

/* Of the micro-batches that stage s holds between their forward and their backward pass (1F1B). */
static double stage_activations(const struct layout *l, bool recompute, const struct job *j, long s)
{
	double rows = ceil(j->rows / (double)(l->cp * l->tp)), bytes = 0, one = 0;

	for (long i = 0; i < j->model.layers; i++) {
		double full = layer_kept(&j->model, i, j->weight_bytes, false) * rows;

		if (layout_stage(l, i) != s)
			continue;
		bytes += recompute ? layer_kept(&j->model, i, j->weight_bytes, true) * rows : full;
		one = full > one ? full : one;
	}
	return bytes * (double)(l->pp - s) + (recompute ? one : 0);
}

static double stage_buffers(const struct layout *l, const struct job *j)
{
	const struct model_config *m = &j->model;
	double rows = j->rows / (double)l->cp, h = (double)m->hidden, b = 0;

	if (l->tp > 1)          /* rows of all ranks, and float32 parts of sums */
		b += rows * h * (2 * j->weight_bytes + 4);
	if (m->moe.experts && l->ep > 1)
		b += 4 * (double)m->moe.experts_per_token * rows / (double)l->tp * h * j->weight_bytes * 1.3;
	return b + (layout_world(l) > 1 ? LIBRARY : 0);
}

void plan_memory(struct memory *out, const struct layout *l, bool recompute, const struct job *j)
{
	double wb = j->weight_bytes, state = wb < 4 ? 12 : 8; /* master, two moments; float32 weights are their own master */

	*out = (struct memory){ 0 };
	for (long s = 0; s < l->pp; s++) {
		double dense, experts;
		struct memory x = { .stage = s };

		stage_elements(&dense, &experts, l, &j->model, s);
		x.weights = wb * (dense + experts);
		x.gradients = 4 * (dense + experts);
		x.optimizer = state * (dense / (double)(l->dp * l->cp) + experts / (double)layout_edp(l));
		x.activations = stage_activations(l, recompute, j, s);
		x.head = s == l->pp - 1 ? HEAD_CHUNK * (1 + wb / 4) : 0;
		x.buffers = stage_buffers(l, j);
		x.total = 1.05 * (x.weights + x.gradients + x.optimizer + x.activations + x.head + x.buffers);
		if (x.total > out->total)
			*out = x;
	}
}
