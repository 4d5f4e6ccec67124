#include "tools/import-weights/source.h"

#include <stdlib.h>
#include <string.h>

#include "formats/chat_template.h"
#include "libcommon/file.h"
#include "tools/import-weights/experts.h"
#include "tools/shared/config_edit.h"

enum { CONFIG_MOST = 16 << 20, SIDE_MOST = 1 << 30, BLOCK_MOST = 1 << 16 };

static const char scale_ending[] = ".weight_scale_inv";

/* The folder of the model: SRC itself, or where its file lies. */
static char *folder(const char *path)
{
	const char *slash = strrchr(path, '/');

	if (file_is_dir(path))
		return xstrdup(path);
	if (!slash)
		return xstrdup(".");
	return slash == path ? xstrdup("/") : xstrndup(path, (size_t)(slash - path));
}

/* weight_block_size of a quantization_config that we can carry out. */
static void read_blocks(struct source *s, const struct json_doc *d, const struct json *q)
{
	const struct json *size = json_get(q, "weight_block_size");
	struct err e = ERR_INIT;

	if (!json_eq_str(json_get(q, "quant_method"), "fp8"))
		die(EX_UNAVAILABLE,
		    "%s:%d: quantization_config: only quant_method \"fp8\" can be read", d->file,
		    q->line);
	if (!json_is(size, JSON_ARRAY) || size->n != 2)
		die(EX_UNAVAILABLE,
		    "%s:%d: quantization_config: only FP8 with a weight_block_size of two can be "
		    "read",
		    d->file, q->line);
	if (json_int(d, &size->item[0], "weight_block_size[0]", &s->block_rows, &e) ||
	    json_int(d, &size->item[1], "weight_block_size[1]", &s->block_cols, &e))
		die_err(&e);
	if (s->block_rows < 1 || s->block_cols < 1 || s->block_rows > BLOCK_MOST ||
	    s->block_cols > BLOCK_MOST)
		die(EX_DATAERR, "%s:%d: weight_block_size: found [%ld, %ld], wanted 1 to %d",
		    d->file, size->line, s->block_rows, s->block_cols, BLOCK_MOST);
	s->dequantised = true;
}

static void parse_config(struct source *s, const struct str *text, const char *path)
{
	struct json_doc d;
	struct err e = ERR_INIT;

	if (json_parse(&d, text->s ? text->s : "", text->len, path, 1, &e) ||
	    model_config_from_json(&s->config, &d, &e))
		die_err(&e);
	json_release(&d);
}

/* hf/config.json is that of the model as it will be stored: its type, and nothing quantised. */
static void read_config(struct source *s, const char *path, enum dtype dtype)
{
	struct str text = { 0 }, edited = { 0 };
	struct json_doc d;
	const struct json *q;
	struct err e = ERR_INIT;

	if (file_read(&text, path, CONFIG_MOST, &e) ||
	    json_parse(&d, text.s ? text.s : "", text.len, path, 1, &e))
		die_err(&e);
	s->digest = hash128(text.s, text.len);
	s->input = xstrdup(path);
	q = json_get(&d.root, "quantization_config");
	if (json_is(q, JSON_OBJECT))
		read_blocks(s, &d, q);
	json_release(&d);
	if (!s->dequantised)
		parse_config(s, &text, path);
	if (dtype != DTYPE_NONE || s->dequantised)
		config_edit_dtype(&edited, text.s, text.len, path,
				  dtype != DTYPE_NONE ? dtype : DTYPE_BF16, s->dequantised);
	else
		str_add(&edited, text.s, text.len);
	str_release(&text);
	if (s->dequantised)
		parse_config(s, &edited, path);
	source_put_side(s, "config.json", &edited);
}

const struct safetensors_item *source_scale_of(const struct source *s, const char *name)
{
	size_t n = strlen(name), m = strlen(".weight");
	const struct safetensors_item *item;
	char *scale;

	if (!s->block_rows || n < m || strcmp(name + n - m, ".weight"))
		return NULL;
	scale = xasprintf("%.*s%s", (int)(n - m), name, scale_ending);
	item = safetensors_set_find(&s->set, scale);
	free(scale);
	return item;
}

/* Is this the scale of a weight that is there? */
static bool is_scale(const struct source *s, const char *name)
{
	size_t n = strlen(name), m = strlen(scale_ending);
	bool is;
	char *weight;

	if (!s->block_rows || n < m || strcmp(name + n - m, scale_ending))
		return false;
	weight = xasprintf("%.*s.weight", (int)(n - m), name);
	is = safetensors_set_find(&s->set, weight);
	free(weight);
	return is;
}

void source_check_fp8(const struct source *s, const struct tensor *t,
		      const struct safetensors_item *scale)
{
	const struct safetensors_entry *en = scale->entry;

	if (t->dtype != DTYPE_F8_E4M3 || t->rank != 2)
		die(EX_DATAERR,
		    "%s: %s: found %s of rank %d with a weight_scale_inv, wanted a matrix of "
		    "float8_e4m3fn",
		    s->path, t->name, dtype_name(t->dtype), t->rank);
	if (en->rank != 2 || !dtype_is_float(en->dtype))
		die(EX_DATAERR, "%s: %s: found %s of rank %d, wanted a matrix of a floating type",
		    s->path, en->name, en->type_name, en->rank);
}

static void add_fp8(struct source *s, const struct tensor *t, const struct safetensors_item *item,
		    const struct safetensors_item *scale)
{
	struct source_tensor *x = source_add(s, t->name, DTYPE_F32, t->shape, t->rank);

	source_check_fp8(s, t, scale);
	x->item = item;
	x->scale = scale;
	x->unit = tensor_count(t) ? s->block_rows * t->shape[1] : 1;
}

static void list_tensors(struct source *s)
{
	struct err e = ERR_INIT;
	bool *taken = experts_list(s);

	for (long i = 0; i < s->set.n; i++) {
		const struct safetensors_item *item = &s->set.item[i],
					      *scale = source_scale_of(s, item->entry->name);
		struct tensor t;

		if (taken[i] || is_scale(s, item->entry->name))
			continue;
		if (safetensors_describe(&t, item->file, item->entry, &e))
			die_err(&e);
		if (scale)
			add_fp8(s, &t, item, scale);
		else
			source_add(s, t.name, t.dtype, t.shape, t.rank)->item = item;
	}
	free(taken);
	source_sort(s);
}

/* A side file of the folder, byte for byte; false where there is none. */
static bool take_side(struct source *s, const char *dir, const char *name)
{
	char *path = path_join(dir, name);
	struct str text = { 0 };
	struct err e = ERR_INIT;
	bool there = file_exists(path);

	if (there && file_read(&text, path, SIDE_MOST, &e))
		die_err(&e);
	if (there)
		source_put_side(s, name, &text);
	free(path);
	return there;
}

static const char *const tokenizer_files[] = {
	"tokenizer.json",
	"tokenizer_config.json",
	"special_tokens_map.json",
	"vocab.json",
	"merges.txt",
	"added_tokens.json",
	"tokenizer.model",
	"chat_template.jinja",
	"chat_template.json",
};
enum { TOKENIZER_FILES = sizeof(tokenizer_files) / sizeof(*tokenizer_files) };

static void set_template(struct source *s, const char *text, size_t n)
{
	str_cut(&s->chat_template, 0);
	str_add(&s->chat_template, text, n);
	s->has_template = true;
}

/* chat_template of tokenizer_config.json: a string, or a list of {name, template}, of which
 * "default" counts. */
static void template_of_config(struct source *s, const char *dir, const struct side *side)
{
	const struct json *v;
	struct json_doc d;
	struct err e = ERR_INIT;
	char *path = path_join(dir, side->name);

	if (json_parse(&d, side->text.s ? side->text.s : "", side->text.len, path, 1, &e))
		die_err(&e);
	v = json_get(&d.root, "chat_template");
	if (json_is(v, JSON_STRING))
		set_template(s, v->text, v->n);
	for (size_t i = 0; json_is(v, JSON_ARRAY) && i < v->n; i++) {
		const struct json *text = json_get(&v->item[i], "template");

		if (json_eq_str(json_get(&v->item[i], "name"), "default") &&
		    json_is(text, JSON_STRING))
			set_template(s, text->text, text->n);
	}
	json_release(&d);
	free(path);
}

static void find_template(struct source *s, const char *dir)
{
	const struct side *jinja = source_side(s, "chat_template.jinja"),
			  *config = source_side(s, "tokenizer_config.json");

	if (config)
		template_of_config(s, dir, config);
	if (jinja)
		set_template(s, jinja->text.s ? jinja->text.s : "", jinja->text.len);
}

static void open_tokenizer(struct source *s, const char *dir)
{
	char *path = path_join(dir, "tokenizer.json");
	const struct side *text, *config;
	struct err e = ERR_INIT;

	for (int i = 0; i < TOKENIZER_FILES; i++)
		take_side(s, dir, tokenizer_files[i]);
	text = source_side(s, "tokenizer.json");
	config = source_side(s, "tokenizer_config.json");
	if (text && tokenizer_from_json_text(&s->tokenizer, text->text.s ? text->text.s : "",
					     text->text.len, config ? config->text.s : NULL,
					     config ? config->text.len : 0, path, &e))
		die_err(&e);
	find_template(s, dir);
	free(path);
}

/* A tokenizer that comes from elsewhere is written out, so that the export has it. */
static void write_tokenizer(struct source *s)
{
	struct str text = { 0 }, config = { 0 };
	struct err e = ERR_INIT;

	if (tokenizer_write_json(s->tokenizer, &text, &config, &e))
		die_err(&e);
	source_put_side(s, "tokenizer.json", &text);
	source_put_side(s, "tokenizer_config.json", &config);
}

void source_tokenizer(struct source *s, const char *from)
{
	struct err e = ERR_INIT;

	for (int i = 0; i < TOKENIZER_FILES; i++)
		source_drop_side(s, tokenizer_files[i]);
	tokenizer_free(s->tokenizer);
	s->tokenizer = NULL;
	s->has_template = false;
	if (!strcmp(from, "none"))
		return;
	if (!strcmp(from, "bytes")) {
		if (tokenizer_bytes(&s->tokenizer))
			die_err(&e);
		write_tokenizer(s);
		return;
	}
	open_tokenizer(s, from);
	if (!s->tokenizer)
		die(EX_NOINPUT, "%s: no tokenizer.json in it", from);
}

/* BOS stands in the template itself, as in those of others: who reads the exported folder gets the
 * ids of a rollout. */
static void builtin_template(struct str *text, const struct source *s, const char *name)
{
	const struct tokenizer *t = s->tokenizer;

	if (t && tokenizer_adds_bos(t) && tokenizer_bos(t) >= 0)
		str_puts(text, "{{ bos_token }}");
	str_puts(text, chat_template_builtin_text(name));
	if (t && !strcmp(name, "chatml") &&
	    (tokenizer_id(t, "<|im_start|>") < 0 || tokenizer_id(t, "<|im_end|>") < 0))
		log_warn(
			"--chat-template chatml: its marks <|im_start|> and <|im_end|> are no tokens of this tokenizer, so they are "
			"spelt out and answered too; plain has none");
}

void source_chat_template(struct source *s, const char *from)
{
	struct str text = { 0 };
	struct err e = ERR_INIT;

	source_drop_side(s, "chat_template.jinja");
	s->has_template = false;
	if (!strcmp(from, "none"))
		return;
	if (chat_template_builtin_text(from))
		builtin_template(&text, s, from);
	else if (file_read(&text, from, 1 << 20, &e))
		die_err(&e);
	set_template(s, text.s ? text.s : "", text.len);
	source_put_side(s, "chat_template.jinja", &text);
}

static bool named(const char *path, const char *ending)
{
	const char *dot = strrchr(path, '.');

	return dot && !strcmp(dot, ending);
}

void source_open_hf(struct source *s, const char *path, enum dtype dtype)
{
	char *dir = folder(path), *config = path_join(dir, "config.json"),
	     *adapter = path_join(dir, "adapter_config.json"),
	     *manifest = path_join(path, "manifest.json");
	struct err e = ERR_INIT;

	s->kind = SOURCE_HF;
	s->path = path;
	if (!file_exists(path))
		die(EX_NOINPUT, "%s: no such file or folder", path);
	if (!file_is_dir(path) && !named(path, ".safetensors") && !named(path, ".json"))
		die(EX_DATAERR,
		    "%s: no model; wanted a Hugging Face folder, a .safetensors or a .gguf file%s",
		    path,
		    named(path, ".yaml") || named(path, ".yml")
			    ? " (a recipe names its model in policy.model_name)"
			    : "");
	if (file_exists(manifest))
		die(EX_DATAERR,
		    "%s: a checkpoint or samples already, wanted a Hugging Face folder, a .safetensors or a .gguf file",
		    path);
	if (file_exists(adapter) && !file_exists(config))
		die(EX_UNAVAILABLE, "%s: an adapter; importing adapters is not built", path);
	read_config(s, config, dtype);
	param_table_init(&s->table, &s->config);
	if (safetensors_set_open(&s->set, path, &e))
		die_err(&e);
	list_tensors(s);
	take_side(s, dir, "generation_config.json");
	open_tokenizer(s, dir);
	free(dir);
	free(config);
	free(adapter);
	free(manifest);
}
