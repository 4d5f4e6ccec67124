#include "tools/rollout/rollout.h"

#include "libcommon/xalloc.h"
#include "tools/shared/prompt.h"

#include <stdlib.h>
#include <string.h>

static const char *data_text(const struct rollout *o, const char *name)
{
	char key[64];
	const char *found;

	snprintf(key, sizeof(key), "data.%s.%s", o->split == SPLIT_VALIDATION ? "validation" : "train", name);
	found = recipe_str(o->r, key);
	if (found || !strcmp(name, "data_path"))
		return found;
	snprintf(key, sizeof(key), "data.default.%s", name);
	return recipe_str(o->r, key);
}

static struct dataset *open_data(const struct rollout *o, const char *path)
{
	struct dataset_opts d = { data_text(o, "prompt_key"), data_text(o, "answer_key"), data_text(o, "messages_key"),
				  data_text(o, "prompt_file"), data_text(o, "system_prompt_file"), false };
	struct dataset *data;
	struct err e = ERR_INIT;

	if (!path)
		die(EX_CONFIG, "%s: data.%s.data_path: not given; wanted a JSON lines file of prompts there, or --prompts",
		    common.recipe ? common.recipe : "recipe", o->split_name);
	if (dataset_open(&data, path, &d, &e))
		die_err(&e);
	return data;
}

/* Without a template a prompt is what a lone user message says, with what the tokenizer puts around a text. */
static void encode_plain(struct token_list *ids, const struct rollout *o, const struct dataset_row *row)
{
	const struct json *m = row->messages, *content = m->n == 1 ? json_get(m->item, "content") : NULL;
	struct err e = ERR_INIT;

	if (!o->prompts_file || !json_is(content, JSON_STRING))
		die(EX_DATAERR, "%s: no chat template, wanted one to render prompts; policy.tokenizer.chat_template names a file,"
		    " chatml or plain", o->dir);
	if (tokenizer_encode(o->t, content->text, content->n, TOK_SPECIALS, ids, &e))
		die_err(&e);
}

static void encode_chat(struct token_list *ids, const struct rollout *o, const struct dataset_row *row)
{
	struct chat_render r = chat_variables(o->t, o->r);
	struct str text = { 0 };
	struct chat_span *span;
	struct err e = ERR_INIT;
	long n;

	r.messages = row->messages;
	r.tools = row->tools;
	r.add_generation_prompt = true;
	str_puts(&text, "");
	if (chat_template_render(o->tmpl, &r, &text, &span, &n, &e)) {
		err_prefix(&e, "line %ld of the prompts", row->line);
		die_err(&e);
	}
	encode_bos(ids, o->t, o->r, text.s, text.len);
	encode_rendered(ids, o->t, text.s, 0, text.len, span, n);
	free(span);
	str_release(&text);
}

/* --prompts: the row's own prompt_id, in all rows or in none; else the number of the row. */
static long prompt_id(const struct rollout *o, const struct dataset_row *row)
{
	const struct json *v = o->prompts_file ? json_get(row->raw, "prompt_id") : NULL;
	struct json_doc name = { .file = o->prompts_file };
	struct err e = ERR_INIT;
	long id;

	if (!v)
		return row->index;
	if (json_int(&name, v, "prompt_id", &id, &e))
		die_err(&e);
	if (id < 0)
		die(EX_DATAERR, "%s:%ld: prompt_id %ld, wanted 0 or more", o->prompts_file, row->line, id);
	return id;
}

/* False when the prompt is too long and left out. */
static bool add_prompt(struct rollout *o, const struct dataset *data, long index, long visit)
{
	struct prompts *s = &o->prompts;
	struct dataset_row row;
	struct token_list ids = { 0 };
	struct json_out json = { .indent = -1 };
	struct err e = ERR_INIT;
	bool fits;

	if (dataset_row(data, index, &row, &e))
		die_err(&e);
	if (o->tmpl)
		encode_chat(&ids, o, &row);
	else
		encode_plain(&ids, o, &row);
	if (!ids.n)
		die(EX_DATAERR, "line %ld of the prompts: no token at all, wanted at least one", row.line);
	fits = ids.n <= o->max_prompt;
	if (fits) {
		if (s->n == s->cap) {
			s->cap = s->cap ? 2 * s->cap : 64;
			s->gen = xrealloc_array(s->gen, (size_t)s->cap, sizeof(*s->gen));
			s->p = xrealloc_array(s->p, (size_t)s->cap, sizeof(*s->p));
		}
		json_put(&json, row.raw);
		s->p[s->n] = (struct prompt){ prompt_id(o, &row), visit, arena_strndup(&s->arena, json.s.s, json.s.len), json.s.len };
		s->gen[s->n] = (struct gen_prompt){
			memcpy(arena_alloc(&s->arena, (size_t)ids.n * sizeof(int)), ids.id, (size_t)ids.n * sizeof(int)), ids.n,
			(uint64_t)s->p[s->n].id,
			rng_key(o->seed, o->split == SPLIT_VALIDATION ? RNG_VALIDATION : RNG_SAMPLE, (uint64_t)visit),
		};
		s->longest = ids.n > s->longest ? ids.n : s->longest;
		s->n++;
	}
	s->skipped += !fits;
	json_out_release(&json);
	token_list_release(&ids);
	dataset_row_release(&row);
	return fits;
}

static void check_ids(const struct rollout *o, const struct dataset *data)
{
	long own = 0;

	for (long i = 0; i < dataset_count(data); i++) {
		struct dataset_row row;
		struct err e = ERR_INIT;

		if (dataset_row(data, i, &row, &e))
			die_err(&e);
		own += json_get(row.raw, "prompt_id") != NULL;
		if (own && own != i + 1)
			die(EX_DATAERR, "%s:%ld: rows with and without prompt_id, wanted it in all rows or in none", o->prompts_file,
			    row.line);
		dataset_row_release(&row);
	}
}

/* The cursor of the checkpoint or of --after; `where` names it. */
static const struct json *find_cursor(const struct rollout *o, struct json_doc *after, const char **where)
{
	struct err e = ERR_INIT;

	*where = o->dir;
	if (!o->after)
		return o->c.cursor;
	*where = o->after;
	if (manifest_read(after, o->after, "samples", &e))
		die_err(&e);
	return json_get(&after->root, "cursor");
}

static uint64_t start_position(const struct rollout *o)
{
	struct json_doc after = { .file = NULL };
	const char *where, *hex;
	const struct json *cursor = find_cursor(o, &after, &where);
	struct json_doc name = { .file = where };
	struct digest d;
	char want[33];
	uint64_t position = 0;
	struct err e = ERR_INIT;

	/* A cursor in rows belongs to supervised learning. */
	if (json_is(cursor, JSON_OBJECT) && !json_eq_str(json_get(cursor, "unit"), "rows") && !o->reset_cursor) {
		if (json_str(&name, json_get(cursor, "data"), "cursor.data", &hex, &e) ||
		    json_u64(&name, json_get(cursor, "position"), "cursor.position", &position, &e))
			die_err(&e);
		if (digest_parse(&d, hex) || !digest_equal(d, o->prompts.data))
			die(EX_CONFIG, "%s: its data cursor is of data %s, the training data are %s; --reset-cursor begins them at the start",
			    where, hex, digest_hex(want, o->prompts.data));
	} else if (o->after && !o->reset_cursor) {
		die(EX_DATAERR, "%s: no data cursor, wanted samples of training data", o->after);
	}
	if (o->after)
		json_release(&after);
	return position;
}

static void draw_prompts(struct rollout *o, const struct dataset *data)
{
	long want = recipe_int(o->r, "grpo.num_prompts_per_step"), n = dataset_count(data), missed = 0;
	uint64_t position = start_position(o);
	struct dataset_cursor order;
	char hex[33];

	dataset_cursor_init(&order, n, recipe_bool(o->r, "data.shuffle"), o->seed);
	while (o->prompts.n < want) {
		if (add_prompt(o, data, dataset_cursor_at(&order, position), (long)(position / (uint64_t)n)))
			missed = 0;
		else if (++missed == n)
			die(EX_DATAERR, "all %ld prompts have more than %ld tokens, wanted some that fit", n, o->max_prompt);
		position++;
	}
	dataset_cursor_release(&order);
	o->prompts.cursor = xasprintf("{\"data\": \"%s\", \"unit\": \"prompts\", \"position\": %llu}", digest_hex(hex, o->prompts.data),
				      (unsigned long long)position);
}

/* In file order, all of them, or for validation as many as grpo.max_val_samples. */
static void take_prompts(struct rollout *o, const struct dataset *data)
{
	long n = dataset_count(data);

	if (o->prompts_file)
		check_ids(o, data);
	else if (!recipe_is_null(o->r, "grpo.max_val_samples") && recipe_int(o->r, "grpo.max_val_samples") < n)
		n = recipe_int(o->r, "grpo.max_val_samples");
	for (long i = 0; i < n; i++)
		add_prompt(o, data, i, 0);
	if (!o->prompts.n)
		die(EX_DATAERR, "all %ld prompts have more than %ld tokens, wanted some that fit", n, o->max_prompt);
}

void prompts_load(struct rollout *o)
{
	struct dataset *data;

	o->prompts.path = o->prompts_file ? o->prompts_file : data_text(o, "data_path");
	data = open_data(o, o->prompts.path);
	o->prompts.data = dataset_digest(data);
	if (o->after && (o->prompts_file || o->split == SPLIT_VALIDATION))
		die(EX_USAGE, "--after: found with %s, wanted training data, which alone have a cursor",
		    o->prompts_file ? "--prompts" : "--split validation");
	if (o->prompts_file || o->split == SPLIT_VALIDATION)
		take_prompts(o, data);
	else
		draw_prompts(o, data);
	if (o->prompts.skipped)
		log_warn("%ld prompts of more than %ld tokens are left out", o->prompts.skipped, o->max_prompt);
	dataset_close(data);
}

void prompts_release(struct prompts *p)
{
	free(p->gen);
	free(p->p);
	free(p->cursor);
	arena_release(&p->arena);
	memset(p, 0, sizeof(*p));
}
