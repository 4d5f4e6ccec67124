#ifndef TOOLS_SHARED_EXPERT_NAMES_H
#define TOOLS_SHARED_EXPERT_NAMES_H

/*
 * How the experts of a layer are spelt in Hugging Face folders.  A checkpoint has them as one
 * tensor [E, out, in] under the name that one of them would have without its number:
 *
 *	model.layers.0.mlp.experts.gate_proj.weight             [E, I, H]       in a checkpoint
 *	model.layers.0.mlp.experts.7.gate_proj.weight           [I, H]        apart: the hub
 *	model.layers.0.mlp.experts.gate_up_proj                 [E, 2 I, H]   fused: gate before up
 *	model.layers.0.mlp.experts.down_proj                    [E, H, I]       fused
 *
 * mixtral has block_sparse_moe for mlp, and w1, w3, w2 for gate_proj, up_proj, down_proj; in memory
 * transformers 5 gives it the names of the others, and its router is mlp.gate.weight.
 *
 * A checkpoint says in its side file experts.json which spelling came in, {"experts": "fused",
 * "block": "mlp"}, so that export can write that again; without the file they were apart.
 */

#include "libcommon/json.h"
#include "libcommon/param.h"
#include "libcommon/str.h"

#define EXPERT_SPELLING_FILE "experts.json"

struct expert_spelling {
	bool fused;
	bool mlp;               /* mixtral under the names of the others; only with fused */
};

/* Owned by the caller.  p is one of experts, but in expert_block_name() any. */
char *expert_apart_name(const struct param *p, long expert);
/* Gate and up: the same. */
char *expert_fused_name(const struct param *p, const struct expert_spelling *s);
/* p->name, or mlp in it. */
char *expert_block_name(const struct param *p, const struct expert_spelling *s);

void expert_spelling_put(struct str *out, const struct expert_spelling *s);
/* The text of experts.json; EX_DATAERR. */
int expert_spelling_get(struct expert_spelling *s, const char *text, size_t n,
			struct err *e) MUST_CHECK;

#endif
