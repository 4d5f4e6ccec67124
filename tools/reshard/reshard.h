#ifndef TOOLS_RESHARD_RESHARD_H
#define TOOLS_RESHARD_RESHARD_H

#include "formats/checkpoint_move.h"
#include "libcommon/param.h"

/* The layout as the command line has it; NULL: not given. */
struct layout_words { const char *tp, *pp, *ep, *etp, *dp, *cp, *stages; };

/*
 * Absent sizes are 1, but for dp: the fewest ranks that ep and etp need.  EX_USAGE where a word is no number or the model cannot lie
 * so.
 */
int layout_from_words(struct layout *l, const struct layout_words *w, const struct model_config *c, struct err *e) MUST_CHECK;
/*
 * The layout of another checkpoint of the same model (every weight there under that name with that shape), and its weights_digest:
 * EX_DATAERR otherwise.
 */
int layout_of_other(struct layout *l, struct digest *weights, const char *dir, const struct checkpoint *c, const struct model_config *m, struct err *e) MUST_CHECK;

/* What the new checkpoint holds and how it is cut. */
struct listing {
	struct param_table table;
	struct checkpoint_tensor *tensor; long n;       /* owned; names borrowed from the checkpoint */
	struct checkpoint_piece *piece; long pieces;    /* owned */
};
/* EX_DATAERR where a parameter that the config asks for is missing or has another shape. */
int listing_init(struct listing *t, const struct checkpoint *c, const struct model_config *m, const struct layout *l,
		 bool weights_only, struct err *e) MUST_CHECK;
void listing_release(struct listing *t);

/* One JSON line on stdout, a table on stderr. */
void print_plan(const struct checkpoint *c, const struct listing *t, const struct layout *l, const struct move_totals *m,
		size_t memory);

#endif
