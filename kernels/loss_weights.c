#include "kernels/loss_weights.h"

#include <math.h>

static bool masked(const struct weighed *x, long t)
{
	return !x->mask || x->mask[t];
}

static long count(const struct weighed *x)
{
	long n = 0;

	for (long t = 0; t < x->n; t++)
		n += masked(x, t);
	return n;
}

void loss_weights(struct weighed *x, long nseq, bool token_level)
{
	long tokens = 0, sequences = 0;

	for (long i = 0; i < nseq; i++)
		if (x[i].keep) {
			tokens += count(x + i);
			sequences++;
		}
	for (long i = 0; i < nseq; i++) {
		double own = (double)count(x + i), all = token_level ? (double)tokens : own * (double)sequences;
		float w = x[i].keep && all > 0 ? (float)(1 / all) : 0;

		for (long t = 0; t < x[i].n; t++)
			x[i].w[t] = masked(x + i, t) ? w : 0;
	}
}

static double usable(double v)
{
	return isfinite(v) ? v : 0;
}

static double truncated(double v, const struct importance_config *c, bool whole_outside)
{
	switch (c->kind) {
	case IMPORTANCE_TIS:
		return v < c->min ? c->min : v > c->max ? c->max : v;
	case IMPORTANCE_ICEPOP:
		return v < c->min || v > c->max ? 0 : v;
	case IMPORTANCE_SEQ_MASK:
		return whole_outside ? 0 : v;
	default:
		return v;
	}
}

void importance_weights(float *w, const float *prev, const float *gen, const uint8_t *mask, long n,
			const struct importance_config *c, double *mean_weight, long *outside)
{
	double sum = 0, mean = 0;
	long count = 0, changed = 0;
	bool whole;

	for (long t = 0; t < n; t++)
		if (!mask || mask[t]) {
			sum += (double)prev[t] - (double)gen[t];
			count++;
		}
	whole = count && !(exp(sum / (double)count) >= c->min && exp(sum / (double)count) <= c->max);
	for (long t = 0; t < n; t++) {
		double v, cut;

		if (mask && !mask[t])
			continue;
		v = usable(exp(c->sequence_level ? sum : (double)prev[t] - (double)gen[t]));
		cut = truncated(v, c, whole);
		mean += v;
		changed += cut != v;
		if (c->kind != IMPORTANCE_NONE)
			w[t] = (float)((double)w[t] * cut);
	}
	if (mean_weight)
		*mean_weight = count ? mean / (double)count : 0;
	if (outside)
		*outside = changed;
}
