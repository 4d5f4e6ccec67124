#ifndef KERNELS_CUDA_HOST_H
#define KERNELS_CUDA_HOST_H

/* The seam between a program and cairn-cuda.so, which kernels/ops.c opens: the one function that it exports. */

#include "kernels/ops.h"

struct cuda_host {              /* how the library stops the program, and speaks; die and bug_at do not return */
	void (*die)(int code, const char *fmt, ...);
	void (*bug_at)(const char *file, int line, const char *fmt, ...);
	void (*log_info)(const char *fmt, ...);
};

/* NULL with e set (69) where there is no such device.  whole: only if every op is there. */
typedef const struct ops *(*cuda_open_ops)(const struct cuda_host *host, int device, bool whole, struct err *e);
#define CUDA_OPEN_OPS "cairn_cuda_ops"

#endif
