#include "libcommon/recipe_node.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/*
 * Values on the command line: a scalar as in YAML, [a, b], {a: 1}, 'text', "text".  Unlike in YAML `{a:1}` needs no blank, and an
 * interpolation is one word wherever it stands.
 */
struct words {
	struct node_space *s;
	const char *at, *arg;   /* where we are, and the whole argument for messages */
	const char *file;       /* NULL: command line */
	int depth;
	struct err *e;
};

static struct node *bad(struct words *w, const char *what)
{
	err_set(w->e, EX_CONFIG, "%s: %.200s: %s", w->file ? w->file : "command line", w->arg, what);
	return NULL;
}

static void blank(struct words *w)
{
	while (isspace((unsigned char)*w->at))
		w->at++;
}

static struct node *quoted(struct words *w)
{
	struct str t = { 0 };
	char q = *w->at++;

	for (; *w->at && *w->at != q; w->at++) {
		if (*w->at == '\\' && (w->at[1] == q || w->at[1] == '\\'))
			w->at++;
		str_putc(&t, *w->at);
	}
	struct node *v = *w->at ? node_string(w->s, t.s ? t.s : "", t.len, w->file, 0, w->e) : bad(w, "a quote that does not end");
	str_release(&t);
	w->at += *w->at == q;
	return v;
}

/* A word ends at one of `stop`, but not inside ${...}. */
static struct node *word(struct words *w, const char *stop)
{
	const char *from = w->at, *to;
	int braces = 0;

	for (; *w->at; w->at++) {
		if (w->at[0] == '$' && w->at[1] == '{')
			braces++, w->at++;
		else if (braces && *w->at == '}')
			braces--;
		else if (!braces && strchr(stop, *w->at))
			break;
	}
	for (to = w->at; to > from && isspace((unsigned char)to[-1]); to--)
		;
	return node_scalar(w->s, from, (size_t)(to - from), w->file, 0, w->e);
}

static struct node *value(struct words *w, const char *stop);

static struct node *container(struct words *w)
{
	bool map = *w->at == '{';
	char end = map ? '}' : ']';
	struct node *v = node_new(w->s, map ? NODE_MAP : NODE_LIST, w->file, 0, w->e);

	if (!v || ++w->depth > RECIPE_DEPTH)
		return v ? bad(w, "nested deeper than 32") : NULL;
	w->at++;
	for (blank(w); *w->at != end; blank(w)) {
		const char *key = NULL;
		if (map) {
			struct node *k = *w->at == '\'' || *w->at == '"' ? quoted(w) : word(w, ":,{}[]");
			if (!k)
				return NULL;
			blank(w);
			if (*w->at != ':' || !k->len || k->len > RECIPE_KEY_MAX)
				return bad(w, "wanted `name: value` in the map");
			w->at++;
			key = k->text;
			if (node_find(v, key) >= 0)
				return bad(w, "a key is there twice in the map");
		}
		struct node *item = value(w, map ? ",}" : ",]");
		if (!item || node_add(w->s, v, key, item, w->e))
			return NULL;
		blank(w);
		if (*w->at == ',')
			w->at++;
		else if (*w->at != end)
			return bad(w, map ? "wanted , or } in the map" : "wanted , or ] in the list");
	}
	w->at++;
	w->depth--;
	return v;
}

static struct node *value(struct words *w, const char *stop)
{
	blank(w);
	if (*w->at == '[' || *w->at == '{')
		return container(w);
	return *w->at == '\'' || *w->at == '"' ? quoted(w) : word(w, stop);
}

static struct node *whole(struct words *w)
{
	struct node *v = *w->at ? value(w, "") : node_string(w->s, "", 0, w->file, 0, w->e);

	if (!v)
		return NULL;
	blank(w);
	return *w->at ? bad(w, "more after the value") : v;
}

struct node *node_value(struct node_space *s, const char *text, const char *file, struct err *e)
{
	struct words w = { .s = s, .at = text, .arg = text, .file = file, .e = e };
	return whole(&w);
}

/* A key that is not there means null in a recipe, so the default must not come back where null is allowed. */
int recipe_take_away(struct node_space *s, struct node *root, const struct place *p, struct err *e)
{
	const struct recipe_key *k = recipe_key_at(p->part, p->n), *near;
	bool section = recipe_is_section(p->part, p->n), there = place_remove(root, p);
	char key[512];

	if (!k && !section && !there) {
		near = recipe_key_nearest(p->part, p->n);
		return err_set(e, EX_CONFIG, "command line: unknown key '%s'%s%s%s", place_text(key, sizeof(key), p),
			       near ? "; nearest is '" : "", near ? near->path : "", near ? "'" : "");
	}
	if (recipe_key_whole(k, p->n) ? !k->nullable : !section)
		return 0;
	struct node *null = node_new(s, NODE_NULL, NULL, 0, e);
	return null ? place_set(s, root, p, null, e) : -1;
}

int recipe_override(struct node_space *s, struct node *root, const char *arg, struct err *e)
{
	const char *key = arg + strspn(arg, "+~");
	size_t mark = (size_t)(key - arg), len = strcspn(key, "=");
	struct words w = { .s = s, .arg = arg, .e = e };
	bool null_above;
	struct place p;
	char where[512];

	if (!node_is_text(arg, strlen(arg)))
		return err_set(e, EX_CONFIG, "command line: an override that is no UTF-8");
	if (mark > 2 || (mark == 2 && strncmp(arg, "++", 2)) || place_parse(&p, s, key, len) ||
	    strlen(arg) > RECIPE_FILE_MAX || len > 4 * RECIPE_KEY_MAX)
		return err_set(e, EX_CONFIG, "command line: %.200s: wanted key=value, +key=value, ++key=value or ~key", arg);
	place_rename(&p, s);
	if (*arg == '~') {
		if (key[len])
			return err_set(e, EX_CONFIG, "command line: %.200s: ~ takes a key and no value", arg);
		return recipe_take_away(s, root, &p, e);
	}
	if (!key[len])
		return err_set(e, EX_CONFIG, "command line: %.200s: wanted key=value", arg);
	struct node *there = place_find(root, &p, &null_above);
	if (mark == 1 && there)
		return err_set(e, EX_CONFIG, "command line: %.200s: the key is already set at %s; + only adds, use ++", arg,
			       node_where(where, there));

	w.at = key + len + 1;
	struct node *v = whole(&w);
	if (!v)
		return -1;
	return place_set(s, root, &p, v, e);
}
