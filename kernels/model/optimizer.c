#include "kernels/model/inside.h"

#include <math.h>
#include <string.h>

void model_zero_grad(struct model *m)
{
	for (long i = 0; i < m->table.n; i++)
		if (m->w[i].grad)
			memset(m->w[i].grad, 0, (size_t)param_count(m->table.p + i) * 4);
}

double model_grad_norm(const struct model *m)
{
	double s = 0;

	for (long i = 0; i < m->table.n; i++)
		if (m->w[i].grad)
			s += m->k->sumsq(m->w[i].grad, param_count(m->table.p + i));
	return sqrt(s);
}

const char *model_bad_grad(const struct model *m)
{
	for (long i = 0; i < m->table.n; i++)
		if (m->w[i].grad && !isfinite(m->k->sumsq(m->w[i].grad, param_count(m->table.p + i))))
			return m->table.p[i].name;
	return NULL;
}

void model_adamw(struct model *m, const struct adamw *h)
{
	for (long i = 0; i < m->table.n; i++) {
		const struct param *p = m->table.p + i;
		struct weight *w = m->w + i;
		struct adamw one = *h;

		if (!w->grad)
			continue;
		if (!p->decay)
			one.weight_decay = 0;
		m->k->adamw(w->master, w->exp_avg, w->exp_avg_sq, m->t == DTYPE_F32 ? NULL : w->value, w->grad, param_count(p), &one);
		if (w->matrix.n)
			m->k->matrix_load(&w->matrix, w->value);
	}
}
