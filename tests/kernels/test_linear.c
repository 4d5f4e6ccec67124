#include "kernels/linear.h"

#include "kernels/cpu/backend.h"
#include "kernels/cpu/isa.h"
#include "libcommon/pool.h"
#include "libcommon/xalloc.h"
#include "tests/lib/tap.h"

/* Numbers in [-1, 1) of type t, and the same as doubles. */
struct data {
	enum dtype t;
	long n;
	void *p;
	double *d;
};

static uint32_t seed = 1;

static float any(void)
{
	seed = seed * 1664525 + 1013904223;
	return (float)((double)(seed >> 8) / (1 << 23) - 1);
}

static void put(struct data *x, long i, float f)
{
	if (x->t == DTYPE_BF16) {
		((uint16_t *)x->p)[i] = f32_to_bf16(f);
		f = bf16_to_f32(((uint16_t *)x->p)[i]);
	} else {
		((float *)x->p)[i] = f;
	}
	x->d[i] = f;
}

static struct data data(enum dtype t, long n)
{
	struct data x = { t, n, xmalloc((size_t)n * dtype_size(t)),
			  xmalloc((size_t)n * sizeof(double)) };

	for (long i = 0; i < n; i++)
		put(&x, i, any());
	return x;
}

static void drop(struct data *x)
{
	free(x->p);
	free(x->d);
}

static double value(const void *p, enum dtype t, long i)
{
	return t == DTYPE_BF16 ? bf16_to_f32(((const uint16_t *)p)[i]) : ((const float *)p)[i];
}

/* |got - want| / |want|, as vectors; a result of `terms` products of such numbers has a norm of
 * sqrt(terms) / 3, and where chance made it smaller, it is measured by that. */
static double distance(const void *got, enum dtype t, const double *want, long n, long terms)
{
	double off = 0, all = 0;

	for (long i = 0; i < n; i++) {
		double e = value(got, t, i) - want[i];

		off += e * e;
		all += want[i] * want[i];
	}
	return isnan(off) ? INFINITY : sqrt(off / fmax(all, (double)(n * terms) / 9));
}

static double limit(enum dtype t)
{
	return t == DTYPE_BF16 ? 4e-3 : 1e-5;
}

static const long some_m[] = { 1, 2, 3, 7, 8, 16, 31, 33, 64, 129 };
static const long some_n[] = { 1, 17, 48, 50 };
static const long some_k[] = { 1, 2, 63, 64, 96, 257, 2200 };
static const long some_chunks[] = { 1, 3, 8 };
enum { MOST_M = 129 };

#define EACH(v, list) for (size_t v##_ = 0; v##_ < sizeof(list) / sizeof(*(list)); v##_++)

struct worst {
	double fwd, logits, dx, dx_add, dw, db;
	long rows_differ, cases;
};

static void worse(double *w, double d)
{
	if (!(d <= *w))
		*w = d;
}

static void forward(struct worst *worst, const struct matrix *w, const struct data *x,
		    const struct data *wd, const struct data *b)
{
	long n = w->n, k = w->k;
	size_t size = dtype_size(w->t);
	double *want = xmalloc((size_t)(MOST_M * n) * sizeof(double));
	char *y = xmalloc((size_t)(MOST_M * n) * size), *all = xmalloc((size_t)(MOST_M * n) * size);
	float *z = xmalloc((size_t)(MOST_M * n) * 4);

	for (long i = 0; i < MOST_M; i++)
		for (long o = 0; o < n; o++) {
			double s = b->d[o];

			for (long j = 0; j < k; j++)
				s += x->d[i * k + j] * wd->d[o * k + j];
			want[i * n + o] = s;
		}
	linear_fwd_cpu(all, w->t, x->p, w, b->p, MOST_M);
	EACH(m, some_m)
	{
		long m = some_m[m_], from = MOST_M - m;

		linear_fwd_cpu(y, w->t, (char *)x->p + (size_t)(from * k) * size, w, b->p, m);
		worse(&worst->fwd, distance(y, w->t, want + from * n, m * n, k) / limit(w->t));
		worst->rows_differ +=
			!!memcmp(y, all + (size_t)(from * n) * size, (size_t)(m * n) * size);
		linear_fwd_cpu(z, DTYPE_F32, x->p, w, b->p, m);
		worse(&worst->logits, distance(z, DTYPE_F32, want, m * n, k) / 1e-5);
		worst->cases++;
	}
	free(want);
	free(y);
	free(all);
	free(z);
}

static void backward(struct worst *worst, const struct matrix *w, const struct data *x,
		     const struct data *wd, const struct data *dy)
{
	long n = w->n, k = w->k;
	size_t size = dtype_size(w->t);
	double *want = xmalloc((size_t)((MOST_M + n) * k + n) * sizeof(double));
	char *dx = xmalloc((size_t)(MOST_M * k) * size);
	float *dw = xmalloc((size_t)(n * k + n) * 4), *db = dw + n * k;

	EACH(m, some_m)
	{
		long m = some_m[m_];

		for (long i = 0; i < m; i++)
			for (long j = 0; j < k; j++) {
				double s = 0;

				for (long o = 0; o < n; o++)
					s += dy->d[i * n + o] * wd->d[o * k + j];
				want[i * k + j] = s;
			}
		linear_dx_cpu(dx, dy->t, dy->p, w, m, false);
		worse(&worst->dx, distance(dx, w->t, want, m * k, n) / limit(w->t));
		memcpy(dx, x->p, (size_t)(m * k) * size);
		for (long i = 0; i < m * k; i++)
			want[i] += x->d[i];
		linear_dx_cpu(dx, dy->t, dy->p, w, m, true);
		worse(&worst->dx_add, distance(dx, w->t, want, m * k, n) / limit(w->t));
		for (long i = 0; i < n * k + n; i++)
			want[i] = dw[i] = any();
		for (long i = 0; i < m; i++)
			for (long o = 0; o < n; o++) {
				for (long j = 0; j < k; j++)
					want[o * k + j] += dy->d[i * n + o] * x->d[i * k + j];
				want[n * k + o] += dy->d[i * n + o];
			}
		linear_dw_cpu(dw, db, dy->p, x->p, m, n, k, w->t);
		worse(&worst->dw, distance(dw, DTYPE_F32, want, n * k, m) / 1e-5);
		worse(&worst->db, distance(db, DTYPE_F32, want + n * k, n, m) / 1e-5);
	}
	free(want);
	free(dx);
	free(dw);
}

static void formula(enum dtype t)
{
	struct worst worst = { 0 };

	EACH(n, some_n) EACH(k, some_k)
	{
		long n = some_n[n_], k = some_k[k_];
		struct data x = data(t, MOST_M * k), w = data(t, n * k), b = data(t, n),
			    dy = data(t, MOST_M * n);

		EACH(c, some_chunks)
		{
			struct matrix m;

			if (k % some_chunks[c_])
				continue;
			matrix_init_cpu(&m, t, n, k, some_chunks[c_], true);
			matrix_load_cpu(&m, w.p);
			forward(&worst, &m, &x, &w, &b);
			if (some_chunks[c_] == 1)
				backward(&worst, &m, &x, &w, &dy);
			matrix_release_cpu(&m);
		}
		drop(&x);
		drop(&w);
		drop(&b);
		drop(&dy);
	}
	ok(worst.fwd < 1, "%s %s: y is the formula (%.2g of the bound)", isa_name(), dtype_name(t),
	   worst.fwd);
	ok(worst.logits < 1, "%s %s: y in fp32 too (%.2g)", isa_name(), dtype_name(t),
	   worst.logits);
	ok(worst.dx < 1, "%s %s: dx (%.2g)", isa_name(), dtype_name(t), worst.dx);
	ok(worst.dx_add < 1, "%s %s: dx, added (%.2g)", isa_name(), dtype_name(t), worst.dx_add);
	ok(worst.dw < 1, "%s %s: dw, continued (%.2g)", isa_name(), dtype_name(t), worst.dw);
	ok(worst.db < 1, "%s %s: dbias (%.2g)", isa_name(), dtype_name(t), worst.db);
	ok(!worst.rows_differ,
	   "%s %s: a row has the same bits among any number of rows (%ld cases)", isa_name(),
	   dtype_name(t), worst.cases);
}

/* The chunks' sums joined by tree_join() of sums made one chunk at a time. */
static void chunks_are_the_tree(enum dtype t, long chunks)
{
	enum { M = 9, N = 50, EACH_K = 35 };
	long k = chunks * EACH_K, differ = 0;
	size_t size = dtype_size(t);
	struct data x = data(t, M * k), w = data(t, N * k);
	char *xc = xmalloc(M * EACH_K * size), *wc = xmalloc(N * EACH_K * size);
	float *part = xmalloc((size_t)chunks * M * N * 4), y[M * N];
	struct matrix m;

	for (long c = 0; c < chunks; c++) {
		for (long i = 0; i < M; i++)
			memcpy(xc + (size_t)(i * EACH_K) * size,
			       (char *)x.p + (size_t)(i * k + c * EACH_K) * size, EACH_K * size);
		for (long i = 0; i < N; i++)
			memcpy(wc + (size_t)(i * EACH_K) * size,
			       (char *)w.p + (size_t)(i * k + c * EACH_K) * size, EACH_K * size);
		matrix_init_cpu(&m, t, N, EACH_K, 1, false);
		matrix_load_cpu(&m, wc);
		linear_fwd_cpu(part + c * M * N, DTYPE_F32, xc, &m, NULL, M);
		matrix_release_cpu(&m);
	}
	matrix_init_cpu(&m, t, N, k, chunks, false);
	matrix_load_cpu(&m, w.p);
	linear_fwd_cpu(y, DTYPE_F32, x.p, &m, NULL, M);
	matrix_release_cpu(&m);
	for (long i = 0; i < M * N; i++)
		differ += y[i] != tree_join(part + i, chunks, M * N);
	ok(!differ, "%s %s: %ld chunks are joined by the tree", isa_name(), dtype_name(t), chunks);
	free(xc);
	free(wc);
	free(part);
	drop(&x);
	drop(&w);
}

/* Threads, micro-batches cut at an even row, and a neighbour full of NaN leave every bit alone. */
static void invariance(enum dtype t)
{
	enum { M = 517, N = 113, K = 130, CUT = 202, BAD = 77 };
	size_t size = dtype_size(t);
	struct data x = data(t, M * K), w = data(t, N * K), dy = data(t, M * N);
	char *y = xmalloc(2 * M * N * size), *dx = xmalloc(2 * M * K * size);
	float *dw = xcalloc(3 * N * K, 4);
	struct matrix m;
	long differ = 0;

	matrix_init_cpu(&m, t, N, K, 2, true);
	matrix_load_cpu(&m, w.p);
	for (int threads = 1; threads <= 2; threads++) {
		pool_start(threads);
		linear_fwd_cpu(y + (size_t)(threads - 1) * M * N * size, t, x.p, &m, NULL, M);
		linear_dx_cpu(dx + (size_t)(threads - 1) * M * K * size, dy.t, dy.p, &m, M, false);
		linear_dw_cpu(dw + (threads - 1) * N * K, NULL, dy.p, x.p, M, N, K, t);
	}
	ok(!memcmp(y, y + M * N * size, M * N * size), "%s %s: y of one thread and two", isa_name(),
	   dtype_name(t));
	ok(!memcmp(dx, dx + M * K * size, M * K * size), "%s %s: dx of one thread and two",
	   isa_name(), dtype_name(t));
	ok(!memcmp(dw, dw + N * K, N * K * 4), "%s %s: dw of one thread and two", isa_name(),
	   dtype_name(t));
	linear_dw_cpu(dw + 2 * N * K, NULL, dy.p, x.p, CUT, N, K, t);
	linear_dw_cpu(dw + 2 * N * K, NULL, (char *)dy.p + CUT * N * size,
		      (char *)x.p + CUT * K * size, M - CUT, N, K, t);
	ok(!memcmp(dw, dw + 2 * N * K, N * K * 4), "%s %s: dw of micro-batches is dw of the whole",
	   isa_name(), dtype_name(t));

	for (long i = 0; i < K; i++)
		put(&x, BAD * K + i, NAN);
	linear_fwd_cpu(y, t, x.p, &m, NULL, M);
	for (long i = 0; i < M; i++)
		for (long o = 0; o < N; o++) {
			double got = value(y, t, i * N + o),
			       was = value(y + M * N * size, t, i * N + o);

			differ += i == BAD ? !isnan(got) : got != was;
		}
	ok(!differ, "%s %s: a NaN row spoils itself alone", isa_name(), dtype_name(t));
	matrix_release_cpu(&m);
	free(y);
	free(dx);
	free(dw);
	drop(&x);
	drop(&w);
	drop(&dy);
}

int main(void)
{
	static const char *const isa[] = { "portable", "avx2", "avx512", "avx512bf16" };
	struct err e = ERR_INIT;

	ok(isa_choose("sse9", &e) == -1 && e.code == EX_USAGE,
	   "an unknown instruction set is refused");
	EACH(i, isa)
	{
		if (isa_choose(isa[i_], &e)) {
			ok(e.code == EX_UNAVAILABLE, "%s", e.msg);
			skip("not in this CPU", "%s", isa[i_]);
			continue;
		}
		is_str(isa_name(), isa[i_], "%s can be forced", isa[i_]);
		for (int t = 0; t < 2; t++) {
			enum dtype type = t ? DTYPE_BF16 : DTYPE_F32;

			pool_start(2);
			formula(type);
			for (long c = 1; c <= 9; c++)
				chunks_are_the_tree(type, c);
			invariance(type);
		}
	}
	return done();
}
