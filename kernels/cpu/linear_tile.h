/*
 * The tiles of linear_kernel.h over the vectors of one simd_*.h and the BF16 step of one bf16_*.h.
 *
 * The including file defines SHAPES(X), the register tiles X(rows, vectors) that it has, TILE_ROWS,
 * the most rows of one, and for each type the most vectors that fit the registers with so many
 * rows.
 */

#include "kernels/cpu/linear_kernel.h"

INLINE void f32_step(vf c[8][4], const int mr, const int nv, const char *x, long rs,
		     const uint32_t *w)
{
	vf b[4];

	UNROLL for (int j = 0; j < nv; j++)
		b[j] = vf_load((const float *)(const void *)(w + LANES * j));
	UNROLL for (int i = 0; i < mr; i++) {
		vf a = vf_set(float_at(x + i * rs));
		UNROLL for (int j = 0; j < nv; j++)
			c[i][j] = vf_fma(a, b[j], c[i][j]);
	}
}

INLINE void tile(const int mr, const int nv, const int bf16, const struct tile_args *t, long row,
		 long col)
{
	const char *x = t->x + row * t->rs, *ahead = t->ahead;
	const uint32_t *w = t->w + col;
	const long rs = t->rs, ks = t->ks, ldw = t->ldw, by = t->by, ldy = t->ldy;
	float *y = t->y + row * ldy + col;
	vf c[8][4];

	UNROLL for (int i = 0; i < mr; i++)
		UNROLL for (int j = 0; j < nv; j++)
			c[i][j] = t->zero ? vf_set(0) : vf_load(y + i * ldy + LANES * j);
	for (long p = t->steps; p > 0; p--, x += ks, w += ldw, ahead += by) {
		UNROLL for (int j = 0; j < nv * LANES; j += 16)
			__builtin_prefetch(ahead + 4 * j, 0, 2);
		if (bf16)
			bf16_step(c, mr, nv, x, rs, ks, w);
		else
			f32_step(c, mr, nv, x, rs, w);
	}
	if (bf16 && t->odd)
		bf16_last(c, mr, nv, x, rs, w);
	UNROLL for (int i = 0; i < mr; i++)
		UNROLL for (int j = 0; j < nv; j++)
			vf_store(y + i * ldy + LANES * j, c[i][j]);
}

typedef void shape_fn(const struct tile_args *t, long row, long col);

#define DEFINE(mr, nv) \
	static void f32_##mr##_##nv(const struct tile_args *t, long row, long col) \
	{ \
		tile(mr, nv, 0, t, row, col); \
	} \
	static void bf16_##mr##_##nv(const struct tile_args *t, long row, long col) \
	{ \
		tile(mr, nv, 1, t, row, col); \
	}
SHAPES(DEFINE)
#define F32_ENTRY(mr, nv) [mr][nv] = f32_##mr##_##nv,
#define BF16_ENTRY(mr, nv) [mr][nv] = bf16_##mr##_##nv,
static shape_fn *const f32_shapes[TILE_ROWS + 1][5] = { SHAPES(F32_ENTRY) };
static shape_fn *const bf16_shapes[TILE_ROWS + 1][5] = { SHAPES(BF16_ENTRY) };

/* Cut a tile into those that fit the registers, rows evenly: 7 as 4 + 3, not 6 + 1. */
INLINE void cut(shape_fn *const shapes[TILE_ROWS + 1][5], const int *widest,
		const struct tile_args *t)
{
	int vectors = t->cols / LANES;

	for (int row = 0, parts = (t->rows + TILE_ROWS - 1) / TILE_ROWS; parts; parts--) {
		int mr = (t->rows - row + parts - 1) / parts;

		for (int col = 0; col < vectors; ) {
			int nv = vectors - col < widest[mr] ? vectors - col : widest[mr];

			shapes[mr][nv](t, row, col * LANES);
			col += nv;
		}
		row += mr;
	}
}

static void tile_f32(const struct tile_args *t)
{
	cut(f32_shapes, widest_f32, t);
}

static void tile_bf16(const struct tile_args *t)
{
	cut(bf16_shapes, widest_bf16, t);
}

static void widen(float *restrict y, const uint16_t *restrict x, long n)
{
	for (long i = 0; i < n; i++)
		y[i] = bf16_to_f32(x[i]);
}

static void join(float *restrict y, const float *restrict x, long n)
{
	for (long i = 0; i < n; i++)
		y[i] += x[i];
}

static void finish_f32(float *restrict y, const float *restrict acc, const float *restrict bias,
		       long n, bool add)
{
	if (bias)
		for (long i = 0; i < n; i++)
			y[i] = acc[i] + bias[i];
	else if (add)
		for (long i = 0; i < n; i++)
			y[i] += acc[i];
	else
		memcpy(y, acc, (size_t)n * 4);
}

static void finish_bf16(uint16_t *restrict y, const float *restrict acc, const float *restrict bias,
			long n, bool add)
{
	if (bias)
		for (long i = 0; i < n; i++)
			y[i] = f32_to_bf16(acc[i] + bias[i]);
	else if (add)
		for (long i = 0; i < n; i++)
			y[i] = f32_to_bf16(bf16_to_f32(y[i]) + acc[i]);
	else
		for (long i = 0; i < n; i++)
			y[i] = f32_to_bf16(acc[i]);
}

static void finish(void *y, enum dtype ty, const float *acc, const void *bias, enum dtype t, long n,
		   bool add)
{
	float wide[PANEL];

	if (bias && t == DTYPE_BF16) {
		widen(wide, bias, n);
		bias = wide;
	}
	if (ty == DTYPE_BF16)
		finish_bf16(y, acc, bias, n, add);
	else
		finish_f32(y, acc, bias, n, add);
}

#define LINEAR_KERNEL { .pairs = BF16_PAIRS, .tile_f32 = tile_f32, .tile_bf16 = tile_bf16, \
	.widen = widen, .join = join, .finish = finish }
