#ifndef KERNELS_ATTENTION_H
#define KERNELS_ATTENTION_H

/*
 * Causal grouped-query attention; query head h reads key head h / (heads / kv_heads):
 *
 *	s_ij = q_i . k_j    p_ij = exp(scale s_ij - lse_i), j <= i
 *	lse_i = log sum_j exp(scale s_ij)
 *	out_i = sum_j p_ij v_j
 *
 *	dv_j  = sum_i p_ij dout_i               delta_i = dout_i . out_i
 *	ds_ij = scale p_ij (dout_i . v_j - delta_i)
 *	dq_i  = sum_j ds_ij k_j                 dk_j = sum_i ds_ij q_i
 *
 * (Dao et al., FlashAttention, 2022, and FlashAttention-2, 2023.)
 *
 * Forward.  Keys are taken in tiles of 64 counted from position 0 of their own sequence.  A tile's
 * scores are chains over d; then, with m the running maximum of the split (512 keys, from m =
 * -1e30, in whose place a paper writes -inf: the difference of two of them is no NaN),
 *	m' = max(m, s)    w = 2^(c (s - m')), c = scale log2 e
 *	l = l 2^(c (m - m')) + w    o = o 2^(c (m - m')) + w v
 * where l is 16 partial sums, key j in j mod 16, and w is rounded to bf16 for the product w v where
 * values are bf16.  At the end of a split l is summed in order and (m, l, o) joins those of the
 * splits before it; out = o / l.  A key past the row's position is never multiplied: its w is 0 and
 * its v is not read, whatever lies there.  Hence prefill, prefill in pieces and decode are one
 * computation, with keys from anywhere.
 *
 * Backward.  Every p and ds is computed again from lse.  In BF16 both are rounded to bf16 for the
 * products that use them.  dq sums over key tiles in ascending order; dk and dv over rows in
 * ascending order, position first, then head.  All sums are fp32 and rounded once.
 *
 * Rows come in pieces (struct attention_piece): the last positions of a sequence, or, with context
 * parallelism, any run of them against the keys up to its end; a row has the same bits in all.
 *
 * head_dim is even, at most 256.  The functions stand in struct ops (kernels/ops.h); on the CPU,
 * attention_*_cpu.
 */

#include "kernels/ops.h"

enum { ATTENTION_HEAD_DIM = 256 };      /* most */

#endif
