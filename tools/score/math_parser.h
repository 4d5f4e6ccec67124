#ifndef TOOLS_SCORE_MATH_PARSER_H
#define TOOLS_SCORE_MATH_PARSER_H

/*
 * The state of the parser, shared by its two halves: expressions (math_parse.c, by binding powers) and what is made of
 * them (math_list.c: units, x = 3, unions, lists).  After the first failure everything returns NULL; a caller that can read
 * the text in another way copies the state before and puts it back.  Nodes are counted across such attempts, so that
 * their number bounds the time.
 */

#include "tools/score/math_parts.h"

enum token { T_END, T_NUMBER, T_WORD, T_COMMAND, T_SIGN };

struct parser {
	struct math_work *w;
	const char *p;          /* behind the token */
	enum token token;
	const char *s;          /* its bytes; of a command without the backslash */
	size_t n;
	bool blank;             /* white space before it */
	int depth, implied;     /* implied: binding power of an implied product */
	bool failed;
};

void math_next(struct parser *t);
bool math_is(const struct parser *t, enum token k, const char *s);
bool math_is_sign(const struct parser *t, char c);
bool math_accept(struct parser *t, enum token k, const char *s);     /* and goes on */
void math_expect(struct parser *t, enum token k, const char *s);     /* or fails */
void *math_fail(struct parser *t);
struct math_node *math_node(struct parser *t, enum math_kind kind, struct math_node *a, struct math_node *b);
struct math_node *math_spelt(struct parser *t, enum math_kind kind, const char *s, size_t len);

/* Up to what does not bind tighter than `power`. */
struct math_node *math_expression(struct parser *t, int power);
/* One element or a list of them, up to one of `closers` or the end. */
struct math_node *math_list(struct parser *t, const char *closers);

#endif
