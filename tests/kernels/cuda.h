#ifndef TESTS_KERNELS_CUDA_H
#define TESTS_KERNELS_CUDA_H

/*
 * For tests of the CUDA backend.  They are linked as `make emu` does and run by tests/kernels/cuda.sh, with CAIRN_CUDA_SO naming the
 * library for the emulated device, or on a GPU.  A value is compared with a reference in float64 over what the kernel was given (bf16
 * inputs are exact in it), rounded once to the kernel's type: worst difference over the norm's largest value, at most 4e-3 for bf16 and
 * 1e-5 for float32.
 */

#include "kernels/ops.h"
#include "libcommon/rng.h"
#include "libcommon/xalloc.h"
#include "tests/lib/tap.h"

static const struct ops *cuda, *cpu;

/* Both backends, or the end of the test. */
static inline void cuda_start(void)
{
	struct err e = ERR_INIT;

	cuda = ops_find("cuda", NULL, &e);
	if (!cuda) {
		printf("Bail out! %s\n", e.msg);
		exit(69);
	}
	cpu = ops_find("cpu", NULL, &e);
	if (!cpu)
		die_err(&e);
}

/* An array in both memories: host as doubles that type t holds exactly. */
struct array {
	long n;
	enum dtype t;
	double *x;
	void *host;             /* the same as type t */
	void *dev;
};

static inline double as_type(double x, enum dtype t)
{
	return (double)(t == DTYPE_BF16 ? bf16_to_f32(f32_to_bf16((float)x)) : (float)x);
}

static inline void array_put(struct array *a)
{
	for (long i = 0; i < a->n; i++) {
		a->x[i] = as_type(a->x[i], a->t);
		if (a->t == DTYPE_BF16)
			((uint16_t *)a->host)[i] = f32_to_bf16((float)a->x[i]);
		else
			((float *)a->host)[i] = (float)a->x[i];
	}
	cuda->put(a->dev, a->host, (size_t)a->n * dtype_size(a->t));
}

static inline void array_get(struct array *a)
{
	cuda->get(a->host, a->dev, (size_t)a->n * dtype_size(a->t));
	for (long i = 0; i < a->n; i++)
		a->x[i] = (double)(a->t == DTYPE_BF16 ? bf16_to_f32(((uint16_t *)a->host)[i]) : ((float *)a->host)[i]);
}

/* n values, scale times normal(0, 1); what tells arrays apart.  0 scale: zeros. */
static inline struct array array_new(long n, enum dtype t, uint32_t what, double scale)
{
	size_t bytes = (size_t)n * dtype_size(t);
	struct array a = { n, t, xcalloc((size_t)n + 1, sizeof(double)), xmalloc(bytes + 1), cuda->alloc(bytes, "a test's array") };

	for (long i = 0; i < n; i += 2) {
		float p[2];

		rng_normal2(p, rng_key(7, RNG_TEST, what), (uint64_t)i, 0, 0);
		a.x[i] = scale * (double)p[0];
		if (i + 1 < n)
			a.x[i + 1] = scale * (double)p[1];
	}
	array_put(&a);
	return a;
}

static inline void array_free(struct array *a)
{
	cuda->release(a->dev);
	free(a->x);
	free(a->host);
}

/* NaN counts as infinitely far. */
static inline double distance(const struct array *got, const double *want)
{
	double d = 0, top = 1e-30;

	for (long i = 0; i < got->n; i++) {
		double one = fabs(got->x[i] - as_type(want[i], got->t));

		if (!(one <= d))
			d = isnan(one) ? INFINITY : one;
		top = fmax(top, fabs(want[i]));
	}
	return d / top;
}

static inline double tolerance(enum dtype t)
{
	return t == DTYPE_BF16 ? 4e-3 : 1e-5;
}

/* Fetches got and compares. */
#define near(got, want, ...) do { \
	double d_; \
	array_get(got); \
	d_ = distance(got, want); \
	ok(d_ <= tolerance((got)->t), __VA_ARGS__); \
	if (!(d_ <= tolerance((got)->t))) printf("# off by %g\n", d_); \
} while (0)

#endif
