#ifndef LIBCOMMON_TENSOR_H
#define LIBCOMMON_TENSOR_H

/* What formats and kernels have in common: a name, a type, a shape and bytes.  C order, little-endian, dense. */

#include "libcommon/die.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TENSOR_RANK = 8 };       /* most dimensions */

enum dtype {
	DTYPE_NONE,
	DTYPE_F64, DTYPE_F32, DTYPE_F16, DTYPE_BF16,
	DTYPE_F8_E4M3, DTYPE_F8_E5M2, DTYPE_F8_E8M0,
	DTYPE_I64, DTYPE_I32, DTYPE_I16, DTYPE_I8,
	DTYPE_U64, DTYPE_U32, DTYPE_U16, DTYPE_U8, DTYPE_BOOL,
	DTYPE_COUNT
};

size_t dtype_size(enum dtype t);                /* bytes an element */
const char *dtype_name(enum dtype t);           /* "float32", "bfloat16", ... (PyTorch's names) */
enum dtype dtype_find(const char *name);        /* of that name, or DTYPE_NONE */
bool dtype_is_float(enum dtype t);

struct tensor {
	char *name;             /* owned by whoever made it */
	enum dtype dtype;
	int rank;
	long shape[TENSOR_RANK];
	void *data;             /* may be NULL: a description only */
};

long tensor_count(const struct tensor *t);      /* elements; 1 for rank 0 */
size_t tensor_bytes(const struct tensor *t);
/* "[12, 8]"; buf of 160 */
const char *shape_text(char buf[160], const long *shape, int rank);
bool shape_equal(const long *a, int na, const long *b, int nb);

/* Exact conversions; rounding to nearest even, NaN stays a (quiet) NaN. */
static inline float bf16_to_f32(uint16_t b)
{
	union { uint32_t u; float f; } x = { (uint32_t)b << 16 };
	return x.f;
}
static inline uint16_t f32_to_bf16(float f)
{
	union { float f; uint32_t u; } x = { f };
	if ((x.u & 0x7fffffff) > 0x7f800000)
		return (uint16_t)(x.u >> 16 | 0x40);
	return (uint16_t)((x.u + 0x7fff + (x.u >> 16 & 1)) >> 16);
}
float f16_to_f32(uint16_t h);
uint16_t f32_to_f16(float f);                   /* overflow becomes inf */
float f8_e4m3_to_f32(uint8_t b);                /* e4m3fn: no inf, 0x7f and 0xff are NaN */
float f8_e5m2_to_f32(uint8_t b);

/* n elements from one floating type to another (F64, F32, F16, BF16, F8 as source); bug() on the others. */
void dtype_convert(void *out, enum dtype to, const void *in, enum dtype from, size_t n);

#endif
