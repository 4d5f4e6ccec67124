#include "tools/train-step/metrics.h"

#include <math.h>

void update_report_add(struct update_report *a, const struct update_report *b)
{
	struct loss_sums *s = &a->sums;

	a->sequences += b->sequences;
	a->tokens += b->tokens;
	a->compared += b->compared;
	a->bits_different += b->bits_different;
	a->mult_error += b->mult_error;
	a->kl_error += b->kl_error;
	a->generated += b->generated;
	s->policy += b->sums.policy;
	s->kl += b->sums.kl;
	s->nll += b->sums.nll;
	s->tokens += b->sums.tokens;
	s->ratio += b->sums.ratio;
	s->ratio_clamped += b->sums.ratio_clamped;
	s->ratio_min = fmin(s->ratio_min, b->sums.ratio_min);
	s->ratio_max = fmax(s->ratio_max, b->sums.ratio_max);
	s->clamped_min = fmin(s->clamped_min, b->sums.clamped_min);
	s->clamped_max = fmax(s->clamped_max, b->sums.clamped_max);
	s->clipped += b->sums.clipped;
	s->kl_plain += b->sums.kl_plain;
	s->approx_entropy += b->sums.approx_entropy;
}

void metrics_add(struct step_metrics *m, const struct update_report *u, const struct trainer *t)
{
	if (!m->updates)
		loss_sums_init(&m->sum.sums);
	m->updates++;
	m->skipped += u->skipped;
	m->loss += u->sums.policy + u->sums.kl + u->sums.nll;
	if (isfinite(u->grad_norm))
		m->grad_norm += u->grad_norm;
	m->lr = schedule_lr(&t->schedule, t->counters.schedule_step);
	m->weight_decay = schedule_weight_decay(&t->schedule, t->counters.schedule_step);
	update_report_add(&m->sum, u);
}

static void put_policy(struct json_out *o, const struct step_metrics *m)
{
	const struct loss_sums *s = &m->sum.sums;
	double n = s->tokens > 0 ? s->tokens : NAN;

	json_add_real(o, "train/probs_ratio", s->ratio / n);
	json_add_real(o, "train/probs_ratio_min", s->ratio_min);
	json_add_real(o, "train/probs_ratio_max", s->ratio_max);
	json_add_real(o, "train/probs_ratio_clamped", s->ratio_clamped / n);
	json_add_real(o, "train/probs_ratio_clamped_min", s->clamped_min);
	json_add_real(o, "train/probs_ratio_clamped_max", s->clamped_max);
	json_add_real(o, "train/clip_fraction", s->clipped / n);
	json_add_real(o, "train/kl_penalty", s->kl_plain / n);
	json_add_real(o, "train/approx_entropy", s->approx_entropy / n);
	json_add_real(o, "train/token_mult_prob_error", m->sum.mult_error / (double)m->sum.generated);
	json_add_real(o, "train/gen_kl_error", m->sum.kl_error / (double)m->sum.generated);
	json_add_int(o, "train/logprob_tokens_compared", m->sum.compared);
	json_add_int(o, "train/logprob_bits_different", m->sum.bits_different);
}

static void put_samples(struct json_out *o, const struct rl *b)
{
	double reward = 0, advantage = 0, low = INFINITY, high = -INFINITY;
	long prompt = 0, total = 0, valid = 0;

	for (long i = 0; i < b->set.n; i++) {
		const struct sample *s = b->set.s + i;
		double a = s->length > s->prompt_length ? (double)s->advantages[0] : 0;

		if (s->has_reward && s->reward_valid) {
			reward += s->reward;
			valid++;
		}
		advantage += a;
		low = fmin(low, a);
		high = fmax(high, a);
		prompt += s->prompt_length;
		total += s->length;
	}
	json_add_real(o, "train/reward", reward / (double)valid);
	json_add_int(o, "train/num_valid_samples", valid);
	json_add_real(o, "train/advantages/mean", advantage / (double)b->set.n);
	json_add_real(o, "train/advantages/min", low);
	json_add_real(o, "train/advantages/max", high);
	json_add_real(o, "train/mean_prompt_length", (double)prompt / (double)b->set.n);
	json_add_int(o, "train/total_num_tokens", total);
}

void metrics_put(struct json_out *o, const struct step_metrics *m, const struct rl *b)
{
	double n = m->updates ? (double)m->updates : NAN;

	json_add_real(o, "train/loss", m->loss / (b ? 1 : n));
	json_add_real(o, "train/grad_norm", m->grad_norm / n);
	json_add_real(o, "train/lr", m->lr);
	json_add_real(o, "train/wd", m->weight_decay);
	json_add_int(o, "train/global_valid_seqs", m->sum.sequences);
	json_add_int(o, "train/global_valid_toks", m->sum.tokens);
	json_add_int(o, "train/num_updates", m->updates);
	json_add_int(o, "train/skipped_updates", m->skipped);
	if (b) {
		put_policy(o, m);
		put_samples(o, b);
	}
}
