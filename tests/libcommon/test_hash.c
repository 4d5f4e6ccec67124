#include "libcommon/hash.h"

#include <unistd.h>

#include "libcommon/rng.h"
#include "tests/lib/tap.h"

/* Published values of xxHash 3 for the empty input. */
static void known(void)
{
	char hex[33];
	struct digest d;

	ok(hash64("", 0) == 0x2d06800538d394c2, "XXH3-64 of nothing");
	ok(hash64(NULL, 0) == 0x2d06800538d394c2, "and of a NULL");
	is_str(digest_hex(hex, hash128("", 0)), "99aa06d3014798d86001c324468d497f",
	       "XXH3-128 of nothing");
	ok(digest_parse(&d, "99AA06d3014798d86001c324468d497f") == 0 &&
		   digest_equal(d, hash128(NULL, 0)),
	   "hex is read back");
	ok(digest_parse(&d, "99aa06d3014798d86001c324468d497") == -1, "31 digits");
	ok(digest_parse(&d, "99aa06d3014798d86001c324468d497f0") == -1, "33 digits");
	ok(digest_parse(&d, "99aa06d3014798d86001c324468d497g") == -1, "no digit");
	ok(digest_parse(&d, "") == -1, "nothing");
}

static void files(void)
{
	char path[4096], hex[33], want[33];
	struct err e = ERR_INIT;
	size_t n = 700001;
	char *bytes = malloc(n);
	struct digest d;
	FILE *f;

	snprintf(path, sizeof(path), "%s/hash", tap_tmp());
	for (size_t i = 0; i < n; i++)
		bytes[i] = (char)(i * i >> 3);
	f = fopen(path, "w");
	fwrite(bytes, 1, n, f);
	fclose(f);
	ok(hash128_file(&d, path, &e) == 0, "a file of several pieces");
	is_str(digest_hex(hex, d), digest_hex(want, hash128(bytes, n)), "as its bytes at once");
	unlink(path);
	ok(hash128_file(&d, path, &e) == -1 && e.code == EX_NOINPUT && strstr(e.msg, path),
	   "no such file: %s", e.msg);
	ok(hash128_file(&d, tap_tmp(), &e) == -1 && e.code == EX_DATAERR, "a directory: %s", e.msg);
	free(bytes);
}

/* From record_digest.py. */
static void elements(void)
{
	static const struct { size_t n; int size; uint64_t first, name; const char *want; } c[] = {
		{ 1, 1, 0x0, 0x0, "5b2a2143423773c96c45141841d3019f" },
		{ 1000, 1, 0x3, 0x123456789abcdef0, "9f2f11fe58977227362ce0b6d0887009" },
		{ 203, 1, 0x10000000001, 0xffffffffffffffff, "643111217ec76a0076ab2578d0ff10a9" },
		{ 1, 2, 0x0, 0x0, "f2101d89b8628fc00d7e213cee0c05e4" },
		{ 1000, 2, 0x3, 0x123456789abcdef0, "56535cfaf217f5ac55659b1fcb103d53" },
		{ 203, 2, 0x10000000001, 0xffffffffffffffff, "29d5ab11b48289fe8abe91b761ffdbe4" },
		{ 1, 4, 0x0, 0x0, "121f605ac57bf73816fd66ea38a99ffa" },
		{ 1000, 4, 0x3, 0x123456789abcdef0, "b5d32f70688e5610af892def36b46a82" },
		{ 203, 4, 0x10000000001, 0xffffffffffffffff, "c8bc3100b0fb293522a5846e617d4a06" },
		{ 1, 8, 0x0, 0x0, "6c253b352ae89c6a57c32759428059e5" },
		{ 1000, 8, 0x3, 0x123456789abcdef0, "383411a96ca8ebf6efbe4a552751c9a1" },
		{ 203, 8, 0x10000000001, 0xffffffffffffffff, "9061a5f049a6bea41cb81e6f5fc28d1f" },
	};
	static unsigned char bytes[8001];
	char hex[33];

	/* At an odd address: files promise no alignment. */
	for (unsigned k = 0; k < 8000; k++)
		bytes[k + 1] = (unsigned char)(k * k * 7 + k * 13 + 5);
	for (size_t i = 0; i < sizeof(c) / sizeof(*c); i++)
		is_str(digest_hex(hex, digest_elements(bytes + 1, c[i].n, c[i].size, c[i].first,
						       c[i].name)),
		       c[i].want, "%zu elements of %d bytes from %llu on", c[i].n, c[i].size,
		       (unsigned long long)c[i].first);
}

/* However a tensor is cut, the sum is the same. */
static void cuts(void)
{
	struct rng_key key = rng_key(3, RNG_TEST, 0);
	static unsigned char bytes[16000];
	int bad = 0;

	for (unsigned k = 0; k < sizeof(bytes); k++)
		bytes[k] = (unsigned char)(rng_uniform(key, k, 0, 0) * 256);
	for (int size = 1; size <= 8; size *= 2) {
		struct digest whole = digest_elements(bytes, 2000, size, 9, 4);

		for (uint32_t t = 0; t < 50; t++) {
			struct digest sum = { 0, 0 };
			size_t at = 0;

			for (uint32_t i = 0; at < 2000; i++) {
				size_t n = (size_t)(rng_uniform(key, t, i, 1) * 300);

				n = n < 2000 - at ? n : 2000 - at;
				sum = digest_add(sum, digest_elements(bytes + at * (size_t)size, n,
								      size, 9 + at, 4));
				at += n;
			}
			bad += !digest_equal(sum, whole);
		}
	}
	ok(!bad, "sums of parts add up to the sum of the whole");

	struct digest a = digest_elements("\1\2", 2, 1, 0, 0),
		      b = digest_elements("\2\1", 2, 1, 0, 0);
	ok(!digest_equal(a, b), "the order of elements matters");
	ok(!digest_equal(a, digest_elements("\1\2", 2, 1, 0, 1)), "and the name");
	a = digest_add((struct digest){ 1, ~0ul }, (struct digest){ 2, 3 });
	ok(a.hi == 4 && a.lo == 2, "the low half carries into the high one");
}

int main(void)
{
	known();
	files();
	elements();
	cuts();
	return done();
}
