#include "formats/gguf.h"

#include <string.h>

/*
 * The block formats of ggml-common.h.  In each block a half-precision scale d (and a minimum m);
 * K-quants have 256 elements, whose groups carry 6-bit or 8-bit scales of their own.  Products and
 * sums are rounded one by one, in the reference's order.
 */

static const struct {
	const char *name;
	short block, bytes;
} types[GGML_TYPES] = {
	[GGML_F32] = { "F32", 1, 4 }, [GGML_F16] = { "F16", 1, 2 },
	[GGML_BF16] = { "BF16", 1, 2 }, [GGML_F64] = { "F64", 1, 8 },
	[GGML_I8] = { "I8", 1, 1 }, [GGML_I16] = { "I16", 1, 2 },
	[GGML_I32] = { "I32", 1, 4 }, [GGML_I64] = { "I64", 1, 8 },
	[GGML_Q4_0] = { "Q4_0", 32, 18 },   [GGML_Q4_1] = { "Q4_1", 32, 20 },
	[GGML_Q5_0] = { "Q5_0", 32, 22 },   [GGML_Q5_1] = { "Q5_1", 32, 24 },
	[GGML_Q8_0] = { "Q8_0", 32, 34 },   [9] = { "Q8_1", 32, 40 },
	[10] = { "Q2_K", 256, 84 }, [11] = { "Q3_K", 256, 110 },
	[GGML_Q4_K] = { "Q4_K", 256, 144 }, [GGML_Q5_K] = { "Q5_K", 256, 176 },
	[GGML_Q6_K] = { "Q6_K", 256, 210 }, [15] = { "Q8_K", 256, 292 },
	[16] = { "IQ2_XXS", 256, 66 }, [17] = { "IQ2_XS", 256, 74 },
	[18] = { "IQ3_XXS", 256, 98 }, [19] = { "IQ1_S", 256, 50 },
	[20] = { "IQ4_NL", 32, 18 }, [21] = { "IQ3_S", 256, 110 },
	[22] = { "IQ2_S", 256, 82 }, [23] = { "IQ4_XS", 256, 136 },
	[29] = { "IQ1_M", 256, 56 }, [34] = { "TQ1_0", 256, 54 },
	[35] = { "TQ2_0", 256, 66 }, [39] = { "MXFP4", 32, 17 },
	[40] = { "NVFP4", 64, 36 }, [41] = { "Q1_0", 128, 18 },
};

const char *gguf_type_name(int type)
{
	return type >= 0 && type < GGML_TYPES ? types[type].name : NULL;
}

void gguf_block(long *elements, size_t *bytes, int type)
{
	*elements = types[type].block;
	*bytes = (size_t)types[type].bytes;
}

static float half(const uint8_t *b)
{
	return f16_to_f32((uint16_t)(b[0] | b[1] << 8));
}

static uint32_t word(const uint8_t *b)
{
	return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

static void q4_0(float *y, const uint8_t *b)
{
	float d = half(b);

	for (int j = 0; j < 16; j++) {
		y[j] = d * (float)((b[2 + j] & 15) - 8);
		y[j + 16] = d * (float)((b[2 + j] >> 4) - 8);
	}
}

static void q4_1(float *y, const uint8_t *b)
{
	float d = half(b), m = half(b + 2);

	for (int j = 0; j < 16; j++) {
		y[j] = d * (float)(b[4 + j] & 15) + m;
		y[j + 16] = d * (float)(b[4 + j] >> 4) + m;
	}
}

static void q5_0(float *y, const uint8_t *b)
{
	float d = half(b);
	uint32_t high = word(b + 2);

	for (int j = 0; j < 16; j++) {
		y[j] = d * (float)((int)((b[6 + j] & 15) | (high >> j & 1) << 4) - 16);
		y[j + 16] = d * (float)((int)(b[6 + j] >> 4 | (high >> (j + 16) & 1) << 4) - 16);
	}
}

static void q5_1(float *y, const uint8_t *b)
{
	float d = half(b), m = half(b + 2);
	uint32_t high = word(b + 4);

	for (int j = 0; j < 16; j++) {
		y[j] = d * (float)((b[8 + j] & 15) | (high >> j & 1) << 4) + m;
		y[j + 16] = d * (float)(b[8 + j] >> 4 | (high >> (j + 16) & 1) << 4) + m;
	}
}

static void q8_0(float *y, const uint8_t *b)
{
	float d = half(b);

	for (int j = 0; j < 32; j++)
		y[j] = d * (float)(int8_t)b[2 + j];
}

/* Eight 6-bit scales and minima in 12 bytes. */
static void k_scale(int *scale, int *min, const uint8_t *s, int k)
{
	if (k < 4) {
		*scale = s[k] & 63;
		*min = s[k + 4] & 63;
	} else {
		*scale = (s[k + 4] & 15) | s[k - 4] >> 6 << 4;
		*min = s[k + 4] >> 4 | s[k] >> 6 << 4;
	}
}

/* Q4_K and Q5_K: `high` holds the fifth bits, or is NULL. */
static void q45_k(float *y, const uint8_t *b, const uint8_t *high, const uint8_t *q)
{
	float d = half(b), dmin = half(b + 2);

	for (int k = 0; k < 8; k++) {
		int scale, min;
		float d1, m1;

		k_scale(&scale, &min, b + 4, k);
		d1 = d * (float)scale;
		m1 = dmin * (float)min;
		for (int l = 0; l < 32; l++) {
			int v = q[k / 2 * 32 + l] >> k % 2 * 4 & 15;

			if (high)
				v |= (high[l] >> k & 1) << 4;
			y[k * 32 + l] = d1 * (float)v - m1;
		}
	}
}

static void q4_k(float *y, const uint8_t *b)
{
	q45_k(y, b, NULL, b + 16);
}

static void q5_k(float *y, const uint8_t *b)
{
	q45_k(y, b, b + 16, b + 48);
}

static void q6_k(float *y, const uint8_t *b)
{
	float d = half(b + 208);

	for (int i = 0; i < 256; i++) {
		int part = i / 128, quarter = i % 128 / 32, l = i % 32;
		int low = b[part * 64 + quarter % 2 * 32 + l] >> quarter / 2 * 4 & 15;
		int high = b[128 + part * 32 + l] >> quarter * 2 & 3;
		float scale = d * (float)(int8_t)b[192 + i / 16];

		y[i] = scale * (float)((low | high << 4) - 32);
	}
}

static void f32(float *y, const uint8_t *b)
{
	memcpy(y, b, 4);
}

static void f16(float *y, const uint8_t *b)
{
	*y = half(b);
}

static void bf16(float *y, const uint8_t *b)
{
	*y = bf16_to_f32((uint16_t)(b[0] | b[1] << 8));
}

static void (*const decode[GGML_TYPES])(float *y, const uint8_t *b) = {
	[GGML_F32] = f32, [GGML_F16] = f16, [GGML_BF16] = bf16, [GGML_Q4_0] = q4_0,
	[GGML_Q4_1] = q4_1, [GGML_Q5_0] = q5_0, [GGML_Q5_1] = q5_1, [GGML_Q8_0] = q8_0,
	[GGML_Q4_K] = q4_k, [GGML_Q5_K] = q5_k, [GGML_Q6_K] = q6_k,
};

bool gguf_can_dequant(int type)
{
	return type >= 0 && type < GGML_TYPES && decode[type];
}

void gguf_dequant(float *out, const void *blocks, int type, long n)
{
	const uint8_t *b = blocks;
	long block;
	size_t bytes;

	if (!gguf_can_dequant(type))
		bug("ggml type %d is no type that we decode", type);
	gguf_block(&block, &bytes, type);
	if (n % block)
		bug("%ld elements in blocks of %ld", n, block);
	for (long i = 0; i < n; i += block, b += bytes)
		decode[type](out + i, b);
}
