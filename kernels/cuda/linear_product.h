#ifndef KERNELS_CUDA_LINEAR_PRODUCT_H
#define KERNELS_CUDA_LINEAR_PRODUCT_H

/* How a product is launched: the tile by the number of blocks it gives (linear_kernel.h). */

#include <vector>

#include "kernels/cuda/linear.h"
#include "kernels/cuda/linear_kernel.h"

typedef mma_shape<128, 128, 64, 32, 64, 3, 2> mma_large;
typedef mma_shape<64, 64, 32, 32, 64, 4, 3> mma_middle;
typedef mma_shape<64, 32, 32, 16, 128, 4, 2> mma_low;
typedef mma_shape<16, 32, 16, 8, 128, 4, 4> mma_small;
typedef mma_shape<16, 16, 16, 8, 256, 4, 3> mma_narrow;
typedef fma_shape<128, 128, 16, 16, 3, 1> fma_large;
typedef fma_shape<64, 64, 16, 16, 4, 2> fma_middle;
typedef fma_shape<16, 64, 8, 32, 4, 2> fma_small;

static inline int line_of(const char *op, long n)
{
	if (n > LINE_MOST)
		bug("%s: lines of %ld values", op, n);
	return (int)n;
}

/* Rows of experts, and what all of them multiply; NULL offset: one matrix. */
struct experts {
	const struct matrix *w;
	const long *offset;
	long n;
};

/* Sums of the tree over so many chunks that may wait at one time. */
static inline int tree_digits(long chunks)
{
	int n = 0;

	for (long c = chunks - 1; c > 0; c >>= 1)
		n++;
	return n;
}

/* The tiles of rows of all experts, on the device. */
static inline const struct rows_of *tiles_of(long *n, const struct experts *x, long high)
{
	static std::vector<struct rows_of> list;

	list.clear();
	for (long e = 0; e < x->n; e++)
		for (long r = x->offset[e]; r < x->offset[e + 1]; r += high)
			list.push_back({ x->w[e].fwd, r, x->offset[e + 1] - r });
	*n = (long)list.size();
	return *n ? cuda_upload_array(list.data(), *n) : nullptr;
}

template <class T, class S, enum form F, bool JOIN>
static void product_start(struct product p, long z)
{
	constexpr int STAGE = feed<T, S, F == DW, F != FWD, tile_for<T, S, F>>::STAGE;
	size_t digit = tile_for<T, S, F>::COUNT * S::THREADS * sizeof(float),
	       shared = S::STAGES * STAGE, room = cuda_shared_most - shared;
	int digits = JOIN ? tree_digits(p.chunks) : 0;
	struct ck_grid g = { p.op, dim3(ck_blocks(p.tiles_m * p.tiles_n, 1), (unsigned)z),
			     dim3(S::THREADS), 0 };

	static_assert(S::STAGES * STAGE <= 99 << 10, "every device of sm_80 or later has that");
	if (p.m > INT_MAX || p.n > INT_MAX || p.k > INT_MAX || p.chunks > INT_MAX / 64)
		bug("%s: [%ld, %ld, %ld] in %ld chunks", p.op, p.m, p.n, p.k, p.chunks);
	p.local = room / digit < (size_t)digits ? (int)(room / digit) : digits;
	if (p.local < digits)
		p.stack = (float *)cuda_scratch(CUDA_SCRATCH_B,
						g.blocks.x * (digits - p.local) * digit);
	g.shared = shared + p.local * digit;
	ck_launch(g, product_kernel<T, S, F, JOIN>, p);
}

/* z: experts (DW) or chunks on their own (FWD). */
template <class T, class S, enum form F>
static void product_shaped(struct product p, const struct experts *x, long z)
{
	p.tiles_m = (p.m + S::TM - 1) / S::TM;
	p.tiles_n = (p.n + S::TN - 1) / S::TN;
	if (x && F != DW)
		p.part = tiles_of(&p.tiles_m, x, S::TM);
	if constexpr (F == FWD)
		if (p.chunks > 1 && !p.split) {
			product_start<T, S, F, true>(p, z);
			return;
		}
	product_start<T, S, F, false>(p, z);
}

/* Blocks of tiles that high and wide. */
static inline long product_blocks(const struct product *p, const struct experts *x, long high,
				  long wide)
{
	long n = 0;

	if (!x)
		return (p->m + high - 1) / high * ((p->n + wide - 1) / wide);
	for (long e = 0; e < x->n; e++)
		n += (x->offset[e + 1] - x->offset[e] + high - 1) / high;
	return n * ((p->n + wide - 1) / wide);
}

/* At most 16 rows an expert, taken over those that have any. */
static inline bool product_is_small(const struct product *p, const struct experts *x)
{
	long some = 0;

	if (!x)
		return p->m <= 16;
	for (long e = 0; e < x->n; e++)
		some += x->offset[e + 1] > x->offset[e];
	return p->m <= 16 * some;
}

template <class T, enum form F>
static void product_run(const struct product &p, const struct experts *x, long z)
{
	constexpr bool bf = sizeof(T) == 2;
	long fill = cuda_processors;

	if (!p.m || !p.n || !z)
		return;
	if constexpr (F == FWD) {
		if (product_is_small(&p, x)) {
			if (2 * z * product_blocks(&p, x, 16, 32) <= fill)
				product_shaped<T, std::conditional_t<bf, mma_narrow, fma_small>, F>(
					p, x, z);
			else
				product_shaped<T, std::conditional_t<bf, mma_small, fma_small>, F>(
					p, x, z);
			return;
		}
		if (z * product_blocks(&p, x, 64, 64) < fill) {
			product_shaped<T, std::conditional_t<bf, mma_low, fma_middle>, F>(p, x, z);
			return;
		}
	}
	if (z * product_blocks(&p, F == DW ? nullptr : x, 128, 128) >= fill)
		product_shaped<T, std::conditional_t<bf, mma_large, fma_large>, F>(p, x, z);
	else
		product_shaped<T, std::conditional_t<bf, mma_middle, fma_middle>, F>(p, x, z);
}

#endif
