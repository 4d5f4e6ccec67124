#include "kernels/cuda/attention_fma.h"

/*
 * Backward in float32, by fused multiply-adds: one kernel for both passes.  A block owns 32 keys (dk, dv) or 32 rows of a kv head (dq)
 * and walks the others in tiles of 32: thread (y, x) has the scores of its own 2 y, 2 y + 1 with x and x + 16 of the others, and then
 * columns 4 x .. 4 x + 3 of each 64 of their sums.  A sum is one chain, over rows in their order or keys in theirs.
 * Operations: 14 d a row and key, 10 of which are counted, at 67 TFLOP/s on an H200.
 */

enum { BOTH = 32, LW = BOTH + PAD };

template <int D> struct pass {
	static constexpr int LD = D + PAD;
	static constexpr size_t SHARED = (size_t)(4 * BOTH * LD + 2 * BOTH * LW) * 4;
};

/* dk, dv (KEYS) or dq of one own row to memory. */
template <int D, class T> DEVICE void store_row(T *y, const float (&x)[D / 64][4], float scale, int column, int d)
{
#pragma unroll
	for (int n = 0; n < D / 64; n++)
#pragma unroll
		for (int e = 0; e < 4; e++)
			if (n * 64 + column + e < d)
				from_float(y[n * 64 + column + e], x[n][e] * scale);
}

/* The rows of a tile and what is known of them: in shared memory, or zero. */
template <int D> DEVICE void load_tile(float *q, float *dout, const struct attend_bwd &a, const struct row_tile &t, int kv_head)
{
	load_floats<D, BOTH>(q, [&](int r) { return (const float *)a.q + row_of(t, t.first + r, a.heads, a.group, kv_head) * a.d; }, t.rows, a.d,
			     a.wide);
	load_floats<D, BOTH>(dout, [&](int r) { return (const float *)a.dout + row_of(t, t.first + r, a.heads, a.group, kv_head) * a.d; },
			     t.rows, a.d, a.wide);
}

template <int D> DEVICE void load_both(float *k, float *v, const struct attend_bwd &a, long at, int keys)
{
	const long stride = (long)a.kv_heads * a.d;

	load_floats<D, BOTH>(k, [=](int r) { return (const float *)a.k + at + r * stride; }, keys, a.d, a.wide);
	load_floats<D, BOTH>(v, [=](int r) { return (const float *)a.v + at + r * stride; }, keys, a.d, a.wide);
}

/* p and ds of a row and a key, of which `seen` says whether the row sees it */
DEVICE void weights(float &p, float &ds, float s, float dp, float lse2, float delta, bool seen, float c)
{
	p = seen ? ck_exp2(__fmaf_rn(s, c, -lse2)) : 0.f;
	ds = seen ? p * (dp - delta) : 0.f;
}

template <int D, class T> __global__ void __launch_bounds__(THREADS, 1) attend_dkv_f32_kernel(const struct attend_bwd a)
{
	constexpr int LD = pass<D>::LD;
	CK_DYN_SHARED(raw);
	float *const sk = (float *)raw, *const sv = sk + BOTH * LD, *const sq = sv + BOTH * LD, *const so = sq + BOTH * LD;
	const int x = threadIdx.x % 16, own = threadIdx.x / 16 * 2;
	float *const sp = so + BOTH * LD + own * LW, *const sds = sp + BOTH * LW;
	const struct key_tile k = a.key[blockIdx.x / a.kv_heads];
	const int kv_head = blockIdx.x % a.kv_heads, keys = k.keys - k.first;
	const long stride = (long)a.kv_heads * a.d, at = ((k.key + k.first) * a.kv_heads + kv_head) * a.d;
	float dk[2][D / 64][4], dv[2][D / 64][4];

	clear(dk);
	clear(dv);
	load_both<D>(sk, sv, a, at, keys);
	for (int i = k.tile; i < k.tile + k.tiles; i++) {
		const struct row_tile t = a.tile[i];
		float s[2][2], dp[2][2];

		if ((t.first + t.rows - 1) / a.group < k.first)
			continue;
		load_tile<D>(sq, so, a, t, kv_head);
		ck_copy_commit();
		ck_copy_wait<0>();
		__syncthreads();
		dots<D, 2, 2>(s, sk + own * LD, sq + x * LD);
		dots<D, 2, 2>(dp, sv + own * LD, so + x * LD);
#pragma unroll
		for (int n = 0; n < 2; n++) {
			int r = x + 16 * n, f = t.first + min(r, t.rows - 1), position = f / a.group;
			long row = row_of(t, f, a.heads, a.group, kv_head);
			float lse2 = a.lse2[row], delta = a.delta[row];

#pragma unroll
			for (int m = 0; m < 2; m++)
				weights(sp[m * LW + r], sds[m * LW + r], s[m][n], dp[m][n], lse2, delta, r < t.rows && k.first + own + m <= position, a.c);
		}
		__syncwarp();
		weighted<D, 2, BOTH>(dv, sp, so + 4 * x);
		weighted<D, 2, BOTH>(dk, sds, sq + 4 * x);
		__syncthreads();        /* all are through with these rows */
	}
	ck_copy_commit();
	ck_copy_wait<0>();
#pragma unroll
	for (int m = 0; m < 2; m++) {
		if (own + m >= keys)
			break;
		store_row<D>((T *)a.dk + at + (own + m) * stride, dk[m], a.scale, 4 * x, a.d);
		store_row<D>((T *)a.dv + at + (own + m) * stride, dv[m], 1.f, 4 * x, a.d);
	}
}

template <int D> __global__ void __launch_bounds__(THREADS, 1) attend_dq_f32_kernel(const struct attend_bwd a)
{
	constexpr int LD = pass<D>::LD;
	CK_DYN_SHARED(raw);
	float *const sk = (float *)raw, *const sv = sk + BOTH * LD, *const sq = sv + BOTH * LD, *const so = sq + BOTH * LD;
	const int x = threadIdx.x % 16, own = threadIdx.x / 16 * 2;
	float *const sds = so + BOTH * LD + own * LW;
	const struct row_tile t = a.tile[blockIdx.x / a.kv_heads];
	const int kv_head = blockIdx.x % a.kv_heads, keys = (t.first + t.rows - 1) / a.group + 1;
	float dq[2][D / 64][4];

	clear(dq);
	load_tile<D>(sq, so, a, t, kv_head);
	for (int first = 0; first < keys; first += BOTH) {
		float s[2][2], dp[2][2], p;

		load_both<D>(sk, sv, a, ((t.key + first) * a.kv_heads + kv_head) * a.d, keys - first);
		ck_copy_commit();
		ck_copy_wait<0>();
		__syncthreads();
		dots<D, 2, 2>(s, sq + own * LD, sk + x * LD);
		dots<D, 2, 2>(dp, so + own * LD, sv + x * LD);
#pragma unroll
		for (int m = 0; m < 2; m++) {
			int f = t.first + min(own + m, t.rows - 1);
			long row = row_of(t, f, a.heads, a.group, kv_head);

#pragma unroll
			for (int n = 0; n < 2; n++)
				weights(p, sds[m * LW + x + 16 * n], s[m][n], dp[m][n], a.lse2[row], a.delta[row], first + x + 16 * n <= f / a.group, a.c);
		}
		__syncwarp();
		weighted<D, 2, BOTH>(dq, sds, sk + 4 * x);
		__syncthreads();        /* all are through with these keys */
	}
#pragma unroll
	for (int m = 0; m < 2; m++)
		if (own + m < t.rows)
			store_row<D>((float *)a.dq + row_of(t, t.first + own + m, a.heads, a.group, kv_head) * a.d, dq[m], a.scale, 4 * x, a.d);
}

template <int D> static void run(struct attend_bwd a, const struct attention_piece *piece, long pieces, enum dtype tkv)
{
	std::vector<row_tile> tiles;
	std::vector<key_tile> key;
	struct ck_grid g;

	cut_pieces(&tiles, &key, piece, pieces, a.group, BOTH, BOTH);
	a.tile = cuda_upload_array(tiles.data(), (long)tiles.size());
	a.key = cuda_upload_array(key.data(), (long)key.size());
	g = { "attention_bwd", dim3(ck_blocks((long)key.size() * a.kv_heads, 1)), dim3(THREADS), pass<D>::SHARED };
	if (tkv == DTYPE_BF16)
		ck_launch(g, attend_dkv_f32_kernel<D, bf16>, a);
	else
		ck_launch(g, attend_dkv_f32_kernel<D, float>, a);
	g.blocks = dim3(ck_blocks((long)tiles.size() * a.kv_heads, 1));
	ck_launch(g, attend_dq_f32_kernel<D>, a);
}

void attend_bwd_f32(struct attend_bwd a, const struct attention_piece *piece, long pieces, enum dtype tkv)
{
	if (a.d <= 64)
		run<64>(a, piece, pieces, tkv);
	else if (a.d <= 128)
		run<128>(a, piece, pieces, tkv);
	else
		run<256>(a, piece, pieces, tkv);
}
