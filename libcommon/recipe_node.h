#ifndef LIBCOMMON_RECIPE_NODE_H
#define LIBCOMMON_RECIPE_NODE_H

/*
 * The loader's own tree, private to libcommon/recipe*.c: values that know where they were written.  Everything lives in
 * one space with hard limits, so that aliases and interpolation that multiply end with a message instead of the memory.
 *
 * The story: recipe_yaml.c (text -> nodes), recipe_merge.c (parents, old spellings), recipe_override.c (command line),
 * recipe_interp.c (`${...}`), recipe_check.c (against the table), recipe_write.c (out again), recipe.c (reads).
 */

#include "libcommon/recipe.h"
#include "libcommon/xalloc.h"

enum {
	RECIPE_FILE_MAX = 1 << 20,      /* bytes */
	RECIPE_DEPTH = 32,              /* containers inside each other: a manifest holds a recipe and has a bound of its own */
	RECIPE_NODES = 100000,          /* in all, aliases and copies counted */
	RECIPE_MEMBERS = 4096,          /* of one map */
	RECIPE_FILES = 64,
	RECIPE_KEY_MAX = 256,           /* bytes of one key */
	RECIPE_REFERENCES = 64,         /* interpolations that lead to each other */
	RECIPE_TEXT_MAX = 16 << 20,     /* bytes of all scalars, copies counted */
};

enum node_kind { NODE_NULL, NODE_BOOL, NODE_INT, NODE_REAL, NODE_STR, NODE_LIST, NODE_MAP };

struct node {
	enum node_kind kind;
	bool soft;              /* came from the environment: a number may stand for a string */
	bool replace;           /* a map with `_override_: true` */
	bool done;              /* interpolated: what looks like ${...} now is text */
	bool busy;              /* interpolation is on its way through here */
	const char *file;       /* NULL: command line */
	int line;
	const char *text;       /* of scalars, as written (strings: decoded) */
	size_t len;
	bool b;
	long i;
	double d;
	int n, cap;
	const char **key;       /* maps only */
	struct node **item;
};

struct node_space {
	struct arena arena;
	long nodes;
	size_t bytes;
	int files;
};

/* A place in the tree as its components. */
struct place { const char *part[RECIPE_DEPTH + 16]; int n; };

struct recipe {
	struct node_space space;
	struct node *user;      /* what was given: files and command line */
	struct node *defs;      /* all defaults without wildcards */
	struct json_doc eff, def;       /* both, resolved: `eff` is what is written out */
	struct json_doc wild;   /* an array: the default of row i where its path has a wildcard, else null */
};

/* All return NULL with *e set beyond the limits. */
struct node *node_new(struct node_space *s, enum node_kind kind, const char *file, int line, struct err *e);
struct node *node_copy(struct node_space *s, const struct node *v, int depth, struct err *e);
/* Plain text to null, bool, int, real or string, as OmegaConf's YAML loader resolves it; a number beyond a long, or one that is not
 * finite, is an error. */
struct node *node_scalar(struct node_space *s, const char *text, size_t len, const char *file, int line, struct err *e);
struct node *node_string(struct node_space *s, const char *text, size_t len, const char *file, int line, struct err *e);
bool node_is_text(const char *t, size_t len); /* UTF-8 */
int node_add(struct node_space *s, struct node *list, const char *key, struct node *v, struct err *e);
int node_find(const struct node *map, const char *key); /* index, or -1 */
struct node *node_get(const struct node *map, const char *key);
void node_remove(struct node *map, int i);
int node_depth(const struct node *v);
const char *node_where(char buf[512], const struct node *v);
const char *node_show(char buf[64], const struct node *v); /* the value, short, for messages */
bool node_equal(const struct node *a, const struct node *b);

/* Text -> tree. */
struct node *recipe_yaml(struct node_space *s, const char *text, size_t len, const char *file, struct err *e);

/* Parents first, then the text itself. */
struct node *recipe_chain(struct node_space *s, const char *path, const char *text, size_t len, struct err *e);
int node_merge(struct node_space *s, struct node **base, struct node *over, struct err *e);
int recipe_rename(struct node_space *s, struct node *root, struct err *e);
/* A dotted key with old spellings replaced. */
int place_parse(struct place *p, struct node_space *s, const char *key, size_t len);
void place_rename(struct place *p, struct node_space *s);
struct node *place_find(struct node *root, const struct place *p, bool *null_above);
int place_set(struct node_space *s, struct node *root, const struct place *p, struct node *v, struct err *e);
bool place_remove(struct node *root, const struct place *p);
const char *place_text(char *buf, size_t n, const struct place *p);

/* One value as the command line spells it; `file` stands in messages and in the node. */
struct node *node_value(struct node_space *s, const char *text, const char *file, struct err *e);
int recipe_override(struct node_space *s, struct node *root, const char *arg, struct err *e);
int recipe_take_away(struct node_space *s, struct node *root, const struct place *p, struct err *e);
int recipe_resolve(struct recipe *r, struct err *e);

int recipe_check_names(const struct node *root, struct err *e);
/* Types, ranges, choices and refusals; numbers become what the table says. */
int recipe_check_values(struct recipe *r, struct err *e);
void recipe_note(const struct recipe *r);
const struct recipe_key *recipe_key_at(const char *const *part, int n);
const struct recipe_key *recipe_key_nearest(const char *const *part, int n);
bool recipe_key_whole(const struct recipe_key *k, int n); /* the row of that place itself, not of a map around it */
bool recipe_is_section(const char *const *part, int n);
struct node *recipe_key_default(struct node_space *s, const struct recipe_key *k);
const char *recipe_wanted(char buf[256], const struct recipe_key *k);
int recipe_key_type(const struct recipe_key *k, struct node *v, const char *name, struct err *e);

#endif
