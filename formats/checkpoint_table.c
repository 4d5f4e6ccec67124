#include "formats/checkpoint_table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libcommon/file.h"

enum { FRAME_MOST = 512 << 20 };        /* bytes outside of boxes in one shard */

const char *slot_name(enum slot s)
{
	static const char *const name[SLOT_COUNT] = { "weight", "master", "exp_avg", "exp_avg_sq",
						      "momentum" };

	if ((unsigned)s >= SLOT_COUNT)
		bug("slot %d", (int)s);
	return name[s];
}

void table_release(struct checkpoint_table *t)
{
	for (int i = 0; i < t->shards; i++) {
		direct_close(&t->shard[i].direct);
		if (t->shard[i].fd >= 0)
			close(t->shard[i].fd);
		if (t->shard[i].spill >= 0)
			close(t->shard[i].spill);
		free(t->shard[i].box);
		free(t->shard[i].place);
	}
	free(t->shard);
	free(t->box);
	free(t->block);
	free(t->chunk);
	free(t->first);
	free(t->parameter);
	free(t->sorted);
	*t = (struct checkpoint_table){ 0 };
}

static int by_name(const void *a, const void *b, void *arg)
{
	const struct checkpoint_tensor *t = arg, *x = &t[*(const long *)a],
				       *y = &t[*(const long *)b];
	int c = strcmp(x->name, y->name);

	return c ? c : (int)x->slot - (int)y->slot;
}

int table_sort(long **sorted, const struct checkpoint_tensor *tensor, long n, const char *file,
	       struct err *e)
{
	long *s = xmalloc((size_t)(n + 1) * sizeof(*s));

	for (long i = 0; i < n; i++)
		s[i] = i;
	qsort_r(s, (size_t)n, sizeof(*s), by_name, (void *)tensor);
	*sorted = s;
	for (long i = 0, weight = 0; i < n; i++) {
		const struct checkpoint_tensor *t = &tensor[s[i]], *w;

		if (i && !by_name(&s[i - 1], &s[i], (void *)tensor))
			return err_set(e, EX_DATAERR, "%s: %s: %s comes twice", file, t->name,
				       slot_name(t->slot));
		if (t->slot == SLOT_WEIGHT)
			weight = i;
		w = &tensor[s[weight]];
		if (w->slot != SLOT_WEIGHT || strcmp(w->name, t->name))
			return err_set(e, EX_DATAERR, "%s: %s: a %s without its weight", file,
				       t->name, slot_name(t->slot));
		if (t->role != w->role || !shape_equal(t->shape, t->rank, w->shape, w->rank))
			return err_set(e, EX_DATAERR, "%s: %s: its %s has another shape or role",
				       file, t->name, slot_name(t->slot));
	}
	return 0;
}

long table_find(const long *sorted, const struct checkpoint_tensor *tensor, long n,
		const char *name, enum slot slot)
{
	long lo = 0, hi = n;

	while (lo < hi) {
		long mid = lo + (hi - lo) / 2;
		const struct checkpoint_tensor *t = &tensor[sorted[mid]];
		int c = strcmp(t->name, name);

		if (!c)
			c = (int)t->slot - (int)slot;
		if (!c)
			return sorted[mid];
		if (c < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return -1;
}

int table_check_tensor(const struct checkpoint_tensor *t, const char *file, struct err *e)
{
	size_t bytes;

	if (!*t->name || strchr(t->name, '/') || !strcmp(t->name, ".") || !strcmp(t->name, ".."))
		return err_set(
			e, EX_DATAERR,
			"%s: \"%s\" cannot be the name of a tensor: empty, a dot, or with a slash",
			file, t->name);
	if (t->dtype <= DTYPE_NONE || t->dtype >= DTYPE_COUNT)
		return err_set(e, EX_DATAERR, "%s: %s: no known type", file, t->name);
	if (t->rank < 0 || t->rank > TENSOR_RANK)
		return err_set(e, EX_DATAERR, "%s: %s: %d dimensions, wanted at most %d", file,
			       t->name, t->rank, TENSOR_RANK);
	/* Zeros do not excuse the others: the product of the extents that are not 0 must fit. */
	bytes = dtype_size(t->dtype);
	for (int i = 0; i < t->rank; i++) {
		if (t->shape[i] < 0 ||
		    __builtin_mul_overflow(bytes, t->shape[i] ? (size_t)t->shape[i] : 1, &bytes) ||
		    bytes > INT64_MAX)
			return err_set(e, EX_DATAERR, "%s: %s: its size overflows", file, t->name);
	}
	return 0;
}

long table_volume(const struct checkpoint_tensor *t)
{
	struct box whole = box_whole(t->shape, t->rank);

	return box_volume(&whole);
}

struct box table_box(const struct hdf5_box *b, int rank)
{
	struct box x = { .rank = rank };

	for (int i = 0; i < rank; i++) {
		x.start[i] = b->start[i];
		x.extent[i] = b->extent[i];
	}
	return x;
}

struct grid table_grid(const struct checkpoint_table *t, const struct hdf5_box *b)
{
	return grid_of(b, t->compress > 0);
}

static int by_offset(const void *a, const void *b, void *arg)
{
	const struct hdf5_chunk *c = arg;
	uint64_t x = c[*(const long *)a].offset, y = c[*(const long *)b].offset;

	return (x > y) - (x < y);
}

/* The blocks of a box that is stored as it is. */
static void place_box(struct checkpoint_table *t, const struct hdf5_box *b, const struct grid *g)
{
	size_t elem = dtype_size((enum dtype)b->dtype);

	for (long i = 0; i < g->blocks; i++) {
		long first, n = grid_range(&first, g, i);

		t->chunk[b->block + (uint64_t)i] = (struct hdf5_chunk){
			b->offset + (uint64_t)first * elem, (uint64_t)n * elem,
			t->block[b->block + (uint64_t)i]
		};
	}
}

static int check_places(const struct checkpoint_table *t, const struct shard *s, const char *dir,
			struct err *e)
{
	uint64_t end = 0;

	for (long i = 0; i < s->places && s->bytes != SHARD_ELSEWHERE; i++) {
		const struct hdf5_chunk *c = &t->chunk[s->place[i]];

		if (c->offset < end || c->offset > s->bytes || c->bytes > s->bytes - c->offset)
			return err_set(
				e, EX_DATAERR,
				"%s/%s: the box at byte %llu overlaps another or the end of the file",
				dir, s->name, (unsigned long long)c->offset);
		end = c->offset + c->bytes;
	}
	return 0;
}

int table_index_shards(struct checkpoint_table *t, const char *dir, struct err *e)
{
	for (long i = 0; i < t->boxes; i++) {
		struct grid g = table_grid(t, &t->box[i]);

		t->shard[t->box[i].file].boxes++;
		t->shard[t->box[i].file].places += g.blocks;
		if (!g.chunked)
			place_box(t, &t->box[i], &g);
	}
	for (int i = 0; i < t->shards; i++) {
		struct shard *s = &t->shard[i];

		s->box = xmalloc((size_t)(s->boxes + 1) * sizeof(long));
		s->place = xmalloc((size_t)(s->places + 1) * sizeof(long));
		s->boxes = s->places = 0;
	}
	for (long i = 0; i < t->boxes; i++) {
		struct shard *s = &t->shard[t->box[i].file];
		struct grid g = table_grid(t, &t->box[i]);

		s->box[s->boxes++] = i;
		for (long k = 0; k < g.blocks; k++)
			s->place[s->places++] = (long)t->box[i].block + k;
	}
	for (int i = 0; i < t->shards; i++) {
		struct shard *s = &t->shard[i];

		qsort_r(s->place, (size_t)s->places, sizeof(long), by_offset, t->chunk);
		if (check_places(t, s, dir, e))
			return -1;
	}
	return 0;
}

int table_check_tiling(const struct checkpoint_table *t, const struct checkpoint_tensor *tensor,
		       long n, const char *file, struct err *e)
{
	for (long i = 0; i < n; i++) {
		const struct checkpoint_tensor *x = &tensor[i];
		long boxes = t->first[i + 1] - t->first[i];
		struct box *b = xmalloc((size_t)(boxes + 1) * sizeof(*b));
		char what[700];
		int rc;

		for (long k = 0; k < boxes; k++)
			b[k] = table_box(&t->box[t->first[i] + k], x->rank);
		snprintf(what, sizeof(what), "%.300s: %.300s (%s)", file, x->name,
			 slot_name(x->slot));
		rc = box_tiling(b, boxes, x->shape, x->rank, what, e);
		free(b);
		if (rc)
			return -1;
	}
	return 0;
}

int table_frame(struct digest *d, const struct checkpoint_table *t, const struct shard *s,
		const char *path, struct err *e)
{
	uint64_t total = s->bytes, at = 0, used = 0;
	char *buf;
	int rc = 0;

	for (long i = 0; i < s->places; i++)
		total -= t->chunk[s->place[i]].bytes;
	if (total > FRAME_MOST)
		return err_set(e, EX_DATAERR,
			       "%s: %llu bytes outside of its boxes, wanted at most %d", path,
			       (unsigned long long)total, (int)FRAME_MOST);
	buf = xmalloc(total + 1);
	for (long i = 0; i <= s->places && !rc; i++) {
		const struct hdf5_chunk *c = i < s->places ? &t->chunk[s->place[i]] : NULL;
		uint64_t end = c ? c->offset : s->bytes;

		if (end > at)
			rc = file_pread(s->fd, path, buf + used, end - at, at, e);
		used += end - at;
		at = c ? end + c->bytes : end;
	}
	*d = hash128(buf, total);
	free(buf);
	return rc;
}

int table_range(struct box out[2 * TENSOR_RANK], const struct box *b, long first, long n)
{
	int boxes = box_of_range(out, b->extent, b->rank, first, n);

	for (int i = 0; i < boxes; i++)
		for (int k = 0; k < b->rank; k++)
			out[i].start[k] += b->start[k];
	return boxes;
}

static void add_u64(struct str *s, uint64_t v)
{
	str_add(s, (const char *)&v, sizeof(v));
}

static void add_description(struct str *s, const struct checkpoint_tensor *t)
{
	str_add(s, t->name, strlen(t->name) + 1);
	if (t->slot != SLOT_WEIGHT)
		str_add(s, slot_name(t->slot), strlen(slot_name(t->slot)) + 1);
	str_add(s, dtype_name(t->dtype), strlen(dtype_name(t->dtype)) + 1);
	add_u64(s, (uint64_t)t->rank);
	for (int k = 0; k < t->rank; k++)
		add_u64(s, (uint64_t)t->shape[k]);
}

struct digest table_digest(const struct checkpoint_tensor *tensor, const struct digest *sum,
			   const long *sorted, long n, bool optimizer)
{
	struct str s = { 0 };
	struct digest d;

	for (long i = 0; i < n; i++) {
		const struct checkpoint_tensor *t = &tensor[sorted[i]];

		if ((t->slot != SLOT_WEIGHT) != optimizer)
			continue;
		add_description(&s, t);
		add_u64(&s, sum[sorted[i]].hi);
		add_u64(&s, sum[sorted[i]].lo);
	}
	d = hash128(s.s, s.len);
	str_release(&s);
	return d;
}

void table_id(char id[17], const struct checkpoint_table *t, const struct checkpoint_tensor *tensor,
	      long n)
{
	struct str s = { 0 };
	struct digest part[4] = { 0 }, d;

	for (long i = 0; i < n; i++)
		add_description(&s, &tensor[i]);
	part[0] = hash128(s.s, s.len);
	part[1] = hash128(t->box, (size_t)t->boxes * sizeof(*t->box));
	part[2] = hash128(t->block, (size_t)t->blocks * sizeof(*t->block));
	/* Places of chunks, and the level that the shards name. */
	part[3] = hash128(t->chunk, (size_t)t->blocks * sizeof(*t->chunk));
	part[3].lo += (uint64_t)t->compress;
	d = hash128(part, (t->compress ? 4 : 3) * sizeof(*part));
	snprintf(id, 17, "%016llx", (unsigned long long)d.hi);
	str_release(&s);
}

char *table_dataset(const struct checkpoint_tensor *t, const struct hdf5_box *b)
{
	struct str s = { 0 };

	str_printf(&s, "%s/%s@", slot_name(t->slot), t->name);
	for (int i = 0; i < t->rank; i++)
		str_printf(&s, "%s%lld", i ? "," : "", (long long)b->start[i]);
	return str_detach(&s);
}
