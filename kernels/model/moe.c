#include "kernels/model/moe.h"

#include "kernels/model/ep.h"
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
	for (int i = 0; i < EP_MEMORIES; i++)
		m->k->release(m->moe->far[i].p);
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

size_t moe_carve(struct mlp_acts *a, const struct model *m, long R, long S, char *memory)
{
	const struct moe_config *c = &m->table.config.moe;
	size_t t = dtype_size(m->t), r = (size_t)S, slots = r * (size_t)c->experts_per_token, at = 0;
	size_t s = c->shared_intermediate ? r : 0, shared = s ? (size_t)(R * m->here.shared_intermediate) * t : 0;
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

static void shared_forward(const struct model *m, const struct layer *l, struct mlp_acts *a, struct tp *t, const void *x)
{
	const struct ops *k = m->k;
	const void *all = tp_gather(t, x);

	k->linear_fwd(a->sgate, m->t, all, &l->sgate->matrix, NULL, t->R);
	k->linear_fwd(a->sup, m->t, all, &l->sup->matrix, NULL, t->R);
	k->swiglu_fwd(a->sact, a->sgate, a->sup, t->R * m->here.shared_intermediate, m->t);
	tp_row_linear(t, m->moe->shared, DTYPE_F32, a->sact, l->sdown, NULL, &t->shared);
	k->linear_fwd(a->open, DTYPE_F32, x, &l->srouter->matrix, NULL, t->own);
	k->sigmoid_fwd(a->open, a->open, t->own);
}

static void experts_forward(const struct model *m, const struct layer *l, struct mlp_acts *a, long slots)
{
	const struct ops *k = m->k;
	struct moe *o = m->moe;
	long E = o->routing.experts;

	k->grouped_fwd(a->gate, m->t, o->xs, l->gate->expert, o->offset, E);
	k->grouped_fwd(a->up, m->t, o->xs, l->up->expert, o->offset, E);
	k->swiglu_fwd(a->act, a->gate, a->up, slots * m->here.expert_intermediate, m->t);
	k->grouped_fwd(o->o, DTYPE_F32, a->act, l->down->expert, o->offset, E);
}

void moe_forward(const struct model *m, const struct layer *l, struct mlp_acts *a, struct tp *t, void *y, const void *x)
{
	const struct ops *k = m->k;
	const struct routing *s = &m->moe->routing;
	struct moe *o = m->moe;
	long rows = t->own, slots = rows * s->k, hidden = m->table.config.hidden;

	reserve(m, rows);
	k->linear_fwd(a->p, DTYPE_F32, x, &l->router->matrix, NULL, rows);
	route(m, l, a, rows);
	k->sort_slots(o->offset, o->from, o->place, a->id, rows, s);
	k->permute(o->xs, x, o->from, slots, hidden, m->t);
	if (ep_over_ranks(m))
		ep_forward(m, l);
	else
		experts_forward(m, l, a, slots);
	if (l->sgate)
		shared_forward(m, l, a, t, x);
	k->combine(y, o->o, o->place, a->weight, l->sgate ? a->open : NULL, l->sgate ? o->shared : NULL, rows, s->k, hidden, m->t);
}

/* How far the gates of all rows are open; and of the gradients of those, of which each rank has a part, the own rows. */
static void open_of_all(float *all, struct tp *t, const float *open)
{
	for (int r = 0; t->split && r < t->c->size; r++)
		t->in[r] = (size_t)(tp_first(t, r + 1) - tp_first(t, r)) * sizeof(float);
	if (t->split)
		comm_dev_gather_v(t->c, all, open, t->in);
	else
		t->m->k->copy(all, open, (size_t)t->R * sizeof(float));
}

static void open_gradient(float *own, struct tp *t, const float *all)
{
	for (int r = 0; t->split && r < t->c->size; r++)
		t->in[r] = (size_t)(tp_first(t, r + 1) - tp_first(t, r));
	if (t->split)
		comm_dev_scatter_sum_f32(t->c, own, all, t->in);
	else
		t->m->k->copy(own, all, (size_t)t->R * sizeof(float));
}

/* The gradient of x through the inner products, added to dx. */
static void shared_dx(const struct model *m, const struct layer *l, struct mlp_grads *g, struct tp *t, void *dx)
{
	bool alone = t->c->size == 1;
	void *part = alone ? dx : m->moe->ds;   /* which has served */

	tp_linear_dx(t, part, g->gate, &l->sgate->matrix, alone);
	tp_linear_dx(t, part, g->act, &l->sup->matrix, true);
	tp_finish_dx(t, part);
	if (!alone)
		m->k->add(dx, dx, part, t->own * m->table.config.hidden, m->t);
}

/* Adds to dx. */
static void shared_backward(const struct model *m, const struct layer *l, struct mlp_acts *a, struct mlp_grads *g, struct tp *t,
			    void *dx, const void *dy, const void *x)
{
	const struct ops *k = m->k;
	struct moe *o = m->moe;
	long width = m->here.shared_intermediate, R = t->R;
	float *open = k->alloc((size_t)R * 8 + 4, "gates of a shared expert"), *dopen = open + R;
	const void *all = tp_gather(t, dy);

	open_of_all(open, t, a->open);
	k->linear_dx(g->act, m->t, all, &l->sdown->matrix, R, false);
	k->weigh_bwd(dopen, g->act, a->sact, NULL, open, R, 1, width, m->t);
	open_gradient(o->dweight, t, dopen);
	k->release(open);
	linear_gradient(m, l->sdown, NULL, all, a->sact, R);
	k->swiglu_bwd(g->gate, g->act, g->act, a->sgate, a->sup, R * width, m->t);
	all = tp_gather(t, x);
	linear_gradient(m, l->sgate, NULL, g->gate, all, R);
	linear_gradient(m, l->sup, NULL, g->act, all, R);
	shared_dx(m, l, g, t, dx);
	k->sigmoid_bwd(o->dz, o->dweight, a->open, t->own, m->t);
	linear_gradient(m, l->srouter, NULL, o->dz, x, t->own);
	k->linear_dx(dx, m->t, o->dz, &l->srouter->matrix, t->own, true);
}

static void expert_gradient(const struct model *m, struct weight *w, const void *dy, const void *x)
{
	const struct moe *o = m->moe;

	if (w->grad)
		m->k->grouped_dw(w->grad, dy, x, o->offset, o->routing.experts, w->expert->n, w->expert->k, m->t);
}

static void experts_backward(const struct model *m, const struct layer *l, struct mlp_acts *a, struct mlp_grads *g, long rows)
{
	const struct ops *k = m->k;
	struct moe *o = m->moe;
	long E = o->routing.experts, width = m->here.expert_intermediate;

	k->grouped_dx(g->act, m->t, o->ds, l->down->expert, o->offset, E, false);
	k->weigh_bwd(o->dweight, g->act, a->act, o->place, a->weight, rows, o->routing.k, width, m->t);
	expert_gradient(m, l->down, o->ds, a->act);
	k->swiglu_bwd(g->gate, g->act, g->act, a->gate, a->up, rows * o->routing.k * width, m->t);
	expert_gradient(m, l->gate, g->gate, o->xs);
	expert_gradient(m, l->up, g->act, o->xs);
	k->grouped_dx(o->o, DTYPE_F32, g->gate, l->gate->expert, o->offset, E, false);
	k->grouped_dx(o->o, DTYPE_F32, g->act, l->up->expert, o->offset, E, true);
}

/* The same where they lie over ranks, by places. */
static void far_experts_backward(const struct model *m, const struct layer *l, const struct mlp_acts *a, long slots)
{
	struct moe *o = m->moe;
	float *weight = m->k->alloc((size_t)slots * 8 + 4, "weights of slots"), *back = weight + slots;
	int *place = xmalloc((size_t)slots * sizeof(int) + 1);

	m->k->get(place, o->place, (size_t)slots * sizeof(int));
	m->k->rows_scatter(weight, a->weight, place, slots, sizeof(float));
	ep_backward(m, l, weight);
	m->k->copy(back, o->dweight, (size_t)slots * sizeof(float));
	m->k->rows_gather(o->dweight, back, place, slots, sizeof(float));
	m->k->release(weight);
	free(place);
}

void moe_backward(const struct model *m, const struct layer *l, struct mlp_acts *a, struct mlp_grads *g, struct tp *t, void *dx,
		  const void *dy, const void *x)
{
	const struct ops *k = m->k;
	const struct routing *s = &m->moe->routing;
	struct moe *o = m->moe;
	long rows = t->own, slots = rows * s->k, hidden = m->table.config.hidden;
	struct router_loss own;

	k->sort_slots(o->offset, o->from, o->place, a->id, rows, s);
	k->permute(o->xs, x, o->from, slots, hidden, m->t);
	k->permute(o->ds, dy, o->from, slots, hidden, m->t);
	if (ep_over_ranks(m))
		far_experts_backward(m, l, a, slots);
	else
		experts_backward(m, l, a, g, rows);
	k->unpermute(dx, o->o, o->place, rows, s->k, hidden, m->t);
	k->route_bwd(o->dz, o->dweight, a->id, a->weight, a->p, a->lse, router_losses(&own, m, l, a, rows), rows, s, m->t);
	linear_gradient(m, l->router, NULL, o->dz, x, rows);
	k->linear_dx(dx, m->t, o->dz, &l->router->matrix, rows, true);
	if (l->sgate)
		shared_backward(m, l, a, g, t, dx, dy, x);
}
