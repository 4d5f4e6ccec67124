#include "formats/safetensors.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libcommon/file.h"
#include "libcommon/json.h"

enum { HEADER_MAX = 100000000 };

static const struct {
	const char *name;
	int bits;
	enum dtype dtype;
} types[] = {
	{ "F32", 32, DTYPE_F32 },
	{ "BF16", 16, DTYPE_BF16 },
	{ "F16", 16, DTYPE_F16 },
	{ "F64", 64, DTYPE_F64 },
	{ "F8_E4M3", 8, DTYPE_F8_E4M3 },
	{ "F8_E5M2", 8, DTYPE_F8_E5M2 },
	{ "F8_E8M0", 8, DTYPE_F8_E8M0 },
	{ "I64", 64, DTYPE_I64 },
	{ "I32", 32, DTYPE_I32 },
	{ "I16", 16, DTYPE_I16 },
	{ "I8", 8, DTYPE_I8 },
	{ "U64", 64, DTYPE_U64 },
	{ "U32", 32, DTYPE_U32 },
	{ "U16", 16, DTYPE_U16 },
	{ "U8", 8, DTYPE_U8 },
	{ "BOOL", 8, DTYPE_BOOL },
	{ "F8_E4M3FNUZ", 8, DTYPE_NONE },
	{ "F8_E5M2FNUZ", 8, DTYPE_NONE },
	{ "C64", 64, DTYPE_NONE },
	{ "F4", 4, DTYPE_NONE },
	{ "F6_E2M3", 6, DTYPE_NONE },
	{ "F6_E3M2", 6, DTYPE_NONE },
};

struct reader {
	struct safetensors *s;
	struct json_doc doc;
	uint64_t data;          /* offset of the data in the file */
	uint64_t size;          /* of the file */
	struct err *e;
};

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct safetensors_entry *)a)->name,
		      ((const struct safetensors_entry *)b)->name);
}

static int by_offset(const void *a, const void *b)
{
	const struct safetensors_entry *x = a, *y = b;

	if (x->offset != y->offset)
		return x->offset < y->offset ? -1 : 1;
	return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

static int read_shape(struct reader *r, struct safetensors_entry *en, const struct json *v)
{
	const struct json *dims = json_get(v, "shape");
	char what[160];
	long *shape;

	if (!json_is(dims, JSON_ARRAY))
		return err_set(r->e, EX_DATAERR,
			       "%s: %.100s: shape: found %s, wanted an array of sizes", r->s->path,
			       en->name, json_type_name(dims));
	if (dims->n > 1024)
		return err_set(r->e, EX_DATAERR, "%s: %.100s: %zu dimensions, wanted at most 1024",
			       r->s->path, en->name, dims->n);
	snprintf(what, sizeof(what), "%.100s: shape", en->name);
	en->rank = (int)dims->n;
	en->shape = shape = arena_calloc(&r->s->arena, dims->n + 1, sizeof(*shape));
	for (size_t i = 0; i < dims->n; i++) {
		uint64_t n;

		if (json_u64(&r->doc, &dims->item[i], what, &n, r->e))
			return -1;
		if (n > INT64_MAX)
			return err_set(r->e, EX_DATAERR, "%s: %s: size %llu is too large",
				       r->s->path, what, (unsigned long long)n);
		shape[i] = (long)n;
	}
	return 0;
}

/* shape x bits must not overflow, be whole bytes, and be what the offsets give. */
static int check_bytes(struct reader *r, const struct safetensors_entry *en, int bits)
{
	uint64_t n = 1, bytes;
	bool over = false;

	for (int i = 0; i < en->rank; i++)
		over |= __builtin_mul_overflow(n, (uint64_t)en->shape[i], &n);
	if (over || __builtin_mul_overflow(n, (uint64_t)bits, &bytes))
		return err_set(r->e, EX_DATAERR, "%s: %.100s: the shape overflows 64 bits",
			       r->s->path, en->name);
	if (bytes % 8)
		return err_set(r->e, EX_DATAERR,
			       "%s: %.100s: %llu elements of %s are no whole bytes", r->s->path,
			       en->name, (unsigned long long)n, en->type_name);
	if (bytes / 8 != en->bytes)
		return err_set(
			r->e, EX_DATAERR,
			"%s: %.100s: data_offsets give %llu bytes, dtype and shape need %llu",
			r->s->path, en->name, (unsigned long long)en->bytes,
			(unsigned long long)(bytes / 8));
	return 0;
}

static int read_offsets(struct reader *r, struct safetensors_entry *en, const struct json *v)
{
	const struct json *o = json_get(v, "data_offsets");
	char what[160];
	uint64_t begin, end;

	if (!json_is(o, JSON_ARRAY) || o->n != 2)
		return err_set(r->e, EX_DATAERR, "%s: %.100s: data_offsets: wanted [begin, end]",
			       r->s->path, en->name);
	snprintf(what, sizeof(what), "%.100s: data_offsets", en->name);
	if (json_u64(&r->doc, &o->item[0], what, &begin, r->e) ||
	    json_u64(&r->doc, &o->item[1], what, &end, r->e))
		return -1;
	if (begin > end)
		return err_set(r->e, EX_DATAERR, "%s: %s: begin %llu is behind end %llu",
			       r->s->path, what, (unsigned long long)begin,
			       (unsigned long long)end);
	en->offset = begin;
	en->bytes = end - begin;
	return 0;
}

static int read_entry(struct reader *r, struct safetensors_entry *en, const struct json_member *m)
{
	const struct json *type;

	if (strlen(m->key) != m->keylen)
		return err_set(r->e, EX_DATAERR, "%s: %.100s: a tensor name holds a NUL",
			       r->s->path, m->key);
	en->name = arena_strndup(&r->s->arena, m->key, m->keylen);
	if (!json_is(&m->value, JSON_OBJECT))
		return err_set(r->e, EX_DATAERR, "%s: %.100s: found %s, wanted an object",
			       r->s->path, en->name, json_type_name(&m->value));
	type = json_get(&m->value, "dtype");
	for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++) {
		if (!json_eq_str(type, types[i].name))
			continue;
		en->type_name = types[i].name;
		en->dtype = types[i].dtype;
		if (read_shape(r, en, &m->value) || read_offsets(r, en, &m->value))
			return -1;
		return check_bytes(r, en, types[i].bits);
	}
	return err_set(r->e, EX_DATAERR, "%s: %.100s: dtype: found %.60s, which is no dtype",
		       r->s->path, en->name,
		       json_is(type, JSON_STRING) ? type->text : json_type_name(type));
}

static int read_metadata(struct reader *r, const struct json *m)
{
	const struct json *f = json_get(m, "format");

	if (!json_is(m, JSON_OBJECT))
		return err_set(r->e, EX_DATAERR, "%s: __metadata__: found %s, wanted an object",
			       r->s->path, json_type_name(m));
	for (size_t i = 0; i < m->n; i++)
		if (!json_is(&m->member[i].value, JSON_STRING))
			return err_set(r->e, EX_DATAERR,
				       "%s: __metadata__: %.100s: found %s, wanted a string",
				       r->s->path, m->member[i].key,
				       json_type_name(&m->member[i].value));
	if (f)
		r->s->format = arena_strndup(&r->s->arena, f->text, f->n);
	return 0;
}

/* The tensors, in order of offset, tile the data. Leaves offsets relative to the file. */
static int check_tiling(struct reader *r)
{
	struct safetensors *s = r->s;
	uint64_t at = 0, have = r->size - r->data;

	qsort(s->entry, (size_t)s->n, sizeof(*s->entry), by_offset);
	for (long i = 0; i < s->n; i++) {
		struct safetensors_entry *en = &s->entry[i];

		if (en->offset != at)
			return err_set(r->e, EX_DATAERR,
				       "%s: %.100s: data begins at %llu, wanted %llu (%s)", s->path,
				       en->name, (unsigned long long)en->offset,
				       (unsigned long long)at,
				       en->offset < at ? "overlap" : "a hole");
		/* No overflow: at + bytes is the end that the header gave. */
		at += en->bytes;
		en->offset += r->data;
	}
	if (at != have)
		return err_set(r->e, EX_DATAERR,
			       "%s: the header declares %llu bytes of data, the file has %llu",
			       s->path, (unsigned long long)at, (unsigned long long)have);
	return 0;
}

static int read_header(struct reader *r, const char *text, size_t n)
{
	struct safetensors *s = r->s;
	const struct json *root = &r->doc.root;

	if (json_parse(&r->doc, text, n, s->path, 1, r->e))
		return err_prefix(r->e, "safetensors header");
	if (!json_is(root, JSON_OBJECT))
		return err_set(r->e, EX_DATAERR, "%s: header: found %s, wanted an object", s->path,
			       json_type_name(root));
	s->entry = arena_calloc(&s->arena, root->n + 1, sizeof(*s->entry));
	for (size_t i = 0; i < root->n; i++) {
		const struct json_member *m = &root->member[i];

		if (m->keylen == 12 && !memcmp(m->key, "__metadata__", 12)) {
			if (read_metadata(r, &m->value))
				return -1;
		} else if (read_entry(r, &s->entry[s->n], m)) {
			return -1;
		} else {
			s->n++;
		}
	}
	if (check_tiling(r))
		return -1;
	qsort(s->entry, (size_t)s->n, sizeof(*s->entry), by_name);
	return 0;
}

static int open_file(struct reader *r, const char *path)
{
	struct safetensors *s = r->s;
	struct stat st;

	s->path = xstrdup(path);
	s->fd = open(path, O_RDONLY | O_CLOEXEC);
	if (s->fd < 0)
		return err_errno(r->e, EX_NOINPUT, "%s", path);
	if (fstat(s->fd, &st))
		return err_errno(r->e, EX_IOERR, "%s", path);
	if (!S_ISREG(st.st_mode))
		return err_set(r->e, EX_DATAERR, "%s: not a regular file", path);
	r->size = (uint64_t)st.st_size;
	return 0;
}

static int read_all(struct reader *r, const char *path)
{
	unsigned char b[8];
	uint64_t n = 0, left;
	char *text;
	int rc;

	if (open_file(r, path))
		return -1;
	if (r->size < 8)
		return err_set(r->e, EX_DATAERR, "%s: %llu bytes, too short for a safetensors file",
			       path, (unsigned long long)r->size);
	if (file_pread(r->s->fd, path, b, 8, 0, r->e))
		return -1;
	for (int i = 7; i >= 0; i--)
		n = n << 8 | b[i];
	left = r->size - 8;
	if (n > HEADER_MAX || n > left)
		return err_set(r->e, EX_DATAERR, "%s: header of %llu bytes, wanted at most %llu",
			       path, (unsigned long long)n,
			       (unsigned long long)(left < HEADER_MAX ? left : HEADER_MAX));
	r->data = 8 + n;
	text = xmalloc((size_t)n + 1);
	rc = file_pread(r->s->fd, path, text, (size_t)n, 8, r->e);
	if (!rc)
		rc = read_header(r, text, (size_t)n);
	free(text);
	return rc;
}

int safetensors_open(struct safetensors *s, const char *path, struct err *e)
{
	struct reader r = { .s = s, .e = e };
	int rc;

	*s = (struct safetensors){ .fd = -1 };
	rc = read_all(&r, path);
	json_release(&r.doc);
	if (rc)
		safetensors_close(s);
	return rc;
}

void safetensors_close(struct safetensors *s)
{
	/* path tells a zeroed struct, whose fd 0 is not ours, from an open one. */
	if (s->path && s->fd >= 0)
		close(s->fd);
	free(s->path);
	arena_release(&s->arena);
	*s = (struct safetensors){ .fd = -1 };
}

const struct safetensors_entry *safetensors_find(const struct safetensors *s, const char *name)
{
	struct safetensors_entry key = { .name = name };

	return s->n ? bsearch(&key, s->entry, (size_t)s->n, sizeof(key), by_name) : NULL;
}

int safetensors_describe(struct tensor *t, const struct safetensors *s,
			 const struct safetensors_entry *en, struct err *e)
{
	if (en->dtype == DTYPE_NONE)
		return err_set(e, EX_UNAVAILABLE,
			       "%s: %.100s: tensors of dtype %s are not supported", s->path,
			       en->name, en->type_name);
	if (en->rank > TENSOR_RANK)
		return err_set(e, EX_UNAVAILABLE,
			       "%s: %.100s: %d dimensions, at most %d are supported", s->path,
			       en->name, en->rank, TENSOR_RANK);
	*t = (struct tensor){ .name = (char *)en->name, .dtype = en->dtype, .rank = en->rank };
	for (int i = 0; i < en->rank; i++)
		t->shape[i] = en->shape[i];
	return 0;
}

int safetensors_read(void *out, const struct safetensors *s, const struct safetensors_entry *en,
		     uint64_t offset, size_t n, struct err *e)
{
	if (offset > en->bytes || n > en->bytes - offset)
		bug("%s: %s: read of %zu bytes at %llu of %llu", s->path, en->name, n,
		    (unsigned long long)offset, (unsigned long long)en->bytes);
	if (en->dtype == DTYPE_NONE)
		return err_set(e, EX_UNAVAILABLE,
			       "%s: %.100s: tensors of dtype %s are not supported", s->path,
			       en->name, en->type_name);
	if (file_pread(s->fd, s->path, out, n, en->offset + offset, e))
		return err_prefix(e, "%.100s", en->name);
	return 0;
}
