#include "kernels/cpu/moe.h"

#include "kernels/cpu/backend.h"
#include "kernels/cpu/rows.h"
#include "libcommon/pool.h"

/* -- routing -------------------------------------------------------------------------------- */

struct route {
	int *id;
	float *weight, *p, *lse;
	const float *z;
	const struct routing *s;
	bool given;
};

/* The k highest in falling order.  Only a strictly higher one moves another down, so that of equals
 * the first stays before. */
static void choose(int *id, const float *z, long experts, long k)
{
	for (long e = 0, n = 0; e < experts; e++) {
		long at = n < k ? n++ : k;

		if (at == k && !(z[e] > z[id[k - 1]]))
			continue;
		at = at == k ? k - 1 : at;
		for (; at > 0 && z[e] > z[id[at - 1]]; at--)
			id[at] = id[at - 1];
		id[at] = (int)e;
	}
}

WIDE static float exp_all(float *p, const float *z, float m, long n)
{
	float s[LANES] = { 0 };
	long i = 0;

	for (; i + LANES <= n; i += LANES)
		for (int l = 0; l < LANES; l++) {
			p[i + l] = exp_f32(z[i + l] - m);
			s[l] += p[i + l];
		}
	for (int l = 0; i + l < n; l++) {
		p[i + l] = exp_f32(z[i + l] - m);
		s[l] += p[i + l];
	}
	return lanes_sum(s);
}

static float highest(const float *z, long n)
{
	float m = z[0];

	for (long i = 1; i < n; i++)
		m = z[i] > m ? z[i] : m;
	return m;
}

/* softmax over the k chosen: it cannot be 0 / 0, however low they are beside the others. */
static void norm_weights(float *w, const float *zs, long k)
{
	float m = highest(zs, k), sum = 0;

	for (long s = 0; s < k; s++) {
		w[s] = exp_f32(zs[s] - m);
		sum += w[s];
	}
	for (long s = 0; s < k; s++)
		w[s] /= sum;
}

static void route_part(void *arg, long r, int thread)
{
	const struct route *o = arg;
	const struct routing *s = o->s;
	const float *z = o->z + r * s->experts;
	float *p = o->p + r * s->experts, *w = o->weight + r * s->k, *zs = row_scratch(0, s->k),
	      sum, m;
	int *id = o->id + r * s->k;

	(void)thread;
	if (!o->given || id[0] < 0)
		choose(id, z, s->experts, s->k);
	for (long i = 0; i < s->k; i++)
		zs[i] = z[id[i]];
	m = highest(z, s->experts);
	sum = exp_all(p, z, m, s->experts);
	if (o->lse)
		o->lse[r] = (float)((double)m + log((double)sum));
	for (long e = 0; e < s->experts; e++)
		p[e] /= sum;
	if (s->norm)
		norm_weights(w, zs, s->k);
	for (long i = 0; i < s->k; i++)
		w[i] = isnan(sum) ? NAN : s->norm ? w[i] : p[id[i]];
}

void route_cpu(int *id, float *weight, float *p, float *lse, const float *z, long rows,
	       const struct routing *s, bool given)
{
	struct route o = { id, weight, p, lse, z, s, given };

	if (s->k < 1 || s->k > s->experts)
		bug("%ld of %ld experts", s->k, s->experts);
	pool_run(route_part, &o, rows);
}

struct back {
	void *dz;
	const float *dweight, *weight, *p, *lse;
	const int *id;
	const struct router_loss *own;
	const struct routing *s;
	enum dtype t;
};

/* dz = p (dp - sum p dp) for dp that is given for all experts, and what the z loss adds. */
static void own_losses(float *dz, const struct back *o, const float *p, long r)
{
	const float *dp = o->own->dp;
	float sum = 0, z = o->own->z_scale != 0 ? o->own->z_scale * o->lse[r] : 0;

	for (long e = 0; dp && e < o->s->experts; e++)
		sum += p[e] * dp[e];
	for (long e = 0; e < o->s->experts; e++)
		dz[e] += p[e] * ((dp ? dp[e] - sum : 0) + z);
}

static void route_bwd_part(void *arg, long r, int thread)
{
	const struct back *o = arg;
	long E = o->s->experts, k = o->s->k;
	const float *p = o->p + r * E, *w = o->weight + r * k, *dw = o->dweight + r * k;
	const int *id = o->id + r * k;
	float *dz = row_scratch(0, E), sum = 0;

	(void)thread;
	for (long i = 0; i < k; i++)
		sum += dw[i] * w[i];
	for (long e = 0; e < E; e++)
		dz[e] = o->s->norm ? 0 : -p[e] * sum;
	for (long i = 0; i < k; i++)
		dz[id[i]] += o->s->norm ? w[i] * (dw[i] - sum) : w[i] * dw[i];
	if (o->own)
		own_losses(dz, o, p, r);
	narrow(row_at_mut(o->dz, r * E, o->t), dz, E, o->t);
}

void route_bwd_cpu(void *dz, const float *dweight, const int *id, const float *weight,
		   const float *p, const float *lse, const struct router_loss *own, long rows,
		   const struct routing *s, enum dtype t)
{
	struct back o = { dz, dweight, weight, p, lse, id, own, s, t };

	pool_run(route_bwd_part, &o, rows);
}

void sort_slots_cpu(long *offset, int *from, int *place, const int *id, long rows,
		    const struct routing *s)
{
	long slots = rows * s->k;

	memset(offset, 0, (size_t)(s->experts + 1) * sizeof(*offset));
	for (long i = 0; i < slots; i++)
		offset[id[i] + 1]++;
	for (long e = 0; e < s->experts; e++)
		offset[e + 1] += offset[e];
	for (long i = 0; i < slots; i++) {
		place[i] = (int)offset[id[i]]++;
		from[place[i]] = (int)(i / s->k);
	}
	/* Each now holds where the next begins. */
	for (long e = s->experts; e > 0; e--)
		offset[e] = offset[e - 1];
	offset[0] = 0;
}

/* -- products --------------------------------------------------------------------------------- */

void grouped_dw_cpu(float *dw, const void *dy, const void *x, const long *offset, long experts,
		    long n, long k, enum dtype t)
{
	for (long e = 0; e < experts; e++)
		linear_dw_cpu(dw + e * n * k, NULL, row_at(dy, offset[e] * n, t),
			      row_at(x, offset[e] * k, t), offset[e + 1] - offset[e], n, k, t);
}
