#include "formats/gguf.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libcommon/file.h"

enum { DIMS = 4, NAME_MAX_BYTES = 63 };
#define ITEMS_MAX (1UL << 30)

static const unsigned char value_size[GGUF_VALUES] = {
	[GGUF_U8] = 1, [GGUF_I8] = 1, [GGUF_U16] = 2, [GGUF_I16] = 2,
	[GGUF_U32] = 4, [GGUF_I32] = 4, [GGUF_F32] = 4, [GGUF_BOOL] = 1,
	[GGUF_U64] = 8, [GGUF_I64] = 8, [GGUF_F64] = 8,
};

/* One part while its head is read: a window on the file. */
struct head {
	struct gguf *g;
	const char *path;
	int fd;
	uint64_t at, size;      /* next byte; bytes of the file */
	char buf[1 << 16];
	uint64_t start, have;   /* buf holds file bytes start .. start + have - 1 */
	struct gguf_kv *kv;     /* n of them, in the arena */
	long nkv;
	uint64_t tensors;       /* as the header says */
	uint64_t align;
	struct err *e;
};

static uint64_t left(const struct head *h)
{
	return h->size - h->at;
}

static int get(struct head *h, void *out, uint64_t n)
{
	if (n > left(h))
		return err_set(
			h->e, EX_DATAERR,
			"%s: ends in its header: %llu bytes wanted at %llu, the file has %llu",
			h->path, (unsigned long long)n, (unsigned long long)h->at,
			(unsigned long long)h->size);
	if (n > sizeof(h->buf)) {
		if (file_pread(h->fd, h->path, out, n, h->at, h->e))
			return -1;
	} else {
		if (h->at < h->start || h->at + n > h->start + h->have) {
			h->start = h->at;
			h->have = left(h) < sizeof(h->buf) ? left(h) : sizeof(h->buf);
			if (file_pread(h->fd, h->path, h->buf, h->have, h->start, h->e)) {
				h->have = 0;
				return -1;
			}
		}
		memcpy(out, h->buf + (h->at - h->start), n);
	}
	h->at += n;
	return 0;
}

static int get_string(struct head *h, struct gguf_string *s, const char *what)
{
	uint64_t n;
	char *p;

	if (get(h, &n, 8))
		return -1;
	if (n > left(h) || n > ITEMS_MAX)
		return err_set(h->e, EX_DATAERR,
			       "%s: %.100s: string of %llu bytes, %llu are left in the file",
			       h->path, what, (unsigned long long)n, (unsigned long long)left(h));
	p = arena_alloc(&h->g->arena, n + 1);
	p[n] = 0;
	*s = (struct gguf_string){ p, n };
	return get(h, p, n);
}

static int get_name(struct head *h, const char **name, size_t most, const char *what)
{
	struct gguf_string s;

	if (get_string(h, &s, what))
		return -1;
	if (!s.n || s.n > most || strlen(s.s) != s.n)
		return err_set(h->e, EX_DATAERR,
			       "%s: %s of %zu bytes (\"%.64s\"), wanted 1 to %zu without a NUL",
			       h->path, what, s.n, s.s, most);
	*name = s.s;
	return 0;
}

static int get_items(struct head *h, struct gguf_kv *kv)
{
	size_t each = kv->type == GGUF_STRING ? 8 : value_size[kv->type];
	void *items;

	if (kv->n > left(h) / each || kv->n > ITEMS_MAX)
		return err_set(h->e, EX_DATAERR,
			       "%s: %.100s: %zu items, %llu bytes are left in the file", h->path,
			       kv->key, kv->n, (unsigned long long)left(h));
	if (kv->type == GGUF_STRING) {
		struct gguf_string *s = arena_calloc(&h->g->arena, kv->n + 1, sizeof(*s));

		kv->items = s;
		for (size_t i = 0; i < kv->n; i++)
			if (get_string(h, &s[i], kv->key))
				return -1;
		return 0;
	}
	kv->items = items = arena_alloc(&h->g->arena, kv->n * each + 1);
	if (get(h, items, kv->n * each))
		return -1;
	for (size_t i = 0; kv->type == GGUF_BOOL && i < kv->n; i++)
		if (((uint8_t *)items)[i] > 1)
			return err_set(h->e, EX_DATAERR, "%s: %.100s: a bool is %d, wanted 0 or 1",
				       h->path, kv->key, ((uint8_t *)items)[i]);
	return 0;
}

static int get_kv(struct head *h, struct gguf_kv *kv)
{
	uint32_t type;
	uint64_t n = 1;

	if (get_name(h, &kv->key, 65535, "a key") || get(h, &type, 4))
		return -1;
	kv->array = type == GGUF_ARRAY;
	if (kv->array && (get(h, &type, 4) || get(h, &n, 8)))
		return -1;
	if (type >= GGUF_VALUES || type == GGUF_ARRAY)
		return err_set(h->e, EX_DATAERR, "%s: %.100s: %s of type %u", h->path, kv->key,
			       kv->array ? "array" : "value", type);
	kv->type = type;
	kv->n = n;
	return get_items(h, kv);
}

static int kv_by_key(const void *a, const void *b)
{
	return strcmp((*(struct gguf_kv *const *)a)->key, (*(struct gguf_kv *const *)b)->key);
}

static int check_keys(struct head *h)
{
	struct gguf_kv **v = xcalloc((size_t)h->nkv + 1, sizeof(*v));
	int rc = 0;

	for (long i = 0; i < h->nkv; i++)
		v[i] = &h->kv[i];
	qsort(v, (size_t)h->nkv, sizeof(*v), kv_by_key);
	for (long i = 1; !rc && i < h->nkv; i++)
		if (!strcmp(v[i - 1]->key, v[i]->key))
			rc = err_set(h->e, EX_DATAERR, "%s: key %.100s comes twice", h->path,
				     v[i]->key);
	free(v);
	return rc;
}

static int get_kvs(struct head *h, uint64_t n)
{
	if (n > left(h) / 13)
		return err_set(h->e, EX_DATAERR, "%s: %llu keys in a file of %llu bytes", h->path,
			       (unsigned long long)n, (unsigned long long)h->size);
	h->kv = arena_calloc(&h->g->arena, n + 1, sizeof(*h->kv));
	for (; h->nkv < (long)n; h->nkv++)
		if (get_kv(h, &h->kv[h->nkv]))
			return -1;
	return check_keys(h);
}

static const struct gguf_kv *find(const struct gguf_kv *kv, long n, const char *key)
{
	for (long i = 0; i < n; i++)
		if (!strcmp(kv[i].key, key))
			return &kv[i];
	return NULL;
}

static int get_alignment(struct head *h)
{
	const struct gguf_kv *kv = find(h->kv, h->nkv, "general.alignment");
	uint32_t a = 32;

	if (kv && (kv->array || kv->type != GGUF_U32))
		return err_set(h->e, EX_DATAERR, "%s: general.alignment is no u32", h->path);
	if (kv)
		memcpy(&a, kv->items, 4);
	if (!a || (a & (a - 1)))
		return err_set(h->e, EX_DATAERR,
			       "%s: general.alignment is %u, wanted a power of two", h->path, a);
	h->align = a;
	return 0;
}

static int get_head(struct head *h)
{
	uint32_t version;
	uint64_t nkv;
	char magic[4];

	if (get(h, magic, 4))
		return -1;
	if (memcmp(magic, "GGUF", 4))
		return err_set(h->e, EX_DATAERR, "%s: no GGUF file", h->path);
	if (get(h, &version, 4))
		return -1;
	if (version && !(version & 0xffff))
		return err_set(h->e, EX_DATAERR, "%s: a big-endian GGUF file", h->path);
	if (version != 2 && version != 3)
		return err_set(h->e, EX_DATAERR, "%s: GGUF version %u, wanted 2 or 3", h->path,
			       version);
	if (get(h, &h->tensors, 8) || get(h, &nkv, 8) || get_kvs(h, nkv))
		return -1;
	return get_alignment(h);
}

/* ne[] to shape; bytes of whole blocks, overflow refused. */
static int measure(struct head *h, struct gguf_tensor *t, const uint64_t *ne, uint32_t type)
{
	long block;
	size_t size;
	uint64_t n = 1;

	if (type >= GGML_TYPES || !gguf_type_name((int)type))
		return err_set(h->e, EX_DATAERR, "%s: %s: type %u, which is no tensor type",
			       h->path, t->name, type);
	gguf_block(&block, &size, (int)type);
	for (int i = 0; i < t->rank; i++) {
		if (!ne[i] || ne[i] > INT64_MAX || __builtin_mul_overflow(n, ne[i], &n) ||
		    n > INT64_MAX / 16)
			return err_set(h->e, EX_DATAERR,
				       "%s: %s: dimension %d is %llu, which is 0 or too large",
				       h->path, t->name, i, (unsigned long long)ne[i]);
		t->shape[t->rank - 1 - i] = (long)ne[i];
	}
	if ((t->rank ? ne[0] : 1) % (uint64_t)block)
		return err_set(h->e, EX_DATAERR,
			       "%s: %s: rows of %llu, wanted whole blocks of %ld for %s", h->path,
			       t->name, (unsigned long long)(t->rank ? ne[0] : 1), block,
			       gguf_type_name((int)type));
	t->type = (int)type;
	t->bytes = n / (uint64_t)block * size;
	return 0;
}

static int get_tensor(struct head *h, struct gguf_tensor *t)
{
	uint32_t rank, type;
	uint64_t ne[DIMS];

	if (get_name(h, &t->name, NAME_MAX_BYTES, "a tensor name") || get(h, &rank, 4))
		return -1;
	if (rank > DIMS)
		return err_set(h->e, EX_DATAERR, "%s: %s: %u dimensions, wanted at most %d",
			       h->path, t->name, rank, DIMS);
	t->rank = (int)rank;
	if (get(h, ne, 8 * (uint64_t)rank) || get(h, &type, 4) || get(h, &t->offset, 8))
		return -1;
	return measure(h, t, ne, type);
}

/* Offsets run on from tensor to tensor, each padded; they become the file's. */
static int check_data(struct head *h, struct gguf_tensor *t, long n)
{
	uint64_t data = (h->at + h->align - 1) / h->align * h->align, at = 0;

	for (long i = 0; i < n; i++) {
		if (t[i].offset != at)
			return err_set(h->e, EX_DATAERR, "%s: %s: data at %llu, wanted %llu",
				       h->path, t[i].name, (unsigned long long)t[i].offset,
				       (unsigned long long)at);
		if (data > h->size || at > h->size - data || t[i].bytes > h->size - data - at)
			return err_set(h->e, EX_DATAERR,
				       "%s: %s: %llu bytes at %llu, the file has %llu", h->path,
				       t[i].name, (unsigned long long)t[i].bytes,
				       (unsigned long long)(data + at),
				       (unsigned long long)h->size);
		t[i].offset += data;
		at = (at + t[i].bytes + h->align - 1) / h->align * h->align;
	}
	return 0;
}

static int get_tensors(struct head *h, int part)
{
	struct gguf *g = h->g;
	uint64_t n = h->tensors;

	if (n > left(h) / 24)
		return err_set(h->e, EX_DATAERR, "%s: %llu tensors in a file of %llu bytes",
			       h->path, (unsigned long long)n, (unsigned long long)h->size);
	g->tensor = xrealloc_array(g->tensor, (size_t)g->n + n + 1, sizeof(*g->tensor));
	for (uint64_t i = 0; i < n; i++) {
		struct gguf_tensor *t = &g->tensor[g->n + (long)i];

		*t = (struct gguf_tensor){ .part = part };
		if (get_tensor(h, t))
			return -1;
	}
	if (check_data(h, g->tensor + g->n, (long)n))
		return -1;
	g->n += (long)n;
	return 0;
}

static int open_part(struct head *h, const char *path)
{
	struct gguf *g = h->g;
	struct stat st;
	struct gguf_part *p;

	g->part = xrealloc_array(g->part, (size_t)g->parts + 1, sizeof(*g->part));
	p = &g->part[g->parts++];
	*p = (struct gguf_part){ xstrdup(path), open(path, O_RDONLY | O_CLOEXEC) };
	if (p->fd < 0)
		return err_errno(h->e, EX_NOINPUT, "%s", path);
	if (fstat(p->fd, &st))
		return err_errno(h->e, EX_IOERR, "%s", path);
	if (!S_ISREG(st.st_mode))
		return err_set(h->e, EX_DATAERR, "%s: not a regular file", path);
	h->path = p->path;
	h->fd = p->fd;
	h->size = (uint64_t)st.st_size;
	return get_head(h) || get_tensors(h, g->parts - 1) ? -1 : 0;
}

/* split.no or split.count of this part; absent: def. */
static int split_value(const struct head *h, const char *key, long def, long *out)
{
	struct gguf only = { .path = h->path, .kv = h->kv, .nkv = h->nkv };

	return gguf_int_or(&only, key, def, out, h->e);
}

static int check_split(const struct head *h, long no, long count)
{
	long n, c;

	if (split_value(h, "split.no", 0, &n) || split_value(h, "split.count", 1, &c))
		return -1;
	if (n != no || c != count)
		return err_set(h->e, EX_DATAERR, "%s: part %ld of %ld, wanted part %ld of %ld",
			       h->path, n + 1, c, no + 1, count);
	return 0;
}

static int open_rest(struct gguf *g, long count, struct err *e)
{
	const char *first = g->path;
	char tail[64];
	size_t len = strlen(first), tlen;
	long total;

	tlen = (size_t)snprintf(tail, sizeof(tail), "-00001-of-%05ld.gguf", count);
	if (count > 99999 || len < tlen || strcmp(first + len - tlen, tail))
		return err_set(e, EX_DATAERR, "%s: part 1 of %ld, wanted a name that ends in %s",
			       first, count, tail);
	for (long i = 1; i < count; i++) {
		struct head *h = xcalloc(1, sizeof(*h));
		char *path = xasprintf("%.*s-%05ld-of-%05ld.gguf", (int)(len - tlen), first, i + 1,
				       count);
		int rc;

		h->g = g;
		h->e = e;
		rc = open_part(h, path) || check_split(h, i, count);
		free(path);
		free(h);
		if (rc)
			return -1;
	}
	if (gguf_int_or(g, "split.tensors.count", g->n, &total, e))
		return -1;
	if (total != g->n)
		return err_set(e, EX_DATAERR, "%s: %ld tensors in %ld parts, wanted %ld", first,
			       g->n, count, total);
	return 0;
}

static int compare_names(const void *a, const void *b, void *arg)
{
	const struct gguf *g = arg;

	return strcmp(g->tensor[*(const long *)a].name, g->tensor[*(const long *)b].name);
}

static int sort_names(struct gguf *g, struct err *e)
{
	g->by_name = xcalloc((size_t)g->n + 1, sizeof(*g->by_name));
	for (long i = 0; i < g->n; i++)
		g->by_name[i] = i;
	qsort_r(g->by_name, (size_t)g->n, sizeof(*g->by_name), compare_names, g);
	for (long i = 1; i < g->n; i++)
		if (!compare_names(&g->by_name[i - 1], &g->by_name[i], g))
			return err_set(e, EX_DATAERR, "%s: tensor %s comes twice", g->path,
				       g->tensor[g->by_name[i]].name);
	return 0;
}

static int open_all(struct gguf *g, struct head *h, const char *path)
{
	long count;

	if (open_part(h, path))
		return -1;
	g->path = arena_strndup(&g->arena, path, strlen(path));
	g->kv = h->kv;
	g->nkv = h->nkv;
	if (split_value(h, "split.count", 1, &count))
		return -1;
	if (count < 1)
		return err_set(h->e, EX_DATAERR, "%s: split.count is %ld", path, count);
	if (check_split(h, 0, count) || (count > 1 && open_rest(g, count, h->e)))
		return -1;
	return sort_names(g, h->e);
}

int gguf_open(struct gguf *g, const char *path, struct err *e)
{
	struct head *h = xcalloc(1, sizeof(*h));
	int rc;

	*g = (struct gguf){ 0 };
	h->g = g;
	h->e = e;
	rc = open_all(g, h, path);
	free(h);
	if (rc)
		gguf_close(g);
	return rc;
}

void gguf_close(struct gguf *g)
{
	for (int i = 0; i < g->parts; i++) {
		if (g->part[i].fd >= 0)
			close(g->part[i].fd);
		free(g->part[i].path);
	}
	free(g->part);
	free(g->tensor);
	free(g->by_name);
	arena_release(&g->arena);
	*g = (struct gguf){ 0 };
}

const struct gguf_kv *gguf_find(const struct gguf *g, const char *key)
{
	return find(g->kv, g->nkv, key);
}

const struct gguf_tensor *gguf_tensor_find(const struct gguf *g, const char *name)
{
	long lo = 0, hi = g->n - 1;

	while (lo <= hi) {
		long mid = (lo + hi) / 2;
		const struct gguf_tensor *t = &g->tensor[g->by_name[mid]];
		int d = strcmp(name, t->name);

		if (!d)
			return t;
		if (d < 0)
			hi = mid - 1;
		else
			lo = mid + 1;
	}
	return NULL;
}
