#include "kernels/cuda/attention_fma.h"

/*
 * Forward in float32, by fused multiply-adds: 16 x 16 threads, of which thread (y, x) has R rows from R y on, keys x, x + 16, x + 32,
 * x + 48 of a tile and columns 4 x .. 4 x + 3 of each 64 of o.  A score is one chain over d, an element of o one over the keys of a
 * split.  Operations: 4 d a row and key, at 67 TFLOP/s on an H200; four rows (R = 4) by four keys want 8 loads of 16 bytes for 64
 * multiply-adds.  Keys and values come once a block of 16 R rows.  R = 1 is for few rows.
 */

template <int D, int R> struct shape {
	static constexpr int ROWS = 16 * R, LD = D + PAD, LW = TILE + PAD;
	static constexpr size_t SHARED = (size_t)((ROWS + 2 * TILE) * LD + ROWS * LW) * 4;
};

/* Over the 16 threads of a row. */
DEVICE float row_max(float v)
{
#pragma unroll
	for (int o = 8; o; o >>= 1)
		v = fmaxf(v, __shfl_xor_sync(~0u, v, o));
	return v;
}

DEVICE float row_sum(float v)
{
#pragma unroll
	for (int o = 8; o; o >>= 1)
		v += __shfl_xor_sync(~0u, v, o);
	return v;
}

template <int D, int R> __global__ void __launch_bounds__(THREADS, 1) attend_f32_kernel(const struct attend a)
{
	using S = struct shape<D, R>;
	CK_DYN_SHARED(raw);
	float *const sq = (float *)raw, *const sk = sq + S::ROWS * S::LD, *const sv = sk + TILE * S::LD;
	const int x = threadIdx.x % 16, y = threadIdx.x / 16;
	float *const sw = sv + TILE * S::LD + y * R * S::LW;
	/* Few rows have a block for each split, and these have nothing to join. */
	const bool parts = R == 1 && a.part;
	const int part = parts ? blockIdx.x / a.splits : blockIdx.x, split = parts ? blockIdx.x % a.splits : 0;
	const struct row_tile t = a.tile[part / a.kv_heads];
	const int kv_head = part % a.kv_heads;
	const int keys = (t.first + t.rows - 1) / a.group + 1, begin = split * SPLIT_TILES;
	const int tiles = (keys + TILE - 1) / TILE, end = parts ? min(begin + SPLIT_TILES, tiles) : tiles;
	float o[R][D / 64][4], all[R][D / 64][4], m[R] = {}, l[R] = {}, all_m[R], all_l[R];

	auto load = [&](float *to, bool values, int j) {
		const float *from = keys_of<float>(a, t, kv_head, j, values);

		load_floats<D, TILE>(to, [&](int r) { return from + r * a.stride; }, keys - j * TILE, a.width, a.wide_keys);
	};

	if (begin >= end)
		return;
	load_floats<D, S::ROWS>(sq, [&](int r) { return (const float *)a.q + row_of(t, t.first + r, a.heads, a.group, kv_head) * a.d; }, t.rows,
				a.d, a.wide);
	load(sk, false, begin);
	ck_copy_commit();
	for (int j = begin; j < end; j++) {
		const bool last = j + 1 == end;
		float s[R][4];

		if (j % SPLIT_TILES == 0) {
			clear(o);
#pragma unroll
			for (int i = 0; i < R; i++)
				m[i] = ATTENTION_FLOOR, l[i] = 0;
		}
		ck_copy_wait<0>();
		__syncthreads();        /* the keys are here, and all are through with the last values */
		load(sv, true, j);
		ck_copy_commit();
		dots<D, R, 4>(s, sq + y * R * S::LD, sk + x * S::LD);
#pragma unroll
		for (int i = 0; i < R; i++) {
			int position = (t.first + y * R + i) / a.group;
			float top = m[i], alpha;

#pragma unroll
			for (int n = 0; n < 4; n++) {
				if (j * TILE + x + 16 * n > position)
					s[i][n] = -INFINITY;
				top = fmaxf(top, s[i][n]);
			}
			top = row_max(top);
			alpha = ck_exp2(m[i] * a.c - top * a.c);
			m[i] = top;
#pragma unroll
			for (int n = 0; n < 4; n++) {
				s[i][n] = ck_exp2(__fmaf_rn(s[i][n], a.c, -(top * a.c)));
				sw[i * S::LW + x + 16 * n] = s[i][n];
			}
			l[i] = l[i] * alpha + ((s[i][0] + s[i][1]) + (s[i][2] + s[i][3]));
#pragma unroll
			for (int n = 0; n < D / 64; n++)
#pragma unroll
				for (int e = 0; e < 4; e++)
					o[i][n][e] *= alpha;
		}
		ck_copy_wait<0>();
		__syncthreads();        /* the values and weights are here, and all are through with the keys */
		if (!last)
			load(sk, false, j + 1);
		ck_copy_commit();
		weighted<D, R, TILE>(o, sw, sv + 4 * x);
		if (!last && (j + 1) % SPLIT_TILES)
			continue;
#pragma unroll
		for (int i = 0; i < R; i++) {
			float u = 0, w = 1;
			const bool join = R > 1 && j >= SPLIT_TILES;

			l[i] = row_sum(l[i]);
			if (join)
				join_split(all_m[i], all_l[i], u, w, m[i], l[i], a.c);
			else
				all_m[i] = m[i], all_l[i] = l[i];
#pragma unroll
			for (int n = 0; n < D / 64; n++)
#pragma unroll
				for (int e = 0; e < 4; e++)
					all[i][n][e] = join ? all[i][n][e] * u + o[i][n][e] * w : o[i][n][e];
		}
	}
	ck_copy_wait<0>();
#pragma unroll
	for (int i = 0; i < R; i++) {
		int at = y * R + i;
		float *to, by = 1.f / all_l[i];

		if (at >= t.rows)
			break;
		if (parts) {
			to = a.part + (((long)part * a.splits + split) * a.most + at) * (a.d + 2);
			if (!x)
				to[a.d] = all_m[i], to[a.d + 1] = all_l[i];
		} else {
			long row = row_of(t, t.first + at, a.heads, a.group, kv_head);

			to = (float *)a.out + row * a.d;
			if (!x && a.lse)
				a.lse[row] = all_m[i] * a.scale + logf(all_l[i]);
		}
#pragma unroll
		for (int n = 0; n < D / 64; n++)
#pragma unroll
			for (int e = 0; e < 4; e++)
				if (n * 64 + 4 * x + e < a.d)
					to[n * 64 + 4 * x + e] = parts ? all[i][n][e] : all[i][n][e] * by;
	}
}

template <int D, int R> static void run(const struct attend &a, const char *op)
{
	long blocks = (long)a.tiles * a.kv_heads * (a.part ? a.splits : 1);

	ck_launch({ op, dim3(ck_blocks(blocks, 1)), dim3(THREADS), shape<D, R>::SHARED }, attend_f32_kernel<D, R>, a);
}

long attend_rows_f32(long)
{
	return shape<64, 4>::ROWS;
}

template <int D> static void run_width(const struct attend &a, bool few, const char *op)
{
	if (few)
		run<D, 1>(a, op);
	else
		run<D, 4>(a, op);
}

void attend_f32(const struct attend &a, bool few, const char *op)
{
	if (a.d <= 64)
		run_width<64>(a, few, op);
	else if (a.d <= 128)
		run_width<128>(a, few, op);
	else
		run_width<256>(a, few, op);
}
