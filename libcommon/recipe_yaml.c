#include "libcommon/recipe_node.h"

#include <stdlib.h>
#include <string.h>
#include <yaml.h>

enum { ANCHORS = 1000 };

struct reader {
	struct node_space *s;
	yaml_parser_t yaml;
	yaml_event_t ev;
	bool have;              /* ev holds an event */
	const char *file;
	int depth;
	struct { const char *name; struct node *v; } anchor[ANCHORS];
	int anchors;
	struct err *e;
};

static int next(struct reader *r)
{
	if (r->have)
		yaml_event_delete(&r->ev);
	r->have = yaml_parser_parse(&r->yaml, &r->ev);
	if (r->have)
		return 0;
	return err_set(r->e, EX_DATAERR, "%s:%zu: %s%s%s", r->file,
		       (r->yaml.problem_mark.line ? r->yaml.problem_mark.line : r->yaml.context_mark.line) + 1,
		       r->yaml.context ? r->yaml.context : "", r->yaml.context ? ": " : "",
		       r->yaml.problem ? r->yaml.problem : "this is no YAML");
}

static int line(const struct reader *r)
{
	return (int)r->ev.start_mark.line + 1;
}

static struct node *bad(struct reader *r, int at, const char *what)
{
	err_set(r->e, EX_DATAERR, "%s:%d: %s", r->file, at, what);
	return NULL;
}

/* An anchor is known only once its value is whole, so a value cannot hold itself. */
static int remember(struct reader *r, const char *name, struct node *v, int at)
{
	if (!name)
		return 0;
	if (r->anchors == ANCHORS)
		return bad(r, at, "more than 1000 anchors") ? 0 : -1;
	r->anchor[r->anchors].name = name;
	r->anchor[r->anchors++].v = v;
	return 0;
}

static struct node *recall(struct reader *r)
{
	const char *name = (const char *)r->ev.data.alias.anchor;

	for (int i = r->anchors; i-- > 0; )
		if (!strcmp(r->anchor[i].name, name))
			return node_copy(r->s, r->anchor[i].v, r->depth, r->e);
	err_set(r->e, EX_DATAERR, "%s:%d: alias *%.60s has no anchor before it", r->file, line(r), name);
	return NULL;
}

static const char *keep(struct reader *r, const yaml_char_t *anchor)
{
	return anchor ? arena_strndup(&r->s->arena, (const char *)anchor, strlen((const char *)anchor)) : NULL;
}

static struct node *tagged(struct reader *r, struct node *v, const char *tag)
{
	static const struct { const char *tag; enum node_kind kind; } known[] = {
		{ YAML_NULL_TAG, NODE_NULL }, { YAML_BOOL_TAG, NODE_BOOL }, { YAML_INT_TAG, NODE_INT },
		{ YAML_FLOAT_TAG, NODE_REAL }, { YAML_STR_TAG, NODE_STR }, { YAML_SEQ_TAG, NODE_LIST }, { YAML_MAP_TAG, NODE_MAP }
	};

	for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
		if (!strcmp(tag, known[i].tag)) {
			if (known[i].kind == NODE_REAL && v->kind == NODE_INT)
				v->kind = NODE_REAL, v->d = (double)v->i;
			return v->kind == known[i].kind ? v : bad(r, v->line, "a value that its tag does not allow");
		}
	err_set(r->e, EX_DATAERR, "%s:%d: tag %.60s is not known", r->file, v->line, tag);
	return NULL;
}

static struct node *scalar(struct reader *r)
{
	const char *text = (const char *)r->ev.data.scalar.value;
	size_t len = r->ev.data.scalar.length;
	const char *tag = (const char *)r->ev.data.scalar.tag;
	bool plain = r->ev.data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
	struct node *v;

	if (memchr(text, 0, len))
		return bad(r, line(r), "a NUL byte in a value");
	if (tag ? strcmp(tag, YAML_STR_TAG) && strcmp(tag, "!") : plain)
		v = node_scalar(r->s, text, len, r->file, line(r), r->e);
	else
		v = node_string(r->s, text, len, r->file, line(r), r->e);
	if (v && tag && strcmp(tag, "!"))
		v = tagged(r, v, tag);
	return v;
}

static struct node *value(struct reader *r);

static struct node *list(struct reader *r)
{
	struct node *v = node_new(r->s, NODE_LIST, r->file, line(r), r->e);

	while (v) {
		if (next(r))
			return NULL;
		if (r->ev.type == YAML_SEQUENCE_END_EVENT)
			break;
		struct node *k = value(r);
		if (!k || node_add(r->s, v, NULL, k, r->e))
			return NULL;
	}
	return v;
}

/* `<<`: what the map itself does not say; of several the first that says it. */
static int merge_in(struct reader *r, struct node *map, const struct node *from, int at)
{
	if (from->kind == NODE_LIST) {
		for (int i = 0; i < from->n; i++)
			if (from->item[i]->kind != NODE_MAP || merge_in(r, map, from->item[i], at))
				goto wrong;
		return 0;
	}
	if (from->kind != NODE_MAP)
		goto wrong;
	for (int i = 0; i < from->n; i++) {
		if (node_find(map, from->key[i]) >= 0)
			continue;
		struct node *c = node_copy(r->s, from->item[i], r->depth, r->e);
		if (!c || node_add(r->s, map, from->key[i], c, r->e))
			return -1;
	}
	return 0;
wrong:
	if (!r->e->code)
		bad(r, at, "`<<` wants a map or a list of maps");
	return -1;
}

static const char *map_key(struct reader *r)
{
	if (r->ev.type != YAML_SCALAR_EVENT) {
		bad(r, line(r), "a key that is no plain name");
		return NULL;
	}
	const char *text = (const char *)r->ev.data.scalar.value;
	size_t len = r->ev.data.scalar.length;
	if (len > RECIPE_KEY_MAX || memchr(text, 0, len) || !len) {
		bad(r, line(r), len > RECIPE_KEY_MAX ? "a key of more than 256 bytes" : "an empty key, or one with a NUL byte");
		return NULL;
	}
	return arena_strndup(&r->s->arena, text, len);
}

static struct node *map(struct reader *r)
{
	struct node *v = node_new(r->s, NODE_MAP, r->file, line(r), r->e);
	struct node merged = { .kind = NODE_LIST };
	int at = line(r);

	while (v) {
		if (next(r))
			return NULL;
		if (r->ev.type == YAML_MAPPING_END_EVENT)
			break;
		const char *key = map_key(r);
		int key_line = line(r);
		bool merge = key && !strcmp(key, "<<") && r->ev.data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
		if (!key || next(r))
			return NULL;
		struct node *k = value(r);
		if (!k)
			return NULL;
		if (merge) {
			if (node_add(r->s, &merged, NULL, k, r->e))
				return NULL;
			continue;
		}
		if (node_find(v, key) >= 0) {
			err_set(r->e, EX_DATAERR, "%s:%d: key '%s' is there twice in one map", r->file, key_line, key);
			return NULL;
		}
		/* The line of a key is what its reader looks for. */
		k->line = key_line;
		k->file = r->file;
		if (node_add(r->s, v, key, k, r->e))
			return NULL;
	}
	for (int i = 0; v && i < merged.n; i++)
		if (merge_in(r, v, merged.item[i], at))
			return NULL;
	int i = node_find(v, "_override_");
	if (i >= 0) {
		if (v->item[i]->kind != NODE_BOOL)
			return bad(r, v->item[i]->line, "_override_ wants true or false");
		v->replace = v->item[i]->b;
		node_remove(v, i);
	}
	return v;
}

static struct node *value(struct reader *r)
{
	const char *anchor = NULL, *tag = NULL;
	struct node *v = NULL;
	int at = line(r);

	if (++r->depth > RECIPE_DEPTH)
		return bad(r, at, "nested deeper than 32");
	switch (r->ev.type) {
	case YAML_ALIAS_EVENT:
		v = recall(r);
		break;
	case YAML_SCALAR_EVENT:
		anchor = keep(r, r->ev.data.scalar.anchor);
		v = scalar(r);
		break;
	case YAML_SEQUENCE_START_EVENT:
		anchor = keep(r, r->ev.data.sequence_start.anchor);
		tag = keep(r, r->ev.data.sequence_start.tag);
		v = list(r);
		break;
	case YAML_MAPPING_START_EVENT:
		anchor = keep(r, r->ev.data.mapping_start.anchor);
		tag = keep(r, r->ev.data.mapping_start.tag);
		v = map(r);
		break;
	default:
		return bad(r, at, "this is no YAML value");
	}
	r->depth--;
	if (v && tag)
		v = tagged(r, v, tag);
	return v && !remember(r, anchor, v, at) ? v : NULL;
}

/* The one document; a file that says nothing is an empty map. */
static struct node *document(struct reader *r)
{
	struct node *root;

	do {
		if (next(r))
			return NULL;
	} while (r->ev.type == YAML_STREAM_START_EVENT);
	if (r->ev.type == YAML_STREAM_END_EVENT)
		return node_new(r->s, NODE_MAP, r->file, 1, r->e);
	if (next(r) || !(root = value(r)))
		return NULL;
	if (next(r) || next(r))
		return NULL;
	if (r->ev.type != YAML_STREAM_END_EVENT)
		return bad(r, line(r), "a second document; wanted one");
	if (root->kind == NODE_NULL)
		root->kind = NODE_MAP;
	return root->kind == NODE_MAP ? root : bad(r, root->line, "wanted a map of keys");
}

struct node *recipe_yaml(struct node_space *s, const char *text, size_t len, const char *file, struct err *e)
{
	if (len > RECIPE_FILE_MAX) {
		err_set(e, EX_DATAERR, "%s: %zu bytes, wanted at most %d", file, len, RECIPE_FILE_MAX);
		return NULL;
	}
	struct reader *r = xcalloc(1, sizeof(*r));
	struct node *root;
	struct err own = ERR_INIT;

	r->s = s;
	r->file = arena_strndup(&s->arena, file, strlen(file));
	r->e = &own;
	if (!yaml_parser_initialize(&r->yaml))
		die(EX_UNAVAILABLE, "out of memory for the YAML parser");
	yaml_parser_set_input_string(&r->yaml, (const unsigned char *)text, len);
	root = document(r);
	if (r->have)
		yaml_event_delete(&r->ev);
	yaml_parser_delete(&r->yaml);
	free(r);
	if (!root)
		*e = own;
	return root;
}
