/*
 * inspect - look at, verify, compare or dump what the programs read and make
 */
#include "tools/inspect/inspect.h"

#include "libcommon/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
	bool json, jsonl, verify, history, layout, diff, latest, best, worst, clean, line, step, dry_run;
	const char *get, *explain, *tensor, *slot;
	long show;
} o = { .show = -1 };

static const struct opt table[] = {
	OPT_FLAG(0, "json", &o.json, "one JSON object (--history, --diff: one a line)"),
	OPT_FLAG(0, "jsonl", &o.jsonl, "of samples: one a line; of a run: the metrics of each step"),
	OPT_LONG(0, "show", &o.show, "N", "N samples to read: prompt, response, reward"),
	OPT_FLAG(0, "best", &o.best, "with --show: of highest reward first; of a run: the best checkpoint"),
	OPT_FLAG(0, "worst", &o.worst, "with --show: of lowest reward first"),
	OPT_FLAG(0, "history", &o.history, "what made it, and what made that, as far as it is still there"),
	OPT_FLAG(0, "verify", &o.verify, "read every byte and check it"),
	OPT_FLAG(0, "layout", &o.layout, "in which layout a checkpoint lies, and which file holds what"),
	OPT_STR(0, "tensor", &o.tensor, "NAME", "type, shape, boxes, statistics, first values"),
	OPT_STR(0, "slot", &o.slot, "SLOT", "with --tensor: master, exp_avg, ...; the weight if not given"),
	OPT_FLAG(0, "diff", &o.diff, "two checkpoints or sets of samples: what differs; status 1 if any"),
	OPT_HEADING("Of a recipe:"),
	OPT_STR(0, "get", &o.get, "KEY", "one value, bare; nothing for null"),
	OPT_STR(0, "explain", &o.explain, "KEY", "what a key means; no PATH needed"),
	OPT_HEADING("Of a run:"),
	OPT_FLAG(0, "latest", &o.latest, "path of the newest complete checkpoint"),
	OPT_FLAG(0, "step", &o.step, "with --latest or --best: its step instead"),
	OPT_FLAG(0, "line", &o.line, "the newest step in one line"),
	OPT_FLAG(0, "clean", &o.clean, "remove the checkpoints that the recipe does not keep"),
	OPT_FLAG(0, "dry-run", &o.dry_run, "with --clean: only say which"),
	OPT_END
};

static const struct tool tool = {
	"inspect", "look at, verify, compare or dump what the programs read and make",
	"PATH [options] [key=value ...] | --diff A B | --explain KEY", table, true
};

enum kind { RECIPE = 1, CHECKPOINT = 2, SAMPLES = 4, RUN = 8, FOREIGN = 16 };

static const char *kind_name(enum kind k)
{
	return k == RECIPE ? "a recipe" : k == CHECKPOINT ? "a checkpoint" : k == SAMPLES ? "samples" : k == RUN ? "a run" : "a model file";
}

static bool has_suffix(const char *path, const char *tail)
{
	size_t n = strlen(path), m = strlen(tail);

	return n > m && !strcmp(path + n - m, tail);
}

/* A checkpoint or samples that lost the manifest; the recipe in it makes it no run. */
static bool has_shards(const char *dir)
{
	static const char *const name[] = { "index.h5", "samples-0000.h5" };
	bool found = false;

	for (int i = 0; i < 2; i++) {
		char *path = path_join(dir, name[i]);

		found |= file_exists(path);
		free(path);
	}
	return found;
}

static enum kind kind_of(const char *path)
{
	char *manifest;
	bool made;

	if (!file_exists(path))
		die(EX_NOINPUT, "%s: no such file or directory", path);
	if (!file_is_dir(path))
		return is_foreign(path) ? FOREIGN : has_suffix(path, ".jsonl") ? SAMPLES : RECIPE;
	manifest = path_join(path, "manifest.json");
	made = file_exists(manifest);
	free(manifest);
	/* A manifest that is damaged beyond its kind is a checkpoint's until reading it says what is wrong. */
	if (made)
		return manifest_kind(path) && !strcmp(manifest_kind(path), "samples") ? SAMPLES : CHECKPOINT;
	if (has_shards(path))
		die(EX_DATAERR, "%s: found shards but no manifest.json, wanted a whole checkpoint or set of samples", path);
	if (is_run(path))
		return RUN;
	if (is_foreign(path))
		return FOREIGN;
	die(EX_DATAERR, "%s: found no manifest.json, recipe.yaml, checkpoints or config.json in it, wanted a checkpoint, samples, a run "
	    "or a Hugging Face folder", path);
}

/* Which options say something about what. */
static void check_options(const char *path, enum kind k)
{
	const struct { bool given; const char *name; int good; } use[] = {
		{ o.jsonl, "--jsonl", SAMPLES | RUN },
		{ o.show >= 0, "--show", SAMPLES },
		{ o.best, "--best", o.show >= 0 ? SAMPLES : RUN },
		{ o.worst, "--worst", o.show >= 0 ? SAMPLES : 0 },
		{ o.history, "--history", CHECKPOINT | SAMPLES },
		{ o.verify, "--verify", CHECKPOINT | SAMPLES },
		{ o.layout, "--layout", CHECKPOINT },
		{ o.tensor, "--tensor", CHECKPOINT },
		{ o.slot, "--slot", o.tensor ? CHECKPOINT : 0 },
		{ o.get, "--get", RECIPE },
		{ o.latest, "--latest", RUN },
		{ o.step, "--step", o.latest || o.best ? RUN : 0 },
		{ o.line, "--line", RUN },
		{ o.clean, "--clean", RUN },
		{ o.dry_run, "--dry-run", o.clean ? RUN : 0 },
		{ common.overrides.n > 0, "key=value", RECIPE | RUN },
		{ common.unset.n > 0, "--unset", RECIPE | RUN },
		{ common.recipe, "-c", 0 },
	};
	int verbs = o.jsonl + (o.show >= 0) + o.history + o.verify + o.layout + !!o.tensor + !!o.get + o.latest +
		    (o.best && o.show < 0) + o.line + o.clean;

	for (size_t i = 0; i < sizeof(use) / sizeof(*use); i++)
		if (use[i].given && !(use[i].good & k))
			die(EX_USAGE, "%s: %s has no meaning here%s%s", path, use[i].name, use[i].good ? ": found " : "",
			    use[i].good ? kind_name(k) : "");
	if (verbs > 1)
		die(EX_USAGE, "%s: found %d things to do, wanted one", path, verbs);
	if (o.best && o.worst)
		die(EX_USAGE, "%s: found --best and --worst, wanted one of them", path);
}

static void print_step(const struct run *u, long step)
{
	char *path;

	if (step < 0)
		die(1, "%s: no checkpoint%s", u->dir, o.best ? " has the metric" : "");
	path = run_path(u, "checkpoints", step);
	if (o.step)
		printf("%ld\n", step);
	else
		print_raw(path, strlen(path));
	free(path);
}

static void show_run(const char *path)
{
	struct run u;

	run_open(&u, path);
	if (o.latest)
		print_step(&u, u.kept.n ? u.kept.v[u.kept.n - 1] : -1);
	else if (o.best)
		print_step(&u, run_best(&u));
	else if (o.clean)
		run_clean(&u, o.dry_run);
	else if (o.line)
		run_print_line(&u);
	else if (o.jsonl)
		run_print_jsonl(&u);
	else
		run_print(&u, o.json);
	run_release(&u);
}

static void show(const char *path, enum kind k)
{
	if (k == RUN)
		show_run(path);
	else if (k == RECIPE)
		print_recipe(path, o.get, o.json);
	else if (k == FOREIGN)
		print_foreign(path, o.json);
	else if (o.verify && file_is_dir(path))
		verify_files(path, k == SAMPLES ? "samples" : "model", o.json);
	else if (o.history && file_is_dir(path))
		print_history(path, o.json);
	else if (o.verify || o.history)
		die(EX_USAGE, "%s: JSON lines have neither checksums nor a history", path);
	else if (o.layout)
		print_layout(path, o.json);
	else if (o.tensor)
		print_tensor(path, o.tensor, o.slot ? o.slot : "weight", o.json);
	else if (o.show >= 0)
		show_samples(path, o.show, o.best ? SHOW_BEST : o.worst ? SHOW_WORST : SHOW_FIRST);
	else if (o.jsonl)
		print_samples_jsonl(path);
	else if (k == SAMPLES)
		print_samples(path, o.json);
	else
		print_checkpoint(path, o.json);
}

static int diff(const char *a, const char *b)
{
	enum kind k = kind_of(a), l = kind_of(b);

	if (k != l || !(k & (CHECKPOINT | SAMPLES)))
		die(EX_USAGE, "--diff: found %s (%s) and %s (%s), wanted two checkpoints or two sets of samples", a, kind_name(k), b,
		    kind_name(l));
	return k == SAMPLES ? diff_samples(a, b, o.json) : diff_checkpoints(a, b, o.json);
}

int main(int argc, char **argv)
{
	const char *args[2] = { NULL };
	enum kind k;
	int n;

	tool_init(argv[0]);
	n = opt_parse(&tool, argc, argv, args, 0, 2);
	if (o.explain && !n) {
		explain_key(o.explain);
		return tool_exit(EX_OK);
	}
	if (!n || o.explain)
		die(EX_USAGE, n ? "--explain takes no PATH" : "PATH is missing: what to look at");
	if (o.diff != (n == 2))
		die(EX_USAGE, "%s", o.diff ? "--diff wants two paths" : "two paths only make sense with --diff");
	if (o.diff)
		return tool_exit(diff(args[0], args[1]));
	k = kind_of(args[0]);
	check_options(args[0], k);
	show(args[0], k);
	return tool_exit(EX_OK);
}
