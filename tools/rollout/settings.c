#include "tools/rollout/rollout.h"

#include "libcommon/xalloc.h"
#include "tools/shared/replay.h"

#include <stdlib.h>
#include <string.h>

enum { PLAIN_NEW = 256 };       /* most new tokens of --prompts where nobody says */

static void split_of(struct rollout *o)
{
	if (!strcmp(o->split_name, "train"))
		o->split = SPLIT_TRAIN;
	else if (!strcmp(o->split_name, "validation"))
		o->split = SPLIT_VALIDATION;
	else
		die(EX_USAGE, "--split: found \"%s\", wanted train or validation", o->split_name);
}

/* The key of this split: policy.generation.NAME, or val_NAME. */
static const char *key_of(const struct rollout *o, char buf[64], const char *name)
{
	snprintf(buf, 64, "policy.generation.%s%s", o->split == SPLIT_VALIDATION ? "val_" : "",
		 name);
	return buf;
}

static void read_draws(struct rollout *o)
{
	char key[64];

	o->temperature = recipe_real(o->r, key_of(o, key, "temperature"));
	if (o->temperature != 0 &&
	    !(o->temperature >= TEMPERATURE_LEAST && o->temperature <= TEMPERATURE_MOST))
		die(EX_CONFIG, "%s: %s: found %g, wanted 0 (greedy), or %g to %g",
		    recipe_where(o->r, key), key, o->temperature, TEMPERATURE_LEAST,
		    TEMPERATURE_MOST);
	o->top_p = recipe_real(o->r, key_of(o, key, "top_p"));
	o->min_p = recipe_real(o->r, key_of(o, key, "min_p"));
	key_of(o, key, "top_k");
	o->how.top_k = recipe_is_null(o->r, key) ? 0 : recipe_int(o->r, key);
	if (o->how.top_k < 0)
		o->how.top_k = 0;
	o->how.temperature = (float)o->temperature;
	o->how.top_p = (float)o->top_p;
	o->how.min_p = (float)o->min_p;
}

/*
 * With --prompts alone the model's own context holds and 256 new tokens, unless the recipe or the
 * user says otherwise; and one sample unless the command line does, for the groups of a recipe's
 * file are those of its own data.
 */
static void read_lengths(struct rollout *o)
{
	const struct recipe *r = o->r;
	bool plain = o->prompts_file != NULL;
	const char *samples = o->split == SPLIT_VALIDATION ? "grpo.val_num_generations_per_prompt"
							     : "grpo.num_generations_per_prompt";

	o->context = o->cfg.max_position;
	if ((!plain || recipe_is_set(r, "policy.max_total_sequence_length")) &&
	    recipe_int(r, "policy.max_total_sequence_length") < o->context)
		o->context = recipe_int(r, "policy.max_total_sequence_length");
	o->how.context = o->context;
	if (!plain || recipe_is_set(r, "policy.generation.max_new_tokens"))
		o->how.max_new = recipe_int(r, "policy.generation.max_new_tokens");
	else
		o->how.max_new = recipe_is_set(r, "policy.max_total_sequence_length") ? o->context
										      : PLAIN_NEW;
	o->max_prompt = o->context - 1;
	if ((!plain || recipe_is_set(r, "data.max_input_seq_length")) &&
	    !recipe_is_null(r, "data.max_input_seq_length") &&
	    recipe_int(r, "data.max_input_seq_length") < o->max_prompt)
		o->max_prompt = recipe_int(r, "data.max_input_seq_length");
	if (o->samples)
		o->how.samples = o->samples;
	else
		o->how.samples = plain && strcmp(recipe_where(r, samples), "command line")
					 ? 1
					 : recipe_int(r, samples);
	if (o->max_prompt < 1)
		die(EX_CONFIG,
		    "%s: policy.max_total_sequence_length: found %ld, wanted room for a prompt and a token",
		    recipe_where(r, "policy.max_total_sequence_length"), o->context);
}

static void read_stops(struct rollout *o)
{
	static const char key[] = "policy.generation.stop_strings";
	const struct json *v = recipe_value(o->r, key);
	const char **string;
	int *ids;

	o->how.stop.t = o->t;
	o->how.stop.ids = load_stop_ids(&ids, &o->c, &o->cfg, o->t, o->r);
	o->how.stop.id = ids;
	if (!json_is(v, JSON_ARRAY))
		return;
	string = xcalloc(v->n + 1, sizeof(*string));
	for (size_t i = 0; i < v->n; i++) {
		const struct json *s = v->item + i;

		if (!json_is(s, JSON_STRING) || !s->n || strlen(s->text) != s->n)
			die(EX_CONFIG,
			    "%s: %s: wanted strings of at least one character, without NUL",
			    recipe_where(o->r, key), key);
		string[i] = s->text;
	}
	o->how.stop.string = string;
	o->how.stop.strings = (long)v->n;
}

/* Ids beyond the tokenizer, and holes in it, are never drawn. */
static void read_allowed(struct rollout *o)
{
	uint8_t *allowed = xcalloc((size_t)o->cfg.vocab, 1);

	for (long i = 0; i < o->cfg.vocab; i++)
		allowed[i] = tokenizer_knows(o->t, i);
	o->how.allowed = allowed;
}

void settings_read(struct rollout *o)
{
	split_of(o);
	o->seed = (uint64_t)recipe_int(o->r, "grpo.seed");
	if (o->step < 0)
		o->step = o->c.counters.step + 1;
	read_draws(o);
	read_lengths(o);
	read_stops(o);
	read_allowed(o);
	o->how.experts = o->split == SPLIT_TRAIN && replay_wanted(o->r, &o->cfg);
}
