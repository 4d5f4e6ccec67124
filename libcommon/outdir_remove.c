#include "libcommon/outdir_private.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* readdir(3) allocates, and this must run in a signal handler. */
struct entry {
	uint64_t inode;
	int64_t next;
	unsigned short size;
	unsigned char type;
	char name[];
};

/* Called with each name but . and ..; anything but 0 ends the walk and is returned. */
static int each(int fd, int (*visit)(int fd, const char *name, int depth, int *count), int depth, int *count)
{
	_Alignas(struct entry) char buf[4096];
	long got;

	if (lseek(fd, 0, SEEK_SET) < 0)
		return -1;
	while ((got = syscall(SYS_getdents64, fd, buf, sizeof(buf))) > 0) {
		for (long at = 0; at < got;) {
			struct entry *d = (struct entry *)(buf + at);
			int rc = 0;

			at += d->size;
			if (strcmp(d->name, ".") && strcmp(d->name, ".."))
				rc = visit(fd, d->name, depth, count);
			if (rc)
				return rc;
		}
	}
	return got < 0 ? -1 : 0;
}

static int empty(int fd, int depth);

static int remove_one(int fd, const char *name, int depth, int *count)
{
	int sub, rc;

	if (!depth && !strcmp(name, LOCK))
		return 0;
	++*count;
	if (!unlinkat(fd, name, 0) || errno == ENOENT)
		return 0;
	if (depth || (errno != EISDIR && errno != EPERM))
		return -1;
	sub = openat(fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (sub < 0)
		return -1;
	rc = empty(sub, 1);
	close(sub);
	return rc ? -1 : unlinkat(fd, name, AT_REMOVEDIR);
}

/* Removing while reading may skip names on some file systems, so until a walk meets none. */
static int empty(int fd, int depth)
{
	int count;

	do {
		count = 0;
		if (each(fd, remove_one, depth, &count))
			return -1;
	} while (count);
	return 0;
}

int outdir_remove(const char *tmp, int fd)
{
	if (empty(fd, 0))
		return -1;
	if (unlinkat(fd, LOCK, 0) && errno != ENOENT)
		return -1;
	return rmdir(tmp);
}

static int not_a_lock(int fd, const char *name, int depth, int *count)
{
	(void)fd;
	(void)depth;
	(void)count;
	return strcmp(name, LOCK) != 0;
}

bool outdir_is_bare(int fd)
{
	int none = 0;

	return each(fd, not_a_lock, 0, &none) == 0;
}

bool outdir_is_same(const char *path, int fd)
{
	struct stat a, b;

	return !lstat(path, &a) && !fstat(fd, &b) && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

enum { MOST = 64 };

static struct open_dir {
	const char *volatile tmp;       /* NULL: free */
	const char *beside;
	int fd;
	pid_t pid;
} open_dirs[MOST];

static void remove_all(void)
{
	for (int i = 0; i < MOST; i++) {
		struct open_dir *d = &open_dirs[i];
		const char *tmp = d->tmp;

		/* After the rename fd is the finished directory: only by its name is it ours. */
		if (!tmp || d->pid != getpid() || !outdir_is_same(tmp, d->fd))
			continue;
		for (int tries = 0; tries < 100 && outdir_remove(tmp, d->fd) && errno == ENOTEMPTY; tries++)
			;
		unlink(d->beside);
		d->tmp = NULL;
	}
}

static void on_signal(int sig)
{
	remove_all();
	signal(sig, SIG_DFL);
	raise(sig);
}

static void catch_signals(void)
{
	static const int which[] = { SIGINT, SIGTERM, SIGHUP };
	struct sigaction old, new = { .sa_handler = on_signal };

	sigfillset(&new.sa_mask);
	for (int i = 0; i < 3; i++)
		/* What nohup or the tool decided stays. */
		if (!sigaction(which[i], NULL, &old) && old.sa_handler == SIG_DFL)
			sigaction(which[i], &new, NULL);
}

void outdir_remember(const char *tmp, const char *beside, int fd)
{
	static bool armed;
	int i = 0;

	if (!armed) {
		armed = true;
		atexit(remove_all);
		catch_signals();
	}
	while (i < MOST && open_dirs[i].tmp)
		i++;
	if (i == MOST)
		bug("more than %d output directories are open", MOST);
	open_dirs[i].beside = beside;
	open_dirs[i].fd = fd;
	open_dirs[i].pid = getpid();
	open_dirs[i].tmp = tmp;
}

static struct open_dir *find(const char *tmp)
{
	for (int i = 0; i < MOST; i++)
		if (open_dirs[i].tmp == tmp)
			return &open_dirs[i];
	return NULL;
}

void outdir_forget(const char *tmp)
{
	struct open_dir *d = find(tmp);

	if (d)
		d->tmp = NULL;
}

bool outdir_is_own(const char *tmp)
{
	struct open_dir *d = find(tmp);

	return d && d->pid == getpid();
}
