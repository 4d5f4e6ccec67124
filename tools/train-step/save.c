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

/* All that the new checkpoint holds: parameters, their slots, and what is only carried along. */
static long list_tensors(struct checkpoint_tensor **out, const struct saving *s)
{
	const struct param_table *t = &s->t->m->table;
	struct checkpoint_tensor *c = xcalloc((size_t)(4 * t->n + s->parent->n), sizeof(*c));
	long n = 0;

	for (long i = 0; i < t->n; i++) {
		const struct param *p = t->p + i;
		enum dtype w = stored_dtype(s, p);

		c[n++] = describe(p, SLOT_WEIGHT, w);
		if (!s->t->m->w[i].grad)
			continue;
		if (w != DTYPE_F32)
			c[n++] = describe(p, SLOT_MASTER, DTYPE_F32);
		c[n++] = describe(p, SLOT_EXP_AVG, DTYPE_F32);
		c[n++] = describe(p, SLOT_EXP_AVG_SQ, DTYPE_F32);
	}
	for (long i = 0; i < s->parent->n; i++)
		if (s->parent->tensor[i].slot == SLOT_WEIGHT && !param_find(t, s->parent->tensor[i].name))
			c[n++] = s->parent->tensor[i];
	*out = c;
	return n;
}

static void put(struct checkpoint_writer *w, const char *name, enum slot slot, const void *p)
{
	struct err e = ERR_INIT;

	if (checkpoint_put(w, checkpoint_index(w, name, slot), NULL, p, &e)) {
		checkpoint_abort(w);
		die_err(&e);
	}
}

static void put_param(struct checkpoint_writer *w, const struct saving *s, long i)
{
	const struct model *m = s->t->m;
	const struct param *p = m->table.p + i;
	struct box b = box_whole(p->shape, p->rank);
	size_t n = (size_t)box_volume(&b);
	float *f = xmalloc(n * sizeof(float));

	if (stored_dtype(s, p) == DTYPE_F32) {
		m->k->get(f, m->w[i].master, n * sizeof(float));
		put(w, p->name, SLOT_WEIGHT, f);
	} else {
		uint16_t *low = xmalloc(n * sizeof(*low));

		model_get(m, i, low);
		put(w, p->name, SLOT_WEIGHT, low);
		free(low);
		m->k->get(f, m->w[i].master, n * sizeof(float));
		put(w, p->name, SLOT_MASTER, f);
	}
	m->k->get(f, m->w[i].exp_avg, n * sizeof(float));
	put(w, p->name, SLOT_EXP_AVG, f);
	m->k->get(f, m->w[i].exp_avg_sq, n * sizeof(float));
	put(w, p->name, SLOT_EXP_AVG_SQ, f);
	free(f);
}

static void put_carried(struct checkpoint_writer *w, const struct saving *s)
{
	for (long i = 0; i < s->parent->n; i++) {
		const struct checkpoint_tensor *t = s->parent->tensor + i;
		struct box b = box_whole(t->shape, t->rank);
		struct err e = ERR_INIT;
		void *raw;

		if (t->slot != SLOT_WEIGHT || param_find(&s->t->m->table, t->name))
			continue;
		raw = xmalloc((size_t)box_volume(&b) * dtype_size(t->dtype));
		if (checkpoint_read(raw, s->source, i, NULL, &e)) {
			checkpoint_abort(w);
			die_err(&e);
		}
		put(w, t->name, SLOT_WEIGHT, raw);
		free(raw);
	}
}

void save_checkpoint(const struct saving *s)
{
	struct checkpoint_meta meta = {
		.head = s->parent->head, .optimizer = "adamw", .precision = dtype_name(s->t->m->t), .counters = s->t->counters,
		.cursor = s->cursor, .fingerprint = s->fingerprint, .history = s->history,
	};
	struct checkpoint_tensor *t;
	struct checkpoint_writer *w;
	struct err e = ERR_INIT;
	long n = list_tensors(&t, s);

	if (checkpoint_create(&w, s->dir, &meta, t, n, NULL, 0, NULL, &e))
		die_err(&e);
	for (long i = 0; i < s->t->m->table.n; i++)
		put_param(w, s, i);
	put_carried(w, s);
	if (checkpoint_copy_side(w, s->parent, NULL, &e) ||
	    checkpoint_put_file(w, "metrics.json", s->metrics, strlen(s->metrics), &e)) {
		checkpoint_abort(w);
		die_err(&e);
	}
	if (checkpoint_commit(w, &e))
		die_err(&e);
	free(t);
}
