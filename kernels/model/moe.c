#include "kernels/model/moe.h"

#include "libcommon/xalloc.h"

#include <stdlib.h>
#include <string.h>

void moe_init(struct model *m)
{
	const struct moe_config *c = &m->table.config.moe;

	if (!c->experts)
		return;
	m->moe = xcalloc(1, sizeof(*m->moe));
	m->moe->routing = (struct routing){ c->experts, c->experts_per_token, c->norm_topk };
	m->moe->offset = xcalloc((size_t)c->experts + 1, sizeof(long));
	m->moe->count = xcalloc((size_t)(m->table.config.layers * (c->experts + 2)), sizeof(double));
	m->moe->dp = m->k->alloc((size_t)c->experts * sizeof(float), "losses of routers");
}

void moe_release(struct model *m)
{
	if (!m->moe)
		return;
	m->k->release(m->moe->memory);
	m->k->release(m->moe->dp);
	free(m->moe->offset);
	free(m->moe->count);
	free(m->moe);
}

/* With o->memory NULL it only counts. */
static size_t carve(struct moe *o, const struct model *m, long rows)
{
	const struct moe_config *c = &m->table.config.moe;
	size_t t = dtype_size(m->t), r = (size_t)rows, slots = r * (size_t)c->experts_per_token, at = 0;
	size_t h = (size_t)m->table.config.hidden, back = m->flags & MODEL_TRAIN ? 1 : 0;
	struct { void **p; size_t bytes; } part[] = {
		{ (void **)&o->from, slots * sizeof(int) }, { (void **)&o->place, slots * sizeof(int) }, { &o->xs, slots * h * t },
		{ &o->ds, back * slots * h * t }, { (void **)&o->o, slots * h * 4 },
		{ (void **)&o->shared, c->shared_intermediate ? r * h * 4 : 0 }, { (void **)&o->dweight, back * slots * 4 },
		{ &o->dz, back * r * (size_t)c->experts * t },
	};

	for (size_t i = 0; i < sizeof(part) / sizeof(*part); i++) {
		if (o->memory)
			*part[i].p = o->memory + at;
		at += line_up(part[i].bytes);
	}
	return at;
}

size_t moe_bytes(const struct model *m, long rows)
{
	struct moe none = { 0 };

	return m->moe ? carve(&none, m, rows) : 0;
}

static void reserve(const struct model *m, long rows)
{
	struct moe *o = m->moe;

	if (o->rows >= rows)
		return;
	m->k->release(o->memory);
	o->memory = m->k->alloc(moe_bytes(m, rows), "activations of experts");
	o->rows = rows;
	carve(o, m, rows);
}

size_t moe_carve(struct mlp_acts *a, const struct model *m, long rows, char *memory)
{
	const struct moe_config *c = &m->table.config.moe;
	size_t t = dtype_size(m->t), r = (size_t)rows, slots = r * (size_t)c->experts_per_token, at = 0;
	size_t s = c->shared_intermediate ? r : 0, shared = s * (size_t)m->here.shared_intermediate * t;
	struct { void **p; size_t bytes; } part[] = {
		{ (void **)&a->id, slots * sizeof(int) }, { (void **)&a->weight, slots * 4 },
		{ (void **)&a->p, r * (size_t)c->experts * 4 }, { (void **)&a->lse, r * 4 },
		{ &a->sgate, shared }, { &a->sup, shared }, { &a->sact, shared }, { (void **)&a->open, s * 4 },
	};

	for (size_t i = 0; i < sizeof(part) / sizeof(*part); i++) {
		if (memory)
			*part[i].p = memory + at;
		at += line_up(part[i].bytes);
	}
	return at;
}

void moe_give(const struct model *m, const int *given, int *taken)
{
	if (!m->moe)
		return;
	m->moe->given = given;
	m->moe->taken = taken;
}

long model_expert_layers(const struct model *m)
{
	return model_config_moe_layers(&m->table.config);
}

long model_experts_per_row(const struct model *m)
{
	return model_expert_layers(m) * m->table.config.moe.experts_per_token;
}

/* This layer's slots of what lies by row and layer, to `ids` or back. */
static void of_layer(const struct model *m, const struct layer *l, int *all, int *ids, long rows, bool back)
{
	size_t k = (size_t)m->moe->routing.k;
	long per = model_experts_per_row(m);

	for (long r = 0; r < rows; r++) {
		int *there = all + r * per + l->moe_index * (long)k, *here = ids + r * (long)k;

		memcpy(back ? there : here, back ? here : there, k * sizeof(int));
	}
}

static void route(const struct model *m, const struct layer *l, struct mlp_acts *a, long rows)
{
	struct moe *o = m->moe;
	size_t bytes = (size_t)(rows * o->routing.k) * sizeof(int);
	int *ids = o->given || o->taken ? xmalloc(bytes) : NULL;

	if (o->given) {
		of_layer(m, l, (int *)o->given, ids, rows, false);
		m->k->put(a->id, ids, bytes);
	}
	m->k->route(a->id, a->weight, a->p, a->lse, a->p, rows, &o->routing, o->given);
	if (o->taken) {
		m->k->get(ids, a->id, bytes);
		of_layer(m, l, o->taken, ids, rows, true);
	}
	free(ids);
}

static void shared_forward(const struct model *m, const struct layer *l, struct mlp_acts *a, const void *x, long rows)
{
	const struct ops *k = m->k;

	k->linear_fwd(a->sgate, m->t, x, &l->sgate->matrix, NULL, rows);
	k->linear_fwd(a->sup, m->t, x, &l->sup->matrix, NULL, rows);
	k->swiglu_fwd(a->sact, a->sgate, a->sup, rows * m->here.shared_intermediate, m->t);
	k->linear_fwd(m->moe->shared, DTYPE_F32, a->sact, &l->sdown->matrix, NULL, rows);
	k->linear_fwd(a->open, DTYPE_F32, x, &l->srouter->matrix, NULL, rows);
	k->sigmoid_fwd(a->open, a->open, rows);
}

void moe_forward(const struct model *m, const struct layer *l, struct mlp_acts *a, void *y, const void *x, long rows)
{
	const struct ops *k = m->k;
	const struct routing *s = &m->moe->routing;
	struct moe *o = m->moe;
	long slots = rows * s->k, hidden = m->table.config.hidden;

	reserve(m, rows);
	k->linear_fwd(a->p, DTYPE_F32, x, &l->router->matrix, NULL, rows);
	route(m, l, a, rows);
	k->sort_slots(o->offset, o->from, o->place, a->id, rows, s);
	k->embed_fwd(o->xs, x, o->from, slots, hidden, m->t);
	k->grouped_fwd(a->gate, m->t, o->xs, l->gate->expert, o->offset, s->experts);
	k->grouped_fwd(a->up, m->t, o->xs, l->up->expert, o->offset, s->experts);
	k->swiglu_fwd(a->act, a->gate, a->up, slots * m->here.expert_intermediate, m->t);
	k->grouped_fwd(o->o, DTYPE_F32, a->act, l->down->expert, o->offset, s->experts);
	if (l->sgate)
		shared_forward(m, l, a, x, rows);
	k->combine(y, o->o, o->place, a->weight, a->open, l->sgate ? o->shared : NULL, rows, s->k, hidden, m->t);
}

/* Adds to dx. */
static void shared_backward(const struct model *m, const struct layer *l, struct mlp_acts *a, struct mlp_grads *g, void *dx,
			    const void *dy, const void *x, long rows)
{
	const struct ops *k = m->k;
	struct moe *o = m->moe;
	long width = m->here.shared_intermediate;

	k->linear_dx(g->act, m->t, dy, &l->sdown->matrix, rows, false);
	k->weigh_bwd(o->dweight, g->act, a->sact, NULL, a->open, rows, 1, width, m->t);
	linear_gradient(m, l->sdown, NULL, dy, a->sact, rows);
	k->swiglu_bwd(g->gate, g->act, g->act, a->sgate, a->sup, rows * width, m->t);
	linear_gradient(m, l->sgate, NULL, g->gate, x, rows);
	linear_gradient(m, l->sup, NULL, g->act, x, rows);
	k->linear_dx(dx, m->t, g->gate, &l->sgate->matrix, rows, true);
	k->linear_dx(dx, m->t, g->act, &l->sup->matrix, rows, true);
	k->sigmoid_bwd(o->dz, o->dweight, a->open, rows, m->t);
	linear_gradient(m, l->srouter, NULL, o->dz, x, rows);
	k->linear_dx(dx, m->t, o->dz, &l->srouter->matrix, rows, true);
}

static void expert_gradient(const struct model *m, struct weight *w, const void *dy, const void *x)
{
	const struct moe *o = m->moe;

	if (w->grad)
		m->k->grouped_dw(w->grad, dy, x, o->offset, o->routing.experts, w->expert->n, w->expert->k, m->t);
}

void moe_backward(const struct model *m, const struct layer *l, struct mlp_acts *a, struct mlp_grads *g, void *dx, const void *dy,
		  const void *x, long rows)
{
	const struct ops *k = m->k;
	const struct routing *s = &m->moe->routing;
	struct moe *o = m->moe;
	long slots = rows * s->k, hidden = m->table.config.hidden, width = m->here.expert_intermediate;
	struct router_loss own;

	k->sort_slots(o->offset, o->from, o->place, a->id, rows, s);
	k->embed_fwd(o->xs, x, o->from, slots, hidden, m->t);
	k->embed_fwd(o->ds, dy, o->from, slots, hidden, m->t);
	k->grouped_dx(g->act, m->t, o->ds, l->down->expert, o->offset, s->experts, false);
	k->weigh_bwd(o->dweight, g->act, a->act, o->place, a->weight, rows, s->k, width, m->t);
	expert_gradient(m, l->down, o->ds, a->act);
	k->swiglu_bwd(g->gate, g->act, g->act, a->gate, a->up, slots * width, m->t);
	expert_gradient(m, l->gate, g->gate, o->xs);
	expert_gradient(m, l->up, g->act, o->xs);
	k->grouped_dx(o->o, DTYPE_F32, g->gate, l->gate->expert, o->offset, s->experts, false);
	k->grouped_dx(o->o, DTYPE_F32, g->act, l->up->expert, o->offset, s->experts, true);
	k->unpermute(dx, o->o, o->place, rows, s->k, hidden, m->t);
	k->route_bwd(o->dz, o->dweight, a->id, a->weight, a->p, a->lse, router_losses(&own, m, l, a, rows), rows, s, m->t);
	linear_gradient(m, l->router, NULL, o->dz, x, rows);
	k->linear_dx(dx, m->t, o->dz, &l->router->matrix, rows, true);
	if (l->sgate)
		shared_backward(m, l, a, g, dx, dy, x, rows);
}
