#include "tools/inspect/inspect.h"

#include "libcommon/file.h"
#include "libcommon/xalloc.h"

#include <ctype.h>
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const run_parts[] = { "samples", "scored", "checkpoints", "validation", NULL };
enum { PARTS = 4, METRICS_MOST = 16 << 20 };

char *run_path(const struct run *u, const char *part, long step)
{
	return xasprintf("%s/%s/step-%06ld", u->dir, part, step);
}

bool is_run(const char *dir)
{
	char *sub = path_join(dir, "checkpoints"), *recipe = path_join(dir, "recipe.yaml");
	bool yes = file_is_dir(sub) || file_exists(recipe);

	free(sub);
	free(recipe);
	return yes;
}

/* The number in exactly "step-%06d" with `tail` behind it, or -1. */
static long step_of(const char *name, const char *tail)
{
	char again[64], *end;
	long step;

	if (strncmp(name, "step-", 5) || !isdigit((unsigned char)name[5]) || strlen(name) > 40)
		return -1;
	step = strtol(name + 5, &end, 10);
	if (strcmp(end, tail))
		return -1;
	snprintf(again, sizeof(again), "step-%06ld%s", step, tail);
	return strcmp(name, again) ? -1 : step;
}

static void add_step(struct steps *s, long step)
{
	GROW(s->v, s->n, s->cap);
	s->v[s->n++] = step;
}

static int ascending(const void *a, const void *b)
{
	long x = *(const long *)a, y = *(const long *)b;

	return x < y ? -1 : x > y;
}

static void sort_steps(struct steps *s)
{
	long n = 0;

	if (s->n)
		qsort(s->v, (size_t)s->n, sizeof(long), ascending);
	for (long i = 0; i < s->n; i++)
		if (!n || s->v[n - 1] != s->v[i])
			s->v[n++] = s->v[i];
	s->n = n;
}

/*
 * Complete means: the manifest is there.  Of a checkpoint that retention removed, and of a validation of supervised learning,
 * there are only the metrics, as step-N.json.
 */
static void read_part(struct run *u, const char *part)
{
	char *sub = path_join(u->dir, part);
	DIR *d = opendir(sub);
	struct dirent *f;

	while (d && (f = readdir(d))) {
		long step = step_of(f->d_name, ""), alone = step_of(f->d_name, ".json");
		char *manifest = xasprintf("%s/%s/manifest.json", sub, f->d_name);

		if (step >= 0 && file_exists(manifest)) {
			add_step(&u->all, step);
			if (!strcmp(part, "checkpoints"))
				add_step(&u->kept, step);
		} else if (alone >= 0) {
			add_step(&u->all, alone);
		}
		free(manifest);
	}
	if (d)
		closedir(d);
	free(sub);
}

void run_open(struct run *u, const char *dir)
{
	char *recipe = path_join(dir, "recipe.yaml");
	struct err e = ERR_INIT;

	*u = (struct run){ .dir = dir };
	for (int p = 0; run_parts[p]; p++)
		read_part(u, run_parts[p]);
	sort_steps(&u->kept);
	sort_steps(&u->all);
	if (file_exists(recipe)) {
		if (recipe_load(&u->recipe, recipe, common.overrides.v, common.overrides.n, common.unset.v, common.unset.n, &e))
			die_err(&e);
	} else if (common.overrides.n || common.unset.n) {
		die(EX_NOINPUT, "%s: no recipe.yaml there, so there is nothing to override", dir);
	}
	free(recipe);
}

void run_release(struct run *u)
{
	free(u->kept.v);
	free(u->all.v);
	recipe_free(u->recipe);
}

/*
 * False where that part has none of that step.  What the run began from may have metrics of its own, but of another run.
 */
static bool read_metrics(struct json_doc *d, const struct run *u, const char *part, long step)
{
	char *dir = run_path(u, part, step), *path = path_join(dir, "metrics.json");
	struct err e = ERR_INIT;
	bool there;

	if (!file_is_dir(dir)) {
		free(path);
		path = xasprintf("%s.json", dir);
	}
	there = file_exists(path) && (step || strcmp(part, "checkpoints"));
	if (there && json_read(d, path, METRICS_MOST, &e))
		die_err(&e);
	if (there && !json_is(&d->root, JSON_OBJECT))
		die(EX_DATAERR, "%s: found %s, wanted an object of metrics", path, json_type_name(&d->root));
	free(dir);
	free(path);
	return there;
}

/* The step is the directory's; what a later part says of the same name counts. */
void run_put_metrics(struct json_out *o, const struct run *u, long step)
{
	struct json_doc d[PARTS] = { 0 };
	bool there[PARTS];

	for (int p = 0; p < PARTS; p++)
		there[p] = read_metrics(&d[p], u, run_parts[p], step);
	json_begin(o, '{');
	json_add_int(o, "step", step);
	for (int p = 0; p < PARTS; p++) {
		for (size_t i = 0; there[p] && i < d[p].root.n; i++) {
			const struct json_member *m = d[p].root.member + i;
			bool later = !strchr(m->key, '/');

			for (int q = p + 1; q < PARTS; q++)
				later |= there[q] && json_get(&d[q].root, m->key);
			if (!later && strlen(m->key) == m->keylen) {
				json_key(o, m->key);
				json_put(o, &m->value);
			}
		}
	}
	json_end(o);
	for (int p = 0; p < PARTS; p++)
		if (there[p])
			json_release(&d[p]);
}

/* The first of its names that the step has: today's `val:x` and `train:x`, or a bare name of v0.3. */
static const struct json *find_metric(const struct json *metrics, const char *name)
{
	static const struct { const char *prefix, *as; } spelt[] = {
		{ "val:", "validation/" }, { "train:", "train/" }, { "val_", "validation/" }, { "train_", "train/" }, { "", "validation/" },
	};
	const struct json *v = NULL;

	for (size_t i = 0; !v && i < sizeof(spelt) / sizeof(*spelt); i++) {
		size_t n = strlen(spelt[i].prefix);
		char *key;

		if (strncmp(name, spelt[i].prefix, n))
			continue;
		key = xasprintf("%s%s", spelt[i].as, name + n);
		v = json_get(metrics, key);
		free(key);
		if (strchr(spelt[i].prefix, ':'))
			return v;
	}
	/* v0.3 calls the mean reward of a validation its accuracy. */
	return v || strcmp(name, "val_reward") ? v : json_get(metrics, "validation/accuracy");
}

double run_metric(const struct run *u, long step)
{
	const char *name = u->recipe ? recipe_str(u->recipe, "checkpointing.metric_name") : NULL;
	struct json_out o = { 0 };
	struct json_doc d;
	struct err e = ERR_INIT;
	const struct json *v;
	double value;

	if (!name)
		return NAN;
	run_put_metrics(&o, u, step);
	if (json_parse(&d, o.s.s, o.s.len, "metrics", 1, &e))
		die_err(&e);
	v = find_metric(&d.root, name);
	value = json_is(v, JSON_NUMBER) ? strtod(v->text, NULL) : NAN;
	json_release(&d);
	json_out_release(&o);
	return isfinite(value) ? value : NAN;
}
