#include "kernels/cpu/simd_portable.h"

#include "kernels/cpu/bf16_wide.h"

#define SHAPES(X) X(1, 1) X(1, 2) X(1, 3) X(1, 4) X(2, 1) X(2, 2) X(2, 3) X(2, 4)
enum { TILE_ROWS = 2 };
static const int widest_f32[TILE_ROWS + 1] = { 0, 4, 4 };
static const int widest_bf16[TILE_ROWS + 1] = { 0, 4, 4 };

#include "kernels/cpu/linear_tile.h"

const struct linear_kernel linear_portable = LINEAR_KERNEL;
