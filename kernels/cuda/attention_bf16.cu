#include "kernels/cuda/attention_tile.h"

/*
 * Forward, in bf16 on the tensor cores (Dao, FlashAttention-2, 2023).
 *
 * A block has 16 MT WARPS rows of a kv head, a warp 16 MT of them with all columns of o; keys come in tiles of 64, scores and weights
 * stay in registers, where the accumulator of one product has the layout of the left operand of the next.  For d of 128 and 256 a
 * softmax takes 32 keys, else 64: registers hold no more.  At the end of 512 keys o is joined to that of the keys before, which lies in
 * shared memory, each thread's for itself.  Of few rows (`part`) each 512 keys have a block of their own, which leaves (m, l, o) in
 * memory, and a second kernel joins them by the same operations in the same order.
 *
 * Operations: 4 d for each row and key; in products of 16 x 8 x 16, two of which (one where MT is 1) want one ldmatrix.x4 of 512 bytes
 * of keys or values: with MT = 2 shared memory is busy 1.3 to 1.5 clocks a product, mma.sync about 1.6.  Bytes: all keys and
 * values once a block, from L2 after the first.  On an H200, at 790 TFLOP/s: 4096 positions of 32 heads of 128, causal: 1.4e11
 * operations, 0.17 ms; the aim is 40 % of it, which mma.sync (62 % of what wgmma does) and the softmax (one exp2 for 4 d operations) leave.
 *
 * Few rows (decode): WARPS = MT = 1, so three blocks and more share a multiprocessor and keep 3 x 32 KiB of cp.async under way, where
 * 4.3 TB/s want 33 KB a microsecond of each; a tile of the group's heads, up to 16, costs a warp about a microsecond.  Bytes: the pages
 * up to each row's position once, 4 d for each key and kv head; of 64 sequences at 4096 with 8 kv heads of 128: 1.07 GB, 0.25 ms.
 */

template <int D, int WARPS, int MT, int STAGES> struct shape {
	static constexpr int ROWS = 16 * MT * WARPS, THREADS = 32 * WARPS;
	static constexpr size_t SHARED = (size_t)(ROWS + 2 * STAGES * TILE) * D * 2, TOTAL = (size_t)ROWS * (D + 2) * 4;
};

/* Keys to a softmax: what two 16 rows and their o leave registers for.  It is a matter of d alone, so prefill and decode agree. */
template <int D> constexpr int KEYS = D == 128 || D == 256 ? TILE / 2 : (int)TILE;

/* Of the keys in hand: o, the maximum and the sum of weights (this thread's columns alone) of rows g and g + 8 of each 16. */
template <int D, int MT> struct running {
	float o[MT][D / 8][4], m[MT][2], l[MT][2];
};

template <int D, int MT> DEVICE void begin_split(struct running<D, MT> &r)
{
	clear(r.o);
#pragma unroll
	for (int i = 0; i < MT; i++) {
		r.m[i][0] = r.m[i][1] = ATTENTION_FLOOR;
		r.l[i][0] = r.l[i][1] = 0;
	}
}

/* Scores s of N keys from `key` on become weights; o and l of the keys before are scaled to the new maximum. */
template <int D, int MT, int N> DEVICE void soften(struct running<D, MT> &r, float (&s)[MT][N / 8][4], int f, int group, int key,
					    bool edge, float c)
{
	const int column = key + threadIdx.x % 4 * 2;
	float alpha[MT][2];
	bool rises = false;

#pragma unroll
	for (int i = 0; i < MT; i++)
#pragma unroll
		for (int h = 0; h < 2; h++) {
			float top = r.m[i][h], sum = 0, mc;

			if (edge) {
				int position = f + i * 16 + h * 8;

				ck_anew(position);
				position /= group;
#pragma unroll
				for (int n = 0; n < N / 8; n++) {
					if (column + n * 8 > position)
						s[i][n][2 * h] = -INFINITY;
					if (column + n * 8 + 1 > position)
						s[i][n][2 * h + 1] = -INFINITY;
				}
			}
#pragma unroll
			for (int n = 0; n < N / 8; n++)
				top = fmaxf(top, fmaxf(s[i][n][2 * h], s[i][n][2 * h + 1]));
			top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
			top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
			mc = top * c;
			alpha[i][h] = ck_exp2(r.m[i][h] * c - mc);
			rises = rises || top != r.m[i][h];
			r.m[i][h] = top;
#pragma unroll
			for (int n = 0; n < N / 8; n++) {
				s[i][n][2 * h] = ck_exp2(__fmaf_rn(s[i][n][2 * h], c, -mc));
				s[i][n][2 * h + 1] = ck_exp2(__fmaf_rn(s[i][n][2 * h + 1], c, -mc));
				sum += s[i][n][2 * h] + s[i][n][2 * h + 1];
			}
			r.l[i][h] = r.l[i][h] * alpha[i][h] + sum;
		}
	if (!__any_sync(~0u, rises))
		return;         /* all by 1 */
#pragma unroll
	for (int i = 0; i < MT; i++)
#pragma unroll
		for (int n = 0; n < D / 8; n++)
#pragma unroll
			for (int e = 0; e < 4; e++)
				r.o[i][n][e] *= alpha[i][e / 2];
}

/* The sums of l over the four threads of a row. */
template <int D, int MT> DEVICE void sum_l(struct running<D, MT> &r)
{
#pragma unroll
	for (int i = 0; i < MT; i++)
#pragma unroll
		for (int h = 0; h < 2; h++) {
			r.l[i][h] += __shfl_xor_sync(~0u, r.l[i][h], 1);
			r.l[i][h] += __shfl_xor_sync(~0u, r.l[i][h], 2);
		}
}

/*
 * What is kept of the splits so far: o of each thread, a float4 for two rows and two columns; (m, l) of each row, from whose first
 * thread it comes.  `total` and `ml` are where this thread's and this row's begin.
 */
template <int D, int MT, int THREADS> DEVICE void keep_total(float4 *total, float2 *ml, const struct running<D, MT> &r)
{
	__syncwarp();
#pragma unroll
	for (int i = 0; i < MT; i++) {
#pragma unroll
		for (int n = 0; n < D / 8; n++)
			total[(i * (D / 8) + n) * THREADS] = make_float4(r.o[i][n][0], r.o[i][n][1], r.o[i][n][2], r.o[i][n][3]);
#pragma unroll
		for (int h = 0; h < 2; h++)
			if (threadIdx.x % 4 == 0)
				ml[i * 16 + h * 8] = make_float2(r.m[i][h], r.l[i][h]);
	}
	__syncwarp();
}

/* r = what is kept, joined with r */
template <int D, int MT, int THREADS> DEVICE void join_total(struct running<D, MT> &r, const float4 *total, const float2 *ml, float c)
{
#pragma unroll
	for (int i = 0; i < MT; i++) {
		float a[2], b[2];

#pragma unroll
		for (int h = 0; h < 2; h++) {
			float2 k = ml[i * 16 + h * 8];

			join_split(k.x, k.y, a[h], b[h], r.m[i][h], r.l[i][h], c);
			r.m[i][h] = k.x;
			r.l[i][h] = k.y;
		}
#pragma unroll
		for (int n = 0; n < D / 8; n++) {
			float4 o = total[(i * (D / 8) + n) * THREADS];

			if (n % 4 == 3)
				__syncwarp();   /* or all would be loaded at once, into registers that are not there */
			r.o[i][n][0] = o.x * a[0] + r.o[i][n][0] * b[0];
			r.o[i][n][1] = o.y * a[0] + r.o[i][n][1] * b[0];
			r.o[i][n][2] = o.z * a[1] + r.o[i][n][2] * b[1];
			r.o[i][n][3] = o.w * a[1] + r.o[i][n][3] * b[1];
		}
	}
}

/* (m, l, o) of the warp's rows to memory; `to` is that of the warp's first row. */
template <int D, int MT> DEVICE void leave_part(float *to, const struct running<D, MT> &r, int rows, int d)
{
	const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;

#pragma unroll
	for (int i = 0; i < MT; i++)
#pragma unroll
		for (int h = 0; h < 2; h++) {
			int at = i * 16 + h * 8 + g;
			float *row = to + (long)at * (d + 2);

			if (at >= rows)
				continue;
			if (!t) {
				row[d] = r.m[i][h];
				row[d + 1] = r.l[i][h];
			}
#pragma unroll
			for (int n = 0; n < D / 8; n++) {
				int column = n * 8 + 2 * t;

				if (column < d)
					row[column] = r.o[i][n][2 * h];
				if (column + 1 < d)
					row[column + 1] = r.o[i][n][2 * h + 1];
			}
		}
}

/* out = o / l and lse of the warp's rows; by way of shared memory, where their queries were, for whole lines. */
template <int D, int MT> DEVICE void finish(bf16 *rows, const struct attend &a, const struct row_tile &t, int kv_head, int first,
					    const struct running<D, MT> &r)
{
	const int lane = threadIdx.x % 32, g = lane / 4;
	bf16 *out = (bf16 *)a.out;

	__syncwarp();
#pragma unroll
	for (int i = 0; i < MT; i++)
#pragma unroll
		for (int h = 0; h < 2; h++) {
			int at = i * 16 + h * 8 + g;
			float by = 1.f / r.l[i][h];

#pragma unroll
			for (int n = 0; n < D / 8; n++)
				*reinterpret_cast<uint32_t *>(rows + place<D>(at, n) + lane % 4 * 2) =
					two_halves(r.o[i][n][2 * h] * by, r.o[i][n][2 * h + 1] * by);
			if (a.lse && !(lane % 4) && first + at < t.rows)
				a.lse[row_of(t, t.first + first + at, a.heads, a.group, kv_head)] = r.m[i][h] * a.scale + logf(r.l[i][h]);
		}
	__syncwarp();
	for (int i = lane; i < 16 * MT * (D / 8); i += 32) {
		int at = i / (D / 8), chunk = i % (D / 8);
		uint4 u = *reinterpret_cast<const uint4 *>(rows + place<D>(at, chunk));
		float x[8];

		if (first + at >= t.rows)
			break;
		unpack(x, u);
		store_wide(out + row_of(t, t.first + first + at, a.heads, a.group, kv_head) * a.d, x, chunk * 8, a.d, a.wide);
	}
}

template <int D, int WARPS, int MT, int STAGES>
__global__ void __launch_bounds__(32 * WARPS, 1) attend_bf16_kernel(const struct attend a)
{
	using S = struct shape<D, WARPS, MT, STAGES>;
	constexpr int N = KEYS<D>;
	CK_DYN_SHARED(raw);
	bf16 *const sq = (bf16 *)raw, *const sk = sq + S::ROWS * D, *const sv = sk + STAGES * TILE * D;
	float4 *const total = (float4 *)(sv + STAGES * TILE * D) + threadIdx.x;
	/* Few rows have a block for each split, and these have nothing to join. */
	const bool parts = WARPS == 1 && a.part;
	const int part = parts ? blockIdx.x / a.splits : blockIdx.x, split = parts ? blockIdx.x % a.splits : 0;
	const struct row_tile t = a.tile[part / a.kv_heads];
	const int kv_head = part % a.kv_heads, first = threadIdx.x / 32 * 16 * MT, left = t.rows - first;
	float2 *const ml = (float2 *)(total - threadIdx.x + S::ROWS * D / 4) + first + threadIdx.x % 32 / 4;
	const int keys = (t.first + t.rows - 1) / a.group + 1, begin = split * SPLIT_TILES;
	const int tiles = (keys + TILE - 1) / TILE, end = parts ? min(begin + SPLIT_TILES, tiles) : tiles;
	/* Up to where the warp's last row sees keys, one tile at least; and the position of its first row. */
	const int mine = max(begin + 1, min(end, (t.first + first + min(left, 16 * MT) - 1) / a.group / TILE + 1));
	const int low = (t.first + first) / a.group;
	struct running<D, MT> r;

	auto load = [&](bf16 *to, bool values, int j) {
		load_keys<D, TILE, S::THREADS>(to, keys_of<bf16>(a, t, kv_head, j, values), a.stride, min(keys - j * TILE, (int)TILE), a.width,
					       a.wide_keys);
	};
	/* Where the keys of tile j lie, and its values, once they are there; what comes after them is sent for. */
	auto keys_at = [&](int j) {
		const int stage = STAGES == 2 ? (j - begin) % 2 : 0;

		ck_copy_wait<0>();
		__syncthreads();        /* these keys are here, and all are through with the last values */
		if (STAGES == 1) {
			load(sv, true, j);
		} else if (j + 1 < end) {
			load(sk + (1 - stage) * TILE * D, false, j + 1);
			load(sv + (1 - stage) * TILE * D, true, j + 1);
		}
		ck_copy_commit();
		return sk + stage * TILE * D;
	};
	auto values_at = [&](int j) {
		if (STAGES == 2)
			return sv + (j - begin) % 2 * TILE * D;
		ck_copy_wait<0>();
		__syncthreads();        /* these values are here; of N = 64, all are through with the keys */
		return sv;
	};
	auto more_keys = [&](int j) {
		if (STAGES == 1 && N < TILE)
			__syncthreads();        /* all are through with the keys */
		if (STAGES == 1 && j + 1 < end)
			load(sk, false, j + 1);
		ck_copy_commit();
	};

	if (begin >= end)
		return;
	load_rows<D, S::ROWS, S::THREADS>(sq, (const bf16 *)a.q, t, a.heads, a.group, kv_head, a.d, a.wide);
	load(sk, false, begin);
	if (STAGES == 2)
		load(sv, true, begin);
	ck_copy_commit();
	int j = begin;
	do {
		const int stop = min(mine, (j / SPLIT_TILES + 1) * SPLIT_TILES);

		begin_split(r);
		do {
			const bf16 *v = nullptr, *k = keys_at(j);

#pragma unroll 1
			for (int at = 0; at < TILE; at += N) {
				const int key = j * TILE + at;
				float s[MT][N / 8][4];
				uint32_t w[MT][N / 16][4];

				clear(s);
				scores<D, MT, N>(s, sq + first * D, k + at * D);
				if (!at)
					v = values_at(j);
				soften<D, MT, N>(r, s, t.first + first + (int)threadIdx.x % 32 / 4, a.group, key, low < key + N - 1, a.c);
				as_left<MT, N>(w, s);
				if (at + N == TILE)
					more_keys(j);   /* here, where fewest registers are in use */
				weigh<D, MT, N>(r.o, w, v + at * D);
			}
		} while (++j < stop);
		sum_l(r);
		if (WARPS > 1 && stop > SPLIT_TILES)
			join_total<D, MT, S::THREADS>(r, total, ml, a.c);
		if (WARPS > 1 && stop < mine)
			keep_total<D, MT, S::THREADS>(total, ml, r);
	} while (j < mine);
	/* The other warps go on. */
	for (; j < end; j++) {
		keys_at(j);
		values_at(j);
		more_keys(j);
	}
	ck_copy_wait<0>();
	if (parts)
		leave_part(a.part + (((long)part * a.splits + split) * a.most + first) * (a.d + 2), r, left, a.d);
	else
		finish(sq + first * D, a, a.tile[part / a.kv_heads], kv_head, first, r);
}

template <int D, int WARPS, int MT, int STAGES>
static void run(struct shape<D, WARPS, MT, STAGES>, const struct attend &a, const char *op)
{
	using S = struct shape<D, WARPS, MT, STAGES>;
	long blocks = (long)a.tiles * a.kv_heads;
	bool total = WARPS > 1 && a.splits > 1;

	ck_launch({ op, dim3(ck_blocks(a.part ? blocks * a.splits : blocks, 1)), dim3(S::THREADS), S::SHARED + (total ? S::TOTAL : 0) },
		  attend_bf16_kernel<D, WARPS, MT, STAGES>, a);
}

template <int D> struct many { using type = shape<D, 4, 2, 2>; };
template <> struct many<96> { using type = shape<96, 4, 2, 1>; };
template <> struct many<128> { using type = shape<128, 8, 2, 1>; };
template <> struct many<192> { using type = shape<192, 8, 1, 1>; };
template <> struct many<256> { using type = shape<256, 6, 1, 1>; };
template <int D> using few = shape<D, 1, 1, D <= 128 ? 2 : 1>;

long attend_rows_bf16(long d)
{
	return d <= 32 ? many<32>::type::ROWS : d <= 64 ? many<64>::type::ROWS : d <= 96 ? many<96>::type::ROWS :
	       d <= 128 ? many<128>::type::ROWS : d <= 192 ? many<192>::type::ROWS : many<256>::type::ROWS;
}

template <int D> static void run_width(const struct attend &a, bool is_few, const char *op)
{
	if (is_few)
		run(few<D>(), a, op);
	else
		run(typename many<D>::type(), a, op);
}

void attend_bf16(const struct attend &a, bool is_few, const char *op)
{
	if (a.d <= 32)
		run_width<32>(a, is_few, op);
	else if (a.d <= 64)
		run_width<64>(a, is_few, op);
	else if (a.d <= 96)
		run_width<96>(a, is_few, op);
	else if (a.d <= 128)
		run_width<128>(a, is_few, op);
	else if (a.d <= 192)
		run_width<192>(a, is_few, op);
	else
		run_width<256>(a, is_few, op);
}
