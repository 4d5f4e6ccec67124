#include "tools/score/math_parts.h"

#include <complex.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DIGITS = 1233 };         /* decimal digits that fit MATH_BITS */

static const long double PI = 3.14159265358979323846264338327950288L;

struct env {
	struct math_work *w;
	int sign;               /* that stands for \pm */
};

static struct math_value *number(struct env *v, const struct math_node *n);

static void *trouble(struct math_work *w, enum math_trouble why)
{
	if (w->trouble == MATH_FINE)
		w->trouble = why;
	return NULL;
}

static struct math_value *fresh(struct math_work *w, enum math_type type)
{
	struct math_value *v = arena_calloc(&w->arena, 1, sizeof(*v));

	v->type = type;
	return v;
}

static struct math_value *exact(struct math_work *w)
{
	struct math_value *v = fresh(w, VALUE_NUMBER);

	mpq_init(v->q);
	v->exact = true;
	v->next = w->values;
	w->values = v;
	return v;
}

void math_work_release(struct math_work *w)
{
	for (struct math_value *v = w->values; v; v = v->next)
		mpq_clear(v->q);
	w->values = NULL;
	arena_release(&w->arena);
}

/* Correct to the 64 bits of a long double but for the last. */
static long double rounded(const mpq_t q)
{
	const __mpz_struct *num = mpq_numref(q), *den = mpq_denref(q);
	long shift = (long)mpz_sizeinbase(den, 2) - (long)mpz_sizeinbase(num, 2) + 64, top;
	long double x;
	mpz_t t;

	if (!mpq_sgn(q))
		return 0;
	mpz_init(t);
	if (shift >= 0) {
		mpz_mul_2exp(t, num, (mp_bitcnt_t)shift);
		mpz_tdiv_q(t, t, den);
	} else {
		mpz_mul_2exp(t, den, (mp_bitcnt_t)-shift);
		mpz_tdiv_q(t, num, t);
	}
	mpz_abs(t, t);
	top = (long)mpz_sizeinbase(t, 2) - 64;
	if (top > 0)
		mpz_tdiv_q_2exp(t, t, (mp_bitcnt_t)top);
	x = ldexpl((long double)mpz_get_ui(t), (int)((top > 0 ? top : 0) - shift));
	mpz_clear(t);
	return mpq_sgn(q) < 0 ? -x : x;
}

static struct math_value *settled(struct math_work *w, struct math_value *v)
{
	if (mpz_sizeinbase(mpq_numref(v->q), 2) > MATH_BITS || mpz_sizeinbase(mpq_denref(v->q), 2) > MATH_BITS)
		return trouble(w, MATH_TOO_LARGE);
	v->re = rounded(v->q);
	return v;
}

static struct math_value *closed(struct math_work *w, long double complex z)
{
	struct math_value *v = fresh(w, VALUE_NUMBER);

	v->re = creall(z);
	v->im = cimagl(z);
	if (isnan(v->re) || isnan(v->im))
		return trouble(w, MATH_UNDEFINED);
	if (isinf(v->re) || isinf(v->im))
		return trouble(w, MATH_TOO_LARGE);
	return v;
}

static long double complex of(const struct math_value *v)
{
	return v->re + v->im * I;
}

/* -- numerals ------------------------------------------------------------------------------------------------ */

static struct math_value *numeral(struct math_work *w, const char *s)
{
	char digits[DIGITS + 1];
	long n = 0, scale = 0, exponent = 0;
	const char *p = s;
	bool point = false, minus;
	struct math_value *v;
	mpz_t ten;

	for (; *p == '.' || (*p >= '0' && *p <= '9'); p++) {
		if (*p == '.') {
			point = true;
			continue;
		}
		scale += point;
		if (n == 0 && *p == '0')
			continue;
		if (n == DIGITS)
			return trouble(w, MATH_TOO_LARGE);
		digits[n++] = *p;
	}
	digits[n] = 0;
	if (*p) {
		minus = p[1] == '-';
		for (p += 1 + (p[1] == '-' || p[1] == '+'); *p; p++)
			exponent = exponent > DIGITS ? exponent : exponent * 10 + (*p - '0');
		exponent = minus ? -exponent : exponent;
	}
	exponent -= scale;
	if (exponent > DIGITS || exponent < -DIGITS)
		return trouble(w, MATH_TOO_LARGE);
	v = exact(w);
	if (n)
		mpz_set_str(mpq_numref(v->q), digits, 10);
	mpz_init(ten);
	mpz_ui_pow_ui(ten, 10, (unsigned long)labs(exponent));
	if (exponent < 0)
		mpz_set(mpq_denref(v->q), ten);
	else
		mpz_mul(mpq_numref(v->q), mpq_numref(v->q), ten);
	mpz_clear(ten);
	mpq_canonicalize(v->q);
	v->decimal = point || exponent < 0;
	return settled(w, v);
}

/* -- arithmetic ------------------------------------------------------------------------------------------------ */

static struct math_value *arithmetic(struct math_work *w, enum math_kind op, const struct math_value *a, const struct math_value *b)
{
	struct math_value *v;

	if (op == MATH_DIV && (b->exact ? !mpq_sgn(b->q) : !b->re && !b->im))
		return trouble(w, MATH_UNDEFINED);
	if (a->exact && b->exact) {
		v = exact(w);
		(op == MATH_ADD ? mpq_add : op == MATH_SUB ? mpq_sub : op == MATH_MUL ? mpq_mul : mpq_div)(v->q, a->q, b->q);
		v = settled(w, v);
	} else {
		long double complex x = of(a), y = of(b);

		v = closed(w, op == MATH_ADD ? x + y : op == MATH_SUB ? x - y : op == MATH_MUL ? x * y : x / y);
	}
	if (v)
		v->decimal = a->decimal || b->decimal;
	return v;
}

static struct math_value *negative(struct math_work *w, const struct math_value *a)
{
	struct math_value *v;

	if (a->type == VALUE_INF) {
		v = fresh(w, VALUE_INF);
		v->sign = -a->sign;
		return v;
	}
	if (!a->exact) {
		v = closed(w, -of(a));
	} else {
		v = exact(w);
		mpq_neg(v->q, a->q);
		v = settled(w, v);
	}
	if (v) {
		v->decimal = a->decimal;
		v->percent = a->percent;
		v->text = a->text;
	}
	return v;
}

/* True: a small whole number. */
static bool small(const struct math_value *v, long *out, long most)
{
	if (!v->exact || mpz_cmp_ui(mpq_denref(v->q), 1) || mpz_cmpabs_ui(mpq_numref(v->q), (unsigned long)most) > 0)
		return false;
	*out = mpz_get_si(mpq_numref(v->q));
	return true;
}

static struct math_value *whole_power(struct math_work *w, const struct math_value *a, long e)
{
	unsigned long n = (unsigned long)labs(e);
	size_t bits = mpz_sizeinbase(mpq_numref(a->q), 2), more = mpz_sizeinbase(mpq_denref(a->q), 2);
	struct math_value *v;

	bits = bits > more ? bits : more;
	if (e < 0 && !mpq_sgn(a->q))
		return trouble(w, MATH_UNDEFINED);
	if (bits > 1 && (bits - 1) * n > MATH_BITS)
		return trouble(w, MATH_TOO_LARGE);
	v = exact(w);
	mpz_pow_ui(mpq_numref(v->q), mpq_numref(a->q), n);
	mpz_pow_ui(mpq_denref(v->q), mpq_denref(a->q), n);
	if (e < 0)
		mpq_inv(v->q, v->q);
	return settled(w, v);
}

static long double complex complex_power(long double complex z, long e)
{
	long double complex out = 1;

	for (unsigned long n = (unsigned long)labs(e); n; n >>= 1) {
		if (n & 1)
			out *= z;
		z *= z;
	}
	return e < 0 ? 1 / out : out;
}

/* The n-th root of q when it is rational, else NULL. */
static struct math_value *exact_root(struct math_work *w, const mpq_t q, long n)
{
	struct math_value *v = exact(w);

	if (mpq_sgn(q) < 0 && n % 2 == 0)
		return NULL;
	if (!mpz_root(mpq_numref(v->q), mpq_numref(q), (unsigned long)n) || !mpz_root(mpq_denref(v->q), mpq_denref(q), (unsigned long)n))
		return NULL;
	return settled(w, v);
}

/* Real where the radicand is real and the degree odd or the radicand not negative; else the principal value. */
static struct math_value *root(struct math_work *w, const struct math_value *a, const struct math_value *degree)
{
	struct math_value *v;
	long n = 2;

	if (degree && (!small(degree, &n, MATH_BITS) || n < 1))
		return trouble(w, MATH_UNPARSED);
	v = a->exact ? exact_root(w, a->q, n) : NULL;
	if (!v && a->im == 0 && (a->re >= 0 || n % 2))
		v = closed(w, n == 2 ? sqrtl(a->re) : copysignl(powl(fabsl(a->re), 1.0L / n), a->re));
	else if (!v && a->im == 0)
		v = closed(w, n == 2 ? sqrtl(-a->re) * I : cpowl(of(a), 1.0L / n));
	else if (!v)
		v = closed(w, cpowl(of(a), 1.0L / n));
	if (v)
		v->decimal = a->decimal;
	return v;
}

static struct math_value *power(struct math_work *w, const struct math_value *a, const struct math_value *b)
{
	struct math_value *v = NULL;
	long e, n;

	if (a->exact && b->exact && !mpz_cmp_ui(mpq_denref(b->q), 1)) {
		bool unit = !mpz_cmp_ui(mpq_denref(a->q), 1) && mpz_cmpabs_ui(mpq_numref(a->q), 1) <= 0;

		if (!small(b, &e, MATH_BITS)) {
			if (!unit)
				return trouble(w, MATH_TOO_LARGE);
			e = mpz_sgn(mpq_numref(b->q)) * (mpz_odd_p(mpq_numref(b->q)) ? 1 : 2);
		}
		v = whole_power(w, a, e);
	} else if (small(b, &e, MATH_BITS)) {
		v = closed(w, complex_power(of(a), e));
	} else {
		if (a->exact && b->exact && mpq_sgn(a->q) > 0 && mpz_cmp_ui(mpq_denref(b->q), MATH_DEPTH) <= 0 &&
		    mpz_cmpabs_ui(mpq_numref(b->q), MATH_BITS) <= 0) {
			n = mpz_get_si(mpq_denref(b->q));
			e = mpz_get_si(mpq_numref(b->q));
			v = exact_root(w, a->q, n);
			v = v ? whole_power(w, v, e) : NULL;
		}
		if (!v && w->trouble == MATH_FINE)
			v = a->im == 0 && b->im == 0 && a->re >= 0 ? closed(w, powl(a->re, b->re)) : closed(w, cpowl(of(a), of(b)));
	}
	if (v)
		v->decimal = a->decimal || b->decimal;
	return v;
}

static struct math_value *factorial(struct math_work *w, const struct math_value *a)
{
	struct math_value *v;
	long n;

	if (!small(a, &n, 600) || n < 0)
		return trouble(w, MATH_TOO_LARGE);
	v = exact(w);
	mpz_fac_ui(mpq_numref(v->q), (unsigned long)n);
	return settled(w, v);
}

static struct math_value *binomial(struct math_work *w, const struct math_value *a, const struct math_value *b)
{
	struct math_value *v;
	long n, k;

	if (!small(a, &n, 1000000) || !small(b, &k, 1000000) || n < 0 || k < 0)
		return trouble(w, MATH_UNPARSED);
	k = k > n ? k : k > n - k ? n - k : k;
	if (n > MATH_BITS && k <= n && k > MATH_BITS / 12)
		return trouble(w, MATH_TOO_LARGE);
	v = exact(w);
	if (k <= n)
		mpz_bin_uiui(mpq_numref(v->q), (unsigned long)n, (unsigned long)k);
	return settled(w, v);
}

/* -- functions -------------------------------------------------------------------------------------------------- */

static struct math_value *rounding(struct math_work *w, enum math_kind kind, const struct math_value *a)
{
	struct math_value *v;

	if (a->im != 0)
		return trouble(w, MATH_UNPARSED);
	if (!a->exact)
		return closed(w, kind == MATH_FLOOR ? floorl(a->re) : ceill(a->re));
	v = exact(w);
	(kind == MATH_FLOOR ? mpz_fdiv_q : mpz_cdiv_q)(mpq_numref(v->q), mpq_numref(a->q), mpq_denref(a->q));
	return settled(w, v);
}

static struct math_value *absolute(struct math_work *w, struct math_value *a)
{
	struct math_value *v;

	if (a->exact)
		return mpq_sgn(a->q) < 0 ? negative(w, a) : a;
	v = closed(w, cabsl(of(a)));
	if (v)
		v->decimal = a->decimal;
	return v;
}

static long double over(long double a, long double b)
{
	return fabsl(b) < 1e-17L ? (long double)NAN : a / b;
}

static long double logarithm(long double x)
{
	return x > 0 ? logl(x) : (long double)NAN;
}

static long double apply(enum math_func f, long double x)
{
	switch (f) {
	case FUNC_SIN: return sinl(x);
	case FUNC_COS: return cosl(x);
	case FUNC_TAN: return over(sinl(x), cosl(x));
	case FUNC_COT: return over(cosl(x), sinl(x));
	case FUNC_SEC: return over(1, cosl(x));
	case FUNC_CSC: return over(1, sinl(x));
	case FUNC_ARCSIN: return asinl(x);
	case FUNC_ARCCOS: return acosl(x);
	case FUNC_ARCTAN: return atanl(x);
	case FUNC_SINH: return sinhl(x);
	case FUNC_COSH: return coshl(x);
	case FUNC_TANH: return tanhl(x);
	case FUNC_LN: return logarithm(x);
	case FUNC_LOG: return logarithm(x) / logl(10);
	case FUNC_LG: return logarithm(x) / logl(10);
	case FUNC_EXP: return expl(x);
	}
	bug("function %d", (int)f);
}

static bool in_degrees(const struct math_node *n)
{
	return n->kind == MATH_DEGREE || (n->kind == MATH_NEG && in_degrees(n->a));
}

static struct math_value *function(struct env *t, const struct math_node *n)
{
	struct math_value *a = number(t, n->a), *base = a && n->b ? number(t, n->b) : NULL, *v;
	long double x;

	if (!a || (n->b && !base))
		return NULL;
	if (a->im != 0 || (base && base->im != 0))
		return trouble(t->w, MATH_UNPARSED);
	x = a->re;
	if (n->func <= FUNC_CSC && in_degrees(n->a))
		x *= PI / 180;
	if (base)
		v = closed(t->w, over(logarithm(x), logarithm(base->re)));
	else
		v = closed(t->w, apply(n->func, x));
	if (v)
		v->decimal = a->decimal || (base && base->decimal);
	return v;
}

/* -- trees --------------------------------------------------------------------------------------------------------- */

static struct math_value *hundredth(struct math_work *w, const struct math_value *a)
{
	struct math_value *v, *c = exact(w);

	mpq_set_ui(c->q, 100, 1);
	v = arithmetic(w, MATH_DIV, a, settled(w, c));
	if (v)
		v->percent = true;
	return v;
}

static struct math_value *two(struct env *t, const struct math_node *n)
{
	struct math_value *a = n->a ? number(t, n->a) : NULL, *b = !n->a || a ? number(t, n->b) : NULL;
	enum math_kind op = n->kind;

	if (!b)
		return NULL;
	if (op == MATH_PM || op == MATH_MP) {
		bool plus = (t->sign > 0) == (op == MATH_PM);

		if (!a)
			return plus ? b : negative(t->w, b);
		op = plus ? MATH_ADD : MATH_SUB;
	}
	return op == MATH_POW ? power(t->w, a, b) : op == MATH_BINOM ? binomial(t->w, a, b) : arithmetic(t->w, op, a, b);
}

static struct math_value *one(struct env *t, const struct math_node *n)
{
	struct math_value *a = number(t, n->a), *degree = a && n->b ? number(t, n->b) : NULL;

	if (!a || (n->b && !degree))
		return NULL;
	switch (n->kind) {
	case MATH_NEG: return negative(t->w, a);
	case MATH_ROOT: return root(t->w, a, degree);
	case MATH_FACT: return factorial(t->w, a);
	case MATH_ABS: return absolute(t->w, a);
	case MATH_FLOOR: case MATH_CEIL: return rounding(t->w, n->kind, a);
	case MATH_PERCENT: return hundredth(t->w, a);
	default: return a;
	}
}

static struct math_value *number(struct env *t, const struct math_node *n)
{
	switch (n->kind) {
	case MATH_NUM: return numeral(t->w, n->s);
	case MATH_PI: return closed(t->w, PI);
	case MATH_E: return closed(t->w, expl(1));
	case MATH_I: return closed(t->w, I);
	case MATH_ADD: case MATH_SUB: case MATH_MUL: case MATH_DIV: case MATH_POW: case MATH_PM: case MATH_MP: case MATH_BINOM:
		return two(t, n);
	case MATH_NEG: case MATH_ROOT: case MATH_FACT: case MATH_ABS: case MATH_FLOOR: case MATH_CEIL: case MATH_PERCENT:
	case MATH_DEGREE:
		return one(t, n);
	case MATH_FUNC: return function(t, n);
	default: return trouble(t->w, MATH_UNPARSED);
	}
}

static bool has_sign(const struct math_node *n)
{
	if (!n)
		return false;
	if (n->kind == MATH_PM || n->kind == MATH_MP || has_sign(n->a) || has_sign(n->b))
		return true;
	for (int i = 0; i < n->kids; i++)
		if (has_sign(n->kid[i]))
			return true;
	return false;
}

static struct math_value *any(struct env *t, const struct math_node *n);

/* Elements with a \pm are two. */
static struct math_value *many(struct env *t, const struct math_node *n, enum math_type type)
{
	bool spread = type == VALUE_LIST || type == VALUE_SET;
	struct math_value *v = fresh(t->w, type);

	v->open[0] = n->open[0];
	v->open[1] = n->open[1];
	v->kid = arena_calloc(&t->w->arena, (size_t)n->kids * 2 + 1, sizeof(struct math_value *));
	for (int i = 0; i < n->kids; i++) {
		int times = spread && has_sign(n->kid[i]) ? 2 : 1;

		for (int k = 0; k < times; k++) {
			struct env with = { t->w, spread ? k ? -1 : 1 : t->sign };
			struct math_value *one_of = any(&with, n->kid[i]);

			if (!one_of)
				return NULL;
			v->kid[v->kids++] = one_of;
		}
	}
	return v;
}

static struct math_value *infinite(struct env *t, const struct math_node *n)
{
	struct math_value *v;

	if (n->kind == MATH_NEG) {
		v = infinite(t, n->a);
		return v ? negative(t->w, v) : NULL;
	}
	if (n->kind != MATH_INF)
		return NULL;
	v = fresh(t->w, VALUE_INF);
	v->sign = 1;
	return v;
}

static struct math_value *wrapped(struct env *t, const struct math_node *n)
{
	struct math_value *v = any(t, n->a), *b;

	if (!v)
		return NULL;
	if (n->kind == MATH_NAMED) {
		v->name = n->s;
	} else if (n->kind == MATH_CHAIN) {
		b = any(t, n->b);
		return b && math_same_number(v, b) ? b : trouble(t->w, MATH_UNPARSED);
	} else if (v->type != VALUE_NUMBER) {
		return trouble(t->w, MATH_UNPARSED);
	} else {
		v->text = n->kind == MATH_DEGREE ? "degree" : n->s;
	}
	return v;
}

static struct math_value *any(struct env *t, const struct math_node *n)
{
	struct math_value *v;

	switch (n->kind) {
	case MATH_LIST_OF: return many(t, n, VALUE_LIST);
	case MATH_TUPLE: return many(t, n, VALUE_TUPLE);
	case MATH_SET: return many(t, n, VALUE_SET);
	case MATH_INTERVAL: return many(t, n, VALUE_INTERVAL);
	case MATH_UNION: return many(t, n, VALUE_UNION);
	case MATH_NAMED: case MATH_CHAIN: case MATH_UNIT: return wrapped(t, n);
	case MATH_TEXT:
		v = fresh(t->w, VALUE_TEXT);
		v->text = n->s;
		return v;
	default:
		v = infinite(t, n);
		return v ? v : number(t, n);
	}
}

struct math_value *math_evaluate(struct math_work *w, struct math_node *n)
{
	struct math_node both = { .kind = MATH_SET, .kid = &n, .kids = 1 };
	struct env t = { w, 1 };

	w->trouble = MATH_FINE;
	if (n->kind != MATH_LIST_OF && n->kind != MATH_SET && has_sign(n))
		return many(&t, &both, VALUE_SET);
	return any(&t, n);
}
