#include "kernels/loss.h"
#include "kernels/loss_weights.h"
#include "tests/lib/tap.h"

/* Losses per token, given as -lp, through the weights. */
static double total(struct weighed *x, const float *const *loss, long n, bool token_level)
{
	double s = 0;

	loss_weights(x, n, token_level);
	for (long i = 0; i < n; i++)
		for (long t = 0; t < x[i].n; t++)
			s += (double)x[i].w[t] * (double)loss[i][t];
	return s;
}

int main(void)
{
	float w[3][4], a[] = { 4 }, b[] = { 1, 1, 1 }, one[] = { 1, 1, 1, 1 };
	uint8_t half[] = { 1, 0, 1 };
	struct weighed two[] = { { 1, NULL, true, w[0] }, { 3, NULL, true, w[1] } };

	is_num(total(two, (const float *[]){ a, b }, 2, true), 1.75, 1e-6, "token mean over both, not the mean of means");
	is_num(total(two, (const float *[]){ a, b }, 2, false), 2.5, 1e-6, "sequence level is the mean of means");
	struct weighed three[] = { { 2, NULL, true, w[0] }, { 2, NULL, true, w[1] }, { 4, NULL, false, w[2] } };
	is_num(total(three, (const float *[]){ one, one, one }, 3, true), 1, 1e-6, "a dropped sequence leaves both sums");
	for (int i = 0; i < 3; i++)
		three[i].keep = false;
	ok(total(three, (const float *[]){ one, one, one }, 3, true) == 0, "all dropped: 0, not NaN");
	struct weighed m[] = { { 3, half, true, w[0] } };
	is_num(total(m, (const float *[]){ b }, 1, true), 1, 1e-6, "masked tokens do not count");
	ok(w[0][1] == 0, "and have no weight");

	float prev[] = { -1, -2, -1 }, gen[] = { -1.5f, -1, NAN }, v[3] = { 1, 1, 1 };
	double mean;
	long outside;
	struct importance_config c = { IMPORTANCE_PLAIN, false, 0, INFINITY };
	importance_weights(v, prev, gen, NULL, 3, &c, &mean, &outside);
	is_num(v[0], exp(.5), 1e-6, "exp(prev - gen)");
	ok(v[2] == 0, "NaN weighs nothing");
	c = (struct importance_config){ IMPORTANCE_TIS, false, .5, 1.2 };
	v[0] = v[1] = 2;
	importance_weights(v, prev, gen, NULL, 2, &c, &mean, &outside);
	ok(v[0] == 2 * 1.2f && v[1] == 1 && outside == 2, "tis clamps to both bounds");
	c.kind = IMPORTANCE_ICEPOP;
	v[0] = v[1] = 1;
	importance_weights(v, prev, gen, NULL, 2, &c, NULL, NULL);
	ok(v[0] == 0 && v[1] == 0, "icepop drops what lies outside");
	c = (struct importance_config){ IMPORTANCE_SEQ_MASK, false, .9, 1.1 };
	v[0] = v[1] = 1;
	importance_weights(v, prev, gen, NULL, 2, &c, NULL, NULL);
	ok(v[0] == 0 && v[1] == 0, "seq-mask drops the sequence by its geometric mean");
	c = (struct importance_config){ IMPORTANCE_PLAIN, true, 0, INFINITY };
	v[0] = v[1] = 1;
	importance_weights(v, prev, gen, NULL, 2, &c, NULL, NULL);
	is_num(v[0], exp(-.5), 1e-6, "sequence level: one product");
	ok(v[0] == v[1], "for all its tokens");
	return done();
}
