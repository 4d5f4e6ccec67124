#include "kernels/cpu/rows.h"

#include "libcommon/pool.h"

/* Up to two outputs and three inputs, worked through in pieces that stay in the first-level cache. */
struct act {
	void *out[2];
	const void *in[3];
	long n;
	enum dtype t;
};

static long piece(const struct act *o, long part)
{
	long at = part * CHUNK;

	return o->n - at < CHUNK ? o->n - at : CHUNK;
}

WIDE static void silu_mul(float *y, const float *g, const float *u, long n)
{
	for (long i = 0; i < n; i++)
		y[i] = g[i] / (1.f + exp_f32(-g[i])) * u[i];
}

/* silu'(g) = s (1 + g (1 - s)) with s = 1 / (1 + exp(-g)) */
WIDE static void silu_mul_bwd(float *dg, float *du, const float *dy, const float *g, const float *u, long n)
{
	for (long i = 0; i < n; i++) {
		float s = 1.f / (1.f + exp_f32(-g[i]));

		du[i] = dy[i] * (g[i] * s);
		dg[i] = dy[i] * u[i] * (s * (1.f + g[i] * (1.f - s)));
	}
}

WIDE static void sum(float *y, const float *a, const float *b, long n)
{
	for (long i = 0; i < n; i++)
		y[i] = a[i] + b[i];
}

static void binary(struct act *o, long part, void (*f)(float *, const float *, const float *, long))
{
	long at = part * CHUNK, n = piece(o, part);
	float a[CHUNK], b[CHUNK], y[CHUNK];

	f(y, as_f32(a, row_at(o->in[0], at, o->t), n, o->t), as_f32(b, row_at(o->in[1], at, o->t), n, o->t), n);
	narrow(row_at_mut(o->out[0], at, o->t), y, n, o->t);
}

static void fwd_part(void *arg, long part, int thread)
{
	(void)thread;
	binary(arg, part, silu_mul);
}

static void add_part(void *arg, long part, int thread)
{
	(void)thread;
	binary(arg, part, sum);
}

static void bwd_part(void *arg, long part, int thread)
{
	struct act *o = arg;
	long at = part * CHUNK, n = piece(o, part);
	float a[CHUNK], b[CHUNK], c[CHUNK], dg[CHUNK], du[CHUNK];

	(void)thread;
	silu_mul_bwd(dg, du, as_f32(a, row_at(o->in[0], at, o->t), n, o->t), as_f32(b, row_at(o->in[1], at, o->t), n, o->t),
		     as_f32(c, row_at(o->in[2], at, o->t), n, o->t), n);
	narrow(row_at_mut(o->out[0], at, o->t), dg, n, o->t);
	narrow(row_at_mut(o->out[1], at, o->t), du, n, o->t);
}

void swiglu_fwd_cpu(void *y, const void *gate, const void *up, long n, enum dtype t)
{
	struct act o = { { y }, { gate, up }, n, t };

	pool_run(fwd_part, &o, (n + CHUNK - 1) / CHUNK);
}

void swiglu_bwd_cpu(void *dgate, void *dup, const void *dy, const void *gate, const void *up, long n, enum dtype t)
{
	struct act o = { { dgate, dup }, { dy, gate, up }, n, t };

	pool_run(bwd_part, &o, (n + CHUNK - 1) / CHUNK);
}

void add_cpu(void *y, const void *a, const void *b, long n, enum dtype t)
{
	struct act o = { { y }, { a, b }, n, t };

	pool_run(add_part, &o, (n + CHUNK - 1) / CHUNK);
}
