#ifndef KERNELS_CPU_LINEAR_KERNEL_H
#define KERNELS_CPU_LINEAR_KERNEL_H

/*
 * What an instruction set provides for products, and how operands are packed for it.
 *
 * A step of a chain is one k for F32 and two (a pair: even, odd) for BF16.  The right operand is in
 * panels of words of 4 bytes, [step][column]: a float, or a pair of bf16 with the even k in the low
 * half.  A column is a lane, so nothing is ever summed across lanes: an element of y is one chain
 * over steps 0, 1, 2, ... whatever the number of rows.  Stored and reloaded between blocks of steps
 * as fp32, which is exact, it does not know the blocks.
 */

#include "libcommon/tensor.h"

enum {
	PANEL = 48,             /* columns of a panel; the last: its columns rounded up to LINE */
	LINE = 16,
	TILE = 8                /* most rows of a tile */
};

/*
 * y[rows, cols] = (zero ? 0 : y) + x w over `steps` steps; rows 1..TILE, cols a multiple of LINE up
 * to 64; ldy in floats.  x: rs bytes from row to row, ks from step to step.  An F32 step is a
 * float.  A BF16 step is a pair of bf16 where the kernel has `pairs`, else two floats ks / 2 bytes
 * apart.  odd: after the steps comes half of one, of which neither x nor w is read (or trusted)
 * beyond the first k.  ldw: words from step to step.  ahead, by: prefetch from there, so many bytes
 * a step.
 */
struct tile_args {
	float *y;
	long ldy;
	const char *x;
	long rs, ks;
	const uint32_t *w;
	long ldw, steps;
	int odd, rows, cols;
	bool zero;
	const char *ahead;
	long by;
};

struct linear_kernel {
	bool pairs;
	void (*tile_f32)(const struct tile_args *a);
	void (*tile_bf16)(const struct tile_args *a);
	void (*widen)(float *y, const uint16_t *x, long n);
	void (*join)(float *y, const float *x, long n);         /* y += x */
	/* y[n] of type ty = acc + bias (type t, or NULL) (+ y, if add). */
	void (*finish)(void *y, enum dtype ty, const float *acc, const void *bias, enum dtype t,
		       long n, bool add);
};

extern const struct linear_kernel linear_portable, linear_avx2, linear_avx512, linear_avx512bf16;

static inline long steps_of(long k, enum dtype t)
{
	return t == DTYPE_BF16 ? (k + 1) / 2 : k;
}

static inline int panel_width(long n, long j)
{
	long left = n - j * PANEL;

	return left >= PANEL ? PANEL : (int)((left + LINE - 1) / LINE * LINE);
}

/* One panel, [steps][width]: columns are `cols` rows of s (stride ld), or `cols` columns of the
 * k rows of s. Columns up to width are zero. */
void pack_rows(uint32_t *panel, int width, const void *s, long ld, long cols, long k, enum dtype t);
void pack_columns(uint32_t *panel, int width, const void *s, long ld, long cols, long k,
		  enum dtype t);
/* The rows of a transposed BF16 x, columns of s, in tiles [step][TILE] that lie `apart` words from each other: all tiles of
 * a step before the next step, so that s is read along its rows. */
void pack_tiles(uint32_t *tiles, long apart, const uint16_t *s, long ld, long rows, long k);

/* y = x w^T cut into blocks of rows and groups of panels; see linear.c. */
struct product {
	const struct linear_kernel *kernel;
	enum dtype t, ty;
	const char *x;          /* [m, k], or [k, m] if across */
	long ldx;
	bool across;
	const uint32_t *w;      /* panels: [panel][chunk][step][width] */
	long m, n, k, chunks;
	long skip, panel_chunks; /* w has more chunks in a panel than are summed: before them, in all (0: chunks) */
	char *y;
	long ldy;
	const char *bias;
	/* CONTINUE: the chains begin with what an fp32 y holds. */
	enum { PRODUCT_SET, PRODUCT_ADD, PRODUCT_CONTINUE } how;
};

void product_run(const struct product *p);
/* n of them at once, which do not write to the same place: the same bits, shared out together. */
void product_run_all(const struct product *p, long n);

#endif
