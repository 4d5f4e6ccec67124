#include "libcommon/outdir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libcommon/file.h"
#include "libcommon/outdir_private.h"
#include "libcommon/xalloc.h"

#define MANIFEST "manifest.json"

static int cannot(struct err *e, int code, const char *path)
{
	err_errno(e, code, "%s", path);
	e->code = code;
	return -1;
}

static int exists(struct err *e, const char *path)
{
	return err_set(e, EX_CANTCREAT, "%s: exists already, wanted a new name; remove it or choose another", path);
}

static void forget(struct outdir *o)
{
	outdir_forget(o->tmp);
	if (o->lock > 0)
		close(o->lock);
	free(o->beside);
	free(o->tmp);
	free(o->final);
	memset(o, 0, sizeof(*o));
}

static int held(struct err *e, const char *tmp, const struct writer *w, bool known)
{
	if (!known)
		return err_set(e, EX_TEMPFAIL, "%s: another process is writing it; wait for it or choose another name",
			       tmp);
	return err_set(e, EX_TEMPFAIL, "%s: process %ld on %s is writing it; wait for it or choose another name", tmp,
		       w->pid, w->host);
}

/* 0: nobody's any more.  With flock() the kernel knows; the process id is for file systems without. */
static int check_dead(struct err *e, const char *tmp, const char *beside, int fd, bool locked_out)
{
	struct writer w;
	bool known = writer_read(&w, fd, LOCK) || writer_read(&w, AT_FDCWD, beside);

	if (locked_out)
		return held(e, tmp, &w, known);
	if (!known && outdir_is_bare(fd))
		return 0;
	if (!known)
		return err_set(e, EX_CANTCREAT, "%s: is in the way, and no lock in it says that cairn made it; "
			       "remove it or choose another name", tmp);
	if (!writer_is_here(&w))
		return err_set(e, EX_TEMPFAIL, "%s: process %ld on %s was or is writing it; if it has ended, "
			       "remove the directory", tmp, w.pid, w.host);
	return writer_is_alive(&w) ? held(e, tmp, &w, true) : 0;
}

/* 0: removed, or gone by itself; try again. */
static int clear_leftover(struct err *e, const char *tmp, const char *beside)
{
	int fd = open(tmp, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), rc;
	bool locked_out;

	if (fd < 0)
		return errno == ENOENT ? 0 : cannot(e, EX_CANTCREAT, tmp);
	locked_out = flock(fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK;
	rc = check_dead(e, tmp, beside, fd, locked_out);
	/* Whoever locked it before us may have removed it, and another may stand in its place. */
	if (!rc && outdir_is_same(tmp, fd)) {
		if (outdir_remove(tmp, fd) && errno != ENOENT)
			rc = cannot(e, EX_CANTCREAT, tmp);
		else
			unlink(beside);
	}
	close(fd);
	return rc;
}

int outdir_clear(const char *dir, bool dry_run, struct err *e)
{
	char *tmp = xasprintf("%s.tmp", dir), *beside = xasprintf("%s.lock", tmp);
	int fd = open(tmp, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), rc = 0;
	bool locked_out;
	struct writer w;

	if (fd >= 0) {
		locked_out = flock(fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK;
		rc = check_dead(e, tmp, beside, fd, locked_out) ? -1 : 1;
		close(fd);
		if (rc > 0 && !dry_run && clear_leftover(e, tmp, beside))
			rc = -1;
	} else if (errno != ENOENT) {
		rc = cannot(e, EX_CANTCREAT, tmp);
	} else if (writer_read(&w, AT_FDCWD, beside) && writer_is_here(&w) && !writer_is_alive(&w)) {
		/* Killed behind the rename: the directory is whole, its lock still lies beside it. */
		rc = dry_run || !unlink(beside) ? 1 : cannot(e, EX_CANTCREAT, beside);
	}
	free(tmp);
	free(beside);
	return rc;
}

enum { LOST = -2 };

/* Makes the directory and the lock in it: its fd, -1 with errno, or LOST where another process took
 * the bare directory for a leftover before we had locked it. */
static int claim(const char *tmp)
{
	struct writer self;
	int fd, no;

	if (mkdir(tmp, 0777))
		return -1;
	fd = open(tmp, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? LOST : -1;
	writer_self(&self);
	if (flock(fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK) {
		close(fd);
		return LOST;
	}
	if (!writer_write(&self, fd, LOCK) && outdir_is_same(tmp, fd))
		return fd;
	no = errno;
	if (outdir_is_same(tmp, fd) && no != EEXIST) {
		outdir_remove(tmp, fd);
		close(fd);
		errno = no;
		return -1;
	}
	close(fd);
	return LOST;
}

static int take(struct outdir *o, struct err *e)
{
	for (int tries = 0; tries < 100; tries++) {
		int fd = claim(o->tmp);

		if (fd >= 0) {
			o->lock = fd;
			return 0;
		}
		if (fd == LOST)
			continue;
		if (errno != EEXIST)
			return cannot(e, EX_CANTCREAT, o->tmp);
		if (clear_leftover(e, o->tmp, o->beside))
			return -1;
	}
	return err_set(e, EX_TEMPFAIL, "%s: others keep taking it", o->tmp);
}

int outdir_create(struct outdir *o, const char *dir, struct err *e)
{
	size_t n = strlen(dir);
	struct stat st;

	memset(o, 0, sizeof(*o));
	while (n > 1 && dir[n - 1] == '/')
		n--;
	if (!n)
		return err_set(e, EX_CANTCREAT, "found an empty name for the output directory");
	o->final = xstrndup(dir, n);
	o->tmp = xasprintf("%s.tmp", o->final);
	o->beside = xasprintf("%s.lock", o->tmp);
	if (!lstat(o->final, &st)) {
		exists(e, o->final);
		forget(o);
		return -1;
	}
	if (take(o, e)) {
		forget(o);
		return -1;
	}
	outdir_remember(o->tmp, o->beside, o->lock);
	return 0;
}

char *outdir_path(const struct outdir *o, const char *name)
{
	return path_join(o->tmp, name);
}

int outdir_mkdir(struct outdir *o, const char *name, struct err *e)
{
	char *path = outdir_path(o, name);
	int rc = 0;

	if (strchr(name, '/'))
		bug("outdir_mkdir: \"%s\" is more than one level", name);
	if (mkdir(path, 0777))
		rc = cannot(e, EX_CANTCREAT, path);
	free(path);
	return rc;
}

static int sync_at(int dirfd, const char *dir, const char *name, bool *is_dir, struct err *e)
{
	int fd = openat(dirfd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC), rc = 0;
	struct stat st;

	*is_dir = false;
	if (fd < 0 && errno == ELOOP)
		return 0;
	if (fd < 0)
		return err_errno(e, EX_IOERR, "%s/%s", dir, name);
	*is_dir = !fstat(fd, &st) && S_ISDIR(st.st_mode);
	if (!*is_dir) {
		io_point("fsync");
		if (fsync(fd))
			rc = err_errno(e, EX_IOERR, "%s/%s", dir, name);
	}
	close(fd);
	return rc;
}

static int sync_inside(const char *dir, int depth, struct err *e)
{
	DIR *d = opendir(dir);
	struct dirent *entry;
	int rc = 0;

	if (!d)
		return cannot(e, EX_IOERR, dir);
	while (!rc && (entry = readdir(d))) {
		const char *name = entry->d_name;
		bool is_dir;

		if (!strcmp(name, ".") || !strcmp(name, ".."))
			continue;
		if (!depth && (!strcmp(name, MANIFEST) || !strcmp(name, LOCK)))
			continue;
		rc = sync_at(dirfd(d), dir, name, &is_dir, e);
		if (!rc && is_dir) {
			char *sub = path_join(dir, name);

			rc = depth ? err_set(e, EX_CANTCREAT, "%s: directories lie two levels deep, wanted one", sub) :
				     sync_inside(sub, 1, e);
			free(sub);
		}
	}
	closedir(d);
	return rc || !depth ? rc : file_sync_dir(dir, e);
}

static int sync_manifest(struct outdir *o, struct err *e)
{
	struct stat st;
	bool is_dir;

	if (fstatat(o->lock, MANIFEST, &st, AT_SYMLINK_NOFOLLOW))
		return 0;
	return sync_at(o->lock, o->tmp, MANIFEST, &is_dir, e);
}

static int take_final_name(struct outdir *o, struct err *e)
{
	struct stat st;

	io_point("rename");
	if (!renameat2(AT_FDCWD, o->tmp, AT_FDCWD, o->final, RENAME_NOREPLACE))
		return 0;
	if (errno == EEXIST)
		return exists(e, o->final);
	if (errno != EINVAL && errno != ENOSYS)
		return cannot(e, EX_CANTCREAT, o->final);
	if (!lstat(o->final, &st))
		return exists(e, o->final);
	return rename(o->tmp, o->final) ? cannot(e, EX_CANTCREAT, o->final) : 0;
}

static int sync_parent(const char *path, struct err *e)
{
	const char *slash = strrchr(path, '/');
	char *dir = !slash ? xstrdup(".") : slash == path ? xstrdup("/") : xstrndup(path, (size_t)(slash - path));
	int rc = file_sync_dir(dir, e);

	free(dir);
	return rc;
}

int outdir_commit(struct outdir *o, struct err *e)
{
	int rc;

	if (!o->tmp)
		bug("outdir_commit without outdir_create");
	if (sync_inside(o->tmp, 0, e) || sync_manifest(o, e) || file_sync_dir(o->tmp, e))
		return -1;
	io_point("rename");
	if (renameat(o->lock, LOCK, AT_FDCWD, o->beside))
		return cannot(e, EX_IOERR, o->beside);
	if (take_final_name(o, e))
		return -1;
	unlink(o->beside);
	outdir_forget(o->tmp);
	rc = sync_parent(o->final, e);
	forget(o);
	return rc;
}

void outdir_abort(struct outdir *o)
{
	if (!o->tmp)
		return;
	if (outdir_is_own(o->tmp) && outdir_is_same(o->tmp, o->lock)) {
		outdir_remove(o->tmp, o->lock);
		unlink(o->beside);
	}
	forget(o);
}
