#include "tools/score/math_parts.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* Binding powers.  Implied products bind as written ones, but tighter in the argument of a function without brackets. */
enum { BIND_SUM = 10, BIND_PRODUCT = 20, BIND_ARGUMENT = 22, BIND_POWER = 40, BIND_POSTFIX = 50 };

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

static struct math_node *expression(struct parser *t, int power);
static struct math_node *answer(struct parser *t, const char *closers);

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

static void next(struct parser *t)
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

static bool is(const struct parser *t, enum token k, const char *s)
{
	return t->token == k && t->n == strlen(s) && !memcmp(t->s, s, t->n);
}

static bool is_sign(const struct parser *t, char c)
{
	return t->token == T_SIGN && *t->s == c;
}

static bool accept(struct parser *t, enum token k, const char *s)
{
	if (!is(t, k, s))
		return false;
	next(t);
	return true;
}

static void *fail(struct parser *t)
{
	t->failed = true;
	return NULL;
}

static struct math_node *node(struct parser *t, enum math_kind kind, struct math_node *a, struct math_node *b)
{
	struct math_node *n;

	if (t->failed || ++t->w->nodes > MATH_NODES) {
		if (!t->failed)
			t->w->trouble = MATH_TOO_LARGE;
		return fail(t);
	}
	n = arena_calloc(&t->w->arena, 1, sizeof(*n));
	n->kind = kind;
	n->a = a;
	n->b = b;
	return n;
}

static struct math_node *spelt(struct parser *t, enum math_kind kind, const char *s, size_t len)
{
	struct math_node *n = node(t, kind, NULL, NULL);

	if (n)
		n->s = arena_strndup(&t->w->arena, s, len);
	return n;
}

static bool deeper(struct parser *t)
{
	if (++t->depth <= MATH_DEPTH)
		return true;
	t->w->trouble = MATH_TOO_LARGE;
	fail(t);
	return false;
}

static void expect(struct parser *t, enum token k, const char *s)
{
	if (!accept(t, k, s))
		fail(t);
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
		if (is(t, t->token, functions[i].name))
			return (int)functions[i].func;
	return -1;
}

static int constant_at(const struct parser *t)
{
	for (size_t i = 0; i < sizeof(constants) / sizeof(*constants); i++)
		if (is(t, t->token, constants[i].name))
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
		return is(t, T_WORD, "sqrt");
	for (size_t i = 0; i < sizeof(commands) / sizeof(*commands); i++)
		if (is(t, T_COMMAND, commands[i]))
			return true;
	return false;
}

/* -- operands ---------------------------------------------------------------------------------------------- */

static struct math_node *group(struct parser *t, enum token k, const char *closer)
{
	int implied = t->implied;
	struct math_node *n;

	t->implied = BIND_PRODUCT;
	n = expression(t, 0);
	t->implied = implied;
	expect(t, k, closer);
	return n;
}

/* An argument as TeX takes it: {...}, one digit, or one command. */
static struct math_node *argument(struct parser *t)
{
	struct math_node *n;

	if (accept(t, T_SIGN, "{"))
		return group(t, T_SIGN, "}");
	if (t->token == T_NUMBER) {
		n = spelt(t, MATH_NUM, t->s, 1);
		if (!digit(*t->s))
			return fail(t);
		t->p = t->s + 1;
		next(t);
		return n;
	}
	if (is_named_operand(t) || is_sign(t, '('))
		return expression(t, BIND_POSTFIX);
	return fail(t);
}

static struct math_node *two_arguments(struct parser *t, enum math_kind kind)
{
	struct math_node *a, *b;

	next(t);
	a = argument(t);
	b = t->failed ? NULL : argument(t);
	return node(t, kind, a, b);
}

static struct math_node *root(struct parser *t)
{
	struct math_node *degree = NULL, *a;

	next(t);
	if (accept(t, T_SIGN, "["))
		degree = group(t, T_SIGN, "]");
	if (t->failed)
		return NULL;
	if (t->token == T_NUMBER) {
		a = spelt(t, MATH_NUM, t->s, t->n);
		next(t);
	} else {
		a = argument(t);
	}
	return node(t, MATH_ROOT, a, degree);
}

static struct math_node *log_base(struct parser *t)
{
	next(t);
	return t->token == T_NUMBER || is_sign(t, '{') ? argument(t) : is_named_operand(t) ? argument(t) : fail(t);
}

static struct math_node *function(struct parser *t, enum math_func func)
{
	struct math_node *power = NULL, *base = NULL, *a, *n;
	int implied = t->implied;

	next(t);
	if (is_sign(t, '_') && func == FUNC_LOG)
		base = log_base(t);
	if (!t->failed && accept(t, T_SIGN, "^"))
		power = argument(t);
	if (t->failed)
		return NULL;
	if (accept(t, T_SIGN, "(")) {
		a = group(t, T_SIGN, ")");
	} else {
		t->implied = BIND_ARGUMENT;
		a = expression(t, BIND_PRODUCT + 1);
		t->implied = implied;
	}
	n = node(t, MATH_FUNC, a, base);
	if (n)
		n->func = func;
	if (power && power->kind != MATH_NUM)
		return fail(t);                 /* \sin^{-1} has two meanings */
	return power ? node(t, MATH_POW, n, power) : n;
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

	if (is(t, T_COMMAND, "frac")) {
		f = two_arguments(t, MATH_DIV);
	} else if (t->token == T_NUMBER && t->blank && whole(t->s, t->n)) {
		struct math_node *a = spelt(t, MATH_NUM, t->s, t->n), *b;

		next(t);
		expect(t, T_SIGN, "/");
		if (t->failed || t->token != T_NUMBER)
			return fail(t);
		b = spelt(t, MATH_NUM, t->s, t->n);
		next(t);
		f = node(t, MATH_DIV, a, b);
	}
	if (!f || f->a->kind != MATH_NUM || f->b->kind != MATH_NUM || !whole(f->a->s, strlen(f->a->s)) ||
	    !whole(f->b->s, strlen(f->b->s))) {
		*t = at;
		return n;
	}
	return node(t, MATH_ADD, n, f);
}

static struct math_node *number(struct parser *t)
{
	bool integer = whole(t->s, t->n);
	struct math_node *n = spelt(t, MATH_NUM, t->s, t->n);

	next(t);
	return n && integer ? mixed(t, n) : n;
}

static struct math_node *real_line(struct parser *t)
{
	struct math_node *n = node(t, MATH_INTERVAL, NULL, NULL), *inf = node(t, MATH_INF, NULL, NULL);
	struct math_node *minus = node(t, MATH_NEG, inf, NULL);

	next(t);
	expect(t, T_SIGN, "{");
	expect(t, T_WORD, "R");
	expect(t, T_SIGN, "}");
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
	bool square = is_sign(t, '['), square_end;
	struct math_node *n;

	next(t);
	n = answer(t, ")]");
	square_end = is_sign(t, ']');
	if (t->failed || (!square_end && !is_sign(t, ')')))
		return fail(t);
	next(t);
	if (n->kind != MATH_LIST_OF)
		return square == square_end ? n : fail(t);
	if (n->kids != 2 && square != square_end)
		return fail(t);
	n->kind = n->kids == 2 && (square || square_end) ? MATH_INTERVAL : MATH_TUPLE;
	n->open[0] = !square;
	n->open[1] = !square_end;
	return n;
}

/* Behind \{ or {. */
static struct math_node *set(struct parser *t, bool escaped)
{
	struct math_node *n = NULL;

	next(t);
	if (escaped && is(t, T_COMMAND, "}"))
		n = node(t, MATH_SET, NULL, NULL);
	else
		n = answer(t, "}");
	if (escaped ? !is(t, T_COMMAND, "}") : !is_sign(t, '}'))
		return fail(t);
	next(t);
	if (t->failed || n->kind == MATH_SET)
		return n;
	if (n->kind == MATH_LIST_OF) {
		n->kind = MATH_SET;
	} else if (escaped) {
		struct math_node *one = node(t, MATH_SET, NULL, NULL);

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

		next(t);
		return spelt(t, MATH_NUM, digits, (size_t)snprintf(digits, sizeof(digits), "%d", word));
	}
	if (constant >= 0) {
		next(t);
		return node(t, (enum math_kind)constant, NULL, NULL);
	}
	if (func >= 0)
		return function(t, (enum math_func)func);
	if (is(t, t->token, "sqrt"))
		return root(t);
	if (t->token == T_WORD)
		return fail(t);
	if (is(t, T_COMMAND, "frac"))
		return two_arguments(t, MATH_DIV);
	if (is(t, T_COMMAND, "binom"))
		return two_arguments(t, MATH_BINOM);
	if (is(t, T_COMMAND, "mathbb"))
		return real_line(t);
	if (is(t, T_COMMAND, "{"))
		return set(t, true);
	if (is(t, T_COMMAND, "lfloor") || is(t, T_COMMAND, "lceil")) {
		bool floor = is(t, T_COMMAND, "lfloor");

		next(t);
		n = group(t, T_COMMAND, floor ? "rfloor" : "rceil");
		return node(t, floor ? MATH_FLOOR : MATH_CEIL, n, NULL);
	}
	if (accept(t, T_COMMAND, "emptyset"))
		return node(t, MATH_SET, NULL, NULL);
	return fail(t);
}

static struct math_node *operand(struct parser *t)
{
	bool pm = is(t, T_COMMAND, "pm"), mp = is(t, T_COMMAND, "mp");

	if (t->token == T_NUMBER)
		return number(t);
	if (pm || mp) {
		next(t);
		return node(t, pm ? MATH_PM : MATH_MP, NULL, expression(t, BIND_PRODUCT));
	}
	if (t->token == T_WORD || t->token == T_COMMAND)
		return named_operand(t);
	if (is_sign(t, '(') || is_sign(t, '['))
		return bracketed(t);
	if (is_sign(t, '{'))
		return set(t, false);
	if (accept(t, T_SIGN, "|"))
		return node(t, MATH_ABS, group(t, T_SIGN, "|"), NULL);
	if (accept(t, T_SIGN, "-"))
		return node(t, MATH_NEG, expression(t, BIND_PRODUCT), NULL);
	if (accept(t, T_SIGN, "+"))
		return expression(t, BIND_PRODUCT);
	return fail(t);
}

/* -- operators --------------------------------------------------------------------------------------------- */

static const struct { enum token token; const char *s; int power; enum math_kind kind; } infix[] = {
	{ T_SIGN, "+", BIND_SUM, MATH_ADD }, { T_SIGN, "-", BIND_SUM, MATH_SUB }, { T_COMMAND, "pm", BIND_SUM, MATH_PM },
	{ T_COMMAND, "mp", BIND_SUM, MATH_MP }, { T_SIGN, "*", BIND_PRODUCT, MATH_MUL }, { T_SIGN, "/", BIND_PRODUCT, MATH_DIV },
	{ T_COMMAND, "cdot", BIND_PRODUCT, MATH_MUL }, { T_COMMAND, "times", BIND_PRODUCT, MATH_MUL },
	{ T_COMMAND, "div", BIND_PRODUCT, MATH_DIV }, { T_SIGN, "^", BIND_POWER, MATH_POW },
};

static const struct { enum token token; const char *s; enum math_kind kind; } postfix[] = {
	{ T_SIGN, "!", MATH_FACT }, { T_SIGN, "%", MATH_PERCENT }, { T_WORD, "percent", MATH_PERCENT },
	{ T_COMMAND, "degree", MATH_DEGREE }, { T_WORD, "degrees", MATH_DEGREE }, { T_WORD, "degree", MATH_DEGREE },
};

static struct math_node *after(struct parser *t, struct math_node *left, int power, bool *done)
{
	for (size_t i = 0; power < BIND_POSTFIX && i < sizeof(postfix) / sizeof(*postfix); i++)
		if (is(t, postfix[i].token, postfix[i].s)) {
			if (postfix[i].kind == MATH_FACT && left->kind == MATH_FACT)
				return fail(t);         /* n!! is another function */
			next(t);
			return node(t, postfix[i].kind, left, NULL);
		}
	for (size_t i = 0; i < sizeof(infix) / sizeof(*infix); i++) {
		if (!is(t, infix[i].token, infix[i].s))
			continue;
		if (infix[i].power <= power)
			break;
		next(t);
		/* powers group to the right, all else to the left */
		return node(t, infix[i].kind, left, expression(t, infix[i].power - (infix[i].kind == MATH_POW)));
	}
	if (t->implied > power && (is_named_operand(t) || is_sign(t, '(') || is_sign(t, '{') ||
				   (t->token == T_NUMBER && left->kind != MATH_NUM && t->s[-1] != '.' && !digit(t->s[-1]))))
		return node(t, MATH_MUL, left, expression(t, t->implied));
	*done = true;
	return left;
}

static struct math_node *expression(struct parser *t, int power)
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

/* -- units ------------------------------------------------------------------------------------------------- */

static const char *const units[][6] = {
	{ "mm", "millimeter", "millimetre" }, { "cm", "centimeter", "centimetre" }, { "m", "meter", "metre" },
	{ "km", "kilometer", "kilometre" }, { "in", "inch", "inches" }, { "ft", "foot", "feet" }, { "yd", "yard" }, { "mi", "mile" },
	{ "mg", "milligram" }, { "g", "gram" }, { "kg", "kilogram" }, { "lb", "lbs", "pound" }, { "oz", "ounce" }, { "ton" },
	{ "ml", "mL", "milliliter", "millilitre" }, { "l", "L", "liter", "litre" }, { "s", "sec", "second" },
	{ "min", "mins", "minute" }, { "h", "hr", "hrs", "hour" }, { "day" }, { "week" }, { "month" }, { "yr", "year" },
	{ "dollar", "USD", "usd", "bucks" }, { "cent" }, { "euro", "EUR" }, { "unit" }, { "mph" }, { "N" }, { "J" }, { "W" },
	{ "V" }, { "K" }, { "C" }, { "F" },
};

/* Words that say more than what was counted. */
static const char *const no_units[] = {
	"and", "or", "million", "billion", "trillion", "thousand", "hundred", "dozen", "half", "times", "less", "more", "than",
	"over", "plus", "minus", "if", "when", "where", "for", "to", "mod", "not", "is", "are", "am", "pm", "but", "with", "base",
	"pi", "sqrt", "percent", "infinity", "inf", "log", "ln", "sin", "cos", "tan", "squared", "cubed", "only",
};

static const char *known_unit(const struct parser *t)
{
	size_t plural = t->n > 3 && t->s[t->n - 1] == 's';

	for (size_t i = 0; i < sizeof(units) / sizeof(*units); i++)
		for (int k = 0; k < 6 && units[i][k]; k++) {
			const char *u = units[i][k];
			size_t n = strlen(u);

			if ((n == t->n || (n > 2 && n + plural == t->n)) &&
			    (n > 2 ? !strncasecmp(u, t->s, n) : !memcmp(u, t->s, n)))
				return units[i][0];
		}
	return NULL;
}

static bool no_unit(const struct parser *t)
{
	for (size_t i = 0; i < sizeof(no_units) / sizeof(*no_units); i++)
		if (t->n == strlen(no_units[i]) && !strncasecmp(t->s, no_units[i], t->n))
			return true;
	return false;
}

/* One word of a unit into out; false: no unit. */
static bool unit_word(struct parser *t, struct str *out)
{
	const char *known;

	if (t->token != T_WORD || no_unit(t) || (!t->blank && t->n == 1 && t->s[-1] != '/'))
		return false;
	known = known_unit(t);
	if (!known && t->n < 3)
		return false;
	if (!strncasecmp(t->s, "square", t->n) || !strncasecmp(t->s, "sq", t->n) || !strncasecmp(t->s, "cubic", t->n)) {
		str_puts(out, tolower((unsigned char)*t->s) == 's' ? "2 " : "3 ");
	} else if (is(t, T_WORD, "per")) {
		str_puts(out, "/");
	} else {
		if (known)
			str_puts(out, known);
		for (size_t i = 0; !known && i < t->n - (t->s[t->n - 1] == 's'); i++)
			str_putc(out, tolower((unsigned char)t->s[i]));
		str_putc(out, ' ');
	}
	next(t);
	return true;
}

/* cm^2 is spelt as square cm is. */
static void unit_power(struct parser *t, struct str *out)
{
	bool brace;
	size_t at = out->len - (out->len > 0);
	char power[3] = "2 ";
	struct str turned = { 0 };

	if (!accept(t, T_SIGN, "^"))
		return;
	brace = accept(t, T_SIGN, "{");
	if (!is(t, T_NUMBER, "2") && !is(t, T_NUMBER, "3")) {
		fail(t);
		return;
	}
	power[0] = *t->s;
	next(t);
	if (brace)
		expect(t, T_SIGN, "}");
	while (at && out->s[at - 1] != ' ' && out->s[at - 1] != '/')
		at--;
	str_add(&turned, out->s, at);
	str_puts(&turned, power);
	str_puts(&turned, out->s + at);
	str_release(out);
	*out = turned;
}

/* Words behind a number: at most six. */
static struct math_node *with_unit(struct parser *t, struct math_node *n)
{
	struct str unit = { 0 };
	int words = 0;

	while (!t->failed && words < 6 && unit_word(t, &unit)) {
		words++;
		unit_power(t, &unit);
		if (is_sign(t, '/')) {
			str_putc(&unit, '/');
			next(t);
		}
	}
	if (words && !t->failed) {
		struct math_node *a = n;

		n = spelt(t, MATH_UNIT, unit.s, unit.len);
		if (n)
			n->a = a;
	}
	str_release(&unit);
	return n;
}

/* -- answers ------------------------------------------------------------------------------------------------ */

/* x =, x_1 =, f(2) =, (x, y) =, \theta \in: the bytes up to the sign, or 0. */
static size_t left_side(const char *s)
{
	size_t n = strspn(s, " "), name = n;

	if (s[n] == '(') {
		n += strspn(s + n, "(,) abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ");
	} else {
		n += s[n] == '\\';
		name = n;
		while (isalpha((unsigned char)s[n]))
			n++;
		if (n == name)
			return 0;
		n += strspn(s + n, " ");
		if (s[n] == '_')
			n += 1 + strspn(s + n + 1, "{}0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ");
		n += strspn(s + n, "'");
		if (s[n] == '(') {
			n += strcspn(s + n, ")=<>");
			n += s[n] == ')';
		}
	}
	n += strspn(s + n, " ");
	if (s[n] == '=' || !strncmp(s + n, "\\approx", 7) || !strncmp(s + n, "\\in ", 4) || !strncmp(s + n, ":=", 2))
		return n;
	return 0;
}

static bool relation(struct parser *t)
{
	if (is_sign(t, ':') && *t->p == '=')
		next(t);
	return accept(t, T_SIGN, "=") || accept(t, T_COMMAND, "approx") || accept(t, T_COMMAND, "in");
}

static void add_kid(struct parser *t, struct math_node *list, struct math_node *kid, int *cap)
{
	if (list->kids == MATH_LIST) {
		t->w->trouble = MATH_TOO_LARGE;
		fail(t);
		return;
	}
	if (list->kids == *cap) {
		struct math_node **more = arena_calloc(&t->w->arena, (size_t)*cap * 2 + 4, sizeof(*more));

		if (list->kids)
			memcpy(more, list->kid, (size_t)list->kids * sizeof(*more));
		list->kid = more;
		*cap = *cap * 2 + 4;
	}
	list->kid[list->kids++] = kid;
}

static struct math_node *united(struct parser *t)
{
	struct math_node *first = expression(t, 0), *all = NULL;
	int cap = 0;

	while (!t->failed && (is(t, T_COMMAND, "cup") || is(t, T_WORD, "U"))) {
		if (!all) {
			all = node(t, MATH_UNION, NULL, NULL);
			if (all)
				add_kid(t, all, first, &cap);
		}
		next(t);
		first = expression(t, 0);
		if (all && first)
			add_kid(t, all, first, &cap);
	}
	return all ? all : first;
}

static struct math_node *element(struct parser *t)
{
	size_t named = left_side(t->s - (t->token == T_COMMAND));
	struct math_node *n, *name = NULL;

	if (named) {
		const char *s = t->s - (t->token == T_COMMAND);

		name = node(t, MATH_NAMED, NULL, NULL);
		if (!name)
			return NULL;
		name->s = math_key(t->w, s, named);
		t->p = s + named;
		next(t);
	}
	relation(t);
	n = with_unit(t, united(t));
	while (!t->failed && relation(t))
		n = node(t, MATH_CHAIN, n, with_unit(t, united(t)));
	if (!name)
		return n;
	name->a = n;
	return name;
}

static bool at_end(const struct parser *t, const char *closers)
{
	if (t->token == T_END)
		return true;
	if (t->token == T_COMMAND && *t->s != '}')
		return false;
	return (t->token == T_SIGN || t->token == T_COMMAND) && strchr(closers, *t->s);
}

static bool separator(struct parser *t)
{
	bool any = accept(t, T_SIGN, ",") || accept(t, T_SIGN, ";");

	if (is(t, T_WORD, "and") || is(t, T_WORD, "or")) {
		any = true;
		next(t);
	}
	return any;
}

/* What does not parse up to the next separator is text: red, blue. */
static struct math_node *text_element(struct parser *t, const char *closers)
{
	const char *from = t->s - (t->token == T_COMMAND), *to = from, *key;

	while (!at_end(t, closers) && !is_sign(t, ',') && !is_sign(t, ';') && !is(t, T_WORD, "and") && !is(t, T_WORD, "or")) {
		if (t->token == T_SIGN && strchr("()[]{}", *t->s))
			return fail(t);
		to = t->s + t->n;
		next(t);
	}
	key = math_key(t->w, from, (size_t)(to - from));
	return to == from ? fail(t) : spelt(t, MATH_TEXT, key, strlen(key));
}

static struct math_node *any_element(struct parser *t, const char *closers)
{
	struct parser at = *t;
	struct math_node *n = element(t);
	bool ends = at_end(t, closers) || is_sign(t, ',') || is_sign(t, ';') || is(t, T_WORD, "and") || is(t, T_WORD, "or");

	if ((!t->failed && ends) || t->w->trouble == MATH_TOO_LARGE)
		return n;
	*t = at;
	return text_element(t, closers);
}

/* One element, or a list of them. */
static struct math_node *answer(struct parser *t, const char *closers)
{
	struct math_node *first, *list = NULL;
	int cap = 0;

	first = any_element(t, closers);
	while (!t->failed && separator(t)) {
		if (!list) {
			list = node(t, MATH_LIST_OF, NULL, NULL);
			if (list)
				add_kid(t, list, first, &cap);
		}
		first = t->failed ? NULL : any_element(t, closers);
		if (list && first)
			add_kid(t, list, first, &cap);
	}
	return t->failed ? NULL : list ? list : first;
}

struct math_node *math_parse(struct math_work *w, const char *plain)
{
	struct parser t = { .w = w, .p = plain, .implied = BIND_PRODUCT };
	struct math_node *n;

	w->nodes = 0;
	w->trouble = MATH_FINE;
	next(&t);
	n = answer(&t, "");
	if (!t.failed && t.token == T_END && n->kind != MATH_TEXT)
		return n;
	if (w->trouble == MATH_FINE)
		w->trouble = MATH_UNPARSED;
	return NULL;
}
