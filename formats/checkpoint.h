#ifndef FORMATS_CHECKPOINT_H
#define FORMATS_CHECKPOINT_H

/*
 * Checkpoints (cairn-checkpoint(5)): a directory of HDF5 shards that hold boxes of logical tensors,
 * an index with the table of all boxes, and a manifest that is written last.
 *
 * Writing.  The tensors and the pieces (boxes that tile each tensor exactly once, each in a
 * numbered file) are known at the start, so every byte has its place before the first is written;
 * puts may come in any order.
 *
 *	checkpoint_create(&w, "run/step-000001", &meta, tensors, n, NULL, 0, comm, e);
 *	checkpoint_put(w, checkpoint_index(w, name, slot), NULL, data, e);      ... for every tensor
 *	checkpoint_put_file(w, "hf/config.json", text, len, e);   or checkpoint_copy_side(w, parent, e)
 *	checkpoint_commit(w, e);                                  or checkpoint_abort(w)
 *
 * Both free w.  Nothing holds a time, a host or a path but the history's arguments: the same run
 * twice gives the same bytes.
 *
 * Reading.  Manifest and index are verified before libhdf5 sees anything, libhdf5 never opens a
 * shard, and every 1 MiB block is verified as it is read.  Errors are EX_DATAERR naming file and
 * tensor.
 */

#include "formats/manifest.h"
#include "libcommon/box.h"
#include "libcommon/comm.h"
#include "libcommon/layout.h"
#include "libcommon/param.h"

enum slot { SLOT_WEIGHT, SLOT_MASTER, SLOT_EXP_AVG, SLOT_EXP_AVG_SQ, SLOT_MOMENTUM, SLOT_COUNT };
/* "weight", "master", "exp_avg", "exp_avg_sq", "momentum" */
const char *slot_name(enum slot s);

enum { CHECKPOINT_BLOCK = 1 << 20 };    /* bytes that one checksum covers */

struct checkpoint_tensor {
	const char *name;               /* not empty, no '/' and no NUL, not "." or ".." */
	enum slot slot;
	enum param_role role;           /* of the parameter, the same in all its slots */
	enum dtype dtype;
	int rank;
	long shape[TENSOR_RANK];
};

struct checkpoint_piece {
	long tensor;                    /* index into the tensors */
	/* 0..; file f of weights or optimizer is written by rank f % size */
	int file;
	struct box box;                 /* not empty */
};

struct counters { long step, updates, schedule_step, skipped, consumed_samples, tokens; };

struct checkpoint_meta {                /* everything is borrowed */
	const char *head;               /* "lm", "scalar", "none" */
	const char *optimizer;          /* "adamw", ..., or NULL without optimizer state */
	const char *precision;          /* policy.precision that trained it, or NULL */
	struct counters counters;
	const char *cursor;             /* the data cursor as JSON text, or NULL */
	const char *fingerprint;        /* of the arithmetic, 16 hex digits, or NULL */
	const struct layout *layout;    /* NULL: one rank */
	/* 0: stored as it is; 1..19: zstd at that level, box by box of 4 KiB and more, in chunks */
	int compress;
	struct history history;         /* history.recipe becomes recipe.yaml */
};

/* -- writing ------------------------------------------------------------ */

struct checkpoint_writer;

/*
 * "zstd" (level 3) or "zstd:N", N = 1..19, as --compress takes it -> checkpoint_meta.compress;
 * anything else is EX_USAGE with a sentence.
 */
int checkpoint_compression(int *level, const char *text, struct err *e) MUST_CHECK;
/*
 * `tensors`: a weight for every name; optimizer slots under the same name and shape.  No name and
 * slot twice.  piece NULL: every tensor whole, in file 0.  Pieces that do not tile their tensor are
 * EX_SOFTWARE.  DIR exists: EX_CANTCREAT.
 */
int checkpoint_create(struct checkpoint_writer **w, const char *dir,
		      const struct checkpoint_meta *m, const struct checkpoint_tensor *tensors,
		      long n, const struct checkpoint_piece *piece, long pieces, struct comm *comm,
		      struct err *e) MUST_CHECK;
/* Index of (name, slot) among the tensors; bug() when there is none. */
long checkpoint_index(const struct checkpoint_writer *w, const char *name, enum slot slot);
/*
 * The bits of box `b` of a tensor (NULL: all of it), dense, in its dtype.  It may span pieces, and
 * pieces may be put in parts; every element of this rank's pieces exactly once before commit; what
 * lies in other ranks' pieces is passed over.  From one thread; the work inside is spread over the
 * pool.
 */
int checkpoint_put(struct checkpoint_writer *w, long tensor, const struct box *b, const void *data,
		   struct err *e) MUST_CHECK;
/* A side file: "metrics.json", "hf/NAME".  On rank 0 only (other ranks: nothing happens). */
int checkpoint_put_file(struct checkpoint_writer *w, const char *name, const void *p, size_t n,
			struct err *e) MUST_CHECK;

/*
 * The tokenizer, ready to load: named runs of bytes; what they mean is formats/tokenizer.h's
 * business.
 */
struct blob_part { char *name; void *data; size_t bytes; };
struct blob { struct blob_part *part; int n; };
/* XXH3-128 over the parts by name: name NUL, u64 bytes, data */
struct digest blob_digest(const struct blob *b);
void blob_release(struct blob *b);                      /* frees parts, names and data */
int checkpoint_put_tokenizer(struct checkpoint_writer *w, const struct blob *b,
			     struct err *e) MUST_CHECK;

struct checkpoint;
/*
 * tokenizer.h5 and all of hf/ of another checkpoint, byte for byte; a name in `except`
 * (NULL-terminated, may be NULL) is left out.
 */
int checkpoint_copy_side(struct checkpoint_writer *w, const struct checkpoint *from,
			 const char *const *except, struct err *e) MUST_CHECK;
/* hf/config.json must have been put.  *w is gone afterwards, whatever comes back. */
int checkpoint_commit(struct checkpoint_writer *w, struct err *e) MUST_CHECK;
void checkpoint_abort(struct checkpoint_writer *w);     /* NULL is fine */

/* -- reading ------------------------------------------------------------ */

struct checkpoint {
	char *dir;                      /* owned */
	struct json_doc manifest;
	char id[17];
	/* in the manifest; optimizer .. fingerprint may be NULL */
	const char *head, *optimizer, *precision, *fingerprint;
	struct counters counters;
	const struct json *cursor, *history;    /* NULL: none */
	struct layout layout;
	struct digest weights_digest, optimizer_digest;
	bool has_optimizer, has_tokenizer;
	int compress;                   /* level of zstd that it was written with; 0: none */
	struct digest tokenizer_digest;
	/* owned; weights in the manifest's order, then the optimizer slots */
	struct checkpoint_tensor *tensor;
	struct digest *sum;                     /* owned; n, each tensor's digest_elements() sum */
	long n;
	struct manifest_file *side; long sides; /* owned */
	struct checkpoint_table *table;         /* owned; boxes, blocks, shards */
};

int checkpoint_open(struct checkpoint *c, const char *dir, struct err *e) MUST_CHECK;
void checkpoint_close(struct checkpoint *c);            /* safe on zero */
/* Index of (name, slot), or -1.  Where the weight is float32, SLOT_MASTER finds the weight. */
long checkpoint_find(const struct checkpoint *c, const char *name, enum slot slot);
/*
 * The box (NULL: all) as stored bits, dense; exactly its volume, or an error.  From one thread;
 * spread over the pool.
 */
int checkpoint_read(void *out, struct checkpoint *c, long tensor, const struct box *b,
		    struct err *e) MUST_CHECK;
/* The same widened to float32 (floating types only). */
int checkpoint_read_f32(float *out, struct checkpoint *c, long tensor, const struct box *b,
			struct err *e) MUST_CHECK;
/* The boxes of a tensor, for printing: their number, and box i with its file's name. */
long checkpoint_boxes(const struct checkpoint *c, long tensor);
const char *checkpoint_box(struct box *b, const struct checkpoint *c, long tensor, long i);
/*
 * Every file is there with its size and every byte outside the data is right; deep: all data too,
 * and the digests computed anew.  The first failure ends it.
 */
int checkpoint_verify(struct checkpoint *c, bool deep, struct err *e) MUST_CHECK;
/* A side file's bytes, verified; "hf/config.json" always exists.  Absent: EX_NOINPUT. */
int checkpoint_side_file(struct str *out, const struct checkpoint *c, const char *name,
			 struct err *e) MUST_CHECK;
bool checkpoint_has_side(const struct checkpoint *c, const char *name);
int checkpoint_read_tokenizer(struct blob *b, const struct checkpoint *c, struct err *e) MUST_CHECK;
/*
 * round(master) == weight, bit for bit (two NaNs are equal), for n elements from flat index
 * `first`: else EX_DATAERR naming one.
 */
int checkpoint_check_master(const char *name, const void *weight, enum dtype dtype,
			    const float *master, long first, long n, struct err *e) MUST_CHECK;

#endif
