#include "kernels/cuda/backend.h"
#include "kernels/cuda/device.h"

#include <algorithm>
#include <vector>

/*
 * Rows that go from one place to another, and the sum of those that go to the same.  A block a row; bytes for R rows of b bytes: 2 R b,
 * plus once more for what is added to.  On an H200, 4096 rows of 8 KiB: 67 MB, 16 us.
 */

enum { THREADS = 128 };

/* to[r] = from[index[r]], or to[index[r]] = from[r]; rows of n units. */
template <class U, bool SCATTER> __global__ void __launch_bounds__(THREADS) rows_kernel(U *to, const U *from, const int *index, long n)
{
	long here = blockIdx.x, there = index[blockIdx.x];

	to += (SCATTER ? there : here) * n;
	from += (SCATTER ? here : there) * n;
	for (long i = threadIdx.x; i < n; i += THREADS)
		to[i] = from[i];
}

template <bool SCATTER> static void move(const char *op, void *to, const void *from, const int *index, long rows, size_t bytes)
{
	struct ck_grid g = { op, dim3((unsigned)rows), dim3(THREADS), 0 };
	uintptr_t mixed = (uintptr_t)to | (uintptr_t)from | bytes;

	if (!bytes)
		return;
	if (mixed % 16 == 0)
		ck_launch(g, rows_kernel<uint4, SCATTER>, (uint4 *)to, (const uint4 *)from, index, (long)bytes / 16);
	else if (mixed % 4 == 0)
		ck_launch(g, rows_kernel<uint32_t, SCATTER>, (uint32_t *)to, (const uint32_t *)from, index, (long)bytes / 4);
	else
		ck_launch(g, rows_kernel<uint16_t, SCATTER>, (uint16_t *)to, (const uint16_t *)from, index, (long)bytes / 2);
}

void rows_gather_cuda(void *to, const void *from, const int *index, long rows, size_t bytes)
{
	move<false>("rows_gather", to, from, cuda_upload_array(index, rows), rows, bytes);
}

void rows_scatter_cuda(void *to, const void *from, const int *index, long rows, size_t bytes)
{
	move<true>("rows_scatter", to, from, cuda_upload_array(index, rows), rows, bytes);
}

void embed_fwd_cuda(void *y, const void *table, const int *ids, long rows, long hidden, enum dtype t)
{
	move<false>("embed_fwd", y, table, cuda_upload_array(ids, rows), rows, (size_t)hidden * dtype_size(t));
}

void permute_cuda(void *y, const void *x, const int *from, long rows, long cols, enum dtype t)
{
	move<false>("permute", y, x, from, rows, (size_t)cols * dtype_size(t));
}

/* Rows `row[first[i]] .. row[first[i + 1] - 1]` of dy belong to id[i]: one after the other. */
template <class T> __global__ void __launch_bounds__(THREADS)
embed_bwd_kernel(float *dtable, const T *dy, const int *id, const int *first, const int *row, long hidden)
{
	long c = (long)blockIdx.y * THREADS + threadIdx.x;
	int i = first[blockIdx.x], end = first[blockIdx.x + 1];
	float *to = dtable + id[blockIdx.x] * hidden + c, s;

	if (c >= hidden)
		return;
	s = *to;
	for (; i < end; i++)
		s += to_float(dy[row[i] * hidden + c]);
	*to = s;
}

/* The rows of each id, in their order. */
void embed_bwd_cuda(float *dtable, const void *dy, const int *ids, long rows, long hidden, enum dtype t)
{
	std::vector<int> row((size_t)rows), id, first;
	dim3 threads(THREADS);

	for (long r = 0; r < rows; r++)
		row[(size_t)r] = (int)r;
	std::stable_sort(row.begin(), row.end(), [ids](int a, int b) { return ids[a] < ids[b]; });
	for (long i = 0; i < rows; i++)
		if (!i || ids[row[(size_t)i]] != id.back()) {
			id.push_back(ids[row[(size_t)i]]);
			first.push_back((int)i);
		}
	first.push_back((int)rows);
	const int *i = cuda_upload_array(id.data(), (long)id.size()), *f = cuda_upload_array(first.data(), (long)first.size());
	const int *r = cuda_upload_array(row.data(), rows);
	struct ck_grid g = { "embed_bwd", dim3((unsigned)id.size(), ck_blocks(hidden, THREADS)), threads, 0 };

	if (t == DTYPE_BF16)
		ck_launch(g, embed_bwd_kernel<bf16>, dtable, (const bf16 *)dy, i, f, r, hidden);
	else
		ck_launch(g, embed_bwd_kernel<float>, dtable, (const float *)dy, i, f, r, hidden);
}
