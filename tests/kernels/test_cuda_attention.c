/*
 * Attention of the CUDA backend: against the formulas in double, which round where the kernels do (weights, p and ds to bf16), and bit for
 * bit against itself: a row alone, in any packing, in any piece, from pages, in any company.
 */
#include "tests/kernels/cuda.h"

#include "kernels/attention.h"

enum { MOST = 12 };

/* Packed sequences of one shape, all that goes in, and what the formulas say. */
struct trial {
	struct attention_shape s;
	enum dtype t;
	long n, len[MOST], first[MOST + 1];
	struct array q, k, v, dout, out, lse;
	char name[100];
};

static struct trial trial(enum dtype t, long heads, long kv_heads, long d, const long *len, long n)
{
	struct trial c = { .s = { heads, kv_heads, d, (float)(1 / sqrt((double)d)) }, .t = t, .n = n };
	long rows = 0;

	for (long i = 0; i < n; i++) {
		c.len[i] = len[i];
		c.first[i] = rows;
		rows += len[i];
	}
	c.first[n] = rows;
	c.q = array_new(rows * heads * d, t, 1, 1);
	c.k = array_new(rows * kv_heads * d, t, 2, 1);
	c.v = array_new(rows * kv_heads * d, t, 3, 1);
	c.dout = array_new(rows * heads * d, t, 4, 1);
	c.out = array_new(rows * heads * d, t, 5, 0);
	c.lse = array_new(rows * heads, DTYPE_F32, 6, 0);
	snprintf(c.name, sizeof(c.name), "%s, %ld/%ld heads of %ld, %ld rows of %ld", t == DTYPE_BF16 ? "bf16" : "f32", heads, kv_heads, d, rows,
		 n);
	return c;
}

static void trial_free(struct trial *c)
{
	array_free(&c->q);
	array_free(&c->k);
	array_free(&c->v);
	array_free(&c->dout);
	array_free(&c->out);
	array_free(&c->lse);
}

/*
 * Gradients by their type's tolerance and the kernel's, whichever is wider; of a row that sees one key dq is what rounding leaves of
 * nothing, so the largest value counts as a hundredth at least.
 */
static void near_gradient(struct array *got, const double *want, enum dtype t, const char *what)
{
	double top = 0, d;

	array_get(got);
	for (long i = 0; i < got->n; i++)
		top = fmax(top, fabs(want[i]));
	d = distance(got, want) * fmin(1, top / 0.01);
	ok(d <= tolerance(t), "%s", what);
	if (!(d <= tolerance(t)))
		printf("# off by %g\n", d);
}

static double dot(const double *a, const double *b, long n)
{
	double s = 0;

	for (long i = 0; i < n; i++)
		s += a[i] * b[i];
	return s;
}

/* out and lse of one row of one head at position p of the sequence that begins at row `first`, split by split, tile by tile */
static void formula_row(const struct trial *c, double *out, double *lse, double *s, long first, long p, long h)
{
	long d = c->s.head_dim, g = c->s.heads / c->s.kv_heads, row = ((first + p) * c->s.heads + h) * d;
	double all_m = -INFINITY, all_l = 0, o[ATTENTION_HEAD_DIM];

	memset(out + row, 0, (size_t)d * sizeof(double));
	for (long j = 0; j <= p; j++)
		s[j] = c->s.scale * dot(c->q.x + row, c->k.x + ((first + j) * c->s.kv_heads + h / g) * d, d);
	for (long split = 0; split <= p; split += ATTENTION_SPLIT) {
		double m = -INFINITY, l = 0, top;

		memset(o, 0, sizeof(o));
		for (long at = split; at <= p && at < split + ATTENTION_SPLIT; at += ATTENTION_TILE) {
			double was = m;

			for (long j = at; j <= p && j < at + ATTENTION_TILE; j++)
				m = fmax(m, s[j]);
			l *= exp(was - m);
			for (long e = 0; e < d; e++)
				o[e] *= exp(was - m);
			for (long j = at; j <= p && j < at + ATTENTION_TILE; j++) {
				double w = exp(s[j] - m), low = as_type(w, c->t);

				l += w;
				for (long e = 0; e < d; e++)
					o[e] += low * c->v.x[((first + j) * c->s.kv_heads + h / g) * d + e];
			}
		}
		top = fmax(all_m, m);
		for (long e = 0; e < d; e++)
			out[row + e] = out[row + e] * exp(all_m - top) + o[e] * exp(m - top);
		all_l = all_l * exp(all_m - top) + l * exp(m - top);
		all_m = top;
	}
	for (long e = 0; e < d; e++)
		out[row + e] /= all_l;
	lse[(first + p) * c->s.heads + h] = all_m + log(all_l);
}

/* What a row of a head adds to the gradients, from the kernel's own out and lse. */
static void formula_gradient(const struct trial *c, double *dq, double *dk, double *dv, long first, long p, long h)
{
	long d = c->s.head_dim, g = c->s.heads / c->s.kv_heads, row = ((first + p) * c->s.heads + h) * d;
	double delta = dot(c->dout.x + row, c->out.x + row, d), lse = c->lse.x[(first + p) * c->s.heads + h];

	for (long j = 0; j <= p; j++) {
		long key = ((first + j) * c->s.kv_heads + h / g) * d;
		double w = exp(c->s.scale * dot(c->q.x + row, c->k.x + key, d) - lse);
		double ds = as_type(w * (dot(c->dout.x + row, c->v.x + key, d) - delta), c->t) * c->s.scale;

		w = as_type(w, c->t);
		for (long e = 0; e < d; e++) {
			dq[row + e] += ds * c->k.x[key + e];
			dk[key + e] += ds * c->q.x[row + e];
			dv[key + e] += w * c->dout.x[row + e];
		}
	}
}

static void whole_pieces(const struct trial *c, struct attention_piece *p)
{
	for (long i = 0; i < c->n; i++)
		p[i] = (struct attention_piece){ c->first[i], c->len[i], c->first[i], c->len[i] };
}

static const void *at(const struct array *a, long row, long width)
{
	return (const char *)a->dev + (size_t)(row * width) * dtype_size(a->t);
}

static bool same(const struct trial *c, const struct array *got, const struct array *want, long row, long n)
{
	size_t bytes = (size_t)(want->n / c->first[c->n]) * dtype_size(want->t);

	return !memcmp((const char *)got->host + (size_t)row * bytes, (const char *)want->host + (size_t)row * bytes, (size_t)n * bytes);
}

static void forward(struct trial *c)
{
	struct attention_piece piece[MOST];
	double *want = xcalloc((size_t)c->q.n + 1, sizeof(double)), *lse = xcalloc((size_t)c->lse.n + 1, sizeof(double));
	double *s = xcalloc((size_t)c->first[c->n] + 1, sizeof(double));

	whole_pieces(c, piece);
	cuda->attention_fwd(c->out.dev, c->lse.dev, c->q.dev, c->k.dev, c->v.dev, piece, c->n, &c->s, c->t);
	for (long i = 0; i < c->n; i++)
		for (long p = 0; p < c->len[i]; p++)
			for (long h = 0; h < c->s.heads; h++)
				formula_row(c, want, lse, s, c->first[i], p, h);
	near(&c->out, want, "attention_fwd, %s", c->name);
	near(&c->lse, lse, "its lse");
	free(want);
	free(lse);
	free(s);
}

/* Alone, and in pieces of `step` rows that share their keys, last piece first; lse is not asked for. */
static void packings(const struct trial *c, long step)
{
	long q = c->s.heads * c->s.head_dim, k = c->s.kv_heads * c->s.head_dim, n = 0;
	struct array again = array_new(c->out.n, c->t, 7, 0);
	struct attention_piece *piece = xcalloc((size_t)(c->first[c->n] / step + c->n + 1), sizeof(*piece));

	for (long i = 0; i < c->n; i++)
		cuda->attention_fwd((void *)(uintptr_t)at(&again, c->first[i], q), NULL, at(&c->q, c->first[i], q), at(&c->k, c->first[i], k),
				    at(&c->v, c->first[i], k), &(struct attention_piece){ 0, c->len[i], 0, c->len[i] }, 1, &c->s, c->t);
	array_get(&again);
	ok(same(c, &again, &c->out, 0, c->first[c->n]), "the same bits alone");
	cuda->zero(again.dev, (size_t)again.n * dtype_size(c->t));
	for (long i = 0; i < c->n; i++)
		for (long end = c->len[i], rows; end > 0; end -= rows) {
			rows = end < step ? end : step;
			piece[n++] = (struct attention_piece){ c->first[i] + end - rows, rows, c->first[i], end };
		}
	cuda->attention_fwd(again.dev, NULL, c->q.dev, c->k.dev, c->v.dev, piece, n, &c->s, c->t);
	array_get(&again);
	ok(same(c, &again, &c->out, 0, c->first[c->n]), "the same bits in pieces of %ld", step);
	array_free(&again);
	free(piece);
}

/* Pages of all sequences, NaN where nothing is put, neighbours in nothing; and the place of every row. */
struct cache {
	void *memory, **page;
	struct kv_row *row;
};

static struct cache cache_new(const struct trial *c)
{
	size_t bytes = cuda->kv_page_bytes(&c->s, c->t);
	long pages = 0, first = 0;
	struct cache m;
	char *nan;

	for (long i = 0; i < c->n; i++)
		pages += (c->len[i] + 63) / 64;
	m.memory = cuda->alloc((size_t)pages * bytes, "pages");
	nan = xmalloc((size_t)pages * bytes + 1);
	memset(nan, 0xff, (size_t)pages * bytes);
	cuda->put(m.memory, nan, (size_t)pages * bytes);
	free(nan);
	m.page = xcalloc((size_t)pages + 1, sizeof(void *));
	m.row = xcalloc((size_t)c->first[c->n] + 1, sizeof(*m.row));
	for (long i = 0; i < pages; i++)
		m.page[i] = (char *)m.memory + (size_t)(pages - 1 - i) * bytes;
	for (long i = 0; i < c->n; i++) {
		for (long p = 0; p < c->len[i]; p++)
			m.row[c->first[i] + p] = (struct kv_row){ m.page + first, p };
		first += (c->len[i] + 63) / 64;
	}
	return m;
}

static void cache_free(struct cache *m)
{
	cuda->release(m->memory);
	free(m->page);
	free(m->row);
}

/* Sequence after sequence, `step` rows put and then asked at a time. */
static void in_steps(const struct trial *c, struct array *out, long step)
{
	long q = c->s.heads * c->s.head_dim, k = c->s.kv_heads * c->s.head_dim;
	struct cache m = cache_new(c);

	cuda->zero(out->dev, (size_t)out->n * dtype_size(c->t));
	for (long i = 0; i < c->n; i++)
		for (long r = c->first[i], n; r < c->first[i + 1]; r += n) {
			n = c->first[i + 1] - r < step ? c->first[i + 1] - r : step;
			cuda->kv_put(m.row + r, at(&c->k, r, k), at(&c->v, r, k), n, &c->s, c->t);
			cuda->attention_cached((void *)(uintptr_t)at(out, r, q), at(&c->q, r, q), m.row + r, n, &c->s, c->t);
		}
	array_get(out);
	cache_free(&m);
}

/* The last rows of all sequences in one batch, in another order, as a decoder has them; and all rows at once. */
static void from_pages(const struct trial *c, long step)
{
	long width = c->s.heads * c->s.head_dim;
	size_t q = (size_t)width * dtype_size(c->t);
	struct array again = array_new(c->out.n, c->t, 8, 0), in = array_new(c->n * width, c->t, 9, 0);
	struct cache m = cache_new(c);
	struct kv_row row[MOST];
	bool is = true;

	cuda->kv_put(m.row, c->k.dev, c->v.dev, c->first[c->n], &c->s, c->t);
	cuda->attention_cached(again.dev, c->q.dev, m.row, c->first[c->n], &c->s, c->t);
	array_get(&again);
	ok(same(c, &again, &c->out, 0, c->first[c->n]), "the same bits from pages");
	for (long i = 0; i < c->n; i++) {
		long last = c->first[c->n - i] - 1;

		row[i] = m.row[last];
		cuda->copy((void *)(uintptr_t)at(&in, i, width), at(&c->q, last, width), q);
	}
	cuda->attention_cached(again.dev, in.dev, row, c->n, &c->s, c->t);
	array_get(&again);
	for (long i = 0; i < c->n; i++)
		is = is && !memcmp((char *)again.host + (size_t)i * q, (char *)c->out.host + (size_t)(c->first[c->n - i] - 1) * q, q);
	ok(is, "the same bits for the last rows together");
	cache_free(&m);
	if (step) {
		in_steps(c, &again, step);
		ok(same(c, &again, &c->out, 0, c->first[c->n]), "the same bits when %ld come at a time", step);
	}
	array_free(&again);
	array_free(&in);
}

static void backward(const struct trial *c, enum dtype tkv)
{
	long q = c->s.heads * c->s.head_dim, k = c->s.kv_heads * c->s.head_dim, n = 0;
	struct attention_piece piece[3 * MOST];
	struct array dq = array_new(c->q.n, c->t, 10, 0), dk = array_new(c->k.n, tkv, 11, 0), dv = array_new(c->k.n, tkv, 12, 0);
	struct array dq2 = array_new(c->q.n, c->t, 13, 0), dk2 = array_new(c->k.n, tkv, 14, 0), dv2 = array_new(c->k.n, tkv, 15, 0);
	double *want = xcalloc((size_t)(c->q.n + 2 * c->k.n) + 1, sizeof(double)), *wk = want + c->q.n, *wv = wk + c->k.n;

	for (long i = 0; i < c->n; i++)
		for (long p = 0; p < c->len[i]; p++)
			for (long h = 0; h < c->s.heads; h++)
				formula_gradient(c, want, wk, wv, c->first[i], p, h);
	whole_pieces(c, piece);
	cuda->attention_bwd(dq.dev, dk.dev, dv.dev, tkv, c->dout.dev, c->out.dev, c->lse.dev, c->q.dev, c->k.dev, c->v.dev, piece, c->n, &c->s,
			    c->t);
	printf("# attention_bwd, %s\n", c->name);
	near_gradient(&dq, want, c->t, "dq");
	near_gradient(&dk, wk, c->t, "dk");
	near_gradient(&dv, wv, c->t, "dv");
	for (long i = 0; i < c->n; i++)
		cuda->attention_bwd((void *)(uintptr_t)at(&dq2, c->first[i], q), (void *)(uintptr_t)at(&dk2, c->first[i], k),
				    (void *)(uintptr_t)at(&dv2, c->first[i], k), tkv, at(&c->dout, c->first[i], q),
				    at(&c->out, c->first[i], q), (const float *)at(&c->lse, c->first[i], c->s.heads), at(&c->q, c->first[i], q),
				    at(&c->k, c->first[i], k), at(&c->v, c->first[i], k),
				    &(struct attention_piece){ 0, c->len[i], 0, c->len[i] }, 1, &c->s, c->t);
	array_get(&dq2);
	array_get(&dk2);
	array_get(&dv2);
	ok(same(c, &dq2, &dq, 0, c->first[c->n]) && same(c, &dk2, &dk, 0, c->first[c->n]) && same(c, &dv2, &dv, 0, c->first[c->n]),
	   "the same bits alone");
	/* Two pieces of each sequence that share its keys, and one without rows that has all of them. */
	for (long i = 0; i < c->n; i++) {
		long first = c->len[i] / 3;

		piece[n++] = (struct attention_piece){ c->first[i], 0, c->first[i], c->len[i] };
		if (first)
			piece[n++] = (struct attention_piece){ c->first[i], first, c->first[i], first };
		piece[n++] = (struct attention_piece){ c->first[i] + first, c->len[i] - first, c->first[i], c->len[i] };
	}
	cuda->attention_bwd(dq2.dev, dk2.dev, dv2.dev, tkv, c->dout.dev, c->out.dev, c->lse.dev, c->q.dev, c->k.dev, c->v.dev, piece, n, &c->s,
			    c->t);
	array_get(&dq2);
	ok(same(c, &dq2, &dq, 0, c->first[c->n]), "the same bits of dq in pieces");
	near_gradient(&dk2, wk, c->t, "dk of pieces");
	near_gradient(&dv2, wv, c->t, "dv of pieces");
	array_free(&dq);
	array_free(&dk);
	array_free(&dv);
	array_free(&dq2);
	array_free(&dk2);
	array_free(&dv2);
	free(want);
}

static void check(enum dtype t, long heads, long kv_heads, long d, const long *len, long n, long step, bool back)
{
	struct trial c = trial(t, heads, kv_heads, d, len, n);

	forward(&c);
	packings(&c, step);
	from_pages(&c, step);
	if (back)
		backward(&c, step % 2 ? DTYPE_F32 : t);
	trial_free(&c);
}

/* Keys without rows have gradients of zero; nothing at all is no mistake. */
static void nothing(enum dtype t)
{
	struct attention_shape s = { 4, 2, 64, 0.125f };
	struct attention_piece piece[2] = { { 0, 0, 0, 70 }, { 0, 3, 70, 5 } };
	struct array q = array_new(3 * 256, t, 20, 1), k = array_new(75 * 128, t, 21, 1), v = array_new(75 * 128, t, 22, 1);
	struct array out = array_new(3 * 256, t, 23, 1), lse = array_new(3 * 4, DTYPE_F32, 24, 1), dq = array_new(3 * 256, t, 25, 1);
	struct array dk = array_new(75 * 128, t, 26, 1), dv = array_new(75 * 128, t, 27, 1);
	double worst = 0, there = 0;

	cuda->attention_fwd(out.dev, lse.dev, q.dev, k.dev, v.dev, piece, 2, &s, t);
	cuda->attention_bwd(dq.dev, dk.dev, dv.dev, t, out.dev, out.dev, lse.dev, q.dev, k.dev, v.dev, piece, 2, &s, t);
	array_get(&dk);
	array_get(&dv);
	for (long i = 0; i < 70 * 128; i++)
		worst += fabs(dk.x[i]) + fabs(dv.x[i]);
	for (long i = 70 * 128; i < 75 * 128; i++)
		there += dv.x[i] * dv.x[i];
	ok(worst == 0 && there > 0, "keys without rows have gradients of zero");
	cuda->attention_fwd(out.dev, lse.dev, q.dev, k.dev, v.dev, piece, 0, &s, t);
	cuda->attention_bwd(dq.dev, dk.dev, dv.dev, t, out.dev, out.dev, lse.dev, q.dev, k.dev, v.dev, piece, 0, &s, t);
	cuda->attention_cached(out.dev, q.dev, NULL, 0, &s, t);
	cuda->kv_put(NULL, k.dev, v.dev, 0, &s, t);
	array_get(&out);
	ok(true, "nothing is done for nothing");
	array_free(&q);
	array_free(&k);
	array_free(&v);
	array_free(&out);
	array_free(&lse);
	array_free(&dq);
	array_free(&dk);
	array_free(&dv);
}

int main(void)
{
	static const enum dtype types[] = { DTYPE_BF16, DTYPE_F32 };
	static const long size[] = { 64, 128, 96, 192, 256, 8, 80, 63, 250 }, few[] = { 1, 64, 30, 65 }, ends[] = { 513, 5, 512, 127 };
	static const long most[] = { 1100, 1, 63, 1025 }, one[] = { 1 };
	bool all = !getenv("CAIRN_TEST_SHORT");

	cuda_start();
	for (size_t t = 0; t < 2; t++) {
		nothing(types[t]);
		for (size_t i = 0; i < sizeof(size) / sizeof(*size); i++)
			check(types[t], 2, 1, size[i], few, 4, 13 + (long)i, true);
		check(types[t], 1, 1, 64, one, 1, 1, true);
		check(types[t], 3, 3, 64, few, 4, 20, true);
		check(types[t], 7, 1, 16, few, 4, 33, true);
		check(types[t], 40, 2, 16, few, 3, 50, true);
		check(types[t], 2, 1, 64, ends, 4, 300, all);
		if (!all)
			continue;
		for (size_t i = 0; i < 5; i++)
			check(types[t], 4, 2, size[i], ends, 4, 257, true);
		check(types[t], 2, 1, 128, most, 4, 400, true);
		check(types[t], 8, 1, 64, most, 4, 500, false);
	}
	return done();
}
