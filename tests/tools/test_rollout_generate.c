/*
 * The scheduler: the same samples whatever the batch, the chunk, the memory, the threads and the order of prompts, and
 * the log-probabilities that a plain pass over the whole sequence gives.
 */
#include "libcommon/pool.h"
#include "tests/lib/tap.h"
#include "tests/tools/tiny.h"
#include "tools/rollout/generate.h"

enum { PROMPTS = 5, SAMPLES = 4, NEW = 20, ALL = PROMPTS * SAMPLES };

static const long LENGTH[PROMPTS] = { 1, 3, 64, 70, 130 };
static int text[PROMPTS][130];

static void make_prompts(struct gen_prompt *p, bool reversed, uint64_t seed)
{
	for (long i = 0; i < PROMPTS; i++) {
		long j = reversed ? PROMPTS - 1 - i : i;

		for (long k = 0; k < LENGTH[j]; k++)
			text[j][k] = (int)((k * 7 + j * 3 + k * k) % 37);
		p[i] = (struct gen_prompt){ text[j], LENGTH[j], (uint64_t)j, rng_key(seed, RNG_SAMPLE, 0) };
	}
}

static bool same(const struct gen_result *a, const struct gen_result *b)
{
	return a->n == b->n && a->finish == b->finish && !memcmp(a->ids, b->ids, (size_t)a->n * sizeof(int)) &&
	       !memcmp(a->logprobs, b->logprobs, (size_t)a->n * sizeof(float));
}

static struct gen_how how(void)
{
	static const int stop = 36;

	return (struct gen_how){ .samples = SAMPLES, .max_new = NEW, .context = 145, .temperature = 0.9f, .top_p = 1,
				 .stop = { .id = &stop, .ids = 1 } };
}

static long differing(struct model *m, const struct gen_result *want, struct gen_size size, bool reversed)
{
	struct gen_result got[ALL] = { 0 };
	struct gen_prompt p[PROMPTS];
	struct gen_how h = how();
	long bad = 0;

	make_prompts(p, reversed, 7);
	if (!size.blocks)
		size.blocks = gen_least_blocks(p, PROMPTS, &h);
	generate(got, m, p, PROMPTS, &h, &size, NULL, NULL);
	for (long i = 0; i < ALL; i++) {
		long j = reversed ? PROMPTS - 1 - i / SAMPLES : i / SAMPLES;

		bad += !same(got + i, want + j * SAMPLES + i % SAMPLES);
	}
	gen_results_release(got, ALL);
	return bad;
}

static void check_sizes(struct model *m, const struct gen_result *want, const char *name)
{
	static const struct gen_size sizes[] = { { 1, 1, 0 }, { 1, 300, 50 }, { 3, 7, 0 }, { 3, 64, 12 }, { 7, 256, 40 },
						 { 64, 256, 0 }, { 64, 2, 200 }, { 64, 1000, 200 } };

	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		long bad = differing(m, want, sizes[i], i % 2);

		ok(bad == 0, "%s: %ld slots, %ld rows of prompts, %ld blocks%s: %ld samples differ", name, sizes[i].slots,
		   sizes[i].chunk, sizes[i].blocks, i % 2 ? ", prompts reversed" : "", bad);
	}
	for (int threads = 1; threads <= 2; threads++) {
		pool_start(threads);
		ok(differing(m, want, (struct gen_size){ 7, 50, 60 }, false) == 0, "%s: %d threads", name, threads);
	}
}

/* Each prompt in a run of its own. */
static void check_alone(struct model *m, const struct gen_result *want, const char *name)
{
	struct gen_prompt p[PROMPTS];
	struct gen_how h = how();
	long bad = 0;

	make_prompts(p, false, 7);
	for (long i = 0; i < PROMPTS; i++) {
		struct gen_result got[SAMPLES] = { 0 };
		struct gen_size size = { 2, 31, 100 };

		generate(got, m, p + i, 1, &h, &size, NULL, NULL);
		for (long s = 0; s < SAMPLES; s++)
			bad += !same(got + s, want + i * SAMPLES + s);
		gen_results_release(got, SAMPLES);
	}
	ok(bad == 0, "%s: a run for each prompt: %ld samples differ", name, bad);
}

/* The oracle: all sequences packed into one pass without a cache. */
static void check_pass(struct model *m, const struct gen_result *r, const char *name)
{
	static int ids[ALL * 160], target[ALL * 160];
	static float lp[ALL * 160];
	long cu[ALL + 1] = { 0 }, bad = 0, n = 0;
	struct pass *pass;

	for (long i = 0; i < ALL; i++) {
		long length = LENGTH[i / SAMPLES];

		memcpy(ids + cu[i], text[i / SAMPLES], (size_t)length * sizeof(int));
		memcpy(ids + cu[i] + length, r[i].ids, (size_t)r[i].n * sizeof(int));
		for (long k = 0; k < length + r[i].n; k++)
			target[cu[i] + k] = k + 1 >= length && k + 1 < length + r[i].n ? ids[cu[i] + k + 1] : -1;
		cu[i + 1] = cu[i] + length + r[i].n;
	}
	pass = pass_new(m, cu[ALL], false, false);
	pass_forward(pass, &(struct batch){ .rows = cu[ALL], .ids = ids, .nseq = ALL, .cu = cu });
	pass_logprobs(pass, lp, NULL, target, 0.9f);
	for (long i = 0; i < ALL; i++)
		for (long k = 0; k < r[i].n; k++, n++)
			bad += memcmp(lp + cu[i] + LENGTH[i / SAMPLES] - 1 + k, r[i].logprobs + k, sizeof(float)) != 0;
	ok(bad == 0 && n > 100, "%s: %ld of %ld log-probabilities differ from those of one packed pass", name, bad, n);
	pass_free(pass);
}

static void check_draws(struct model *m, const struct gen_result *want, const char *name)
{
	struct gen_result other[ALL] = { 0 };
	struct gen_prompt p[PROMPTS];
	struct gen_how h = how();
	struct gen_size size = { 64, 256, 200 };
	long groups = 0, seeds = 0, stopped = 0, context = 0, length = 0;

	make_prompts(p, false, 8);
	generate(other, m, p, PROMPTS, &h, &size, NULL, NULL);
	for (long i = 0; i < ALL; i++) {
		groups += i % SAMPLES && !same(want + i, want + i - 1);
		seeds += !same(want + i, other + i);
		stopped += want[i].finish == FINISH_STOP && want[i].ids[want[i].n - 1] == 36;
		context += want[i].finish == FINISH_CONTEXT && LENGTH[i / SAMPLES] + want[i].n == 145;
		length += want[i].finish == FINISH_LENGTH && want[i].n == NEW;
	}
	ok(groups >= ALL - PROMPTS - 2, "%s: samples of a group differ (%ld)", name, groups);
	ok(seeds >= ALL - 2, "%s: another seed gives others (%ld)", name, seeds);
	ok(stopped && length && stopped + context + length == ALL, "%s: %ld stop, %ld context, %ld length", name, stopped, context,
	   length);
	gen_results_release(other, ALL);
}

static void check(enum dtype t, const char *name)
{
	struct model_config c = tiny_config(37, 32, 2);
	struct gen_result want[ALL] = { 0 };
	struct gen_prompt p[PROMPTS];
	struct gen_how h = how();
	struct gen_size size = { 5, 40, 100 };
	struct model m;

	tiny_random(&m, &c, t);
	make_prompts(p, false, 7);
	generate(want, &m, p, PROMPTS, &h, &size, NULL, NULL);
	check_sizes(&m, want, name);
	check_alone(&m, want, name);
	check_pass(&m, want, name);
	check_draws(&m, want, name);
	gen_results_release(want, ALL);
	model_release(&m);
}

/* Many small memories: every sample ends, and no two sizes disagree. */
static void check_stress(void)
{
	enum { MANY = 9, EACH = 3 };
	struct model_config c = tiny_config(37, 32, 1);
	struct gen_prompt p[MANY];
	struct gen_how h = how();
	struct gen_result want[MANY * EACH] = { 0 };
	struct model m;
	long bad = 0, runs = 0;

	h.samples = EACH;
	tiny_random(&m, &c, DTYPE_F32);
	make_prompts(p, false, 7);
	for (long i = PROMPTS; i < MANY; i++)
		p[i] = (struct gen_prompt){ text[4], 7 * (i - 3) * (i - 3) % 131 + 1, (uint64_t)i, p[0].key };
	for (long slots = 2; slots < 12; slots++)
		for (long more = 0; more < 10; more += 1 + slots % 2) {
			struct gen_result got[MANY * EACH] = { 0 };
			struct gen_size size = { slots, 40 * slots, gen_least_blocks(p, MANY, &h) + more };

			generate(got, &m, p, MANY, &h, &size, NULL, NULL);
			for (long i = 0; i < MANY * EACH && runs; i++)
				bad += !same(got + i, want + i);
			if (runs++)
				gen_results_release(got, MANY * EACH);
			else
				memcpy(want, got, sizeof(want));
		}
	ok(bad == 0 && runs > 70, "%ld sizes of batch and memory: %ld samples differ", runs, bad);
	gen_results_release(want, MANY * EACH);
	model_release(&m);
}

static void check_fit(void)
{
	struct gen_prompt p[PROMPTS];
	struct gen_how h = how();
	struct gen_size size = { 64, 256, 0 };

	make_prompts(p, false, 7);
	/* 130 tokens and 15 more: 3 blocks of the prompt, and for a first sample a copy of the partial one. */
	ok(gen_least_blocks(p, PROMPTS, &h) == 4, "blocks that the longest prompt needs");
	h.samples = 1;
	ok(gen_least_blocks(p, PROMPTS, &h) == 3, "a single sample takes over its prompt's blocks");
	gen_fit(&size, p, PROMPTS, &h);
	ok(size.slots == 5 && size.chunk == 256 && size.blocks == 15, "no more than can be used");
}

int main(void)
{
	pool_start(2);
	check_fit();
	check_stress();
	check(DTYPE_F32, "float32");
	check(DTYPE_BF16, "bfloat16");
	return done();
}
