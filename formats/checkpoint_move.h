#ifndef FORMATS_CHECKPOINT_MOVE_H
#define FORMATS_CHECKPOINT_MOVE_H

/*
 * Moving tensors from one checkpoint into another that cuts them into other boxes, bit for bit, in bounded memory.
 *
 * Everything is planned first, from the two tables of boxes.  A block (CHECKPOINT_BLOCK) of the new checkpoint that has the very
 * elements of a block of the old one is copied: read, verified, stored.  The others are gathered: a batch of them lies in memory,
 * the old blocks that hold any of their elements are read in the order of files and offsets, each once a batch, verified, and copied
 * to where they belong by intersection of boxes; then the new blocks are stored.  A tensor that a batch can hold is in one batch; of
 * a larger one a batch takes the blocks that begin in the same rows, whatever box they are of, so that only the old blocks at the
 * edges are read twice.
 *
 *	checkpoint_move_plan(&m, from, tensors, n, piece, pieces, compress, rank, ranks, memory, e)
 *	checkpoint_create(&w, ..., tensors, n, piece, pieces, comm, e)          the same ones
 *	checkpoint_move_run(m, w, moved, arg, e)
 *	checkpoint_commit(w, e)
 *
 * With several ranks each moves what lies in the files that it writes; where one fails, run() fails on all.
 */

#include "formats/checkpoint.h"

struct move_totals {
	long boxes;             /* of the new checkpoint, in the files of this rank */
	long copied, gathered;  /* blocks of them */
	double bytes_written;   /* raw, as bytes_read: what compression makes of them is not known before */
	double bytes_read;
	long runs;              /* of neighbouring blocks that are read one after the other */
	long batches;
	size_t memory;          /* buffers at most, with those of the threads */
};

struct checkpoint_move;

/*
 * Each tensor is found in `from` by name and slot: absent, or of another type or shape, is EX_DATAERR.  compress: as in
 * checkpoint_meta.  memory: bytes for buffers; EX_USAGE where it is too little for a block a thread.  Borrows `from`, not the lists.
 */
int checkpoint_move_plan(struct checkpoint_move **m, struct checkpoint *from, const struct checkpoint_tensor *tensors, long n,
			 const struct checkpoint_piece *piece, long pieces, int compress, int rank, int ranks,
			 size_t memory, struct err *e) MUST_CHECK;
struct move_totals checkpoint_move_totals(const struct checkpoint_move *m);
/*
 * From one thread; the pool works inside.  moved (may be NULL) is told bytes as they are stored.  Commit then compares the digest of
 * every tensor with the one that `from` gives in its manifest: EX_DATAERR where the old data do not have it either, else EX_SOFTWARE.
 */
int checkpoint_move_run(struct checkpoint_move *m, struct checkpoint_writer *w, void (*moved)(void *arg, double bytes), void *arg,
			struct err *e) MUST_CHECK;
void checkpoint_move_free(struct checkpoint_move *m);   /* NULL is fine */

#endif
