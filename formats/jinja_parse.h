#ifndef FORMATS_JINJA_PARSE_H
#define FORMATS_JINJA_PARSE_H

/* Shared by the parser's two halves: jinja_parse.c (expressions) and jinja_statement.c. */

#include "formats/jinja_tree.h"

struct parser {
	const struct jtok *t;
	struct arena *arena;
	const char *file;
	struct err *e;
	long nodes;
	int depth, loops;
	const char *open; /* the statement in work, for messages */
};

/* Both set the error, once, and return NULL. */
void *parse_fail(struct parser *p, const char *wanted);
void *parse_refuse(struct parser *p, const char *what);
struct jnode *parse_node(struct parser *p, enum jnode_type type); /* NULL: too many */
bool parse_is_op(const struct parser *p, const char *op);
bool parse_is_word(const struct parser *p, const char *word);
bool parse_skip_op(struct parser *p, const char *op);
bool parse_skip_word(struct parser *p, const char *word);
int parse_want_op(struct parser *p, const char *op);
void parse_append(struct parser *p, struct jnode ***list, long *n, struct jnode *v);
void parse_append_key(struct parser *p, const char ***list, long n, const char *key);
int parse_deeper(struct parser *p); /* p->depth-- on the way back */

struct jnode *parse_expression(struct parser *p);
/* One expression, or a tuple of them where commas follow; `end` is a word that ends it too. */
struct jnode *parse_tuple(struct parser *p, bool condition, bool empty_ok, const char *end);
struct jnode *parse_attribute(struct parser *p, struct jnode *of); /* "." is consumed */
struct jnode *parse_filter(struct parser *p, struct jnode *of);    /* "|" is consumed */

#endif
