#ifndef KERNELS_CUDA_LINEAR_TILE_H
#define KERNELS_CUDA_LINEAR_TILE_H

/*
 * A block's tile of a product: its operands on their way through shared memory, and the chains.
 *
 * A chain is one accumulator that takes k in ascending order: for bf16 in steps of 16 by
 * mma.m16n8k16, for float32 one fused multiply-add each. Behind the end of a chunk come zeros up
 * to the next multiple of 16 (4), and no step more. So the shape of a tile, how many k are
 * fetched at once, and by how many stages ahead, reach no bit.
 */

#include "kernels/cuda/device.h"

/*
 * LINES lines of LENGTH values side by side.  Lines of bf16 are swizzled, of float32 padded: 8
 * lines' same pieces lie in 32 banks.
 */
template <class T, int LINES, int LENGTH> struct slab {
	static constexpr bool SWIZZLED = sizeof(T) == 2;
	static constexpr int PIECES = LENGTH / WIDE<T>,
			     PITCH = LENGTH * (int)sizeof(T) + (SWIZZLED ? 0 : 16),
			     BYTES = LINES * PITCH;
	static_assert(!SWIZZLED || PIECES % 8 == 0, "8 pieces change places");
	DEVICE unsigned char *at(unsigned char *p, int line, int piece)
	{
		return p + line * PITCH + (SWIZZLED ? piece ^ (line & 7) : piece) * 16;
	}
	/*
	 * From memory whose lines are `stride` apart: what lies in the first `lines` and `length`,
	 * and zeros around it.  wide: 16 bytes at a time, by cp.async.
	 */
	template <int THREADS> DEVICE void load(unsigned char *to, const T *from, int stride,
						int lines, int length, bool wide)
	{
		int first = (int)threadIdx.x / PIECES, piece = (int)threadIdx.x % PIECES;

		static_assert(THREADS % PIECES == 0 && LINES * PIECES % THREADS == 0,
			      "threads share the pieces evenly");
		from += first * stride + piece * WIDE<T>;
#pragma unroll
		for (int i = 0; i < LINES * PIECES / THREADS;
		     i++, from += THREADS / PIECES * stride) {
			int line = first + i * (THREADS / PIECES);
			unsigned char *p = at(to, line, piece);
			bool given = line < lines && piece * WIDE<T> < length;

			if (wide) {
				ck_copy16(p, from, given);
				continue;
			}
#pragma unroll
			for (int e = 0; e < WIDE<T>; e++)
				reinterpret_cast<T *>(p)[e] =
					given && piece * WIDE<T> + e < length ? from[e] : T(0.f);
		}
	}
};

/* -- shapes: TM x TN values of the result, KS values of k a stage ---------------------------- */

template <int M, int N, int WARP_M, int WARP_N, int K, int AHEAD, int ON_AN_SM> struct mma_shape {
	static constexpr int TM = M, TN = N, WM = WARP_M, WN = WARP_N, KS = K, STAGES = AHEAD,
			     BLOCKS = ON_AN_SM, THREADS = 32 * (M / WM) * (N / WN);
};

template <int M, int N, int THREADS_M, int K, int AHEAD, int ON_AN_SM> struct fma_shape {
	static constexpr int TM = M, TN = N, TY = THREADS_M, TX = 16, KS = K, STAGES = AHEAD,
			     BLOCKS = ON_AN_SM, THREADS = TX * TY;
};

/* -- bf16: a warp has WM x WN of the tile ---------------------------------------------------- */

/* AT, BT: the operand lies in memory with k across its lines. */
template <class S, bool AT, bool BT> struct mma_tile {
	static constexpr int MI = S::WM / 16, NJ = S::WN / 8, COUNT = MI * NJ * 4, RUN = 2;
	typedef slab<bf16, AT ? S::KS : S::TM, AT ? S::TM : S::KS> A;
	typedef slab<bf16, BT ? S::KS : S::TN, BT ? S::TN : S::KS> B;

	float acc[MI * NJ][4];

	__device__ __forceinline__ float &value(int e) { return acc[e / 4][e % 4]; }
	DEVICE int row0(void) { return (int)threadIdx.x / 32 / (S::TN / S::WN) * S::WM; }
	DEVICE int col0(void) { return (int)threadIdx.x / 32 % (S::TN / S::WN) * S::WN; }

	/* f(row, column, two values side by side) for all that this thread has. */
	template <class F> __device__ __forceinline__ void each(F f)
	{
		int lane = (int)threadIdx.x % 32;

#pragma unroll
		for (int e = 0; e < COUNT; e += 2)
			f(row0() + e / 4 / NJ * 16 + e % 4 / 2 * 8 + lane / 4,
			  col0() + e / 4 % NJ * 8 + lane % 4 * 2, &acc[e / 4][e % 4]);
	}

	DEVICE void load_a(uint32_t (&r)[4], unsigned char *a, int row, int k, int lane)
	{
		if (AT)
			ck_ldmatrix_trans(r, A::at(a, k + lane / 16 * 8 + lane % 8,
						   (row + lane / 8 % 2 * 8) / 8));
		else
			ck_ldmatrix(r, A::at(a, row + lane % 16, k / 8 + lane / 16));
	}

	/* Of 16 columns. */
	DEVICE void load_b(uint32_t (&r)[4], unsigned char *b, int col, int k, int lane)
	{
		if (BT)
			ck_ldmatrix_trans(r, B::at(b, k + lane / 8 % 2 * 8 + lane % 8,
						   (col + lane / 16 * 8) / 8));
		else
			ck_ldmatrix(r,
				    B::at(b, col + lane / 16 * 8 + lane % 8, k / 8 + lane / 8 % 2));
	}

	/* 16 k from `k` on. */
	__device__ __forceinline__ void take(unsigned char *a, unsigned char *b, int k)
	{
		int lane = (int)threadIdx.x % 32;
		uint32_t x[MI][4], w[(NJ + 1) / 2][4];

#pragma unroll
		for (int i = 0; i < MI; i++)
			load_a(x[i], a, row0() + i * 16, k, lane);
#pragma unroll
		for (int j = 0; j < (NJ + 1) / 2; j++)
			load_b(w[j], b, NJ == 1 ? col0() & ~8 : col0() + j * 16, k, lane);
#pragma unroll
		for (int i = 0; i < MI; i++)
#pragma unroll
			for (int j = 0; j < NJ; j++) {
				bool odd = NJ == 1 ? col0() & 8 : j % 2;
				uint32_t v[2] = { odd ? w[j / 2][2] : w[j / 2][0],
						  odd ? w[j / 2][3] : w[j / 2][1] };

				ck_mma_bf16(acc[i * NJ + j], x[i], v);
			}
	}

	__device__ __forceinline__ void step(unsigned char *a, unsigned char *b, int left)
	{
		if (left >= S::KS) {
#pragma unroll
			for (int k = 0; k < S::KS; k += 16)
				take(a, b, k);
		} else {
#pragma unroll 1
			for (int k = 0; k < left; k += 16)
				take(a, b, k);
		}
	}
};

/* -- float32: a thread has TM / TY rows and TN / 16 columns ---------------------------------- */

template <class S, bool AT, bool BT> struct fma_tile {
	static constexpr int MI = S::TM / S::TY, NJ = S::TN / S::TX, COUNT = MI * NJ, RUN = 1;
	typedef slab<float, AT ? S::KS : S::TM, AT ? S::TM : S::KS> A;
	typedef slab<float, BT ? S::KS : S::TN, BT ? S::TN : S::KS> B;
	static_assert((!AT || MI % 4 == 0) && (!BT || NJ % 4 == 0),
		      "four side by side are read at once");

	float acc[MI][NJ];

	__device__ __forceinline__ float &value(int e) { return acc[e / NJ][e % NJ]; }
	/* The i-th of this thread's rows (columns): with k across, four side by side. */
	template <bool ACROSS> DEVICE int place(int i, int thread, int threads)
	{
		return ACROSS ? i / 4 * 4 * threads + thread * 4 + i % 4 : i * threads + thread;
	}
	DEVICE int row(int i) { return place<AT>(i, (int)threadIdx.x / S::TX, S::TY); }
	DEVICE int col(int j) { return place<BT>(j, (int)threadIdx.x % S::TX, S::TX); }

	template <class F> __device__ __forceinline__ void each(F f)
	{
#pragma unroll
		for (int e = 0; e < COUNT; e++)
			f(row(e / NJ), col(e % NJ), &value(e));
	}

	__device__ __forceinline__ void take(unsigned char *a, unsigned char *b, int k)
	{
		float x[MI][4], w[NJ][4], v[4];

#pragma unroll
		for (int i = 0; i < MI; i++) {
			unpack(v, *reinterpret_cast<const uint4 *>(
					  AT ? A::at(a, k + i % 4, row(i / 4 * 4) / 4)
					     : A::at(a, row(i), k / 4)));
#pragma unroll
			for (int e = 0; e < 4; e++)
				x[AT ? i / 4 * 4 + e : i][AT ? i % 4 : e] = v[e];
		}
#pragma unroll
		for (int j = 0; j < NJ; j++) {
			unpack(v, *reinterpret_cast<const uint4 *>(
					  BT ? B::at(b, k + j % 4, col(j / 4 * 4) / 4)
					     : B::at(b, col(j), k / 4)));
#pragma unroll
			for (int e = 0; e < 4; e++)
				w[BT ? j / 4 * 4 + e : j][BT ? j % 4 : e] = v[e];
		}
#pragma unroll
		for (int e = 0; e < 4; e++)
#pragma unroll
			for (int i = 0; i < MI; i++)
#pragma unroll
				for (int j = 0; j < NJ; j++)
					acc[i][j] = __fmaf_rn(x[i][e], w[j][e], acc[i][j]);
	}

	__device__ __forceinline__ void step(unsigned char *a, unsigned char *b, int left)
	{
#pragma unroll 1
		for (int k = 0; k < S::KS && k < left; k += 4)
			take(a, b, k);
	}
};

/* -- operands: what the next stage is -------------------------------------------------------- */

template <class T, class S, bool AT, bool BT, class TILE> struct feed {
	const T *a, *b;
	int rows, cols;         /* that there are in the tile */
	int k;                  /* of the chunk, that is next */
	static constexpr int STAGE = TILE::A::BYTES + TILE::B::BYTES;

	/* lda, ldb: lines of memory; chunk_a, chunk_b: how far chunks of a and b are apart. */
	__device__ __forceinline__ void next(unsigned char *to, int lda, int ldb, int chunk_a,
					     int chunk_b, bool wide_a, bool wide_b)
	{
		int left_a = min(chunk_a - k, S::KS + 0), left_b = min(chunk_b - k, S::KS + 0);

		TILE::A::template load<S::THREADS>(to, a, lda, AT ? left_a : rows,
						   AT ? rows : left_a, wide_a);
		TILE::B::template load<S::THREADS>(to + TILE::A::BYTES, b, ldb, BT ? left_b : cols,
						   BT ? cols : left_b, wide_b);
		k += S::KS;
		a += AT ? S::KS * lda : S::KS;
		b += BT ? S::KS * ldb : S::KS;
		if (!AT && !BT && k >= chunk_a) {
			a -= k - chunk_a;
			b -= k - chunk_b;
			k = 0;
		}
	}
};

#endif
