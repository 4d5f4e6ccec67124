#include "tools/score/math_parser.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* Binding powers.  Implied products bind as written ones, but tighter in the argument of a function without brackets. */
enum { BIND_CHOOSE = 5, BIND_SUM = 10, BIND_PRODUCT = 20, BIND_ARGUMENT = 22, BIND_POWER = 40, BIND_POSTFIX = 50 };

static bool digit(char c)
{
	return c >= '0' && c <= '9';
}

/* 12, 12.5, .5, 1e-3 (but 2e is twice e). */
static const char *number_end(const char *p)
{
	const char *q;

	while (digit(*p))
		p++;
	if (*p == '.' && digit(p[1]))
		p++;
	while (digit(*p))
		p++;
	q = *p == 'e' || *p == 'E' ? p + 1 : p;
	if (q > p && (*q == '-' || *q == '+'))
		q++;
	if (q == p || !digit(*q))
		return p;
	while (digit(*q))
		q++;
	return q;
}

void math_next(struct parser *t)
{
	const char *p = t->p + strspn(t->p, " ");

	t->blank = p > t->p;
	t->s = p;
	if (!*p) {
		t->token = T_END;
	} else if (digit(*p) || (*p == '.' && digit(p[1]))) {
		t->token = T_NUMBER;
		p = number_end(p);
	} else if (isalpha((unsigned char)*p)) {
		t->token = T_WORD;
		while (isalpha((unsigned char)*p))
			p++;
	} else if (*p == '\\' && p[1]) {
		t->token = T_COMMAND;
		t->s = ++p;
		do p++; while (isalpha((unsigned char)t->s[0]) && isalpha((unsigned char)*p));
	} else {
		t->token = T_SIGN;
		p++;
	}
	t->n = (size_t)(p - t->s);
	t->p = p;
}

bool math_is(const struct parser *t, enum token k, const char *s)
{
	return t->token == k && t->n == strlen(s) && !memcmp(t->s, s, t->n);
}

bool math_is_sign(const struct parser *t, char c)
{
	return t->token == T_SIGN && *t->s == c;
}

bool math_accept(struct parser *t, enum token k, const char *s)
{
	if (!math_is(t, k, s))
		return false;
	math_next(t);
	return true;
}

void *math_fail(struct parser *t)
{
	t->failed = true;
	return NULL;
}

struct math_node *math_node(struct parser *t, enum math_kind kind, struct math_node *a, struct math_node *b)
{
	struct math_node *n;

	if (t->failed || ++t->w->nodes > MATH_NODES) {
		if (!t->failed)
			t->w->trouble = MATH_TOO_LARGE;
		return math_fail(t);
	}
	n = arena_calloc(&t->w->arena, 1, sizeof(*n));
	n->kind = kind;
	n->a = a;
	n->b = b;
	return n;
}

struct math_node *math_spelt(struct parser *t, enum math_kind kind, const char *s, size_t len)
{
	struct math_node *n = math_node(t, kind, NULL, NULL);

	if (n)
		n->s = arena_strndup(&t->w->arena, s, len);
	return n;
}

static bool deeper(struct parser *t)
{
	if (++t->depth <= MATH_DEPTH)
		return true;
	t->w->trouble = MATH_TOO_LARGE;
	math_fail(t);
	return false;
}

void math_expect(struct parser *t, enum token k, const char *s)
{
	if (!math_accept(t, k, s))
		math_fail(t);
}

/* -- names ------------------------------------------------------------------------------------------------- */

static const struct { const char *name; enum math_func func; } functions[] = {
	{ "sin", FUNC_SIN }, { "cos", FUNC_COS }, { "tan", FUNC_TAN }, { "cot", FUNC_COT }, { "sec", FUNC_SEC }, { "csc", FUNC_CSC },
	{ "arcsin", FUNC_ARCSIN }, { "arccos", FUNC_ARCCOS }, { "arctan", FUNC_ARCTAN }, { "asin", FUNC_ARCSIN },
	{ "acos", FUNC_ARCCOS }, { "atan", FUNC_ARCTAN }, { "sinh", FUNC_SINH }, { "cosh", FUNC_COSH }, { "tanh", FUNC_TANH },
	{ "ln", FUNC_LN }, { "log", FUNC_LOG }, { "lg", FUNC_LG }, { "exp", FUNC_EXP },
};

static const struct { const char *name; enum math_kind kind; } constants[] = {
	{ "pi", MATH_PI }, { "e", MATH_E }, { "i", MATH_I }, { "infty", MATH_INF }, { "infinity", MATH_INF }, { "inf", MATH_INF },
	{ "oo", MATH_INF },
};

static const char *const numbers[] = {
	"zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve", "thirteen",
	"fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty",
};

static int function_at(const struct parser *t)
{
	for (size_t i = 0; i < sizeof(functions) / sizeof(*functions); i++)
		if (math_is(t, t->token, functions[i].name))
			return (int)functions[i].func;
	return -1;
}

static int constant_at(const struct parser *t)
{
	for (size_t i = 0; i < sizeof(constants) / sizeof(*constants); i++)
		if (math_is(t, t->token, constants[i].name))
			return (int)constants[i].kind;
	return -1;
}

static int word_number(const struct parser *t)
{
	for (int i = 0; t->w->options->words && i <= 20; i++)
		if (t->n == strlen(numbers[i]) && !strncasecmp(t->s, numbers[i], t->n))
			return i;
	return -1;
}

/* Starts an operand when it stands in a word or a command. */
static bool is_named_operand(const struct parser *t)
{
	static const char *const commands[] = { "frac", "sqrt", "binom", "lfloor", "lceil" };

	if (t->token != T_WORD && t->token != T_COMMAND)
		return false;
	if (function_at(t) >= 0 || constant_at(t) >= 0)
		return true;
	if (t->token == T_WORD)
		return math_is(t, T_WORD, "sqrt");
	for (size_t i = 0; i < sizeof(commands) / sizeof(*commands); i++)
		if (math_is(t, T_COMMAND, commands[i]))
			return true;
	return false;
}

/* -- operands ---------------------------------------------------------------------------------------------- */

static struct math_node *group(struct parser *t, enum token k, const char *closer)
{
	int implied = t->implied;
	struct math_node *n;

	t->implied = BIND_PRODUCT;
	n = math_expression(t, 0);
	t->implied = implied;
	math_expect(t, k, closer);
	return n;
}

/* An argument as TeX takes it: {...}, one digit, or one command. */
static struct math_node *argument(struct parser *t)
{
	struct math_node *n;

	if (math_accept(t, T_SIGN, "{"))
		return group(t, T_SIGN, "}");
	if (t->token == T_NUMBER) {
		n = math_spelt(t, MATH_NUM, t->s, 1);
		if (!digit(*t->s))
			return math_fail(t);
		t->p = t->s + 1;
		math_next(t);
		return n;
	}
	if (is_named_operand(t) || math_is_sign(t, '('))
		return math_expression(t, BIND_POSTFIX);
	return math_fail(t);
}

static struct math_node *two_arguments(struct parser *t, enum math_kind kind)
{
	struct math_node *a, *b;

	math_next(t);
	a = argument(t);
	b = t->failed ? NULL : argument(t);
	return math_node(t, kind, a, b);
}

static struct math_node *root(struct parser *t)
{
	struct math_node *degree = NULL, *a;

	math_next(t);
	if (math_accept(t, T_SIGN, "["))
		degree = group(t, T_SIGN, "]");
	if (t->failed)
		return NULL;
	if (t->token == T_NUMBER) {
		a = math_spelt(t, MATH_NUM, t->s, t->n);
		math_next(t);
	} else {
		a = argument(t);
	}
	return math_node(t, MATH_ROOT, a, degree);
}

static struct math_node *log_base(struct parser *t)
{
	math_next(t);
	return t->token == T_NUMBER || math_is_sign(t, '{') ? argument(t) : is_named_operand(t) ? argument(t) : math_fail(t);
}

static struct math_node *function(struct parser *t, enum math_func func)
{
	struct math_node *power = NULL, *base = NULL, *a, *n;
	int implied = t->implied;

	math_next(t);
	if (math_is_sign(t, '_') && func == FUNC_LOG)
		base = log_base(t);
	if (!t->failed && math_accept(t, T_SIGN, "^"))
		power = argument(t);
	if (t->failed)
		return NULL;
	if (math_accept(t, T_SIGN, "(")) {
		a = group(t, T_SIGN, ")");
	} else {
		t->implied = BIND_ARGUMENT;
		a = math_expression(t, BIND_PRODUCT + 1);
		t->implied = implied;
	}
	n = math_node(t, MATH_FUNC, a, base);
	if (n)
		n->func = func;
	if (power && power->kind != MATH_NUM)
		return math_fail(t);                 /* \sin^{-1} has two meanings */
	return power ? math_node(t, MATH_POW, n, power) : n;
}

static bool whole(const char *s, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!digit(s[i]))
			return false;
	return n > 0;
}

/* 2\frac{1}{3}, 2 1/3: behind a whole number, a fraction of two whole numbers is added. */
static struct math_node *mixed(struct parser *t, struct math_node *n)
{
	struct parser at = *t;
	struct math_node *f = NULL;

	if (math_is(t, T_COMMAND, "frac")) {
		f = two_arguments(t, MATH_DIV);
	} else if (t->token == T_NUMBER && t->blank && whole(t->s, t->n)) {
		struct math_node *a = math_spelt(t, MATH_NUM, t->s, t->n), *b;

		math_next(t);
		math_expect(t, T_SIGN, "/");
		if (t->failed || t->token != T_NUMBER)
			return math_fail(t);
		b = math_spelt(t, MATH_NUM, t->s, t->n);
		math_next(t);
		f = math_node(t, MATH_DIV, a, b);
	}
	if (!f || f->a->kind != MATH_NUM || f->b->kind != MATH_NUM || !whole(f->a->s, strlen(f->a->s)) ||
	    !whole(f->b->s, strlen(f->b->s))) {
		*t = at;
		return n;
	}
	return math_node(t, MATH_ADD, n, f);
}

static struct math_node *number(struct parser *t)
{
	bool integer = whole(t->s, t->n);
	struct math_node *n = math_spelt(t, MATH_NUM, t->s, t->n);

	math_next(t);
	return n && integer ? mixed(t, n) : n;
}

static struct math_node *real_line(struct parser *t)
{
	struct math_node *n = math_node(t, MATH_INTERVAL, NULL, NULL), *inf = math_node(t, MATH_INF, NULL, NULL);
	struct math_node *minus = math_node(t, MATH_NEG, inf, NULL);

	math_next(t);
	math_expect(t, T_SIGN, "{");
	math_expect(t, T_WORD, "R");
	math_expect(t, T_SIGN, "}");
	if (t->failed)
		return NULL;
	n->kid = arena_calloc(&t->w->arena, 2, sizeof(*n->kid));
	n->kid[0] = minus;
	n->kid[1] = inf;
	n->kids = 2;
	n->open[0] = n->open[1] = true;
	return n;
}

/* (..), [..], [..), (..]: brackets, a tuple or an interval. */
static struct math_node *bracketed(struct parser *t)
{
	bool square = math_is_sign(t, '['), square_end;
	struct math_node *n;

	math_next(t);
	n = math_list(t, ")]");
	square_end = math_is_sign(t, ']');
	if (t->failed || (!square_end && !math_is_sign(t, ')')))
		return math_fail(t);
	math_next(t);
	if (n->kind != MATH_LIST_OF)
		return square == square_end ? n : math_fail(t);
	if (n->kids != 2 && square != square_end)
		return math_fail(t);
	n->kind = n->kids == 2 && (square || square_end) ? MATH_INTERVAL : MATH_TUPLE;
	n->open[0] = !square;
	n->open[1] = !square_end;
	return n;
}

/* Behind \{ or {. */
static struct math_node *set(struct parser *t, bool escaped)
{
	struct math_node *n = NULL;

	math_next(t);
	if (escaped && math_is(t, T_COMMAND, "}"))
		n = math_node(t, MATH_SET, NULL, NULL);
	else
		n = math_list(t, "}");
	if (escaped ? !math_is(t, T_COMMAND, "}") : !math_is_sign(t, '}'))
		return math_fail(t);
	math_next(t);
	if (t->failed || n->kind == MATH_SET)
		return n;
	if (n->kind == MATH_LIST_OF) {
		n->kind = MATH_SET;
	} else if (escaped) {
		struct math_node *one = math_node(t, MATH_SET, NULL, NULL);

		if (!one)
			return NULL;
		one->kid = arena_calloc(&t->w->arena, 1, sizeof(*one->kid));
		one->kid[0] = n;
		one->kids = 1;
		return one;
	}
	return n;
}

static struct math_node *named_operand(struct parser *t)
{
	int constant = constant_at(t), func = function_at(t), word = t->token == T_WORD ? word_number(t) : -1;
	struct math_node *n;

	if (word >= 0) {
		char digits[16];

		math_next(t);
		return math_spelt(t, MATH_NUM, digits, (size_t)snprintf(digits, sizeof(digits), "%d", word));
	}
	if (constant >= 0) {
		math_next(t);
		return math_node(t, (enum math_kind)constant, NULL, NULL);
	}
	if (func >= 0)
		return function(t, (enum math_func)func);
	if (math_is(t, t->token, "sqrt"))
		return root(t);
	if (t->token == T_WORD)
		return math_fail(t);
	if (math_is(t, T_COMMAND, "frac"))
		return two_arguments(t, MATH_DIV);
	if (math_is(t, T_COMMAND, "binom"))
		return two_arguments(t, MATH_BINOM);
	if (math_is(t, T_COMMAND, "mathbb"))
		return real_line(t);
	if (math_is(t, T_COMMAND, "{"))
		return set(t, true);
	if (math_is(t, T_COMMAND, "lfloor") || math_is(t, T_COMMAND, "lceil")) {
		bool floor = math_is(t, T_COMMAND, "lfloor");

		math_next(t);
		n = group(t, T_COMMAND, floor ? "rfloor" : "rceil");
		return math_node(t, floor ? MATH_FLOOR : MATH_CEIL, n, NULL);
	}
	if (math_accept(t, T_COMMAND, "emptyset"))
		return math_node(t, MATH_SET, NULL, NULL);
	return math_fail(t);
}

static struct math_node *operand(struct parser *t)
{
	bool pm = math_is(t, T_COMMAND, "pm"), mp = math_is(t, T_COMMAND, "mp");

	if (t->token == T_NUMBER)
		return number(t);
	if (pm || mp) {
		math_next(t);
		return math_node(t, pm ? MATH_PM : MATH_MP, NULL, math_expression(t, BIND_PRODUCT));
	}
	if (t->token == T_WORD || t->token == T_COMMAND)
		return named_operand(t);
	if (math_is_sign(t, '(') || math_is_sign(t, '['))
		return bracketed(t);
	if (math_is_sign(t, '{'))
		return set(t, false);
	if (math_accept(t, T_SIGN, "|"))
		return math_node(t, MATH_ABS, group(t, T_SIGN, "|"), NULL);
	if (math_accept(t, T_SIGN, "-"))
		return math_node(t, MATH_NEG, math_expression(t, BIND_PRODUCT), NULL);
	if (math_accept(t, T_SIGN, "+"))
		return math_expression(t, BIND_PRODUCT);
	return math_fail(t);
}

/* -- operators --------------------------------------------------------------------------------------------- */

static const struct { enum token token; const char *s; int power; enum math_kind kind; } infix[] = {
	{ T_SIGN, "+", BIND_SUM, MATH_ADD }, { T_SIGN, "-", BIND_SUM, MATH_SUB }, { T_COMMAND, "pm", BIND_SUM, MATH_PM },
	{ T_COMMAND, "mp", BIND_SUM, MATH_MP }, { T_SIGN, "*", BIND_PRODUCT, MATH_MUL }, { T_SIGN, "/", BIND_PRODUCT, MATH_DIV },
	{ T_COMMAND, "cdot", BIND_PRODUCT, MATH_MUL }, { T_COMMAND, "times", BIND_PRODUCT, MATH_MUL },
	{ T_COMMAND, "div", BIND_PRODUCT, MATH_DIV }, { T_SIGN, "^", BIND_POWER, MATH_POW },
	{ T_COMMAND, "choose", BIND_CHOOSE, MATH_BINOM },
};

static const struct { enum token token; const char *s; enum math_kind kind; } postfix[] = {
	{ T_SIGN, "!", MATH_FACT }, { T_SIGN, "%", MATH_PERCENT }, { T_WORD, "percent", MATH_PERCENT },
	{ T_COMMAND, "degree", MATH_DEGREE }, { T_WORD, "degrees", MATH_DEGREE }, { T_WORD, "degree", MATH_DEGREE },
};

static struct math_node *after(struct parser *t, struct math_node *left, int power, bool *done)
{
	for (size_t i = 0; power < BIND_POSTFIX && i < sizeof(postfix) / sizeof(*postfix); i++)
		if (math_is(t, postfix[i].token, postfix[i].s)) {
			if (postfix[i].kind == MATH_FACT && left->kind == MATH_FACT)
				return math_fail(t);         /* n!! is another function */
			math_next(t);
			return math_node(t, postfix[i].kind, left, NULL);
		}
	for (size_t i = 0; i < sizeof(infix) / sizeof(*infix); i++) {
		if (!math_is(t, infix[i].token, infix[i].s))
			continue;
		if (infix[i].power <= power)
			break;
		math_next(t);
		/* powers group to the right, all else to the left */
		return math_node(t, infix[i].kind, left, math_expression(t, infix[i].power - (infix[i].kind == MATH_POW)));
	}
	if (t->implied > power && (is_named_operand(t) || math_is_sign(t, '(') || math_is_sign(t, '{') ||
				   (t->token == T_NUMBER && left->kind != MATH_NUM && t->s[-1] != '.' && !digit(t->s[-1]))))
		return math_node(t, MATH_MUL, left, math_expression(t, t->implied));
	*done = true;
	return left;
}

struct math_node *math_expression(struct parser *t, int power)
{
	struct math_node *left;
	bool done = false;

	if (t->failed || !deeper(t))
		return NULL;
	left = operand(t);
	while (!t->failed && !done)
		left = after(t, left, power, &done);
	t->depth--;
	return t->failed ? NULL : left;
}

struct math_node *math_parse(struct math_work *w, const char *plain)
{
	struct parser t = { .w = w, .p = plain, .implied = BIND_PRODUCT };
	struct math_node *n;

	w->nodes = 0;
	w->trouble = MATH_FINE;
	math_next(&t);
	n = math_list(&t, "");
	if (!t.failed && t.token == T_END && n->kind != MATH_TEXT)
		return n;
	if (w->trouble == MATH_FINE)
		w->trouble = MATH_UNPARSED;
	return NULL;
}
