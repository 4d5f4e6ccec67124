#include "libcommon/comm.h"

#include <stdint.h>
#include <unistd.h>

#include "tests/kernels/cuda.h"

/*
 * The device's memory between ranks.  Run alone it is one rank; tests/kernels/cuda_ranks.sh runs it under mpirun.  Every rank can work out
 * what any other holds, so what comes is compared with what must come, bit by bit.  Rank 0 prints what all agree on.
 */
static struct comm world;

#define all_ok(good, ...) do { \
	int bad_ = all_bad(good); \
	if (world.rank == 0) \
		ok(!bad_, __VA_ARGS__); \
} while (0)

static int all_bad(int good)
{
	int *all = xcalloc((size_t)world.size, sizeof(*all)), bad = 0;

	comm_gather(&world, all, &good, sizeof(good));
	for (int i = 0; i < world.size; i++)
		bad += !all[i];
	free(all);
	return bad;
}

/* A number of (seed, rank, element), of any sign and of sizes from 2^-20 to 2^20, so that the order of a sum shows. */
static float value(uint64_t seed, int rank, size_t i)
{
	uint64_t x = (seed * 1000003 + (uint64_t)rank) * 1000003 + i + 1;
	double v;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	x = (x & ~((uint64_t)0x7ff << 52)) | (1003 + (x >> 52) % 40) << 52;
	memcpy(&v, &x, sizeof(v));
	return (float)v;
}

static float sum_of(const struct comm *c, const int *member, uint64_t seed, size_t i)
{
	float sum = value(seed, member[0], i);

	for (int r = 1; r < c->size; r++)
		sum = sum + value(seed, member[r], i);
	return sum;
}

/* n floats of the device, and one more at the end that nothing may touch. */
struct array2 { size_t n; float *host, *dev; };

static struct array2 take(size_t n)
{
	return (struct array2){ n, xcalloc(n + 1, sizeof(float)), cuda->alloc((n + 1) * sizeof(float), "a test's array") };
}

static void up(struct array2 *a)
{
	a->host[a->n] = 12345;
	cuda->put(a->dev, a->host, (a->n + 1) * sizeof(float));
}

static int down(struct array2 *a)
{
	memset(a->host, 0x55, (a->n + 1) * sizeof(float));
	cuda->get(a->host, a->dev, (a->n + 1) * sizeof(float));
	return a->host[a->n] == 12345;
}

static void drop(struct array2 *a)
{
	cuda->release(a->dev);
	free(a->host);
}

static int same(float a, float b)
{
	return !memcmp(&a, &b, sizeof(a));
}

static int sum_f32(struct comm *c, const int *member, size_t n)
{
	struct array2 x = take(n);
	int good;

	for (size_t i = 0; i < n; i++)
		x.host[i] = value(n, member[c->rank], i);
	up(&x);
	comm_dev_sum_f32(c, x.dev, n);
	good = down(&x);
	for (size_t i = 0; i < n; i++)
		good &= same(x.host[i], sum_of(c, member, n, i));
	drop(&x);
	return good;
}

static int broadcast(struct comm *c, const int *member, size_t n)
{
	struct array2 x = take(n);
	int good = 1;

	for (int root = 0; root < c->size; root++) {
		for (size_t i = 0; i < n; i++)
			x.host[i] = c->rank == root ? value(n, member[root], i) : 0;
		up(&x);
		comm_dev_broadcast(c, x.dev, n * sizeof(float), root);
		good &= down(&x);
		for (size_t i = 0; i < n; i++)
			good &= same(x.host[i], value(n, member[root], i));
	}
	drop(&x);
	return good;
}

/* What rank r gives, of about n: 0 for some. */
static size_t uneven(size_t n, int r, int to)
{
	return (size_t)(r * 7 + to * 3) % 4 == 1 ? 0 : n / 2 + (size_t)(r + 2 * to) * n / 16;
}

/* all: of parts that differ, or (even) all n long; place: from where it goes. */
static int gather(struct comm *c, const int *member, size_t n, int even, int place)
{
	size_t *bytes = xcalloc((size_t)c->size, sizeof(*bytes)), total = 0, at = 0;
	int good = 1;

	for (int r = 0; r < c->size; r++) {
		size_t part = even ? n : uneven(n, member[r], 0);

		at = r == c->rank ? total : at;
		bytes[r] = part * sizeof(float);
		total += part;
	}

	struct array2 all = take(total), mine = take(bytes[c->rank] / sizeof(float));
	for (size_t i = 0; i < mine.n; i++)
		mine.host[i] = all.host[at + i] = value(n, member[c->rank], i);
	up(&all);
	up(&mine);
	comm_dev_gather_v(c, all.dev, place ? all.dev + at : mine.dev, bytes);
	good &= down(&all);
	at = 0;
	for (int r = 0; r < c->size; at += bytes[r++] / sizeof(float))
		for (size_t i = 0; i < bytes[r] / sizeof(float); i++)
			good &= same(all.host[at + i], value(n, member[r], i));
	free(bytes);
	drop(&all);
	drop(&mine);
	return good;
}

static int gather_v(struct comm *c, const int *member, size_t n)
{
	return gather(c, member, n, 0, 0) & gather(c, member, n, 1, 0) & gather(c, member, n, 0, 1) & gather(c, member, n, 1, 1);
}

static int all_to_all(struct comm *c, const int *member, size_t n)
{
	size_t *in = xcalloc((size_t)c->size, sizeof(*in)), *out = xcalloc((size_t)c->size, sizeof(*out));
	size_t ins = 0, outs = 0, at = 0;
	int good, me = member[c->rank];

	for (int r = 0; r < c->size; r++) {
		ins += in[r] = uneven(n, member[r], me);
		outs += out[r] = uneven(n, me, member[r]);
	}

	struct array2 recv = take(ins), send = take(outs);
	for (int r = 0; r < c->size; at += out[r++])
		for (size_t i = 0; i < out[r]; i++)
			send.host[at + i] = value(n + (uint64_t)member[r], me, i);
	up(&send);
	up(&recv);
	for (int r = 0; r < c->size; r++) {
		in[r] *= sizeof(float);
		out[r] *= sizeof(float);
	}
	comm_dev_all_to_all(c, recv.dev, in, send.dev, out);
	good = down(&recv);
	at = 0;
	for (int r = 0; r < c->size; at += in[r++] / sizeof(float))
		for (size_t i = 0; i < in[r] / sizeof(float); i++)
			good &= same(recv.host[at + i], value(n + (uint64_t)me, member[r], i));
	free(in);
	free(out);
	drop(&recv);
	drop(&send);
	return good;
}

/* Two of them in flight, and a sum of all meanwhile; what was there before they began is what counts. */
static int scatter_sum(struct comm *c, const int *member, size_t n, int start)
{
	size_t *count = xcalloc((size_t)c->size, sizeof(*count)), total = 0, first = 0;
	struct comm_request q[2];
	struct array2 in[2], out[2], some = take(1);
	int good = 1;

	for (int r = 0; r < c->size; r++) {
		count[r] = uneven(n, member[r], 2);
		first += r < c->rank ? count[r] : 0;
		total += count[r];
	}
	some.host[0] = 1;
	up(&some);
	for (int k = 0; k < 2; k++) {
		in[k] = take(total);
		out[k] = take(count[c->rank]);
		for (size_t i = 0; i < total; i++)
			in[k].host[i] = value(n + (size_t)k, member[c->rank], i);
		up(&in[k]);
		up(&out[k]);
		if (start)
			comm_dev_scatter_sum_start(c, &q[k], out[k].dev, in[k].dev, count);
		else
			comm_dev_scatter_sum_f32(c, out[k].dev, in[k].dev, count);
	}
	comm_dev_sum_f32(c, some.dev, 1);
	good &= down(&some) && some.host[0] == (float)c->size;
	for (int k = 1; k >= 0; k--) {
		if (start)
			comm_dev_wait(c, &q[k]);
		good &= down(&out[k]);
		for (size_t i = 0; i < count[c->rank]; i++)
			good &= same(out[k].host[i], sum_of(c, member, n + (uint64_t)k, first + i));
		drop(&in[k]);
		drop(&out[k]);
	}
	drop(&some);
	free(count);
	return good;
}

static int scatter_sum_now(struct comm *c, const int *member, size_t n)
{
	return scatter_sum(c, member, n, 0);
}

static int scatter_sum_beside(struct comm *c, const int *member, size_t n)
{
	return scatter_sum(c, member, n, 1);
}

/* Everybody sends two messages to both neighbours before anybody receives. */
static int messages(struct comm *c, const int *member, size_t n)
{
	struct comm_request q[8];
	struct array2 buf[8];
	int good = 1, to[2] = { (c->rank + 1) % c->size, (c->rank + c->size - 1) % c->size };

	for (int k = 0; k < 8; k++) {
		buf[k] = take(n);
		for (size_t i = 0; i < n; i++)
			buf[k].host[i] = value(n + (size_t)k, member[c->rank], i);
		up(&buf[k]);
	}
	/* A direction begins with its first message, which both its ranks call at the same time. */
	for (int k = 0; k < 4; k++) {
		if (c->rank % 2 == k % 2)
			comm_dev_send(c, &q[k], buf[k].dev, n * sizeof(float), to[k % 2]);
		comm_dev_recv(c, &q[4 + k], buf[4 + k].dev, n * sizeof(float), to[!(k % 2)]);
		if (c->rank % 2 != k % 2)
			comm_dev_send(c, &q[k], buf[k].dev, n * sizeof(float), to[k % 2]);
	}
	for (int k = 7; k >= 0; k--)
		comm_dev_wait(c, &q[k]);
	for (int k = 0; k < 4; k++) {
		good &= down(&buf[4 + k]);
		for (size_t i = 0; i < n; i++)
			good &= same(buf[4 + k].host[i], value(n + (size_t)k, member[to[!(k % 2)]], i));
	}
	for (int k = 0; k < 8; k++)
		drop(&buf[k]);
	return good;
}

static void functions(struct comm *c, const int *member, const char *what)
{
	static const size_t lengths[] = { 0, 1, 2, 3, 7, 8, 63, 64, 1023, 1025, 8192, 8193, 20011 };
	struct { const char *name; int (*fn)(struct comm *, const int *, size_t); } list[] = {
		{ "sum_f32", sum_f32 }, { "broadcast", broadcast }, { "gather_v", gather_v }, { "all_to_all", all_to_all },
		{ "scatter_sum", scatter_sum_now }, { "scatter_sum, two in flight", scatter_sum_beside },
		{ "messages both ways", messages },
	};
	int good;

	for (size_t f = 0; f < sizeof(list) / sizeof(*list); f++) {
		good = 1;
		for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); i++)
			good &= (list[f].fn == messages && c->size % 2) || list[f].fn(c, member, lengths[i]);
		all_ok(good, "%s: %s", what, list[f].name);
	}
}

/* The check can fail: in another order the sum of three and more differs. */
static void order_shows(void)
{
	int differ = 0;

	for (size_t i = 0; i < 1000; i++) {
		float a = value(9, 0, i), b = value(9, 1, i), c = value(9, 2, i);

		differ += !same((a + b) + c, a + (b + c));
	}
	all_ok(differ > 100, "the numbers are such that the order of a sum shows");
}

/* Odd and even ranks, the even ones in descending order; and each alone. */
static void split(void)
{
	struct comm half, again;
	int member[64], n = 0, me = world.rank, odd = me % 2;

	for (int i = 0; i < world.size; i++)
		if (i % 2 == odd)
			member[n++] = i;
	for (int i = 0; !odd && i < n / 2; i++) {
		int swap = member[i];

		member[i] = member[n - 1 - i];
		member[n - 1 - i] = swap;
	}
	comm_split(&half, &world, odd, odd ? 0 : -me, "half");
	functions(&half, member, "half");
	comm_split(&again, &half, half.rank, 0, "one");
	all_ok(gather(&again, &me, 100, 1, 0) && scatter_sum(&again, &me, 100, 1) && all_to_all(&again, &me, 100), "a rank alone");
	comm_release(&again);
	comm_release(&half);
}

/* Messages that nobody waits for hold nobody up: stages of a pipeline, three messages under way. */
static void pipeline(void)
{
	enum { FLIGHT = 3, TURNS = 7, N = 100 };
	struct comm_request in, out[FLIGHT];
	struct array2 x[FLIGHT], sum = take(N);
	int good = 1, first = world.rank == 0, last = world.rank == world.size - 1;

	up(&sum);
	for (int k = 0; k < TURNS; k++) {
		struct array2 *a = &x[k % FLIGHT];

		if (k >= FLIGHT && !last)
			comm_dev_wait(&world, &out[k % FLIGHT]);
		if (k < FLIGHT)
			*a = take(N);
		for (size_t i = 0; i < N; i++)
			a->host[i] = value((uint64_t)k, 0, i);
		if (first)
			up(a);
		if (!first) {
			comm_dev_recv(&world, &in, a->dev, N * sizeof(float), world.rank - 1);
			comm_dev_wait(&world, &in);
		}
		cuda->copy(sum.dev, a->dev, N * sizeof(float));
		if (!last)
			comm_dev_send(&world, &out[k % FLIGHT], a->dev, N * sizeof(float), world.rank + 1);
	}
	good &= down(&sum);
	for (size_t i = 0; i < N; i++)
		good &= same(sum.host[i], value(TURNS - 1, 0, i));
	for (int k = 0; k < FLIGHT; k++) {
		if (!last)
			comm_dev_wait(&world, &out[k]);
		drop(&x[k]);
	}
	drop(&sum);
	all_ok(good, "messages through a pipeline");
}

/* Mistakes, which must be found and named; the last rank makes them. */
static void mistake(const char *which)
{
	struct array2 x = take(1000), all = take(1000 * (size_t)world.size);
	size_t *bytes = xcalloc((size_t)world.size, sizeof(*bytes));
	bool last = world.rank == world.size - 1;

	for (int i = 0; i < world.size; i++)
		bytes[i] = 1000;
	up(&x);
	up(&all);
	comm_dev_sum_f32(&world, x.dev, 10);
	down(&x);
	if (!strcmp(which, "hang") && last)
		for (;;)
			pause();
	if (!strcmp(which, "size") && last)
		for (int i = 0; i < world.size; i++)
			bytes[i] = 1004;
	if (!strcmp(which, "order") && last)
		comm_dev_gather_v(&world, all.dev, x.dev, bytes);
	comm_dev_broadcast(&world, x.dev, 1000, 0);
	comm_dev_gather_v(&world, all.dev, x.dev, bytes);
	down(&x);
	printf("# nothing was found\n");
}

int main(int argc, char **argv)
{
	struct err e = ERR_INIT;
	int member[64];
	const char *local = getenv("OMPI_COMM_WORLD_LOCAL_RANK");

	if (comm_init(&world, &e))
		die_err(&e);
	ops_local_device(local && !getenv("CAIRN_TEST_ONE_DEVICE") ? atoi(local) : 0);
	cuda_start();
	if (comm_use_device(&world, cuda->ranks, &e))
		die_err(&e);
	for (int i = 0; i < world.size; i++)
		member[i] = i;
	if (argc > 1) {
		mistake(argv[1]);
		return 1;
	}
	order_shows();
	if (world.size > 1) {
		functions(&world, member, "world");
		split();
		pipeline();
	}
	member[0] = world.rank;
	comm_release(&world);
	return member[0] ? 0 : done();
}
