#include "kernels/cpu/rows.h"

#include "kernels/ops.h"
#include "libcommon/pool.h"
#include "libcommon/xalloc.h"

#include <stdlib.h>

struct call {
	int *id;
	float *lp;
	const float *z;
	const struct sample_row *how;
	const uint8_t *allowed;
	long V;
};

struct candidate { float p; int id; };

WIDE static bool usable(const float *z, long V)
{
	int any = 0, bad = 0;

	for (long i = 0; i < V; i++) {
		bad |= !(z[i] < INFINITY);
		any |= z[i] > -INFINITY;
	}
	return any && !bad;
}

WIDE static float largest(const float *z, const uint8_t *allowed, long V)
{
	float m[LANES];
	long i = 0;

	for (int l = 0; l < LANES; l++)
		m[l] = -INFINITY;
	for (; !allowed && i + LANES <= V; i += LANES)
		for (int l = 0; l < LANES; l++)
			m[l] = z[i + l] > m[l] ? z[i + l] : m[l];
	for (; allowed && i + LANES <= V; i += LANES)
		for (int l = 0; l < LANES; l++)
			m[l] = allowed[i + l] && z[i + l] > m[l] ? z[i + l] : m[l];
	for (; i < V; i++)
		m[0] = (!allowed || allowed[i]) && z[i] > m[0] ? z[i] : m[0];
	for (int l = 1; l < LANES; l++)
		m[0] = m[l] > m[0] ? m[l] : m[0];
	return m[0];
}

static long greedy(const struct call *o, const float *z)
{
	float top = largest(z, o->allowed, o->V);

	for (long i = 0; i < o->V; i++)
		if (z[i] == top && (!o->allowed || o->allowed[i]))
			return i;
	return -1;
}

WIDE static void weights(float *p, const float *z, float inv, float top, long n)
{
	for (long i = 0; i < n; i++)
		p[i] = exp_f32((z[i] - top) * inv);
}

WIDE static double block_mass(const float *p, long n)
{
	double s[8] = { 0 };
	long i = 0;

	for (; i + 8 <= n; i += 8)
		for (int l = 0; l < 8; l++)
			s[l] += (double)p[i + l];
	for (int l = 0; i + l < n; l++)
		s[l] += (double)p[i + l];
	return ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
}

static long draw_in(const float *p, long from, long to, double run, double goal)
{
	long last = -1;

	for (long i = from; i < to; i++) {
		if (p[i] <= 0)
			continue;
		run += (double)p[i];
		last = i;
		if (run > goal)
			break;
	}
	return last;
}

/*
 * The id at which the running sum passes u times the whole, in the order of ids; the last possible id otherwise.  The sum
 * runs over blocks first, then within the one that passes: one chain over a large vocabulary would take longer than its logits.
 */
static long draw_all(const float *p, long V, double u)
{
	double all = 0, run = 0, mass;
	long last = V;

	for (long at = 0; at < V; at += VOCAB_BLOCK)
		all += block_mass(p + at, V - at < VOCAB_BLOCK ? V - at : VOCAB_BLOCK);
	for (long at = 0, n; at < V; at += n, run += mass) {
		n = V - at < VOCAB_BLOCK ? V - at : VOCAB_BLOCK;
		mass = block_mass(p + at, n);
		if (run + mass > u * all)
			return draw_in(p, at, at + n, run, u * all);
	}
	while (--last >= 0 && p[last] <= 0)
		;
	return last;
}

static int by_weight(const void *a, const void *b)
{
	const struct candidate *x = a, *y = b;

	if (x->p != y->p)
		return x->p > y->p ? -1 : 1;
	return x->id < y->id ? -1 : x->id > y->id;
}

/*
 * top-k, then top-p (the smallest set of the most likely that reaches top_p of what top-k left), then min-p (at least
 * min_p of the most likely): ties keep the lower ids.  An id below (1 - top_p) / V of the whole can never be
 * in the nucleus, since all such ids together hold less than 1 - top_p: they are not even sorted.
 */
static long draw_filtered(const float *p, long V, const struct sample_row *h)
{
	struct candidate *c = xmalloc((size_t)V * sizeof(*c));
	double all = 0, kept = 0, floor = 0, run = 0;
	long n = 0, k, id;

	for (long i = 0; i < V; i++)
		all += (double)p[i];
	if (h->top_k <= 0 && h->top_p < 1.f)
		floor = all * (1.0 - (double)h->top_p) / (double)V * 0.999;
	for (long i = 0; i < V; i++)
		if (p[i] > 0 && (double)p[i] >= floor)
			c[n++] = (struct candidate){ p[i], (int)i };
	qsort(c, (size_t)n, sizeof(*c), by_weight);
	if (h->top_k > 0 && h->top_k < n) {
		n = h->top_k;
		all = 0;
		for (long i = 0; i < n; i++)
			all += (double)c[i].p;
	}
	if (h->top_p < 1.f) {
		for (k = 0; k < n && (k == 0 || run < (double)h->top_p * all); k++)
			run += (double)c[k].p;
		n = k;
	}
	while (n > 1 && h->min_p > 0 && c[n - 1].p < h->min_p * c[0].p)
		n--;
	for (long i = 0; i < n; i++)
		kept += (double)c[i].p;
	run = 0;
	id = n ? c[n - 1].id : -1;
	for (long i = 0; i < n; i++) {
		run += (double)c[i].p;
		if (run > (double)h->u * kept) {
			id = c[i].id;
			break;
		}
	}
	free(c);
	return id;
}

static long draw(const struct call *o, const float *z, const struct sample_row *h)
{
	float *p = row_scratch(0, o->V);
	long top = greedy(o, z);

	if (top < 0 || h->temperature <= 0 || z[top] == -INFINITY)
		return top >= 0 && z[top] > -INFINITY ? top : -1;
	weights(p, z, 1.f / h->temperature, z[top], o->V);
	for (long i = 0; o->allowed && i < o->V; i++)
		if (!o->allowed[i])
			p[i] = 0;
	if (h->top_k > 0 || h->top_p < 1.f || h->min_p > 0)
		return draw_filtered(p, o->V, h);
	return draw_all(p, o->V, (double)h->u);
}

static void part(void *arg, long r, int thread)
{
	struct call *o = arg;
	const struct sample_row *h = o->how + r;
	const float *z = o->z + r * o->V;
	long id = usable(z, o->V) ? draw(o, z, h) : -1;
	float lse;

	(void)thread;
	o->id[r] = (int)id;
	if (id < 0)
		o->lp[r] = NAN;
	else
		logprob_row(o->lp + r, &lse, NULL, z, (int)id, o->V, h->temperature > 0 ? h->temperature : 1.f);
}

void sample_cpu(int *id, float *lp, const float *z, const struct sample_row *how, const uint8_t *allowed, long rows, long V)
{
	struct call o = { id, lp, z, how, allowed, V };

	pool_run(part, &o, rows);
}
