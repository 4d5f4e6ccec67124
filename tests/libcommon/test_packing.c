#include "libcommon/packing.h"
#include "libcommon/rng.h"
#include "tests/lib/tap.h"

#include <stdbool.h>

static long total(const long *l, long n)
{
	long s = 0;

	for (long i = 0; i < n; i++)
		s += l[i];
	return s;
}

/* Every item once, no bin too full, items ascending. */
static bool sound(const struct bins *b, const long *l, long n, long cap)
{
	char seen[512] = { 0 };

	if (b->first[0] || b->first[b->n] != n)
		return false;
	for (long k = 0; k < b->n; k++) {
		long used = 0;

		if (b->first[k] == b->first[k + 1])
			return false;
		for (long i = b->first[k]; i < b->first[k + 1]; i++) {
			if (seen[b->item[i]]++ || (i > b->first[k] && b->item[i] <= b->item[i - 1]))
				return false;
			used += l[b->item[i]];
		}
		if (used > cap)
			return false;
	}
	return true;
}

static long bins_of(const long *l, long n, long cap, enum packing how)
{
	struct bins b;
	struct err e = ERR_INIT;
	long k;

	if (pack(&b, l, n, cap, how, &e))
		return -1;
	k = sound(&b, l, n, cap) ? b.n : -2;
	bins_release(&b);
	return k;
}

int main(void)
{
	struct err e = ERR_INIT;
	struct bins b;
	long mffd = 0, ffd = 0, cat = 0, bound = 0, bad = 0;

	ok(bins_of((long[]){ 4, 4, 2 }, 3, 6, PACK_CONCATENATIVE) == 2, "concatenative");
	ok(bins_of((long[]){ 2, 5, 4, 1 }, 4, 6, PACK_FFD) == 2, "first fit decreasing");
	ok(bins_of((long[]){ 2, 5, 4, 1 }, 4, 6, PACK_MFFD) == 2, "modified first fit decreasing");
	ok(bins_of(NULL, 0, 6, PACK_MFFD) == 0, "nothing to pack");
	ok(pack(&b, (long[]){ 7 }, 1, 6, PACK_MFFD, &e) && e.code == EX_DATAERR, "too long: %s", e.msg);
	for (uint32_t trial = 0; trial < 300; trial++) {
		long l[200], n = 1 + (long)(rng_uniform(rng_key(1, RNG_TEST, trial), 0, 0, 0) * 199);

		for (long i = 0; i < n; i++)
			l[i] = 1 + (long)(rng_uniform(rng_key(1, RNG_TEST, trial), 1, (uint32_t)i, 0) * (float)(10 + trial % 90));
		long m = bins_of(l, n, 100, PACK_MFFD), f = bins_of(l, n, 100, PACK_FFD), c = bins_of(l, n, 100, PACK_CONCATENATIVE);
		bad += m < 0 || f < 0 || c < 0;
		mffd += m;
		ffd += f;
		cat += c;
		bound += (total(l, n) + 99) / 100;
	}
	ok(!bad, "300 random sets: every item once, nothing too full");
	ok(mffd <= cat && mffd * 100 <= bound * 108, "MFFD uses %ld bins, FFD %ld, in order %ld, at least %ld needed", mffd, ffd, cat, bound);
	ok(packing_find("modified_first_fit_decreasing") == PACK_MFFD && packing_find("x") == -1, "names");
	return done();
}
