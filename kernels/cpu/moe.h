#ifndef KERNELS_CPU_MOE_H
#define KERNELS_CPU_MOE_H

/* The ops of kernels/moe.h in the CPU's table. */

#include "kernels/moe.h"

void route_cpu(int *id, float *weight, float *p, float *lse, const float *z, long rows,
	       const struct routing *s, bool given);
void route_bwd_cpu(void *dz, const float *dweight, const int *id, const float *weight,
		   const float *p, const float *lse, const struct router_loss *own, long rows,
		   const struct routing *s, enum dtype t);
void sort_slots_cpu(long *offset, int *from, int *place, const int *id, long rows,
		    const struct routing *s);
void grouped_fwd_cpu(void *y, enum dtype ty, const void *x, const struct matrix *w,
		     const long *offset, long experts);
void grouped_dx_cpu(void *dx, enum dtype tx, const void *dy, const struct matrix *w,
		    const long *offset, long experts, bool add);
void grouped_dw_cpu(float *dw, const void *dy, const void *x, const long *offset, long experts,
		    long n, long k, enum dtype t);
void combine_cpu(void *y, const float *o, const int *place, const float *weight, const float *gate,
		 const float *shared, long rows, long k, long cols, enum dtype t);
void weigh_bwd_cpu(float *dweight, void *dact, void *act, const int *place, const float *weight,
		   long rows, long k, long cols, enum dtype t);
void unpermute_cpu(void *dx, const float *d, const int *place, long rows, long k, long cols,
		   enum dtype t);
void sigmoid_fwd_cpu(float *y, const float *x, long n);
void sigmoid_bwd_cpu(void *dx, const float *dy, const float *y, long n, enum dtype t);

#endif
