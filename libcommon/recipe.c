#include "libcommon/recipe.h"

#include "libcommon/file.h"
#include "libcommon/recipe_node.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static const char *const algorithms[] = { "grpo", "sft", "dpo", "rm", "eval" };
enum { ALGORITHMS = sizeof(algorithms) / sizeof(*algorithms) };

static void node_json(struct json_out *o, const struct node *v)
{
	switch (v->kind) {
	case NODE_NULL: json_put_null(o); break;
	case NODE_BOOL: json_put_bool(o, v->b); break;
	case NODE_INT:  json_put_int(o, v->i); break;
	case NODE_REAL: json_put_real(o, v->d); break;
	case NODE_STR:  json_put_strn(o, v->text, v->len); break;
	case NODE_LIST: case NODE_MAP:
		json_begin(o, v->kind == NODE_MAP ? '{' : '[');
		for (int i = 0; i < v->n; i++) {
			if (v->kind == NODE_MAP)
				json_key(o, v->key[i]);
			node_json(o, v->item[i]);
		}
		json_end(o);
	}
}

/* A tree of our own always is JSON. */
static void to_json(struct json_doc *d, const struct node *v)
{
	struct json_out o = { .indent = -1 };
	struct err e = ERR_INIT;

	node_json(&o, v);
	if (json_parse(d, o.s.s, o.s.len, "recipe", 1, &e))
		bug("%s", e.msg);
	json_out_release(&o);
}

static bool has_star(const struct recipe_key *k)
{
	return strchr(k->path, '*') != NULL;
}

static void make_defaults(struct recipe *r)
{
	struct node wild = { .kind = NODE_LIST }, null = { .kind = NODE_NULL };
	struct err e = ERR_INIT;
	struct place p;

	r->defs = node_new(&r->space, NODE_MAP, "default", 0, &e);
	for (int i = 0; i < recipe_nkeys; i++) {
		const struct recipe_key *k = &recipe_keys[i];
		struct node *v = recipe_key_default(&r->space, k);
		if (node_add(&r->space, &wild, NULL, has_star(k) ? v : &null, &e))
			bug("%s", e.msg);
		if (has_star(k))
			continue;
		if (place_parse(&p, &r->space, k->path, strlen(k->path)) || place_set(&r->space, r->defs, &p, v, &e))
			bug("%s: %s", k->path, e.msg);
	}
	to_json(&r->wild, &wild);
	/* What the table itself holds does not count against the user. */
	r->space.nodes = 0;
	r->space.bytes = 0;
}

static bool section_wanted(const struct recipe *r, const char *section)
{
	bool any = false, known = false;

	for (int i = 0; i < ALGORITHMS; i++) {
		any = any || node_find(r->user, algorithms[i]) >= 0;
		known = known || !strcmp(section, algorithms[i]);
	}
	return !known || node_find(r->user, section) >= 0 || (!any && !strcmp(section, algorithms[0]));
}

/* What the user gave and the defaults of every key that has an effect; sections of algorithms that the recipe does not speak of stay out. */
static int make_effective(struct recipe *r, struct err *e)
{
	struct place p;
	bool null_above;

	r->space.nodes = 0;
	r->space.bytes = 0;
	struct node *eff = node_copy(&r->space, r->user, 1, e);
	for (int i = 0; eff && i < recipe_nkeys; i++) {
		const struct recipe_key *k = &recipe_keys[i];
		if (has_star(k) || k->state != RECIPE_USED)
			continue;
		if (place_parse(&p, &r->space, k->path, strlen(k->path)))
			bug("%s", k->path);
		if (!section_wanted(r, p.part[0]) || place_find(eff, &p, &null_above) || null_above)
			continue;
		struct node *def = place_find(r->defs, &p, &null_above);
		if (place_set(&r->space, eff, &p, def, e))
			return -1;
	}
	if (!eff)
		return -1;
	to_json(&r->eff, eff);
	to_json(&r->def, r->defs);
	return 0;
}

/* v0.3 names a validation metric without its `val:`, and calls the mean reward val_reward. */
static void rename_metric(struct recipe *r)
{
	struct node *m = node_get(node_get(r->user, "checkpointing"), "metric_name");

	if (!m || m->kind != NODE_STR || !strncmp(m->text, "val:", 4) || !strncmp(m->text, "train:", 6))
		return;
	m->text = arena_printf(&r->space.arena, "val:%s", strcmp(m->text, "val_reward") ? m->text : "accuracy");
	m->len = strlen(m->text);
}

static int take_away(struct recipe *r, const char *const *unset, int n, struct err *e)
{
	struct place p;

	for (int i = 0; i < n; i++) {
		if (place_parse(&p, &r->space, unset[i], strlen(unset[i])))
			return err_set(e, EX_CONFIG, "command line: --unset %.200s: wanted a key", unset[i]);
		place_rename(&p, &r->space);
		if (recipe_take_away(&r->space, r->user, &p, e))
			return -1;
	}
	return 0;
}

int recipe_parse(struct recipe **out, const char *text, size_t len, const char *name, const char *const *overrides, int n,
		 const char *const *unset, int nunset, struct err *e)
{
	struct recipe *r = xcalloc(1, sizeof(*r));

	*out = NULL;
	make_defaults(r);
	r->user = recipe_chain(&r->space, name, text, len, e);
	if (!r->user)
		goto fail;
	for (int i = 0; i < n; i++)
		if (recipe_override(&r->space, r->user, overrides[i], e))
			goto fail;
	if (take_away(r, unset, nunset, e) || recipe_check_names(r->user, e) || recipe_resolve(r, e) || recipe_check_values(r, e))
		goto fail;
	rename_metric(r);
	if (make_effective(r, e))
		goto fail;
	recipe_note(r);
	*out = r;
	return 0;
fail:
	recipe_free(r);
	return -1;
}

int recipe_load(struct recipe **r, const char *path, const char *const *overrides, int n,
		const char *const *unset, int nunset, struct err *e)
{
	struct str text = { 0 };
	int bad = -1;

	*r = NULL;
	if (!path || !file_read(&text, path, RECIPE_FILE_MAX, e))
		bad = recipe_parse(r, text.s ? text.s : "", text.len, path ? path : "defaults", overrides, n, unset, nunset, e);
	str_release(&text);
	return bad;
}

void recipe_free(struct recipe *r)
{
	if (!r)
		return;
	json_release(&r->eff);
	json_release(&r->def);
	json_release(&r->wild);
	arena_release(&r->space.arena);
	free(r);
}

static struct node *find(const struct recipe *r, const char *key)
{
	struct node_space s = { 0 };
	struct node *v = NULL;
	struct place p;
	bool null_above;

	if (!place_parse(&p, &s, key, strlen(key)))
		v = place_find(r->user, &p, &null_above);
	arena_release(&s.arena);
	return v;
}

/* The row of exactly this key, or bug(): a tool that reads a key that the table does not have is wrong. */
static const struct recipe_key *row(const char *key, bool *section)
{
	struct node_space s = { 0 };
	const struct recipe_key *k = NULL;
	struct place p;

	if (place_parse(&p, &s, key, strlen(key)))
		bug("recipe key '%s'", key);
	k = recipe_key_at(p.part, p.n);
	if (!recipe_key_whole(k, p.n))
		k = NULL;
	*section = recipe_is_section(p.part, p.n);
	arena_release(&s.arena);
	if (!k && !*section)
		bug("recipe key '%s' is not in the table", key);
	return k;
}

const struct json *recipe_value(const struct recipe *r, const char *key)
{
	static const struct json nothing = { .type = JSON_OBJECT };
	bool section;
	const struct recipe_key *k = row(key, &section);
	const struct json *v = json_path(&r->eff.root, key);

	if (!v)
		v = json_path(&r->def.root, key);
	if (!v && k)
		v = &r->wild.root.item[k - recipe_keys];
	return v ? v : &nothing;
}

static const struct json *typed(const struct recipe *r, const char *key, enum recipe_type type)
{
	bool section;
	const struct recipe_key *k = row(key, &section);
	const struct json *v = recipe_value(r, key);

	if (!k || k->type != type)
		bug("recipe key '%s' has another type", key);
	if (v->type == JSON_NULL && type != RECIPE_STR)
		bug("recipe key '%s' is null", key);
	return v;
}

long recipe_int(const struct recipe *r, const char *key)
{
	return strtol(typed(r, key, RECIPE_INT)->text, NULL, 10);
}

double recipe_real(const struct recipe *r, const char *key)
{
	return strtod(typed(r, key, RECIPE_REAL)->text, NULL);
}

bool recipe_bool(const struct recipe *r, const char *key)
{
	return typed(r, key, RECIPE_BOOL)->type == JSON_TRUE;
}

const char *recipe_str(const struct recipe *r, const char *key)
{
	const struct json *v = typed(r, key, RECIPE_STR);
	return v->type == JSON_NULL ? NULL : v->text;
}

bool recipe_is_null(const struct recipe *r, const char *key)
{
	return recipe_value(r, key)->type == JSON_NULL;
}

bool recipe_is_set(const struct recipe *r, const char *key)
{
	bool section;

	row(key, &section);
	return find(r, key) != NULL;
}

const char *recipe_where(const struct recipe *r, const char *key)
{
	const struct node *v = find(r, key);
	char where[512];

	if (!v)
		return "default";
	node_where(where, v);
	return arena_strndup(&((struct recipe *)r)->space.arena, where, strlen(where));
}

int recipe_error(const struct recipe *r, const char *key, struct err *e, const char *fmt, ...)
{
	struct err text = ERR_INIT;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text.msg, sizeof(text.msg), fmt, ap);
	va_end(ap);
	return err_set(e, EX_CONFIG, "%s: %s: %s", recipe_where(r, key), key, text.msg);
}

int recipe_algorithm(const char **name, const struct recipe *r, struct err *e)
{
	const char *found = NULL;

	for (int i = 0; i < ALGORITHMS; i++) {
		if (node_find(r->user, algorithms[i]) < 0)
			continue;
		if (found)
			return err_set(e, EX_CONFIG, "%s: the recipe has both '%s' and '%s'; wanted one algorithm",
				       recipe_where(r, algorithms[i]), found, algorithms[i]);
		found = algorithms[i];
	}
	*name = found ? found : algorithms[0];
	return 0;
}
