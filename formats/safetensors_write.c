#include "formats/safetensors.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libcommon/file.h"
#include "libcommon/json.h"
#include "libcommon/outdir.h"

enum { PIECE = 8 << 20 };

/* The reference writer lays tensors down in this order of dtypes, then by name. */
static const struct {
	enum dtype dtype;
	const char *name;
} order[] = {
	{ DTYPE_U64, "U64" }, { DTYPE_I64, "I64" }, { DTYPE_F64, "F64" },
	{ DTYPE_F32, "F32" }, { DTYPE_U32, "U32" }, { DTYPE_I32, "I32" },
	{ DTYPE_BF16, "BF16" }, { DTYPE_F16, "F16" }, { DTYPE_U16, "U16" },
	{ DTYPE_I16, "I16" }, { DTYPE_F8_E8M0, "F8_E8M0" }, { DTYPE_F8_E4M3, "F8_E4M3" },
	{ DTYPE_F8_E5M2, "F8_E5M2" }, { DTYPE_I8, "I8" }, { DTYPE_U8, "U8" },
	{ DTYPE_BOOL, "BOOL" },
};

static int place(enum dtype t)
{
	for (int i = 0; i < (int)(sizeof(order) / sizeof(*order)); i++)
		if (order[i].dtype == t)
			return i;
	bug("no safetensors dtype for dtype %d", (int)t);
}

static int by_place(const void *a, const void *b)
{
	const struct tensor *x = *(const struct tensor *const *)a;
	const struct tensor *y = *(const struct tensor *const *)b;
	int d = place(x->dtype) - place(y->dtype);

	return d ? d : strcmp(x->name, y->name);
}

static int by_name(const void *a, const void *b)
{
	return strcmp((*(const struct tensor *const *)a)->name,
		      (*(const struct tensor *const *)b)->name);
}

static const struct tensor **sorted(const struct tensor *t, long n,
				    int (*cmp)(const void *, const void *))
{
	const struct tensor **v = xcalloc((size_t)n + 1, sizeof(*v));

	for (long i = 0; i < n; i++)
		v[i] = &t[i];
	qsort(v, (size_t)n, sizeof(*v), cmp);
	return v;
}

static void check_names(const struct tensor *t, long n)
{
	const struct tensor **v = sorted(t, n, by_name);

	for (long i = 1; i < n; i++)
		if (!strcmp(v[i - 1]->name, v[i]->name))
			bug("two tensors are named %s", v[i]->name);
	free(v);
}

static void put_entry(struct json_out *o, const struct tensor *t, uint64_t begin)
{
	json_key(o, t->name);
	json_begin(o, '{');
	json_add_str(o, "dtype", order[place(t->dtype)].name);
	json_key(o, "shape");
	json_begin(o, '[');
	for (int i = 0; i < t->rank; i++)
		json_put_int(o, t->shape[i]);
	json_end(o);
	json_key(o, "data_offsets");
	json_begin(o, '[');
	json_put_u64(o, begin);
	json_put_u64(o, begin + tensor_bytes(t));
	json_end(o);
	json_end(o);
}

static void make_header(struct str *out, const struct tensor **v, long n)
{
	struct json_out o = { .indent = -1 };
	uint64_t at = 0, len;
	char head[8];

	json_begin(&o, '{');
	json_key(&o, "__metadata__");
	json_begin(&o, '{');
	json_add_str(&o, "format", "pt");
	json_end(&o);
	for (long i = 0; i < n; i++) {
		put_entry(&o, v[i], at);
		at += tensor_bytes(v[i]);
	}
	json_end(&o);
	while (o.s.len % 8)
		str_putc(&o.s, ' ');
	len = o.s.len;
	for (int i = 0; i < 8; i++)
		head[i] = (char)(len >> 8 * i);
	str_add(out, head, 8);
	str_add(out, o.s.s, o.s.len);
	json_out_release(&o);
}

struct writer {
	const char *path;
	int fd;
	uint64_t at;
	char *buf;              /* PIECE bytes; NULL where the tensors hold their data */
	safetensors_bytes *fn;
	void *arg;
	struct err *e;
};

static int put(struct writer *w, const void *p, size_t n)
{
	io_point(w->path);
	if (file_pwrite(w->fd, w->path, p, n, w->at, w->e))
		return -1;
	w->at += n;
	return 0;
}

static int put_tensor(struct writer *w, const struct tensor *t)
{
	size_t bytes = tensor_bytes(t);

	for (size_t at = 0; at < bytes; at += PIECE) {
		size_t n = bytes - at < PIECE ? bytes - at : PIECE;

		if (w->fn && w->fn(w->buf, w->arg, t, at, n, w->e))
			return -1;
		if (put(w, w->fn ? w->buf : (char *)t->data + at, n))
			return -1;
	}
	return 0;
}

static int put_file(struct writer *w, const struct tensor *t, long n)
{
	const struct tensor **v = sorted(t, n, by_place);
	struct str head = { 0 };
	int rc;

	make_header(&head, v, n);
	rc = put(w, head.s, head.len);
	for (long i = 0; !rc && i < n; i++)
		rc = put_tensor(w, v[i]);
	str_release(&head);
	free(v);
	return rc;
}

int safetensors_write(const char *path, const struct tensor *t, long n, safetensors_bytes *fn,
		      void *arg, struct err *e)
{
	struct writer w = { .path = path, .fn = fn, .arg = arg, .e = e };
	int rc;

	check_names(t, n);
	io_point(path);
	w.fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	if (w.fd < 0)
		return err_errno(e, EX_CANTCREAT, "%s", path);
	w.buf = fn ? xmalloc(PIECE) : NULL;
	rc = put_file(&w, t, n);
	free(w.buf);
	if (close(w.fd) && !rc)
		rc = err_errno(e, EX_IOERR, "%s", path);
	if (rc)
		unlink(path);
	return rc;
}

/* shard[i] of each tensor, filled in the order given; returns their number. */
static long cut(long *shard, const struct tensor *t, long n, uint64_t most)
{
	uint64_t full = 0;
	long k = 0;

	for (long i = 0; i < n; i++) {
		uint64_t bytes = tensor_bytes(&t[i]);

		if (full && most && (bytes > most || full > most - bytes)) {
			k++;
			full = 0;
		}
		full += bytes;
		shard[i] = k;
	}
	return n ? k + 1 : 1;
}

static int shard_name(char buf[64], long i, long n)
{
	return snprintf(buf, 64, "model-%05ld-of-%05ld.safetensors", i + 1, n);
}

static int write_index(const char *dir, const struct tensor *t, long n, const long *shard,
		       long shards, struct err *e)
{
	const struct tensor **v = sorted(t, n, by_name);
	struct json_out o = { .indent = 2 };
	char *path = path_join(dir, "model.safetensors.index.json"), name[64];
	uint64_t total = 0;
	int rc;

	for (long i = 0; i < n; i++)
		total += tensor_bytes(&t[i]);
	json_begin(&o, '{');
	json_key(&o, "metadata");
	json_begin(&o, '{');
	json_key(&o, "total_size");
	json_put_u64(&o, total);
	json_end(&o);
	json_key(&o, "weight_map");
	json_begin(&o, '{');
	for (long i = 0; i < n; i++) {
		shard_name(name, shard[v[i] - t], shards);
		json_add_str(&o, v[i]->name, name);
	}
	json_end(&o);
	json_end(&o);
	str_putc(&o.s, '\n');
	rc = file_write(path, o.s.s, o.s.len, e);
	json_out_release(&o);
	free(path);
	free(v);
	return rc;
}

int safetensors_write_dir(const char *dir, const struct tensor *t, long n, uint64_t max_shard,
			  safetensors_bytes *fn, void *arg, struct err *e)
{
	long *shard = xcalloc((size_t)n + 1, sizeof(*shard));
	long shards = cut(shard, t, n, max_shard), from = 0;
	char name[64] = "model.safetensors";
	int rc = 0;

	check_names(t, n);
	for (long k = 0; !rc && k < shards; k++) {
		long to = from;
		char *path;

		while (to < n && shard[to] == k)
			to++;
		if (shards > 1)
			shard_name(name, k, shards);
		path = path_join(dir, name);
		rc = safetensors_write(path, t + from, to - from, fn, arg, e);
		free(path);
		from = to;
	}
	if (!rc && shards > 1)
		rc = write_index(dir, t, n, shard, shards, e);
	free(shard);
	return rc;
}

int safetensors_dequant_fp8(float *out, const uint8_t *w, const float *scale, long rows, long cols,
			    long srows, long scols, long block_rows, long block_cols,
			    const char *name, struct err *e)
{
	long need_rows, need_cols;
	float table[256];

	if (block_rows <= 0 || block_cols <= 0)
		return err_set(e, EX_DATAERR, "%.100s: scale blocks of %ld x %ld", name, block_rows,
			       block_cols);
	need_rows = rows / block_rows + (rows % block_rows > 0);
	need_cols = cols / block_cols + (cols % block_cols > 0);
	if (srows < need_rows || scols < need_cols)
		return err_set(
			e, EX_DATAERR,
			"%.100s: scales [%ld, %ld], wanted [%ld, %ld] in blocks of %ld x %ld",
			name, srows, scols, need_rows, need_cols, block_rows, block_cols);
	for (int i = 0; i < 256; i++)
		table[i] = f8_e4m3_to_f32((uint8_t)i);
	for (long i = 0; i < rows; i++)
		for (long j = 0; j < cols; j++)
			out[i * cols + j] = table[w[i * cols + j]] *
					    scale[i / block_rows * scols + j / block_cols];
	return 0;
}
