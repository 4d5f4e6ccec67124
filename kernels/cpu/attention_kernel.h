#ifndef KERNELS_CPU_ATTENTION_KERNEL_H
#define KERNELS_CPU_ATTENTION_KERNEL_H

/*
 * What an instruction set provides for attention beside the tiles of linear_kernel.h, and the
 * layouts that all share.
 *
 * Keys: words [step of d][64 keys].  Values: words [step of keys][width], width = d rounded up to
 * LINE, columns past d zero.  A step is a pair of bf16 or a float, as in linear_kernel.h, so both
 * are right operands of a tile.
 */

#include "kernels/cpu/linear_kernel.h"
#include "kernels/ops.h"

/* How bf16 left operands lie: as they are where the kernel has pairs, else widened to floats. */
enum weight_form { WEIGHT_F32, WEIGHT_WIDE, WEIGHT_PAIRS };

/* Rows of 64 become left operands in place, 256 bytes apart: floats, or 64 bf16 at the front
 * where there are pairs. */
struct attention_kernel {
	/*
	 * One row of scores s[64] against a tile of keys, of which the first nkeys count:
	 * m' = max(m, s);  s = 2^(c (s - m'));  l (16 lanes) and o (width) scaled by
	 * 2^(c (m - m')), and s added to l.
	 */
	void (*softmax)(float *s, int nkeys, float c, float *m, float *l, float *o, long width,
			bool bf16);
	/* Join (m, l, o) of a later split to those of the earlier ones; l is one number here. */
	void (*merge)(float *m, float *l, float *o, float m1, float l1, const float *o1, float c,
		      long width);
	/* p = 2^(c s - lse2), ds = p (dp - delta) scale, zero from nkeys on.  64 each. */
	void (*backward)(float *p, float *ds, int nkeys, float c, float lse2, float delta,
			 float scale, bool bf16);
};

extern const struct attention_kernel attention_portable, attention_avx2;
extern const struct attention_kernel attention_avx512, attention_avx512bf16;

/* The sizes that follow from a shape and a type. */
struct attention_plan {
	const struct linear_kernel *linear;
	const struct attention_kernel *rows;
	enum dtype t;
	enum weight_form form;
	long heads, kv_heads, group, d, width;
	long key_words, value_words;    /* of a page and kv head: keys, then values */
	long q_bytes;                   /* of an element of a left operand */
	float scale, c;                 /* c = scale log2 e */
};

struct attention_plan attention_plan(const struct attention_shape *s, enum dtype t);

/* Copy n rows of d elements, `stride` elements apart, as a left operand, dense. */
void attention_left(const struct attention_plan *a, void *out, const void *x, long stride, long n);
/* y[rows, cols] = (zero ? 0 : y) + x w, any number of rows, cols a multiple of LINE; x as
 * tile_args; k counts k, not steps. */
void attention_product(const struct attention_plan *a, float *y, long ldy, const void *x, long rs,
		       long ks, const uint32_t *w, long ldw, long k, long rows, long cols,
		       bool zero, const void *ahead);
/* Pieces from piece[i] on that share their keys: how many, and the most keys of one. */
long attention_group(long *keys, const struct attention_piece *piece, long i, long pieces);

#endif
