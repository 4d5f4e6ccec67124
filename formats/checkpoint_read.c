#include "formats/checkpoint.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/checkpoint_table.h"
#include "libcommon/file.h"
#include "libcommon/pool.h"

/*
 * One stored box's share of a read: block by block, each verified, then what is wanted is copied
 * out.
 */
struct read_job {
	const struct checkpoint *c;
	const struct checkpoint_tensor *t;
	const struct hdf5_box *entry;
	struct grid grid;
	struct box stored, wanted, part;
	char *out;                      /* holds `wanted`; NULL: verify only */
	size_t elem;
	long first;
	bool rows;                      /* stored and wanted differ in the first dimension only */
	/* then: index in the output minus index in the stored box */
	long shift;
	uint64_t name_hash;
	char **scratch;
	pthread_mutex_t lock;           /* of what follows */
	struct digest sum;              /* when verifying */
	int rc;
	struct err *e;
};

/* A shard is opened once; its size and the bytes around its data are checked then. */
static int open_shard(struct checkpoint *c, struct shard *s, const char *path, struct err *e)
{
	struct manifest_file f = { .bytes = s->bytes };
	char have[33], want[33];
	struct digest d;

	if (s->fd >= 0)
		return 0;
	strcpy(f.name, s->name);
	if (manifest_check_size(c->dir, &f, e))
		return -1;
	s->fd = open(path, O_RDONLY | O_CLOEXEC);
	if (s->fd < 0)
		return err_errno(e, EX_IOERR, "%s", path);
	if (table_frame(&d, c->table, s, path, e) == 0) {
		if (digest_equal(d, s->frame)) {
			direct_open(&s->direct, s->fd, path, O_RDONLY);
			return 0;
		}
		err_set(e, EX_DATAERR,
			"%s: the bytes around its data have checksum %s, wanted %s: damaged or of another checkpoint",
			path, digest_hex(have, d), digest_hex(want, s->frame));
	}
	close(s->fd);
	s->fd = -1;
	return -1;
}

static void fail(struct read_job *j, const struct err *e)
{
	pthread_mutex_lock(&j->lock);
	if (!j->rc)
		*j->e = *e;
	j->rc = -1;
	pthread_mutex_unlock(&j->lock);
}

int table_open_shard(struct checkpoint *c, long tensor, long box, struct err *e)
{
	const struct checkpoint_tensor *t = &c->tensor[tensor];
	struct shard *s = &c->table->shard[c->table->box[box].file];
	char *path;
	int rc;

	if (s->fd >= 0)
		return 0;
	path = path_join(c->dir, s->name);
	rc = open_shard(c, s, path, e);
	if (rc)
		err_prefix(e, "%s (%s)", t->name, slot_name(t->slot));
	free(path);
	return rc;
}

/* The stored bytes of a block have the checksum that they should. */
static int fetch_stored(void *out, struct shard *s, const char *path,
			const struct hdf5_chunk *c, struct err *e)
{
	uint64_t have;

	if (direct_pread(&s->direct, s->fd, path, out, c->bytes, c->offset, e))
		return -1;
	have = hash64(out, c->bytes);
	if (have == c->hash)
		return 0;
	return err_set(
		e, EX_DATAERR,
		"%s: the %llu bytes at %llu have checksum %016llx, wanted %016llx: damaged", path,
		(unsigned long long)c->bytes, (unsigned long long)c->offset,
		(unsigned long long)have, (unsigned long long)c->hash);
}

/* And what a chunk unpacks to is right too. */
static int fetch_chunk(void *out, struct shard *s, const char *path,
		       const struct hdf5_chunk *c, long n, long full, size_t elem, uint64_t hash,
		       struct err *e)
{
	struct chunk_codec *codec = chunk_codec_take();
	int rc = fetch_stored(chunk_room(codec), s, path, c, e);

	if (!rc && (chunk_unpack(out, codec, c->bytes, n, full, elem) ||
		    hash64(out, (size_t)n * elem) != hash))
		rc = err_set(e, EX_DATAERR,
			     "%s: the chunk at %llu does not unpack to its %zu bytes: damaged", path,
			     (unsigned long long)c->offset, (size_t)n * elem);
	chunk_codec_give(codec);
	return rc;
}

int table_fetch(void *out, const struct checkpoint *c, long tensor, long box, long block, struct err *e)
{
	const struct checkpoint_tensor *t = &c->tensor[tensor];
	const struct hdf5_box *b = &c->table->box[box];
	struct shard *s = &c->table->shard[b->file];
	struct grid g = table_grid(c->table, b);
	uint64_t i = b->block + (uint64_t)block;
	long first, n = grid_range(&first, &g, block);
	char *path = path_join(c->dir, s->name);
	int rc = g.chunked ? fetch_chunk(out, s, path, &c->table->chunk[i], n, g.per,
					 dtype_size(t->dtype), c->table->block[i], e)
			   : fetch_stored(out, s, path, &c->table->chunk[i], e);

	if (rc)
		err_prefix(e, "%s (%s)", t->name, slot_name(t->slot));
	free(path);
	return rc;
}

struct sum_run {
	const struct read_job *j;
	const char *at;
	struct digest sum;
};

static void sum_run(void *arg, long offset, long flat, long n)
{
	struct sum_run *r = arg;

	r->sum = digest_add(r->sum,
			    digest_elements(r->at + (size_t)offset * r->j->elem, (size_t)n,
					    (int)r->j->elem, (uint64_t)flat, r->j->name_hash));
}

static void read_block(void *arg, long i, int thread)
{
	struct read_job *j = arg;
	long block = j->first + i, e0, n = grid_range(&e0, &j->grid, block), covered = 0, at = 0;
	struct box sub[2 * TENSOR_RANK], in;
	int subs = table_range(sub, &j->stored, e0, n);
	struct sum_run r = { .j = j };
	char *bytes = j->scratch[thread];
	struct err e = ERR_INIT;
	bool direct;

	for (int k = 0; k < subs; k++)
		covered += box_intersect(&in, &sub[k], &j->part);
	if (!covered)
		return;
	direct = j->out && j->rows && covered == n;
	if (direct)
		bytes = j->out + (size_t)(e0 + j->shift) * j->elem;
	if (table_fetch(bytes, j->c, j->t - j->c->tensor, j->entry - j->c->table->box, block, &e)) {
		fail(j, &e);
		return;
	}
	if (direct)
		return;
	for (int k = 0; k < subs; k++) {
		r.at = bytes + (size_t)at * j->elem;
		at += box_volume(&sub[k]);
		if (!box_intersect(&in, &sub[k], &j->part))
			continue;
		if (j->out)
			box_copy(j->out, &j->wanted, r.at, &sub[k], &in, j->elem);
		else
			box_runs(&in, &sub[k], j->t->shape, sum_run, &r);
	}
	if (j->out)
		return;
	pthread_mutex_lock(&j->lock);
	j->sum = digest_add(j->sum, r.sum);
	pthread_mutex_unlock(&j->lock);
}

static long index_in(const struct box *b, const long *at)
{
	long x = 0;

	for (int i = 0; i < b->rank; i++)
		x = x * b->extent[i] + at[i] - b->start[i];
	return x;
}

static void read_box(struct read_job *j)
{
	long last[TENSOR_RANK], origin[TENSOR_RANK];

	j->grid = table_grid(j->c->table, j->entry);
	j->rows = true;
	for (int i = 0; i < j->part.rank; i++) {
		last[i] = j->part.start[i] + j->part.extent[i] - 1;
		origin[i] = j->part.start[i];
		if (i && (j->stored.start[i] != j->wanted.start[i] ||
			  j->stored.extent[i] != j->wanted.extent[i]))
			j->rows = false;
	}
	j->shift = index_in(&j->wanted, origin) - index_in(&j->stored, origin);
	j->first = grid_block(&j->grid, index_in(&j->stored, origin));
	pool_run(read_block, j,
		 grid_block(&j->grid, index_in(&j->stored, last)) + 1 - j->first);
}

/* out NULL: verify, and add the digest up into *sum. */
static int read_tensor(char *out, struct checkpoint *c, long tensor, const struct box *b,
		       struct digest *sum, struct err *e)
{
	const struct checkpoint_tensor *t = &c->tensor[tensor];
	struct read_job j = { .c = c,
			      .t = t,
			      .out = out,
			      .elem = dtype_size(t->dtype),
			      .e = e,
			      .lock = PTHREAD_MUTEX_INITIALIZER };
	int threads = pool_threads();
	long got = 0;

	j.wanted = b ? *b : box_whole(t->shape, t->rank);
	if (!box_inside(&j.wanted, t->shape, t->rank))
		bug("%s: a read outside of it", t->name);
	j.name_hash = hash64(t->name, strlen(t->name));
	j.scratch = xcalloc((size_t)threads, sizeof(*j.scratch));
	for (int i = 0; i < threads; i++)
		j.scratch[i] = xmalloc(CHECKPOINT_BLOCK);
	for (long i = c->table->first[tensor]; i < c->table->first[tensor + 1] && !j.rc; i++) {
		j.entry = &c->table->box[i];
		j.stored = table_box(j.entry, t->rank);
		if (!box_intersect(&j.part, &j.stored, &j.wanted))
			continue;
		if (table_open_shard(c, tensor, i, e))
			j.rc = -1;
		else
			read_box(&j);
		got += box_volume(&j.part);
	}
	for (int i = 0; i < threads; i++)
		free(j.scratch[i]);
	free(j.scratch);
	if (sum)
		*sum = j.sum;
	if (!j.rc && got != box_volume(&j.wanted))
		bug("%s: %ld elements read, wanted %ld", t->name, got, box_volume(&j.wanted));
	return j.rc;
}

int table_sum(struct digest *sum, struct checkpoint *c, long tensor, struct err *e)
{
	return read_tensor(NULL, c, tensor, NULL, sum, e);
}

int checkpoint_read(void *out, struct checkpoint *c, long tensor, const struct box *b,
		    struct err *e)
{
	return read_tensor(out, c, tensor, b, NULL, e);
}

/*
 * Raw bits go to the upper end of the output and are widened upwards: what is read is always ahead
 * of what is written.
 */
int checkpoint_read_f32(float *out, struct checkpoint *c, long tensor, const struct box *b,
			struct err *e)
{
	enum { PIECE = 4096 };
	const struct checkpoint_tensor *t = &c->tensor[tensor];
	struct box whole = b ? *b : box_whole(t->shape, t->rank);
	size_t n = (size_t)box_volume(&whole), size = dtype_size(t->dtype);
	char *raw = (char *)out + n * (sizeof(float) - size), piece[PIECE * sizeof(float)];

	if (!dtype_is_float(t->dtype))
		return err_set(e, EX_DATAERR, "%s: %s: %s is no floating type", c->dir, t->name,
			       dtype_name(t->dtype));
	if (t->dtype == DTYPE_F32)
		return checkpoint_read(out, c, tensor, b, e);
	if (size > sizeof(float)) {
		raw = xmalloc(n * size + 1);
		if (!checkpoint_read(raw, c, tensor, b, e))
			dtype_convert(out, DTYPE_F32, raw, t->dtype, n);
		else
			n = 0;
		free(raw);
		return n || !box_volume(&whole) ? 0 : -1;
	}
	if (checkpoint_read(raw, c, tensor, b, e))
		return -1;
	for (size_t i = 0; i < n; i += PIECE) {
		size_t m = n - i < PIECE ? n - i : PIECE;

		memcpy(piece, raw + i * size, m * size);
		dtype_convert(out + i, DTYPE_F32, piece, t->dtype, m);
	}
	return 0;
}

/* The files that the manifest names: size, and the hash of those that are hashed whole. */
static int verify_files(const struct checkpoint *c, struct err *e)
{
	struct manifest_file f;

	for (long i = 0; i < c->sides; i++)
		if (manifest_check_file(c->dir, &c->side[i], e))
			return -1;
	if (c->has_tokenizer)
		if (manifest_get_file(&f, &c->manifest,
				      json_path(&c->manifest.root, "tokenizer.file"), e) ||
		    manifest_check_file(c->dir, &f, e))
			return -1;
	return 0;
}

static int verify_data(struct checkpoint *c, struct err *e)
{
	struct digest sum;

	for (long i = 0; i < c->n; i++) {
		if (table_sum(&sum, c, i, e))
			return -1;
		if (!digest_equal(sum, c->sum[i]))
			return err_set(e, EX_DATAERR,
				       "%s: %s (%s): its digest is not the one in the manifest",
				       c->dir, c->tensor[i].name, slot_name(c->tensor[i].slot));
	}
	return 0;
}

int checkpoint_verify(struct checkpoint *c, bool deep, struct err *e)
{
	struct checkpoint_table *t = c->table;

	if (verify_files(c, e))
		return -1;
	for (int i = 0; i < t->shards; i++) {
		char *path = path_join(c->dir, t->shard[i].name);
		int rc = open_shard(c, &t->shard[i], path, e);

		free(path);
		if (rc)
			return -1;
	}
	if (!digest_equal(table_digest(c->tensor, c->sum, t->sorted, c->n, false),
			  c->weights_digest))
		return err_set(e, EX_DATAERR, "%s: weights_digest is not that of its tensors",
			       c->dir);
	if (c->has_optimizer &&
	    !digest_equal(table_digest(c->tensor, c->sum, t->sorted, c->n, true),
			  c->optimizer_digest))
		return err_set(e, EX_DATAERR, "%s: optimizer_digest is not that of its tensors",
			       c->dir);
	return deep ? verify_data(c, e) : 0;
}

int checkpoint_check_master(const char *name, const void *weight, enum dtype dtype,
			    const float *master, long first, long n, struct err *e)
{
	for (long i = 0; i < n; i++) {
		uint32_t have, want, inf;

		if (dtype == DTYPE_BF16 || dtype == DTYPE_F16) {
			bool bf = dtype == DTYPE_BF16;

			have = ((const uint16_t *)weight)[i];
			want = bf ? f32_to_bf16(master[i]) : f32_to_f16(master[i]);
			inf = bf ? 0x7f80 : 0x7c00;
			if (have == want || ((have & 0x7fff) > inf && (want & 0x7fff) > inf))
				continue;
		} else if (dtype == DTYPE_F32) {
			have = ((const uint32_t *)weight)[i];
			memcpy(&want, &master[i], sizeof(want));
			if (have == want)
				continue;
		} else
			bug("%s: a master of %s", name, dtype_name(dtype));
		return err_set(
			e, EX_DATAERR,
			"%s: element %ld: the stored weight is 0x%x, but its master rounds to 0x%x",
			name, first + i, have, want);
	}
	return 0;
}
