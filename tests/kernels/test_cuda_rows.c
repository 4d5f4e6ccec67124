/*
 * The row-wise and elementwise ops of the CUDA backend: against their formulas in double on odd, ragged and empty shapes, and the same
 * bits for a row alone and in company.
 */
#include "tests/kernels/cuda.h"

static const char *name(enum dtype t)
{
	return t == DTYPE_BF16 ? "bf16" : "f32";
}

static void memory(void)
{
	struct array a = array_new(3000000, DTYPE_F32, 1, 1);
	double *want = xmalloc((size_t)a.n * sizeof(double));
	char *p = cuda->alloc(1000, "zeros"), host[1000];
	bool zero = true;

	memcpy(want, a.x, (size_t)a.n * sizeof(double));
	memset(a.host, 0, (size_t)a.n * 4);
	array_get(&a);
	ok(!memcmp(a.x, want, (size_t)a.n * sizeof(double)), "12 MB there and back");
	cuda->get(host, p, sizeof(host));
	for (size_t i = 0; i < sizeof(host); i++)
		zero = zero && !host[i];
	ok(zero, "new memory is zero");
	memset(host, 7, sizeof(host));
	cuda->put(p, host, sizeof(host));
	cuda->release(p);
	p = cuda->alloc(1000, "zeros");
	cuda->get(host, p, sizeof(host));
	zero = true;
	for (size_t i = 0; i < sizeof(host); i++)
		zero = zero && !host[i];
	ok(zero, "so is memory that was used before");
	cuda->release(p);
	array_free(&a);
	free(want);
}

static void moves(enum dtype t, long cols)
{
	static const int index[] = { 3, 0, 5, 5, 1 }, to[] = { 4, 2, 0, 1, 5 };
	struct array x = array_new(6 * cols, t, 2, 1), y = array_new(5 * cols, t, 3, 0), z = array_new(6 * cols, t, 4, 0);
	double *want = xcalloc((size_t)(6 * cols) + 1, sizeof(double));
	size_t bytes = (size_t)cols * dtype_size(t);

	for (long r = 0; r < 5; r++)
		memcpy(want + r * cols, x.x + index[r] * cols, (size_t)cols * sizeof(double));
	cuda->rows_gather(y.dev, x.dev, index, 5, bytes);
	near(&y, want, "rows_gather, %ld columns %s", cols, name(t));
	cuda->zero(y.dev, 5 * bytes);
	cuda->embed_fwd(y.dev, x.dev, index, 5, cols, t);
	near(&y, want, "embed_fwd, %ld columns %s", cols, name(t));
	memset(want, 0, (size_t)(6 * cols) * sizeof(double));
	for (long r = 0; r < 5; r++)
		memcpy(want + to[r] * cols, y.x + r * cols, (size_t)cols * sizeof(double));
	cuda->rows_scatter(z.dev, y.dev, to, 5, bytes);
	near(&z, want, "rows_scatter, %ld columns %s", cols, name(t));
	cuda->copy(z.dev, x.dev, 6 * bytes);
	near(&z, x.x, "copy, %ld columns %s", cols, name(t));
	array_free(&x);
	array_free(&y);
	array_free(&z);
	free(want);
}

static void embedding(enum dtype t, long cols)
{
	enum { ROWS = 11, V = 5 };
	static const int ids[ROWS] = { 4, 0, 4, 2, 2, 4, 1, 0, 0, 4, 4 };
	struct array dy = array_new(ROWS * cols, t, 5, 1), table = array_new(V * cols, DTYPE_F32, 6, 1);
	double *want = xmalloc((size_t)(V * cols) * sizeof(double));

	memcpy(want, table.x, (size_t)(V * cols) * sizeof(double));
	for (long r = 0; r < ROWS; r++)
		for (long c = 0; c < cols; c++)
			want[ids[r] * cols + c] += dy.x[r * cols + c];
	cuda->embed_bwd(table.dev, dy.dev, ids, ROWS, cols, t);
	near(&table, want, "embed_bwd, %ld columns %s", cols, name(t));
	array_free(&dy);
	array_free(&table);
	free(want);
}

/* dx and dw in double from the statistic that the kernel gave. */
static void norm_bwd_want(double *dx, double *dw, const double *dy, const double *x, const double *w, const double *rstd, long rows, long cols)
{
	for (long r = 0; r < rows; r++) {
		double s = 0, k = rstd[r];

		for (long c = 0; c < cols; c++)
			s += dy[r * cols + c] * w[c] * x[r * cols + c];
		for (long c = 0; c < cols; c++) {
			dx[r * cols + c] += k * (dy[r * cols + c] * w[c] - x[r * cols + c] * k * k * s / (double)cols);
			dw[c] += dy[r * cols + c] * x[r * cols + c] * k;
		}
	}
}

/* skew: pointers that are not aligned to 16 bytes. */
static void norm(enum dtype t, long rows, long cols, long skew)
{
	struct array x = array_new(rows * cols, t, 7, 1), w = array_new(cols + skew, t, 8, 1), y = array_new(rows * cols, t, 9, 0);
	struct array rstd = array_new(rows, DTYPE_F32, 10, 0), dy = array_new(rows * cols, t, 11, 1), dx = array_new(rows * cols, t, 12, 1);
	struct array dw = array_new(cols, DTYPE_F32, 13, 1);
	double *want = xcalloc((size_t)(rows * cols) + 1, sizeof(double)), *gw = xcalloc((size_t)cols + 1, sizeof(double));
	double *stat = xcalloc((size_t)rows + 1, sizeof(double));
	double eps = cols < 4 ? 0.5 : 1e-5;     /* of few columns dx would be a difference of equals */
	char *wd = (char *)w.dev + (size_t)skew * dtype_size(t);

	for (long r = 0; r < rows; r++) {
		double s = 0;

		for (long c = 0; c < cols; c++)
			s += x.x[r * cols + c] * x.x[r * cols + c];
		stat[r] = 1 / sqrt(s / (double)cols + eps);
		for (long c = 0; c < cols; c++)
			want[r * cols + c] = x.x[r * cols + c] * stat[r] * w.x[c + skew];
	}
	cuda->rmsnorm_fwd(y.dev, rstd.dev, x.dev, wd, rows, cols, (float)eps, t);
	near(&y, want, "rmsnorm_fwd %ld x %ld %s, skew %ld", rows, cols, name(t), skew);
	near(&rstd, stat, "its statistic");
	memcpy(want, dx.x, (size_t)(rows * cols) * sizeof(double));
	memcpy(gw, dw.x, (size_t)cols * sizeof(double));
	norm_bwd_want(want, gw, dy.x, x.x, w.x + skew, rstd.x, rows, cols);
	cuda->rmsnorm_bwd(dx.dev, dw.dev, dy.dev, x.dev, wd, rstd.dev, rows, cols, true, t);
	near(&dx, want, "rmsnorm_bwd dx added");
	near(&dw, gw, "rmsnorm_bwd dw");
	memset(want, 0, (size_t)(rows * cols) * sizeof(double));
	norm_bwd_want(want, gw, dy.x, x.x, w.x + skew, rstd.x, rows, cols);
	cuda->rmsnorm_bwd(dx.dev, NULL, dy.dev, x.dev, wd, rstd.dev, rows, cols, false, t);
	near(&dx, want, "rmsnorm_bwd dx alone");
	if (rows > 2) {
		size_t bytes = (size_t)cols * dtype_size(t);
		void *one = cuda->alloc(bytes, "a row"), *host = xmalloc(bytes);

		cuda->rmsnorm_fwd(one, NULL, (char *)x.dev + 2 * bytes, wd, 1, cols, (float)eps, t);
		cuda->get(host, one, bytes);
		array_get(&y);
		ok(!memcmp(host, (char *)y.host + 2 * bytes, bytes), "rmsnorm: a row alone has the same bits");
		cuda->release(one);
		free(host);
	}
	struct array *all[] = { &x, &w, &y, &rstd, &dy, &dx, &dw };
	for (int i = 0; i < 7; i++)
		array_free(all[i]);
	free(want);
	free(gw);
	free(stat);
}

static void rope(enum dtype t, long rows, long heads, long d)
{
	long half = d / 2;
	struct array x = array_new(rows * heads * d, t, 14, 1), c = array_new(40 * half, DTYPE_F32, 15, 0), s = array_new(40 * half, DTYPE_F32, 16, 0);
	double *want = xmalloc((size_t)x.n * sizeof(double) + 1);
	int *position = xmalloc((size_t)rows * sizeof(int) + 1);

	for (long i = 0; i < 40 * half; i++) {
		c.x[i] = cos((double)(i / half) * pow(1e4, -2.0 * (double)(i % half) / (double)d));
		s.x[i] = sin((double)(i / half) * pow(1e4, -2.0 * (double)(i % half) / (double)d));
	}
	array_put(&c);
	array_put(&s);
	for (int inverse = 0; inverse < 2; inverse++) {
		for (long r = 0; r < rows; r++) {
			position[r] = (int)((r * 17 + 3) % 40);
			for (long i = 0; i < heads * half; i++) {
				const double *v = x.x + (r * heads + i / half) * d;
				double *o = want + (r * heads + i / half) * d;
				long j = i % half, a = position[r] * half + j;

				o[j] = v[j] * c.x[a] - (inverse ? -1 : 1) * v[j + half] * s.x[a];
				o[j + half] = v[j + half] * c.x[a] + (inverse ? -1 : 1) * v[j] * s.x[a];
			}
		}
		cuda->rope(x.dev, position, c.dev, s.dev, rows, heads, d, inverse, t);
		memset(position, 0xff, (size_t)rows * sizeof(int));
		near(&x, want, "rope%s, %ld rows of %ld heads of %ld, %s", inverse ? " inverse" : "", rows, heads, d, name(t));
	}
	array_free(&x);
	array_free(&c);
	array_free(&s);
	free(want);
	free(position);
}

static double silu(double g)
{
	return g / (1 + exp(-g));
}

static void activations(enum dtype t, long n, long skew)
{
	struct array g = array_new(n + skew, t, 17, 3), u = array_new(n + skew, t, 18, 1), dy = array_new(n + skew, t, 19, 1);
	struct array y = array_new(n + skew, t, 20, 0), dg = array_new(n + skew, t, 21, 0), du = array_new(n + skew, t, 22, 0);
	double *want[4];
	size_t at = (size_t)skew * dtype_size(t);

	for (int i = 0; i < 4; i++)
		want[i] = xcalloc((size_t)(n + skew) + 1, sizeof(double));
	if (n > 2) {
		g.x[skew] = -200;
		g.x[skew + 1] = 200;
		array_put(&g);
	}
	for (long i = skew; i < n + skew; i++) {
		double a = g.x[i], s = 1 / (1 + exp(-a));

		want[0][i] = silu(a) * u.x[i];
		want[1][i] = dy.x[i] * u.x[i] * s * (1 + a * (1 - s));
		want[2][i] = dy.x[i] * silu(a);
		want[3][i] = a + u.x[i];
	}
	cuda->swiglu_fwd((char *)y.dev + at, (char *)g.dev + at, (char *)u.dev + at, n, t);
	near(&y, want[0], "swiglu_fwd of %ld %s, skew %ld", n, name(t), skew);
	cuda->swiglu_bwd((char *)dg.dev + at, (char *)du.dev + at, (char *)dy.dev + at, (char *)g.dev + at, (char *)u.dev + at, n, t);
	near(&dg, want[1], "swiglu_bwd: gate");
	near(&du, want[2], "swiglu_bwd: up");
	cuda->swiglu_bwd((char *)dg.dev + at, (char *)dy.dev + at, (char *)dy.dev + at, (char *)g.dev + at, (char *)u.dev + at, n, t);
	for (long i = 0; i < skew; i++)
		want[2][i] = dy.x[i];
	near(&dy, want[2], "swiglu_bwd: up where dy was");
	cuda->add((char *)u.dev + at, (char *)g.dev + at, (char *)u.dev + at, n, t);
	for (long i = 0; i < skew; i++)
		want[3][i] = u.x[i];
	near(&u, want[3], "add, onto an input");
	struct array *all[] = { &g, &u, &dy, &y, &dg, &du };
	for (int i = 0; i < 6; i++)
		array_free(all[i]);
	for (int i = 0; i < 4; i++)
		free(want[i]);
}

static void optimizer(long n, long skew)
{
	struct array w = array_new(n + skew, DTYPE_F32, 23, 1), m = array_new(n + skew, DTYPE_F32, 24, .1), v = array_new(n + skew, DTYPE_F32, 25, 0);
	struct array g = array_new(n + skew, DTYPE_F32, 26, 1), low = array_new(n + skew, DTYPE_BF16, 27, 0);
	struct adamw h = { 1e-3f, 0.9f, 0.999f, 1e-8f, 0.01f, 0.271f, 0.002997f, 0.5f, 0.1f, 0.001f };
	double *want[4], s = 0;

	for (long i = 0; i < n + skew; i++)
		v.x[i] = fabs(g.x[i]) * 0.01;
	array_put(&v);
	for (int i = 0; i < 4; i++)
		want[i] = xcalloc((size_t)(n + skew) + 1, sizeof(double));
	for (long i = 0; i < n + skew; i++) {
		double d = (double)h.grad_scale * g.x[i];

		want[0][i] = w.x[i];
		want[1][i] = m.x[i];
		want[2][i] = v.x[i];
		if (i < skew)
			continue;
		s += g.x[i] * g.x[i];
		want[1][i] = (double)h.beta1 * m.x[i] + (double)h.rest1 * d;
		want[2][i] = (double)h.beta2 * v.x[i] + (double)h.rest2 * d * d;
		want[0][i] -= (double)h.lr * (want[1][i] / (double)h.bias1 / (sqrt(want[2][i] / (double)h.bias2) + (double)h.eps) +
					      (double)h.weight_decay * w.x[i]);
		want[3][i] = want[0][i];
	}
	cuda->adamw((float *)w.dev + skew, (float *)m.dev + skew, (float *)v.dev + skew, (uint16_t *)low.dev + skew, (float *)g.dev + skew, n, &h);
	near(&w, want[0], "adamw of %ld, skew %ld", n, skew);
	near(&m, want[1], "adamw: first moments");
	near(&v, want[2], "adamw: second moments");
	near(&low, want[3], "adamw: the copy in bf16");
	is_num(cuda->sumsq((float *)g.dev + skew, n) / (s + 1e-300), n ? 1 : 0, 1e-12, "sumsq of %ld", n);
	struct array *all[] = { &w, &m, &v, &g, &low };
	for (int i = 0; i < 5; i++)
		array_free(all[i]);
	for (int i = 0; i < 4; i++)
		free(want[i]);
}

int main(void)
{
	bool all = !getenv("CAIRN_TEST_SHORT");

	cuda_start();
	memory();
	for (int i = 0; i < 2; i++) {
		enum dtype t = i ? DTYPE_BF16 : DTYPE_F32;

		moves(t, 64);
		moves(t, 83);
		embedding(t, 300);
		norm(t, 7, 83, 0);
		norm(t, 1, 1, 0);
		norm(t, 0, 64, 0);
		norm(t, 9, 128, 0);
		norm(t, 130, 520, 0);
		norm(t, 3, 4096, 1);
		rope(t, 7, 3, 10);
		rope(t, 5, 2, 128);
		rope(t, 0, 2, 64);
		activations(t, 2051, 0);
		activations(t, 4096, 3);
		activations(t, 1, 0);
		activations(t, 0, 0);
		if (!all)
			continue;
		norm(t, 200, 2048, 0);
		norm(t, 5, 8192, 0);
		rope(t, 65, 9, 256);
		rope(t, 3, 4, 192);
		activations(t, 300000, 0);
	}
	optimizer(1, 0);
	optimizer(0, 0);
	optimizer(20011, 1);
	optimizer(40960, 0);
	return done();
}
