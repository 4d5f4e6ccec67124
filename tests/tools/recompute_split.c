/* The control of exact.sh: recompute with splits of 256 keys, where the programs have 512. */
#include "kernels/ops.h"

#define ATTENTION_SPLIT 256
#include "kernels/cpu/attention.c"
#include "tests/tools/recompute.c"
