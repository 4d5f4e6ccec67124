#include "kernels/cpu/rows.h"

#include "libcommon/pool.h"

struct rope {
	void *x;
	const int *position;
	const float *cos, *sin;
	long heads, d;
	float sign;
	enum dtype t;
};

WIDE static void rotate(float *x, const float *c, const float *s, long half, float sign)
{
	for (long j = 0; j < half; j++) {
		float a = x[j], b = x[j + half], q = sign * s[j];

		x[j] = a * c[j] - b * q;
		x[j + half] = b * c[j] + a * q;
	}
}

static void part(void *arg, long r, int thread)
{
	struct rope *o = arg;
	long half = o->d / 2, p = o->position[r];

	(void)thread;
	for (long h = 0; h < o->heads; h++) {
		void *at = row_at_mut(o->x, (r * o->heads + h) * o->d, o->t);
		float *x = o->t == DTYPE_F32 ? at : row_scratch(0, o->d);

		widen(x, at, o->d, o->t);
		rotate(x, o->cos + p * half, o->sin + p * half, half, o->sign);
		narrow(at, x, o->d, o->t);
	}
}

void rope_cpu(void *x, const int *position, const float *cos, const float *sin, long rows, long heads, long d,
	      bool inverse, enum dtype t)
{
	struct rope o = { x, position, cos, sin, heads, d, inverse ? -1.f : 1.f, t };

	pool_run(part, &o, rows);
}
