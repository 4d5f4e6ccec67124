#include "libcommon/outdir_private.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libcommon/json.h"
#include "libcommon/outdir.h"

static ssize_t read_small(int dirfd, const char *name, char *buf, size_t n)
{
	int fd = openat(dirfd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	ssize_t got;

	if (fd < 0)
		return -1;
	got = read(fd, buf, n - 1);
	close(fd);
	if (got >= 0)
		buf[got] = 0;
	return got;
}

/* Fields 3 and 22 of /proc/PID/stat; the name in field 2 may hold blanks and brackets. */
static int process_stat(long pid, char *state, long *start)
{
	char path[64], text[2048];
	const char *p;

	snprintf(path, sizeof(path), "/proc/%ld/stat", pid);
	if (read_small(AT_FDCWD, path, text, sizeof(text)) <= 0)
		return -1;
	p = strrchr(text, ')');
	if (!p || sscanf(p + 1, " %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %ld",
			 state, start) != 2)
		return -1;
	return 0;
}

void writer_self(struct writer *w)
{
	char state;

	memset(w, 0, sizeof(*w));
	if (gethostname(w->host, sizeof(w->host) - 1))
		strcpy(w->host, "?");
	w->pid = getpid();
	if (process_stat(w->pid, &state, &w->start))
		w->start = 0;
}

int writer_read(struct writer *w, int dirfd, const char *name)
{
	struct err e = ERR_INIT;
	struct json_doc d;
	const char *host;
	char text[4096];
	ssize_t n = read_small(dirfd, name, text, sizeof(text));
	int rc;

	if (n <= 0 || json_parse(&d, text, (size_t)n, name, 1, &e))
		return 0;
	rc = json_str(&d, json_get(&d.root, "host"), "host", &host, &e) ||
	     json_int(&d, json_get(&d.root, "pid"), "pid", &w->pid, &e) ||
	     json_int(&d, json_get(&d.root, "start"), "start", &w->start, &e);
	if (!rc)
		snprintf(w->host, sizeof(w->host), "%s", host);
	json_release(&d);
	return !rc;
}

int writer_write(const struct writer *w, int dirfd, const char *name)
{
	struct json_out o = { 0 };
	int fd, rc;

	json_begin(&o, '{');
	json_add_str(&o, "host", w->host);
	json_add_int(&o, "pid", w->pid);
	json_add_int(&o, "start", w->start);
	json_end(&o);
	str_putc(&o.s, '\n');
	io_point("write");
	fd = openat(dirfd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	rc = fd < 0 ? -1 : 0;
	if (!rc) {
		ssize_t put = write(fd, o.s.s, o.s.len);

		if (put >= 0 && (size_t)put < o.s.len) {
			errno = ENOSPC;
			put = -1;
		}
		rc = put < 0 ? -1 : 0;
		close(fd);
	}
	json_out_release(&o);
	return rc;
}

bool writer_is_here(const struct writer *w)
{
	struct writer self;

	writer_self(&self);
	return !strcmp(w->host, self.host);
}

bool writer_is_alive(const struct writer *w)
{
	char state;
	long start;

	if (w->pid <= 0 || w->pid > 0x7fffffff)
		return false;
	if (!process_stat(w->pid, &state, &start))
		return state != 'Z' && state != 'X' && (!w->start || start == w->start);
	return !kill((pid_t)w->pid, 0) || errno == EPERM;
}
