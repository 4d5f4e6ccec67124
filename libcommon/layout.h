#ifndef LIBCOMMON_LAYOUT_H
#define LIBCOMMON_LAYOUT_H

/*
 * How a model lies over ranks: sizes of the two meshes and the stage of every layer.  Each stage has TP CP DP = ETP EP EDP ranks;
 * a rank has a place in both meshes (Megatron-Core's order):
 *
 * Layers go through the stages in order: once, or in several turns of which each visits every stage (interleaved pipelines: a rank
 * then has several runs of layers).
 *
 *	rank = tp + TP (cp + CP (dp + DP pp)) = etp + ETP (ep + EP (edp + EDP pp))
 */

#include "libcommon/json.h"

struct layout {
	long tp, pp, ep, etp, dp, cp;   /* all 1 on one rank */
	long layers;
	long *stage_of_layer;           /* owned; NULL: all on stage 0 */
};

struct place { long tp, cp, dp, pp, etp, ep, edp; };

void layout_init(struct layout *l, long layers);        /* one rank */
void layout_release(struct layout *l);
void layout_to_json(struct json_out *o, const struct layout *l);
int layout_from_json(struct layout *l, const struct json_doc *d, const struct json *v, struct err *e) MUST_CHECK;
long layout_world(const struct layout *l);              /* TP CP DP PP */
long layout_edp(const struct layout *l);                /* TP CP DP / (ETP EP) */
struct place layout_place(const struct layout *l, long rank);
long layout_rank(const struct layout *l, const struct place *dense);   /* by its dense coordinates and pp */
long layout_expert_rank(const struct layout *l, const struct place *p);        /* by etp, ep, edp and pp */
long layout_stage(const struct layout *l, long layer);  /* 0 where there is one stage */

void layout_copy(struct layout *to, const struct layout *from);
bool layout_equal(const struct layout *a, const struct layout *b);
/* pp stages whose numbers of layers differ by one at most, the larger ones first: 10 layers on 4 stages are 3,3,2,2. */
void layout_balance(struct layout *l, long pp);
/* The same in so many turns through the stages. */
void layout_interleave(struct layout *l, long pp, long turns);
long layout_turns(const struct layout *l);
long layout_turn(const struct layout *l, long layer);   /* 0 .. */
/* The first layer whose stage is not in its turn; -1: none. */
long layout_bad_stage(const struct layout *l);
/* "8,8,9,7": layers of each stage, which sets pp too; "2,2/2,1": of each stage in each turn.  0 is fine (a stage with the embedding alone).  EX_USAGE: no such list, or its
 * sum is not l->layers. */
int layout_parse_stages(struct layout *l, const char *text, struct err *e) MUST_CHECK;
char *layout_stages(const struct layout *l);            /* "8,8,9,7"; the caller frees */
char *layout_text(const struct layout *l);      /* "tp 2, pp 4 (8,8,9,7), dp 3" without the ones, or "one rank"; the caller frees */
/* Sets l->dp to the least with which ETP EP divides TP CP DP; sizes that layout_check() will refuse leave 1. */
void layout_fit_dp(struct layout *l);

struct model_config;
/*
 * Can that model lie so?  Sizes are positive, both meshes cover the ranks of a stage, layers are the model's, no more stages than
 * layers, TP divides the heads and the MLP and goes with the kv heads, EP the experts, ETP their MLP.  EX_USAGE with a sentence
 * that says what to change.
 */
int layout_check(const struct layout *l, const struct model_config *c, struct err *e) MUST_CHECK;

#endif
