#ifndef KERNELS_CUDA_LINEAR_KERNEL_H
#define KERNELS_CUDA_LINEAR_KERNEL_H

/*
 * Products of the CUDA backend: one kernel in three forms.
 *
 *	FWD     y[m, n] = x[m, k] w[n, k]^T, in chunks of k
 *	DX      dx[m, k] = dy[m, n] w[n, k]
 *	DW      dw[n, k] += dy[m, n]^T x[m, k]; the chains begin with what dw holds, so a cut of m
 *	        at multiples of 16 changes no bit
 *
 * w lies as w[n][chunks][packed]: `packed` is a chunk's length rounded up to 16 bytes, and what
 * that adds is zero.
 *
 * Bytes and operations for e bytes a value: FWD and DX read (m k + n k) e, write m n e (m k e), 2
 * m n k operations. Floors on an H200 at 790 TFLOP/s and 4.3 TB/s: m = 1, 4096 x 4096: 34 MB, 7.8
 * us; m = 8192: 275 GFLOP, 350 us; DW of the same: 350 us and 31 us for reading and writing dw.
 * mma.sync reaches about two thirds of what Hopper's wgmma does, which the 790 are of.
 *
 *	tile       threads  warp's    k a stage, stages   shared   for
 *	128 x 128  256      64 x 32   64, 3               96 KiB   grids that fill the device; two
 *	                                                           blocks a multiprocessor
 *	 64 x  64  128      32 x 32   64, 4               64 KiB   smaller ones
 *	 64 x  32  128      32 x 16   128, 4              96 KiB   FWD of too few such blocks: it is
 *	                                                           reading w that takes long
 *	 16 x  32  128      16 x  8   128, 4              48 KiB   FWD of up to 16 rows
 *	 16 x  16   64      16 x  8   256, 4              64 KiB   the same with few columns
 *
 * A block of the small ones has 36 KiB and more under way, which is 4.3 TB/s times 1 us for each of
 * 132 multiprocessors.
 *
 * Rows that a tile has too much are not read. float32 has 128 x 128 (256 threads), 64 x 64 and 16
 * x 64, and is bound by its 67 TFLOP/s.
 *
 * A barrier a stage. Chunks are joined where they end, in the block: the tree of tree_join() is a
 * counter in binary, whose digits wait in shared memory, and those for which there is no place in
 * global memory: of 8 chunks one in an H200's large tile, which is written and read once. Only if
 * blocks are few do chunks go to blocks of their own, and a second launch joins them.
 */

#include <limits.h>

#include "kernels/cuda/linear_tile.h"

enum form { FWD, DX, DW };
enum { LINE_MOST = INT_MAX / 256 };     /* values in a line of an operand */

/* Rows of one expert: where its w lies, its first row, how many. */
struct rows_of { const void *w; long row, rows; };

struct product {
	const char *op;
	const void *a, *b;      /* FWD: x, w;  DX: dy, w;  DW: dy, x */
	void *y;
	const void *bias;       /* FWD */
	int lda, ldb;           /* at most LINE_MOST */
	long ldy;
	/* Of the result, and of a chunk; DX: n counts what lies between chunks of w too. */
	long m, n, k;
	long chunks, packed;    /* DX: of the columns of the result */
	bool f32;               /* y's type */
	bool add;               /* DX */
	bool split;             /* FWD: blocks of each chunk write y[chunk][m][n] */
	bool wide_a, wide_b, paired;
	const struct rows_of *part; /* for each tile of rows; NULL: one matrix.  DX, FWD */
	const long *offset;     /* DW: rows of each expert; NULL: 0 .. k - 1 */
	int local;              /* digits of the tree that wait in shared memory */
	float *stack;           /* the others */
	long tiles_m, tiles_n;
};

/* -- the device's side ----------------------------------------------------------------------- */

/* Tiles next to each other run at one time: 8 of rows by all of columns, so that L2 serves them. */
DEVICE void tile_of(long *tm, long *tn, const struct product &p)
{
	constexpr long BAND = 8;
	long id = blockIdx.x, band = id / (BAND * p.tiles_n), in = id % (BAND * p.tiles_n);
	long high = min(p.tiles_m - band * BAND, BAND);

	*tm = band * BAND + in % high;
	*tn = in / high;
}

/*
 * The tree over chunks, after chunk c: a sum of 2^i chunks waits for its right neighbour as digit
 * i, the first `local` of them in `near`, the others in `far`; the last chunk takes all that
 * wait, the youngest first. A thread sees its own values only.
 */
template <class S, class TILE>
DEVICE void join_chunk(TILE &tile, float *near, float *far, int local, int c, bool last)
{
	constexpr int DIGIT = TILE::COUNT * S::THREADS;
	int i = 0;

#pragma unroll 1
	for (; last ? c != 0 : c & 1; c >>= 1, i++) {
		const float *s = (i < local ? near + i * DIGIT : far + (long)(i - local) * DIGIT) +
				 threadIdx.x;

		if (!(c & 1))
			continue;
#pragma unroll
		for (int e = 0; e < TILE::COUNT; e++)
			tile.value(e) = s[e * S::THREADS] + tile.value(e);
	}
	if (last)
		return;
	near = (i < local ? near + i * DIGIT : far + (long)(i - local) * DIGIT) + threadIdx.x;
#pragma unroll
	for (int e = 0; e < TILE::COUNT; e++)
		near[e * S::THREADS] = tile.value(e), tile.value(e) = 0;
}

template <int RUN> DEVICE void store_f32(float *y, const float *v, int n, bool paired)
{
	if (RUN == 2 && n == 2 && paired) {
		*reinterpret_cast<float2 *>(y) = make_float2(v[0], v[1]);
		return;
	}
#pragma unroll
	for (int i = 0; i < RUN; i++)
		if (i < n)
			y[i] = v[i];
}

template <int RUN>
DEVICE void store(const struct product &p, float *y, long at, const float *v, int n)
{
	store_f32<RUN>(y + at, v, n, p.paired);
}

template <int RUN>
DEVICE void store(const struct product &p, bf16 *y, long at, const float *v, int n)
{
	if (p.f32) {
		store_f32<RUN>(reinterpret_cast<float *>(y) + at, v, n, p.paired);
		return;
	}
	if (RUN == 2 && n == 2 && p.paired) {
		*reinterpret_cast<uint32_t *>(y + at) = two_halves(v[0], v[1]);
		return;
	}
#pragma unroll
	for (int i = 0; i < RUN; i++)
		if (i < n)
			y[at + i] = __float2bfloat16_rn(v[i]);
}

DEVICE float held(const struct product &, const float *y, long at) { return y[at]; }
DEVICE float held(const struct product &p, const bf16 *y, long at)
{
	return p.f32 ? reinterpret_cast<const float *>(y)[at] : __bfloat162float(y[at]);
}

/* Values at row r, columns c, c + 1, ... (n of them) of the result. */
template <class T, int RUN>
DEVICE void finish_fwd(const struct product &p, long r, long c, float *v, int n)
{
	if (p.bias && !p.split) {
#pragma unroll
		for (int i = 0; i < RUN; i++)
			if (i < n)
				v[i] += to_float(static_cast<const T *>(p.bias)[c + i]);
	}
	store<RUN>(p, static_cast<T *>(p.y), ((p.split ? blockIdx.y * p.m : 0) + r) * p.ldy + c, v,
		   n);
}

/* Columns are w's, which between chunks has more than dx. */
template <class T, int RUN>
DEVICE void finish_dx(const struct product &p, long r, long c, float *v, int n)
{
	T *y = static_cast<T *>(p.y);
	long length = p.ldy / p.chunks;

	if (length == p.packed) {
#pragma unroll
		for (int i = 0; i < RUN; i++)
			if (p.add && i < n)
				v[i] += held(p, y, r * p.ldy + c + i);
		store<RUN>(p, y, r * p.ldy + c, v, n);
		return;
	}
#pragma unroll
	for (int i = 0; i < RUN; i++) {
		long at = r * p.ldy + (c + i) / p.packed * length + (c + i) % p.packed;
		float one = v[i];

		if (i >= n || (c + i) % p.packed >= length)
			continue;
		if (p.add)
			one += held(p, y, at);
		store<1>(p, y, at, &one, 1);
	}
}

template <class T, class S, enum form F> using tile_for =
	std::conditional_t<sizeof(T) == 2, mma_tile<S, F == DW, F != FWD>,
			   fma_tile<S, F == DW, F != FWD>>;

template <class T, class S, enum form F, bool JOIN>
__global__ void __launch_bounds__(S::THREADS, JOIN ? 1 : S::BLOCKS)
	product_kernel(const struct product p)
{
	typedef tile_for<T, S, F> tile_type;
	typedef feed<T, S, F == DW, F != FWD, tile_type> feed_type;
	constexpr int STAGE = feed_type::STAGE;
	CK_DYN_SHARED(raw);
	long tm, tn, first = F == DW && p.offset ? p.offset[blockIdx.y] : 0;
	int k = (int)(F == DW && p.offset ? p.offset[blockIdx.y + 1] - first : p.k),
	    packed = F == FWD ? (int)p.packed : k, row, col;
	struct rows_of part = { p.b, 0, p.m };
	tile_type tile;
	feed_type in;

	if (k <= 0)
		return;
	tile_of(&tm, &tn, p);
	if (F != DW && p.part)
		part = p.part[tm];
	else
		part.row = tm * S::TM, part.rows -= part.row;
	row = (int)part.row;
	col = (int)tn * S::TN;
	in.rows = (int)min(part.rows, (long)S::TM);
	in.cols = (int)min(p.n - col, (long)S::TN);
	in.k = 0;
	in.a = static_cast<const T *>(p.a) + (F == DW ? first * p.lda + row : (long)row * p.lda);
	in.b = static_cast<const T *>(part.w) + (F == DW   ? first * p.ldb + col
						 : F == DX ? col
							   : (long)col * p.ldb);
	if (F == FWD && p.split) {
		in.a += blockIdx.y * p.k;
		in.b += blockIdx.y * p.packed;
	}
#pragma unroll
	for (int e = 0; e < tile_type::COUNT; e++)
		tile.value(e) = 0;
	if (F == DW)
		tile.each([&](int r, int c, float *v) {
			const float *dw = static_cast<const float *>(p.y) +
					  (blockIdx.y * p.m + row + r) * p.n + col + c;
#pragma unroll
			for (int i = 0; i < tile_type::RUN; i++)
				if (r < in.rows && c + i < in.cols)
					v[i] = dw[i];
		});

	int steps = (k + S::KS - 1) / S::KS * (JOIN ? (int)p.chunks : 1), at = 0,
	    ahead = S::STAGES - 1, chunk = 0, left = k;

#pragma unroll
	for (int s = 0; s < S::STAGES - 1; s++) {
		if (s < steps)
			in.next(raw + s * STAGE, p.lda, p.ldb, k, packed, p.wide_a, p.wide_b);
		ck_copy_commit();
	}
#pragma unroll 1
	for (int s = 0; s < steps; s++) {
		ck_copy_wait<S::STAGES - 2>();
		__syncthreads();        /* the stage is whole, and the one before it read by all */
		if (s + S::STAGES - 1 < steps)
			in.next(raw + ahead * STAGE, p.lda, p.ldb, k, packed, p.wide_a, p.wide_b);
		ck_copy_commit();
		tile.step(raw + at * STAGE, raw + at * STAGE + tile_type::A::BYTES, left);
		at = at + 1 == S::STAGES ? 0 : at + 1;
		ahead = ahead + 1 == S::STAGES ? 0 : ahead + 1;
		left -= S::KS;
		if constexpr (JOIN)
			if (left <= 0) {
				long digits = p.chunks > 1 ? 32 - __clz((int)p.chunks - 1) : 0;

				join_chunk<S>(tile,
					      reinterpret_cast<float *>(raw + S::STAGES * STAGE),
					      p.stack + blockIdx.x * (digits - p.local) *
								tile_type::COUNT * S::THREADS,
					      p.local, chunk, chunk + 1 == p.chunks);
				chunk++;
				left = k;
			}
	}
	ck_copy_wait<0>();
	ck_anew(row);
	tile.each([&](int r, int c, float *v) {
		int n = min(in.cols - c, int(tile_type::RUN));

		if (r >= in.rows || n <= 0)
			return;
		if (F == FWD)
			finish_fwd<T, tile_type::RUN>(p, row + r, col + c, v, n);
		else if (F == DX)
			finish_dx<T, tile_type::RUN>(p, row + r, col + c, v, n);
		else
			store_f32<tile_type::RUN>(static_cast<float *>(p.y) +
							  (blockIdx.y * p.m + row + r) * p.n + col +
							  c,
						  v, n, p.paired);
	});
}

#endif
