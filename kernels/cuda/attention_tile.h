#ifndef KERNELS_CUDA_ATTENTION_TILE_H
#define KERNELS_CUDA_ATTENTION_TILE_H

/*
 * Tiles of bf16 in shared memory as operands of mma.m16n8k16.  A row of D values is D / 8 chunks of 16 bytes; chunk c of row r lies at
 * chunk c ^ x(r), so that the 8 rows that an ldmatrix reads at one c are in 8 different groups of banks.
 */

#include "kernels/cuda/attention.h"

template <int D> DEVICE int place(int row, int chunk)
{
	return row * D + ((D % 64 ? chunk ^ (row >> 1 & 3) : chunk ^ (row & 7)) << 3);
}

/* s[16 MT, N] += a[16 MT, D] b[N, D]^T; both from shared memory, chains over D. */
template <int D, int MT, int N> DEVICE void scores(float (&s)[MT][N / 8][4], const bf16 *a, const bf16 *b)
{
	const int lane = threadIdx.x % 32;

#pragma unroll
	for (int k = 0; k < D / 16; k++) {
		uint32_t x[MT][4];

#pragma unroll
		for (int i = 0; i < MT; i++)
			ck_ldmatrix(x[i], a + place<D>(i * 16 + lane % 16, 2 * k + lane / 16));
#pragma unroll
		for (int n = 0; n < N / 16; n++) {
			uint32_t y[4];

			ck_ldmatrix(y, b + place<D>(n * 16 + lane % 8 + lane / 16 * 8, 2 * k + lane / 8 % 2));
			const uint32_t left[2] = { y[0], y[1] }, right[2] = { y[2], y[3] };
#pragma unroll
			for (int i = 0; i < MT; i++) {
				ck_mma_bf16(s[i][2 * n], x[i], left);
				ck_mma_bf16(s[i][2 * n + 1], x[i], right);
			}
		}
	}
}

/* o[16 MT, D] += w[16 MT, N] v[N, D]: w as fragments, v from shared memory, chains over N. */
template <int D, int MT, int N> DEVICE void weigh(float (&o)[MT][D / 8][4], const uint32_t (&w)[MT][N / 16][4], const bf16 *v)
{
	const int lane = threadIdx.x % 32;

#pragma unroll
	for (int k = 0; k < N / 16; k++)
#pragma unroll
		for (int n = 0; n < D / 16; n++) {
			uint32_t y[4];

			ck_ldmatrix_trans(y, v + place<D>(k * 16 + lane % 16, 2 * n + lane / 16));
			const uint32_t left[2] = { y[0], y[1] }, right[2] = { y[2], y[3] };
#pragma unroll
			for (int i = 0; i < MT; i++) {
				ck_mma_bf16(o[i][2 * n], w[i][k], left);
				ck_mma_bf16(o[i][2 * n + 1], w[i][k], right);
			}
		}
}

/* An accumulator as a left operand. */
template <int MT, int N> DEVICE void as_left(uint32_t (&w)[MT][N / 16][4], const float (&s)[MT][N / 8][4])
{
#pragma unroll
	for (int i = 0; i < MT; i++)
#pragma unroll
		for (int n = 0; n < N / 8; n++) {
			w[i][n / 2][n % 2 * 2] = two_halves(s[i][n][0], s[i][n][1]);
			w[i][n / 2][n % 2 * 2 + 1] = two_halves(s[i][n][2], s[i][n][3]);
		}
}

template <int MT, int N> DEVICE void clear(float (&s)[MT][N][4])
{
#pragma unroll
	for (int i = 0; i < MT; i++)
#pragma unroll
		for (int n = 0; n < N; n++)
			s[i][n][0] = s[i][n][1] = s[i][n][2] = s[i][n][3] = 0;
}

/* A row of d values into row `at` of a tile, by one thread a chunk; what is not given or past d is zero. */
template <int D> DEVICE void load_chunk(bf16 *to, int at, int chunk, const bf16 *row, bool given, int d, bool wide)
{
	bf16 *p = to + place<D>(at, chunk);

	if (wide) {
		given = given && chunk * 8 < d;
		ck_copy16(p, row + (given ? chunk * 8 : 0), given);
		return;
	}
	float x[8];

	load_wide(x, row, chunk * 8, given ? d : 0, false);
	*reinterpret_cast<uint4 *>(p) = packed(x);
}

/* ROWS rows from `from` on, `stride` apart, of which n are there (at least one). */
template <int D, int ROWS, int THREADS>
DEVICE void load_keys(bf16 *to, const bf16 *from, long stride, int n, int d, bool wide)
{
#pragma unroll 4
	for (int i = threadIdx.x; i < ROWS * (D / 8); i += THREADS) {
		int r = i / (D / 8), c = i % (D / 8);

		load_chunk<D>(to, r, c, from + (r < n ? r * stride : 0), r < n, d, wide);
	}
}

/* The rows of a tile, from f on, of x[rows, heads, d]. */
template <int D, int ROWS, int THREADS>
DEVICE void load_rows(bf16 *to, const bf16 *x, const struct row_tile &t, int heads, int group, int kv_head, int d, bool wide)
{
#pragma unroll 4
	for (int i = threadIdx.x; i < ROWS * (D / 8); i += THREADS) {
		int r = i / (D / 8), c = i % (D / 8);
		bool given = r < t.rows;

		load_chunk<D>(to, r, c, x + row_of(t, t.first + (given ? r : 0), heads, group, kv_head) * d, given, d, wide);
	}
}

#endif
