#include "kernels/cpu/rows.h"

#include "kernels/ops.h"
#include "libcommon/pool.h"
#include "libcommon/xalloc.h"

#include <stdlib.h>

enum { PIECE = 16384 };

struct update {
	float *w, *m, *v;
	uint16_t *low;
	const float *g;
	long n;
	const struct adamw *h;
};

WIDE static void update_piece(float *restrict w, float *restrict m, float *restrict v,
			      const float *restrict g, long n, const struct adamw *h)
{
	float b1 = h->beta1, b2 = h->beta2, c1 = h->rest1, c2 = h->rest2, s = h->grad_scale;
	float i1 = h->bias1, i2 = h->bias2, lr = h->lr, eps = h->eps, wd = h->weight_decay;

	for (long i = 0; i < n; i++) {
		float x = g[i] * s;

		m[i] = b1 * m[i] + c1 * x;
		v[i] = b2 * v[i] + c2 * x * x;
		w[i] = w[i] - lr * (m[i] / i1 / (sqrtf(v[i] / i2) + eps) + wd * w[i]);
	}
}

static void part(void *arg, long p, int thread)
{
	struct update *o = arg;
	long at = p * PIECE, n = o->n - at < PIECE ? o->n - at : PIECE;

	(void)thread;
	update_piece(o->w + at, o->m + at, o->v + at, o->g + at, n, o->h);
	if (o->low)
		narrow(o->low + at, o->w + at, n, DTYPE_BF16);
}

void adamw_cpu(float *w, float *m, float *v, uint16_t *low, const float *grad, long n,
	       const struct adamw *h)
{
	struct update o = { w, m, v, low, grad, n, h };

	pool_run(part, &o, (n + PIECE - 1) / PIECE);
}

struct squares { const float *x; long n; double *sum; };

WIDE static double squares_of(const float *x, long n)
{
	double s[8] = { 0 };
	long i = 0;

	for (; i + 8 <= n; i += 8)
		for (int l = 0; l < 8; l++)
			s[l] += (double)x[i + l] * (double)x[i + l];
	for (int l = 0; i + l < n; l++)
		s[l] += (double)x[i + l] * (double)x[i + l];
	return ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
}

static void squares_part(void *arg, long p, int thread)
{
	struct squares *o = arg;
	long at = p * PIECE;

	(void)thread;
	o->sum[p] = squares_of(o->x + at, o->n - at < PIECE ? o->n - at : PIECE);
}

double sumsq_cpu(const float *x, long n)
{
	long parts = (n + PIECE - 1) / PIECE;
	struct squares o = { x, n, xmalloc((size_t)parts * sizeof(double)) };
	double s = 0;

	pool_run(squares_part, &o, parts);
	for (long i = 0; i < parts; i++)
		s += o.sum[i];
	free(o.sum);
	return s;
}
