#include "libcommon/comm_device.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libcommon/comm_ops.h"
#include "libcommon/xalloc.h"

/* One program, one backend. */
static const struct comm_device *device;
static pid_t owner;

/* Ranks that name the same device of the same host. */
static int check_devices(struct comm *world, const char which[COMM_DEVICE_NAME], struct err *e)
{
	struct where { char host[256], device[COMM_DEVICE_NAME]; } own, *all = xcalloc((size_t)world->size, sizeof(*all));
	int rc = 0;

	memset(&own, 0, sizeof(own));
	gethostname(own.host, sizeof(own.host) - 1);
	memcpy(own.device, which, sizeof(own.device));
	comm_gather(world, all, &own, sizeof(own));
	for (int i = 1; i < world->size && !rc; i++)
		for (int j = 0; j < i && !rc; j++)
			if (!memcmp(&all[i], &all[j], sizeof(own)))
				rc = err_set(e, EX_UNAVAILABLE,
					     "ranks %d and %d both have device %s of %s: a GPU takes one rank, so start fewer ranks "
					     "on this host", j, i, own.device, own.host);
	free(all);
	return rc;
}

/* Others may still wait for what this rank has called; the device's library ends before the ranks meet. */
static void drain(int code, void *arg)
{
	const struct comm_device *d = device;

	(void)arg;
	if (!code && d && getpid() == owner)
		d->drain();
	device = NULL;
}

int comm_use_device(struct comm *world, const struct comm_device *d, struct err *e)
{
	char which[COMM_DEVICE_NAME] = "";

	device = d;
	if (!d || world->size == 1)
		return 0;
	if (comm_agree(world, d->start(which, comm_timeout(), e), e))
		return -1;
	owner = getpid();
	if (on_exit(drain, NULL))
		die(EX_OSERR, "no room for an exit handler");
	return check_devices(world, which, e);
}

void comm_device_poll(void)
{
	if (device)
		device->poll();
}

void comm_device_leave(struct comm *c)
{
	struct comm_group *g = c->impl;

	if (g->device)
		device->leave(g->device);
	for (int i = 0; g->pair && i < 2 * c->size; i++)
		if (g->pair[i])
			device->leave(g->pair[i]);
	free(g->pair);
	g->pair = NULL;
	g->device = NULL;
}

/* A group without a library is one rank. */
static void *group(struct comm *c)
{
	struct comm_group *g = c->impl;
	char id[COMM_ID];

	if (g->device)
		return g->device;
	if (!c->rank)
		device->id(id);
	comm_broadcast(c, id, sizeof(id), 0);
	g->device = device->join(id, c->rank, c->size, c->name);
	return g->device;
}

/* The first message from one rank to another: its sender gives the id. */
static void *pair(struct comm *c, int other, bool send)
{
	struct comm_group *g = c->impl;
	struct comm_request q;
	char id[COMM_ID];
	int i;

	if (!c->ops || other == c->rank || other < 0 || other >= c->size)
		bug("group %s: a message between ranks %d and %d", c->name, c->rank, other);
	if (!g->pair)
		g->pair = xcalloc(2 * (size_t)c->size, sizeof(*g->pair));
	i = send ? other : c->size + other;
	if (g->pair[i])
		return g->pair[i];
	if (send) {
		device->id(id);
		comm_send(c, &q, id, sizeof(id), other);
	} else {
		comm_recv(c, &q, id, sizeof(id), other);
	}
	comm_wait(c, &q);
	g->pair[i] = device->join(id, !send, 2, c->name);
	return g->pair[i];
}

static void copy(void *to, const void *from, size_t bytes)
{
	if (bytes && to != from)
		device->copy(to, from, bytes);
}

void comm_dev_broadcast(struct comm *c, void *p, size_t bytes, int root)
{
	if (!device || !c->ops)
		comm_broadcast(c, p, bytes, root);
	else
		device->broadcast(group(c), p, bytes, root);
}

void comm_dev_sum_f32(struct comm *c, float *x, size_t n)
{
	if (!device || !c->ops)
		comm_sum_f32(c, x, n);
	else
		device->sum_f32(group(c), x, n);
}

void comm_dev_gather_v(struct comm *c, void *all, const void *mine, const size_t *bytes)
{
	if (!device)
		comm_gather_v(c, all, mine, bytes);
	else if (!c->ops)
		copy(all, mine, *bytes);
	else
		device->gather_v(group(c), all, mine, bytes);
}

void comm_dev_scatter_sum_f32(struct comm *c, float *out, const float *in, const size_t *count)
{
	if (!device)
		comm_scatter_sum_f32(c, out, in, count);
	else if (!c->ops)
		copy(out, in, *count * sizeof(*out));
	else
		device->scatter_sum_f32(group(c), out, in, count, false);
}

void comm_dev_scatter_sum_start(struct comm *c, struct comm_request *q, float *out, const float *in, const size_t *count)
{
	q->impl = NULL;
	if (!device)
		comm_scatter_sum_start(c, q, out, in, count);
	else if (!c->ops)
		copy(out, in, *count * sizeof(*out));
	else
		q->impl = device->scatter_sum_f32(group(c), out, in, count, true);
}

void comm_dev_all_to_all(struct comm *c, void *recv, const size_t *recv_bytes, const void *send, const size_t *send_bytes)
{
	if (!device)
		comm_all_to_all(c, recv, recv_bytes, send, send_bytes);
	else if (c->ops)
		device->all_to_all(group(c), recv, recv_bytes, send, send_bytes);
	else if (*recv_bytes != *send_bytes)
		bug("%zu bytes from a rank to itself, %zu wanted", *send_bytes, *recv_bytes);
	else
		copy(recv, send, *send_bytes);
}

void comm_dev_send(struct comm *c, struct comm_request *q, const void *p, size_t bytes, int to)
{
	if (!device)
		comm_send(c, q, p, bytes, to);
	else
		q->impl = device->send(pair(c, to, true), p, bytes);
}

void comm_dev_recv(struct comm *c, struct comm_request *q, void *p, size_t bytes, int from)
{
	if (!device)
		comm_recv(c, q, p, bytes, from);
	else
		q->impl = device->recv(pair(c, from, false), p, bytes);
}

void comm_dev_wait(struct comm *c, struct comm_request *q)
{
	void *request = q->impl;

	if (!device) {
		comm_wait(c, q);
		return;
	}
	q->impl = NULL;
	if (request)
		device->wait(request);
}
