#include "kernels/cuda/ranks.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/device.h"

/*
 * The device's memory between ranks.  Most calls are put into the kernels' stream.  Two kinds are not: sums of gradients, which
 * have a stream of their own so that they run beside the backward pass, and messages, where each direction between two ranks has one, so that
 * nobody's kernels wait until somebody else takes a message.  Those streams wait for the kernels launched before (enter), and
 * kernels launched after comm_dev_wait() for them.
 *
 * NCCL runs the calls of one communicator in the order in which the host makes them, whatever their streams.  Communicators may run
 * beside each other; all ranks make their calls in the same order.
 *
 * Sums: as comm_collect.c, every rank gets a part of the array from all others, adds them in ascending order of ranks, and
 * all gather the parts.  An array of at most whole_bytes goes to everybody whole.  Longer ones go by blocks, which bounds the scratch
 * space.
 */
static size_t whole_bytes = 32 << 10, block_bytes = 64 << 20;

struct lane {
	cudaStream_t stream;
	float *scratch;
	size_t bytes;
};

struct group {
	void *comm;
	int rank, size;
	const char *name;
	unsigned long calls;
	struct lane own;        /* of messages; no scratch */
};

struct request { cudaEvent_t done; };

/* Bytes come and go in order of ranks. */
struct parts { char *p; const size_t *bytes; };

static struct lane kernels, beside;

/* -- streams ------------------------------------------------------------------------------------------------ */

static cudaStream_t stream_new(void)
{
	cudaStream_t s;

	cuda_ok(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking), "a stream between ranks");
	return s;
}

static struct lane *kernel_lane(void)
{
	kernels.stream = cuda_stream;
	return &kernels;
}

static struct lane *beside_lane(void)
{
	if (!beside.stream)
		beside.stream = stream_new();
	return &beside;
}

/* What was launched before comes first. */
static void enter(const struct lane *l)
{
	cudaEvent_t before;

	if (l->stream == cuda_stream)
		return;
	before = ranks_event();
	cuda_ok(cudaEventRecord(before, cuda_stream), "ranks");
	cuda_ok(cudaStreamWaitEvent(l->stream, before, 0), "ranks");
	ranks_event_free(before);
}

static void *leave(const struct lane *l)
{
	struct request *q = (struct request *)malloc(sizeof(*q));

	if (!q)
		die(EX_OSERR, "out of memory");
	q->done = ranks_event();
	cuda_ok(cudaEventRecord(q->done, l->stream), "ranks");
	return q;
}

static void wait(void *request)
{
	struct request *q = (struct request *)request;

	cuda_ok(cudaStreamWaitEvent(cuda_stream, q->done, 0), "ranks");
	ranks_event_free(q->done);
	free(q);
}

/* A lane's scratch space is used by one call after the other. */
static float *scratch(struct lane *l, size_t bytes)
{
	if (l->bytes >= bytes && l->scratch)
		return l->scratch;
	if (l->stream != cuda_stream)
		cuda_ok(cudaStreamSynchronize(l->stream), "ranks");
	release_cuda(l->scratch);
	l->bytes = bytes + bytes / 4;
	l->scratch = (float *)alloc_cuda(l->bytes, "sums over ranks");
	enter(l);
	return l->scratch;
}

static void poll(void)
{
	cudaError_t e = cuda_stream ? cudaStreamQuery(cuda_stream) : cudaSuccess;

	if (e != cudaSuccess && e != cudaErrorNotReady)
		cuda_ok(e, "ranks");
}

static void drain(void)
{
	cuda_ok(cudaDeviceSynchronize(), "the end");
}

/* -- moving -------------------------------------------------------------------------------------------------- */

static size_t total(const struct group *g, const size_t *bytes)
{
	size_t sum = 0;

	for (int i = 0; i < g->size; i++)
		sum += bytes[i];
	return sum;
}

static void begin(struct group *g, const struct lane *l, const char *call, size_t bytes)
{
	const struct ranks_call c = { g->name, call, g->rank, g->size, ++g->calls, bytes };

	ranks_watch_begin(&c, l->stream);
}

static void end(const struct lane *l)
{
	ranks_watch_end(l->stream);
}

static void copy(void *to, const void *from, size_t bytes, cudaStream_t s)
{
	if (bytes && to != from)
		cuda_ok(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, s), "ranks");
}

/* Rank i's part of `out` goes to it, from rank i comes part i of `in`; each starts with its neighbour.  own: also to itself. */
static void exchange(const struct group *g, const struct lane *l, const struct parts *in, const struct parts *out, bool own)
{
	size_t in_at = 0, out_at = 0;

	nccl_ok(nccl.GroupStart(), g->comm, "GroupStart");
	for (int i = 0; i < g->size; i++) {
		if (i != g->rank && in->bytes[i])
			nccl_ok(nccl.Recv(in->p + in_at, in->bytes[i], NCCL_BYTES, i, g->comm, l->stream), g->comm, "Recv");
		if (i != g->rank && out->bytes[i])
			nccl_ok(nccl.Send(out->p + out_at, out->bytes[i], NCCL_BYTES, i, g->comm, l->stream), g->comm, "Send");
		in_at += in->bytes[i];
		out_at += out->bytes[i];
	}
	nccl_ok(nccl.GroupEnd(), g->comm, "GroupEnd");
	if (!own)
		return;
	in_at = out_at = 0;
	for (int i = 0; i < g->rank; i++) {
		in_at += in->bytes[i];
		out_at += out->bytes[i];
	}
	if (in->bytes[g->rank] != out->bytes[g->rank])
		bug("group %s: %zu bytes from a rank to itself, %zu wanted", g->name, out->bytes[g->rank], in->bytes[g->rank]);
	copy(in->p + in_at, out->p + out_at, in->bytes[g->rank], l->stream);
}

/* Small arrays of sizes, one for each rank, that last as long as the call. */
struct sizes {
	size_t *v;
	sizes(const struct group *g, size_t each) : v((size_t *)malloc((size_t)g->size * sizeof(size_t)))
	{
		if (!v)
			die(EX_OSERR, "out of memory");
		for (int i = 0; i < g->size; i++)
			v[i] = each;
	}
	~sizes() { free(v); }
	sizes(const sizes &) = delete;
};

static void gather(const struct group *g, const struct lane *l, char *all, const char *mine, const size_t *bytes)
{
	bool even = bytes[0] > 0;
	size_t at = 0;

	for (int i = 0; i < g->size; i++)
		even = even && bytes[i] == bytes[0];
	if (even) {
		nccl_ok(nccl.AllGather(mine, all, bytes[0], NCCL_BYTES, g->comm, l->stream), g->comm, "AllGather");
		return;
	}
	nccl_ok(nccl.GroupStart(), g->comm, "GroupStart");
	for (int i = 0; i < g->size; at += bytes[i++]) {
		if (i != g->rank && bytes[i])
			nccl_ok(nccl.Recv(all + at, bytes[i], NCCL_BYTES, i, g->comm, l->stream), g->comm, "Recv");
		if (i != g->rank && bytes[g->rank])
			nccl_ok(nccl.Send(mine, bytes[g->rank], NCCL_BYTES, i, g->comm, l->stream), g->comm, "Send");
		if (i == g->rank)
			copy(all + at, mine, bytes[i], l->stream);
	}
	nccl_ok(nccl.GroupEnd(), g->comm, "GroupEnd");
}

static void broadcast(void *group, void *p, size_t bytes, int root)
{
	struct group *g = (struct group *)group;
	struct lane *l = kernel_lane();

	begin(g, l, "broadcast", bytes);
	if (bytes)
		nccl_ok(nccl.Broadcast(p, p, bytes, NCCL_BYTES, root, g->comm, l->stream), g->comm, "Broadcast");
	end(l);
}

static void gather_v(void *group, void *all, const void *mine, const size_t *bytes)
{
	struct group *g = (struct group *)group;
	struct lane *l = kernel_lane();

	begin(g, l, "gather_v", total(g, bytes));
	gather(g, l, (char *)all, (const char *)mine, bytes);
	end(l);
}

static void all_to_all(void *group, void *recv, const size_t *recv_bytes, const void *send, const size_t *send_bytes)
{
	struct group *g = (struct group *)group;
	struct lane *l = kernel_lane();
	const struct parts in = { (char *)recv, recv_bytes }, out = { (char *)send, send_bytes };

	begin(g, l, "all_to_all", total(g, recv_bytes));
	exchange(g, l, &in, &out, true);
	end(l);
}

static void *message(struct group *g, const char *call, void *p, size_t bytes)
{
	struct lane *l = &g->own;

	if (!l->stream)
		l->stream = stream_new();
	enter(l);
	begin(g, l, call, bytes);
	if (bytes && !g->rank)
		nccl_ok(nccl.Send(p, bytes, NCCL_BYTES, 1, g->comm, l->stream), g->comm, "Send");
	else if (bytes)
		nccl_ok(nccl.Recv(p, bytes, NCCL_BYTES, 0, g->comm, l->stream), g->comm, "Recv");
	end(l);
	return leave(l);
}

static void *send(void *group, const void *p, size_t bytes)
{
	return message((struct group *)group, "send", (void *)p, bytes);
}

static void *recv(void *group, void *p, size_t bytes)
{
	return message((struct group *)group, "recv", p, bytes);
}

/* -- adding -------------------------------------------------------------------------------------------------- */

struct addends {
	const float *mine, *parts;      /* parts[rank][each]; this rank's place is not used */
	long each;
	int rank, ranks;
};

DEVICE float4 four_of(const struct addends &a, int rank, long i)
{
	return *(const float4 *)((rank == a.rank ? a.mine : a.parts + rank * a.each) + i);
}

DEVICE float one_of(const struct addends &a, int rank, long i)
{
	return (rank == a.rank ? a.mine : a.parts + rank * a.each)[i];
}

/*
 * out[i] = ((r0 + r1) + r2) + ...; out may be `mine`.  4 (ranks + 1) bytes an element, ranks - 1 additions: 8 ranks and 8 Mi elements
 * a rank, which is a layer of 64 Mi parameters, move 302 MB, 70 us at 4.3 TB/s.  16 bytes a thread and rank, all ranks' loads
 * under way at once but for the order of the additions; the links, at 450 GB/s, take longer for the same elements by a factor of 8.
 */
__global__ void add_ranks(float *out, const struct addends a, long n, bool wide)
{
	long i = ((long)blockIdx.x * blockDim.x + threadIdx.x) * 4;

	if (wide && i + 4 <= n) {
		float4 sum = four_of(a, 0, i);

		for (int r = 1; r < a.ranks; r++) {
			float4 x = four_of(a, r, i);

			sum = make_float4(sum.x + x.x, sum.y + x.y, sum.z + x.z, sum.w + x.w);
		}
		*(float4 *)(out + i) = sum;
		return;
	}
	for (long end = i + 4 < n ? i + 4 : n; i < end; i++) {
		float sum = one_of(a, 0, i);

		for (int r = 1; r < a.ranks; r++)
			sum += one_of(a, r, i);
		out[i] = sum;
	}
}

static void add(const struct group *g, const struct lane *l, float *out, const float *mine, const float *parts, size_t each, size_t n)
{
	const struct addends a = { mine, parts, (long)each, g->rank, g->size };
	bool wide = is_wide(out) && is_wide(mine) && is_wide(parts) && each % 4 == 0;

	if (n)
		cuda_launched(ck_start(add_ranks, dim3(ck_blocks((long)n, 4 * 256)), dim3(256), 0, l->stream, out, a, (long)n, wide),
			      "sums over ranks", (const void *)add_ranks);
}

/* Rank i's part of n elements: all but the last have the same. */
static size_t even_part(size_t n, int i, int size)
{
	size_t each = ((n + (size_t)size - 1) / (size_t)size + 3) / 4 * 4, at = each * (size_t)i;

	return at >= n ? 0 : n - at < each ? n - at : each;
}

static void sum_block(const struct group *g, const struct lane *l, float *x, float *room, size_t n)
{
	size_t own = even_part(n, g->rank, g->size), each = even_part(n, 0, g->size), at = each * (size_t)g->rank;
	struct sizes bytes(g, 0), same(g, own * sizeof(float)), apart(g, each * sizeof(float));

	at = at < n ? at : n;
	for (int i = 0; i < g->size; i++)
		bytes.v[i] = even_part(n, i, g->size) * sizeof(float);
	const struct parts in = { (char *)room, same.v }, out = { (char *)x, bytes.v };

	exchange(g, l, &in, &out, false);
	add(g, l, x + at, x + at, room, own, own);
	gather(g, l, (char *)x, (char *)(x + at), bytes.v);
}

static void sum_f32(void *group, float *x, size_t n)
{
	struct group *g = (struct group *)group;
	struct lane *l = kernel_lane();
	size_t block = block_bytes / sizeof(*x) / 4 * 4 + 4, padded = (n + 3) / 4 * 4;

	begin(g, l, "sum_f32", n * sizeof(*x));
	if (n && n * sizeof(*x) <= whole_bytes) {
		float *room = scratch(l, padded * (size_t)g->size * sizeof(*x));
		struct sizes bytes(g, n * sizeof(*x));

		gather(g, l, (char *)room, (char *)x, bytes.v);
		add(g, l, x, x, room, n, n);
	} else if (n) {
		float *room = scratch(l, ((n < block ? n : block) + 4 * (size_t)(g->size + 1) * (size_t)g->size) * sizeof(*x));

		for (size_t at = 0; at < n; at += block)
			sum_block(g, l, x + at, room, n - at < block ? n - at : block);
	}
	end(l);
}

/* Elements at .. at + block - 1 of every rank's part. */
static void scatter_block(const struct group *g, const struct lane *l, float *out, const float *in, const size_t *count, size_t at,
			  size_t block, float *room)
{
	const float *mine = in;
	size_t own = 0;

	nccl_ok(nccl.GroupStart(), g->comm, "GroupStart");
	for (int i = 0; i < g->size; i++) {
		size_t n = count[i] <= at ? 0 : count[i] - at < block ? count[i] - at : block;

		if (i == g->rank) {
			mine = in + at;
			own = n;
		} else if (n) {
			nccl_ok(nccl.Send(in + at, n * sizeof(*in), NCCL_BYTES, i, g->comm, l->stream), g->comm, "Send");
		}
		in += count[i];
	}
	for (int i = 0; i < g->size; i++)
		if (i != g->rank && own)
			nccl_ok(nccl.Recv(room + (size_t)i * block, own * sizeof(*in), NCCL_BYTES, i, g->comm, l->stream), g->comm, "Recv");
	nccl_ok(nccl.GroupEnd(), g->comm, "GroupEnd");
	add(g, l, out + at, mine, room, block, own);
}

static void *scatter_sum_f32(void *group, float *out, const float *in, const size_t *count, bool aside)
{
	struct group *g = (struct group *)group;
	struct lane *l = aside ? beside_lane() : kernel_lane();
	size_t block = block_bytes / sizeof(*in) / (size_t)g->size / 4 * 4 + 4, most = 0;

	for (int i = 0; i < g->size; i++)
		most = count[i] > most ? count[i] : most;
	enter(l);
	begin(g, l, "scatter_sum_f32", total(g, count) * sizeof(*in));
	if (block > most)
		block = (most + 3) / 4 * 4;
	if (most) {
		float *room = scratch(l, block * (size_t)g->size * sizeof(*in));

		for (size_t at = 0; at < most; at += block)
			scatter_block(g, l, out, in, count, at, block, room);
	}
	end(l);
	return aside ? leave(l) : nullptr;
}

/* -- groups --------------------------------------------------------------------------------------------------- */

static void *join(const char id[COMM_ID], int rank, int size, const char *name)
{
	struct group *g = (struct group *)calloc(1, sizeof(*g));
	struct nccl_id n;

	if (!g)
		die(EX_OSERR, "out of memory");
	static_assert(sizeof(n) == COMM_ID, "an id of NCCL");
	memcpy(&n, id, sizeof(n));
	g->rank = rank, g->size = size, g->name = name;
	nccl_ok(nccl.CommInitRank(&g->comm, size, n, rank), nullptr, "CommInitRank");
	ranks_watch_group(g->comm, name, true);
	return g;
}

static void part(void *group)
{
	struct group *g = (struct group *)group;

	cuda_wait("leaving a group of ranks");
	if (g->own.stream)
		cuda_ok(cudaStreamSynchronize(g->own.stream), "leaving a group of ranks");
	if (beside.stream)
		cuda_ok(cudaStreamSynchronize(beside.stream), "leaving a group of ranks");
	ranks_watch_group(g->comm, g->name, false);
	nccl_ok(nccl.CommDestroy(g->comm), nullptr, "CommDestroy");
	if (g->own.stream)
		cuda_ok(cudaStreamDestroy(g->own.stream), "leaving a group of ranks");
	free(g);
}

static void new_id(char id[COMM_ID])
{
	struct nccl_id n;

	nccl_ok(nccl.GetUniqueId(&n), nullptr, "GetUniqueId");
	memcpy(id, &n, sizeof(n));
}

static void copy_here(void *to, const void *from, size_t bytes)
{
	copy(to, from, bytes, cuda_stream);
}

/* Tests make the blocks small. */
static int start(char which[COMM_DEVICE_NAME], long timeout, struct err *e)
{
	const char *piece = getenv("CAIRN_TEST_PIECE");

	if (piece)
		whole_bytes = block_bytes = strtoul(piece, nullptr, 10);
	return ranks_start(which, timeout, e);
}

const struct comm_device cuda_ranks = {
	start, new_id, join, part, copy_here, broadcast, gather_v, all_to_all, sum_f32, scatter_sum_f32, send, recv, wait, poll, drain,
};
