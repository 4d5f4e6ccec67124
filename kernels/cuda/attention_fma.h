#ifndef KERNELS_CUDA_ATTENTION_FMA_H
#define KERNELS_CUDA_ATTENTION_FMA_H

/* Products of attention in float32, by 16 x 16 threads; rows in shared memory are PAD longer, for the banks. */

#include "kernels/cuda/attention.h"

enum { THREADS = 256, PAD = 4 };

/* n of ROWS rows of d values at row(r), the rest zero, as rows of LD. */
template <int D, int ROWS, class F> DEVICE void load_floats(float *to, F row, int n, int d, bool wide)
{
	for (int i = threadIdx.x; i < ROWS * (D / 4); i += THREADS) {
		int r = i / (D / 4), at = i % (D / 4) * 4;
		bool given = r < n && at < d;
		const float *from = row(given ? r : 0) + (given ? at : 0);
		float *p = to + r * (D + PAD) + at;

		if (wide) {
			ck_copy16(p, from, given);
		} else {
			for (int e = 0; e < 4; e++)
				p[e] = given && at + e < d ? from[e] : 0.f;
		}
	}
}

DEVICE float4 four(const float *p)
{
	return *reinterpret_cast<const float4 *>(p);
}

/* s[i][j] = a[i] . b[16 j], chains over D; rows of LD floats. */
template <int D, int R, int N> DEVICE void dots(float (&s)[R][N], const float *a, const float *b)
{
	constexpr int LD = D + PAD;

#pragma unroll
	for (int i = 0; i < R; i++)
#pragma unroll
		for (int j = 0; j < N; j++)
			s[i][j] = 0;
#pragma unroll 2
	for (int k = 0; k < D; k += 4) {
		float4 x[R], y[N];

#pragma unroll
		for (int i = 0; i < R; i++)
			x[i] = four(a + i * LD + k);
#pragma unroll
		for (int j = 0; j < N; j++)
			y[j] = four(b + 16 * j * LD + k);
#pragma unroll
		for (int i = 0; i < R; i++)
#pragma unroll
			for (int j = 0; j < N; j++) {
				s[i][j] = __fmaf_rn(x[i].x, y[j].x, s[i][j]);
				s[i][j] = __fmaf_rn(x[i].y, y[j].y, s[i][j]);
				s[i][j] = __fmaf_rn(x[i].z, y[j].z, s[i][j]);
				s[i][j] = __fmaf_rn(x[i].w, y[j].w, s[i][j]);
			}
	}
}

/* o[i] += w[i][0 .. N - 1] v[N], this thread's columns; w in rows of N + PAD. */
template <int D, int R, int N> DEVICE void weighted(float (&o)[R][D / 64][4], const float *w, const float *v)
{
#pragma unroll 2
	for (int k = 0; k < N; k++) {
		float x[R];

#pragma unroll
		for (int i = 0; i < R; i++)
			x[i] = w[i * (N + PAD) + k];
#pragma unroll
		for (int n = 0; n < D / 64; n++) {
			float4 y = four(v + k * (D + PAD) + n * 64);

#pragma unroll
			for (int i = 0; i < R; i++) {
				o[i][n][0] = __fmaf_rn(x[i], y.x, o[i][n][0]);
				o[i][n][1] = __fmaf_rn(x[i], y.y, o[i][n][1]);
				o[i][n][2] = __fmaf_rn(x[i], y.z, o[i][n][2]);
				o[i][n][3] = __fmaf_rn(x[i], y.w, o[i][n][3]);
			}
		}
	}
}

template <int R, int N> DEVICE void clear(float (&o)[R][N][4])
{
#pragma unroll
	for (int i = 0; i < R; i++)
#pragma unroll
		for (int n = 0; n < N; n++)
			o[i][n][0] = o[i][n][1] = o[i][n][2] = o[i][n][3] = 0;
}

#endif
