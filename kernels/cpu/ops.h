#ifndef KERNELS_CPU_OPS_H
#define KERNELS_CPU_OPS_H

#include "kernels/ops.h"

/* The CPU's table, with that instruction set (NULL: the best here).  One choice a process: the last one holds. */
const struct ops *ops_cpu(const char *isa, struct err *e);

#endif
