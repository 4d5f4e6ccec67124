#ifndef TOOLS_ROLLOUT_ROLLOUT_H
#define TOOLS_ROLLOUT_ROLLOUT_H

/* The chapters of rollout: what was asked for, the prompts, the memory, what comes out. */

#include "formats/dataset.h"
#include "tools/rollout/generate.h"
#include "tools/shared/start.h"

struct prompt {
	long id;                        /* row of the data set, or the row's own prompt_id */
	long visit;
	const char *row; size_t row_bytes; /* its JSON */
};

struct prompts {
	struct gen_prompt *gen;         /* ids, length, id, key */
	struct prompt *p;
	long n, cap;
	long skipped, longest;          /* left out because they are too long; tokens of the longest that is in */
	const char *path;               /* of the data */
	struct digest data;
	char *cursor;                   /* JSON of the data cursor behind these prompts; NULL: these do not move it */
	struct arena arena;
};

struct rollout {
	/* the command line */
	const char *dir, *out, *split_name, *prompts_file, *after;
	bool text, jsonl, dry_run, reset_cursor;
	long step, samples, batch;
	/* what is loaded */
	struct recipe *r;
	struct checkpoint c;
	struct model_config cfg;
	struct tokenizer *t;
	struct chat_template *tmpl;     /* NULL: none */
	enum split split;
	uint64_t seed;
	long context, max_prompt;       /* tokens */
	struct gen_how how;
	double temperature, top_p, min_p; /* as in the recipe; `how` has them rounded */
	struct prompts prompts;
	struct gen_prompt *mine; long mines; /* prompt i is the business of the data-parallel rank i mod DP */
	struct mesh mesh;
	struct model m;
	struct gen_size size;
	struct gen_result *result;      /* prompts.n * how.samples */
	double seconds;                 /* of generation */
};

/* -- settings.c: everything ends the program where it is wrong */
void settings_read(struct rollout *o);          /* after the checkpoint, config and tokenizer */

/* -- prompts.c */
void prompts_load(struct rollout *o);
void prompts_release(struct prompts *p);

/* -- memory.c: slots, chunk and blocks within --memory, or within half of what is free; 69 where that is too little */
void memory_plan(struct rollout *o);
void memory_report(struct json_out *out, const struct rollout *o);

/* -- share.c: who generates what */
void share_prompts(struct rollout *o);          /* fills mine */
struct gen_result *share_room(const struct rollout *o);        /* for the samples of `mine` */
/* Every rank gets all results: o->result, from this rank's `own`, which goes. */
void share_results(struct rollout *o, struct gen_result *own);

/* -- output.c: all ranks call it, the first one says and each data-parallel rank writes its own */
void output_samples(struct rollout *o, const struct history *h, const char *fingerprint);
void output_text(const struct rollout *o);      /* an answer a line, in the order of prompts and samples */
void output_line(const struct rollout *o);      /* the summary on stdout */
long count_nonfinite(const struct rollout *o);

/* -- plan.c: --dry-run */
void output_plan(const struct rollout *o);

#endif
