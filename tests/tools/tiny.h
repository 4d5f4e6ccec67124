#ifndef TESTS_TOOLS_TINY_H
#define TESTS_TOOLS_TINY_H

/*
 * Small models for tests of the programs.  tiny_random(): seeded weights, large enough that attention matters.
 * tiny_script(): one layer of zeros, one-hot embeddings, so that the logits after a token are what a table says, exactly:
 * logit(next | last) = 2 W[next, last].  An infinite one is reached by overflow, so that it stays with its token.
 */

#include "kernels/model/model.h"
#include "libcommon/xalloc.h"

#include <math.h>
#include <string.h>

static inline struct model_config tiny_config(long vocab, long hidden, long layers)
{
	return (struct model_config){
		.model_type = "llama", .architecture = "LlamaForCausalLM", .vocab = vocab, .hidden = hidden, .intermediate = 48,
		.layers = layers, .heads = 4, .kv_heads = 2, .head_dim = 8, .max_position = 512, .rms_eps = 1e-5,
		.initializer_range = 0.4, .rope = { .kind = ROPE_DEFAULT, .theta = 10000, .factor = 1 }, .bos = -1, .pad = -1,
	};
}

static inline long tiny_count(const struct param *p)
{
	long n = 1;

	for (int i = 0; i < p->rank; i++)
		n *= p->shape[i];
	return n;
}

static inline const struct ops *tiny_ops(void)
{
	struct err e = ERR_INIT;
	const struct ops *k = ops_find("cpu", NULL, &e);

	if (!k)
		die_err(&e);
	return k;
}

/* The values of a parameter of tiny_random(); the caller frees. */
static inline float *tiny_values(const struct param *p, const struct model_config *c)
{
	float *w = xmalloc((size_t)tiny_count(p) * sizeof(float));

	param_init_random(w, p, c, 7);
	return w;
}

static inline void tiny_random(struct model *m, const struct model_config *c, enum dtype t)
{
	struct err e = ERR_INIT;

	if (model_init(m, c, tiny_ops(), NULL, t, 0, 0, &e))
		die_err(&e);
	for (long i = 0; i < m->table.n; i++) {
		float *w = tiny_values(m->table.p + i, c);

		model_set(m, i, w, DTYPE_F32);
		free(w);
	}
}

/* The values of a parameter of tiny_script(); logits[last * vocab + next] from the table.  hidden: 16, 64, 256 or 1024. */
static inline float *tiny_script_values(const struct param *p, const struct model_config *c, const float *logits)
{
	float *w = xcalloc((size_t)tiny_count(p), sizeof(float)), root = c->hidden == 16 ? 4 : c->hidden == 64 ? 8 :
		c->hidden == 256 ? 16 : 32;

	for (long i = 0; p->kind == PARAM_EMBED && i < c->vocab; i++)
		w[i * c->hidden + i] = 1;
	for (long i = 0; p->kind == PARAM_FINAL_NORM && i < c->hidden; i++)
		w[i] = 2 / root;
	for (long last = 0; p->kind == PARAM_LM_HEAD && last < c->vocab; last++)
		for (long next = 0; next < c->vocab; next++)
			w[next * c->hidden + last] = fmaxf(fminf(logits[last * c->vocab + next] / 2, 3e38f), -3e38f);
	return w;
}

static inline struct model_config tiny_script_config(long vocab)
{
	struct model_config c = tiny_config(vocab, vocab <= 16 ? 16 : vocab <= 64 ? 64 : vocab <= 256 ? 256 : 1024, 1);

	c.rms_eps = 1e-12;      /* lost beside 1 / hidden */
	return c;
}

static inline void tiny_script(struct model *m, const struct model_config *c, const float *logits)
{
	struct err e = ERR_INIT;

	if (model_init(m, c, tiny_ops(), NULL, DTYPE_F32, 0, 0, &e))
		die_err(&e);
	for (long i = 0; i < m->table.n; i++) {
		float *w = tiny_script_values(m->table.p + i, c, logits);

		model_set(m, i, w, DTYPE_F32);
		free(w);
	}
}

#endif
