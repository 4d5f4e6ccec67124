#ifndef FORMATS_SAFETENSORS_H
#define FORMATS_SAFETENSORS_H

/*
 * safetensors: `u64 N | N bytes of JSON | data`, little-endian, dense, C order.
 *
 *	{"__metadata__": {"format": "pt"},
 *	 "NAME": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]}, ...}
 *
 * Reading is as strict as the reference reader, and stricter where it is silent: N <= 100,000,000;
 * JSON white space around the object; the tensors, sorted by offset, tile the data exactly (no
 * hole, no overlap, no byte left over); every size is shape x dtype, checked for overflow; no name
 * twice; no NUL in a name; __metadata__ maps strings to strings.  A violation is EX_DATAERR naming
 * file and tensor, found at open, before a byte of data is read.  Nothing is mapped, so a file that
 * is cut while we read is an error, not a signal.  Data may be unaligned in the file.
 */

#include "libcommon/die.h"
#include "libcommon/tensor.h"
#include "libcommon/xalloc.h"

struct safetensors_entry {
	const char *name;       /* in the file's arena */
	const char *type_name;  /* as in the file: "F8_E4M3", "F4", ... */
	enum dtype dtype;       /* DTYPE_NONE: struct tensor lacks it (F4, F6_*, F8_*FNUZ, C64) */
	int rank;               /* may exceed TENSOR_RANK */
	const long *shape;      /* rank of them, in the arena */
	uint64_t offset;        /* of its first byte in the file */
	uint64_t bytes;
};

struct safetensors {
	char *path;                     /* owned */
	int fd;
	struct safetensors_entry *entry; /* in the arena; n of them, sorted by name (strcmp) */
	long n;
	char *format;                   /* __metadata__.format, in the arena, or NULL */
	struct arena arena;
};

int safetensors_open(struct safetensors *s, const char *path, struct err *e) MUST_CHECK;
void safetensors_close(struct safetensors *s);          /* safe on zero */
/* NULL: no such tensor */
const struct safetensors_entry *safetensors_find(const struct safetensors *s, const char *name);
/* A description: name and shape are the entry's, data is NULL.  A dtype or rank that struct tensor
 * lacks is 69, by name. */
int safetensors_describe(struct tensor *t, const struct safetensors *s,
			 const struct safetensors_entry *en, struct err *e) MUST_CHECK;
/* Bytes [offset, offset + n) of the tensor; the whole: 0, en->bytes.  bug() outside of it. */
int safetensors_read(void *out, const struct safetensors *s, const struct safetensors_entry *en,
		     uint64_t offset, size_t n, struct err *e) MUST_CHECK;

/*
 * A model: PATH is a .safetensors file, or a folder with model.safetensors.index.json (which wins)
 * or model.safetensors.  With an index: values of weight_map are bare file names (else EX_DATAERR),
 * every file is there (else EX_NOINPUT, naming it), every mapped tensor is in its file, no tensor
 * in two files (EX_DATAERR); a tensor that is not mapped is left out with a warning; total_size is
 * not looked at.
 */
struct safetensors_item {
	const struct safetensors *file;
	const struct safetensors_entry *entry;
};

struct safetensors_set {
	char *path;                     /* owned */
	struct safetensors *file;       /* owned, nfiles of them, sorted by name */
	long nfiles;
	struct safetensors_item *item;  /* owned, n of them, sorted by tensor name (strcmp) */
	long n;
};

int safetensors_set_open(struct safetensors_set *s, const char *path, struct err *e) MUST_CHECK;
void safetensors_set_close(struct safetensors_set *s);  /* safe on zero */
/* NULL: no such tensor */
const struct safetensors_item *safetensors_set_find(const struct safetensors_set *s,
						    const char *name);

/*
 * Writing.  The bytes come from a callback, asked in file order for consecutive pieces of at most
 * 8 MiB, so a model never lies in memory; with fn NULL they are tensor.data.  The result is byte
 * for byte what the reference writer makes (tensors by alignment, widest first, then by name; JSON
 * without blanks; padded with spaces to 8) with __metadata__ {"format":"pt"}.  Files are new
 * (EX_CANTCREAT if they exist), mode 0666 & ~umask; the caller makes them durable and visible
 * (outdir).  Every write passes io_point().
 */
typedef int safetensors_bytes(void *out, void *arg, const struct tensor *t, uint64_t offset,
			      size_t n, struct err *e);

int safetensors_write(const char *path, const struct tensor *t, long n, safetensors_bytes *fn,
		      void *arg, struct err *e) MUST_CHECK;
/*
 * Into directory `dir`: model.safetensors if all fits in max_shard bytes of tensor data, else
 * model-00001-of-0000n.safetensors and model.safetensors.index.json with the exact total_size.
 * Shards are filled in the order given; a tensor larger than max_shard has a shard of its own.
 * 0: no limit.  bug() if a name comes twice.
 */
int safetensors_write_dir(const char *dir, const struct tensor *t, long n, uint64_t max_shard,
			  safetensors_bytes *fn, void *arg, struct err *e) MUST_CHECK;

/*
 * DeepSeek's block-scaled FP8: out[i][j] = e4m3(w[i][j]) * scale[i / block_rows][j / block_cols].
 * `scale` is srows x scols, row-major: at least ceil(rows / block_rows) x ceil(cols / block_cols),
 * else EX_DATAERR naming the tensor; what lies beyond is padding and not looked at.
 */
int safetensors_dequant_fp8(float *out, const uint8_t *w, const float *scale, long rows, long cols,
			    long srows, long scols, long block_rows, long block_cols,
			    const char *name, struct err *e) MUST_CHECK;

#endif
