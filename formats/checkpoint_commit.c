#include "formats/checkpoint.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/checkpoint_table.h"
#include "libcommon/file.h"

static const char index_file[] = "index.h5";

/* Blocks that were put in parts are hashed from the file, now that they are whole. */
static int hash_parts(struct checkpoint_writer *w, const struct shard *s, const char *path,
		      struct err *e)
{
	char *buf = xmalloc(CHECKPOINT_BLOCK);
	int rc = 0;

	for (long i = 0; i < s->boxes && !rc; i++) {
		const struct hdf5_box *b = &w->table.box[s->box[i]];

		struct grid g = table_grid(&w->table, b);

		for (long k = 0; k < g.blocks && !rc; k++) {
			uint64_t block = b->block + (uint64_t)k;
			struct hdf5_chunk *c = &w->table.chunk[block];

			if (w->state[block] == BLOCK_HASHED)
				continue;
			rc = file_pread(s->fd, path, buf, c->bytes, c->offset, e);
			w->table.block[block] = c->hash = hash64(buf, c->bytes);
		}
	}
	free(buf);
	return rc;
}

static void check_put(const struct checkpoint_writer *w)
{
	for (long i = 0; i < w->table.boxes; i++) {
		const struct hdf5_box *b = &w->table.box[i];

		if (writer_owns(w, &w->table.shard[b->file]) &&
		    (uint64_t)w->put[i] * dtype_size((enum dtype)b->dtype) != b->bytes)
			bug("%s: a box of tensor %u (%s) was not put whole", w->dir, b->tensor,
			    slot_name((enum slot)b->slot));
	}
}

/* Everything was put; checksums are complete; the shard is on the disk. */
static int finish_shard(struct checkpoint_writer *w, struct shard *s, struct err *e)
{
	char *path = path_join(w->dir, s->name);
	int rc = 0;

	if (hash_parts(w, s, path, e) || table_frame(&s->frame, &w->table, s, path, e))
		rc = -1;
	io_point("fsync");
	if (!rc && fsync(s->fd))
		rc = err_errno(e, EX_IOERR, "%s: cannot be made durable", path);
	free(path);
	return rc;
}

/* The next n bytes of a message: out of memory, or into it. */
static void carry(char **at, void *p, size_t n, bool tell)
{
	memcpy(tell ? (void *)*at : p, tell ? p : (void *)*at, n);
	*at += n;
}

/*
 * What the owner of a shard knows goes to every rank: offsets, sizes, checksums, in the order of
 * the table as one message.
 */
static void share_shard(struct checkpoint_writer *w, int number)
{
	struct checkpoint_table *t = &w->table;
	struct shard *s = &t->shard[number];
	int owner = s->number % writer_size(w);
	bool tell = owner == writer_rank(w);
	size_t bytes = sizeof(s->bytes) + sizeof(s->frame);
	char *message, *at;

	for (long i = 0; i < s->boxes; i++) {
		const struct hdf5_box *b = &t->box[s->box[i]];

		bytes += sizeof(b->offset) + (size_t)table_grid(t, b).blocks *
						     (sizeof(*t->block) + sizeof(*t->chunk));
	}
	at = message = xmalloc(bytes);
	if (!tell)
		comm_broadcast(w->comm, message, bytes, owner);
	carry(&at, &s->bytes, sizeof(s->bytes), tell);
	carry(&at, &s->frame, sizeof(s->frame), tell);
	for (long i = 0; i < t->boxes; i++) {
		struct hdf5_box *b = &t->box[i];
		size_t blocks = (size_t)table_grid(t, b).blocks;

		if (b->file != (uint32_t)number)
			continue;
		carry(&at, &b->offset, sizeof(b->offset), tell);
		carry(&at, t->block + b->block, blocks * sizeof(*t->block), tell);
		carry(&at, t->chunk + b->block, blocks * sizeof(*t->chunk), tell);
	}
	if (tell)
		comm_broadcast(w->comm, message, bytes, owner);
	free(message);
}

static void share(struct checkpoint_writer *w)
{
	int ranks = writer_size(w);
	size_t bytes = (size_t)w->n * sizeof(*w->sum);
	struct digest *all;

	if (ranks == 1)
		return;
	for (int i = 0; i < w->table.shards; i++)
		share_shard(w, i);
	all = xmalloc(bytes * (size_t)ranks + 1);
	comm_gather(w->comm, all, w->sum, bytes);
	memset(w->sum, 0, bytes);
	for (int r = 0; r < ranks; r++)
		for (long k = 0; k < w->n; k++)
			w->sum[k] = digest_add(w->sum[k], all[(long)r * w->n + k]);
	free(all);
}

static int name_shards(struct checkpoint_writer *w, const char *id, struct err *e)
{
	int rc = 0;

	for (int i = 0; i < w->table.shards && !rc; i++) {
		struct shard *s = &w->table.shard[i];
		char *from = path_join(w->dir, s->name), *to;

		snprintf(s->name, sizeof(s->name), "%s-%s-%04d.h5",
			 s->optimizer ? "optim" : "weights", id, s->number);
		to = path_join(w->dir, s->name);
		io_point("rename");
		if (rename(from, to))
			rc = err_errno(e, EX_IOERR, "%s", to);
		free(from);
		free(to);
	}
	return rc;
}

/* A tensor whole, from its boxes in the shards. */
static int put_whole(struct hdf5_file *f, const struct checkpoint_writer *w, long k, struct err *e)
{
	const struct checkpoint_table *t = &w->table;
	const struct checkpoint_tensor *x = &w->tensor[k];
	long boxes = t->first[k + 1] - t->first[k];
	struct hdf5_source *src = xcalloc((size_t)boxes + 1, sizeof(*src));
	char *name = x->slot == SLOT_WEIGHT ? xasprintf("weights/%s", x->name) :
		     xasprintf("optimizer/%s/%s", slot_name(x->slot), x->name);
	int rc;

	for (long i = 0; i < boxes; i++) {
		const struct hdf5_box *b = &t->box[t->first[k] + i];

		src[i] = (struct hdf5_source){ t->shard[b->file].name, table_dataset(x, b),
					       table_box(b, x->rank) };
	}
	/* A tensor without elements has no box: an ordinary data set shows its shape. */
	rc = boxes ? hdf5_put_virtual(f, name, x->dtype, x->shape, x->rank, src, boxes, e) :
		     hdf5_put(f, name, x->dtype, x->shape, x->rank, NULL, e);
	for (long i = 0; i < boxes; i++)
		free((char *)src[i].name);
	free(src);
	free(name);
	return rc;
}

int writer_write_index(struct manifest_file *m, struct checkpoint_writer *w, struct err *e)
{
	struct checkpoint_table *t = &w->table;
	char *path = path_join(w->dir, index_file);
	struct hdf5_file f = { 0 };
	int rc = hdf5_create(&f, path, 0, e);

	if (!rc)
		rc = hdf5_put_boxes(&f, "boxes", t->box, t->boxes, e);
	if (!rc)
		rc = hdf5_put(&f, "blocks", DTYPE_U64, &t->blocks, 1, t->block, e);
	if (!rc && t->compress)
		rc = hdf5_put(&f, "chunks", DTYPE_U64, (long[]){ t->blocks, 3 }, 2, t->chunk, e);
	for (long k = 0; k < w->n && !rc; k++)
		rc = put_whole(&f, w, k, e);
	if (!rc)
		rc = hdf5_close(&f, e);
	hdf5_abandon(&f);
	if (!rc)
		rc = file_size(path, &m->bytes, e);
	if (!rc)
		rc = hash128_file(&m->hash, path, e);
	strcpy(m->name, index_file);
	free(path);
	return rc;
}

static void put_digest(struct json_out *o, const char *key, struct digest d)
{
	char hex[33];

	json_add_str(o, key, digest_hex(hex, d));
}

static void put_tensor(struct json_out *o, const struct checkpoint_writer *w, long k)
{
	const struct checkpoint_tensor *t = &w->tensor[k];

	json_begin(o, '{');
	json_add_str(o, "name", t->name);
	json_add_str(o, "dtype", dtype_name(t->dtype));
	json_key(o, "shape");
	json_begin(o, '[');
	for (int i = 0; i < t->rank; i++)
		json_put_int(o, t->shape[i]);
	json_end(o);
	json_add_str(o, "role", role_name(t->role));
	put_digest(o, "sum", w->sum[k]);
	json_key(o, "slots");
	json_begin(o, '{');
	for (int s = SLOT_WEIGHT + 1; s < SLOT_COUNT; s++) {
		long i = table_find(w->table.sorted, w->tensor, w->n, t->name, (enum slot)s);

		if (i < 0)
			continue;
		json_key(o, slot_name((enum slot)s));
		json_begin(o, '{');
		json_add_str(o, "dtype", dtype_name(w->tensor[i].dtype));
		put_digest(o, "sum", w->sum[i]);
		json_end(o);
	}
	json_end(o);
	json_end(o);
}

static int by_file_name(const void *a, const void *b)
{
	return strcmp(((const struct manifest_file *)a)->name,
		      ((const struct manifest_file *)b)->name);
}

static void put_files(struct json_out *o, struct checkpoint_writer *w)
{
	json_key(o, "tokenizer");
	if (w->has_tokenizer) {
		json_begin(o, '{');
		put_digest(o, "digest", w->tokenizer_digest);
		json_key(o, "file");
		manifest_put_file(o, &w->tokenizer);
		json_end(o);
	} else
		json_put_null(o);
	qsort(w->side, (size_t)w->sides, sizeof(*w->side), by_file_name);
	json_key(o, "side");
	json_begin(o, '[');
	for (long i = 0; i < w->sides; i++)
		manifest_put_file(o, &w->side[i]);
	json_end(o);
	json_key(o, "shards");
	json_begin(o, '[');
	for (int i = 0; i < w->table.shards; i++) {
		struct manifest_file f = { .bytes = w->table.shard[i].bytes,
					   .hash = w->table.shard[i].frame };

		strcpy(f.name, w->table.shard[i].name);
		manifest_put_file(o, &f);
	}
	json_end(o);
}

/*
 * What was moved here from another checkpoint has the digests of there.  If not, either that
 * checkpoint's data do not have the digest that its manifest gives, or they were changed on the way.
 */
static int check_same(const struct checkpoint_writer *w, struct err *e)
{
	struct checkpoint *c = w->same_as;

	for (long k = 0; c && k < w->n; k++) {
		const struct checkpoint_tensor *t = &w->tensor[k];
		long i = table_find(c->table->sorted, c->tensor, c->n, t->name, t->slot);
		struct digest sum;

		if (i < 0 || digest_equal(w->sum[k], c->sum[i]))
			continue;
		if (table_sum(&sum, c, i, e))
			return -1;
		if (digest_equal(sum, c->sum[i]))
			return err_set(e, EX_SOFTWARE, "%s: %s (%s): not the bits of %s any more", w->dir, t->name,
				       slot_name(t->slot), c->dir);
		return err_set(e, EX_DATAERR, "%s: %s (%s): its digest is not the one in the manifest", c->dir,
			       t->name, slot_name(t->slot));
	}
	return 0;
}

static int write_manifest(struct checkpoint_writer *w, const char *id, struct err *e)
{
	struct json_out *o = &w->manifest;
	struct manifest_file index = { 0 };
	bool optimizer = false;

	if (check_same(w, e) || writer_write_index(&index, w, e))
		return -1;
	for (long k = 0; k < w->n; k++)
		optimizer |= w->tensor[k].slot != SLOT_WEIGHT;
	json_add_str(o, "id", id);
	put_digest(o, "weights_digest",
		   table_digest(w->tensor, w->sum, w->table.sorted, w->n, false));
	if (optimizer)
		put_digest(o, "optimizer_digest",
			   table_digest(w->tensor, w->sum, w->table.sorted, w->n, true));
	else
		json_add_str(o, "optimizer_digest", NULL);
	json_key(o, "index");
	manifest_put_file(o, &index);
	put_files(o, w);
	json_key(o, "tensors");
	json_begin(o, '[');
	for (long k = 0; k < w->n && w->tensor[k].slot == SLOT_WEIGHT; k++)
		put_tensor(o, w, k);
	json_end(o);
	return manifest_finish(o, w->dir, e);
}

static bool has_config(const struct checkpoint_writer *w)
{
	for (long i = 0; i < w->sides; i++)
		if (!strcmp(w->side[i].name, "hf/config.json"))
			return true;
	return false;
}

static int commit(struct checkpoint_writer *w, struct err *e)
{
	char id[17];
	int rc = 0;

	if (!writer_rank(w) && !has_config(w))
		bug("%s: hf/config.json was not put", w->dir);
	check_put(w);
	for (int i = 0; i < w->table.shards && !rc && w->table.compress; i++)
		if (writer_owns(w, &w->table.shard[i]))
			rc = writer_pack_shard(w, i, e);
	if (!rc)
		rc = table_index_shards(&w->table, w->dir, e);
	for (int i = 0; i < w->table.shards && !rc; i++)
		if (writer_owns(w, &w->table.shard[i]))
			rc = finish_shard(w, &w->table.shard[i], e);
	if (writer_agree(w, rc, e))
		return -1;
	share(w);
	if (!writer_rank(w)) {
		table_id(id, &w->table, w->tensor, w->n);
		rc = name_shards(w, id, e) || write_manifest(w, id, e) || outdir_commit(&w->out, e)
			     ? -1
			     : 0;
	}
	return writer_agree(w, rc, e);
}

int checkpoint_commit(struct checkpoint_writer *w, struct err *e)
{
	int rc = commit(w, e);

	if (rc)
		outdir_abort(&w->out);
	writer_free(w);
	return rc;
}
