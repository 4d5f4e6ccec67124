#include "kernels/model/pass.h"

#include "libcommon/xalloc.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { HEAD_BYTES = 256 << 20 };        /* of logits at a time */

/*
 * Even, since bfloat16 sums over rows go by pairs: so the gradient of the head does not depend on where rows are cut
 * (kernels/linear.h).
 */
static long head_chunk(const struct model *m, long rows)
{
	long n = HEAD_BYTES / (m->table.config.vocab * 4) & ~1L;

	n = n < 16 ? 16 : n;
	return n < rows ? n : rows;
}

/* Rows of a chunk of `all`: about alike, since each passes over the whole gradient once. */
static long chunk_rows(const struct pass_work *w, long all)
{
	long pieces = (all + w->chunk - 1) / w->chunk, n = pieces ? (all + pieces - 1) / pieces : 0;

	return pieces > 1 ? n + n % 2 : n;
}

static size_t row_bytes(const struct model *m)
{
	return (size_t)m->table.config.hidden * dtype_size(m->t);
}

size_t head_carve(struct pass_work *w, const struct model *m, long rows, bool keep, char *memory)
{
	size_t n = (size_t)head_chunk(m, rows), V = (size_t)m->here.vocab, at = 0, parts = 0, all = 0;
	bool cut = m->mesh->tp.size > 1;

	if (!m->here.last)
		return 0;
	if (cut) {
		struct tp t;

		tp_init(&t, m, true);
		parts = 3 * (size_t)tree_parts_of(&t.vocab, m->mesh->tp.rank) + 1;
		all = 3 * (size_t)tree_parts_all(&t.vocab) + (size_t)t.vocab.ranks;
		tp_release(&t);
	}
	struct { void **p; size_t bytes; } part[] = {
		{ &w->head_x, n * row_bytes(m) }, { (void **)&w->head_z, n * V * 4 }, { &w->head_dz, keep ? n * V * dtype_size(m->t) : 0 },
		{ (void **)&w->head_dx, keep && cut ? n * (size_t)m->table.config.hidden * 4 : 0 },
		{ (void **)&w->parts, n * parts * 4 }, { (void **)&w->all_parts, n * all * 4 },
	};

	for (size_t i = 0; i < sizeof(part) / sizeof(*part); i++) {
		if (memory)
			*part[i].p = memory + at;
		at += line_up(part[i].bytes);
	}
	return at;
}

void head_init(struct pass_work *w, const struct model *m, long rows)
{
	size_t n = (size_t)(w->chunk = head_chunk(m, rows)) + 1;

	w->chunk_target = xmalloc(n * sizeof(int));
	w->local_target = xmalloc(n * sizeof(int));
	w->chunk_lp = xmalloc(n * sizeof(float));
	w->chunk_entropy = xmalloc(n * sizeof(float));
}

void head_release(struct pass_work *w)
{
	free(w->chunk_target);
	free(w->local_target);
	free(w->chunk_lp);
	free(w->chunk_entropy);
}

/* x [n, H] to this rank's columns of the logits. */
static void local_logits(struct pass *p, const void *x, long n)
{
	p->work->logits_of = NULL;
	if (p->m->here.vocab)
		p->m->k->linear_fwd(p->work->head_z, DTYPE_F32, x, &model_head(p->m)->matrix, NULL, n);
}

/* Gather hidden rows picked[at..at+n) into head_x and give their logits. */
static void chunk_logits(struct pass *p, const char *hidden, long at, long n)
{
	struct pass_work *w = p->work;
	size_t row = row_bytes(p->m);

	p->m->k->rows_gather(w->head_x, hidden, p->picked + at, n, row);
	for (long i = 0; i < n; i++) {
		w->chunk_target[i] = p->target[p->picked[at + i]];
		w->local_target[i] = w->chunk_target[i] - (int)p->m->here.vocab_first;
	}
	local_logits(p, w->head_x, n);
}

static void chunk_logprobs(struct pass *p, float *lse, float *entropy, long n)
{
	const struct model *m = p->m;
	struct pass_work *w = p->work;
	struct tp *t = &w->tp;

	if (t->c->size == 1) {
		m->k->logprob(w->chunk_lp, lse, entropy, w->head_z, w->chunk_target, n, m->table.config.vocab, p->temperature);
		return;
	}
	m->k->logprob_parts(w->parts, w->head_z, w->chunk_target, n, m->here.vocab, &t->vocab, t->c->rank, p->temperature);
	for (int r = 0; r < t->c->size; r++)
		t->in[r] = (size_t)(n * (3 * tree_parts_of(&t->vocab, r) + 1)) * 4;
	comm_dev_gather_v(t->c, w->all_parts, w->parts, t->in);
	m->k->logprob_join(w->chunk_lp, lse, entropy, w->all_parts, w->chunk_target, n, &t->vocab);
}

/* Log-probabilities of the own rows, in p->lp and p->entropy. */
static void own_logprobs(struct pass *p, bool entropy)
{
	struct pass_work *w = p->work;
	const char *hidden = tp_gather(&w->tp, p->hidden);
	long chunk = chunk_rows(w, p->npicked);

	for (long at = 0, n; at < p->npicked; at += n) {
		n = p->npicked - at < chunk ? p->npicked - at : chunk;
		chunk_logits(p, hidden, at, n);
		chunk_logprobs(p, p->lse + at, entropy ? w->chunk_entropy : NULL, n);
		for (long i = 0; i < n; i++) {
			p->lp[p->picked[at + i]] = w->chunk_lp[i];
			p->entropy[p->picked[at + i]] = entropy ? w->chunk_entropy[i] : NAN;
		}
	}
	w->logits_of = chunk == p->npicked ? p : NULL;
}

void pass_logprobs(struct pass *p, float *lp, float *entropy, const int *target, float temperature)
{
	p->npicked = 0;
	p->temperature = temperature;
	cp_pick(&p->cp, p->target, target, sizeof(int));
	for (long r = 0; r < p->cp.own; r++) {
		p->lp[r] = p->entropy[r] = NAN;
		if (p->target[r] >= 0)
			p->picked[p->npicked++] = (int)r;
	}
	if (p->last)
		own_logprobs(p, entropy);
	cp_numbers(&p->cp, lp, p->lp, p->stage);
	if (entropy)
		cp_numbers(&p->cp, entropy, p->entropy, p->stage);
}

void pass_logits(struct pass *p, float *logits, long first, long n)
{
	const struct model *m = p->m;
	struct pass_work *w = p->work;
	long V = m->table.config.vocab, rank = 0;
	const char *hidden = tp_gather(&w->tp, p->hidden);
	float *whole = m->k->alloc((size_t)V * 8, "logits"), *stage = whole + V;
	const float *z;

	for (long i = 0; i < n; i++, rank = 0) {
		long at = 0;

		while (p->cp.row[at] != first + i)
			at++;
		while (at >= p->cp.first[rank + 1])
			rank++;
		if (rank == p->cp.c->rank) {
			local_logits(p, hidden + (size_t)(at - p->cp.begin) * row_bytes(m), 1);
			z = tp_logits(&w->tp, whole, w->head_z, stage, 1);
			m->k->get(logits + i * V, z, (size_t)V * 4);
		}
		comm_broadcast(p->cp.c, logits + i * V, (size_t)V * 4, (int)rank);
	}
	m->k->release(whole);
}

static void chunk_backward(struct pass *p, char *dh, long at, long n)
{
	const struct model *m = p->m;
	struct pass_work *w = p->work;
	struct weight *head = model_head(m);
	size_t row = row_bytes(m);
	long H = m->table.config.hidden;
	bool cut = w->tp.c->size > 1;

	if (!m->here.vocab)
		return;
	for (long i = 0; i < n; i++)
		w->chunk_lp[i] = p->dlp[p->picked[at + i]];
	m->k->logprob_bwd(w->head_dz, w->chunk_lp, p->lse + at, w->head_z, w->local_target, n, m->here.vocab, p->temperature, m->t);
	if (head->grad)
		m->k->linear_dw(head->grad, NULL, w->head_dz, w->head_x, n, m->here.vocab, H, m->t);
	if (cut)
		m->k->linear_dx(w->head_dx, DTYPE_F32, w->head_dz, &head->matrix, n, false);
	else
		m->k->linear_dx(w->head_x, m->t, w->head_dz, &head->matrix, n, false);
	if (cut)
		m->k->rows_scatter(w->tp.sum, w->head_dx, p->picked + at, n, (size_t)H * 4);
	else
		m->k->rows_scatter(dh, w->head_x, p->picked + at, n, row);
}

void head_backward(struct pass *p)
{
	struct pass_work *w = p->work;
	const char *hidden = tp_gather(&w->tp, p->hidden);
	long chunk = chunk_rows(w, p->npicked);
	bool known = w->logits_of == p; /* all its logits lie there still, from own_logprobs() */

	if (w->tp.c->size > 1)
		p->m->k->zero(w->tp.sum, (size_t)(w->tp.R * p->m->table.config.hidden) * 4);
	else
		p->m->k->zero(w->dh, (size_t)w->tp.R * row_bytes(p->m));
	for (long at = 0, n; at < p->npicked; at += n) {
		n = p->npicked - at < chunk ? p->npicked - at : chunk;
		if (!known)
			chunk_logits(p, hidden, at, n);
		chunk_backward(p, w->dh, at, n);
	}
	w->logits_of = NULL;
	tp_finish_dx(&w->tp, w->dh);
}
