#ifndef KERNELS_MOE_H
#define KERNELS_MOE_H

/*
 * A layer with experts, as ops (struct ops, kernels/ops.h; on the CPU kernels/cpu/moe.c and
 * moe_rows.c).  For a row x of type t:
 *
 *	z = x Wr^T  (linear_fwd to fp32)        p = softmax(z)   [route]
 *	e_1 .. e_k: the k highest z, of equals the lower expert first; never one twice
 *	w_s = p[e_s], or with norm softmax over the k of them (what p[e_s] / sum_s p[e_s] is)
 *	y = sum_s w_s o_s,  o_s = (silu(x Wg^T) * (x Wu^T)) Wd^T of expert e_s in fp32   [combine]
 *
 * and where the layer has a shared expert, + sigmoid(x wg) o_shared.  Slots s are in falling order
 * of z.  y is summed in fp32 in that order, the shared expert last, and rounded once; every token
 * visits all of its experts, however many others do.  So the value of a row depends on nothing but
 * the row.
 *
 * Products want the rows of an expert together.  A slot (row r, s) has the place place[r k + s] in
 * that order: by expert, within an expert by row (and a row has an expert once).  Rows offset[e] ..
 * offset[e + 1] - 1 of what is permuted are expert e's; from[i] is the row that lies at place i.
 *
 * Backward, with g = dy Wd of the slot's expert (grouped_dx of the permuted dy):
 *
 *	dw_s = g_s . act_s;  d act_s = w_s g_s;  dWd += dy^T (w_s act_s)   [weigh_bwd]
 *	dz: through the weights, of the k chosen with norm and of all without   [route_bwd]
 *	dx = sum_s dx_s in slot order, in fp32, rounded once   [unpermute]
 *
 * so that o need not be kept.  The choice itself has no gradient.  An expert without rows has a
 * gradient of zeros.
 */

#include "kernels/ops.h"

#endif
