#include "tools/score/math_parts.h"

#include <math.h>
#include <string.h>

enum { STEPS = 200000 };        /* of one comparison; beyond them two answers are not equal */

struct compare {
	const struct math_options *o;
	long steps;
};

static bool same(struct compare *c, const struct math_value *a, const struct math_value *b);

/* -- numbers ------------------------------------------------------------------------------------------------- */

/*
 * Half a unit of the sixth decimal; for a gold answer below 0.001 half a thousandth of it, so that small numbers
 * do not all equal each other.
 */
static bool near_exact(const mpq_t gold, const mpq_t found)
{
	mpq_t d, most, least;
	bool near;

	mpq_inits(d, most, least, NULL);
	mpq_sub(d, gold, found);
	mpq_abs(d, d);
	mpq_set_ui(most, 1, 2000000);
	mpq_set_ui(least, 1, 2000);
	mpq_mul(least, least, gold);
	mpq_abs(least, least);
	near = mpq_cmp(d, mpq_cmp(least, most) < 0 ? least : most) <= 0;
	mpq_clears(d, most, least, NULL);
	return near;
}

static bool near_closed(const struct math_value *a, const struct math_value *b, bool decimal)
{
	long double size = hypotl(a->re, a->im), other = hypotl(b->re, b->im), d = hypotl(a->re - b->re, a->im - b->im);

	if (decimal && d <= fminl(0.5e-6L, 0.5e-3L * size))
		return true;
	return d <= 1e-12L * fmaxl(size, other) || (size < 1e-15L && other < 1e-15L);
}

static bool same_number(const struct math_value *a, const struct math_value *b)
{
	bool decimal = a->decimal || b->decimal;

	if (!a->exact || !b->exact)
		return near_closed(a, b, decimal);
	return mpq_equal(a->q, b->q) || (decimal && near_exact(a->q, b->q));
}

bool math_same_number(const struct math_value *a, const struct math_value *b)
{
	return a->type == VALUE_NUMBER && b->type == VALUE_NUMBER && same_number(a, b);
}

/* 50% as 50. */
static void as_raw(struct math_value *out, const struct math_value *v)
{
	mpq_t hundred;

	*out = *v;
	out->re *= 100;
	out->im *= 100;
	mpq_init(out->q);
	if (!v->exact)
		return;
	mpq_init(hundred);
	mpq_set_ui(hundred, 100, 1);
	mpq_mul(out->q, v->q, hundred);
	mpq_clear(hundred);
}

static bool same_percent(const struct math_value *a, const struct math_value *b)
{
	struct math_value raw;
	bool equal;

	as_raw(&raw, a->percent ? a : b);
	equal = same_number(a->percent ? &raw : a, a->percent ? b : &raw);
	mpq_clear(raw.q);
	return equal;
}

static bool same_scalar(const struct compare *c, const struct math_value *a, const struct math_value *b)
{
	if (a->text && b->text && strcmp(a->text, b->text))
		return false;
	return same_number(a, b) || (c->o->percent_lenient && a->percent != b->percent && same_percent(a, b));
}

/* -- collections ---------------------------------------------------------------------------------------------- */

static bool same_in_order(struct compare *c, const struct math_value *a, const struct math_value *b)
{
	if (a->kids != b->kids)
		return false;
	for (int i = 0; i < a->kids; i++)
		if (!same(c, a->kid[i], b->kid[i]))
			return false;
	return true;
}

/* Every element of a is one of b; `turned`: b is the gold. */
static bool within(struct compare *c, const struct math_value *a, const struct math_value *b, bool turned)
{
	for (int i = 0; i < a->kids; i++) {
		bool found = false;

		for (int k = 0; k < b->kids && !found; k++)
			found = turned ? same(c, b->kid[k], a->kid[i]) : same(c, a->kid[i], b->kid[k]);
		if (!found)
			return false;
	}
	return true;
}

static bool same_set(struct compare *c, const struct math_value *a, const struct math_value *b)
{
	return within(c, a, b, false) && within(c, b, a, true);
}

static bool is_set(const struct math_value *v)
{
	return v->type == VALUE_LIST || v->type == VALUE_SET;
}

static bool is_row(const struct math_value *v)
{
	return v->type == VALUE_LIST || v->type == VALUE_TUPLE;
}

/* (a, b) is both. */
static bool is_interval(const struct math_value *v)
{
	return v->type == VALUE_INTERVAL || (v->type == VALUE_TUPLE && v->kids == 2 && v->open[0] && v->open[1]);
}

/* x = 1, y = 2 against 1, 2: the names are gone, so the order must hold. */
static bool is_named_list(const struct math_value *v)
{
	for (int i = 0; i < v->kids; i++)
		if (!v->kid[i]->name)
			return false;
	return v->type == VALUE_LIST && v->kids > 0;
}

static const struct math_value *single(const struct math_value *v)
{
	return is_set(v) && v->kids == 1 ? v->kid[0] : v;
}

static bool same_collection(struct compare *c, const struct math_value *a, const struct math_value *b)
{
	if (a->type == VALUE_UNION || b->type == VALUE_UNION)
		return a->type == b->type && same_set(c, a, b);
	if (is_set(a) && is_set(b))
		return is_named_list(a) != is_named_list(b) ? same_in_order(c, a, b) : same_set(c, a, b);
	if (a->type == VALUE_INTERVAL || b->type == VALUE_INTERVAL)
		return is_interval(a) && is_interval(b) && a->open[0] == b->open[0] && a->open[1] == b->open[1] &&
		       same_in_order(c, a, b);
	return is_row(a) && is_row(b) && same_in_order(c, a, b);
}

static bool same(struct compare *c, const struct math_value *a, const struct math_value *b)
{
	if (++c->steps > STEPS)
		return false;
	if (a->name && b->name && strcmp(a->name, b->name))
		return false;
	a = single(a);
	b = single(b);
	if (a->kid || b->kid)
		return a->kid && b->kid && same_collection(c, a, b);
	if (a->type != b->type)
		return false;
	return a->type == VALUE_TEXT ? !strcmp(a->text, b->text) : a->type == VALUE_INF ? a->sign == b->sign : same_scalar(c, a, b);
}

/* -- answers --------------------------------------------------------------------------------------------------- */

bool math_equal(const struct math_answer *gold, const struct math_answer *found, const struct math_options *o)
{
	struct compare c = { .o = o };
	bool choice = o->mode == MATH_CHOICE, constant = !strcmp(gold->plain, "e") || !strcmp(gold->plain, "i");
	int letter = constant && !choice ? 0 : math_letter(gold->plain, choice);

	if (letter)
		return math_letter(found->plain, true) == letter;
	if (*gold->plain && !strcmp(gold->plain, found->plain))
		return true;
	if (!gold->value || !found->value)
		return !gold->value && !found->value && *gold->key && !strcmp(gold->key, found->key);
	return same(&c, gold->value, found->value);
}
