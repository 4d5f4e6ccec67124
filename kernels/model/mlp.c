#include "kernels/model/inside.h"

#include "kernels/model/ep.h"

/* The widest of the layers' MLPs, in elements a row: a layer has experts, or one MLP, or beside experts a shared one. */
static long widest(const struct model *m)
{
	long w = m->here.intermediate, experts = m->table.config.moe.experts_per_token * m->here.expert_intermediate;

	/* Over ranks they are not kept. */
	experts = ep_over_ranks(m) ? 0 : experts;
	w = experts > w ? experts : w;
	return m->here.shared_intermediate > w ? m->here.shared_intermediate : w;
}

/* One walk serves both: with memory NULL it only counts. */
size_t mlp_carve(struct mlp_acts *a, const struct model *m, long R, long S, bool lean, char *memory)
{
	size_t f = line_up((size_t)(R * widest(m)) * dtype_size(m->t)), all = (lean && !m->moe ? 2 : 3) * f;
	struct mlp_acts none;

	if (memory)
		*a = (struct mlp_acts){ .gate = memory, .up = memory + f, .act = memory + 2 * f };
	return all + (m->moe ? moe_carve(memory ? a : &none, m, R, S, memory ? memory + all : NULL) : 0);
}

size_t mlp_carve_grads(struct mlp_grads *g, const struct model *m, long R, long S, char *memory)
{
	size_t f = line_up((size_t)(R * widest(m)) * dtype_size(m->t));

	(void)S;
	if (memory)
		*g = (struct mlp_grads){ memory, memory + f };
	return 2 * f;
}

void mlp_forward(const struct model *m, const struct layer *l, struct mlp_acts *a, struct tp *t, void *y, const void *x)
{
	const struct ops *k = m->k;
	const void *all;

	if (l->router) {
		moe_forward(m, l, a, t, y, x);
		return;
	}
	all = tp_gather(t, x);
	k->linear_fwd(a->gate, m->t, all, &l->gate->matrix, NULL, t->R);
	k->linear_fwd(a->up, m->t, all, &l->up->matrix, NULL, t->R);
	k->swiglu_fwd(a->act, a->gate, a->up, t->R * m->here.intermediate, m->t);
	tp_row_linear(t, y, m->t, a->act, l->down, NULL, &t->down);
}

void mlp_backward(const struct model *m, const struct layer *l, struct mlp_acts *a, struct mlp_grads *g, struct tp *t, void *dx,
		  const void *dy, const void *x)
{
	const struct ops *k = m->k;
	const void *all;

	if (l->router) {
		moe_backward(m, l, a, g, t, dx, dy, x);
		return;
	}
	all = tp_gather(t, dy);
	linear_gradient(m, l->down, NULL, all, a->act, t->R);
	k->linear_dx(g->act, m->t, all, &l->down->matrix, t->R, false);
	k->swiglu_bwd(g->gate, g->act, g->act, a->gate, a->up, t->R * m->here.intermediate, m->t);
	all = tp_gather(t, x);
	linear_gradient(m, l->gate, NULL, g->gate, all, t->R);
	linear_gradient(m, l->up, NULL, g->act, all, t->R);
	tp_linear_dx(t, dx, g->gate, &l->gate->matrix, false);
	tp_linear_dx(t, dx, g->act, &l->up->matrix, true);
	tp_finish_dx(t, dx);
}
