#include "libcommon/shard.h"

#include <stdlib.h>

static void add_piece(struct shard_pieces *s, long param, long rank, const struct box *b)
{
	GROW(s->piece, s->n, s->cap);
	s->piece[s->n++] = (struct shard_piece){ param, rank, *b };
}

void shard_pieces_release(struct shard_pieces *s)
{
	free(s->piece);
	*s = (struct shard_pieces){ 0 };
}

static int by_param(const void *a, const void *b)
{
	const struct shard_piece *x = a, *y = b;

	if (x->param != y->param)
		return x->param < y->param ? -1 : 1;
	for (int i = 0; i < x->box.rank; i++)
		if (x->box.start[i] != y->box.start[i])
			return x->box.start[i] < y->box.start[i] ? -1 : 1;
	return 0;
}

/* -- weights ------------------------------------------------------------ */

/*
 * Of the ranks that hold the box of the one at `at`, which is the first of its TP (ETP) group to
 * do so, the one with the least to write so far.
 */
static long least_loaded(const long *load, const struct layout *l, const struct param *p,
			 struct place at, long copies)
{
	long replicas = p->expert ? layout_edp(l) : l->dp * l->cp, best = -1;

	for (long r = 0; r < replicas; r++) {
		for (long i = 0; i < copies; i++) {
			struct place x = at;
			long rank;

			if (p->expert) {
				x.edp = r;
				x.etp += i;
				rank = layout_expert_rank(l, &x);
			} else {
				x.dp = r / l->cp;
				x.cp = r % l->cp;
				x.tp += i;
				rank = layout_rank(l, &x);
			}
			if (best < 0 || load[rank] < load[best])
				best = rank;
		}
	}
	return best;
}

static void shard_weight(struct shard_pieces *out, long *load, const struct param_table *t, long i,
			 const struct layout *l)
{
	const struct param *p = &t->p[i];
	long eps = p->expert ? l->ep : 1, tps = p->expert ? l->etp : l->tp;

	for (long k = 0; k < eps * tps; k++) {
		struct place at = { .pp = param_stage(p, l) };
		long which, copies, rank;
		struct box b;

		if (p->expert) {
			at.ep = k / tps;
			at.etp = k % tps;
		} else {
			at.tp = k;
		}
		b = param_box(p, l, &at);
		copies = param_copies(&which, p, l, &at);
		if (which || !box_volume(&b))
			continue;
		rank = least_loaded(load, l, p, at, copies);
		load[rank] += box_volume(&b);
		add_piece(out, i, rank, &b);
	}
}

void shard_weights(struct shard_pieces *out, const struct param_table *t, const struct layout *l)
{
	long *load = xcalloc((size_t)layout_world(l), sizeof(*load));

	*out = (struct shard_pieces){ 0 };
	for (long i = 0; i < t->n; i++)
		shard_weight(out, load, t, i, l);
	free(load);
	qsort(out->piece, (size_t)out->n, sizeof(*out->piece), by_param);
}

/* -- optimizer state ---------------------------------------------------- */

/* Everything but what one rank owns. */
static void lay_out(struct shard_arena *a, const struct param_table *t, const struct layout *l,
		    const struct place *at, bool expert)
{
	*a = (struct shard_arena){ .members = expert ? layout_edp(l) : l->dp * l->cp };
	a->whole = xcalloc((size_t)t->n + 1, sizeof(*a->whole));
	for (long i = 0; i < t->n; i++) {
		const struct param *p = &t->p[i];
		struct arena_part *w = &a->whole[a->params];

		if (p->role != ROLE_PARAM || p->expert != expert || param_stage(p, l) != at->pp)
			continue;
		*w = (struct arena_part){ .param = i, .first = a->total, .box = param_box(p, l, at) };
		w->n = box_volume(&w->box);
		a->total += w->n;
		a->params++;
	}
}

static long row_of(const struct arena_part *w)
{
	return w->box.rank ? w->n / w->box.extent[0] : w->n;
}

/* Where member i begins: its even share, moved down to the first element of a row. */
static long cut(const struct shard_arena *a, long i)
{
	long at = (long)((__int128)a->total * i / a->members), lo = 0, hi = a->params;

	if (at >= a->total)
		return a->total;
	/* The last parameter that begins at or before it: of several there, the one that is not empty. */
	while (hi - lo > 1) {
		long mid = lo + (hi - lo) / 2;

		if (a->whole[mid].first <= at)
			lo = mid;
		else
			hi = mid;
	}
	return at - (at - a->whole[lo].first) % row_of(&a->whole[lo]);
}

/* The elements [first, first + n) of the arena, parameter by parameter; their number. */
static long parts_of(struct arena_part *out, const struct shard_arena *a, long first, long n)
{
	long parts = 0;

	for (long i = 0; i < a->params; i++) {
		const struct arena_part *w = &a->whole[i];
		long begin = first > w->first ? first : w->first, end = first + n, row;

		end = end < w->first + w->n ? end : w->first + w->n;
		if (begin >= end)
			continue;
		out[parts] = *w;
		out[parts].first = begin;
		out[parts].n = end - begin;
		row = row_of(w);
		if (w->box.rank) {
			out[parts].box.start[0] += (begin - w->first) / row;
			out[parts].box.extent[0] = (end - begin) / row;
		}
		parts++;
	}
	return parts;
}

void shard_arena_init(struct shard_arena *a, const struct param_table *t, const struct layout *l,
		      const struct place *at, bool expert)
{
	long self = expert ? at->edp : at->dp * l->cp + at->cp;

	lay_out(a, t, l, at, expert);
	a->count = xcalloc((size_t)a->members, sizeof(*a->count));
	for (long i = 0; i < a->members; i++)
		a->count[i] = (size_t)(cut(a, i + 1) - cut(a, i));
	a->first = cut(a, self);
	a->n = (long)a->count[self];
	a->own = xcalloc((size_t)a->params + 1, sizeof(*a->own));
	a->parts = parts_of(a->own, a, a->first, a->n);
}

void shard_arena_release(struct shard_arena *a)
{
	free(a->whole);
	free(a->own);
	free(a->count);
	*a = (struct shard_arena){ 0 };
}

/* What the members of one arena write: of a box that several ranks of the TP group hold, the first's part. */
static void shard_arena(struct shard_pieces *out, const struct param_table *t, const struct layout *l,
			struct place at, bool expert)
{
	struct shard_arena a;
	struct arena_part *own;

	lay_out(&a, t, l, &at, expert);
	own = xcalloc((size_t)a.params + 1, sizeof(*own));
	for (long i = 0; i < a.members; i++) {
		long parts = parts_of(own, &a, cut(&a, i), cut(&a, i + 1) - cut(&a, i)), rank, which;

		at.edp = i;
		at.dp = i / l->cp;
		at.cp = i % l->cp;
		rank = expert ? layout_expert_rank(l, &at) : layout_rank(l, &at);
		for (long k = 0; k < parts; k++) {
			param_copies(&which, &t->p[own[k].param], l, &at);
			if (!which)
				add_piece(out, own[k].param, rank, &own[k].box);
		}
	}
	free(own);
	shard_arena_release(&a);
}

static bool has_experts(const struct param_table *t)
{
	for (long i = 0; i < t->n; i++)
		if (t->p[i].expert)
			return true;
	return false;
}

void shard_optimizer(struct shard_pieces *out, const struct param_table *t, const struct layout *l)
{
	bool experts = has_experts(t);

	*out = (struct shard_pieces){ 0 };
	for (long pp = 0; pp < l->pp; pp++) {
		for (long tp = 0; tp < l->tp; tp++)
			shard_arena(out, t, l, (struct place){ .pp = pp, .tp = tp }, false);
		for (long k = 0; k < l->ep * l->etp && experts; k++)
			shard_arena(out, t, l, (struct place){ .pp = pp, .ep = k / l->etp, .etp = k % l->etp },
				    true);
	}
	if (out->n)
		qsort(out->piece, (size_t)out->n, sizeof(*out->piece), by_param);
}
