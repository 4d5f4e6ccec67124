#ifndef KERNELS_LOSS_WEIGHTS_H
#define KERNELS_LOSS_WEIGHTS_H

/*
 * The weights of tokens in a loss: every normalisation there is, over one optimizer update, so that a loss is sum w l and no
 * micro-batch, rank or padding can change it.  m_t is the loss mask, s_i whether sequence i counts.
 *
 *	token level      w_t = s_i m_t / sum_i s_i sum_t m_t
 *	sequence level   w_t = s_i m_t / (sum_t m_t  *  sum_i s_i)
 *
 * Nothing to count: all weights 0.  Counts are exact integers; the division is in double, rounded once.
 */

#include <stdbool.h>
#include <stdint.h>

struct weighed {                /* one sequence */
	long n;                 /* tokens */
	const uint8_t *mask;    /* NULL: all ones */
	bool keep;              /* s_i */
	float *w;               /* [n] out */
};

void loss_weights(struct weighed *x, long nseq, bool token_level);

/*
 * Importance weights of the policy term, constants: with d_t = prev_t - gen_t
 *
 *	token level      v_t = exp(d_t)
 *	sequence level   v_t = exp(sum_t m d_t), one value a sequence
 *	tis              v = clamp(v, min or 0, max)
 *	icepop           v = 0 outside [min, max]
 *	seq-mask-tis     v = 0 for the whole sequence where exp(mean_t d_t) lies outside [min, max]; else as it is
 *
 * NaN and infinities become 0.  w_t *= v_t.
 */
enum importance { IMPORTANCE_NONE, IMPORTANCE_PLAIN, IMPORTANCE_TIS, IMPORTANCE_ICEPOP, IMPORTANCE_SEQ_MASK };

struct importance_config {
	enum importance kind;
	bool sequence_level;
	double min, max;        /* 0 and infinity where not given */
};

/* mean_weight (NULL: not wanted): mean of v over the masked tokens, before truncation; outside: tokens that a bound changed. */
void importance_weights(float *w, const float *prev, const float *gen, const uint8_t *mask, long n,
			const struct importance_config *c, double *mean_weight, long *outside);

#endif
