#ifndef KERNELS_CPU_ISA_H
#define KERNELS_CPU_ISA_H

/*
 * Which instruction set the products and attention use.  One choice holds for the process: the last
 * isa_choose(), or the best that the machine has.  A choice decides the bits of a result, nothing
 * else does; packed matrices and pages have the same layout in all of them.
 */

#include "libcommon/die.h"

#include <stdbool.h>

enum isa { ISA_PORTABLE, ISA_AVX2, ISA_AVX512, ISA_AVX512BF16, ISA_COUNT };

struct linear_kernel;           /* kernels/cpu/linear_kernel.h */
struct attention_kernel;        /* kernels/cpu/attention_kernel.h */

/* "portable", "avx2", "avx512", "avx512bf16"; NULL: the best.  -1: no such name (64), or not in
 * this CPU (69). */
int isa_choose(const char *name, struct err *e);
const char *isa_name(void);
const struct linear_kernel *linear_kernel(void);
const struct attention_kernel *attention_kernel(void);

/* Of the architecture: does this CPU have it, and its functions. */
bool isa_here(enum isa i);
const struct linear_kernel *isa_linear(enum isa i);
const struct attention_kernel *isa_attention(enum isa i);

#endif
