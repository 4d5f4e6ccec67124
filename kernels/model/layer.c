#include "kernels/model/inside.h"

#include <string.h>

/* One walk serves both: with memory NULL it only counts. */
static size_t carve(struct acts *a, const struct model *m, long rows, char *memory)
{
	const struct model_config *c = &m->table.config;
	const struct dims *d = &m->here;
	size_t e = dtype_size(m->t), at = 0, r = (size_t)rows;
	size_t h = r * (size_t)c->hidden * e, q = r * (size_t)(d->heads * c->head_dim) * e;
	size_t kv = r * (size_t)(d->kv_heads * c->head_dim) * e;
	bool n = c->qk_norm;
	struct { void **p; size_t bytes; } part[] = {
		{ &a->x, h }, { &a->h1, h }, { &a->q, q }, { &a->k, kv }, { &a->v, kv }, { &a->att, q },
		{ &a->q0, n ? q : 0 }, { &a->k0, n ? kv : 0 }, { &a->x2, h }, { &a->h2, h },
		{ (void **)&a->rstd1, r * 4 }, { (void **)&a->rstd2, r * 4 },
		{ (void **)&a->rstdq, n ? r * (size_t)d->heads * 4 : 0 }, { (void **)&a->rstdk, n ? r * (size_t)d->kv_heads * 4 : 0 },
		{ (void **)&a->lse, r * (size_t)d->heads * 4 },
	};

	for (size_t i = 0; i < sizeof(part) / sizeof(*part); i++) {
		if (memory)
			*part[i].p = memory + at;
		at += line_up(part[i].bytes);
	}
	at += mlp_carve(&a->mlp, m, rows, memory ? memory + at : NULL);
	if (memory && !n) {
		a->q0 = a->q;
		a->k0 = a->k;
	}
	return at;
}

size_t acts_bytes(const struct model *m, long rows)
{
	struct acts none;

	return carve(&none, m, rows, NULL);
}

void acts_carve(struct acts *a, const struct model *m, long rows, char *memory)
{
	carve(a, m, rows, memory);
}

void layer_before(const struct model *m, const struct layer *l, struct acts *a, const int *position, long rows, bool keep)
{
	const struct ops *k = m->k;
	const struct model_config *c = &m->table.config;
	const struct dims *d = &m->here;
	float eps = (float)c->rms_eps;
	enum dtype t = m->t;

	k->rmsnorm_fwd(a->h1, keep ? a->rstd1 : NULL, a->x, l->norm1->value, rows, c->hidden, eps, t);
	k->linear_fwd(a->q0, t, a->h1, &l->q->matrix, value_of(l->qb), rows);
	k->linear_fwd(a->k0, t, a->h1, &l->k->matrix, value_of(l->kb), rows);
	k->linear_fwd(a->v, t, a->h1, &l->v->matrix, value_of(l->vb), rows);
	if (c->qk_norm) {
		k->rmsnorm_fwd(a->q, keep ? a->rstdq : NULL, a->q0, l->qn->value, rows * d->heads, c->head_dim, eps, t);
		k->rmsnorm_fwd(a->k, keep ? a->rstdk : NULL, a->k0, l->kn->value, rows * d->kv_heads, c->head_dim, eps, t);
	}
	k->rope(a->q, position, m->cos, m->sin, rows, d->heads, c->head_dim, false, t);
	k->rope(a->k, position, m->cos, m->sin, rows, d->kv_heads, c->head_dim, false, t);
}

void layer_after(const struct model *m, const struct layer *l, struct acts *a, void *out, long rows, bool keep)
{
	const struct ops *k = m->k;
	const struct model_config *c = &m->table.config;
	enum dtype t = m->t;

	k->linear_fwd(a->h2, t, a->att, &l->o->matrix, value_of(l->ob), rows);
	k->add(a->x2, a->x, a->h2, rows * c->hidden, t);
	k->rmsnorm_fwd(a->h2, keep ? a->rstd2 : NULL, a->x2, l->norm2->value, rows, c->hidden, (float)c->rms_eps, t);
	mlp_forward(m, l, &a->mlp, out, a->h2, rows);
	k->add(out, out, a->x2, rows * c->hidden, t);
}

void linear_gradient(const struct model *m, struct weight *w, struct weight *bias, const void *dy, const void *x, long rows)
{
	if (w->grad)
		m->k->linear_dw(w->grad, bias ? bias->grad : NULL, dy, x, rows, w->matrix.n, w->matrix.k, m->t);
}
