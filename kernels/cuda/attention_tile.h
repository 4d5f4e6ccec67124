#ifndef KERNELS_CUDA_ATTENTION_TILE_H
#define KERNELS_CUDA_ATTENTION_TILE_H

/*
 * Tiles of bf16 in shared memory as operands of mma.m16n8k16.  A row of D values is D / 8 chunks of 16 bytes; chunk c of row r lies at
 * chunk c ^ x(r), so that the 8 rows that an ldmatrix reads at one c are in 8 different groups of banks.
 */

#include "kernels/cuda/attention.h"

/* The bits of a chunk's number that are turned, and by what. */
template <int D> constexpr int TURNED = D % 64 ? 3 : 7;

template <int D> DEVICE int turn(int row)
{
	return D % 64 ? row >> 1 & 3 : row & 7;
}

/* Of chunk `fixed` (even) or the next, `by` being 0 or 1 and the row's turn: few values, and the rest are constants. */
template <int D> DEVICE int in_row(int fixed, int by)
{
	return (fixed & ~TURNED<D>) * 8 + ((fixed & TURNED<D>) ^ by) * 8;
}

template <int D> DEVICE int place(int row, int chunk)
{
	return row * D + ((chunk ^ turn<D>(row)) << 3);
}

/* s[16 MT, N] += a[16 MT, D] b[N, D]^T; both from shared memory, chains over D. */
template <int D, int MT, int N> DEVICE void scores(float (&s)[MT][N / 8][4], const bf16 *a, const bf16 *b)
{
	const int lane = threadIdx.x % 32, ra = lane % 16, rb = lane % 8 + lane / 16 * 8;
	int odd_a = lane / 16 ^ turn<D>(ra), odd_b = lane / 8 % 2 ^ turn<D>(rb);

	ck_anew(odd_a);
	ck_anew(odd_b);
	a += ra * D;
	b += rb * D;
#pragma unroll
	for (int k = 0; k < D / 16; k++) {
		uint32_t x[MT][4];

#pragma unroll
		for (int i = 0; i < MT; i++)
			ck_ldmatrix(x[i], a + i * 16 * D + in_row<D>(2 * k, odd_a));
#pragma unroll
		for (int n = 0; n < N / 16; n++) {
			uint32_t y[4];

			ck_ldmatrix(y, b + n * 16 * D + in_row<D>(2 * k, odd_b));
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
	int odd = lane / 16 ^ turn<D>(lane % 16);

	ck_anew(odd);
	v += lane % 16 * D;
#pragma unroll
	for (int k = 0; k < N / 16; k++)
#pragma unroll
		for (int n = 0; n < D / 16; n++) {
			uint32_t y[4];

			ck_ldmatrix_trans(y, v + k * 16 * D + in_row<D>(2 * n, odd));
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

/* 8 values into a chunk of a tile; zeros where not given, and past `left` of them. */
DEVICE void load_chunk(bf16 *to, const bf16 *from, bool given, int left, bool wide)
{
	float x[8];

	if (wide) {
		ck_copy16(to, from, given && left > 0);
		return;
	}
	load_wide(x, from, 0, given ? left : 0, false);
	*reinterpret_cast<uint4 *>(to) = packed(x);
}

/*
 * Row r of a tile, from `from`, by the threads with this r: each has chunk c of each C.  d values are there, and none where not given.
 */
template <int D> DEVICE void load_row(bf16 *to, const bf16 *from, int r, int c, bool given, int d, bool wide)
{
	constexpr int C = TURNED<D> + 1;

	to += r * D + (c ^ turn<D>(r)) * 8;
	from += c * 8;
#pragma unroll
	for (int g = 0; g < D / 8 / C; g++)
		load_chunk(to + g * C * 8, from + g * C * 8, given, d - (g * C + c) * 8, wide);
}

/* ROWS rows from `from` on, `stride` apart, of which n are there. */
template <int D, int ROWS, int THREADS>
DEVICE void load_keys(bf16 *to, const bf16 *from, long stride, int n, int d, bool wide)
{
	constexpr int C = TURNED<D> + 1, STEP = THREADS / C;
	int thread = threadIdx.x, r, c;

	ck_anew(thread);
	r = thread / C;
	c = thread % C;
	from += r * stride;
#pragma unroll 1
	for (; r < ROWS; r += STEP, from += STEP * stride)
		load_row<D>(to, from, r, c, r < n, d, wide);
}

/* The rows of a tile of x[rows, heads, d]. */
template <int D, int ROWS, int THREADS>
DEVICE void load_rows(bf16 *to, const bf16 *x, const struct row_tile &t, int heads, int group, int kv_head, int d, bool wide)
{
	constexpr int C = TURNED<D> + 1, STEP = THREADS / C;

#pragma unroll 2
	for (int r = threadIdx.x / C; r < ROWS; r += STEP) {
		bool given = r < t.rows;

		load_row<D>(to, x + row_of(t, t.first + (given ? r : 0), heads, group, kv_head) * d, r, threadIdx.x % C, given, d, wide);
	}
}

#endif
