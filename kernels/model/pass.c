#include "kernels/model/pass.h"

#include "kernels/model/moe.h"
#include "libcommon/xalloc.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct part { void **p; size_t bytes; };

/* With memory NULL it only counts. */
static size_t carve_parts(const struct part *part, size_t n, char *memory)
{
	size_t at = 0;

	for (size_t i = 0; i < n; i++) {
		if (memory)
			*part[i].p = memory + at;
		at += line_up(part[i].bytes);
	}
	return at;
}

static size_t carve_work(struct pass_work *w, const struct model *m, long max_rows, bool keep, enum recompute recompute, char *memory)
{
	long rows = cp_most(&m->mesh->cp, max_rows), own = tp_most(m, rows, true), d = m->table.config.head_dim;
	size_t e = dtype_size(m->t), at, r = (size_t)rows, b = m->mesh->cp.size > 1 ? (size_t)max_rows : 0;
	size_t h = (size_t)(own * m->table.config.hidden) * e, q = (size_t)(m->here.heads * d), kv = (size_t)(m->here.kv_heads * d);
	bool lean = pass_is_lean(keep, recompute);
	struct part part[] = {
		{ &w->dx, keep ? h : 0 }, { &w->dh, keep ? h : 0 }, { &w->dmid, keep ? r * q * e : 0 }, { &w->dq, keep ? r * q * e : 0 },
		{ &w->dk, keep ? r * kv * e : 0 }, { &w->dv, keep ? r * kv * e : 0 },
		{ &w->kall, b * kv * e }, { &w->vall, b * kv * e }, { &w->stage, keep ? 0 : b * kv * e },
		{ (void **)&w->dkall, keep ? b * kv * 4 : 0 }, { (void **)&w->dvall, keep ? b * kv * 4 : 0 },
		{ (void **)&w->dkv, keep && b ? r * kv * 4 : 0 },
		{ &w->h, lean ? h : 0 }, { &w->act, lean && !m->moe ? r * (size_t)m->here.intermediate * e : 0 },
	};

	at = carve_parts(part, sizeof(part) / sizeof(*part), memory);
	if (keep) {
		w->stage = w->dkall;
		at += mlp_carve_grads(&w->mlp, m, rows, own, memory ? memory + at : NULL);
	}
	if (!keep || recompute == RECOMPUTE_LAYERS)
		at += acts_carve(&w->acts, m, rows, own, false, memory ? memory + at : NULL);
	at += head_carve(w, m, rows, keep, memory ? memory + at : NULL);
	return at + tp_carve(&w->tp, m, rows, true, memory ? memory + at : NULL);
}

static size_t carve_pass(struct pass *p, const struct model *m, long max_rows, bool keep, enum recompute recompute, char *memory)
{
	long rows = cp_most(&m->mesh->cp, max_rows), own = tp_most(m, rows, true), layers = p->layers;
	long nx = keep ? layers + 1 : 2, nacts = keep && recompute != RECOMPUTE_LAYERS ? layers : 0;
	size_t h = (size_t)(own * m->table.config.hidden) * dtype_size(m->t);
	struct part part[] = { { &p->hidden, p->last ? h : 0 }, { (void **)&p->rstd, (size_t)own * 4 } };
	size_t at = carve_parts(part, sizeof(part) / sizeof(*part), memory);

	for (long i = 0; i < nx; i++, at += line_up(h))
		for (long l = i; memory && l <= layers; l += nx)
			p->x[l] = memory + at;
	for (long i = 0; i < nacts; i++) {
		struct acts *a = memory ? p->acts + i : NULL;

		at += acts_carve(a, m, rows, own, pass_is_lean(keep, recompute), memory ? memory + at : NULL);
		if (a && pass_is_lean(keep, recompute)) {
			a->h1 = a->h2 = p->work->h;
			a->mlp.act = m->moe ? a->mlp.act : p->work->act;
		}
	}
	return at;
}

/* The layers of this stage in a turn, and what is before and behind them. */
static void find_layers(struct pass *p, const struct model *m, long turn)
{
	const struct layout *l = &m->mesh->layout;

	for (long i = 0; i < l->layers; i++)
		if (layout_stage(l, i) == m->mesh->at.pp && layout_turn(l, i) == turn) {
			if (!p->layers)
				p->layer_first = i;
			p->layers++;
		}
	p->first = m->here.first && turn == 0;
	p->last = m->here.last && turn == layout_turns(l) - 1;
}

size_t pass_more_bytes(const struct model *m, long max_rows, bool keep, enum recompute recompute)
{
	size_t most = 0;

	for (long turn = 0; turn < layout_turns(&m->mesh->layout); turn++) {
		struct pass none = { 0 };
		size_t n;

		find_layers(&none, m, turn);
		n = carve_pass(&none, m, max_rows, keep, recompute, NULL);
		most = n > most ? n : most;
	}
	return most;
}

size_t pass_bytes(const struct model *m, long max_rows, bool keep, enum recompute recompute)
{
	struct pass_work none = { 0 };

	return carve_work(&none, m, max_rows, keep, recompute, NULL) + pass_more_bytes(m, max_rows, keep, recompute) +
	       moe_bytes(m, tp_most(m, cp_most(&m->mesh->cp, max_rows), true));
}

static struct pass_work *work_new(const struct model *m, long max_rows, bool keep, enum recompute recompute)
{
	struct pass_work *w = xcalloc(1, sizeof(*w));

	tp_init(&w->tp, m, true);
	w->memory = m->k->alloc(carve_work(w, m, max_rows, keep, recompute, NULL), "activations");
	carve_work(w, m, max_rows, keep, recompute, w->memory);
	head_init(w, m, cp_most(&m->mesh->cp, max_rows));
	return w;
}

static struct pass *new_with(struct pass_work *w, struct model *m, long max_rows, bool keep, enum recompute recompute, long turn)
{
	struct pass *p = xcalloc(1, sizeof(*p));
	size_t rows = (size_t)cp_most(&m->mesh->cp, max_rows) + 1;

	if (keep && !(m->flags & MODEL_TRAIN))
		bug("a backward pass of a model that only infers");
	*p = (struct pass){ .m = m, .max_rows = max_rows, .keep = keep, .recompute = recompute, .work = w };
	w->users++;
	find_layers(p, m, turn);
	p->acts = xcalloc((size_t)p->layers + 1, sizeof(*p->acts));
	p->x = xcalloc((size_t)p->layers + 1, sizeof(*p->x));
	p->memory = m->k->alloc(carve_pass(p, m, max_rows, keep, recompute, NULL), "activations");
	carve_pass(p, m, max_rows, keep, recompute, p->memory);
	cp_init(&p->cp, &m->mesh->cp, max_rows);
	p->ids = xmalloc(rows * sizeof(int));
	p->target = xmalloc(rows * sizeof(int));
	p->picked = xmalloc(rows * sizeof(int));
	p->lp = xmalloc(rows * sizeof(float));
	p->lse = xmalloc(rows * sizeof(float));
	p->entropy = xmalloc(rows * sizeof(float));
	p->dlp = xmalloc(rows * sizeof(float));
	p->stage = xmalloc(((size_t)max_rows + 1) * sizeof(float));
	return p;
}

struct pass *pass_new(struct model *m, long max_rows, bool keep, enum recompute recompute)
{
	return new_with(work_new(m, max_rows, keep, recompute), m, max_rows, keep, recompute, 0);
}

struct pass *pass_beside(struct pass *p, long turn)
{
	return new_with(p->work, p->m, p->max_rows, p->keep, p->recompute, turn);
}

static void work_free(struct pass_work *w, const struct model *m)
{
	if (--w->users)
		return;
	m->k->release(w->memory);
	tp_release(&w->tp);
	head_release(w);
	free(w);
}

void pass_free(struct pass *p)
{
	void *owned[] = { p->acts, p->x, p->ids, p->target, p->picked, p->lp, p->lse, p->entropy, p->dlp, p->stage,
			  p->experts };

	pass_wait_sent(p);
	p->m->k->release(p->memory);
	work_free(p->work, p->m);
	cp_release(&p->cp);
	for (size_t i = 0; i < sizeof(owned) / sizeof(*owned); i++)
		free(owned[i]);
	free(p);
}

static void take_experts(struct pass *p, const struct batch *b)
{
	size_t row = (size_t)model_experts_per_row(p->m) * sizeof(int);

	free(p->experts);
	p->experts = b->experts && row ? xmalloc((size_t)p->cp.own * row + 1) : NULL;
	if (p->experts)
		cp_pick(&p->cp, p->experts, b->experts, row);
}

static void take_batch(struct pass *p, const struct batch *b)
{
	if (b->rows > p->max_rows || b->nseq > b->rows || b->cu[0] || b->cu[b->nseq] != b->rows)
		bug("a batch of %ld rows in %ld sequences, room for %ld", b->rows, b->nseq, p->max_rows);
	for (long s = 0; s < b->nseq; s++)
		if (b->cu[s + 1] - b->cu[s] > p->m->positions)
			bug("a sequence of %ld tokens, the model has %ld positions", b->cu[s + 1] - b->cu[s], p->m->positions);
	cp_plan(&p->cp, b);
	cp_pick(&p->cp, p->ids, b->ids, sizeof(int));
	take_experts(p, b);
	tp_rows(&p->work->tp, p->cp.own);
}

struct acts *pass_acts(struct pass *p, long i)
{
	struct acts *a = pass_one_acts(p) ? &p->work->acts : p->acts + i;

	a->x = p->x[i];
	return a;
}

void pass_layer(struct pass *p, long i, void *out)
{
	const struct model *m = p->m;
	struct pass_work *w = p->work;
	struct acts *a = pass_acts(p, i);
	const struct layer *l = m->layer + p->layer_first + i;
	size_t kv = (size_t)(m->here.kv_heads * m->table.config.head_dim) * dtype_size(m->t);
	const void *k, *v;

	moe_give(m, p->experts ? p->experts + w->tp.first * model_experts_per_row(m) : NULL, NULL);
	layer_before(m, l, a, &w->tp, p->cp.position, p->keep);
	k = cp_gather(&p->cp, m->k, w->kall, a->k, w->stage, kv);
	v = cp_gather(&p->cp, m->k, w->vall, a->v, w->stage, kv);
	m->k->attention_fwd(a->att, p->keep ? a->lse : NULL, a->q, k, v, p->cp.piece, p->cp.pieces, &m->attention, m->t);
	layer_after(m, l, a, &w->tp, out, p->keep);
}

void pass_wait_sent(struct pass *p)
{
	if (p->sending)
		comm_dev_wait(p->sending, &p->sent);
	p->sending = NULL;
}

void pass_forward(struct pass *p, const struct batch *b)
{
	struct model *m = p->m;
	const struct model_config *c = &m->table.config;
	struct tp *tp = &p->work->tp;
	struct comm *pp = &m->mesh->pp;
	struct comm_request q;

	pass_wait_sent(p);
	take_batch(p, b);
	size_t bytes = (size_t)(tp->own * c->hidden) * dtype_size(m->t);
	if (p->first) {
		tp_embed(tp, p->x[0], model_weight(m, PARAM_EMBED, -1), p->ids);
	} else {
		comm_dev_recv(pp, &q, p->x[0], bytes, (pp->rank + pp->size - 1) % pp->size);
		comm_dev_wait(pp, &q);
	}
	for (long i = 0; i < p->layers; i++)
		pass_layer(p, i, p->x[i + 1]);
	if (p->last) {
		m->k->rmsnorm_fwd(p->hidden, p->keep ? p->rstd : NULL, p->x[p->layers],
				  model_weight(m, PARAM_FINAL_NORM, -1)->value, tp->own, c->hidden, (float)c->rms_eps, m->t);
	} else {
		comm_dev_send(pp, &p->sent, p->x[p->layers], bytes, (pp->rank + 1) % pp->size);
		p->sending = pp;
	}
}
