#ifndef LIBCOMMON_COMM_H
#define LIBCOMMON_COMM_H

/*
 * Ranks that work together.  The world comes from the launcher (mpirun, srun); groups are cut from it.  With one rank every
 * function is trivial and no library is opened.  Under a launcher MPI is opened as a shared object that lies beside the programs
 * (libexec/cairn/comm_mpi.so); a launcher that says n > 1 where that is not there, or where MPI says otherwise, is an error (69),
 * never n copies of one rank.
 *
 * Every member of a group calls the same functions in the same order with matching sizes.  Sums are formed in ascending order of
 * ranks, ((r0 + r1) + r2) + ..., on every rank alike, whatever the library would do: the bits do not depend on it.  Sizes are
 * 64-bit; a transfer of more than the library's limit is cut into pieces.  One thread at a time calls.  Scratch memory: 16 MiB for
 * a sum, size * count[rank] elements for a scatter_sum.
 *
 * Failure.  A rank that dies (die(), bug(), a signal) ends all ranks with its message and its exit status.  A call that waits longer
 * than CAIRN_COMM_TIMEOUT seconds (600; 0: for ever) ends all with the name of the group, of the call, its number and its size (75).
 */

#include "libcommon/die.h"

#include <stdbool.h>
#include <stddef.h>

struct comm {
	int rank, size;
	const char *name;               /* "world", "tp", "dp", ...: for messages */
	const struct comm_ops *ops;     /* NULL: one rank */
	void *impl;
};

int comm_init(struct comm *world, struct err *e) MUST_CHECK; /* reads OMPI_COMM_WORLD_SIZE, PMI_SIZE, SLURM_NTASKS under srun */
/* The ranks of `c` that gave the same color, ordered by key, then rank.  Every rank of c calls it.  name: a literal. */
void comm_split(struct comm *out, struct comm *c, int color, int key, const char *name);
void comm_release(struct comm *c);

void comm_barrier(struct comm *c);
void comm_broadcast(struct comm *c, void *p, size_t bytes, int root);
/* In place: the sum (the largest; NaN where there is one) over the ranks, on every rank. */
void comm_sum_f32(struct comm *c, float *x, size_t n);
void comm_sum_f64(struct comm *c, double *x, size_t n);
void comm_max_f32(struct comm *c, float *x, size_t n);
/* all: what each rank gave, in order of ranks, on every rank.  gather_v: bytes[size] of each, the same on every rank. */
void comm_gather(struct comm *c, void *all, const void *mine, size_t bytes);
void comm_gather_v(struct comm *c, void *all, const void *mine, const size_t *bytes);
/* in: count[0] + ... + count[size - 1] elements on every rank; out: the sum of part `rank`, count[rank] of them. */
void comm_scatter_sum_f32(struct comm *c, float *out, const float *in, const size_t *count);
/* Rank i gets send_bytes[i] from `send`, where the parts lie in order of ranks; what comes lies in order of ranks in recv. */
void comm_all_to_all(struct comm *c, void *recv, const size_t *recv_bytes, const void *send, const size_t *send_bytes);

/*
 * Point to point: messages between two different ranks arrive in the order sent, also while nobody calls.  Buffers stay untouched
 * until comm_wait().
 */
struct comm_request { void *impl; };
void comm_send(struct comm *c, struct comm_request *q, const void *p, size_t bytes, int to);
void comm_recv(struct comm *c, struct comm_request *q, void *p, size_t bytes, int from);
/* comm_scatter_sum_f32() that runs while the caller computes; `in` and `out` stay untouched until comm_wait(). */
void comm_scatter_sum_start(struct comm *c, struct comm_request *q, float *out, const float *in, const size_t *count);
void comm_wait(struct comm *c, struct comm_request *q);

/*
 * The same for the backend's memory (kernels/ops.h), which on a GPU the host does not touch.  Everything above takes plain memory; these
 * take the backend's, and are those above where it is plain memory.  On a GPU a call returns at once: what it moves is there for kernels
 * that are launched after it, and comm_dev_wait() makes these wait, not the host.  Sums have the same bits.
 */
struct comm_device;     /* libcommon/comm_device.h; a backend has one: struct ops, `ranks` */
/* Before the first of them, by all ranks; d NULL: plain memory.  Refused (69): two ranks of a host on one device, no NCCL. */
int comm_use_device(struct comm *world, const struct comm_device *d, struct err *e) MUST_CHECK;
void comm_dev_broadcast(struct comm *c, void *p, size_t bytes, int root);
void comm_dev_sum_f32(struct comm *c, float *x, size_t n);
void comm_dev_gather_v(struct comm *c, void *all, const void *mine, const size_t *bytes);
void comm_dev_scatter_sum_f32(struct comm *c, float *out, const float *in, const size_t *count);
void comm_dev_scatter_sum_start(struct comm *c, struct comm_request *q, float *out, const float *in, const size_t *count);
void comm_dev_all_to_all(struct comm *c, void *recv, const size_t *recv_bytes, const void *send, const size_t *send_bytes);
void comm_dev_send(struct comm *c, struct comm_request *q, const void *p, size_t bytes, int to);
void comm_dev_recv(struct comm *c, struct comm_request *q, void *p, size_t bytes, int from);
void comm_dev_wait(struct comm *c, struct comm_request *q);

/* All ranks agree: 0 where rc is 0 everywhere, else -1 on all with the message of the lowest rank that failed; die_err() of the
 * others leaves it to that rank to say it. */
int comm_agree(struct comm *c, int rc, struct err *e) MUST_CHECK;

#endif
