#include "tools/inspect/values.h"

#include "libcommon/json.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

long tensor_volume(const struct checkpoint_tensor *t)
{
	struct box b = box_whole(t->shape, t->rank);

	return box_volume(&b);
}

void read_elements(void *out, struct checkpoint *c, long tensor, long first, long n)
{
	const struct checkpoint_tensor *t = c->tensor + tensor;
	struct box b[2 * TENSOR_RANK];
	int boxes = box_of_range(b, t->shape, t->rank, first, n);
	struct err e = ERR_INIT;
	char *at = out;

	for (int i = 0; i < boxes; i++) {
		if (checkpoint_read(at, c, tensor, &b[i], &e))
			die_err(&e);
		at += (size_t)box_volume(&b[i]) * dtype_size(t->dtype);
	}
}

static uint64_t element_bits(const void *p, enum dtype t, long i)
{
	size_t n = dtype_size(t);
	uint64_t bits = 0;

	memcpy(&bits, (const char *)p + (size_t)i * n, n);
	return bits;
}

double element_value(const void *p, enum dtype t, long i)
{
	uint64_t bits = element_bits(p, t, i);
	double v;
	float f;

	switch (t) {
	case DTYPE_F64: memcpy(&v, &bits, sizeof(v)); return v;
	case DTYPE_F32: memcpy(&f, &bits, sizeof(f)); return (double)f;
	case DTYPE_F16: return (double)f16_to_f32((uint16_t)bits);
	case DTYPE_BF16: return (double)bf16_to_f32((uint16_t)bits);
	case DTYPE_F8_E4M3: return (double)f8_e4m3_to_f32((uint8_t)bits);
	case DTYPE_F8_E5M2: return (double)f8_e5m2_to_f32((uint8_t)bits);
	case DTYPE_F8_E8M0: return bits == 0xff ? NAN : ldexp(1, (int)bits - 127);
	case DTYPE_I64: return (double)(int64_t)bits;
	case DTYPE_I32: return (double)(int32_t)bits;
	case DTYPE_I16: return (double)(int16_t)bits;
	case DTYPE_I8: return (double)(int8_t)bits;
	case DTYPE_U64: case DTYPE_U32: case DTYPE_U16: case DTYPE_U8: case DTYPE_BOOL: return (double)bits;
	case DTYPE_NONE: case DTYPE_COUNT: break;
	}
	bug("a tensor of type %d", (int)t);
}

const char *element_text(char buf[32], const void *p, enum dtype t, long i)
{
	double v = element_value(p, t, i);

	if (t == DTYPE_I64)
		snprintf(buf, 32, "%lld", (long long)(int64_t)element_bits(p, t, i));
	else if (t == DTYPE_U64)
		snprintf(buf, 32, "%llu", (unsigned long long)element_bits(p, t, i));
	else if (t == DTYPE_BOOL)
		return v != 0 ? "true" : "false";
	else if (!dtype_is_float(t))
		snprintf(buf, 32, "%.0f", v);
	else if (!isfinite(v))
		return isnan(v) ? "nan" : v < 0 ? "-inf" : "inf";
	else
		return t == DTYPE_F64 ? real_repr(buf, v) : float_repr(buf, (float)v);
	return buf;
}
