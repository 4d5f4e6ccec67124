#include "tools/inspect/inspect.h"

#include "libcommon/file.h"
#include "libcommon/outdir.h"
#include "libcommon/xalloc.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct rank { long step; double metric; };      /* a higher metric is better */

/* Best first; ties, and steps without a metric: the newer first. */
static int better_first(const void *a, const void *b)
{
	const struct rank *x = a, *y = b;

	if (isnan(x->metric) != isnan(y->metric))
		return isnan(x->metric) ? 1 : -1;
	if (x->metric != y->metric && !isnan(x->metric))
		return x->metric > y->metric ? -1 : 1;
	return x->step > y->step ? -1 : 1;
}

/* By place in u->kept: step 0, where the run began, the newest, and of the multiples of save_period the keep_top_k best. */
static bool *kept_steps(const struct run *u)
{
	const long *step = u->kept.v, n = u->kept.n;
	long period = recipe_int(u->recipe, "checkpointing.save_period"), m = 0;
	bool all = recipe_is_null(u->recipe, "checkpointing.keep_top_k");
	long most = all ? n : recipe_int(u->recipe, "checkpointing.keep_top_k");
	double sign = recipe_bool(u->recipe, "checkpointing.higher_is_better") ? 1 : -1;
	struct rank *r = xmalloc(((size_t)n + 1) * sizeof(*r));
	bool *keep = xcalloc((size_t)n + 1, sizeof(bool));

	for (long i = 0; i < n; i++) {
		keep[i] = !step[i] || i == n - 1;
		if (step[i] && step[i] % period == 0)
			r[m++] = (struct rank){ step[i], all ? NAN : sign * run_metric(u, step[i]) };
	}
	qsort(r, (size_t)m, sizeof(*r), better_first);
	for (long k = 0; k < m && k < most; k++)
		for (long i = 0; i < n; i++)
			keep[i] |= step[i] == r[k].step;
	free(r);
	return keep;
}

enum { DEEPEST = 8 };

/* A link is removed, never followed.  What another process removes at the same time is gone too. */
static void remove_at(int parent, const char *name, const char *path, int depth)
{
	struct dirent *f;
	DIR *d;
	int fd;

	io_point("remove");
	if (!unlinkat(parent, name, 0) || errno == ENOENT)
		return;
	fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	d = fd < 0 || depth == DEEPEST ? NULL : fdopendir(fd);
	if (!d)
		die(EX_IOERR, "%s: cannot remove %s: %s", path, name, depth == DEEPEST ? "too many folders in folders" : strerror(errno));
	while ((f = readdir(d)))
		if (strcmp(f->d_name, ".") && strcmp(f->d_name, ".."))
			remove_at(fd, f->d_name, path, depth + 1);
	closedir(d);
	if (unlinkat(parent, name, AT_REMOVEDIR) && errno != ENOENT)
		die(EX_IOERR, "%s: cannot remove %s: %s", path, name, strerror(errno));
}

/* Its metrics stay, as step-N.json: the curve of a run does not depend on what is kept. */
static void remove_old(const char *old)
{
	char *metrics = path_join(old, "metrics.json"), *kept = xasprintf("%.*s.json", (int)strlen(old) - 4, old);
	struct stat st;

	if (!lstat(old, &st) && S_ISDIR(st.st_mode)) {
		io_point("rename");
		if (rename(metrics, kept) && errno != ENOENT)
			die(EX_IOERR, "%s: cannot rename: %s", metrics, strerror(errno));
	}
	remove_at(AT_FDCWD, old, old, 0);
	free(metrics);
	free(kept);
}

/* Renamed first, so that a removal that is killed leaves no half checkpoint under its name. */
static void remove_checkpoint(const char *dir)
{
	char *old = xasprintf("%s.old", dir);

	remove_old(old);
	io_point("rename");
	if (!rename(dir, old))
		remove_old(old);
	else if (errno != ENOENT)
		die(EX_IOERR, "%s: cannot rename: %s", dir, strerror(errno));
	free(old);
}

static bool ends_with(const char *s, const char *tail)
{
	size_t n = strlen(s), m = strlen(tail);

	return n > m && !strcmp(s + n - m, tail);
}

/* NAME.old of a clean that was killed, NAME.tmp (or only its lock) of a writer that is dead. */
static bool is_leftover(const char *path, bool dry_run)
{
	struct err e = ERR_INIT;
	char *dir;
	int rc;

	if (ends_with(path, ".old")) {
		if (!dry_run)
			remove_old(path);
		return true;
	}
	if (!ends_with(path, ".tmp") && !ends_with(path, ".tmp.lock"))
		return false;
	dir = xstrndup(path, strlen(path) - (ends_with(path, ".tmp") ? 4 : 9));
	rc = outdir_clear(dir, dry_run, &e);
	if (rc < 0)
		log_info("%s", e.msg);
	free(dir);
	return rc > 0;
}

static void put_leftovers(struct json_out *o, const struct run *u, const char *part, bool dry_run)
{
	char *sub = path_join(u->dir, part);
	DIR *d = opendir(sub);
	struct dirent *f;

	while (d && (f = readdir(d))) {
		char *path;

		if (strncmp(f->d_name, "step-", 5))
			continue;
		path = path_join(sub, f->d_name);
		if (is_leftover(path, dry_run))
			json_put_str(o, path);
		free(path);
	}
	if (d)
		closedir(d);
	free(sub);
}

void run_clean(const struct run *u, bool dry_run)
{
	struct json_out o = { 0 };
	bool *keep;

	if (!u->recipe)
		die(EX_NOINPUT, "%s: no recipe.yaml there, so nothing says what to keep", u->dir);
	keep = kept_steps(u);
	json_begin(&o, '{');
	json_key(&o, "removed");
	json_begin(&o, '[');
	for (long i = 0; i < u->kept.n; i++) {
		char *dir = run_path(u, "checkpoints", u->kept.v[i]);

		if (!keep[i])
			json_put_str(&o, dir);
		if (!keep[i] && !dry_run)
			remove_checkpoint(dir);
		free(dir);
	}
	json_end(&o);
	json_key(&o, "leftovers");
	json_begin(&o, '[');
	for (int p = 0; run_parts[p]; p++)
		put_leftovers(&o, u, run_parts[p], dry_run);
	json_end(&o);
	json_key(&o, "kept");
	json_begin(&o, '[');
	for (long i = 0; i < u->kept.n; i++)
		if (keep[i])
			json_put_int(&o, u->kept.v[i]);
	json_end(&o);
	json_end(&o);
	print_facts(&o, true);
	free(keep);
}
