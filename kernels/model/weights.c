#include "kernels/model/inside.h"
#include "libcommon/xalloc.h"

#include <stdlib.h>
#include <string.h>

bool model_holds(const struct model *m, long i)
{
	const struct param *p = m->table.p + i;
	const struct layout *l = &m->mesh->layout;
	long at = m->mesh->at.pp;

	/* A tied embedding is the last stage's head as well. */
	return param_stage(p, l) == at || (p->kind == PARAM_EMBED && m->table.config.tied && at == l->pp - 1);
}

static bool is_trained(const struct model *m, long i)
{
	return (m->flags & MODEL_TRAIN) && m->table.p[i].role == ROLE_PARAM;
}

/* A matrix whose K this rank has a part of is summed in its part of the chunks, where those are whole. */
static long chunks_here(const struct param *p, const struct box *b)
{
	int last = p->rank - 1;

	if (b->extent[last] * p->chunks % p->shape[last])
		return 1;
	return b->extent[last] * p->chunks / p->shape[last];
}

void weight_matrices_init(struct model *m, long i)
{
	const struct param *p = m->table.p + i;
	struct weight *w = m->w + i;
	const struct box *b = m->box + i;
	bool train = m->flags & MODEL_TRAIN;

	if (!p->expert) {
		m->k->matrix_init(&w->matrix, m->t, b->extent[0], b->extent[1], chunks_here(p, b), train);
		return;
	}
	w->experts = b->extent[0];
	w->expert = xcalloc((size_t)w->experts, sizeof(*w->expert));
	for (long e = 0; e < w->experts; e++)
		m->k->matrix_init(w->expert + e, m->t, b->extent[1], b->extent[2], chunks_here(p, b), train);
}

void weight_matrices_load(const struct model *m, struct weight *w, const void *rows)
{
	if (w->matrix.n)
		m->k->matrix_load(&w->matrix, rows);
	for (long e = 0; e < w->experts; e++)
		m->k->matrix_load(w->expert + e,
				  (const char *)rows + (size_t)(e * w->expert->n * w->expert->k) * dtype_size(m->t));
}

void weight_matrices_release(const struct model *m, struct weight *w)
{
	if (w->matrix.n)
		m->k->matrix_release(&w->matrix);
	for (long e = 0; e < w->experts; e++)
		m->k->matrix_release(w->expert + e);
	free(w->expert);
}

static void weight_init(struct model *m, long i)
{
	const struct param *p = m->table.p + i;
	struct weight *w = m->w + i;
	struct box *b = m->box + i;
	size_t n;

	*b = param_box(p, &m->mesh->layout, &m->mesh->at);
	if (!model_holds(m, i))
		memset(b->extent, 0, sizeof(b->extent));
	n = (size_t)box_volume(b);
	if (!n)
		return;
	if (is_matrix(m, p))
		weight_matrices_init(m, i);
	if (is_trained(m, i) && param_stage(p, &m->mesh->layout) == m->mesh->at.pp)
		return; /* in an arena */
	if ((m->flags & MODEL_TRAIN) || !is_matrix(m, p) || (p->kind == PARAM_EMBED && m->mesh->at.pp == 0))
		w->value = m->k->alloc(n * dtype_size(m->t), p->name);
	if (is_trained(m, i))
		w->grad = m->k->alloc(n * 4, p->name);
	w->apart = true;
}

static void flat_memory(struct flat *f, const struct model *m)
{
	size_t all = (size_t)f->a.total, own = (size_t)f->a.n;

	f->value = m->k->alloc(all * dtype_size(m->t), "weights");
	f->grad = m->k->alloc(all * 4, "gradients");
	f->sum = f->comm->size == 1 ? f->grad : m->k->alloc(own * 4, "gradients of the own part");
	if (m->t == DTYPE_F32)
		f->master = (float *)(void *)f->value + f->a.first;
	else
		f->master = m->k->alloc(own * 4, "float32 masters");
	f->exp_avg = m->k->alloc(own * 4, "first moments");
	f->exp_avg_sq = m->k->alloc(own * 4, "second moments");
}

static void flat_init(struct flat *f, struct model *m, bool expert)
{
	shard_arena_init(&f->a, &m->table, &m->mesh->layout, &m->mesh->at, expert);
	f->comm = expert ? &m->mesh->edp : &m->mesh->grad;
	if (f->a.members != f->comm->size)
		bug("an arena of %ld among %d ranks", f->a.members, f->comm->size);
	if (!f->a.total)
		return;
	flat_memory(f, m);
	reduce_init(f, &m->table);
	for (long i = 0; i < f->a.params; i++) {
		const struct arena_part *p = f->a.whole + i;
		struct weight *w = m->w + p->param;

		w->value = f->value + (size_t)p->first * dtype_size(m->t);
		w->grad = f->grad + p->first;
	}
	for (long i = 0; i < f->a.parts; i++) {
		const struct arena_part *p = f->a.own + i;
		struct weight *w = m->w + p->param;
		long at = p->first - f->a.first;

		w->own = p->box;
		w->first = p->first - (w->grad - f->grad);
		w->n = p->n;
		w->sum = f->sum + (f->sum == f->grad ? p->first : at);
		w->master = f->master + at;
		w->exp_avg = f->exp_avg + at;
		w->exp_avg_sq = f->exp_avg_sq + at;
	}
}

static void flat_release(struct flat *f, const struct model *m)
{
	if (f->master != (float *)(void *)f->value + f->a.first)
		m->k->release(f->master);
	if (f->sum != f->grad)
		m->k->release(f->sum);
	m->k->release(f->value);
	m->k->release(f->grad);
	m->k->release(f->exp_avg);
	m->k->release(f->exp_avg_sq);
	reduce_release(f);
	shard_arena_release(&f->a);
}

/* Ranks of a TP group that are more than the kv heads hold copies of them, in groups. */
static void find_sharers(struct model *m)
{
	struct mesh *s = m->mesh;
	long which = 0, i = model_index(m, PARAM_K, 0);

	m->kv = (struct comm){ .size = 1 };
	if (s->tp.size == 1 || i < 0)
		return;
	param_copies(&which, m->table.p + i, &s->layout, &s->at);
	comm_split(&m->kv, &s->tp, (int)(s->at.tp - which), 0, "kv");
}

void weights_init(struct model *m)
{
	m->w = xcalloc((size_t)m->table.n, sizeof(*m->w));
	m->box = xcalloc((size_t)m->table.n, sizeof(*m->box));
	for (long i = 0; i < m->table.n; i++)
		weight_init(m, i);
	find_sharers(m);
	if (!(m->flags & MODEL_TRAIN))
		return;
	flat_init(&m->flat[0], m, false);
	flat_init(&m->flat[1], m, true);
	reduce_begin(m);
}

void weights_release(struct model *m)
{
	for (long i = 0; m->w && i < m->table.n; i++) {
		struct weight *w = m->w + i;

		if (w->apart) {
			m->k->release(w->value);
			m->k->release(w->grad);
		}
		weight_matrices_release(m, w);
	}
	for (int i = 0; i < 2; i++)
		flat_release(&m->flat[i], m);
	if (m->w)
		comm_release(&m->kv);
	free(m->w);
	free(m->box);
}

void model_set(struct model *m, long i, const void *values, enum dtype from)
{
	struct weight *w = m->w + i;
	size_t n = (size_t)box_volume(m->box + i), bytes = n * dtype_size(m->t);
	void *rounded, *loaded = w->value;

	if (!n)
		return;
	rounded = xmalloc(bytes);
	dtype_convert(rounded, m->t, values, from, n);
	if (!loaded)
		loaded = m->k->alloc(bytes, m->table.p[i].name);
	m->k->put(loaded, rounded, bytes);
	weight_matrices_load(m, w, loaded);
	if (loaded != w->value)
		m->k->release(loaded);
	free(rounded);
	if (w->n && m->t != DTYPE_F32) {
		float *f = xmalloc((size_t)w->n * 4);

		dtype_convert(f, DTYPE_F32, (const char *)values + (size_t)w->first * dtype_size(from), from, (size_t)w->n);
		m->k->put(w->master, f, (size_t)w->n * 4);
		free(f);
	}
}

void model_set_optimizer(struct model *m, long i, const float *master, const float *exp_avg, const float *exp_avg_sq)
{
	struct weight *w = m->w + i;
	size_t bytes = (size_t)w->n * 4;

	if (!bytes)
		return;
	if (master)
		m->k->put(w->master, master, bytes);
	if (exp_avg)
		m->k->put(w->exp_avg, exp_avg, bytes);
	if (exp_avg_sq)
		m->k->put(w->exp_avg_sq, exp_avg_sq, bytes);
}

void model_get(const struct model *m, long i, void *out)
{
	m->k->get(out, m->w[i].value, (size_t)box_volume(m->box + i) * dtype_size(m->t));
}
