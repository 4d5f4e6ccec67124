#include "libcommon/schedule.h"

#include "tests/lib/tap.h"

static struct recipe *load(const char *text)
{
	struct err e = ERR_INIT;
	struct recipe *r;

	if (recipe_parse(&r, text, strlen(text), "r.yaml", NULL, 0, NULL, 0, &e))
		die_err(&e);
	return r;
}

static struct schedule schedule(const char *text)
{
	struct err e = ERR_INIT;
	struct recipe *r = load(text);
	struct schedule s;

	if (schedule_from_recipe(&s, r, NULL, &e))
		die_err(&e);
	recipe_free(r);
	return s;
}

static void refused(const char *text, const char *says)
{
	struct err e = ERR_INIT;
	struct recipe *r = load(text);
	struct schedule s;

	ok(schedule_from_recipe(&s, r, NULL, &e) && e.code == 78 && strstr(e.msg, says), "refused: %s", e.msg);
	recipe_free(r);
}

/* A recipe for two algorithms: the run's length is that of the one that runs. */
static void two_sections(void)
{
	struct err e = ERR_INIT;
	struct recipe *r = load("policy: {megatron_cfg: {enabled: true, scheduler: {lr_decay_iters: null, lr_decay_style: linear}}}\n"
				"grpo: {max_num_steps: 100}\nsft: {max_num_steps: 300}\n");
	struct schedule s;

	ok(!schedule_from_recipe(&s, r, "sft", &e) && s.decay == 300, "sft: 300 steps, found %ld", s.decay);
	ok(!schedule_from_recipe(&s, r, "grpo", &e) && s.decay == 100, "grpo: 100 steps, found %ld", s.decay);
	ok(schedule_from_recipe(&s, r, NULL, &e) && e.code == 78, "neither said: %s", e.msg);
	recipe_free(r);
}

/* tests/libcommon/record_recipe.py: what torch makes of the same settings, step by step. */
static void torch(void)
{
	FILE *f = fopen("tests/data/recipe/torch_lr.tsv", "r");
	char line[2048], text[4096];
	int n = 0;

	if (!f)
		die(66, "tests/data/recipe/torch_lr.tsv");
	while (fgets(line, sizeof(line), f)) {
		char *settings = strchr(line, '\t'), *want;
		*settings++ = 0;
		want = strchr(settings, '\t');
		*want++ = 0;
		snprintf(text, sizeof(text), "policy: {optimizer: {kwargs: {lr: %s}}, scheduler: %s}\n", line, settings);
		struct schedule s = schedule(text);
		double worst = 0;
		for (long t = 0; t < 12; t++) {
			double x = strtod(want, &want), d = fabs(schedule_lr(&s, t) - x) / strtod(line, NULL);
			worst = d > worst ? d : worst;
		}
		ok(worst < 1e-15 * 16, "%.70s: as torch, worst %.1e of the base", settings, worst);
		n++;
	}
	fclose(f);
	ok(n == 5, "all five");
}

/* Warm-up 4, linear to 0 at 10: a resumed run asks for step 6 and gets what the run that went on got. */
static void resume(void)
{
	static const double want[] = { .25, .5, .75, 1, 1, .83333333, .66666667, .5, .33333333, .16666667 };
	const char *text = "policy: {optimizer: {kwargs: {lr: 1}}, scheduler: [{name: torch.optim.lr_scheduler.LinearLR, kwargs: {start_factor: 0.25, end_factor: 1, total_iters: 3}},"
			   " {name: torch.optim.lr_scheduler.LinearLR, kwargs: {start_factor: 1, end_factor: 0, total_iters: 6}}, {milestones: [4]}]}\n";
	struct schedule s = schedule(text), fresh;

	for (long t = 0; t < 10; t++)
		is_num(schedule_lr(&s, t), want[t], 1e-8, "step %ld", t);
	fresh = schedule(text);
	is_num(schedule_lr(&fresh, 6), 0.66666667, 1e-8, "the first thing asked of a resumed run");
	for (long t = 6; t < 10; t++)
		ok(schedule_lr(&fresh, t) == schedule_lr(&s, t), "step %ld, the same bits", t);
}

/* Worked by hand: max 1, min 0.1, init 0.2, W = 4, D = 12. */
#define MEGATRON "{enabled: true, optimizer: {lr: 1, min_lr: 0.1, weight_decay: 0.4, adam_beta2: 0.95}, scheduler: {lr_warmup_iters: 4, lr_warmup_init: 0.2, lr_decay_iters: 12"

static void megatron_form(const char *style, const long *t, const double *want, int n)
{
	char text[1024];

	snprintf(text, sizeof(text), "policy: {megatron_cfg: " MEGATRON ", %s}}}\n", style);
	struct schedule s = schedule(text);
	is_num(schedule_lr(&s, 0), 0.2, 1e-15, "%s: starts at init", style);
	is_num(schedule_lr(&s, 1), 0.4, 1e-15, "%s: 0.2 + 0.8 / 4", style);
	is_num(schedule_lr(&s, 4), 1, 1e-15, "%s: the peak", style);
	for (int i = 0; i < n; i++)
		is_num(schedule_lr(&s, t[i]), want[i], 1e-12, "%s: step %ld", style, t[i]);
}

static void megatron(void)
{
	megatron_form("lr_decay_style: constant", (long[]){ 5, 13, 1000 }, (double[]){ 1, 1, 1 }, 3);
	/* r = 2/8: 0.1 + 0.9 * 0.75; r = 1/2: 0.55 */
	megatron_form("lr_decay_style: linear", (long[]){ 6, 8, 12, 13 }, (double[]){ 0.775, 0.55, 0.1, 0.1 }, 4);
	/* r = 1/4: 0.1 + 0.45 * (1 + sqrt(1/2)) */
	megatron_form("lr_decay_style: cosine", (long[]){ 6, 8, 12, 99 }, (double[]){ 0.868198051533946, 0.55, 0.1, 0.1 }, 4);
	/* sqrt(4) / sqrt(9) and sqrt(4/12); the floor after D */
	megatron_form("lr_decay_style: inverse-square-root", (long[]){ 9, 12, 13 }, (double[]){ 2.0 / 3, 0.5773502691896258, 0.1 }, 3);
	/* A = 8; q = 1/4 at 9, 1 at 12: 1 - q, (1 + cos(pi q)) / 2, 2 * 0.5^q - 1, 1 - sqrt(q) */
	megatron_form("lr_decay_style: WSD, lr_wsd_decay_iters: 4, lr_wsd_decay_style: linear", (long[]){ 8, 9, 12, 13 }, (double[]){ 1, 0.775, 0.1, 0.1 }, 4);
	megatron_form("lr_decay_style: WSD, lr_wsd_decay_iters: 4, lr_wsd_decay_style: cosine", (long[]){ 8, 9, 10 }, (double[]){ 1, 0.868198051533946, 0.55 }, 3);
	megatron_form("lr_decay_style: WSD, lr_wsd_decay_iters: 4", (long[]){ 8, 9, 12 }, (double[]){ 1, 0.1 + 0.9 * (2 * 0.8408964152537145 - 1), 0.1 }, 3);
	megatron_form("lr_decay_style: WSD, lr_wsd_decay_iters: 4, lr_wsd_decay_style: minus_sqrt", (long[]){ 8, 9, 12 }, (double[]){ 1, 0.55, 0.1 }, 3);

	struct schedule s = schedule("policy: {megatron_cfg: " MEGATRON ", start_weight_decay: 0.1, end_weight_decay: 0.5, weight_decay_incr_style: linear}, train_iters: 8}}\n");
	is_num(schedule_weight_decay(&s, 2), 0.2, 1e-15, "linear weight decay, a quarter");
	is_num(schedule_weight_decay(&s, 9), 0.5, 0, "and after the end");
	s = schedule("policy: {megatron_cfg: " MEGATRON ", start_weight_decay: 0.1, end_weight_decay: 0.5, weight_decay_incr_style: cosine}, train_iters: 8}}\n");
	/* (1 + cos(3 pi / 4)) / 2 = 0.146446609 */
	is_num(schedule_weight_decay(&s, 2), 0.1 + 0.4 * 0.1464466094067262, 1e-12, "cosine weight decay, a quarter");
	is_num(schedule_weight_decay(&s, 4), 0.3, 1e-12, "half way");
	s = schedule("policy: {megatron_cfg: " MEGATRON "}}}\n");
	is_num(schedule_weight_decay(&s, 77), 0.4, 0, "constant weight decay follows the optimizer's");
	s = schedule("grpo: {max_num_steps: 20}\npolicy: {megatron_cfg: {enabled: true, optimizer: {lr: 1, min_lr: 0}, scheduler: {lr_decay_style: linear, lr_decay_iters: null, lr_warmup_iters: 0}}}\n");
	is_num(schedule_lr(&s, 5), 0.75, 1e-15, "a decay without an end ends with the run");
}

static void optimizer(void)
{
	struct err e = ERR_INIT;
	struct optim_config o;
	struct recipe *r = load("policy: {optimizer: {kwargs: {lr: 2e-6, betas: [0.8, 0.9], eps: 1e-7, weight_decay: 0.2}}, max_grad_norm: 0.5}");

	ok(!optim_from_recipe(&o, r, &e) && o.kind == OPTIM_ADAMW, "torch's AdamW");
	ok(o.lr == 2e-6 && o.beta1 == 0.8 && o.beta2 == 0.9 && o.eps == 1e-7 && o.weight_decay == 0.2 && o.clip == 0.5, "its settings");
	recipe_free(r);
	r = load("policy: {optimizer: null, max_grad_norm: 3, megatron_cfg: " MEGATRON "}}}");
	ok(!optim_from_recipe(&o, r, &e) && o.lr == 1 && o.beta1 == 0.9 && o.beta2 == 0.95 && o.weight_decay == 0.4 && o.eps == 1e-8,
	   "Megatron's settings");
	ok(o.clip == 3, "whose clip_grad follows policy.max_grad_norm");
	recipe_free(r);
	r = load("policy: {max_grad_norm: null}");
	ok(!optim_from_recipe(&o, r, &e) && o.clip == 0, "no clipping");
	recipe_free(r);
	r = load("policy: {optimizer: null}");
	ok(optim_from_recipe(&o, r, &e) && e.code == 78, "no optimizer: %s", e.msg);
	recipe_free(r);
}

int main(void)
{
	two_sections();
	torch();
	resume();
	megatron();
	optimizer();
	struct schedule s = schedule("");
	ok(schedule_lr(&s, 0) == 5e-6 && schedule_lr(&s, 12345) == 5e-6, "no scheduler: constant");
	refused("policy: {optimizer: {kwargs: {betas: [0.9, 0.99999999]}}}", "but not, 1");
	refused("policy: {scheduler: {name: torch.optim.lr_scheduler.StepLR}}", "is no scheduler that we have");
	refused("policy: {scheduler: [{name: LinearLR}, {name: LinearLR}]}", "no milestones");
	refused("policy: {scheduler: [{name: LinearLR}, {name: LinearLR}, {milestones: [4, 5]}]}", "wanted a list of 1");
	refused("policy: {scheduler: {name: LinearLR, kwargs: {factor: 1}}}", "does not take 'factor'");
	refused("policy: {scheduler: {name: CosineAnnealingLR}}", "T_max: missing");
	refused("policy: {scheduler: {name: ConstantLR, kwargs: {total_iters: 1.5}}}", "a whole number of steps");
	refused("policy: {megatron_cfg: {enabled: true, optimizer: {lr: 1e-6, min_lr: 1e-3}}}", "wanted at most lr");
	refused("policy: {megatron_cfg: " MEGATRON ", lr_decay_style: WSD}}}", "as the style is WSD");
	refused("policy: {megatron_cfg: " MEGATRON ", end_weight_decay: 0.5}}}", "as the style is constant");
	refused("sft: {seed: 1}\ngrpo: {seed: 1}\npolicy: {megatron_cfg: " MEGATRON "}}}", "both 'grpo' and 'sft'");
	return done();
}
