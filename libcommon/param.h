#ifndef LIBCOMMON_PARAM_H
#define LIBCOMMON_PARAM_H

/*
 * The parameter table: the single source for initialisation, sharding, gradient reduction, decay groups and
 * checkpoint boxes.  Built from a model_config; names are Hugging Face's, logical and unfused.  The experts of a layer are one
 * tensor [E, out, in] under the name of one expert without its number, model.layers.0.mlp.experts.gate_proj.weight.
 */

#include "libcommon/box.h"
#include "libcommon/layout.h"
#include "libcommon/model_config.h"

enum param_role { ROLE_PARAM, ROLE_FROZEN, ROLE_BUFFER, ROLE_CARRIED };
enum param_kind {
	PARAM_EMBED, PARAM_INPUT_NORM, PARAM_Q, PARAM_K, PARAM_V, PARAM_O, PARAM_Q_BIAS, PARAM_K_BIAS, PARAM_V_BIAS, PARAM_O_BIAS,
	PARAM_Q_NORM, PARAM_K_NORM, PARAM_POST_NORM, PARAM_GATE, PARAM_UP, PARAM_DOWN, PARAM_GATE_BIAS, PARAM_UP_BIAS, PARAM_DOWN_BIAS,
	/* of a layer with experts, in place of the nine before; the shared ones where it has a shared expert */
	PARAM_ROUTER, PARAM_EXPERT_GATE, PARAM_EXPERT_UP, PARAM_EXPERT_DOWN,
	PARAM_SHARED_GATE, PARAM_SHARED_UP, PARAM_SHARED_DOWN, PARAM_SHARED_ROUTER,
	PARAM_FINAL_NORM, PARAM_LM_HEAD, PARAM_SCORE
};
enum { PARAM_VOCAB_UNIT = 1024 };       /* the vocabulary is cut between the blocks in which kernels sum over it */
/* Gradient over the ranks of a TP group: each has its own part; all have the same; each has a part of the sum. */
enum grad_state { GRAD_SHARDED, GRAD_SAME, GRAD_PARTIAL };

struct param {
	char *name;             /* owned */
	enum param_kind kind;
	enum param_role role;
	int layer;              /* -1: not in a layer */
	int rank;
	long shape[TENSOR_RANK];
	bool expert;            /* dimension 0 is the expert, which EP splits; tp_axis then belongs to ETP */
	int tp_axis;            /* dimension that TP (ETP) splits; -1: replicated */
	long tp_unit;           /* rows (columns) that stay together: a head, the heads of a group, a chunk of K, PARAM_VOCAB_UNIT */
	long tp_fine;           /* the same where there are more ranks than units: one head, one row; 0: ranks then share a unit (k, v) */
	enum grad_state tp_grad;
	long chunks;            /* C of design section 5: pieces of K that are summed apart; 1: one chain */
	bool decay;             /* weight decay applies: matrices, not norms and biases */
};

struct param_table {
	struct param *p;        /* owned; embed, layers in order, final norm, head */
	long n;
	long *layer_at;         /* owned [layers + 1]: where the parameters of each layer begin */
	struct model_config config;
};

void param_table_init(struct param_table *t, const struct model_config *c);
void param_table_release(struct param_table *t);
const struct param *param_find(const struct param_table *t, const char *name); /* or NULL */
const char *role_name(enum param_role r);       /* "param", "frozen", ... */
long param_stage(const struct param *p, const struct layout *l);        /* embedding: the first; final norm and head: the last */
/*
 * The box that the rank at `at` computes with, whatever its stage.  Boxes of the ranks of a TP group (EP and ETP groups for experts) cover
 * the tensor, on whole units, some perhaps empty; two of them are equal or apart.  Ranks with equal boxes hold copies.
 */
struct box param_box(const struct param *p, const struct layout *l, const struct place *at);
/* How many ranks of that TP (ETP) group hold this box, and which of them (0 ..) is the one at `at`. */
long param_copies(long *which, const struct param *p, const struct layout *l, const struct place *at);

#endif
