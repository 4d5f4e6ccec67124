#ifndef FORMATS_CHECKPOINT_TABLE_H
#define FORMATS_CHECKPOINT_TABLE_H

/*
 * Private to checkpoint*.c: tensors, boxes, blocks and shards, as the writer plans them and the
 * reader finds them.
 */

#include "formats/checkpoint.h"
#include "formats/checkpoint_chunk.h"
#include "libcommon/direct.h"
#include "libcommon/outdir.h"

enum { SHARD_NAME = 48, SHARDS_OF_TENSOR = 256 };
/* size of a shard that another rank writes, until it tells */
#define SHARD_ELSEWHERE UINT64_MAX

struct shard {
	char name[SHARD_NAME];
	bool optimizer;
	int number;             /* 0.. among those of its kind */
	int fd;                 /* -1: not open */
	struct direct direct;   /* the same file */
	uint64_t bytes;
	struct digest frame;    /* XXH3-128 of the bytes outside of all boxes, in file order */
	/*
	 * While a compressed shard is written, fd is an unlinked file of raw bytes (boxes below 4
	 * KiB, chunks that came in parts), spill one of packed chunks in the order of their coming.
	 */
	int spill;              /* -1: not open */
	uint64_t spilled;
	long *box; long boxes;  /* owned; indices into the table, in its order */
	long *place; long places;       /* owned; its blocks, by offset */
};

struct checkpoint_table {
	struct hdf5_box *box; long boxes;       /* owned; by tensor, in the order of the tensors */
	uint64_t *block; long blocks;           /* owned; XXH3-64 of each block, box after box */
	struct hdf5_chunk *chunk;               /* owned; where each block is stored */
	int compress;                           /* level of zstd, or 0 */
	struct shard *shard; int shards;        /* owned; weights first, by number */
	/* owned; n + 1: tensor t has the boxes first[t] .. first[t + 1] - 1 */
	long *first;
	/* owned; n: index of the tensor's parameter in the manifest's "tensors" */
	long *parameter;
	long *sorted;           /* owned; n: tensors by (name, slot) */
};

void table_release(struct checkpoint_table *t);
/*
 * The tensors by (name, slot); EX_DATAERR on a pair that comes twice, a slot without weight,
 * another shape or role than it.
 */
int table_sort(long **sorted, const struct checkpoint_tensor *tensor, long n, const char *file,
	       struct err *e) MUST_CHECK;
long table_find(const long *sorted, const struct checkpoint_tensor *tensor, long n,
		const char *name, enum slot slot);
/* Names, types and extents are possible: EX_DATAERR with the tensor's name. */
int table_check_tensor(const struct checkpoint_tensor *t, const char *file,
		       struct err *e) MUST_CHECK;
long table_volume(const struct checkpoint_tensor *t);
struct box table_box(const struct hdf5_box *b, int rank);
struct grid table_grid(const struct checkpoint_table *t, const struct hdf5_box *b);
/*
 * Fill `box` and `place` of every shard; EX_DATAERR where two places overlap or one ends behind the
 * file.  In `chunk` those of boxes in chunks must be known; the others follow from the boxes.
 */
int table_index_shards(struct checkpoint_table *t, const char *dir, struct err *e) MUST_CHECK;
/* The boxes of each tensor tile it exactly once. */
int table_check_tiling(const struct checkpoint_table *t, const struct checkpoint_tensor *tensor,
		       long n, const char *file, struct err *e) MUST_CHECK;
int table_frame(struct digest *d, const struct checkpoint_table *t, const struct shard *s,
		const char *path, struct err *e) MUST_CHECK;
/*
 * Elements [first, first + n) of the dense box `b`, as boxes of the whole tensor in their order;
 * their number.
 */
int table_range(struct box out[2 * TENSOR_RANK], const struct box *b, long first, long n);
/* Digest of the weights (slot 0) or of the optimizer's slots: cairn-checkpoint(5), "Digests". */
struct digest table_digest(const struct checkpoint_tensor *tensor, const struct digest *sum,
			   const long *sorted, long n, bool optimizer);
void table_id(char id[17], const struct checkpoint_table *t, const struct checkpoint_tensor *tensor,
	      long n);
/* "weight/model.norm.weight@0": the data set that holds a box in its shard; the caller frees. */
char *table_dataset(const struct checkpoint_tensor *t, const struct hdf5_box *b);

struct checkpoint_writer {
	struct outdir out;              /* rank 0's */
	char *dir;                      /* owned; where files go until commit */
	struct comm *comm;              /* NULL: one rank */
	struct arena arena;
	struct checkpoint_tensor *tensor; long n;       /* owned; in the order of the table */
	long *place;                    /* owned; the caller's index to ours */
	long *given;                    /* owned; caller's indices by (name, slot) */
	const struct checkpoint_tensor *caller;         /* in the arena */
	struct checkpoint_table table;
	unsigned char *state;           /* owned; one a block */
	/* owned; compressed only: where each box waits in its shard's raw file */
	uint64_t *raw;
	long *filled;                   /* owned; compressed only; elements put, one a block */
	long *put;                      /* owned; elements put, one a box */
	struct digest *sum;             /* owned; n */
	struct json_out manifest;       /* what is known from the start */
	struct manifest_file *side; long sides, side_cap;       /* owned */
	struct manifest_file tokenizer;
	bool has_tokenizer;
	struct digest tokenizer_digest;
	struct checkpoint *same_as;     /* borrowed: commit compares the digests of tensors; or NULL */
};

enum { BLOCK_EMPTY, BLOCK_HASHED, BLOCK_IN_PARTS };

static inline int writer_rank(const struct checkpoint_writer *w)
{
	return w->comm ? w->comm->rank : 0;
}
static inline int writer_size(const struct checkpoint_writer *w)
{
	return w->comm ? w->comm->size : 1;
}
static inline bool writer_owns(const struct checkpoint_writer *w, const struct shard *s)
{
	return s->number % writer_size(w) == writer_rank(w);
}
/*
 * One block of a box (grid_range() of its table_grid()) at a time, from any thread, with raw bytes
 * on this side whatever the form on disk.  Reading: the box's shard must be open; EX_DATAERR where
 * the bytes are not those of the checksum.  Writing: the whole block; its digest is added to *sum;
 * hash: its checksum where it is known, else NULL.  The caller counts what it stored in w->put and
 * adds *sum to w->sum.
 */
int table_open_shard(struct checkpoint *c, long tensor, long box, struct err *e) MUST_CHECK;
int table_fetch(void *out, const struct checkpoint *c, long tensor, long box, long block,
		struct err *e) MUST_CHECK;
/* The digest of a stored tensor, computed anew. */
int table_sum(struct digest *sum, struct checkpoint *c, long tensor, struct err *e) MUST_CHECK;
int writer_store(struct digest *sum, struct checkpoint_writer *w, long tensor, long box, long block,
		 const void *bytes, const uint64_t *hash, struct err *e) MUST_CHECK;
/* Do all ranks agree that this went well?  -1 on every rank when one failed. */
int writer_agree(const struct checkpoint_writer *w, int rc, struct err *e) MUST_CHECK;
/* The temporaries of a compressed shard, and the shard made of them when everything was put. */
int writer_open_spill(struct checkpoint_writer *w, int number, struct err *e) MUST_CHECK;
int writer_pack_shard(struct checkpoint_writer *w, int number, struct err *e) MUST_CHECK;
int writer_write_index(struct manifest_file *f, struct checkpoint_writer *w,
		       struct err *e) MUST_CHECK;
void writer_free(struct checkpoint_writer *w);

#endif
