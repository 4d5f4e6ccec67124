#include "kernels/cpu/rows.h"

#include "kernels/ops.h"
#include "libcommon/pool.h"
#include "libcommon/xalloc.h"

#include <stdlib.h>

/* Of a run of blocks: maximum m, s = sum exp(x - m), e = sum exp(x - m) (x - m), with x = z / T. */
struct part { float m, s, e; };

WIDE static float block_max(const float *z, long n)
{
	float m[LANES];
	long i = 0;

	for (int l = 0; l < LANES; l++)
		m[l] = -INFINITY;
	for (; i + LANES <= n; i += LANES)
		for (int l = 0; l < LANES; l++)
			m[l] = z[i + l] > m[l] ? z[i + l] : m[l];
	for (int l = 0; i + l < n; l++)
		m[l] = z[i + l] > m[l] ? z[i + l] : m[l];
	for (int l = 1; l < LANES; l++)
		m[0] = m[l] > m[0] ? m[l] : m[0];
	return m[0];
}

/* x[i] = exp(d) and y[i] = exp(d) d with d = z[i] inv - m: apart from the sums, so that compilers make vectors of it. */
WIDE static void exps(float *restrict x, float *restrict y, const float *restrict z, float inv, float m, long n)
{
	for (long i = 0; i < n; i++) {
		float d = z[i] * inv - m;

		x[i] = exp_f32(d);
		y[i] = x[i] * (d < -110.f ? -110.f : d);
	}
}

WIDE static void add_lanes(float *restrict s, const float *restrict x, long n)
{
	float t[LANES];
	long i = 0;

	memcpy(t, s, sizeof(t));
	for (; i + LANES <= n; i += LANES)
		for (int l = 0; l < LANES; l++)
			t[l] += x[i + l];
	for (int l = 0; i + l < n; l++)
		t[l] += x[i + l];
	memcpy(s, t, sizeof(t));
}

/* A NaN passes the maximum by and is caught here: it makes s NaN. */
static struct part block_sum(const float *z, long n, float inv)
{
	float s[LANES] = { 0 }, e[LANES] = { 0 }, x[CHUNK], y[CHUNK];
	struct part p = { .m = block_max(z, n) * inv };
	float m = p.m == -INFINITY ? 0 : p.m;

	for (long i = 0; i < n; i += CHUNK) {
		long piece = n - i < CHUNK ? n - i : CHUNK;

		exps(x, y, z + i, inv, m, piece);
		add_lanes(s, x, piece);
		add_lanes(e, y, piece);
	}
	p.s = lanes_sum(s);
	p.e = lanes_sum(e);
	return p;
}

static struct part join(struct part a, struct part b)
{
	float m = a.m > b.m ? a.m : b.m, da, db, xa, xb;

	if (m == -INFINITY)
		return (struct part){ m, a.s + b.s, a.e + b.e };
	da = a.m == -INFINITY ? -110.f : a.m - m;
	db = b.m == -INFINITY ? -110.f : b.m - m;
	xa = exp_f32(da);
	xb = exp_f32(db);
	return (struct part){ m, a.s * xa + b.s * xb, xa * (a.e + a.s * da) + xb * (b.e + b.s * db) };
}

/* Blocks [b, b + n), by the shape of tree_join(). */
static struct part blocks(const float *z, long V, long b, long n, float inv)
{
	long at = b * VOCAB_BLOCK, h = 1;

	if (n == 1)
		return block_sum(z + at, V - at < VOCAB_BLOCK ? V - at : VOCAB_BLOCK, inv);
	while (h * 2 < n)
		h *= 2;
	return join(blocks(z, V, b, h, inv), blocks(z, V, b + h, n - h, inv));
}

/* x: the target's z / T. */
static void finish(float *lp, float *lse, float *entropy, struct part p, float x)
{
	double l = (double)p.m + log((double)p.s);

	if (!isfinite(p.m) || !isfinite(p.s))
		l = NAN;
	*lp = (float)((double)x - l);
	*lse = (float)l;
	if (entropy)
		*entropy = (float)(log((double)p.s) - (double)p.e / (double)p.s);
}

void logprob_row(float *lp, float *lse, float *entropy, const float *z, int target, long V, float temperature)
{
	float inv = 1.f / temperature;

	finish(lp, lse, entropy, blocks(z, V, 0, (V + VOCAB_BLOCK - 1) / VOCAB_BLOCK, inv), z[target] * inv);
}

struct call {
	float *lp, *lse, *entropy;
	void *dz;
	const float *dlp, *z, *stat;
	const int *target;
	long V;
	float temperature;
	enum dtype t;
};

static void fwd_part(void *arg, long r, int thread)
{
	struct call *o = arg;
	float lse;

	(void)thread;
	logprob_row(o->lp + r, o->lse ? o->lse + r : &lse, o->entropy ? o->entropy + r : NULL, o->z + r * o->V,
		    o->target[r], o->V, o->temperature);
}

void logprob_cpu(float *lp, float *lse, float *entropy, const float *z, const int *target, long rows, long V,
		 float temperature)
{
	struct call o = { .lp = lp, .lse = lse, .entropy = entropy, .z = z, .target = target, .V = V,
			  .temperature = temperature };

	pool_run(fwd_part, &o, rows);
}

WIDE static void softmax_grad(float *d, const float *z, float g, float inv, float lse, long n)
{
	for (long i = 0; i < n; i++)
		d[i] = -g * exp_f32(z[i] * inv - lse);
}

static void bwd_part(void *arg, long r, int thread)
{
	struct call *o = arg;
	float inv = 1.f / o->temperature, g = o->dlp[r] * inv, d[CHUNK];
	const float *z = o->z + r * o->V;

	(void)thread;
	for (long at = 0; at < o->V; at += CHUNK) {
		long n = o->V - at < CHUNK ? o->V - at : CHUNK, hit = o->target[r] - at;

		if (g == 0)
			memset(d, 0, sizeof(d)); /* also where the row has no log-probability at all */
		else
			softmax_grad(d, z + at, g, inv, o->stat[r], n);
		if (g != 0 && hit >= 0 && hit < n)
			d[hit] += g;
		narrow(row_at_mut(o->dz, r * o->V + at, o->t), d, n, o->t);
	}
}

void logprob_bwd_cpu(void *dz, const float *dlp, const float *lse, const float *z, const int *target, long rows, long V,
		     float temperature, enum dtype t)
{
	struct call o = { .dz = dz, .dlp = dlp, .stat = lse, .z = z, .target = target, .V = V, .temperature = temperature,
			  .t = t };

	pool_run(bwd_part, &o, rows);
}

/* The vocabulary over ranks. */
struct cut_call {
	const struct tree_cut *c;
	long rank;
	float *out, *lp, *lse, *entropy;
	const float *z, *all;
	const int *target;
	const long *leaves;     /* of the parts: of this rank; of all */
	long rows, n, parts;
	float temperature;
};

static void parts_row(void *arg, long r, int thread)
{
	struct cut_call *o = arg;
	float inv = 1.f / o->temperature, *out = o->out + r * (3 * o->parts + 1);
	const float *z = o->z + r * o->n;
	long at = 0, hit = o->target[r] - o->c->first[o->rank] * VOCAB_BLOCK;

	(void)thread;
	for (long i = 0; i < o->parts; i++, out += 3) {
		struct part p = blocks(z, o->n, at, o->leaves[i], inv);

		out[0] = p.m;
		out[1] = p.s;
		out[2] = p.e;
		at += o->leaves[i];
	}
	*out = hit >= 0 && hit < o->n ? z[hit] * inv : 0;
}

void logprob_parts_cpu(float *out, const float *z, const int *target, long rows, long n, const struct tree_cut *c, long rank,
		       float temperature)
{
	long leaves[2 * TREE_DEPTH], first = c->first[rank];
	struct cut_call o = { .c = c, .rank = rank, .out = out, .z = z, .target = target, .leaves = leaves, .n = n,
			      .temperature = temperature };

	o.parts = tree_parts(leaves, first, c->first[rank + 1] - first, tree_leaves(c));
	pool_run(parts_row, &o, rows);
}

/* The node over n blocks that begins at `block`; `rank` holds that block, and `part` of its parts come before it. */
static struct part cut_node(const struct cut_call *o, long r, long n, long *rank, long *part, const long **leaves, const float **at)
{
	long h;
	struct part left;

	while (*part == tree_parts_of(o->c, *rank)) {
		*at += o->rows * (3 * *part + 1);
		++*rank;
		*part = 0;
	}
	if (**leaves == n) {
		const float *p = *at + r * (3 * tree_parts_of(o->c, *rank) + 1) + 3 * (*part)++;

		++*leaves;
		return (struct part){ p[0], p[1], p[2] };
	}
	h = tree_split(n);
	left = cut_node(o, r, h, rank, part, leaves, at);
	return join(left, cut_node(o, r, n - h, rank, part, leaves, at));
}

static void join_row(void *arg, long r, int thread)
{
	struct cut_call *o = arg;
	const float *at = o->all, *x = o->all;
	const long *leaves = o->leaves;
	long rank = 0, part = 0, owner = 0, parts;
	float lse;
	struct part p = cut_node(o, r, tree_leaves(o->c), &rank, &part, &leaves, &at);

	(void)thread;
	while (o->target[r] >= o->c->first[owner + 1] * VOCAB_BLOCK)
		x += o->rows * (3 * tree_parts_of(o->c, owner++) + 1);
	parts = 3 * tree_parts_of(o->c, owner);
	finish(o->lp + r, o->lse ? o->lse + r : &lse, o->entropy ? o->entropy + r : NULL, p, x[r * (parts + 1) + parts]);
}

void logprob_join_cpu(float *lp, float *lse, float *entropy, const float *all, const int *target, long rows,
		      const struct tree_cut *c)
{
	long *leaves = xmalloc((size_t)tree_leaves(c) * sizeof(*leaves)), at = 0;
	struct cut_call o = { .c = c, .lp = lp, .lse = lse, .entropy = entropy, .all = all, .target = target, .leaves = leaves,
			      .rows = rows };

	for (long r = 0; r < c->ranks; r++)
		at += tree_parts(leaves + at, c->first[r], c->first[r + 1] - c->first[r], tree_leaves(c));
	pool_run(join_row, &o, rows);
	free(leaves);
}
