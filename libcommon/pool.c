#include "libcommon/pool.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "libcommon/die.h"
#include "libcommon/xalloc.h"

/*
 * One job at a time.  Its parts are dealt from `ticket`: the job's number above, the next part
 * below.  Whoever moves a ticket on by compare-and-swap owns that part, and knows that the job it
 * read beforehand was the ticket's, since a job is replaced only when all its parts are done.  So
 * nobody waits for a worker that sleeps through a job.
 *
 * Workers look for a new job for SPIN_NS, then sleep on `jobs`; the caller likewise waits on
 * `done`.
 */
enum { SPIN_NS = 30000, MOST_THREADS = 1024 };
#define CLOSED \
	UINT32_MAX /* the next part while a job is being replaced: above any number of parts */

typedef void part_fn(void *arg, long i, int thread);

static struct {
	pthread_t thread[MOST_THREADS];
	int n;                          /* threads, the caller among them; 0 before pool_start() */
	part_fn *_Atomic fn; /* of the job at hand, with its argument and number of parts */
	void *_Atomic arg;
	atomic_uint parts;
	_Alignas(64) _Atomic uint64_t ticket;
	_Alignas(64) atomic_uint jobs;  /* begun so far; workers sleep on it */
	atomic_int sleepers;
	_Alignas(64) atomic_uint done;  /* parts of this job; the caller sleeps on it */
	atomic_bool caller_sleeps;
	atomic_bool quit;
} pool;

static pthread_mutex_t one_job = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local int own_number = -1;       /* while running a part */
static cpu_set_t all_cpus;
static bool know_cpus, pinned;
static int share_index, share_ranks = 1;

#if defined(__x86_64__) || defined(__i386__)
static void relax(void) { __builtin_ia32_pause(); }
#else
static void relax(void) { atomic_signal_fence(memory_order_seq_cst); }
#endif

static void futex_wait(atomic_uint *word, unsigned seen)
{
	syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}

static void futex_wake(atomic_uint *word, int threads)
{
	syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, threads, NULL, NULL, 0);
}

static long now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000L + t.tv_nsec;
}

/* Watch a word for a little while; true as soon as it is (or is no longer) v. */
static bool spin_until(atomic_uint *word, unsigned v, bool equal)
{
	long end = now_ns() + SPIN_NS;

	do
		for (int i = 0; i < 32; i++) {
			if ((atomic_load(word) == v) == equal)
				return true;
			relax();
		}
	while (now_ns() < end);
	return false;
}

struct part { part_fn *fn; void *arg; unsigned parts; uint32_t i; };

static bool take_part(struct part *p)
{
	uint64_t t = atomic_load(&pool.ticket), again;

	for (;;) {
		*p = (struct part){ atomic_load(&pool.fn), atomic_load(&pool.arg),
				    atomic_load(&pool.parts), (uint32_t)t };
		if (p->i < p->parts) {
			if (atomic_compare_exchange_weak(&pool.ticket, &t, t + 1))
				return true;
			continue;
		}
		again = atomic_load(&pool.ticket);
		if (again == t)
			return false;
		t = again;
	}
}

static void work(int number)
{
	struct part p;

	own_number = number;
	while (take_part(&p)) {
		p.fn(p.arg, (long)p.i, number);
		if (atomic_fetch_add(&pool.done, 1) + 1 == p.parts &&
		    atomic_load(&pool.caller_sleeps))
			futex_wake(&pool.done, 1);
	}
	own_number = -1;
}

static void *worker(void *arg)
{
	int number = (int)(intptr_t)arg;
	unsigned seen = 0;

	while (!atomic_load(&pool.quit)) {
		if (!spin_until(&pool.jobs, seen, false)) {
			atomic_fetch_add(&pool.sleepers, 1);
			futex_wait(&pool.jobs, seen);
			atomic_fetch_sub(&pool.sleepers, 1);
		}
		seen = atomic_load(&pool.jobs);
		if (!atomic_load(&pool.quit))
			work(number);
	}
	return NULL;
}

static void wait_for_all(unsigned parts)
{
	unsigned n;

	if (spin_until(&pool.done, parts, true))
		return;
	atomic_store(&pool.caller_sleeps, true);
	while ((n = atomic_load(&pool.done)) != parts)
		futex_wait(&pool.done, n);
	atomic_store(&pool.caller_sleeps, false);
}

static void begin_job(part_fn *fn, void *arg, unsigned parts)
{
	uint64_t number = (atomic_load(&pool.ticket) >> 32) + 1;

	/* First the old ticket goes, lest a late worker pair it with the new job. */
	atomic_store(&pool.ticket, number << 32 | CLOSED);
	atomic_store(&pool.done, 0);
	atomic_store(&pool.fn, fn);
	atomic_store(&pool.arg, arg);
	atomic_store(&pool.parts, parts);
	atomic_store(&pool.ticket, number << 32);
	atomic_fetch_add(&pool.jobs, 1);
	if (atomic_load(&pool.sleepers))
		futex_wake(&pool.jobs, parts - 1 < INT_MAX ? (int)(parts - 1) : INT_MAX);
}

void pool_run(void (*fn)(void *arg, long i, int thread), void *arg, long parts)
{
	int self = own_number;

	if (self >= 0 || pool.n <= 1 || parts <= 1) {
		for (long i = 0; i < parts; i++)
			fn(arg, i, self >= 0 ? self : 0);
		return;
	}
	if (parts >= CLOSED)
		bug("%ld parts", parts);
	pthread_mutex_lock(&one_job);
	begin_job(fn, arg, (unsigned)parts);
	work(0);
	wait_for_all((unsigned)parts);
	pthread_mutex_unlock(&one_job);
}

int pool_threads(void)
{
	return pool.n ? pool.n : 1;
}

void pool_share(int index, int ranks)
{
	share_index = index;
	share_ranks = ranks;
}

/* The i-th CPU of the mask that the process came with. */
static void pin(pthread_t thread, int i)
{
	cpu_set_t one;
	int cpu = 0;

	for (;; cpu++)
		if (CPU_ISSET(cpu, &all_cpus) && i-- == 0)
			break;
	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	pthread_setaffinity_np(thread, sizeof(one), &one);
}

/* A child made by fork() is another program's beginning: it may use all CPUs again. */
static void unpin(void)
{
	if (pinned)
		sched_setaffinity(0, sizeof(all_cpus), &all_cpus);
	pinned = false;
}

static void stop(void)
{
	atomic_store(&pool.quit, true);
	atomic_fetch_add(&pool.jobs, 1);
	futex_wake(&pool.jobs, INT_MAX);
	for (int i = 1; i < pool.n; i++)
		pthread_join(pool.thread[i], NULL);
	atomic_store(&pool.quit, false);
	pool.n = 0;
	unpin();
}

void pool_start(int threads)
{
	if (own_number >= 0)
		bug("pool_start() within a part");
	stop();
	if (!know_cpus) {
		if (sched_getaffinity(0, sizeof(all_cpus), &all_cpus))
			CPU_ZERO(&all_cpus);
		pthread_atfork(NULL, NULL, unpin);
		know_cpus = true;
	}

	int all = CPU_COUNT(&all_cpus), first = (int)((long)all * share_index / share_ranks);
	int cpus = (int)((long)all * (share_index + 1) / share_ranks) - first;
	if (threads <= 0)
		threads = cpus ? cpus : 1;
	if (threads > MOST_THREADS)
		threads = MOST_THREADS;
	atomic_store(&pool.jobs, 0);
	for (int i = 1; i < threads; i++) {
		int why = pthread_create(&pool.thread[i], NULL, worker, (void *)(intptr_t)i);

		if (why)
			die(EX_UNAVAILABLE,
			    "cannot start thread %d of %d: %s; use a smaller --threads", i + 1,
			    threads, strerror(why));
	}
	pool.n = threads;
	pinned = threads > 1 && threads <= cpus;
	for (int i = 0; pinned && i < threads; i++)
		pin(i ? pool.thread[i] : pthread_self(), first + i);
}
