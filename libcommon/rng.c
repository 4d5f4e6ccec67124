#include "libcommon/rng.h"

#include <math.h>

#include "libcommon/die.h"
#include "libcommon/hash.h"

void philox4x32(uint32_t out[4], const uint32_t counter[4], struct rng_key key)
{
	uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
	uint32_t k0 = key.k[0], k1 = key.k[1];

	for (int round = 0; round < 10; round++) {
		uint64_t p0 = (uint64_t)0xD2511F53 * c0, p1 = (uint64_t)0xCD9E8D57 * c2;

		c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
		c1 = (uint32_t)p1;
		c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
		c3 = (uint32_t)p0;
		k0 += 0x9E3779B9;
		k1 += 0xBB67AE85;
	}
	out[0] = c0;
	out[1] = c1;
	out[2] = c2;
	out[3] = c3;
}

struct rng_key rng_key(uint64_t seed, enum rng_purpose purpose, uint64_t stream)
{
	uint64_t word[3] = { seed, (uint64_t)purpose, stream };
	unsigned char bytes[24];

	for (int i = 0; i < 24; i++)
		bytes[i] = (unsigned char)(word[i / 8] >> 8 * (i % 8));

	uint64_t h = hash64(bytes, sizeof(bytes));
	return (struct rng_key){ { (uint32_t)h, (uint32_t)(h >> 32) } };
}

static void draw(uint32_t out[4], struct rng_key key, uint64_t a, uint32_t b, uint32_t c)
{
	philox4x32(out, (uint32_t[4]){ (uint32_t)a, (uint32_t)(a >> 32), b, c }, key);
}

float rng_uniform(struct rng_key key, uint64_t a, uint32_t b, uint32_t c)
{
	uint32_t w[4];

	draw(w, key, a, b, c);
	return (float)(w[0] >> 8) * 0x1p-24f;
}

static uint64_t join(uint32_t hi, uint32_t lo)
{
	return (uint64_t)hi << 32 | lo;
}

void rng_normal2(float out[2], struct rng_key key, uint64_t a, uint32_t b, uint32_t c)
{
	uint32_t w[4];

	draw(w, key, a, b, c);
	/* The first in (0, 1], so that its logarithm is finite. */
	double u = (double)((join(w[0], w[1]) >> 11) + 1) * 0x1p-53;
	double v = (double)(join(w[2], w[3]) >> 11) * 0x1p-53;
	double r = sqrt(-2 * log(u)), angle = 2 * M_PI * v;

	out[0] = (float)(r * cos(angle));
	out[1] = (float)(r * sin(angle));
}

/* In 0..n-1.  Lemire, "Fast random integer generation in an interval", 2019: a product instead of a
 * remainder, and the few draws that would favour some values are made again. */
static uint64_t bounded(struct rng_key key, uint64_t which, uint64_t n)
{
	uint64_t least = -n % n;

	for (uint32_t attempt = 0;; attempt++) {
		uint32_t w[4];

		draw(w, key, which, attempt, 0);
		unsigned __int128 m = (unsigned __int128)join(w[0], w[1]) * n;
		if ((uint64_t)m >= least)
			return (uint64_t)(m >> 64);
	}
}

void rng_permutation(long *out, long n, struct rng_key key)
{
	if (n < 0)
		bug("a permutation of %ld", n);
	for (long i = 0; i < n; i++)
		out[i] = i;
	for (long i = n - 1; i > 0; i--) {
		long j = (long)bounded(key, (uint64_t)i, (uint64_t)i + 1), t = out[i];

		out[i] = out[j];
		out[j] = t;
	}
}
