#include "libcommon/comm.h"

#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "libcommon/mesh.h"
#include "libcommon/pool.h"
#include "libcommon/xalloc.h"

#include "tests/lib/tap.h"

/*
 * Run alone it is one rank; tests/libcommon/comm.sh runs it under mpirun.  Every rank can work out what
 * any other holds, so what comes is compared with what must come.  Rank 0 prints what all agree on.
 */
static struct comm world;

static bool quick;     /* without what takes seconds */

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
static double value(uint64_t seed, int rank, size_t i)
{
	uint64_t x = (seed * 1000003 + (uint64_t)rank) * 1000003 + i + 1;
	double v;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	x = (x & ~((uint64_t)0x7ff << 52)) | (1003 + (x >> 52) % 40) << 52;
	memcpy(&v, &x, sizeof(v));
	return v;
}

static unsigned char byte(uint64_t seed, int from, int to, size_t i)
{
	uint64_t x = ((seed * 31 + (uint64_t)from) * 31 + (uint64_t)to) * 0x9e3779b97f4a7c15u + i;

	return (unsigned char)((x * 0xbf58476d1ce4e5b9u) >> 50);
}

static const size_t lengths[] = { 0, 1, 2, 3, 7, 8, 63, 64, 1000, 1023, 1025, 5000, 65537 };
enum { LENGTHS = sizeof(lengths) / sizeof(*lengths) };

static int sum_f32(struct comm *c, const int *member, size_t n)
{
	float *x = xmalloc((n + 1) * sizeof(*x));
	int good = 1;

	for (size_t i = 0; i < n; i++)
		x[i] = (float)value(n, member[c->rank], i);
	x[n] = 12345;
	comm_sum_f32(c, x, n);
	for (size_t i = 0; i < n; i++) {
		float want = (float)value(n, member[0], i);

		for (int r = 1; r < c->size; r++)
			want = want + (float)value(n, member[r], i);
		good &= !memcmp(&want, &x[i], sizeof(want));
	}
	good &= x[n] == 12345;
	free(x);
	return good;
}

static int sum_f64(struct comm *c, const int *member, size_t n)
{
	double *x = xmalloc((n + 1) * sizeof(*x));
	int good = 1;

	for (size_t i = 0; i < n; i++)
		x[i] = value(n, member[c->rank], i);
	x[n] = 12345;
	comm_sum_f64(c, x, n);
	for (size_t i = 0; i < n; i++) {
		double want = value(n, member[0], i);

		for (int r = 1; r < c->size; r++)
			want = want + value(n, member[r], i);
		good &= !memcmp(&want, &x[i], sizeof(want));
	}
	good &= x[n] == 12345;
	free(x);
	return good;
}

static int max_f32(struct comm *c, const int *member, size_t n)
{
	float *x = xmalloc((n + 1) * sizeof(*x));
	int good = 1;

	for (size_t i = 0; i < n; i++)
		x[i] = (float)value(n, member[c->rank], i);
	if (n > 2 && c->rank == c->size - 1)
		x[2] = NAN;
	comm_max_f32(c, x, n);
	for (size_t i = 0; i < n; i++) {
		float want = (float)value(n, member[0], i);

		for (int r = 1; r < c->size; r++)
			want = fmaxf(want, (float)value(n, member[r], i));
		good &= i == 2 ? isnan(x[i]) : want == x[i];
	}
	free(x);
	return good;
}

static int broadcast(struct comm *c, const int *member, size_t n)
{
	unsigned char *p = xmalloc(n + 1);
	int good = 1;

	for (int root = 0; root < c->size; root++) {
		for (size_t i = 0; i < n; i++)
			p[i] = c->rank == root ? byte(n, member[root], root, i) : 0;
		comm_broadcast(c, p, n, root);
		for (size_t i = 0; i < n; i++)
			good &= p[i] == byte(n, member[root], root, i);
	}
	free(p);
	return good;
}

static int gather(struct comm *c, const int *member, size_t n)
{
	unsigned char *all = xmalloc(n * (size_t)c->size + 1), *mine = xmalloc(n + 1);
	int good = 1;

	for (int place = 0; place < 2; place++) {
		unsigned char *own = place ? all + (size_t)c->rank * n : mine;

		memset(all, 0, n * (size_t)c->size);
		for (size_t i = 0; i < n; i++)
			own[i] = byte(n, member[c->rank], 0, i);
		comm_gather(c, all, own, n);
		for (int r = 0; r < c->size; r++)
			for (size_t i = 0; i < n; i++)
				good &= all[(size_t)r * n + i] == byte(n, member[r], 0, i);
	}
	free(all);
	free(mine);
	return good;
}

/* What rank r gives, of about n: 0 for some. */
static size_t uneven(size_t n, int r, int to)
{
	return (size_t)(r * 7 + to * 3) % 4 == 1 ? 0 : n / 2 + (size_t)(r + 2 * to) * n / 16;
}

static int gather_v(struct comm *c, const int *member, size_t n)
{
	size_t *bytes = xcalloc((size_t)c->size, sizeof(*bytes)), total = 0;
	int good = 1;

	for (int r = 0; r < c->size; r++)
		total += bytes[r] = uneven(n, member[r], 0);

	unsigned char *all = xmalloc(total + 1), *mine = xmalloc(bytes[c->rank] + 1);
	for (size_t i = 0; i < bytes[c->rank]; i++)
		mine[i] = byte(n, member[c->rank], 1, i);
	comm_gather_v(c, all, mine, bytes);
	for (size_t r = 0, at = 0; r < (size_t)c->size; at += bytes[r++])
		for (size_t i = 0; i < bytes[r]; i++)
			good &= all[at + i] == byte(n, member[r], 1, i);
	free(bytes);
	free(all);
	free(mine);
	return good;
}

static int all_to_all(struct comm *c, const int *member, size_t n)
{
	size_t *in = xcalloc((size_t)c->size, sizeof(*in)), *out = xcalloc((size_t)c->size, sizeof(*out));
	size_t ins = 0, outs = 0, at = 0;
	int good = 1, me = member[c->rank];

	for (int r = 0; r < c->size; r++) {
		ins += in[r] = uneven(n, member[r], me);
		outs += out[r] = uneven(n, me, member[r]);
	}

	unsigned char *recv = xmalloc(ins + 1), *send = xmalloc(outs + 1);
	for (int r = 0; r < c->size; at += out[r++])
		for (size_t i = 0; i < out[r]; i++)
			send[at + i] = byte(n, me, member[r], i);
	comm_all_to_all(c, recv, in, send, out);
	at = 0;
	for (int r = 0; r < c->size; at += in[r++])
		for (size_t i = 0; i < in[r]; i++)
			good &= recv[at + i] == byte(n, member[r], me, i);
	free(in);
	free(out);
	free(recv);
	free(send);
	return good;
}

/* Two of them in flight, and a sum of all meanwhile. */
static int scatter_sum(struct comm *c, const int *member, size_t n, int start)
{
	size_t *count = xcalloc((size_t)c->size, sizeof(*count)), total = 0, first = 0;
	struct comm_request q[2];
	float *in[2], *out[2], some = 1;
	int good = 1;

	for (int r = 0; r < c->size; r++) {
		count[r] = uneven(n, member[r], 2);
		first += r < c->rank ? count[r] : 0;
		total += count[r];
	}
	for (int k = 0; k < 2; k++) {
		in[k] = xmalloc((total + 1) * sizeof(float));
		out[k] = xmalloc((count[c->rank] + 1) * sizeof(float));
		for (size_t i = 0; i < total; i++)
			in[k][i] = (float)value(n + (size_t)k, member[c->rank], i);
		if (start)
			comm_scatter_sum_start(c, &q[k], out[k], in[k], count);
		else
			comm_scatter_sum_f32(c, out[k], in[k], count);
	}
	comm_sum_f32(c, &some, 1);
	good &= some == (float)c->size;
	for (int k = 1; k >= 0; k--) {
		if (start)
			comm_wait(c, &q[k]);
		for (size_t i = 0; i < count[c->rank]; i++) {
			float want = (float)value(n + (size_t)k, member[0], first + i);

			for (int r = 1; r < c->size; r++)
				want = want + (float)value(n + (size_t)k, member[r], first + i);
			good &= !memcmp(&want, &out[k][i], sizeof(want));
		}
		free(in[k]);
		free(out[k]);
	}
	free(count);
	return good;
}

/* Everybody sends two messages to both neighbours before anybody receives. */
static int messages(struct comm *c, const int *member, size_t n)
{
	struct comm_request q[8];
	unsigned char *buf[8];
	int good = 1, to[2] = { (c->rank + 1) % c->size, (c->rank + c->size - 1) % c->size };

	if (c->size == 1)
		return 1;
	for (int k = 0; k < 4; k++) {
		buf[k] = xmalloc(n + 1);
		for (size_t i = 0; i < n; i++)
			buf[k][i] = byte(n + (size_t)k, member[c->rank], 0, i);
		comm_send(c, &q[k], buf[k], n, to[k % 2]);
	}
	for (int k = 0; k < 4; k++) {
		buf[4 + k] = xmalloc(n + 1);
		comm_recv(c, &q[4 + k], buf[4 + k], n, to[!(k % 2)]);
	}
	for (int k = 7; k >= 0; k--)
		comm_wait(c, &q[k]);
	/* Of two ranks both neighbours are one, and what it sent arrives in the order sent. */
	for (int k = 0; k < 4; k++)
		for (size_t i = 0; i < n; i++)
			good &= buf[4 + k][i] == byte(n + (size_t)k, member[to[!(k % 2)]], 0, i);
	for (int k = 0; k < 8; k++)
		free(buf[k]);
	return good;
}

static void functions(struct comm *c, const int *member, const char *what)
{
	struct { const char *name; int (*fn)(struct comm *, const int *, size_t); } list[] = {
		{ "sum_f32", sum_f32 }, { "sum_f64", sum_f64 }, { "max_f32", max_f32 },
		{ "broadcast", broadcast }, { "gather", gather }, { "gather_v", gather_v },
		{ "all_to_all", all_to_all }, { "messages both ways", messages },
	};
	int good;

	for (size_t f = 0; f < sizeof(list) / sizeof(*list); f++) {
		good = 1;
		for (int i = 0; i < LENGTHS - 2 * quick; i++)
			good &= list[f].fn(c, member, lengths[i]);
		all_ok(good, "%s: %s", what, list[f].name);
	}
	for (int start = 0; start < 2; start++) {
		good = 1;
		for (int i = 0; i < LENGTHS - 2 * quick; i++)
			good &= scatter_sum(c, member, lengths[i], start);
		all_ok(good, "%s: scatter_sum%s", what, start ? ", two in flight" : "");
	}
}

/* The check can fail: in another order the sum of three and more differs. */
static void order_shows(void)
{
	int differ = 0;

	for (size_t i = 0; i < 1000; i++) {
		float a = (float)value(9, 0, i), b = (float)value(9, 1, i), c = (float)value(9, 2, i);
		float up = (a + b) + c, down = a + (b + c);

		differ += memcmp(&up, &down, sizeof(up)) != 0;
	}
	all_ok(differ > 100, "the numbers are such that the order of a sum shows");
}

/* What was sent arrives while nobody calls. */
static void in_flight(void)
{
	size_t n = getenv("CAIRN_TEST_PIECE") ? 10000 : 4 << 20;
	unsigned char *in = xcalloc(n, 1), *out = xmalloc(n);
	volatile unsigned char *last = in + n - 1;
	struct comm_request q[2];

	memset(out, 7, n);
	if (world.size > 1) {
		comm_send(&world, &q[0], out, n, (world.rank + 1) % world.size);
		comm_recv(&world, &q[1], in, n, (world.rank + world.size - 1) % world.size);
		for (int i = 0; i < 2000 && !*last; i++)
			nanosleep(&(struct timespec){ 0, 5000000 }, NULL);
		if (!*last)
			die(EX_SOFTWARE, "nothing came for 10 s");
		comm_wait(&world, &q[1]);
		comm_wait(&world, &q[0]);
	}
	all_ok(world.size == 1 || !memcmp(in, out, n), "a long message arrives while nobody calls");
	free(in);
	free(out);
}

/* CPUs are divided: threads that are pinned are alone on their CPU. */
static void cpus(void)
{
	cpu_set_t before, now, *all = xcalloc((size_t)world.size, sizeof(*all));
	int good = 1, threads, sum = 0, *each = xcalloc((size_t)world.size, sizeof(*each));

	sched_getaffinity(0, sizeof(before), &before);
	pool_start(0);
	threads = pool_threads();
	sched_getaffinity(0, sizeof(now), &now);
	comm_gather(&world, all, &now, sizeof(now));
	comm_gather(&world, each, &threads, sizeof(threads));
	for (int i = 0; i < world.size; i++) {
		sum += each[i];
		if (i != world.rank && each[i] > 1 && threads > 1)
			good &= !CPU_EQUAL(&all[i], &now);
	}
	good &= sum == world.size || sum <= CPU_COUNT(&before);
	all_ok(good, "%d CPUs are divided by the ranks: %d threads", CPU_COUNT(&before), sum);
	pool_start(1);
	free(all);
	free(each);
}

/* More than a block of a sum, and messages that no buffer holds. */
static void large(void)
{
	int *member = xcalloc((size_t)world.size, sizeof(*member));

	for (int i = 0; i < world.size; i++)
		member[i] = i;
	all_ok(sum_f32(&world, member, (4 << 20) + 3), "a sum longer than a block");
	all_ok(messages(&world, member, 5 << 20), "large messages both ways at once");
	free(member);
}

/* Odd and even ranks, the even ones in descending order. */
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
	all_ok(half.size == n && member[half.rank] == me, "a split by parity");
	comm_split(&again, &half, half.rank, 0, "one");
	all_ok(again.size == 1 && again.rank == 0 && !again.ops, "a split of the half into single ranks");
	if (!quick)
		functions(&half, member, "half");
	comm_release(&again);
	comm_release(&half);
}

static void barrier(void)
{
	struct timespec pause = { 0, 200000000 };
	double now[2], *all = xcalloc((size_t)world.size * 2, sizeof(*all));
	struct timespec t;
	int good = 1;

	comm_barrier(&world);
	for (int k = 0; k < 2; k++) {
		if (world.rank == world.size - 1 && !k)
			nanosleep(&pause, NULL);
		clock_gettime(CLOCK_MONOTONIC, &t);
		now[k] = (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
		comm_barrier(&world);
	}
	comm_gather(&world, all, now, sizeof(now));
	for (int i = 0; i < world.size; i++)
		good &= now[1] >= all[2 * i];
	all_ok(good, "a barrier waits for the last");
	free(all);
}

static void agree(void)
{
	struct err e = ERR_INIT;
	int last = world.size - 1, rc;

	all_ok(comm_agree(&world, 0, &e) == 0, "all agree that it went well");
	rc = world.rank && world.rank >= last - 1 ? err_set(&e, EX_DATAERR, "rank %d failed", world.rank) : 0;
	if (world.size == 1)
		rc = err_set(&e, EX_DATAERR, "rank 0 failed");
	rc = comm_agree(&world, rc, &e);

	char want[64];
	int first = world.size > 2 ? last - 1 : last;
	snprintf(want, sizeof(want), "rank %d failed", first);
	all_ok(rc == -1 && e.code == EX_DATAERR && !strcmp(e.msg, want) && e.elsewhere == (world.rank != first),
	       "the message of the lowest rank that failed");
}

/* A child that exits is not a rank that ends. */
static void child(void)
{
	int status = -1;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (!pid)
		exit(0);
	waitpid(pid, &status, 0);
	all_ok(status == 0, "a child's exit is its own");
}

static int is_group(struct comm *c, const char *want)
{
	char got[64] = "", mine = (char)('0' + world.rank);

	comm_gather(c, got, &mine, 1);
	return strstr(want, got) && (int)strlen(got) == c->size;
}

/* TP 2, CP 2, DP 2, EP 4 on 8 ranks. */
static void worked_example(void)
{
	struct layout l;
	struct mesh m;
	struct err e = ERR_INIT;

	layout_init(&l, 4);
	l.tp = l.cp = l.dp = 2;
	l.ep = 4;
	if (world.size != 8) {
		int rc = mesh_init(&m, &l, &world, &e);

		all_ok(rc == -1 && e.code == EX_USAGE && strstr(e.msg, "mpirun -n 8"), "%s", e.msg);
		return;
	}
	if (mesh_init(&m, &l, &world, &e))
		die_err(&e);
	all_ok(is_group(&m.tp, "01 23 45 67"), "tp");
	all_ok(is_group(&m.cp, "02 13 46 57"), "cp");
	all_ok(is_group(&m.dp, "04 15 26 37"), "dp");
	all_ok(is_group(&m.grad, "0246 1357"), "grad");
	all_ok(is_group(&m.ep, "0123 4567"), "ep");
	all_ok(is_group(&m.edp, "04 15 26 37"), "edp");
	all_ok(m.etp.size == 1 && m.pp.size == 1 && m.ends.size == 1, "etp, pp and ends have one rank");
	all_ok(is_group(&m.stage, "01234567"), "stage");
	mesh_release(&m);

	layout_init(&l, 4);
	l.pp = 4;
	l.tp = l.etp = 2;
	l.stage_of_layer = xcalloc(4, sizeof(long));
	for (long i = 0; i < 4; i++)
		l.stage_of_layer[i] = i;
	if (mesh_init(&m, &l, &world, &e))
		die_err(&e);
	layout_release(&l);
	all_ok(is_group(&m.pp, "0246 1357") && m.pp.rank == m.at.pp, "pp: its rank is the stage");
	all_ok(is_group(&m.ends, m.at.pp % 3 ? "2 3 4 5" : "06 17"), "ends");
	all_ok(is_group(&m.stage, "01 23 45 67") && is_group(&m.etp, "01 23 45 67"), "stage and etp");
	all_ok(layout_stage(&m.layout, 3) == 3, "the layout is a copy");
	mesh_release(&m);
}

static void one(void)
{
	struct mesh m;

	mesh_one(&m, 7);
	all_ok(m.layout.layers == 7 && m.world.size == 1 && m.grad.size == 1 && m.edp.size == 1 && m.at.pp == 0,
	       "a mesh of one rank");
	mesh_release(&m);
}

NORETURN static void never(void)
{
	for (;;)
		pause();
}

/* For comm.sh: ranks that fail.  Only the last rank does what is asked; the others wait for it. */
static void misbehave(const char *how)
{
	int last = world.rank == world.size - 1;
	struct err e = ERR_INIT;
	char buf[2000] = "";

	comm_barrier(&world);
	if (!strcmp(how, "agree")) {
		if (comm_agree(&world, last ? err_set(&e, EX_CONFIG, "what the last rank found") : 0, &e))
			die_err(&e);
	}
	if (!strcmp(how, "all"))
		die(EX_NOINPUT, "what every rank finds");
	if (last && !strcmp(how, "die"))
		die(EX_DATAERR, "a bad input");
	if (last && !strcmp(how, "bug"))
		bug("a mistake");
	if (last && !strcmp(how, "signal"))
		raise(SIGSEGV);
	if (last && !strcmp(how, "exit"))
		exit(EX_CANTCREAT);
	if (last && !strcmp(how, "hang"))
		never();
	if (!strcmp(how, "hang"))
		comm_broadcast(&world, buf, sizeof(buf), world.size - 1);
	if (last && !strcmp(how, "size"))
		comm_broadcast(&world, buf, sizeof(buf) - 1, 0);
	else
		comm_broadcast(&world, buf, sizeof(buf), 0);
	comm_barrier(&world);
}

int main(int argc, char **argv)
{
	struct err e = ERR_INIT;

	tool_init(argv[0]);
	if (comm_init(&world, &e))
		die_err(&e);
	if (argc > 1 && strcmp(argv[1], "quick")) {
		misbehave(argv[1]);
		return 0;
	}
	quick = argc > 1;

	int *member = xcalloc((size_t)world.size, sizeof(*member));
	for (int i = 0; i < world.size; i++)
		member[i] = i;
	functions(&world, member, "world");
	split();
	order_shows();
	in_flight();
	cpus();
	if (!quick)
		large();
	barrier();
	agree();
	child();
	worked_example();
	one();
	free(member);

	int bad = world.rank == 0 ? done() : 0;
	return all_bad(!bad) != 0;
}
