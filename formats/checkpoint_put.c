#include "formats/checkpoint.h"

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
	const char *path;
	struct box piece, data_box, part;
	const char *data;
	size_t elem;
	long volume;                    /* of the piece */
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

int writer_store(struct digest *sum, struct checkpoint_writer *w, long tensor, long box, long block,
		 const void *bytes, const uint64_t *hash, struct err *e)
{
	const struct checkpoint_tensor *t = &w->tensor[tensor];
	const struct hdf5_box *b = &w->table.box[box];
	const struct shard *s = &w->table.shard[b->file];
	uint64_t at = (uint64_t)block * CHECKPOINT_BLOCK, n = b->bytes - at;
	struct sum_runs r = { bytes, dtype_size(t->dtype), hash64(t->name, strlen(t->name)), { 0, 0 } };
	struct box sub[2 * TENSOR_RANK], piece = table_box(b, t->rank);
	char *path = path_join(w->dir, s->name);
	int subs, rc;

	n = n < CHECKPOINT_BLOCK ? n : CHECKPOINT_BLOCK;
	subs = table_range(sub, &piece, (long)(at / r.elem), (long)(n / r.elem));
	for (int k = 0; k < subs; k++) {
		box_runs(&sub[k], &sub[k], t->shape, sum_run, &r);
		r.bytes += (size_t)box_volume(&sub[k]) * r.elem;
	}
	*sum = digest_add(*sum, r.sum);
	w->table.block[b->block + (uint64_t)block] = hash ? *hash : hash64(bytes, n);
	w->state[b->block + (uint64_t)block] = BLOCK_HASHED;
	rc = file_pwrite(s->fd, path, bytes, n, b->offset + at, e);
	free(path);
	return rc;
}

static void put_block(void *arg, long i, int thread)
{
	struct put_job *j = arg;
	long per = (long)(CHECKPOINT_BLOCK / j->elem), block = j->first + i, e0 = block * per;
	long n = j->volume - e0 < per ? j->volume - e0 : per, covered = 0, at = 0;
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
			r.offset = j->entry->offset + (uint64_t)(e0 + at) * j->elem;
			if (!whole)
				box_runs(&in, &sub[k], j->t->shape, put_run, &r);
		}
		at += box_volume(&sub[k]);
	}
	if (whole)
		r.rc = writer_store(&r.sum, j->w, j->t - j->w->tensor, j->entry - j->w->table.box, block,
				    bytes, NULL, &r.e);
	else
		j->w->state[j->entry->block + (uint64_t)block] = BLOCK_IN_PARTS;
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
	long per = (long)(CHECKPOINT_BLOCK / j->elem), last[TENSOR_RANK],
	     part = box_volume(&j->part), origin[TENSOR_RANK];

	j->volume = box_volume(&j->piece);
	j->rows = same_rows(&j->piece, &j->data_box);
	for (int i = 0; i < j->part.rank; i++) {
		last[i] = j->part.start[i] + j->part.extent[i] - 1;
		origin[i] = j->part.start[i];
	}
	j->shift = index_in(&j->data_box, origin) - index_in(&j->piece, origin);
	j->first = index_in(&j->piece, origin) / per;
	pool_run(put_block, j, index_in(&j->piece, last) / per + 1 - j->first);
	if ((j->w->put[box] += part) > j->volume)
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
