#include "tools/plan/plan.h"

#include <math.h>
#include <stdio.h>

/* A whole step: sampling, log-probabilities, updates, and the checkpoint between the programs. */
struct walk { double rollout, score, train, load, save, total; };

static double forward_seconds(const struct plan *p, const struct job *j)
{
	double updates = ceil(j->samples / j->batch), arithmetic = p->time.compute / (p->recompute ? 4 : 3);

	return updates * (arithmetic + (p->time.tensor + p->time.expert + p->time.context) / 2);
}

/* Every program of a step reads the weights; train-step reads and writes the optimizer's state too. */
static struct walk walk(const struct plan *p, const struct rollout_plan *r, const struct job *j, const struct cluster *c)
{
	double elements = model_elements(&j->model), nodes = ceil((double)c->gpus / (double)c->gpus_per_node), rate = c->storage * nodes;
	double weights = elements * j->weight_bytes, state = elements * (j->weight_bytes < 4 ? 12 : 8);
	struct walk w = { .rollout = r->total, .score = j->reference ? 2 * forward_seconds(p, j) : 0 };

	w.train = ceil(j->samples / j->batch) * p->time.total;
	w.load = ((j->sft ? 1 : j->reference ? 4 : 2) * weights + state) / rate;
	w.save = (weights + state) / rate;
	w.total = w.rollout + w.score + w.train + w.load + w.save;
	return w;
}

static void tell(const struct plan *p, const struct walk *w, const struct cluster *c, bool json)
{
	const struct layout *l = &p->layout;

	if (json)
		printf("{\"gpus\": %ld, \"tp\": %ld, \"pp\": %ld, \"cp\": %ld, \"dp\": %ld, \"ep\": %ld, \"etp\": %ld, \"rollout\": %.6g, "
		       "\"score\": %.6g, \"train\": %.6g, \"load\": %.6g, \"save\": %.6g, \"step\": %.6g}\n",
		       c->gpus, l->tp, l->pp, l->cp, l->dp, l->ep, l->etp, w->rollout, w->score, w->train, w->load, w->save, w->total);
	else
		printf("%5ld  %3ld %3ld %3ld %4ld %3ld %3ld  %9.3g %9.3g %9.3g %9.3g %9.3g %10.3g\n", c->gpus, l->tp, l->pp, l->cp, l->dp,
		       l->ep, l->etp, w->rollout, w->score, w->train, w->load, w->save, w->total);
}

void print_simulation(const struct job *j, const struct cluster *c, long least, long most, bool json)
{
	if (!json)
		printf(" GPUs   TP  PP  CP   DP  EP ETP    rollout     score     train      load      save   step (s)\n");
	for (long n = least; n <= most; n *= 2) {
		struct cluster one = *c;
		struct rollout_plan r = { 0 };
		struct plans p;
		struct walk w;

		one.gpus = n;
		plans_search(&p, j, &one);
		if (!p.n || (!j->sft && !plan_rollout(&r, j, &one))) {
			if (!json)
				printf("%5ld  %s\n", n, p.n ? "the model fits no node for sampling" : p.tried ? "no layout fits" :
				       "no layout: more copies than sequences in an update, or than the model can be cut into");
			plans_release(&p);
			continue;
		}
		w = walk(p.plan, &r, j, &one);
		tell(p.plan, &w, &one, json);
		plans_release(&p);
	}
}
