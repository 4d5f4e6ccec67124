#ifndef TOOLS_SHARED_PIECES_H
#define TOOLS_SHARED_PIECES_H

#include "formats/checkpoint.h"
#include "libcommon/shard.h"

enum { PIECE_FILES = 256 };     /* in so many files foreign readers may have to look for one tensor */

/*
 * The pieces that a checkpoint of these tensors has in a layout: weights as shard_weights() has them, optimizer slots as
 * shard_optimizer().  File numbers are those of the ranks; where there are more than PIECE_FILES, neighbours share a file.  A tensor
 * that the table does not know lies whole in file 0.  Roles in the table become what the tensors say: trained where there is a slot.
 * Returns their number; the caller frees.
 */
long layout_pieces(struct checkpoint_piece **out, const struct checkpoint_tensor *tensor, long n, struct param_table *table,
		   const struct layout *l);
int layout_file(const struct layout *l, long rank);

#endif
