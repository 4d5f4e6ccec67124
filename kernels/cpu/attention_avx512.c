#include "kernels/cpu/simd_avx512.h"

#include "kernels/cpu/bf16_wide.h"

#include "kernels/cpu/attention_rows.h"

const struct attention_kernel attention_avx512 = ATTENTION_KERNEL;
