#ifndef KERNELS_MODEL_PASS_H
#define KERNELS_MODEL_PASS_H

/*
 * The inside of a pass, for pass.c (memory, forward), head.c and backward.c.
 *
 * Rows.  A batch of B rows is given to every rank alike.  Of these a rank of a CP group has R
 * (cp.own, in cp's order), and of these a rank of a TP group has S for itself (tp.own): norms and
 * the residual stream are [S, H]; q, k, v, attention and the MLP's inside are [R, this rank's heads
 * or width].  With one rank all three are the same rows.
 */

#include "kernels/model/cp.h"
#include "kernels/model/inside.h"

/* What passes in flight share, since only one of them runs at a time. */
struct pass;

struct pass_work {
	int users;
	char *memory;
	struct tp tp;
	struct acts acts;               /* where activations are not kept for each layer */
	void *h, *act;                  /* [S, H], [R, I] with RECOMPUTE_CHEAP */
	void *dx, *dh;                  /* [S, H] gradients of one layer */
	void *dmid, *dq, *dk, *dv;      /* [R, heads d] ... */
	struct mlp_grads mlp;
	void *kall, *vall;              /* [B, kv d] with CP: keys and values of the whole batch */
	float *dkall, *dvall, *dkv;     /* [B, kv d], [R, kv d] fp32 */
	void *stage;                    /* as long as kall; with keep it is dkall, not in use yet */
	long chunk;                     /* rows of the head at a time */
	void *head_x;                   /* [chunk, H] rows that have a target */
	float *head_z;                  /* [chunk, this rank's V] */
	/* head_z and head_x hold all of that pass's logits and their rows; NULL: of none */
	struct pass *logits_of;
	void *head_dz;                  /* of type t */
	float *head_dx;                 /* [chunk, H] */
	float *parts, *all_parts;       /* statistics of logprob_parts(), of this rank and of all */
	float *whole_z, *stage_z;       /* [chunk, V] with TP: pass_logits() */
	int *chunk_target, *local_target;       /* host */
	float *chunk_lp, *chunk_entropy;
};

struct pass {
	struct model *m;
	long max_rows;
	bool keep;
	enum recompute recompute;
	long layer_first, layers;       /* of this stage in this pass's turn */
	bool first, last;               /* begins with the embedding; ends with the head */
	struct pass_work *work;
	struct cp cp;
	char *memory;
	struct acts *acts;              /* [layers] or the work's one */
	char **x;                       /* [layers + 1] input of each layer, and the last output */
	void *hidden;                   /* [S, H] after the final norm */
	float *rstd;                    /* of the final norm */
	int *ids, *target, *picked;     /* [R] host; picked: rows with a target */
	int *experts;                   /* [R, ...] those of the batch; NULL: it has none */
	float *lp, *lse, *entropy, *dlp;        /* [R]; lse by picked row */
	float *stage;                   /* [B] */
	long npicked;
	float temperature;
	struct comm_request sent;       /* of x[layers] forward, of x[0] backward */
	struct comm *sending;           /* NULL: nothing is on its way */
};

static inline bool pass_is_lean(bool keep, enum recompute recompute)
{
	return keep && recompute == RECOMPUTE_CHEAP;
}

static inline bool pass_one_acts(const struct pass *p)
{
	return !p->keep || p->recompute == RECOMPUTE_LAYERS;
}

/* Of layer i of the pass, whose input lies in p->x[i]. */
struct acts *pass_acts(struct pass *p, long i);
void pass_layer(struct pass *p, long i, void *out);
void pass_wait_sent(struct pass *p);
/*
 * head.c: leaves the gradient of the hidden state in work->dh and adds that of the head's weight.
 */
void head_backward(struct pass *p);
size_t head_carve(struct pass_work *w, const struct model *m, long rows, bool keep, char *memory);
void head_init(struct pass_work *w, const struct model *m, long rows);
void head_release(struct pass_work *w);

#endif
