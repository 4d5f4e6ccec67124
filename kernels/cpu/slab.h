#ifndef KERNELS_CPU_SLAB_H
#define KERNELS_CPU_SLAB_H

/*
 * Memory for packed matrices.  A model has hundreds of them, many smaller than a huge page, and a
 * matrix in small pages is read at half speed; so they lie side by side in large slabs, which go
 * when their last piece does.
 */

#include <stddef.h>

void *slab_alloc(size_t bytes);         /* 64-byte aligned, zeroed; dies with 69 */
void slab_free(void *p);                /* or NULL */

#endif
