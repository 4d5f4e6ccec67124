#ifndef KERNELS_CUDA_RANKS_H
#define KERNELS_CUDA_RANKS_H

/* Several ranks, a device each: ranks.cu moves and adds, watch.cu starts NCCL and watches what hangs. */

#include "kernels/cuda/nccl.h"
#include "kernels/cuda/runtime.h"

extern "C" {
#include "libcommon/comm_device.h"

void *alloc_cuda(size_t bytes, const char *what);
void release_cuda(void *p);
}

extern const struct comm_device cuda_ranks;
extern struct nccl nccl;        /* once ranks_start() has found it */

int ranks_start(char which[COMM_DEVICE_NAME], long timeout_s, struct err *e);
void nccl_ok(int result, void *comm, const char *call); /* else the end (69) */

/* Events that are used again. */
cudaEvent_t ranks_event(void);
void ranks_event_free(cudaEvent_t e);

/*
 * A call is watched from when all before it in its stream has run; if it then takes longer than CAIRN_COMM_TIMEOUT, a thread names
 * it, aborts all communicators and ends the program (75).  Calls in one stream do not overlap.
 */
struct ranks_call {
	const char *group, *call;
	int rank, size;
	unsigned long number;
	size_t bytes;
};
void ranks_watch_begin(const struct ranks_call *c, cudaStream_t s);
void ranks_watch_end(cudaStream_t s);
void ranks_watch_group(void *comm, const char *name, bool there);

#endif
