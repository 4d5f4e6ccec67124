#include "kernels/cpu/simd_portable.h"

#include "kernels/cpu/bf16_wide.h"

#include "kernels/cpu/attention_rows.h"

const struct attention_kernel attention_portable = ATTENTION_KERNEL;
