/* The arithmetic fingerprint: the same every time, another one where the bits of a sum are others. */
#include "kernels/ops.h"
#include "libcommon/hash.h"
#include "libcommon/rng.h"
#include "tests/lib/tap.h"

enum { K = 4096, ROWS = 16, N = 16 };

/* Of the bits of long bfloat16 products. */
static uint64_t sums(const struct ops *k)
{
	static uint16_t x[ROWS * K], w[N * K];
	static float y[ROWS * N];
	struct rng_key key = rng_key(3, RNG_CHECK, 0);
	struct matrix m;

	for (int i = 0; i < ROWS * K; i++) {
		x[i] = f32_to_bf16(rng_uniform(key, (uint64_t)i, 0, 0) - 0.5f);
		w[i] = f32_to_bf16(rng_uniform(key, (uint64_t)i, 1, 0) - 0.5f);
	}
	k->matrix_init(&m, DTYPE_BF16, N, K, 1, false);
	k->matrix_load(&m, w);
	k->linear_fwd(y, DTYPE_F32, x, &m, NULL, ROWS);
	k->matrix_release(&m);
	return hash64(y, sizeof(y));
}

int main(void)
{
	static const char *const isa[] = { "avx512bf16", "avx512", "avx2", "portable" };
	uint64_t print[4] = { 0 }, sum[4] = { 0 };
	struct err e = ERR_INIT;

	for (int i = 0; i < 4; i++) {
		const struct ops *k = ops_find("cpu", isa[i], &e);

		if (!k) {
			skip("not on this machine", "%s", isa[i]);
			continue;
		}
		print[i] = ops_fingerprint(k);
		sum[i] = sums(k);
		ok(print[i] == ops_fingerprint(k), "%s: the same twice", isa[i]);
	}
	for (int i = 0; i < 4; i++)
		for (int j = 0; j < i; j++)
			if (print[i] && print[j] && sum[i] != sum[j])
				ok(print[i] != print[j], "%s and %s sum to other bits: another fingerprint", isa[j], isa[i]);
	return done();
}
