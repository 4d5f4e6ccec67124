#include "formats/jinja_parse.h"

#include <stdio.h>
#include <string.h>

#include "formats/jinja_eval.h"

static struct jnode *logic(struct parser *p, bool is_or);
static struct jnode *unary(struct parser *p, bool filters);

void *parse_fail(struct parser *p, const char *what)
{
	const struct jtok *t = p->t;

	if (p->e->code)
		return NULL;
	if (t->type == T_EOF || t->type == T_TEXT)
		err_set(p->e, EX_DATAERR, "%s:%d: found the end, wanted %s", p->file, t->line,
			what);
	else
		err_set(p->e, EX_DATAERR, "%s:%d: found \"%.40s\", wanted %s", p->file, t->line,
			t->type == T_VAR_END   ? "}}" :
			t->type == T_BLOCK_END ? "%}" :
						 t->s,
			what);
	return NULL;
}

void *parse_refuse(struct parser *p, const char *what)
{
	if (!p->e->code)
		err_set(p->e, EX_DATAERR, "%s:%d: %s", p->file, p->t->line, what);
	return NULL;
}

struct jnode *parse_node(struct parser *p, enum jnode_type type)
{
	struct jnode *n;

	if (++p->nodes > JINJA_NODES)
		return parse_refuse(p, "too many nodes");
	n = arena_calloc(p->arena, 1, sizeof(*n));
	n->type = type;
	n->line = p->t->line;
	return n;
}

bool parse_is_op(const struct parser *p, const char *op)
{
	return p->t->type == T_OP && !strcmp(p->t->s, op);
}

bool parse_is_word(const struct parser *p, const char *word)
{
	return p->t->type == T_NAME && !strcmp(p->t->s, word);
}

bool parse_skip_op(struct parser *p, const char *op)
{
	return parse_is_op(p, op) && p->t++;
}

bool parse_skip_word(struct parser *p, const char *word)
{
	return parse_is_word(p, word) && p->t++;
}

int parse_want_op(struct parser *p, const char *op)
{
	char what[8];

	if (parse_skip_op(p, op))
		return 0;
	snprintf(what, sizeof(what), "\"%s\"", op);
	parse_fail(p, what);
	return -1;
}

/* Lists grow in the arena by doubling; `n` before the push says how large the room is. */
void parse_append(struct parser *p, struct jnode ***list, long *n, struct jnode *v)
{
	if ((*n & (*n - 1)) == 0) {
		struct jnode **more =
			arena_alloc(p->arena, (size_t)(*n ? 2 * *n : 1) * sizeof(*more));

		if (*n)
			memcpy(more, *list, (size_t)*n * sizeof(*more));
		*list = more;
	}
	(*list)[(*n)++] = v;
}

void parse_append_key(struct parser *p, const char ***list, long n, const char *key)
{
	if ((n & (n - 1)) == 0) {
		const char **more = arena_alloc(p->arena, (size_t)(n ? 2 * n : 1) * sizeof(*more));

		if (n)
			memcpy(more, *list, (size_t)n * sizeof(*more));
		*list = more;
	}
	(*list)[n] = key;
}

int parse_deeper(struct parser *p)
{
	if (++p->depth <= JINJA_NESTING)
		return 0;
	parse_refuse(p, "nested too deep");
	return -1;
}

/* "(" is consumed; fills list, key, n up to and with ")". */
static int arguments(struct parser *p, struct jnode *call)
{
	while (!parse_skip_op(p, ")")) {
		const char *key = NULL;
		struct jnode *v;
		long n = call->n;

		if (n && parse_want_op(p, ","))
			return -1;
		if (n && parse_skip_op(p, ")"))
			return 0;
		if (parse_is_op(p, "*") || parse_is_op(p, "**"))
			return parse_refuse(p, "arguments by * and ** are not supported"), -1;
		if (p->t->type == T_NAME && p->t[1].type == T_OP && !strcmp(p->t[1].s, "=")) {
			key = p->t->s;
			p->t += 2;
		} else if (n && call->key[n - 1]) {
			parse_fail(p, "only arguments by keyword after the first of them");
			return -1;
		}
		if (!(v = parse_expression(p)))
			return -1;
		parse_append_key(p, &call->key, n, key);
		parse_append(p, &call->list, &call->n, v);
	}
	return 0;
}

static bool ends_tuple(const struct parser *p, const char *word)
{
	return p->t->type == T_VAR_END || p->t->type == T_BLOCK_END || p->t->type == T_EOF ||
	       parse_is_op(p, ")") || parse_is_op(p, "]") || parse_is_op(p, "=") ||
	       (word && parse_is_word(p, word));
}

struct jnode *parse_tuple(struct parser *p, bool condition, bool empty_ok, const char *end)
{
	struct jnode *t = parse_node(p, J_TUPLE), *v;
	bool comma = false;

	if (!t)
		return NULL;
	while (!ends_tuple(p, end)) {
		if (t->n && parse_want_op(p, ","))
			return NULL;
		if (t->n && (comma = true) && ends_tuple(p, end))
			break;
		if (!(v = condition ? parse_expression(p) : logic(p, true)))
			return NULL;
		parse_append(p, &t->list, &t->n, v);
		if (!parse_is_op(p, ","))
			break;
		comma = true;
	}
	if (!t->n && !empty_ok)
		return parse_fail(p, "an expression");
	return t->n == 1 && !comma ? t->list[0] : t;
}

static struct jnode *constant(struct parser *p, struct jvalue v)
{
	struct jnode *n = parse_node(p, J_CONST);

	if (n)
		n->value = v;
	return n;
}

static struct jnode *list_display(struct parser *p)
{
	struct jnode *l = parse_node(p, J_LIST), *v;

	while (l && !parse_skip_op(p, "]")) {
		if (l->n && parse_want_op(p, ","))
			return NULL;
		if (l->n && parse_skip_op(p, "]"))
			break;
		if (!(v = parse_expression(p)))
			return NULL;
		parse_append(p, &l->list, &l->n, v);
	}
	return l;
}

static struct jnode *dict_display(struct parser *p)
{
	struct jnode *d = parse_node(p, J_DICT), *k, *v;

	while (d && !parse_skip_op(p, "}")) {
		if (d->n && parse_want_op(p, ","))
			return NULL;
		if (d->n && parse_skip_op(p, "}"))
			break;
		if (!(k = parse_expression(p)) || parse_want_op(p, ":") ||
		    !(v = parse_expression(p)))
			return NULL;
		parse_append(p, &d->list, &d->n, k);
		parse_append(p, &d->list, &d->n, v);
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
	n = constant(p,
		     jv_str(arena_strndup(p->arena, s.s ? s.s : "", s.len), s.len, TAG_TEMPLATE));
	str_release(&s);
	return n;
}

static struct jnode *primary(struct parser *p)
{
	const struct jtok *t = p->t;
	struct jnode *n;

	switch (t->type) {
	case T_STRING: return string(p);
	case T_INT: return p->t++, constant(p, jv_int(t->i));
	case T_FLOAT: return p->t++, constant(p, jv_float(t->f));
	case T_NAME:
		p->t++;
		if (!strcmp(t->s, "true") || !strcmp(t->s, "True"))
			return constant(p, jv_bool(true));
		if (!strcmp(t->s, "false") || !strcmp(t->s, "False"))
			return constant(p, jv_bool(false));
		if (!strcmp(t->s, "none") || !strcmp(t->s, "None"))
			return constant(p, jv_none());
		if ((n = parse_node(p, J_NAME)))
			n->name = t->s;
		return n;
	default: break;
	}
	if (parse_skip_op(p, "["))
		return list_display(p);
	if (parse_skip_op(p, "{"))
		return dict_display(p);
	if (!parse_skip_op(p, "("))
		return parse_fail(p, "an expression");
	n = parse_tuple(p, true, true, NULL);
	return n && !parse_want_op(p, ")") ? n : NULL;
}

/* "[" is consumed. */
static struct jnode *subscript(struct parser *p, struct jnode *of)
{
	struct jnode *n = parse_node(p, J_GETITEM), *part[3] = { 0 };
	int k = 0;

	if (!n)
		return NULL;
	n->a = of;
	if (!parse_is_op(p, ":") && !(part[0] = parse_expression(p)))
		return NULL;
	while (k < 2 && parse_skip_op(p, ":")) {
		k++;
		if (!parse_is_op(p, ":") && !parse_is_op(p, "]") &&
		    !(part[k] = parse_expression(p)))
			return NULL;
	}
	if (parse_want_op(p, "]"))
		return NULL;
	n->b = part[0];
	if (k) {
		if (!(n->b = parse_node(p, J_SLICE)))
			return NULL;
		for (int i = 0; i < 3; i++)
			parse_append(p, &n->b->list, &n->b->n, part[i]);
	}
	return n;
}

struct jnode *parse_attribute(struct parser *p, struct jnode *of)
{
	struct jnode *n = parse_node(p, p->t->type == T_INT ? J_GETITEM : J_GETATTR);

	if (!n || (p->t->type != T_INT && p->t->type != T_NAME))
		return parse_fail(p, "the name of an attribute");
	n->a = of;
	n->name = p->t->s;
	if (p->t->type == T_INT && !(n->b = constant(p, jv_int(p->t->i))))
		return NULL;
	p->t++;
	return n;
}

static struct jnode *invoke(struct parser *p, struct jnode *of)
{
	struct jnode *n = parse_node(p, J_INVOKE);

	if (!n || arguments(p, n))
		return NULL;
	n->a = of;
	return n;
}

static struct jnode *postfix(struct parser *p, struct jnode *n)
{
	while (n) {
		if (parse_skip_op(p, "."))
			n = parse_attribute(p, n);
		else if (parse_skip_op(p, "["))
			n = subscript(p, n);
		else if (parse_skip_op(p, "("))
			n = invoke(p, n);
		else
			break;
	}
	return n;
}

/* "|" is consumed. */
struct jnode *parse_filter(struct parser *p, struct jnode *of)
{
	struct jnode *n = parse_node(p, J_FILTER);

	if (!n || p->t->type != T_NAME)
		return parse_fail(p, "the name of a filter");
	n->a = of;
	n->name = p->t->s;
	if (!jinja_has_filter(n->name))
		return err_set(p->e, EX_DATAERR, "%s:%d: no filter named \"%.40s\"", p->file,
			       n->line, n->name),
		       NULL;
	p->t++;
	if (parse_skip_op(p, "(") && arguments(p, n))
		return NULL;
	return n;
}

static bool begins_argument(const struct parser *p)
{
	if (p->t->type == T_NAME)
		return !parse_is_word(p, "else") && !parse_is_word(p, "or") &&
		       !parse_is_word(p, "and");
	return p->t->type == T_STRING || p->t->type == T_INT || p->t->type == T_FLOAT ||
	       parse_is_op(p, "[") || parse_is_op(p, "{");
}

/* "is" is consumed. */
static struct jnode *test(struct parser *p, struct jnode *of)
{
	struct jnode *n = parse_node(p, J_TEST), *v;

	if (!n)
		return NULL;
	n->a = of;
	n->flag = parse_skip_word(p, "not");
	if (p->t->type != T_NAME)
		return parse_fail(p, "the name of a test");
	n->name = p->t->s;
	if (!jinja_has_test(n->name))
		return err_set(p->e, EX_DATAERR, "%s:%d: no test named \"%.40s\"", p->file, n->line,
			       n->name),
		       NULL;
	p->t++;
	if (parse_skip_op(p, "("))
		return arguments(p, n) ? NULL : n;
	if (!begins_argument(p))
		return n;
	if (parse_is_word(p, "is"))
		return parse_fail(p, "no second \"is\": tests cannot be chained");
	if (!(v = postfix(p, primary(p))))
		return NULL;
	parse_append_key(p, &n->key, 0, NULL);
	parse_append(p, &n->list, &n->n, v);
	return n;
}

static struct jnode *unary(struct parser *p, bool filters)
{
	struct jnode *n;
	bool minus = parse_is_op(p, "-");

	if (parse_deeper(p))
		return NULL;
	if (minus || parse_is_op(p, "+")) {
		if (!(n = parse_node(p, minus ? J_NEG : J_POS)))
			return NULL;
		p->t++;
		if (!(n->a = unary(p, false)))
			return NULL;
	} else {
		n = primary(p);
	}
	n = postfix(p, n);
	while (n && filters) {
		if (parse_skip_op(p, "|"))
			n = parse_filter(p, n);
		else if (parse_skip_word(p, "is"))
			n = test(p, n);
		else if (parse_skip_op(p, "("))
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
	static const struct {
		const char *s;
		int power;
		enum jop op;
	} table[] = {
		{ "+", 1, OP_ADD }, { "-", 1, OP_SUB },  { "~", 2, OP_ADD },
		{ "*", 3, OP_MUL }, { "/", 3, OP_DIV },  { "//", 3, OP_FLOORDIV },
		{ "%", 3, OP_MOD }, { "**", 4, OP_POW },
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
			if (!(n = parse_node(p, J_CONCAT)))
				return NULL;
			parse_append(p, &n->list, &n->n, l);
			while (parse_skip_op(p, "~")) {
				if (!(l = binary(p, 2)))
					return NULL;
				parse_append(p, &n->list, &n->n, l);
			}
		} else {
			if (!(n = parse_node(p, J_BINARY)))
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
	static const struct {
		const char *s;
		enum jop op;
	} table[] = {
		{ "==", OP_EQ }, { "!=", OP_NE }, { "<", OP_LT },
		{ "<=", OP_LE }, { ">", OP_GT },  { ">=", OP_GE },
	};

	for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++) {
		if (parse_skip_op(p, table[i].s))
			return *op = table[i].op, true;
	}
	if (parse_skip_word(p, "in"))
		return *op = OP_IN, true;
	if (parse_is_word(p, "not") && p->t[1].type == T_NAME && !strcmp(p->t[1].s, "in")) {
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
		if (!n && (!(n = parse_node(p, J_COMPARE)) || !(n->a = l)))
			return NULL;
		if (!(part = parse_node(p, J_COMPARE)) || !(part->a = binary(p, 0)))
			return NULL;
		part->op = op;
		parse_append(p, &n->list, &n->n, part);
	}
	return n && l ? n : l;
}

static struct jnode *negation(struct parser *p)
{
	struct jnode *n;

	if (!parse_is_word(p, "not"))
		return compare(p);
	if (parse_deeper(p) || !(n = parse_node(p, J_NOT)))
		return NULL;
	p->t++;
	n->a = negation(p);
	p->depth--;
	return n->a ? n : NULL;
}

static struct jnode *logic(struct parser *p, bool is_or)
{
	struct jnode *l = is_or ? logic(p, false) : negation(p), *n;

	while (l && parse_skip_word(p, is_or ? "or" : "and")) {
		if (!(n = parse_node(p, is_or ? J_OR : J_AND)))
			return NULL;
		n->a = l;
		if (!(n->b = is_or ? logic(p, false) : negation(p)))
			return NULL;
		l = n;
	}
	return l;
}

struct jnode *parse_expression(struct parser *p)
{
	struct jnode *v, *n;

	if (parse_deeper(p) || !(v = logic(p, true)))
		return NULL;
	while (parse_skip_word(p, "if")) {
		if (!(n = parse_node(p, J_COND)))
			return NULL;
		n->b = v;
		if (!(n->a = logic(p, true)) ||
		    (parse_skip_word(p, "else") && !(n->c = parse_expression(p))))
			return NULL;
		v = n;
	}
	p->depth--;
	return v;
}
