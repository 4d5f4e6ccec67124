#include "kernels/model/ep.h"

#include "kernels/model/tp.h"
#include "libcommon/xalloc.h"

#include <stdlib.h>
#include <string.h>

/*
 * Slots as they come: from each rank q of the ETP group (Q of them) what it got from each rank p of
 * its EP group (P), by expert.  All ranks of an ETP group have them alike.
 */
struct ep {
	const struct model *m;
	struct comm *ep, *etp;
	long P, Q, E, H;
	long first, experts;     /* of this rank */
	long *count;             /* [Q, P, E] slots of each rank for each expert */
	long *offset;            /* [experts + 1] in the order expert, q, p, row */
	long n, mine;            /* slots here, and those of them that this rank's EP group sent */
	size_t *out, *in, *by_q; /* bytes or elements: [P], [P], [Q] */
	int *perm, *inverse;     /* [n] at place i lies slot perm[i] as they came; the backend's */
};

/* Memory that stays from layer to layer and only grows: the first touch of a page is dear. */
enum memory { OF_PERM, OF_WORK, OF_PARTS, OF_ALL_PARTS };

static void *memory(const struct model *m, enum memory which, size_t bytes)
{
	struct moe *o = m->moe;

	if (o->far[which].bytes < bytes) {
		m->k->release(o->far[which].p);
		o->far[which].bytes = bytes + bytes / 4;
		o->far[which].p = m->k->alloc(o->far[which].bytes, "slots of experts");
	}
	return o->far[which].p;
}

static long slots_of(const struct ep *s, long q, long p, long first, long end)
{
	long n = 0;

	for (long e = first; e < end; e++)
		n += s->count[(q * s->P + p) * s->E + e];
	return n;
}

static void expert_range(long *first, long *end, const struct ep *s, const struct layer *l, long p)
{
	const struct param *param = s->m->table.p + (l->gate - s->m->w);
	struct place at = { .ep = p };
	struct box b = param_box(param, &s->m->mesh->layout, &at);

	*first = b.start[0];
	*end = b.start[0] + b.extent[0];
}

static void count_slots(struct ep *s)
{
	long *own = xmalloc((size_t)s->E * sizeof(long)),
	     *group = xmalloc((size_t)(s->P * s->E) * sizeof(long));

	for (long e = 0; e < s->E; e++)
		own[e] = s->m->moe->offset[e + 1] - s->m->moe->offset[e];
	comm_gather(s->ep, group, own, (size_t)s->E * sizeof(long));
	comm_gather(s->etp, s->count, group, (size_t)(s->P * s->E) * sizeof(long));
	free(own);
	free(group);
}

/* Where each slot, as it comes, goes in the order of experts. */
static void order_slots(struct ep *s)
{
	long *at = xmalloc((size_t)s->experts * sizeof(long) + 1), came = 0;
	int *perm;

	s->offset = xcalloc((size_t)s->experts + 1, sizeof(long));
	for (long e = 0; e < s->experts; e++) {
		at[e] = s->offset[e];
		for (long q = 0; q < s->Q; q++)
			for (long p = 0; p < s->P; p++)
				s->offset[e + 1] += slots_of(s, q, p, s->first + e,
							     s->first + e + 1);
		s->offset[e + 1] += s->offset[e];
	}
	s->n = s->offset[s->experts];
	perm = xmalloc((size_t)s->n * 2 * sizeof(int) + 1);
	for (long q = 0; q < s->Q; q++)
		for (long p = 0; p < s->P; p++)
			for (long e = 0; e < s->experts; e++)
				for (long i = slots_of(s, q, p, s->first + e, s->first + e + 1);
				     i > 0; i--)
					perm[at[e]++] = (int)came++;
	for (long i = 0; i < s->n; i++)
		perm[s->n + perm[i]] = (int)i;
	s->perm = memory(s->m, OF_PERM, (size_t)s->n * 2 * sizeof(int) + 1);
	s->inverse = s->perm + s->n;
	s->m->k->put(s->perm, perm, (size_t)s->n * 2 * sizeof(int));
	free(perm);
	free(at);
}

static void ep_init(struct ep *s, const struct model *m, const struct layer *l)
{
	long end;

	*s = (struct ep){ .m = m,
			  .ep = &m->mesh->ep,
			  .etp = &m->mesh->etp,
			  .E = m->moe->routing.experts,
			  .H = m->table.config.hidden };
	s->P = s->ep->size;
	s->Q = s->etp->size;
	s->count = xcalloc((size_t)(s->Q * s->P * s->E), sizeof(long));
	s->out = xcalloc((size_t)(2 * s->P + s->Q), sizeof(size_t));
	s->in = s->out + s->P;
	s->by_q = s->in + s->P;
	expert_range(&s->first, &end, s, l, s->ep->rank);
	s->experts = end - s->first;
	count_slots(s);
	order_slots(s);
	for (long p = 0; p < s->P; p++)
		s->mine += slots_of(s, s->etp->rank, p, s->first, end);
}

static void ep_done(struct ep *s)
{
	free(s->count);
	free(s->offset);
	free(s->out);
}

/* Bytes of slots of so many bytes: what goes to each rank of the EP group, what comes from it. */
static void set_bytes(struct ep *s, const struct layer *l, size_t slot)
{
	for (long p = 0; p < s->P; p++) {
		long first, end;

		expert_range(&first, &end, s, l, p);
		s->out[p] = (size_t)(s->m->moe->offset[end] - s->m->moe->offset[first]) * slot;
		s->in[p] = (size_t)slots_of(s, s->etp->rank, p, s->first, s->first + s->experts) *
			   slot;
	}
	for (long q = 0; q < s->Q; q++) {
		long n = 0;

		for (long p = 0; p < s->P; p++)
			n += slots_of(s, q, p, s->first, s->first + s->experts);
		s->by_q[q] = (size_t)n * slot;
	}
}

/*
 * to[n, cols], in the order of experts, from what all ranks have by their places; stage, came: as
 * large.
 */
static void there(struct ep *s, const struct layer *l, void *to, const void *from, void *stage,
		  void *came, long cols, enum dtype t)
{
	void *first = s->Q > 1 ? stage : came;

	set_bytes(s, l, (size_t)cols * dtype_size(t));
	comm_dev_all_to_all(s->ep, first, s->in, from, s->out);
	if (s->Q > 1)
		comm_dev_gather_v(s->etp, came, first, s->by_q);
	if (s->n)
		s->m->k->permute(to, came, s->perm, s->n, cols, t);
}

/* The other way, in fp32: `sum` over the ETP group, or this rank's as it is. */
static void back(struct ep *s, const struct layer *l, float *to, const float *from, float *stage,
		 float *came, long cols, bool sum)
{
	float *mine = came;
	size_t at = 0;

	if (s->n)
		s->m->k->permute(came, from, s->inverse, s->n, cols, DTYPE_F32);
	set_bytes(s, l, (size_t)cols);
	for (long q = 0; q < s->etp->rank; q++)
		at += s->by_q[q];
	if (s->Q > 1 && sum) {
		comm_dev_scatter_sum_f32(s->etp, stage, came, s->by_q);
		mine = stage;
	} else {
		mine = came + at;
	}
	set_bytes(s, l, (size_t)cols * sizeof(float));
	comm_dev_all_to_all(s->ep, to, s->out, mine, s->in);
}

/* What the experts of this rank work with: slots in their order. */
struct work {
	void *xs, *ds, *gate, *up, *act, *dgate, *dact, *stage, *came;
	float *weight, *dweight, *o;
};

static struct work work_new(struct ep *s, bool backward)
{
	size_t t = dtype_size(s->m->t), n = (size_t)s->n, h = n * (size_t)s->H,
	       w = n * (size_t)s->m->here.expert_intermediate * t;
	size_t b = backward ? 1 : 0, at = 0;
	struct work k;
	char *p;
	struct {
		void **p;
		size_t bytes;
	} part[] = {
		{ &k.xs, h * t },
		{ &k.ds, b * h * t },
		{ &k.gate, w },
		{ &k.up, w },
		{ &k.act, w },
		{ &k.dgate, b * w },
		{ &k.dact, b * w },
		{ (void **)&k.o, h * 4 },
		{ &k.stage, h * 4 },
		{ &k.came, h * 4 },
		{ (void **)&k.weight, b * n * 4 },
		{ (void **)&k.dweight, b * n * 4 },
	};

	for (size_t i = 0; i < sizeof(part) / sizeof(*part); i++)
		at += line_up(part[i].bytes);
	p = memory(s->m, OF_WORK, at + 1);
	for (size_t i = 0; i < sizeof(part) / sizeof(*part); i++) {
		*part[i].p = p;
		p += line_up(part[i].bytes);
	}
	return k;
}

static void inner(struct ep *s, const struct layer *l, struct work *w)
{
	const struct ops *k = s->m->k;

	k->grouped_fwd(w->gate, s->m->t, w->xs, l->gate->expert, s->offset, s->experts);
	k->grouped_fwd(w->up, s->m->t, w->xs, l->up->expert, s->offset, s->experts);
	k->swiglu_fwd(w->act, w->gate, w->up, s->n * s->m->here.expert_intermediate, s->m->t);
}

/*
 * o[n, H] of a down_proj whose width lies over the ETP group: expert after expert, the parts of all
 * ranks, joined.
 */
static void down_over_etp(struct ep *s, const struct layer *l, struct work *w)
{
	const struct model *m = s->m;
	long *first = xmalloc((size_t)(s->Q + 1) * sizeof(long)), most = 0, mine;
	size_t row = (size_t)m->here.expert_intermediate * dtype_size(m->t);
	struct tree_cut c = { s->Q, first };
	float *parts, *all;

	tp_chunk_cut(first, m->table.p + (l->down - m->w), &m->mesh->layout);
	mine = tree_parts_of(&c, s->etp->rank);
	for (long e = 0; e < s->experts; e++)
		most = s->offset[e + 1] - s->offset[e] > most ? s->offset[e + 1] - s->offset[e]
							      : most;
	parts = memory(m, OF_PARTS, (size_t)(mine * most * s->H) * 4 + 4);
	all = memory(m, OF_ALL_PARTS, (size_t)(tree_parts_all(&c) * most * s->H) * 4 + 4);
	for (long e = 0; e < s->experts; e++) {
		long at = s->offset[e], n = s->offset[e + 1] - at;

		if (!n)
			continue;
		m->k->linear_parts(parts, (char *)w->act + (size_t)at * row, l->down->expert + e,
				   first[s->etp->rank], tree_leaves(&c), n);
		for (long q = 0; q < s->Q; q++)
			s->by_q[q] = (size_t)(tree_parts_of(&c, q) * n * s->H) * 4;
		comm_dev_gather_v(s->etp, all, parts, s->by_q);
		m->k->linear_join(w->o + at * s->H, DTYPE_F32, all, &c, NULL, n, s->H);
	}
	free(first);
}

void ep_forward(const struct model *m, const struct layer *l)
{
	struct moe *o = m->moe;
	struct ep s;
	struct work w;

	ep_init(&s, m, l);
	w = work_new(&s, false);
	there(&s, l, w.xs, o->xs, w.stage, w.came, s.H, m->t);
	inner(&s, l, &w);
	if (s.Q > 1)
		down_over_etp(&s, l, &w);
	else
		m->k->grouped_fwd(w.o, DTYPE_F32, w.act, l->down->expert, s.offset, s.experts);
	back(&s, l, o->o, w.o, w.stage, w.came, s.H, false);
	ep_done(&s);
}

static void gradient(const struct ep *s, struct weight *w, const void *dy, const void *x)
{
	if (w->grad)
		s->m->k->grouped_dw(w->grad, dy, x, s->offset, s->experts, w->expert->n,
				    w->expert->k, s->m->t);
}

void ep_backward(const struct model *m, const struct layer *l, const float *weight)
{
	const struct ops *k = m->k;
	struct moe *o = m->moe;
	struct ep s;
	struct work w;
	long width = m->here.expert_intermediate;

	ep_init(&s, m, l);
	w = work_new(&s, true);
	there(&s, l, w.xs, o->xs, w.stage, w.came, s.H, m->t);
	there(&s, l, w.ds, o->ds, w.stage, w.came, s.H, m->t);
	there(&s, l, w.weight, weight, w.stage, w.came, 1, DTYPE_F32);
	inner(&s, l, &w);
	k->grouped_dx(w.dact, m->t, w.ds, l->down->expert, s.offset, s.experts, false);
	k->weigh_bwd(w.dweight, w.dact, w.act, NULL, w.weight, s.n, 1, width, m->t);
	gradient(&s, l->down, w.ds, w.act);
	k->swiglu_bwd(w.dgate, w.dact, w.dact, w.gate, w.up, s.n * width, m->t);
	gradient(&s, l->gate, w.dgate, w.xs);
	gradient(&s, l->up, w.dact, w.xs);
	k->grouped_dx(w.o, DTYPE_F32, w.dgate, l->gate->expert, s.offset, s.experts, false);
	k->grouped_dx(w.o, DTYPE_F32, w.dact, l->up->expert, s.offset, s.experts, true);
	back(&s, l, o->dweight, w.dweight, w.stage, w.came, 1, true);
	back(&s, l, o->o, w.o, w.stage, w.came, s.H, true);
	ep_done(&s);
}
