/* The functions of attention_kernel.h over the vectors of one simd_*.h and the BF16 operands of
 * one bf16_*.h. */

#include "kernels/cpu/attention_kernel.h"

#include <math.h>

enum { VECTORS = ATTENTION_TILE / LANES, LINE_VECTORS = LINE / LANES };

/* The largest of s and m; a NaN in s is passed over here and makes itself felt in the weights. */
INLINE float row_max(const float *s, float m)
{
	vf top = vf_set(m);

	for (int j = 0; j < VECTORS; j++)
		top = vf_max(vf_load(s + j * LANES), top);
	return vf_top(top);
}

static void softmax(float *s, int nkeys, float c, float *m, float *l, float *o, long width,
		    bool bf16)
{
	float is;
	vf mc, alpha, sum[LINE_VECTORS];

	for (int j = nkeys; j < ATTENTION_TILE; j++)
		s[j] = -INFINITY;
	is = row_max(s, *m);
	mc = vf_set(is * c);
	alpha = vf_exp2(vf_sub(vf_set(*m * c), mc));
	for (int i = 0; i < LINE_VECTORS; i++)
		sum[i] = vf_mul(vf_load(l + i * LANES), alpha);
	for (int j = 0; j < VECTORS; j++) {
		vf p = vf_exp2(vf_sub(vf_mul(vf_load(s + j * LANES), vf_set(c)), mc));

		sum[j % LINE_VECTORS] = vf_add(sum[j % LINE_VECTORS], p);
		vf_store(s + j * LANES, p);
	}
	for (int i = 0; i < LINE_VECTORS; i++)
		vf_store(l + i * LANES, sum[i]);
	if (bf16)
		bf16_left(s, ATTENTION_TILE);
	if (is != *m)
		for (long i = 0; i < width; i += LANES)
			vf_store(o + i, vf_mul(vf_load(o + i), alpha));
	*m = is;
}

static void merge(float *m, float *l, float *o, float m1, float l1, const float *o1, float c,
		  long width)
{
	float is = m1 > *m ? m1 : *m, part[LANES];
	vf mc = vf_set(is * c), a = vf_exp2(vf_sub(vf_set(*m * c), mc));
	vf b = vf_exp2(vf_sub(vf_set(m1 * c), mc));

	vf_store(part, vf_add(vf_mul(vf_set(*l), a), vf_mul(vf_set(l1), b)));
	for (long i = 0; i < width; i += LANES)
		vf_store(o + i, vf_add(vf_mul(vf_load(o + i), a), vf_mul(vf_load(o1 + i), b)));
	*l = part[0];
	*m = is;
}

static void backward(float *p, float *ds, int nkeys, float c, float lse2, float delta, float scale,
		     bool bf16)
{
	for (int j = 0; j < ATTENTION_TILE; j += LANES) {
		vf w = vf_exp2(vf_sub(vf_mul(vf_load(p + j), vf_set(c)), vf_set(lse2)));
		vf g = vf_mul(vf_mul(w, vf_sub(vf_load(ds + j), vf_set(delta))), vf_set(scale));

		vf_store(p + j, w);
		vf_store(ds + j, g);
	}
	for (int j = nkeys; j < ATTENTION_TILE; j++)
		p[j] = ds[j] = 0;
	if (!bf16)
		return;
	bf16_left(p, ATTENTION_TILE);
	bf16_left(ds, ATTENTION_TILE);
}

#define ATTENTION_KERNEL { .softmax = softmax, .merge = merge, .backward = backward }
