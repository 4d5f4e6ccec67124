#ifndef KERNELS_CUDA_LOGPROB_H
#define KERNELS_CUDA_LOGPROB_H

/* Log-probabilities as logprob() gives them, for ops that need them on the device: sample(). */

#include "kernels/cuda/runtime.h"

/* 1 / temperature, of each row (on the device) or (of_row NULL) of all. */
struct cuda_inverse { const float *of_row; float all; };

/*
 * lp[rows], lse[rows], entropy[rows] on the device, in CUDA_SCRATCH_B; CUDA_SCRATCH_A is used up.  target on the device; a row with
 * target -1 has lp NaN.
 */
float *cuda_logprob_rows(const char *op, const float *z, const int *target, long rows, long V, struct cuda_inverse inverse);

#endif
