#ifndef KERNELS_CUDA_PTX_H
#define KERNELS_CUDA_PTX_H

/* The instructions that CUDA C++ has no name for, and launches; ck.h says what each does. */

#include <cuda_runtime.h>

#include <stdint.h>

/* How much larger than asked for memory that is used again may be, in 64ths. */
enum { CK_SLACK = 8 };

#define CK_INLINE static __device__ __forceinline__

#define CK_SHARED(type, name, ...) __shared__ type name __VA_ARGS__
#define CK_DYN_SHARED(name) extern __shared__ __align__(1024) unsigned char name[]

template <class... P>
static inline cudaError_t ck_start(void (*k)(P...), dim3 blocks, dim3 threads, size_t shared, cudaStream_t stream, P... a)
{
	cudaLaunchConfig_t c = {};

	c.gridDim = blocks;
	c.blockDim = threads;
	c.dynamicSmemBytes = shared;
	c.stream = stream;
	return cudaLaunchKernelEx(&c, k, a...);
}

CK_INLINE uint32_t ck_shared_address(const void *p)
{
	return (uint32_t)__cvta_generic_to_shared(p);
}

CK_INLINE void ck_mma_bf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
	asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
		     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
		     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

CK_INLINE void ck_mma_tf32(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
	asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
		     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
		     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

CK_INLINE void ck_ldmatrix(uint32_t (&r)[4], const void *p)
{
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
		     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(ck_shared_address(p)) : "memory");
}

CK_INLINE void ck_ldmatrix(uint32_t (&r)[2], const void *p)
{
	asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
		     : "=r"(r[0]), "=r"(r[1]) : "r"(ck_shared_address(p)) : "memory");
}

CK_INLINE void ck_ldmatrix_trans(uint32_t (&r)[4], const void *p)
{
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
		     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(ck_shared_address(p)) : "memory");
}

CK_INLINE void ck_ldmatrix_trans(uint32_t (&r)[2], const void *p)
{
	asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
		     : "=r"(r[0]), "=r"(r[1]) : "r"(ck_shared_address(p)) : "memory");
}

CK_INLINE void ck_copy16(void *to, const void *from, bool given)
{
	asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
		     : : "r"(ck_shared_address(to)), "l"(from), "r"(given ? 16 : 0) : "memory");
}

CK_INLINE void ck_copy4(void *to, const void *from, bool given)
{
	asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
		     : : "r"(ck_shared_address(to)), "l"(from), "r"(given ? 4 : 0) : "memory");
}

CK_INLINE void ck_copy_commit(void)
{
	asm volatile("cp.async.commit_group;" : : : "memory");
}

template <int LEFT> CK_INLINE void ck_copy_wait(void)
{
	asm volatile("cp.async.wait_group %0;" : : "n"(LEFT) : "memory");
}

CK_INLINE void ck_anew(int &x)
{
	asm volatile("" : "+r"(x));
}

CK_INLINE uint32_t ck_tf32(float x)
{
	uint32_t u;

	asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(u) : "f"(x));
	return u;
}

CK_INLINE float ck_exp2(float x)
{
	float y;

	asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
	return y;
}

#endif
