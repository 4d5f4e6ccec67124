#include "tools/inspect/inspect.h"

#include "libcommon/file.h"
#include "libcommon/xalloc.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct spread { double sum, low, high; long n; };

static void spread_add(struct spread *s, double v)
{
	s->low = s->n ? fmin(s->low, v) : v;
	s->high = s->n ? fmax(s->high, v) : v;
	s->sum += v;
	s->n++;
}

static void put_spread(struct json_out *o, const char *key, const struct spread *s)
{
	json_key(o, key);
	json_begin(o, '{');
	json_add_real(o, "mean", s->sum / (double)s->n);
	json_add_real(o, "min", s->n ? s->low : NAN);
	json_add_real(o, "max", s->n ? s->high : NAN);
	json_end(o);
}

static void put_lengths(struct json_out *o, const struct samples *s)
{
	struct spread prompt = { 0 }, response = { 0 };

	for (long i = 0; i < s->n; i++) {
		spread_add(&prompt, (double)s->s[i].prompt_length);
		spread_add(&response, (double)(s->s[i].length - s->s[i].prompt_length));
	}
	json_add_int(o, "prompt_tokens", (long)prompt.sum);
	json_add_int(o, "generated_tokens", (long)response.sum);
	put_spread(o, "prompt_length", &prompt);
	put_spread(o, "generated_length", &response);
}

static void put_rewards(struct json_out *o, const struct samples *s)
{
	struct spread total = { 0 };
	long scored = 0, updates = 0;

	for (long i = 0; i < s->n; i++) {
		scored += s->s[i].has_reward;
		if (s->s[i].has_reward && s->s[i].reward_valid)
			spread_add(&total, s->s[i].reward);
		if (s->s[i].update >= updates)
			updates = s->s[i].update + 1;
	}
	json_add_int(o, "scored", scored);
	json_add_int(o, "updates", updates);
	if (!scored)
		return;
	json_add_int(o, "reward_valid", total.n);
	put_spread(o, "reward", &total);
	json_key(o, "rewards");
	json_begin(o, '{');
	for (int k = 0; k < s->reward_names; k++) {
		struct spread one = { 0 };

		for (long i = 0; i < s->n; i++)
			if (s->s[i].rewards && !isnan(s->s[i].rewards[k]))
				spread_add(&one, s->s[i].rewards[k]);
		put_spread(o, s->reward_name[k], &one);
	}
	json_end(o);
}

static void put_finishes(struct json_out *o, const struct samples *s)
{
	long of[FINISH_COUNT] = { 0 };

	for (long i = 0; i < s->n; i++)
		of[s->s[i].finish_reason]++;
	json_key(o, "finish_reason");
	json_begin(o, '{');
	for (int f = 0; f < FINISH_COUNT; f++)
		if (of[f])
			json_add_int(o, finish_name((enum finish)f) ? finish_name((enum finish)f) : "unknown", of[f]);
	json_end(o);
}

/* The optional fields that any sample has. */
static void put_fields(struct json_out *o, const struct samples *s)
{
	static const char *const name[] = { "logprobs", "loss_mask", "prev_logprobs", "reference_logprobs", "teacher_logprobs",
					    "values", "advantages", "text", "row", "extracted", "reason", "turns", "expert_ids" };
	bool has[sizeof(name) / sizeof(*name)] = { false };

	for (long i = 0; i < s->n; i++) {
		const struct sample *a = s->s + i;
		const void *field[] = { a->logprobs, a->loss_mask, a->prev_logprobs, a->reference_logprobs, a->teacher_logprobs,
					a->values, a->advantages, a->text, a->row, a->extracted, a->reason, a->turn, a->expert_ids };

		for (size_t k = 0; k < sizeof(name) / sizeof(*name); k++)
			has[k] |= field[k] != NULL;
	}
	json_key(o, "fields");
	json_begin(o, '[');
	for (size_t k = 0; k < sizeof(name) / sizeof(*name); k++)
		if (has[k])
			json_put_str(o, name[k]);
	json_end(o);
}

static long groups(const struct samples *s)
{
	long n = 0;

	for (long i = 0; i < s->n; i++)
		n += !i || s->s[i].order != s->s[i - 1].order || s->s[i].prompt_id != s->s[i - 1].prompt_id ||
		     s->s[i].visit != s->s[i - 1].visit;
	return n;
}

/* Verified already: samples_read() looks at every file that the manifest names. */
static void put_metrics(struct json_out *o, const char *dir)
{
	char *path = path_join(dir, "metrics.json");
	struct json_doc d;
	struct err e = ERR_INIT;

	if (file_exists(path)) {
		if (json_read(&d, path, 16 << 20, &e))
			die_err(&e);
		json_key(o, "metrics");
		json_put(o, &d.root);
		json_release(&d);
	}
	free(path);
}

static void put_manifest(struct json_out *o, const struct json *m)
{
	static const char *const keys[] = { "policy", "fingerprint", "tokenizer_digest", "cursor", "scoring" };
	char *line = history_line(json_path(m, "history.entry"));

	for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++) {
		json_key(o, keys[i]);
		if (json_get(m, keys[i]))
			json_put(o, json_get(m, keys[i]));
		else
			json_put_null(o);
	}
	json_add_str(o, "made_by", line);
	free(line);
}

void print_samples(const char *path, bool json)
{
	struct json_out o = { 0 };
	struct samples s = { 0 };
	struct err e = ERR_INIT;
	const struct sample *first;

	if (samples_read_any(&s, path, &e))
		die_err(&e);
	first = s.n ? s.s : NULL;
	json_begin(&o, '{');
	json_add_str(&o, "kind", "samples");
	json_add_str(&o, "path", path);
	json_add_int(&o, "samples", s.n);
	json_add_int(&o, "groups", groups(&s));
	if (first) {
		json_add_int(&o, "step", first->step);
		json_add_str(&o, "split", first->split == SPLIT_VALIDATION ? "validation" : "train");
		json_add_real(&o, "temperature", first->temperature);
		json_add_real(&o, "top_p", first->top_p);
		json_add_int(&o, "top_k", first->top_k);
		json_add_real(&o, "min_p", first->min_p);
	}
	put_lengths(&o, &s);
	put_finishes(&o, &s);
	put_rewards(&o, &s);
	put_fields(&o, &s);
	if (file_is_dir(path)) {
		put_manifest(&o, &s.manifest.root);
		put_metrics(&o, path);
	}
	json_end(&o);
	print_facts(&o, json);
	samples_release(&s);
}

void print_samples_jsonl(const char *path)
{
	struct samples s = { 0 };
	struct str line = { 0 };
	struct err e = ERR_INIT;

	if (samples_read_any(&s, path, &e))
		die_err(&e);
	for (long i = 0; i < s.n && !ferror(stdout); i++) {
		str_cut(&line, 0);
		samples_put_jsonl(&line, &s, i);
		print_json_text(line.s, line.len);
	}
	str_release(&line);
	samples_release(&s);
}
