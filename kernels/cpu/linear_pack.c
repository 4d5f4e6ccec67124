#include "kernels/cpu/linear_kernel.h"

#include <string.h>

static void pack_rows_f32(uint32_t *d, int width, const float *s, long ld, long cols, long k)
{
	for (long l = 0; l < cols; l++)
		for (long p = 0; p < k; p++)
			memcpy(d + p * width + l, s + l * ld + p, 4);
}

static void pack_rows_bf16(uint32_t *d, int width, const uint16_t *s, long ld, long cols, long k)
{
	for (long l = 0; l < cols; l++) {
		const uint16_t *row = s + l * ld;

		for (long p = 0; p < k / 2; p++)
			d[p * width + l] = row[2 * p] | (uint32_t)row[2 * p + 1] << 16;
		if (k & 1)
			d[k / 2 * width + l] = row[k - 1];
	}
}

void pack_rows(uint32_t *panel, int width, const void *s, long ld, long cols, long k, enum dtype t)
{
	long steps = steps_of(k, t);

	if (cols < width)
		for (long p = 0; p < steps; p++)
			memset(panel + p * width + cols, 0, (size_t)(width - cols) * 4);
	if (t == DTYPE_BF16)
		pack_rows_bf16(panel, width, s, ld, cols, k);
	else
		pack_rows_f32(panel, width, s, ld, cols, k);
}

static void pair_up(uint32_t *restrict d, const uint16_t *restrict low,
		    const uint16_t *restrict high, long n)
{
	for (long l = 0; l < n; l++)
		d[l] = low[l] | (uint32_t)high[l] << 16;
}

void pack_columns(uint32_t *panel, int width, const void *s, long ld, long cols, long k,
		  enum dtype t)
{
	long steps = steps_of(k, t);

	for (long p = 0; p < steps; p++, panel += width) {
		if (t == DTYPE_F32) {
			memcpy(panel, (const float *)s + p * ld, (size_t)cols * 4);
		} else if (2 * p + 1 < k) {
			const uint16_t *row = (const uint16_t *)s + 2 * p * ld;
			pair_up(panel, row, row + ld, cols);
		} else {
			for (long l = 0; l < cols; l++)
				panel[l] = ((const uint16_t *)s)[2 * p * ld + l];
		}
		if (cols < width)
			memset(panel + cols, 0, (size_t)(width - cols) * 4);
	}
}

void pack_tiles(uint32_t *tiles, long apart, const uint16_t *s, long ld, long rows, long k)
{
	long full = rows / TILE;

	for (long p = 0; p < k / 2; p++, s += 2 * ld)
		for (long i = 0; i < full; i++)
			pair_up(tiles + i * apart + p * TILE, s + i * TILE, s + ld + i * TILE, TILE);
	for (long i = 0; k & 1 && i < full; i++)
		for (long l = 0; l < TILE; l++)
			tiles[i * apart + k / 2 * TILE + l] = s[i * TILE + l];
	if (rows % TILE)
		pack_columns(tiles + full * apart, TILE, s - k / 2 * 2 * ld + full * TILE, ld, rows % TILE, k,
			     DTYPE_BF16);
}
