#include "kernels/ops.h"

#include "libcommon/hash.h"
#include "libcommon/rng.h"
#include "libcommon/xalloc.h"

#include <stdlib.h>
#include <string.h>

/* Sizes that cross a key tile, a split of keys, a chunk of K and a block of the vocabulary, and are odd elsewhere. */
enum { ROWS = 5, K = 96, N = 67, CHUNKS = 3, HEADS = 3, KV = 1, D = 16, KEYS = 530, V = 1500 };

static void mix_host(uint64_t *h, const void *p, size_t bytes)
{
	uint64_t pair[2] = { *h, hash64(p, bytes) };

	*h = hash64(pair, sizeof(pair));
}

static void mix(uint64_t *h, const struct ops *k, const void *p, size_t bytes)
{
	void *host = xmalloc(bytes);

	k->get(host, p, bytes);
	mix_host(h, host, bytes);
	free(host);
}

/* n values in (-1, 1) of type t, the same everywhere. */
static void *vector(const struct ops *k, long n, enum dtype t, uint32_t what)
{
	float *f = xmalloc((size_t)n * 4);
	size_t bytes = (size_t)n * dtype_size(t);
	void *host = xmalloc(bytes), *p = k->alloc(bytes, "the arithmetic fingerprint");

	for (long i = 0; i < n; i++)
		f[i] = 2 * rng_uniform(rng_key(1, RNG_CHECK, 0), (uint64_t)i, what, 0) - 1;
	dtype_convert(host, t, f, DTYPE_F32, (size_t)n);
	k->put(p, host, bytes);
	free(f);
	free(host);
	return p;
}

static void products(uint64_t *h, const struct ops *k, enum dtype t)
{
	void *x = vector(k, ROWS * K, t, 1), *w = vector(k, N * K, t, 2), *b = vector(k, N, t, 3), *y = vector(k, ROWS * N, t, 4);
	float *z = k->alloc(ROWS * N * 4, "the arithmetic fingerprint");
	struct matrix m;

	k->matrix_init(&m, t, N, K, CHUNKS, false);
	k->matrix_load(&m, w);
	k->linear_fwd(y, t, x, &m, b, ROWS);
	mix(h, k, y, ROWS * N * dtype_size(t));
	/* Rounding to bfloat16 hides in which order a sum was formed; logits show it. */
	k->linear_fwd(z, DTYPE_F32, x, &m, NULL, ROWS);
	mix(h, k, z, ROWS * N * 4);
	k->release(z);
	k->matrix_release(&m);
	k->release(x);
	k->release(w);
	k->release(b);
	k->release(y);
}

static void attention(uint64_t *h, const struct ops *k, enum dtype t)
{
	struct attention_shape s = { HEADS, KV, D, 0.25f };
	void *q = vector(k, KEYS * HEADS * D, t, 5), *key = vector(k, KEYS * KV * D, t, 6), *v = vector(k, KEYS * KV * D, t, 7);
	void *out = vector(k, KEYS * HEADS * D, t, 8);
	float *lse = k->alloc(KEYS * HEADS * 4, "the arithmetic fingerprint");
	struct attention_piece piece = { 0, KEYS, 0, KEYS };

	k->attention_fwd(out, lse, q, key, v, &piece, 1, &s, t);
	mix(h, k, out, KEYS * HEADS * D * dtype_size(t));
	mix(h, k, lse, KEYS * HEADS * 4);
	k->release(lse);
	k->release(q);
	k->release(key);
	k->release(v);
	k->release(out);
}

static void rows(uint64_t *h, const struct ops *k, enum dtype t)
{
	void *x = vector(k, ROWS * K, t, 9), *w = vector(k, K, t, 10), *y = vector(k, ROWS * K, t, 11);
	float *table = vector(k, ROWS * D / 2, DTYPE_F32, 12);
	const int position[ROWS] = { 0, 3, 1, 4, 2 };

	k->rmsnorm_fwd(y, NULL, x, w, ROWS, K, 1e-5f, t);
	mix(h, k, y, ROWS * K * dtype_size(t));
	k->rope(y, position, table, table, ROWS, K / D, D, false, t);
	mix(h, k, y, ROWS * K * dtype_size(t));
	k->swiglu_fwd(y, x, x, ROWS * K, t);
	mix(h, k, y, ROWS * K * dtype_size(t));
	k->release(x);
	k->release(w);
	k->release(y);
	k->release(table);
}

static void experts(uint64_t *h, const struct ops *k, enum dtype t)
{
	enum { E = 19, SLOTS = 2 };
	struct routing s = { E, SLOTS, true };
	float *z = vector(k, ROWS * E, DTYPE_F32, 14), *o = vector(k, ROWS * SLOTS * K, DTYPE_F32, 15);
	float *shared = vector(k, ROWS * K, DTYPE_F32, 16), *gate = vector(k, ROWS, DTYPE_F32, 17);
	void *y = vector(k, ROWS * K, t, 18);
	float *w = k->alloc(ROWS * SLOTS * 4, "the arithmetic fingerprint");
	int *at = k->alloc(3 * ROWS * SLOTS * sizeof(int), "the arithmetic fingerprint");
	long offset[E + 1];

	k->route(at, w, z, NULL, z, ROWS, &s, false);
	mix(h, k, z, ROWS * E * 4);
	mix(h, k, w, ROWS * SLOTS * 4);
	mix(h, k, at, ROWS * SLOTS * sizeof(int));
	k->sort_slots(offset, at + ROWS * SLOTS, at + 2 * ROWS * SLOTS, at, ROWS, &s);
	k->sigmoid_fwd(gate, gate, ROWS);
	k->combine(y, o, at + 2 * ROWS * SLOTS, w, gate, shared, ROWS, SLOTS, K, t);
	mix(h, k, y, ROWS * K * dtype_size(t));
	k->release(z);
	k->release(o);
	k->release(shared);
	k->release(gate);
	k->release(y);
	k->release(w);
	k->release(at);
}

static void head(uint64_t *h, const struct ops *k)
{
	static const int target[ROWS] = { 0, 7, 1023, 1024, V - 1 };
	float *z = vector(k, ROWS * V, DTYPE_F32, 13), out[3 * ROWS];

	k->logprob(out, out + ROWS, out + 2 * ROWS, z, target, ROWS, V, 0.7f);
	mix_host(h, out, 2 * ROWS * sizeof(*out));
	k->release(z);
}

uint64_t ops_fingerprint(const struct ops *k)
{
	uint64_t h = 1;

	for (int i = 0; i < 2; i++) {
		enum dtype t = i ? DTYPE_BF16 : DTYPE_F32;

		products(&h, k, t);
		attention(&h, k, t);
		rows(&h, k, t);
		experts(&h, k, t);
	}
	head(&h, k);
	return h;
}
