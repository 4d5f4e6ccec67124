#include "libcommon/outdir.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static atomic_long points;
static long kill_at, full_at;
static atomic_long writes;
static const char *count_file;

static void write_count(void)
{
	FILE *f = fopen(count_file, "w");

	if (f) {
		fprintf(f, "%ld\n", (long)points);
		fclose(f);
	}
}

static void ask_environment(void)
{
	const char *s = getenv("CAIRN_TEST_KILL");

	kill_at = s ? strtol(s, NULL, 10) : 0;
	s = getenv("CAIRN_TEST_FULL");
	full_at = s ? strtol(s, NULL, 10) : 0;
	count_file = getenv("CAIRN_TEST_COUNT");
	if (count_file)
		atexit(write_count);
}

void io_point(const char *what)
{
	long n;

	(void)what;
	pthread_once(&once, ask_environment);
	n = atomic_fetch_add(&points, 1) + 1;
	if (kill_at && n == kill_at)
		kill(getpid(), SIGKILL);
}

bool io_full(void)
{
	pthread_once(&once, ask_environment);
	return full_at && atomic_fetch_add(&writes, 1) + 1 >= full_at;
}
