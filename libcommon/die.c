#include "libcommon/die.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

const char *program = "cairn";
int verbosity;
int die_rank = -1;
static int early_rank = -1;     /* as the launcher says, before the ranks know each other */
bool die_elsewhere;

/* Messages carry bytes of foreign files (names, keys): nothing in them may
 * move the cursor or fake a second line. */
static void clean(char *s)
{
	for (; *s; s++)
		if ((unsigned char)*s < 0x20 || *s == 0x7f)
			*s = '?';
}

static int vset(struct err *e, int code, const char *fmt, va_list ap)
{
	e->code = code;
	e->elsewhere = false;
	vsnprintf(e->msg, sizeof(e->msg), fmt, ap);
	clean(e->msg);
	return -1;
}

int err_set(struct err *e, int code, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vset(e, code, fmt, ap);
	va_end(ap);
	return -1;
}

int err_errno(struct err *e, int code, const char *fmt, ...)
{
	int no = errno;
	va_list ap;
	size_t n;

	va_start(ap, fmt);
	vset(e, no == ENOENT ? EX_NOINPUT : no == EISDIR && code == EX_IOERR ? EX_DATAERR : code, fmt, ap);
	va_end(ap);
	n = strlen(e->msg);
	snprintf(e->msg + n, sizeof(e->msg) - n, ": %s", strerror(no));
	return -1;
}

int err_prefix(struct err *e, const char *fmt, ...)
{
	char head[sizeof(e->msg)];
	va_list ap;
	size_t n;

	va_start(ap, fmt);
	vsnprintf(head, sizeof(head), fmt, ap);
	va_end(ap);
	clean(head);
	n = strlen(head);
	if (n + 3 < sizeof(head)) {
		e->msg[sizeof(head) - n - 3] = 0;
		memcpy(head + n, ": ", 2);
		strcpy(head + n + 2, e->msg);
	}
	memcpy(e->msg, head, sizeof(head));
	return -1;
}

static void say(const char *fmt, va_list ap)
{
	char line[2048];

	vsnprintf(line, sizeof(line), fmt, ap);
	clean(line);
	int rank = die_rank < 0 ? early_rank : die_rank;

	if (rank < 0)
		fprintf(stderr, "%s: %s\n", program, line);
	else
		fprintf(stderr, "%s: rank %d: %s\n", program, rank, line);
}

/* What is wrong for all ranks the first of them says: the others leave it the time to end them. */
static void give_way(void)
{
	if (die_rank > 0)
		usleep((unsigned)(die_rank < 40 ? die_rank : 40) * 20000 + 200000);
	else if (die_rank < 0 && early_rank > 0)
		sleep(2); /* the launcher takes longer to end them than a rank does */
}

void die(int code, const char *fmt, ...)
{
	va_list ap;

	fflush(stdout);
	give_way();
	va_start(ap, fmt);
	say(fmt, ap);
	va_end(ap);
	exit(code);
}

void die_err(const struct err *e)
{
	int code = e->code ? e->code : EX_SOFTWARE;

	if (!e->elsewhere)
		die(code, "%s", e->msg);
	die_elsewhere = true;
	exit(code);
}

void bug_at(const char *file, int line, const char *fmt, ...)
{
	char what[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(what, sizeof(what), fmt, ap);
	va_end(ap);
	die(EX_SOFTWARE, "internal error at %s:%d: %s", file, line, what);
}

void log_warn(const char *fmt, ...)
{
	va_list ap;

	if (verbosity < 0)
		return;
	va_start(ap, fmt);
	say(fmt, ap);
	va_end(ap);
}

void log_info(const char *fmt, ...)
{
	va_list ap;

	if (verbosity < 1)
		return;
	va_start(ap, fmt);
	say(fmt, ap);
	va_end(ap);
}

/* What is wrong before the ranks know each other (comm.h) is said once too. */
static void ask_launcher(void)
{
	static const char *const name[][2] = { { "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK" }, { "PMI_SIZE", "PMI_RANK" } };

	for (size_t i = 0; i < sizeof(name) / sizeof(*name); i++) {
		const char *size = getenv(name[i][0]), *rank = getenv(name[i][1]);

		if (size && rank && atol(size) > 1 && atol(rank) >= 0 && atol(rank) < atol(size))
			early_rank = (int)atol(rank);
	}
}

void tool_init(const char *argv0)
{
	const char *slash = strrchr(argv0, '/');
	struct rlimit lim;

	ask_launcher();
	program = slash ? slash + 1 : argv0;

	/* A closed fd 2 would hand its number to the next open(2), and die()
	 * would then write its message into somebody's checkpoint. */
	for (int fd = 0; fd <= 2; fd++)
		if (fcntl(fd, F_GETFD) < 0 && errno == EBADF)
			if (open("/dev/null", O_RDWR) != fd)
				_exit(EX_OSERR);

	/* Job runners written in Python start us with SIGPIPE ignored. */
	signal(SIGPIPE, SIG_DFL);

	/* The first touch of a page costs more than the arithmetic on it. */
	mallopt(M_MMAP_THRESHOLD, 1 << 30);
	mallopt(M_TRIM_THRESHOLD, -1);
	mallopt(M_TOP_PAD, 16 << 20);

	if (!getrlimit(RLIMIT_NOFILE, &lim)) {
		lim.rlim_cur = lim.rlim_max;
		setrlimit(RLIMIT_NOFILE, &lim);
	}
}

int tool_exit(int code)
{
	if (ferror(stdout) | fclose(stdout))
		die(EX_IOERR, "standard output: %s", strerror(errno));
	return code;
}
