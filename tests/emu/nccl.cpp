#include <deque>
#include <memory>
#include <string>

#include "tests/emu/inside.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "kernels/cuda/nccl.h"

/*
 * NCCL between emulated devices, each in a process of its own, over sockets.  A call runs when its stream comes to it; calls of one
 * communicator run in the order in which the host made them.  A send is over when the receiver has taken it and not before, so that calls
 * that wait for each other show: all that a program may rely on.  What the ranks do must fit: the kind of a call, its number and its size
 * travel with the bytes, and what does not fit ends the program with both.  What a receive will write is 0xFF until it has come.
 */

enum kind { SEND, ALL_GATHER, BROADCAST, ACK };
static const char *const kind_name[] = { "a send", "an all-gather", "a broadcast" };

struct frame { uint64_t kind, bytes; };

struct peer {
	int fd;
	std::string in, out;            /* bytes that came, and that are to go */
	std::deque<std::pair<enum kind, std::string>> came;
	uint64_t sent, taken;           /* of ours: so many the other has */
};

struct operation { bool send; enum kind kind; void *p; size_t bytes; int peer; bool done; uint64_t number; };

struct call {
	std::vector<struct operation> ops;
	bool begun;
};

struct communicator {
	int rank, size;
	uint64_t id[2];
	std::vector<struct peer> peer;
	uint64_t put, done;             /* calls */
};

static auto &all = *new std::vector<struct communicator *>();
static bool blocked;
static char said[256];

static int fails(const char *what)
{
	snprintf(said, sizeof(said), "%s", what);
	return 5;       /* ncclInvalidUsage */
}

/* -- sockets --------------------------------------------------------------------------------------------------- */

static socklen_t address(struct sockaddr_un *a, const uint64_t id[2], int rank)
{
	memset(a, 0, sizeof(*a));
	a->sun_family = AF_UNIX;
	/* An abstract name goes with the process. */
	int n = snprintf(a->sun_path + 1, sizeof(a->sun_path) - 1, "cairn-emu-%016llx%016llx-%d", (unsigned long long)id[0],
			 (unsigned long long)id[1], rank);

	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

static void must(bool good, const char *what)
{
	if (!good)
		emu_fail("ranks: %s: %s", what, strerror(errno));
}

static int connect_to(const uint64_t id[2], int rank, int own)
{
	struct sockaddr_un a;
	socklen_t n = address(&a, id, rank);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	must(fd >= 0, "socket");
	for (int tries = 0; connect(fd, (struct sockaddr *)&a, n); tries++) {
		const struct timespec nap = { 0, 2000000 };

		if (tries > 60000)
			emu_fail("rank %d of a communicator does not join", rank);
		emu_step();
		nanosleep(&nap, nullptr);
	}
	must(write(fd, &own, sizeof(own)) == sizeof(own), "write");
	return fd;
}

/* The device goes on while the host waits for others to join: they may wait for it. */
static int next_rank(int server)
{
	struct pollfd p = { server, POLLIN, 0 };

	while (poll(&p, 1, 2) == 0)
		emu_step();
	return accept4(server, nullptr, nullptr, SOCK_CLOEXEC);
}

static int init(void **comm, int size, struct nccl_id id, int rank)
{
	struct communicator *c = new communicator();
	struct sockaddr_un a;
	int server = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), from;

	c->rank = rank, c->size = size;
	memcpy(c->id, &id, sizeof(c->id));
	c->peer.resize((size_t)size);
	must(!bind(server, (struct sockaddr *)&a, address(&a, c->id, rank)) && !listen(server, size), "two of a rank in a communicator");
	for (int i = 0; i < rank; i++)
		c->peer[(size_t)i].fd = connect_to(c->id, i, rank);
	for (int i = rank + 1; i < size; i++) {
		int fd = next_rank(server);

		must(fd >= 0 && read(fd, &from, sizeof(from)) == sizeof(from), "accept");
		if (from <= rank || from >= size || c->peer[(size_t)from].fd)
			emu_fail("rank %d joins a communicator of %d twice, or is none of it", from, size);
		c->peer[(size_t)from].fd = fd;
	}
	close(server);
	all.push_back(c);
	*comm = c;
	return NCCL_SUCCESS;
}

static void give(struct communicator *c, int to, enum kind kind, const void *p, size_t bytes)
{
	struct frame f = { kind, bytes };
	std::string &out = c->peer[(size_t)to].out;

	out.append((const char *)&f, sizeof(f));
	if (kind == ACK)
		return;
	size_t at = out.size();

	out.resize(at + bytes);
	emu_move(&out[at], p, bytes);
	c->peer[(size_t)to].sent++;
}

static void take_frames(struct peer *p)
{
	size_t at = 0;
	struct frame f;

	for (; p->in.size() - at >= sizeof(f); at += sizeof(f) + (size_t)f.bytes) {
		memcpy(&f, p->in.data() + at, sizeof(f));
		if (f.kind == ACK)
			p->taken++;
		else if (p->in.size() - at - sizeof(f) < f.bytes)
			break;
		else
			p->came.emplace_back((enum kind)f.kind, p->in.substr(at + sizeof(f), (size_t)f.bytes));
	}
	p->in.erase(0, at);
}

/* A peer that is gone sends nothing any more: whoever waits for it waits. */
static void progress(struct communicator *c)
{
	static char buffer[1 << 16];

	for (int i = 0; i < c->size; i++) {
		struct peer *p = &c->peer[(size_t)i];
		ssize_t n = 0;

		if (i == c->rank)
			continue;
		while (!p->out.empty() && (n = send(p->fd, p->out.data(), p->out.size(), MSG_DONTWAIT | MSG_NOSIGNAL)) > 0)
			p->out.erase(0, (size_t)n);
		if (!p->out.empty() && n < 0 && errno != EAGAIN && errno != EINTR)
			p->out.clear();
		while ((n = recv(p->fd, buffer, sizeof(buffer), MSG_DONTWAIT)) > 0)
			p->in.append(buffer, (size_t)n);
		take_frames(p);
	}
}

bool emu_ranks_wait(void)
{
	std::vector<struct pollfd> fds;

	if (!blocked)
		return false;
	for (struct communicator *c : all)
		for (int i = 0; i < c->size; i++)
			if (i != c->rank)
				fds.push_back({ c->peer[(size_t)i].fd,
						(short)(POLLIN | (c->peer[(size_t)i].out.empty() ? 0 : POLLOUT)), 0 });
	poll(fds.data(), fds.size(), 20);
	for (auto &f : fds)
		if (f.revents & POLLHUP) {
			const struct timespec nap = { 0, 20000000 };

			nanosleep(&nap, nullptr);
			break;
		}
	for (struct communicator *c : all)
		progress(c);
	blocked = false;
	return true;
}

/* -- calls ------------------------------------------------------------------------------------------------------ */

static void begin(struct communicator *c, struct call *k)
{
	for (auto &o : k->ops) {
		if (o.send) {
			give(c, o.peer, o.kind, o.p, o.bytes);
			o.number = c->peer[(size_t)o.peer].sent;
		}
	}
	for (auto &o : k->ops)
		if (!o.send)
			emu_fill(o.p, 0xff, o.bytes);
	k->begun = true;
}

static void receive(struct communicator *c, struct operation *o)
{
	struct peer *p = &c->peer[(size_t)o->peer];

	if (p->came.empty())
		return;
	auto &m = p->came.front();

	if (m.first != o->kind || m.second.size() != o->bytes)
		emu_fail("rank %d of %d in a communicator, its call %llu: wanted %s of %zu bytes from rank %d, which did %s of %zu bytes",
			 c->rank, c->size, (unsigned long long)c->done + 1, kind_name[o->kind], o->bytes, o->peer, kind_name[m.first],
			 m.second.size());
	emu_move(o->p, m.second.data(), o->bytes);
	p->came.pop_front();
	give(c, o->peer, ACK, nullptr, 0);
	o->done = true;
}

static bool run(struct communicator *c, struct call *k, uint64_t number)
{
	bool done = true;

	blocked = true;
	if (c->done + 1 != number)
		return false;
	if (!k->begun)
		begin(c, k);
	progress(c);
	for (auto &o : k->ops) {
		if (!o.done && o.send)
			o.done = c->peer[(size_t)o.peer].taken >= o.number;
		/* Of those from one rank the first comes first. */
		else if (!o.done)
			receive(c, &o);
		done &= o.done;
	}
	progress(c);
	if (!done)
		return false;
	blocked = false;
	c->done++;
	return true;
}

static struct { int depth; struct communicator *c; cudaStream_t s; struct call call; } group;

static int put(struct communicator *c, cudaStream_t s, const struct call &k)
{
	uint64_t number = ++c->put;
	auto one = std::make_shared<struct call>(k);

	emu_enqueue(s, [=]() { return run(c, one.get(), number); });
	return NCCL_SUCCESS;
}

static int add(struct communicator *c, cudaStream_t s, const struct operation &o)
{
	if (o.peer < 0 || o.peer >= c->size || o.peer == c->rank)
		return fails("a peer that is not there");
	if (!o.bytes || !emu_holds(o.p, o.bytes))
		emu_fail("%s of %zu bytes at %p, which is no memory of the device that large", kind_name[o.kind], o.bytes, o.p);
	if (!group.depth) {
		struct call k = {};

		k.ops.push_back(o);
		return put(c, s, k);
	}
	if (group.c && (group.c != c || group.s != s))
		return fails("two communicators or streams in a group");
	group.c = c, group.s = s;
	group.call.ops.push_back(o);
	return NCCL_SUCCESS;
}

static int group_start(void)
{
	group.depth++;
	return NCCL_SUCCESS;
}

static int group_end(void)
{
	int r = NCCL_SUCCESS;

	if (--group.depth < 0)
		emu_fail("a group of calls ends that has not begun");
	if (!group.depth && group.c) {
		r = put(group.c, group.s, group.call);
		group.c = nullptr;
		group.call = {};
	}
	return r;
}

static int send(const void *p, size_t n, int, int peer, void *comm, cudaStream_t s)
{
	return add((struct communicator *)comm, s, { true, SEND, (void *)p, n, peer, false, 0 });
}

static int receive(void *p, size_t n, int, int peer, void *comm, cudaStream_t s)
{
	return add((struct communicator *)comm, s, { false, SEND, p, n, peer, false, 0 });
}

static int all_gather(const void *mine, void *to, size_t n, int, void *comm, cudaStream_t s)
{
	struct communicator *c = (struct communicator *)comm;
	char *own = (char *)to + (size_t)c->rank * n;
	int r = group_start();

	if (!emu_holds(to, n * (size_t)c->size) || !emu_holds(mine, n))
		emu_fail("an all-gather of %zu bytes of each rank, into no memory of the device that large", n);
	if (own != mine && own < (const char *)mine + n && (const char *)mine < own + n)
		emu_fail("an all-gather whose own part overlaps its place");
	if (own != mine)
		cudaMemcpyAsync(own, mine, n, cudaMemcpyDeviceToDevice, s);
	for (int i = 0; i < c->size && !r; i++)
		if (i != c->rank)
			r = add(c, s, { false, ALL_GATHER, (char *)to + (size_t)i * n, n, i, false, 0 });
	for (int i = 0; i < c->size && !r; i++)
		if (i != c->rank)
			r = add(c, s, { true, ALL_GATHER, (void *)own, n, i, false, 0 });
	return r ? r : group_end();
}

static int broadcast(const void *from, void *to, size_t n, int, int root, void *comm, cudaStream_t s)
{
	struct communicator *c = (struct communicator *)comm;
	int r = group_start();

	if (root < 0 || root >= c->size)
		return fails("a root that is not there");
	for (int i = 0; i < c->size && !r && c->rank == root; i++)
		if (i != root)
			r = add(c, s, { true, BROADCAST, (void *)from, n, i, false, 0 });
	if (c->rank != root)
		r = add(c, s, { false, BROADCAST, to, n, root, false, 0 });
	return r ? r : group_end();
}

/* -- the rest --------------------------------------------------------------------------------------------------- */

static int unique_id(struct nccl_id *id)
{
	static uint64_t n;
	struct timespec t;
	uint64_t v[2];

	clock_gettime(CLOCK_REALTIME, &t);
	v[0] = (uint64_t)getpid() << 32 | ++n;
	v[1] = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
	memset(id, 0, sizeof(*id));
	memcpy(id, v, sizeof(v));
	return NCCL_SUCCESS;
}

static int destroy(void *comm)
{
	struct communicator *c = (struct communicator *)comm;

	if (c->done != c->put)
		emu_fail("a communicator ends with calls under way");
	for (int i = 0; i < c->size; i++) {
		while (i != c->rank && !c->peer[(size_t)i].out.empty())
			progress(c);
		if (i != c->rank)
			close(c->peer[(size_t)i].fd);
	}
	for (size_t i = 0; i < all.size(); i++)
		if (all[i] == c)
			all.erase(all.begin() + (long)i);
	delete c;
	return NCCL_SUCCESS;
}

static int abort_comm(void *) { return NCCL_SUCCESS; }

static int async_error(void *, int *error)
{
	*error = NCCL_SUCCESS;
	return NCCL_SUCCESS;
}

static const char *error_string(int) { return "invalid usage"; }
static const char *last_error(void *) { return said; }

extern const struct nccl nccl_linked;
const struct nccl nccl_linked = {
	unique_id, init, destroy, abort_comm, async_error, group_start, group_end, send, receive, all_gather, broadcast,
	error_string, last_error,
};
