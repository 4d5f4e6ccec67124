/*
 * Layers with experts in the CUDA backend, but for products: against their formulas in double and against the CPU's, and the same bits
 * for a row alone and in company.
 */
#include "kernels/moe.h"
#include "tests/kernels/cuda.h"

#include <math.h>
#include <string.h>

static const char *name(enum dtype t)
{
	return t == DTYPE_BF16 ? "bf16" : "f32";
}

static double *doubles(long n)
{
	return xcalloc((size_t)n + 1, sizeof(double));
}

/* Ints of the backend. */
static int *ints(const int *from, long n)
{
	int *p = cuda->alloc((size_t)n * sizeof(int), "a test's ints");

	if (from)
		cuda->put(p, from, (size_t)n * sizeof(int));
	return p;
}

/* -- routing --------------------------------------------------------------------------------------------------- */

struct routed {
	struct array z, weight, p, lse;
	int *id, *host;
};

static struct routed routed_new(long rows, const struct routing *s)
{
	struct routed o = { .z = array_new(rows * s->experts, DTYPE_F32, 1, 2), .weight = array_new(rows * s->k, DTYPE_F32, 2, 0),
			    .p = array_new(rows * s->experts, DTYPE_F32, 3, 0), .lse = array_new(rows, DTYPE_F32, 4, 0),
			    .id = ints(NULL, rows * s->k), .host = xcalloc((size_t)(rows * s->k) + 1, sizeof(int)) };

	/* Ties: the lower expert first. */
	for (long i = 0; i < o.z.n; i++)
		if (i % 3 == 0)
			o.z.x[i] = round(o.z.x[i]);
	array_put(&o.z);
	return o;
}

static void routed_free(struct routed *o)
{
	array_free(&o->z);
	array_free(&o->weight);
	array_free(&o->p);
	array_free(&o->lse);
	cuda->release(o->id);
	free(o->host);
}

static void route_want(double *weight, double *p, double *lse, const double *z, const int *id, long rows, const struct routing *s)
{
	for (long r = 0; r < rows; r++, z += s->experts, id += s->k) {
		double m = -INFINITY, sum = 0, part = 0;

		for (long e = 0; e < s->experts; e++)
			m = fmax(m, z[e]);
		for (long e = 0; e < s->experts; e++)
			sum += exp(z[e] - m);
		for (long e = 0; e < s->experts; e++)
			p[r * s->experts + e] = exp(z[e] - m) / sum;
		for (long i = 0; i < s->k; i++)
			part += exp(z[id[i]] - m);
		for (long i = 0; i < s->k; i++)
			weight[r * s->k + i] = exp(z[id[i]] - m) / (s->norm ? part : sum);
		lse[r] = m + log(sum);
	}
}

static bool route_alone(struct routed *o, long rows, const struct routing *s)
{
	struct array w = array_new(s->k, DTYPE_F32, 0, 0), p = array_new(s->experts, DTYPE_F32, 0, 0);
	int *id = ints(NULL, s->k), *host = xcalloc((size_t)s->k, sizeof(int));
	bool same = true;

	for (long r = 0; r < rows; r++) {
		cuda->route(id, w.dev, p.dev, NULL, (float *)o->z.dev + r * s->experts, 1, s, false);
		array_get(&w);
		array_get(&p);
		cuda->get(host, id, (size_t)s->k * sizeof(int));
		same = same && !memcmp(host, o->host + r * s->k, (size_t)s->k * sizeof(int)) &&
		       !memcmp(w.host, (float *)o->weight.host + r * s->k, (size_t)s->k * 4) &&
		       !memcmp(p.host, (float *)o->p.host + r * s->experts, (size_t)s->experts * 4);
	}
	array_free(&w);
	array_free(&p);
	cuda->release(id);
	free(host);
	return same;
}

static void routing(long rows, long experts, long k, bool norm)
{
	struct routing s = { experts, k, norm };
	struct routed o = routed_new(rows, &s);
	double *weight = doubles(rows * k), *p = doubles(rows * experts), *lse = doubles(rows);
	int *id = xcalloc((size_t)(rows * k) + 1, sizeof(int));
	float *w = xcalloc((size_t)(rows * k) + 1, 4), *pc = xcalloc((size_t)(rows * experts) + 1, 4);

	cuda->route(o.id, o.weight.dev, o.p.dev, o.lse.dev, o.z.dev, rows, &s, false);
	cpu->route(id, w, pc, NULL, o.z.host, rows, &s, false);
	cuda->get(o.host, o.id, (size_t)(rows * k) * sizeof(int));
	ok(!memcmp(id, o.host, (size_t)(rows * k) * sizeof(int)), "route: %ld rows, %ld of %ld%s: experts as on the CPU", rows, k, experts,
	   norm ? ", norm" : "");
	route_want(weight, p, lse, o.z.x, id, rows, &s);
	near(&o.weight, weight, "weights");
	near(&o.p, p, "p");
	near(&o.lse, lse, "lse");
	ok(route_alone(&o, rows, &s), "each row has the same bits alone");
	/* Experts that are given, but for every second row; p over z. */
	for (long i = 0; i < rows * k; i++)
		id[i] = i / k % 2 ? (i % k ? 0 : -1) : (int)((i % k + i / k) % experts);
	cuda->put(o.id, id, (size_t)(rows * k) * sizeof(int));
	cpu->route(id, w, pc, NULL, o.z.host, rows, &s, true);
	cuda->route(o.id, o.weight.dev, o.z.dev, NULL, o.z.dev, rows, &s, true);
	cuda->get(o.host, o.id, (size_t)(rows * k) * sizeof(int));
	route_want(weight, p, lse, o.z.x, id, rows, &s);
	near(&o.weight, weight, "weights of given experts");
	near(&o.z, p, "p in z's place");
	ok(!memcmp(id, o.host, (size_t)(rows * k) * sizeof(int)), "those that are given stay");
	routed_free(&o);
	free(weight);
	free(p);
	free(lse);
	free(id);
	free(w);
	free(pc);
}

static void odd_routes(void)
{
	struct routing s = { 40, 3, true };
	struct routed o = routed_new(3, &s);
	bool nan = true, apart = true;

	o.z.x[5] = (double)NAN;
	o.z.x[2 * 40 + 39] = (double)INFINITY;
	array_put(&o.z);
	cuda->route(o.id, o.weight.dev, o.p.dev, o.lse.dev, o.z.dev, 3, &s, false);
	array_get(&o.weight);
	cuda->get(o.host, o.id, 9 * sizeof(int));
	for (int i = 0; i < 9; i++) {
		nan = nan && (i / 3 == 1) == isfinite(o.weight.x[i]);
		apart = apart && o.host[i] >= 0 && o.host[i] < 40 && (i % 3 == 0 || o.host[i] != o.host[i - 1]);
	}
	ok(nan, "rows with NaN or +inf have NaN weights, the one between them has not");
	ok(apart, "and experts all the same");
	routed_free(&o);
}

static void route_back(long rows, long experts, long k, bool norm, bool own, enum dtype t)
{
	struct routing s = { experts, k, norm };
	struct routed o = routed_new(rows, &s);
	struct array dw = array_new(rows * k, DTYPE_F32, 5, 1), dp = array_new(experts, DTYPE_F32, 6, 0.3), dz = array_new(rows * experts, t, 7, 0);
	struct router_loss loss = { dp.dev, 0.01f };
	double *want = doubles(rows * experts);

	cuda->route(o.id, o.weight.dev, o.p.dev, o.lse.dev, o.z.dev, rows, &s, false);
	cuda->get(o.host, o.id, (size_t)(rows * k) * sizeof(int));
	array_get(&o.weight);
	array_get(&o.p);
	array_get(&o.lse);
	for (long r = 0; r < rows; r++) {
		double *d = want + r * experts, *p = o.p.x + r * experts, *w = o.weight.x + r * k, sum = 0, all = 0;

		for (long i = 0; i < k; i++)
			sum += dw.x[r * k + i] * w[i];
		for (long e = 0; e < experts; e++)
			all += p[e] * dp.x[e];
		for (long e = 0; e < experts; e++)
			d[e] = (norm ? 0 : -p[e] * sum) + (own ? p[e] * (dp.x[e] - all + (double)loss.z_scale * o.lse.x[r]) : 0);
		for (long i = 0; i < k; i++)
			d[o.host[r * k + i]] += w[i] * (dw.x[r * k + i] - (norm ? sum : 0));
	}
	cuda->route_bwd(dz.dev, dw.dev, o.id, o.weight.dev, o.p.dev, o.lse.dev, own ? &loss : NULL, rows, &s, t);
	near(&dz, want, "route_bwd: %ld rows, %ld of %ld%s%s, %s", rows, k, experts, norm ? ", norm" : "", own ? ", own losses" : "", name(t));
	routed_free(&o);
	array_free(&dw);
	array_free(&dp);
	array_free(&dz);
	free(want);
}

/* -- slots ----------------------------------------------------------------------------------------------------- */

/* k experts of each row, none twice; expert 1 has none. */
static int *some_ids(long rows, long experts, long k)
{
	int *id = xcalloc((size_t)(rows * k) + 1, sizeof(int));

	for (long i = 0; i < rows * k; i++) {
		id[i] = (int)((i / k * 31 + i % k * 3 + i / k / 5) % experts);
		if (id[i] == 1 && experts > 3 * k)
			id[i] = (int)((id[i] + 1) % experts);
	}
	return id;
}

static void sorting(long rows, long experts, long k)
{
	struct routing s = { experts, k, false };
	int *id = some_ids(rows, experts, k), *dev = ints(id, rows * k), *from = ints(NULL, rows * k), *place = ints(NULL, rows * k);
	size_t n = (size_t)(rows * k), bytes = n * sizeof(int);
	int *a = xcalloc(n + 1, sizeof(int)), *b = xcalloc(n + 1, sizeof(int)), *c = xcalloc(n + 1, sizeof(int)), *d = xcalloc(n + 1, sizeof(int));
	long *one = xcalloc((size_t)experts + 1, sizeof(long)), *two = xcalloc((size_t)experts + 1, sizeof(long));

	cuda->sort_slots(one, from, place, dev, rows, &s);
	cpu->sort_slots(two, a, b, id, rows, &s);
	cuda->get(c, from, bytes);
	cuda->get(d, place, bytes);
	ok(!memcmp(one, two, (size_t)(experts + 1) * sizeof(long)) && !memcmp(a, c, bytes) && !memcmp(b, d, bytes),
	   "sort_slots: %ld rows, %ld of %ld", rows, k, experts);
	cuda->release(dev);
	cuda->release(from);
	cuda->release(place);
	free(id);
	free(a);
	free(b);
	free(c);
	free(d);
	free(one);
	free(two);
}

/* Places that turn the slots round. */
static int *turned(long slots)
{
	int *place = xcalloc((size_t)slots + 1, sizeof(int));

	for (long i = 0; i < slots; i++)
		place[i] = (int)(slots - 1 - i);
	return place;
}

static void combining(long rows, long k, long cols, bool shared, enum dtype t)
{
	struct array o = array_new(rows * k * cols, DTYPE_F32, 8, 1), w = array_new(rows * k, DTYPE_F32, 9, 1);
	struct array gate = array_new(rows, DTYPE_F32, 10, 1), sh = array_new(rows * cols, DTYPE_F32, 11, 1), y = array_new(rows * cols, t, 12, 0);
	int *place = turned(rows * k), *dev = ints(place, rows * k);
	double *want = doubles(rows * cols), *sum = doubles(rows * cols);
	bool same = true;

	for (long i = 0; i < rows * cols; i++) {
		long r = i / cols, c = i % cols;

		for (long s = 0; s < k; s++) {
			want[i] += w.x[r * k + s] * o.x[place[r * k + s] * cols + c];
			sum[i] += o.x[place[r * k + s] * cols + c];
		}
		want[i] += shared ? gate.x[r] * sh.x[i] : 0;
	}
	cuda->combine(y.dev, o.dev, dev, w.dev, shared ? gate.dev : NULL, shared ? sh.dev : NULL, rows, k, cols, t);
	near(&y, want, "combine: %ld rows of %ld, %ld experts%s, %s", rows, cols, k, shared ? " and a shared one" : "", name(t));
	for (long r = 0; r < rows; r++) {
		struct array one = array_new(cols, t, 0, 0);

		cuda->combine(one.dev, o.dev, dev + r * k, (float *)w.dev + r * k, shared ? (float *)gate.dev + r : NULL,
			      shared ? (float *)sh.dev + r * cols : NULL, 1, k, cols, t);
		array_get(&one);
		same = same && !memcmp(one.host, (char *)y.host + (size_t)(r * cols) * dtype_size(t), (size_t)cols * dtype_size(t));
		array_free(&one);
	}
	ok(same, "each row has the same bits alone");
	cuda->unpermute(y.dev, o.dev, dev, rows, k, cols, t);
	near(&y, sum, "unpermute");
	array_free(&o);
	array_free(&w);
	array_free(&gate);
	array_free(&sh);
	array_free(&y);
	cuda->release(dev);
	free(place);
	free(want);
	free(sum);
}

static void weighing(long rows, long k, long cols, bool placed, enum dtype t)
{
	long n = rows * k;
	struct array d = array_new(n * cols, t, 13, 1), a = array_new(n * cols, t, 14, 1), w = array_new(n, DTYPE_F32, 15, 1);
	struct array dw = array_new(n, DTYPE_F32, 16, 0);
	int *place = turned(n), *dev = ints(place, n);
	double *dot = doubles(n), *wd = doubles(n * cols), *wa = doubles(n * cols);

	for (long i = 0; i < n; i++)
		for (long c = 0; c < cols; c++) {
			long at = (placed ? place[i] : i) * cols + c;

			dot[i] += d.x[at] * a.x[at];
			wd[at] = w.x[i] * d.x[at];
			wa[at] = w.x[i] * a.x[at];
		}
	cuda->weigh_bwd(dw.dev, d.dev, a.dev, placed ? dev : NULL, w.dev, rows, k, cols, t);
	near(&dw, dot, "weigh_bwd: %ld slots of %ld%s, %s", n, cols, placed ? ", placed" : "", name(t));
	near(&d, wd, "dact times the weight");
	near(&a, wa, "act times the weight");
	array_free(&d);
	array_free(&a);
	array_free(&w);
	array_free(&dw);
	cuda->release(dev);
	free(place);
	free(dot);
	free(wd);
	free(wa);
}

static void gates(long n, enum dtype t)
{
	struct array x = array_new(n, DTYPE_F32, 17, 3), y = array_new(n, DTYPE_F32, 18, 0), dy = array_new(n, DTYPE_F32, 19, 1);
	struct array dx = array_new(n, t, 20, 0);
	double *want = doubles(n), *back = doubles(n);

	for (long i = 0; i < n; i++) {
		want[i] = 1 / (1 + exp(-x.x[i]));
		back[i] = dy.x[i] * want[i] * (1 - want[i]);
	}
	cuda->sigmoid_fwd(y.dev, x.dev, n);
	near(&y, want, "sigmoid_fwd of %ld", n);
	cuda->sigmoid_bwd(dx.dev, dy.dev, y.dev, n, t);
	near(&dx, back, "sigmoid_bwd, %s", name(t));
	array_free(&x);
	array_free(&y);
	array_free(&dy);
	array_free(&dx);
	free(want);
	free(back);
}

int main(void)
{
	static const struct { long rows, experts, k; } shape[] = { { 1, 1, 1 }, { 3, 2, 2 }, { 9, 8, 2 }, { 17, 40, 40 }, { 21, 128, 8 },
								   { 5, 300, 33 }, { 0, 8, 2 } };

	cuda_start();
	for (size_t i = 0; i < sizeof(shape) / sizeof(*shape); i++)
		for (int norm = 0; norm < 2; norm++) {
			routing(shape[i].rows, shape[i].experts, shape[i].k, norm);
			route_back(shape[i].rows, shape[i].experts, shape[i].k, norm, i % 2, norm ? DTYPE_BF16 : DTYPE_F32);
			route_back(shape[i].rows, shape[i].experts, shape[i].k, norm, i % 2 == 0, norm ? DTYPE_F32 : DTYPE_BF16);
		}
	odd_routes();
	sorting(0, 8, 2);
	sorting(1, 8, 3);
	sorting(128, 16, 2);
	sorting(333, 61, 4);
	sorting(1000, 300, 8);
	for (int t = 0; t < 2; t++) {
		enum dtype type = t ? DTYPE_BF16 : DTYPE_F32;

		combining(3, 2, 64, false, type);
		combining(7, 3, 1, true, type);
		combining(5, 8, 2049, true, type);
		combining(2, 1, 4096, false, type);
		combining(0, 2, 8, false, type);
		weighing(5, 2, 63, true, type);
		weighing(3, 4, 2048, false, type);
		weighing(4, 1, 1, true, type);
		gates(1, type);
		gates(777, type);
		gates(0, type);
	}
	return done();
}
