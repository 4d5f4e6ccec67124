#include "tests/emu/inside.h"

/*
 * What the lanes of a warp do together.  Fragments as in the PTX ISA ("Matrix Fragments for mma.m16n8k16", "... m16n8k8",
 * "ldmatrix"): with g = lane / 4 and t = lane % 4, an accumulator's registers are rows g, g, g + 8, g + 8 of columns
 * 2 t, 2 t + 1, 2 t, 2 t + 1.
 */

struct shuffle { uint64_t value, out; int from; };

static void do_shuffle(void *const *p, unsigned mask)
{
	for (int l = 0; l < 32; l++)
		if (mask >> l & 1) {
			struct shuffle *s = (struct shuffle *)p[l];
			int from = s->from & 31;

			/* From a lane that takes no part anything may come. */
			s->out = mask >> from & 1 ? ((const struct shuffle *)p[from])->value : ~(uint64_t)0;
		}
}

uint64_t emu_shuffle(unsigned mask, uint64_t value, int from, const char *file, int line)
{
	struct shuffle s = { value, 0, from };

	emu_meet(EMU_SHUFFLE, mask, &s, do_shuffle, file, line);
	return s.out;
}

struct reduce { unsigned value, out; enum emu_join how; bool is_signed; };

static unsigned join(const struct reduce *r, unsigned a, unsigned b)
{
	bool less = r->is_signed ? (int)a < (int)b : a < b;

	switch (r->how) {
	case EMU_ADD: return a + b;
	case EMU_OR: return a | b;
	case EMU_MAX: return less ? b : a;
	case EMU_MIN: return less ? a : b;
	default: emu_fail("a reduction that a warp does not have");
	}
}

static void do_reduce(void *const *p, unsigned mask)
{
	int first = __builtin_ctz(mask);
	unsigned all = ((const struct reduce *)p[first])->value;

	for (int l = first + 1; l < 32; l++)
		if (mask >> l & 1)
			all = join((const struct reduce *)p[l], all, ((const struct reduce *)p[l])->value);
	for (int l = 0; l < 32; l++)
		if (mask >> l & 1)
			((struct reduce *)p[l])->out = all;
}

unsigned emu_reduce(unsigned mask, unsigned value, enum emu_join how, bool is_signed, const char *file, int line)
{
	struct reduce r = { value, 0, how, is_signed };

	emu_meet(EMU_REDUCE, mask, &r, do_reduce, file, line);
	return r.out;
}

unsigned emu_ballot(unsigned mask, bool predicate, const char *file, int line)
{
	struct reduce r = { predicate ? 1u << emu_lane() : 0, 0, EMU_OR, false };

	emu_meet(EMU_BALLOT, mask, &r, do_reduce, file, line);
	return r.out;
}

/* -- tensor cores ------------------------------------------------------------------------------------------- */

struct mma { float *d; const uint32_t *a, *b; };

static float low(uint32_t x)
{
	return emu_bits<float>(x << 16);
}

static float high(uint32_t x)
{
	return emu_bits<float>(x & 0xffff0000u);
}

/* d += a b in float32, k ascending. */
template <int K> static void product(float (&d)[16][8], const float (&a)[16][K], const float (&b)[K][8])
{
	for (int i = 0; i < 16; i++)
		for (int k = 0; k < K; k++)
			for (int j = 0; j < 8; j++)
				d[i][j] += a[i][k] * b[k][j];
}

static void take_d(float (&d)[16][8], void *const *p)
{
	for (int l = 0; l < 32; l++)
		for (int i = 0; i < 4; i++)
			d[l / 4 + i / 2 * 8][l % 4 * 2 + i % 2] = ((const struct mma *)p[l])->d[i];
}

static void give_d(void *const *p, const float (&d)[16][8])
{
	for (int l = 0; l < 32; l++)
		for (int i = 0; i < 4; i++)
			((struct mma *)p[l])->d[i] = d[l / 4 + i / 2 * 8][l % 4 * 2 + i % 2];
}

static void do_mma_bf16(void *const *p, unsigned)
{
	float a[16][16], b[16][8], d[16][8];

	for (int l = 0; l < 32; l++) {
		const struct mma *m = (const struct mma *)p[l];
		int g = l / 4, t = l % 4 * 2;

		for (int i = 0; i < 4; i++) {
			a[g + i % 2 * 8][t + i / 2 * 8] = low(m->a[i]);
			a[g + i % 2 * 8][t + i / 2 * 8 + 1] = high(m->a[i]);
		}
		for (int i = 0; i < 2; i++) {
			b[t + i * 8][g] = low(m->b[i]);
			b[t + i * 8 + 1][g] = high(m->b[i]);
		}
	}
	take_d(d, p);
	product(d, a, b);
	give_d(p, d);
}

/* The tensor core reads the upper 19 bits. */
static float tf32(uint32_t x)
{
	return emu_bits<float>(x & ~0x1fffu);
}

static void do_mma_tf32(void *const *p, unsigned)
{
	float a[16][8], b[8][8], d[16][8];

	for (int l = 0; l < 32; l++) {
		const struct mma *m = (const struct mma *)p[l];
		int g = l / 4, t = l % 4;

		for (int i = 0; i < 4; i++)
			a[g + i % 2 * 8][t + i / 2 * 4] = tf32(m->a[i]);
		for (int i = 0; i < 2; i++)
			b[t + i * 4][g] = tf32(m->b[i]);
	}
	take_d(d, p);
	product(d, a, b);
	give_d(p, d);
}

void emu_mma_bf16(float *d, const uint32_t *a, const uint32_t *b, const char *file, int line)
{
	struct mma m = { d, a, b };

	emu_meet(EMU_MMA_BF16, ~0u, &m, do_mma_bf16, file, line);
}

void emu_mma_tf32(float *d, const uint32_t *a, const uint32_t *b, const char *file, int line)
{
	struct mma m = { d, a, b };

	emu_meet(EMU_MMA_TF32, ~0u, &m, do_mma_tf32, file, line);
}

struct rows { uint32_t *r; int n; const uint32_t *row; bool trans; };

/* Row i of matrix m is at the address of lane 8 m + i. */
static void do_ldmatrix(void *const *p, unsigned)
{
	uint16_t x[4][8][8];

	for (int l = 0; l < 32; l++)
		emu_move(x[l / 8][l % 8], ((const struct rows *)p[l])->row, 16);
	for (int l = 0; l < 32; l++) {
		const struct rows *o = (const struct rows *)p[l];
		int g = l / 4, t = l % 4 * 2;

		for (int m = 0; m < o->n; m++)
			o->r[m] = o->trans ? x[m][t][g] | (uint32_t)x[m][t + 1][g] << 16 : x[m][g][t] | (uint32_t)x[m][g][t + 1] << 16;
	}
}

void emu_ldmatrix(uint32_t *r, int n, const uint32_t *row, bool trans, const char *file, int line)
{
	struct rows o = { r, n, row, trans };

	emu_meet(EMU_LDMATRIX, ~0u, &o, do_ldmatrix, file, line);
}
