#ifndef TOOLS_TRAIN_STEP_TRAIN_H
#define TOOLS_TRAIN_STEP_TRAIN_H

/* The chapters of train-step: what to learn from (rl.c, sft.c), one optimizer update (update.c), the next checkpoint (save.c). */

#include "formats/dataset.h"
#include "formats/samples.h"
#include "kernels/loss.h"
#include "kernels/model/pipeline.h"
#include "kernels/model/router.h"
#include "libcommon/schedule.h"
#include "tools/shared/packed.h"
#include "tools/shared/start.h"

struct lesson {                 /* one sequence of an update */
	struct sequence s;
	struct loss_tokens x;           /* all but lp; weights decide what counts */
	const float *recorded;          /* logprobs of the same policy on the same arithmetic, or NULL */
	const float *generated;         /* logprobs as rollout recorded them, or NULL */
};

struct trainer {
	struct model *m;
	const struct recipe *r;
	struct loss_config loss;
	struct optim_config optim;
	struct schedule schedule;
	struct counters counters;       /* of the checkpoint, moved on by every update and step */
	double router_aux, router_z;    /* factors of the routers' own losses */
	struct router_report routers;   /* of the last update */
	float temperature;
	struct pipeline *pipeline;      /* made for the largest bin so far */
	long rows;
};

/* What an update came to, over all ranks, the same on each. */
struct update_report {
	struct loss_sums sums;
	double grad_norm;               /* before clipping */
	bool skipped;                   /* nothing to learn from, or a gradient that is not finite */
	long sequences, tokens;         /* with a weight that is not 0; all rows run */
	long compared, bits_different;  /* tokens with a recorded log-probability; of them not equal in every bit */
	double mult_error, kl_error;    /* sums over compared-with-generated tokens: exp|gen - prev|, gen's k3 */
	long generated;
};

/* Sums and extremes of both; not the gradient's norm. */
void update_report_add(struct update_report *a, const struct update_report *b);

void trainer_init(struct trainer *t, struct model *m, const struct recipe *r, const char *algorithm, struct counters c);
enum recompute trainer_recomputes(const struct recipe *r);        /* activation checkpointing */
void trainer_release(struct trainer *t);
/*
 * One update: gradients of sum w l over all lessons, clipped, AdamW at the schedule's present step.  apply false: gradients and report
 * only.  Every rank has all lessons; bin k is the business of the data-parallel rank k mod DP.
 */
void train_update(struct update_report *out, struct trainer *t, const struct lesson *l, long n, bool apply);
/* Only the loss: no gradient. */
void train_evaluate(struct update_report *out, struct trainer *t, const struct lesson *l, long n);
void trainer_end_step(struct trainer *t, long consumed, long tokens);

/* -- reinforcement learning: scored samples ----------------------------------------------------------- */
struct rl {
	struct samples set;
	struct lesson *lesson;          /* owned; sorted by update */
	long *first;                    /* owned; update u is lesson[first[u]] .. */
	long updates;
	long step;
};
void rl_open(struct rl *b, const char *path, const struct checkpoint *c, const struct recipe *r, const char *algorithm,
	     const struct ops *k, const struct model_config *cfg);
void rl_release(struct rl *b);

/* -- supervised: a data set ------------------------------------------------------------------------------ */
struct sft {
	struct dataset *d;
	struct tokenizer *tok;
	struct chat_template *tmpl;
	struct dataset_cursor cursor;
	uint64_t position;              /* rows drawn so far */
	const struct recipe *r;
	const char *path;               /* of the data */
	long batch, max_length, dropped;
	struct lesson *lesson;          /* owned; of the present batch */
	struct weighed *weighed;        /* owned */
	long n;
};
void sft_open(struct sft *s, const char *path, const struct checkpoint *c, const struct recipe *r, const struct model_config *cfg);
/* Goes on where the checkpoint's cursor says; other data begin at their first row, with a warning. */
void sft_resume(struct sft *s, const struct checkpoint *c);
/* The next train_global_batch_size rows as lessons with their weights. */
void sft_next(struct sft *s);
/* Rows first .. first + n - 1 in file order, for evaluation. */
void sft_rows(struct sft *s, long first, long n);
/* Warns of rows that were too long among the `rows` so far; EX_DATAERR where those were all, and of the whole file. */
void sft_tell_dropped(const struct sft *s, long rows);
/* {"data": ..., "position": ...}; the caller frees. */
char *sft_cursor(const struct sft *s);
void sft_release(struct sft *s);

/* -- the next checkpoint ----------------------------------------------------------------------------------- */
struct saving {
	const char *dir;
	const struct checkpoint *parent;
	struct checkpoint *source;      /* the same, for tensors that are carried along */
	const struct trainer *t;
	const char *cursor, *metrics;   /* JSON texts; cursor may be NULL */
	const char *fingerprint;
	struct history history;
};
void save_checkpoint(const struct saving *s);

#endif
