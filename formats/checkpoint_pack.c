#include "formats/checkpoint_table.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "libcommon/file.h"

/*
 * A compressed shard is made at commit, in the order of the table, so that its bytes do not depend
 * on the order of the puts.  Until then its chunks wait packed in one unlinked file, and what is
 * not whole waits raw in another; in memory is nothing but a block for each thread.
 */

enum { HEADER_BYTES = 1024 };           /* what HDF5 needs for one data set in chunks, about */

static int open_unlinked(int *fd, const struct checkpoint_writer *w, const char *name,
			 const char *what, struct err *e)
{
	char *path = xasprintf("%s/%s.%s", w->dir, name, what);
	int rc = 0;

	*fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (*fd < 0 || unlink(path))
		rc = err_errno(e, EX_CANTCREAT, "%s", path);
	free(path);
	return rc;
}

int writer_open_spill(struct checkpoint_writer *w, int number, struct err *e)
{
	struct checkpoint_table *t = &w->table;
	struct shard *s = &t->shard[number];
	uint64_t at = 0;

	for (long i = 0; i < t->boxes; i++) {
		if (t->box[i].file != (uint32_t)number)
			continue;
		w->raw[i] = at;
		at += t->box[i].bytes;
	}
	return open_unlinked(&s->fd, w, s->name, "raw", e) ||
			       open_unlinked(&s->spill, w, s->name, "packed", e)
		       ? -1
		       : 0;
}

struct spilled {
	const struct shard *shard;
	const char *path;
	const struct hdf5_chunk *chunk;
	char *buf;
};

static int get_spilled(void *arg, const void **data, long i, struct err *e)
{
	struct spilled *s = arg;

	*data = s->buf;
	return file_pread(s->shard->spill, s->path, s->buf, s->chunk[i].bytes, s->chunk[i].offset,
			  e);
}

static int pack_box(struct checkpoint_writer *w, struct hdf5_file *f, long k, struct hdf5_box *b,
		    struct spilled *s, struct err *e)
{
	const struct checkpoint_tensor *t = &w->tensor[k];
	struct hdf5_chunk *c = w->table.chunk + b->block;
	struct grid g = table_grid(&w->table, b);
	struct box box = table_box(b, t->rank);
	char *name = table_dataset(t, b);
	int rc;

	s->chunk = c;
	rc = g.chunked ? hdf5_put_chunks(c, g.blocks, f, name, t->dtype, box.extent, g.chunk,
					 t->rank, w->table.compress, get_spilled, s, e)
		       : hdf5_reserve(&b->offset, f, name, t->dtype, box.extent, t->rank, e);
	free(name);
	return rc;
}

/* Boxes that are stored as they are come from the raw file. */
static int copy_small(const struct checkpoint_writer *w, int from, int to, int number,
		      const char *path, char *buf, struct err *e)
{
	int rc = 0;

	for (long i = 0; i < w->table.boxes && !rc; i++) {
		const struct hdf5_box *b = &w->table.box[i];

		if (b->file == (uint32_t)number && !table_grid(&w->table, b).chunked)
			rc = file_pread(from, path, buf, b->bytes, w->raw[i], e) ||
					     file_pwrite(to, path, buf, b->bytes, b->offset, e)
				     ? -1
				     : 0;
	}
	return rc;
}

int writer_pack_shard(struct checkpoint_writer *w, int number, struct err *e)
{
	struct checkpoint_table *t = &w->table;
	struct shard *s = &t->shard[number];
	char *path = path_join(w->dir, s->name);
	struct spilled spilled = { s, path, NULL, xmalloc(CHECKPOINT_BLOCK) };
	struct hdf5_file f = { 0 };
	long mine = 0;
	int fd = -1, rc;

	for (long i = 0; i < t->boxes; i++)
		mine += t->box[i].file == (uint32_t)number;
	rc = hdf5_create_packed(&f, path, (size_t)(mine + 4) * HEADER_BYTES, e);
	for (long k = 0; k < w->n && !rc; k++)
		for (long i = t->first[k]; i < t->first[k + 1] && !rc; i++)
			if (t->box[i].file == (uint32_t)number)
				rc = pack_box(w, &f, k, &t->box[i], &spilled, e);
	if (!rc)
		rc = hdf5_close(&f, e);
	hdf5_abandon(&f);
	if (!rc && (fd = open(path, O_RDWR | O_CLOEXEC)) < 0)
		rc = err_errno(e, EX_IOERR, "%s", path);
	if (!rc)
		rc = copy_small(w, s->fd, fd, number, path, spilled.buf, e);
	if (!rc)
		rc = file_size(path, &s->bytes, e);
	close(s->fd);
	close(s->spill);
	s->fd = fd;
	s->spill = -1;
	free(spilled.buf);
	free(path);
	return rc;
}
