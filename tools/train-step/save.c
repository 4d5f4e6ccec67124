#include "tools/train-step/train.h"

#include "libcommon/xalloc.h"

#include <stdlib.h>
#include <string.h>

/* float32 on disk is the master itself; otherwise the weights have the type that was computed with, and the master lies beside. */
static enum dtype stored_dtype(const struct saving *s, const struct param *p)
{
	const char *said = recipe_str(s->t->r, "cairn.checkpoint_dtype");
	long i = checkpoint_find(s->parent, p->name, SLOT_WEIGHT);

	if (!strcmp(said, "float32") || s->t->m->t == DTYPE_F32)
		return DTYPE_F32;
	if (!strcmp(said, "keep") && s->parent->tensor[i].dtype == DTYPE_F32)
		return DTYPE_F32;
	return DTYPE_BF16;
}

static struct checkpoint_tensor describe(const struct param *p, enum slot slot, enum dtype t)
{
	struct checkpoint_tensor c = { .name = p->name, .slot = slot, .role = p->role, .dtype = t, .rank = p->rank };

	memcpy(c.shape, p->shape, sizeof(c.shape));
	return c;
}

/* What is written: the tensors, their pieces and who writes each (file = rank). */
struct plan {
	struct checkpoint_tensor *tensor;
	struct checkpoint_piece *piece;
	long n, pieces, piece_cap;
	long (*slot)[SLOT_COUNT];       /* of each parameter: index of its tensor, or -1 */
};

static void add_piece(struct plan *p, long tensor, long rank, const struct box *b)
{
	GROW(p->piece, p->pieces, p->piece_cap);
	p->piece[p->pieces++] = (struct checkpoint_piece){ tensor, (int)rank, *b };
}

/* float32 weights of a model that computes in bfloat16 are the masters, which lie as the optimizer's state does. */
static bool stores_master(const struct saving *s, long i)
{
	const struct model *m = s->t->m;

	return m->t != DTYPE_F32 && m->table.p[i].role == ROLE_PARAM && stored_dtype(s, m->table.p + i) == DTYPE_F32;
}

/* Parameters and their slots. */
static void plan_tensors(struct plan *p, const struct saving *s)
{
	const struct param_table *t = &s->t->m->table;

	p->tensor = xcalloc((size_t)(4 * t->n + s->parent->n), sizeof(*p->tensor));
	p->slot = xcalloc((size_t)t->n + 1, sizeof(*p->slot));
	for (long i = 0; i < t->n; i++) {
		enum dtype w = stored_dtype(s, t->p + i);

		for (int k = 0; k < SLOT_COUNT; k++)
			p->slot[i][k] = -1;
		for (int k = SLOT_WEIGHT; k <= SLOT_EXP_AVG_SQ; k++) {
			if (k != SLOT_WEIGHT && t->p[i].role != ROLE_PARAM)
				continue;
			if (k == SLOT_MASTER && w == DTYPE_F32)
				continue;
			p->slot[i][k] = p->n;
			p->tensor[p->n++] = describe(t->p + i, (enum slot)k, k == SLOT_WEIGHT ? w : DTYPE_F32);
		}
	}
}

static void plan_pieces(struct plan *p, const struct saving *s)
{
	const struct model *m = s->t->m;
	struct shard_pieces w, o;

	shard_weights(&w, &m->table, &m->mesh->layout);
	shard_optimizer(&o, &m->table, &m->mesh->layout);
	for (long i = 0; i < w.n; i++)
		if (!stores_master(s, w.piece[i].param))
			add_piece(p, p->slot[w.piece[i].param][SLOT_WEIGHT], w.piece[i].rank, &w.piece[i].box);
	for (long i = 0; i < o.n; i++)
		for (int k = stores_master(s, o.piece[i].param) ? SLOT_WEIGHT : SLOT_MASTER; k < SLOT_COUNT; k++)
			if (p->slot[o.piece[i].param][k] >= 0)
				add_piece(p, p->slot[o.piece[i].param][k], o.piece[i].rank, &o.piece[i].box);
	shard_pieces_release(&w);
	shard_pieces_release(&o);
}

/* What is only carried along is dealt out whole. */
static void plan_carried(struct plan *p, const struct saving *s)
{
	long n = 0;

	for (long i = 0; i < s->parent->n; i++) {
		const struct checkpoint_tensor *t = s->parent->tensor + i;
		struct box b = box_whole(t->shape, t->rank);

		if (t->slot != SLOT_WEIGHT || param_find(&s->t->m->table, t->name))
			continue;
		if (box_volume(&b))
			add_piece(p, p->n, n++ % s->t->m->mesh->world.size, &b);
		p->tensor[p->n++] = *t;
	}
}

static void plan_release(struct plan *p)
{
	free(p->tensor);
	free(p->piece);
	free(p->slot);
}

/* n floats of the backend's memory that are box b of a slot. */
static int put_state(struct checkpoint_writer *w, const struct model *m, long tensor, const struct box *b, const float *from, long n,
		     struct err *e)
{
	float *f = xmalloc((size_t)n * sizeof(*f));
	int rc;

	m->k->get(f, from, (size_t)n * sizeof(*f));
	rc = checkpoint_put(w, tensor, b, f, e);
	free(f);
	return rc;
}

static int put_weight(struct checkpoint_writer *w, const struct model *m, long tensor, long i, struct err *e)
{
	void *low = xmalloc((size_t)box_volume(m->box + i) * dtype_size(m->t));
	int rc;

	model_get(m, i, low);
	rc = checkpoint_put(w, tensor, m->box + i, low, e);
	free(low);
	return rc;
}

/* Of what this rank has, the writer takes what this rank writes. */
static int put_param(struct checkpoint_writer *w, const struct plan *p, const struct saving *s, long i, struct err *e)
{
	const struct model *m = s->t->m;
	const struct weight *x = m->w + i;
	const float *const from[SLOT_COUNT] = {
		[SLOT_WEIGHT] = x->master, [SLOT_MASTER] = x->master, [SLOT_EXP_AVG] = x->exp_avg, [SLOT_EXP_AVG_SQ] = x->exp_avg_sq
	};
	bool master = stores_master(s, i);

	if (!master && box_volume(m->box + i) && put_weight(w, m, p->slot[i][SLOT_WEIGHT], i, e))
		return -1;
	for (int k = master ? SLOT_WEIGHT : SLOT_MASTER; k < SLOT_COUNT && x->n; k++)
		if (p->slot[i][k] >= 0 && put_state(w, m, p->slot[i][k], &x->own, from[k], x->n, e))
			return -1;
	return 0;
}

static int put_carried(struct checkpoint_writer *w, const struct plan *p, const struct saving *s, struct err *e)
{
	for (long i = 0; i < p->pieces; i++) {
		const struct checkpoint_piece *x = p->piece + i;
		const struct checkpoint_tensor *t = p->tensor + x->tensor;
		void *raw;
		int rc;

		if (x->file != s->t->m->mesh->world.rank || param_find(&s->t->m->table, t->name))
			continue;
		raw = xmalloc((size_t)box_volume(&x->box) * dtype_size(t->dtype));
		rc = checkpoint_read(raw, s->source, checkpoint_find(s->source, t->name, SLOT_WEIGHT), NULL, e) ||
		     checkpoint_put(w, x->tensor, NULL, raw, e);
		free(raw);
		if (rc)
			return -1;
	}
	return 0;
}

static int put_all(struct checkpoint_writer *w, const struct plan *p, const struct saving *s, struct err *e)
{
	for (long i = 0; i < s->t->m->table.n; i++)
		if (put_param(w, p, s, i, e))
			return -1;
	if (put_carried(w, p, s, e) || checkpoint_copy_side(w, s->parent, NULL, e))
		return -1;
	return checkpoint_put_file(w, "metrics.json", s->metrics, strlen(s->metrics), e);
}

void save_checkpoint(const struct saving *s)
{
	struct mesh *mesh = s->t->m->mesh;
	struct checkpoint_meta meta = {
		.head = s->parent->head, .optimizer = "adamw", .precision = dtype_name(s->t->m->t), .counters = s->t->counters,
		.cursor = s->cursor, .fingerprint = s->fingerprint, .history = s->history,
		.layout = mesh->world.size > 1 ? &mesh->layout : NULL,
	};
	struct checkpoint_writer *w;
	struct plan p = { 0 };
	struct err e = ERR_INIT;

	plan_tensors(&p, s);
	plan_pieces(&p, s);
	plan_carried(&p, s);
	if (checkpoint_create(&w, s->dir, &meta, p.tensor, p.n, p.piece, p.pieces, &mesh->world, &e))
		die_err(&e);
	if (comm_agree(&mesh->world, put_all(w, &p, s, &e), &e)) {
		checkpoint_abort(w);
		die_err(&e);
	}
	if (checkpoint_commit(w, &e))
		die_err(&e);
	plan_release(&p);
}
