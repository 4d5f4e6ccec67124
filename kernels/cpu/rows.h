#ifndef KERNELS_CPU_ROWS_H
#define KERNELS_CPU_ROWS_H

/*
 * What the row-wise CPU ops share: types widened to fp32 a row at a time, sums in sixteen fixed lanes, and an
 * exponential of our own, so that a value depends on neither the instruction set nor the library's version.
 *
 * WIDE compiles a function for several instruction sets and picks one at load time.  Contraction is off and lanes are
 * spelt out, so all of them give the same bits.
 */

#include "libcommon/tensor.h"

#include <math.h>
#include <string.h>

#if defined(__x86_64__)
#define WIDE __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define WIDE
#endif

enum { LANES = 16, CHUNK = 1024 };

static inline const void *row_at(const void *p, long i, enum dtype t)
{
	return (const char *)p + (size_t)i * (t == DTYPE_F32 ? 4 : 2);
}

static inline void *row_at_mut(void *p, long i, enum dtype t)
{
	return (char *)p + (size_t)i * (t == DTYPE_F32 ? 4 : 2);
}

void widen(float *out, const void *in, long n, enum dtype t);
void narrow(void *out, const float *in, long n, enum dtype t);
/* In fp32 without a copy: `in` itself where it is fp32, else widened into buf. */
const float *as_f32(float *buf, const void *in, long n, enum dtype t);
/* A float buffer of this thread's own, at least n long; slot 0..3. */
float *row_scratch(int slot, long n);

/*
 * exp(x) to 2 ulp: x = n ln 2 + r, a polynomial of degree 6 in r, two exact scalings, so that results
 * below the smallest normal lose only their own bits.  exp(-inf) = 0, exp(0) = 1; NaN stays NaN; above 89: as 89.
 */
static inline float exp_f32(float x)
{
	union { float f; uint32_t u; } t, a, b;
	float n, r, p;
	int32_t k, half;

	x = x < -110.f ? -110.f : x;
	x = x > 89.f ? 89.f : x;
	t.f = x * 1.44269504f + 12582912.f;
	n = t.f - 12582912.f;
	k = (int32_t)(t.u - 0x4b400000u);
	r = x - n * 0.693359375f;
	r = r - n * -2.12194440e-4f;
	p = 1.98756915e-4f;
	p = p * r + 1.39819994e-3f;
	p = p * r + 8.33345205e-3f;
	p = p * r + 4.16657962e-2f;
	p = p * r + 1.66666657e-1f;
	p = p * r + 5.00000000e-1f;
	p = p * r * r + r + 1.f;
	half = k >> 1;
	a.u = ((uint32_t)half + 127u) << 23;
	b.u = ((uint32_t)k - (uint32_t)half + 127u) << 23;
	return p * a.f * b.f;
}

/* The sixteen lanes of a sum, by the fixed tree. */
static inline float lanes_sum(const float s[LANES])
{
	float t[8];

	for (int i = 0; i < 8; i++)
		t[i] = s[2 * i] + s[2 * i + 1];
	return ((t[0] + t[1]) + (t[2] + t[3])) + ((t[4] + t[5]) + (t[6] + t[7]));
}

/* -- the ops of kernels/ops.h that live in this folder's small files ------------------------------ */
struct adamw;
struct tree_cut;
struct sample_row;

void rows_gather_cpu(void *to, const void *from, const int *index, long rows, size_t bytes);
void rows_scatter_cpu(void *to, const void *from, const int *index, long rows, size_t bytes);
void permute_cpu(void *y, const void *x, const int *from, long rows, long cols, enum dtype t);
void embed_fwd_cpu(void *y, const void *table, const int *ids, long rows, long hidden, enum dtype t);
void embed_bwd_cpu(float *dtable, const void *dy, const int *ids, long rows, long hidden, enum dtype t);
void rmsnorm_fwd_cpu(void *y, float *rstd, const void *x, const void *w, long rows, long cols, float eps, enum dtype t);
void rmsnorm_bwd_cpu(void *dx, float *dw, const void *dy, const void *x, const void *w, const float *rstd,
		     long rows, long cols, bool add, enum dtype t);
void rope_cpu(void *x, const int *position, const float *cos, const float *sin, long rows, long heads, long d,
	      bool inverse, enum dtype t);
void swiglu_fwd_cpu(void *y, const void *gate, const void *up, long n, enum dtype t);
void swiglu_bwd_cpu(void *dgate, void *dup, const void *dy, const void *gate, const void *up, long n, enum dtype t);
void add_cpu(void *y, const void *a, const void *b, long n, enum dtype t);
void logprob_cpu(float *lp, float *lse, float *entropy, const float *z, const int *target, long rows, long V,
		 float temperature);
void logprob_bwd_cpu(void *dz, const float *dlp, const float *lse, const float *z, const int *target, long rows, long V,
		     float temperature, enum dtype t);
void logprob_parts_cpu(float *out, const float *z, const int *target, long rows, long n, const struct tree_cut *c, long rank,
		       float temperature);
void logprob_join_cpu(float *lp, float *lse, float *entropy, const float *all, const int *target, long rows,
		      const struct tree_cut *c);
void sample_cpu(int *id, float *lp, const float *z, const struct sample_row *how, const uint8_t *allowed, long rows, long V);
void adamw_cpu(float *w, float *m, float *v, uint16_t *low, const float *grad, long n, const struct adamw *h);
double sumsq_cpu(const float *x, long n);

/* One row of logprob(): the same bits wherever it is called from. */
void logprob_row(float *lp, float *lse, float *entropy, const float *z, int target, long V, float temperature);

#endif
