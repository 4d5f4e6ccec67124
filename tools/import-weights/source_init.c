#include "tools/import-weights/source.h"

#include <string.h>

#include "libcommon/file.h"

/* What the config leaves out and the tokenizer knows: a family's usual ids would be wrong for
 * another vocabulary. */
static void take_ids(struct model_config *c, const struct json *o, const struct tokenizer *t)
{
	const int *eos;
	long n = 0;

	if (!t)
		return;
	eos = tokenizer_eos(t, &n);
	if (!json_get(o, "bos_token_id"))
		c->bos = tokenizer_bos(t);
	if (!json_get(o, "pad_token_id"))
		c->pad = tokenizer_pad(t);
	if (json_get(o, "eos_token_id"))
		return;
	c->neos = 0;
	for (long i = 0; i < n && c->neos < (int)(sizeof(c->eos) / sizeof(*c->eos)); i++)
		c->eos[c->neos++] = eos[i];
}

/* vocab_size may be left to the tokenizer: it is put in on the first line, so that errors still
 * name the right one. */
static void complete(struct str *text, const struct json *given, const struct tokenizer *t)
{
	char *brace = memchr(text->s, '{', text->len);
	struct str full = { 0 };

	if (!t || !given->n || json_get(given, "vocab_size") || json_get(given, "text_config"))
		return;
	str_add(&full, text->s, (size_t)(brace + 1 - text->s));
	str_printf(&full, "\"vocab_size\": %ld,", tokenizer_size(t));
	str_add(&full, brace + 1, text->len - (size_t)(brace + 1 - text->s));
	str_release(text);
	*text = full;
}

static void read_config(struct source *s, const char *path)
{
	struct str text = { 0 };
	struct json_doc d, given;
	struct err e = ERR_INIT;

	if (file_read(&text, path, 1 << 20, &e) ||
	    json_parse(&given, text.s ? text.s : "", text.len, path, 1, &e))
		die_err(&e);
	if (!json_is(&given.root, JSON_OBJECT))
		die(EX_DATAERR, "%s: found %s, wanted an object", path,
		    json_type_name(&given.root));
	s->digest = hash128(text.s, text.len);
	complete(&text, &given.root, s->tokenizer);
	if (json_parse(&d, text.s, text.len, path, 1, &e) ||
	    model_config_from_json(&s->config, &d, &e))
		die_err(&e);
	take_ids(&s->config, &given.root, s->tokenizer);
	json_release(&d);
	json_release(&given);
	str_release(&text);
}

void source_open_init(struct source *s, const char *path, uint64_t seed, enum dtype dtype)
{
	s->kind = SOURCE_INIT;
	s->path = path;
	s->seed = seed;
	s->input = xstrdup(path);
	read_config(s, path);
	s->config.dtype = dtype == DTYPE_BF16 ? CONFIG_BF16 : CONFIG_F32;
	param_table_init(&s->table, &s->config);
	for (long i = 0; i < s->table.n; i++) {
		const struct param *p = &s->table.p[i];
		struct source_tensor *t = source_add(s, p->name, DTYPE_F32, p->shape, p->rank);

		t->param = p;
		t->unit = source_volume(t);
	}
	source_sort(s);
	source_make_configs(s);
}
