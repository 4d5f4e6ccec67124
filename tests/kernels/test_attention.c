#include "kernels/attention.h"

#include "kernels/cpu/backend.h"
#include "kernels/cpu/isa.h"
#include "libcommon/pool.h"
#include "libcommon/xalloc.h"
#include "tests/lib/tap.h"

#define EACH(v, list) for (size_t v##_ = 0; v##_ < sizeof(list) / sizeof(*(list)); v##_++)

/* Whole sequences: rows cu[s] .. cu[s + 1] - 1 of all. */
static struct attention_piece *wholes(const long *cu, long nseq)
{
	struct attention_piece *piece = xmalloc((size_t)nseq * sizeof(*piece));

	for (long s = 0; s < nseq; s++)
		piece[s] = (struct attention_piece){ cu[s], cu[s + 1] - cu[s], cu[s], cu[s + 1] - cu[s] };
	return piece;
}

static void whole_fwd(void *out, float *lse, const void *q, const void *k, const void *v, const long *cu,
		      long nseq, const struct attention_shape *s, enum dtype t)
{
	struct attention_piece *piece = wholes(cu, nseq);

	attention_fwd_cpu(out, lse, q, k, v, piece, nseq, s, t);
	free(piece);
}

static void whole_bwd(void *dq, void *dk, void *dv, const void *dout, const void *out, const float *lse,
		      const void *q, const void *k, const void *v, const long *cu, long nseq,
		      const struct attention_shape *s, enum dtype t)
{
	struct attention_piece *piece = wholes(cu, nseq);

	attention_bwd_cpu(dq, dk, dv, t, dout, out, lse, q, k, v, piece, nseq, s, t);
	free(piece);
}

struct data { /* numbers of type t, and the same as doubles */
	enum dtype t;
	void *p;
	double *d;
};

static uint32_t seed = 1;

static float any(void)
{
	seed = seed * 1664525 + 1013904223;
	return (float)(2 * ((double)(seed >> 8) / (1 << 23) - 1));
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
	struct data x = { t, xmalloc((size_t)n * dtype_size(t)),
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

static double distance(const void *got, enum dtype t, const double *want, long n)
{
	double off = 0, all = 1e-30;

	for (long i = 0; i < n; i++) {
		double e = value(got, t, i) - want[i];

		off += e * e;
		all += want[i] * want[i];
	}
	return isnan(off) ? INFINITY : sqrt(off / all);
}

/* A case: packed sequences of one shape, with everything that the formula says about them. */
struct trial {
	struct attention_shape s;
	enum dtype t;
	const long *cu;
	long nseq, rows, nq, nk; /* nq, nk: elements of q and of k */
	struct data q, k, v, dout;
	double *out, *lse, *dq, *dk, *dv;
};

static void formula_row(struct trial *c, double *p, long first, long i, long h)
{
	long d = c->s.head_dim, g = c->s.heads / c->s.kv_heads, at = (i * c->s.heads + h) * d;
	double top = -INFINITY, sum = 0, delta = 0;

	for (long j = first; j <= i; j++) {
		long kv = (j * c->s.kv_heads + h / g) * d;

		p[j] = 0;
		for (long e = 0; e < d; e++)
			p[j] += c->q.d[at + e] * c->k.d[kv + e];
		p[j] *= c->s.scale;
		top = fmax(top, p[j]);
	}
	for (long j = first; j <= i; j++)
		sum += exp(p[j] - top);
	c->lse[i * c->s.heads + h] = top + log(sum);
	for (long j = first; j <= i; j++) {
		p[j] = exp(p[j] - top) / sum;
		for (long e = 0; e < d; e++)
			c->out[at + e] += p[j] * c->v.d[(j * c->s.kv_heads + h / g) * d + e];
	}
	for (long e = 0; e < d; e++)
		delta += c->dout.d[at + e] * c->out[at + e];
	for (long j = first; j <= i; j++) {
		long kv = (j * c->s.kv_heads + h / g) * d;
		double dp = 0, ds;

		for (long e = 0; e < d; e++)
			dp += c->dout.d[at + e] * c->v.d[kv + e];
		ds = p[j] * (dp - delta) * c->s.scale;
		for (long e = 0; e < d; e++) {
			c->dq[at + e] += ds * c->k.d[kv + e];
			c->dk[kv + e] += ds * c->q.d[at + e];
			c->dv[kv + e] += p[j] * c->dout.d[at + e];
		}
	}
}

static struct trial trial(enum dtype t, long heads, long kv_heads, long d, const long *cu,
			  long nseq)
{
	long rows = cu[nseq], nq = rows * heads * d, nk = rows * kv_heads * d;
	struct trial c = {
		.s = { heads, kv_heads, d, (float)(1 / sqrt((double)d)) },
		.t = t,
		.cu = cu,
		.nseq = nseq,
		.rows = rows,
		.nq = nq,
		.nk = nk,
	};
	double *p = xmalloc((size_t)rows * sizeof(double));

	c.q = data(t, nq);
	c.k = data(t, nk);
	c.v = data(t, nk);
	c.dout = data(t, nq);
	c.out = xcalloc((size_t)nq, sizeof(double));
	c.dq = xcalloc((size_t)nq, sizeof(double));
	c.dk = xcalloc((size_t)nk, sizeof(double));
	c.dv = xcalloc((size_t)nk, sizeof(double));
	c.lse = xcalloc((size_t)(rows * heads), sizeof(double));
	for (long s = 0; s < nseq; s++)
		for (long i = cu[s]; i < cu[s + 1]; i++)
			for (long h = 0; h < heads; h++)
				formula_row(&c, p, cu[s], i, h);
	free(p);
	return c;
}

static void trial_drop(struct trial *c)
{
	drop(&c->q);
	drop(&c->k);
	drop(&c->v);
	drop(&c->dout);
	free(c->out);
	free(c->dq);
	free(c->dk);
	free(c->dv);
	free(c->lse);
}

/* Pages of all sequences, filled with NaN, and the place of every row. */
struct cache {
	void **page;
	struct kv_row *row;
	char *memory;
};

static struct cache cache(const struct trial *c)
{
	size_t bytes = kv_page_bytes_cpu(&c->s, c->t);
	long pages = 0, at = 0;
	struct cache m;

	for (long s = 0; s < c->nseq; s++)
		pages += (c->cu[s + 1] - c->cu[s] + 63) / 64;
	m.page = xmalloc((size_t)pages * sizeof(void *));
	m.row = xmalloc((size_t)c->rows * sizeof(*m.row));
	m.memory = xmalloc((size_t)pages * bytes);
	memset(m.memory, 0xff, (size_t)pages * bytes);
	/* backwards in memory: nothing may rest on pages being neighbours */
	for (long i = 0; i < pages; i++)
		m.page[i] = m.memory + (size_t)(pages - 1 - i) * bytes;
	for (long s = 0; s < c->nseq; s++) {
		for (long i = c->cu[s]; i < c->cu[s + 1]; i++)
			m.row[i] = (struct kv_row){ m.page + at, i - c->cu[s] };
		at += (c->cu[s + 1] - c->cu[s] + 63) / 64;
	}
	return m;
}

static void cache_drop(struct cache *m)
{
	free(m->page);
	free(m->row);
	free(m->memory);
}

/* All rows by way of the cache: sequence after sequence in pieces of `piece`, each put and then
 * asked. */
static void in_pieces(const struct trial *c, char *out, long piece)
{
	size_t size = dtype_size(c->t), q = (size_t)(c->s.heads * c->s.head_dim) * size;
	size_t k = (size_t)(c->s.kv_heads * c->s.head_dim) * size;
	struct cache m = cache(c);

	for (long s = 0; s < c->nseq; s++)
		for (long i = c->cu[s], n; i < c->cu[s + 1]; i += n) {
			n = c->cu[s + 1] - i < piece ? c->cu[s + 1] - i : piece;
			kv_put_cpu(m.row + i, (char *)c->k.p + (size_t)i * k,
				   (char *)c->v.p + (size_t)i * k, n, &c->s, c->t);
			attention_cached_cpu(out + (size_t)i * q, (char *)c->q.p + (size_t)i * q,
					     m.row + i, n, &c->s, c->t);
		}
	cache_drop(&m);
}

/* The last rows of all sequences in one batch, whose order is turned round, as a decoder has
 * them. */
static long last_rows_differ(const struct trial *c, const char *want)
{
	size_t q = (size_t)(c->s.heads * c->s.head_dim) * dtype_size(c->t);
	struct cache m = cache(c);
	struct kv_row *row = xmalloc((size_t)c->nseq * sizeof(*row));
	char *in = xmalloc((size_t)c->nseq * q), *out = xmalloc((size_t)c->nseq * q);
	long differ = 0;

	kv_put_cpu(m.row, c->k.p, c->v.p, c->rows, &c->s, c->t);
	for (long s = 0; s < c->nseq; s++) {
		long at = c->cu[c->nseq - s] - 1;

		row[s] = m.row[at];
		memcpy(in + (size_t)s * q, (char *)c->q.p + (size_t)at * q, q);
	}
	attention_cached_cpu(out, in, row, c->nseq, &c->s, c->t);
	for (long s = 0; s < c->nseq; s++)
		differ += !!memcmp(out + (size_t)s * q, want + (size_t)(c->cu[c->nseq - s] - 1) * q,
				   q);
	cache_drop(&m);
	free(row);
	free(in);
	free(out);
	return differ;
}

/* Each sequence alone. */
static long alone_differ(const struct trial *c, const char *want)
{
	size_t size = dtype_size(c->t), q = (size_t)(c->s.heads * c->s.head_dim) * size;
	size_t k = (size_t)(c->s.kv_heads * c->s.head_dim) * size;
	char *out = xmalloc((size_t)c->nq * size);
	long differ = 0;

	for (long s = 0; s < c->nseq; s++) {
		long n = c->cu[s + 1] - c->cu[s], cu[2] = { 0, n };
		size_t at = (size_t)c->cu[s];

		whole_fwd(out, NULL, (char *)c->q.p + at * q, (char *)c->k.p + at * k,
				  (char *)c->v.p + at * k, cu, 1, &c->s, c->t);
		differ += !!memcmp(out, want + at * q, (size_t)n * q);
	}
	free(out);
	return differ;
}

/* A NaN in the last key and value of every sequence reaches its last position only. */
static long leaks(const struct trial *c, const char *want)
{
	size_t size = dtype_size(c->t);
	long q = c->s.heads * c->s.head_dim, k = c->s.kv_heads * c->s.head_dim, differ = 0;
	struct data kn = data(c->t, c->nk), vn = data(c->t, c->nk);
	char *out = xmalloc((size_t)c->nq * size);

	memcpy(kn.p, c->k.p, (size_t)c->nk * size);
	memcpy(vn.p, c->v.p, (size_t)c->nk * size);
	for (long s = 0; s < c->nseq; s++)
		for (long i = (c->cu[s + 1] - 1) * k; i < c->cu[s + 1] * k; i++) {
			put(&kn, i, NAN);
			put(&vn, i, NAN);
		}
	whole_fwd(out, NULL, c->q.p, kn.p, vn.p, c->cu, c->nseq, &c->s, c->t);
	for (long s = 0; s < c->nseq; s++)
		for (long i = c->cu[s] * q; i < c->cu[s + 1] * q; i++)
			if (i < (c->cu[s + 1] - 1) * q)
				differ += !!memcmp(out + (size_t)i * size, want + (size_t)i * size,
						   size);
			else
				differ += !isnan(value(out, c->t, i));
	drop(&kn);
	drop(&vn);
	free(out);
	return differ;
}

static void forward(const struct trial *c, char *out, float *lse, const char *name)
{
	static const long pieces[] = { 1, 7, 64, 100, 1000 };
	double bound = c->t == DTYPE_BF16 ? 4e-3 : 1e-5;
	size_t bytes = (size_t)c->nq * dtype_size(c->t);
	char *again = xmalloc(bytes);
	long differ = 0;

	whole_fwd(out, lse, c->q.p, c->k.p, c->v.p, c->cu, c->nseq, &c->s, c->t);
	is_num(distance(out, c->t, c->out, c->nq), 0, bound, "%s: out is the formula", name);
	is_num(distance(lse, DTYPE_F32, c->lse, c->rows * c->s.heads), 0, 1e-5, "%s: lse", name);
	EACH(p, pieces)
	{
		in_pieces(c, again, pieces[p_]);
		differ += !!memcmp(out, again, bytes);
	}
	ok(!differ, "%s: the same bits by way of the cache, in pieces of any size", name);
	ok(!last_rows_differ(c, out), "%s: the same bits among other sequences", name);
	ok(!alone_differ(c, out), "%s: the same bits alone", name);
	ok(!leaks(c, out), "%s: a NaN key and value leave earlier positions alone", name);
	pool_start(1);
	whole_fwd(again, NULL, c->q.p, c->k.p, c->v.p, c->cu, c->nseq, &c->s, c->t);
	pool_start(2);
	ok(!memcmp(out, again, bytes), "%s: the same bits with one thread", name);
	free(again);
}

static void backward(const struct trial *c, const char *out, const float *lse, const char *name)
{
	double bound = c->t == DTYPE_BF16 ? 8e-3 : 1e-5;
	size_t size = dtype_size(c->t);
	char *g = xmalloc(2 * (size_t)(c->nq + 2 * c->nk) * size), *dk = g + (size_t)c->nq * size,
	     *dv = dk + (size_t)c->nk * size;
	char *h = dv + (size_t)c->nk * size;

	whole_bwd(g, dk, dv, c->dout.p, out, lse, c->q.p, c->k.p, c->v.p, c->cu, c->nseq,
			  &c->s, c->t);
	is_num(distance(g, c->t, c->dq, c->nq), 0, bound, "%s: dq is the formula", name);
	is_num(distance(dk, c->t, c->dk, c->nk), 0, bound, "%s: dk", name);
	is_num(distance(dv, c->t, c->dv, c->nk), 0, bound, "%s: dv", name);
	pool_start(1);
	whole_bwd(h, h + (dk - g), h + (dv - g), c->dout.p, out, lse, c->q.p, c->k.p,
			  c->v.p, c->cu, c->nseq, &c->s, c->t);
	pool_start(2);
	ok(!memcmp(g, h, (size_t)(c->nq + 2 * c->nk) * size),
	   "%s: gradients have the same bits with one thread", name);
	free(g);
}

static void check(enum dtype t, long heads, long kv_heads, long d, const long *cu, long nseq)
{
	struct trial c = trial(t, heads, kv_heads, d, cu, nseq);
	char *out = xmalloc((size_t)c.nq * dtype_size(t)), name[100];
	float *lse = xmalloc((size_t)(c.rows * heads) * 4);

	snprintf(name, sizeof(name), "%s %s, %ld/%ld heads of %ld, %ld rows", isa_name(),
		 dtype_name(t), heads, kv_heads, d, c.rows);
	forward(&c, out, lse, name);
	backward(&c, out, lse, name);
	free(out);
	free(lse);
	trial_drop(&c);
}

static double loss(const float *x, const double *dout, const long *cu,
		   const struct attention_shape *s, long n, long nk)
{
	float *out = xmalloc((size_t)n * 4);
	double sum = 0;

	whole_fwd(out, NULL, x, x + n, x + n + nk, cu, 1, s, DTYPE_F32);
	for (long i = 0; i < n; i++)
		sum += out[i] * dout[i];
	free(out);
	return sum;
}

/* The gradient of sum(dout out) by differences, so that formula() is not its own witness. */
static void differences(void)
{
	enum { ROWS = 5, D = 6, N = ROWS * 2 * D, NK = ROWS * D };
	static const long cu[] = { 0, ROWS };
	struct attention_shape s = { 2, 1, D, 0.4f };
	struct data x = data(DTYPE_F32, N + 2 * NK), dout = data(DTYPE_F32, N);
	float *v = x.p, out[N], lse[2 * ROWS], g[N + 2 * NK];
	double worst = 0;

	whole_fwd(out, lse, v, v + N, v + N + NK, cu, 1, &s, DTYPE_F32);
	whole_bwd(g, g + N, g + N + NK, dout.p, out, lse, v, v + N, v + N + NK, cu, 1, &s,
			  DTYPE_F32);
	for (long i = 0; i < N + 2 * NK; i++) {
		float was = v[i];
		double up, down;

		v[i] = was + 0x1p-7f;
		up = loss(v, dout.d, cu, &s, N, NK);
		v[i] = was - 0x1p-7f;
		down = loss(v, dout.d, cu, &s, N, NK);
		v[i] = was;
		worst = fmax(worst, fabs((up - down) * 64 - g[i]));
	}
	ok(worst < 1e-3, "%s: gradients are differences (off by %.2g at most)", isa_name(), worst);
	drop(&x);
	drop(&dout);
}

static void check_isa(void)
{
	static const long mixed[] = { 0, 1, 3, 66, 66, 130, 321 };
	static const long crossing[] = { 0, 511, 1023, 1536, 2049 };
	static const long one[] = { 0, 1100 };

	for (int i = 0; i < 2; i++) {
		enum dtype t = i ? DTYPE_BF16 : DTYPE_F32;

		check(t, 3, 3, 6, mixed, 6);
		check(t, 3, 1, 64, one, 1);
		check(t, 7, 1, 80, mixed, 6);
		check(t, 14, 2, 16, mixed, 3);
		check(t, 2, 2, 128, mixed, 3);
		check(t, 2, 1, 256, mixed, 3);
		check(t, 2, 2, 8, crossing, 4);
	}
	differences();
}

int main(void)
{
	static const char *const isa[] = { "portable", "avx2", "avx512", "avx512bf16" };
	struct err e = ERR_INIT;

	pool_start(2);
	EACH(i, isa)
	{
		if (isa_choose(isa[i_], &e))
			skip("not in this CPU", "%s", isa[i_]);
		else
			check_isa();
	}
	return done();
}
