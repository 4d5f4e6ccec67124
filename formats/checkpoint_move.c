#include "formats/checkpoint_move.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "formats/checkpoint_move_private.h"
#include "libcommon/pool.h"

enum { RUN = 8 };       /* blocks that a thread reads one after the other */

/* -- what a batch needs ------------------------------------------------- */

static void add_parts(struct move_work *k, const struct checkpoint_move *m, const struct move_span *s)
{
	const struct move_target *x = &m->target[s->target];
	enum dtype t = m->from->tensor[x->source].dtype;
	long first = block_first(x, s->first), last, n;
	struct box sub[2 * TENSOR_RANK];
	size_t at = s->at;
	int subs;

	n = grid_range(&last, &x->grid, s->first + s->n - 1);
	subs = table_range(sub, &x->box, first, last + n - first);

	for (int i = 0; i < subs; i++) {
		GROW(k->part, k->parts, k->part_cap);
		k->part[k->parts++] = (struct move_part){ sub[i], at };
		at += (size_t)box_volume(&sub[i]) * dtype_size(t);
	}
}

/* A cheap first look: most pairs of boxes differ in their rows already. */
static bool rows_meet(const struct box *a, const struct box *b)
{
	return !a->rank || (a->start[0] < b->start[0] + b->extent[0] && b->start[0] < a->start[0] + a->extent[0]);
}

/* Index in a dense box of the first or the last element of a part of it. */
static long index_in(const struct box *b, const struct box *part, bool last)
{
	long x = 0;

	for (int i = 0; i < b->rank; i++)
		x = x * b->extent[i] + part->start[i] - b->start[i] + (last ? part->extent[i] - 1 : 0);
	return x;
}

static void add_read(struct move_work *k, long source, long box, long first, long n)
{
	GROW(k->read, k->reads, k->read_cap);
	k->read[k->reads++] = (struct move_read){ source, box, first, n };
}

/* The blocks of one old box that hold elements of the parts of its tensor. */
static void add_reads(struct move_work *k, const struct checkpoint_move *m, const struct move_gather *g, long box)
{
	const struct checkpoint_tensor *s = &m->from->tensor[g->source];
	const struct hdf5_box *b = &m->from->table->box[box];
	struct box old = table_box(b, s->rank), in;
	struct grid grid = table_grid(m->from->table, b);
	unsigned char *wanted = NULL;

	for (long i = g->first; i < g->first + g->parts; i++) {
		const struct box *part = &k->part[i].box;

		if (!rows_meet(&old, part) || !box_intersect(&in, &old, part))
			continue;
		if (!wanted)
			wanted = xcalloc((size_t)grid.blocks, 1);
		long lo = grid_block(&grid, index_in(&old, &in, false)), hi = grid_block(&grid, index_in(&old, &in, true));
		memset(wanted + lo, 1, (size_t)(hi - lo + 1));
	}
	for (long i = 0, n; wanted && i < grid.blocks; i += n) {
		for (n = 1; n < RUN && i + n < grid.blocks && wanted[i + n] == wanted[i];)
			n++;
		if (wanted[i])
			add_read(k, g->source, box, i, n);
	}
	free(wanted);
}

static int by_offset(const void *a, const void *b, void *arg)
{
	const struct move_read *x = a, *y = b;
	const struct checkpoint_table *t = arg;
	const struct hdf5_box *p = &t->box[x->box], *q = &t->box[y->box];

	if (p->file != q->file)
		return p->file < q->file ? -1 : 1;
	if (p->offset != q->offset)
		return p->offset < q->offset ? -1 : 1;
	return x->first < y->first ? -1 : x->first > y->first;
}

void move_work_init(struct move_work *k, const struct checkpoint_move *m, const struct move_batch *b)
{
	const struct checkpoint_table *t = m->from->table;

	*k = (struct move_work){ 0 };
	k->gather_of = xcalloc((size_t)m->from->n + 1, sizeof(long));
	for (long i = b->span; i < b->span + b->spans; i++) {
		long source = m->target[m->span[i].target].source, before = k->parts;

		add_parts(k, m, &m->span[i]);
		if (!k->gathers || k->gather[k->gathers - 1].source != source) {
			GROW(k->gather, k->gathers, k->gather_cap);
			k->gather_of[source] = k->gathers;
			k->gather[k->gathers++] = (struct move_gather){ source, before, 0 };
		}
		k->gather[k->gathers - 1].parts += k->parts - before;
	}
	for (long i = 0; i < k->gathers; i++)
		for (long box = t->first[k->gather[i].source]; box < t->first[k->gather[i].source + 1]; box++)
			add_reads(k, m, &k->gather[i], box);
	if (k->reads)
		qsort_r(k->read, (size_t)k->reads, sizeof(*k->read), by_offset, (void *)t);
}

void move_work_release(struct move_work *k)
{
	free(k->part);
	free(k->gather);
	free(k->read);
	free(k->gather_of);
	*k = (struct move_work){ 0 };
}

/* -- moving ------------------------------------------------------------- */

struct store { long target, block; size_t at; uint64_t turn; };
/* A copy of the batch, and when it is its turn. */
struct turn { long copy; uint64_t turn; };

struct mover {
	const struct checkpoint_move *m;
	struct checkpoint_writer *w;
	const struct move_batch *batch;
	struct move_work work;
	struct store *store; long stores, store_cap;
	struct turn *turn; long turn_cap;
	long *in_file;          /* of the new checkpoint: what was listed for it */
	char *buffer;
	char **scratch;         /* a block for each thread */
	pthread_mutex_t lock;   /* of what follows, and of the sums in w */
	int rc;
	struct err *e;
};

static bool has_failed(struct mover *v)
{
	return __atomic_load_n(&v->rc, __ATOMIC_RELAXED) != 0;
}

static void fail(struct mover *v, const struct err *e)
{
	pthread_mutex_lock(&v->lock);
	if (!v->rc)
		*v->e = *e;
	__atomic_store_n(&v->rc, -1, __ATOMIC_RELAXED);
	pthread_mutex_unlock(&v->lock);
}

/* An old block's elements go to every part of the batch that they belong to. */
static void scatter(struct mover *v, const struct move_read *r, long block, const char *bytes)
{
	const struct move_gather *g = &v->work.gather[v->work.gather_of[r->source]];
	const struct checkpoint_tensor *s = &v->m->from->tensor[r->source];
	const struct hdf5_box *b = &v->m->from->table->box[r->box];
	struct box old = table_box(b, s->rank), sub[2 * TENSOR_RANK], in;
	struct grid grid = table_grid(v->m->from->table, b);
	size_t elem = dtype_size(s->dtype);
	long first, n = grid_range(&first, &grid, block);
	int subs = table_range(sub, &old, first, n);

	for (int i = 0; i < subs; i++) {
		for (long k = g->first; k < g->first + g->parts; k++) {
			const struct move_part *p = &v->work.part[k];

			if (rows_meet(&p->box, &sub[i]) && box_intersect(&in, &p->box, &sub[i]))
				box_copy(v->buffer + p->at, &p->box, bytes, &sub[i], &in, elem);
		}
		bytes += (size_t)box_volume(&sub[i]) * elem;
	}
}

static void gather_read(void *arg, long i, int thread)
{
	struct mover *v = arg;
	const struct move_read *r = &v->work.read[i];
	struct err e = ERR_INIT;

	for (long k = r->first; k < r->first + r->n && !has_failed(v); k++) {
		if (table_fetch(v->scratch[thread], v->m->from, r->source, r->box, k, &e))
			fail(v, &e);
		else
			scatter(v, r, k, v->scratch[thread]);
	}
}

static long box_of(const struct mover *v, const struct move_target *x)
{
	return v->w->table.first[v->w->place[x->tensor]] + x->nth;
}

static void store(struct mover *v, const struct move_target *x, long block, const void *bytes, const uint64_t *hash)
{
	long k = v->w->place[x->tensor], first;
	struct digest sum = { 0, 0 };
	struct err e = ERR_INIT;

	if (writer_store(&sum, v->w, k, box_of(v, x), block, bytes, hash, &e)) {
		fail(v, &e);
		return;
	}
	pthread_mutex_lock(&v->lock);
	v->w->sum[k] = digest_add(v->w->sum[k], sum);
	v->w->put[box_of(v, x)] += grid_range(&first, &x->grid, block);
	pthread_mutex_unlock(&v->lock);
}

static void store_gathered(void *arg, long i, int thread)
{
	struct mover *v = arg;
	const struct store *s = &v->store[i];

	(void)thread;
	if (!has_failed(v))
		store(v, &v->m->target[s->target], s->block, v->buffer + s->at, NULL);
}

static void copy_blocks(void *arg, long i, int thread)
{
	struct mover *v = arg;
	const struct move_copy *c = &v->m->copy[v->turn[i].copy];
	const struct move_target *x = &v->m->target[c->target];
	const struct checkpoint_table *t = v->m->from->table;
	struct err e = ERR_INIT;

	for (long k = 0; k < c->n && !has_failed(v); k++) {
		if (table_fetch(v->scratch[thread], v->m->from, x->source, c->box, c->from + k, &e))
			fail(v, &e);
		else
			store(v, x, c->first + k, v->scratch[thread], &t->block[t->box[c->box].block + (uint64_t)(c->from + k)]);
	}
}

/*
 * One after the other into different files: writers of one file wait for each other.  The n-th of a
 * file comes before the n+1st of any.
 */
static uint64_t next_turn(struct mover *v, long target)
{
	uint32_t file = v->w->table.box[box_of(v, &v->m->target[target])].file;

	return (uint64_t)v->in_file[file]++ << 32 | file;
}

static int by_store_turn(const void *a, const void *b)
{
	const struct store *x = a, *y = b;

	return x->turn < y->turn ? -1 : x->turn > y->turn;
}

static int by_turn(const void *a, const void *b)
{
	const struct turn *x = a, *y = b;

	return x->turn < y->turn ? -1 : x->turn > y->turn;
}

static void list_copies(struct mover *v)
{
	const struct move_batch *b = v->batch;

	memset(v->in_file, 0, (size_t)v->w->table.shards * sizeof(*v->in_file));
	if (v->turn_cap < b->copies)
		v->turn = xrealloc(v->turn, (size_t)(v->turn_cap = b->copies) * sizeof(*v->turn));
	for (long i = 0; i < b->copies; i++)
		v->turn[i] = (struct turn){ b->copy + i, next_turn(v, v->m->copy[b->copy + i].target) };
	if (b->copies)
		qsort(v->turn, (size_t)b->copies, sizeof(*v->turn), by_turn);
}

static void list_stores(struct mover *v)
{
	const struct move_batch *b = v->batch;

	v->stores = 0;
	memset(v->in_file, 0, (size_t)v->w->table.shards * sizeof(*v->in_file));
	for (long i = b->span; i < b->span + b->spans; i++) {
		const struct move_span *s = &v->m->span[i];
		size_t at = s->at;

		for (long k = 0; k < s->n; k++) {
			GROW(v->store, v->stores, v->store_cap);
			v->store[v->stores++] = (struct store){ s->target, s->first + k, at, next_turn(v, s->target) };
			at += block_bytes(v->m, &v->m->target[s->target], s->first + k);
		}
	}
	if (v->stores)
		qsort(v->store, (size_t)v->stores, sizeof(*v->store), by_store_turn);
}

/* Threads read only shards that are open. */
static int open_shards(struct mover *v, const struct move_batch *b)
{
	const struct checkpoint_move *m = v->m;

	for (long i = 0; i < v->work.reads; i++)
		if (table_open_shard(m->from, v->work.read[i].source, v->work.read[i].box, v->e))
			return -1;
	for (long i = b->copy; i < b->copy + b->copies; i++)
		if (table_open_shard(m->from, m->target[m->copy[i].target].source, m->copy[i].box, v->e))
			return -1;
	return 0;
}

static double batch_bytes(const struct checkpoint_move *m, const struct move_batch *b)
{
	double bytes = (double)b->bytes;

	for (long i = b->copy; i < b->copy + b->copies; i++) {
		const struct move_target *x = &m->target[m->copy[i].target];

		for (long k = 0; k < m->copy[i].n; k++)
			bytes += (double)block_bytes(m, x, m->copy[i].first + k);
	}
	return bytes;
}

static int move_batch(struct mover *v, const struct move_batch *b)
{
	v->batch = b;
	move_work_init(&v->work, v->m, b);
	if (open_shards(v, b))
		v->rc = -1;
	if (!v->rc)
		pool_run(gather_read, v, v->work.reads);
	list_stores(v);
	list_copies(v);
	if (!v->rc)
		pool_run(store_gathered, v, v->stores);
	if (!v->rc)
		pool_run(copy_blocks, v, b->copies);
	move_work_release(&v->work);
	return v->rc;
}

int checkpoint_move_run(struct checkpoint_move *m, struct checkpoint_writer *w, void (*moved)(void *arg, double bytes),
			void *arg, struct err *e)
{
	struct mover v = { .m = m, .w = w, .e = e, .lock = PTHREAD_MUTEX_INITIALIZER };
	int threads = pool_threads();

	v.buffer = m->largest ? big_alloc(m->largest, "blocks on their way to another layout") : NULL;
	v.in_file = xcalloc((size_t)w->table.shards + 1, sizeof(*v.in_file));
	v.scratch = xcalloc((size_t)threads, sizeof(*v.scratch));
	for (int i = 0; i < threads; i++)
		v.scratch[i] = xmalloc(CHECKPOINT_BLOCK);
	for (long i = 0; i < m->batches && !v.rc; i++)
		if (!move_batch(&v, &m->batch[i]) && moved)
			moved(arg, batch_bytes(m, &m->batch[i]));
	for (int i = 0; i < threads; i++)
		free(v.scratch[i]);
	free(v.scratch);
	free(v.store);
	free(v.turn);
	free(v.in_file);
	if (v.buffer)
		big_free(v.buffer);
	w->same_as = m->from;
	/* Rank 0 has to take the directory away, whoever failed. */
	return writer_agree(w, v.rc, e);
}
