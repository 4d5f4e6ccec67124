#include "formats/jinja_text.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* printf-style formatting, as templates use it: %s %d %i %f %r %% with flags, width, precision. */
int jtext_format(struct jrender *r, const struct jvalue *fmt, const struct jvalue *args,
		 struct jvalue *out)
{
	bool many = args->type == V_LIST && args->list->kind == LIST_TUPLE;
	long used = 0, have = many ? args->list->n : 1;
	struct jbuf b = { 0 };
	size_t at = 0;
	int rc = 0;

	for (size_t i = 0; !rc && i < fmt->n; at = i) {
		char spec[24], piece[400];
		size_t k = 0;
		const struct jvalue *v;
		struct jvalue text;

		while (i < fmt->n && fmt->s[i] != '%')
			i++;
		rc = jbuf_add(r, &b, fmt->s + at, i - at, fmt->tag,
			      fmt->tags ? fmt->tags + at : NULL);
		if (rc || i >= fmt->n)
			break;
		do {
			spec[k++] = fmt->s[i++];
		} while (k < 8 && i < fmt->n && fmt->s[i] && strchr("-+ 0#123456789.", fmt->s[i]));
		if (i >= fmt->n || !strchr("sdifr%", fmt->s[i])) {
			rc = jfail(r, "format: a conversion that is not supported");
			break;
		}
		if (fmt->s[i] == '%') {
			rc = jbuf_puts(r, &b, "%");
			i++;
			continue;
		}
		if (used >= have) {
			rc = jfail(r, "format: not enough arguments");
			break;
		}
		v = many ? &args->list->v[used] : args;
		used++;
		spec[k] = 0;
		if (strchr("di", fmt->s[i]) &&
		    (v->type == V_INT || v->type == V_BOOL || v->type == V_FLOAT)) {
			long d = v->type == V_FLOAT ? (fabs(v->f) < 9e18 ? (long)v->f : 0) :
				 v->type == V_BOOL  ? v->b :
						      v->i;

			snprintf(spec + k, 3, "ld");
			snprintf(piece, sizeof(piece), spec, d);
			rc = jbuf_puts(r, &b, piece);
		} else if (fmt->s[i] == 'f' && jv_number(v)) {
			snprintf(spec + k, 2, "f");
			snprintf(piece, sizeof(piece), spec, jv_real(v));
			rc = jbuf_puts(r, &b, piece);
		} else if (strchr("sr", fmt->s[i]) && k == 1) {
			if (fmt->s[i] == 'r')
				rc = jv_repr(r, &b, v, 0);
			else if (!(rc = jv_string(r, v, &text)))
				rc = jbuf_addv(r, &b, &text);
		} else {
			rc = jfail(r, "format: a conversion that does not fit its argument");
		}
		i++;
	}
	/* Python lets through what could be a mapping. */
	if (!rc && used < have && args->type != V_DICT && args->type != V_UNDEFINED &&
	    (many || args->type != V_LIST || args->list->kind > LIST_RANGE))
		rc = jfail(r, "format: not all arguments were used");
	if (rc)
		return jbuf_release(&b), -1;
	return jbuf_value(r, &b, out);
}

static const char *const months[] = { "January",   "February", "March",    "April",
				      "May",       "June",     "July",     "August",
				      "September", "October",  "November", "December" };
static const char *const days[] = { "Sunday",   "Monday", "Tuesday", "Wednesday",
				    "Thursday", "Friday", "Saturday" };

struct date {
	int day, month, year;
}; /* month from 0 */

static int parse_date(struct jrender *r, struct date *d)
{
	static const int most[] = { 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31 };
	char month[4] = "", rest;
	bool leap;

	if (sscanf(r->date, "%2d %3[A-Za-z] %4d%c", &d->day, month, &d->year, &rest) == 3) {
		leap = d->year % 4 == 0 && (d->year % 100 != 0 || d->year % 400 == 0);
		for (d->month = 0; d->month < 12; d->month++) {
			if (!strncmp(months[d->month], month, 3) && month[2] && d->year > 0 &&
			    d->day >= 1 && d->day <= most[d->month] + (leap && d->month == 1))
				return 0;
		}
	}
	return jfail(r, "the date is \"%.40s\", wanted one like \"26 Jul 2024\"", r->date);
}

static int day_of_year(const struct date *d)
{
	static const int before[] = { 0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334 };
	bool leap = d->year % 4 == 0 && (d->year % 100 != 0 || d->year % 400 == 0);

	return before[d->month] + d->day + (leap && d->month > 1);
}

/* Days since Sunday, by the count of leap days before the year. */
static int day_of_week(const struct date *d)
{
	int y = d->year - 1;

	return (y + y / 4 - y / 100 + y / 400 + day_of_year(d)) % 7;
}

/* One conversion; the time of day is midnight.  Empty where it is unknown. */
static void convert(char *out, size_t n, const struct date *d, char c, bool bare)
{
	out[0] = 0;
	switch (c) {
	case 'd': snprintf(out, n, bare ? "%d" : "%02d", d->day); break;
	case 'e': snprintf(out, n, "%2d", d->day); break;
	case 'm': snprintf(out, n, bare ? "%d" : "%02d", d->month + 1); break;
	case 'Y': snprintf(out, n, "%d", d->year); break;
	case 'y': snprintf(out, n, "%02d", d->year % 100); break;
	case 'b':
	case 'h': snprintf(out, n, "%.3s", months[d->month]); break;
	case 'B': snprintf(out, n, "%s", months[d->month]); break;
	case 'a': snprintf(out, n, "%.3s", days[day_of_week(d)]); break;
	case 'A': snprintf(out, n, "%s", days[day_of_week(d)]); break;
	case 'j': snprintf(out, n, bare ? "%d" : "%03d", day_of_year(d)); break;
	case 'F': snprintf(out, n, "%d-%02d-%02d", d->year, d->month + 1, d->day); break;
	case 'H':
	case 'M':
	case 'S': snprintf(out, n, bare ? "0" : "00"); break;
	case 'I': snprintf(out, n, "12"); break;
	case 'p': snprintf(out, n, "AM"); break;
	case '%': snprintf(out, n, "%%"); break;
	}
}

int jtext_date(struct jrender *r, const struct jvalue *fmt, struct jvalue *out)
{
	struct jbuf b = { 0 };
	struct date d = { 0 };
	int rc = parse_date(r, &d);

	for (size_t i = 0; !rc && i < fmt->n; i++) {
		bool bare = fmt->s[i] == '%' && i + 2 < fmt->n && fmt->s[i + 1] == '-';
		char piece[32];

		if (fmt->s[i] != '%') {
			rc = jbuf_add(r, &b, fmt->s + i, 1, TAG_TEMPLATE, NULL);
			continue;
		}
		i += 1 + bare;
		convert(piece, sizeof(piece), &d, i < fmt->n ? fmt->s[i] : 0, bare);
		rc = piece[0] ? jbuf_puts(r, &b, piece) :
				jfail(r, "strftime_now: a conversion that is not supported");
	}
	if (rc)
		return jbuf_release(&b), -1;
	return jbuf_value(r, &b, out);
}
