#include "tests/emu/inside.h"

#include <atomic>
#include <deque>
#include <map>

#include <stdio.h>
#include <stdlib.h>

/*
 * The runtime's functions that the backend calls, with NVIDIA's declarations.  Streams are queues: what is put into one runs when
 * something waits for it and not before, so that a wait that is missing shows.  Host memory that a copy will write is 0xFF until then.
 * Work that waits for another rank (nccl.cpp) lets the other streams go on, as they do on a device.
 */

struct CUstream_st {
	std::deque<std::function<bool()>> work; /* false: not yet, call it again */
	uint64_t put;
	std::atomic<uint64_t> done;     /* which other threads may ask for */
	bool running;
};

struct CUevent_st {
	cudaStream_t stream;
	uint64_t after;         /* so much of the stream's work */
};

struct piece { size_t bytes; bool device; int readers; };    /* readers: copies under way that will read it */

static auto &memory = *new std::map<char *, struct piece>();
static std::map<const void *, int> most_shared;
static auto &streams = *new std::vector<cudaStream_t>();
static auto &zero = *new CUstream_st();
static cudaError_t last = cudaSuccess;
static size_t used;

static cudaError_t result(cudaError_t e)
{
	if (e != cudaSuccess)
		last = e;
	return e;
}

static size_t capacity(void)
{
	const char *s = getenv("EMU_MEMORY");

	return s ? strtoull(s, nullptr, 0) : (size_t)4 << 30;
}

/* -- streams ------------------------------------------------------------------------------------------------ */

static cudaStream_t stream_of(cudaStream_t s)
{
	return s ? s : &zero;
}

static bool step(cudaStream_t s)
{
	bool done;

	if (s->running || s->work.empty())
		return false;
	s->running = true;
	emu_open();
	done = s->work.front()();
	emu_close();
	s->running = false;
	if (!done)
		return false;
	s->work.pop_front();
	s->done++;
	return true;
}

static bool step_any(void)
{
	bool some = step(&zero);

	for (size_t i = streams.size(); i-- > 0;)
		some |= step(streams[i]);
	return some;
}

void emu_step(void)
{
	step_any();
}

static void run_until(cudaStream_t s, uint64_t n)
{
	while (s->done < n)
		if (!step(s) && !step_any() && !emu_ranks_wait())
			emu_fail("streams that wait for each other");
}

static void run_all(void)
{
	run_until(&zero, zero.put);
	for (size_t i = streams.size(); i-- > 0;)
		run_until(streams[i], streams[i]->put);
}

/* The stream 0 waits for all others, and they for it. */
void emu_enqueue(cudaStream_t s, std::function<bool()> f)
{
	s = stream_of(s);
	if (s == &zero)
		run_all();
	s->work.push_back(std::move(f));
	s->put++;
	if (s == &zero)
		run_all();
}

static void enqueue(cudaStream_t s, std::function<void()> f)
{
	emu_enqueue(s, [f]() {
		f();
		return true;
	});
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned)
{
	*s = new CUstream_st();
	streams.push_back(*s);
	return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t s)
{
	run_until(s, s->put);
	for (size_t i = 0; i < streams.size(); i++)
		if (streams[i] == s)
			streams.erase(streams.begin() + (long)i);
	delete s;
	return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t s)
{
	s = stream_of(s);
	run_until(s, s->put);
	return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void)
{
	run_all();
	return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned)
{
	*e = new CUevent_st();
	return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t e)
{
	delete e;
	return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s)
{
	e->stream = stream_of(s);
	e->after = e->stream->put;
	return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t e)
{
	if (e->stream)
		run_until(e->stream, e->after);
	return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned)
{
	struct CUevent_st then = *e;

	if (then.stream && then.stream != stream_of(s))
		emu_enqueue(s, [then]() {
			while (then.stream->done < then.after)
				if (!step(then.stream))
					return false;
			return true;
		});
	return cudaSuccess;
}

/* Only looks: another thread may ask. */
cudaError_t cudaEventQuery(cudaEvent_t e)
{
	return !e->stream || e->stream->done >= e->after ? cudaSuccess : cudaErrorNotReady;
}

/* Whoever asks again and again must see an end. */
cudaError_t cudaStreamQuery(cudaStream_t s)
{
	s = stream_of(s);
	step_any();
	return s->work.empty() ? cudaSuccess : cudaErrorNotReady;
}

/* -- memory -------------------------------------------------------------------------------------------------- */

/* The block that holds p, or NULL. */
static struct piece *piece_of(const void *p, char **begin)
{
	auto it = memory.upper_bound((char *)p);

	if (it == memory.begin())
		return nullptr;
	--it;
	*begin = it->first;
	return (char *)p < it->first + it->second.bytes ? &it->second : nullptr;
}

static bool holds(const void *p, size_t bytes, bool device)
{
	char *begin;
	const struct piece *o = piece_of(p, &begin);

	return o && o->device == device && (char *)p + bytes <= begin + o->bytes;
}

bool emu_holds(const void *p, size_t bytes)
{
	return holds(p, bytes, true);
}

void emu_check_pointer(const void *p, int argument)
{
	char *begin;

	if (p && !piece_of(p, &begin))
		emu_fail("argument %d of a kernel, %p, is no memory of the device", argument, p);
}

static cudaError_t take(void **p, size_t bytes, bool device)
{
	size_t whole = (bytes + 255) / 256 * 256 + 256;

	*p = nullptr;
	if (device && (bytes > capacity() || used > capacity() - bytes))
		return result(cudaErrorMemoryAllocation);
	*p = device && emu_guards() ? emu_guarded(whole, capacity()) : aligned_alloc(256, whole);
	if (!*p)
		return result(cudaErrorMemoryAllocation);
	emu_open();
	emu_fill(*p, 0xff, whole);
	emu_close();
	san_hide((char *)*p + bytes, whole - bytes);
	memory[(char *)*p] = { bytes ? bytes : 1, device, 0 };
	used += device ? bytes : 0;
	return cudaSuccess;
}

static cudaError_t give(void *p, bool device)
{
	auto it = memory.find((char *)p);

	if (!p)
		return cudaSuccess;
	if (it == memory.end() || it->second.device != device)
		return result(cudaErrorInvalidValue);
	run_all();
	used -= device ? it->second.bytes : 0;
	san_show(p, (it->second.bytes + 255) / 256 * 256 + 256);
	memory.erase(it);
	if (device && emu_guards())
		emu_unguarded(p);
	else
		free(p);
	return cudaSuccess;
}

cudaError_t cudaMalloc(void **p, size_t bytes) { return take(p, bytes, true); }
cudaError_t cudaFree(void *p) { return give(p, true); }
cudaError_t cudaMallocHost(void **p, size_t bytes) { return take(p, bytes, false); }
cudaError_t cudaHostAlloc(void **p, size_t bytes, unsigned) { return take(p, bytes, false); }
cudaError_t cudaFreeHost(void *p) { return give(p, false); }

cudaError_t cudaMemGetInfo(size_t *left, size_t *all)
{
	*all = capacity();
	*left = capacity() > used ? capacity() - used : 0;
	return cudaSuccess;
}

static void check_copy(const void *to, const void *from, size_t bytes, cudaMemcpyKind kind)
{
	bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
	bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;

	if (!bytes)
		return;
	if (to_device && !holds(to, bytes, true))
		emu_fail("a copy of %zu bytes to %p, which is no memory of the device that large", bytes, to);
	if (from_device && !holds(from, bytes, true))
		emu_fail("a copy of %zu bytes from %p, which is no memory of the device that large", bytes, from);
	if ((!to_device && holds(to, 1, true)) || (!from_device && holds(from, 1, true)))
		emu_fail("a copy that takes memory of the device for the host's");
}

static void host_to_device(void *to, const void *from, size_t bytes, cudaStream_t s)
{
	char *begin;
	struct piece *pinned = piece_of(from, &begin);

	if (pinned) {
		pinned->readers++;
		enqueue(s, [=]() {
			emu_move(to, from, bytes);
			pinned->readers--;
		});
	} else {
		/* Read before the call returns. */
		std::vector<char> now((const char *)from, (const char *)from + bytes);

		enqueue(s, [to, now]() { emu_move(to, now.data(), now.size()); });
	}
}

static void device_to_host(void *to, const void *from, size_t bytes, cudaStream_t s)
{
	char *begin;
	struct piece *pinned = piece_of(to, &begin);

	if (!pinned || !pinned->readers)
		emu_fill(to, 0xff, bytes);
	enqueue(s, [=]() { emu_move(to, from, bytes); });
	if (!pinned)
		cudaStreamSynchronize(s);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind, cudaStream_t s)
{
	check_copy(to, from, bytes, kind);
	if (bytes && kind == cudaMemcpyHostToDevice)
		host_to_device(to, from, bytes, s);
	else if (bytes && kind == cudaMemcpyDeviceToHost)
		device_to_host(to, from, bytes, s);
	else if (bytes)
		enqueue(s, [=]() { emu_move(to, from, bytes); });
	return cudaSuccess;
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_row, const void *from, size_t from_row, size_t bytes, size_t rows,
			      cudaMemcpyKind kind, cudaStream_t s)
{
	if (bytes > to_row || bytes > from_row)
		return result(cudaErrorInvalidValue);
	for (size_t r = 0; r < rows; r++)
		cudaMemcpyAsync((char *)to + r * to_row, (const char *)from + r * from_row, bytes, kind, s);
	return cudaSuccess;
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind)
{
	return cudaMemcpyAsync(to, from, bytes, kind, nullptr);
}

cudaError_t cudaMemsetAsync(void *p, int v, size_t bytes, cudaStream_t s)
{
	if (bytes && !holds(p, bytes, true))
		emu_fail("%zu bytes to fill at %p, which is no memory of the device that large", bytes, p);
	enqueue(s, [=]() { emu_fill(p, v, bytes); });
	return cudaSuccess;
}

/* -- launches ------------------------------------------------------------------------------------------------ */

cudaError_t emu_launch(const std::function<void()> &f, const void *kernel, dim3 blocks, dim3 threads, size_t shared, cudaStream_t stream)
{
	size_t most = most_shared.count(kernel) ? (size_t)most_shared[kernel] : (size_t)48 << 10;
	uint64_t n = (uint64_t)threads.x * threads.y * threads.z;

	if (!blocks.x || !blocks.y || !blocks.z || blocks.x > 0x7fffffffu || blocks.y > 65535 || blocks.z > 65535 || !n || n > 1024 ||
	    threads.z > 64 || shared > most)
		return result(cudaErrorInvalidConfiguration);
	enqueue(stream, [=]() { emu_run(f, blocks, threads, shared); });
	return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void *kernel, cudaFuncAttribute what, int value)
{
	if (what != cudaFuncAttributeMaxDynamicSharedMemorySize)
		return cudaSuccess;
	if (value < 0 || value > 227 << 10)
		return result(cudaErrorInvalidValue);
	most_shared[kernel] = value;
	return cudaSuccess;
}

cudaError_t cudaFuncGetName(const char **name, const void *)
{
	*name = "(emulated)";
	return cudaSuccess;
}

/* -- the device ----------------------------------------------------------------------------------------------- */

cudaError_t cudaGetDeviceCount(int *n)
{
	const char *s = getenv("EMU_DEVICES");

	*n = s ? atoi(s) : 1;
	return cudaSuccess;
}

static int current;

cudaError_t cudaSetDevice(int device)
{
	current = device;
	return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device)
{
	*device = current;
	return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char *id, int n, int device)
{
	snprintf(id, (size_t)n, "%04x:%02x:00.0", 0, device);
	return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *v, cudaDeviceAttr what, int)
{
	switch (what) {
	case cudaDevAttrComputeCapabilityMajor: *v = 9; return cudaSuccess;
	case cudaDevAttrComputeCapabilityMinor: *v = 0; return cudaSuccess;
	case cudaDevAttrMultiProcessorCount: *v = 3; return cudaSuccess;
	case cudaDevAttrMaxSharedMemoryPerBlockOptin: *v = 227 << 10; return cudaSuccess;
	default: return result(cudaErrorInvalidValue);
	}
}

cudaError_t cudaGetLastError(void)
{
	cudaError_t e = last;

	last = cudaSuccess;
	return e;
}

const char *cudaGetErrorString(cudaError_t e)
{
	return e == cudaSuccess ? "no error" : e == cudaErrorMemoryAllocation ? "out of memory" :
	       e == cudaErrorInvalidConfiguration ? "invalid configuration argument" : "an error of the emulated runtime";
}
