/*
 * load_boxes CKPT: how fast ranks load tensors into another layout.  Each rank reads its part of the rows of every tensor into memory
 * that it has already touched, as DTensors of PyTorch that are cut along their first dimension.  GB/s of all ranks together, on
 * rank 0: the median of three loads from opening the checkpoint to the last byte on the slowest rank, every block verified.
 */
#include "formats/checkpoint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libcommon/comm.h"
#include "libcommon/pool.h"
#include "libcommon/progress.h"
#include "libcommon/xalloc.h"

static void stop_on(int rc, const struct err *e)
{
	if (rc)
		die_err(e);
}

/* Rows of rank r: as many as of any rank, the last ranks have fewer or none. */
static struct box share(const struct checkpoint_tensor *t, const struct comm *c)
{
	struct box b = box_whole(t->shape, t->rank);
	long each, first;

	if (!t->rank)
		return b;
	each = (t->shape[0] + c->size - 1) / c->size;
	first = each * c->rank < t->shape[0] ? each * c->rank : t->shape[0];
	b.start[0] = first;
	b.extent[0] = t->shape[0] - first < each ? t->shape[0] - first : each;
	return b;
}

static void load(char *const *to, const char *dir, const struct comm *world)
{
	struct checkpoint c;
	struct err e = ERR_INIT;

	stop_on(checkpoint_open(&c, dir, &e), &e);
	for (long i = 0; i < c.n; i++) {
		struct box b = share(&c.tensor[i], world);

		if (box_volume(&b))
			stop_on(checkpoint_read(to[i], &c, i, &b, &e), &e);
	}
	checkpoint_close(&c);
}

static int by_value(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

int main(int argc, char **argv)
{
	struct checkpoint c;
	struct comm world;
	struct err e = ERR_INIT;
	double seconds[3], bytes = 0;
	char **to;

	if (argc != 2)
		die(EX_USAGE, "usage: load_boxes CKPT");
	stop_on(comm_init(&world, &e), &e);
	pool_start(0);
	stop_on(checkpoint_open(&c, argv[1], &e), &e);
	to = xcalloc((size_t)c.n + 1, sizeof(*to));
	for (long i = 0; i < c.n; i++) {
		struct box mine = share(&c.tensor[i], &world), all = box_whole(c.tensor[i].shape, c.tensor[i].rank);
		size_t size = (size_t)box_volume(&mine) * dtype_size(c.tensor[i].dtype);

		to[i] = xmalloc(size + 1);
		memset(to[i], 1, size + 1);
		bytes += (double)box_volume(&all) * (double)dtype_size(c.tensor[i].dtype);
	}
	checkpoint_close(&c);
	for (int i = 0; i < 3; i++) {
		comm_barrier(&world);
		seconds[i] = seconds_now();
		load(to, argv[1], &world);
		comm_barrier(&world);
		seconds[i] = seconds_now() - seconds[i];
	}
	qsort(seconds, 3, sizeof(*seconds), by_value);
	if (!world.rank)
		printf("%g\n", bytes / seconds[1] / 1e9);
	comm_release(&world);
	return 0;
}
