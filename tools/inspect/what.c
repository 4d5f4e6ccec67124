#include "tools/inspect/inspect.h"

#include "formats/checkpoint.h"
#include "formats/samples.h"
#include "libcommon/file.h"
#include "libcommon/xalloc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void print_recipe(const char *path, const char *get, bool json)
{
	struct recipe *r;
	struct str text = { 0 };
	struct json_out o = { .indent = 2 };
	struct err e = ERR_INIT;

	if (recipe_load(&r, path, common.overrides.v, common.overrides.n, common.unset.v, common.unset.n, &e))
		die_err(&e);
	if (get) {
		const struct json *v;
		struct json_out one = { 0 };

		if (recipe_explain(&text, get, &e))
			die_err(&e);
		v = recipe_value(r, get);
		if (json_is(v, JSON_STRING)) {
			printf("%s\n", v->text);
		} else if (recipe_key_find(get)->type == RECIPE_REAL && json_is(v, JSON_NUMBER)) {
			char buf[32];

			printf("%s\n", real_repr(buf, strtod(v->text, NULL)));
		} else if (!json_is(v, JSON_NULL)) {
			json_put(&one, v);
			printf("%s\n", one.s.s);
		}
		return;
	}
	if (json) {
		if (recipe_write_json(&o, r))
			bug("the effective recipe cannot be written");
		printf("%s\n", o.s.s);
		return;
	}
	if (recipe_write_yaml(&text, r))
		bug("the effective recipe cannot be written");
	fwrite(text.s, 1, text.len, stdout);
}

static void put_metrics(struct json_out *o, const char *dir)
{
	char *path = path_join(dir, "metrics.json");
	struct json_doc d;
	struct err e = ERR_INIT;

	if (file_exists(path)) {
		if (json_read(&d, path, 1 << 20, &e))
			die_err(&e);
		json_key(o, "metrics");
		json_put(o, &d.root);
		json_release(&d);
	}
	free(path);
}

void print_checkpoint(const char *dir, bool json)
{
	struct json_out o = { .indent = json ? 0 : 2 };
	struct checkpoint c;
	struct err e = ERR_INIT;
	char hex[33];
	double bytes = 0, elements = 0;

	if (checkpoint_open(&c, dir, &e))
		die_err(&e);
	for (long i = 0; i < c.n; i++) {
		struct box b = box_whole(c.tensor[i].shape, c.tensor[i].rank);

		bytes += (double)box_volume(&b) * (double)dtype_size(c.tensor[i].dtype);
		if (c.tensor[i].slot == SLOT_WEIGHT)
			elements += (double)box_volume(&b);
	}
	json_begin(&o, '{');
	json_add_str(&o, "kind", "model");
	json_add_str(&o, "path", dir);
	json_add_int(&o, "parameters", (long)elements);
	json_add_int(&o, "tensors", c.n);
	json_add_int(&o, "bytes", (long)bytes);
	json_add_int(&o, "step", c.counters.step);
	json_add_int(&o, "updates", c.counters.updates);
	json_add_int(&o, "consumed_samples", c.counters.consumed_samples);
	json_add_int(&o, "tokens", c.counters.tokens);
	json_add_str(&o, "optimizer", c.optimizer);
	json_add_str(&o, "precision", c.precision);
	json_add_bool(&o, "tokenizer", c.has_tokenizer);
	json_add_str(&o, "weights_digest", digest_hex(hex, c.weights_digest));
	if (c.has_optimizer)
		json_add_str(&o, "optimizer_digest", digest_hex(hex, c.optimizer_digest));
	put_metrics(&o, dir);
	json_end(&o);
	puts(o.s.s);
	checkpoint_close(&c);
}

void print_samples(const char *dir, bool json)
{
	struct json_out o = { .indent = json ? 0 : 2 };
	struct samples s = { 0 };
	struct err e = ERR_INIT;
	double tokens = 0;
	long scored = 0;

	if (samples_read(&s, dir, &e))
		die_err(&e);
	for (long i = 0; i < s.n; i++) {
		tokens += (double)(s.s[i].length - s.s[i].prompt_length);
		scored += s.s[i].has_reward;
	}
	json_begin(&o, '{');
	json_add_str(&o, "kind", "samples");
	json_add_str(&o, "path", dir);
	json_add_int(&o, "samples", s.n);
	json_add_int(&o, "scored", scored);
	json_add_int(&o, "step", s.n ? s.s[0].step : 0);
	json_add_str(&o, "split", s.n && s.s[0].split == SPLIT_VALIDATION ? "validation" : "train");
	json_add_int(&o, "generated_tokens", (long)tokens);
	put_metrics(&o, dir);
	json_end(&o);
	puts(o.s.s);
	samples_release(&s);
}
