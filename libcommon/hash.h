#ifndef LIBCOMMON_HASH_H
#define LIBCOMMON_HASH_H

/* Checksums and digests: xxHash 3, in 64 and 128 bits, written as hexadecimal, high half first. */

#include "libcommon/die.h"

#include <stddef.h>
#include <stdint.h>

struct digest { uint64_t hi, lo; };

uint64_t hash64(const void *p, size_t n);               /* XXH3-64, seed 0 */
struct digest hash128(const void *p, size_t n);         /* XXH3-128, seed 0 */
int hash128_file(struct digest *d, const char *path, struct err *e) MUST_CHECK;
const char *digest_hex(char buf[33], struct digest d);
int digest_parse(struct digest *d, const char *hex);    /* -1 when it is no 32 hex digits */
static inline int digest_equal(struct digest a, struct digest b) { return a.hi == b.hi && a.lo == b.lo; }

/*
 * Digest of a tensor that does not depend on how it is cut: the 128-bit sum (mod 2^128) over its elements of
 * mix(bits, flat index, name), where mix is
 *
 *	x = bits + (index + 1) * 0x9E3779B97F4A7C15 + XXH3_64(name)      (all mod 2^64)
 *	lo = fmix64(x), hi = fmix64(x ^ 0xD1B54A32D192ED03)
 *
 * and fmix64 is MurmurHash3's finaliser.  Sums of parts add up to the sum of the whole.
 */
struct digest digest_add(struct digest a, struct digest b); /* mod 2^128 */
/* n elements of `size` bytes (1, 2, 4, 8) whose flat indices are first, first + 1, ... */
struct digest digest_elements(const void *p, size_t n, int size, uint64_t first, uint64_t name_hash);

#endif
