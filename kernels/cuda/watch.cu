#include "kernels/cuda/ranks.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <deque>
#include <map>
#include <vector>

struct nccl nccl;

static long timeout_s;
static int device;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_t watcher;
static bool watching;

struct watched {
	struct ranks_call call;
	cudaEvent_t begun, done;
	time_t since;           /* it was seen to have begun; 0: not yet */
};

/* They outlive the program's end, during which the thread may still look. */
static auto &calls = *new std::map<cudaStream_t, std::deque<struct watched>>();
static auto &comms = *new std::map<void *, const char *>();
static auto &events = *new std::vector<cudaEvent_t>();

/* -- events --------------------------------------------------------------------------------------------------- */

static cudaEvent_t event_locked(void)
{
	cudaEvent_t e;

	if (!events.empty()) {
		e = events.back();
		events.pop_back();
		return e;
	}
	cuda_ok(cudaEventCreateWithFlags(&e, cudaEventDisableTiming), "an event between ranks");
	return e;
}

cudaEvent_t ranks_event(void)
{
	pthread_mutex_lock(&lock);
	cudaEvent_t e = event_locked();
	pthread_mutex_unlock(&lock);
	return e;
}

void ranks_event_free(cudaEvent_t e)
{
	pthread_mutex_lock(&lock);
	events.push_back(e);
	pthread_mutex_unlock(&lock);
}

/* -- calls ---------------------------------------------------------------------------------------------------- */

void ranks_watch_begin(const struct ranks_call *c, cudaStream_t s)
{
	if (!watching)
		return;
	pthread_mutex_lock(&lock);
	calls[s].push_back({ *c, event_locked(), nullptr, 0 });
	cuda_ok(cudaEventRecord(calls[s].back().begun, s), "ranks");
	pthread_mutex_unlock(&lock);
}

void ranks_watch_end(cudaStream_t s)
{
	if (!watching)
		return;
	pthread_mutex_lock(&lock);
	struct watched &w = calls[s].back();
	cudaEvent_t done = event_locked();

	cuda_ok(cudaEventRecord(done, s), "ranks");
	w.done = done;
	pthread_mutex_unlock(&lock);
}

void ranks_watch_group(void *comm, const char *name, bool there)
{
	pthread_mutex_lock(&lock);
	if (there)
		comms[comm] = name;
	else
		comms.erase(comm);
	pthread_mutex_unlock(&lock);
}

/* -- the thread ------------------------------------------------------------------------------------------------ */

static bool aborted;

static void *abort_all(void *)
{
	for (const auto &c : comms)
		nccl.CommAbort(c.first);
	__atomic_store_n(&aborted, true, __ATOMIC_RELEASE);
	return nullptr;
}

/* The lock stays ours: whoever wakes up makes no further call.  An abort that hangs itself holds up nothing. */
static void abort_comms(void)
{
	pthread_t t;
	const struct timespec nap = { 0, 10000000 };

	if (pthread_create(&t, nullptr, abort_all, nullptr))
		return;
	for (int i = 0; i < 500 && !__atomic_load_n(&aborted, __ATOMIC_ACQUIRE); i++)
		nanosleep(&nap, nullptr);
}

static time_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + 1;
}

/* The oldest call of a stream that is not over, if it has begun. */
static void look(std::deque<struct watched> &q)
{
	while (!q.empty() && q.front().done && cudaEventQuery(q.front().done) == cudaSuccess) {
		events.push_back(q.front().begun);
		events.push_back(q.front().done);
		q.pop_front();
	}
	if (q.empty())
		return;
	struct watched &w = q.front();

	if (!w.since && cudaEventQuery(w.begun) == cudaSuccess)
		w.since = now();
	if (!w.since || now() - w.since <= timeout_s)
		return;
	const struct ranks_call c = w.call;

	abort_comms();
	die(EX_TEMPFAIL,
	    "group %s of %d, as its rank %d: %s on the device, call %lu, %zu bytes: waited %ld s for the other ranks (CAIRN_COMM_TIMEOUT)",
	    c.group, c.size, c.rank, c.call, c.number, c.bytes, timeout_s);
}

static void check_comms(void)
{
	for (const auto &c : comms) {
		int r = NCCL_SUCCESS;

		if (nccl.CommGetAsyncError(c.first, &r) == NCCL_SUCCESS && r != NCCL_SUCCESS && r != NCCL_IN_PROGRESS) {
			const char *name = c.second;

			abort_comms();
			die(EX_TEMPFAIL, "group %s: NCCL: %s", name, nccl.GetErrorString(r));
		}
	}
}

static void *watch(void *)
{
	const struct timespec nap = { 0, 200000000 };

	cudaSetDevice(device);
	for (;;) {
		nanosleep(&nap, nullptr);
		pthread_mutex_lock(&lock);
		for (auto &c : calls)
			look(c.second);
		check_comms();
		pthread_mutex_unlock(&lock);
	}
	return nullptr;
}

/* -- the start ------------------------------------------------------------------------------------------------- */

static int find(struct err *e)
{
	const char *lacks = nullptr;
	void *so;

	if (&nccl_linked) {
		nccl = nccl_linked;
		return 0;
	}
	so = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
	if (!so)
		return err_set(e, EX_UNAVAILABLE, "several ranks on GPUs want NCCL: %s", dlerror());
#define FIND(result, name, parameters) \
	nccl.name = (result (*) parameters)dlsym(so, "nccl" #name); \
	if (!nccl.name && !lacks) \
		lacks = "nccl" #name;
	NCCL_FUNCTIONS(FIND)
	return lacks ? err_set(e, EX_UNAVAILABLE, "libnccl.so.2 has no %s; wanted NCCL 2.19 or later", lacks) : 0;
}

int ranks_start(char which[COMM_DEVICE_NAME], long timeout, struct err *e)
{
	if (watching || find(e))
		return watching ? 0 : -1;
	cuda_ok(cudaGetDevice(&device), "ranks");
	cuda_ok(cudaDeviceGetPCIBusId(which, COMM_DEVICE_NAME, device), "ranks");
	timeout_s = timeout;
	if (!timeout_s)
		return 0;
	if (pthread_create(&watcher, nullptr, watch, nullptr))
		return err_set(e, EX_OSERR, "no thread to watch over ranks: %s", strerror(errno));
	watching = true;
	return 0;
}

void nccl_ok(int result, void *comm, const char *call)
{
	if (result != NCCL_SUCCESS && result != NCCL_IN_PROGRESS)
		die(EX_UNAVAILABLE, "NCCL: %s: %s: %s", call, nccl.GetErrorString(result), nccl.GetLastError(comm));
}
