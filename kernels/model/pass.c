#include "kernels/model/moe.h"
#include "libcommon/xalloc.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/*
 * Memory of a pass: one `struct acts` a layer where everything is kept, else one in all; layer inputs apart, so that
 * recomputing needs nothing but them; the final hidden state; scratch for gradients; one chunk of the head.
 */
struct pass {
	struct model *m;
	long max_rows, rows;
	bool keep, recompute;
	struct acts *acts;              /* layers of them, or 1 */
	char **x;                       /* [layers + 1] input of each layer, and the last output */
	char *memory;
	void *hidden;                   /* [rows, H] after the final norm */
	float *rstd;                    /* of the final norm */
	void *dx, *dh, *dmid, *dq, *dk, *dv;   /* gradients of one layer */
	struct mlp_grads mlp;
	void *head_x;                   /* [chunk, H] rows that have a target */
	float *head_z;                  /* [chunk, V] */
	void *head_dz;                  /* [chunk, V] of type t */
	int *position, *target, *picked;        /* host */
	int *chunk_target;
	float *lp, *lse, *chunk_lp, *chunk_entropy;
	long npicked, chunk;
	float temperature;
	struct batch batch;             /* of the last forward; borrowed arrays copied below */
	int *ids;
	long *cu;
	struct attention_piece *piece;  /* [pieces] */
	long pieces;
};

enum { HEAD_BYTES = 64 << 20 };         /* of logits at a time */

static long head_chunk(const struct model *m, long max_rows)
{
	long n = HEAD_BYTES / (m->table.config.vocab * 4);

	n = n < 16 ? 16 : n;
	return n < max_rows ? n : max_rows;
}

/* With p NULL it only counts. */
static size_t carve(struct pass *p, const struct model *m, long rows, bool keep, bool recompute, char *memory)
{
	const struct model_config *c = &m->table.config;
	size_t e = dtype_size(m->t), at = 0, r = (size_t)rows, chunk = (size_t)head_chunk(m, rows), V = (size_t)c->vocab;
	size_t h = r * (size_t)c->hidden * e, q = r * (size_t)(m->here.heads * c->head_dim) * e;
	size_t kv = r * (size_t)(m->here.kv_heads * c->head_dim) * e;
	long nacts = keep && !recompute ? c->layers : 1, nx = keep ? c->layers + 1 : 2;
	struct pass none = { 0 }, *o = p ? p : &none;
	struct { void **p; size_t bytes; } part[] = {
		{ &o->hidden, h }, { (void **)&o->rstd, r * 4 },
		{ &o->dx, keep ? h : 0 }, { &o->dh, keep ? h : 0 }, { &o->dmid, keep ? q : 0 }, { &o->dq, keep ? q : 0 },
		{ &o->dk, keep ? kv : 0 }, { &o->dv, keep ? kv : 0 },
		{ &o->head_x, chunk * (size_t)c->hidden * e }, { (void **)&o->head_z, chunk * V * 4 },
		{ &o->head_dz, keep ? chunk * V * e : 0 },
	};

	for (size_t i = 0; i < sizeof(part) / sizeof(*part); i++) {
		if (p)
			*part[i].p = memory + at;
		at += line_up(part[i].bytes);
	}
	if (keep)
		at += mlp_carve_grads(&o->mlp, m, rows, p ? memory + at : NULL);
	for (long i = 0; i < nx; i++, at += line_up(h))
		if (p)
			for (long l = i; l <= c->layers; l += nx)
				p->x[l] = memory + at;
	for (long i = 0; i < nacts; i++, at += acts_bytes(m, rows))
		if (p)
			acts_carve(p->acts + i, m, rows, memory + at);
	return at;
}

size_t pass_bytes(const struct model *m, long max_rows, bool keep, bool recompute)
{
	return carve(NULL, m, max_rows, keep, recompute, NULL) + moe_bytes(m, max_rows);
}

struct pass *pass_new(struct model *m, long max_rows, bool keep, bool recompute)
{
	struct pass *p = xcalloc(1, sizeof(*p));
	long layers = m->table.config.layers;
	size_t rows = (size_t)max_rows;

	if (keep && !(m->flags & MODEL_TRAIN))
		bug("a backward pass of a model that only infers");
	p->m = m;
	p->max_rows = max_rows;
	p->keep = keep;
	p->recompute = recompute;
	p->acts = xcalloc((size_t)layers, sizeof(*p->acts));
	p->x = xcalloc((size_t)layers + 1, sizeof(*p->x));
	p->memory = m->k->alloc(carve(NULL, m, max_rows, keep, recompute, NULL), "activations");
	carve(p, m, max_rows, keep, recompute, p->memory);
	p->chunk = head_chunk(m, max_rows);
	p->position = xmalloc(rows * sizeof(int));
	p->target = xmalloc(rows * sizeof(int));
	p->picked = xmalloc(rows * sizeof(int));
	p->ids = xmalloc(rows * sizeof(int));
	p->cu = xmalloc((rows + 1) * sizeof(long));
	p->piece = xmalloc(rows * sizeof(*p->piece));
	p->lp = xmalloc(rows * sizeof(float));
	p->lse = xmalloc(rows * sizeof(float));
	p->chunk_target = xmalloc((size_t)p->chunk * sizeof(int));
	p->chunk_lp = xmalloc((size_t)p->chunk * sizeof(float));
	p->chunk_entropy = xmalloc((size_t)p->chunk * sizeof(float));
	return p;
}

void pass_free(struct pass *p)
{
	void *owned[] = { p->acts, p->x, p->position, p->target, p->picked, p->ids, p->cu, p->piece, p->lp, p->lse, p->chunk_target,
			  p->chunk_lp, p->chunk_entropy };

	p->m->k->release(p->memory);
	for (size_t i = 0; i < sizeof(owned) / sizeof(*owned); i++)
		free(owned[i]);
	free(p);
}

static void take_batch(struct pass *p, const struct batch *b)
{
	if (b->rows > p->max_rows || b->nseq > b->rows || b->cu[0] || b->cu[b->nseq] != b->rows)
		bug("a batch of %ld rows in %ld sequences, room for %ld", b->rows, b->nseq, p->max_rows);
	memcpy(p->ids, b->ids, (size_t)b->rows * sizeof(int));
	memcpy(p->cu, b->cu, (size_t)(b->nseq + 1) * sizeof(long));
	p->batch = (struct batch){ b->rows, p->ids, b->nseq, p->cu };
	p->rows = b->rows;
	p->pieces = b->nseq;
	for (long s = 0; s < b->nseq; s++) {
		p->piece[s] = (struct attention_piece){ b->cu[s], b->cu[s + 1] - b->cu[s], b->cu[s], b->cu[s + 1] - b->cu[s] };
		if (b->cu[s + 1] - b->cu[s] > p->m->positions)
			bug("a sequence of %ld tokens, the model has %ld positions", b->cu[s + 1] - b->cu[s],
			    p->m->positions);
		for (long r = b->cu[s]; r < b->cu[s + 1]; r++)
			p->position[r] = (int)(r - b->cu[s]);
	}
}

/* The activations of layer i, whose input lies in p->x[i]. */
static struct acts *acts_of(struct pass *p, long i)
{
	struct acts *a = p->acts + (p->keep && !p->recompute ? i : 0);

	a->x = p->x[i];
	return a;
}

static void layer_forward(struct pass *p, long i, void *out)
{
	const struct model *m = p->m;
	struct acts *a = acts_of(p, i);
	const struct layer *l = m->layer + i;

	layer_before(m, l, a, p->position, p->rows, p->keep);
	m->k->attention_fwd(a->att, p->keep ? a->lse : NULL, a->q, a->k, a->v, p->piece, p->pieces, &m->attention, m->t);
	layer_after(m, l, a, out, p->rows, p->keep);
}

void pass_forward(struct pass *p, const struct batch *b)
{
	struct model *m = p->m;
	const struct model_config *c = &m->table.config;

	take_batch(p, b);
	m->k->embed_fwd(p->x[0], model_weight(m, PARAM_EMBED, -1)->value, p->ids, p->rows, c->hidden, m->t);
	for (long i = 0; i < c->layers; i++)
		layer_forward(p, i, p->x[i + 1]);
	m->k->rmsnorm_fwd(p->hidden, p->keep ? p->rstd : NULL, p->x[c->layers], model_weight(m, PARAM_FINAL_NORM, -1)->value,
			  p->rows, c->hidden, (float)c->rms_eps, m->t);
}

/* Gather hidden rows picked[at..at+n) into head_x and give their logits. */
static void chunk_logits(struct pass *p, long at, long n)
{
	const struct model *m = p->m;
	size_t row = (size_t)m->table.config.hidden * dtype_size(m->t);

	for (long i = 0; i < n; i++)
		memcpy((char *)p->head_x + (size_t)i * row, (char *)p->hidden + (size_t)p->picked[at + i] * row, row);
	m->k->linear_fwd(p->head_z, DTYPE_F32, p->head_x, &model_head(m)->matrix, NULL, n);
	for (long i = 0; i < n; i++)
		p->chunk_target[i] = p->target[p->picked[at + i]];
}

void pass_logprobs(struct pass *p, float *lp, float *entropy, const int *target, float temperature)
{
	const struct model *m = p->m;
	long V = m->table.config.vocab;

	p->npicked = 0;
	p->temperature = temperature;
	for (long r = 0; r < p->rows; r++) {
		p->target[r] = target[r];
		lp[r] = NAN;
		if (entropy)
			entropy[r] = NAN;
		if (target[r] >= 0)
			p->picked[p->npicked++] = (int)r;
	}
	for (long at = 0, n; at < p->npicked; at += n) {
		n = p->npicked - at < p->chunk ? p->npicked - at : p->chunk;
		chunk_logits(p, at, n);
		m->k->logprob(p->chunk_lp, p->lse + at, entropy ? p->chunk_entropy : NULL, p->head_z, p->chunk_target, n, V,
			      temperature);
		for (long i = 0; i < n; i++) {
			lp[p->picked[at + i]] = p->chunk_lp[i];
			if (entropy)
				entropy[p->picked[at + i]] = p->chunk_entropy[i];
		}
	}
}

void pass_logits(struct pass *p, float *logits, long first, long n)
{
	const struct model *m = p->m;
	long V = m->table.config.vocab, hidden = m->table.config.hidden;

	for (long at = 0, k; at < n; at += k) {
		k = n - at < p->chunk ? n - at : p->chunk;
		m->k->linear_fwd(p->head_z, DTYPE_F32, (char *)p->hidden + (size_t)((first + at) * hidden) * dtype_size(m->t),
				 &model_head(m)->matrix, NULL, k);
		m->k->get(logits + at * V, p->head_z, (size_t)(k * V) * 4);
	}
}

/* Leaves the gradient of the hidden state in dh and adds that of the head's weight. */
static void head_backward(struct pass *p, const float *dlp)
{
	const struct model *m = p->m;
	const struct model_config *c = &m->table.config;
	struct weight *head = model_head(m);
	size_t row = (size_t)c->hidden * dtype_size(m->t);

	memset(p->dh, 0, (size_t)p->rows * row);
	for (long at = 0, n; at < p->npicked; at += n) {
		n = p->npicked - at < p->chunk ? p->npicked - at : p->chunk;
		chunk_logits(p, at, n);
		for (long i = 0; i < n; i++)
			p->chunk_lp[i] = dlp[p->picked[at + i]];
		m->k->logprob_bwd(p->head_dz, p->chunk_lp, p->lse + at, p->head_z, p->chunk_target, n, c->vocab, p->temperature,
				  m->t);
		if (head->grad)
			m->k->linear_dw(head->grad, NULL, p->head_dz, p->head_x, n, c->vocab, c->hidden, m->t);
		m->k->linear_dx(p->head_x, m->t, p->head_dz, &head->matrix, n, false);
		for (long i = 0; i < n; i++)
			memcpy((char *)p->dh + (size_t)p->picked[at + i] * row, (char *)p->head_x + (size_t)i * row, row);
	}
}

static void mlp_block_backward(struct pass *p, const struct layer *l, struct acts *a)
{
	const struct model *m = p->m;

	mlp_backward(m, l, &a->mlp, &p->mlp, p->dh, p->dx, a->h2, p->rows);
	m->k->rmsnorm_bwd(p->dx, l->norm2->grad, p->dh, a->x2, l->norm2->value, a->rstd2, p->rows, m->table.config.hidden, true, m->t);
}

static void attention_backward(struct pass *p, const struct layer *l, struct acts *a)
{
	const struct model *m = p->m;
	const struct ops *k = m->k;
	const struct model_config *c = &m->table.config;
	long n = p->rows, q = n * m->here.heads, kv = n * m->here.kv_heads;
	enum dtype t = m->t;

	linear_gradient(m, l->o, l->ob, p->dx, a->att, n);
	k->linear_dx(p->dmid, t, p->dx, &l->o->matrix, n, false);
	k->attention_bwd(p->dq, p->dk, p->dv, t, p->dmid, a->att, a->lse, a->q, a->k, a->v, p->piece, p->pieces, &m->attention, t);
	k->rope(p->dq, p->position, m->cos, m->sin, n, m->here.heads, c->head_dim, true, t);
	k->rope(p->dk, p->position, m->cos, m->sin, n, m->here.kv_heads, c->head_dim, true, t);
	if (c->qk_norm) {
		/* a->q and a->k have served: they hold the gradients before the norm. */
		k->rmsnorm_bwd(a->q, l->qn->grad, p->dq, a->q0, l->qn->value, a->rstdq, q, c->head_dim, false, t);
		k->rmsnorm_bwd(a->k, l->kn->grad, p->dk, a->k0, l->kn->value, a->rstdk, kv, c->head_dim, false, t);
	}
	const void *dq = c->qk_norm ? a->q : p->dq, *dk = c->qk_norm ? a->k : p->dk;

	linear_gradient(m, l->q, l->qb, dq, a->h1, n);
	linear_gradient(m, l->k, l->kb, dk, a->h1, n);
	linear_gradient(m, l->v, l->vb, p->dv, a->h1, n);
	k->linear_dx(p->dh, t, dq, &l->q->matrix, n, false);
	k->linear_dx(p->dh, t, dk, &l->k->matrix, n, true);
	k->linear_dx(p->dh, t, p->dv, &l->v->matrix, n, true);
	k->rmsnorm_bwd(p->dx, l->norm1->grad, p->dh, a->x, l->norm1->value, a->rstd1, n, c->hidden, true, t);
}

void pass_backward(struct pass *p, const float *dlp)
{
	struct model *m = p->m;
	const struct model_config *c = &m->table.config;
	struct weight *norm = model_weight(m, PARAM_FINAL_NORM, -1), *embed = model_weight(m, PARAM_EMBED, -1);

	if (!p->keep)
		bug("a backward pass without kept activations");
	head_backward(p, dlp);
	m->k->rmsnorm_bwd(p->dx, norm->grad, p->dh, p->x[c->layers], norm->value, p->rstd, p->rows, c->hidden, false, m->t);
	for (long i = c->layers - 1; i >= 0; i--) {
		if (p->recompute)
			layer_forward(p, i, p->dh); /* the output is known already and only has to go somewhere */
		mlp_block_backward(p, m->layer + i, acts_of(p, i));
		attention_backward(p, m->layer + i, acts_of(p, i));
	}
	if (embed->grad)
		m->k->embed_bwd(embed->grad, p->dx, p->ids, p->rows, c->hidden, m->t);
}
