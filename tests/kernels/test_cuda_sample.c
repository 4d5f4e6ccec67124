/*
 * sample() of the CUDA backend: the ids of the CPU's, the bits of logprob(), and on small vocabularies the places where the id changes
 * with u, against sums in double.
 */
#include "tests/kernels/cuda.h"

#include <math.h>
#include <string.h>

static const struct sample_row plain = { .temperature = 1, .top_p = 1 };

/* Ids and lp of rows from both backends; how many ids differ, and whether lp is logprob()'s. */
static long both(const struct array *z, const struct sample_row *how, const uint8_t *allowed, long rows, long V, bool *same)
{
	int *a = xcalloc((size_t)rows, sizeof(*a)), *b = xcalloc((size_t)rows, sizeof(*b));
	float *lp = xcalloc((size_t)rows, 4), *other = xcalloc((size_t)rows, 4), lse, entropy;
	long differ = 0;

	*same = true;
	cuda->sample(a, lp, z->dev, how, allowed, rows, V);
	cpu->sample(b, other, z->host, how, allowed, rows, V);
	for (long r = 0; r < rows; r++) {
		differ += a[r] != b[r];
		if (a[r] != b[r])
			printf("# row %ld: %d, the CPU %d; u %.9g\n", r, a[r], b[r], (double)how[r].u);
		if (a[r] < 0) {
			*same = *same && isnan(lp[r]);
			continue;
		}
		cuda->logprob(other, &lse, &entropy, (float *)z->dev + r * V, a + r, 1, V, how[r].temperature > 0 ? how[r].temperature : 1);
		*same = *same && !memcmp(other, lp + r, 4);
	}
	free(a);
	free(b);
	free(lp);
	free(other);
	return differ;
}

static void against_cpu(long V, long rows, double scale, bool masked)
{
	struct array z = array_new(rows * V, DTYPE_F32, (uint32_t)V, scale);
	struct sample_row *how = xcalloc((size_t)rows, sizeof(*how));
	uint8_t *allowed = xcalloc((size_t)V, 1);
	bool same;

	for (long v = 0; v < V; v++)
		allowed[v] = v % 3 != 1;
	for (long r = 0; r < rows; r++) {
		how[r] = plain;
		how[r].u = (float)((r * 2654435761u + 12345u) % 16777216u) / 16777216.f;
		how[r].temperature = r % 7 == 6 ? 0 : r % 2 ? 1 : 0.7f;
		how[r].top_k = r % 3 == 1 ? 1 + r * 5 : 0;
		how[r].top_p = r % 5 >= 3 ? 0.3f + 0.05f * (float)(r % 13) : 1;
		how[r].min_p = r % 4 == 3 ? 0.02f : 0;
	}
	ok(both(&z, how, masked ? allowed : NULL, rows, V, &same) == 0, "%ld rows of %ld%s: the ids of the CPU", rows, V, masked ? ", masked" : "");
	ok(same, "lp has the bits of logprob()");
	array_free(&z);
	free(how);
	free(allowed);
}

/* The ids in the order of a draw with cuts, or of ids; what is left of them, in double. */
static long order_of(int *id, double *p, const double *z, long V, const struct sample_row *h)
{
	bool cut = h->top_k > 0 || h->top_p < 1 || h->min_p > 0;
	double all = 0, run = 0;
	long n = V, k;

	for (long v = 0; v < V; v++) {
		long at = v;

		for (; cut && at > 0 && z[v] > z[id[at - 1]]; at--)
			id[at] = id[at - 1];
		id[at] = (int)v;
	}
	for (long v = 0; v < V; v++)
		p[v] = exp((z[id[v]] - (cut ? z[id[0]] : 0)) / (double)h->temperature);
	if (h->top_k > 0 && h->top_k < n)
		n = h->top_k;
	for (long v = 0; v < n; v++)
		all += p[v];
	for (k = 0; h->top_p < 1 && k < n && (k == 0 || run < (double)h->top_p * all); k++)
		run += p[k];
	n = h->top_p < 1 ? k : n;
	while (n > 1 && h->min_p > 0 && p[n - 1] < (double)h->min_p * p[0])
		n--;
	return n;
}

/* All u of a grid: wherever it is not within rounding of a sum, the id is the one that double says. */
static void grid(const char *what, const double *logit, long V, const struct sample_row *h)
{
	enum { U = 128 };
	struct array z = array_new(U * V, DTYPE_F32, 0, 0);
	struct sample_row *how = xcalloc(U, sizeof(*how));
	int *id = xcalloc((size_t)V, sizeof(*id)), got[U];
	double *p = xcalloc((size_t)V, sizeof(*p)), all = 0, run;
	float lp[U];
	long n, k, wrong = 0, near_sum = 0;

	for (long i = 0; i < U * V; i++)
		z.x[i] = logit[i % V];
	array_put(&z);
	for (int i = 0; i < U; i++) {
		how[i] = *h;
		how[i].u = (float)i / U;
	}
	n = order_of(id, p, z.x, V, h);
	for (long v = 0; v < n; v++)
		all += p[v];
	cuda->sample(got, lp, z.dev, how, NULL, U, V);
	for (int i = 0; i < U; i++) {
		bool close = false;

		for (k = 0, run = 0; k < n; k++) {
			run += p[k] / all;
			close = close || fabs(run - (double)i / U) < 1e-6;
			if (run > (double)i / U)
				break;
		}
		near_sum += close;
		wrong += !close && (k == n || got[i] != id[k]);
	}
	ok(!wrong && near_sum < 8 + n, "%s: the id of every u is that of sums in double", what);
	array_free(&z);
	free(how);
	free(id);
	free(p);
}

static void grids(void)
{
	static const double some[] = { 0.3, -1.2, 2.1, 0.3, -40, 1.7, 2.1, 0.1, -0.5, 0.3, 2.1 }, same[] = { 1, 1, 1, 1, 1, 1, 1 };
	struct sample_row h = plain;

	grid("all", some, 11, &h);
	grid("one id", some, 1, &h);
	grid("equals", same, 7, &h);
	h.temperature = 0.5f;
	grid("temperature", some, 11, &h);
	h.top_k = 2;
	grid("top-k, cut through equals", some, 11, &h);
	h.top_k = 5;
	grid("top-k, of the lower of equals", some, 11, &h);
	h.top_k = 100;
	grid("top-k of more than there are", some, 11, &h);
	h = plain;
	h.top_p = 0.7f;
	grid("top-p", some, 11, &h);
	h.top_p = 0;
	grid("top-p of nothing: the first", some, 11, &h);
	h.top_p = 0.5f;
	grid("top-p of equals", same, 7, &h);
	grid("top-p that two of four reach exactly", same, 4, &h);
	h = plain;
	h.min_p = 0.3f;
	grid("min-p", some, 11, &h);
	h.min_p = 1;
	grid("min-p of 1: all the most likely", some, 11, &h);
	h.top_k = 8;
	h.top_p = 0.9f;
	h.min_p = 0.1f;
	grid("top-k, top-p and min-p", some, 11, &h);
}

/* More than the list holds are equal: the cut and the draw go through all of a row. */
static void flat(long V)
{
	enum { ROWS = 12 };
	struct array z = array_new(ROWS * V, DTYPE_F32, 9, 1e-9);
	struct sample_row how[ROWS];
	bool same;

	for (int r = 0; r < ROWS; r++) {
		how[r] = plain;
		how[r].u = (float)(2 * r + 1) / (2 * ROWS);
		how[r].top_k = r % 3 == 0 ? V / 2 : 0;
		how[r].top_p = r % 3 == 1 ? 0.8f : 1;
		how[r].min_p = r % 3 == 2 ? 0.5f : 0;
	}
	ok(both(&z, how, NULL, ROWS, V, &same) == 0 && same, "%ld that are nearly equal", V);
	array_free(&z);
}

static void odd_rows(void)
{
	enum { ROWS = 7, V = 1500 };
	struct array z = array_new(ROWS * V, DTYPE_F32, 4, 1);
	struct sample_row how[ROWS];
	uint8_t none[V] = { 0 };
	int id[ROWS], one;
	float lp[ROWS], alone;
	bool same = true, all_none = true;

	for (long v = 0; v < V; v++) {
		z.x[2 * V + v] = (double)-INFINITY;
		z.x[3 * V + v] = v == 700 ? 0 : (double)-INFINITY;
		z.x[4 * V + v] = v == 9 || v == 1200 ? 7 : 1;
		z.x[5 * V + v] = v == 11 ? -0.0 : v == 12 ? 0 : -1;
	}
	z.x[100] = (double)NAN;
	z.x[V + 1400] = (double)INFINITY;
	array_put(&z);
	for (int r = 0; r < ROWS; r++) {
		how[r] = plain;
		how[r].u = 0.4f;
		how[r].temperature = r == 4 || r == 5 ? 0 : 1;
	}
	cuda->sample(id, lp, z.dev, how, NULL, ROWS, V);
	ok(id[0] == -1 && id[1] == -1 && id[2] == -1 && isnan(lp[0]) && isnan(lp[1]) && isnan(lp[2]), "NaN, +inf, all -inf: no id");
	ok(id[3] == 700 && lp[3] == 0, "the only one that is possible");
	ok(id[4] == 9 && id[5] == 11, "greedy: the lowest of equals, and zeros are equal");
	for (int r = 0; r < ROWS; r++) {
		cuda->sample(&one, &alone, (float *)z.dev + r * V, how + r, NULL, 1, V);
		same = same && one == id[r] && !memcmp(&alone, lp + r, 4);
	}
	ok(same, "a row alone is drawn as in company");
	cuda->sample(id, lp, z.dev, how, none, ROWS, V);
	for (int r = 0; r < ROWS; r++)
		all_none = all_none && id[r] == -1 && isnan(lp[r]);
	ok(all_none, "nothing is allowed: no id");
	cuda->sample(NULL, NULL, z.dev, how, NULL, 0, V);
	array_free(&z);
}

int main(void)
{
	static const long sizes[] = { 1, 2, 5, 33, 1000, 1025, 5000 };
	bool full = !getenv("CAIRN_TEST_SHORT");

	cuda_start();
	grids();
	odd_rows();
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
		against_cpu(sizes[i], full ? 60 : 24, i % 2 ? 2 : 5, i % 2);
	against_cpu(50257, full ? 12 : 4, 3, false);
	flat(4001);
	if (full)
		flat(20000);
	return done();
}
