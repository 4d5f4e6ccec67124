#include "tools/inspect/inspect.h"

#include "formats/gguf.h"
#include "formats/safetensors.h"
#include "libcommon/file.h"
#include "libcommon/xalloc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { TYPES = 64 };

/* Elements and bytes by the name of a type. */
struct tally {
	struct { const char *name; long elements; } of[TYPES];
	int types;
	long tensors, elements, bytes;
};

static void tally_add(struct tally *t, const char *type, long elements, uint64_t bytes)
{
	int i = 0;

	while (i < t->types && strcmp(t->of[i].name, type))
		i++;
	if (i == t->types && i < TYPES - 1)
		t->of[t->types++].name = type;
	t->of[i].elements += elements;
	t->tensors++;
	t->elements += elements;
	t->bytes += (long)bytes;
}

static void put_tally(struct json_out *o, const struct tally *t)
{
	json_add_int(o, "parameters", t->elements);
	json_add_int(o, "tensors", t->tensors);
	json_key(o, "dtypes");
	json_begin(o, '{');
	for (int i = 0; i < t->types; i++)
		json_add_int(o, t->of[i].name, t->of[i].elements);
	json_end(o);
	json_add_int(o, "bytes", t->bytes);
}

static bool has_suffix(const char *path, const char *tail)
{
	size_t n = strlen(path), m = strlen(tail);

	return n > m && !strcmp(path + n - m, tail);
}

static bool is_gguf(const char *path)
{
	struct stat st;
	char magic[4];
	FILE *f;
	bool yes;

	/* A pipe could be read only once. */
	if (stat(path, &st) || !S_ISREG(st.st_mode) || !(f = fopen(path, "r")))
		return false;
	yes = fread(magic, 1, 4, f) == 4 && !memcmp(magic, "GGUF", 4);
	fclose(f);
	return yes;
}

static bool has_file(const char *dir, const char *name)
{
	char *path = path_join(dir, name);
	bool yes = file_exists(path);

	free(path);
	return yes;
}

bool is_foreign(const char *path)
{
	if (!file_is_dir(path))
		return has_suffix(path, ".safetensors") || has_suffix(path, ".gguf") || is_gguf(path);
	return has_file(path, "config.json") || has_file(path, "model.safetensors") || has_file(path, "model.safetensors.index.json");
}

/* config.json in a few words. */
static void put_config(struct json_out *o, const char *dir)
{
	static const char *const keys[] = { "model_type", "num_hidden_layers", "hidden_size", "num_attention_heads",
					    "num_key_value_heads", "vocab_size", "max_position_embeddings", "torch_dtype", "dtype" };
	char *path = path_join(dir, "config.json");
	struct json_doc d;
	struct err e = ERR_INIT;

	if (file_exists(path)) {
		if (json_read(&d, path, 16 << 20, &e))
			die_err(&e);
		json_key(o, "config");
		json_begin(o, '{');
		for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++)
			if (json_get(&d.root, keys[i])) {
				json_key(o, keys[i]);
				json_put(o, json_get(&d.root, keys[i]));
			}
		json_end(o);
		json_release(&d);
	}
	free(path);
}

static void put_safetensors(struct json_out *o, const char *path)
{
	struct safetensors_set s;
	struct tally t = { 0 };
	struct err e = ERR_INIT;

	if (safetensors_set_open(&s, path, &e))
		die_err(&e);
	for (long i = 0; i < s.n; i++) {
		const struct safetensors_entry *en = s.item[i].entry;
		long n = 1;

		for (int k = 0; k < en->rank; k++)
			n *= en->shape[k];
		tally_add(&t, en->type_name, n, en->bytes);
	}
	json_add_int(o, "files", s.nfiles);
	put_tally(o, &t);
	safetensors_set_close(&s);
}

static void put_gguf_string(struct json_out *o, const struct gguf *g, const char *key)
{
	const struct gguf_kv *kv = gguf_find(g, key);

	if (kv && kv->type == GGUF_STRING && !kv->array) {
		const struct gguf_string *s = kv->items;

		json_key(o, key);
		json_put_strn(o, s->s, s->n);
	}
}

static void put_gguf(struct json_out *o, const char *path)
{
	struct gguf g;
	struct tally t = { 0 };
	struct err e = ERR_INIT;

	if (gguf_open(&g, path, &e))
		die_err(&e);
	for (long i = 0; i < g.n; i++) {
		long n = 1;

		for (int k = 0; k < g.tensor[i].rank; k++)
			n *= g.tensor[i].shape[k];
		tally_add(&t, gguf_type_name(g.tensor[i].type), n, g.tensor[i].bytes);
	}
	put_gguf_string(o, &g, "general.architecture");
	put_gguf_string(o, &g, "general.name");
	put_gguf_string(o, &g, "tokenizer.ggml.model");
	put_gguf_string(o, &g, "tokenizer.ggml.pre");
	json_add_int(o, "metadata", g.nkv);
	json_add_int(o, "files", g.parts);
	put_tally(o, &t);
	gguf_close(&g);
}

void print_foreign(const char *path, bool json)
{
	bool dir = file_is_dir(path), gguf = !dir && !has_suffix(path, ".safetensors");
	struct json_out o = { 0 };

	json_begin(&o, '{');
	json_add_str(&o, "kind", dir ? "huggingface" : gguf ? "gguf" : "safetensors");
	json_add_str(&o, "path", path);
	if (dir)
		put_config(&o, path);
	if (gguf)
		put_gguf(&o, path);
	else if (!dir || has_file(path, "model.safetensors") || has_file(path, "model.safetensors.index.json"))
		put_safetensors(&o, path);
	json_end(&o);
	print_facts(&o, json);
}
