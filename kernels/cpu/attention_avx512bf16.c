#include "kernels/cpu/simd_avx512.h"

#include "kernels/cpu/bf16_pairs.h"

#include "kernels/cpu/attention_rows.h"

const struct attention_kernel attention_avx512bf16 = ATTENTION_KERNEL;
