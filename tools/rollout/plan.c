#include "tools/rollout/rollout.h"

#include "libcommon/progress.h"
#include "libcommon/xalloc.h"

#include <stdio.h>
#include <stdlib.h>

/* Seconds of one call that runs n rows, `each` of every sequence; the first call only warms up. */
static double time_rows(struct cache *c, long sequences, long each)
{
	struct cached *s = xcalloc((size_t)sequences, sizeof(*s));
	struct cache_row *row = xcalloc((size_t)(sequences * each), sizeof(*row));
	double start = 0;

	for (long i = 0; i < sequences; i++) {
		if (!cache_reserve(c, s + i, each))
			bug("no blocks for %ld rows of sequence %ld", each, i);
		for (long k = 0; k < each; k++)
			row[i * each + k] = (struct cache_row){ s + i, 0, k, k + 1 == each };
	}
	for (int pass = 0; pass < 2; pass++) {
		start = seconds_now();
		cache_extend(c, row, sequences * each);
	}
	start = seconds_now() - start;
	for (long i = 0; i < sequences; i++)
		cache_drop(c, s + i);
	free(row);
	free(s);
	return start;
}

/* What a run would take if every response were as long as it may be, by one step of each kind. */
static void add_seconds(struct json_out *out, const struct rollout *o, long prompt, long response)
{
	const struct gen_size *z = &o->size;
	/* A sequence is never longer than the longest prompt: a chunk may be several. */
	long each = z->chunk < o->prompts.longest ? z->chunk : o->prompts.longest, several = z->chunk / each;
	long blocks = z->slots + several * (each / ATTENTION_TILE + 1);
	struct cache *c = cache_new((struct model *)&o->m, blocks, z->slots + z->chunk, z->slots + several);
	double first = time_rows(c, several, each) / (double)(several * each), rest = time_rows(c, z->slots, 1);

	json_key(out, "seconds");
	json_begin(out, '{');
	json_add_real(out, "prompts", first * (double)prompt);
	json_add_real(out, "responses", rest * (double)response / (double)z->slots);
	json_end(out);
	cache_free(c);
}

void output_plan(const struct rollout *o)
{
	struct json_out out = { .indent = 0 };
	long prompt = 0, response = 0;

	for (long i = 0; i < o->mines; i++) {
		long left = o->context - o->mine[i].length;

		prompt += o->mine[i].length;
		response += o->how.samples * (left < o->how.max_new ? left : o->how.max_new);
	}
	json_begin(&out, '{');
	json_add_int(&out, "prompts", o->prompts.n);
	json_add_int(&out, "samples", o->prompts.n * o->how.samples);
	json_add_int(&out, "prompts_too_long", o->prompts.skipped);
	json_add_int(&out, "prompt_tokens", prompt);
	json_add_int(&out, "response_tokens_at_most", response);
	json_add_int(&out, "sequences_at_once", o->size.slots);
	memory_report(&out, o);
	add_seconds(&out, o, prompt, response);
	json_end(&out);
	if (start_is_first())
		puts(out.s.s);
	json_out_release(&out);
}
