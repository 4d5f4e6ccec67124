#include "libcommon/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libcommon/outdir.h"
#include "libcommon/xalloc.h"

/* One system call moves less than 2 GiB. */
enum { PIECE = 1 << 30 };

static int open_input(const char *path, struct err *e)
{
	struct stat st;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return err_errno(e, EX_NOINPUT, "%s", path);
	if (!fstat(fd, &st) && S_ISDIR(st.st_mode)) {
		close(fd);
		return err_set(e, EX_DATAERR, "%s: found a directory, wanted a file", path);
	}
	return fd;
}

/* A missing parent is an output that cannot be made, no missing input. */
static int cannot_create(const char *path, struct err *e)
{
	err_errno(e, EX_CANTCREAT, "%s", path);
	e->code = EX_CANTCREAT;
	return -1;
}

static int too_large(const char *path, size_t found, size_t most, struct err *e)
{
	return err_set(e, EX_DATAERR, "%s: found %zu bytes or more, wanted at most %zu", path, found, most);
}

static void reserve(struct str *t, size_t more)
{
	if (t->cap - t->len <= more) {
		t->cap = t->len + more + 1;
		t->s = xrealloc(t->s, t->cap);
	}
}

static int read_all(struct str *t, int fd, const char *path, size_t most, struct err *e)
{
	size_t start = t->len;
	struct stat st;

	if (!fstat(fd, &st) && S_ISREG(st.st_mode)) {
		if (most && (uint64_t)st.st_size > most)
			return too_large(path, (size_t)st.st_size, most, e);
		reserve(t, (size_t)st.st_size + 1);
	}
	for (;;) {
		size_t room;
		ssize_t got;

		if (t->cap - t->len < 2)
			reserve(t, t->len < 65536 ? 65536 : t->len);
		room = t->cap - t->len - 1;
		got = read(fd, t->s + t->len, room < PIECE ? room : PIECE);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return err_errno(e, EX_IOERR, "%s", path);
		if (!got)
			break;
		t->len += (size_t)got;
		if (most && t->len - start > most)
			return too_large(path, t->len - start, most, e);
	}
	t->s[t->len] = 0;
	return 0;
}

int file_read(struct str *t, const char *path, size_t most, struct err *e)
{
	int fd, rc;

	if (!strcmp(path, "-"))
		return read_all(t, STDIN_FILENO, "standard input", most, e);
	fd = open_input(path, e);
	if (fd < 0)
		return -1;
	rc = read_all(t, fd, path, most, e);
	close(fd);
	return rc;
}

int file_pread(int fd, const char *path, void *buf, size_t n, uint64_t offset, struct err *e)
{
	size_t done = 0;

	if (offset > INT64_MAX || n > INT64_MAX - offset)
		return err_set(e, EX_DATAERR, "%s: %zu bytes at offset %llu lie outside any file", path, n,
			       (unsigned long long)offset);
	while (done < n) {
		size_t piece = n - done < PIECE ? n - done : PIECE;
		ssize_t got = pread(fd, (char *)buf + done, piece, (off_t)(offset + done));

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return err_errno(e, EX_IOERR, "%s", path);
		if (!got)
			return err_set(e, EX_DATAERR, "%s: found %zu bytes at offset %llu, wanted %zu", path, done,
				       (unsigned long long)offset, n);
		done += (size_t)got;
	}
	return 0;
}

int file_pwrite(int fd, const char *path, const void *buf, size_t n, uint64_t offset, struct err *e)
{
	size_t done = 0;

	while (done < n) {
		size_t piece = n - done < PIECE ? n - done : PIECE;
		ssize_t put;

		io_point("write");
		if (io_full()) {
			errno = ENOSPC;
			return err_errno(e, EX_IOERR, "%s", path);
		}
		put = pwrite(fd, (const char *)buf + done, piece, (off_t)(offset + done));
		if (put < 0 && errno == EINTR)
			continue;
		if (put < 0)
			return err_errno(e, EX_IOERR, "%s", path);
		done += (size_t)put;
	}
	return 0;
}

int file_size(const char *path, uint64_t *size, struct err *e)
{
	struct stat st;

	if (stat(path, &st))
		return err_errno(e, EX_NOINPUT, "%s", path);
	*size = (uint64_t)st.st_size;
	return 0;
}

bool file_exists(const char *path)
{
	struct stat st;

	return !stat(path, &st);
}

bool file_is_dir(const char *path)
{
	struct stat st;

	return !stat(path, &st) && S_ISDIR(st.st_mode);
}

static char *parent_of(const char *path)
{
	const char *slash = strrchr(path, '/');

	if (!slash)
		return xstrdup(".");
	return slash == path ? xstrdup("/") : xstrndup(path, (size_t)(slash - path));
}

static int sync_and_close(int fd, const char *path, struct err *e)
{
	int rc = 0;

	io_point("fsync");
	if (fsync(fd))
		rc = err_errno(e, EX_IOERR, "%s", path);
	if (close(fd) && !rc)
		rc = err_errno(e, EX_IOERR, "%s", path);
	return rc;
}

/* A new file beside `path`; *name is the caller's. */
static int open_beside(const char *path, char **name, struct err *e)
{
	for (int i = 0; i < 1000; i++) {
		int fd;

		*name = xasprintf("%s.%ld.%d.tmp", path, (long)getpid(), i);
		fd = open(*name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
		if (fd >= 0)
			return fd;
		if (errno != EEXIST)
			return cannot_create(path, e);
		free(*name);
		*name = NULL;
	}
	return err_set(e, EX_CANTCREAT, "%s: a thousand leftovers %s.%ld.*.tmp are in the way", path, path,
		       (long)getpid());
}

static int move_over(const char *tmp, const char *path, struct err *e)
{
	char *dir;
	int rc;

	io_point("rename");
	if (rename(tmp, path))
		return cannot_create(path, e);
	dir = parent_of(path);
	rc = file_sync_dir(dir, e);
	free(dir);
	return rc;
}

/* A link stays and its file is replaced; what is no plain file (/dev/null) never is.  *mode is that
 * of the file which is there, or 0. */
static char *target_of(const char *path, mode_t *mode, struct err *e)
{
	struct stat st;
	char *target = NULL;

	*mode = 0;
	if (lstat(path, &st))
		return xstrdup(path);
	if (S_ISLNK(st.st_mode)) {
		target = realpath(path, NULL);
		if (!target || stat(target, &st)) {
			cannot_create(path, e);
			free(target);
			return NULL;
		}
	}
	if (!S_ISREG(st.st_mode)) {
		err_set(e, EX_CANTCREAT, "%s: found something else than a plain file", path);
		free(target);
		return NULL;
	}
	*mode = st.st_mode & 07777;
	return target ? target : xstrdup(path);
}

/* Who replaces a file keeps what its owner said about readers. */
static int fill(int fd, const char *path, mode_t mode, const void *buf, size_t n, struct err *e)
{
	if (file_pwrite(fd, path, buf, n, 0, e))
		return -1;
	return mode && fchmod(fd, mode) ? cannot_create(path, e) : 0;
}

static int replace(const char *path, mode_t mode, const void *buf, size_t n, struct err *e)
{
	char *tmp = NULL;
	int fd = open_beside(path, &tmp, e), rc;

	if (fd < 0) {
		free(tmp);
		return -1;
	}
	rc = fill(fd, path, mode, buf, n, e);
	if (rc)
		close(fd);
	else
		rc = sync_and_close(fd, path, e);
	if (!rc)
		rc = move_over(tmp, path, e);
	if (rc)
		unlink(tmp);
	free(tmp);
	return rc;
}

int file_write(const char *path, const void *buf, size_t n, struct err *e)
{
	mode_t mode;
	char *target = target_of(path, &mode, e);
	int rc = target ? replace(target, mode, buf, n, e) : -1;

	free(target);
	return rc;
}

static int copy_plain(int in, int out, const char *from, const char *to, struct err *e)
{
	enum { BLOCK = 1 << 20 };
	char *buf = xmalloc(BLOCK);
	uint64_t at = 0;
	int rc = 0;

	while (!rc) {
		ssize_t got = pread(in, buf, BLOCK, (off_t)at);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			rc = err_errno(e, EX_IOERR, "%s", from);
		if (got <= 0)
			break;
		rc = file_pwrite(out, to, buf, (size_t)got, at, e);
		at += (uint64_t)got;
	}
	free(buf);
	return rc;
}

/* Where the file systems cannot do it between themselves, we copy from the start. */
static int copy_bytes(int in, int out, const char *from, const char *to, struct err *e)
{
	ssize_t got;
	bool any = false;

	do {
		io_point("write");
		got = copy_file_range(in, NULL, out, NULL, PIECE, 0);
		any |= got > 0;
	} while (got > 0 || (got < 0 && errno == EINTR));
	if (!got && any)
		return 0;
	if (got < 0 && any)
		return err_errno(e, EX_IOERR, "%s", to);
	return copy_plain(in, out, from, to, e);
}

int file_copy(const char *from, const char *to, struct err *e)
{
	int in = open_input(from, e), out, rc;

	if (in < 0)
		return -1;
	out = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	if (out < 0) {
		rc = cannot_create(to, e);
		close(in);
		return rc;
	}
	rc = copy_bytes(in, out, from, to, e);
	if (rc)
		close(out);
	else
		rc = sync_and_close(out, to, e);
	if (rc)
		unlink(to);
	close(in);
	return rc;
}

int file_sync_dir(const char *dir, struct err *e)
{
	int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC), rc = 0;

	if (fd < 0)
		return err_errno(e, EX_IOERR, "%s", dir);
	io_point("fsync");
	/* EINVAL: a file system that has nothing to do for a directory. */
	if (fsync(fd) && errno != EINVAL)
		rc = err_errno(e, EX_IOERR, "%s", dir);
	close(fd);
	return rc;
}

char *path_join(const char *dir, const char *name)
{
	size_t n = strlen(dir);

	return xasprintf("%s%s%s", dir, n && dir[n - 1] != '/' ? "/" : "", name);
}
