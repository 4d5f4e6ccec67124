#include "kernels/model/pipeline.h"

#include "libcommon/xalloc.h"

#include <stdlib.h>

static long least(long a, long b)
{
	return a < b ? a : b;
}

long pipeline_flight(long stage, long stages, long n, bool backward)
{
	return least(backward ? stages - stage : 1, n);
}

void pipeline_order(struct pipeline_step *out, long stage, long stages, long n, bool backward)
{
	long ahead = backward ? least(stages - 1 - stage, n) : n;

	for (long k = 0; k < ahead; k++)
		*out++ = (struct pipeline_step){ false, k };
	for (long k = ahead; k < n; k++) {
		*out++ = (struct pipeline_step){ false, k };
		*out++ = (struct pipeline_step){ true, k - ahead };
	}
	for (long k = n - ahead; k < n && backward; k++)
		*out++ = (struct pipeline_step){ true, k };
}

void pipeline_walk(const struct pipeline_stage *s, long stage, long stages, long n, bool backward)
{
	long steps = backward ? 2 * n : n, flight = pipeline_flight(stage, stages, n, backward);
	struct pipeline_step *order = xmalloc((size_t)steps * sizeof(*order) + 1);

	pipeline_order(order, stage, stages, n, backward);
	for (long i = 0; i < steps; i++)
		if (order[i].backward)
			s->backward(s->arg, order[i].k, order[i].k % flight);
		else
			s->forward(s->arg, order[i].k, order[i].k % flight);
	free(order);
}

struct pipeline {
	struct model *m;
	long max_rows;
	bool keep, recompute;
	struct pass **pass;     /* [passes] those made so far */
	long passes;
	float *lp, *dlp;        /* [max_rows], of the last stage */
	const struct pipeline_job *job;         /* while it runs */
};

struct pipeline *pipeline_new(struct model *m, long max_rows, bool keep, bool recompute)
{
	struct pipeline *p = xcalloc(1, sizeof(*p));

	*p = (struct pipeline){ .m = m, .max_rows = max_rows, .keep = keep, .recompute = recompute };
	p->pass = xcalloc((size_t)m->mesh->pp.size, sizeof(*p->pass));
	p->pass[p->passes++] = pass_new(m, max_rows, keep, recompute);
	p->lp = xmalloc((size_t)max_rows * sizeof(float) + 1);
	p->dlp = xmalloc((size_t)max_rows * sizeof(float) + 1);
	return p;
}

void pipeline_free(struct pipeline *p)
{
	for (long i = 0; i < p->passes; i++)
		pass_free(p->pass[i]);
	free(p->pass);
	free(p->lp);
	free(p->dlp);
	free(p);
}

size_t pipeline_bytes(const struct model *m, long max_rows, bool keep, bool recompute, long n)
{
	long more = pipeline_flight(m->mesh->pp.rank, m->mesh->pp.size, n, keep) - 1;

	return pass_bytes(m, max_rows, keep, recompute) + (size_t)(more > 0 ? more : 0) * pass_more_bytes(m, max_rows, keep, recompute);
}

static void run_forward(void *arg, long k, long slot)
{
	struct pipeline *p = arg;
	const struct pipeline_job *j = p->job;
	const int *target;
	struct batch b;

	j->batch(j->arg, k, &b, &target);
	pass_forward(p->pass[slot], &b);
	if (!p->m->here.last)
		return;
	pass_logprobs(p->pass[slot], p->lp, NULL, target, j->temperature);
	j->loss(j->arg, k, j->backward ? p->dlp : NULL, p->lp);
}

/* On the last stage the backward pass follows its loss at once, so that one dlp is enough. */
static void run_backward(void *arg, long k, long slot)
{
	struct pipeline *p = arg;

	(void)k;
	pass_backward(p->pass[slot], p->dlp);
}

void pipeline_run(struct pipeline *p, const struct pipeline_job *j)
{
	struct comm *c = &p->m->mesh->pp;
	long flight = pipeline_flight(c->rank, c->size, j->n, j->backward);

	if (j->backward && !p->keep)
		bug("backward passes in a pipeline that keeps nothing");
	while (p->passes < flight) {
		p->pass[p->passes] = pass_beside(p->pass[0]);
		p->passes++;
	}
	p->job = j;
	pipeline_walk(&(struct pipeline_stage){ p, run_forward, run_backward }, c->rank, c->size, j->n, j->backward);
}
