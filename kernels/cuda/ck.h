#ifndef KERNELS_CUDA_CK_H
#define KERNELS_CUDA_CK_H

/*
 * CUDA for kernels that are compiled twice: by nvcc for the GPU, and by g++ for the emulator that tests them (docs/cuda.md).
 * Only this header knows which; a kernel holds no assembly, no <<<>>>, no __shared__ of its own.
 *
 *	CK_SHARED(float, part, [8][32]);        an array in shared memory; CK_SHARED(float, x, ); one value.  At most 48 KiB a block
 *	CK_DYN_SHARED(raw);                     unsigned char *raw: what the launch asked for, 1024-byte aligned; with it no CK_SHARED
 *	ck_launch({ "rmsnorm_fwd", blocks, threads }, kernel<T>, a, b, ...);    runtime.h
 *
 * Fragments are those of the PTX ISA: with g = lane / 4, t = lane % 4,
 *
 *	ck_mma_bf16(d, a, b)    d[16, 8] += a[16, 16] b[16, 8]; two bf16 a register, the lower k in the lower half
 *		d: rows g, g, g + 8, g + 8; columns 2 t, 2 t + 1, 2 t, 2 t + 1
 *		a: rows g, g + 8, g, g + 8; k = 2 t (+ 1), 2 t, 2 t + 8, 2 t + 8        b: k = 2 t (+ 1), 2 t + 8; column g
 *	ck_mma_tf32(d, a, b)    d[16, 8] += a[16, 8] b[8, 8]; a register each, from ck_tf32()
 *		a: rows g, g + 8, g, g + 8; k = t, t, t + 4, t + 4                      b: k = t, t + 4; column g
 *	ck_ldmatrix(r, p)       r[i] of each lane: row g, columns 2 t, 2 t + 1 of the i-th 8 x 8 matrix of 16-bit values, whose row j lies
 *	                        at the p of lane 8 i + j (16 bytes, aligned); r of 4 or 2.  ck_ldmatrix_trans: of the transposed matrices
 *	ck_copy16(to, from, given)      cp.async of 16 aligned bytes into shared memory, zeros where not given; ck_copy4: of 4
 *	ck_copy_commit(), ck_copy_wait<N>()     close a group; wait until at most N of this thread's groups are under way
 *
 * ck_exp2(x) is 2^x to 2 ulp (ex2.approx.ftz).  ck_anew(i): what follows from the int i is computed anew, and not held in registers
 * since before.
 */

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <math.h>
#include <stdint.h>
#include <string.h>

#ifdef CK_EMU
#include CK_EMU
#else
#include "kernels/cuda/ptx.h"
#endif

#include "kernels/cuda/runtime.h"

typedef __nv_bfloat16 bf16;

/* Where and how a kernel runs; blocks of 0: not at all. */
struct ck_grid {
	const char *op;
	dim3 blocks, threads;
	size_t shared;
};

/* Arguments are converted to the kernel's types.  What goes wrong names op and kernel. */
template <class... P, class... A> static inline void ck_launch(const struct ck_grid &g, void (*kernel)(P...), A... a)
{
	static_assert(sizeof...(P) == sizeof...(A), "a kernel is launched with as many arguments as it has");
	if (!g.blocks.x || !g.blocks.y || !g.blocks.z)
		return;
	if (g.shared > CUDA_SHARED)
		cuda_launched(cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)g.shared),
			      g.op, (const void *)kernel);
	cuda_launched(ck_start(kernel, g.blocks, g.threads, g.shared, cuda_stream, static_cast<P>(a)...), g.op, (const void *)kernel);
}

/* How many blocks of `each` cover n, for a grid's x. */
static inline unsigned ck_blocks(long n, long each)
{
	long blocks = (n + each - 1) / each;

	if (blocks > 0x7fffffff)
		bug("%ld blocks", blocks);
	return (unsigned)blocks;
}

#endif
