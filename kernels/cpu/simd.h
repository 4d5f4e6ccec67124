#ifndef KERNELS_CPU_SIMD_H
#define KERNELS_CPU_SIMD_H

/* What the vector headers and the templates over them share. */

#include <stdint.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))
#ifdef __clang__
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 8")
#endif

INLINE float float_at(const char *p)
{
	float f;

	memcpy(&f, p, 4);
	return f;
}

#endif
