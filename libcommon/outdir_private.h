#ifndef LIBCOMMON_OUTDIR_PRIVATE_H
#define LIBCOMMON_OUTDIR_PRIVATE_H

/* What the outdir*.c files share. */

#include "libcommon/die.h"

#include <stdbool.h>
#include <sys/types.h>

/* The name of the lock inside DIR.tmp; while the directory takes its final name the lock lies
 * beside it, as DIR.tmp.lock, so that a leftover of that moment still says whose it is. */
#define LOCK "lock"

struct writer {
	char host[256];
	long pid;
	long start;             /* of the process, clock ticks since boot; 0: unknown */
};

void writer_self(struct writer *w);
/* 1 read, 0 absent, empty or not ours. */
int writer_read(struct writer *w, int dirfd, const char *name);
/* Exclusively new; -1 with errno. */
int writer_write(const struct writer *w, int dirfd, const char *name);
bool writer_is_here(const struct writer *w);    /* same host */
bool writer_is_alive(const struct writer *w);   /* of one that is here */

/* Removes what lies in DIR.tmp, open as fd: plain files, links themselves, and directories one
 * level down; then the lock, then the directory.  Async-signal-safe.  -1 with errno where
 * something is left. */
int outdir_remove(const char *tmp, int fd);
/* Whether nothing but a lock is in there. */
bool outdir_is_bare(int fd);
bool outdir_is_same(const char *path, int fd);

/* Have tmp and the lock beside it removed at exit() and by INT, TERM and HUP; strings and fd stay
 * the caller's until outdir_forget(). */
void outdir_remember(const char *tmp, const char *beside, int fd);
void outdir_forget(const char *tmp);
/* Whether this process, not a parent of it, made it. */
bool outdir_is_own(const char *tmp);

#endif
