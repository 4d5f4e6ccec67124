#ifndef KERNELS_CUDA_RUNTIME_H
#define KERNELS_CUDA_RUNTIME_H

/*
 * The host's side of the backend: one device, one stream of work.  Any error of CUDA ends the program (69), with op and kernel where
 * they are known: its context is lost then.  Errors of a kernel that runs show at the next wait; CUDA_LAUNCH_BLOCKING=1 finds which.
 */

#include <cuda_runtime_api.h>

extern "C" {
#include "kernels/ops.h"
}

enum { CUDA_SHARED = 48 << 10 };        /* of dynamic shared memory that a kernel has without asking */

extern cudaStream_t cuda_stream;
extern int cuda_processors;             /* multiprocessors of the device */
extern int cuda_shared_most;            /* bytes of dynamic shared memory that a block may ask for */

void cuda_ok(cudaError_t e, const char *what);
void cuda_launched(cudaError_t e, const char *op, const void *kernel);
void cuda_wait(const char *op);         /* until all that was launched has run */

/*
 * Bytes of host memory, given to what is launched next: they are read now and lie on the device, 16-byte aligned.  Valid for the launches
 * that follow, until CUDA_UPLOADS more uploads have been made.
 */
enum { CUDA_UPLOADS = 32 };
const void *cuda_upload(const void *host, size_t bytes);
template <class T> static inline const T *cuda_upload_array(const T *host, long n)
{
	return (const T *)cuda_upload(host, (size_t)n * sizeof(T));
}

/* Device memory for the inside of an op, at least that large, not cleared; each slot keeps its last.  For this op's launches only. */
enum cuda_scratch_slot { CUDA_SCRATCH_A, CUDA_SCRATCH_B, CUDA_SCRATCH_C, CUDA_SCRATCH_D, CUDA_SCRATCHES };
void *cuda_scratch(enum cuda_scratch_slot slot, size_t bytes);

/* Results to host memory: waits. */
void cuda_download(void *host, const void *device, size_t bytes, const char *op);

int cuda_open(int device, char *arch, size_t size, struct err *e);

#endif
