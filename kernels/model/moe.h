#ifndef KERNELS_MODEL_MOE_H
#define KERNELS_MODEL_MOE_H

/*
 * The MLP of a layer with experts, as ops (kernels/moe.h).  What layers keep of it for the backward pass lies in struct mlp_acts;
 * what only lives within one layer is here, once a model, as large as the most rows that have passed.
 */

#include "kernels/model/inside.h"
#include "kernels/model/router.h"

enum { EP_MEMORIES = 4 };

struct moe {
	struct routing routing;
	long rows;                      /* that there is room for */
	long *offset;                   /* [experts + 1], host */
	char *memory;
	int *from, *place;              /* [slots], slots = rows k */
	void *xs, *ds;                  /* [slots, H] of type t: rows of x, of dy, by places */
	float *o;                       /* [slots, H]: outputs of the experts; going back, gradients of xs */
	float *shared;                  /* [rows, H] of the shared expert */
	float *dweight;                 /* [slots] */
	void *dz;                       /* [rows, experts] of type t */
	struct { char *p; size_t bytes; } far[EP_MEMORIES]; /* what ep.c works with; grows */
	const int *given;               /* [rows, layers with experts, k] host: struct batch; NULL: none */
	int *taken;                     /* of the same shape, where the rows' experts are written down; NULL: nowhere */
	double aux, z;                  /* of router_begin() */
	long total;
	double *count;                  /* [layers, experts + 2]: visits, then the losses of the layer */
	float *dp;                      /* [experts], the backend's */
};

/* m->moe where the model has experts; NULL otherwise. */
void moe_init(struct model *m);
void moe_release(struct model *m);
size_t moe_bytes(const struct model *m, long rows);     /* of memory that `rows` rows need beside their struct mlp_acts */

/* For the rows of the layers that follow; either may be NULL. */
void moe_give(const struct model *m, const int *given, int *taken);
size_t moe_carve(struct mlp_acts *a, const struct model *m, long R, long S, char *memory);
/* Own rows (tp.h), as mlp_forward(). */
void moe_forward(const struct model *m, const struct layer *l, struct mlp_acts *a, struct tp *t, void *y, const void *x);
void moe_backward(const struct model *m, const struct layer *l, struct mlp_acts *a, struct mlp_grads *g, struct tp *t, void *dx,
		  const void *dy, const void *x);

/* Counts what the layer's rows visit, o->offset being theirs, and says what its losses add; NULL: nothing. */
const struct router_loss *router_losses(struct router_loss *out, const struct model *m, const struct layer *l,
					const struct mlp_acts *a, long rows);

#endif
