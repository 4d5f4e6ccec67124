#include "libcommon/pool.h"

#include <sched.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/lib/tap.h"

enum { MOST = 5000 };

struct job {
	atomic_int times[MOST];
	atomic_int bad_thread;
	int threads;
	int inner;
};

static void count(void *arg, long i, int thread)
{
	struct job *j = arg;

	atomic_fetch_add(&j->times[i], 1);
	if (thread < 0 || thread >= j->threads)
		atomic_fetch_add(&j->bad_thread, 1);
}

static int once_each(const struct job *j, long parts, int times)
{
	for (long i = 0; i < parts; i++)
		if (j->times[i] != times)
			return 0;
	return !j->bad_thread;
}

static void every_part_once(int threads)
{
	static struct job j;
	static const long parts[] = { 0, 1, 2, 3, 7, 64, MOST };
	int good = 1;

	for (int round = 0; round < 200; round++)
		for (size_t k = 0; k < sizeof(parts) / sizeof(*parts); k++) {
			long n = parts[k] == MOST && round ? 11 : parts[k];

			memset(&j, 0, sizeof(j));
			j.threads = pool_threads();
			pool_run(count, &j, n);
			good &= once_each(&j, n, 1);
		}
	ok(good, "%d threads: every part runs once, with a thread number in range", threads);
}

/* Sleep between jobs, so that the workers are found asleep. */
static void after_sleep(void)
{
	static struct job j;
	int good = 1;

	for (int round = 0; round < 20; round++) {
		memset(&j, 0, sizeof(j));
		j.threads = pool_threads();
		pool_run(count, &j, 9);
		good &= once_each(&j, 9, 1);
		nanosleep(&(struct timespec){ 0, 500000 }, NULL);
	}
	ok(good, "jobs for sleeping workers are done too");
}

static void inner_part(void *arg, long i, int thread)
{
	struct job *j = arg;
	static _Thread_local int seen = -1;

	if (seen >= 0 && seen != thread)
		atomic_fetch_add(&j->bad_thread, 1);
	seen = thread;
	count(arg, i, thread);
}

static void outer_part(void *arg, long i, int thread)
{
	(void)i;
	inner_part(arg, 0, thread);
	pool_run(inner_part, arg, 6);
}

static void nested(void)
{
	static struct job j;

	memset(&j, 0, sizeof(j));
	j.threads = pool_threads();
	pool_run(outer_part, &j, 40);
	ok(j.times[0] == 80 && j.times[5] == 40 && !j.bad_thread, "a nested call runs on its own "
								  "thread");
}

/* No part before its turn: the sum over each job is read right after it returned. */
static void sums(void *arg, long i, int thread)
{
	(void)thread;
	((long *)arg)[i] += i;
}

static void results_are_visible(void)
{
	long x[33] = { 0 }, bad = 0, short_jobs = 0;

	for (long round = 1; round <= 20000; round++) {
		pool_run(sums, x, 33);
		/* A worker late for a short job must not take a part of the long one that follows. */
		if (round % 3) {
			pool_run(sums, x, 2);
			short_jobs++;
		}
		for (long i = 0; i < 33; i++)
			bad += x[i] != i * (round + (i < 2 ? short_jobs : 0));
	}
	ok(bad == 0, "what the parts wrote is there when pool_run() returns, 20000 times");
}

/* all: the mask before the first pool pinned anybody. */
static void affinity(cpu_set_t all)
{
	cpu_set_t now;
	int status = -1;

	if (CPU_COUNT(&all) < 2) {
		skip("one CPU", "pinning");
		return;
	}
	pool_start(0);
	ok(pool_threads() == CPU_COUNT(&all), "0 means all CPUs");
	sched_getaffinity(0, sizeof(now), &now);
	ok(CPU_COUNT(&now) == 1, "the caller is pinned");
	fflush(stdout);

	pid_t child = fork();
	if (child == 0) {
		sched_getaffinity(0, sizeof(now), &now);
		_exit(!CPU_EQUAL(&now, &all));
	}
	waitpid(child, &status, 0);
	ok(status == 0, "a child has the whole mask");
	pool_start(CPU_COUNT(&all) + 3);
	sched_getaffinity(0, sizeof(now), &now);
	ok(CPU_EQUAL(&now, &all), "more threads than CPUs: nobody is pinned");
	pool_start(1);
	ok(pool_threads() == 1, "one thread again");
}

/* Processes that divide the CPUs: no CPU has two, each process one thread at least. */
static void shares(cpu_set_t all)
{
	int cpus = CPU_COUNT(&all), sum = 0, good = 1;
	cpu_set_t taken, now;

	CPU_ZERO(&taken);
	for (int ranks = 1; ranks <= 5; ranks++) {
		sum = 0;
		CPU_ZERO(&taken);
		for (int i = 0; i < ranks; i++) {
			pool_share(i, ranks);
			pool_start(0);
			sum += pool_threads();
			sched_getaffinity(0, sizeof(now), &now);
			if (pool_threads() == 1)
				continue;
			good &= CPU_COUNT(&now) == 1;
			for (int k = 0; k < CPU_SETSIZE; k++)
				good &= !(CPU_ISSET(k, &taken) && CPU_ISSET(k, &now));
			CPU_OR(&taken, &taken, &now);
		}
		good &= ranks >= cpus ? sum == ranks : sum == cpus;
	}
	ok(good, "processes that share %d CPUs divide them", cpus);
	pool_share(0, 1);
	pool_start(0);
	ok(pool_threads() == cpus, "and one alone has them all");
}

int main(void)
{
	cpu_set_t all;

	sched_getaffinity(0, sizeof(all), &all);
	/* A pool that is broken most often waits for ever. */
	alarm(120);
	ok(pool_threads() == 1, "one thread before pool_start()");
	every_part_once(1);
	for (int threads = 1; threads <= 5; threads++) {
		pool_start(threads);
		ok(pool_threads() == threads, "%d threads", threads);
		every_part_once(threads);
	}
	pool_start(2);
	after_sleep();
	nested();
	results_are_visible();
	affinity(all);
	shares(all);
	return done();
}
