#ifndef KERNELS_CPU_BACKEND_H
#define KERNELS_CPU_BACKEND_H

/* The functions behind the CPU's table of ops; what they compute stands in kernels/ops.h. */

#include "kernels/ops.h"

void matrix_init_cpu(struct matrix *w, enum dtype t, long n, long k, long chunks, bool backward);
void matrix_load_cpu(struct matrix *w, const void *rows);
void matrix_release_cpu(struct matrix *w);
void linear_fwd_cpu(void *y, enum dtype ty, const void *x, const struct matrix *w, const void *bias,
		    long m);
void linear_parts_cpu(float *y, const void *x, const struct matrix *w, long first, long all, long m);
void linear_join_cpu(void *y, enum dtype t, const float *parts, const struct tree_cut *c,
		     const void *bias, long m, long n);
void linear_dx_cpu(void *dx, enum dtype tx, const void *dy, const struct matrix *w, long m, bool add);
void linear_dw_cpu(float *dw, float *dbias, const void *dy, const void *x, long m, long n, long k,
		   enum dtype t);

void attention_fwd_cpu(void *out, float *lse, const void *q, const void *k, const void *v,
		       const struct attention_piece *piece, long pieces,
		       const struct attention_shape *s, enum dtype t);
void attention_bwd_cpu(void *dq, void *dk, void *dv, enum dtype tkv, const void *dout,
		       const void *out, const float *lse, const void *q, const void *k,
		       const void *v, const struct attention_piece *piece, long pieces,
		       const struct attention_shape *s, enum dtype t);
size_t kv_page_bytes_cpu(const struct attention_shape *s, enum dtype t);
void kv_put_cpu(const struct kv_row *row, const void *k, const void *v, long rows,
		const struct attention_shape *s, enum dtype t);
void attention_cached_cpu(void *out, const void *q, const struct kv_row *row, long rows,
			  const struct attention_shape *s, enum dtype t);

#endif
