#include "formats/jinja.h"

#include <stdio.h>
#include <string.h>

/*
 * What the fields of a node hold:
 *
 *	TEXT value | PRINT a | IF a, list, else list2 | FOR target a, in b, if c, list, else list2
 *	SET a = b | SETBLOCK a, filters b, body c | FILTERBLOCK filters b, body c | GENERATION body c
 *	MACRO name, parameters key[n], defaults list2[n], body c | CALL of a, macro b | WITH key[n2] = list2, list
 *	CONST value | NAME name | LIST, TUPLE list | DICT list (key, value in turn)
 *	GETATTR a.name | GETITEM a[b] | SLICE list[3], with NULLs | INVOKE a(list, key)
 *	FILTER a|name(list, key) | TEST a is name(list, key) | COND b if a else c | BINARY a op b
 *	COMPARE a, then (op of list[i]) list[i]->a ... | CONCAT list
 *
 * The filters of a block begin with the variable " body", which nothing else can name.
 */

struct parser {
	const struct jtok *t;
	struct arena *arena;
	const char *file;
	struct err *e;
	long nodes;
	int depth, loops;
	const char *open;       /* the statement in work, for messages */
};

static struct jnode *expression(struct parser *p);
static struct jnode *logic(struct parser *p, bool is_or);
static struct jnode *unary(struct parser *p, bool filters);
static int body(struct parser *p, struct jnode ***list, long *n, const char *const *ends);

static void *fail(struct parser *p, const char *what)
{
	const struct jtok *t = p->t;

	if (p->e->code)
		return NULL;
	if (t->type == T_EOF || t->type == T_TEXT)
		err_set(p->e, EX_DATAERR, "%s:%d: found the end, wanted %s", p->file, t->line, what);
	else
		err_set(p->e, EX_DATAERR, "%s:%d: found \"%.40s\", wanted %s", p->file, t->line,
			t->type == T_VAR_END ? "}}" : t->type == T_BLOCK_END ? "%}" : t->s, what);
	return NULL;
}

static void *refuse(struct parser *p, const char *what)
{
	if (!p->e->code)
		err_set(p->e, EX_DATAERR, "%s:%d: %s", p->file, p->t->line, what);
	return NULL;
}

static struct jnode *node(struct parser *p, enum jnode_type type)
{
	struct jnode *n;

	if (++p->nodes > JINJA_NODES)
		return refuse(p, "too many nodes");
	n = arena_calloc(p->arena, 1, sizeof(*n));
	n->type = type;
	n->line = p->t->line;
	return n;
}

static bool is_op(const struct parser *p, const char *op)
{
	return p->t->type == T_OP && !strcmp(p->t->s, op);
}

static bool is_word(const struct parser *p, const char *word)
{
	return p->t->type == T_NAME && !strcmp(p->t->s, word);
}

static bool skip_op(struct parser *p, const char *op)
{
	return is_op(p, op) && p->t++;
}

static bool skip_word(struct parser *p, const char *word)
{
	return is_word(p, word) && p->t++;
}

static int want_op(struct parser *p, const char *op)
{
	char what[8];

	if (skip_op(p, op))
		return 0;
	snprintf(what, sizeof(what), "\"%s\"", op);
	fail(p, what);
	return -1;
}

/* Lists grow in the arena by doubling; `n` before the push says how large the room is. */
static void append(struct parser *p, struct jnode ***list, long *n, struct jnode *v)
{
	if ((*n & (*n - 1)) == 0) {
		struct jnode **more = arena_alloc(p->arena, (size_t)(*n ? 2 * *n : 1) * sizeof(*more));

		if (*n)
			memcpy(more, *list, (size_t)*n * sizeof(*more));
		*list = more;
	}
	(*list)[(*n)++] = v;
}

static void append_key(struct parser *p, const char ***list, long n, const char *key)
{
	if ((n & (n - 1)) == 0) {
		const char **more = arena_alloc(p->arena, (size_t)(n ? 2 * n : 1) * sizeof(*more));

		if (n)
			memcpy(more, *list, (size_t)n * sizeof(*more));
		*list = more;
	}
	(*list)[n] = key;
}

static int deeper(struct parser *p)
{
	if (++p->depth <= JINJA_NESTING)
		return 0;
	refuse(p, "nested too deep");
	return -1;
}

/* -- expressions ------------------------------------------------------------------------------ */

/* "(" is consumed; fills list, key, n up to and with ")". */
static int arguments(struct parser *p, struct jnode *call)
{
	while (!skip_op(p, ")")) {
		const char *key = NULL;
		struct jnode *v;
		long n = call->n;

		if (n && want_op(p, ","))
			return -1;
		if (n && skip_op(p, ")"))
			return 0;
		if (is_op(p, "*") || is_op(p, "**"))
			return refuse(p, "arguments by * and ** are not supported"), -1;
		if (p->t->type == T_NAME && p->t[1].type == T_OP && !strcmp(p->t[1].s, "=")) {
			key = p->t->s;
			p->t += 2;
		} else if (n && call->key[n - 1]) {
			fail(p, "only arguments by keyword after the first of them");
			return -1;
		}
		if (!(v = expression(p)))
			return -1;
		append_key(p, &call->key, n, key);
		append(p, &call->list, &call->n, v);
	}
	return 0;
}

static bool ends_tuple(const struct parser *p, const char *word)
{
	return p->t->type == T_VAR_END || p->t->type == T_BLOCK_END || p->t->type == T_EOF ||
		is_op(p, ")") || is_op(p, "]") || is_op(p, "=") || (word && is_word(p, word));
}

/* One expression, or a tuple of them where commas follow. */
static struct jnode *tuple(struct parser *p, bool condition, bool empty_ok, const char *end)
{
	struct jnode *t = node(p, J_TUPLE), *v;
	bool comma = false;

	if (!t)
		return NULL;
	while (!ends_tuple(p, end)) {
		if (t->n && want_op(p, ","))
			return NULL;
		if (t->n && (comma = true) && ends_tuple(p, end))
			break;
		if (!(v = condition ? expression(p) : logic(p, true)))
			return NULL;
		append(p, &t->list, &t->n, v);
		if (!is_op(p, ","))
			break;
		comma = true;
	}
	if (!t->n && !empty_ok)
		return fail(p, "an expression");
	return t->n == 1 && !comma ? t->list[0] : t;
}

static struct jnode *constant(struct parser *p, struct jvalue v)
{
	struct jnode *n = node(p, J_CONST);

	if (n)
		n->value = v;
	return n;
}

static struct jnode *list_display(struct parser *p)
{
	struct jnode *l = node(p, J_LIST), *v;

	while (l && !skip_op(p, "]")) {
		if (l->n && want_op(p, ","))
			return NULL;
		if (l->n && skip_op(p, "]"))
			break;
		if (!(v = expression(p)))
			return NULL;
		append(p, &l->list, &l->n, v);
	}
	return l;
}

static struct jnode *dict_display(struct parser *p)
{
	struct jnode *d = node(p, J_DICT), *k, *v;

	while (d && !skip_op(p, "}")) {
		if (d->n && want_op(p, ","))
			return NULL;
		if (d->n && skip_op(p, "}"))
			break;
		if (!(k = expression(p)) || want_op(p, ":") || !(v = expression(p)))
			return NULL;
		append(p, &d->list, &d->n, k);
		append(p, &d->list, &d->n, v);
	}
	return d;
}

static struct jnode *string(struct parser *p)
{
	struct str s = { 0 };
	struct jnode *n;

	if (p->t[1].type != T_STRING)
		return n = constant(p, jv_str(p->t->s, p->t->n, TAG_TEMPLATE)), p->t++, n;
	while (p->t->type == T_STRING) {
		str_add(&s, p->t->s, p->t->n);
		p->t++;
	}
	n = constant(p, jv_str(arena_strndup(p->arena, s.s ? s.s : "", s.len), s.len, TAG_TEMPLATE));
	str_release(&s);
	return n;
}

static struct jnode *primary(struct parser *p)
{
	const struct jtok *t = p->t;
	struct jnode *n;

	switch (t->type) {
	case T_STRING:
		return string(p);
	case T_INT:
		return p->t++, constant(p, jv_int(t->i));
	case T_FLOAT:
		return p->t++, constant(p, jv_float(t->f));
	case T_NAME:
		p->t++;
		if (!strcmp(t->s, "true") || !strcmp(t->s, "True"))
			return constant(p, jv_bool(true));
		if (!strcmp(t->s, "false") || !strcmp(t->s, "False"))
			return constant(p, jv_bool(false));
		if (!strcmp(t->s, "none") || !strcmp(t->s, "None"))
			return constant(p, jv_none());
		if ((n = node(p, J_NAME)))
			n->name = t->s;
		return n;
	default:
		break;
	}
	if (skip_op(p, "["))
		return list_display(p);
	if (skip_op(p, "{"))
		return dict_display(p);
	if (!skip_op(p, "("))
		return fail(p, "an expression");
	n = tuple(p, true, true, NULL);
	return n && !want_op(p, ")") ? n : NULL;
}

/* "[" is consumed. */
static struct jnode *subscript(struct parser *p, struct jnode *of)
{
	struct jnode *n = node(p, J_GETITEM), *part[3] = { 0 };
	int k = 0;

	if (!n)
		return NULL;
	n->a = of;
	if (!is_op(p, ":") && !(part[0] = expression(p)))
		return NULL;
	while (k < 2 && skip_op(p, ":")) {
		k++;
		if (!is_op(p, ":") && !is_op(p, "]") && !(part[k] = expression(p)))
			return NULL;
	}
	if (want_op(p, "]"))
		return NULL;
	n->b = part[0];
	if (k) {
		if (!(n->b = node(p, J_SLICE)))
			return NULL;
		for (int i = 0; i < 3; i++)
			append(p, &n->b->list, &n->b->n, part[i]);
	}
	return n;
}

static struct jnode *attribute(struct parser *p, struct jnode *of)
{
	struct jnode *n = node(p, p->t->type == T_INT ? J_GETITEM : J_GETATTR);

	if (!n || (p->t->type != T_INT && p->t->type != T_NAME))
		return fail(p, "the name of an attribute");
	n->a = of;
	n->name = p->t->s;
	if (p->t->type == T_INT && !(n->b = constant(p, jv_int(p->t->i))))
		return NULL;
	p->t++;
	return n;
}

static struct jnode *invoke(struct parser *p, struct jnode *of)
{
	struct jnode *n = node(p, J_INVOKE);

	if (!n || arguments(p, n))
		return NULL;
	n->a = of;
	return n;
}

static struct jnode *postfix(struct parser *p, struct jnode *n)
{
	while (n) {
		if (skip_op(p, "."))
			n = attribute(p, n);
		else if (skip_op(p, "["))
			n = subscript(p, n);
		else if (skip_op(p, "("))
			n = invoke(p, n);
		else
			break;
	}
	return n;
}

/* "|" is consumed. */
static struct jnode *filter(struct parser *p, struct jnode *of)
{
	struct jnode *n = node(p, J_FILTER);

	if (!n || p->t->type != T_NAME)
		return fail(p, "the name of a filter");
	n->a = of;
	n->name = p->t->s;
	if (!jinja_has_filter(n->name))
		return err_set(p->e, EX_DATAERR, "%s:%d: no filter named \"%.40s\"", p->file, n->line, n->name), NULL;
	p->t++;
	if (skip_op(p, "(") && arguments(p, n))
		return NULL;
	return n;
}

static bool begins_argument(const struct parser *p)
{
	if (p->t->type == T_NAME)
		return !is_word(p, "else") && !is_word(p, "or") && !is_word(p, "and");
	return p->t->type == T_STRING || p->t->type == T_INT || p->t->type == T_FLOAT || is_op(p, "[") || is_op(p, "{");
}

/* "is" is consumed. */
static struct jnode *test(struct parser *p, struct jnode *of)
{
	struct jnode *n = node(p, J_TEST), *v;

	if (!n)
		return NULL;
	n->a = of;
	n->flag = skip_word(p, "not");
	if (p->t->type != T_NAME)
		return fail(p, "the name of a test");
	n->name = p->t->s;
	if (!jinja_has_test(n->name))
		return err_set(p->e, EX_DATAERR, "%s:%d: no test named \"%.40s\"", p->file, n->line, n->name), NULL;
	p->t++;
	if (skip_op(p, "("))
		return arguments(p, n) ? NULL : n;
	if (!begins_argument(p))
		return n;
	if (is_word(p, "is"))
		return fail(p, "no second \"is\": tests cannot be chained");
	if (!(v = postfix(p, primary(p))))
		return NULL;
	append_key(p, &n->key, 0, NULL);
	append(p, &n->list, &n->n, v);
	return n;
}

static struct jnode *unary(struct parser *p, bool filters)
{
	struct jnode *n;
	bool minus = is_op(p, "-");

	if (deeper(p))
		return NULL;
	if (minus || is_op(p, "+")) {
		if (!(n = node(p, minus ? J_NEG : J_POS)))
			return NULL;
		p->t++;
		if (!(n->a = unary(p, false)))
			return NULL;
	} else {
		n = primary(p);
	}
	n = postfix(p, n);
	while (n && filters) {
		if (skip_op(p, "|"))
			n = filter(p, n);
		else if (skip_word(p, "is"))
			n = test(p, n);
		else if (skip_op(p, "("))
			n = invoke(p, n);
		else
			break;
	}
	p->depth--;
	return n;
}

/* Binding powers: + - 1, ~ 2, * / // % 3, ** 4; all to the left. */
static int power(const struct parser *p, enum jop *op)
{
	static const struct { const char *s; int power; enum jop op; } table[] = {
		{ "+", 1, OP_ADD }, { "-", 1, OP_SUB }, { "~", 2, OP_ADD }, { "*", 3, OP_MUL }, { "/", 3, OP_DIV },
		{ "//", 3, OP_FLOORDIV }, { "%", 3, OP_MOD }, { "**", 4, OP_POW },
	};

	for (size_t i = 0; p->t->type == T_OP && i < sizeof(table) / sizeof(*table); i++) {
		if (!strcmp(p->t->s, table[i].s))
			return *op = table[i].op, table[i].power;
	}
	return 0;
}

static struct jnode *binary(struct parser *p, int least)
{
	struct jnode *l = unary(p, true), *n;
	enum jop op = OP_ADD;
	int w;

	while (l && (w = power(p, &op)) > least) {
		if (w == 2) {
			if (!(n = node(p, J_CONCAT)))
				return NULL;
			append(p, &n->list, &n->n, l);
			while (skip_op(p, "~")) {
				if (!(l = binary(p, 2)))
					return NULL;
				append(p, &n->list, &n->n, l);
			}
		} else {
			if (!(n = node(p, J_BINARY)))
				return NULL;
			p->t++;
			n->a = l;
			n->op = op;
			if (!(n->b = binary(p, w)))
				return NULL;
		}
		l = n;
	}
	return l;
}

static bool comparison(struct parser *p, enum jop *op)
{
	static const struct { const char *s; enum jop op; } table[] = {
		{ "==", OP_EQ }, { "!=", OP_NE }, { "<", OP_LT }, { "<=", OP_LE }, { ">", OP_GT }, { ">=", OP_GE },
	};

	for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++) {
		if (skip_op(p, table[i].s))
			return *op = table[i].op, true;
	}
	if (skip_word(p, "in"))
		return *op = OP_IN, true;
	if (is_word(p, "not") && p->t[1].type == T_NAME && !strcmp(p->t[1].s, "in")) {
		p->t += 2;
		return *op = OP_NOTIN, true;
	}
	return false;
}

static struct jnode *compare(struct parser *p)
{
	struct jnode *l = binary(p, 0), *n = NULL, *part;
	enum jop op;

	while (l && comparison(p, &op)) {
		if (!n && (!(n = node(p, J_COMPARE)) || !(n->a = l)))
			return NULL;
		if (!(part = node(p, J_COMPARE)) || !(part->a = binary(p, 0)))
			return NULL;
		part->op = op;
		append(p, &n->list, &n->n, part);
	}
	return n && l ? n : l;
}

static struct jnode *negation(struct parser *p)
{
	struct jnode *n;

	if (!is_word(p, "not"))
		return compare(p);
	if (deeper(p) || !(n = node(p, J_NOT)))
		return NULL;
	p->t++;
	n->a = negation(p);
	p->depth--;
	return n->a ? n : NULL;
}

static struct jnode *logic(struct parser *p, bool is_or)
{
	struct jnode *l = is_or ? logic(p, false) : negation(p), *n;

	while (l && skip_word(p, is_or ? "or" : "and")) {
		if (!(n = node(p, is_or ? J_OR : J_AND)))
			return NULL;
		n->a = l;
		if (!(n->b = is_or ? logic(p, false) : negation(p)))
			return NULL;
		l = n;
	}
	return l;
}

static struct jnode *expression(struct parser *p)
{
	struct jnode *v, *n;

	if (deeper(p) || !(v = logic(p, true)))
		return NULL;
	while (skip_word(p, "if")) {
		if (!(n = node(p, J_COND)))
			return NULL;
		n->b = v;
		if (!(n->a = logic(p, true)) || (skip_word(p, "else") && !(n->c = expression(p))))
			return NULL;
		v = n;
	}
	p->depth--;
	return v;
}

/* -- statements ------------------------------------------------------------------------------- */

static int block_end(struct parser *p)
{
	if (p->t->type != T_BLOCK_END)
		return fail(p, "the end of the tag, %}"), -1;
	p->t++;
	return 0;
}

/* A body up to {% END %}, whose tag is consumed. */
static struct jnode *block(struct parser *p, const char *end)
{
	const char *const ends[] = { end, NULL };
	struct jnode *n = node(p, J_WITH);

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
	struct jnode *t = node(p, J_TUPLE), *n;
	bool comma = false;

	while (t) {
		bool paren = skip_op(p, "(");

		if (deeper(p))
			return NULL;
		if (paren) {
			if (!(n = target(p, false)) || want_op(p, ")"))
				return NULL;
		} else {
			if (p->t->type != T_NAME || !(n = node(p, J_NAME)))
				return fail(p, "the name of a variable");
			n->name = p->t++->s;
			if (attributes && skip_op(p, ".") && !(n = attribute(p, n)))
				return NULL;
		}
		p->depth--;
		append(p, &t->list, &t->n, n);
		if (!skip_op(p, ","))
			break;
		comma = true;
		if (p->t->type != T_NAME && !is_op(p, "("))
			break;
	}
	return t && t->n == 1 && !comma ? t->list[0] : t;
}

static struct jnode *parse_if(struct parser *p)
{
	static const char *const ends[] = { "elif", "else", "endif", NULL }, *const last[] = { "endif", NULL };
	struct jnode *first = node(p, J_IF), *n = first;

	while (n) {
		if (!(n->a = tuple(p, false, false, NULL)))
			return NULL;
		if (block_end(p) || body(p, &n->list, &n->n, ends))
			return NULL;
		if (skip_word(p, "elif")) {
			struct jnode *next = node(p, J_IF);

			append(p, &n->list2, &n->n2, next);
			n = next;
			continue;
		}
		if (skip_word(p, "else") && (block_end(p) || body(p, &n->list2, &n->n2, last)))
			return NULL;
		p->t++;
		return block_end(p) ? NULL : first;
	}
	return NULL;
}

static struct jnode *parse_for(struct parser *p)
{
	static const char *const ends[] = { "else", "endfor", NULL }, *const last[] = { "endfor", NULL };
	struct jnode *n = node(p, J_FOR);

	if (!n || !(n->a = target(p, false)))
		return NULL;
	if (!skip_word(p, "in"))
		return fail(p, "\"in\"");
	if (!(n->b = tuple(p, false, false, "recursive")))
		return NULL;
	if (skip_word(p, "if") && !(n->c = expression(p)))
		return NULL;
	n->flag = skip_word(p, "recursive");
	p->loops++;
	if (block_end(p) || body(p, &n->list, &n->n, ends))
		return NULL;
	p->loops--;
	if (skip_word(p, "else") && (block_end(p) || body(p, &n->list2, &n->n2, last)))
		return NULL;
	p->t++;
	return block_end(p) ? NULL : n;
}

static struct jnode *filters_of_body(struct parser *p, bool first)
{
	struct jnode *n = node(p, J_NAME);

	if (!n)
		return NULL;
	n->name = " body";
	while (n && (first || skip_op(p, "|"))) {
		n = filter(p, n);
		first = false;
	}
	return n;
}

static struct jnode *parse_set(struct parser *p)
{
	struct jnode *n = node(p, J_SET);

	if (!n || !(n->a = target(p, true)))
		return NULL;
	if (skip_op(p, "="))
		return (n->b = tuple(p, true, false, NULL)) && !block_end(p) ? n : NULL;
	n->type = J_SETBLOCK;
	return (n->b = filters_of_body(p, false)) && (n->c = block(p, "endset")) ? n : NULL;
}

/* "(" is consumed. */
static int parameters(struct parser *p, struct jnode *m)
{
	while (!skip_op(p, ")")) {
		struct jnode *def = NULL;
		long i = m->n2;

		if (i && want_op(p, ","))
			return -1;
		if (p->t->type != T_NAME)
			return fail(p, "the name of a parameter"), -1;
		append_key(p, &m->key, i, p->t->s);
		p->t++;
		if (skip_op(p, "=") && !(def = expression(p)))
			return -1;
		if (!def && i && m->list2[i - 1])
			return refuse(p, "a parameter without default after one with a default"), -1;
		append(p, &m->list2, &m->n2, def);
	}
	m->n = m->n2;
	return 0;
}

static struct jnode *parse_macro(struct parser *p)
{
	struct jnode *n = node(p, J_MACRO);
	int loops = p->loops;

	if (!n || p->t->type != T_NAME)
		return fail(p, "the name of a macro");
	n->name = p->t++->s;
	if (want_op(p, "(") || parameters(p, n))
		return NULL;
	p->loops = 0;
	n->c = block(p, "endmacro");
	p->loops = loops;
	return n->c ? n : NULL;
}

static struct jnode *parse_call(struct parser *p)
{
	struct jnode *n = node(p, J_CALL), *m = node(p, J_MACRO);
	int loops = p->loops;

	if (!n || !m || (skip_op(p, "(") && parameters(p, m)) || !(n->a = expression(p)))
		return NULL;
	if (n->a->type != J_INVOKE)
		return fail(p, "a call");
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
	struct jnode *n = node(p, J_WITH), *v;

	while (n && p->t->type != T_BLOCK_END) {
		if (n->n2 && want_op(p, ","))
			return NULL;
		if (p->t->type != T_NAME)
			return fail(p, "the name of a variable");
		append_key(p, &n->key, n->n2, p->t++->s);
		if (want_op(p, "=") || !(v = expression(p)))
			return NULL;
		append(p, &n->list2, &n->n2, v);
	}
	if (!n || block_end(p) || body(p, &n->list, &n->n, ends))
		return NULL;
	p->t++;
	return block_end(p) ? NULL : n;
}

static struct jnode *parse_jump(struct parser *p, enum jnode_type type)
{
	struct jnode *n = node(p, type);

	if (n && !p->loops)
		return refuse(p, "break or continue outside of a loop");
	return n && !block_end(p) ? n : NULL;
}

static struct jnode *parse_wrapped(struct parser *p, enum jnode_type type, const char *end)
{
	struct jnode *n = node(p, type);
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
		return fail(p, "the name of a statement");
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
	return fail(p, p->open ? p->open : "a statement that is supported (set, for, if, macro, call, filter, with, generation)");
}

/* Statements up to {% END, of which END is the current token afterwards. */
static int body(struct parser *p, struct jnode ***list, long *n, const char *const *ends)
{
	if (deeper(p))
		return -1;
	for (;; ) {
		struct jnode *s = NULL;

		if (p->t->type == T_EOF) {
			p->depth--;
			return ends ? (fail(p, ends[1] ? ends[1] : ends[0]), -1) : 0;
		}
		if (p->t->type == T_TEXT) {
			if ((s = node(p, J_TEXT)))
				s->value = jv_str(p->t->s, p->t->n, TAG_TEMPLATE);
			p->t++;
		} else if (p->t->type == T_VAR_BEGIN) {
			p->t++;
			if ((s = node(p, J_PRINT)) && !(s->a = tuple(p, true, false, NULL)))
				return -1;
			if (p->t->type != T_VAR_END)
				return fail(p, "the end of the expression, }}"), -1;
			p->t++;
		} else {
			p->t++;
			for (int i = 0; ends && ends[i]; i++) {
				if (is_word(p, ends[i]))
					return p->depth--, 0;
			}
			s = statement(p);
		}
		if (!s)
			return -1;
		append(p, list, n, s);
	}
}

int jinja_parse(struct jnode **root, struct arena *a, const struct jtokens *t, const char *file, struct err *e)
{
	struct parser p = { .t = t->t, .arena = a, .file = file, .e = e };

	e->code = 0;
	if (!(*root = node(&p, J_WITH)))
		return -1;
	return body(&p, &(*root)->list, &(*root)->n, NULL);
}
