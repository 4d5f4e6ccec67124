#include "tools/inspect/inspect.h"

#include "libcommon/file.h"
#include "libcommon/model_config.h"
#include "libcommon/xalloc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* "60 experts of 1408 (4 a token) in 24 layers, ", or nothing. */
static char *describe_experts(const struct model_config *c)
{
	const struct moe_config *m = &c->moe;

	if (!m->experts)
		return xstrdup("");
	return xasprintf("%ld experts of %ld (%ld a token%s) in %ld layers, ", m->experts, m->intermediate, m->experts_per_token,
			 m->shared_intermediate ? ", one more shared" : "", model_config_moe_layers(c));
}

/* How the model looks in a line; a family that the programs do not know by its name alone. */
static char *model_line(const struct checkpoint *c)
{
	struct str text = { 0 };
	struct json_doc d;
	struct model_config m;
	struct err e = ERR_INIT, why = ERR_INIT;
	char *line;

	if (checkpoint_side_file(&text, c, "hf/config.json", &e) || json_parse(&d, text.s, text.len, "hf/config.json", 1, &e))
		die_err(&e);
	if (model_config_from_json(&m, &d, &why)) {
		const struct json *type = json_get(&d.root, "model_type");

		line = xasprintf("%s (%s)", json_is(type, JSON_STRING) ? type->text : "unknown", why.msg);
	} else {
		char *experts = describe_experts(&m);

		line = xasprintf("%s: %ld layers, hidden %ld, %ld heads of %ld (%ld of keys), intermediate %ld, %svocabulary %ld%s, "
				 "%ld positions",
				 m.architecture, m.layers, m.hidden, m.heads, m.head_dim, m.kv_heads, m.intermediate, experts, m.vocab,
				 m.tied ? " (tied)" : "", m.max_position);
		free(experts);
	}
	json_release(&d);
	str_release(&text);
	return line;
}

/* Elements of the weights by type, and all bytes. */
static void put_sizes(struct json_out *o, const struct checkpoint *c)
{
	long of[DTYPE_COUNT] = { 0 }, elements = 0, bytes = 0;
	bool slot[SLOT_COUNT] = { false };

	for (long i = 0; i < c->n; i++) {
		struct box b = box_whole(c->tensor[i].shape, c->tensor[i].rank);

		bytes += box_volume(&b) * (long)dtype_size(c->tensor[i].dtype);
		slot[c->tensor[i].slot] = true;
		if (c->tensor[i].slot != SLOT_WEIGHT)
			continue;
		of[c->tensor[i].dtype] += box_volume(&b);
		elements += box_volume(&b);
	}
	json_add_int(o, "parameters", elements);
	json_key(o, "dtypes");
	json_begin(o, '{');
	for (int t = 0; t < DTYPE_COUNT; t++)
		if (of[t])
			json_add_int(o, dtype_name((enum dtype)t), of[t]);
	json_end(o);
	json_add_int(o, "tensors", c->n);
	json_key(o, "slots");
	json_begin(o, '[');
	for (int s = 0; s < SLOT_COUNT; s++)
		if (slot[s])
			json_put_str(o, slot_name((enum slot)s));
	json_end(o);
	json_add_int(o, "bytes", bytes);
	json_add_int(o, "files", (long)json_get(&c->manifest.root, "shards")->n);
}

static void put_counters(struct json_out *o, const struct counters *n)
{
	json_add_int(o, "step", n->step);
	json_add_int(o, "updates", n->updates);
	json_add_int(o, "schedule_step", n->schedule_step);
	json_add_int(o, "skipped", n->skipped);
	json_add_int(o, "consumed_samples", n->consumed_samples);
	json_add_int(o, "tokens", n->tokens);
}

static void put_metrics(struct json_out *o, const struct checkpoint *c)
{
	struct str text = { 0 };
	struct json_doc d;
	struct err e = ERR_INIT;

	if (!checkpoint_has_side(c, "metrics.json"))
		return;
	if (checkpoint_side_file(&text, c, "metrics.json", &e) ||
	    json_parse(&d, text.s ? text.s : "", text.len, "metrics.json", 1, &e))
		die_err(&e);
	json_key(o, "metrics");
	json_put(o, &d.root);
	json_release(&d);
	str_release(&text);
}

static void put_json(struct json_out *o, const char *key, const struct json *v)
{
	json_key(o, key);
	if (v)
		json_put(o, v);
	else
		json_put_null(o);
}

void print_checkpoint(const char *dir, bool json)
{
	struct json_out o = { 0 };
	struct checkpoint c;
	struct err e = ERR_INIT;
	char hex[33], *text;

	if (checkpoint_open(&c, dir, &e))
		die_err(&e);
	json_begin(&o, '{');
	json_add_str(&o, "kind", "model");
	json_add_str(&o, "path", dir);
	json_add_str(&o, "model", text = model_line(&c));
	free(text);
	put_sizes(&o, &c);
	put_counters(&o, &c.counters);
	put_json(&o, "cursor", c.cursor);
	json_add_str(&o, "head", c.head);
	json_add_str(&o, "optimizer", c.optimizer);
	json_add_str(&o, "precision", c.precision);
	json_add_str(&o, "fingerprint", c.fingerprint);
	if (json) {
		put_json(&o, "layout", json_get(&c.manifest.root, "layout"));
	} else {
		json_add_str(&o, "layout", text = layout_text(&c.layout));
		free(text);
	}
	json_add_str(&o, "tokenizer", c.has_tokenizer ? digest_hex(hex, c.tokenizer_digest) : NULL);
	json_add_str(&o, "weights_digest", digest_hex(hex, c.weights_digest));
	json_add_str(&o, "optimizer_digest", c.has_optimizer ? digest_hex(hex, c.optimizer_digest) : NULL);
	json_add_str(&o, "made_by", text = history_line(json_get(c.history, "entry")));
	free(text);
	put_metrics(&o, &c);
	json_end(&o);
	print_facts(&o, json);
	checkpoint_close(&c);
}

void verify_files(const char *dir, const char *kind, bool json)
{
	struct json_out o = { 0 };
	struct checkpoint c = { 0 };
	struct err e = ERR_INIT;

	if (!strcmp(kind, "samples")) {
		if (samples_verify(dir, true, &e))
			die_err(&e);
	} else if (checkpoint_open(&c, dir, &e) || checkpoint_verify(&c, true, &e)) {
		die_err(&e);
	}
	checkpoint_close(&c);
	json_begin(&o, '{');
	json_add_str(&o, "path", dir);
	json_add_bool(&o, "verified", true);
	json_end(&o);
	print_facts(&o, json);
}
