#include "tools/train-step/train.h"

#include "libcommon/xalloc.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static enum policy_loss policy_kind(const struct recipe *r)
{
	static const struct { const char *key; enum policy_loss kind; } kinds[] = {
		{ "loss_fn.use_cispo", LOSS_CISPO }, { "loss_fn.disable_ppo_ratio", LOSS_REINFORCE },
		{ "loss_fn.force_on_policy_ratio", LOSS_ON_POLICY }, { "loss_fn.sequence_level_importance_ratios", LOSS_SEQUENCE },
	};
	int found = -1;

	for (int i = 0; i < 4; i++) {
		if (!recipe_bool(r, kinds[i].key))
			continue;
		if (found >= 0)
			die(EX_CONFIG, "%s: %s and %s exclude each other", recipe_where(r, kinds[i].key), kinds[i].key, kinds[found].key);
		found = i;
	}
	return found < 0 ? LOSS_CLIPPED : kinds[found].kind;
}

static double real_or_0(const struct recipe *r, const char *key)
{
	return recipe_is_null(r, key) ? 0 : recipe_real(r, key);
}

/* Whoever turns megatron_cfg on for its layout alone would train at its default learning rate. */
static void say_unused(const struct recipe *r, const char *given, const char *holds)
{
	if (recipe_bool(r, "policy.megatron_cfg.enabled") && recipe_is_set(r, given) && !recipe_is_set(r, holds))
		log_warn("%s: %s has no effect where policy.megatron_cfg.enabled is true; the defaults of %s hold",
			 recipe_where(r, given), given, holds);
}

void trainer_init(struct trainer *t, struct model *m, const struct recipe *r, const char *algorithm, struct counters c)
{
	const char *kl = recipe_str(r, "loss_fn.reference_policy_kl_type");
	struct err e = ERR_INIT;

	*t = (struct trainer){ .m = m, .r = r, .counters = c, .temperature = 1 };
	if (optim_from_recipe(&t->optim, r, &e) || schedule_from_recipe(&t->schedule, r, algorithm, &e))
		die_err(&e);
	say_unused(r, "policy.optimizer", "policy.megatron_cfg.optimizer");
	say_unused(r, "policy.scheduler", "policy.megatron_cfg.scheduler");
	if (t->optim.kind != OPTIM_ADAMW)
		die(EX_UNAVAILABLE, "%s: only AdamW is built yet", recipe_where(r, "policy.optimizer.name"));
	if (recipe_bool(r, "policy.megatron_cfg.enabled") &&
	    !strcmp(recipe_str(r, "policy.megatron_cfg.moe_router_load_balancing_type"), "aux_loss"))
		t->router_aux = recipe_is_null(r, "policy.megatron_cfg.moe_aux_loss_coeff") ? m->table.config.moe.aux_loss_coef :
				recipe_real(r, "policy.megatron_cfg.moe_aux_loss_coeff");
	t->router_z = recipe_real(r, "cairn.moe_z_loss_coeff");
	if (strcmp(algorithm, "grpo"))
		return;
	t->loss = (struct loss_config){
		.policy = policy_kind(r),
		.clip_min = recipe_real(r, "loss_fn.ratio_clip_min"), .clip_max = recipe_real(r, "loss_fn.ratio_clip_max"),
		.clip_c = real_or_0(r, "loss_fn.ratio_clip_c"), .beta = recipe_real(r, "loss_fn.reference_policy_kl_penalty"),
		.kl = !strcmp(kl, "k1") ? KL_K1 : !strcmp(kl, "k2") ? KL_K2 : KL_K3,
		.kl_input = real_or_0(r, "loss_fn.kl_input_clamp_value"), .kl_output = real_or_0(r, "loss_fn.kl_output_clamp_value"),
		.kl_on_policy = recipe_bool(r, "loss_fn.use_on_policy_kl_approximation"),
	};
}

void trainer_release(struct trainer *t)
{
	if (t->pipeline)
		pipeline_free(t->pipeline);
	router_report_release(&t->routers);
	memset(t, 0, sizeof(*t));
}

enum recompute trainer_recomputes(const struct recipe *r)
{
	static const char how[] = "policy.megatron_cfg.recompute_granularity";
	bool megatron = recipe_bool(r, "policy.megatron_cfg.activation_checkpointing");

	if (!megatron && !recipe_bool(r, "policy.dtensor_cfg.activation_checkpointing"))
		return RECOMPUTE_NOTHING;
	return megatron && !recipe_is_null(r, how) && !strcmp(recipe_str(r, how), "selective") ? RECOMPUTE_CHEAP : RECOMPUTE_LAYERS;
}

/* n: micro-batches of an update. */
static void want_pipeline(struct trainer *t, long rows, long n, bool keep)
{
	if (t->pipeline && t->rows >= rows)
		return;
	if (t->pipeline)
		pipeline_free(t->pipeline);
	check_memory(t->m, rows, n, keep ? PACKED_TRAIN : PACKED_LOGPROB, t->r, keep ? trainer_recomputes(t->r) : RECOMPUTE_NOTHING);
	t->pipeline = pipeline_new(t->m, rows, keep, keep ? trainer_recomputes(t->r) : RECOMPUTE_NOTHING);
	t->rows = rows;
}

static bool counts(const struct lesson *l, long i)
{
	return (l->x.w_policy && l->x.w_policy[i] != 0) || (l->x.w_kl && l->x.w_kl[i] != 0) || (l->x.w_nll && l->x.w_nll[i] != 0);
}

/* What the recorded numbers say about this arithmetic, for the tokens that are learnt from. */
static void compare(struct update_report *u, const struct lesson *l, const float *lp)
{
	bool any = false;

	for (long i = 0; i < l->x.n; i++) {
		if (!counts(l, i))
			continue;
		any = true;
		u->tokens++;
		if (l->recorded) {
			u->compared++;
			u->bits_different += memcmp(lp + i, l->recorded + i, sizeof(float)) != 0;
		}
		if (l->generated && l->x.prev && !isnan(l->generated[i])) {
			double d = (double)l->generated[i] - (double)l->x.prev[i];

			u->generated++;
			u->mult_error += exp(fabs(d));
			u->kl_error += expm1(-d) + d;
		}
	}
	u->sequences += any;
}

struct job {                    /* the bins of this data-parallel rank as micro-batches */
	struct update_report *u;
	const struct trainer *t;
	const struct lesson *l;
	struct sequence *q;
	struct bins bins;
	struct packed b;
};

/* Bin k of this rank among all; where there is none any more, no rows. */
static long bin_of(const struct job *j, long k)
{
	const struct mesh *m = j->t->m->mesh;

	return k * m->layout.dp + m->at.dp;
}

static void job_batch(void *arg, long k, struct batch *b, const int **target)
{
	static const long nothing[1];
	struct job *j = arg;

	*target = NULL;
	*b = (struct batch){ .cu = nothing };
	if (bin_of(j, k) >= j->bins.n)
		return;
	packed_batch(&j->b, j->q, &j->bins, bin_of(j, k));
	*b = j->b.batch;
	*target = j->b.target;
}

/* Log-probabilities in, their gradient out. */
static void job_loss(void *arg, long k, float *dlp, const float *lp)
{
	struct job *j = arg;
	long bin = bin_of(j, k), rows = bin < j->bins.n ? j->b.batch.rows : 0;
	float *none = dlp ? NULL : xcalloc((size_t)rows + 1, sizeof(*none));

	if (dlp)
		memset(dlp, 0, (size_t)rows * sizeof(float));
	for (long i = 0; rows && i < j->b.batch.nseq; i++) {
		const struct lesson *one = j->l + j->bins.item[j->bins.first[bin] + i];
		long first = j->b.cu[i] + one->s.prompt - 1; /* the row that predicts the first token after the prompt */
		struct loss_tokens x = one->x;

		x.lp = lp + first;
		loss_add((dlp ? dlp : none) + first, &j->u->sums, &x, &j->t->loss);
		compare(j->u, one, x.lp);
	}
	free(none);
}

/*
 * Ranks do what they have.  Where experts lie over data-parallel ranks these need each other in every pass, and take as many as the
 * one with most.
 */
static long passes(const struct job *j)
{
	const struct mesh *m = j->t->m->mesh;
	long all = (j->bins.n + m->layout.dp - 1) / m->layout.dp;

	if (m->ep.size * m->etp.size > 1)
		return all;
	return all - (all && bin_of(j, all - 1) >= j->bins.n);
}

static void run_bins(struct update_report *u, struct trainer *t, const struct lesson *l, long n, bool backward)
{
	struct job j = { .u = u, .t = t, .l = l, .q = xmalloc((size_t)n * sizeof(*j.q)) };
	struct pipeline_job run = { .arg = &j, .batch = job_batch, .loss = job_loss, .temperature = t->temperature, .backward = backward };

	for (long i = 0; i < n; i++)
		j.q[i] = l[i].s;
	packed_plan(&j.bins, j.q, n, t->r, PACKED_TRAIN);
	run.n = passes(&j);
	want_pipeline(t, packed_rows(&j.bins, j.q), run.n, backward);
	pipeline_run(t->pipeline, &run);
	free(j.q);
	packed_release(&j.b);
	bins_release(&j.bins);
}

/* The last stage of each data-parallel rank knows its own bins; together they make the report. */
static void join_reports(struct update_report *u, struct mesh *m)
{
	struct update_report *all = xmalloc((size_t)m->dp.size * sizeof(*all));

	comm_gather(&m->dp, all, u, sizeof(*u));
	*u = all[0];
	for (int i = 1; i < m->dp.size; i++)
		update_report_add(u, all + i);
	free(all);
	comm_broadcast(&m->pp, u, sizeof(*u), m->pp.size - 1);
}

static void apply_update(struct update_report *u, struct trainer *t)
{
	struct adamw h = {
		.lr = (float)schedule_lr(&t->schedule, t->counters.schedule_step), .beta1 = (float)t->optim.beta1,
		.beta2 = (float)t->optim.beta2, .eps = (float)t->optim.eps,
		.weight_decay = (float)schedule_weight_decay(&t->schedule, t->counters.schedule_step), .grad_scale = 1,
		.rest1 = (float)(1 - t->optim.beta1), .rest2 = (float)(1 - t->optim.beta2),
	};
	double exponent = (double)(t->counters.updates + 1);

	if (!u->tokens || !isfinite(u->grad_norm)) {
		const char *bad = u->tokens ? model_bad_grad(t->m) : NULL;

		u->skipped = true;
		t->counters.skipped++;
		if (u->tokens)
			log_info("update skipped: the gradient of %s is not finite", bad ? bad : "the whole");
		else
			log_info("update skipped: none of its tokens has a weight in the loss");
		return;
	}
	h.bias1 = (float)(1 - pow(t->optim.beta1, exponent));
	h.bias2 = (float)(1 - pow(t->optim.beta2, exponent));
	if (t->optim.clip > 0 && u->grad_norm > t->optim.clip)
		h.grad_scale = (float)(t->optim.clip / (u->grad_norm + 1e-6));
	model_adamw(t->m, &h);
	t->counters.updates++;
}

static void begin_routers(struct trainer *t, const struct lesson *l, long n)
{
	long rows = 0;

	for (long i = 0; i < n; i++)
		rows += l[i].s.n;
	router_begin(t->m, t->router_aux, t->router_z, rows);
}

void train_update(struct update_report *u, struct trainer *t, const struct lesson *l, long n, bool apply)
{
	memset(u, 0, sizeof(*u));
	loss_sums_init(&u->sums);
	model_zero_grad(t->m);
	begin_routers(t, l, n);
	if (n)
		run_bins(u, t, l, n, true);
	join_reports(u, t->m->mesh);
	router_report_release(&t->routers);
	router_report(&t->routers, t->m);
	model_reduce_grad(t->m);
	u->grad_norm = model_grad_norm(t->m);
	if (apply)
		apply_update(u, t);
}

void train_evaluate(struct update_report *u, struct trainer *t, const struct lesson *l, long n)
{
	memset(u, 0, sizeof(*u));
	loss_sums_init(&u->sums);
	if (n)
		run_bins(u, t, l, n, false);
	join_reports(u, t->m->mesh);
}

void trainer_end_step(struct trainer *t, long consumed, long tokens)
{
	t->counters.step++;
	t->counters.schedule_step++;
	t->counters.consumed_samples += consumed;
	t->counters.tokens += tokens;
}
