#ifndef LIBCOMMON_DIE_H
#define LIBCOMMON_DIE_H

/*
 * How a tool stops.
 *
 * A library function that can fail for a reason outside the program (a file,
 * a format, a peer) returns 0, or -1 with `struct err` filled in.  Only a tool
 * decides that such a failure is the end, by calling die_err().
 *
 * Every message is one line on stderr, `PROGRAM: WHAT WENT WRONG`, and names,
 * in this order: file, record, what was found, what was wanted.  Every exit
 * status is one of <sysexits.h>, so that a pipeline can tell "your input is
 * bad" (65) from "try me again" (75):
 *
 *	EX_USAGE 64        the command line
 *	EX_DATAERR 65      an input is wrong
 *	EX_NOINPUT 66      an input is absent
 *	EX_UNAVAILABLE 69  no such device, out of memory, not built in
 *	EX_SOFTWARE 70     our bug
 *	EX_CANTCREAT 73    the output exists or cannot be made
 *	EX_IOERR 74        a read or a write failed
 *	EX_TEMPFAIL 75     the same command may work again
 *	EX_CONFIG 78       the recipe
 *
 * 1 means: done, and the answer is no.
 */

#include <stdbool.h>
#include <sysexits.h>

struct err {
	int code;       /* an EX_ value; 0 while nothing has failed */
	char msg[1024]; /* one line, without the program's name */
	bool elsewhere; /* it is another rank's, which says it (comm_agree()) */
};

#define ERR_INIT { 0 }
#ifdef __cplusplus
#define NORETURN [[noreturn]]
#else
#define NORETURN _Noreturn
#endif
#define PRINTF(f, a) __attribute__((format(printf, f, a)))
#define MUST_CHECK __attribute__((warn_unused_result))

extern const char *program;    /* set by tool_init() */
extern int verbosity;          /* -1 with -q, 0, 1 with -v, 2 with -vv */
extern int die_rank;           /* named in every message where there are several ranks; -1 */
extern bool die_elsewhere;     /* set by die_err(): another rank says why we end */

/* Fill *e and return -1, so that a caller can `return err_set(e, ...)`. */
int err_set(struct err *e, int code, const char *fmt, ...) PRINTF(3, 4);

/* err_set() with ": strerror(errno)" appended; ENOENT becomes EX_NOINPUT, and EISDIR on a read EX_DATAERR. */
int err_errno(struct err *e, int code, const char *fmt, ...) PRINTF(3, 4);

/* Put "TEXT: " in front of a message that is already there; returns -1. */
int err_prefix(struct err *e, const char *fmt, ...) PRINTF(2, 3);

NORETURN void die(int code, const char *fmt, ...) PRINTF(2, 3);
NORETURN void die_err(const struct err *e);

/* For what only our own mistake can bring about: exits 70 with file and line. */
NORETURN void bug_at(const char *file, int line, const char *fmt, ...) PRINTF(3, 4);
#define bug(...) bug_at(__FILE__, __LINE__, __VA_ARGS__)

/* One line on stderr: always but with -q; only from -v on. */
void log_warn(const char *fmt, ...) PRINTF(1, 2);
void log_info(const char *fmt, ...) PRINTF(1, 2);

/* Name the program, reopen closed std fds, let SIGPIPE kill us, keep large
 * blocks of memory from going back to the kernel, lift the limit of open
 * files to its maximum. */
void tool_init(const char *argv0);

/* Close stdout and return `code`; a write that failed late is EX_IOERR. */
int tool_exit(int code);

#endif
