/*
 * Ops whose work lies over ranks, on one rank: the parts of all, put together, have the bits of the
 * whole, which other tests hold against the formulas.
 */
#include "kernels/attention.h"
#include "kernels/linear.h"
#include "libcommon/pool.h"
#include "libcommon/xalloc.h"
#include "tests/lib/tap.h"

static const struct ops *k;
static uint32_t seed = 1;

static long random_below(long n)
{
	seed = seed * 1664525 + 1013904223;
	return (long)((uint64_t)seed * (uint64_t)n >> 32);
}

static void *numbers(long n, enum dtype t, float scale)
{
	float *f = xmalloc((size_t)n * 4);
	void *p = xmalloc((size_t)n * dtype_size(t) + 1);

	for (long i = 0; i < n; i++) {
		seed = seed * 1664525 + 1013904223;
		f[i] = scale * (float)((double)(seed >> 8) / (1 << 23) - 1);
	}
	dtype_convert(p, t, f, DTYPE_F32, (size_t)n);
	free(f);
	return p;
}

/* Ascending cuts of `all` leaves, some ranks perhaps without any. */
static void random_cut(long *first, long ranks, long all)
{
	first[0] = 0;
	first[ranks] = all;
	for (long r = 1; r < ranks; r++)
		first[r] = random_below(all + 1);
	for (long r = 1; r < ranks; r++)
		for (long i = ranks - 1; i > 0; i--)
			if (first[i] < first[i - 1]) {
				long was = first[i];

				first[i] = first[i - 1];
				first[i - 1] = was;
			}
}

static void check_tree(void)
{
	long leaves[64], bad = 0, worst = 0;

	ok(tree_parts(leaves, 2, 3, 8) == 2 && leaves[0] == 2 && leaves[1] == 1,
	   "leaves 2-4 of 8: [2 3] [4]");
	ok(tree_parts(leaves, 5, 3, 8) == 2 && leaves[0] == 1 && leaves[1] == 2,
	   "leaves 5-7 of 8: [5] [6 7]");
	ok(tree_parts(leaves, 1, 6, 7) == 3 && leaves[2] == 3,
	   "leaves 1-6 of 7: [1] [2 3] [4 5 6]");
	ok(tree_parts(leaves, 4, 3, 7) == 1 && leaves[0] == 3, "leaves 4-6 of 7: one node");
	ok(tree_parts(leaves, 3, 0, 7) == 0, "no leaves: no parts");
	for (long all = 1; all <= 40; all++)
		for (long first = 0; first < all; first++)
			for (long n = 1; first + n <= all; n++) {
				long parts = tree_parts(leaves, first, n, all), sum = 0;

				for (long i = 0; i < parts; i++)
					sum += leaves[i];
				bad += sum != n;
				worst = parts > worst ? parts : worst;
			}
	ok(!bad && worst <= 10, "parts of every run hold its leaves (at most %ld parts)", worst);
	for (long tp = 1; tp <= 8; tp *= 2)
		bad += tree_parts(NULL, 8 / tp, 8 / tp, 8) > 1;
	ok(!bad, "cuts at powers of two: one part a rank");
}

/* Columns [at, at + n) of w[rows, all]. */
static char *columns(const char *w, long rows, long all, long at, long n, enum dtype t)
{
	size_t e = dtype_size(t);
	char *c = xmalloc((size_t)(rows * n) * e + 1);

	for (long r = 0; r < rows; r++)
		memcpy(c + (size_t)(r * n) * e, w + (size_t)(r * all + at) * e, (size_t)n * e);
	return c;
}

/*
 * y of the ranks' parts, and (sum NULL: not wanted) the gradient of x of each rank's columns beside
 * it.
 */
static void product_in_parts(void *y, const char *x, const char *w, const void *bias,
			     const struct tree_cut *c, long m, long n, long per, enum dtype t)
{
	long K = per * tree_leaves(c), at = 0;
	float *parts = xmalloc((size_t)(tree_parts_all(c) * m * n) * 4);

	for (long r = 0; r < c->ranks; r++) {
		long chunks = c->first[r + 1] - c->first[r], first = c->first[r] * per;
		char *xr = columns(x, m, K, first, chunks * per, t),
		     *wr = columns(w, n, K, first, chunks * per, t);
		struct matrix a;

		if (chunks) {
			k->matrix_init(&a, t, n, chunks * per, chunks, false);
			k->matrix_load(&a, wr);
			k->linear_parts(parts + at * m * n, xr, &a, c->first[r], tree_leaves(c), m);
			k->matrix_release(&a);
		}
		at += tree_parts_of(c, r);
		free(xr);
		free(wr);
	}
	k->linear_join(y, t, parts, c, bias, m, n);
	free(parts);
}

static void check_linear(enum dtype t)
{
	static const long chunks[] = { 8, 7, 3, 2, 1 }, pers[] = { 5, 64, 300 };
	long bad = 0, tried = 0, shown = 0;

	for (int i = 0; i < 5; i++)
		for (int j = 0; j < 3; j++)
			for (long ranks = 1; ranks <= 8; ranks++) {
				long C = chunks[i], per = pers[j], K = C * per,
				     m = 1 + random_below(40), n = 1 + random_below(130), first[9];
				char *x = numbers(m * K, t, 1), *w = numbers(n * K, t, 1),
				     *bias = ranks % 2 ? numbers(n, t, 1) : NULL;
				size_t bytes = (size_t)(m * n) * dtype_size(t);
				char *want = xmalloc(bytes), *got = xmalloc(bytes);
				struct tree_cut c = { ranks, first };
				struct matrix a;

				random_cut(first, ranks, C);
				k->matrix_init(&a, t, n, K, C, false);
				k->matrix_load(&a, w);
				k->linear_fwd(want, t, x, &a, bias, m);
				k->matrix_release(&a);
				product_in_parts(got, x, w, bias, &c, m, n, per, t);
				bad += memcmp(want, got, bytes) != 0;
				tried++;
				/* the control: another tree, the chunks as if they were one */
				if (C > 1) {
					k->matrix_init(&a, t, n, K, 1, false);
					k->matrix_load(&a, w);
					k->linear_fwd(want, t, x, &a, bias, m);
					k->matrix_release(&a);
					shown += memcmp(want, got, bytes) != 0;
				}
				free(x);
				free(w);
				free(bias);
				free(want);
				free(got);
			}
	ok(!bad, "%s %s: a product in parts has the bits of the whole (%ld cuts)", k->isa,
	   dtype_name(t), tried);
	ok(shown >= (t == DTYPE_F32 ? 20 : 1),
	   "%s %s: another order of summation shows (%ld times)", k->isa, dtype_name(t), shown);
}

static void check_dx(void)
{
	enum { M = 9, N = 70, K = 33 };
	uint16_t *dy = numbers(M * N, DTYPE_BF16, 1), *w = numbers(N * K, DTYPE_BF16, 1),
		 low[M * K];
	float wide[M * K], bias[N] = { 0 }, again[N] = { 0 }, *dw = xcalloc(N * K, 4);
	struct matrix a;
	long bad = 0;

	k->matrix_init(&a, DTYPE_BF16, N, K, 1, true);
	k->matrix_load(&a, w);
	k->linear_dx(low, DTYPE_BF16, dy, &a, M, false);
	k->linear_dx(wide, DTYPE_F32, dy, &a, M, false);
	for (int i = 0; i < M * K; i++)
		bad += f32_to_bf16(wide[i]) != low[i];
	k->linear_dx(wide, DTYPE_F32, dy, &a, M, true);
	for (int i = 0; i < M * K; i++)
		bad += f32_to_bf16(wide[i] / 2) != low[i];
	ok(!bad, "%s: gradients of bf16 inputs unrounded, and added to", k->isa);
	k->linear_dw(dw, bias, dy, dy, M, N, K, DTYPE_BF16);
	k->linear_dw(NULL, again, dy, NULL, M, N, K, DTYPE_BF16);
	ok(!memcmp(bias, again, sizeof(bias)), "%s: the gradient of a bias alone", k->isa);
	k->matrix_release(&a);
	free(dy);
	free(w);
	free(dw);
}

static void check_head_cut(long V, long ranks, long rows, float T)
{
	long blocks = (V + VOCAB_BLOCK - 1) / VOCAB_BLOCK, first[9], at = 0, bad = 0;
	struct tree_cut c = { ranks, first };
	float *z = numbers(rows * V, DTYPE_F32, 9), *all, *got = xmalloc((size_t)rows * 24),
	      *want = got + 3 * rows;
	int *target = xmalloc((size_t)rows * sizeof(int));

	for (long r = 0; r < rows; r++)
		target[r] = (int)random_below(V);
	z[V / 2] = NAN;
	z[V + V - 1] = INFINITY;
	for (long i = 0; i < V; i++)
		z[2 * V + i] = i % 3 ? z[2 * V + i] : -INFINITY;
	random_cut(first, ranks, blocks);
	all = xmalloc((size_t)(rows * (3 * tree_parts_all(&c) + ranks)) * 4);
	k->logprob(want, want + rows, want + 2 * rows, z, target, rows, V, T);
	for (long r = 0; r < ranks; r++) {
		long from = first[r] * VOCAB_BLOCK,
		     end = first[r + 1] * VOCAB_BLOCK < V ? first[r + 1] * VOCAB_BLOCK : V;
		long n = end > from ? end - from : 0;
		char *local = columns((char *)z, rows, V, from, n, DTYPE_F32);

		k->logprob_parts(all + at, (float *)(void *)local, target, rows, n, &c, r, T);
		at += rows * (3 * tree_parts_of(&c, r) + 1);
		free(local);
	}
	k->logprob_join(got, got + rows, got + 2 * rows, all, target, rows, &c);
	for (long i = 0; i < 3 * rows; i++)
		bad += memcmp(got + i, want + i, 4) && !(isnan(got[i]) && isnan(want[i]));
	ok(!bad, "log-probabilities over %ld ids on %ld ranks: the bits of the whole", V, ranks);
	free(z);
	free(all);
	free(got);
	free(target);
}

/* The local columns of dz are columns of the whole dz. */
static void check_head_backward(void)
{
	enum { ROWS = 5, V = 3500, FROM = 1024, N = 2048 };
	float *z = numbers(ROWS * V, DTYPE_F32, 5), lp[ROWS], lse[ROWS],
	      dlp[ROWS] = { 1, -0.5f, 0, 2, 0.25f };
	int target[ROWS] = { 3, 1500, 7, 3499, 1024 }, shifted[ROWS];
	float *whole = xmalloc(ROWS * V * 4), *part = xmalloc(ROWS * N * 4);
	char *local = columns((char *)z, ROWS, V, FROM, N, DTYPE_F32), *want;

	k->logprob(lp, lse, NULL, z, target, ROWS, V, 0.7f);
	k->logprob_bwd(whole, dlp, lse, z, target, ROWS, V, 0.7f, DTYPE_F32);
	for (int r = 0; r < ROWS; r++)
		shifted[r] = target[r] - FROM;
	k->logprob_bwd(part, dlp, lse, (float *)(void *)local, shifted, ROWS, N, 0.7f, DTYPE_F32);
	want = columns((char *)whole, ROWS, V, FROM, N, DTYPE_F32);
	ok(!memcmp(part, want, ROWS * N * 4), "gradients of some columns of the logits");
	free(z);
	free(whole);
	free(part);
	free(local);
	free(want);
}

enum { HEADS = 6, KV = 2, D = 16 };

/*
 * Every sequence cut at random places; each piece alone among `ranks`, as context parallelism has
 * it.
 */
static void check_attention(enum dtype t)
{
	static const long cu[] = { 0, 1, 4, 71, 71, 200, 900 };
	enum { SEQS = 6, ROWS = 900, PIECES = 4 };
	const struct attention_shape s = { HEADS, KV, D, 0.25f };
	size_t e = dtype_size(t), q = HEADS * D * e, kv = KV * D;
	char *x = numbers(ROWS * HEADS * D, t, 1), *key = numbers(ROWS * KV * D, t, 1),
	     *v = numbers(ROWS * KV * D, t, 1);
	char *dout = numbers(ROWS * HEADS * D, t, 1), *want = xmalloc(ROWS * q),
	     *got = xmalloc(ROWS * q);
	char *dq = xmalloc(ROWS * q), *gq = xmalloc(ROWS * q);
	float *lse = xmalloc(ROWS * HEADS * 4), *glse = xmalloc(ROWS * HEADS * 4);
	float *dk = xmalloc(ROWS * kv * 16), *dv = dk + ROWS * kv, *sum = dv + ROWS * kv,
	      *mine = xmalloc(ROWS * kv * 8);
	struct attention_piece whole[SEQS], part[SEQS * 3];
	double off = 0, all = 0, offq = 0;
	bool same = true;

	for (long i = 0; i < SEQS; i++)
		whole[i] = (struct attention_piece){ cu[i], cu[i + 1] - cu[i], cu[i],
						     cu[i + 1] - cu[i] };
	k->attention_fwd(want, lse, x, key, v, whole, SEQS, &s, t);
	k->attention_bwd(dq, dk, dv, DTYPE_F32, dout, want, lse, x, key, v, whole, SEQS, &s, t);
	memset(sum, 0, ROWS * kv * 8);
	/*
	 * two ranks of two chunks each, and a piece without rows so that all keys are covered; the
	 * rank's rows in their places
	 */
	for (long r = 0; r < 2; r++) {
		long n = 0;

		for (long i = 0; i < SEQS; i++) {
			long len = cu[i + 1] - cu[i],
			     b[PIECES + 1] = { 0, len / 5, len / 2, len / 2 + len / 3, len };

			for (long c = r; c < PIECES; c = c == r && r != 3 - r ? 3 - r : PIECES)
				part[n++] = (struct attention_piece){ cu[i] + b[c], b[c + 1] - b[c],
								      cu[i], b[c + 1] };
			part[n++] = (struct attention_piece){ cu[i], 0, cu[i], len };
		}
		k->attention_fwd(got, glse, x, key, v, part, n, &s, t);
		k->attention_bwd(gq, mine, mine + ROWS * kv, DTYPE_F32, dout, want, lse, x, key, v,
				 part, n, &s, t);
		for (long i = 0; i < ROWS * (long)kv * 2; i++)
			sum[i] += mine[i];
	}
	same = !memcmp(got, want, ROWS * q) && !memcmp(glse, lse, ROWS * HEADS * 4);
	ok(same, "%s %s: rows in pieces have the bits of the whole, lse too", k->isa,
	   dtype_name(t));
	for (long i = 0; i < ROWS * (long)kv * 2; i++) {
		off += ((double)sum[i] - (double)dk[i]) * ((double)sum[i] - (double)dk[i]);
		all += (double)dk[i] * (double)dk[i];
	}
	ok(sqrt(off / all) < (t == DTYPE_F32 ? 1e-6 : 2e-3),
	   "%s %s: dk and dv of the pieces add up (%.2g)", k->isa, dtype_name(t), sqrt(off / all));
	offq = memcmp(gq, dq, ROWS * q);
	ok(offq == 0, "%s %s: dq of the pieces", k->isa, dtype_name(t));
	free(x);
	free(key);
	free(v);
	free(dout);
	free(want);
	free(got);
	free(dq);
	free(gq);
	free(lse);
	free(glse);
	free(dk);
	free(mine);
}

int main(void)
{
	static const char *const isa[] = { "portable", "avx2", "avx512", "avx512bf16" };
	struct err e = ERR_INIT;

	pool_start(2);
	check_tree();
	for (int i = 0; i < 4; i++) {
		k = ops_find("cpu", isa[i], &e);
		if (!k) {
			skip("not in this CPU", "%s", isa[i]);
			continue;
		}
		for (int t = 0; t < 2; t++) {
			check_linear(t ? DTYPE_BF16 : DTYPE_F32);
			check_attention(t ? DTYPE_BF16 : DTYPE_F32);
		}
		check_dx();
	}
	k = ops_find("cpu", NULL, &e);
	for (long ranks = 1; ranks <= 8; ranks++)
		check_head_cut(ranks % 2 ? 5000 : 10241, ranks, 7, ranks == 3 ? 1 : 0.7f);
	check_head_cut(700, 3, 5, 1);
	check_head_backward();
	return done();
}
