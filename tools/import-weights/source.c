#include "tools/import-weights/source.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/model/model.h"
#include "libcommon/box.h"

static bool ends_with(const char *s, const char *end)
{
	size_t n = strlen(s), m = strlen(end);

	return n >= m && !strcmp(s + n - m, end);
}

void source_open(struct source *s, const char *path, enum dtype dtype)
{
	if (ends_with(path, ".gguf"))
		source_open_gguf(s, path, dtype);
	else
		source_open_hf(s, path, dtype);
}

void source_close(struct source *s)
{
	for (long i = 0; i < s->n; i++) {
		free(s->t[i].name);
		free(s->t[i].part);
	}
	str_release(&s->spelling);
	for (long i = 0; i < s->sides; i++) {
		free(s->side[i].name);
		str_release(&s->side[i].text);
	}
	free(s->t);
	free(s->side);
	tokenizer_free(s->tokenizer);
	str_release(&s->chat_template);
	free(s->input);
	param_table_release(&s->table);
	safetensors_set_close(&s->set);
	gguf_close(&s->gguf);
}

long source_volume(const struct source_tensor *t)
{
	struct box b = box_whole(t->shape, t->rank);

	return box_volume(&b);
}

struct source_tensor *source_add(struct source *s, const char *name, enum dtype dtype,
				 const long *shape, int rank)
{
	struct source_tensor *t;

	GROW(s->t, s->n, s->cap);
	t = &s->t[s->n++];
	*t = (struct source_tensor){
		.name = xstrdup(name), .dtype = dtype, .rank = rank, .unit = 1
	};
	for (int i = 0; i < rank; i++)
		t->shape[i] = shape[i];
	return t;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct source_tensor *)a)->name,
		      ((const struct source_tensor *)b)->name);
}

void source_sort(struct source *s)
{
	if (s->n)
		qsort(s->t, (size_t)s->n, sizeof(*s->t), by_name);
}

const struct source_tensor *source_find(const struct source *s, const char *name)
{
	struct source_tensor key = { .name = (char *)name };

	return s->n ? bsearch(&key, s->t, (size_t)s->n, sizeof(key), by_name) : NULL;
}

static void read_plain(void *out, const struct source_tensor *t, long first, long n)
{
	size_t size = dtype_size(t->dtype);
	struct err e = ERR_INIT;

	if (safetensors_read(out, t->item->file, t->item->entry, (uint64_t)(t->base + first) * size,
			     (size_t)n * size, &e))
		die_err(&e);
}

/* The scales of the blocks that rows first .. first + rows - 1 lie in, widened; the caller frees.
 */
static float *read_scales(const struct source *s, const struct source_tensor *t, long first,
			  long rows, long *srows)
{
	const struct safetensors_entry *en = t->scale->entry;
	long at = first / s->block_rows, cols = en->shape[1], need = (rows - 1) / s->block_rows + 1;
	size_t size = dtype_size(en->dtype);
	struct err e = ERR_INIT;

	*srows = en->shape[0] - at;
	if (*srows <= 0 || cols <= 0)
		die(EX_DATAERR,
		    "%s: %s: scales [%ld, %ld] are too few for [%ld, %ld] in blocks of %ld x %ld",
		    s->path, t->name, en->shape[0], cols, t->shape[0], t->shape[1], s->block_rows,
		    s->block_cols);
	if (*srows > need)
		*srows = need;
	size_t n = (size_t)*srows * (size_t)cols;
	void *raw = xmalloc(n * size);
	float *wide = xmalloc(n * sizeof(*wide));
	if (safetensors_read(raw, t->scale->file, en, (uint64_t)at * (uint64_t)cols * size,
			     n * size, &e))
		die_err(&e);
	dtype_convert(wide, DTYPE_F32, raw, en->dtype, n);
	free(raw);
	return wide;
}

/* A unit is one row of blocks, so a read begins at the first row of one. */
static void read_fp8(float *out, const struct source *s, const struct source_tensor *t, long first,
		     long n)
{
	long cols = t->shape[1], row = first / cols, rows = n / cols, srows;
	float *scale = read_scales(s, t, row, rows, &srows);
	uint8_t *raw = xmalloc((size_t)n);
	struct err e = ERR_INIT;

	if (safetensors_read(raw, t->item->file, t->item->entry, (uint64_t)first, (size_t)n, &e) ||
	    safetensors_dequant_fp8(out, raw, scale, rows, cols, srows, t->scale->entry->shape[1],
				    s->block_rows, s->block_cols, t->name, &e)) {
		err_prefix(&e, "%s", s->path);
		die_err(&e);
	}
	free(raw);
	free(scale);
}

static void read_gguf(void *out, const struct source *s, const struct source_tensor *t, long first,
		      long n)
{
	long cols = t->shape[t->rank - 1], row = first / cols, rows = n / cols;
	size_t bytes = (size_t)n * dtype_size(t->dtype);
	char *raw = t->heads ? xmalloc(bytes) : out;
	struct err e = ERR_INIT;

	if (gguf_read(raw, &s->gguf, t->gguf, row, rows, &e))
		die_err(&e);
	if (!t->heads)
		return;
	/* A bias is one row for the reader, and one element for each row of its matrix. */
	long of_matrix = t->rank == 1 ? n : rows, per_head = t->shape[0] / t->heads;
	gguf_unpermute_qk(out, raw, of_matrix, of_matrix / per_head, bytes / (size_t)of_matrix);
	free(raw);
}

/* The whole tensor is one unit: its values are a function of seed, name and index. */
static void read_random(float *out, const struct source *s, const struct source_tensor *t,
			long first, long n)
{
	if (first || n != source_volume(t))
		bug("%s: a part of a random tensor", t->name);
	param_init_random(out, t->param, &s->config, s->seed);
}

static void read_parts(char *out, struct source *s, const struct source_tensor *t, long first, long n)
{
	long each = source_volume(t) / t->parts;

	for (long take; n; first += take, n -= take) {
		take = each - first % each;
		take = take < n ? take : n;
		source_read(out, s, t->part + first / each, first % each, take);
		out += (size_t)take * dtype_size(t->dtype);
	}
}

void source_read(void *out, struct source *s, const struct source_tensor *t, long first, long n)
{
	if (t->parts) {
		read_parts(out, s, t, first, n);
		return;
	}
	if (s->kind == SOURCE_INIT)
		read_random(out, s, t, first, n);
	else if (s->kind == SOURCE_GGUF)
		read_gguf(out, s, t, first, n);
	else if (t->scale)
		read_fp8(out, s, t, first, n);
	else
		read_plain(out, t, first, n);
}

static struct side *find_side(const struct source *s, const char *name)
{
	for (long i = 0; i < s->sides; i++)
		if (!strcmp(s->side[i].name, name))
			return &s->side[i];
	return NULL;
}

const struct side *source_side(const struct source *s, const char *name)
{
	return find_side(s, name);
}

void source_put_side(struct source *s, const char *name, struct str *text)
{
	struct side *side = find_side(s, name);

	if (!side) {
		GROW(s->side, s->sides, s->side_cap);
		side = &s->side[s->sides++];
		*side = (struct side){ .name = xstrdup(name) };
	}
	str_release(&side->text);
	side->text = *text;
	*text = (struct str){ 0 };
}

void source_drop_side(struct source *s, const char *name)
{
	struct side *side = find_side(s, name);

	if (!side)
		return;
	free(side->name);
	str_release(&side->text);
	*side = s->side[--s->sides];
}

static void put_id(struct json_out *o, const char *key, long id)
{
	if (id >= 0)
		json_add_int(o, key, id);
}

static void make_generation_config(struct source *s)
{
	const struct model_config *c = &s->config;
	struct json_out o = { .indent = 2 };

	json_begin(&o, '{');
	json_add_bool(&o, "_from_model_config", true);
	put_id(&o, "bos_token_id", c->bos);
	if (c->neos > 1) {
		json_key(&o, "eos_token_id");
		json_begin(&o, '[');
		for (int i = 0; i < c->neos; i++)
			json_put_int(&o, c->eos[i]);
		json_end(&o);
	} else if (c->neos) {
		put_id(&o, "eos_token_id", c->eos[0]);
	}
	put_id(&o, "pad_token_id", c->pad);
	json_end(&o);
	str_putc(&o.s, '\n');
	source_put_side(s, "generation_config.json", &o.s);
	json_out_release(&o);
}

void source_make_configs(struct source *s)
{
	struct json_out o = { .indent = 2 };

	model_config_to_json(&o, &s->config);
	str_putc(&o.s, '\n');
	source_put_side(s, "config.json", &o.s);
	json_out_release(&o);
	make_generation_config(s);
}
