#ifndef FORMATS_CHECKPOINT_MOVE_PRIVATE_H
#define FORMATS_CHECKPOINT_MOVE_PRIVATE_H

/* Private to checkpoint_move*.c. */

#include "formats/checkpoint_move.h"
#include "formats/checkpoint_table.h"

/* A new box in a file of this rank. */
struct move_target {
	long tensor;            /* index into the caller's tensors */
	long nth;               /* among the boxes of that tensor, as given */
	long source;            /* the tensor in `from` */
	struct box box;
	struct grid grid;
};

/* Neighbouring blocks of a target that are copied from neighbouring blocks of an old box. */
struct move_copy { long target, first, n, box, from; };
/* Neighbouring blocks of a target that are gathered, at byte `at` of the buffer. */
struct move_span { long target, first, n; size_t at; };
/* Neighbouring blocks of an old box that are read for a batch. */
struct move_read { long source, box, first, n; };

struct move_batch { long copy, copies, span, spans; size_t bytes; };

struct checkpoint_move {
	struct checkpoint *from;                        /* borrowed */
	struct move_target *target; long targets;       /* owned, as all that follows; by tensor */
	struct move_copy *copy; long copies, copy_cap;
	struct move_span *span; long spans, span_cap;   /* within a batch by tensor */
	struct move_batch *batch; long batches, batch_cap;
	size_t largest;                                 /* batch */
	size_t memory;                                  /* what a batch may have */
	struct move_totals totals;
};

static inline size_t block_bytes(const struct checkpoint_move *m, const struct move_target *x, long block)
{
	long first;

	return (size_t)grid_range(&first, &x->grid, block) * dtype_size(m->from->tensor[x->source].dtype);
}
/* Elements of the target in front of a block. */
static inline long block_first(const struct move_target *x, long block)
{
	long first;

	grid_range(&first, &x->grid, block);
	return first;
}

/* Part of a span that is a box: what box_copy() writes to. */
struct move_part { struct box box; size_t at; };
/* What a batch gathers of one tensor. */
struct move_gather { long source, first, parts; };
struct move_work {
	struct move_part *part; long parts, part_cap;           /* owned */
	struct move_gather *gather; long gathers, gather_cap;   /* owned; by tensor */
	struct move_read *read; long reads, read_cap;           /* owned; by file and offset */
	long *gather_of;                                        /* owned; by tensor of `from` */
};
/* What has to be read for a batch, and where it belongs. */
void move_work_init(struct move_work *k, const struct checkpoint_move *m, const struct move_batch *b);
void move_work_release(struct move_work *k);

#endif
