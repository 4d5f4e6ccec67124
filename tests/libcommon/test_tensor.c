#include "libcommon/tensor.h"

#include "libcommon/rng.h"
#include "tests/lib/tap.h"

/* The value of a small binary float by its definition. */
static double value(unsigned bits, int exponent_bits, int mantissa_bits)
{
	int bias = (1 << (exponent_bits - 1)) - 1;
	int e = (int)(bits >> mantissa_bits) & ((1 << exponent_bits) - 1),
	    m = (int)bits & ((1 << mantissa_bits) - 1);
	double sign = bits >> (exponent_bits + mantissa_bits) & 1 ? -1 : 1;

	if (e == 0)
		return sign * ldexp(m, 1 - bias - mantissa_bits);
	return sign * ldexp(m + (1 << mantissa_bits), e - bias - mantissa_bits);
}

static uint32_t bits_of(float f)
{
	uint32_t u;

	memcpy(&u, &f, 4);
	return u;
}

static void decode(void)
{
	int bad = 0;

	for (unsigned h = 0; h < 65536; h++) {
		float f = f16_to_f32((uint16_t)h);
		unsigned a = h & 0x7fff;

		bad += a > 0x7c00 ? f == f : a == 0x7c00 ? !isinf(f) : (double)f != value(h, 5, 10);
		bad += !!signbit(f) != h >> 15;
		if (a <= 0x7c00 || a >= 0x7e00)
			bad += f32_to_f16(f) != h;
	}
	ok(!bad, "all float16 are decoded, and encoded again");

	bad = 0;
	for (unsigned b = 0; b < 256; b++) {
		float f = f8_e4m3_to_f32((uint8_t)b), g = f8_e5m2_to_f32((uint8_t)b);

		bad += (b & 0x7f) == 0x7f ? f == f : (double)f != value(b, 4, 3);
		bad += (b & 0x7f) > 0x7c    ? g == g
		       : (b & 0x7f) == 0x7c ? !isinf(g)
					    : (double)g != value(b, 5, 2);
		bad += !!signbit(f) != b >> 7 || !!signbit(g) != b >> 7;
	}
	ok(!bad, "all float8 of both kinds");
	ok(f8_e4m3_to_f32(0x7e) == 448 && f8_e5m2_to_f32(0x7b) == 57344, "their largest values");
}

/* Is h the encoding of d that is nearest, even on a tie?  Neighbours are h - 1 and h + 1 as whole
 * numbers. */
static int nearest(unsigned h, double d, int exponent_bits, int mantissa_bits)
{
	unsigned a = h & ((1u << (exponent_bits + mantissa_bits)) - 1);
	double v = fabs(d), here = fabs(value(a, exponent_bits, mantissa_bits) - v);
	double above = fabs(value(a + 1, exponent_bits, mantissa_bits) - v);
	double below = a ? fabs(value(a - 1, exponent_bits, mantissa_bits) - v) : INFINITY;

	if (!!signbit(d) != (h >> (exponent_bits + mantissa_bits)))
		return 0;
	return a & 1 ? here < above && here < below : here <= above && here <= below;
}

/* Random values and, as often, values at or right beside the middle between two neighbours. */
static double test_value(struct rng_key key, long i, int exponent_bits, int mantissa_bits)
{
	uint32_t w[4];
	double d;

	philox4x32(w, (uint32_t[4]){ (uint32_t)i }, key);
	unsigned a = w[0] % (((1u << exponent_bits) - 1) << mantissa_bits);
	double low = value(a, exponent_bits, mantissa_bits),
	       high = value(a + 1, exponent_bits, mantissa_bits);
	switch (w[1] % 4) {
	case 0: d = low + (high - low) * w[2] * 0x1p-32; break;
	case 1: d = (low + high) / 2; break;
	case 2: d = nextafter((low + high) / 2, high); break;
	default: d = nextafter((low + high) / 2, low); break;
	}
	return w[3] & 1 ? -d : d;
}

static void encode(void)
{
	struct rng_key key = rng_key(1, RNG_TEST, 0);
	int bad16 = 0, badb = 0, bad16d = 0, badbd = 0;

	for (long i = 0; i < 200000; i++) {
		double d = test_value(key, i, 5, 10), b = test_value(key, i, 8, 7);
		uint16_t h;

		if (fabs(d) < 65520) {
			bad16 += !nearest(f32_to_f16((float)d), (double)(float)d, 5, 10) &&
				 fabs((double)(float)d) < 65520;
			dtype_convert(&h, DTYPE_F16, &d, DTYPE_F64, 1);
			bad16d += !nearest(h, d, 5, 10);
		}
		if (fabs(b) < 0x1.fep127) {
			badb += !nearest(f32_to_bf16((float)b), (double)(float)b, 8, 7);
			dtype_convert(&h, DTYPE_BF16, &b, DTYPE_F64, 1);
			badbd += !nearest(h, b, 8, 7);
		}
	}
	ok(!bad16, "float32 to float16: to nearest even");
	ok(!bad16d, "float64 to float16: rounded once");
	ok(!badb, "float32 to bfloat16: to nearest even");
	ok(!badbd, "float64 to bfloat16: rounded once");
	ok(f32_to_f16(65519.996f) == 0x7bff && f32_to_f16(65520) == 0x7c00 &&
		   f32_to_f16(-1e30f) == 0xfc00,
	   "float16 overflows to inf");
	ok(f32_to_f16(0x1p-25f) == 0 && f32_to_f16(0x1.000002p-25f) == 1 &&
		   f32_to_f16(-0.0f) == 0x8000,
	   "and underflows to zero");
}

/* Report B23: 1.00390625, 1.01171875 and the NaN 0x7f800001 as bfloat16. */
static void report_b23(void)
{
	uint32_t in[3] = { 0x3f808000, 0x3f818000, 0x7f800001 };
	uint16_t out[3], half[3];

	dtype_convert(out, DTYPE_BF16, in, DTYPE_F32, 3);
	ok(out[0] == 0x3f80 && out[1] == 0x3f82, "ties go to even");
	ok((out[2] & 0x7fff) > 0x7f80, "a NaN stays a NaN");
	dtype_convert(half, DTYPE_F16, in, DTYPE_F32, 3);
	ok((half[2] & 0x7fff) > 0x7e00 - 1, "in float16 too");
}

static void convert(void)
{
	static float f[1300];
	static double d[1300];
	static char odd[1300 * 8 + 1];
	static uint8_t scale[3] = { 0, 127, 255 };
	int bad = 0;

	for (int i = 0; i < 1300; i++)
		f[i] = (float)(i - 600) * 0.37f;
	dtype_convert(odd + 1, DTYPE_F64, f, DTYPE_F32, 1300);
	dtype_convert(d, DTYPE_F64, odd + 1, DTYPE_F64, 1300);
	for (int i = 0; i < 1300; i++)
		bad += d[i] != (double)f[i];
	ok(!bad, "float32 to float64, unaligned and over several blocks");
	dtype_convert(odd + 1, DTYPE_BF16, f, DTYPE_F32, 1300);
	for (int i = 0; i < 1300; i++) {
		uint16_t h;

		memcpy(&h, odd + 1 + 2 * i, 2);
		bad += h != f32_to_bf16(f[i]);
	}
	dtype_convert(f, DTYPE_F32, odd + 1, DTYPE_BF16, 1300);
	for (int i = 0; i < 1300; i++)
		bad += (bits_of(f[i]) & 0xffff) != 0 || fabs((double)f[i] - (i - 600) * 0.37) > 1;
	ok(!bad, "bfloat16 there and back");
	dtype_convert(f, DTYPE_F32, scale, DTYPE_F8_E8M0, 3);
	ok(f[0] == 0x1p-127f && f[1] == 1 && f[2] != f[2], "float8_e8m0 is a power of two");
	d[0] = 1e300;
	d[1] = 1 + 0x1p-24 + 0x1p-50;
	dtype_convert(f, DTYPE_F32, d, DTYPE_F64, 2);
	ok(isinf(f[0]) && f[1] == 1 + 0x1p-23f, "float64 to float32");
}

static void names(void)
{
	char buf[160];
	int bad = 0;

	for (int t = 1; t < DTYPE_COUNT; t++)
		bad += dtype_find(dtype_name((enum dtype)t)) != (enum dtype)t ||
		       dtype_size((enum dtype)t) == 0;
	ok(!bad, "each type is found by its name");
	ok(dtype_find("none") == DTYPE_NONE && dtype_find("float") == DTYPE_NONE, "others are not");
	ok(dtype_is_float(DTYPE_BF16) && !dtype_is_float(DTYPE_I8), "what is a float");
	is_str(shape_text(buf, (long[]){ 12, 8 }, 2), "[12, 8]", "a shape");
	is_str(shape_text(buf, NULL, 0), "[]", "of a scalar");
	long most = 0x7fffffffffffffff,
	     big[TENSOR_RANK] = { most, most, most, most, most, most, most, most };
	ok(strlen(shape_text(buf, big, TENSOR_RANK)) < 160, "the longest fits");

	struct tensor t = { .name = "x", .dtype = DTYPE_BF16, .rank = 2, .shape = { 12, 8 } };
	ok(tensor_count(&t) == 96 && tensor_bytes(&t) == 192, "count and bytes");
	t.rank = 0;
	ok(tensor_count(&t) == 1 && tensor_bytes(&t) == 2, "of a scalar");
	t = (struct tensor){ .dtype = DTYPE_F32, .rank = 3, .shape = { most, 0, most } };
	ok(tensor_count(&t) == 0, "of nothing");
	ok(shape_equal((long[]){ 1, 2 }, 2, (long[]){ 1, 2 }, 2) &&
		   !shape_equal((long[]){ 1, 2 }, 2, (long[]){ 1, 3 }, 2) &&
		   !shape_equal((long[]){ 1, 2 }, 2, (long[]){ 1, 2 }, 1) &&
		   shape_equal(NULL, 0, NULL, 0),
	   "equal shapes");
}

int main(void)
{
	decode();
	encode();
	report_b23();
	convert();
	names();
	return done();
}
