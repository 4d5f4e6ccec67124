#include "libcommon/json.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* v is positive and finite: its digits d1 d2 .. dk and e in d1.d2..dk * 10^e. */
struct decimal {
	char digit[20];
	int n, e;
};

static void round_to(struct decimal *d, double v, int n)
{
	char text[40];

	snprintf(text, sizeof(text), "%.*e", n - 1, v);
	d->digit[0] = text[0];
	if (n > 1)
		memcpy(d->digit + 1, text + 2, (size_t)n - 1);
	d->n = n;
	d->e = atoi(text + (n > 1 ? n + 2 : 2));
}

static void next_up(struct decimal *d)
{
	int i = d->n - 1;

	while (i >= 0 && d->digit[i] == '9')
		d->digit[i--] = '0';
	if (i >= 0) {
		d->digit[i]++;
	} else {
		d->digit[0] = '1';
		d->e++;
	}
}

static bool reads_back(const struct decimal *d, double v, bool single)
{
	char text[40];

	snprintf(text, sizeof(text), "%.*se%d", d->n, d->digit, d->e - (d->n - 1));
	return single ? strtof(text, NULL) == (float)v : strtod(text, NULL) == v;
}

static bool power_of_two(double v)
{
	int e;

	return frexp(v, &e) == 0.5;
}

/*
 * With at most DIG digits every decimal survives the way through the binary type, so where DIG
 * digits read back, fewer are those without trailing zeros; only subnormals must be counted up.
 * Below a power of two the gap is half as wide: the nearest decimal of n digits may miss where the
 * next one up hits.
 */
static void shortest(struct decimal *d, double v, bool single)
{
	int dig = single ? FLT_DIG : DBL_DIG, n = dig;

	if (v < (single ? FLT_MIN : DBL_MIN))
		n = 1;
	for (;; n++) {
		round_to(d, v, n);
		if (reads_back(d, v, single))
			break;
		if (power_of_two(v)) {
			next_up(d);
			if (reads_back(d, v, single))
				break;
		}
	}
	while (d->n > 1 && d->digit[d->n - 1] == '0')
		d->n--;
}

static char *put(char *p, const char *digits, int n)
{
	memcpy(p, digits, (size_t)n);
	return p + n;
}

/* Python's choice: an exponent below 1e-4 and from 1e16 on, else a point with a digit on each side. */
static void spell(char *p, const struct decimal *d)
{
	static const char zeros[] = "0000000000000000";
	int n = d->n, e = d->e;

	if (e < -4 || e >= 16) {
		*p++ = d->digit[0];
		if (n > 1)
			*p++ = '.';
		p = put(p, d->digit + 1, n - 1);
		snprintf(p, 8, "e%c%02d", e < 0 ? '-' : '+', abs(e) % 1000);
		return;
	}
	if (e < 0) {
		p = put(p, "0.", 2);
		p = put(p, zeros, -e - 1);
		p = put(p, d->digit, n);
	} else if (n <= e + 1) {
		p = put(p, d->digit, n);
		p = put(p, zeros, e + 1 - n);
		p = put(p, ".0", 2);
	} else {
		p = put(p, d->digit, e + 1);
		*p++ = '.';
		p = put(p, d->digit + e + 1, n - e - 1);
	}
	*p = 0;
}

static const char *repr(char buf[32], double v, bool single)
{
	struct decimal d;
	char *p = buf;

	if (isnan(v))
		return strcpy(buf, "nan");
	if (signbit(v))
		*p++ = '-';
	if (isinf(v)) {
		strcpy(p, "inf");
	} else if (v == 0) {
		strcpy(p, "0.0");
	} else {
		shortest(&d, fabs(v), single);
		spell(p, &d);
	}
	return buf;
}

const char *real_repr(char buf[32], double v)
{
	return repr(buf, v, false);
}

const char *float_repr(char buf[32], float v)
{
	return repr(buf, (double)v, true);
}
