#include "libcommon/progress.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "libcommon/die.h"
#include "libcommon/str.h"

enum { BAR = 16, FIRST_AFTER = 2, BAR_EVERY = 1, LINE_EVERY = 30 };

double seconds_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void amount(struct str *t, double n, const char *unit)
{
	static const char *const scale[] = { "B", "KiB", "MiB", "GiB", "TiB" };
	int i = 0;

	if (strcmp(unit, "B")) {
		str_printf(t, "%.0f %s", n, unit);
		return;
	}
	for (; n >= 1024 && i < 4; i++)
		n /= 1024;
	str_printf(t, i ? "%.1f %s" : "%.0f %s", n, scale[i]);
}

static void left(struct str *t, double seconds)
{
	long s = seconds < 1e6 ? (long)seconds : 1000000;

	if (s >= 3600)
		str_printf(t, ", %ld:%02ld:%02ld left", s / 3600, s / 60 % 60, s % 60);
	else
		str_printf(t, ", %ld:%02ld left", s / 60, s % 60);
}

static void describe(struct str *t, const struct progress *p, double now)
{
	double rate = now > p->start ? p->done / (now - p->start) : 0;

	amount(t, p->done, p->unit);
	if (p->total > 0) {
		str_puts(t, " of ");
		amount(t, p->total, p->unit);
	}
	str_puts(t, ", ");
	amount(t, rate, p->unit);
	str_puts(t, "/s");
	if (p->total > p->done && rate > 0)
		left(t, (p->total - p->done) / rate);
	if (*p->note)
		str_printf(t, ", %s", p->note);
}

static void bar(struct str *t, const struct progress *p)
{
	double share = p->done < p->total ? p->done / p->total : 1;

	str_printf(t, "%3.0f%% [", 100 * share);
	for (int i = 0; i < BAR; i++)
		str_putc(t, i < share * BAR ? '#' : '.');
	str_puts(t, "] ");
}

static size_t columns(void)
{
	struct winsize w;

	return !ioctl(STDERR_FILENO, TIOCGWINSZ, &w) && w.ws_col > 1 ? w.ws_col - 1u : 79;
}

static void erase(struct progress *p)
{
	if (p->shown)
		fprintf(stderr, "\r%*s\r", p->shown, "");
	p->shown = 0;
}

static void draw(struct progress *p, double now)
{
	struct str t = { 0 };

	str_printf(&t, "%s: ", p->what);
	if (p->total > 0)
		bar(&t, p);
	describe(&t, p, now);
	str_cut(&t, columns());
	erase(p);
	/* The cursor waits in column 1, so that a message overwrites the bar. */
	fprintf(stderr, "%s\r", t.s);
	fflush(stderr);
	p->shown = (int)t.len;
	str_release(&t);
}

static void print_line(const struct progress *p, double now)
{
	struct str t = { 0 };

	describe(&t, p, now);
	log_info("%s: %s", p->what, t.s);
	str_release(&t);
}

void progress_start(struct progress *p, const char *what, double total, const char *unit)
{
	memset(p, 0, sizeof(*p));
	p->what = what;
	p->unit = unit;
	p->total = total;
	p->start = p->last = seconds_now();
}

void progress_add(struct progress *p, double n)
{
	double now;
	bool terminal;

	p->done += n;
	if (verbosity < 0)
		return;
	now = seconds_now();
	if (now - p->last < BAR_EVERY || now - p->start < FIRST_AFTER)
		return;
	terminal = isatty(STDERR_FILENO);
	if (!terminal && (verbosity < 1 || now - p->last < LINE_EVERY))
		return;
	p->last = now;
	if (terminal)
		draw(p, now);
	else
		print_line(p, now);
}

void progress_note(struct progress *p, const char *text)
{
	snprintf(p->note, sizeof(p->note), "%s", text);
}

void progress_end(struct progress *p)
{
	erase(p);
}
