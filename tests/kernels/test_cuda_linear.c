/*
 * Products of the CUDA backend: against their formulas in float64 on odd, ragged and single
 * shapes in one chunk and several, and the same bits for a row alone and in company (so: from
 * every shape of tile), for K cut over ranks, for rows cut between micro-batches.
 */
#include "tests/kernels/cuda.h"

static const char *name(enum dtype t)
{
	return t == DTYPE_BF16 ? "bf16" : "f32";
}

struct shape { long m, n, k, chunks; };

/*
 * The device of the emulator has 3 multiprocessors: 2 x 2 tiles of 128 are enough for the large
 * ones, one of 16 is few.
 */
static const struct shape some[] = {
	{ 1, 1, 1, 1 },	    { 3, 17, 2, 1 },	   { 16, 32, 264, 1 },	 { 17, 31, 63, 3 },
	{ 33, 64, 576, 8 }, { 129, 130, 200, 1 },  { 129, 200, 144, 8 }, { 130, 257, 96, 6 },
	{ 7, 24, 320, 5 },  { 140, 128, 208, 13 }, { 64, 70, 450, 9 },
};
static const struct shape more[] = {
	{ 200, 300, 640, 8 }, { 65, 40, 999, 27 }, { 257, 129, 515, 1 }, { 129, 150, 1360, 17 }
};

/* y[m, n] = x w^T + bias, in float64. */
static double *product(const struct array *x, const struct array *w, const struct array *bias,
		       const struct shape *s)
{
	double *y = xmalloc((size_t)(s->m * s->n) * sizeof(double));

	for (long i = 0; i < s->m; i++)
		for (long o = 0; o < s->n; o++) {
			double sum = bias ? bias->x[o] : 0;

			for (long j = 0; j < s->k; j++)
				sum += x->x[i * s->k + j] * w->x[o * s->k + j];
			y[i * s->n + o] = sum;
		}
	return y;
}

/* Rows of device memory are the same as those of host memory. */
static bool same(const void *dev, const void *host, size_t bytes)
{
	void *p = xmalloc(bytes + 1);
	bool r;

	cuda->get(p, dev, bytes);
	r = !memcmp(p, host, bytes);
	free(p);
	return r;
}

static void forward(enum dtype t, const struct shape *s)
{
	static const long some_m[] = { 1, 7, 16, 64, 129 };
	struct array x = array_new(s->m * s->k, t, 1, 1), w = array_new(s->n * s->k, t, 2, 1),
		     b = array_new(s->n, t, 3, 1);
	struct array y = array_new(s->m * s->n, t, 4, 0),
		     z = array_new(s->m * s->n, DTYPE_F32, 5, 0);
	double *want = product(&x, &w, &b, s), *bare = product(&x, &w, NULL, s);
	size_t in = (size_t)s->k * dtype_size(t), out = (size_t)s->n * dtype_size(t);
	void *to = cuda->alloc((size_t)s->m * out, "rows");
	struct matrix m;
	bool bits = true;

	cuda->matrix_init(&m, t, s->n, s->k, s->chunks, true);
	cuda->matrix_load(&m, w.dev);
	cuda->linear_fwd(y.dev, t, x.dev, &m, b.dev, s->m);
	near(&y, want, "linear_fwd %s, %ld x %ld, k %ld in %ld", name(t), s->m, s->n, s->k,
	     s->chunks);
	cuda->linear_fwd(z.dev, DTYPE_F32, x.dev, &m, NULL, s->m);
	near(&z, bare, "the same to float32");
	for (size_t i = 0; i < sizeof(some_m) / sizeof(*some_m); i++) {
		long r = some_m[i], skip = s->m - r;

		if (skip < 0)
			continue;
		cuda->linear_fwd(to, t, x.dev, &m, b.dev, r);
		bits = bits && same(to, y.host, (size_t)r * out);
		cuda->linear_fwd(to, t, (char *)x.dev + (size_t)skip * in, &m, b.dev, r);
		bits = bits && same(to, (char *)y.host + (size_t)skip * out, (size_t)r * out);
	}
	ok(bits, "rows have the same bits in any company");
	x.x[0] = NAN;
	array_put(&x);
	cuda->linear_fwd(to, t, x.dev, &m, b.dev, s->m);
	ok(same((char *)to + out, (char *)y.host + out, (size_t)(s->m - 1) * out),
	   "NaN in one row stays there");
	cuda->matrix_release(&m);
	cuda->release(to);
	struct array *all[] = { &x, &w, &b, &y, &z };
	for (int i = 0; i < 5; i++)
		array_free(all[i]);
	free(want);
	free(bare);
}

/* Columns first .. first + n - 1 of x[rows, k] on the device. */
static void *columns(const struct array *x, long rows, long k, long first, long n)
{
	size_t size = dtype_size(x->t);
	char *host = xmalloc((size_t)(rows * n) * size);
	void *p = cuda->alloc((size_t)(rows * n) * size, "columns");

	for (long r = 0; r < rows; r++)
		memcpy(host + (size_t)(r * n) * size,
		       (char *)x->host + (size_t)(r * k + first) * size, (size_t)n * size);
	cuda->put(p, host, (size_t)(rows * n) * size);
	free(host);
	return p;
}

/* K cut over ranks as `first` says. */
static void cut(enum dtype t, const struct shape *s, long ranks, const long *first)
{
	struct tree_cut c = { ranks, first };
	long all = tree_leaves(&c), part = 0, per = s->k / all;
	struct array x = array_new(s->m * s->k, t, 1, 1), w = array_new(s->n * s->k, t, 2, 1),
		     b = array_new(s->n, t, 3, 1);
	struct array y = array_new(s->m * s->n, t, 4, 0);
	float *parts = cuda->alloc((size_t)(tree_parts_all(&c) * s->m * s->n) * 4, "parts");
	void *joined = cuda->alloc((size_t)(s->m * s->n) * dtype_size(t), "joined");
	struct matrix m;

	cuda->matrix_init(&m, t, s->n, s->k, all, false);
	cuda->matrix_load(&m, w.dev);
	cuda->linear_fwd(y.dev, t, x.dev, &m, b.dev, s->m);
	array_get(&y);
	cuda->matrix_release(&m);
	for (long r = 0; r < ranks; r++) {
		long n = first[r + 1] - first[r];
		void *xr, *wr;

		if (!n)
			continue;
		xr = columns(&x, s->m, s->k, first[r] * per, n * per);
		wr = columns(&w, s->n, s->k, first[r] * per, n * per);
		cuda->matrix_init(&m, t, s->n, n * per, n, false);
		cuda->matrix_load(&m, wr);
		cuda->linear_parts(parts + part * s->m * s->n, xr, &m, first[r], all, s->m);
		part += tree_parts_of(&c, r);
		cuda->matrix_release(&m);
		cuda->release(xr);
		cuda->release(wr);
	}
	cuda->linear_join(joined, t, parts, &c, b.dev, s->m, s->n);
	ok(same(joined, y.host, (size_t)y.n * dtype_size(t)),
	   "%s, %ld x %ld: K in %ld chunks over %ld ranks: the same bits", name(t), s->m, s->n, all,
	   ranks);
	cuda->release(parts);
	cuda->release(joined);
	struct array *arrays[] = { &x, &w, &b, &y };
	for (int i = 0; i < 4; i++)
		array_free(arrays[i]);
}

static void cuts(enum dtype t)
{
	static const long two[] = { 0, 4, 8 }, three[] = { 0, 1, 6, 8 },
			  uneven[] = { 0, 3, 3, 11, 13 }, each[] = { 0, 1, 2, 3, 4, 5 };
	const struct shape few = { 5, 20, 8 * 40, 8 }, high = { 70, 90, 8 * 24, 8 },
			   odd = { 33, 65, 13 * 7, 13 }, five = { 3, 9, 5 * 16, 5 };

	cut(t, &few, 2, two);
	cut(t, &few, 3, three);
	cut(t, &high, 2, two);
	cut(t, &high, 3, three);
	cut(t, &odd, 4, uneven);
	cut(t, &five, 5, each);
}

static void backward_x(enum dtype t, const struct shape *s)
{
	struct array dy = array_new(s->m * s->n, t, 6, 1), w = array_new(s->n * s->k, t, 7, 1),
		     old = array_new(s->m * s->k, t, 8, 1);
	struct array dx = array_new(s->m * s->k, t, 9, 0),
		     sum = array_new(s->m * s->k, DTYPE_F32, 10, 1);
	double *want = xcalloc((size_t)(s->m * s->k), sizeof(double));
	size_t row = (size_t)s->k * dtype_size(t);
	struct matrix m;

	cuda->matrix_init(&m, t, s->n, s->k, s->chunks, true);
	cuda->matrix_load(&m, w.dev);
	for (long i = 0; i < s->m; i++)
		for (long o = 0; o < s->n; o++)
			for (long j = 0; j < s->k; j++)
				want[i * s->k + j] += dy.x[i * s->n + o] * w.x[o * s->k + j];
	cuda->linear_dx(dx.dev, t, dy.dev, &m, s->m, false);
	near(&dx, want, "linear_dx %s, %ld x %ld, k %ld in %ld", name(t), s->m, s->n, s->k,
	     s->chunks);
	cuda->linear_dx(sum.dev, t, (char *)dy.dev + (size_t)((s->m - 1) * s->n) * dtype_size(t),
			&m, 1, false);
	ok(same(sum.dev, (char *)dx.host + (size_t)(s->m - 1) * row, row),
	   "a row alone has the same bits");
	cuda->put(sum.dev, sum.host, (size_t)sum.n * 4);
	for (long i = 0; i < s->m * s->k; i++)
		old.x[i] += want[i], want[i] += sum.x[i];
	cuda->linear_dx(sum.dev, DTYPE_F32, dy.dev, &m, s->m, true);
	near(&sum, want, "added to float32");
	memcpy(want, old.x, (size_t)old.n * sizeof(double));
	cuda->linear_dx(old.dev, t, dy.dev, &m, s->m, true);
	near(&old, want, "added to %s", name(t));
	cuda->matrix_release(&m);
	struct array *all[] = { &dy, &w, &old, &dx, &sum };
	for (int i = 0; i < 5; i++)
		array_free(all[i]);
	free(want);
}

static void backward_w(enum dtype t, const struct shape *s)
{
	struct array dy = array_new(s->m * s->n, t, 11, 1), x = array_new(s->m * s->k, t, 12, 1);
	struct array dw = array_new(s->n * s->k, DTYPE_F32, 13, 1),
		     db = array_new(s->n, DTYPE_F32, 14, 1);
	double *want = xmalloc((size_t)(s->n * s->k) * sizeof(double)),
	       *wb = xmalloc((size_t)s->n * sizeof(double));
	float *dw2 = cuda->alloc((size_t)dw.n * 4, "again"),
	      *db2 = cuda->alloc((size_t)db.n * 4, "again");
	size_t size = dtype_size(t);

	cuda->copy(dw2, dw.dev, (size_t)dw.n * 4);
	cuda->copy(db2, db.dev, (size_t)db.n * 4);
	memcpy(want, dw.x, (size_t)dw.n * sizeof(double));
	memcpy(wb, db.x, (size_t)db.n * sizeof(double));
	for (long i = 0; i < s->m; i++)
		for (long o = 0; o < s->n; o++) {
			wb[o] += dy.x[i * s->n + o];
			for (long j = 0; j < s->k; j++)
				want[o * s->k + j] += dy.x[i * s->n + o] * x.x[i * s->k + j];
		}
	cuda->linear_dw(dw.dev, db.dev, dy.dev, x.dev, s->m, s->n, s->k, t);
	near(&dw, want, "linear_dw %s, %ld rows, %ld x %ld", name(t), s->m, s->n, s->k);
	near(&db, wb, "dbias");
	if (s->m > 64) {
		cuda->linear_dw(dw2, NULL, dy.dev, x.dev, 64, s->n, s->k, t);
		cuda->linear_dw(NULL, db2, dy.dev, x.dev, 64, s->n, s->k, t);
		cuda->linear_dw(dw2, db2, (char *)dy.dev + (size_t)(64 * s->n) * size,
				(char *)x.dev + (size_t)(64 * s->k) * size, s->m - 64, s->n, s->k,
				t);
		ok(same(dw2, dw.host, (size_t)dw.n * 4) && same(db2, db.host, (size_t)db.n * 4),
		   "cut at a row: the same bits");
	}
	cuda->release(dw2);
	cuda->release(db2);
	struct array *all[] = { &dy, &x, &dw, &db };
	for (int i = 0; i < 4; i++)
		array_free(all[i]);
	free(want);
	free(wb);
}

/* Pointers that are not aligned to 16 bytes, and the CPU's numbers. */
static void skewed(enum dtype t)
{
	enum { M = 20, N = 40, K = 64 };
	size_t size = dtype_size(t);
	struct array x = array_new(M * K + 1, t, 15, 1), w = array_new(N * K, t, 16, 1),
		     y = array_new(M * N + 1, t, 17, 0);
	struct array g = array_new(M * N, t, 18, 0);
	double *want = xcalloc(M * N + 1, sizeof(double));
	void *host = xmalloc(M * N * size), *yd = (char *)y.dev + size, *xd = (char *)x.dev + size;
	struct matrix m, c;

	cuda->matrix_init(&m, t, N, K, 1, true);
	cuda->matrix_load(&m, w.dev);
	cpu->matrix_init(&c, t, N, K, 1, false);
	cpu->matrix_load(&c, w.host);
	cpu->linear_fwd(host, t, (char *)x.host + size, &c, NULL, M);
	for (long i = 0; i < M * N; i++)
		want[1 + i] = (double)(t == DTYPE_BF16 ? bf16_to_f32(((uint16_t *)host)[i])
						       : ((float *)host)[i]);
	cuda->linear_fwd(yd, t, xd, &m, NULL, M);
	near(&y, want, "linear_fwd of %s off 16 bytes, as on the CPU", name(t));
	cuda->linear_fwd(g.dev, t, xd, &m, NULL, M);
	array_get(&g);
	ok(same(yd, g.host, M * N * size), "where y lies changes no bit");
	cuda->linear_fwd(yd, t, xd, &m, NULL, 0);
	cuda->linear_dx(xd, t, yd, &m, 0, false);
	cuda->linear_dw(NULL, NULL, yd, xd, 0, N, K, t);
	ok(same(yd, g.host, M * N * size), "no rows: nothing is touched");
	cuda->matrix_release(&m);
	cpu->matrix_release(&c);
	struct array *all[] = { &x, &w, &y, &g };
	for (int i = 0; i < 4; i++)
		array_free(all[i]);
	free(want);
	free(host);
}

/* Another order of the sum shows in the bits that are compared above. */
static void order_shows(enum dtype t)
{
	enum { M = 8, N = 24, K = 512 };
	struct array x = array_new(M * K, t, 19, 1), w = array_new(N * K, t, 20, 1),
		     z = array_new(M * N, DTYPE_F32, 21, 0);
	struct matrix m;

	for (long chunks = 1; chunks < 16; chunks *= 2) {
		cuda->matrix_init(&m, t, N, K, chunks, false);
		cuda->matrix_load(&m, w.dev);
		cuda->linear_fwd(z.dev, DTYPE_F32, x.dev, &m, NULL, M);
		if (chunks > 1)
			ok(!same(z.dev, z.host, M * N * 4), "%s: %ld chunks have other bits",
			   name(t), chunks);
		array_get(&z);
		cuda->matrix_release(&m);
	}
	struct array *all[] = { &x, &w, &z };
	for (int i = 0; i < 3; i++)
		array_free(all[i]);
}

static void whole(enum dtype t, const struct shape *s)
{
	forward(t, s);
	backward_x(t, s);
	backward_w(t, s);
}

int main(void)
{
	static const enum dtype types[] = { DTYPE_BF16, DTYPE_F32 };

	cuda_start();
	for (int i = 0; i < 2; i++) {
		for (size_t s = 0; s < sizeof(some) / sizeof(*some); s++)
			whole(types[i], &some[s]);
		for (size_t s = 0; s < sizeof(more) / sizeof(*more) && !getenv("CAIRN_TEST_SHORT");
		     s++)
			whole(types[i], &more[s]);
		cuts(types[i]);
		skewed(types[i]);
		order_shows(types[i]);
	}
	return done();
}
