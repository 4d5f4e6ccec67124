#include "tools/train-step/metrics.h"

#include <math.h>

void metrics_add(struct step_metrics *m, const struct update_report *u, const struct trainer *t)
{
	struct loss_sums *s = &m->sum.sums;

	if (!m->updates)
		loss_sums_init(s);
	m->updates++;
	m->skipped += u->skipped;
	m->loss += u->sums.policy + u->sums.kl + u->sums.nll;
	if (isfinite(u->grad_norm))
		m->grad_norm += u->grad_norm;
	m->lr = schedule_lr(&t->schedule, t->counters.schedule_step);
	m->weight_decay = schedule_weight_decay(&t->schedule, t->counters.schedule_step);
	m->sum.sequences += u->sequences;
	m->sum.tokens += u->tokens;
	m->sum.compared += u->compared;
	m->sum.bits_different += u->bits_different;
	m->sum.mult_error += u->mult_error;
	m->sum.kl_error += u->kl_error;
	m->sum.generated += u->generated;
	s->tokens += u->sums.tokens;
	s->ratio += u->sums.ratio;
	s->ratio_clamped += u->sums.ratio_clamped;
	s->ratio_min = fmin(s->ratio_min, u->sums.ratio_min);
	s->ratio_max = fmax(s->ratio_max, u->sums.ratio_max);
	s->clamped_min = fmin(s->clamped_min, u->sums.clamped_min);
	s->clamped_max = fmax(s->clamped_max, u->sums.clamped_max);
	s->clipped += u->sums.clipped;
	s->kl_plain += u->sums.kl_plain;
	s->approx_entropy += u->sums.approx_entropy;
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
