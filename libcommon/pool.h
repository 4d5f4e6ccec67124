#ifndef LIBCOMMON_POOL_H
#define LIBCOMMON_POOL_H

/*
 * A small pool of pinned threads.  The caller is thread 0.  Which thread runs which part never reaches a number:
 * parts write to places of their own.
 *
 *	pool_start(0);                          all CPUs this process may use
 *	pool_run(part, &job, parts);            part(&job, i) for i in 0..parts-1, dynamically dealt, returns when all are done
 */

/* This process is one of `ranks` that divide the CPUs of its affinity mask, the index-th of them; before pool_start(). */
void pool_share(int index, int ranks);
void pool_start(int threads);           /* 0: as many as CPUs in the affinity mask, or in its share of it, and 1 at least; may be called again */
int pool_threads(void);                 /* 1 before pool_start() */
/* Calls fn(arg, i, thread) for each i; thread in 0..pool_threads()-1 names scratch space.  Nested calls run inline. */
void pool_run(void (*fn)(void *arg, long i, int thread), void *arg, long parts);

#endif
