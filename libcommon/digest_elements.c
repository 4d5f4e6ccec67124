#include "libcommon/hash.h"

#include <string.h>

/*
 * The sum runs in eight lanes of 64 bits.  A lane keeps the sum of `lo` mod 2^64 and that of its
 * high halves; the sum of its low halves, which fits 64 bits in a run of at most 2^31 elements, is
 * their difference.
 */
typedef uint64_t lanes __attribute__((vector_size(64), aligned(8)));
typedef unsigned __int128 u128;

enum { LANES = 8 };
#define GOLDEN 0x9E3779B97F4A7C15u
#define SECOND 0xD1B54A32D192ED03u
#define RUN ((size_t)1 << 31)

#define ALWAYS_INLINE static inline __attribute__((always_inline))
#define FMIX(x) do { \
	(x) ^= (x) >> 33; \
	(x) *= 0xFF51AFD7ED558CCDu; \
	(x) ^= (x) >> 33; \
	(x) *= 0xC4CEB9FE1A85EC53u; \
	(x) ^= (x) >> 33; \
} while (0)

static uint64_t element(const unsigned char *p, int size)
{
	uint64_t v = 0;

	memcpy(&v, p, (size_t)size);
	return v;
}

static u128 mix(uint64_t x)
{
	uint64_t y = x ^ SECOND;

	FMIX(x);
	FMIX(y);
	return (u128)y << 64 | x;
}

/* Whole groups of 64 bytes; x0 is what the first element's bits are added to.  A lane of a group
 * holds 8 / size neighbours, taken out by shifts (files are little-endian, and so are we). */
ALWAYS_INLINE u128 sum_groups(const unsigned char *p, size_t groups, int size, uint64_t x0)
{
	const int per_lane = 8 / size;
	const uint64_t mask = ~(uint64_t)0 >> (64 - 8 * size);
	lanes base, all = { 0 }, high = { 0 }, top = { 0 };

	for (int j = 0; j < LANES; j++)
		base[j] = x0 + (uint64_t)(j * per_lane) * GOLDEN;
	for (size_t i = 0; i < groups; i++, p += sizeof(lanes)) {
		lanes v;

		memcpy(&v, p, sizeof(v));
		for (int k = 0; k < per_lane; k++) {
			lanes x = (v >> (8 * size * k) & mask) + base + (uint64_t)k * GOLDEN;
			lanes y = x ^ SECOND;

			FMIX(x);
			FMIX(y);
			all += x;
			high += x >> 32;
			top += y;
		}
		base += (uint64_t)(LANES * per_lane) * GOLDEN;
	}

	u128 s = 0;
	for (int j = 0; j < LANES; j++)
		s += (u128)(all[j] - (high[j] << 32)) + ((u128)high[j] << 32) +
		     ((u128)top[j] << 64);
	return s;
}

/* The size is a constant in each branch, so that the loop within has none. */
ALWAYS_INLINE u128 sum_by_size(const unsigned char *p, size_t groups, int size, uint64_t x0)
{
	switch (size) {
	case 1: return sum_groups(p, groups, 1, x0);
	case 2: return sum_groups(p, groups, 2, x0);
	case 4: return sum_groups(p, groups, 4, x0);
	default: return sum_groups(p, groups, 8, x0);
	}
}

static u128 sum_plain(const unsigned char *p, size_t groups, int size, uint64_t x0)
{
	return sum_by_size(p, groups, size, x0);
}

#ifdef __x86_64__
__attribute__((target("avx512f,avx512dq,avx512bw,avx512vl")))
static u128 sum_avx512(const unsigned char *p, size_t groups, int size, uint64_t x0)
{
	return sum_by_size(p, groups, size, x0);
}

__attribute__((target("avx2")))
static u128 sum_avx2(const unsigned char *p, size_t groups, int size, uint64_t x0)
{
	return sum_by_size(p, groups, size, x0);
}

static u128 sum(const unsigned char *p, size_t groups, int size, uint64_t x0)
{
	if (__builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
		return sum_avx512(p, groups, size, x0);
	return __builtin_cpu_supports("avx2") ? sum_avx2(p, groups, size, x0)
					      : sum_plain(p, groups, size, x0);
}
#else
#define sum sum_plain
#endif

struct digest digest_elements(const void *data, size_t n, int size, uint64_t first,
			      uint64_t name_hash)
{
	const unsigned char *p = data;
	u128 s = 0;

	if (size != 1 && size != 2 && size != 4 && size != 8)
		bug("elements of %d bytes", size);
	while (n) {
		size_t run = n < RUN ? n : RUN, groups = run * (size_t)size / sizeof(lanes);

		s += sum(p, groups, size, (first + 1) * GOLDEN + name_hash);
		for (size_t i = groups * sizeof(lanes) / (size_t)size; i < run; i++)
			s += mix(element(p + i * (size_t)size, size) + (first + i + 1) * GOLDEN +
				 name_hash);
		p += run * (size_t)size;
		first += run;
		n -= run;
	}
	return (struct digest){ (uint64_t)(s >> 64), (uint64_t)s };
}
