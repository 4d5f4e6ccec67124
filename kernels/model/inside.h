#ifndef KERNELS_MODEL_INSIDE_H
#define KERNELS_MODEL_INSIDE_H

/* What the files of this folder share. */

#include "kernels/model/model.h"

struct layer {                  /* a layer's weights; NULL where the family has none */
	struct weight *norm1, *q, *k, *v, *o, *qb, *kb, *vb, *ob, *qn, *kn, *norm2;
	struct weight *gate, *up, *down;        /* of the one MLP, or of all experts */
	struct weight *router;                  /* NULL: no experts */
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

/* One layer's activations of up to `rows` rows, all of type t but the statistics. */
struct acts {
	void *x;                /* [rows, H] the layer's input */
	void *h1;               /* [rows, H] */
	void *q0, *k0;          /* before the per-head norm; == q, k where there is none */
	void *q, *k, *v;        /* [rows, heads d], [rows, kv d] after RoPE */
	void *att;              /* [rows, heads d] */
	void *x2, *h2;          /* [rows, H] */
	struct mlp_acts mlp;
	float *rstd1, *rstd2;   /* [rows] */
	float *rstdq, *rstdk;   /* [rows heads], [rows kv] */
	float *lse;             /* [rows, heads] */
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

size_t acts_bytes(const struct model *m, long rows);
void acts_carve(struct acts *a, const struct model *m, long rows, char *memory);
/*
 * The MLP of a layer, without norm and residual: y[rows, H] = mlp(x[rows, H]).  Memory is carved by the caller: with memory
 * NULL the carve functions only count.  mlp_backward: dx = d loss / d x from dy, and adds to the weights' gradients.
 */
struct mlp_grads {
	void *act, *gate;       /* [rows, I] scratch */
};
size_t mlp_carve(struct mlp_acts *a, const struct model *m, long rows, char *memory);
size_t mlp_carve_grads(struct mlp_grads *g, const struct model *m, long rows, char *memory);
void mlp_forward(const struct model *m, const struct layer *l, struct mlp_acts *a, void *y, const void *x, long rows);
void mlp_backward(const struct model *m, const struct layer *l, struct mlp_acts *a, struct mlp_grads *g, void *dx, const void *dy,
		  const void *x, long rows);

/* Adds to the gradients of a linear layer, where it has any. */
void linear_gradient(const struct model *m, struct weight *w, struct weight *bias, const void *dy, const void *x, long rows);
/* Bytes rounded up, so that what follows begins on a cache line. */
static inline size_t line_up(size_t n)
{
	return (n + 63) & ~(size_t)63;
}

/* From a->x to q, k, v (everything up to attention), and from a->att to out, which may be a->x of the next layer. */
void layer_before(const struct model *m, const struct layer *l, struct acts *a, const int *position, long rows, bool keep);
void layer_after(const struct model *m, const struct layer *l, struct acts *a, void *out, long rows, bool keep);

#endif
