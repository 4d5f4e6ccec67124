#include "kernels/loss.h"

#include <math.h>
#include <string.h>

void loss_sums_init(struct loss_sums *s)
{
	memset(s, 0, sizeof(*s));
	s->ratio_min = s->clamped_min = INFINITY;
	s->ratio_max = s->clamped_max = -INFINITY;
}

static double clamp(double x, double lo, double hi)
{
	return x < lo ? lo : x > hi ? hi : x;
}

/* mean of (lp - prev) over the tokens that count; *n of them */
static double mean_log_ratio(const struct loss_tokens *x, long *n)
{
	double s = 0;

	*n = 0;
	for (long i = 0; i < x->n; i++)
		if (x->w_policy[i] != 0) {
			s += (double)x->lp[i] - (double)x->prev[i];
			++*n;
		}
	return *n ? s / (double)*n : 0;
}

static void count_ratio(struct loss_sums *s, double r, double clamped)
{
	s->tokens++;
	s->ratio += r;
	s->ratio_clamped += clamped;
	s->ratio_min = fmin(s->ratio_min, r);
	s->ratio_max = fmax(s->ratio_max, r);
	s->clamped_min = fmin(s->clamped_min, clamped);
	s->clamped_max = fmax(s->clamped_max, clamped);
}

/* l and *slope = r dl/dr of the clipped surrogate at ratio r */
static double clipped(double *slope, struct loss_sums *s, double r, double a, const struct loss_config *c)
{
	double rc = clamp(r, 1 - c->clip_min, 1 + c->clip_max), plain = -a * r, cut = -a * rc, l;

	*slope = plain >= cut ? plain : 0;
	l = plain >= cut ? plain : cut;
	if (c->clip_c > 0 && a < 0 && -a * c->clip_c < l) {
		l = -a * c->clip_c;
		*slope = 0;
	}
	if (*slope == 0 && a != 0)
		s->clipped++;
	count_ratio(s, r, rc);
	return l;
}

static double policy_token(double *grad, struct loss_sums *s, const struct loss_tokens *x, long i, double sequence_ratio,
			   const struct loss_config *c)
{
	double a = (double)x->advantage[i], lp = (double)x->lp[i], r, rc;

	switch (c->policy) {
	case LOSS_CLIPPED:
		return clipped(grad, s, exp(lp - (double)x->prev[i]), a, c);
	case LOSS_SEQUENCE:
		return clipped(grad, s, sequence_ratio, a, c);
	case LOSS_REINFORCE:
		count_ratio(s, 1, 1);
		*grad = -a;
		return -a * lp;
	case LOSS_ON_POLICY:
		count_ratio(s, 1, 1);
		*grad = -a;
		return -a;
	case LOSS_CISPO:
		r = exp(lp - (double)x->prev[i]);
		rc = clamp(r, 1 - c->clip_min, 1 + c->clip_max);
		count_ratio(s, r, rc);
		*grad = -a * rc;
		return -a * rc * lp;
	}
	bug("policy loss %d", (int)c->policy);
}

static void add_policy(float *dlp, struct loss_sums *s, const struct loss_tokens *x, const struct loss_config *c)
{
	long n = 0;
	double ratio = c->policy == LOSS_SEQUENCE ? exp(mean_log_ratio(x, &n)) : 1, shared = 0;

	for (long i = 0; i < x->n; i++) {
		double w = (double)x->w_policy[i], grad;

		if (w == 0)
			continue;
		s->policy += w * policy_token(&grad, s, x, i, ratio, c);
		if (x->gen)
			s->approx_entropy -= exp((double)x->lp[i] - (double)x->gen[i]) * (double)x->lp[i];
		if (c->policy == LOSS_SEQUENCE)
			shared += w * grad / (double)n; /* each token moves the one ratio by 1/n */
		else
			dlp[i] += (float)(w * grad);
	}
	for (long i = 0; shared != 0 && i < x->n; i++)
		if (x->w_policy[i] != 0)
			dlp[i] += (float)shared;
}

static double kl_token(double *grad, double ref_minus_lp, const struct loss_config *c)
{
	double d = c->kl_input > 0 ? clamp(ref_minus_lp, -c->kl_input, c->kl_input) : ref_minus_lp, k, g;

	switch (c->kl) {
	case KL_K1: k = -d; g = 1; break;
	case KL_K2: k = d * d / 2; g = -d; break;
	case KL_K3: k = expm1(d) - d; g = -expm1(d); break;
	default: bug("KL type %d", (int)c->kl);
	}
	if (d != ref_minus_lp)
		g = 0;
	if (c->kl_output > 0 && fabs(k) > c->kl_output) {
		k = clamp(k, -c->kl_output, c->kl_output);
		g = 0;
	}
	*grad = g;
	return k;
}

static void add_kl(float *dlp, struct loss_sums *s, const struct loss_tokens *x, const struct loss_config *c)
{
	for (long i = 0; i < x->n; i++) {
		double w = (double)x->w_kl[i] * c->beta, grad, k;

		if (x->w_kl[i] == 0)
			continue;
		k = kl_token(&grad, (double)x->ref[i] - (double)x->lp[i], c);
		if (c->kl_on_policy) {
			double v = exp((double)x->lp[i] - (double)x->gen[i]);

			w *= isfinite(v) ? v : 0;
		}
		s->kl += w * k;
		s->kl_plain += k;
		dlp[i] += (float)(w * grad);
	}
}

void loss_add(float *dlp, struct loss_sums *s, const struct loss_tokens *x, const struct loss_config *c)
{
	if (x->w_policy)
		add_policy(dlp, s, x, c);
	if (x->w_kl && c->beta != 0)
		add_kl(dlp, s, x, c);
	for (long i = 0; x->w_nll && i < x->n; i++)
		if (x->w_nll[i] != 0) {
			s->nll -= (double)x->w_nll[i] * (double)x->lp[i];
			dlp[i] -= x->w_nll[i];
		}
}
