#include "formats/checkpoint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/checkpoint_table.h"
#include "libcommon/file.h"

enum { BLOB_MOST = 1 << 30 };

static const char tokenizer_file[] = "tokenizer.h5";

/* -- writing ------------------------------------------------------------ */

int checkpoint_put_file(struct checkpoint_writer *w, const char *name, const void *p, size_t n,
			struct err *e)
{
	if (writer_rank(w))
		return 0;
	GROW(w->side, w->sides, w->side_cap);
	return manifest_write_file(&w->side[w->sides++], w->dir, name, p, n, e);
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct blob_part *)a)->name, ((const struct blob_part *)b)->name);
}

/* HDF5 gives its names in the order of the alphabet, whatever order they were put in. */
struct digest blob_digest(const struct blob *b)
{
	struct blob_part *part = xmalloc((size_t)b->n * sizeof(*part));
	struct str s = { 0 };
	struct digest d;

	if (b->n)
		memcpy(part, b->part, (size_t)b->n * sizeof(*part));
	qsort(part, (size_t)b->n, sizeof(*part), by_name);
	for (int i = 0; i < b->n; i++) {
		uint64_t bytes = part[i].bytes;

		str_add(&s, part[i].name, strlen(part[i].name) + 1);
		str_add(&s, (const char *)&bytes, sizeof(bytes));
		str_add(&s, part[i].data, part[i].bytes);
	}
	d = hash128(s.s, s.len);
	free(part);
	str_release(&s);
	return d;
}

void blob_release(struct blob *b)
{
	for (int i = 0; i < b->n; i++) {
		free(b->part[i].name);
		free(b->part[i].data);
	}
	free(b->part);
	*b = (struct blob){ 0 };
}

static int describe_file(struct manifest_file *f, const char *dir, const char *name, struct err *e)
{
	char *path = path_join(dir, name);
	int rc = file_size(path, &f->bytes, e);

	if (!rc)
		rc = hash128_file(&f->hash, path, e);
	snprintf(f->name, sizeof(f->name), "%s", name);
	free(path);
	return rc;
}

int checkpoint_put_tokenizer(struct checkpoint_writer *w, const struct blob *b, struct err *e)
{
	struct hdf5_file f = { 0 };
	char *path;
	int rc;

	if (writer_rank(w))
		return 0;
	path = path_join(w->dir, tokenizer_file);
	rc = hdf5_create(&f, path, 0, e);
	for (int i = 0; i < b->n && !rc; i++) {
		long bytes = (long)b->part[i].bytes;

		rc = hdf5_put(&f, b->part[i].name, DTYPE_U8, &bytes, 1, b->part[i].data, e);
	}
	if (!rc)
		rc = hdf5_close(&f, e);
	hdf5_abandon(&f);
	free(path);
	if (rc)
		return -1;
	w->has_tokenizer = true;
	w->tokenizer_digest = blob_digest(b);
	return describe_file(&w->tokenizer, w->dir, tokenizer_file, e);
}

static bool is_among(const char *name, const char *const *list)
{
	for (; list && *list; list++)
		if (!strcmp(*list, name))
			return true;
	return false;
}

static int copy_one(struct manifest_file *copy, const struct checkpoint_writer *w, const char *from,
		    const struct manifest_file *f, struct err *e)
{
	char *a = path_join(from, f->name), *b = path_join(w->dir, f->name);
	int rc = file_copy(a, b, e);

	*copy = *f;
	/*
	 * What arrived is checked against what the parent's manifest says, so damage is not handed
	 * on.
	 */
	if (!rc)
		rc = manifest_check_file(w->dir, copy, e);
	if (rc)
		err_prefix(e, "copy of %s", a);
	free(a);
	free(b);
	return rc;
}

static int parent_tokenizer(struct manifest_file *f, const struct checkpoint *c, struct err *e)
{
	return manifest_get_file(f, &c->manifest, json_path(&c->manifest.root, "tokenizer.file"),
				 e);
}

int checkpoint_copy_side(struct checkpoint_writer *w, const struct checkpoint *from,
			 const char *const *except, struct err *e)
{
	struct manifest_file f;

	if (writer_rank(w))
		return 0;
	for (long i = 0; i < from->sides; i++) {
		if (strncmp(from->side[i].name, "hf/", 3) || is_among(from->side[i].name, except))
			continue;
		GROW(w->side, w->sides, w->side_cap);
		if (copy_one(&w->side[w->sides++], w, from->dir, &from->side[i], e))
			return -1;
	}
	if (!from->has_tokenizer || is_among(tokenizer_file, except))
		return 0;
	if (parent_tokenizer(&f, from, e) || copy_one(&w->tokenizer, w, from->dir, &f, e))
		return -1;
	w->has_tokenizer = true;
	w->tokenizer_digest = from->tokenizer_digest;
	return 0;
}

/* -- reading ------------------------------------------------------------ */

static const struct manifest_file *find_side(const struct checkpoint *c, const char *name)
{
	for (long i = 0; i < c->sides; i++)
		if (!strcmp(c->side[i].name, name))
			return &c->side[i];
	return NULL;
}

bool checkpoint_has_side(const struct checkpoint *c, const char *name)
{
	return find_side(c, name) != NULL;
}

int checkpoint_side_file(struct str *out, const struct checkpoint *c, const char *name,
			 struct err *e)
{
	const struct manifest_file *f = find_side(c, name);
	size_t before = out->len;
	char *path;
	int rc;

	if (!f)
		return err_set(e, EX_NOINPUT, "%s: it has no %s", c->dir, name);
	if (manifest_check_size(c->dir, f, e))
		return -1;
	path = path_join(c->dir, name);
	rc = file_read(out, path, 0, e);
	if (!rc &&
	    (out->len - before != f->bytes ||
	     !digest_equal(hash128(out->s ? out->s + before : "", out->len - before), f->hash)))
		rc = err_set(e, EX_DATAERR,
			     "%s: its bytes do not have the checksum in the manifest", path);
	free(path);
	return rc;
}

struct part_list {
	struct hdf5_file *f;
	struct blob *b;
	int cap;
};

static int read_part(void *arg, const char *name, struct err *e)
{
	struct part_list *l = arg;
	long bytes;
	void *data;

	if (hdf5_get(&data, &bytes, l->f, name, DTYPE_U8, 1, BLOB_MOST, e))
		return -1;
	GROW(l->b->part, l->b->n, l->cap);
	l->b->part[l->b->n++] = (struct blob_part){ xstrdup(name), data, (size_t)bytes };
	return 0;
}

int checkpoint_read_tokenizer(struct blob *b, const struct checkpoint *c, struct err *e)
{
	struct hdf5_file f = { 0 };
	struct part_list l = { .f = &f, .b = b };
	struct manifest_file m;
	char *path;
	int rc;

	*b = (struct blob){ 0 };
	if (!c->has_tokenizer)
		return err_set(e, EX_NOINPUT, "%s: it has no tokenizer", c->dir);
	if (parent_tokenizer(&m, c, e) || manifest_check_file(c->dir, &m, e))
		return -1;
	path = path_join(c->dir, m.name);
	rc = hdf5_open(&f, path, e) || hdf5_each(&f, read_part, &l, e) ? -1 : 0;
	if (!rc && !digest_equal(blob_digest(b), c->tokenizer_digest))
		rc = err_set(e, EX_DATAERR,
			     "%s: its contents do not have the digest in the manifest", path);
	hdf5_abandon(&f);
	if (rc)
		blob_release(b);
	free(path);
	return rc;
}
