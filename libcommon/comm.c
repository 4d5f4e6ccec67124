#include "libcommon/comm.h"

#include <dlfcn.h>
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libcommon/comm_device.h"
#include "libcommon/comm_ops.h"
#include "libcommon/pool.h"
#include "libcommon/xalloc.h"

/* A rank that has nothing to say waits so long to be ended by the one that has. */
enum { SILENT_SECONDS = 5 };

static const struct comm_ops *library;  /* once it has started */
static struct comm the_world;           /* the same on every call; its ops are NULL where there is none */
static pid_t owner;

/*
 * The variables by which a launcher tells its ranks how many they are and which one this is.  Under
 * Slurm a batch script sees SLURM_NTASKS too; only the tasks of a step, which srun starts, have
 * SLURM_STEP_ID.
 */
static const char *size_variable(const char **rank)
{
	if (getenv("OMPI_COMM_WORLD_SIZE")) {
		*rank = "OMPI_COMM_WORLD_RANK";
		return "OMPI_COMM_WORLD_SIZE";
	}
	if (getenv("PMI_SIZE")) {
		*rank = "PMI_RANK";
		return "PMI_SIZE";
	}
	*rank = "SLURM_PROCID";
	if (!getenv("SLURM_STEP_ID") || !getenv("SLURM_PROCID"))
		return NULL;
	if (getenv("SLURM_STEP_NUM_TASKS"))
		return "SLURM_STEP_NUM_TASKS";
	return getenv("SLURM_NTASKS") ? "SLURM_NTASKS" : NULL;
}

static int read_number(long *out, const char *name, long least, const char *what, struct err *e)
{
	const char *text = getenv(name);
	char *end;

	if (!text)
		return err_set(e, EX_UNAVAILABLE, "%s is not set, wanted %s", name, what);
	errno = 0;
	*out = strtol(text, &end, 10);
	if (errno || end == text || *end || *out < least)
		return err_set(e, EX_UNAVAILABLE, "%s is \"%.40s\", wanted %s", name, text, what);
	return 0;
}

/* The library lies beside the program. */
static const struct comm_ops *open_library(long n, const char *name, struct err *e)
{
	static const char file[] = "comm_mpi.so";
	char path[4096];
	ssize_t len = readlink("/proc/self/exe", path, sizeof(path) - sizeof(file));
	const struct comm_ops *ops;
	void *so;

	while (len > 0 && path[len - 1] != '/')
		len--;
	strcpy(path + (len > 0 ? len : 0), file);
	if (len <= 0 || access(path, F_OK)) {
		err_set(e, EX_UNAVAILABLE,
			"the launcher started %ld ranks (%s), but %s is not there: this program was built for "
			"one rank alone (MPI=0, or no mpicc)", n, name, path);
		return NULL;
	}
	/* The library's own parts look for its symbols. */
	so = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
	ops = so ? dlsym(so, COMM_OPS_NAME) : NULL;
	if (!ops)
		err_set(e, EX_UNAVAILABLE, "the launcher started %ld ranks (%s), but MPI does not load: %s", n, name,
			dlerror());
	return ops;
}

static void library_failed(bool ours, const char *call, const char *why)
{
	if (ours)
		bug("%s: sizes that do not match: %s", call, why);
	die(EX_TEMPFAIL, "%s: %s", call, why);
}

/* What remembers an output removes it in handlers of its own, which run before this one: it is registered first. */
static void at_exit(int code, void *arg)
{
	(void)arg;
	if (!library || getpid() != owner)
		return;
	if (!code) {
		if (the_world.ops)
			comm_meet_at_exit(&the_world);
		comm_progress_end();
		library->finish();
		return;
	}
	if (die_elsewhere)
		sleep(SILENT_SECONDS);
	library->abort(code);
}

/* Ranks of one host that may use the same CPUs divide them. */
static int share_cpus(struct comm *c, bool threads)
{
	struct where { char host[256]; cpu_set_t cpus; } own, *all = xcalloc((size_t)c->size, sizeof(*all));
	int index = 0, ranks = 0, cpus;

	memset(&own, 0, sizeof(own));
	gethostname(own.host, sizeof(own.host) - 1);
	if (sched_getaffinity(0, sizeof(own.cpus), &own.cpus))
		CPU_ZERO(&own.cpus);
	cpus = CPU_COUNT(&own.cpus);
	comm_progress_settings(&own.cpus, threads);
	comm_gather(c, all, &own, sizeof(own));
	for (int i = 0; i < c->size; i++)
		if (!memcmp(&all[i], &own, sizeof(own))) {
			index += i < c->rank;
			ranks++;
		}
	free(all);
	pool_share(index, ranks);
	return cpus / ranks;
}

static int start(struct comm *world, long n, const char *name, struct err *e)
{
	static const struct comm_host host = { library_failed };
	const struct comm_ops *ops = open_library(n, name, e);
	struct comm_group *g;
	bool threads;

	if (!ops || comm_wait_settings(1, e))
		return -1;
	g = xcalloc(1, sizeof(*g));
	*world = (struct comm){ .name = "world", .ops = ops, .impl = g };
	g->group = ops->start(&host, &world->rank, &world->size, &threads);
	library = ops;
	owner = getpid();
	if (on_exit(at_exit, NULL))
		die(EX_OSERR, "no room for an exit handler");
	if (world->size != n)
		return err_set(e, EX_UNAVAILABLE,
			       "the launcher started %ld ranks (%s), but MPI knows of %d: it is another MPI's launcher", n,
			       name, world->size);
	the_world = *world;
	die_rank = world->rank;
	return comm_wait_settings(share_cpus(world, threads), e);
}

int comm_init(struct comm *world, struct err *e)
{
	const char *rank_name, *name = size_variable(&rank_name);
	long n = 1, rank;

	*world = (struct comm){ .size = 1, .name = "world" };
	if (the_world.ops) {
		*world = the_world;
		return 0;
	}
	if (!name)
		return 0;
	if (read_number(&n, name, 1, "a number of ranks", e))
		return -1;
	if (n == 1)
		return 0;
	if (read_number(&rank, rank_name, 0, "the rank of this process", e))
		return err_prefix(e, "the launcher started %ld ranks (%s)", n, name);
	return start(world, n, name, e);
}

void comm_split(struct comm *out, struct comm *c, int color, int key, const char *name)
{
	struct comm_group *g = c->impl, *own;

	*out = (struct comm){ .size = 1, .name = name };
	/* The library's split spins: all are there before it begins. */
	comm_barrier(c);
	if (!c->ops)
		return;
	own = xcalloc(1, sizeof(*own));
	comm_lock();
	own->group = c->ops->split(g->group, color, key, &out->rank, &out->size);
	comm_unlock();
	out->ops = c->ops;
	out->impl = own;
	if (out->size == 1)
		comm_release(out);
	out->name = name;
}

void comm_release(struct comm *c)
{
	struct comm_group *g = c->impl;

	if (c->ops && g == the_world.impl) {
		comm_meet_at_exit(c);
		comm_progress_end();
		c->ops->drop(g->group);
		c->ops->finish();
		the_world.ops = library = NULL;
		free(g);
	} else if (c->ops) {
		comm_device_leave(c);
		comm_lock();
		c->ops->drop(g->group);
		comm_unlock();
		free(g);
	}
	*c = (struct comm){ .size = 1, .name = "world" };
}

int comm_agree(struct comm *c, int rc, struct err *e)
{
	struct err said;
	int *all, first = 0;

	if (!c->ops)
		return rc ? -1 : 0;
	all = xcalloc((size_t)c->size, sizeof(*all));
	comm_gather(c, all, &rc, sizeof(rc));
	while (first < c->size && !all[first])
		first++;
	free(all);
	if (first == c->size)
		return 0;
	memset(&said, 0, sizeof(said));
	if (first == c->rank)
		said = *e;
	comm_broadcast(c, &said, sizeof(said), first);
	if (first != c->rank) {
		*e = said;
		e->elsewhere = true;
	}
	return -1;
}
