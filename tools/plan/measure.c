#include "tools/plan/plan.h"

#include "kernels/ops.h"
#include "libcommon/file.h"
#include "libcommon/pool.h"
#include "libcommon/xalloc.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { SIDE = 2048, ROWS = 2048, TRIES = 5 };

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* FLOP/s of y = x W^T in bfloat16: the best of some tries, the first of which warms up. */
static double product_rate(const struct ops *k)
{
	size_t bytes = (size_t)SIDE * SIDE * 2;
	void *w = k->alloc(bytes, "a weight"), *x = k->alloc((size_t)ROWS * SIDE * 2, "rows"), *y = k->alloc((size_t)ROWS * SIDE * 2, "rows");
	struct matrix m;
	double best = 1e30;

	k->matrix_init(&m, DTYPE_BF16, SIDE, SIDE, 1, false);
	k->matrix_load(&m, w);
	for (int i = 0; i < TRIES; i++) {
		double a = now(), s;

		k->linear_fwd(y, DTYPE_BF16, x, &m, NULL, ROWS);
		s = now() - a;
		best = i && s < best ? s : best;
	}
	k->matrix_release(&m);
	k->release(w);
	k->release(x);
	k->release(y);
	return 2. * ROWS * SIDE * SIDE / best;
}

struct copy { char *to, *from; size_t each; };

static void copy_part(void *arg, long i, int thread)
{
	struct copy *c = arg;

	(void)thread;
	memcpy(c->to + (size_t)i * c->each, c->from + (size_t)i * c->each, c->each);
}

/* Bytes read and written a second by all threads, far beyond the caches. */
static double copy_rate(int ranks)
{
	enum { PARTS = 64 };
	size_t bytes = (512u << 20) / (size_t)ranks / PARTS * PARTS;
	struct copy c = { xmalloc(bytes), xmalloc(bytes), bytes / PARTS };
	double best = 1e30;

	memset(c.from, 1, bytes);
	for (int i = 0; i < TRIES; i++) {
		double a = now(), s;

		pool_run(copy_part, &c, PARTS);
		s = now() - a;
		best = i && s < best ? s : best;
	}
	free(c.to);
	free(c.from);
	return 2. * (double)bytes / best;
}

static double disk_rate(const char *dir)
{
	size_t bytes = 256u << 20, done = 0;
	char *path = path_join(dir, ".cairn-plan-measure"), *p = xmalloc(bytes);
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	double a;

	if (fd < 0)
		die(EX_CANTCREAT, "%s: cannot be made, wanted to measure writing there", path);
	unlink(path);
	memset(p, 7, bytes);
	a = now();
	while (done < bytes) {
		ssize_t n = write(fd, p + done, bytes - done);

		if (n <= 0)
			die(EX_IOERR, "%s: a write of 256 MiB failed", path);
		done += (size_t)n;
	}
	if (fsync(fd))
		die(EX_IOERR, "%s: cannot be made durable", path);
	close(fd);
	free(p);
	free(path);
	return (double)bytes / (now() - a);
}

void cluster_measure(struct cluster *c, const char *dir, const struct ops *k, int ranks)
{
	double memory = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);

	*c = (struct cluster){ .name = "measured", .gpus = 1, .gpus_per_node = 1, .memory = memory, .efficiency = 1 };
	c->peak = product_rate(k);
	c->bandwidth = copy_rate(ranks);
	c->storage = dir ? disk_rate(dir) : 0;
	/* Ranks of one machine meet in its memory: what is sent is written and read once. */
	c->node_link = c->bandwidth / 2;
	c->net_link = c->node_link;
	c->latency = 2e-5;
}
