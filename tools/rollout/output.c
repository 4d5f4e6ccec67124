#include "tools/rollout/rollout.h"

#include "libcommon/progress.h"
#include "libcommon/xalloc.h"
#include "tools/shared/timing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct totals { long samples, prompt, response, longest, stopped, truncated, nonfinite; };

static struct totals add_up(const struct rollout *o)
{
	struct totals t = { .samples = o->prompts.n * o->how.samples };

	for (long i = 0; i < t.samples; i++) {
		const struct gen_result *r = o->result + i;

		t.prompt += o->prompts.gen[i / o->how.samples].length;
		t.response += r->n;
		t.longest = r->n > t.longest ? r->n : t.longest;
		t.stopped += r->finish == FINISH_STOP || r->finish == FINISH_STOP_STRING;
		t.truncated += r->finish == FINISH_LENGTH || r->finish == FINISH_CONTEXT;
		t.nonfinite += r->finish == FINISH_NONFINITE;
	}
	return t;
}

long count_nonfinite(const struct rollout *o)
{
	return add_up(o).nonfinite;
}

static void add_metric(struct json_out *out, const struct rollout *o, const char *name, double value)
{
	char *key = xasprintf("%s/%s", o->split == SPLIT_VALIDATION ? "validation" : "train", name);

	json_add_real(out, key, value);
	free(key);
}

static void add_count(struct json_out *out, const struct rollout *o, const char *name, long value)
{
	char *key = xasprintf("%s/%s", o->split == SPLIT_VALIDATION ? "validation" : "train", name);

	json_add_int(out, key, value);
	free(key);
}

/* NeMo-RL's names; nothing in here is a time. */
static void put_metrics(struct json_out *out, const struct rollout *o)
{
	struct totals t = add_up(o);
	double n = (double)t.samples;

	json_add_int(out, "step", o->step);
	add_count(out, o, "num_prompts", o->prompts.n);
	add_count(out, o, "num_samples", t.samples);
	add_count(out, o, "prompts_too_long", o->prompts.skipped);
	add_metric(out, o, "mean_prompt_length", (double)t.prompt / n);
	add_metric(out, o, "mean_gen_tokens_per_sample", (double)t.response / n);
	add_count(out, o, "max_gen_tokens_per_sample", t.longest);
	add_metric(out, o, "mean_total_tokens_per_sample", (double)(t.prompt + t.response) / n);
	add_count(out, o, "total_num_tokens", t.prompt + t.response);
	add_metric(out, o, "natural_termination_rate", (double)t.stopped / n);
	add_metric(out, o, "truncation_rate", (double)t.truncated / n);
	if (o->split == SPLIT_VALIDATION)
		add_metric(out, o, "avg_length", (double)t.response / n);
	add_count(out, o, "nonfinite_samples", t.nonfinite);
}

/* The end id is no part of the text, be it a control token or not. */
static void text_of(struct str *out, const struct rollout *o, const struct gen_result *r)
{
	response_text(out, o->t, r->ids, r->n - (r->finish == FINISH_STOP), r->cut);
}

/* Prompt, then response.  A prompt is run once, so its experts lie with its first sample. */
static int32_t *experts_of(struct samples *s, const struct rollout *o, long i, long length)
{
	const struct gen_result *r = o->result + i;
	long per = (long)s->expert_layers * s->expert_slots;
	const int *prompt = o->result[i - i % o->how.samples].prompt_experts;
	int32_t *ids;

	if (!o->how.experts)
		return NULL;
	ids = arena_alloc(&s->arena, (size_t)((length + r->n) * per) * sizeof(*ids) + 1);
	memcpy(ids, prompt, (size_t)(length * per) * sizeof(*ids));
	if (r->n)
		memcpy(ids + length * per, r->experts, (size_t)(r->n * per) * sizeof(*ids));
	return ids;
}

static void fill(struct samples *s, const struct rollout *o, long i, uint64_t fingerprint)
{
	const struct gen_result *r = o->result + i;
	long at = i / o->how.samples, length = o->prompts.gen[at].length;
	const struct prompt *p = o->prompts.p + at;
	struct sample *a = samples_append(s);
	struct str text = { 0 };
	static const char none;

	a->prompt_id = p->id;
	a->sample_index = i % o->how.samples;
	a->visit = p->visit;
	a->order = at;
	a->step = o->step;
	a->split = o->split;
	a->seed = o->seed;
	a->policy = o->c.weights_digest;
	a->tokenizer_digest = o->c.tokenizer_digest;
	a->fingerprint = fingerprint;
	a->temperature = o->temperature;
	a->top_p = o->top_p;
	a->min_p = o->min_p;
	a->top_k = o->how.top_k;
	a->length = length + r->n;
	a->prompt_length = length;
	a->token_ids = arena_alloc(&s->arena, (size_t)a->length * sizeof(int32_t));
	for (long k = 0; k < a->length; k++)
		a->token_ids[k] = k < length ? o->prompts.gen[at].ids[k] : r->ids[k - length];
	a->logprobs = samples_copy(s, r->n ? (const void *)r->logprobs : &none, (size_t)r->n * sizeof(float));
	a->loss_mask = arena_alloc(&s->arena, (size_t)r->n + 1);
	for (long k = 0; k < r->n; k++)
		a->loss_mask[k] = 1;
	a->expert_ids = experts_of(s, o, i, length);
	a->finish_reason = r->finish;
	a->truncated = r->finish == FINISH_LENGTH || r->finish == FINISH_CONTEXT;
	a->turn = arena_alloc(&s->arena, sizeof(*a->turn));
	a->turn[0] = (struct turn){ (int)length, (int)a->length, "assistant", a->policy };
	a->turns = 1;
	text_of(&text, o, r);
	a->text = samples_copy(s, text.s, text.len);
	a->text_bytes = text.len;
	a->row = samples_copy(s, p->row, p->row_bytes);
	a->row_bytes = p->row_bytes;
	str_release(&text);
}

static void write_set(struct rollout *o, struct samples *s, const struct history *h, const char *fingerprint)
{
	struct json_out metrics = { .indent = 2 };
	struct samples_meta m = {
		.step = o->step, .split = o->split_name, .policy = o->c.weights_digest, .tokenizer_digest = o->c.tokenizer_digest,
		.fingerprint = fingerprint, .cursor = o->prompts.cursor, .history = *h,
	};
	double start = seconds_now();
	struct err e = ERR_INIT;

	json_begin(&metrics, '{');
	put_metrics(&metrics, o);
	json_end(&metrics);
	str_putc(&metrics.s, '\n');
	m.metrics = metrics.s.s;
	if (samples_write(o->out, s, &m, &o->mesh.dp, &e))
		die_err(&e);
	timing_add(TIMING_SAVE, start);
	json_out_release(&metrics);
}

static void print_set(const struct samples *s)
{
	struct err e = ERR_INIT;

	if (samples_write_jsonl("-", s, &e))
		die_err(&e);
}

void output_samples(struct rollout *o, const struct history *h, const char *fingerprint)
{
	struct samples all = { .n = 0 }, own = { .n = 0 };
	uint64_t number = strtoull(fingerprint, NULL, 16);

	if (o->how.experts) {
		all.expert_layers = own.expert_layers = (int)model_expert_layers(&o->m);
		all.expert_slots = own.expert_slots = (int)o->cfg.moe.experts_per_token;
	}
	for (long i = 0; i < o->prompts.n * o->how.samples; i++) {
		if (o->jsonl && start_is_first())
			fill(&all, o, i, number);
		/* The ranks of a TP group have the same samples: the first of them writes. */
		if (o->out && !o->mesh.at.tp && i / o->how.samples % o->mesh.layout.dp == o->mesh.at.dp)
			fill(&own, o, i, number);
	}
	samples_sort(&all);
	samples_sort(&own);
	if (o->out && !o->mesh.at.tp)
		write_set(o, &own, h, fingerprint);
	if (o->jsonl && start_is_first())
		print_set(&all);
	samples_release(&all);
	samples_release(&own);
}

void output_text(const struct rollout *o)
{
	struct str text = { 0 };

	for (long i = 0; i < o->prompts.n * o->how.samples; i++) {
		text_of(&text, o, o->result + i);
		str_putc(&text, '\n');
	}
	fwrite(text.s, 1, text.len, stdout);
	str_release(&text);
}

void output_line(const struct rollout *o)
{
	struct totals t = add_up(o);
	struct json_out out = { .indent = 0 };

	json_begin(&out, '{');
	if (o->out)
		json_add_str(&out, "samples", o->out);
	put_metrics(&out, o);
	json_add_real(&out, "seconds", o->seconds);
	json_add_real(&out, "tokens_per_second", o->seconds > 0 ? (double)t.response / o->seconds : 0);
	timing_put(&out);
	json_end(&out);
	puts(out.s.s);
	json_out_release(&out);
}
