#ifndef KERNELS_MODEL_EP_H
#define KERNELS_MODEL_EP_H

/*
 * Experts that lie over ranks.  Of the E experts rank i of an EP group has those of its box, and of
 * these each rank of an ETP group a part of the width.  Every rank has rows of its own, with k
 * slots each (kernels/moe.h), sorted by expert:
 *
 *	there	slots go to the rank that has their expert, all of them (dropless); the ranks of an
 *		ETP group then have those of all of its ranks.  They are put in the order expert,
 *		source rank, row.
 *	experts	as on one rank; the fp32 sums of a cut down_proj are joined over ETP by the tree of
 *		all chunks
 *	back	each slot's output, in fp32, to where it came from, where combine() adds the slots
 *		of a row in their order
 *
 * so a row has the bits of one rank.  What lies between is not kept for the backward pass: rows
 * travel again, and the experts' two inner products are made again, since how many slots a rank
 * gets is known to nobody beforehand.  Gradients of inputs and weights of slots go back in fp32,
 * summed over ETP in order of ranks.
 *
 * Every rank of the EP and ETP groups takes part in every call, with rows or without.
 */

#include "kernels/model/moe.h"

static inline bool ep_over_ranks(const struct model *m)
{
	return m->mesh->ep.size * m->mesh->etp.size > 1;
}
/* o->o[slots, H] from o->xs, by places; o->offset is of this rank's slots and all experts. */
void ep_forward(const struct model *m, const struct layer *l);
/*
 * o->o: gradients of o->xs, o->dweight[slots] by places, both from o->xs, o->ds and weight[slots]
 * by places.
 */
void ep_backward(const struct model *m, const struct layer *l, const float *weight);

#endif
