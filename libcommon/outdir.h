#ifndef LIBCOMMON_OUTDIR_H
#define LIBCOMMON_OUTDIR_H

/*
 * An output directory that appears whole or not at all.
 *
 *	outdir_create(&o, "run/step-000120", e)         makes run/step-000120.tmp and locks it
 *	... write files with outdir_path(&o, "name") ...
 *	outdir_commit(&o, e)                            fsync all, fsync dir, rename, fsync parent
 *
 * DIR that exists (even empty) is EX_CANTCREAT, with a sentence that says what to do.  DIR.tmp
 * that another living writer holds is EX_TEMPFAIL (75); a leftover of a writer known dead (same host, and
 * pid gone or started at another time) is removed; one from another host is refused (75) with a
 * sentence, and so is (73) a DIR.tmp with files and no lock: it is not ours.  The lock is DIR.tmp/lock, JSON
 * {host, pid, start}, beside a flock() on DIR.tmp where the file system has that.  The rename never replaces: an empty directory under the final name counts as existing.
 * fsync order: the files, then `manifest.json` last, then the directory, the rename, the parent.  File modes follow
 * the umask.  Until commit nothing is under the final name.  A signal (INT, TERM, HUP) or exit()
 * removes DIR.tmp of outdirs not committed; kill -9 leaves it to the next writer.
 *
 * CAIRN_TEST_KILL=N (tests only): the process kills itself with SIGKILL at its N-th write,
 * fsync or rename; CAIRN_TEST_COUNT=FILE writes their number at exit.  All of this library's writers pass
 * through io_point() for that.  CAIRN_TEST_FULL=N: from its N-th write of data on the disk is full for this process.
 */

#include "libcommon/die.h"

#include <stdbool.h>

struct outdir {
	char *final;            /* owned */
	char *tmp;              /* owned; NULL when nothing is open */
	char *beside;           /* owned; DIR.tmp.lock, where the lock lies during the rename */
	int lock;               /* fd of DIR.tmp, under flock() where that works */
};

int outdir_create(struct outdir *o, const char *dir, struct err *e) MUST_CHECK;
char *outdir_path(const struct outdir *o, const char *name); /* the caller frees */
int outdir_mkdir(struct outdir *o, const char *name, struct err *e) MUST_CHECK; /* one level, no '/' in it */
/* On failure *o stays open for outdir_abort(). */
int outdir_commit(struct outdir *o, struct err *e) MUST_CHECK;
void outdir_abort(struct outdir *o);    /* remove DIR.tmp; safe on zero and after commit */

/* Remove DIR.tmp, and the lock beside it, of a writer known dead: 1 where there was one, 0 where there was nothing, -1 (75 or 73)
 * where it is not known to be dead or not ours.  dry_run: only say so. */
int outdir_clear(const char *dir, bool dry_run, struct err *e) MUST_CHECK;

/* The test hook: call before every write, fsync and rename of an output. */
void io_point(const char *what);
/* Is the disk full by the hook?  The write then fails with ENOSPC. */
bool io_full(void);

#endif
