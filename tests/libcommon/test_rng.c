#include "libcommon/rng.h"

#include "libcommon/hash.h"
#include "tests/lib/tap.h"

/* The known answers that come with Random123. */
static void known_answers(void)
{
	static const struct { uint32_t counter[4], key[2], want[4];
	} k[] = {
		{ { 0 }, { 0 }, { 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 } },
		{ { ~0u, ~0u, ~0u, ~0u },
		  { ~0u, ~0u },
		  { 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd } },
		{ { 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344 },
		  { 0xa4093822, 0x299f31d0 },
		  { 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1 } },
	};

	for (size_t i = 0; i < sizeof(k) / sizeof(*k); i++) {
		uint32_t out[4];

		philox4x32(out, k[i].counter, (struct rng_key){ { k[i].key[0], k[i].key[1] } });
		ok(!memcmp(out, k[i].want, sizeof(out)), "philox4x32-10, known answer %zu", i);
	}
}

static void keys(void)
{
	unsigned char bytes[24] = { 8, 7, 6, 5, 4, 3, 2, 1, RNG_SHUFFLE, [16] = 0xfe, 0xff };
	uint64_t h = hash64(bytes, 24);
	struct rng_key k = rng_key(0x0102030405060708, RNG_SHUFFLE, 0xfffe), other;

	ok(k.k[0] == (uint32_t)h && k.k[1] == (uint32_t)(h >> 32), "a key is the hash of three "
								   "little-endian words");
	other = rng_key(0x0102030405060708, RNG_INIT, 0xfffe);
	ok(memcmp(&k, &other, sizeof(k)), "another purpose, another key");
}

static void uniforms(void)
{
	struct rng_key k = rng_key(7, RNG_TEST, 0);
	uint32_t w[4];
	double sum = 0, sum2 = 0;
	long outside = 0, bins[16] = { 0 }, n = 160000;
	double chi2 = 0;

	philox4x32(w, (uint32_t[4]){ 0x89abcdef, 0x01234567, 11, 13 }, k);
	ok(rng_uniform(k, 0x0123456789abcdef, 11, 13) == (float)(w[0] / 256) / 16777216.0f,
	   "a uniform is 24 bits of one block");
	for (long i = 0; i < n; i++) {
		float u = rng_uniform(k, 5, 3, (uint32_t)i);

		outside += !(u >= 0 && u < 1);
		sum += (double)u;
		sum2 += (double)u * (double)u;
		bins[(int)(u * 16)]++;
	}
	for (int i = 0; i < 16; i++)
		chi2 += (double)((bins[i] - n / 16) * (bins[i] - n / 16)) / (double)(n / 16);
	ok(!outside, "all in [0, 1)");
	is_num(sum / (double)n, 0.5, 0.004, "mean 1/2");
	is_num(sum2 / (double)n, 1.0 / 3, 0.004, "second moment 1/3");
	ok(chi2 < 45, "sixteen bins are even (chi squared %.1f)", chi2);
}

static void normals(void)
{
	struct rng_key k = rng_key(7, RNG_INIT, 0);
	double m[5] = { 0 }, cross = 0;
	long n = 100000;
	float x[2];

	for (long i = 0; i < n; i++) {
		rng_normal2(x, k, (uint64_t)i, 0, 0);
		cross += (double)x[0] * (double)x[1];
		for (int j = 0; j < 2; j++)
			for (int p = 1; p <= 4; p++)
				m[p] += pow((double)x[j], p) / (double)(2 * n);
	}
	is_num(m[1], 0, 0.01, "normals: mean 0");
	is_num(m[2], 1, 0.02, "variance 1");
	is_num(m[3], 0, 0.04, "no skew");
	is_num(m[4], 3, 0.1, "fourth moment 3");
	is_num(cross / (double)n, 0, 0.015, "the two of a pair are uncorrelated");
}

static void permutations(void)
{
	long p[1000], q[1000], seen[1000] = { 0 }, times[6] = { 0 }, bad = 0;
	double chi2 = 0;

	rng_permutation(p, 1000, rng_key(1, RNG_SHUFFLE, 0));
	rng_permutation(q, 1000, rng_key(1, RNG_SHUFFLE, 0));
	ok(!memcmp(p, q, sizeof(p)), "the same key, the same permutation");
	rng_permutation(q, 1000, rng_key(1, RNG_SHUFFLE, 1));
	ok(memcmp(p, q, sizeof(p)), "another epoch, another permutation");
	for (int i = 0; i < 1000; i++)
		seen[p[i]]++;
	for (int i = 0; i < 1000; i++)
		bad += seen[i] != 1;
	ok(!bad, "each index once");
	for (uint64_t s = 0; s < 12000; s++) {
		rng_permutation(p, 3, rng_key(s, RNG_SHUFFLE, 0));
		times[p[0] * 2 + (p[1] > p[2])]++;
	}
	for (int i = 0; i < 6; i++)
		chi2 += (double)((times[i] - 2000) * (times[i] - 2000)) / 2000;
	ok(chi2 < 25, "the six orders of three are even (chi squared %.1f)", chi2);
	rng_permutation(p, 0, rng_key(1, RNG_SHUFFLE, 0));
	p[0] = 5;
	rng_permutation(p, 1, rng_key(1, RNG_SHUFFLE, 0));
	ok(p[0] == 0, "of one");
}

int main(void)
{
	known_answers();
	keys();
	uniforms();
	normals();
	permutations();
	return done();
}
