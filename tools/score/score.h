#ifndef TOOLS_SCORE_SCORE_H
#define TOOLS_SCORE_SCORE_H

/*
 * The chapters of score: rewards (rewards.c, simple.c, choice.c, math*.c, exec.c), log-probabilities under other models (logprobs.c),
 * advantages and weights (learn.c).
 */

#include "formats/samples.h"
#include "tools/shared/packed.h"
#include "tools/shared/start.h"

/* -- what comes in (inputs.c) ------------------------------------------------------------------------------ */

/*
 * Directories or JSON lines, one behind the other, without what an earlier score put in; sorted, the samples of a group together.
 * 65 where they are of different steps, splits or policies, or where one stands twice.
 */
void score_read(struct samples *set, const char *const *path, int n);
/* The control of an experiment: the same rewards, dealt out anew among the samples that have one.  Components stay. */
void score_shuffle(struct samples *set, long seed);

/* -- rewards -------------------------------------------------------------------------------------------- */

struct verdict {                /* of one reward function on one sample */
	double value;           /* NaN: unscored */
	char *extracted, *reason;       /* owned; may be NULL */
};

struct question {               /* what a reward function may look at */
	const struct sample *s;
	const char *gold;       /* NULL: the row has none */
	const char *system;     /* of messages */
};

struct reward {                 /* one entry of reward_functions */
	const char *name;
	double weight;
	const struct json *params;      /* its object in the recipe, or NULL */
	int (*judge)(struct verdict *v, const struct reward *r, const struct question *q, struct err *e);
	bool answer;            /* says whether the answer is right: counts for accuracy */
	void *state;            /* compiled pattern */
	int group;              /* of the pattern, that holds the answer */
};

struct rewards {
	struct reward *r;       /* owned */
	int n, cap;
	const char *exec;       /* command, or NULL; its reward comes behind the others, with weight 1 */
	long exec_workers;
	double exec_timeout;
	const char *answer_key; /* recipe's; NULL: by the usual names */
};

/* `words`: --reward NAME=WEIGHT; none: the recipe's env.NAME.reward_functions; none there either: math. */
void rewards_init(struct rewards *w, const struct recipe *r, enum split split, const struct opt_list *words, const char *exec);
void rewards_release(struct rewards *w);
/* Sets rewards, reward, has_reward, reward_valid, extracted, reason of every sample. journal: where exec's answers are kept. */
void rewards_judge(struct rewards *w, struct samples *set, const char *journal);

/* The gold answer of a row (dataset(5)'s rules), or NULL; lives in *a. */
const char *row_gold(struct arena *a, const char *row, size_t n, const char *answer_key);

/* simple.c */
int judge_exact(struct verdict *v, const struct reward *r, const struct question *q, struct err *e);
int judge_regex(struct verdict *v, const struct reward *r, const struct question *q, struct err *e);
int judge_format(struct verdict *v, const struct reward *r, const struct question *q, struct err *e);
int judge_length(struct verdict *v, const struct reward *r, const struct question *q, struct err *e);
void reward_pattern_compile(struct reward *r); /* of regex and format; dies on a bad one */
void reward_pattern_free(struct reward *r);

/* choice.c */
int judge_choice(struct verdict *v, const struct reward *r, const struct question *q, struct err *e);
int choice_letter(const char *s, size_t n);     /* 'A'..'Z' that a response or a gold answer names; 0: none */

/* exec.c: fills v[i] for all samples; answers found in the journal are not asked again. */
void exec_judge(struct verdict *v, const struct rewards *w, const struct samples *set, const char *journal);

/* -- log-probabilities -------------------------------------------------------------------------------------- */

/* prev_logprobs: recorded values where policy and arithmetic are the same (a share of them recomputed and compared, 70 if a bit
 * differs), else computed. */
void score_prev(struct samples *set, const char *policy, const struct recipe *r, const struct ops *k);
void score_reference(struct samples *set, const char *reference, const struct recipe *r, const struct ops *k);

/* -- advantages and weights ----------------------------------------------------------------------------------- */

struct learning {               /* for the metrics */
	long filtered, masked_by_error, groups, flat_groups;
	double importance;      /* mean weight */
	long outside;
};
void score_learning(struct learning *l, struct samples *set, const struct recipe *r);

#endif
