#ifndef LIBCOMMON_RNG_H
#define LIBCOMMON_RNG_H

/*
 * Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC11): a counter-based generator,
 * so any draw can be made anywhere, in any order.
 *
 * Sampling (design section 5): key = rng_key(seed, purpose, visit), counter = (prompt id, sample index, position);
 * one uniform a token.
 */

#include <stdint.h>

struct rng_key { uint32_t k[2]; };

enum rng_purpose { RNG_SAMPLE = 1, RNG_SHUFFLE, RNG_INIT, RNG_CHECK, RNG_VALIDATION, RNG_TEST };

void philox4x32(uint32_t out[4], const uint32_t counter[4], struct rng_key key);
struct rng_key rng_key(uint64_t seed, enum rng_purpose purpose, uint64_t stream);
/* In [0, 1): 24 random bits times 2^-24, exact in a float. */
float rng_uniform(struct rng_key key, uint64_t a, uint32_t b, uint32_t c);
/* Two independent normals by Box-Muller in double, rounded to float. */
void rng_normal2(float out[2], struct rng_key key, uint64_t a, uint32_t b, uint32_t c);

/* A permutation of 0..n-1 by Fisher-Yates with unbiased bounded draws. */
void rng_permutation(long *out, long n, struct rng_key key);

#endif
