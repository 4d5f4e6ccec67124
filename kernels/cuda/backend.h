#ifndef KERNELS_CUDA_BACKEND_H
#define KERNELS_CUDA_BACKEND_H

/* The functions behind the table of the CUDA backend: NAME_cuda for each op of kernels/ops.h, which says what they compute. */

#include <type_traits>

#include "kernels/cuda/runtime.h"

#define CUDA_OPS(X) \
	X(alloc) X(release) X(put) X(get) X(copy) X(zero) X(rows_gather) X(rows_scatter) \
	X(columns_copy) X(room) \
	X(matrix_init) X(matrix_load) X(matrix_release) X(linear_fwd) X(linear_parts) X(linear_join) X(linear_dx) X(linear_dw) \
	X(attention_fwd) X(attention_bwd) X(kv_page_bytes) X(kv_put) X(attention_cached) \
	X(embed_fwd) X(embed_bwd) X(rmsnorm_fwd) X(rmsnorm_bwd) X(rope) X(swiglu_fwd) X(swiglu_bwd) X(add) \
	X(route) X(route_bwd) X(sort_slots) X(grouped_fwd) X(grouped_dx) X(grouped_dw) X(permute) X(combine) X(weigh_bwd) X(unpermute) \
	X(sigmoid_fwd) X(sigmoid_bwd) \
	X(logprob) X(logprob_parts) X(logprob_join) X(logprob_bwd) X(sample) X(adamw) X(sumsq)

/* Those that are not there yet are NULL at the link. */
#define CUDA_DECLARE(name) std::remove_pointer_t<decltype(ops::name)> name##_cuda __attribute__((weak));
extern "C" { CUDA_OPS(CUDA_DECLARE) }

#endif
