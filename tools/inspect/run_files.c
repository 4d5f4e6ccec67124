#include "tools/inspect/inspect.h"

#include "libcommon/file.h"
#include "libcommon/xalloc.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char *run_path(const struct run *u, const char *part, long step)
{
	return xasprintf("%s/%s/step-%06ld", u->dir, part, step);
}

static int ascending(const void *a, const void *b)
{
	long x = *(const long *)a, y = *(const long *)b;

	return x < y ? -1 : x > y;
}

void run_open(struct run *u, const char *dir)
{
	char *sub = path_join(dir, "checkpoints"), *recipe = path_join(dir, "recipe.yaml");
	DIR *d = opendir(sub);
	struct dirent *f;
	struct err e = ERR_INIT;
	long cap = 0;

	memset(u, 0, sizeof(*u));
	u->dir = dir;
	if (!d)
		die(EX_NOINPUT, "%s: no folder `checkpoints`, wanted a run", dir);
	while ((f = readdir(d))) {
		char *end, *manifest = xasprintf("%s/%s/manifest.json", sub, f->d_name);
		long step = strncmp(f->d_name, "step-", 5) ? -1 : strtol(f->d_name + 5, &end, 10);

		if (step >= 0 && end > f->d_name + 5 && !*end && file_exists(manifest)) {
			GROW(u->step, u->n, cap);
			u->step[u->n++] = step;
		}
		free(manifest);
	}
	closedir(d);
	if (u->n)
		qsort(u->step, (size_t)u->n, sizeof(long), ascending);
	if (file_exists(recipe) && recipe_load(&u->recipe, recipe, NULL, 0, NULL, 0, &e))
		die_err(&e);
	free(sub);
	free(recipe);
}

void run_release(struct run *u)
{
	free(u->step);
	recipe_free(u->recipe);
}

/* What a later stage says of the same name counts. */
void run_put_metrics(struct json_out *o, const struct run *u, long step)
{
	static const char *const parts[] = { "samples", "scored", "checkpoints", "validation" };
	struct str seen = { 0 };

	for (int p = 3; p >= 0; p--) {
		/* Of a checkpoint that is gone, and of supervised validation, only the metrics are there. */
		char *dir = run_path(u, parts[p], step);
		char *path = file_is_dir(dir) ? path_join(dir, "metrics.json") : xasprintf("%s.json", dir);
		struct json_doc d;
		struct err e = ERR_INIT;

		if (file_exists(path)) {
			if (json_read(&d, path, 1 << 20, &e))
				die_err(&e);
			for (size_t i = 0; json_is(&d.root, JSON_OBJECT) && i < d.root.n; i++) {
				const struct json_member *m = d.root.member + i;
				char *mark = xasprintf("\n%s\n", m->key);

				if (strcmp(m->key, "step") && !(seen.s && strstr(seen.s, mark))) {
					str_puts(&seen, mark);
					json_key(o, m->key);
					json_put(o, &m->value);
				}
				free(mark);
			}
			json_release(&d);
		}
		free(dir);
		free(path);
	}
	str_release(&seen);
}

/* "val:accuracy" -> "validation/accuracy"; "train:reward" -> "train/reward"; v0.3's bare names are validation's. */
static char *metric_key(const char *name)
{
	if (!strncmp(name, "val:", 4))
		return xasprintf("validation/%s", name + 4);
	if (!strncmp(name, "train:", 6))
		return xasprintf("train/%s", name + 6);
	if (!strncmp(name, "val_reward", 10))
		return xstrdup("validation/accuracy");
	return xasprintf("validation/%s", strncmp(name, "val_", 4) || !strcmp(name, "val_loss") ? name : name + 4);
}

double run_metric(const struct run *u, long step)
{
	const char *name = u->recipe ? recipe_str(u->recipe, "checkpointing.metric_name") : NULL;
	struct json_out o = { 0 };
	struct json_doc d;
	struct err e = ERR_INIT;
	double v = NAN;
	char *key;

	if (!name)
		return NAN;
	key = metric_key(name);
	json_begin(&o, '{');
	run_put_metrics(&o, u, step);
	json_end(&o);
	if (json_parse(&d, o.s.s, o.s.len, "metrics", 1, &e))
		die_err(&e);
	if (json_is(json_get(&d.root, key), JSON_NUMBER))
		v = strtod(json_get(&d.root, key)->text, NULL);
	json_release(&d);
	json_out_release(&o);
	free(key);
	return v;
}
