#include "kernels/model/inside.h"

/* One walk serves both: with memory NULL it only counts. */
size_t mlp_carve(struct mlp_acts *a, const struct model *m, long rows, char *memory)
{
	size_t f = line_up((size_t)(rows * m->here.intermediate) * dtype_size(m->t));

	if (memory)
		*a = (struct mlp_acts){ memory, memory + f, memory + 2 * f };
	return 3 * f;
}

size_t mlp_carve_grads(struct mlp_grads *g, const struct model *m, long rows, char *memory)
{
	size_t f = line_up((size_t)(rows * m->here.intermediate) * dtype_size(m->t));

	if (memory)
		*g = (struct mlp_grads){ memory, memory + f };
	return 2 * f;
}

void mlp_forward(const struct model *m, const struct layer *l, struct mlp_acts *a, void *y, const void *x, long rows)
{
	const struct ops *k = m->k;

	k->linear_fwd(a->gate, m->t, x, &l->gate->matrix, NULL, rows);
	k->linear_fwd(a->up, m->t, x, &l->up->matrix, NULL, rows);
	k->swiglu_fwd(a->act, a->gate, a->up, rows * m->here.intermediate, m->t);
	k->linear_fwd(y, m->t, a->act, &l->down->matrix, NULL, rows);
}

void mlp_backward(const struct model *m, const struct layer *l, struct mlp_acts *a, struct mlp_grads *g, void *dx, const void *dy,
		  const void *x, long rows)
{
	const struct ops *k = m->k;

	linear_gradient(m, l->down, NULL, dy, a->act, rows);
	k->linear_dx(g->act, m->t, dy, &l->down->matrix, rows, false);
	k->swiglu_bwd(g->gate, g->act, g->act, a->gate, a->up, rows * m->here.intermediate, m->t);
	linear_gradient(m, l->gate, NULL, g->gate, x, rows);
	linear_gradient(m, l->up, NULL, g->act, x, rows);
	k->linear_dx(dx, m->t, g->gate, &l->gate->matrix, rows, false);
	k->linear_dx(dx, m->t, g->act, &l->up->matrix, rows, true);
}
