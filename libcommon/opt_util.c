#include "libcommon/opt.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "libcommon/str.h"
#include "libcommon/xalloc.h"

static double unit_of(const char *s)
{
	static const char letters[] = "kmgt";
	const char *at = strchr(letters, tolower((unsigned char)*s));
	double binary = 1, decimal = 1;

	if (!*s || !strcasecmp(s, "b"))
		return 1;
	if (!at)
		return -1;
	for (long i = at - letters; i >= 0; i--) {
		binary *= 1024;
		decimal *= 1000;
	}
	if (!s[1] || !strcasecmp(s + 1, "ib"))
		return binary;
	return strcasecmp(s + 1, "b") ? -1 : decimal;
}

/* In full, since a double would round above 2^53; -1 where it does not fit. */
static long whole_bytes(const char *s, double unit)
{
	long n;

	errno = 0;
	n = strtol(s, NULL, 10);
	return errno || n > LONG_MAX / (long)unit ? -1 : n * (long)unit;
}

long parse_bytes(const char *s)
{
	char *end;
	double v, unit;

	/* strtod reads blanks, signs, hexadecimal and words that are no sizes. */
	if (!isdigit((unsigned char)*s) || tolower((unsigned char)s[1]) == 'x')
		return -1;
	v = strtod(s, &end);
	unit = unit_of(end);
	if (unit < 0)
		return -1;
	if (end == s + strspn(s, "0123456789"))
		return whole_bytes(s, unit);
	return v * unit < 9223372036854775808.0 ? (long)(v * unit) : -1;
}

static void quote_word(struct str *t, const char *s)
{
	static const char safe[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./,:@%";

	if (*s && strspn(s, safe) == strlen(s)) {
		str_puts(t, s);
		return;
	}
	str_putc(t, '\'');
	for (; *s; s++) {
		if (*s == '\'')
			str_puts(t, "'\\''");
		else
			str_putc(t, *s);
	}
	str_putc(t, '\'');
}

char *opt_command_line(int argc, char **argv)
{
	struct str t = { 0 };

	for (int i = 0; i < argc; i++) {
		const char *slash = i ? NULL : strrchr(argv[0], '/');

		if (i)
			str_putc(&t, ' ');
		quote_word(&t, slash ? slash + 1 : argv[i]);
	}
	return str_detach(&t);
}

enum { LONGEST = 200 };

static int least_of(int a, int b)
{
	return a < b ? a : b;
}

/* Insertions, deletions, replacements and exchanges of two neighbours. */
static int distance(const char *a, const char *b)
{
	int row[3][LONGEST + 1], na = (int)strlen(a), nb = (int)strlen(b);

	for (int j = 0; j <= nb; j++)
		row[0][j] = j;
	for (int i = 1; i <= na; i++) {
		int *now = row[i % 3], *last = row[(i + 2) % 3], *before = row[(i + 1) % 3];

		now[0] = i;
		for (int j = 1; j <= nb; j++) {
			int d = last[j - 1] + (a[i - 1] != b[j - 1]);

			d = least_of(d, least_of(last[j], now[j - 1]) + 1);
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
				d = least_of(d, before[j - 2] + 1);
			now[j] = d;
		}
	}
	return row[na % 3][nb];
}

const char *nearest(const char *word, const char *const *names)
{
	const char *best = NULL;
	int best_d = LONGEST, n = (int)strlen(word);

	if (!n || n > LONGEST)
		return NULL;
	for (; *names; names++) {
		int m = (int)strlen(*names), d, near = ((n > m ? n : m) + 2) / 3;

		if (m > LONGEST)
			continue;
		d = distance(word, *names);
		/* The first letters of a longer name are a good guess, but the last one. */
		if (d > near && n >= 3 && !strncmp(word, *names, (size_t)n))
			d = least_of(near, n - 1);
		if (d <= near && d < best_d && d < least_of(n, m)) {
			best = *names;
			best_d = d;
		}
	}
	return best;
}

const char *cairn_version(void)
{
	return CAIRN_VERSION;
}

void opt_version(const struct tool *t)
{
	struct utsname u;

	if (uname(&u))
		strcpy(u.machine, "?");
	printf("cairn %s %s (%s; built with %s)\n", t->name, cairn_version(), u.machine, CAIRN_FEATURES);
}

const char *program_dir(void)
{
	static char dir[PATH_MAX];
	ssize_t n;
	char *slash;

	if (*dir)
		return dir;
	n = readlink("/proc/self/exe", dir, sizeof(dir) - 1);
	if (n <= 0)
		bug("no /proc/self/exe");
	dir[n] = 0;
	slash = strrchr(dir, '/');
	slash[slash == dir] = 0;
	return dir;
}
