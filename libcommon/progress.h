#ifndef LIBCOMMON_PROGRESS_H
#define LIBCOMMON_PROGRESS_H

/* A bar on stderr, only on a terminal, once a second, after two seconds, erased at the end, never with -q.
 * Without a terminal and with -v: a line every 30 s.  Time is only shown, never used.
 * The unit "B" is shown in KiB, MiB, ...; `what` and `unit` are borrowed. */

struct progress {
	const char *what, *unit;
	double total, done;     /* total 0: unknown */
	double start, last;
	int shown;              /* columns of the bar on the screen */
	char note[64];
};

void progress_start(struct progress *p, const char *what, double total, const char *unit);
void progress_add(struct progress *p, double n);
void progress_note(struct progress *p, const char *text); /* shown behind the bar */
void progress_end(struct progress *p);
double seconds_now(void);       /* monotonic */

#endif
