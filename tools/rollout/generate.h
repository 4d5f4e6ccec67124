#ifndef TOOLS_ROLLOUT_GENERATE_H
#define TOOLS_ROLLOUT_GENERATE_H

/*
 * Continuous batching.  Every step runs one row of each living sequence and up to `chunk` rows of prompts together; sequences that
 * end leave at once and others take their place.  A prompt is run once: its samples share its keys and its last logits.
 *
 * Nothing is ever preempted: a sequence starts only when the blocks of its longest possible form can be set aside, and
 * a prompt only when those of one sample can be too, so the oldest always goes on (admit.c).
 *
 * slots, chunk and blocks change the speed and never a bit: a row's logits depend on its sequence alone, and the uniform of the
 * token at position p of sample s is rng_uniform(key of the prompt, prompt id, s, p).
 */

#include "formats/samples.h"
#include "kernels/model/cache.h"
#include "libcommon/rng.h"
#include "tools/rollout/stop.h"

struct gen_prompt {
	const int *ids; long length;    /* at least 1, below how->context */
	uint64_t id;
	struct rng_key key;
};

struct gen_how {
	long samples;                   /* of each prompt */
	long max_new, context;          /* tokens of a response; of prompt and response together */
	float temperature, top_p, min_p;
	long top_k;
	const uint8_t *allowed;         /* [vocab] of the model; NULL: all */
	bool experts;                   /* write down which each row visits */
	struct stops stop;
};

struct gen_size { long slots, chunk, blocks; };

struct gen_result {                     /* zero at the start; gen_results_release() frees what it holds */
	int *ids; float *logprobs; long n, cap;
	int *experts;                   /* [n, model_experts_per_row()] of the tokens; the last is never run: -1 */
	int *prompt_experts;            /* those of the prompt; with its first sample only */
	enum finish finish;
	long cut;                       /* bytes of text before a stop string, or -1 */
	struct stop_text text;
};

/* Blocks without which some prompt could never run. */
long gen_least_blocks(const struct gen_prompt *p, long n, const struct gen_how *h);
/* The most of each that can be of use; *s holds upper limits on entry, blocks 0: none. */
void gen_fit(struct gen_size *s, const struct gen_prompt *p, long n, const struct gen_how *h);

/* Called after each step: samples that have ended and tokens made so far. */
typedef void gen_tick(void *arg, long finished, long tokens);

/*
 * out[n * samples], sample s of prompt i at i * samples + s.  blocks >= gen_least_blocks().  Results stay in order whatever
 * ends first.
 */
void generate(struct gen_result *out, struct model *m, const struct gen_prompt *p, long n, const struct gen_how *h,
	      const struct gen_size *size, gen_tick *tick, void *arg);
void gen_results_release(struct gen_result *r, long n);

#endif
