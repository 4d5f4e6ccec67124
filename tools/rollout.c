/*
 * rollout - a checkpoint and prompts become samples
 *
 * Prompts come from the recipe's data or from --prompts, go through the chat template and the tokenizer, and are
 * continued by the model with continuous batching (rollout/generate.h).  What was sampled is written as it was: ids and
 * the log-probabilities under this checkpoint.
 */
#include "libcommon/file.h"
#include "libcommon/progress.h"
#include "libcommon/xalloc.h"
#include "tools/rollout/rollout.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct rollout o = { .split_name = "train", .step = -1 };

static const struct opt table[] = {
	OPT_STR ('o', "out",          &o.out,          "SAMPLES", "write the samples into this new directory"),
	OPT_STR ( 0,  "prompts",      &o.prompts_file, "FILE",    "prompts of this JSON lines file (- is standard input), not the recipe's"),
	OPT_LONG('n', "samples",      &o.samples,      "N",       "samples for each prompt; 0: as the recipe says, 1 with --prompts"),
	OPT_STR ( 0,  "split",        &o.split_name,   "NAME",    "train or validation"),
	OPT_LONG( 0,  "step",         &o.step,         "N",       "step that the samples are for; -1: that of the checkpoint and one"),
	OPT_STR ( 0,  "after",        &o.after,        "SAMPLES", "begin with the prompts that follow those of this set"),
	OPT_FLAG( 0,  "reset-cursor", &o.reset_cursor,            "begin the training data anew"),
	OPT_FLAG( 0,  "text",         &o.text,                    "print the answers, a line each, to standard output"),
	OPT_FLAG( 0,  "jsonl",        &o.jsonl,                   "print the samples as JSON lines to standard output"),
	OPT_LONG( 0,  "batch",        &o.batch,        "N",       "sequences at once; 0: 64, changes no result"),
	OPT_FLAG( 0,  "dry-run",      &o.dry_run,                 "tell memory and time, generate nothing"),
	OPT_END
};

static const struct tool tool = {
	"rollout", "checkpoint and prompts -> samples",
	"CKPT [-c RECIPE] -o SAMPLES [options] [key=value ...]", table, .takes_recipe = true
};

static void check_options(void)
{
	if (!o.out && !o.text && !o.jsonl && !o.dry_run)
		die(EX_USAGE, "no output; wanted -o SAMPLES, --text or --jsonl");
	if (o.text && o.jsonl)
		die(EX_USAGE, "--text and --jsonl both print to standard output, wanted one of them");
	if (o.samples < 0 || o.batch < 0 || o.step < -1)
		die(EX_USAGE, "--%s: found a negative number", o.samples < 0 ? "samples" : o.batch < 0 ? "batch" : "step");
	if (o.samples > 1 << 20 || o.batch > 4096)
		die(EX_USAGE, "--%s: found %ld, wanted at most %d", o.batch > 4096 ? "batch" : "samples",
		    o.batch > 4096 ? o.batch : o.samples, o.batch > 4096 ? 4096 : 1 << 20);
}

/* Hours of generation are not to end in a directory that was there before they began. */
static void check_out(void)
{
	char *copy, *slash;

	if (!o.out || o.dry_run)
		return;
	if (file_exists(o.out) || file_is_dir(o.out))
		die(EX_CANTCREAT, "%s: exists already; wanted a new directory, remove it or name another", o.out);
	copy = xstrdup(o.out);
	while (strlen(copy) > 1 && copy[strlen(copy) - 1] == '/')
		copy[strlen(copy) - 1] = 0;
	slash = strrchr(copy, '/');
	if (slash)
		slash[slash == copy] = 0;
	if (access(slash ? copy : ".", W_OK | X_OK))
		die(EX_CANTCREAT, "%s: cannot be made: %s", o.out, strerror(errno));
	free(copy);
}

static void load(void)
{
	load_checkpoint(&o.c, o.dir);
	load_config(&o.cfg, &o.c);
	o.t = load_tokenizer(&o.c);
	check_vocabulary(o.t, &o.cfg);
	o.tmpl = load_chat_template(&o.c, o.r);
	settings_read(&o);
	prompts_load(&o);
}

static void tick(void *arg, long finished, long tokens)
{
	struct progress *p = arg;
	double now = seconds_now();
	char note[64];

	snprintf(note, sizeof(note), "%.0f tokens/s", now > p->start ? (double)tokens / (now - p->start) : 0);
	progress_note(p, note);
	progress_add(p, (double)finished - p->done);
}

static void run(void)
{
	struct progress p;
	double start = seconds_now();
	struct gen_result *own = share_room(&o);

	progress_start(&p, "rollout", (double)(o.mines * o.how.samples), "samples");
	generate(own, &o.m, o.mine, o.mines, &o.how, &o.size, tick, &p);
	progress_end(&p);
	share_results(&o, own);
	o.seconds = seconds_now() - start;
	if (count_nonfinite(&o))
		log_warn("%ld samples ended because a logit was NaN or infinite; their finish_reason is nonfinite", count_nonfinite(&o));
}

static void report(int argc, char **argv, const struct ops *k)
{
	struct history_input in[] = { { "checkpoint", o.dir, o.c.weights_digest },
				      { "data", o.prompts.path, o.prompts.data } };
	struct history h;
	char fingerprint[17];

	if (o.out || o.jsonl) {
		start_history(&h, "rollout", argc, argv, o.r, &o.seed, in, 2, o.c.history);
		output_samples(&o, &h, fingerprint_text(fingerprint, k));
	}
	if (!start_is_first())
		return;
	if (o.text)
		output_text(&o);
	else if (!o.jsonl)
		output_line(&o);
}

int main(int argc, char **argv)
{
	const struct ops *k;
	long longest;

	tool_init(argv[0]);
	opt_parse(&tool, argc, argv, &o.dir, 1, 1);
	check_options();
	check_out();
	o.r = start_recipe();
	if (start_world()->size > 1 && o.prompts_file && !strcmp(o.prompts_file, "-"))
		die(EX_USAGE, "--prompts -: several ranks can not share standard input, wanted a file");
	load();
	k = start_ops();
	start_mesh_forward(&o.mesh, o.r, &o.cfg);
	share_prompts(&o);
	longest = o.prompts.longest + o.how.max_new < o.context ? o.prompts.longest + o.how.max_new : o.context;
	load_model(&o.m, &o.c, k, &o.mesh, start_precision(o.r, &o.c), longest, 0);
	memory_plan(&o);
	if (o.dry_run) {
		output_plan(&o);
		return tool_exit(EX_OK);
	}
	run();
	report(argc, argv, k);
	return tool_exit(EX_OK);
}
