#include "tools/train-step/metrics.h"

#include <math.h>
#include <stdio.h>

#include "libcommon/xalloc.h"

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

static void add_routers(struct step_metrics *m, const struct trainer *t)
{
	const struct router_report *r = &t->routers;
	struct router_report *s = &m->routers;

	m->aux = t->router_aux != 0;
	m->z = t->router_z != 0;
	m->per_layer = recipe_bool(t->r, "policy.megatron_cfg.moe_per_layer_logging");
	if (!s->layers && r->layers) {
		*s = (struct router_report){ .layers = r->layers, .experts = r->experts };
		s->visits = xcalloc((size_t)(r->layers * r->experts), sizeof(double));
		s->aux = xcalloc((size_t)r->layers, sizeof(double));
		s->z = xcalloc((size_t)r->layers, sizeof(double));
	}
	for (long i = 0; i < s->layers * s->experts; i++)
		s->visits[i] += r->visits[i];
	for (long i = 0; i < s->layers; i++) {
		s->aux[i] += r->aux[i];
		s->z[i] += r->z[i];
	}
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
	add_routers(m, t);
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

static void put_of_layer(struct json_out *o, const char *name, long layer, double x)
{
	char key[64];

	if (layer < 0)
		snprintf(key, sizeof(key), "train/moe/%s", name);
	else
		snprintf(key, sizeof(key), "train/moe/%s_layer_%ld", name, layer);
	json_add_real(o, key, x);
}

/* Loads: visits of an expert over what they would be if all had as many. */
struct load { double most, least, unused, aux, z; };

static struct load load_of(const struct router_report *r, long layer, double updates)
{
	const double *visits = r->visits + layer * r->experts;
	struct load l = { 0, INFINITY, 0, r->aux[layer] / updates, r->z[layer] / updates };
	double sum = 0;

	for (long e = 0; e < r->experts; e++) {
		sum += visits[e];
		l.most = fmax(l.most, visits[e]);
		l.least = fmin(l.least, visits[e]);
		l.unused += visits[e] == 0;
	}
	l.most *= (double)r->experts / sum;
	l.least *= (double)r->experts / sum;
	return l;
}

static void put_load(struct json_out *o, const struct step_metrics *m, const struct load *l, long layer)
{
	put_of_layer(o, "load_max", layer, l->most);
	put_of_layer(o, "load_min", layer, l->least);
	put_of_layer(o, "experts_unused", layer, l->unused);
	if (m->aux)
		put_of_layer(o, "load_balancing_loss", layer, l->aux);
	if (m->z)
		put_of_layer(o, "z_loss", layer, l->z);
}

/* Over all layers: extremes of loads, sums of what is unused, means of losses. */
static void put_routers(struct json_out *o, const struct step_metrics *m)
{
	const struct router_report *r = &m->routers;
	struct load all = { 0, INFINITY, 0, 0, 0 };
	double layers = 0;

	for (long i = 0; i < r->layers; i++) {
		struct load l = load_of(r, i, (double)m->updates);

		if (isnan(l.most)) /* has no experts */
			continue;
		if (m->per_layer)
			put_load(o, m, &l, i);
		layers++;
		all.most = fmax(all.most, l.most);
		all.least = fmin(all.least, l.least);
		all.unused += l.unused;
		all.aux += l.aux;
		all.z += l.z;
	}
	all.aux /= layers;
	all.z /= layers;
	if (layers > 0)
		put_load(o, m, &all, -1);
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
	put_routers(o, m);
	if (b) {
		put_policy(o, m);
		put_samples(o, b);
	}
}
