#ifndef KERNELS_LINEAR_H
#define KERNELS_LINEAR_H

/*
 * A linear layer y = x W^T + b with W[n, k] (out, in), and its gradients:
 *
 *	y[i,o]  = T(sum_c) + b[o],  sum_c = chain over k in chunk c of x[i,k] W[o,k]    linear_fwd
 *	dx[i,k] = chain over o of dy[i,o] W[o,k]  (+ dx[i,k])                           linear_dx
 *	dW[o,k] = chain over i of dy[i,o] x[i,k], beginning with what dW holds          linear_dw
 *	db[o]   = chain over i of dy[i,o], beginning with what db holds
 *
 * A chain is one fp32 accumulator that takes its products in ascending order.  T is tree_join()
 * over the C chunks of k.  The sum is fp32; bias (or, with add, the old dx) is added to it in fp32;
 * then it is rounded once.
 *
 * With BF16 a chain takes k in pairs (0,1), (2,3), ... counted from the start of its chunk (dW:
 * from row 0 of the call), in the order of the instruction set.  So dW of micro-batches that are
 * cut at even rows has the bits of the whole, and a chunk of odd length ends in half a pair.
 *
 * K cut over ranks.  T is over all C chunks (kernels/tree.h).  Each rank gives the fp32 sums of the whole
 * nodes of T among its chunks (linear_parts); with all of them the rest of T is joined, bias added, and the
 * result rounded (linear_join): the same bits as linear_fwd of the whole matrix, for every cut between
 * chunks.  Where a cut falls within a chunk, or ranks are more than C, each rank's k are one chunk, and there
 * are as many chunks as ranks: then the bits are those of that cut alone.
 *
 * Nothing else reaches a bit: not the number of rows, their place, the threads, nor how a product
 * is cut into blocks.  A row of x with a NaN makes a NaN of its own row of y only.
 *
 * The functions stand in struct ops (kernels/ops.h); on the CPU they are linear*_cpu.
 */

#include "kernels/ops.h"

#endif
