#ifndef TESTS_EMU_EMU_H
#define TESTS_EMU_EMU_H

/*
 * The device side of the emulator: what nvcc and ptx.h give a kernel, for g++.  kernels/cuda/ck.h includes it in ptx.h's place.
 *
 * A CUDA thread is a fiber; blocks run one after another.  Warp collectives and barriers are meetings: a fiber that arrives first is
 * put aside, the last one lets all go on.  Whatever a GPU leaves undefined is made visible: memory begins as 0xFF (NaN in float32
 * and bfloat16), cp.async arrives when it is waited for and not before, and what cannot be (a barrier that part of a block misses, a
 * lane that its own mask does not name, a misaligned address) ends the program with the places in the source.
 *
 *	EMU_ORDER=forward|reverse|random|greedy|pct   which thread runs next (greedy: a warp as far as it can; pct: by random priorities)
 *	EMU_SEED=N                                    of random and pct, and of the order of blocks
 *	EMU_MEMORY=BYTES                              of the device, default 4 GiB
 *
 * Values pass through the runtime, which is not compiled for ThreadSanitizer, by value: a collective gives no order between
 * threads, as in CUDA; __syncthreads and __syncwarp do.
 */

#include <assert.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include <functional>
#include <type_traits>

#include <vector_functions.h>

#undef __global__
#undef __device__
#undef __host__
#undef __shared__
#undef __constant__
#undef __forceinline__
#undef __noinline__
#undef __launch_bounds__
#define __global__
#define __device__
#define __host__
#define __shared__ a_raw_shared_variable_is_not_for_kernels_that_are_tested
#define __constant__ const
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)

/* Memory is used again only where it has the size that is asked for: its end is known to AddressSanitizer. */
enum { CK_SLACK = 0 };

#define EMU_HERE const char *file = __builtin_FILE(), int line = __builtin_LINE()
#define EMU_FROM file, line

struct emu_place { uint3 thread, block; dim3 threads, blocks; };
extern struct emu_place emu_now;

#define threadIdx (emu_now.thread)
#define blockIdx (emu_now.block)
#define blockDim (emu_now.threads)
#define gridDim (emu_now.blocks)
#define warpSize 32

enum emu_join { EMU_OR, EMU_AND, EMU_COUNT, EMU_ADD, EMU_MAX, EMU_MIN };

int emu_barrier(int predicate, enum emu_join how, const char *file, int line);
void emu_syncwarp(unsigned mask, const char *file, int line);
int emu_lane(void);
uint64_t emu_shuffle(unsigned mask, uint64_t value, int from, const char *file, int line);
unsigned emu_ballot(unsigned mask, bool predicate, const char *file, int line);
unsigned emu_reduce(unsigned mask, unsigned value, enum emu_join how, bool is_signed, const char *file, int line);
void emu_mma_bf16(float *d, const uint32_t *a, const uint32_t *b, const char *file, int line);
void emu_mma_tf32(float *d, const uint32_t *a, const uint32_t *b, const char *file, int line);
void emu_ldmatrix(uint32_t *r, int n, const uint32_t *row, bool trans, const char *file, int line);
void emu_copy_async(void *to, const void *from, int bytes, bool given, const char *file, int line);
void emu_copy_commit(void);
void emu_copy_wait(int left);
void *emu_shared(const void *key, size_t bytes, size_t align);
unsigned char *emu_shared_dynamic(void);
[[noreturn]] void emu_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* -- launches ---------------------------------------------------------------------------------------- */

cudaError_t emu_launch(const std::function<void()> &f, const void *kernel, dim3 blocks, dim3 threads, size_t shared, cudaStream_t stream);
void emu_check_pointer(const void *p, int argument);

template <class T> static inline void emu_check(const T &, int) {}
template <class T> static inline void emu_check(T *const &p, int i) { emu_check_pointer((const void *)p, i); }

template <class... P>
static inline cudaError_t ck_start(void (*k)(P...), dim3 blocks, dim3 threads, size_t shared, cudaStream_t stream, P... a)
{
	int i = 0;

	(void)i;
	(emu_check(a, ++i), ...);
	return emu_launch([=]() { k(a...); }, (const void *)k, blocks, threads, shared, stream);
}

/* -- shared memory ------------------------------------------------------------------------------------ */

#define CK_SHARED(type, name, ...) \
	typedef type name##_type __VA_ARGS__; \
	static const char name##_key = 0; \
	name##_type &name = *(name##_type *)emu_shared(&name##_key, sizeof(name##_type), alignof(name##_type))
#define CK_DYN_SHARED(name) unsigned char *const name = emu_shared_dynamic()

/* -- barriers and warps --------------------------------------------------------------------------------- */

static inline void __syncthreads(EMU_HERE) { emu_barrier(0, EMU_OR, EMU_FROM); }
static inline int __syncthreads_or(int p, EMU_HERE) { return emu_barrier(p, EMU_OR, EMU_FROM); }
static inline int __syncthreads_and(int p, EMU_HERE) { return emu_barrier(p, EMU_AND, EMU_FROM); }
static inline int __syncthreads_count(int p, EMU_HERE) { return emu_barrier(p, EMU_COUNT, EMU_FROM); }
static inline void __syncwarp(unsigned mask = ~0u, EMU_HERE) { emu_syncwarp(mask, EMU_FROM); }

template <class T> static inline T emu_pass(unsigned mask, T v, int from, const char *file, int line)
{
	static_assert(sizeof(T) <= 8 && std::is_trivially_copyable<T>::value, "what a shuffle can carry");
	uint64_t bits = 0;

	memcpy(&bits, &v, sizeof(T));
	bits = emu_shuffle(mask, bits, from, EMU_FROM);
	memcpy(&v, &bits, sizeof(T));
	return v;
}

template <class T> static inline T __shfl_sync(unsigned mask, T v, int from, int width = 32, EMU_HERE)
{
	return emu_pass(mask, v, (emu_lane() & ~(width - 1)) | (from & (width - 1)), EMU_FROM);
}

template <class T> static inline T __shfl_xor_sync(unsigned mask, T v, int x, int width = 32, EMU_HERE)
{
	int l = emu_lane(), from = l ^ x;

	return emu_pass(mask, v, from < (l & ~(width - 1)) + width ? from : l, EMU_FROM);
}

template <class T> static inline T __shfl_down_sync(unsigned mask, T v, int by, int width = 32, EMU_HERE)
{
	int l = emu_lane();

	return emu_pass(mask, v, (l & (width - 1)) + by < width ? l + by : l, EMU_FROM);
}

template <class T> static inline T __shfl_up_sync(unsigned mask, T v, int by, int width = 32, EMU_HERE)
{
	int l = emu_lane();

	return emu_pass(mask, v, (l & (width - 1)) - by >= 0 ? l - by : l, EMU_FROM);
}

static inline unsigned __ballot_sync(unsigned mask, int p, EMU_HERE) { return emu_ballot(mask, p != 0, EMU_FROM); }
static inline int __any_sync(unsigned mask, int p, EMU_HERE) { return emu_ballot(mask, p != 0, EMU_FROM) != 0; }
static inline int __all_sync(unsigned mask, int p, EMU_HERE) { return emu_ballot(mask, p == 0, EMU_FROM) == 0; }

static inline unsigned __reduce_add_sync(unsigned mask, unsigned v, EMU_HERE) { return emu_reduce(mask, v, EMU_ADD, false, EMU_FROM); }
static inline unsigned __reduce_or_sync(unsigned mask, unsigned v, EMU_HERE) { return emu_reduce(mask, v, EMU_OR, false, EMU_FROM); }
static inline unsigned __reduce_max_sync(unsigned mask, unsigned v, EMU_HERE) { return emu_reduce(mask, v, EMU_MAX, false, EMU_FROM); }
static inline unsigned __reduce_min_sync(unsigned mask, unsigned v, EMU_HERE) { return emu_reduce(mask, v, EMU_MIN, false, EMU_FROM); }
static inline int __reduce_max_sync(unsigned mask, int v, EMU_HERE) { return (int)emu_reduce(mask, (unsigned)v, EMU_MAX, true, EMU_FROM); }
static inline int __reduce_min_sync(unsigned mask, int v, EMU_HERE) { return (int)emu_reduce(mask, (unsigned)v, EMU_MIN, true, EMU_FROM); }

/* -- ptx.h's instructions -------------------------------------------------------------------------------- */

static inline void ck_mma_bf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], EMU_HERE)
{
	emu_mma_bf16(d, a, b, EMU_FROM);
}

static inline void ck_mma_tf32(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], EMU_HERE)
{
	emu_mma_tf32(d, a, b, EMU_FROM);
}

/* A lane reads its own row itself, so that sanitizers know who did. */
template <int N> static inline void emu_load_rows(uint32_t (&r)[N], const void *p, bool trans, const char *file, int line)
{
	uint32_t row[4] = { 0, 0, 0, 0 };

	if ((uintptr_t)p & 15)
		emu_fail("ldmatrix of an address that is not a multiple of 16 at %s:%d", file, line);
	if (emu_lane() < 8 * N)
		memcpy(row, p, 16);
	emu_ldmatrix(r, N, row, trans, EMU_FROM);
}

static inline void ck_ldmatrix(uint32_t (&r)[4], const void *p, EMU_HERE) { emu_load_rows(r, p, false, EMU_FROM); }
static inline void ck_ldmatrix(uint32_t (&r)[2], const void *p, EMU_HERE) { emu_load_rows(r, p, false, EMU_FROM); }
static inline void ck_ldmatrix_trans(uint32_t (&r)[4], const void *p, EMU_HERE) { emu_load_rows(r, p, true, EMU_FROM); }
static inline void ck_ldmatrix_trans(uint32_t (&r)[2], const void *p, EMU_HERE) { emu_load_rows(r, p, true, EMU_FROM); }

static inline void ck_copy16(void *to, const void *from, bool given, EMU_HERE) { emu_copy_async(to, from, 16, given, EMU_FROM); }
static inline void ck_copy4(void *to, const void *from, bool given, EMU_HERE) { emu_copy_async(to, from, 4, given, EMU_FROM); }
static inline void ck_copy_commit(void) { emu_copy_commit(); }
template <int LEFT> static inline void ck_copy_wait(void) { emu_copy_wait(LEFT); }

static inline void ck_anew(int &) {}

static inline uint32_t ck_tf32(float x)
{
	uint32_t u;

	memcpy(&u, &x, 4);
	if ((u & 0x7f800000u) != 0x7f800000u)
		u += 0x1000u;   /* ties away from zero */
	return u & ~0x1fffu;
}

static inline float ck_exp2(float x) { return exp2f(x); }

/* -- atomics, relaxed -------------------------------------------------------------------------------------- */

static inline int atomicAdd(int *p, int v) { return __atomic_fetch_add(p, v, __ATOMIC_RELAXED); }
static inline unsigned atomicAdd(unsigned *p, unsigned v) { return __atomic_fetch_add(p, v, __ATOMIC_RELAXED); }
static inline unsigned atomicOr(unsigned *p, unsigned v) { return __atomic_fetch_or(p, v, __ATOMIC_RELAXED); }
static inline int atomicExch(int *p, int v) { return __atomic_exchange_n(p, v, __ATOMIC_RELAXED); }

static inline int atomicMax(int *p, int v)
{
	int old = __atomic_load_n(p, __ATOMIC_RELAXED);

	while (old < v && !__atomic_compare_exchange_n(p, &old, v, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		;
	return old;
}

static inline int atomicCAS(int *p, int want, int v)
{
	__atomic_compare_exchange_n(p, &want, v, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
	return want;
}

/* -- arithmetic that has a CUDA name -------------------------------------------------------------------------- */

template <class T> static inline T __ldg(const T *p) { return *p; }
static inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float __fdiv_rn(float a, float b) { return a / b; }
static inline float __fsqrt_rn(float a) { return sqrtf(a); }
static inline float __frcp_rn(float a) { return 1.f / a; }
#define __expf expf  /* the C library has functions of these names inside */
#define __logf logf
static inline float __fdividef(float a, float b) { return a / b; }
static inline float rsqrtf(float x) { return 1.f / sqrtf(x); }
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
static inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)(((uint64_t)a * b) >> 32); }
static inline uint64_t __umul64hi(uint64_t a, uint64_t b) { return (uint64_t)(((unsigned __int128)a * b) >> 64); }

template <class A, class B> static inline A emu_bits(B b)
{
	A a;

	static_assert(sizeof(a) == sizeof(b), "sizes");
	memcpy(&a, &b, sizeof(a));
	return a;
}
static inline float __int_as_float(int x) { return emu_bits<float>(x); }
static inline int __float_as_int(float x) { return emu_bits<int>(x); }
static inline float __uint_as_float(unsigned x) { return emu_bits<float>(x); }
static inline unsigned __float_as_uint(float x) { return emu_bits<unsigned>(x); }

template <class A, class B> static inline typename std::common_type<A, B>::type min(A a, B b) { return a < b ? a : b; }
template <class A, class B> static inline typename std::common_type<A, B>::type max(A a, B b) { return a < b ? b : a; }

#endif
