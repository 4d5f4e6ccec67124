#include "libcommon/schedule.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MEGATRON "policy.megatron_cfg."
#define TORCH_SCHEDULER "policy.scheduler"

static bool megatron(const struct recipe *r)
{
	return recipe_bool(r, MEGATRON "enabled");
}

static double real_or(const struct recipe *r, const char *key, double otherwise)
{
	return recipe_is_null(r, key) ? otherwise : recipe_real(r, key);
}

static int torch_optimizer(struct optim_config *o, const struct recipe *r, struct err *e)
{
	const struct json *betas = recipe_value(r, "policy.optimizer.kwargs.betas");
	const char *name;

	if (recipe_is_null(r, "policy.optimizer") || !(name = recipe_str(r, "policy.optimizer.name")))
		return recipe_error(r, "policy.optimizer", e, "is null while policy.megatron_cfg.enabled is false; wanted an optimizer");
	o->kind = !strcmp(name, "torch.optim.SGD") ? OPTIM_SGD : OPTIM_ADAMW;
	o->lr = recipe_real(r, "policy.optimizer.kwargs.lr");
	o->weight_decay = recipe_real(r, "policy.optimizer.kwargs.weight_decay");
	o->eps = recipe_real(r, "policy.optimizer.kwargs.eps");
	o->momentum = recipe_real(r, "policy.optimizer.kwargs.momentum");
	o->clip = real_or(r, "policy.max_grad_norm", 0);
	if (betas->n != 2 || betas->item[0].type != JSON_NUMBER || betas->item[1].type != JSON_NUMBER)
		return recipe_error(r, "policy.optimizer.kwargs.betas", e, "wanted two numbers");
	o->beta1 = strtod(betas->item[0].text, NULL);
	o->beta2 = strtod(betas->item[1].text, NULL);
	/* As float32, which moments are: one that rounds to 1 would never learn. */
	if (!(o->beta1 >= 0 && (float)o->beta1 < 1 && o->beta2 >= 0 && (float)o->beta2 < 1))
		return recipe_error(r, "policy.optimizer.kwargs.betas", e, "wanted two numbers from 0 up to, but not, 1");
	return 0;
}

int optim_from_recipe(struct optim_config *o, const struct recipe *r, struct err *e)
{
	*o = (struct optim_config){ 0 };
	if (!megatron(r))
		return torch_optimizer(o, r, e);
	o->kind = !strcmp(recipe_str(r, MEGATRON "optimizer.optimizer"), "sgd") ? OPTIM_SGD : OPTIM_ADAMW;
	o->lr = recipe_real(r, MEGATRON "optimizer.lr");
	o->weight_decay = recipe_real(r, MEGATRON "optimizer.weight_decay");
	o->beta1 = recipe_real(r, MEGATRON "optimizer.adam_beta1");
	o->beta2 = recipe_real(r, MEGATRON "optimizer.adam_beta2");
	o->eps = recipe_real(r, MEGATRON "optimizer.adam_eps");
	o->momentum = recipe_real(r, MEGATRON "optimizer.sgd_momentum");
	o->clip = real_or(r, MEGATRON "optimizer.clip_grad", 0);
	return 0;
}

/* One argument of a torch scheduler: a number, `otherwise` where it is not there; NAN for what must be there. */
static int argument(double *out, const struct json *kwargs, const char *name, double otherwise, const struct recipe *r, struct err *e)
{
	const struct json *v = json_get(kwargs, name);

	*out = v && v->type == JSON_NUMBER ? strtod(v->text, NULL) : otherwise;
	if ((v && v->type != JSON_NUMBER) || isnan(*out))
		return recipe_error(r, TORCH_SCHEDULER, e, "%s: %s, wanted a number", name, v ? json_type_name(v) : "missing");
	return 0;
}

/* Names that a class does not take would be ignored in silence. */
static int only(const struct json *kwargs, const char *known, const char *class, const struct recipe *r, struct err *e)
{
	for (size_t i = 0; kwargs && i < kwargs->n; i++) {
		const char *at = strstr(known, kwargs->member[i].key);
		if (!at || (at > known && at[-1] != ' ') || at[kwargs->member[i].keylen] != ' ')
			return recipe_error(r, TORCH_SCHEDULER, e, "%s does not take '%s'; wanted %s", class, kwargs->member[i].key, known);
	}
	return 0;
}

static int whole_steps(long *out, double v, const char *name, const struct recipe *r, struct err *e)
{
	if (!(v >= 0 && v <= 9e15 && v == floor(v)))
		return recipe_error(r, TORCH_SCHEDULER, e, "%s: %g, wanted a whole number of steps", name, v);
	*out = (long)v;
	return 0;
}

static int torch_piece(struct schedule_piece *p, const struct json *v, const struct recipe *r, struct err *e)
{
	static const char prefix[] = "torch.optim.lr_scheduler.";
	const struct json *name = json_get(v, "name"), *kwargs = json_get(v, "kwargs");
	double steps = 0;

	if (!json_is(name, JSON_STRING) || (kwargs && kwargs->type != JSON_OBJECT && kwargs->type != JSON_NULL))
		return recipe_error(r, TORCH_SCHEDULER, e, "wanted {name: class, kwargs: {...}} or {milestones: [...]}");
	const char *class = name->text;
	if (!strncmp(class, prefix, sizeof(prefix) - 1))
		class += sizeof(prefix) - 1;
	if (!strcmp(class, "LinearLR")) {
		p->form = LR_LINEAR;
		if (only(kwargs, "start_factor end_factor total_iters ", class, r, e) ||
		    argument(&p->a, kwargs, "start_factor", 1.0 / 3, r, e) || argument(&p->b, kwargs, "end_factor", 1, r, e) ||
		    argument(&steps, kwargs, "total_iters", 5, r, e))
			return -1;
	} else if (!strcmp(class, "ConstantLR")) {
		p->form = LR_CONSTANT;
		if (only(kwargs, "factor total_iters ", class, r, e) || argument(&p->a, kwargs, "factor", 1.0 / 3, r, e) ||
		    argument(&steps, kwargs, "total_iters", 5, r, e))
			return -1;
	} else if (!strcmp(class, "CosineAnnealingLR")) {
		p->form = LR_COSINE;
		if (only(kwargs, "T_max eta_min ", class, r, e) || argument(&p->a, kwargs, "eta_min", 0, r, e) ||
		    argument(&steps, kwargs, "T_max", NAN, r, e))
			return -1;
		if (steps < 1)
			return recipe_error(r, TORCH_SCHEDULER, e, "T_max: %g, wanted 1 or more", steps);
	} else {
		return recipe_error(r, TORCH_SCHEDULER, e, "'%s' is no scheduler that we have; wanted LinearLR, ConstantLR or CosineAnnealingLR",
				    name->text);
	}
	if (p->a < 0 || p->b < 0)
		return recipe_error(r, TORCH_SCHEDULER, e, "%s: a factor below 0", class);
	return whole_steps(&p->steps, steps, "total_iters or T_max", r, e);
}

static int milestones(struct schedule *s, const struct json *m, const struct recipe *r, struct err *e)
{
	double v;

	if (m->type != JSON_ARRAY || (int)m->n != s->n - 1)
		return recipe_error(r, TORCH_SCHEDULER, e, "milestones: wanted a list of %d, one less than schedulers", s->n - 1);
	for (int i = 1; i < s->n; i++) {
		const struct json *x = &m->item[i - 1];
		v = x->type == JSON_NUMBER ? strtod(x->text, NULL) : NAN;
		if (whole_steps(&s->piece[i].from, v, "milestones", r, e))
			return -1;
		if (s->piece[i].from < s->piece[i - 1].from)
			return recipe_error(r, TORCH_SCHEDULER, e, "milestones: %ld after %ld, wanted them in order", s->piece[i].from,
					    s->piece[i - 1].from);
	}
	return 0;
}

static int torch_schedule(struct schedule *s, const struct recipe *r, struct err *e)
{
	const struct json *v = recipe_value(r, TORCH_SCHEDULER), *m = NULL;
	size_t n = v->type == JSON_ARRAY ? v->n : v->type != JSON_NULL;

	for (size_t i = 0; i < n; i++) {
		const struct json *item = v->type == JSON_ARRAY ? &v->item[i] : v;
		if (json_get(item, "milestones")) {
			m = json_get(item, "milestones");
			continue;
		}
		if (s->n == SCHEDULE_PIECES)
			return recipe_error(r, TORCH_SCHEDULER, e, "more than %d schedulers", SCHEDULE_PIECES);
		if (torch_piece(&s->piece[s->n], item, r, e))
			return -1;
		s->n++;
	}
	if (m)
		return milestones(s, m, r, e);
	return s->n <= 1 ? 0 : recipe_error(r, TORCH_SCHEDULER, e, "%d schedulers and no milestones", s->n);
}

static int pick(const char *text, const char *const *names)
{
	for (int i = 0; names[i]; i++)
		if (!strcmp(names[i], text))
			return i;
	bug("'%s' is in the recipe's table but not here", text);
}

/* Steps of the whole run: what lr_decay_iters and the growth of the weight decay mean where they are not given. */
static int run_steps(long *n, const struct recipe *r, const char *section, struct err *e)
{
	char key[64];

	if (!recipe_is_null(r, MEGATRON "train_iters")) {
		*n = recipe_int(r, MEGATRON "train_iters");
		return 0;
	}
	if (!section && recipe_algorithm(&section, r, e))
		return -1;
	if (!strcmp(section, "eval"))
		section = "grpo";
	snprintf(key, sizeof(key), "%s.max_num_steps", section);
	*n = recipe_int(r, key) > 0 ? recipe_int(r, key) : LONG_MAX / 4;
	return 0;
}

static int megatron_schedule(struct schedule *s, const struct recipe *r, const char *section, struct err *e)
{
	static const char *const styles[] = { "constant", "linear", "cosine", "inverse-square-root", "WSD", NULL };
	static const char *const wsd[] = { "linear", "cosine", "exponential", "minus_sqrt", NULL };
	long run;

	if (run_steps(&run, r, section, e))
		return -1;
	s->n = 1;
	s->piece[0].form = LR_MEGATRON;
	s->style = (enum decay_style)pick(recipe_str(r, MEGATRON "scheduler.lr_decay_style"), styles);
	s->wsd_style = (enum wsd_style)pick(recipe_str(r, MEGATRON "scheduler.lr_wsd_decay_style"), wsd);
	s->init = recipe_real(r, MEGATRON "scheduler.lr_warmup_init");
	s->min = recipe_real(r, MEGATRON "optimizer.min_lr");
	s->warmup = recipe_int(r, MEGATRON "scheduler.lr_warmup_iters");
	s->decay = recipe_is_null(r, MEGATRON "scheduler.lr_decay_iters") ? run : recipe_int(r, MEGATRON "scheduler.lr_decay_iters");
	s->wd_style = (enum decay_style)pick(recipe_str(r, MEGATRON "scheduler.weight_decay_incr_style"), styles);
	s->wd_start = recipe_real(r, MEGATRON "scheduler.start_weight_decay");
	s->wd_end = recipe_real(r, MEGATRON "scheduler.end_weight_decay");
	s->wd_steps = run;
	if (s->min > s->base || s->init > s->base)
		return recipe_error(r, s->min > s->base ? MEGATRON "optimizer.min_lr" : MEGATRON "scheduler.lr_warmup_init", e,
				    "%g, wanted at most lr, %g", s->min > s->base ? s->min : s->init, s->base);
	if (s->warmup >= s->decay && s->style != DECAY_CONSTANT)
		return recipe_error(r, MEGATRON "scheduler.lr_warmup_iters", e, "%ld, wanted less than lr_decay_iters, %ld", s->warmup, s->decay);
	if (s->wd_style == DECAY_CONSTANT && s->wd_start != s->wd_end)
		return recipe_error(r, MEGATRON "scheduler.end_weight_decay", e, "%g, wanted start_weight_decay, %g, as the style is constant",
				    s->wd_end, s->wd_start);
	if (s->style == DECAY_WSD) {
		if (recipe_is_null(r, MEGATRON "scheduler.lr_wsd_decay_iters"))
			return recipe_error(r, MEGATRON "scheduler.lr_wsd_decay_iters", e, "null, wanted a number of steps, as the style is WSD");
		s->wsd = recipe_int(r, MEGATRON "scheduler.lr_wsd_decay_iters");
		if (s->wsd > s->decay)
			return recipe_error(r, MEGATRON "scheduler.lr_wsd_decay_iters", e, "%ld, wanted at most lr_decay_iters, %ld", s->wsd, s->decay);
	}
	return 0;
}

int schedule_from_recipe(struct schedule *s, const struct recipe *r, const char *section, struct err *e)
{
	struct optim_config o;

	*s = (struct schedule){ 0 };
	if (optim_from_recipe(&o, r, e))
		return -1;
	s->base = o.lr;
	s->wd_start = s->wd_end = o.weight_decay;
	return megatron(r) ? megatron_schedule(s, r, section, e) : torch_schedule(s, r, e);
}

static double megatron_lr(const struct schedule *s, long t)
{
	double r, q, c;

	if (s->warmup > 0 && t <= s->warmup)
		return s->init + (s->base - s->init) * (double)t / (double)s->warmup;
	if (s->style == DECAY_CONSTANT)
		return s->base;
	if (t > s->decay)
		return s->min;
	if (s->style == DECAY_INVERSE_SQRT)
		return fmax(s->min, s->base * sqrt((double)(s->warmup > 1 ? s->warmup : 1)) / sqrt((double)(t > 1 ? t : 1)));
	if (s->style == DECAY_WSD) {
		long from = s->decay - s->wsd;
		if (t <= from)
			return s->base;
		q = (double)(t - from) / (double)s->wsd;
		c = s->wsd_style == WSD_LINEAR ? 1 - q : s->wsd_style == WSD_COSINE ? (1 + cos(M_PI * q)) / 2 :
		    s->wsd_style == WSD_EXPONENTIAL ? 2 * pow(0.5, q) - 1 : 1 - sqrt(q);
	} else {
		r = (double)(t - s->warmup) / (double)(s->decay - s->warmup);
		c = s->style == DECAY_LINEAR ? 1 - r : (1 + cos(M_PI * r)) / 2;
	}
	return s->min + (s->base - s->min) * c;
}

double schedule_lr(const struct schedule *s, long t)
{
	const struct schedule_piece *p = s->piece;

	if (!s->n)
		return s->base;
	for (int i = 1; i < s->n && t >= s->piece[i].from; i++)
		p = &s->piece[i];
	t -= p->from;
	switch (p->form) {
	case LR_LINEAR: {
		double share = p->steps && t < p->steps ? (double)t / (double)p->steps : 1;
		return s->base * (p->a + (p->b - p->a) * share);
	}
	case LR_CONSTANT:
		return t < p->steps ? s->base * p->a : s->base;
	case LR_COSINE:
		return p->a + (s->base - p->a) * (1 + cos(M_PI * (double)t / (double)p->steps)) / 2;
	case LR_MEGATRON:
		return megatron_lr(s, t);
	}
	return s->base;
}

double schedule_weight_decay(const struct schedule *s, long t)
{
	double x;

	if (s->wd_style == DECAY_CONSTANT || t > s->wd_steps || !s->wd_steps)
		return s->wd_end;
	x = (double)t / (double)s->wd_steps;
	return s->wd_start + (s->wd_end - s->wd_start) * (s->wd_style == DECAY_LINEAR ? x : (1 + cos(M_PI * (1 - x))) / 2);
}
