#include "libcommon/comm_ops.h"

#include <mpi.h>
#include <stdlib.h>

static const struct comm_host *host;

static void check(int rc, const char *call)
{
	char why[MPI_MAX_ERROR_STRING];
	int class = MPI_ERR_OTHER, n;

	if (rc == MPI_SUCCESS)
		return;
	MPI_Error_class(rc, &class);
	MPI_Error_string(rc, why, &n);
	host->fail(class == MPI_ERR_TRUNCATE, call, why);
}

static void *room(size_t bytes)
{
	void *p = malloc(bytes);

	if (!p)
		host->fail(false, "malloc", "out of memory");
	return p;
}

static void *take(MPI_Comm comm, int *rank, int *size)
{
	MPI_Comm *group = room(sizeof(*group));

	*group = comm;
	check(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
	check(MPI_Comm_rank(comm, rank), "MPI_Comm_rank");
	check(MPI_Comm_size(comm, size), "MPI_Comm_size");
	return group;
}

static void *start(const struct comm_host *h, int *rank, int *size, bool *threads)
{
	int given;

	host = h;
	check(MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &given), "MPI_Init_thread");
	*threads = given >= MPI_THREAD_SERIALIZED;
	return take(MPI_COMM_WORLD, rank, size);
}

static void *split(void *group, int color, int key, int *rank, int *size)
{
	MPI_Comm *from = group, to;

	check(MPI_Comm_split(*from, color, key, &to), "MPI_Comm_split");
	return take(to, rank, size);
}

static void drop(void *group)
{
	MPI_Comm *comm = group;

	if (*comm != MPI_COMM_WORLD)
		check(MPI_Comm_free(comm), "MPI_Comm_free");
	free(comm);
}

static void *send(void *group, const void *p, size_t bytes, int to, int tag)
{
	MPI_Comm *comm = group;
	MPI_Request *q = room(sizeof(*q));

	check(MPI_Isend(p, (int)bytes, MPI_BYTE, to, tag, *comm, q), "MPI_Isend");
	return q;
}

static void *recv(void *group, void *p, size_t bytes, int from, int tag)
{
	MPI_Comm *comm = group;
	MPI_Request *q = room(sizeof(*q));

	check(MPI_Irecv(p, (int)bytes, MPI_BYTE, from, tag, *comm, q), "MPI_Irecv");
	return q;
}

static bool test(void *request, size_t *bytes)
{
	MPI_Status status;
	int done, n;

	check(MPI_Test(request, &done, &status), "MPI_Test");
	if (!done)
		return false;
	check(MPI_Get_count(&status, MPI_BYTE, &n), "MPI_Get_count");
	*bytes = (size_t)n;
	free(request);
	return true;
}

static void end_all(int code)
{
	MPI_Abort(MPI_COMM_WORLD, code);
}

static void finish(void)
{
	MPI_Finalize();
}

extern const struct comm_ops comm_library;
const struct comm_ops comm_library = {
	.start = start, .split = split, .drop = drop, .send = send, .recv = recv, .test = test,
	.abort = end_all, .finish = finish,
};
