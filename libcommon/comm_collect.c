#include "libcommon/comm_ops.h"

#include <stdlib.h>
#include <string.h>

#include "libcommon/pool.h"
#include "libcommon/xalloc.h"

/*
 * Sums: every rank gets a part of the array from all others, adds them in ascending order of ranks,
 * and all gather the parts.  An array of at most WHOLE_BYTES goes to everybody whole, which takes one
 * step instead of two; each element is added in the same order either way.  Longer arrays than
 * BLOCK_BYTES go block by block, which bounds the scratch space.
 */
enum { WHOLE_BYTES = 4 << 10, BLOCK_BYTES = 16 << 20, SLICE = 32 << 10 };

static bool alone(const struct comm *c)
{
	if (c->ops)
		return false;
	if (c->size != 1)
		bug("group %s: %d ranks without a library", c->name ? c->name : "?", c->size);
	return true;
}

static int peer(const struct comm *c, int step)
{
	return (c->rank + step + c->size) % c->size;
}

/* Bytes come and go in order of ranks: at[i] is where rank i's begin, bytes[i] how many they are. */
struct parts { char *p; const size_t *at, *bytes; };

/* Each rank starts with its neighbour, so that no rank is everybody's first. */
static void post_exchange(struct comm_transfer *t, struct comm *c, const struct parts *in,
			  const struct parts *out)
{
	for (int i = 1; i < c->size; i++) {
		int from = peer(c, -i);

		comm_post_recv(t, c, in->p + in->at[from], in->bytes[from], from);
	}
	for (int i = 1; i < c->size; i++) {
		int to = peer(c, i);

		comm_post_send(t, c, out->p + out->at[to], out->bytes[to], to);
	}
	if (in->bytes[c->rank] != out->bytes[c->rank])
		bug("group %s: %s: %zu bytes from a rank to itself, %zu wanted", c->name, t->call,
		    out->bytes[c->rank], in->bytes[c->rank]);
	if (out->bytes[c->rank])
		memmove(in->p + in->at[c->rank], out->p + out->at[c->rank], out->bytes[c->rank]);
}

static size_t *sizes(const struct comm *c)
{
	return xcalloc((size_t)c->size, sizeof(size_t));
}

static size_t *starts(const struct comm *c, const size_t *bytes)
{
	size_t *at = sizes(c), sum = 0;

	for (int i = 0; i < c->size; i++) {
		at[i] = sum;
		sum += bytes[i];
	}
	return at;
}

static size_t total(const struct comm *c, const size_t *bytes)
{
	size_t sum = 0;

	for (int i = 0; i < c->size; i++)
		sum += bytes[i];
	return sum;
}

static void fill(size_t *a, int n, size_t v)
{
	for (int i = 0; i < n; i++)
		a[i] = v;
}

void comm_barrier(struct comm *c)
{
	struct comm_transfer t;
	char in, out = 0;

	if (alone(c))
		return;
	comm_begin(&t, c, "barrier", 0);
	for (int step = 1; step < c->size; step *= 2) {
		comm_post_recv(&t, c, &in, 1, peer(c, -(step % c->size)));
		comm_post_send(&t, c, &out, 1, peer(c, step));
		comm_finish(&t, c);
	}
}

/* A binomial tree: whoever has the bytes passes them on to the rank `step` further. */
void comm_broadcast(struct comm *c, void *p, size_t bytes, int root)
{
	struct comm_transfer t;
	int step = 1;

	if (root < 0 || root >= c->size)
		bug("root %d of %d ranks", root, c->size);
	if (alone(c))
		return;
	comm_begin(&t, c, "broadcast", bytes);

	int own = (c->rank - root + c->size) % c->size;
	for (; step < c->size && !(own & step); step *= 2)
		;
	if (own) {
		comm_post_recv(&t, c, p, bytes, peer(c, -step));
		comm_finish(&t, c);
	}
	for (step /= 2; step; step /= 2)
		if (own + step < c->size)
			comm_post_send(&t, c, p, bytes, peer(c, step));
	comm_finish(&t, c);
}

static void gather(struct comm *c, const char *call, void *all, const void *mine, const size_t *bytes)
{
	struct comm_transfer t;
	size_t *at = starts(c, bytes), *same = sizes(c), *zero = sizes(c);

	fill(same, c->size, bytes[c->rank]);
	comm_begin(&t, c, call, total(c, bytes));
	post_exchange(&t, c, &(struct parts){ all, at, bytes },
		      &(struct parts){ (char *)mine, zero, same });
	comm_finish(&t, c);
	free(at);
	free(same);
	free(zero);
}

void comm_gather_v(struct comm *c, void *all, const void *mine, const size_t *bytes)
{
	if (!alone(c))
		gather(c, "gather_v", all, mine, bytes);
	else if (*bytes)
		memmove(all, mine, *bytes);
}

void comm_gather(struct comm *c, void *all, const void *mine, size_t bytes)
{
	if (alone(c)) {
		if (bytes)
			memmove(all, mine, bytes);
		return;
	}

	size_t *each = sizes(c);
	fill(each, c->size, bytes);
	gather(c, "gather", all, mine, each);
	free(each);
}

void comm_all_to_all(struct comm *c, void *recv, const size_t *recv_bytes, const void *send,
		     const size_t *send_bytes)
{
	struct comm_transfer t;

	if (alone(c)) {
		if (*recv_bytes != *send_bytes)
			bug("%zu bytes from a rank to itself, %zu wanted", *send_bytes, *recv_bytes);
		if (*send_bytes)
			memmove(recv, send, *send_bytes);
		return;
	}

	size_t *in = starts(c, recv_bytes), *out = starts(c, send_bytes);
	comm_begin(&t, c, "all_to_all", total(c, recv_bytes));
	post_exchange(&t, c, &(struct parts){ recv, in, recv_bytes },
		      &(struct parts){ (char *)send, out, send_bytes });
	comm_finish(&t, c);
	free(in);
	free(out);
}

/* acc[i] = acc[i] + x[i], or the larger: rank by rank in ascending order. */
typedef void join_fn(void *acc, const void *x, size_t n);

static void add_f32(void *acc, const void *x, size_t n)
{
	float *a = acc;
	const float *b = x;

	for (size_t i = 0; i < n; i++)
		a[i] = a[i] + b[i];
}

static void add_f64(void *acc, const void *x, size_t n)
{
	double *a = acc;
	const double *b = x;

	for (size_t i = 0; i < n; i++)
		a[i] = a[i] + b[i];
}

/* NaN is passed on: something that is not a number must not vanish. */
static void max_f32(void *acc, const void *x, size_t n)
{
	float *a = acc;
	const float *b = x;

	for (size_t i = 0; i < n; i++)
		a[i] = b[i] > a[i] || b[i] != b[i] ? b[i] : a[i];
}

struct join {
	char *out, *parts;
	size_t each, width;
	int ranks;
	join_fn *f;
};

/* Threads share the elements; the ranks of each come in order. */
static void join_slice(void *arg, long slice, int thread)
{
	const struct join *j = arg;
	size_t at = (size_t)slice * SLICE, n = j->each - at < SLICE ? j->each - at : SLICE;

	(void)thread;
	for (int i = 1; i < j->ranks; i++)
		j->f(j->parts + at * j->width, j->parts + ((size_t)i * j->each + at) * j->width, n);
	memcpy(j->out + at * j->width, j->parts + at * j->width, n * j->width);
}

/* out[each] from parts[ranks][each], which is scratch. */
static void join(void *out, char *parts, size_t each, const struct comm *c, join_fn *f, size_t width)
{
	struct join j = { out, parts, each, width, c->size, f };

	pool_run(join_slice, &j, (long)((each + SLICE - 1) / SLICE));
}

static void join_whole(struct comm *c, const char *call, void *x, char *all, size_t n, join_fn *f, size_t width)
{
	size_t *bytes = sizes(c);

	fill(bytes, c->size, n * width);
	gather(c, call, all, x, bytes);
	join(x, all, n, c, f, width);
	free(bytes);
}

/* Rank i's part of n things: they differ by one at most. */
static size_t cut(size_t n, int i, int size)
{
	return n / (size_t)size * (size_t)i + ((size_t)i < n % (size_t)size ? (size_t)i : n % (size_t)size);
}

static void join_parts(struct comm *c, const char *call, char *x, char *scratch, size_t n, join_fn *f, size_t width)
{
	struct comm_transfer t;
	size_t *bytes = sizes(c), *same = sizes(c);
	size_t own = cut(n, c->rank + 1, c->size) - cut(n, c->rank, c->size);

	for (int i = 0; i < c->size; i++)
		bytes[i] = (cut(n, i + 1, c->size) - cut(n, i, c->size)) * width;
	fill(same, c->size, own * width);
	size_t *at = starts(c, bytes), *in = starts(c, same);

	comm_begin(&t, c, call, n * width);
	post_exchange(&t, c, &(struct parts){ scratch, in, same }, &(struct parts){ x, at, bytes });
	comm_finish(&t, c);
	join(x + at[c->rank], scratch, own, c, f, width);
	fill(in, c->size, at[c->rank]);
	post_exchange(&t, c, &(struct parts){ x, at, bytes }, &(struct parts){ x, in, same });
	comm_finish(&t, c);
	free(bytes);
	free(same);
	free(at);
	free(in);
}

static void join_all(struct comm *c, const char *call, void *x, size_t n, join_fn *f, size_t width)
{
	size_t block = BLOCK_BYTES / width, most = n < block ? n : block;
	bool whole = n * width <= WHOLE_BYTES;

	if (alone(c) || !n)
		return;

	/* Of each part one more than n / size at most. */
	char *scratch = xmalloc((whole ? n * (size_t)c->size : most + (size_t)c->size) * width);
	if (whole)
		join_whole(c, call, x, scratch, n, f, width);
	else
		for (size_t at = 0; at < n; at += block)
			join_parts(c, call, (char *)x + at * width, scratch, n - at < block ? n - at : block, f, width);
	free(scratch);
}

void comm_sum_f32(struct comm *c, float *x, size_t n)
{
	join_all(c, "sum_f32", x, n, add_f32, sizeof(*x));
}

void comm_sum_f64(struct comm *c, double *x, size_t n)
{
	join_all(c, "sum_f64", x, n, add_f64, sizeof(*x));
}

void comm_max_f32(struct comm *c, float *x, size_t n)
{
	join_all(c, "max_f32", x, n, max_f32, sizeof(*x));
}

static void post_scatter_sum(struct comm_transfer *t, struct comm *c, float *out, const float *in, const size_t *count)
{
	size_t *bytes = sizes(c), *same = sizes(c), own = count[c->rank];

	for (int i = 0; i < c->size; i++)
		bytes[i] = count[i] * sizeof(*in);
	fill(same, c->size, own * sizeof(*in));
	size_t *at = starts(c, bytes), *from = starts(c, same);

	comm_begin(t, c, "scatter_sum_f32", total(c, bytes));
	t->sum = out;
	t->count = own;
	t->parts = xmalloc((own * (size_t)c->size + 1) * sizeof(*t->parts));
	post_exchange(t, c, &(struct parts){ (char *)t->parts, from, same }, &(struct parts){ (char *)in, at, bytes });
	free(bytes);
	free(same);
	free(at);
	free(from);
}

void comm_add_parts(struct comm_transfer *t, const struct comm *c)
{
	if (!t->parts)
		return;
	join(t->sum, (char *)t->parts, t->count, c, add_f32, sizeof(*t->sum));
	free(t->parts);
	t->parts = NULL;
}

void comm_scatter_sum_f32(struct comm *c, float *out, const float *in, const size_t *count)
{
	struct comm_transfer t;

	if (alone(c)) {
		if (*count)
			memmove(out, in, *count * sizeof(*out));
		return;
	}
	post_scatter_sum(&t, c, out, in, count);
	comm_finish(&t, c);
	comm_add_parts(&t, c);
}

void comm_scatter_sum_start(struct comm *c, struct comm_request *q, float *out, const float *in, const size_t *count)
{
	struct comm_transfer *t;

	q->impl = NULL;
	if (alone(c)) {
		comm_scatter_sum_f32(c, out, in, count);
		return;
	}
	t = xmalloc(sizeof(*t));
	post_scatter_sum(t, c, out, in, count);
	comm_in_flight(t, c);
	q->impl = t;
}

static void message_rank(const struct comm *c, int other)
{
	if (alone(c) || other == c->rank)
		bug("group %s: a message from rank %d to itself", c->name ? c->name : "?", c->rank);
}

void comm_send(struct comm *c, struct comm_request *q, const void *p, size_t bytes, int to)
{
	struct comm_transfer *t = xmalloc(sizeof(*t));

	message_rank(c, to);
	comm_begin_message(t, c, "send", bytes);
	comm_post_send(t, c, p, bytes, to);
	comm_in_flight(t, c);
	q->impl = t;
}

void comm_recv(struct comm *c, struct comm_request *q, void *p, size_t bytes, int from)
{
	struct comm_transfer *t = xmalloc(sizeof(*t));

	message_rank(c, from);
	comm_begin_message(t, c, "recv", bytes);
	comm_post_recv(t, c, p, bytes, from);
	comm_in_flight(t, c);
	q->impl = t;
}

void comm_wait(struct comm *c, struct comm_request *q)
{
	struct comm_transfer *t = q->impl;

	q->impl = NULL;
	if (!t)
		return;
	comm_landed(t);
	comm_finish(t, c);
	comm_add_parts(t, c);
	free(t);
}
