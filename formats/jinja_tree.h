#ifndef FORMATS_JINJA_TREE_H
#define FORMATS_JINJA_TREE_H

/* From the text of a template to its tokens and its tree, both in the template's arena. */

#include "formats/jinja.h"

enum jnode_type {
	/* statements */
	J_TEXT, J_PRINT, J_IF, J_FOR, J_SET, J_SETBLOCK, J_MACRO, J_CALL, J_FILTERBLOCK, J_WITH,
	J_BREAK, J_CONTINUE, J_GENERATION,
	/* expressions */
	J_CONST, J_NAME, J_LIST, J_TUPLE, J_DICT, J_GETATTR, J_GETITEM, J_SLICE, J_INVOKE,
	J_FILTER, J_TEST, J_COND, J_NOT, J_AND, J_OR, J_NEG, J_POS, J_BINARY, J_CONCAT,
	J_COMPARE,
};

/*
 * What the fields of a node hold:
 *
 *	TEXT value | PRINT a | IF a, list, else list2 | FOR target a, in b, if c, list, else list2
 *	SET a = b | SETBLOCK a, filters b, body c | FILTERBLOCK filters b, body c | GENERATION body c
 *	MACRO name, parameters key[n], defaults list2[n], body c | CALL of a, macro b
 *	WITH key[n2] = list2, list
 *	CONST value | NAME name | LIST, TUPLE list | DICT list (key, value in turn)
 *	GETATTR a.name | GETITEM a[b] | SLICE list[3], with NULLs | INVOKE a(list, key)
 *	FILTER a|name(list, key) | TEST a is name(list, key) | COND b if a else c | BINARY a op b
 *	COMPARE a, then (op of list[i]) list[i]->a ... | CONCAT list
 *
 * The filters of a block begin with the variable " body", which nothing else can name.
 */
struct jnode {
	enum jnode_type type;
	enum jop op;
	int line;
	bool flag;               /* for: recursive; test: negated */
	struct jnode *a, *b, *c; /* see above for each type */
	struct jnode **list;     /* body, items, arguments */
	long n;
	const char **key;     /* names: keywords of arguments (NULL: by place), macro parameters */
	struct jnode **list2; /* else body; defaults */
	long n2;
	const char *name;
	struct jvalue value; /* constant or text */
};

enum jtok_type {
	T_TEXT, T_VAR_BEGIN, T_VAR_END, T_BLOCK_BEGIN, T_BLOCK_END, T_NAME, T_STRING, T_INT,
	T_FLOAT, T_OP, T_EOF,
};

struct jtok {
	enum jtok_type type;
	int line;
	const char *s; /* text, name, string decoded, operator; NUL after n */
	size_t n;
	long i;
	double f;
};

struct jtokens {
	struct jtok *t;  /* owned by the caller, for free() */
	long n, cap;
};

int jinja_lex(struct jtokens *out, struct arena *a, const char *text, size_t n, const char *file,
	      struct err *e) MUST_CHECK;
/* A body of statements, as a J_WITH without bindings. */
int jinja_parse(struct jnode **root, struct arena *a, const struct jtokens *t, const char *file,
		struct err *e) MUST_CHECK;

#endif
