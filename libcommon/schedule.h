#ifndef LIBCOMMON_SCHEDULE_H
#define LIBCOMMON_SCHEDULE_H

/*
 * Optimizer settings and learning-rate schedules, from policy.megatron_cfg when it is enabled, else from policy.optimizer and
 * policy.scheduler.  t is the step from 0 (the schedule moves once a step, not once an update), so a resumed run
 * asks for the same t and gets the same bits.  Nothing is kept between calls.
 *
 * torch (base = lr; the i-th of a list counts from its own milestone: t - m[i-1]):
 *	LinearLR(s, e, T)           base * (s + (e - s) * min(t, T) / T)
 *	ConstantLR(f, T)            base * f for t < T, then base
 *	CosineAnnealingLR(T, min)   min + (base - min) * (1 + cos(pi t / T)) / 2
 * Megatron-Core (W warm-up, D decay steps, A = D - wsd decay steps, r = (t - W) / (D - W), q = (t - A) / (D - A)):
 *	t <= W, W > 0               init + (max - init) * t / W
 *	constant                    max
 *	linear; cosine              min + (max - min) * (1 - r); min + (max - min) * (1 + cos(pi r)) / 2; min for t > D
 *	inverse-square-root         max(min, max * sqrt(max(W, 1)) / sqrt(max(t, 1))); min for t > D
 *	WSD                         max for t <= A, then min + (max - min) * c(q), c = 1 - q (linear), (1 + cos(pi q)) / 2
 *	                            (cosine), 2 * 0.5^q - 1 (exponential), 1 - sqrt(q) (minus_sqrt); min for t > D
 *	weight decay                start + (end - start) * c: t / N (linear), (1 + cos(pi (1 - t / N))) / 2 (cosine); end for t > N
 */

#include "libcommon/recipe.h"

enum optim_kind { OPTIM_ADAMW, OPTIM_SGD };

struct optim_config {
	enum optim_kind kind;
	double lr;              /* peak */
	double beta1, beta2, eps;
	double momentum;        /* SGD */
	double weight_decay;    /* decoupled; schedule_weight_decay() says what it is at a step */
	double clip;            /* of the global gradient norm; 0: off */
};

int optim_from_recipe(struct optim_config *o, const struct recipe *r, struct err *e) MUST_CHECK;

enum schedule_form { LR_LINEAR, LR_CONSTANT, LR_COSINE, LR_MEGATRON };
enum decay_style { DECAY_CONSTANT, DECAY_LINEAR, DECAY_COSINE, DECAY_INVERSE_SQRT, DECAY_WSD };
enum wsd_style { WSD_LINEAR, WSD_COSINE, WSD_EXPONENTIAL, WSD_MINUS_SQRT };
enum { SCHEDULE_PIECES = 16 };

struct schedule_piece {
	enum schedule_form form;
	long from;              /* its milestone */
	double a, b;            /* start and end factor; factor; eta_min */
	long steps;             /* total_iters or T_max */
};

struct schedule {
	double base;            /* Megatron: max */
	int n;                  /* pieces; 0: constant at base */
	struct schedule_piece piece[SCHEDULE_PIECES];
	/* Megatron */
	double init, min;
	long warmup, decay, wsd;
	enum decay_style style;
	enum wsd_style wsd_style;
	/* weight decay */
	double wd_start, wd_end;
	enum decay_style wd_style;
	long wd_steps;
};

/* section: grpo, sft, ..., whose max_num_steps a Megatron schedule may ask for; NULL: the one that the recipe has. */
int schedule_from_recipe(struct schedule *s, const struct recipe *r, const char *section, struct err *e) MUST_CHECK;
double schedule_lr(const struct schedule *s, long t);
double schedule_weight_decay(const struct schedule *s, long t);


#endif
