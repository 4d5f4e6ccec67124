#include "kernels/cpu/moe.h"

#include "kernels/cpu/rows.h"
#include "libcommon/pool.h"

WIDE static void scale(float *y, const float *x, float w, long n)
{
	for (long i = 0; i < n; i++)
		y[i] = w * x[i];
}

WIDE static void add_scaled(float *y, const float *x, float w, long n)
{
	for (long i = 0; i < n; i++)
		y[i] += w * x[i];
}

WIDE static void join_row(float *y, const float *x, long n)
{
	for (long i = 0; i < n; i++)
		y[i] += x[i];
}

WIDE static float dot(const float *a, const float *b, long n)
{
	float s[LANES] = { 0 };
	long i = 0;

	for (; i + LANES <= n; i += LANES)
		for (int l = 0; l < LANES; l++)
			s[l] += a[i + l] * b[i + l];
	for (int l = 0; i + l < n; l++)
		s[l] += a[i + l] * b[i + l];
	return lanes_sum(s);
}

struct slots {
	void *y; /* combine, unpermute: by rows */
	const float *o; /* by places */
	float *dweight;
	void *dact, *act; /* weigh_bwd: by places */
	const int *place;
	const float *weight, *gate, *shared;
	long k, cols;
	enum dtype t;
};

static void combine_part(void *arg, long r, int thread)
{
	const struct slots *o = arg;
	const float *w = o->weight + r * o->k, *from = o->o;
	const int *place = o->place + r * o->k;
	float *y = row_scratch(0, o->cols);

	(void)thread;
	scale(y, from + place[0] * o->cols, w[0], o->cols);
	for (long s = 1; s < o->k; s++)
		add_scaled(y, from + place[s] * o->cols, w[s], o->cols);
	if (o->shared)
		add_scaled(y, o->shared + r * o->cols, o->gate[r], o->cols);
	narrow(row_at_mut(o->y, r * o->cols, o->t), y, o->cols, o->t);
}

void combine_cpu(void *y, const float *o, const int *place, const float *weight, const float *gate,
		 const float *shared, long rows, long k, long cols, enum dtype t)
{
	struct slots s = { .y = y,
			   .o = o,
			   .place = place,
			   .weight = weight,
			   .gate = gate,
			   .shared = shared,
			   .k = k,
			   .cols = cols,
			   .t = t };

	pool_run(combine_part, &s, rows);
}

static void weigh(const struct slots *o, long slot)
{
	long at = (o->place ? o->place[slot] : slot) * o->cols;
	void *d = row_at_mut(o->dact, at, o->t), *a = row_at_mut(o->act, at, o->t);
	float *y = row_scratch(2, o->cols), w = o->weight[slot];
	const float *df = as_f32(row_scratch(0, o->cols), d, o->cols, o->t),
		    *af = as_f32(row_scratch(1, o->cols), a, o->cols, o->t);

	o->dweight[slot] = dot(df, af, o->cols);
	scale(y, df, w, o->cols);
	narrow(d, y, o->cols, o->t);
	scale(y, af, w, o->cols);
	narrow(a, y, o->cols, o->t);
}

static void weigh_part(void *arg, long r, int thread)
{
	const struct slots *o = arg;

	(void)thread;
	for (long s = 0; s < o->k; s++)
		weigh(o, r * o->k + s);
}

void weigh_bwd_cpu(float *dweight, void *dact, void *act, const int *place, const float *weight,
		   long rows, long k, long cols, enum dtype t)
{
	struct slots s = { .dweight = dweight,
			   .dact = dact,
			   .act = act,
			   .place = place,
			   .weight = weight,
			   .k = k,
			   .cols = cols,
			   .t = t };

	pool_run(weigh_part, &s, rows);
}

static void unpermute_part(void *arg, long r, int thread)
{
	const struct slots *o = arg;
	const float *from = o->o;
	const int *place = o->place + r * o->k;
	float *y = row_scratch(0, o->cols);

	(void)thread;
	memcpy(y, from + place[0] * o->cols, (size_t)o->cols * 4);
	for (long s = 1; s < o->k; s++)
		join_row(y, from + place[s] * o->cols, o->cols);
	narrow(row_at_mut(o->y, r * o->cols, o->t), y, o->cols, o->t);
}

void unpermute_cpu(void *dx, const float *d, const int *place, long rows, long k, long cols,
		   enum dtype t)
{
	struct slots s = { .y = dx, .o = d, .place = place, .k = k, .cols = cols, .t = t };

	pool_run(unpermute_part, &s, rows);
}

void sigmoid_fwd_cpu(float *y, const float *x, long n)
{
	for (long i = 0; i < n; i++)
		y[i] = 1.f / (1.f + exp_f32(-x[i]));
}

void sigmoid_bwd_cpu(void *dx, const float *dy, const float *y, long n, enum dtype t)
{
	float *d = row_scratch(0, n);

	for (long i = 0; i < n; i++)
		d[i] = dy[i] * (y[i] * (1.f - y[i]));
	narrow(dx, d, n, t);
}
