/*
 * train-step - checkpoint + scored samples, or a data set -> the next checkpoint
 *
 * It remembers nothing: weights, optimizer, schedule and cursor live in the checkpoint, so killing it costs the step in
 * hand, and the same command gives the same bits.
 */
#include "tools/train-step/metrics.h"

#include "libcommon/file.h"
#include "libcommon/progress.h"
#include "libcommon/xalloc.h"
#include "tools/shared/timing.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
	const char *out, *data, *algorithm;
	long steps;
	bool evaluate, dry_run;
} o = { .steps = 1 };

static const struct opt table[] = {
	OPT_STR('o', "out", &o.out, "CKPT", "write the next checkpoint here"),
	OPT_STR(0, "data", &o.data, "FILE", "learn from conversations or prompts with answers (JSON lines): SFT"),
	OPT_LONG(0, "steps", &o.steps, "K", "with --data: take K steps, write one checkpoint"),
	OPT_STR(0, "algorithm", &o.algorithm, "NAME", "grpo or sft; default: sft with --data, else grpo"),
	OPT_FLAG(0, "evaluate", &o.evaluate, "with --data: only the loss on all of it, in file order; no checkpoint"),
	OPT_FLAG(0, "dry-run", &o.dry_run, "only say what memory the step would take"),
	OPT_END
};

static const struct tool tool = {
	"train-step", "checkpoint + scored samples -> the next checkpoint",
	"CKPT [SCORED | --data FILE.jsonl --steps N] -o CKPT2 [-c RECIPE] [key=value ...]", table, true
};

struct job {
	struct recipe *r;
	const struct ops *k;
	struct checkpoint c;
	struct mesh mesh;
	struct model m;
	struct model_config cfg;
	struct trainer t;
	struct rl rl;
	struct sft sft;
	struct step_metrics metrics;
	const char *scored, *algorithm;
	long rows;              /* computed, prompts included */
	double start;
};

static void choose_algorithm(struct job *j, int nargs)
{
	static const char *const later[] = { "dpo", "rm", "distillation", NULL };

	j->algorithm = o.algorithm ? o.algorithm : o.data ? "sft" : "grpo";
	for (int i = 0; later[i]; i++)
		if (!strcmp(j->algorithm, later[i]))
			die(EX_UNAVAILABLE, "--algorithm %s is not built yet; there are grpo and sft", j->algorithm);
	if (strcmp(j->algorithm, "grpo") && strcmp(j->algorithm, "sft"))
		die(EX_USAGE, "--algorithm %s: wanted grpo or sft", j->algorithm);
	if (!strcmp(j->algorithm, "sft") != !!o.data || (o.data && nargs > 1) || (!o.data && nargs < 2))
		die(EX_USAGE, "wanted scored samples (grpo) or --data FILE (sft), one of them");
	if (o.steps < 1)
		die(EX_USAGE, "--steps %ld: wanted at least 1", o.steps);
	if (!o.out && !o.evaluate && !o.dry_run)
		die(EX_USAGE, "-o CKPT is missing: where to write the next checkpoint");
	if (o.evaluate && !o.data)
		die(EX_USAGE, "--evaluate wants --data FILE");
	if (o.out && !o.evaluate && !o.dry_run && file_exists(o.out))
		die(EX_CANTCREAT, "%s exists; remove it, or name another place for the new checkpoint", o.out);
}

/* A run goes on with the arithmetic it began with: on another one its bits are another run's. */
static void check_arithmetic(const struct job *j)
{
	char own[17];

	if (!j->c.fingerprint || !strcmp(j->c.fingerprint, fingerprint_text(own, j->k)) || recipe_bool(j->r, "cairn.other_arithmetic"))
		return;
	die(EX_TEMPFAIL, "%s: trained with the arithmetic %s, here it is %s (%s, %s); go on where it began, or give"
	    " cairn.other_arithmetic=true", j->c.dir, j->c.fingerprint, own, j->k->name, j->k->isa);
}

/* Sequences first: what is refused is refused before the model is loaded. */
static void open_lessons(struct job *j)
{
	if (o.data) {
		sft_open(&j->sft, o.data, &j->c, j->r, &j->cfg);
		if (!o.evaluate)
			sft_resume(&j->sft, &j->c);
		return;
	}
	rl_open(&j->rl, j->scored, &j->c, j->r, j->algorithm, j->k, &j->cfg);
}

static void say(const char *result)
{
	if (start_is_first())
		puts(result);
}

/* Sizes only, of the rank that has most. */
static void dry_run(struct job *j, enum dtype t)
{
	long rows = recipe_int(j->r, "policy.sequence_packing.train_mb_tokens"), own[2], *all;
	struct model small;
	struct err e = ERR_INIT;
	struct json_out out = { 0 };

	/* A model that infers holds what pass_bytes() looks at. */
	if (model_init(&small, &j->cfg, j->k, &j->mesh, t, 1, 0, &e))
		die_err(&e);
	own[0] = model_memory(&small.table, &j->mesh.layout, &j->mesh.at, t, true);
	own[1] = (long)pipeline_bytes(&small, rows, true, trainer_recomputes(j->r), j->mesh.layout.pp);
	all = xcalloc((size_t)j->mesh.world.size * 2, sizeof(*all));
	comm_gather(&j->mesh.world, all, own, sizeof(own));
	for (int i = 0; i < j->mesh.world.size; i++)
		if (all[2 * i] + all[2 * i + 1] > own[0] + own[1])
			memcpy(own, all + 2 * i, sizeof(own));
	json_begin(&out, '{');
	json_add_int(&out, "parameters", model_config_parameters(&j->cfg));
	json_add_int(&out, "bytes_weights_and_optimizer", own[0]);
	json_add_int(&out, "bytes_activations", own[1]);
	json_add_int(&out, "rows", rows);
	json_end(&out);
	say(out.s.s);
	exit(tool_exit(EX_OK));
}

static void rl_step(struct job *j)
{
	struct update_report u;
	struct progress show = { 0 };
	long tokens = 0;

	j->t.temperature = j->rl.set.s[0].temperature > 0 ? (float)j->rl.set.s[0].temperature : 1;
	for (long i = 0; i < j->rl.set.n; i++) {
		if (j->rl.set.s[i].temperature != j->rl.set.s[0].temperature)
			die(EX_DATAERR, "%s: samples at temperatures %g and %g, wanted one", j->scored, j->rl.set.s[0].temperature,
			    j->rl.set.s[i].temperature);
		tokens += j->rl.set.s[i].length;
	}
	progress_start(&show, "training", (double)j->rl.updates, "updates");
	for (long i = 0; i < j->rl.updates; i++) {
		train_update(&u, &j->t, j->rl.lesson + j->rl.first[i], j->rl.first[i + 1] - j->rl.first[i], true);
		metrics_add(&j->metrics, &u, &j->t);
		progress_add(&show, 1);
	}
	progress_end(&show);
	j->rows += tokens;
	trainer_end_step(&j->t, j->rl.set.n, tokens);
}

static void sft_steps(struct job *j)
{
	struct update_report u;
	struct progress show = { 0 };

	progress_start(&show, "training", (double)o.steps, "steps");
	for (long i = 0; i < o.steps; i++) {
		long tokens = 0;

		sft_next(&j->sft);
		for (long q = 0; q < j->sft.n; q++)
			tokens += j->sft.lesson[q].s.n;
		train_update(&u, &j->t, j->sft.lesson, j->sft.n, true);
		metrics_add(&j->metrics, &u, &j->t);
		j->rows += tokens;
		trainer_end_step(&j->t, j->sft.batch, tokens);
		progress_add(&show, 1);
	}
	progress_end(&show);
	sft_tell_dropped(&j->sft, o.steps * j->sft.batch);
}

/* The mean loss a token over the whole file: batches are weighed by their tokens. */
static void evaluate(struct job *j)
{
	long n = dataset_count(j->sft.d), tokens = 0;
	struct json_out out = { 0 };
	struct update_report u;
	double loss = 0;

	for (long at = 0; at < n; at += j->sft.batch) {
		sft_rows(&j->sft, at, n - at < j->sft.batch ? n - at : j->sft.batch);
		train_evaluate(&u, &j->t, j->sft.lesson, j->sft.n);
		loss += u.sums.nll * (double)u.tokens;
		tokens += u.tokens;
	}
	sft_tell_dropped(&j->sft, n);
	json_begin(&out, '{');
	json_add_real(&out, "validation/val_loss", loss / (double)tokens);
	json_add_int(&out, "validation/num_tokens", tokens);
	json_add_int(&out, "validation/num_samples", n - j->sft.dropped);
	json_end(&out);
	say(out.s.s);
}

static char *metrics_text(const struct job *j, bool with_time)
{
	struct json_out out = { 0 };

	json_begin(&out, '{');
	json_add_int(&out, "step", j->t.counters.step);
	metrics_put(&out, &j->metrics, o.data ? NULL : &j->rl);
	if (o.data)
		json_add_int(&out, "train/dropped_too_long", j->sft.dropped);
	if (with_time) {
		double s = seconds_now() - j->start;

		json_add_real(&out, "timing/train/total_step_time", s);
		json_add_real(&out, "performance/tokens_per_sec", (double)j->rows / s);
		timing_put(&out);
		json_add_str(&out, "checkpoint", o.out);
	}
	json_end(&out);
	return str_detach(&out.s);
}

static void save(struct job *j, int argc, char **argv)
{
	const struct json *from = o.data ? NULL : json_get(&j->rl.set.manifest.root, "cursor");
	struct history_input in[2] = { { "checkpoint", j->c.dir, j->c.weights_digest },
				       { o.data ? "data" : "samples", o.data ? o.data : j->scored, { 0 } } };
	uint64_t seed = (uint64_t)recipe_int(j->r, o.data ? "sft.seed" : "grpo.seed");
	struct json_out cursor = { 0 };
	char print[17], *metrics = metrics_text(j, false);
	double began;
	struct saving s = { .dir = o.out, .parent = &j->c, .source = &j->c, .t = &j->t, .metrics = metrics };

	in[1].digest = o.data ? dataset_digest(j->sft.d) : input_digest(j->scored);
	if (json_is(from, JSON_OBJECT)) {
		json_put(&cursor, from);
		s.cursor = cursor.s.s;
	} else if (o.data) {
		s.cursor = sft_cursor(&j->sft);
	}
	s.fingerprint = fingerprint_text(print, j->k);
	start_history(&s.history, tool.name, argc, argv, j->r, &seed, in, 2, j->c.history);
	began = seconds_now();
	save_checkpoint(&s);
	timing_add(TIMING_SAVE, began);
	free(metrics);
}

int main(int argc, char **argv)
{
	static struct job j;
	const char *args[2];
	int nargs;

	tool_init(argv[0]);
	nargs = opt_parse(&tool, argc, argv, args, 1, 2);
	choose_algorithm(&j, nargs);
	j.scored = nargs > 1 ? args[1] : NULL;
	j.r = start_recipe();
	j.k = start_ops();

	load_checkpoint(&j.c, args[0]);
	load_config(&j.cfg, &j.c);
	if (!o.evaluate)
		check_arithmetic(&j);
	enum dtype t = start_precision(j.r, &j.c);
	start_mesh(&j.mesh, j.r, &j.cfg);
	if (o.dry_run)
		dry_run(&j, t);
	open_lessons(&j);
	load_model(&j.m, &j.c, j.k, &j.mesh, t, 0, (o.evaluate ? 0 : MODEL_TRAIN) | start_freeze(j.r));
	trainer_init(&j.t, &j.m, j.r, j.algorithm, j.c.counters);

	j.start = seconds_now();
	if (o.evaluate) {
		evaluate(&j);
		return tool_exit(EX_OK);
	}
	if (o.data)
		sft_steps(&j);
	else
		rl_step(&j);
	save(&j, argc, argv);
	say(metrics_text(&j, true));
	return tool_exit(EX_OK);
}
