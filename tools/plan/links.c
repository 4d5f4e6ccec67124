#include "tools/plan/plan.h"

#include "libcommon/comm.h"
#include "libcommon/progress.h"
#include "libcommon/xalloc.h"
#include "tools/shared/start.h"

#include <stdlib.h>

enum { PINGS = 200, LARGE = 8 << 20, SUM = 1 << 20, TRIES = 5 };

static void send_recv(struct comm *c, int peer, char *p, size_t bytes, bool first)
{
	struct comm_request q = { NULL };

	for (int way = 0; way < 2; way++) {
		if ((way == 0) == first)
			comm_send(c, &q, p, bytes, peer);
		else
			comm_recv(c, &q, p, bytes, peer);
		comm_wait(c, &q);
	}
}

/* Seconds of a message of so many bytes between two ranks, as half of the best of some ways there and back; 0 on the others. */
static double message(struct comm *c, int a, int b, size_t bytes, int tries)
{
	char *p = xcalloc(bytes, 1);
	double best = 1e30;

	for (int i = 0; i < tries && (c->rank == a || c->rank == b); i++) {
		double since = seconds_now(), s;

		send_recv(c, c->rank == a ? b : a, p, bytes, c->rank == a);
		s = (seconds_now() - since) / 2;
		best = i && s < best ? s : best;
	}
	free(p);
	comm_barrier(c);
	return c->rank == a ? best : 0;
}

/* Bytes/s of a sum over the first n ranks, counted as a ring would send them: 2 (n - 1) / n of the vector a rank. */
static double sum_rate(struct comm *world, int n)
{
	struct comm group;
	float *x = xcalloc(SUM, sizeof(*x));
	double best = 1e30;

	comm_split(&group, world, world->rank < n, world->rank, "measured");
	for (int i = 0; i < TRIES && world->rank < n; i++) {
		double since, s;

		comm_barrier(&group);
		since = seconds_now();
		comm_sum_f32(&group, x, SUM);
		s = seconds_now() - since;
		best = i && s < best ? s : best;
	}
	comm_release(&group);
	free(x);
	comm_barrier(world);
	return world->rank < n ? 2. * (n - 1) / n * SUM * sizeof(*x) / best : 0;
}

/* The mean over the ranks. */
static double mean(struct comm *world, double x)
{
	comm_sum_f64(world, &x, 1);
	return x / world->size;
}

void cluster_measure_links(struct cluster *c, struct comm *world)
{
	int here = start_ranks_here(), k = 1;

	c->gpus_per_node = here;
	c->gpus = world->size;
	c->memory /= here;
	c->peak = mean(world, c->peak);
	c->bandwidth = mean(world, c->bandwidth);
	/* Ranks of a host are neighbours: launchers fill one host after the other. */
	if (here > 1) {
		c->latency = message(world, 0, 1, 8, PINGS);
		c->node_link = LARGE / message(world, 0, 1, LARGE, TRIES);
	}
	if (here < world->size) {
		double far = message(world, 0, here, 8, PINGS);

		c->net_link = LARGE / message(world, 0, here, LARGE, TRIES);
		/* The model takes five times the latency between nodes. */
		c->latency = here > 1 ? c->latency : far / 5;
	} else {
		c->net_link = c->node_link;
	}
	for (int n = 2; n <= world->size && k < CLUSTER_SUMS; n *= 2, k++)
		c->sum_link[k] = sum_rate(world, n);
}
