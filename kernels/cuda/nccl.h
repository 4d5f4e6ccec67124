#ifndef KERNELS_CUDA_NCCL_H
#define KERNELS_CUDA_NCCL_H

/*
 * The functions of NCCL that the backend calls, found in libnccl.so.2 when several ranks start: neither a build nor one rank needs it.
 * Types are written after those of NVIDIA's nccl.h, which is not needed either.  NCCL only moves: nothing is added by
 * it, so its algorithms cannot touch a value.
 */

#include <cuda_runtime_api.h>

struct nccl_id { char internal[128]; };
enum { NCCL_SUCCESS = 0, NCCL_IN_PROGRESS = 7, NCCL_BYTES = 0 };        /* ncclSuccess, ncclInProgress, ncclInt8 */

#define NCCL_FUNCTIONS(X) \
	X(int, GetUniqueId, (struct nccl_id *id)) \
	X(int, CommInitRank, (void **comm, int size, struct nccl_id id, int rank)) \
	X(int, CommDestroy, (void *comm)) \
	X(int, CommAbort, (void *comm)) \
	X(int, CommGetAsyncError, (void *comm, int *error)) \
	X(int, GroupStart, (void)) \
	X(int, GroupEnd, (void)) \
	X(int, Send, (const void *p, size_t n, int type, int peer, void *comm, cudaStream_t s)) \
	X(int, Recv, (void *p, size_t n, int type, int peer, void *comm, cudaStream_t s)) \
	X(int, AllGather, (const void *mine, void *all, size_t n, int type, void *comm, cudaStream_t s)) \
	X(int, Broadcast, (const void *from, void *to, size_t n, int type, int root, void *comm, cudaStream_t s)) \
	X(const char *, GetErrorString, (int error)) \
	X(const char *, GetLastError, (void *comm))

struct nccl {
#define NCCL_MEMBER(result, name, parameters) result (*name) parameters;
	NCCL_FUNCTIONS(NCCL_MEMBER)
#undef NCCL_MEMBER
};

/* Where a library is linked that stands in for NCCL (tests/emu/nccl.cpp). */
extern "C" const struct nccl nccl_linked __attribute__((weak));

#endif
