#ifndef TOOLS_INSPECT_INSPECT_H
#define TOOLS_INSPECT_INSPECT_H

/*
 * The chapters of inspect: print.c (nothing that reaches a terminal moves its cursor), recipe.c, run.c with run_files.c and
 * run_clean.c, checkpoint.c, layout.c, tensor.c, samples.c, show.c, history.c, diff.c, foreign.c (safetensors, GGUF, Hugging Face folders).
 * All of them end the program on failure.
 */

#include "formats/checkpoint.h"
#include "formats/samples.h"
#include "libcommon/json.h"
#include "libcommon/opt.h"
#include "libcommon/recipe.h"

/* -- printing ---------------------------------------------------------------------------------------------- */

/* Control characters, also C1, DEL and marks of direction, as \xNN or \uNNNN; `lines`: line breaks and tabs stay. */
void add_safe(struct str *out, const char *s, size_t n, bool lines);
void print_safe(const char *s, size_t n);       /* with lines */
/* A line for scripts, the bytes as they are; on a terminal what is safe to show. */
void print_raw(const char *s, size_t n);
/* JSON as it is, but with such characters in its strings as \uNNNN. */
void print_json_text(const char *s, size_t n);
/* One object: as a line of JSON, or as lines of key and value for a reader.  Releases o. */
void print_facts(struct json_out *o, bool json);

/* -- runs: checkpoints/step-%06d and what was made from them ------------------------------------------------ */

struct steps { long *v; long n, cap; };         /* ascending, each once */

struct run {
	const char *dir;
	struct steps kept;              /* complete checkpoints */
	struct steps all;               /* of which anything is there */
	struct recipe *recipe;          /* RUN/recipe.yaml; NULL: the run has none */
};

bool is_run(const char *dir);
void run_open(struct run *u, const char *dir);
void run_release(struct run *u);
/* The parts of a run that have a directory a step: "samples", "scored", "checkpoints", "validation", NULL. */
extern const char *const run_parts[];
char *run_path(const struct run *u, const char *part, long step);       /* DIR/PART/step-000012; the caller frees */
/* The metrics of a step as one object, {"step": N, ...}: samples, scored, checkpoints, validation; the later one counts. */
void run_put_metrics(struct json_out *o, const struct run *u, long step);
/* The metric that retention and --best go by; NaN where that step has none. */
double run_metric(const struct run *u, long step);
long run_best(const struct run *u);     /* the step, or -1; ties: the newer */
void run_print_jsonl(const struct run *u);
void run_print_line(const struct run *u);
void run_print(const struct run *u, bool json);
/* Remove what retention does not keep, and leftovers of writers that are dead; prints what it removed. */
void run_clean(const struct run *u, bool dry_run);

/* -- the rest ------------------------------------------------------------------------------------------------- */

void print_recipe(const char *path, const char *get, bool json);
void explain_key(const char *key);

void print_checkpoint(const char *dir, bool json);
/* The layout in words, and what each shard holds: ranks and their places, layers, experts, tensors outside of layers. */
void print_layout(const char *dir, bool json);
void print_tensor(const char *dir, const char *name, const char *slot, bool json);

/* A directory of samples or a file of JSON lines. */
void print_samples(const char *path, bool json);
void print_samples_jsonl(const char *path);
enum show_order { SHOW_FIRST, SHOW_BEST, SHOW_WORST };
void show_samples(const char *path, long n, enum show_order order);

void print_foreign(const char *path, bool json);        /* safetensors, GGUF, Hugging Face folder */
bool is_foreign(const char *path);

void verify_files(const char *dir, const char *kind, bool json);
void print_history(const char *dir, bool json);         /* follows parents that still exist */
/* "score 0.1.0: samples -o scored" of the manifest's own entry; the caller frees. */
char *history_line(const struct json *entry);
/*
 * The directory that the input `what` of `dir`'s entry names, if it is still there: as given, or beside dir as in a run that was
 * moved.  NULL: none.  The caller frees.
 */
char *history_find(const char *dir, const struct json *entry, const char *what);

/* 1 when they differ, with what differs on stdout. */
int diff_checkpoints(const char *one, const char *two, bool json);
int diff_samples(const char *one, const char *two, bool json);

#endif
