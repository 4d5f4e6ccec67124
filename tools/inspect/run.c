#include "tools/inspect/inspect.h"

#include "libcommon/file.h"
#include "libcommon/outdir.h"
#include "libcommon/xalloc.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

long run_best(const struct run *u)
{
	bool higher = !u->recipe || recipe_bool(u->recipe, "checkpointing.higher_is_better");
	double top = NAN;
	long best = -1;

	for (long i = 0; i < u->n; i++) {
		double v = run_metric(u, u->step[i]);

		if (isnan(v) || (best >= 0 && (higher ? v < top : v > top)))
			continue;
		best = u->step[i];
		top = v;
	}
	return best;
}

static char *metrics_line(const struct run *u, long step)
{
	struct json_out o = { 0 };

	json_begin(&o, '{');
	json_add_int(&o, "step", step);
	run_put_metrics(&o, u, step);
	json_end(&o);
	return str_detach(&o.s);
}

/* Steps that have left anything, not only a checkpoint that is still kept. */
static long last_step(const struct run *u)
{
	return u->n ? u->step[u->n - 1] : 0;
}

static bool has_anything(const struct run *u, long step)
{
	static const char *const parts[] = { "samples", "scored", "checkpoints", "validation" };
	bool found = false;

	for (int p = 0; p < 4; p++) {
		char *dir = run_path(u, parts[p], step), *json = xasprintf("%s.json", dir);

		found |= file_exists(dir) || file_exists(json);
		free(dir);
		free(json);
	}
	return found;
}

void run_print_jsonl(const struct run *u)
{
	for (long s = 0; s <= last_step(u); s++)
		if (has_anything(u, s)) {
			char *line = metrics_line(u, s);

			puts(line);
			free(line);
		}
}

static double number(const struct json_doc *d, const char *key)
{
	const struct json *v = json_get(&d->root, key);

	return json_is(v, JSON_NUMBER) ? strtod(v->text, NULL) : NAN;
}

static const struct { const char *key, *shown; } columns[] = {
	{ "train/reward", "reward" }, { "train/loss", "loss" }, { "train/grad_norm", "grad_norm" }, { "train/lr", "lr" },
	{ "train/generation_lengths", "length" }, { "validation/accuracy", "val accuracy" }, { "validation/val_loss", "val loss" },
};
enum { COLUMNS = sizeof(columns) / sizeof(*columns) };

void run_print_line(const struct run *u)
{
	char *line = metrics_line(u, last_step(u));
	struct json_doc d;
	struct err e = ERR_INIT;

	if (json_parse(&d, line, strlen(line), "metrics", 1, &e))
		die_err(&e);
	printf("step %ld", last_step(u));
	for (int i = 0; i < COLUMNS; i++)
		if (!isnan(number(&d, columns[i].key)))
			printf("  %s %.4g", columns[i].shown, number(&d, columns[i].key));
	putchar('\n');
	json_release(&d);
	free(line);
}

void run_print_table(const struct run *u)
{
	long last = last_step(u), first = last > 20 ? last - 20 : 0;

	printf("%s: %ld checkpoints kept, the newest of step %ld\n%8s", u->dir, u->n, last, "step");
	for (int i = 0; i < COLUMNS; i++)
		printf(" %13s", columns[i].shown);
	putchar('\n');
	for (long s = first; s <= last; s++) {
		char *line = metrics_line(u, s);
		struct json_doc d;
		struct err e = ERR_INIT;

		if (json_parse(&d, line, strlen(line), "metrics", 1, &e))
			die_err(&e);
		if (d.root.n > 1) {
			printf("%8ld", s);
			for (int i = 0; i < COLUMNS; i++)
				if (isnan(number(&d, columns[i].key)))
					printf(" %13s", "");
				else
					printf(" %13.6g", number(&d, columns[i].key));
			putchar('\n');
		}
		json_release(&d);
		free(line);
	}
}

/* -- retention --------------------------------------------------------------------------------------------------- */

struct rank { long step; double metric; };

static int worse_last(const void *a, const void *b)
{
	const struct rank *x = a, *y = b;

	if (isnan(x->metric) != isnan(y->metric))
		return isnan(x->metric) ? 1 : -1;
	if (x->metric != y->metric && !isnan(x->metric))
		return x->metric > y->metric ? -1 : 1;
	return x->step > y->step ? -1 : 1; /* ties, and steps without a metric: the newer first */
}

/* step 0 (the reference), the newest, and of the multiples of save_period the keep_top_k best. */
static bool *kept_steps(const struct run *u)
{
	long period = u->recipe ? recipe_int(u->recipe, "checkpointing.save_period") : 1, m = 0;
	bool all = !u->recipe || recipe_is_null(u->recipe, "checkpointing.keep_top_k");
	bool higher = !u->recipe || recipe_bool(u->recipe, "checkpointing.higher_is_better");
	struct rank *r = xmalloc(((size_t)u->n + 1) * sizeof(*r));
	bool *keep = xcalloc((size_t)u->n + 1, sizeof(bool));
	long most = all ? u->n : recipe_int(u->recipe, "checkpointing.keep_top_k");

	for (long i = 0; i < u->n; i++) {
		keep[i] = !u->step[i] || i == u->n - 1;
		if (u->step[i] && u->step[i] % period == 0)
			r[m++] = (struct rank){ u->step[i], run_metric(u, u->step[i]) * (higher ? 1 : -1) };
	}
	qsort(r, (size_t)m, sizeof(*r), worse_last);
	for (long k = 0; k < m && k < most; k++)
		for (long i = 0; i < u->n; i++)
			keep[i] |= u->step[i] == r[k].step;
	free(r);
	return keep;
}

/* Plain files and one level of folders; a link is removed, never followed. */
static void remove_dir(const char *dir)
{
	DIR *d = opendir(dir);
	struct dirent *f;

	while (d && (f = readdir(d))) {
		char *path;

		if (!strcmp(f->d_name, ".") || !strcmp(f->d_name, ".."))
			continue;
		path = path_join(dir, f->d_name);
		io_point("remove");
		if (unlink(path) && (errno == EISDIR || errno == EPERM))
			remove_dir(path);
		free(path);
	}
	if (d)
		closedir(d);
	if (rmdir(dir))
		die(EX_IOERR, "%s: cannot remove: %s", dir, strerror(errno));
}

/*
 * A checkpoint under its name with .old, so that a removal that is killed leaves no half one under its name.  Its metrics
 * stay, as step-N.json: the curve of a run does not depend on what is kept.
 */
static void remove_old(const char *old)
{
	char *metrics = path_join(old, "metrics.json"), *kept = xasprintf("%.*s.json", (int)strlen(old) - 4, old);

	if (file_exists(metrics)) {
		io_point("rename");
		if (rename(metrics, kept))
			die(EX_IOERR, "%s: cannot rename: %s", metrics, strerror(errno));
	}
	remove_dir(old);
	free(metrics);
	free(kept);
}

/* What a removal that was killed has left. */
static void remove_leftovers(const struct run *u)
{
	char *sub = path_join(u->dir, "checkpoints");
	DIR *d = opendir(sub);
	struct dirent *f;

	while (d && (f = readdir(d))) {
		size_t n = strlen(f->d_name);
		char *path = path_join(sub, f->d_name);

		if (n > 9 && !strncmp(f->d_name, "step-", 5) && !strcmp(f->d_name + n - 4, ".old"))
			remove_old(path);
		free(path);
	}
	if (d)
		closedir(d);
	free(sub);
}

void run_clean(const struct run *u, bool dry_run)
{
	bool *keep = kept_steps(u);
	struct json_out o = { 0 };

	if (!dry_run)
		remove_leftovers(u);
	json_begin(&o, '{');
	json_key(&o, "removed");
	json_begin(&o, '[');
	for (long i = 0; i < u->n; i++) {
		char *dir, *old;

		if (keep[i])
			continue;
		dir = run_path(u, "checkpoints", u->step[i]);
		old = xasprintf("%s.old", dir);
		json_put_str(&o, dir);
		if (!dry_run) {
			io_point("rename");
			if (rename(dir, old))
				die(EX_IOERR, "%s: cannot rename: %s", dir, strerror(errno));
			remove_old(old);
		}
		free(dir);
		free(old);
	}
	json_end(&o);
	json_end(&o);
	puts(o.s.s);
	json_out_release(&o);
	free(keep);
}
