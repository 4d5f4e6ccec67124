#include "libcommon/comm_ops.h"

#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <time.h>

#include "libcommon/xalloc.h"

/*
 * A long message moves only while both its ranks call the library.  So that it moves while the caller
 * computes, a thread calls it now and then for whatever is in flight; it sleeps where nothing is.  The
 * library is called by one thread at a time.
 */
enum { LEAST_NAP_NS = 50000, MOST_NAP_NS = 800000 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t something = PTHREAD_COND_INITIALIZER;
static struct flight { struct comm_transfer *t; struct comm c; } *flight;
static long flights, cap;
static pthread_t helper;
static bool runs, quit, may_run;
static cpu_set_t cpus;

void comm_lock(void)
{
	pthread_mutex_lock(&lock);
}

void comm_unlock(void)
{
	pthread_mutex_unlock(&lock);
}

/* The thread that starts the helper may be pinned to one of these. */
void comm_progress_settings(const void *affinity, bool threads)
{
	memcpy(&cpus, affinity, sizeof(cpus));
	may_run = threads;
}

static bool look_at_all(bool *some)
{
	bool open = false;

	*some = false;
	for (long i = 0; i < flights; i++) {
		*some |= comm_look(flight[i].t, &flight[i].c);
		open |= flight[i].t->pieces > 0;
	}
	return open;
}

static void *help(void *arg)
{
	long nap = LEAST_NAP_NS;
	bool some;

	pthread_setaffinity_np(pthread_self(), sizeof(cpus), &cpus);
	comm_lock();
	while (!quit) {
		if (!look_at_all(&some)) {
			pthread_cond_wait(&something, &lock);
			nap = LEAST_NAP_NS;
			continue;
		}
		nap = some ? LEAST_NAP_NS : nap * 2 < MOST_NAP_NS ? nap * 2 : MOST_NAP_NS;
		comm_unlock();
		nanosleep(&(struct timespec){ 0, nap }, NULL);
		comm_lock();
	}
	comm_unlock();
	return arg;
}

void comm_in_flight(struct comm_transfer *t, const struct comm *c)
{
	if (!may_run || !t->pieces)
		return;
	comm_lock();
	GROW(flight, flights, cap);
	flight[flights++] = (struct flight){ t, *c };
	if (!runs)
		runs = !pthread_create(&helper, NULL, help, NULL);
	pthread_cond_signal(&something);
	comm_unlock();
}

void comm_landed(struct comm_transfer *t)
{
	comm_lock();
	for (long i = 0; i < flights; i++)
		if (flight[i].t == t) {
			flight[i] = flight[--flights];
			break;
		}
	comm_unlock();
}

void comm_progress_end(void)
{
	comm_lock();
	quit = true;
	pthread_cond_signal(&something);
	comm_unlock();
	if (runs && !pthread_equal(helper, pthread_self()))
		pthread_join(helper, NULL);
	runs = quit = false;
	flights = 0;
}
