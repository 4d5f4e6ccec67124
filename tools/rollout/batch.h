#ifndef TOOLS_ROLLOUT_BATCH_H
#define TOOLS_ROLLOUT_BATCH_H

/* What generate.c and admit.c share: who is in the batch. */

#include "tools/rollout/generate.h"

struct group {                  /* a prompt with samples still to be started */
	long prompt, started;
	struct cached prefix;
	long run;               /* rows of the prompt in the cache */
	float *logits;          /* of its last row, once run == length */
	int *experts;           /* [length, per row], where they are wanted; then the first sample's */
	long promised;          /* blocks set aside for its next sample */
};

struct live {                   /* a sequence that is being continued */
	struct cached seq;
	struct gen_result *r;
	long prompt, sample;
};

struct batch_state {
	struct cache *cache;
	struct model *m;
	const struct gen_prompt *p; long n;
	const struct gen_how *h;
	struct gen_result *out;
	long slots;
	struct group *group; long groups;       /* oldest first; room for `slots` */
	struct live *live; long lives;          /* room for `slots` */
	long next;                              /* prompt to admit */
	long promised;                          /* sum over the groups */
	long finished, tokens;
	long meetings;                          /* of ranks, so far, and chances of one */
	long experts;                           /* ids a row to write down; 0: none */
};

long response_budget(const struct gen_how *h, long length);     /* most tokens after a prompt */
long admission_blocks(const struct gen_how *h, long length);    /* prompt and its first sample */
void admit_groups(struct batch_state *b);
/* A place and blocks for the next sample of g; NULL: not now.  Its group ends with its last sample. */
struct live *start_sample(struct batch_state *b, struct group *g);
void group_end(struct batch_state *b, struct group *g);
/* The blocks go back; those that the group of this prompt needs next are promised to it first. */
void drop_sample(struct batch_state *b, struct live *l);

#endif
