#include "formats/checkpoint.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "formats/checkpoint_table.h"
#include "libcommon/file.h"
#include "libcommon/pool.h"

/* One piece's share of a put: the elements of `part`, block by block of the piece. */
struct put_job {
	struct checkpoint_writer *w;
	const struct checkpoint_tensor *t;
	struct hdf5_box *entry;
	const struct shard *shard;
	struct grid grid;
	uint64_t base;                  /* of the piece in the file that shard->fd is now */
	const char *path;
	struct box piece, data_box, part;
	const char *data;
	size_t elem;
	long first;                     /* block of the first element of the part */
	bool rows;                      /* piece and data differ in the first dimension only */
	long shift;                     /* then: index in the data minus index in the piece */
	uint64_t name_hash;
	char **scratch;                 /* a block for each thread */
	pthread_mutex_t lock;           /* of what follows */
	struct digest sum;
	int rc;
	struct err *e;
};

/* Runs of one sub-box of a block that is put in parts. */
struct put_run {
	struct put_job *j;
	const char *at;                 /* the sub-box's elements */
	uint64_t offset;                /* of them in the file */
	struct digest sum;
	int rc;
	struct err e;
};

static void put_run(void *arg, long offset, long flat, long n)
{
	struct put_run *r = arg;
	const struct put_job *j = r->j;
	const char *p = r->at + (size_t)offset * j->elem;

	r->sum = digest_add(
		r->sum, digest_elements(p, (size_t)n, (int)j->elem, (uint64_t)flat, j->name_hash));
	if (!r->rc)
		r->rc = file_pwrite(j->shard->fd, j->path, p, (size_t)n * j->elem,
				    r->offset + (uint64_t)offset * j->elem, &r->e);
}

struct sum_runs { const char *bytes; size_t elem; uint64_t name_hash; struct digest sum; };

static void sum_run(void *arg, long offset, long flat, long n)
{
	struct sum_runs *r = arg;

	r->sum = digest_add(r->sum, digest_elements(r->bytes + (size_t)offset * r->elem, (size_t)n,
						    (int)r->elem, (uint64_t)flat, r->name_hash));
}

/* A chunk goes, packed, behind those that came before; in which order does not matter. */
static int spill(struct shard *s, const char *path, struct hdf5_chunk *c, const struct grid *g,
		 const void *bytes, long n, size_t elem, int level, struct err *e)
{
	struct chunk_codec *codec = chunk_codec_take();
	int rc;

	c->bytes = chunk_pack(codec, bytes, n, g->per, elem, level);
	c->hash = hash64(codec->stored, c->bytes);
	c->offset = __atomic_fetch_add(&s->spilled, c->bytes, __ATOMIC_RELAXED);
	rc = file_pwrite(s->spill, path, codec->stored, c->bytes, c->offset, e);
	chunk_codec_give(codec);
	return rc;
}

static int store(struct checkpoint_writer *w, long box, long i, const void *bytes,
		 const uint64_t *hash, struct err *e)
{
	const struct hdf5_box *b = &w->table.box[box];
	struct shard *s = &w->table.shard[b->file];
	struct grid g = table_grid(&w->table, b);
	size_t elem = dtype_size((enum dtype)b->dtype);
	uint64_t block = b->block + (uint64_t)i;
	long first, n = grid_range(&first, &g, i);
	char *path = path_join(w->dir, s->name);
	int rc;

	w->table.block[block] = hash ? *hash : hash64(bytes, (size_t)n * elem);
	w->state[block] = BLOCK_HASHED;
	rc = g.chunked ? spill(s, path, &w->table.chunk[block], &g, bytes, n, elem,
			       w->table.compress, e)
		       : direct_pwrite(&s->direct, s->fd, path, bytes, (size_t)n * elem,
				       (w->raw ? w->raw[box] : b->offset) + (uint64_t)first * elem, e);
	free(path);
	return rc;
}

int writer_store(struct digest *sum, struct checkpoint_writer *w, long tensor, long box, long block,
		 const void *bytes, const uint64_t *hash, struct err *e)
{
	const struct checkpoint_tensor *t = &w->tensor[tensor];
	const struct hdf5_box *b = &w->table.box[box];
	struct sum_runs r = { bytes, dtype_size(t->dtype), hash64(t->name, strlen(t->name)), { 0, 0 } };
	struct box sub[2 * TENSOR_RANK], piece = table_box(b, t->rank);
	struct grid g = table_grid(&w->table, b);
	long first, n = grid_range(&first, &g, block);
	int subs = table_range(sub, &piece, first, n);

	for (int k = 0; k < subs; k++) {
		box_runs(&sub[k], &sub[k], t->shape, sum_run, &r);
		r.bytes += (size_t)box_volume(&sub[k]) * r.elem;
	}
	*sum = digest_add(*sum, r.sum);
	return store(w, box, block, bytes, hash, e);
}

/*
 * Some elements of a block were written to where they wait; of a chunk perhaps the last, and then
 * it goes on as one that came whole.
 */
static int store_parts(const struct put_job *j, long i, long e0, long n, long covered, int thread,
		       struct err *e)
{
	uint64_t block = j->entry->block + (uint64_t)i, at = j->base + (uint64_t)e0 * j->elem;
	size_t size = (size_t)n * j->elem;

	j->w->state[block] = BLOCK_IN_PARTS;
	if (!j->grid.chunked || (j->w->filled[block] += covered) < n)
		return 0;
	if (file_pread(j->shard->fd, j->path, j->scratch[thread], size, at, e))
		return -1;
	/* Gives the room back where the file system can. */
	(void)!fallocate(j->shard->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)at,
			 (off_t)size);
	return store(j->w, j->entry - j->w->table.box, i, j->scratch[thread], NULL, e);
}

static void put_block(void *arg, long i, int thread)
{
	struct put_job *j = arg;
	long block = j->first + i, e0, n = grid_range(&e0, &j->grid, block), covered = 0, at = 0;
	struct box sub[2 * TENSOR_RANK], in;
	int subs = table_range(sub, &j->piece, e0, n);
	struct put_run r = { .j = j };
	const char *bytes = j->scratch[thread];
	bool direct, whole;

	for (int k = 0; k < subs; k++)
		covered += box_intersect(&in, &sub[k], &j->part);
	if (!covered)
		return;
	direct = j->rows && covered == n;
	if (direct)
		bytes = j->data + (size_t)(e0 + j->shift) * j->elem;
	whole = covered == n;
	for (int k = 0; k < subs; k++) {
		if (box_intersect(&in, &sub[k], &j->part)) {
			if (!direct)
				box_copy(j->scratch[thread] + (size_t)at * j->elem, &sub[k],
					 j->data, &j->data_box, &in, j->elem);
			r.at = bytes + (size_t)at * j->elem;
			r.offset = j->base + (uint64_t)(e0 + at) * j->elem;
			if (!whole)
				box_runs(&in, &sub[k], j->t->shape, put_run, &r);
		}
		at += box_volume(&sub[k]);
	}
	if (whole)
		r.rc = writer_store(&r.sum, j->w, j->t - j->w->tensor, j->entry - j->w->table.box, block,
				    bytes, NULL, &r.e);
	else if (!r.rc)
		r.rc = store_parts(j, block, e0, n, covered, thread, &r.e);
	pthread_mutex_lock(&j->lock);
	j->sum = digest_add(j->sum, r.sum);
	if (r.rc && !j->rc) {
		j->rc = -1;
		*j->e = r.e;
	}
	pthread_mutex_unlock(&j->lock);
}

static bool same_rows(const struct box *a, const struct box *b)
{
	for (int i = 1; i < a->rank; i++)
		if (a->start[i] != b->start[i] || a->extent[i] != b->extent[i])
			return false;
	return true;
}

/* Index of an element, given by its coordinates, in a dense box. */
static long index_in(const struct box *b, const long *at)
{
	long x = 0;

	for (int i = 0; i < b->rank; i++)
		x = x * b->extent[i] + at[i] - b->start[i];
	return x;
}

static int put_piece(struct put_job *j, long box)
{
	long last[TENSOR_RANK], part = box_volume(&j->part), origin[TENSOR_RANK];

	j->rows = same_rows(&j->piece, &j->data_box);
	for (int i = 0; i < j->part.rank; i++) {
		last[i] = j->part.start[i] + j->part.extent[i] - 1;
		origin[i] = j->part.start[i];
	}
	j->shift = index_in(&j->data_box, origin) - index_in(&j->piece, origin);
	j->first = grid_block(&j->grid, index_in(&j->piece, origin));
	pool_run(put_block, j, grid_block(&j->grid, index_in(&j->piece, last)) + 1 - j->first);
	if ((j->w->put[box] += part) > box_volume(&j->piece))
		bug("%s: elements put twice", j->t->name);
	return j->rc;
}

int checkpoint_put(struct checkpoint_writer *w, long tensor, const struct box *b, const void *data,
		   struct err *e)
{
	long k = w->place[tensor];
	const struct checkpoint_tensor *t = &w->tensor[k];
	struct put_job j = { .w = w,
			     .t = t,
			     .data = data,
			     .elem = dtype_size(t->dtype),
			     .e = e,
			     .lock = PTHREAD_MUTEX_INITIALIZER };
	int threads = pool_threads(), rc = 0;

	j.data_box = b ? *b : box_whole(t->shape, t->rank);
	if (!box_inside(&j.data_box, t->shape, t->rank))
		bug("%s: a put outside of it", t->name);
	j.name_hash = hash64(t->name, strlen(t->name));
	j.scratch = xcalloc((size_t)threads, sizeof(*j.scratch));
	for (int i = 0; i < threads; i++)
		j.scratch[i] = xmalloc(CHECKPOINT_BLOCK);
	for (long i = w->table.first[k]; i < w->table.first[k + 1] && !rc; i++) {
		char *path;

		j.entry = &w->table.box[i];
		j.shard = &w->table.shard[j.entry->file];
		j.piece = table_box(j.entry, t->rank);
		j.grid = table_grid(&w->table, j.entry);
		j.base = w->raw ? w->raw[i] : j.entry->offset;
		if (!writer_owns(w, j.shard) || !box_intersect(&j.part, &j.piece, &j.data_box))
			continue;
		j.path = path = path_join(w->dir, j.shard->name);
		rc = put_piece(&j, i);
		free(path);
	}
	w->sum[k] = digest_add(w->sum[k], j.sum);
	for (int i = 0; i < threads; i++)
		free(j.scratch[i]);
	free(j.scratch);
	return rc;
}
