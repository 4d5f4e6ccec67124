#include "kernels/model/pipeline.h"

#include "libcommon/xalloc.h"

#include <stdlib.h>

static long least(long a, long b)
{
	return a < b ? a : b;
}

static long steps_of(const struct pipeline_plan *p)
{
	return p->turns * p->n * (p->backward ? 2 : 1);
}

/* The i-th forward or backward step of any stage. */
static struct pipeline_step step(const struct pipeline_plan *p, long i, bool backward)
{
	long group = p->turns == 1 ? 1 : p->stages, at = i % (group * p->turns), turn = at / group;

	return (struct pipeline_step){ backward, i / (group * p->turns) * group + at % group,
				       backward ? p->turns - 1 - turn : turn };
}

void pipeline_order(struct pipeline_step *out, const struct pipeline_plan *p, long stage)
{
	long all = p->turns * p->n, later = p->stages - 1 - stage, ahead = all;

	if (p->turns > 1 && p->n % p->stages)
		bug("%ld micro-batches in %ld turns through %ld stages", p->n, p->turns, p->stages);
	if (p->backward)
		ahead = least(all, p->turns == 1 ? later : 2 * later + (p->turns - 1) * p->stages);
	for (long i = 0; i < ahead; i++)
		*out++ = step(p, i, false);
	for (long i = ahead; i < all; i++) {
		*out++ = step(p, i, false);
		*out++ = step(p, i - ahead, true);
	}
	for (long i = all - ahead; i < all && p->backward; i++)
		*out++ = step(p, i, true);
}

static struct pipeline_step *order_new(const struct pipeline_plan *p, long stage)
{
	struct pipeline_step *order = xmalloc((size_t)steps_of(p) * sizeof(*order) + 1);

	pipeline_order(order, p, stage);
	return order;
}

long pipeline_flight(const struct pipeline_plan *p, long stage, long turn)
{
	struct pipeline_step *order;
	long now = 0, most = 0;

	if (!p->backward)
		return least(p->turns > 1 ? p->stages : 1, p->n);
	order = order_new(p, stage);
	for (long i = 0; i < steps_of(p); i++) {
		if (order[i].turn == turn)
			now += order[i].backward ? -1 : 1;
		most = now > most ? now : most;
	}
	free(order);
	return most;
}

void pipeline_walk(const struct pipeline_stage *s, const struct pipeline_plan *p, long stage)
{
	struct pipeline_step *order = order_new(p, stage);
	long *flight = xcalloc((size_t)p->turns, sizeof(*flight));

	for (long turn = 0; turn < p->turns; turn++)
		flight[turn] = pipeline_flight(p, stage, turn);
	for (long i = 0; i < steps_of(p); i++) {
		struct pipeline_step *o = order + i;

		(o->backward ? s->backward : s->forward)(s->arg, o->k, o->turn,
							 o->k % flight[o->turn]);
	}
	free(flight);
	free(order);
}

struct turn {
	struct pass **pass;
	long n, cap;
}; /* passes made so far; owned */

struct pipeline {
	struct model *m;
	long max_rows, turns;
	bool keep;
	enum recompute recompute;
	struct turn *turn;
	float *lp, *dlp;                /* [max_rows], of the last stage */
	const struct pipeline_job *job; /* while it runs */
	long backward;                  /* backward passes that are left */
};

struct pipeline *pipeline_new(struct model *m, long max_rows, bool keep, enum recompute recompute)
{
	struct pipeline *p = xcalloc(1, sizeof(*p));
	long turns = layout_turns(&m->mesh->layout);

	*p = (struct pipeline){
		.m = m, .max_rows = max_rows, .turns = turns, .keep = keep, .recompute = recompute
	};
	p->turn = xcalloc((size_t)turns, sizeof(*p->turn));
	GROW(p->turn->pass, p->turn->n, p->turn->cap);
	p->turn->pass[p->turn->n++] = pass_new(m, max_rows, keep, recompute);
	p->lp = xmalloc((size_t)max_rows * sizeof(float) + 1);
	p->dlp = xmalloc((size_t)max_rows * sizeof(float) + 1);
	return p;
}

void pipeline_free(struct pipeline *p)
{
	for (long t = 0; t < p->turns; t++) {
		for (long i = 0; i < p->turn[t].n; i++)
			pass_free(p->turn[t].pass[i]);
		free(p->turn[t].pass);
	}
	free(p->turn);
	free(p->lp);
	free(p->dlp);
	free(p);
}

static struct pipeline_plan plan_of(const struct model *m, long n, bool backward)
{
	struct pipeline_plan p = { m->mesh->pp.size, layout_turns(&m->mesh->layout), n, backward };

	if (p.turns > 1)
		p.n = (n + p.stages - 1) / p.stages * p.stages;
	return p;
}

size_t pipeline_bytes(const struct model *m, long max_rows, bool keep, enum recompute recompute,
		      long n)
{
	struct pipeline_plan p = plan_of(m, n, keep);
	long passes = 0;

	for (long turn = 0; turn < p.turns; turn++)
		passes += pipeline_flight(&p, m->mesh->pp.rank, turn);
	return pass_bytes(m, max_rows, keep, recompute) +
	       (size_t)(passes > 1 ? passes - 1 : 0) *
		       pass_more_bytes(m, max_rows, keep, recompute);
}

static void run_forward(void *arg, long k, long turn, long slot)
{
	static const long none[1];
	struct pipeline *p = arg;
	const struct pipeline_job *j = p->job;
	struct pass *pass = p->turn[turn].pass[slot];
	struct batch b = { .cu = none };
	const int *target = NULL;

	if (k < j->n)
		j->batch(j->arg, k, &b, &target);
	pass_forward(pass, &b);
	if (!p->m->here.last || turn != p->turns - 1)
		return;
	pass_logprobs(pass, p->lp, NULL, target, j->temperature);
	if (k < j->n)
		j->loss(j->arg, k, j->backward ? p->dlp : NULL, p->lp);
}

/* On the last stage the backward pass follows its loss at once, so that one dlp is enough. */
static void run_backward(void *arg, long k, long turn, long slot)
{
	struct pipeline *p = arg;

	(void)k;
	if (--p->backward == 0)
		model_last_backward(p->m);
	pass_backward(p->turn[turn].pass[slot], p->dlp);
}

void pipeline_run(struct pipeline *p, const struct pipeline_job *j)
{
	struct pipeline_plan plan = plan_of(p->m, j->n, j->backward);
	long stage = p->m->mesh->pp.rank;

	if (j->backward && !p->keep)
		bug("backward passes in a pipeline that keeps nothing");
	for (long i = 0; i < p->turns; i++) {
		struct turn *t = p->turn + i;

		while (t->n < pipeline_flight(&plan, stage, i)) {
			GROW(t->pass, t->n, t->cap);
			t->pass[t->n++] = pass_beside(p->turn->pass[0], i);
		}
	}
	p->job = j;
	p->backward = plan.n * plan.turns;
	pipeline_walk(&(struct pipeline_stage){ p, run_forward, run_backward }, &plan, stage);
	/* Others may have begun: no rank may wait for theirs first. */
	if (j->backward)
		model_reduce_start(p->m);
}
