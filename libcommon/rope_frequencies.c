#include "libcommon/model_config.h"

#include <math.h>

double rope_dynamic_theta(double theta, double factor, long max_position, long head_dim,
			  long length)
{
	double s = (double)(length > max_position ? length : max_position), d = (double)head_dim;

	if (length <= max_position)
		return theta;
	return theta * pow(factor * s / (double)max_position - (factor - 1), d / (d - 2));
}

/* Long waves are stretched by `factor`, short ones kept, those between blended. */
static double llama3(double f, const struct rope_config *r)
{
	double wave = 2 * M_PI / f, length = r->original_max_position;

	if (wave < length / r->high_freq_factor)
		return f;
	if (wave > length / r->low_freq_factor)
		return f / r->factor;

	double s =
		(length / wave - r->low_freq_factor) / (r->high_freq_factor - r->low_freq_factor);
	return (1 - s) * f / r->factor + s * f;
}

/* The (fractional) pair of dimensions that turns `turns` times over the original length. */
static double yarn_dimension(double turns, const struct rope_config *r, double d)
{
	return d * log(r->original_max_position / (2 * M_PI * turns)) / (2 * log(r->theta));
}

static void yarn(double *f, const struct rope_config *r, long head_dim)
{
	double d = (double)head_dim, low = yarn_dimension(r->beta_fast, r, d),
	       high = yarn_dimension(r->beta_slow, r, d);

	if (r->truncate) {
		low = floor(low);
		high = ceil(high);
	}
	low = fmax(low, 0);
	high = fmin(high, d - 1);
	if (low == high)
		high += 0.001;
	for (long i = 0; i < head_dim / 2; i++) {
		double ramp = fmin(fmax(((double)i - low) / (high - low), 0), 1);

		f[i] = f[i] / r->factor * ramp + f[i] * (1 - ramp);
	}
}

static double yarn_scale(double factor, double m)
{
	return factor <= 1 ? 1 : 0.1 * m * log(factor) + 1;
}

static double yarn_attention(const struct rope_config *r)
{
	if (r->attention_factor)
		return r->attention_factor;
	if (r->mscale && r->mscale_all_dim)
		return yarn_scale(r->factor, r->mscale) / yarn_scale(r->factor, r->mscale_all_dim);
	return yarn_scale(r->factor, 1);
}

int rope_frequencies(double *f, double *attention_factor, const struct model_config *c,
		     struct err *e)
{
	const struct rope_config *r = &c->rope;

	*attention_factor = r->kind == ROPE_YARN ? yarn_attention(r) : 1;
	for (long i = 0; i < c->head_dim / 2; i++) {
		f[i] = pow(r->theta, -2 * (double)i / (double)c->head_dim);
		if (r->kind == ROPE_LINEAR)
			f[i] /= r->factor;
		else if (r->kind == ROPE_LLAMA3)
			f[i] = llama3(f[i], r);
	}
	if (r->kind == ROPE_YARN)
		yarn(f, r, c->head_dim);
	for (long i = 0; i < c->head_dim / 2; i++)
		if (!(f[i] > 0) || !isfinite(f[i]) || !isfinite(*attention_factor))
			return err_set(e, EX_DATAERR,
				       "RoPE: frequency %ld is %g (theta %g, factor %g)", i, f[i],
				       r->theta, r->factor);
	return 0;
}
