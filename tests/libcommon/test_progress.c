#include "libcommon/progress.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include "libcommon/die.h"
#include "libcommon/str.h"
#include "tests/lib/tap.h"

/* What a bar of 40 s, a quarter done, writes to fd 2 = `fd` when one more step is added. */
static void later(struct progress *p, int fd)
{
	int keep = dup(2);

	dup2(fd, 2);
	progress_start(p, "reading", 4 << 20, "B");
	progress_note(p, "shard 3");
	progress_add(p, 1 << 19);
	p->start -= 40;
	p->last -= 40;
	progress_add(p, 1 << 19);
	progress_add(p, 0);
	progress_end(p);
	dup2(keep, 2);
	close(keep);
}

static const char *through_pipe(void)
{
	static char got[1024];
	struct progress p;
	int fd[2];
	ssize_t n;

	if (pipe(fd))
		return NULL;
	later(&p, fd[1]);
	close(fd[1]);
	n = read(fd[0], got, sizeof(got) - 1);
	got[n > 0 ? n : 0] = 0;
	close(fd[0]);
	return got;
}

/* A terminal hands on what was written in its own time. */
static void read_all(char *got, size_t size, int fd)
{
	struct pollfd ready = { .fd = fd, .events = POLLIN };
	size_t n = 0;

	while (n < size - 1 && poll(&ready, 1, 200) > 0) {
		ssize_t more = read(fd, got + n, size - 1 - n);

		if (more <= 0)
			break;
		n += (size_t)more;
	}
	got[n] = 0;
}

static const char *through_terminal(void)
{
	static char got[1024];
	struct progress p;
	int master = posix_openpt(O_RDWR | O_NOCTTY), slave;

	if (master < 0 || grantpt(master) || unlockpt(master))
		return NULL;
	slave = open(ptsname(master), O_RDWR | O_NOCTTY);
	if (slave < 0)
		return NULL;
	later(&p, slave);
	read_all(got, sizeof(got), master);
	close(slave);
	close(master);
	return got;
}

int main(void)
{
	const char *got;
	double before = seconds_now();

	program = "demo";
	ok(seconds_now() >= before, "time goes on");
	is_str(through_pipe(), "", "without a terminal nothing is said");
	verbosity = 1;
	is_str(through_pipe(), "demo: reading: 1.0 MiB of 4.0 MiB, 25.6 KiB/s, 2:00 left, shard 3\n",
	       "but a line every 30 s with -v");
	verbosity = 0;
	got = through_terminal();
	if (!got) {
		skip("no pseudo terminal here", "a bar");
		return done();
	}
	ok(strstr(got, "reading:  25% [####............] 1.0 MiB of 4.0 MiB, 25.6 KiB/s, 2:00 left"),
	   "a bar on a terminal");
	ok(strlen(got) > 2 && !strcmp(got + strlen(got) - 2, " \r"), "which is erased");
	verbosity = -1;
	is_str(through_terminal(), "", "never with -q");
	return done();
}
