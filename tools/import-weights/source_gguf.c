#include "tools/import-weights/source.h"

#include <stdlib.h>
#include <string.h>

static void add_tensor(struct source *s, const struct gguf_tensor *g)
{
	const struct param *p;
	struct source_tensor *x;
	struct tensor t;
	struct err e = ERR_INIT;
	char name[128];
	int known = gguf_hf_name(name, s->config.model_type, g->name);

	if (known > 0)
		return;
	if (known < 0)
		die(EX_DATAERR, "%s: %s: no weight of a %s model", s->path, g->name,
		    s->config.model_type);
	if (gguf_describe(&t, &s->gguf, g, &e))
		die_err(&e);
	/* The converter drops a dimension of 1. */
	p = param_find(&s->table, name);
	if (p && p->rank == 2 && p->shape[0] == 1 && t.rank == 1) {
		t.shape[1] = t.shape[0];
		t.shape[0] = 1;
		t.rank = 2;
	}
	x = source_add(s, name, t.dtype, t.shape, t.rank);
	x->gguf = g;
	x->heads = gguf_permuted_heads(&s->config, g->name);
	if (x->heads && (x->shape[0] % x->heads || x->shape[0] / x->heads % 2))
		die(EX_DATAERR, "%s: %s: %ld rows are not %ld heads", s->path, g->name, x->shape[0],
		    x->heads);
	/* Whole rows, and whole heads where their rows are interleaved. */
	x->unit = x->rank ? x->shape[x->rank - 1] : 1;
	if (x->heads && x->rank > 1)
		x->unit *= x->shape[0] / x->heads;
}

static void take_tokenizer(struct source *s)
{
	struct tokenizer_source from;
	struct str text = { 0 }, config = { 0 };
	struct err e = ERR_INIT;

	if (gguf_tokenizer_source(&from, &s->gguf, &e) ||
	    tokenizer_from_source(&s->tokenizer, &from, s->path, &e) ||
	    tokenizer_write_json(s->tokenizer, &text, &config, &e))
		die_err(&e);
	source_put_side(s, "tokenizer.json", &text);
	source_put_side(s, "tokenizer_config.json", &config);
}

static void take_template(struct source *s)
{
	struct str side = { 0 };
	struct err e = ERR_INIT;
	const char *text;

	if (gguf_chat_template(&text, &s->gguf, &e))
		die_err(&e);
	if (!text)
		return;
	str_puts(&s->chat_template, text);
	s->has_template = true;
	str_puts(&side, text);
	source_put_side(s, "chat_template.jinja", &side);
}

void source_open_gguf(struct source *s, const char *path, enum dtype dtype)
{
	struct err e = ERR_INIT;

	s->kind = SOURCE_GGUF;
	s->path = path;
	s->input = xstrdup(path);
	if (gguf_open(&s->gguf, path, &e) || gguf_model_config(&s->config, &s->gguf, &e) ||
	    hash128_file(&s->digest, path, &e))
		die_err(&e);
	if (dtype != DTYPE_NONE)
		s->config.dtype = dtype == DTYPE_BF16 ? CONFIG_BF16 : CONFIG_F32;
	param_table_init(&s->table, &s->config);
	for (long i = 0; i < s->gguf.n; i++)
		add_tensor(s, &s->gguf.tensor[i]);
	source_sort(s);
	if (gguf_find(&s->gguf, "tokenizer.ggml.model"))
		take_tokenizer(s);
	take_template(s);
	source_make_configs(s);
}
