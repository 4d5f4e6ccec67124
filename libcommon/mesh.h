#ifndef LIBCOMMON_MESH_H
#define LIBCOMMON_MESH_H

/*
 * The ranks of a run as two meshes (layout.h) and their groups.  With one rank every group has one member, and code above never
 * asks whether it runs in parallel.
 */

#include "libcommon/comm.h"
#include "libcommon/layout.h"

struct mesh {
	struct layout layout;           /* owned copy */
	struct place at;                /* of this rank */
	struct comm world;              /* borrowed from mesh_init()'s caller */
	struct comm tp;                 /* same cp, dp, pp */
	struct comm cp;                 /* same tp, dp, pp */
	struct comm dp;                 /* same tp, cp, pp */
	struct comm grad;               /* same tp, pp: DP x CP in order of (dp, cp); dense gradients are summed here, ZeRO-1 cuts by it */
	struct comm pp;                 /* same tp, cp, dp; its rank is the stage */
	struct comm stage;              /* same pp */
	struct comm ends;               /* first and last stage of a pp group; one rank elsewhere: tied embeddings */
	struct comm etp;                /* same ep, edp, pp */
	struct comm ep;                 /* same etp, edp, pp */
	struct comm edp;                /* same etp, ep, pp: expert gradients */
};

/* The world must have layout_world(l) ranks: EX_USAGE says both numbers and the mpirun line that is wanted. */
int mesh_init(struct mesh *m, const struct layout *l, const struct comm *world, struct err *e) MUST_CHECK;
void mesh_one(struct mesh *m, long layers);     /* one rank */
void mesh_release(struct mesh *m);

#endif
