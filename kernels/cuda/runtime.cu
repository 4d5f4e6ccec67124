#include "kernels/cuda/runtime.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <map>

#include "kernels/cuda/backend.h"
#include "kernels/cuda/ck.h"

cudaStream_t cuda_stream;
int cuda_processors;
int cuda_shared_most;

void cuda_ok(cudaError_t e, const char *what)
{
	if (e != cudaSuccess)
		die(EX_UNAVAILABLE, "cuda: %s: %s", what, cudaGetErrorString(e));
}

void cuda_launched(cudaError_t e, const char *op, const void *kernel)
{
	const char *name = "?";

	if (e == cudaSuccess)
		return;
	if (cudaFuncGetName(&name, kernel) != cudaSuccess)
		name = "?";
	die(EX_UNAVAILABLE, "cuda: %s: kernel %s: %s", op, name, cudaGetErrorString(e));
}

void cuda_wait(const char *op)
{
	cuda_ok(cudaStreamSynchronize(cuda_stream), op);
}

/* A driver that is not there leaves n as it is, and its error may stick. */
int cuda_open(int device, char *arch, size_t size, struct err *e)
{
	int n = 0, major = 0, minor = 0;
	cudaError_t r = cudaGetDeviceCount(&n);

	if (r != cudaSuccess || n < 1)
		return err_set(e, EX_UNAVAILABLE, "no CUDA device: %s", r != cudaSuccess ? cudaGetErrorString(r) : "none is there");
	if (device >= n)
		return err_set(e, EX_UNAVAILABLE, "no CUDA device %d: there are %d", device, n);
	if ((r = cudaSetDevice(device)) != cudaSuccess ||
	    (r = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device)) != cudaSuccess ||
	    (r = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device)) != cudaSuccess ||
	    (r = cudaDeviceGetAttribute(&cuda_processors, cudaDevAttrMultiProcessorCount, device)) != cudaSuccess ||
	    (r = cudaDeviceGetAttribute(&cuda_shared_most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device)) != cudaSuccess)
		return err_set(e, EX_UNAVAILABLE, "CUDA device %d: %s", device, cudaGetErrorString(r));
	if (major < 8)
		return err_set(e, EX_UNAVAILABLE, "CUDA device %d is sm_%d%d, wanted sm_80 or later", device, major, minor);
	snprintf(arch, size, "sm_%d%d", major, minor);
	if (!cuda_stream && (r = cudaStreamCreateWithFlags(&cuda_stream, cudaStreamNonBlocking)) != cudaSuccess)
		return err_set(e, EX_UNAVAILABLE, "CUDA device %d: %s", device, cudaGetErrorString(r));
	return 0;
}

/* -- memory: what is released is kept for the next that asks for nearly as much ---------------------------- */

/* They outlive the program's end, whose handlers may still release memory. */
static auto &taken = *new std::map<void *, size_t>();
static auto &idle = *new std::multimap<size_t, void *>();

static void give_idle_back(void)
{
	cuda_wait("release");
	for (const auto &o : idle)
		cuda_ok(cudaFree(o.second), "release");
	idle.clear();
}

static void *take(size_t bytes, const char *what)
{
	auto o = idle.lower_bound(bytes);
	size_t left = 0, all = 0;
	void *p = nullptr;
	cudaError_t r;

	if (o != idle.end() && o->first - bytes <= bytes / 64 * CK_SLACK) {
		p = o->second;
		taken[p] = o->first;
		idle.erase(o);
		return p;
	}
	r = cudaMalloc(&p, bytes);
	if (r == cudaErrorMemoryAllocation) {
		cudaGetLastError();
		give_idle_back();
		r = cudaMalloc(&p, bytes);
	}
	if (r == cudaErrorMemoryAllocation) {
		cudaMemGetInfo(&left, &all);
		die(EX_UNAVAILABLE, "out of device memory: %zu bytes for %s, and %zu of %zu are free", bytes, what, left, all);
	}
	cuda_ok(r, what);
	taken[p] = bytes;
	return p;
}

void *alloc_cuda(size_t bytes, const char *what)
{
	void *p = take(bytes ? bytes : 1, what);

	cuda_ok(cudaMemsetAsync(p, 0, bytes, cuda_stream), what);
	return p;
}

/* Work under way may still use it; whoever gets it next comes after that in the stream. */
void release_cuda(void *p)
{
	auto o = taken.find(p);

	if (!p)
		return;
	if (o == taken.end())
		bug("release of memory that was not allocated");
	idle.emplace(o->second, p);
	taken.erase(o);
}

struct scratch { void *p; size_t bytes; };

void *cuda_scratch(enum cuda_scratch_slot slot, size_t bytes)
{
	static struct scratch all[CUDA_SCRATCHES];
	struct scratch *s = &all[slot];

	if (s->bytes >= bytes && s->p)
		return s->p;
	release_cuda(s->p);
	s->bytes = bytes + bytes / 4;
	s->p = take(s->bytes ? s->bytes : 1, "scratch");
	return s->p;
}

/* -- to and from the host --------------------------------------------------------------------------------- */

struct staged {
	char *pinned, *device;
	size_t bytes;
	cudaEvent_t used;       /* all that could read it has run */
	bool marked;
};

/* A ring: an upload's memory is marked as used by what was launched until half a round later, and taken again after a round. */
static struct staged ring[2 * CUDA_UPLOADS];

static void *pinned(size_t bytes)
{
	void *p = nullptr;

	cuda_ok(cudaMallocHost(&p, bytes), "pinned memory");
	return p;
}

static void staged_grow(struct staged *s, size_t bytes)
{
	if (s->pinned)
		cuda_ok(cudaFreeHost(s->pinned), "pinned memory");
	release_cuda(s->device);
	s->bytes = bytes < 4096 ? 4096 : bytes + bytes / 2;
	s->pinned = (char *)pinned(s->bytes);
	s->device = (char *)take(s->bytes, "arguments");
	if (!s->used)
		cuda_ok(cudaEventCreateWithFlags(&s->used, cudaEventDisableTiming), "upload");
}

const void *cuda_upload(const void *host, size_t bytes)
{
	static unsigned long at;
	struct staged *s = &ring[at % (2 * CUDA_UPLOADS)], *half = &ring[(at + CUDA_UPLOADS) % (2 * CUDA_UPLOADS)];

	at++;
	if (half->used) {
		cuda_ok(cudaEventRecord(half->used, cuda_stream), "upload");
		half->marked = true;
	}
	if (s->marked)
		cuda_ok(cudaEventSynchronize(s->used), "upload");
	s->marked = false;
	if (s->bytes < bytes || !s->pinned)
		staged_grow(s, bytes);
	if (bytes)
		memcpy(s->pinned, host, bytes);
	cuda_ok(cudaMemcpyAsync(s->device, s->pinned, bytes, cudaMemcpyHostToDevice, cuda_stream), "upload");
	return s->device;
}

static const size_t BUFFER = 4 << 20;

/* Two buffers: one is filled or emptied while the other is on its way. */
static struct { char *p; cudaEvent_t moved; } buffer[2];

static void buffers_init(void)
{
	for (int i = 0; i < 2 && !buffer[i].p; i++) {
		buffer[i].p = (char *)pinned(BUFFER);
		cuda_ok(cudaEventCreateWithFlags(&buffer[i].moved, cudaEventDisableTiming), "pinned memory");
	}
}

void put_cuda(void *dev, const void *host, size_t bytes)
{
	static unsigned turn;

	buffers_init();
	for (size_t at = 0, n; at < bytes; at += n, turn++) {
		auto *b = &buffer[turn % 2];

		n = bytes - at < BUFFER ? bytes - at : BUFFER;
		cuda_ok(cudaEventSynchronize(b->moved), "put");
		memcpy(b->p, (const char *)host + at, n);
		cuda_ok(cudaMemcpyAsync((char *)dev + at, b->p, n, cudaMemcpyHostToDevice, cuda_stream), "put");
		cuda_ok(cudaEventRecord(b->moved, cuda_stream), "put");
	}
}

static void fetch(int i, const void *dev, size_t n, const char *op)
{
	cuda_ok(cudaMemcpyAsync(buffer[i].p, dev, n, cudaMemcpyDeviceToHost, cuda_stream), op);
	cuda_ok(cudaEventRecord(buffer[i].moved, cuda_stream), op);
}

void cuda_download(void *host, const void *device, size_t bytes, const char *op)
{
	size_t pieces = (bytes + BUFFER - 1) / BUFFER;

	buffers_init();
	for (size_t i = 0; i <= pieces; i++) {
		size_t done = (i - 1) * BUFFER, at = i * BUFFER;

		/* A buffer that put_cuda() has filled goes out before, in the stream's order. */
		if (i < pieces)
			fetch((int)(i % 2), (const char *)device + at, bytes - at < BUFFER ? bytes - at : BUFFER, op);
		if (!i)
			continue;
		cuda_ok(cudaEventSynchronize(buffer[(i - 1) % 2].moved), op);
		memcpy((char *)host + done, buffer[(i - 1) % 2].p, bytes - done < BUFFER ? bytes - done : BUFFER);
	}
}

void get_cuda(void *host, const void *dev, size_t bytes)
{
	cuda_download(host, dev, bytes, "get");
}

void copy_cuda(void *to, const void *from, size_t bytes)
{
	cuda_ok(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, cuda_stream), "copy");
}

void columns_copy_cuda(void *to, size_t to_row, const void *from, size_t from_row, size_t bytes, long rows)
{
	if (bytes && rows)
		cuda_ok(cudaMemcpy2DAsync(to, to_row, from, from_row, bytes, (size_t)rows, cudaMemcpyDeviceToDevice, cuda_stream),
			"columns_copy");
}

/* What is idle counts: take() gives it back before it says that there is no room. */
size_t room_cuda(void)
{
	size_t left = 0, all = 0;

	cuda_ok(cudaMemGetInfo(&left, &all), "room");
	for (const auto &o : idle)
		left += o.first;
	return left;
}

void zero_cuda(void *p, size_t bytes)
{
	cuda_ok(cudaMemsetAsync(p, 0, bytes, cuda_stream), "zero");
}
