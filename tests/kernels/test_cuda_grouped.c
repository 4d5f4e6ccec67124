/*
 * Products of experts' rows on the CUDA backend: each row has the bits that linear_fwd and
 * linear_dx give it with its expert's matrix, each expert's gradient those of linear_dw; those
 * are held against float64 here once more. Experts without rows, with one, with more than a tile.
 */
#include "tests/kernels/cuda.h"

static const char *name(enum dtype t)
{
	return t == DTYPE_BF16 ? "bf16" : "f32";
}

enum { MOST = 8 };

struct layer {
	long experts, n, k, chunks;
	long rows[MOST];
};

static const struct layer some[] = {
	{ 1, 17, 9, 1, { 3 } },
	{ 4, 24, 96, 8, { 0, 1, 2, 0 } },
	{ 5, 70, 72, 3, { 17, 0, 64, 65, 1 } },
	{ 3, 130, 144, 4, { 129, 128, 5 } },
	{ 8, 33, 50, 5, { 1, 0, 0, 7, 16, 0, 2, 1 } },
	{ 3, 20, 40, 1, { 0, 0, 0 } },
};

static bool same(const struct array *a, const struct array *b)
{
	return !memcmp(a->host, b->host, (size_t)a->n * dtype_size(a->t));
}

struct data {
	long offset[MOST + 1], m;
	struct matrix w[MOST];
	struct array values;    /* [experts, n, k] */
};

static void data_init(struct data *d, const struct layer *l, enum dtype t)
{
	d->values = array_new(l->experts * l->n * l->k, t, 31, 1);
	d->offset[0] = 0;
	for (long e = 0; e < l->experts; e++) {
		d->offset[e + 1] = d->offset[e] + l->rows[e];
		cuda->matrix_init(&d->w[e], t, l->n, l->k, l->chunks, true);
		cuda->matrix_load(&d->w[e], (char *)d->values.dev +
						    (size_t)(e * l->n * l->k) * dtype_size(t));
	}
	d->m = d->offset[l->experts];
}

static void data_free(struct data *d, const struct layer *l)
{
	for (long e = 0; e < l->experts; e++)
		cuda->matrix_release(&d->w[e]);
	array_free(&d->values);
}

static char *row_of(const struct array *a, long row, long cols)
{
	return (char *)a->dev + (size_t)(row * cols) * dtype_size(a->t);
}

/* offset is plain memory that is gone after the call. */
static long *lent(const struct data *d, long experts)
{
	long *o = xmalloc((size_t)(experts + 1) * sizeof(*o));

	memcpy(o, d->offset, (size_t)(experts + 1) * sizeof(*o));
	return o;
}

static void give_back(long *o, long experts)
{
	memset(o, 0x7f, (size_t)(experts + 1) * sizeof(*o));
	free(o);
}

static void forward(const struct layer *l, struct data *d, enum dtype t, enum dtype ty)
{
	struct array x = array_new(d->m * l->k, t, 32, 1), y = array_new(d->m * l->n, ty, 33, 0),
		     one = array_new(d->m * l->n, ty, 34, 0);
	double *want = xcalloc((size_t)(d->m * l->n) + 1, sizeof(double));
	long *o = lent(d, l->experts);

	cuda->grouped_fwd(y.dev, ty, x.dev, d->w, o, l->experts);
	give_back(o, l->experts);
	for (long e = 0; e < l->experts; e++) {
		for (long r = d->offset[e]; r < d->offset[e + 1]; r++)
			for (long i = 0; i < l->n * l->k; i++)
				want[r * l->n + i / l->k] +=
					x.x[r * l->k + i % l->k] * d->values.x[e * l->n * l->k + i];
		cuda->linear_fwd(row_of(&one, d->offset[e], l->n), ty,
				 row_of(&x, d->offset[e], l->k), &d->w[e], NULL, l->rows[e]);
	}
	near(&y, want, "grouped_fwd %s to %s, %ld rows of %ld experts, %ld x %ld", name(t),
	     name(ty), d->m, l->experts, l->n, l->k);
	array_get(&one);
	ok(same(&y, &one), "the bits of linear_fwd");
	array_free(&x);
	array_free(&y);
	array_free(&one);
	free(want);
}

static void backward_x(const struct layer *l, struct data *d, enum dtype t, enum dtype tx, bool add)
{
	struct array dy = array_new(d->m * l->n, t, 35, 1), dx = array_new(d->m * l->k, tx, 36, 1),
		     one = array_new(d->m * l->k, tx, 36, 1);
	double *want = xcalloc((size_t)(d->m * l->k) + 1, sizeof(double));
	long *o = lent(d, l->experts);

	if (add)
		memcpy(want, dx.x, (size_t)dx.n * sizeof(double));
	cuda->grouped_dx(dx.dev, tx, dy.dev, d->w, o, l->experts, add);
	give_back(o, l->experts);
	for (long e = 0; e < l->experts; e++) {
		for (long r = d->offset[e]; r < d->offset[e + 1]; r++)
			for (long i = 0; i < l->n * l->k; i++)
				want[r * l->k + i % l->k] += dy.x[r * l->n + i / l->k] *
							     d->values.x[e * l->n * l->k + i];
		cuda->linear_dx(row_of(&one, d->offset[e], l->k), tx,
				row_of(&dy, d->offset[e], l->n), &d->w[e], l->rows[e], add);
	}
	near(&dx, want, "grouped_dx %s to %s%s", name(t), name(tx), add ? ", added" : "");
	array_get(&one);
	ok(same(&dx, &one), "the bits of linear_dx");
	array_free(&dy);
	array_free(&dx);
	array_free(&one);
	free(want);
}

static void backward_w(const struct layer *l, struct data *d, enum dtype t)
{
	long size = l->n * l->k;
	struct array dy = array_new(d->m * l->n, t, 37, 1), x = array_new(d->m * l->k, t, 38, 1);
	struct array dw = array_new(l->experts * size, DTYPE_F32, 39, 1),
		     one = array_new(l->experts * size, DTYPE_F32, 39, 1);
	double *want = xmalloc((size_t)dw.n * sizeof(double));
	long *o = lent(d, l->experts);

	memcpy(want, dw.x, (size_t)dw.n * sizeof(double));
	cuda->grouped_dw(dw.dev, dy.dev, x.dev, o, l->experts, l->n, l->k, t);
	give_back(o, l->experts);
	for (long e = 0; e < l->experts; e++) {
		for (long r = d->offset[e]; r < d->offset[e + 1]; r++)
			for (long i = 0; i < size; i++)
				want[e * size + i] +=
					dy.x[r * l->n + i / l->k] * x.x[r * l->k + i % l->k];
		cuda->linear_dw((float *)one.dev + e * size, NULL, row_of(&dy, d->offset[e], l->n),
				row_of(&x, d->offset[e], l->k), l->rows[e], l->n, l->k, t);
	}
	near(&dw, want, "grouped_dw %s", name(t));
	array_get(&one);
	ok(same(&dw, &one), "the bits of linear_dw");
	struct array *all[] = { &dy, &x, &dw, &one };
	for (int i = 0; i < 4; i++)
		array_free(all[i]);
	free(want);
}

static void whole(const struct layer *l, enum dtype t)
{
	struct data d;

	data_init(&d, l, t);
	forward(l, &d, t, t);
	forward(l, &d, t, DTYPE_F32);
	backward_x(l, &d, t, t, true);
	backward_x(l, &d, t, DTYPE_F32, false);
	backward_w(l, &d, t);
	data_free(&d, l);
}

int main(void)
{
	cuda_start();
	for (size_t i = 0; i < sizeof(some) / sizeof(*some); i++) {
		whole(&some[i], DTYPE_BF16);
		whole(&some[i], DTYPE_F32);
	}
	return done();
}
