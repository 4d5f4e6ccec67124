#include "kernels/model/tp.h"

#include "kernels/model/inside.h"
#include "libcommon/xalloc.h"

#include <stdlib.h>
#include <string.h>

void tp_chunk_cut(long *first, const struct param *p, const struct layout *l)
{
	long n = p->expert ? l->etp : l->tp, per = p->shape[p->rank - 1] / p->chunks;
	bool between = true;

	for (long r = 0; r < n; r++) {
		struct place at = { .tp = r, .etp = r };
		struct box b = param_box(p, l, &at);

		first[r] = b.start[p->rank - 1] / per;
		between = between && b.start[p->rank - 1] % per == 0;
	}
	first[n] = p->chunks;
	for (long r = 0; r <= n && !between; r++)
		first[r] = r;
}

static void vocab_cut(long *first, const struct model *m)
{
	const struct param *p = m->table.p + model_index(m, PARAM_EMBED, -1);
	const struct layout *l = &m->mesh->layout;

	for (long r = 0; r < l->tp; r++) {
		struct place at = { .tp = r };
		struct box b = param_box(p, l, &at);

		first[r] = (b.start[0] + VOCAB_BLOCK - 1) / VOCAB_BLOCK;
	}
	first[l->tp] = (p->shape[0] + VOCAB_BLOCK - 1) / VOCAB_BLOCK;
}

/* The first parameter of that kind, in any layer; NULL: none. */
static const struct param *any(const struct model *m, enum param_kind kind)
{
	for (long i = 0; i < m->table.n; i++)
		if (m->table.p[i].kind == kind)
			return m->table.p + i;
	return NULL;
}

void tp_init(struct tp *t, const struct model *m, bool split)
{
	long n = m->mesh->tp.size;
	const struct param *down = any(m, PARAM_DOWN), *shared = any(m, PARAM_SHARED_DOWN);

	*t = (struct tp){ .m = m, .c = &m->mesh->tp, .split = split && n > 1 };
	t->cut = xcalloc(4 * (size_t)(n + 1), sizeof(long));
	t->out = xcalloc(4 * (size_t)n, sizeof(size_t));
	t->in = t->out + 2 * n;
	t->o = (struct tree_cut){ n, t->cut };
	t->down = (struct tree_cut){ n, t->cut + n + 1 };
	t->shared = (struct tree_cut){ n, t->cut + 2 * (n + 1) };
	t->vocab = (struct tree_cut){ n, t->cut + 3 * (n + 1) };
	tp_chunk_cut(t->cut, any(m, PARAM_O), &m->mesh->layout);
	if (down)
		tp_chunk_cut(t->cut + n + 1, down, &m->mesh->layout);
	if (shared)
		tp_chunk_cut(t->cut + 2 * (n + 1), shared, &m->mesh->layout);
	vocab_cut(t->cut + 3 * (n + 1), m);
}

void tp_release(struct tp *t)
{
	free(t->cut);
	free(t->out);
}

long tp_most(const struct model *m, long rows, bool split)
{
	long n = m->mesh->tp.size;

	return split ? (rows + n - 1) / n : rows;
}

static long larger(long a, long b)
{
	return a > b ? a : b;
}

size_t tp_carve(struct tp *t, const struct model *m, long rows, bool split, char *memory)
{
	long n = m->mesh->tp.size, H = m->table.config.hidden, own = tp_most(m, rows, split), mine,
	     all;
	size_t gather = split ? line_up((size_t)(rows * H) * dtype_size(m->t)) : 0, sum, got;
	struct tp cuts;

	if (n == 1)
		return 0;
	tp_init(&cuts, m, split);
	const struct tree_cut *const rows_of_k[] = { &cuts.o, &cuts.down, &cuts.shared };
	mine = all = 1;
	for (int i = 0; i < 3; i++) {
		mine = larger(mine, tree_parts_of(rows_of_k[i], m->mesh->tp.rank));
		all = larger(all, tree_parts_all(rows_of_k[i]));
	}
	tp_release(&cuts);
	sum = line_up((size_t)(mine * rows * H) * 4);
	got = line_up((size_t)(larger(all * own, rows) * H) * 4);
	if (memory) {
		t->all = memory;
		t->sum = (float *)(void *)(memory + gather);
		t->got = (float *)(void *)(memory + gather + sum);
	}
	return gather + sum + got;
}

void tp_rows(struct tp *t, long rows)
{
	t->R = rows;
	t->first = t->split ? tp_first(t, t->c->rank) : 0;
	t->own = t->split ? tp_first(t, t->c->rank + 1) - t->first : rows;
}

static size_t row_bytes(const struct tp *t)
{
	return (size_t)t->m->table.config.hidden * dtype_size(t->m->t);
}

static size_t rows_of(const struct tp *t, long rank)
{
	return (size_t)(tp_first(t, rank + 1) - tp_first(t, rank));
}

const void *tp_gather(struct tp *t, const void *x)
{
	if (!t->split)
		return x;
	for (int r = 0; r < t->c->size; r++)
		t->in[r] = rows_of(t, r) * row_bytes(t);
	comm_dev_gather_v(t->c, t->all, x, t->in);
	return t->all;
}

/* The parts of every rank for the own rows. */
static void exchange_parts(struct tp *t, const struct weight *w, const void *x,
			   const struct tree_cut *c)
{
	long me = t->c->rank, mine = tree_parts_of(c, me), n = w->matrix.n;
	size_t row = (size_t)w->matrix.k * dtype_size(t->m->t);

	for (int r = 0; r < t->c->size; r++) {
		t->out[r] = rows_of(t, r) * (size_t)(mine * n) * 4;
		t->in[r] = (size_t)(t->own * tree_parts_of(c, r) * n) * 4;
	}
	/* Where a rank has several parts, those of one receiver lie together. */
	for (long r = 0; r < (mine == 1 ? 1 : t->c->size); r++) {
		long first = mine == 1 ? 0 : tp_first(t, r),
		     end = mine == 1 ? t->R : tp_first(t, r + 1);

		t->m->k->linear_parts(t->sum + first * mine * n,
				      (const char *)x + (size_t)first * row, &w->matrix,
				      c->first[me], tree_leaves(c), end - first);
	}
	comm_dev_all_to_all(t->c, t->got, t->in, t->sum, t->out);
}

void tp_row_linear(struct tp *t, void *y, enum dtype ty, const void *x, const struct weight *w,
		   const struct weight *bias, const struct tree_cut *c)
{
	const struct ops *k = t->m->k;

	if (t->c->size == 1) {
		k->linear_fwd(y, ty, x, &w->matrix, value_of(bias), t->R);
		return;
	}
	if (t->split) {
		exchange_parts(t, w, x, c);
	} else {
		k->linear_parts(t->sum, x, &w->matrix, c->first[t->c->rank], tree_leaves(c), t->R);
		for (int r = 0; r < t->c->size; r++)
			t->in[r] = (size_t)(t->R * tree_parts_of(c, r) * w->matrix.n) * 4;
		comm_dev_gather_v(t->c, t->got, t->sum, t->in);
	}
	k->linear_join(y, ty, t->got, c, value_of(bias), t->own, w->matrix.n);
}

void tp_linear_dx(struct tp *t, void *dx, const void *dy, const struct matrix *w, bool add)
{
	if (t->c->size == 1)
		t->m->k->linear_dx(dx, t->m->t, dy, w, t->R, add);
	else
		t->m->k->linear_dx(t->sum, DTYPE_F32, dy, w, t->R, add);
}

void tp_finish_dx(struct tp *t, void *dx)
{
	static const long one[] = { 0, 1 };
	const struct tree_cut whole = { 1, one };
	long H = t->m->table.config.hidden;

	if (t->c->size == 1)
		return;
	for (int r = 0; r < t->c->size; r++)
		t->in[r] = rows_of(t, r) * (size_t)H;
	comm_dev_scatter_sum_f32(t->c, t->got, t->sum, t->in);
	t->m->k->linear_join(dx, t->m->t, t->got, &whole, NULL, t->own, H);
}

static long owner(const struct tp *t, int id)
{
	long r = 0;

	while (id >= t->vocab.first[r + 1] * VOCAB_BLOCK)
		r++;
	return r;
}

/* The rows of [first, end) whose embedding this rank holds, as rows of its table; how many. */
static long held(int *local, const struct tp *t, const int *ids, long first, long end)
{
	long n = 0;

	for (long i = first; i < end; i++)
		if (owner(t, ids[i]) == t->c->rank)
			local[n++] = ids[i] - (int)t->m->here.vocab_first;
	return n;
}

/* in[r]: bytes of the rows of [first, end) that rank r holds. */
static void count_owners(struct tp *t, size_t *bytes, const int *ids, long first, long end)
{
	memset(bytes, 0, (size_t)t->c->size * sizeof(*bytes));
	for (long i = first; i < end; i++)
		bytes[owner(t, ids[i])] += row_bytes(t);
}

/*
 * Rows first .. first + n - 1, each the next of what its owner's part of `by_owner` has, or the
 * other way round.
 */
static void deal(struct tp *t, char *rows, char *by_owner, const int *ids, long first, long n,
		 bool to_owners)
{
	size_t row = row_bytes(t), *at = t->out + t->c->size;
	int *there = xmalloc((size_t)n * sizeof(int) + 1);

	at[0] = 0;
	for (int r = 1; r < t->c->size; r++)
		at[r] = at[r - 1] + t->in[r - 1] / row;
	for (long i = 0; i < n; i++)
		there[i] = (int)at[owner(t, ids[first + i])]++;
	if (to_owners)
		t->m->k->rows_scatter(by_owner, rows, there, n, row);
	else
		t->m->k->rows_gather(rows, by_owner, there, n, row);
	free(there);
}

void tp_embed(struct tp *t, void *y, const struct weight *table, const int *ids)
{
	const struct model *m = t->m;
	int *local;
	long n;

	if (t->c->size == 1) {
		m->k->embed_fwd(y, table->value, ids, t->R, m->table.config.hidden, m->t);
		return;
	}
	local = xmalloc((size_t)t->R * sizeof(int) + 1);
	n = held(local, t, ids, 0, t->R);
	if (n)
		m->k->embed_fwd(t->sum, table->value, local, n, m->table.config.hidden, m->t);
	count_owners(t, t->in, ids, t->first, t->first + t->own);
	if (t->split) {
		for (int r = 0; r < t->c->size; r++)
			t->out[r] = (size_t)held(local, t, ids, tp_first(t, r),
						 tp_first(t, r + 1)) *
				    row_bytes(t);
		comm_dev_all_to_all(t->c, t->got, t->in, t->sum, t->out);
	} else {
		comm_dev_gather_v(t->c, t->got, t->sum, t->in);
	}
	deal(t, y, (char *)t->got, ids, t->first, t->own, false);
	free(local);
}

void tp_embed_bwd(struct tp *t, const struct weight *table, const void *dy, const int *ids)
{
	const struct model *m = t->m;
	int *local;
	long n;

	if (t->c->size == 1) {
		m->k->embed_bwd(table->grad, dy, ids, t->R, m->table.config.hidden, m->t);
		return;
	}
	local = xmalloc((size_t)t->R * sizeof(int) + 1);
	count_owners(t, t->in, ids, t->first, t->first + t->own);
	m->k->copy(t->got, dy, (size_t)t->own * row_bytes(t));
	deal(t, (char *)t->got, (char *)t->sum, ids, t->first, t->own, true);
	for (int r = 0; r < t->c->size; r++)
		t->out[r] = (size_t)held(local, t, ids, tp_first(t, r), tp_first(t, r + 1)) *
			    row_bytes(t);
	comm_dev_all_to_all(t->c, t->got, t->out, t->sum, t->in);
	n = held(local, t, ids, 0, t->R);
	if (n)
		m->k->embed_bwd(table->grad, t->got, local, n, m->table.config.hidden, m->t);
	free(local);
}

static long vocab_first(const struct tp *t, long r)
{
	long first = t->vocab.first[r] * VOCAB_BLOCK, V = t->m->table.config.vocab;

	return first < V ? first : V;
}

const float *tp_logits(struct tp *t, float *z, const float *local, float *stage, long n)
{
	long V = t->m->table.config.vocab;

	if (t->c->size == 1)
		return local;
	for (int r = 0; r < t->c->size; r++)
		t->in[r] = (size_t)(n * (vocab_first(t, r + 1) - vocab_first(t, r))) * 4;
	comm_dev_gather_v(t->c, stage, local, t->in);
	for (int r = 0; r < t->c->size; r++) {
		long first = vocab_first(t, r), cols = vocab_first(t, r + 1) - first;

		t->m->k->columns_copy(z + first, (size_t)V * 4, stage, (size_t)cols * 4, (size_t)cols * 4, n);
		stage += n * cols;
	}
	return z;
}
