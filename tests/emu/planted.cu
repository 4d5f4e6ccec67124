/*
 * Kernels with one mistake each, and their clean twins: `planted NAME` runs one.  What each net must say about each is in
 * tests/kernels/cuda.sh.  A clean run compares with what is expected and exits 0, or 1.
 */
#include "kernels/cuda/backend.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/host.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <vector>

extern "C" const struct ops *cairn_cuda_ops(const struct cuda_host *h, int device, bool whole, struct err *e);

enum { THREADS = 128 };

static std::vector<float> want, got;
static float *in, *out;

static void say(int, const char *fmt, ...)
{
	va_list a;

	va_start(a, fmt);
	vfprintf(stderr, fmt, a);
	va_end(a);
	fputc('\n', stderr);
	exit(69);
}

static void say_bug(const char *, int, const char *, ...) { exit(70); }
static void say_nothing(const char *, ...) {}

/* -- a block's sum, over a shared array ------------------------------------------------------------------------ */

enum mistake { NONE, NO_BARRIER, NO_WAR_BARRIER, OUT_OF_SHARED, UNSET_SHARED };

template <int M> __global__ void sum_kernel(float *y, const float *x, int rounds)
{
	CK_SHARED(float, part, [THREADS]);
	int t = threadIdx.x;
	float s = 0;

	for (int i = 0; i < rounds; i++) {
		if (M != UNSET_SHARED || t)
			part[t] = x[(blockIdx.x * rounds + i) * THREADS + t];
		if (M == OUT_OF_SHARED && t == THREADS - 1)
			part[t + rounds / 5] = 0;
		if (M != NO_BARRIER)
			__syncthreads();
		s += part[(t + 37) % THREADS] + part[(t + 64) % THREADS];
		if (M != NO_WAR_BARRIER)
			__syncthreads();
	}
	y[blockIdx.x * THREADS + t] = s;
}

template <int M> static void sum(void)
{
	enum { ROUNDS = 5, BLOCKS = 3 };

	for (int b = 0; b < BLOCKS; b++)
		for (int t = 0; t < THREADS; t++)
			for (int i = 0; i < ROUNDS; i++)
				want[b * THREADS + t] += (float)(((b * ROUNDS + i) * THREADS + (t + 37) % THREADS) % 97) +
							 (float)(((b * ROUNDS + i) * THREADS + (t + 64) % THREADS) % 97);
	ck_launch({ "sum", dim3(BLOCKS), dim3(THREADS), 0 }, sum_kernel<M>, out, in, (int)ROUNDS);
}

/* -- a pipeline of cp.async over tiles, two buffers -------------------------------------------------------------- */

enum pipe { PIPE, NO_WAIT, EARLY_REUSE };

template <int M> __global__ void pipe_kernel(float *y, const float *x, int tiles)
{
	CK_DYN_SHARED(raw);
	float(*buf)[THREADS] = (float(*)[THREADS])raw;
	int t = threadIdx.x;
	float s = 0;

	if (t < THREADS / 4)
		ck_copy16(&buf[0][t * 4], x + t * 4, true);
	ck_copy_commit();
	for (int i = 0; i < tiles; i++) {
		if (i + 1 < tiles && t < THREADS / 4)
			ck_copy16(&buf[(i + 1) % 2][t * 4], x + (i + 1) * THREADS + t * 4, true);
		ck_copy_commit();
		if (M != NO_WAIT || i + 1 < tiles)
			ck_copy_wait<1>();
		__syncthreads();
		s += buf[i % 2][(t + 64) % THREADS];
		if (M != EARLY_REUSE)
			__syncthreads();
	}
	if (M != NO_WAIT)
		ck_copy_wait<0>();
	y[t] = s;
}

template <int M> static void pipeline(void)
{
	enum { TILES = 7 };

	for (int t = 0; t < THREADS; t++)
		for (int i = 0; i < TILES; i++)
			want[t] += (float)((i * THREADS + (t + 64) % THREADS) % 97);
	ck_launch({ "pipeline", dim3(1), dim3(THREADS), 2 * THREADS * sizeof(float) }, pipe_kernel<M>, out, in, (int)TILES);
}

/* -- a tile through ldmatrix and mma: fragments against a product written out -------------------------------------- */

/* y[16, 8] = a[16, 16] b[8, 16]^T, of small whole numbers: exact. */
__global__ void mma_kernel(float *y, const float *x)
{
	CK_SHARED(bf16, a, [16][24]);
	CK_SHARED(bf16, b, [8][24]);
	CK_SHARED(bf16, bt, [16][24]);
	int l = threadIdx.x;
	uint32_t fa[4], fb[2], fc[2];
	float d[4] = { 0, 0, 0, 0 };

	for (int i = l; i < 256; i += 32)
		a[i / 16][i % 16] = __float2bfloat16_rn(x[i]);
	for (int i = l; i < 128; i += 32) {
		b[i / 16][i % 16] = __float2bfloat16_rn(x[256 + i]);
		bt[i % 16][i / 16] = __float2bfloat16_rn(x[256 + i]);
	}
	__syncwarp();
	ck_ldmatrix(fa, &a[l % 16][l / 16 * 8]);
	ck_ldmatrix(fb, &b[l % 8][l / 8 % 2 * 8]);
	ck_ldmatrix_trans(fc, &bt[l % 16][0]);
	ck_mma_bf16(d, fa, fb);
	for (int i = 0; i < 4; i++)
		y[(l / 4 + i / 2 * 8) * 8 + l % 4 * 2 + i % 2] = fb[0] == fc[0] && fb[1] == fc[1] ? d[i] : -1;
}

/* The same in tf32: y[16, 8] = a[16, 8] b[8, 8]. */
__global__ void tf32_kernel(float *y, const float *x)
{
	int l = threadIdx.x, g = l / 4, t = l % 4;
	const float *b = x + 256;
	uint32_t fa[4] = { ck_tf32(x[g * 8 + t]), ck_tf32(x[(g + 8) * 8 + t]), ck_tf32(x[g * 8 + t + 4]), ck_tf32(x[(g + 8) * 8 + t + 4]) };
	uint32_t fb[2] = { ck_tf32(b[t * 8 + g]), ck_tf32(b[(t + 4) * 8 + g]) };
	float d[4] = { 0, 0, 0, 0 };

	ck_mma_tf32(d, fa, fb);
	for (int i = 0; i < 4; i++)
		y[(g + i / 2 * 8) * 8 + t * 2 + i % 2] = d[i];
}

static void fragments(void)
{
	for (int i = 0; i < 16; i++)
		for (int j = 0; j < 8; j++) {
			for (int k = 0; k < 16; k++)
				want[i * 8 + j] += (float)((i * 16 + k) % 97) * (float)((256 + j * 16 + k) % 97);
			for (int k = 0; k < 8; k++)
				want[128 + i * 8 + j] += (float)((i * 8 + k) % 97) * (float)((256 + k * 8 + j) % 97);
		}
	ck_launch({ "mma", dim3(1), dim3(32), 0 }, mma_kernel, out, in);
	ck_launch({ "mma", dim3(1), dim3(32), 0 }, tf32_kernel, out + 128, in);
}

/* -- warps ------------------------------------------------------------------------------------------------------------ */

enum warp { WARP, NO_SYNCWARP, DIVERGED, EXITED_LANE };

template <int M> __global__ void warp_kernel(float *y, const float *x)
{
	CK_SHARED(float, part, [32]);
	int l = threadIdx.x;

	part[l] = x[l];
	if (M != NO_SYNCWARP)
		__syncwarp();
	float s = part[31 - l];

	if (M == EXITED_LANE && l == 5)
		return;
	if (M == DIVERGED) {
		if (l < 16)
			s = warp_sum(s);
	} else {
		s = warp_sum(s);
	}
	y[l] = s;
}

template <int M> static void warp(void)
{
	for (int l = 0; l < 32; l++)
		want[l] = 31 * 32 / 2;
	ck_launch({ "warp", dim3(1), dim3(32), 0 }, warp_kernel<M>, out, in);
}

/* -- barriers that not all reach ----------------------------------------------------------------------------------------- */

__global__ void early_return_kernel(float *y)
{
	if (threadIdx.x == 3)
		return;
	__syncthreads();
	y[threadIdx.x] = 0;
}

__global__ void two_barriers_kernel(float *y)
{
	if (threadIdx.x < 64)
		__syncthreads();
	else
		__syncthreads();
	y[threadIdx.x] = 0;
}

/* -- memory of the device ---------------------------------------------------------------------------------------------------- */

__global__ void past_the_end_kernel(float *y, long n)
{
	y[threadIdx.x + n] = 1;
}

__global__ void misaligned_kernel(float *y, const float *x)
{
	*reinterpret_cast<float4 *>(y + threadIdx.x * 4) = *reinterpret_cast<const float4 *>(x + 1 + threadIdx.x * 4);
}

__global__ void two_blocks_kernel(float *y)
{
	y[threadIdx.x] += 1;
}

static void past_the_end(void)
{
	float *y = (float *)cuda_scratch(CUDA_SCRATCH_A, 4000);

	/* Scratch is a quarter larger than was asked for. */
	ck_launch({ "past_the_end", dim3(1), dim3(1), 0 }, past_the_end_kernel, y, 1250L);
}

static void early_return(void) { ck_launch({ "early_return", dim3(1), dim3(THREADS), 0 }, early_return_kernel, out); }
static void two_barriers(void) { ck_launch({ "two_barriers", dim3(1), dim3(THREADS), 0 }, two_barriers_kernel, out); }
static void misaligned(void) { ck_launch({ "misaligned", dim3(1), dim3(8), 0 }, misaligned_kernel, out, in); }
static void two_blocks(void)
{
	cuda_ok(cudaMemsetAsync(out, 0, want.size() * sizeof(float), cuda_stream), "two_blocks");
	for (int i = 0; i < THREADS; i++)
		want[i] = 2;
	ck_launch({ "two_blocks", dim3(2), dim3(THREADS), 0 }, two_blocks_kernel, out);
}

/* -- the host's side ------------------------------------------------------------------------------------------------------------ */

static void host_pointer(void)
{
	static float there[THREADS];

	ck_launch({ "host_pointer", dim3(1), dim3(THREADS), 0 }, sum_kernel<NONE>, there, in, 1);
}

static void too_many_threads(void) { ck_launch({ "too_many_threads", dim3(1), dim3(2048), 0 }, sum_kernel<NONE>, out, in, 1); }

/* A result that is read before anything waits for it. */
static void no_wait(void)
{
	void *pinned;

	sum<NONE>();
	cuda_ok(cudaMallocHost(&pinned, want.size() * sizeof(float)), "no_wait");
	cuda_ok(cudaMemcpyAsync(pinned, out, want.size() * sizeof(float), cudaMemcpyDeviceToHost, cuda_stream), "no_wait");
	memcpy(got.data(), pinned, want.size() * sizeof(float));
}

/* A second stream that does not wait for the first. */
static void no_event(void)
{
	cudaStream_t other;

	sum<NONE>();
	cuda_ok(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), "no_event");
	cuda_ok(cudaMemcpyAsync(out + 4096, out, want.size() * sizeof(float), cudaMemcpyDeviceToDevice, other), "no_event");
	cuda_ok(cudaStreamSynchronize(other), "no_event");
	out += 4096;
}

static void device_full(void) { cuda_scratch(CUDA_SCRATCH_B, (size_t)1 << 40); }

static const struct { const char *name; void (*f)(void); } all[] = {
	{ "sum", sum<NONE> }, { "sum-no-barrier", sum<NO_BARRIER> }, { "sum-no-second-barrier", sum<NO_WAR_BARRIER> },
	{ "sum-out-of-shared", sum<OUT_OF_SHARED> }, { "sum-unset-shared", sum<UNSET_SHARED> },
	{ "pipeline", pipeline<PIPE> }, { "pipeline-no-wait", pipeline<NO_WAIT> }, { "pipeline-early-reuse", pipeline<EARLY_REUSE> },
	{ "fragments", fragments },
	{ "warp", warp<WARP> }, { "warp-no-syncwarp", warp<NO_SYNCWARP> }, { "warp-diverged", warp<DIVERGED> },
	{ "warp-exited-lane", warp<EXITED_LANE> },
	{ "early-return", early_return }, { "two-barriers", two_barriers }, { "past-the-end", past_the_end }, { "misaligned", misaligned },
	{ "two-blocks", two_blocks }, { "host-pointer", host_pointer }, { "too-many-threads", too_many_threads }, { "no-wait", no_wait },
	{ "no-event", no_event }, { "device-full", device_full },
};

static int run(void (*f)(void), bool fetched)
{
	size_t bytes = want.size() * sizeof(float);
	float *y = out;

	cuda_ok(cudaMemsetAsync(out, 0, 16384 * sizeof(float), cuda_stream), "planted");
	f();
	y = out;
	if (!fetched)
		cuda_download(got.data(), y, bytes, "planted");
	for (size_t i = 0; i < want.size(); i++)
		if (!(got[i] == want[i])) {
			fprintf(stderr, "wrong: value %zu is %g, wanted %g\n", i, (double)got[i], (double)want[i]);
			return 1;
		}
	return 0;
}

int main(int argc, char **argv)
{
	static const struct cuda_host host = { say, say_bug, say_nothing };
	std::vector<float> x(8192);
	struct err e = {};

	if (!cairn_cuda_ops(&host, 0, false, &e))
		say(69, "%s", e.msg);
	for (size_t i = 0; i < x.size(); i++)
		x[i] = (float)(i % 97);
	want.assign(512, 0);
	got.assign(512, 0);
	in = (float *)alloc_cuda(x.size() * sizeof(float), "in");
	out = (float *)alloc_cuda(16384 * sizeof(float), "out");
	put_cuda(in, x.data(), x.size() * sizeof(float));
	for (const auto &o : all)
		if (argc == 2 && !strcmp(argv[1], o.name))
			return run(o.f, o.f == no_wait);
	for (const auto &o : all)
		puts(o.name);
	return argc != 1;
}
