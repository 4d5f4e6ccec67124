#ifndef TOOLS_INSPECT_INSPECT_H
#define TOOLS_INSPECT_INSPECT_H

/* The chapters of inspect: recipes (recipe.c), runs (run.c, run_files.c), checkpoints and samples (what.c,
 * tensor.c, show.c), their history (history.c). */

#include "libcommon/json.h"
#include "libcommon/opt.h"
#include "libcommon/recipe.h"

/* -- runs: checkpoints/step-%06d and what was made from them ------------------------------------------------ */

struct run {
	const char *dir;
	long *step; long n;             /* complete checkpoints, ascending; owned */
	struct recipe *recipe;          /* NULL: the run has none */
};

void run_open(struct run *u, const char *dir);
void run_release(struct run *u);
char *run_path(const struct run *u, const char *part, long step);       /* DIR/PART/step-000012; the caller frees */
/* Members of metrics.json of what was made at that step (samples, scored, checkpoints, validation) into an open object. */
void run_put_metrics(struct json_out *o, const struct run *u, long step);
/* The metric that retention and --best go by; NaN where that step has none. */
double run_metric(const struct run *u, long step);
long run_best(const struct run *u);     /* the step, or -1; ties: the newer */
void run_print_jsonl(const struct run *u);
void run_print_line(const struct run *u);
void run_print_table(const struct run *u);
/* Remove what retention does not keep; prints {"removed": [...]}. */
void run_clean(const struct run *u, bool dry_run);

/* -- the rest ------------------------------------------------------------------------------------------------- */

void print_recipe(const char *path, const char *get, bool json);
void print_checkpoint(const char *dir, bool json);
void print_samples(const char *dir, bool json);
void print_history(const char *dir);    /* follows parents that still exist */
void print_tensor(const char *dir, const char *name, const char *slot, bool json);
void show_samples(const char *dir, long n, bool best, bool worst);
/* 1 when they differ, with what differs on stdout. */
int diff_checkpoints(const char *one, const char *two);
int diff_samples(const char *one, const char *two);

#endif
