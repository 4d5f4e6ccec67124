#include "libcommon/recipe_node.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* A text that needs no quotes: a plain word that would not be read as something else. */
static bool plain(const char *text, size_t len)
{
	struct node_space s = { 0 };
	struct err e = ERR_INIT;
	bool ok = len > 0 && len < 200 && (isalpha((unsigned char)*text) || *text == '_');

	for (size_t i = 0; ok && i < len; i++)
		ok = isalnum((unsigned char)text[i]) || (text[i] && strchr("_./-", text[i]));
	if (ok) {
		const struct node *v = node_scalar(&s, text, len, NULL, 0, &e);
		ok = v && v->kind == NODE_STR;
		arena_release(&s.arena);
	}
	return ok;
}

/* YAML takes fewer characters as they are than JSON: no C1 controls, line separators, byte order marks and non-characters. */
static void add_printable(struct str *out, const char *t, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		const unsigned char *c = (const unsigned char *)t + i;
		unsigned u = 0;
		if (c[0] == 0x7f)
			u = 0x7f;
		else if (c[0] == 0xc2 && c[1] < 0xa0)
			u = c[1];
		else if ((c[0] == 0xe2 && c[1] == 0x80 && (c[2] == 0xa8 || c[2] == 0xa9)) || (c[0] == 0xef && c[1] == 0xbb && c[2] == 0xbf) ||
			 (c[0] == 0xef && c[1] == 0xbf && c[2] >= 0xbe))
			u = (c[0] & 15u) << 12 | (c[1] & 63u) << 6 | (c[2] & 63u);
		if (u)
			str_printf(out, "\\u%04x", u);
		else
			str_putc(out, t[i]);
		i += u > 0x7ff ? 2 : u > 0x7f ? 1 : 0;
	}
}

/* Double quotes as JSON has them are YAML's too; a value that looks like an interpolation is kept from becoming one. */
static void add_text(struct str *out, const char *text, size_t len, bool value)
{
	struct json_out o = { .indent = -1 };
	struct str t = { 0 };

	if (plain(text, len)) {
		str_add(out, text, len);
		return;
	}
	for (size_t i = 0; i < len; i++) {
		if (value && text[i] == '$' && i + 1 < len && text[i + 1] == '{')
			str_putc(&t, '\\');
		str_putc(&t, text[i]);
	}
	json_put_strn(&o, t.s ? t.s : "", t.len);
	add_printable(out, o.s.s, o.s.len);
	json_out_release(&o);
	str_release(&t);
}

static void add_flow(struct str *out, const struct json *v)
{
	switch (v->type) {
	case JSON_NULL:  str_puts(out, "null"); return;
	case JSON_TRUE:  str_puts(out, "true"); return;
	case JSON_FALSE: str_puts(out, "false"); return;
	case JSON_NUMBER: str_add(out, v->text, v->n); return;
	case JSON_STRING: add_text(out, v->text, v->n, true); return;
	case JSON_ARRAY:
		str_putc(out, '[');
		for (size_t i = 0; i < v->n; i++) {
			str_puts(out, i ? ", " : "");
			add_flow(out, &v->item[i]);
		}
		str_putc(out, ']');
		return;
	case JSON_OBJECT:
		str_putc(out, '{');
		for (size_t i = 0; i < v->n; i++) {
			str_puts(out, i ? ", " : "");
			add_text(out, v->member[i].key, v->member[i].keylen, false);
			str_puts(out, ": ");
			add_flow(out, &v->member[i].value);
		}
		str_putc(out, '}');
	}
}

static void add_block(struct str *out, const struct json *map, int indent)
{
	for (size_t i = 0; i < map->n; i++) {
		const struct json *v = &map->member[i].value;
		for (int k = 0; k < indent; k++)
			str_puts(out, "  ");
		add_text(out, map->member[i].key, map->member[i].keylen, false);
		str_putc(out, ':');
		if (v->type == JSON_OBJECT && v->n) {
			str_putc(out, '\n');
			add_block(out, v, indent + 1);
		} else {
			str_putc(out, ' ');
			add_flow(out, v);
			str_putc(out, '\n');
		}
	}
}

int recipe_write_yaml(struct str *out, const struct recipe *r)
{
	add_block(out, &r->eff.root, 0);
	return 0;
}

int recipe_write_json(struct json_out *out, const struct recipe *r)
{
	json_put(out, &r->eff.root);
	return 0;
}

/* Where things are, how much machine there is and how a model lies over it: no part of what is computed. */
static bool is_place(const char *path)
{
	static const char *const layout[] = { "_parallel_size", "_pipeline_stage" };
	static const char *const prefix[] = { "checkpointing.", "logger.", "cluster.", "cairn.device", "cairn.isa", "cairn.threads", "cairn.memory" };

	for (size_t i = 0; i < sizeof(prefix) / sizeof(*prefix); i++)
		if (!strncmp(path, prefix[i], strlen(prefix[i])))
			return true;
	for (size_t i = 0; i < sizeof(layout) / sizeof(*layout); i++)
		if (strlen(path) > strlen(layout[i]) && !strcmp(path + strlen(path) - strlen(layout[i]), layout[i]))
			return true;
	return false;
}

static int by_key(const void *a, const void *b)
{
	return strcmp((*(const struct json_member *const *)a)->key, (*(const struct json_member *const *)b)->key);
}

/* Members sorted, so that the order in the file does not count. */
static void add_canonical(struct json_out *o, const struct json *v)
{
	if (v->type == JSON_ARRAY) {
		json_begin(o, '[');
		for (size_t i = 0; i < v->n; i++)
			add_canonical(o, &v->item[i]);
		json_end(o);
	} else if (v->type == JSON_OBJECT) {
		const struct json_member **m = xcalloc(v->n + 1, sizeof(*m));
		for (size_t i = 0; i < v->n; i++)
			m[i] = &v->member[i];
		qsort(m, v->n, sizeof(*m), by_key);
		json_begin(o, '{');
		for (size_t i = 0; i < v->n; i++) {
			json_key(o, m[i]->key);
			add_canonical(o, &m[i]->value);
		}
		json_end(o);
		free(m);
	} else {
		json_put(o, v);
	}
}

static void add_line(struct str *t, const char *path, const struct json *v)
{
	struct json_out o = { .indent = -1 };

	add_canonical(&o, v);
	str_printf(t, "%s: ", path);
	str_add(t, o.s.s, o.s.len);
	str_putc(t, '\n');
	json_out_release(&o);
}

/* What lies under a pattern with a `*`, as one map by name. */
static void add_wild(struct str *t, const struct recipe *r, const char *pattern)
{
	const char *star = strchr(pattern, '*');
	char *section = xstrndup(pattern, (size_t)(star - pattern - 1));
	const struct json *map = json_path(&r->eff.root, section);
	struct json_member *m;
	size_t n = 0;

	if (map && map->type == JSON_OBJECT) {
		m = xcalloc(map->n + 1, sizeof(*m));
		for (size_t i = 0; i < map->n; i++) {
			const struct json *leaf = json_path(&map->member[i].value, star + 2);
			struct place p;
			struct node_space s = { 0 };
			char *path = xasprintf("%s.%s%s", section, map->member[i].key, star + 1);
			if (leaf && !place_parse(&p, &s, path, strlen(path)) && recipe_key_at(p.part, p.n) &&
			    !strcmp(recipe_key_at(p.part, p.n)->path, pattern)) {
				m[n] = map->member[i];
				m[n++].value = *leaf;
			}
			arena_release(&s.arena);
			free(path);
		}
		struct json found = { .type = JSON_OBJECT, .n = n, .member = m };
		if (n)
			add_line(t, pattern, &found);
		free(m);
	}
	free(section);
}

struct digest recipe_digest(const struct recipe *r)
{
	struct str t = { 0 };

	for (int i = 0; i < recipe_nkeys; i++) {
		const struct recipe_key *k = &recipe_keys[i];
		if (k->state != RECIPE_USED || is_place(k->path))
			continue;
		if (strchr(k->path, '*'))
			add_wild(&t, r, k->path);
		else
			add_line(&t, k->path, recipe_value(r, k->path));
	}
	struct digest d = hash128(t.s, t.len);
	str_release(&t);
	return d;
}
