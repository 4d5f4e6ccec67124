#include "kernels/model/inside.h"

#include <string.h>

size_t acts_carve(struct acts *a, const struct model *m, long R, long S, bool lean, char *memory)
{
	const struct model_config *c = &m->table.config;
	struct acts none;
	size_t e = dtype_size(m->t), at = 0, r = (size_t)R, s = (size_t)S, heads = (size_t)m->here.heads, kvs = (size_t)m->here.kv_heads;
	size_t h = s * (size_t)c->hidden * e, q = r * heads * (size_t)c->head_dim * e, kv = r * kvs * (size_t)c->head_dim * e;
	bool n = c->qk_norm;

	a = memory ? a : &none;
	struct { void **p; size_t bytes; } part[] = {
		{ &a->h1, lean ? 0 : h }, { &a->q, q }, { &a->k, kv }, { &a->v, kv }, { &a->att, q },
		{ &a->q0, n ? q : 0 }, { &a->k0, n ? kv : 0 }, { &a->x2, h }, { &a->h2, lean ? 0 : h },
		{ (void **)&a->rstd1, s * 4 }, { (void **)&a->rstd2, s * 4 },
		{ (void **)&a->rstdq, n ? r * heads * 4 : 0 }, { (void **)&a->rstdk, n ? r * kvs * 4 : 0 },
		{ (void **)&a->lse, r * heads * 4 },
	};

	for (size_t i = 0; i < sizeof(part) / sizeof(*part); i++) {
		if (memory)
			*part[i].p = memory + at;
		at += line_up(part[i].bytes);
	}
	at += mlp_carve(&a->mlp, m, R, S, lean, memory ? memory + at : NULL);
	if (memory && !n) {
		a->q0 = a->q;
		a->k0 = a->k;
	}
	return at;
}

void layer_before(const struct model *m, const struct layer *l, struct acts *a, struct tp *t, const int *position, bool keep)
{
	const struct ops *k = m->k;
	const struct model_config *c = &m->table.config;
	long R = t->R, heads = m->here.heads, kv = m->here.kv_heads, d = c->head_dim;
	float eps = (float)c->rms_eps;
	const void *h;

	k->rmsnorm_fwd(a->h1, keep ? a->rstd1 : NULL, a->x, l->norm1->value, t->own, c->hidden, eps, m->t);
	h = tp_gather(t, a->h1);
	k->linear_fwd(a->q0, m->t, h, &l->q->matrix, value_of(l->qb), R);
	k->linear_fwd(a->k0, m->t, h, &l->k->matrix, value_of(l->kb), R);
	k->linear_fwd(a->v, m->t, h, &l->v->matrix, value_of(l->vb), R);
	if (c->qk_norm) {
		k->rmsnorm_fwd(a->q, keep ? a->rstdq : NULL, a->q0, l->qn->value, R * heads, d, eps, m->t);
		k->rmsnorm_fwd(a->k, keep ? a->rstdk : NULL, a->k0, l->kn->value, R * kv, d, eps, m->t);
	}
	k->rope(a->q, position, m->cos, m->sin, R, heads, d, false, m->t);
	k->rope(a->k, position, m->cos, m->sin, R, kv, d, false, m->t);
}

void layer_after(const struct model *m, const struct layer *l, struct acts *a, struct tp *t, void *out, bool keep)
{
	const struct ops *k = m->k;
	const struct model_config *c = &m->table.config;
	long n = t->own * c->hidden;

	tp_row_linear(t, a->h2, m->t, a->att, l->o, l->ob, &t->o);
	k->add(a->x2, a->x, a->h2, n, m->t);
	k->rmsnorm_fwd(a->h2, keep ? a->rstd2 : NULL, a->x2, l->norm2->value, t->own, c->hidden, (float)c->rms_eps, m->t);
	mlp_forward(m, l, &a->mlp, t, out, a->h2);
	k->add(out, out, a->x2, n, m->t);
}

void linear_gradient(const struct model *m, struct weight *w, struct weight *bias, const void *dy, const void *x, long rows)
{
	if (w->grad)
		m->k->linear_dw(w->grad, bias ? bias->grad : NULL, dy, x, rows, w->matrix.n, w->matrix.k, m->t);
}
