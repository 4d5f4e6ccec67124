#ifndef LIBCOMMON_LAYOUT_H
#define LIBCOMMON_LAYOUT_H

/* How a model lies over ranks: sizes of the two meshes (dense TP x CP x DP, expert ETP x EP x EDP) and the stage of every layer. */

#include "libcommon/json.h"

struct layout {
	long tp, pp, ep, etp, dp, cp;   /* all 1 on one rank */
	long layers;
	long *stage_of_layer;           /* owned; NULL: all on stage 0 */
};

void layout_init(struct layout *l, long layers);        /* one rank */
void layout_release(struct layout *l);
void layout_to_json(struct json_out *o, const struct layout *l);
int layout_from_json(struct layout *l, const struct json_doc *d, const struct json *v, struct err *e) MUST_CHECK;

#endif
