/*
 * The ops of layers with experts: routers and their losses against transformers (record_moe.py), ties and other cases by hand,
 * sorting by its definition, products against one expert at a time, and the whole layer's backward pass against central
 * differences of sums in double.
 */
#include "kernels/moe.h"
#include "libcommon/json.h"
#include "libcommon/pool.h"
#include "libcommon/rng.h"
#include "libcommon/xalloc.h"
#include "tests/lib/tap.h"

static const struct ops *K;

static float rnd(uint32_t what, long i)
{
	float p[2];

	rng_normal2(p, rng_key(5, RNG_TEST, what), (uint64_t)i, 0, 0);
	return p[0];
}

static double worst(const float *a, const float *b, long n)
{
	double d = 0, top = 1e-30;

	for (long i = 0; i < n; i++) {
		d = fmax(d, fabs((double)a[i] - (double)b[i]));
		top = fmax(top, fabs((double)b[i]));
	}
	return d / top;
}

/* -- against transformers --------------------------------------------------------------------- */

static long whole(const struct json_doc *d, const struct json *o, const char *key)
{
	struct err e = ERR_INIT;
	long v;

	if (json_int(d, json_get(o, key), key, &v, &e))
		die_err(&e);
	return v;
}

static float *numbers(const struct json_doc *d, const struct json *o, const char *key)
{
	const struct json *v = json_get(o, key);
	float *out = xcalloc(v->n, sizeof(float));
	struct err e = ERR_INIT;
	double x;

	for (size_t i = 0; i < v->n; i++) {
		if (json_real(d, &v->item[i], key, &x, &e))
			die_err(&e);
		out[i] = (float)x;
	}
	return out;
}

static void gradient(const char *name, const char *what, const struct routing *s, const float *z, const float *dweight,
		     const struct router_loss *own, const float *want)
{
	long rows = 6, E = s->experts;
	int *id = xcalloc((size_t)(rows * s->k), sizeof(int));
	float *w = xcalloc((size_t)(rows * s->k), 4), *p = xcalloc((size_t)(rows * E), 4), lse[6], *dz = xcalloc((size_t)(rows * E), 4);

	K->route(id, w, p, lse, z, rows, s, false);
	K->route_bwd(dz, dweight, id, w, p, lse, own, rows, s, DTYPE_F32);
	ok(worst(dz, want, rows * E) < 3e-6, "%s: gradient %s: %.2g", name, what, worst(dz, want, rows * E));
	free(id);
	free(w);
	free(p);
	free(dz);
}

/* E sum f P with f = count / T: the scale of transformers, which counts a token k times. */
static double aux_loss(float *dp, const struct routing *s, const int *id, const float *p, long rows)
{
	double loss = 0;

	for (long e = 0; e < s->experts; e++) {
		double count = 0, mean = 0;

		for (long i = 0; i < rows * s->k; i++)
			count += id[i] == e;
		for (long r = 0; r < rows; r++)
			mean += (double)p[r * s->experts + e] / (double)rows;
		loss += (double)s->experts * count / (double)rows * mean;
		dp[e] = (float)((double)s->experts * count / (double)rows / (double)rows);
	}
	return loss;
}

static void router(const struct json_doc *d, const struct json *v)
{
	const char *name = json_get(v, "name")->text;
	struct routing s = { whole(d, v, "experts"), whole(d, v, "k"), json_get(v, "norm")->type == JSON_TRUE };
	long rows = whole(d, v, "rows"), slots = rows * s.k;
	float *z = numbers(d, v, "z"), *want = numbers(d, v, "weights"), *ids = numbers(d, v, "ids"), *c = numbers(d, v, "c");
	float *w = xcalloc((size_t)slots, 4), *p = xcalloc((size_t)(rows * s.experts), 4), *dp = xcalloc((size_t)s.experts, 4);
	float *dz = numbers(d, v, "dz"), *dz_aux = numbers(d, v, "dz_aux"), *dz_z = numbers(d, v, "dz_z");
	float *none = xcalloc((size_t)slots, 4);
	int *id = xcalloc((size_t)slots, sizeof(int)), wrong = 0;
	double aux;
	struct err e = ERR_INIT;

	K->route(id, w, p, NULL, z, rows, &s, false);
	for (long i = 0; i < slots; i++)
		wrong += id[i] != (int)ids[i];
	ok(!wrong, "%s: the same experts in the same order", name);
	ok(worst(w, want, slots) < 5e-7, "%s: weights: %.2g", name, worst(w, want, slots));
	gradient(name, "through the weights", &s, z, c, NULL, dz);
	aux = aux_loss(dp, &s, id, p, rows);
	double theirs;
	if (json_real(d, json_get(v, "aux"), "aux", &theirs, &e))
		die_err(&e);
	is_num(aux / theirs, 1, 1e-6, "%s: auxiliary loss %g", name, theirs);
	gradient(name, "of the auxiliary loss", &s, z, none, &(struct router_loss){ dp, 0 }, dz_aux);
	gradient(name, "of the z loss", &s, z, none, &(struct router_loss){ NULL, 2.f / (float)rows }, dz_z);
	float *owned[] = { z, want, ids, c, w, p, dp, dz, dz_aux, dz_z, none };
	for (size_t i = 0; i < sizeof(owned) / sizeof(*owned); i++)
		free(owned[i]);
	free(id);
}

static void routers(void)
{
	struct json_doc d;
	struct err e = ERR_INIT;

	if (json_read(&d, "tests/data/moe.json", 0, &e))
		die_err(&e);
	for (size_t i = 0; i < d.root.n; i++)
		router(&d, &d.root.item[i]);
	json_release(&d);
}

/* -- by hand ------------------------------------------------------------------------------------ */

static void ties(void)
{
	struct routing s = { 6, 3, false };
	float z[2][6] = { { 1, 2, 2, 0, 2, 2 }, { 0, 0, 0, 0, 0, 0 } }, w[6], p[12], lse[2];
	int id[6];

	K->route(id, w, p, lse, z[0], 2, &s, false);
	ok(id[0] == 1 && id[1] == 2 && id[2] == 4, "of equal logits the lower experts, in order: %d %d %d", id[0], id[1], id[2]);
	ok(w[0] == w[1] && w[1] == w[2], "with equal weights");
	ok(id[3] == 0 && id[4] == 1 && id[5] == 2 && w[3] == 1 / 6.f, "of all equal the first");
	is_num(lse[1], log(6), 1e-7, "log-sum-exp");
	z[0][0] = 2;
	K->route(id, w, p, lse, z[0], 1, &s, false);
	ok(id[0] == 0 && id[1] == 1 && id[2] == 2, "one more that is equal, before them");
}

static void odd_logits(void)
{
	struct routing s = { 4, 2, true };
	float z[3][4] = { { 1, NAN, 2, 3 }, { INFINITY, 0, 1, 2 }, { -INFINITY, 1, -INFINITY, 0 } }, w[6], p[12], far[4] = { 0, 200, -150, -151 };
	int id[6], given[2] = { 2, 3 };

	K->route(id, w, p, NULL, z[0], 3, &s, false);
	ok(isnan(w[0]) && isnan(w[1]) && isnan(w[2]) && isnan(w[3]), "NaN or +inf among the logits make NaN of the weights");
	ok(id[0] != id[1] && id[0] >= 0 && id[0] < 4 && id[1] >= 0 && id[1] < 4, "and the experts are some");
	ok(id[4] == 1 && id[5] == 3 && fabsf(w[4] + w[5] - 1) < 1e-6f, "-inf is an expert that no one visits");
	K->route(given, w, p, NULL, far, 1, &s, true);
	ok(given[0] == 2 && given[1] == 3, "experts that are given stay");
	id[0] = -1;
	K->route(id, w, p, NULL, far, 1, &s, true);
	ok(id[0] == 1 && id[1] == 0, "but for a row that has none");
	K->route(given, w, p, NULL, far, 1, &s, true);
	is_num((double)w[0], 1 / (1 + exp(-1)), 1e-6, "and share the weight among them, however unlikely they are");
}

static void sorting(void)
{
	enum { ROWS = 57, E = 11, SLOTS = 4 };
	struct routing s = { E, SLOTS, false };
	float z[ROWS * E], w[ROWS * SLOTS], p[ROWS * E];
	int id[ROWS * SLOTS], from[ROWS * SLOTS], place[ROWS * SLOTS], bad = 0;
	long offset[E + 1];

	for (long i = 0; i < ROWS * E; i++)
		z[i] = i % E == 7 ? -9 : rnd(1, i);
	K->route(id, w, p, NULL, z, ROWS, &s, false);
	K->sort_slots(offset, from, place, id, ROWS, &s);
	ok(offset[0] == 0 && offset[E] == ROWS * SLOTS && offset[7] == offset[8], "an expert that no row visits has an empty range");
	for (long i = 0; i < ROWS * SLOTS; i++)
		bad += from[place[i]] != i / SLOTS || place[i] < offset[id[i]] || place[i] >= offset[id[i] + 1];
	for (long e = 0; e < E; e++)
		for (long i = offset[e] + 1; i < offset[e + 1]; i++)
			bad += from[i] <= from[i - 1];
	ok(!bad, "slots lie by expert, then by row");
}

/* -- the whole of it ---------------------------------------------------------------------------- */

enum { ROWS = 9, H = 6, I = 5, E = 7, SLOTS = 3 };

/* A layer's values in double: y = sum_s w_s o_s + sigmoid(g) shared, summed with c. */
struct layer_values { double x[ROWS * H], gate[E * I * H], up[E * I * H], down[E * H * I], router[E * H], c[ROWS * H]; bool norm; };

static double expert_out(const struct layer_values *v, long e, const double *x, const double *c)
{
	double sum = 0;

	for (long i = 0; i < I; i++) {
		double g = 0, u = 0, out = 0;

		for (long h = 0; h < H; h++) {
			g += v->gate[(e * I + i) * H + h] * x[h];
			u += v->up[(e * I + i) * H + h] * x[h];
			out += v->down[(e * H + h) * I + i] * c[h];
		}
		sum += g / (1 + exp(-g)) * u * out;
	}
	return sum;
}

static double layer_loss(const struct layer_values *v, const int *id)
{
	double sum = 0;

	for (long r = 0; r < ROWS; r++) {
		double z[E], all = 0, chosen = 0;

		for (long e = 0; e < E; e++) {
			z[e] = 0;
			for (long h = 0; h < H; h++)
				z[e] += v->router[e * H + h] * v->x[r * H + h];
			all += exp(z[e]);
		}
		for (long s = 0; s < SLOTS; s++)
			chosen += exp(z[id[r * SLOTS + s]]);
		for (long s = 0; s < SLOTS; s++) {
			long e = id[r * SLOTS + s];

			sum += exp(z[e]) / (v->norm ? chosen : all) * expert_out(v, e, v->x + r * H, v->c + r * H);
		}
	}
	return sum;
}

/* Central differences of n values. */
static double differs(const struct layer_values *v, double *x, const float *got, long n, const int *id)
{
	double bad = 0, top = 1e-30, h = 1e-5;

	for (long i = 0; i < n; i++) {
		double keep = x[i], a, b;

		x[i] = keep + h;
		a = layer_loss(v, id);
		x[i] = keep - h;
		b = layer_loss(v, id);
		x[i] = keep;
		bad = fmax(bad, fabs((a - b) / (2 * h) - (double)got[i]));
		top = fmax(top, fabs((a - b) / (2 * h)));
	}
	return bad / top;
}

struct grads { float x[ROWS * H], gate[E * I * H], up[E * I * H], down[E * H * I], router[E * H]; };

static void matrices(struct matrix *w, const float *rows, long n, long k, long chunks)
{
	for (long e = 0; e < E; e++) {
		K->matrix_init(w + e, DTYPE_F32, n, k, chunks, true);
		K->matrix_load(w + e, rows + e * n * k);
	}
}

static void narrow_all(float *to, const double *from, long n)
{
	for (long i = 0; i < n; i++)
		to[i] = (float)from[i];
}

struct forward { struct matrix gate[E], up[E], down[E], router; float x[ROWS * H], c[ROWS * H]; };

static void forward_init(struct forward *f, const struct layer_values *v)
{
	float w[E * I * H];

	narrow_all(w, v->gate, E * I * H);
	matrices(f->gate, w, I, H, 1);
	narrow_all(w, v->up, E * I * H);
	matrices(f->up, w, I, H, 1);
	narrow_all(w, v->down, E * H * I);
	matrices(f->down, w, H, I, I);
	narrow_all(w, v->router, E * H);
	K->matrix_init(&f->router, DTYPE_F32, E, H, 1, true);
	K->matrix_load(&f->router, w);
	narrow_all(f->x, v->x, ROWS * H);
	narrow_all(f->c, v->c, ROWS * H);
}

static void forward_release(struct forward *f)
{
	for (long e = 0; e < E; e++) {
		K->matrix_release(f->gate + e);
		K->matrix_release(f->up + e);
		K->matrix_release(f->down + e);
	}
	K->matrix_release(&f->router);
}

/* The layer as kernels/model/moe.c runs it; y and the gradients of sum(c y). */
static void run(float *y, struct grads *d, int *id, const struct forward *f, bool norm, bool given)
{
	struct routing s = { E, SLOTS, norm };
	float w[ROWS * SLOTS], p[ROWS * E], xs[ROWS * SLOTS * H], ds[ROWS * SLOTS * H], o[ROWS * SLOTS * H], dw[ROWS * SLOTS];
	float gate[ROWS * SLOTS * I], up[ROWS * SLOTS * I], act[ROWS * SLOTS * I], dact[ROWS * SLOTS * I], dgate[ROWS * SLOTS * I];
	float dz[ROWS * E];
	int from[ROWS * SLOTS], place[ROWS * SLOTS];
	long offset[E + 1];

	K->linear_fwd(p, DTYPE_F32, f->x, &f->router, NULL, ROWS);
	K->route(id, w, p, NULL, p, ROWS, &s, given);
	K->sort_slots(offset, from, place, id, ROWS, &s);
	K->embed_fwd(xs, f->x, from, ROWS * SLOTS, H, DTYPE_F32);
	K->grouped_fwd(gate, DTYPE_F32, xs, f->gate, offset, E);
	K->grouped_fwd(up, DTYPE_F32, xs, f->up, offset, E);
	K->swiglu_fwd(act, gate, up, ROWS * SLOTS * I, DTYPE_F32);
	K->grouped_fwd(o, DTYPE_F32, act, f->down, offset, E);
	K->combine(y, o, place, w, NULL, NULL, ROWS, SLOTS, H, DTYPE_F32);
	K->embed_fwd(ds, f->c, from, ROWS * SLOTS, H, DTYPE_F32);
	K->grouped_dx(dact, DTYPE_F32, ds, f->down, offset, E, false);
	K->weigh_bwd(dw, dact, act, place, w, ROWS, SLOTS, I, DTYPE_F32);
	memset(d, 0, sizeof(*d));
	K->grouped_dw(d->down, ds, act, offset, E, H, I, DTYPE_F32);
	K->swiglu_bwd(dgate, dact, dact, gate, up, ROWS * SLOTS * I, DTYPE_F32);
	K->grouped_dw(d->gate, dgate, xs, offset, E, I, H, DTYPE_F32);
	K->grouped_dw(d->up, dact, xs, offset, E, I, H, DTYPE_F32);
	K->grouped_dx(o, DTYPE_F32, dgate, f->gate, offset, E, false);
	K->grouped_dx(o, DTYPE_F32, dact, f->up, offset, E, true);
	K->unpermute(d->x, o, place, ROWS, SLOTS, H, DTYPE_F32);
	K->route_bwd(dz, dw, id, w, p, NULL, NULL, ROWS, &s, DTYPE_F32);
	K->linear_dw(d->router, NULL, dz, f->x, ROWS, E, H, DTYPE_F32);
	K->linear_dx(d->x, DTYPE_F32, dz, &f->router, ROWS, true);
}

static void start_values(struct layer_values *v, bool norm)
{
	struct { double *p; long n; } part[] = {
		{ v->x, ROWS * H }, { v->gate, E * I * H }, { v->up, E * I * H }, { v->down, E * H * I }, { v->router, E * H },
		{ v->c, ROWS * H },
	};

	for (size_t i = 0; i < sizeof(part) / sizeof(*part); i++)
		for (long j = 0; j < part[i].n; j++)
			part[i].p[j] = (double)rnd((uint32_t)(10 + i), j);
	v->norm = norm;
	/* No row wants expert 3: the first element of x is positive, and it dislikes that. */
	for (long r = 0; r < ROWS; r++)
		v->x[r * H] = 1 + fabs(v->x[r * H]);
	v->router[3 * H] = -50;
}

/* given: the experts are others than the routers' own choice. */
static void differences(bool norm, bool given)
{
	static struct layer_values v;
	static struct grads d;
	static struct forward f;
	const char *how = given ? "experts that were given" : norm ? "weights of sum 1" : "weights as they are";
	float y[ROWS * H], none[E * I * H] = { 0 };
	int id[ROWS * SLOTS];
	double sum = 0;

	start_values(&v, norm);
	forward_init(&f, &v);
	for (long i = 0; i < ROWS * SLOTS; i++) {
		id[i] = (int)((i / SLOTS + i % SLOTS * 2) % (E - 1));
		id[i] += id[i] >= 3; /* which has no rows here either */
	}
	run(y, &d, id, &f, norm, given);
	for (long i = 0; i < ROWS * H; i++)
		sum += v.c[i] * (double)y[i];
	is_num(sum / layer_loss(&v, id), 1, 2e-5, "%s: value of a layer", how);
	ok(differs(&v, v.x, d.x, ROWS * H, id) < 1e-4, "%s: d x", how);
	ok(differs(&v, v.router, d.router, E * H, id) < 1e-4, "%s: d router", how);
	ok(differs(&v, v.gate, d.gate, E * I * H, id) < 1e-4, "%s: d gate_proj", how);
	ok(differs(&v, v.up, d.up, E * I * H, id) < 1e-4, "%s: d up_proj", how);
	ok(differs(&v, v.down, d.down, E * H * I, id) < 1e-4, "%s: d down_proj", how);
	ok(!memcmp(d.gate + 3 * I * H, none, I * H * 4) && !memcmp(d.up + 3 * I * H, none, I * H * 4) &&
	   !memcmp(d.down + 3 * I * H, none, I * H * 4), "%s: an expert without rows has gradients of zeros", how);
	forward_release(&f);
}

/* Each expert's rows as a product of their own, on more threads than the whole has parts; experts without rows, no rows at all. */
static void grouped(enum dtype t)
{
	enum { N = 70, KK = 50, COUNT = 5, ALL = 45 };
	static const long offset[COUNT + 1] = { 0, 1, 1, 34, 44, 45 }, none[COUNT + 1] = { 0 };
	static float w32[COUNT * N * KK], x32[ALL * (N > KK ? N : KK)], a[ALL * N], b[ALL * N];
	uint16_t w16[COUNT * N * KK], x16[ALL * N];
	const void *rows = t == DTYPE_F32 ? (const void *)w32 : w16, *x = t == DTYPE_F32 ? (const void *)x32 : x16;
	long size = (long)dtype_size(t);
	struct matrix m[COUNT];

	for (long i = 0; i < COUNT * N * KK; i++)
		w32[i] = rnd(40, i);
	for (long i = 0; i < ALL * N; i++)
		x32[i] = rnd(41, i);
	dtype_convert(w16, DTYPE_BF16, w32, DTYPE_F32, COUNT * N * KK);
	dtype_convert(x16, DTYPE_BF16, x32, DTYPE_F32, ALL * N);
	for (long e = 0; e < COUNT; e++) {
		K->matrix_init(m + e, t, N, KK, 5, true);
		K->matrix_load(m + e, (const char *)rows + e * N * KK * size);
	}
	pool_start(2);
	K->grouped_fwd(a, DTYPE_F32, x, m, offset, COUNT);
	for (long e = 0; e < COUNT; e++)
		K->linear_fwd(b + offset[e] * N, DTYPE_F32, (const char *)x + offset[e] * KK * size, m + e, NULL, offset[e + 1] - offset[e]);
	ok(!memcmp(a, b, sizeof(a)), "%s: a grouped product has the bits of those of the experts", dtype_name(t));
	for (int add = 0; add < 2; add++) {
		K->grouped_dx(a, DTYPE_F32, x, m, offset, COUNT, add);
		for (long e = 0; e < COUNT; e++)
			K->linear_dx(b + offset[e] * KK, DTYPE_F32, (const char *)x + offset[e] * N * size, m + e,
				     offset[e + 1] - offset[e], add);
		ok(!memcmp(a, b, ALL * KK * sizeof(*a)), "%s: and back%s", dtype_name(t), add ? ", added" : "");
	}
	K->grouped_fwd(a, DTYPE_F32, x, m, none, COUNT);
	K->grouped_fwd(a, DTYPE_F32, x, m, none, 0);
	ok(!memcmp(a, b, ALL * KK * sizeof(*a)), "%s: no rows at all write nothing", dtype_name(t));
	pool_start(1);
	for (long e = 0; e < COUNT; e++)
		K->matrix_release(m + e);
}

static void threads(void)
{
	static struct layer_values v;
	static struct grads a, b;
	static struct forward f;
	float ya[ROWS * H], yb[ROWS * H];
	int id[ROWS * SLOTS];

	start_values(&v, true);
	forward_init(&f, &v);
	pool_start(1);
	run(ya, &a, id, &f, true, false);
	pool_start(2);
	run(yb, &b, id, &f, true, false);
	ok(!memcmp(ya, yb, sizeof(ya)) && !memcmp(&a, &b, sizeof(a)), "one thread, two threads: the same bits");
	pool_start(1);
	forward_release(&f);
}

/* The shared expert is added last, in fp32. */
static void shared(void)
{
	enum { N = 21 };
	float o[2 * N], y[N], x[N], gate = 0.3f, w[2] = { 0.7f, 0.2f };
	uint16_t low[N];
	int place[2] = { 1, 0 }, bad = 0;

	for (long i = 0; i < 2 * N; i++)
		o[i] = rnd(30, i);
	for (long i = 0; i < N; i++)
		x[i] = rnd(31, i);
	K->combine(y, o, place, w, &gate, x, 1, 2, N, DTYPE_F32);
	K->combine(low, o, place, w, &gate, x, 1, 2, N, DTYPE_BF16);
	for (long i = 0; i < N; i++) {
		float a = w[0] * o[N + i], b = w[1] * o[i], c = gate * x[i], want = a + b;

		want = want + c;
		bad += y[i] != want || low[i] != f32_to_bf16(want);
	}
	ok(!bad, "combination: slot after slot, then the shared expert, rounded once");
}

int main(void)
{
	struct err e = ERR_INIT;

	K = ops_find("cpu", getenv("TEST_ISA"), &e);
	if (!K)
		die_err(&e);
	routers();
	ties();
	odd_logits();
	sorting();
	differences(true, false);
	differences(false, false);
	differences(true, true);
	grouped(DTYPE_F32);
	grouped(DTYPE_BF16);
	threads();
	shared();
	return done();
}
