#include "kernels/model/inside.h"
#include "libcommon/xalloc.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static long params_of(const struct model *m)
{
	return m->flags & MODEL_TRAIN ? m->table.n : 0;
}

void model_zero_grad(struct model *m)
{
	reduce_begin(m);
	for (int i = 0; i < 2; i++)
		if (m->flat[i].grad)
			m->k->zero(m->flat[i].grad, (size_t)m->flat[i].a.total * 4);
	for (long i = 0; i < params_of(m); i++)
		if (m->w[i].apart && m->w[i].grad)
			m->k->zero(m->w[i].grad, (size_t)box_volume(m->box + i) * 4);
}

/* Of a box that several ranks of a group hold, the first of them counts. */
static bool counts(const struct model *m, long i)
{
	long which;

	if (!m->w[i].n)
		return false;
	param_copies(&which, m->table.p + i, &m->mesh->layout, &m->mesh->at);
	return which == 0;
}

double model_grad_norm(const struct model *m)
{
	double s = 0;

	for (long i = 0; i < params_of(m); i++)
		if (counts(m, i))
			s += m->k->sumsq(m->w[i].sum, m->w[i].n);
	comm_sum_f64(&m->mesh->world, &s, 1);
	return sqrt(s);
}

const char *model_bad_grad(const struct model *m)
{
	double first = -INFINITY;
	float least;

	for (long i = 0; i < params_of(m) && first == -INFINITY; i++)
		if (m->w[i].n && !isfinite(m->k->sumsq(m->w[i].sum, m->w[i].n)))
			first = -(double)i;
	least = (float)first;
	comm_max_f32(&m->mesh->world, &least, 1);
	return isinf(least) ? NULL : m->table.p[(long)-least].name;
}

static void update(struct model *m, long i, const struct adamw *h)
{
	const struct param *p = m->table.p + i;
	struct weight *w = m->w + i;
	struct adamw one = *h;
	uint16_t *low = m->t == DTYPE_F32 ? NULL : (uint16_t *)w->value + w->first;

	if (!p->decay)
		one.weight_decay = 0;
	m->k->adamw(w->master, w->exp_avg, w->exp_avg_sq, low, w->sum, w->n, &one);
}

/* Every rank has updated its part of the arena: now it is whole everywhere. */
static void gather_values(struct model *m, const struct flat *f)
{
	size_t e = dtype_size(m->t), *bytes;

	if (!f->comm || f->comm->size == 1)
		return;
	bytes = xmalloc((size_t)f->a.members * sizeof(*bytes));
	for (long i = 0; i < f->a.members; i++)
		bytes[i] = f->a.count[i] * e;
	comm_dev_gather_v(f->comm, f->value, f->value + (size_t)f->a.first * e, bytes);
	free(bytes);
}

void model_adamw(struct model *m, const struct adamw *h)
{
	for (long i = 0; i < params_of(m); i++)
		if (m->w[i].n)
			update(m, i, h);
	for (int i = 0; i < 2; i++)
		gather_values(m, &m->flat[i]);
	for (long i = 0; i < params_of(m); i++) {
		const struct param *p = m->table.p + i;
		struct weight *w = m->w + i;

		if (!w->grad)
			continue;
		if (p->kind == PARAM_EMBED && m->table.config.tied && m->mesh->ends.size > 1)
			comm_dev_broadcast(&m->mesh->ends, w->value, (size_t)box_volume(m->box + i) * dtype_size(m->t), 0);
		weight_matrices_load(m, w, w->value);
	}
}
