#include "kernels/cuda/attention_tile.h"

/*
 * Backward, in bf16 on the tensor cores: two kernels, each of which computes p and ds again, so that every sum has one owner and one
 * order.  dk and dv: a warp has 16 MT keys with all their columns, and walks the rows in tiles of N, piece after piece, position first,
 * then head; scores are taken transposed, so that p and ds come out as left operands.  dq: a warp has 16 MT rows and walks the keys.
 *
 * Operations for each row and key: 10 d are counted (scores, dp, dv, dk, dq); 14 d are done, since two passes share nothing.  The
 * sum of ds k by the block of a key would be 10 d and 8 d bytes of float32 partial sums for each row and key tile, read again in
 * order: at 128 keys a tile no less time, and memory besides.  For d > 128 the sums of dk and dv do not fit a warp's registers
 * together: one pass each, 16 d.
 *
 * Products of 16 x 8 x 16 and ldmatrix.x4: with MT = 1, N = 64, d = 128 0.56 of them a product, so that shared memory allows 0.45 of
 * 989 TFLOP/s; two tiles of 16 a warp would want 0.4, and more registers than there are.  Bytes: q, dout once for each 16 MT WARPS keys, k and v for as many rows, from L2; the rest is small.  On an H200, 4096
 * positions of 32 heads of 128, causal: 3.4e11 operations counted, 0.44 ms at 790 TFLOP/s; the aim is 30 % of it.
 */

template <int D, int WARPS, int MT, int N, int STAGES> struct pass {
	static constexpr int OWN = 16 * MT * WARPS, THREADS = 32 * WARPS;
	static constexpr size_t SHARED = (size_t)2 * (OWN + STAGES * N) * D * 2, STATS = (size_t)STAGES * N * 12;
};

/* y[rows] = x by `scale`, for rows g, g + 8 of each 16, of which `rows` are there; row(r) is where row r begins. */
template <int D, int MT, class T, class F> DEVICE void store_rows(F row, const float (&x)[MT][D / 8][4], float scale, int rows, int d)
{
	const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;

#pragma unroll
	for (int i = 0; i < MT; i++)
#pragma unroll
		for (int h = 0; h < 2; h++) {
			int at = i * 16 + h * 8 + g;
			T *y;

			if (at >= rows)
				continue;
			y = row(at);
#pragma unroll
			for (int n = 0; n < D / 8; n++) {
				int column = n * 8 + 2 * t;

				if (column < d)
					from_float(y[column], x[i][n][2 * h] * scale);
				if (column + 1 < d)
					from_float(y[column + 1], x[i][n][2 * h + 1] * scale);
			}
		}
}

template <int D, int WARPS, int MT, int N, int STAGES, bool DK, bool DV, class T>
__global__ void __launch_bounds__(32 * WARPS, 1) attend_dkv_kernel(const struct attend_bwd a)
{
	using S = struct pass<D, WARPS, MT, N, STAGES>;
	CK_DYN_SHARED(raw);
	bf16 *const sk = (bf16 *)raw, *const sv = sk + S::OWN * D, *const sq = sv + S::OWN * D, *const so = sq + STAGES * N * D;
	float *const slse = (float *)(so + STAGES * N * D), *const sdelta = slse + STAGES * N;
	int *const sposition = (int *)(sdelta + STAGES * N);
	const struct key_tile k = a.key[blockIdx.x / a.kv_heads];
	const int kv_head = blockIdx.x % a.kv_heads, mine = threadIdx.x / 32 * 16 * MT, end = k.tile + k.tiles;
	const int keys = min(k.keys - k.first, S::OWN), low = k.first + mine, lane = threadIdx.x % 32;
	const long stride = (long)a.kv_heads * a.d, at = ((k.key + k.first) * a.kv_heads + kv_head) * a.d;
	float dk[DK ? MT : 1][D / 8][4], dv[DV ? MT : 1][D / 8][4];

	/* The next tile from i on with a row that sees the first key. */
	auto next = [&](int i) {
		while (i < end && (a.tile[i].first + a.tile[i].rows - 1) / a.group < k.first)
			i++;
		return i;
	};
	auto load = [&](int i, int stage) {
		const struct row_tile t = a.tile[i];

		load_rows<D, N, S::THREADS>(sq + stage * N * D, (const bf16 *)a.q, t, a.heads, a.group, kv_head, a.d, a.wide);
		load_rows<D, N, S::THREADS>(so + stage * N * D, (const bf16 *)a.dout, t, a.heads, a.group, kv_head, a.d, a.wide);
		for (int r = threadIdx.x; r < N; r += S::THREADS) {
			bool given = r < t.rows;
			long row = row_of(t, t.first + (given ? r : 0), a.heads, a.group, kv_head);

			ck_copy4(slse + stage * N + r, a.lse2 + row, given);
			ck_copy4(sdelta + stage * N + r, a.delta + row, given);
			sposition[stage * N + r] = given ? (t.first + r) / a.group : -1;
		}
	};

	clear(dk);
	clear(dv);
	load_keys<D, S::OWN, S::THREADS>(sk, (const bf16 *)a.k + at, stride, keys, a.d, a.wide);
	load_keys<D, S::OWN, S::THREADS>(sv, (const bf16 *)a.v + at, stride, keys, a.d, a.wide);
	int i = next(k.tile), stage = 0;
	if (i < end)
		load(i, 0);
	ck_copy_commit();
	while (i < end) {
		const struct row_tile t = a.tile[i];
		const int then = next(i + 1);

		ck_copy_wait<0>();
		__syncthreads();        /* these rows are here, and all are through with those before */
		if (STAGES == 2 && then < end)
			load(then, 1 - stage);
		ck_copy_commit();
		if (mine < keys && (t.first + t.rows - 1) / a.group >= low) {
			const bool edge = t.rows < N || t.first / a.group < low + 16 * MT - 1;
			const float *lse2 = slse + stage * N, *delta = sdelta + stage * N;
			const int *position = sposition + stage * N;
			const bf16 *q = sq + stage * N * D, *dout = so + stage * N * D;
			float s[MT][N / 8][4];
			uint32_t w[MT][N / 16][4];

			clear(s);
			scores<D, MT, N>(s, sk + mine * D, q);
#pragma unroll
			for (int n = 0; n < N / 8; n++)
#pragma unroll
				for (int e = 0; e < 2; e++) {
					const int column = n * 8 + lane % 4 * 2 + e, p = position[column];
					const float down = -lse2[column];

#pragma unroll
					for (int m = 0; m < MT; m++)
#pragma unroll
						for (int h = 0; h < 2; h++) {
							if (edge && low + m * 16 + h * 8 + lane / 4 > p)
								s[m][n][2 * h + e] = -INFINITY;
							s[m][n][2 * h + e] = ck_exp2(__fmaf_rn(s[m][n][2 * h + e], a.c, down));
						}
				}
			if constexpr (DV) {
				as_left<MT, N>(w, s);
				weigh<D, MT, N>(dv, w, dout);
			}
			if constexpr (DK) {
				float dp[MT][N / 8][4];

				clear(dp);
				scores<D, MT, N>(dp, sv + mine * D, dout);
#pragma unroll
				for (int n = 0; n < N / 8; n++)
#pragma unroll
					for (int e = 0; e < 2; e++) {
						const float off = delta[n * 8 + lane % 4 * 2 + e];

#pragma unroll
						for (int m = 0; m < MT; m++)
#pragma unroll
							for (int h = 0; h < 2; h++)
								s[m][n][2 * h + e] *= dp[m][n][2 * h + e] - off;
					}
				as_left<MT, N>(w, s);
				weigh<D, MT, N>(dk, w, q);
			}
		}
		if (STAGES == 1) {
			__syncthreads();        /* all are through with these rows */
			if (then < end)
				load(then, 0);
			ck_copy_commit();
		}
		i = then;
		stage = STAGES == 2 ? 1 - stage : 0;
	}
	ck_copy_wait<0>();
	if constexpr (DK)
		store_rows<D, MT, T>([&](int r) { return (T *)a.dk + at + (mine + r) * stride; }, dk, a.scale, keys - mine, a.d);
	if constexpr (DV)
		store_rows<D, MT, T>([&](int r) { return (T *)a.dv + at + (mine + r) * stride; }, dv, 1.f, keys - mine, a.d);
}

template <int D, int WARPS, int MT, int N, int STAGES>
__global__ void __launch_bounds__(32 * WARPS, 1) attend_dq_kernel(const struct attend_bwd a)
{
	using S = struct pass<D, WARPS, MT, N, STAGES>;
	CK_DYN_SHARED(raw);
	bf16 *const sq = (bf16 *)raw, *const so = sq + S::OWN * D, *const sk = so + S::OWN * D, *const sv = sk + STAGES * N * D;
	const struct row_tile t = a.tile[blockIdx.x / a.kv_heads];
	const int kv_head = blockIdx.x % a.kv_heads, mine = threadIdx.x / 32 * 16 * MT, left = t.rows - mine;
	const int keys = (t.first + t.rows - 1) / a.group + 1, lane = threadIdx.x % 32;
	const int low = (t.first + mine) / a.group, high = left <= 0 ? -1 : (t.first + mine + min(left, 16 * MT) - 1) / a.group;
	const long stride = (long)a.kv_heads * a.d, at = (t.key * a.kv_heads + kv_head) * a.d;
	float dq[MT][D / 8][4], lse2[MT][2], delta[MT][2];

	auto load = [&](int first, int stage) {
		const int n = min(keys - first, (int)N);

		load_keys<D, N, S::THREADS>(sk + stage * N * D, (const bf16 *)a.k + at + first * stride, stride, n, a.d, a.wide);
		load_keys<D, N, S::THREADS>(sv + stage * N * D, (const bf16 *)a.v + at + first * stride, stride, n, a.d, a.wide);
	};

	load_rows<D, S::OWN, S::THREADS>(sq, (const bf16 *)a.q, t, a.heads, a.group, kv_head, a.d, a.wide);
	load_rows<D, S::OWN, S::THREADS>(so, (const bf16 *)a.dout, t, a.heads, a.group, kv_head, a.d, a.wide);
	load(0, 0);
	ck_copy_commit();
	clear(dq);
#pragma unroll
	for (int i = 0; i < MT; i++)
#pragma unroll
		for (int h = 0; h < 2; h++) {
			int r = i * 16 + h * 8 + lane / 4;
			long row = row_of(t, t.first + (r < left ? mine + r : 0), a.heads, a.group, kv_head);

			lse2[i][h] = a.lse2[row];
			delta[i][h] = a.delta[row];
		}
	for (int first = 0, stage = 0; first < keys; first += N) {
		ck_copy_wait<0>();
		__syncthreads();        /* these keys are here, and all are through with those before */
		if (STAGES == 2 && first + N < keys)
			load(first + N, 1 - stage);
		ck_copy_commit();
		if (high >= first) {
			const bool edge = low < first + N - 1;
			const bf16 *k = sk + stage * N * D, *v = sv + stage * N * D;
			float s[MT][N / 8][4], dp[MT][N / 8][4];
			uint32_t w[MT][N / 16][4];

			clear(s);
			scores<D, MT, N>(s, sq + mine * D, k);
			clear(dp);
			scores<D, MT, N>(dp, so + mine * D, v);
#pragma unroll
			for (int i = 0; i < MT; i++)
#pragma unroll
				for (int h = 0; h < 2; h++) {
					if (edge) {
						int position = t.first + mine + i * 16 + h * 8 + lane / 4;

						ck_anew(position);
						position /= a.group;
#pragma unroll
						for (int n = 0; n < N / 8; n++)
#pragma unroll
							for (int e = 0; e < 2; e++)
								if (first + n * 8 + lane % 4 * 2 + e > position)
									s[i][n][2 * h + e] = -INFINITY;
					}
#pragma unroll
					for (int n = 0; n < N / 8; n++)
#pragma unroll
						for (int e = 2 * h; e < 2 * h + 2; e++)
							s[i][n][e] = ck_exp2(__fmaf_rn(s[i][n][e], a.c, -lse2[i][h])) * (dp[i][n][e] - delta[i][h]);
				}
			as_left<MT, N>(w, s);
			weigh<D, MT, N>(dq, w, k);
		}
		if (STAGES == 1) {
			__syncthreads();        /* all are through with these keys */
			if (first + N < keys)
				load(first + N, 0);
			ck_copy_commit();
		}
		stage = STAGES == 2 ? 1 - stage : 0;
	}
	ck_copy_wait<0>();
	store_rows<D, MT, bf16>([&](int r) { return (bf16 *)a.dq + row_of(t, t.first + mine + r, a.heads, a.group, kv_head) * a.d; }, dq,
				a.scale, left, a.d);
}

/* How many warps, tiles of 16, rows a step and buffers; for dk and dv together up to 128. */
template <int D> struct sizes {
	using keys = pass<D, 8, 1, 64, 2>;
	using rows = pass<D, 8, 1, 64, 2>;
};
template <> struct sizes<192> {
	using keys = pass<192, 8, 1, 32, 2>;
	using rows = pass<192, 8, 1, 32, 2>;
};
template <> struct sizes<256> {
	using keys = pass<256, 8, 1, 32, 1>;
	using rows = pass<256, 8, 1, 32, 1>;
};

template <class T, bool DK, bool DV, int D, int W, int MT, int N, int ST>
static void run_keys(struct pass<D, W, MT, N, ST>, const struct attend_bwd &a, long blocks)
{
	using S = struct pass<D, W, MT, N, ST>;

	ck_launch({ "attention_bwd", dim3(ck_blocks(blocks, 1)), dim3(S::THREADS), S::SHARED + S::STATS },
		  attend_dkv_kernel<D, W, MT, N, ST, DK, DV, T>, a);
}

template <class T, int D, int W, int MT, int N, int ST>
static void run_dkv(struct pass<D, W, MT, N, ST> size, struct attend_bwd a, const struct attention_piece *piece, long pieces)
{
	std::vector<row_tile> tiles;
	std::vector<key_tile> key;
	long blocks;

	cut_pieces(&tiles, &key, piece, pieces, a.group, N, size.OWN);
	a.tile = cuda_upload_array(tiles.data(), (long)tiles.size());
	a.key = cuda_upload_array(key.data(), (long)key.size());
	blocks = (long)key.size() * a.kv_heads;
	if constexpr (D <= 128) {
		run_keys<T, true, true>(size, a, blocks);
	} else {
		run_keys<T, false, true>(size, a, blocks);
		run_keys<T, true, false>(size, a, blocks);
	}
}

template <int D, int W, int MT, int N, int ST>
static void run_dq(struct pass<D, W, MT, N, ST>, struct attend_bwd a, const struct attention_piece *piece, long pieces)
{
	using S = struct pass<D, W, MT, N, ST>;
	std::vector<row_tile> tiles;

	cut_pieces(&tiles, nullptr, piece, pieces, a.group, S::OWN, 0);
	std::stable_sort(tiles.begin(), tiles.end(), dearer);
	a.tile = cuda_upload_array(tiles.data(), (long)tiles.size());
	ck_launch({ "attention_bwd", dim3(ck_blocks((long)tiles.size() * a.kv_heads, 1)), dim3(S::THREADS), S::SHARED },
		  attend_dq_kernel<D, W, MT, N, ST>, a);
}

template <int D> static void run(const struct attend_bwd &a, const struct attention_piece *piece, long pieces, enum dtype tkv)
{
	if (tkv == DTYPE_BF16)
		run_dkv<bf16>(typename sizes<D>::keys(), a, piece, pieces);
	else
		run_dkv<float>(typename sizes<D>::keys(), a, piece, pieces);
	run_dq(typename sizes<D>::rows(), a, piece, pieces);
}

void attend_bwd_bf16(struct attend_bwd a, const struct attention_piece *piece, long pieces, enum dtype tkv)
{
	if (a.d <= 32)
		run<32>(a, piece, pieces, tkv);
	else if (a.d <= 64)
		run<64>(a, piece, pieces, tkv);
	else if (a.d <= 96)
		run<96>(a, piece, pieces, tkv);
	else if (a.d <= 128)
		run<128>(a, piece, pieces, tkv);
	else if (a.d <= 192)
		run<192>(a, piece, pieces, tkv);
	else
		run<256>(a, piece, pieces, tkv);
}
