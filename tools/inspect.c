/*
 * inspect - look at, verify, compare or dump what the programs read and make
 */
#include "tools/inspect/inspect.h"

#include "formats/checkpoint.h"
#include "formats/samples.h"
#include "libcommon/file.h"
#include "libcommon/xalloc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
	bool json, jsonl, verify, history, diff, latest, best, worst, clean, line, step, dry_run;
	const char *get, *explain, *tensor, *slot;
	long show;
} o = { .slot = "weight" };

static const struct opt table[] = {
	OPT_FLAG(0, "json", &o.json, "as one JSON object"),
	OPT_FLAG(0, "jsonl", &o.jsonl, "samples one a line; of a run: the metrics of each step"),
	OPT_FLAG(0, "verify", &o.verify, "read every byte and check it"),
	OPT_FLAG(0, "history", &o.history, "what made it, and what made that, as far as it is still there"),
	OPT_STR(0, "tensor", &o.tensor, "NAME", "of a checkpoint: type, shape, boxes, statistics of one tensor"),
	OPT_STR(0, "slot", &o.slot, "SLOT", "with --tensor: weight, master, exp_avg, exp_avg_sq"),
	OPT_LONG(0, "show", &o.show, "N", "N samples to read; with --best or --worst by reward"),
	OPT_FLAG(0, "diff", &o.diff, "of two checkpoints or two sets of samples: what differs; 1 if anything does"),
	OPT_STR(0, "get", &o.get, "KEY", "of a recipe: one value, bare"),
	OPT_STR(0, "explain", &o.explain, "KEY", "what a key of a recipe means; no PATH needed"),
	OPT_HEADING("Of a run:"),
	OPT_FLAG(0, "latest", &o.latest, "the newest complete checkpoint"),
	OPT_FLAG(0, "best", &o.best, "the best by checkpointing.metric_name"),
	OPT_FLAG(0, "worst", &o.worst, "with --show"),
	OPT_FLAG(0, "step", &o.step, "with --latest or --best: only its step"),
	OPT_FLAG(0, "line", &o.line, "the newest step in one line"),
	OPT_FLAG(0, "clean", &o.clean, "remove the checkpoints that retention does not keep"),
	OPT_FLAG(0, "dry-run", &o.dry_run, "with --clean: only say which"),
	OPT_END
};

static const struct tool tool = {
	"inspect", "look at, verify, compare or dump what the programs read and make",
	"PATH [options] [key=value ...] | --diff A B | --explain KEY", table, true
};

static bool is_run(const char *path)
{
	char *sub = path_join(path, "checkpoints");
	bool yes = file_is_dir(sub);

	free(sub);
	return yes;
}

static void print_step(const struct run *u, long step)
{
	char *path = run_path(u, "checkpoints", step < 0 ? 0 : step);

	if (step < 0)
		die(1, "%s: no checkpoint%s", u->dir, o.best ? " has the metric" : "");
	if (o.step)
		printf("%ld\n", step);
	else
		puts(path);
	free(path);
}

static void show_run(const char *path)
{
	struct run u;

	run_open(&u, path);
	if (o.latest)
		print_step(&u, u.n ? u.step[u.n - 1] : -1);
	else if (o.best)
		print_step(&u, run_best(&u));
	else if (o.clean)
		run_clean(&u, o.dry_run);
	else if (o.line)
		run_print_line(&u);
	else if (o.jsonl || o.json)
		run_print_jsonl(&u);
	else
		run_print_table(&u);
	run_release(&u);
}

static void verify(const char *path, const char *kind)
{
	struct checkpoint c;
	struct err e = ERR_INIT;

	if (!strcmp(kind, "samples")) {
		if (samples_verify(path, true, &e))
			die_err(&e);
	} else if (checkpoint_open(&c, path, &e) || checkpoint_verify(&c, true, &e)) {
		die_err(&e);
	} else {
		checkpoint_close(&c);
	}
	printf("%s: every byte is as its manifest says\n", path);
}

static void print_samples_jsonl(const char *path)
{
	struct samples s = { 0 };
	struct err e = ERR_INIT;

	if (samples_read(&s, path, &e) || samples_write_jsonl("-", &s, &e))
		die_err(&e);
	samples_release(&s);
}

static void explain(void)
{
	struct str text = { 0 };
	struct err e = ERR_INIT;

	if (recipe_explain(&text, o.explain, &e))
		die_err(&e);
	fputs(text.s, stdout);
}

static int diff(const char *a, const char *b)
{
	const char *ka = manifest_kind(a), *kb = manifest_kind(b);

	if (!ka || !kb || strcmp(ka, kb))
		die(EX_DATAERR, "%s and %s: wanted two checkpoints or two sets of samples", a, b);
	return strcmp(ka, "samples") ? diff_checkpoints(a, b) : diff_samples(a, b);
}

static void show_made(const char *path, const char *kind)
{
	bool samples = !strcmp(kind, "samples");

	if (o.verify)
		verify(path, kind);
	else if (o.history)
		print_history(path);
	else if (o.tensor && !samples)
		print_tensor(path, o.tensor, o.slot, o.json);
	else if (o.show && samples)
		show_samples(path, o.show, o.best, o.worst);
	else if (o.jsonl && samples)
		print_samples_jsonl(path);
	else if (samples)
		print_samples(path, o.json);
	else
		print_checkpoint(path, o.json);
}

int main(int argc, char **argv)
{
	const char *args[2] = { NULL }, *kind;

	tool_init(argv[0]);
	int n = opt_parse(&tool, argc, argv, args, 0, 2);
	if (o.explain) {
		explain();
		return tool_exit(EX_OK);
	}
	if (!n)
		die(EX_USAGE, "PATH is missing: what to look at");
	for (int i = 0; i < n; i++)
		if (!file_exists(args[i]))
			die(EX_NOINPUT, "%s: no such file or directory", args[i]);
	if (o.diff != (n == 2))
		die(EX_USAGE, "--diff wants two paths, everything else one");
	if (o.diff)
		return tool_exit(diff(args[0], args[1]));
	kind = file_is_dir(args[0]) ? manifest_kind(args[0]) : NULL;
	if (!file_is_dir(args[0]))
		print_recipe(args[0], o.get, o.json);
	else if (kind)
		show_made(args[0], kind);
	else if (is_run(args[0]))
		show_run(args[0]);
	else
		die(EX_DATAERR, "%s: neither a manifest.json nor a folder `checkpoints`, wanted a checkpoint, samples or a run", args[0]);
	return tool_exit(EX_OK);
}
