#ifndef FORMATS_HDF5_FILE_H
#define FORMATS_HDF5_FILE_H

/*
 * The little of HDF5 that we use, without its types.  Only hdf5_*.c include <hdf5.h>.
 *
 * Files are written with bounds V18 to V110, without times, with locking off; data sets are
 * contiguous, those of 4 KiB and more aligned to 4 KiB, or in chunks (hdf5_put_chunks).  Values are raw bits of the stored type:
 * nothing is ever converted inside HDF5.  A file that is opened for reading must have been verified
 * against a hash before.  Not thread-safe: one thread at a time.
 */

#include "libcommon/box.h"
#include "libcommon/tensor.h"

struct hdf5_file {
	int64_t id;             /* 0: closed */
	char *path;             /* owned */
};

/* One row of the table of boxes as it lies in index.h5 (168 bytes, little-endian). */
struct hdf5_box {
	uint32_t tensor;        /* index into the manifest's "tensors" */
	uint32_t slot;          /* enum slot */
	uint32_t dtype;         /* number of the type, cairn-checkpoint(5) */
	uint32_t file;          /* index into the manifest's "shards" */
	int64_t start[TENSOR_RANK], extent[TENSOR_RANK]; /* 0 beyond the rank */
	uint64_t offset, bytes; /* of its data in the file */
	uint64_t block;         /* its first checksum in /blocks */
};

/* A stored block: a row of /chunks in the index of a compressed checkpoint. */
struct hdf5_chunk {
	uint64_t offset, bytes; /* in the file, as stored */
	uint64_t hash;          /* XXH3-64 of the stored bytes */
};

/* A stored piece of a virtual data set. */
struct hdf5_source {
	const char *file;       /* beside the index */
	const char *name;       /* data set in it */
	struct box box;         /* where it belongs */
};

/*
 * A new file.  `metadata`: bytes that headers will need, about (kept together at the front); 0:
 * few.
 */
int hdf5_create(struct hdf5_file *f, const char *path, size_t metadata, struct err *e) MUST_CHECK;
/* The same without alignment: for data sets in chunks. */
int hdf5_create_packed(struct hdf5_file *f, const char *path, size_t metadata,
		       struct err *e) MUST_CHECK;
int hdf5_open(struct hdf5_file *f, const char *path, struct err *e) MUST_CHECK;
/* Flushes what was written; the library reports a full disk only here. */
int hdf5_close(struct hdf5_file *f, struct err *e) MUST_CHECK;
void hdf5_abandon(struct hdf5_file *f);         /* close without caring; safe on zero */

/*
 * Room for a data set that we fill ourselves: the offset of its first byte.  Groups in the name
 * are made.
 */
int hdf5_reserve(uint64_t *offset, struct hdf5_file *f, const char *name, enum dtype dtype,
		 const long *shape, int rank, struct err *e) MUST_CHECK;
int hdf5_put(struct hdf5_file *f, const char *name, enum dtype dtype, const long *shape, int rank,
	     const void *data, struct err *e) MUST_CHECK;
/*
 * A data set in n chunks, behind the filters shuffle and zstd (32015), in row-major order of the
 * grid; its name is new.  get() gives the c[i].bytes of the stored form of chunk i (as many as the
 * chunk has elements: it passed no filter); c[i].offset tells afterwards where they are.
 */
int hdf5_put_chunks(struct hdf5_chunk *c, long n, struct hdf5_file *f, const char *name,
		    enum dtype dtype, const long *shape, const long *chunk, int rank, int level,
		    int (*get)(void *arg, const void **data, long i, struct err *e), void *arg,
		    struct err *e) MUST_CHECK;
/* Fill value: NaN for floats, all bits set for integers. */
int hdf5_put_virtual(struct hdf5_file *f, const char *name, enum dtype dtype, const long *shape,
		     int rank, const struct hdf5_source *src, long n, struct err *e) MUST_CHECK;
int hdf5_put_boxes(struct hdf5_file *f, const char *name, const struct hdf5_box *b, long n,
		   struct err *e) MUST_CHECK;

bool hdf5_has(const struct hdf5_file *f, const char *name);
/*
 * A whole data set of that type and rank, in memory that the caller frees (never NULL); its extents
 * in shape.  More than `most` bytes, another type or rank, or storage that is not contiguous is
 * EX_DATAERR.
 */
int hdf5_get(void **data, long *shape, struct hdf5_file *f, const char *name, enum dtype dtype,
	     int rank, size_t most, struct err *e) MUST_CHECK;
int hdf5_get_boxes(struct hdf5_box **b, long *n, struct hdf5_file *f, const char *name, size_t most,
		   struct err *e) MUST_CHECK;
/*
 * Call fn for the data sets of the root group in order of name, until it returns non-zero, which
 * is returned.
 */
int hdf5_each(struct hdf5_file *f, int (*fn)(void *arg, const char *name, struct err *e), void *arg,
	      struct err *e) MUST_CHECK;

#endif
