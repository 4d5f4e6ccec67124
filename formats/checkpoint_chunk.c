#include "formats/checkpoint_chunk.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "formats/checkpoint.h"
#include "libcommon/xalloc.h"

enum { LANES = 16, STORED_MOST = CHECKPOINT_BLOCK + CHECKPOINT_BLOCK / 128 + 1024 };

static int rank_of(const struct hdf5_box *b)
{
	int rank = 0;

	while (rank < TENSOR_RANK && b->extent[rank])
		rank++;
	return rank;
}

static void cut_chunks(struct grid *g, const struct hdf5_box *b, long most)
{
	long row = 1, runs = 1, k;
	int d = g->rank - 1;

	while (d > 0 && b->extent[d] <= most / row)
		row *= b->extent[d--];
	k = most / row < b->extent[d] ? most / row : b->extent[d];
	g->each = (b->extent[d] + k - 1) / k;
	k = (b->extent[d] + g->each - 1) / g->each;
	for (int i = 0; i < g->rank; i++) {
		g->chunk[i] = i < d ? 1 : b->extent[i];
		runs *= i < d ? b->extent[i] : 1;
	}
	g->chunk[d] = k;
	g->run = b->extent[d] * row;
	g->per = k * row;
	g->blocks = runs * g->each;
}

struct grid grid_of(const struct hdf5_box *b, bool compressed)
{
	size_t elem = dtype_size((enum dtype)b->dtype);
	long most = (long)(CHECKPOINT_BLOCK / elem), volume = (long)(b->bytes / elem);
	struct grid g = { .run = volume, .per = most, .rank = rank_of(b) };

	g.chunked = compressed && b->bytes >= CHUNK_LEAST;
	if (g.chunked) {
		cut_chunks(&g, b, most);
		return g;
	}
	g.each = g.blocks = volume / most + !!(volume % most);
	return g;
}

long grid_range(long *first, const struct grid *g, long block)
{
	long in = block % g->each * g->per;

	*first = block / g->each * g->run + in;
	return g->run - in < g->per ? g->run - in : g->per;
}

long grid_block(const struct grid *g, long element)
{
	return element / g->run * g->each + element % g->run / g->per;
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct chunk_codec *unused;

struct chunk_codec *chunk_codec_take(void)
{
	struct chunk_codec *c;

	pthread_mutex_lock(&lock);
	c = unused;
	if (c)
		unused = c->next;
	pthread_mutex_unlock(&lock);
	return c ? c : xcalloc(1, sizeof(*c));
}

void chunk_codec_give(struct chunk_codec *c)
{
	pthread_mutex_lock(&lock);
	c->next = unused;
	unused = c;
	pthread_mutex_unlock(&lock);
}

char *chunk_room(struct chunk_codec *c)
{
	if (!c->stored)
		c->stored = xmalloc(STORED_MOST);
	return c->stored;
}

static char *shuffle_room(struct chunk_codec *c)
{
	if (!c->shuffled)
		c->shuffled = xmalloc(CHECKPOINT_BLOCK);
	return c->shuffled;
}

size_t chunk_pack(struct chunk_codec *c, const void *raw, long n, long full, size_t elem,
		  int level)
{
	size_t used = (size_t)n * elem, whole = (size_t)full * elem, bytes;
	char *shuffled = shuffle_room(c), *stored = chunk_room(c);

	if (!c->packer && !(c->packer = ZSTD_createCCtx()))
		die(EX_UNAVAILABLE, "no memory for zstd at level %d", level);
	if (n < full)
		memset(shuffled, 0, whole);
	chunk_shuffle(shuffled, raw, n, full, elem);
	bytes = ZSTD_compressCCtx(c->packer, stored, STORED_MOST, shuffled, whole, level);
	if (!ZSTD_isError(bytes) && bytes < whole)
		return bytes;
	memcpy(stored, raw, used);
	memset(stored + used, 0, whole - used);
	return whole;
}

int chunk_unpack(void *raw, struct chunk_codec *c, size_t bytes, long n, long full, size_t elem)
{
	size_t whole = (size_t)full * elem;
	char *shuffled = shuffle_room(c);

	if (bytes == whole) {
		memcpy(raw, c->stored, (size_t)n * elem);
		return 0;
	}
	if (!c->unpacker && !(c->unpacker = ZSTD_createDCtx()))
		die(EX_UNAVAILABLE, "no memory to unpack zstd");
	if (ZSTD_decompressDCtx(c->unpacker, shuffled, whole, c->stored, bytes) != whole)
		return -1;
	chunk_unshuffle(raw, shuffled, n, full, elem);
	return 0;
}

struct lanes { unsigned char b __attribute__((vector_size(LANES))); };

static inline struct lanes load(const char *p)
{
	struct lanes x;

	memcpy(&x, p, sizeof(x));
	return x;
}

/*
 * Bytes of `elem` vectors seen as one array: each round takes the even ones to the front half.
 * After log2(elem) rounds the first vector holds byte 0 of 16 elements, and so on.
 */
static inline void split(struct lanes *v, size_t elem)
{
	for (size_t round = elem; round > 1; round /= 2) {
		struct lanes w[8];

		for (size_t j = 0; j < elem / 2; j++) {
			w[j].b = __builtin_shufflevector(v[2 * j].b, v[2 * j + 1].b, 0, 2, 4, 6, 8,
							 10, 12, 14, 16, 18, 20, 22, 24, 26, 28,
							 30);
			w[j + elem / 2].b = __builtin_shufflevector(v[2 * j].b, v[2 * j + 1].b, 1,
								    3, 5, 7, 9, 11, 13, 15, 17, 19,
								    21, 23, 25, 27, 29, 31);
		}
		memcpy(v, w, elem * sizeof(*v));
	}
}

/* The inverse: each round interleaves the two halves. */
static inline void merge(struct lanes *v, size_t elem)
{
	for (size_t round = elem; round > 1; round /= 2) {
		struct lanes w[8];

		for (size_t j = 0; j < elem / 2; j++) {
			w[2 * j].b = __builtin_shufflevector(v[j].b, v[j + elem / 2].b, 0, 16, 1,
							     17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22,
							     7, 23);
			w[2 * j + 1].b = __builtin_shufflevector(v[j].b, v[j + elem / 2].b, 8, 24,
								 9, 25, 10, 26, 11, 27, 12, 28, 13,
								 29, 14, 30, 15, 31);
		}
		memcpy(v, w, elem * sizeof(*v));
	}
}

static inline __attribute__((always_inline)) void
shuffle(char *out, const char *in, long n, long stride, size_t elem)
{
	struct lanes v[8];
	long i = 0;

	for (; i + LANES <= n; i += LANES) {
		for (size_t b = 0; b < elem; b++)
			v[b] = load(in + (size_t)i * elem + b * LANES);
		split(v, elem);
		for (size_t b = 0; b < elem; b++)
			memcpy(out + (size_t)(i + (long)b * stride), &v[b], LANES);
	}
	for (; i < n; i++)
		for (size_t b = 0; b < elem; b++)
			out[(long)b * stride + i] = in[(size_t)i * elem + b];
}

static inline __attribute__((always_inline)) void
unshuffle(char *out, const char *in, long n, long stride, size_t elem)
{
	struct lanes v[8];
	long i = 0;

	for (; i + LANES <= n; i += LANES) {
		for (size_t b = 0; b < elem; b++)
			v[b] = load(in + (size_t)(i + (long)b * stride));
		merge(v, elem);
		memcpy(out + (size_t)i * elem, v, elem * LANES);
	}
	for (; i < n; i++)
		for (size_t b = 0; b < elem; b++)
			out[(size_t)i * elem + b] = in[(long)b * stride + i];
}

void chunk_shuffle(char *out, const char *in, long n, long stride, size_t elem)
{
	switch (elem) {
	case 1: memcpy(out, in, (size_t)n); return;
	case 2: shuffle(out, in, n, stride, 2); return;
	case 4: shuffle(out, in, n, stride, 4); return;
	case 8: shuffle(out, in, n, stride, 8); return;
	}
	bug("elements of %zu bytes", elem);
}

void chunk_unshuffle(char *out, const char *in, long n, long stride, size_t elem)
{
	switch (elem) {
	case 1: memcpy(out, in, (size_t)n); return;
	case 2: unshuffle(out, in, n, stride, 2); return;
	case 4: unshuffle(out, in, n, stride, 4); return;
	case 8: unshuffle(out, in, n, stride, 8); return;
	}
	bug("elements of %zu bytes", elem);
}
