#ifndef KERNELS_MODEL_MODEL_H
#define KERNELS_MODEL_MODEL_H

/*
 * One decoder, as ops in sequence.  x is the residual stream of type t; for each layer
 *
 *	h = rmsnorm(x);  q, k, v = h Wq^T + bq, h Wk^T + bk, h Wv^T + bv;  [q, k = rmsnorm per head]
 *	q, k = rope(q), rope(k);  x = x + attention(q, k, v) Wo^T
 *	h = rmsnorm(x);  x = x + (silu(h Wg^T) * (h Wu^T)) Wd^T, or experts in its place (kernels/moe.h)
 *
 * then h = rmsnorm(x) and logits = h E^T.  A model is loaded once, then used in one of two ways:
 *
 *	struct pass: packed sequences, nothing cached: score and train-step   (below)
 *	struct cache: rows appended to sequences in a paged KV cache: rollout (cache.h)
 *
 * Both run the same ops on the same rows, so their log-probabilities are the same bits.
 */

#include "kernels/ops.h"
#include "libcommon/mesh.h"
#include "libcommon/shard.h"

enum {
	MODEL_TRAIN = 1,        /* gradients, and weights ready for the backward products */
	MODEL_FREEZE_ROUTER = 4, /* routers of experts are not trained (role frozen) */
	MODEL_SEQUENCE = 2      /* sequence parallelism: gradients that TP ranks would have alike are parts of a sum */
};

struct layer;                   /* inside.h */
struct moe;                     /* moe.h */

struct dims {                   /* the part of the model that this rank computes: what layers use in place of the config's sizes */
	long heads, kv_heads;
	long intermediate;      /* of an MLP without experts */
	long experts, expert_intermediate, shared_intermediate; /* 0: none */
	long vocab_first, vocab; /* rows of embedding and head */
	long layers;            /* of this stage, in all turns (layout.h) */
	bool first, last;       /* stage: embedding; final norm and head */
};

/*
 * A parameter on this rank.  What it computes with is m->box[i]; of that, gradients summed over the ranks, masters and moments
 * are this rank's for the rows `own`, which are n elements of the box from `first` on (ZeRO-1; n = 0: none).  With one rank all
 * of them lie over each other.
 */
struct weight {
	void *value;            /* type t, box, in the backend's memory; NULL: not of this rank, or a matrix that only infers */
	struct matrix matrix;   /* projections and the head; w[out, in]; n = 0: none */
	struct matrix *expert;  /* of experts, one each of the box; NULL: none */
	long experts;
	float *grad;            /* fp32, box: of this rank's rows; NULL where frozen or not training */
	struct box own;
	long first, n;
	float *sum;             /* own: gradient over all ranks, after model_reduce_grad() */
	float *master;          /* own; part of value where t is fp32 */
	float *exp_avg, *exp_avg_sq; /* own */
	bool apart;             /* value and grad are not in an arena */
};

struct chunk {                  /* of an arena, summed over ranks at once: n elements from `first` on, parameter `param` and others behind it */
	long param, first, n;
	struct comm_request request;
};

struct flat {                   /* trained parameters end to end: shard.h's arena */
	struct shard_arena a;
	struct comm *comm;      /* who holds the same arena */
	char *value;            /* type t */
	float *grad, *sum, *master, *exp_avg, *exp_avg_sq; /* sum: grad itself where comm has one rank */
	struct chunk *chunk; long chunks, started; /* from the end of the arena to its beginning */
};

struct model {
	struct param_table table;
	const struct ops *k;
	struct mesh *mesh;      /* borrowed, or of one rank and our own; never NULL */
	enum dtype t;           /* DTYPE_F32 or DTYPE_BF16 */
	unsigned flags;
	struct weight *w;       /* table.n of them, in table order */
	struct box *box;        /* table.n: the part of each that this rank computes with; extents 0: of another stage */
	struct dims here;
	struct layer *layer;    /* where each layer's lie, by the layer's global number; owned */
	struct moe *moe;        /* kernels/model/moe.h; NULL where no layer has experts */
	long positions;         /* that it can run: the config's, or fewer where the caller asked for fewer */
	float *cos, *sin;       /* [positions, head_dim / 2] in the backend's memory */
	struct attention_shape attention;       /* of this rank's heads */
	struct flat flat[2];    /* dense parameters, experts; with MODEL_TRAIN */
	struct comm kv;         /* the TP ranks that share a kv head */
	long reduced;           /* parameters from this one on have been summed over TP ranks */
	bool last_backward;     /* model_last_backward() was called */
	struct comm back;       /* the ranks of mesh->pp, for gradients: their messages never meet those of activations */
	bool own_mesh;
};

/*
 * mesh: borrowed, its layout is the model's; NULL: one rank.  Every rank of the mesh calls it.  positions: longest sequence that
 * will be run; 0 or more than the config's: the config's.  69 for what the kernels do not do (sliding window, scalar head, MLP
 * biases, dynamic RoPE).
 */
int model_init(struct model *m, const struct model_config *c, const struct ops *k, struct mesh *mesh, enum dtype t, long positions,
	       unsigned flags, struct err *e) MUST_CHECK;
void model_release(struct model *m);
bool model_holds(const struct model *m, long i);        /* parameter i is of this rank's stage */
/*
 * Give parameter i its values (host memory, any floating type, m->box[i] densely); they are rounded to t; with MODEL_TRAIN
 * the fp32 master of the own rows gets them unrounded, and the moments stay as they are (zero at first).  Empty boxes: nothing.
 */
void model_set(struct model *m, long i, const void *values, enum dtype from);
/* Exact optimizer state of the own rows, host fp32; call after model_set().  NULL: leave. */
void model_set_optimizer(struct model *m, long i, const float *master, const float *exp_avg, const float *exp_avg_sq);
/* Random weights as Hugging Face does it: normal(0, initializer_range), norms 1, biases 0; a function of (seed, name, index) only. */
void param_init_random(float *out, const struct param *p, const struct model_config *c, uint64_t seed);
long model_index(const struct model *m, enum param_kind kind, int layer); /* -1: has none */
void model_zero_grad(struct model *m);
/* The current value of m->box[i] in type t, into host memory. */
void model_get(const struct model *m, long i, void *out);

/* -- packed sequences ------------------------------------------------------------------------------- */

long model_expert_layers(const struct model *m); /* layers with experts, in order; 0 where there are none */
long model_experts_per_row(const struct model *m); /* ids that a row has: layers with experts times k */

struct batch {
	long rows;
	const int *ids;         /* [rows] */
	long nseq;
	const long *cu;         /* [nseq + 1], cu[0] = 0, cu[nseq] = rows */
	/* [rows, model_expert_layers(), k]: the experts that each row visits, distinct; -1 in a row's first slot of a layer: those that
	 * its router chooses, as for all rows where this is NULL */
	const int *experts;
};

struct pass;

/*
 * Of what a backward pass needs: everything is kept; or only each layer's input, and the layer is run again; or all but what costs
 * little to make again, the outputs of norms and the product of gate and up (of layers without experts).
 */
enum recompute { RECOMPUTE_NOTHING, RECOMPUTE_LAYERS, RECOMPUTE_CHEAP };

/* keep: for a backward pass. */
struct pass *pass_new(struct model *m, long max_rows, bool keep, enum recompute recompute);
/*
 * Another with the same sizes, for a batch in flight beside that of `p`: they share what only a running pass needs.  turn: where the
 * layers go through the stages several times, the pass is of this stage's layers of one of them; pass_new() of the first.
 */
struct pass *pass_beside(struct pass *p, long turn);
void pass_free(struct pass *p);
size_t pass_more_bytes(const struct model *m, long max_rows, bool keep, enum recompute recompute); /* what pass_beside() will take */
size_t pass_bytes(const struct model *m, long max_rows, bool keep, enum recompute recompute); /* what pass_new() will take */
/*
 * The hidden state after the final norm of every row stays in the pass.  Over several ranks each gives the same batch (of its DP
 * rank) and gets all log-probabilities.  A stage of a pipeline takes its input from the one before and sends its output on;
 * log-probabilities are those of the last stage, NaN on the others (pipeline.h runs several batches at once).
 */
void pass_forward(struct pass *p, const struct batch *b);
/*
 * For rows with target[r] >= 0: lp[r] = log softmax(z_r / T)[target], entropy[r] (NULL: not wanted).  Others: NaN.
 * In chunks of rows: [rows, vocab] never exists whole.
 */
void pass_logprobs(struct pass *p, float *lp, float *entropy, const int *target, float temperature);
/* All logits of rows first .. first + n - 1, fp32 host memory [n, vocab]: for tests and small models. */
void pass_logits(struct pass *p, float *logits, long first, long n);
/* Adds to every grad: d(sum_r dlp[r] lp[r]).  After pass_forward and pass_logprobs of the same batch, targets and temperature. */
void pass_backward(struct pass *p, const float *dlp);

/* -- optimizer: every rank calls these ----------------------------------------------------------------- */

/*
 * After the last pass_backward(): sums over the ranks what each has a part of (over TP partial gradients and kv heads that ranks
 * share, over first and last stage a tied embedding, over DP x CP or EDP all), each into its owner's w->sum.
 */
void model_reduce_grad(struct model *m);
/* Begins all of it that has not begun; before a rank waits for others in any other way, since theirs may be under way. */
void model_reduce_start(struct model *m);
/*
 * Said before the pass_backward() after which model_reduce_grad() follows: the sums of its upper layers then run beside the lower
 * ones.  Not needed, and without effect on a bit.
 */
void model_last_backward(struct model *m);
double model_grad_norm(const struct model *m); /* sqrt of the sum of squares over all trained parameters, copies once */
/* Name of the first parameter with a gradient that is not finite on any rank, or NULL. */
const char *model_bad_grad(const struct model *m);
/* Own rows updated, then whole again on every rank.  h->weight_decay applies to parameters with `decay` only. */
void model_adamw(struct model *m, const struct adamw *h);

#endif
