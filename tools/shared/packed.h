#ifndef TOOLS_SHARED_PACKED_H
#define TOOLS_SHARED_PACKED_H

/*
 * Sequences through a model, several to a row.  Which share a row is the recipe's business (policy.sequence_packing) and never
 * reaches a value.
 *
 *	struct sequences q = { n, ids, length };
 *	packed_plan(&bins, &q, r, PACKED_TRAIN)
 *	for each bin: packed_batch(&b, &q, &bins, i); pass_forward(p, &b.batch); ...; b.target, b.start[k] of its k-th sequence
 */

#include "kernels/model/model.h"
#include "libcommon/packing.h"
#include "libcommon/recipe.h"

struct sequence {
	const int *ids;         /* n tokens */
	long n, prompt;         /* of them prompt */
	const uint8_t *mask;    /* [n - prompt] 1: its log-probability is wanted; NULL: all */
	const int *experts;     /* [n, per]: struct batch's, `per` of them a token; NULL: none */
	long per;
};

enum packed_for { PACKED_TRAIN, PACKED_LOGPROB };       /* train_mb_tokens or logprob_mb_tokens */

/* A sequence longer than the bins makes the bins longer: no sequence is refused here. */
void packed_plan(struct bins *b, const struct sequence *q, long n, const struct recipe *r, enum packed_for what);
long packed_rows(const struct bins *b, const struct sequence *q);      /* of the largest bin */

struct packed {                 /* one bin; zero-initialise, reuse, release */
	struct batch batch;
	int *ids, *target;      /* [rows]: row r predicts target[r]; -1: nothing wanted */
	int *experts;           /* [rows, per] where a sequence of the bin has them */
	long *cu;
	long cap_rows, cap_seq, cap_experts;
};

void packed_batch(struct packed *p, const struct sequence *q, const struct bins *b, long bin);
void packed_release(struct packed *p);

/* What the weights take on the rank at `at`, and with training masters, moments and gradients. */
long model_memory(const struct param_table *t, const struct layout *l, const struct place *at, enum dtype type, bool training);
/* 69 where the model and n micro-batches of so many rows are more than --memory, saying what to change. */
void check_memory(const struct model *m, long rows, long n, enum packed_for what, const struct recipe *r, enum recompute recompute);

/*
 * lp[i][t] of sequence i, token prompt + t: log softmax(z / temperature); NaN where the mask is 0.  entropy[i] may be NULL, as may
 * the whole array.  Shows progress as `what`.  Every rank has all sequences and gets all numbers; bin k is run by the data-parallel
 * rank k mod DP.
 */
void packed_logprobs(struct model *m, float *const *lp, float *const *entropy, const struct sequence *q, long n,
		     const struct recipe *r, float temperature, const char *what);

#endif
