#ifndef KERNELS_CUDA_LINEAR_H
#define KERNELS_CUDA_LINEAR_H

/* What the products of the CUDA backend share on the host. */

#include "kernels/cuda/backend.h"

/*
 * How far the chunks of a row of w->fwd are apart, in values: a chunk's length, rounded up to 16
 * bytes.
 */
long matrix_packed(const struct matrix *w);

#endif
