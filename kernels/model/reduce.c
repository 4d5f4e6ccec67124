#include "kernels/model/inside.h"
#include "libcommon/xalloc.h"

#include <stdlib.h>

/*
 * Sums of gradients over ranks.  An arena goes in chunks of whole layers from its end to its beginning, which is the order in
 * which the last backward pass makes them whole: the sum of a chunk is under way while the layers below it are still at work.
 * Every rank starts the same chunks in the same order, also one that had no pass; a sum has the same bits in any chunk.
 */
enum { CHUNKS = 8, CHUNK_LEAST = 4096 };

void reduce_init(struct flat *f, const struct param_table *t)
{
	long least = f->a.total / CHUNKS > CHUNK_LEAST ? f->a.total / CHUNKS : CHUNK_LEAST, end = f->a.total;

	f->chunk = xcalloc((size_t)f->a.params + 1, sizeof(*f->chunk));
	for (long i = f->a.params - 1; i >= 0; i--) {
		const struct arena_part *p = f->a.whole + i;
		bool begins = !i || t->p[p->param].layer != t->p[p[-1].param].layer;

		if (i && (!begins || end - p->first < least))
			continue;
		f->chunk[f->chunks++] = (struct chunk){ .param = p->param, .first = p->first, .n = end - p->first };
		end = p->first;
	}
}

void reduce_release(struct flat *f)
{
	free(f->chunk);
}

static void start(struct flat *f, struct chunk *c)
{
	size_t *count = xcalloc((size_t)f->a.members, sizeof(*count));
	long at = 0, own = c->first > f->a.first ? c->first - f->a.first : 0;

	for (long i = 0; i < f->a.members; i++) {
		long first = at > c->first ? at : c->first, end = at + (long)f->a.count[i];

		end = end < c->first + c->n ? end : c->first + c->n;
		count[i] = end > first ? (size_t)(end - first) : 0;
		at += (long)f->a.count[i];
	}
	comm_dev_scatter_sum_start(f->comm, &c->request, f->sum + (own < f->a.n ? own : 0), f->grad + c->first, count);
	free(count);
}

/* The ranks beside this one in its TP (ETP) group that have a part of the gradient's sum; one rank: none have. */
static struct comm *partners(struct model *m, const struct param *p)
{
	bool partial = p->tp_grad == GRAD_PARTIAL || (p->tp_grad == GRAD_SAME && (m->flags & MODEL_SEQUENCE));

	if (p->tp_axis < 0 && partial)
		return p->expert ? &m->mesh->etp : &m->mesh->tp;
	switch (p->kind) {
	case PARAM_K: case PARAM_V: case PARAM_K_BIAS: case PARAM_V_BIAS:
		return &m->kv;
	default:
		return NULL;
	}
}

static void sum_partners(struct model *m, long i)
{
	const struct param *p = m->table.p + i;
	struct comm *c = partners(m, p);
	size_t n = (size_t)box_volume(m->box + i);

	if (!m->w[i].grad)
		return;
	if (c && c->size > 1)
		comm_dev_sum_f32(c, m->w[i].grad, n);
	if (p->kind == PARAM_EMBED && m->table.config.tied && m->mesh->ends.size > 1)
		comm_dev_sum_f32(&m->mesh->ends, m->w[i].grad, n);
}

/* Parameters from number `from` of the table on have their whole gradient of this rank. */
static void ready(struct model *m, long from)
{
	while (m->reduced > from)
		sum_partners(m, --m->reduced);
	for (int i = 0; i < 2; i++) {
		struct flat *f = m->flat + i;

		for (; f->sum != f->grad && f->started < f->chunks && f->chunk[f->started].param >= from; f->started++)
			start(f, f->chunk + f->started);
	}
}

void reduce_begin(struct model *m)
{
	m->last_backward = false;
	m->reduced = m->table.n;
	m->flat[0].started = m->flat[1].started = 0;
}

void model_last_backward(struct model *m)
{
	m->last_backward = true;
}

void layer_ready(struct model *m, long layer)
{
	if (m->last_backward)
		ready(m, m->table.layer_at[layer]);
}

/*
 * A rank without a pass goes through the layers too: sums of experts and of all else begin in one order on all ranks.
 */
void model_reduce_start(struct model *m)
{
	if (!(m->flags & MODEL_TRAIN))
		bug("gradients of a model that only infers");
	for (long layer = m->table.config.layers; layer-- > 0;)
		ready(m, m->table.layer_at[layer]);
	ready(m, 0);
}

void model_reduce_grad(struct model *m)
{
	model_reduce_start(m);
	for (int i = 0; i < 2; i++)
		for (long k = 0; k < m->flat[i].started; k++)
			comm_dev_wait(m->flat[i].comm, &m->flat[i].chunk[k].request);
	reduce_begin(m);
}
