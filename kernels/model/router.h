#ifndef KERNELS_MODEL_ROUTER_H
#define KERNELS_MODEL_ROUTER_H

/*
 * What routers do while a model learns, and losses of their own.  In every layer with experts, over
 * the T rows of an update that are run in bins b of T_b rows,
 *
 *	load balancing:  aux sum_b T_b / T  E sum_i f_i P_i,
 *			 f_i = visits of expert i in b / (T_b k),  P_i = mean of p_i over b
 *	z:               z 1 / T sum_r (log sum_e exp(z_r,e))^2
 *
 * (Fedus and others, 2021; Zoph and others, 2022; as in Megatron-Core, where a bin is a
 * micro-batch), added over the layers. f counts and has no gradient.  Bins are those of the recipe
 * whatever the ranks are, so no layout changes these.
 */

#include "kernels/model/model.h"

/* For all that follows, and forgets what was counted: pass_backward() adds the gradients of both;
 * 0: without that one. */
void router_begin(struct model *m, double aux, double z, long rows);

struct router_report {
	long layers, experts;   /* of the model; 0: none has experts */
	double *visits;         /* [layers, experts]; all 0 where a layer has none; owned */
	double *aux, *z;        /* [layers]: losses without factor; aux where it is on; owned */
};

/* What came since router_begin(), over all ranks, the same on each. */
void router_report(struct router_report *out, const struct model *m);
void router_report_release(struct router_report *r);

#endif
