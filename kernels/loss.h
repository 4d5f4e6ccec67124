#ifndef KERNELS_LOSS_H
#define KERNELS_LOSS_H

/*
 * Losses as sums over tokens of w_t * l_t, and their derivatives by the log-probabilities.  The weights w carry every
 * normalisation (kernels/loss_weights.h), so no count appears here.  Host arrays: they are tiny beside the model.
 *
 * For one sequence of n tokens with log-probabilities lp (current), prev (at the start of the step), gen (recorded by rollout), ref
 * (reference policy) and advantages A, with r_t = exp(lp_t - prev_t):
 *
 *	clipped      l_t = max(-A r, -A clamp(r, 1 - clip_min, 1 + clip_max));  A < 0 and clip_c: l_t = min(l_t, -A clip_c)
 *	             (Schulman et al. 2017; dual clip: Ye et al. 2020)
 *	sequence     r_t = exp(mean over the unit's tokens of (lp - prev)), one value a sequence (GSPO, Zheng et al. 2025)
 *	reinforce    l_t = -A lp
 *	on_policy    r_t = 1 with the derivative of exp(lp - stopgrad(lp))
 *	cispo        l_t = -A stopgrad(clamp(r)) lp
 *	KL           d = clamp(ref - lp, -kl_input, kl_input);  k1 = -d, k2 = d^2 / 2, k3 = e^d - 1 - d, clamped to
 *	             -kl_output .. kl_output, times beta; times exp(lp - gen) where asked (kl_on_policy), held constant,
 *	             0 if not finite.
 *	             Gradients are those of the plain estimator; where a clamp is active they are 0.  (Schulman, "Approximating KL", 2020)
 *	NLL          l_t = -lp
 */

#include "libcommon/die.h"

#include <stdbool.h>

enum policy_loss { LOSS_CLIPPED, LOSS_SEQUENCE, LOSS_REINFORCE, LOSS_ON_POLICY, LOSS_CISPO };
enum kl_type { KL_K1, KL_K2, KL_K3 };

struct loss_config {
	enum policy_loss policy;
	double clip_min, clip_max;      /* 0.2, 0.2 */
	double clip_c;                  /* > 1; 0: off */
	double beta;                    /* 0: no KL term */
	enum kl_type kl;
	double kl_input, kl_output;     /* 20, 10; 0: no clamp */
	bool kl_on_policy;              /* weigh the KL term by exp(lp - gen) */
};

/* One sequence.  Arrays may be NULL where the config has no use for them (ref without beta, gen without kl_on_policy).
 * Tokens with weight 0 contribute exact zeros, whatever their numbers are (NaN too). */
struct loss_tokens {
	long n;
	const float *lp, *prev, *gen, *ref, *advantage;
	const float *w_policy, *w_kl, *w_nll;   /* NULL: that term is absent */
};

struct loss_sums {              /* doubles, added to */
	double policy, kl, nll;         /* sum w l (kl with beta) */
	double tokens;                  /* with w_policy != 0 */
	double ratio, ratio_clamped;    /* sums; divide by tokens */
	double ratio_min, ratio_max, clamped_min, clamped_max;
	double clipped;                 /* tokens whose gradient the clip removed */
	double kl_plain;                /* sum of the estimator, without beta and weight */
	double approx_entropy;          /* sum of -exp(lp - gen) lp */
};

void loss_sums_init(struct loss_sums *s);
/* dlp[t] += d loss / d lp_t. */
void loss_add(float *dlp, struct loss_sums *s, const struct loss_tokens *x, const struct loss_config *c);

#endif
