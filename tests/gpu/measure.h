#ifndef TESTS_GPU_MEASURE_H
#define TESTS_GPU_MEASURE_H

/*
 * What the measurements of the GPU share.  Floors stand on two rates: of a copy, measured here
 * (read plus written bytes a second), and of bfloat16 products, which CAIRN_GPU_MATRIX gives in
 * FLOP/s where PyTorch was there to measure it, else the 790e12 that cuBLAS reaches on an H200.  A
 * line: name, microseconds, what that is, microseconds of the floor, floor / time; between tabs.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/ops.h"
#include "libcommon/pool.h"
#include "libcommon/rng.h"
#include "libcommon/xalloc.h"

static const struct ops *k;
static bool tiny;
static void *probe;
static double copy_rate, matrix_rate;

static inline double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Until all that was launched has run. */
static inline void wait_all(void)
{
	int x;

	k->get(&x, probe, sizeof(x));
}

/* Seconds of a call: the best of three rounds of so many that a round takes 15 ms; the first call
 * of all warms up. */
#define SECONDS(call) \
	({ \
		double best_ = 1e30, begin_, s_; \
		long n_ = 1; \
		call; \
		wait_all(); \
		for (int round_ = 0; round_ < (tiny ? 1 : 4); round_++) { \
			begin_ = now(); \
			for (long i_ = 0; i_ < n_; i_++) { \
				call; \
			} \
			wait_all(); \
			s_ = (now() - begin_) / (double)n_; \
			best_ = s_ < best_ ? s_ : best_; \
			if (!round_) \
				n_ = 0.015 / s_ > 1 ? (long)(0.015 / s_) : 1; \
		} \
		best_; \
	})

/* A line of the table. */
static inline void report(const char *name, double seconds, double bytes, double flops)
{
	double floor =
		bytes / copy_rate > flops / matrix_rate ? bytes / copy_rate : flops / matrix_rate;
	bool moved = bytes / copy_rate > flops / matrix_rate;

	printf("%s\t%.1f\t%.3g %s\t%.1f\t%.2f\n", name, 1e6 * seconds,
	       moved ? bytes / seconds / 1e12 : flops / seconds / 1e12, moved ? "TB/s" : "TFLOP/s",
	       1e6 * floor, floor / seconds);
	fflush(stdout);
}

/* n values in (-scale, scale) of type t. */
static inline void *values(long n, enum dtype t, float scale)
{
	enum { PERIOD = 1 << 16 };
	size_t e = dtype_size(t);
	long period = n < PERIOD ? n : PERIOD;
	float *f = xmalloc((size_t)period * 4 + 4);
	void *host = xmalloc((size_t)period * e + 1),
	     *p = k->alloc((size_t)n * e + 1, "a bench's array");

	for (long i = 0; i < period; i++)
		f[i] = scale *
		       (2 * rng_uniform(rng_key(1, RNG_TEST, (uint64_t)n), (uint64_t)i, 0, 0) - 1);
	dtype_convert(host, t, f, DTYPE_F32, (size_t)period);
	for (long i = 0; i < n; i += period)
		k->put((char *)p + (size_t)i * e, host,
		       (size_t)(n - i < period ? n - i : period) * e);
	free(f);
	free(host);
	return p;
}

static inline void measure_start(int argc, char **argv)
{
	struct err e = ERR_INIT;
	const char *rate = getenv("CAIRN_GPU_MATRIX");
	size_t bytes;
	void *a, *b;

	tiny = argc > 1 && !strcmp(argv[1], "--tiny");
	pool_start(0);
	k = ops_find("cuda", NULL, &e);
	if (!k)
		die_err(&e);
	probe = k->alloc(64, "a bench's probe");
	bytes = tiny ? 1 << 16 : 1u << 30;
	a = k->alloc(bytes, "a copy");
	b = k->alloc(bytes, "a copy");
	copy_rate = 2 * (double)bytes / SECONDS(k->copy(a, b, bytes));
	k->release(a);
	k->release(b);
	matrix_rate = rate && atof(rate) > 0 ? atof(rate) : 790e12;
}

#endif
