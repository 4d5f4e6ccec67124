/*
 * The head's ops of the CUDA backend: against their formulas in double and against the CPU's, the same bits for a row alone and in
 * company, and for a vocabulary that is cut over ranks anywhere.
 */
#include "tests/kernels/cuda.h"

#include <math.h>
#include <string.h>

struct result { float *lp, *lse, *entropy; };

static struct result result_new(long rows)
{
	struct result s = { xcalloc((size_t)rows + 1, 4), xcalloc((size_t)rows + 1, 4), xcalloc((size_t)rows + 1, 4) };

	return s;
}

static void result_free(struct result *s)
{
	free(s->lp);
	free(s->lse);
	free(s->entropy);
}

static bool result_same(const struct result *a, const struct result *b, long rows)
{
	return !memcmp(a->lp, b->lp, (size_t)rows * 4) && !memcmp(a->lse, b->lse, (size_t)rows * 4) &&
	       !memcmp(a->entropy, b->entropy, (size_t)rows * 4);
}

static double off(const float *got, const double *want, long n)
{
	double d = 0, top = 1e-30;

	for (long i = 0; i < n; i++) {
		double one = fabs((double)got[i] - want[i]);

		if (!(one <= d))
			d = isnan(one) ? INFINITY : one;
		top = fmax(top, fabs(want[i]));
	}
	return d / top;
}

/* The formulas of kernels/ops.h; want: lp, lse and entropy, `rows` apart. */
static void reference(double *want, const float *z, const int *target, long rows, long V, double T)
{
	for (long r = 0; r < rows; r++, z += V) {
		double m = -INFINITY, s = 0, h = 0;

		for (long v = 0; v < V; v++)
			m = fmax(m, (double)z[v] / T);
		for (long v = 0; v < V; v++)
			s += exp((double)z[v] / T - m);
		for (long v = 0; v < V; v++) {
			double l = (double)z[v] / T - m - log(s);

			h -= l == -INFINITY ? 0 : exp(l) * l;
		}
		want[r] = (double)z[target[r]] / T - m - log(s);
		want[rows + r] = m + log(s);
		want[2 * rows + r] = h;
	}
}

static int *targets(long rows, long V)
{
	int *t = xcalloc((size_t)rows + 1, sizeof(*t));

	for (long r = 0; r < rows; r++)
		t[r] = (int)(r == 0 ? V - 1 : r * 7919 % V);
	return t;
}

static void forward(long rows, long V, float T, long skew)
{
	struct array z = array_new(rows * V + skew, DTYPE_F32, 1, 4);
	struct result a = result_new(rows), b = result_new(rows), c = result_new(rows);
	double *want = xcalloc((size_t)rows * 3 + 1, sizeof(*want));
	const float *host = (const float *)z.host + skew, *dev = (const float *)z.dev + skew;
	int *target = targets(rows, V);
	bool same = true;

	reference(want, host, target, rows, V, (double)T);
	cuda->logprob(a.lp, a.lse, a.entropy, dev, target, rows, V, T);
	cpu->logprob(b.lp, b.lse, b.entropy, host, target, rows, V, T);
	ok(off(a.lp, want, rows) <= 1e-5 && off(a.lse, want + rows, rows) <= 1e-5 && off(a.entropy, want + 2 * rows, rows) <= 1e-5,
	   "logprob: %ld rows of %ld at %g, skew %ld", rows, V, (double)T, skew);
	for (long r = 0; r < rows; r++) {
		want[r] = (double)b.lp[r];
		want[rows + r] = (double)b.lse[r];
		want[2 * rows + r] = (double)b.entropy[r];
	}
	ok(off(a.lp, want, rows) <= 1e-5 && off(a.lse, want + rows, rows) <= 1e-5 && off(a.entropy, want + 2 * rows, rows) <= 1e-5,
	   "and as the CPU has it");
	for (long r = 0; r < rows; r++)
		cuda->logprob(c.lp + r, r % 2 ? c.lse + r : NULL, c.entropy + r, dev + r * V, target + r, 1, V, T);
	for (long r = 0; r < rows; r++)
		same = same && !memcmp(a.lp + r, c.lp + r, 4) && !memcmp(a.entropy + r, c.entropy + r, 4) &&
		       (r % 2 == 0 || !memcmp(a.lse + r, c.lse + r, 4));
	ok(same, "each row has the same bits alone");
	result_free(&a);
	result_free(&b);
	result_free(&c);
	array_free(&z);
	free(target);
	free(want);
}

/* Rows without a log-probability, and those that have one in spite of what stands in them. */
static void odd_rows(void)
{
	enum { ROWS = 7, V = 2500 };
	struct array z = array_new(ROWS * V, DTYPE_F32, 2, 1);
	struct result a = result_new(ROWS), b = result_new(ROWS);
	int target[ROWS] = { 3, 3, 3, 3, 3, 3, 3 };
	double want[3 * ROWS];
	bool nan = true;

	for (long v = 0; v < V; v++) {
		z.x[2 * V + v] = (double)-INFINITY;
		z.x[3 * V + v] = v == 3 ? 1 : (double)-INFINITY;        /* whole blocks of -inf */
		z.x[4 * V + v] = v < 1024 && v != 3 ? (double)-INFINITY : 1e4 * z.x[4 * V + v];
		z.x[5 * V + v] = v < 1024 ? 0 : (double)NAN;
	}
	z.x[2200] = (double)NAN;
	z.x[V + 5] = (double)INFINITY;
	array_put(&z);
	cuda->logprob(a.lp, a.lse, a.entropy, z.dev, target, ROWS, V, 1);
	cpu->logprob(b.lp, b.lse, b.entropy, z.host, target, ROWS, V, 1);
	for (int r = 0; r < ROWS; r++)
		if (r != 3 && r != 4 && r != 6)
			nan = nan && isnan(a.lp[r]) && isnan(a.lse[r]) && isnan(b.lp[r]);
	ok(nan, "a row with NaN, +inf or all -inf has lp NaN");
	ok(a.lp[3] == 0 && a.lse[3] == 1 && a.entropy[3] == 0, "one id that is possible: lp 0, entropy 0");
	reference(want, (float *)z.host + 4L * V, target, 1, V, 1);
	ok(off(a.lp + 4, want, 1) <= 1e-5 && off(a.lse + 4, want + 1, 1) <= 1e-5 && fabs((double)a.entropy[4] - want[2]) <= 1e-5,
	   "logits of 1e4 and -inf");
	ok(isfinite(a.lp[6]), "the row after them is as ever");
	cuda->logprob(NULL, NULL, NULL, z.dev, target, 0, V, 1);
	ok(1, "no rows");
	result_free(&a);
	result_free(&b);
	array_free(&z);
}

/* The vocabulary of z over ranks: what logprob_parts() of each and logprob_join() give. */
static void cut(struct result *to, const struct array *z, const int *target, long rows, long V, const struct tree_cut *c, float T)
{
	long all = rows * (3 * tree_parts_all(c) + c->ranks), at = 0;
	struct array parts = array_new(all, DTYPE_F32, 0, 0), mine = array_new(rows * V, DTYPE_F32, 0, 0);

	for (long k = 0; k < c->ranks; k++) {
		long begin = c->first[k] * VOCAB_BLOCK, end = c->first[k + 1] * VOCAB_BLOCK, n;

		end = end < V ? end : V;
		n = end > begin ? end - begin : 0;
		for (long r = 0; r < rows; r++)
			memcpy((float *)mine.host + r * n, (float *)z->host + r * V + begin, (size_t)n * 4);
		cuda->put(mine.dev, mine.host, (size_t)(rows * n) * 4);
		cuda->logprob_parts((float *)parts.dev + at, mine.dev, target, rows, n, c, k, T);
		at += rows * (3 * tree_parts_of(c, k) + 1);
	}
	cuda->logprob_join(to->lp, to->lse, to->entropy, parts.dev, target, rows, c);
	array_free(&parts);
	array_free(&mine);
}

static void all_cuts(long V, long step)
{
	enum { ROWS = 5 };
	struct array z = array_new(ROWS * V, DTYPE_F32, 3, 3);
	struct result whole = result_new(ROWS), got = result_new(ROWS);
	long blocks = (V + VOCAB_BLOCK - 1) / VOCAB_BLOCK, n = 0, same = 0;
	int *target = targets(ROWS, V);

	cuda->logprob(whole.lp, whole.lse, whole.entropy, z.dev, target, ROWS, V, 0.7f);
	for (long a = 0; a <= blocks; a += step)
		for (long b = a; b <= blocks; b += step) {
			long first[4] = { 0, a, b, blocks };
			struct tree_cut c = { 3, first };

			cut(&got, &z, target, ROWS, V, &c, 0.7f);
			same += result_same(&whole, &got, ROWS);
			n++;
		}
	ok(same == n, "%ld: %ld cuts over three ranks have the bits of the whole", V, n);
	result_free(&whole);
	result_free(&got);
	array_free(&z);
	free(target);
}

/* first: the columns are those from there on of more, so that targets may lie elsewhere. */
static void backward(long rows, long V, long first, enum dtype t, long skew)
{
	struct array z = array_new(rows * V + skew, DTYPE_F32, 4, 2), dz = array_new(rows * V + skew, t, 5, 0);
	double *want = xcalloc((size_t)(rows * V + skew) + 1, sizeof(*want));
	float *lse = xcalloc((size_t)rows + 1, 4), *dlp = xcalloc((size_t)rows + 1, 4), T = 1.3f;
	int *target = targets(rows, V + first);
	bool same = true;

	for (long r = 0; r < rows; r++) {
		target[r] -= (int)first;
		lse[r] = r == 2 ? NAN : 5 + (float)r / 8;
		dlp[r] = r == 2 ? 0 : (float)(r % 5) / 2 - 0.75f;
		for (long v = 0; v < V; v++)
			want[r * V + v + skew] = r == 2 ? 0 : (double)dlp[r] / (double)T *
				((v == target[r]) - exp(z.x[r * V + v + skew] / (double)T - (double)lse[r]));
	}
	cuda->logprob_bwd((char *)dz.dev + (size_t)skew * dtype_size(t), dlp, lse, (float *)z.dev + skew, target, rows, V, T, t);
	near(&dz, want, "logprob_bwd: %ld rows of %ld, %s, from %ld, skew %ld", rows, V, t == DTYPE_BF16 ? "bf16" : "f32", first, skew);
	for (long r = 0; r < rows; r++) {
		struct array one = array_new(V, t, 0, 0);

		cuda->logprob_bwd(one.dev, dlp + r, lse + r, (float *)z.dev + skew + r * V, target + r, 1, V, T, t);
		array_get(&one);
		same = same && !memcmp(one.host, (char *)dz.host + (size_t)(skew + r * V) * dtype_size(t), (size_t)V * dtype_size(t));
		array_free(&one);
	}
	ok(same, "each row has the same bits alone");
	array_free(&z);
	array_free(&dz);
	free(want);
	free(lse);
	free(dlp);
	free(target);
}

int main(void)
{
	static const long sizes[] = { 1, 2, 31, 127, 1000, 1023, 1024, 1025, 3001, 4096, 5000 };
	bool full = !getenv("CAIRN_TEST_SHORT");

	cuda_start();
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		forward(1 + (long)i % 4, sizes[i], 1, 0);
		forward(3, sizes[i], i % 2 ? 0.6f : 2.5f, (long)i % 3);
	}
	forward(9, 1500, 0.9f, 0);
	forward(1, 50257, 1, 1);
	if (full)
		forward(2, 151936, 1, 0);
	if (full)
		forward(1, 1026 * 1024 + 5, 1, 0);
	odd_rows();
	all_cuts(5000, 1);
	all_cuts(9 * 1024, full ? 1 : 3);
	all_cuts(49152, full ? 6 : 24);
	for (int t = 0; t < 2; t++) {
		enum dtype type = t ? DTYPE_BF16 : DTYPE_F32;

		backward(4, 1, 0, type, 0);
		backward(3, 8, 0, type, 0);
		backward(5, 2049, 0, type, 0);
		backward(3, 2048, 1024, type, 0);
		backward(3, 1001, 500, type, 1);
		backward(1, 49152, 0, type, 0);
	}
	cuda->logprob_bwd(NULL, NULL, NULL, NULL, NULL, 0, 10, 1, DTYPE_F32);
	return done();
}
