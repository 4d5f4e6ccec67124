#ifndef KERNELS_MODEL_INSIDE_H
#define KERNELS_MODEL_INSIDE_H

/* What the files of this folder share. */

#include "kernels/model/tp.h"

struct layer {                  /* a layer's weights; NULL where the family has none */
	struct weight *norm1, *q, *k, *v, *o, *qb, *kb, *vb, *ob, *qn, *kn, *norm2;
	struct weight *gate, *up, *down;        /* of the one MLP, or of all experts */
	struct weight *router;                  /* NULL: no experts */
	int index, moe_index;                   /* its number; among the layers with experts */
	struct weight *sgate, *sup, *sdown, *srouter; /* of the shared expert */
};

/* What the MLP of a layer keeps between its passes (mlp.c knows what for). */
struct mlp_acts {
	void *gate, *up, *act;  /* [rows, I] of type t; of experts [rows k, I], by places */
	/* where the layer has experts: kernels/moe.h */
	int *id;                /* [rows, k] */
	float *weight;          /* [rows, k] */
	float *p, *lse;         /* [rows, experts], [rows] */
	void *sgate, *sup, *sact; /* of the shared expert */
	float *open;            /* [rows] how far its gate is open */
};

/* One layer's activations of R rows, of which S are this rank's own (tp.h), all of type t but the statistics. */
struct acts {
	void *x;                /* [S, H] the layer's input; not in the carved memory */
	void *h1;               /* [S, H] */
	void *q0, *k0;          /* before the per-head norm; == q, k where there is none */
	void *q, *k, *v;        /* [R, heads d], [R, kv d] after RoPE */
	void *att;              /* [R, heads d] */
	void *x2, *h2;          /* [S, H] */
	struct mlp_acts mlp;
	float *rstd1, *rstd2;   /* [S] */
	float *rstdq, *rstdk;   /* [R heads], [R kv] */
	float *lse;             /* [R, heads] */
};

bool is_matrix(const struct model *m, const struct param *p);
long param_count(const struct param *p);
struct weight *model_weight(const struct model *m, enum param_kind kind, int layer); /* NULL: has none */
struct weight *model_head(const struct model *m);
const void *value_of(const struct weight *w);           /* NULL of NULL */

/* The matrices of a weight, which is one or an expert's each, of its box. */
void weight_matrices_init(struct model *m, long i);
void weight_matrices_load(const struct model *m, struct weight *w, const void *rows);
void weight_matrices_release(const struct model *m, struct weight *w);

/* weights.c: memory of all parameters; m->table, k, mesh, t and flags are set. */
void weights_init(struct model *m);
void weights_release(struct model *m);

/* reduce.c: gradients summed over ranks */
void reduce_init(struct flat *f, const struct param_table *t);
void reduce_release(struct flat *f);
void reduce_begin(struct model *m);     /* nothing is summed yet */
/* A backward pass has done with that layer and all above it; where it is the last one their sums begin. */
void layer_ready(struct model *m, long layer);

/*
 * Memory of up to R rows, S of them own; memory NULL: only count (a may then be NULL).  lean: without h1, h2 and, in a model without
 * experts, mlp.act, which the caller sets.
 */
size_t acts_carve(struct acts *a, const struct model *m, long R, long S, bool lean, char *memory);
/*
 * The MLP of a layer, without norm and residual: y[S, H] = mlp(x[S, H]), own rows (tp.h; the same rows on every rank of the TP group
 * where t->split is not set).  Memory is carved by the caller as above.  mlp_backward: dx = d loss / d x from dy, and adds to the
 * weights' gradients.
 */
struct mlp_grads {
	void *act, *gate;       /* [R, I] scratch */
};
size_t mlp_carve(struct mlp_acts *a, const struct model *m, long R, long S, bool lean, char *memory);
size_t mlp_carve_grads(struct mlp_grads *g, const struct model *m, long R, long S, char *memory);
void mlp_forward(const struct model *m, const struct layer *l, struct mlp_acts *a, struct tp *t, void *y, const void *x);
void mlp_backward(const struct model *m, const struct layer *l, struct mlp_acts *a, struct mlp_grads *g, struct tp *t, void *dx,
		  const void *dy, const void *x);

/* Adds to the gradients of a linear layer, where it has any. */
void linear_gradient(const struct model *m, struct weight *w, struct weight *bias, const void *dy, const void *x, long rows);
/* Bytes rounded up, so that what follows begins on a cache line. */
static inline size_t line_up(size_t n)
{
	return (n + 63) & ~(size_t)63;
}

/* From a->x to q, k, v (everything up to attention), and from a->att to out, which may be a->x of the next layer. */
void layer_before(const struct model *m, const struct layer *l, struct acts *a, struct tp *t, const int *position, bool keep);
void layer_after(const struct model *m, const struct layer *l, struct acts *a, struct tp *t, void *out, bool keep);

#endif
