#ifndef LIBCOMMON_PROGRESS_H
#define LIBCOMMON_PROGRESS_H

/* A bar on stderr, only on a terminal, once a second, after two seconds, erased at the end.
 * Without a terminal and with -v: a line every 30 s.  Time is only shown, never used. */

struct progress {
	const char *what, *unit;
	double total, done;     /* total 0: unknown */
	double start, last;
	int shown;
};

void progress_start(struct progress *p, const char *what, double total, const char *unit);
void progress_add(struct progress *p, double n);
void progress_note(struct progress *p, const char *text); /* shown behind the bar */
void progress_end(struct progress *p);
double seconds_now(void);       /* monotonic */

#endif
