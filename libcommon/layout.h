#ifndef LIBCOMMON_LAYOUT_H
#define LIBCOMMON_LAYOUT_H

/*
 * How a model lies over ranks: sizes of the two meshes and the stage of every layer.  Each stage has TP CP DP = ETP EP EDP ranks;
 * a rank has a place in both meshes (Megatron-Core's order):
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

#endif
