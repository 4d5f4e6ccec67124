#include "kernels/cpu/simd_avx2.h"

#include "kernels/cpu/bf16_wide.h"

#define ROW(X, mr) X(mr, 1) X(mr, 2) X(mr, 3)
#define SHAPES(X) ROW(X, 1) X(1, 4) ROW(X, 2) X(2, 4) ROW(X, 3) ROW(X, 4)
enum { TILE_ROWS = 4 };
static const int widest_f32[TILE_ROWS + 1] = { 0, 4, 4, 3, 3 };
/* A widened w takes registers of its own. */
static const int widest_bf16[TILE_ROWS + 1] = { 0, 4, 4, 2, 2 };

#include "kernels/cpu/linear_tile.h"

const struct linear_kernel linear_avx2 = LINEAR_KERNEL;
