#include "libcommon/comm_ops.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "libcommon/comm_device.h"
#include "libcommon/xalloc.h"

/*
 * Ranks may outnumber cores: whoever waits gives its core away, first by sched_yield(2), then by
 * sleeping for a while that doubles up to LONGEST_SLEEP_NS.  The library's own waiting calls, which
 * spin, are not used.
 *
 * Tags: 0 is a message, 1 the meeting at exit, the rest are calls by turns.  MPI promises tags up to
 * 32767.
 */
enum { TAG_MESSAGE, TAG_EXIT, TAG_CALL, CALL_TAGS = 32000 };
enum { FIRST_SLEEP_NS = 10000, LONGEST_SLEEP_NS = 200000 };
#define MOST_PIECE ((size_t)1 << 29)

struct comm_piece {
	void *request;
	size_t bytes;
	bool recv;
};

static long spin_ns, timeout_s = 600;
static size_t piece_limit = MOST_PIECE;

static int read_long(long *out, const char *name, long least, long most, struct err *e)
{
	const char *text = getenv(name);
	char *end;

	if (!text || !*text)
		return 0;
	errno = 0;
	long v = strtol(text, &end, 10);
	if (errno || *end || v < least || v > most)
		return err_set(e, EX_USAGE, "%s is \"%.40s\", wanted a number from %ld to %ld", name, text, least, most);
	*out = v;
	return 0;
}

int comm_wait_settings(int cpus_per_rank, struct err *e)
{
	long piece = MOST_PIECE;

	spin_ns = cpus_per_rank > 0 ? 300000 : 20000;
	if (read_long(&timeout_s, "CAIRN_COMM_TIMEOUT", 0, 1L << 30, e))
		return -1;
	if (read_long(&piece, "CAIRN_TEST_PIECE", 1, MOST_PIECE, e))
		return -1;
	piece_limit = (size_t)piece;
	return 0;
}

long comm_timeout(void)
{
	return timeout_s;
}

void comm_begin(struct comm_transfer *t, struct comm *c, const char *call, size_t bytes)
{
	struct comm_group *g = c->impl;

	*t = (struct comm_transfer){ .call = call, .bytes = bytes, .number = ++g->calls };
	t->tag = TAG_CALL + (int)(g->calls % CALL_TAGS);
}

void comm_begin_message(struct comm_transfer *t, struct comm *c, const char *call, size_t bytes)
{
	struct comm_group *g = c->impl;

	*t = (struct comm_transfer){ .call = call, .bytes = bytes, .number = ++g->messages, .tag = TAG_MESSAGE };
}

static void check_peer(const struct comm *c, int peer)
{
	if (peer < 0 || peer >= c->size)
		bug("rank %d of %s, which has %d", peer, c->name, c->size);
}

/* Both sides know the size, so that of an empty message nothing is sent. */
static void post(struct comm_transfer *t, struct comm *c, char *p, size_t bytes, int peer, bool recv)
{
	struct comm_group *g = c->impl;

	check_peer(c, peer);
	comm_lock();
	for (size_t at = 0; at < bytes;) {
		size_t n = bytes - at < piece_limit ? bytes - at : piece_limit;

		GROW(t->piece, t->pieces, t->cap);
		t->piece[t->pieces++] = (struct comm_piece){
			.request = recv ? c->ops->recv(g->group, p + at, n, peer, t->tag)
					: c->ops->send(g->group, p + at, n, peer, t->tag),
			.bytes = n, .recv = recv,
		};
		at += n;
	}
	comm_unlock();
}

void comm_post_send(struct comm_transfer *t, struct comm *c, const void *p, size_t bytes, int to)
{
	post(t, c, (char *)p, bytes, to, false);
}

void comm_post_recv(struct comm_transfer *t, struct comm *c, void *p, size_t bytes, int from)
{
	post(t, c, p, bytes, from, true);
}

/* Pieces that are not done move to the front. */
bool comm_look(struct comm_transfer *t, const struct comm *c)
{
	long left = 0;
	size_t bytes;

	for (long i = 0; i < t->pieces; i++) {
		struct comm_piece *p = &t->piece[i];

		if (!c->ops->test(p->request, &bytes))
			t->piece[left++] = *p;
		else if (p->recv && bytes != p->bytes)
			bug("%s: %s %lu: %zu bytes came, wanted %zu", c->name, t->call, t->number, bytes, p->bytes);
	}
	bool some = left < t->pieces;
	t->pieces = left;
	return some;
}

static long now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000L + t.tv_nsec;
}

static bool look(struct comm_transfer *t, struct comm *c)
{
	comm_lock();
	bool some = comm_look(t, c);
	comm_unlock();
	return some;
}

static void wait_all(struct comm_transfer *t, struct comm *c, bool for_ever)
{
	long begun = now_ns(), sleep_ns = FIRST_SLEEP_NS, waited;

	while (t->pieces) {
		if (look(t, c)) {
			begun = now_ns();
			sleep_ns = FIRST_SLEEP_NS;
			continue;
		}
		comm_device_poll();
		waited = now_ns() - begun;
		if (waited < spin_ns) {
			sched_yield();
			continue;
		}
		if (!for_ever && timeout_s && waited > timeout_s * 1000000000L)
			die(EX_TEMPFAIL,
			    "group %s of %d, as its rank %d: %s, call %lu, %zu bytes: waited %ld s for the other ranks "
			    "(CAIRN_COMM_TIMEOUT)",
			    c->name, c->size, c->rank, t->call, t->number, t->bytes, timeout_s);
		nanosleep(&(struct timespec){ 0, sleep_ns }, NULL);
		sleep_ns = sleep_ns * 2 < LONGEST_SLEEP_NS ? sleep_ns * 2 : LONGEST_SLEEP_NS;
	}
	free(t->piece);
	t->piece = NULL;
	t->cap = 0;
}

void comm_finish(struct comm_transfer *t, struct comm *c)
{
	wait_all(t, c, false);
}

/* Whoever has nothing more to do waits here rather than in the library, which would spin. */
void comm_meet_at_exit(struct comm *c)
{
	struct comm_transfer t = { .call = "exit", .tag = TAG_EXIT };
	char in, out = 0;

	for (int step = 1; step < c->size; step *= 2) {
		comm_post_recv(&t, c, &in, 1, (c->rank + c->size - step) % c->size);
		comm_post_send(&t, c, &out, 1, (c->rank + step) % c->size);
		wait_all(&t, c, true);
	}
}
