#include "libcommon/tensor.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const struct {
	const char *name;
	size_t size;
	bool is_float;
} types[DTYPE_COUNT] = {
	[DTYPE_NONE] = { "none", 0, false },
	[DTYPE_F64] = { "float64", 8, true },
	[DTYPE_F32] = { "float32", 4, true },
	[DTYPE_F16] = { "float16", 2, true },
	[DTYPE_BF16] = { "bfloat16", 2, true },
	[DTYPE_F8_E4M3] = { "float8_e4m3fn", 1, true },
	[DTYPE_F8_E5M2] = { "float8_e5m2", 1, true },
	[DTYPE_F8_E8M0] = { "float8_e8m0fnu", 1, true },
	[DTYPE_I64] = { "int64", 8, false },
	[DTYPE_I32] = { "int32", 4, false },
	[DTYPE_I16] = { "int16", 2, false },
	[DTYPE_I8] = { "int8", 1, false },
	[DTYPE_U64] = { "uint64", 8, false },
	[DTYPE_U32] = { "uint32", 4, false },
	[DTYPE_U16] = { "uint16", 2, false },
	[DTYPE_U8] = { "uint8", 1, false },
	[DTYPE_BOOL] = { "bool", 1, false },
};

static void check_type(enum dtype t)
{
	if ((int)t < 0 || t >= DTYPE_COUNT)
		bug("no dtype has number %d", (int)t);
}

size_t dtype_size(enum dtype t)
{
	check_type(t);
	return types[t].size;
}

const char *dtype_name(enum dtype t)
{
	check_type(t);
	return types[t].name;
}

enum dtype dtype_find(const char *name)
{
	for (int t = DTYPE_NONE + 1; t < DTYPE_COUNT; t++)
		if (!strcmp(name, types[t].name))
			return (enum dtype)t;
	return DTYPE_NONE;
}

bool dtype_is_float(enum dtype t)
{
	check_type(t);
	return types[t].is_float;
}

long tensor_count(const struct tensor *t)
{
	long n = 1;
	bool overflow = false;

	for (int i = 0; i < t->rank; i++) {
		if (t->shape[i] == 0)
			return 0;
		overflow |= __builtin_mul_overflow(n, t->shape[i], &n);
	}
	if (overflow || n < 0)
		bug("%s: the shape was not checked", t->name ? t->name : "a tensor");
	return n;
}

size_t tensor_bytes(const struct tensor *t)
{
	size_t n;

	if (__builtin_mul_overflow((size_t)tensor_count(t), dtype_size(t->dtype), &n))
		bug("%s: the shape was not checked", t->name ? t->name : "a tensor");
	return n;
}

const char *shape_text(char buf[160], const long *shape, int rank)
{
	size_t n = 1;

	strcpy(buf, "[");
	for (int i = 0; i < rank && n < 130; i++)
		n += (size_t)snprintf(buf + n, 160 - n, "%s%ld", i ? ", " : "", shape[i]);
	snprintf(buf + n, 160 - n, "]");
	return buf;
}

bool shape_equal(const long *a, int na, const long *b, int nb)
{
	return na == nb && (na == 0 || !memcmp(a, b, (size_t)na * sizeof(*a)));
}

static float f32_of_bits(uint32_t u)
{
	union { uint32_t u; float f; } x = { u };
	return x.f;
}

static uint32_t bits_of_f32(float f)
{
	union { float f; uint32_t u; } x = { f };
	return x.u;
}

/* A small float of `man` mantissa bits, without inf or NaN: exact in a float. */
static float small_float(int sign, int exponent, int mantissa, int man, int bias)
{
	float f = exponent ? ldexpf((float)(mantissa | 1 << man), exponent - bias - man)
			   : ldexpf((float)mantissa, 1 - bias - man);
	return sign ? -f : f;
}

float f16_to_f32(uint16_t h)
{
	uint32_t sign = (uint32_t)(h & 0x8000) << 16, body = (uint32_t)(h & 0x7fff) << 13;

	if ((h & 0x7c00) == 0x7c00)
		return f32_of_bits(sign | 0x7f800000 | body);
	/* Moving the exponent by a product also normalises the subnormals, exactly. */
	return f32_of_bits(sign | bits_of_f32(f32_of_bits(body) * 0x1p112f));
}

uint16_t f32_to_f16(float f)
{
	uint32_t u = bits_of_f32(f), sign = u >> 16 & 0x8000, a = u & 0x7fffffff;

	if (a > 0x7f800000)
		return (uint16_t)(sign | 0x7e00 | (a >> 13 & 0x1ff));
	if (a >= 0x47800000)
		return (uint16_t)(sign | 0x7c00);
	/* Below 2^-14 the sum's last bit weighs 2^-24, the step of a subnormal half. */
	if (a < 0x38800000)
		return (uint16_t)(sign | (bits_of_f32(f32_of_bits(a) + 0.5f) - 0x3f000000));
	a += 0xfff + (a >> 13 & 1);
	return (uint16_t)(sign | ((a >> 13) - (112 << 10)));
}

float f8_e4m3_to_f32(uint8_t b)
{
	if ((b & 0x7f) == 0x7f)
		return f32_of_bits(b & 0x80 ? 0xffc00000 : 0x7fc00000);
	return small_float(b >> 7, b >> 3 & 15, b & 7, 3, 7);
}

/* The upper half of a float16. */
float f8_e5m2_to_f32(uint8_t b)
{
	uint16_t h = (uint16_t)(b << 8);

	return f16_to_f32((h & 0x7fff) > 0x7c00 ? h | 0x200 : h);
}

/* A power of two, 2^(b - 127); 255 is NaN. */
static float f8_e8m0_to_f32(uint8_t b)
{
	return b == 255 ? f32_of_bits(0x7fc00000) : ldexpf(1, b - 127);
}

/* Towards zero, last bit set if anything was lost: a second rounding, to 22 bits or fewer, is then
 * right. */
static float f64_to_f32_odd(double d)
{
	float f = (float)d;
	uint32_t u = bits_of_f32(f);

	if (d != d || (double)f == d)
		return f;
	if (fabs((double)f) > fabs(d))
		u--;
	return f32_of_bits(u | 1);
}

enum { BLOCK = 512 };

#define LOAD(T, expr) do { \
	for (size_t i = 0; i < n; i++) { \
		T v; \
		memcpy(&v, p + i * sizeof(v), sizeof(v)); \
		out[i] = (expr); \
	} \
} while (0)

#define STORE(T, expr) do { \
	for (size_t i = 0; i < n; i++) { \
		T v = (expr); \
		memcpy(p + i * sizeof(v), &v, sizeof(v)); \
	} \
} while (0)

static void load_f32(float *out, const char *p, enum dtype from, size_t n)
{
	switch ((int)from) {
	case DTYPE_F32: memcpy(out, p, n * 4); break;
	case DTYPE_F16: LOAD(uint16_t, f16_to_f32(v)); break;
	case DTYPE_BF16: LOAD(uint16_t, bf16_to_f32(v)); break;
	case DTYPE_F8_E4M3: LOAD(uint8_t, f8_e4m3_to_f32(v)); break;
	case DTYPE_F8_E5M2: LOAD(uint8_t, f8_e5m2_to_f32(v)); break;
	case DTYPE_F8_E8M0: LOAD(uint8_t, f8_e8m0_to_f32(v)); break;
	default: bug("cannot convert from %s", dtype_name(from));
	}
}

static void store_f32(char *p, enum dtype to, const float *in, size_t n)
{
	switch ((int)to) {
	case DTYPE_F64: STORE(double, (double)in[i]); break;
	case DTYPE_F32: memcpy(p, in, n * 4); break;
	case DTYPE_F16: STORE(uint16_t, f32_to_f16(in[i])); break;
	case DTYPE_BF16: STORE(uint16_t, f32_to_bf16(in[i])); break;
	default: bug("cannot convert to %s", dtype_name(to));
	}
}

static void load_f64(float *out, const char *p, enum dtype to, size_t n)
{
	if (to == DTYPE_F32)
		LOAD(double, (float)v);
	else
		LOAD(double, f64_to_f32_odd(v));
}

void dtype_convert(void *out, enum dtype to, const void *in, enum dtype from, size_t n)
{
	size_t size_in = dtype_size(from), size_out = dtype_size(to);
	const char *src = in;
	char *dst = out;
	float buf[BLOCK];

	if (to == from && dtype_is_float(to)) {
		memcpy(out, in, n * size_in);
		return;
	}
	for (size_t i = 0; i < n; i += BLOCK) {
		size_t m = n - i < BLOCK ? n - i : BLOCK;

		if (from == DTYPE_F64)
			load_f64(buf, src + i * size_in, to, m);
		else
			load_f32(buf, src + i * size_in, from, m);
		store_f32(dst + i * size_out, to, buf, m);
	}
}
