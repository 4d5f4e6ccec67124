#include "kernels/model/router.h"

#include "kernels/model/moe.h"
#include "libcommon/xalloc.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void router_begin(struct model *m, double aux, double z, long rows)
{
	struct moe *o = m->moe;

	if (!o)
		return;
	o->aux = aux;
	o->z = z;
	o->total = rows;
	memset(o->count, 0, (size_t)(m->table.config.layers * (o->routing.experts + 2)) * sizeof(double));
}

/* Gives dL/dp, the same for all rows, and returns the loss of this rank's rows. */
static double balance(float *dp, const struct model *m, const float *p, long rows)
{
	const struct moe *o = m->moe;
	long E = o->routing.experts;
	double *f = xmalloc((size_t)(E + 1) * sizeof(*f)), loss = 0;

	for (long e = 0; e < E; e++)
		f[e] = (double)(o->offset[e + 1] - o->offset[e]);
	f[E] = (double)rows;
	/* Ranks of TP and CP have other rows of the bin. */
	comm_sum_f64(&m->mesh->tp, f, (size_t)(E + 1));
	comm_sum_f64(&m->mesh->cp, f, (size_t)(E + 1));
	for (long e = 0; e < E; e++) {
		/* f[E] is 0 where no rank has rows: then so is every f. */
		double sum = 0, scale = (double)E * f[e] / (fmax(f[E], 1) * (double)o->routing.k) / (double)o->total;

		for (long r = 0; r < rows; r++)
			sum += (double)p[r * E + e];
		loss += scale * sum;
		dp[e] = (float)(o->aux * scale);
	}
	free(f);
	return loss;
}

const struct router_loss *router_losses(struct router_loss *out, const struct model *m, const struct layer *l,
					const struct mlp_acts *a, long rows)
{
	struct moe *o = m->moe;
	long E = o->routing.experts;
	double *count = o->count + l->index * (E + 2);
	size_t n = (size_t)(rows * E);
	float *host;

	for (long e = 0; e < E; e++)
		count[e] += (double)(o->offset[e + 1] - o->offset[e]);
	if (o->aux == 0 && o->z == 0)
		return NULL;
	host = xmalloc((n + (size_t)rows + (size_t)E) * sizeof(float));
	if (o->aux != 0) {
		m->k->get(host, a->p, n * sizeof(float));
		count[E] += balance(host + n, m, host, rows);
		m->k->put(o->dp, host + n, (size_t)E * sizeof(float));
	}
	m->k->get(host, a->lse, (size_t)rows * sizeof(float));
	for (long r = 0; r < rows; r++)
		count[E + 1] += (double)host[r] * (double)host[r] / (double)o->total;
	free(host);
	*out = (struct router_loss){ o->aux != 0 ? o->dp : NULL, (float)(2 * o->z / (double)o->total) };
	return out;
}

void router_report(struct router_report *r, const struct model *m)
{
	long layers = m->table.config.layers, E;
	double *all;

	*r = (struct router_report){ 0 };
	if (!m->moe)
		return;
	E = m->moe->routing.experts;
	all = xmalloc((size_t)(layers * (E + 2)) * sizeof(*all));
	memcpy(all, m->moe->count, (size_t)(layers * (E + 2)) * sizeof(*all));
	/* Every row of a layer was one rank's. */
	comm_sum_f64(&m->mesh->world, all, (size_t)(layers * (E + 2)));
	*r = (struct router_report){ .layers = layers, .experts = E };
	r->visits = xcalloc((size_t)(layers * E), sizeof(double));
	r->aux = xcalloc((size_t)layers, sizeof(double));
	r->z = xcalloc((size_t)layers, sizeof(double));
	for (long i = 0; i < layers; i++) {
		memcpy(r->visits + i * E, all + i * (E + 2), (size_t)E * sizeof(double));
		r->aux[i] = all[i * (E + 2) + E];
		r->z[i] = all[i * (E + 2) + E + 1];
	}
	free(all);
}

void router_report_release(struct router_report *r)
{
	free(r->visits);
	free(r->aux);
	free(r->z);
	*r = (struct router_report){ 0 };
}
