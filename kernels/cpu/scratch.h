#ifndef KERNELS_CPU_SCRATCH_H
#define KERNELS_CPU_SCRATCH_H

/*
 * Working memory that lives as long as the process and only grows, since a first touch of a page
 * costs more than the arithmetic on it.  One buffer for each (thread of the pool, use); what it
 * held is lost when it grows. SCRATCH_SHARED and beyond belong to the caller of pool_run(), which
 * is no part itself and passes thread 0; the others to its parts.
 */

#include <stddef.h>

enum scratch {
	SCRATCH_X, SCRATCH_Y, SCRATCH_ROWS,
	SCRATCH_SHARED, SCRATCH_LIST, SCRATCH_PARTIAL, SCRATCH_SPLITS, SCRATCH_COUNT
};

void *scratch(enum scratch use, int thread, size_t bytes);      /* 64-byte aligned, not zeroed */

#endif
