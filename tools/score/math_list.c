#include "tools/score/math_parser.h"

#include <ctype.h>
#include <string.h>

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
	} else if (math_is(t, T_WORD, "per")) {
		str_puts(out, "/");
	} else {
		if (known)
			str_puts(out, known);
		for (size_t i = 0; !known && i < t->n - (t->s[t->n - 1] == 's'); i++)
			str_putc(out, tolower((unsigned char)t->s[i]));
		str_putc(out, ' ');
	}
	math_next(t);
	return true;
}

/* cm^2 is spelt as square cm is. */
static void unit_power(struct parser *t, struct str *out)
{
	bool brace;
	size_t at = out->len - (out->len > 0);
	char power[3] = "2 ";
	struct str turned = { 0 };

	if (!math_accept(t, T_SIGN, "^"))
		return;
	brace = math_accept(t, T_SIGN, "{");
	if (!math_is(t, T_NUMBER, "2") && !math_is(t, T_NUMBER, "3")) {
		math_fail(t);
		return;
	}
	power[0] = *t->s;
	math_next(t);
	if (brace)
		math_expect(t, T_SIGN, "}");
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
		if (math_is_sign(t, '/')) {
			str_putc(&unit, '/');
			math_next(t);
		}
	}
	if (words && !t->failed) {
		struct math_node *a = n;

		n = math_spelt(t, MATH_UNIT, unit.s, unit.len);
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
	if (math_is_sign(t, ':') && *t->p == '=')
		math_next(t);
	return math_accept(t, T_SIGN, "=") || math_accept(t, T_COMMAND, "approx") || math_accept(t, T_COMMAND, "in");
}

static void add_kid(struct parser *t, struct math_node *list, struct math_node *kid, int *cap)
{
	if (list->kids == MATH_LIST) {
		t->w->trouble = MATH_TOO_LARGE;
		math_fail(t);
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
	struct math_node *first = math_expression(t, 0), *all = NULL;
	int cap = 0;

	while (!t->failed && (math_is(t, T_COMMAND, "cup") || math_is(t, T_WORD, "U"))) {
		if (!all) {
			all = math_node(t, MATH_UNION, NULL, NULL);
			if (all)
				add_kid(t, all, first, &cap);
		}
		math_next(t);
		first = math_expression(t, 0);
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

		name = math_node(t, MATH_NAMED, NULL, NULL);
		if (!name)
			return NULL;
		name->s = math_key(t->w, s, named);
		t->p = s + named;
		math_next(t);
	}
	relation(t);
	n = with_unit(t, united(t));
	while (!t->failed && relation(t))
		n = math_node(t, MATH_CHAIN, n, with_unit(t, united(t)));
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
	bool any = math_accept(t, T_SIGN, ",") || math_accept(t, T_SIGN, ";");

	if (math_is(t, T_WORD, "and") || math_is(t, T_WORD, "or")) {
		any = true;
		math_next(t);
	}
	return any;
}

/* What does not parse up to the next separator is text: red, blue. */
static struct math_node *text_element(struct parser *t, const char *closers)
{
	const char *from = t->s - (t->token == T_COMMAND), *to = from, *key;

	while (!at_end(t, closers) && !math_is_sign(t, ',') && !math_is_sign(t, ';') && !math_is(t, T_WORD, "and") && !math_is(t, T_WORD, "or")) {
		if (t->token == T_SIGN && strchr("()[]{}", *t->s))
			return math_fail(t);
		to = t->s + t->n;
		math_next(t);
	}
	key = math_key(t->w, from, (size_t)(to - from));
	return to == from ? math_fail(t) : math_spelt(t, MATH_TEXT, key, strlen(key));
}

static struct math_node *any_element(struct parser *t, const char *closers)
{
	struct parser at = *t;
	struct math_node *n = element(t);
	bool ends = at_end(t, closers) || math_is_sign(t, ',') || math_is_sign(t, ';') || math_is(t, T_WORD, "and") || math_is(t, T_WORD, "or");

	if ((!t->failed && ends) || t->w->trouble == MATH_TOO_LARGE)
		return n;
	*t = at;
	return text_element(t, closers);
}

/* One element, or a list of them. */
struct math_node *math_list(struct parser *t, const char *closers)
{
	struct math_node *first, *list = NULL;
	int cap = 0;

	first = any_element(t, closers);
	while (!t->failed && separator(t)) {
		if (!list) {
			list = math_node(t, MATH_LIST_OF, NULL, NULL);
			if (list)
				add_kid(t, list, first, &cap);
		}
		first = t->failed ? NULL : any_element(t, closers);
		if (list && first)
			add_kid(t, list, first, &cap);
	}
	return t->failed ? NULL : list ? list : first;
}
