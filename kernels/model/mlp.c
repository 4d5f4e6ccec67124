#include "kernels/model/inside.h"

#include "kernels/model/moe.h"

/* The widest of the layers' MLPs, in elements a row: a layer has experts, or one MLP, or beside experts a shared one. */
static long widest(const struct model *m)
{
	long w = m->here.intermediate, experts = m->table.config.moe.experts_per_token * m->here.expert_intermediate;

	w = experts > w ? experts : w;
	return m->here.shared_intermediate > w ? m->here.shared_intermediate : w;
}

/* One walk serves both: with memory NULL it only counts. */
size_t mlp_carve(struct mlp_acts *a, const struct model *m, long rows, char *memory)
{
	size_t f = line_up((size_t)(rows * widest(m)) * dtype_size(m->t));
	struct mlp_acts none;

	if (memory)
		*a = (struct mlp_acts){ .gate = memory, .up = memory + f, .act = memory + 2 * f };
	return 3 * f + (m->moe ? moe_carve(memory ? a : &none, m, rows, memory ? memory + 3 * f : NULL) : 0);
}

size_t mlp_carve_grads(struct mlp_grads *g, const struct model *m, long rows, char *memory)
{
	size_t f = line_up((size_t)(rows * widest(m)) * dtype_size(m->t));

	if (memory)
		*g = (struct mlp_grads){ memory, memory + f };
	return 2 * f;
}

void mlp_forward(const struct model *m, const struct layer *l, struct mlp_acts *a, void *y, const void *x, long rows)
{
	const struct ops *k = m->k;

	if (l->router) {
		moe_forward(m, l, a, y, x, rows);
		return;
	}
	k->linear_fwd(a->gate, m->t, x, &l->gate->matrix, NULL, rows);
	k->linear_fwd(a->up, m->t, x, &l->up->matrix, NULL, rows);
	k->swiglu_fwd(a->act, a->gate, a->up, rows * m->here.intermediate, m->t);
	k->linear_fwd(y, m->t, a->act, &l->down->matrix, NULL, rows);
}

void mlp_backward(const struct model *m, const struct layer *l, struct mlp_acts *a, struct mlp_grads *g, void *dx, const void *dy,
		  const void *x, long rows)
{
	const struct ops *k = m->k;

	if (l->router) {
		moe_backward(m, l, a, g, dx, dy, x, rows);
		return;
	}
	linear_gradient(m, l->down, NULL, dy, a->act, rows);
	k->linear_dx(g->act, m->t, dy, &l->down->matrix, rows, false);
	k->swiglu_bwd(g->gate, g->act, g->act, a->gate, a->up, rows * m->here.intermediate, m->t);
	linear_gradient(m, l->gate, NULL, g->gate, x, rows);
	linear_gradient(m, l->up, NULL, g->act, x, rows);
	k->linear_dx(dx, m->t, g->gate, &l->gate->matrix, rows, false);
	k->linear_dx(dx, m->t, g->act, &l->up->matrix, rows, true);
}
