#include "kernels/model/pass.h"

#include <string.h>

static void mlp_block_backward(struct pass *p, const struct layer *l, struct acts *a)
{
	const struct model *m = p->m;
	struct pass_work *w = p->work;
	long H = m->table.config.hidden;

	if (pass_is_lean(p->keep, p->recompute)) {
		m->k->rmsnorm_fwd(a->h2, NULL, a->x2, l->norm2->value, w->tp.own, H,
				  (float)m->table.config.rms_eps, m->t);
		if (!m->moe)
			m->k->swiglu_fwd(a->mlp.act, a->mlp.gate, a->mlp.up,
					 w->tp.R * m->here.intermediate, m->t);
	}
	mlp_backward(m, l, &a->mlp, &w->mlp, &w->tp, w->dh, w->dx, a->h2);
	m->k->rmsnorm_bwd(w->dx, l->norm2->grad, w->dh, a->x2, l->norm2->value, a->rstd2, w->tp.own,
			  H, true, m->t);
}

/*
 * dk, dv of the own rows, of type t, from those that all ranks of the CP group have for the whole
 * batch.  Keys and values have served, and together are as large as a stage of fp32.
 */
static void sum_over_cp(struct pass *p, long n)
{
	static const long one[] = { 0, 1 };
	const struct tree_cut whole = { 1, one };
	struct pass_work *w = p->work;

	for (int i = 0; i < 2; i++) {
		cp_scatter_sum(&p->cp, p->m->k, w->dkv, i ? w->dvall : w->dkall, w->kall, n);
		p->m->k->linear_join(i ? w->dv : w->dk, p->m->t, w->dkv, &whole, NULL, p->cp.own,
				     n);
	}
}

static void attention_core_backward(struct pass *p, struct acts *a)
{
	const struct model *m = p->m;
	struct pass_work *w = p->work;
	long n = m->here.kv_heads * m->table.config.head_dim;
	size_t kv = (size_t)n * dtype_size(m->t);
	bool over_cp = p->cp.c->size > 1;
	const void *k = cp_gather(&p->cp, m->k, w->kall, a->k, w->stage, kv),
		   *v = cp_gather(&p->cp, m->k, w->vall, a->v, w->stage, kv);

	m->k->attention_bwd(w->dq, over_cp ? w->dkall : w->dk, over_cp ? w->dvall : w->dv,
			    over_cp ? DTYPE_F32 : m->t, w->dmid, a->att, a->lse, a->q, k, v,
			    p->cp.piece, p->cp.pieces, &m->attention, m->t);
	if (over_cp)
		sum_over_cp(p, n);
}

/* From dq, dk, dv in the work: through RoPE and the per-head norms to where they were projected. */
static void heads_backward(struct pass *p, const struct layer *l, struct acts *a, void **dq,
			   void **dk)
{
	const struct model *m = p->m;
	const struct ops *k = m->k;
	struct pass_work *w = p->work;
	long R = w->tp.R, d = m->table.config.head_dim, q = m->here.heads, kv = m->here.kv_heads;

	k->rope(w->dq, p->cp.position, m->cos, m->sin, R, q, d, true, m->t);
	k->rope(w->dk, p->cp.position, m->cos, m->sin, R, kv, d, true, m->t);
	*dq = w->dq;
	*dk = w->dk;
	if (!m->table.config.qk_norm)
		return;
	/* a->q and a->k have served: they hold the gradients before the norm. */
	k->rmsnorm_bwd(a->q, l->qn->grad, w->dq, a->q0, l->qn->value, a->rstdq, R * q, d, false,
		       m->t);
	k->rmsnorm_bwd(a->k, l->kn->grad, w->dk, a->k0, l->kn->value, a->rstdk, R * kv, d, false,
		       m->t);
	*dq = a->q;
	*dk = a->k;
}

static void attention_backward(struct pass *p, const struct layer *l, struct acts *a)
{
	const struct model *m = p->m;
	const struct ops *k = m->k;
	struct pass_work *w = p->work;
	struct tp *tp = &w->tp;
	const void *dy = tp_gather(tp, w->dx), *h;
	void *dq, *dk;

	linear_gradient(m, l->o, NULL, dy, a->att, tp->R);
	if (l->ob && l->ob->grad)
		k->linear_dw(NULL, l->ob->grad, w->dx, NULL, tp->own, m->table.config.hidden, 0,
			     m->t);
	k->linear_dx(w->dmid, m->t, dy, &l->o->matrix, tp->R, false);
	attention_core_backward(p, a);
	heads_backward(p, l, a, &dq, &dk);
	if (pass_is_lean(p->keep, p->recompute))
		k->rmsnorm_fwd(a->h1, NULL, a->x, l->norm1->value, tp->own, m->table.config.hidden,
			       (float)m->table.config.rms_eps, m->t);
	h = tp_gather(tp, a->h1);
	linear_gradient(m, l->q, l->qb, dq, h, tp->R);
	linear_gradient(m, l->k, l->kb, dk, h, tp->R);
	linear_gradient(m, l->v, l->vb, w->dv, h, tp->R);
	tp_linear_dx(tp, w->dh, dq, &l->q->matrix, false);
	tp_linear_dx(tp, w->dh, dk, &l->k->matrix, true);
	tp_linear_dx(tp, w->dh, w->dv, &l->v->matrix, true);
	tp_finish_dx(tp, w->dh);
	k->rmsnorm_bwd(w->dx, l->norm1->grad, w->dh, a->x, l->norm1->value, a->rstd1, tp->own,
		       m->table.config.hidden, true, m->t);
}

/* The gradient of the stage's output, into work->dx. */
static void begin(struct pass *p, const float *dlp)
{
	struct model *m = p->m;
	struct pass_work *w = p->work;
	struct comm *pp = &m->back;
	struct comm_request q;
	long H = m->table.config.hidden;

	if (p->last) {
		struct weight *norm = model_weight(m, PARAM_FINAL_NORM, -1);

		cp_pick(&p->cp, p->dlp, dlp, sizeof(*dlp));
		head_backward(p);
		m->k->rmsnorm_bwd(w->dx, norm->grad, w->dh, p->x[p->layers], norm->value, p->rstd,
				  w->tp.own, H, false, m->t);
		return;
	}
	comm_dev_recv(pp, &q, w->dx, (size_t)(w->tp.own * H) * dtype_size(m->t),
		  (pp->rank + 1) % pp->size);
	comm_dev_wait(pp, &q);
}

void pass_backward(struct pass *p, const float *dlp)
{
	struct model *m = p->m;
	struct pass_work *w = p->work;
	struct weight *embed = model_weight(m, PARAM_EMBED, -1);

	if (!p->keep)
		bug("a backward pass without kept activations");
	pass_wait_sent(p);
	tp_rows(&w->tp, p->cp.own);
	begin(p, dlp);
	for (long i = p->layers - 1; i >= 0; i--) {
		const struct layer *l = m->layer + p->layer_first + i;

		/* The output is known already and only has to go somewhere. */
		if (p->recompute == RECOMPUTE_LAYERS)
			pass_layer(p, i, w->dh);
		mlp_block_backward(p, l, pass_acts(p, i));
		attention_backward(p, l, pass_acts(p, i));
		layer_ready(m, p->layer_first + i);
	}
	if (!p->first) {
		size_t bytes = (size_t)(w->tp.own * m->table.config.hidden) * dtype_size(m->t);

		/* x[0] has served; dx is needed by the next pass before this has left. */
		m->k->copy(p->x[0], w->dx, bytes);
		comm_dev_send(&m->back, &p->sent, p->x[0], bytes,
			  (m->back.rank + m->back.size - 1) % m->back.size);
		p->sending = &m->back;
	} else if (embed->grad) {
		tp_embed_bwd(&w->tp, embed, w->dx, p->ids);
	}
}
