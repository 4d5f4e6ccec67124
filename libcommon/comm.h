#ifndef LIBCOMMON_COMM_H
#define LIBCOMMON_COMM_H

/*
 * Ranks.  Today one rank; the interface is general so that code above never asks.  A launcher that says
 * n > 1 while this build has no MPI is an error (69), never n copies of one rank.
 */

#include "libcommon/die.h"

#include <stddef.h>

struct comm {
	int rank, size;
	const struct comm_ops *ops;     /* NULL: one rank */
	void *impl;
};

int comm_init(struct comm *c, struct err *e) MUST_CHECK; /* reads OMPI_COMM_WORLD_SIZE, PMI_SIZE, SLURM_NTASKS under srun */
void comm_barrier(struct comm *c);
/* In place, in a fixed order of ranks. */
void comm_sum_f32(struct comm *c, float *x, size_t n);
void comm_sum_f64(struct comm *c, double *x, size_t n);
void comm_gather(struct comm *c, void *all, const void *mine, size_t bytes); /* all: size * bytes, on every rank */
void comm_broadcast(struct comm *c, void *p, size_t bytes, int root);
void comm_release(struct comm *c);

#endif
