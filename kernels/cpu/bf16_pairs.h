#ifndef KERNELS_CPU_BF16_PAIRS_H
#define KERNELS_CPU_BF16_PAIRS_H

/* A BF16 step with vdpbf16ps: two fused multiply-adds, the odd k first (found by trial, not
 * promised by the manual). */

enum { BF16_PAIRS = 1 };

INLINE void bf16_words(vf c[8][4], const int mr, const int nv, const char *x, long rs,
		       const uint32_t *w, const int half)
{
	__m512bh b[4];

	UNROLL for (int j = 0; j < nv; j++) {
		__m512i v = vw_load(w + LANES * j);
		b[j] = (__m512bh)(half ? _mm512_and_si512(v, _mm512_set1_epi32(0xffff)) : v);
	}
	UNROLL for (int i = 0; i < mr; i++) {
		int32_t word = 0;
		__m512bh a;

		memcpy(&word, x + i * rs, half ? 2 : 4);
		a = (__m512bh)_mm512_set1_epi32(word);
		UNROLL for (int j = 0; j < nv; j++)
			c[i][j] = _mm512_dpbf16_ps(c[i][j], a, b[j]);
	}
}

INLINE void bf16_step(vf c[8][4], const int mr, const int nv, const char *x, long rs, long ks,
		      const uint32_t *w)
{
	(void)ks;
	bf16_words(c, mr, nv, x, rs, w, 0);
}

/* n floats, in place, to a left operand: n bf16 at the front. */
INLINE void bf16_left(float *x, const int n)
{
	for (int i = 0; i < n; i += 2 * LANES) {
		__m512bh pair = _mm512_cvtne2ps_pbh(vf_load(x + i + LANES), vf_load(x + i));

		_mm512_storeu_si512(x + i / 2, (__m512i)pair);
	}
}

INLINE void bf16_last(vf c[8][4], const int mr, const int nv, const char *x, long rs,
		      const uint32_t *w)
{
	bf16_words(c, mr, nv, x, rs, w, 1);
}

#endif
