#include "formats/jinja_parse.h"

#include <string.h>

static int body(struct parser *p, struct jnode ***list, long *n, const char *const *ends);

static int block_end(struct parser *p)
{
	if (p->t->type != T_BLOCK_END)
		return parse_fail(p, "the end of the tag, %}"), -1;
	p->t++;
	return 0;
}

/* A body up to {% END %}, whose tag is consumed. */
static struct jnode *block(struct parser *p, const char *end)
{
	const char *const ends[] = { end, NULL };
	struct jnode *n = parse_node(p, J_WITH);

	if (!n || block_end(p) || body(p, &n->list, &n->n, ends))
		return NULL;
	p->t++;
	/* {% endmacro name %} and the like: the name is decoration. */
	if (p->t->type == T_NAME && p->t[1].type == T_BLOCK_END)
		p->t++;
	return block_end(p) ? NULL : n;
}

static struct jnode *target(struct parser *p, bool attributes)
{
	struct jnode *t = parse_node(p, J_TUPLE), *n;
	bool comma = false;

	while (t) {
		bool paren = parse_skip_op(p, "(");

		if (parse_deeper(p))
			return NULL;
		if (paren) {
			if (!(n = target(p, false)) || parse_want_op(p, ")"))
				return NULL;
		} else {
			if (p->t->type != T_NAME || !(n = parse_node(p, J_NAME)))
				return parse_fail(p, "the name of a variable");
			n->name = p->t++->s;
			if (attributes && parse_skip_op(p, ".") && !(n = parse_attribute(p, n)))
				return NULL;
		}
		p->depth--;
		parse_append(p, &t->list, &t->n, n);
		if (!parse_skip_op(p, ","))
			break;
		comma = true;
		if (p->t->type != T_NAME && !parse_is_op(p, "("))
			break;
	}
	return t && t->n == 1 && !comma ? t->list[0] : t;
}

static struct jnode *parse_if(struct parser *p)
{
	static const char *const ends[] = { "elif", "else", "endif", NULL }, *const last[] = {
		"endif", NULL
	};
	struct jnode *first = parse_node(p, J_IF), *n = first;

	while (n) {
		if (!(n->a = parse_tuple(p, false, false, NULL)))
			return NULL;
		if (block_end(p) || body(p, &n->list, &n->n, ends))
			return NULL;
		if (parse_skip_word(p, "elif")) {
			struct jnode *next = parse_node(p, J_IF);

			parse_append(p, &n->list2, &n->n2, next);
			n = next;
			continue;
		}
		if (parse_skip_word(p, "else") &&
		    (block_end(p) || body(p, &n->list2, &n->n2, last)))
			return NULL;
		p->t++;
		return block_end(p) ? NULL : first;
	}
	return NULL;
}

static struct jnode *parse_for(struct parser *p)
{
	static const char *const ends[] = { "else", "endfor", NULL }, *const last[] = { "endfor",
											NULL };
	struct jnode *n = parse_node(p, J_FOR);

	if (!n || !(n->a = target(p, false)))
		return NULL;
	if (!parse_skip_word(p, "in"))
		return parse_fail(p, "\"in\"");
	if (!(n->b = parse_tuple(p, false, false, "recursive")))
		return NULL;
	if (parse_skip_word(p, "if") && !(n->c = parse_expression(p)))
		return NULL;
	n->flag = parse_skip_word(p, "recursive");
	p->loops++;
	if (block_end(p) || body(p, &n->list, &n->n, ends))
		return NULL;
	p->loops--;
	if (parse_skip_word(p, "else") && (block_end(p) || body(p, &n->list2, &n->n2, last)))
		return NULL;
	p->t++;
	return block_end(p) ? NULL : n;
}

static struct jnode *filters_of_body(struct parser *p, bool first)
{
	struct jnode *n = parse_node(p, J_NAME);

	if (!n)
		return NULL;
	n->name = " body";
	while (n && (first || parse_skip_op(p, "|"))) {
		n = parse_filter(p, n);
		first = false;
	}
	return n;
}

static struct jnode *parse_set(struct parser *p)
{
	struct jnode *n = parse_node(p, J_SET);

	if (!n || !(n->a = target(p, true)))
		return NULL;
	if (parse_skip_op(p, "="))
		return (n->b = parse_tuple(p, true, false, NULL)) && !block_end(p) ? n : NULL;
	n->type = J_SETBLOCK;
	return (n->b = filters_of_body(p, false)) && (n->c = block(p, "endset")) ? n : NULL;
}

/* "(" is consumed. */
static int parameters(struct parser *p, struct jnode *m)
{
	while (!parse_skip_op(p, ")")) {
		struct jnode *def = NULL;
		long i = m->n2;

		if (i && parse_want_op(p, ","))
			return -1;
		if (p->t->type != T_NAME)
			return parse_fail(p, "the name of a parameter"), -1;
		parse_append_key(p, &m->key, i, p->t->s);
		p->t++;
		if (parse_skip_op(p, "=") && !(def = parse_expression(p)))
			return -1;
		if (!def && i && m->list2[i - 1])
			return parse_refuse(p,
					    "a parameter without default after one with a default"),
			       -1;
		parse_append(p, &m->list2, &m->n2, def);
	}
	m->n = m->n2;
	return 0;
}

static struct jnode *parse_macro(struct parser *p)
{
	struct jnode *n = parse_node(p, J_MACRO);
	int loops = p->loops;

	if (!n || p->t->type != T_NAME)
		return parse_fail(p, "the name of a macro");
	n->name = p->t++->s;
	if (parse_want_op(p, "(") || parameters(p, n))
		return NULL;
	p->loops = 0;
	n->c = block(p, "endmacro");
	p->loops = loops;
	return n->c ? n : NULL;
}

static struct jnode *parse_call(struct parser *p)
{
	struct jnode *n = parse_node(p, J_CALL), *m = parse_node(p, J_MACRO);
	int loops = p->loops;

	if (!n || !m || (parse_skip_op(p, "(") && parameters(p, m)) ||
	    !(n->a = parse_expression(p)))
		return NULL;
	if (n->a->type != J_INVOKE)
		return parse_fail(p, "a call");
	m->name = "caller";
	n->b = m;
	p->loops = 0;
	m->c = block(p, "endcall");
	p->loops = loops;
	return m->c ? n : NULL;
}

static struct jnode *parse_with(struct parser *p)
{
	static const char *const ends[] = { "endwith", NULL };
	struct jnode *n = parse_node(p, J_WITH), *v;

	while (n && p->t->type != T_BLOCK_END) {
		if (n->n2 && parse_want_op(p, ","))
			return NULL;
		if (p->t->type != T_NAME)
			return parse_fail(p, "the name of a variable");
		parse_append_key(p, &n->key, n->n2, p->t++->s);
		if (parse_want_op(p, "=") || !(v = parse_expression(p)))
			return NULL;
		parse_append(p, &n->list2, &n->n2, v);
	}
	if (!n || block_end(p) || body(p, &n->list, &n->n, ends))
		return NULL;
	p->t++;
	return block_end(p) ? NULL : n;
}

static struct jnode *parse_jump(struct parser *p, enum jnode_type type)
{
	struct jnode *n = parse_node(p, type);

	if (n && !p->loops)
		return parse_refuse(p, "break or continue outside of a loop");
	return n && !block_end(p) ? n : NULL;
}

static struct jnode *parse_wrapped(struct parser *p, enum jnode_type type, const char *end)
{
	struct jnode *n = parse_node(p, type);
	int loops = p->loops;

	if (!n || (type == J_FILTERBLOCK && !(n->b = filters_of_body(p, true))))
		return NULL;
	/* A generation block is a macro of its own to jinja2, so a jump cannot leave it. */
	if (type == J_GENERATION)
		p->loops = 0;
	n->c = block(p, end);
	p->loops = loops;
	return n->c ? n : NULL;
}

/* "{%" is consumed and so is the word. */
static struct jnode *statement(struct parser *p)
{
	const char *word = p->t->s;

	if (p->t->type != T_NAME)
		return parse_fail(p, "the name of a statement");
	p->t++;
	if (!strcmp(word, "if"))
		return parse_if(p);
	if (!strcmp(word, "for"))
		return parse_for(p);
	if (!strcmp(word, "set"))
		return parse_set(p);
	if (!strcmp(word, "macro"))
		return parse_macro(p);
	if (!strcmp(word, "call"))
		return parse_call(p);
	if (!strcmp(word, "with"))
		return parse_with(p);
	if (!strcmp(word, "filter"))
		return parse_wrapped(p, J_FILTERBLOCK, "endfilter");
	if (!strcmp(word, "generation"))
		return parse_wrapped(p, J_GENERATION, "endgeneration");
	if (!strcmp(word, "break"))
		return parse_jump(p, J_BREAK);
	if (!strcmp(word, "continue"))
		return parse_jump(p, J_CONTINUE);
	p->t--;
	return parse_fail(
		p,
		p->open ?
			p->open :
			"a statement that is supported (set, for, if, macro, call, filter, with, generation)");
}

/* Statements up to {% END, of which END is the current token afterwards. */
static int body(struct parser *p, struct jnode ***list, long *n, const char *const *ends)
{
	if (parse_deeper(p))
		return -1;
	for (;;) {
		struct jnode *s = NULL;

		if (p->t->type == T_EOF) {
			p->depth--;
			return ends ? (parse_fail(p, ends[1] ? ends[1] : ends[0]), -1) : 0;
		}
		if (p->t->type == T_TEXT) {
			if ((s = parse_node(p, J_TEXT)))
				s->value = jv_str(p->t->s, p->t->n, TAG_TEMPLATE);
			p->t++;
		} else if (p->t->type == T_VAR_BEGIN) {
			p->t++;
			if ((s = parse_node(p, J_PRINT)) &&
			    !(s->a = parse_tuple(p, true, false, NULL)))
				return -1;
			if (p->t->type != T_VAR_END)
				return parse_fail(p, "the end of the expression, }}"), -1;
			p->t++;
		} else {
			p->t++;
			for (int i = 0; ends && ends[i]; i++) {
				if (parse_is_word(p, ends[i]))
					return p->depth--, 0;
			}
			s = statement(p);
		}
		if (!s)
			return -1;
		parse_append(p, list, n, s);
	}
}

int jinja_parse(struct jnode **root, struct arena *a, const struct jtokens *t, const char *file,
		struct err *e)
{
	struct parser p = { .t = t->t, .arena = a, .file = file, .e = e };

	e->code = 0;
	if (!(*root = parse_node(&p, J_WITH)))
		return -1;
	return body(&p, &(*root)->list, &(*root)->n, NULL);
}
