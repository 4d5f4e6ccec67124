/*
 * inspect - look at, verify, compare, explain or dump a checkpoint, samples, a run or a recipe
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
	bool json, jsonl, verify, latest, best, clean, line, step, dry_run;
	const char *get, *explain;
} o;

static const struct opt table[] = {
	OPT_FLAG(0, "json", &o.json, "as one JSON object"),
	OPT_FLAG(0, "jsonl", &o.jsonl, "samples one a line; of a run: the metrics of each step"),
	OPT_FLAG(0, "verify", &o.verify, "read every byte and check it"),
	OPT_STR(0, "get", &o.get, "KEY", "of a recipe: one value, bare"),
	OPT_STR(0, "explain", &o.explain, "KEY", "what a key of a recipe means; no PATH needed"),
	OPT_HEADING("Of a run:"),
	OPT_FLAG(0, "latest", &o.latest, "the newest complete checkpoint"),
	OPT_FLAG(0, "best", &o.best, "the best by checkpointing.metric_name"),
	OPT_FLAG(0, "step", &o.step, "with --latest or --best: only its step"),
	OPT_FLAG(0, "line", &o.line, "the newest step in one line"),
	OPT_FLAG(0, "clean", &o.clean, "remove the checkpoints that retention does not keep"),
	OPT_FLAG(0, "dry-run", &o.dry_run, "with --clean: only say which"),
	OPT_END
};

static const struct tool tool = {
	"inspect", "look at, verify, explain or dump a checkpoint, samples, a run or a recipe", "PATH [options] [key=value ...]", table, true
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

int main(int argc, char **argv)
{
	const char *args[1] = { NULL }, *kind;

	tool_init(argv[0]);
	int n = opt_parse(&tool, argc, argv, args, 0, 1);
	if (o.explain) {
		explain();
		return tool_exit(EX_OK);
	}
	if (!n)
		die(EX_USAGE, "PATH is missing: what to look at");
	if (!file_exists(args[0]))
		die(EX_NOINPUT, "%s: no such file or directory", args[0]);
	if (!file_is_dir(args[0])) {
		print_recipe(args[0], o.get, o.json);
		return tool_exit(EX_OK);
	}
	kind = manifest_kind(args[0]);
	if (!kind && is_run(args[0]))
		show_run(args[0]);
	else if (!kind)
		die(EX_DATAERR, "%s: neither a manifest.json nor a folder `checkpoints`, wanted a checkpoint, samples or a run", args[0]);
	else if (o.verify)
		verify(args[0], kind);
	else if (!strcmp(kind, "samples") && o.jsonl)
		print_samples_jsonl(args[0]);
	else if (!strcmp(kind, "samples"))
		print_samples(args[0], o.json);
	else
		print_checkpoint(args[0], o.json);
	return tool_exit(EX_OK);
}
