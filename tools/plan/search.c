#include "tools/plan/plan.h"

#include "libcommon/xalloc.h"

#include <stdlib.h>
#include <string.h>

static bool layout_fits_model(const struct layout *l, const struct job *j, const struct cluster *c)
{
	const struct model_config *m = &j->model;
	struct err e = ERR_INIT;

	/* Of the longest sequence each of a rank's two chunks holds a split of attention, 512 keys, at least. */
	if (l->cp > 1 && j->longest / (double)l->cp < 1024)
		return false;
	return l->tp <= c->gpus_per_node && (double)l->dp <= j->batch && !layout_check(l, m, &e);
}

static void keep(struct plans *o, const struct layout *l, bool recompute, const struct job *j, const struct cluster *c)
{
	struct plan p = { .recompute = recompute };

	o->tried++;
	plan_memory(&p.memory, l, recompute, j);
	if (p.memory.total > c->memory) {
		o->too_large++;
		if (!o->smallest || p.memory.total < o->smallest)
			o->smallest = p.memory.total;
		return;
	}
	layout_copy(&p.layout, l);
	plan_time(&p, j, c);
	GROW(o->plan, o->n, o->cap);
	o->plan[o->n++] = p;
}

/* Both meshes of one stage of `ranks` ranks. */
static void stage_meshes(struct plans *o, struct layout *l, long ranks, const struct job *j, const struct cluster *c)
{
	long experts = j->model.moe.experts > 0 ? j->model.moe.experts : 1;

	for (l->tp = 1; l->tp <= ranks; l->tp++)
		for (l->cp = 1; ranks % l->tp == 0 && l->cp <= ranks / l->tp; l->cp++) {
			if (ranks / l->tp % l->cp)
				continue;
			l->dp = ranks / l->tp / l->cp;
			for (l->ep = 1; l->ep <= experts; l->ep++)
				for (l->etp = 1; l->etp <= l->tp; l->etp += l->tp > 1 ? l->tp - 1 : 1) {
					if (experts % l->ep || ranks % (l->ep * l->etp) || (experts == 1 && l->etp != 1))
						continue;
					if (!layout_fits_model(l, j, c)) {
						o->impossible++;
						continue;
					}
					if (!j->recompute_asked)
						keep(o, l, false, j, c);
					keep(o, l, true, j, c);
				}
		}
}

static double by(const struct plan *p)
{
	return p->time.total;
}

/* The faster first; of equals the one that cuts the model less. */
static int faster(const void *a, const void *b)
{
	const struct plan *x = a, *y = b;
	long cut_x = x->layout.tp * x->layout.pp * x->layout.cp * x->layout.ep, cut_y = y->layout.tp * y->layout.pp * y->layout.cp * y->layout.ep;

	if (by(x) < by(y) || by(x) > by(y))
		return by(x) < by(y) ? -1 : 1;
	return cut_x < cut_y ? -1 : cut_x > cut_y;
}

void plans_search(struct plans *o, const struct job *j, const struct cluster *c)
{
	*o = (struct plans){ 0 };
	for (long pp = 1; pp <= j->model.layers && pp <= c->gpus; pp++) {
		struct layout l;

		if (c->gpus % pp)
			continue;
		layout_init(&l, j->model.layers);
		layout_balance(&l, pp);
		stage_meshes(o, &l, c->gpus / pp, j, c);
		layout_release(&l);
	}
	if (o->n)
		qsort(o->plan, (size_t)o->n, sizeof(*o->plan), faster);
}

void plans_release(struct plans *p)
{
	for (long i = 0; i < p->n; i++)
		layout_release(&p->plan[i].layout);
	free(p->plan);
	memset(p, 0, sizeof(*p));
}
