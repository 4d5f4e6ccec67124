#include "kernels/cpu/rows.h"

#include "libcommon/pool.h"

struct norm {
	void *y, *dx;
	float *rstd, *dw;
	const void *x, *dy, *w;
	const float *stat;
	long rows, cols, step;
	float eps;
	bool add;
	enum dtype t;
};

WIDE static float mean_square(const float *x, long n)
{
	float s[LANES] = { 0 };
	long i = 0;

	for (; i + LANES <= n; i += LANES)
		for (int l = 0; l < LANES; l++)
			s[l] += x[i + l] * x[i + l];
	for (int l = 0; i + l < n; l++)
		s[l] += x[i + l] * x[i + l];
	return lanes_sum(s) / (float)n;
}

WIDE static void scale_row(float *y, const float *x, const float *w, float r, long n)
{
	for (long i = 0; i < n; i++)
		y[i] = x[i] * r * w[i];
}

static void fwd_part(void *arg, long part, int thread)
{
	struct norm *o = arg;
	long n = o->cols, last = (part + 1) * o->step;
	const float *w = as_f32(row_scratch(0, n), o->w, n, o->t);

	(void)thread;
	for (long r = part * o->step; r < last && r < o->rows; r++) {
		const float *x = as_f32(row_scratch(1, n), row_at(o->x, r * n, o->t), n, o->t);
		float rstd = 1.f / sqrtf(mean_square(x, n) + o->eps);
		float *y = row_scratch(2, n);

		scale_row(y, x, w, rstd, n);
		narrow(row_at_mut(o->y, r * n, o->t), y, n, o->t);
		if (o->rstd)
			o->rstd[r] = rstd;
	}
}

static long rows_a_part(long cols)
{
	return 1 + 16384 / cols;
}

void rmsnorm_fwd_cpu(void *y, float *rstd, const void *x, const void *w, long rows, long cols, float eps, enum dtype t)
{
	struct norm o = { .y = y, .rstd = rstd, .x = x, .w = w, .rows = rows, .cols = cols, .eps = eps, .t = t,
			  .step = rows_a_part(cols) };

	pool_run(fwd_part, &o, (rows + o.step - 1) / o.step);
}

WIDE static float dot3(const float *a, const float *b, const float *c, long n)
{
	float s[LANES] = { 0 };
	long i = 0;

	for (; i + LANES <= n; i += LANES)
		for (int l = 0; l < LANES; l++)
			s[l] += a[i + l] * b[i + l] * c[i + l];
	for (int l = 0; i + l < n; l++)
		s[l] += a[i + l] * b[i + l] * c[i + l];
	return lanes_sum(s);
}

WIDE static void dx_row(float *dx, const float *dy, const float *x, const float *w, float r, float c, long n, bool add)
{
	if (add)
		for (long i = 0; i < n; i++)
			dx[i] += r * (dy[i] * w[i] - x[i] * c);
	else
		for (long i = 0; i < n; i++)
			dx[i] = r * (dy[i] * w[i] - x[i] * c);
}

static void dx_part(void *arg, long part, int thread)
{
	struct norm *o = arg;
	long n = o->cols, last = (part + 1) * o->step;
	const float *w = as_f32(row_scratch(0, n), o->w, n, o->t);

	(void)thread;
	for (long r = part * o->step; r < last && r < o->rows; r++) {
		const float *x = as_f32(row_scratch(1, n), row_at(o->x, r * n, o->t), n, o->t);
		const float *dy = as_f32(row_scratch(2, n), row_at(o->dy, r * n, o->t), n, o->t);
		float *dx = row_scratch(3, n), s = o->stat[r];

		if (o->add)
			widen(dx, row_at(o->dx, r * n, o->t), n, o->t);
		dx_row(dx, dy, x, w, s, s * s * (dot3(dy, w, x, n) / (float)n), n, o->add);
		narrow(row_at_mut(o->dx, r * n, o->t), dx, n, o->t);
	}
}

WIDE static void dw_row(float *dw, const float *dy, const float *x, float r, long n)
{
	for (long i = 0; i < n; i++)
		dw[i] += dy[i] * x[i] * r;
}

enum { COLUMNS = 256 };

/* A part is a range of columns, so that every sum runs over the rows in their order. */
static void dw_part(void *arg, long part, int thread)
{
	struct norm *o = arg;
	long c = part * COLUMNS, n = o->cols - c < COLUMNS ? o->cols - c : COLUMNS;
	float xb[COLUMNS], yb[COLUMNS];

	(void)thread;
	for (long r = 0; r < o->rows; r++)
		dw_row(o->dw + c, as_f32(yb, row_at(o->dy, r * o->cols + c, o->t), n, o->t),
		       as_f32(xb, row_at(o->x, r * o->cols + c, o->t), n, o->t), o->stat[r], n);
}

void rmsnorm_bwd_cpu(void *dx, float *dw, const void *dy, const void *x, const void *w, const float *rstd,
		     long rows, long cols, bool add, enum dtype t)
{
	struct norm o = { .dx = dx, .dw = dw, .dy = dy, .x = x, .w = w, .stat = rstd, .rows = rows, .cols = cols,
			  .add = add, .t = t, .step = rows_a_part(cols) };

	if (dw)
		pool_run(dw_part, &o, (cols + COLUMNS - 1) / COLUMNS);
	pool_run(dx_part, &o, (rows + o.step - 1) / o.step);
}
