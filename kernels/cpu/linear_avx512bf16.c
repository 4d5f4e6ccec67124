#include "kernels/cpu/simd_avx512.h"

#include "kernels/cpu/bf16_pairs.h"

#define ROW(X, mr) X(mr, 1) X(mr, 2) X(mr, 3)
#define SHAPES(X) ROW(X, 1) X(1, 4) ROW(X, 2) X(2, 4) ROW(X, 3) X(3, 4) ROW(X, 4) X(4, 4) \
	ROW(X, 5) X(5, 4) ROW(X, 6) X(6, 4) ROW(X, 7) ROW(X, 8)
enum { TILE_ROWS = 8 };
static const int widest_f32[TILE_ROWS + 1] = { 0, 4, 4, 4, 4, 4, 4, 3, 3 };
static const int widest_bf16[TILE_ROWS + 1] = { 0, 4, 4, 4, 4, 4, 4, 3, 3 };

#include "kernels/cpu/linear_tile.h"

const struct linear_kernel linear_avx512bf16 = LINEAR_KERNEL;
