#ifndef LIBCOMMON_COMM_OPS_H
#define LIBCOMMON_COMM_OPS_H

/*
 * What lies under comm.h.  A library (MPI) brings messages between two ranks and groups; everything else is made of them here:
 * comm.c starts and cuts groups, comm_wait.c sends pieces and waits, comm_progress.c keeps things moving while
 * the caller computes, comm_collect.c moves and adds.
 *
 * comm_mpi.c, the only file that includes mpi.h, is a shared object of its own and calls nothing of ours but comm_host.
 */

#include "libcommon/comm.h"

struct comm_host {
	/* The library failed: never returns.  ours: sizes that do not match, which only a mistake of ours can bring about. */
	void (*fail)(bool ours, const char *call, const char *why);
};

/* A group is the library's; a request is freed by the test() that finds it done.  Nothing here waits but start, split, finish. */
struct comm_ops {
	/* The world.  threads: any thread may call it, one at a time. */
	void *(*start)(const struct comm_host *host, int *rank, int *size, bool *threads);
	void *(*split)(void *group, int color, int key, int *rank, int *size);
	void (*drop)(void *group);
	/* Messages with the same tag between two ranks arrive in the order sent; bytes < 2^31. */
	void *(*send)(void *group, const void *p, size_t bytes, int to, int tag);
	void *(*recv)(void *group, void *p, size_t bytes, int from, int tag);
	bool (*test)(void *request, size_t *bytes);     /* bytes: of what came, where it is a recv */
	void (*abort)(int code);        /* end all ranks with this exit status */
	void (*finish)(void);           /* all ranks are here */
};

/* The one name that a shared object gives. */
#define COMM_OPS_NAME "comm_library"

/* What struct comm's impl is: a group and the number of its last call. */
struct comm_group {
	void *group;
	unsigned long calls;    /* so far, of those that all members make; messages apart */
	unsigned long messages;
	void *device;           /* comm_device.h: the group, once joined */
	void **pair;            /* [2 size]: to each rank, then from each */
};

/* One call in flight: its pieces, and the sum to form when they are here. */
struct comm_transfer {
	const char *call;
	unsigned long number;   /* of the call within its group */
	size_t bytes;           /* what this rank receives, or sends where it receives nothing */
	int tag;
	struct comm_piece *piece;
	long pieces, cap;
	float *sum, *parts;     /* sum[count] of parts[size][count]; parts is owned */
	size_t count;
};

/* Begin a call: a tag of its own, so that calls in flight never mix. */
void comm_begin(struct comm_transfer *t, struct comm *c, const char *call, size_t bytes);
void comm_begin_message(struct comm_transfer *t, struct comm *c, const char *call, size_t bytes);
void comm_post_send(struct comm_transfer *t, struct comm *c, const void *p, size_t bytes, int to);
void comm_post_recv(struct comm_transfer *t, struct comm *c, void *p, size_t bytes, int from);
void comm_finish(struct comm_transfer *t, struct comm *c);      /* wait for its pieces, release it */
void comm_add_parts(struct comm_transfer *t, const struct comm *c);      /* the sum that comm_finish() brought the parts of */
bool comm_look(struct comm_transfer *t, const struct comm *c);  /* within comm_lock(): true where a piece was found done */
int comm_wait_settings(int cpus_per_rank, struct err *e) MUST_CHECK;    /* reads CAIRN_COMM_TIMEOUT */
long comm_timeout(void);        /* which it is */
void comm_meet_at_exit(struct comm *world);     /* a barrier that waits for ever */

/* comm_progress.c: the library is called within comm_lock(). */
void comm_lock(void);
void comm_unlock(void);
void comm_progress_settings(const void *affinity, bool threads);
void comm_in_flight(struct comm_transfer *t, const struct comm *c);     /* t stays until comm_landed() */
void comm_landed(struct comm_transfer *t);
void comm_progress_end(void);

#endif
