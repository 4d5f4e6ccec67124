#ifndef FORMATS_CHECKPOINT_CHUNK_H
#define FORMATS_CHECKPOINT_CHUNK_H

/*
 * Private to checkpoint*.c: how a stored box is cut into blocks, and a block's form in a compressed
 * checkpoint (cairn-checkpoint(5), "Compression").
 *
 * A block is a run of elements that are neighbours in the box, at most 1 MiB of them, under one
 * checksum.  Where nothing is compressed the box is cut every 1 MiB.  Where it is, and the box has
 * 4 KiB or more, a block is a chunk of HDF5: of extents (1, .., 1, k, all, .., all), where k stands
 * in the first dimension d whose rows (everything behind d) have at most 1 MiB; k is then made
 * even: the least that gives as few chunks.  The last chunk of a run of rows may have fewer; it is
 * stored with zeros up to the full size, as HDF5 does.
 */

#include "formats/hdf5_file.h"

enum { CHUNK_LEAST = 4096 };    /* bytes of a box that is stored in chunks */

struct grid {
	bool chunked;
	long run;               /* elements after which the cutting begins anew */
	long per;               /* elements of a block; the last of a run may have fewer */
	long each;              /* blocks of a run */
	long blocks;            /* of the box */
	int rank;
	long chunk[TENSOR_RANK];        /* extents of a chunk, where chunked */
};

/* Of a box that is not empty. */
struct grid grid_of(const struct hdf5_box *b, bool compressed);
/* Elements of a block, and the index of the first in the box. */
long grid_range(long *first, const struct grid *g, long block);
long grid_block(const struct grid *g, long element);    /* the block that holds it */

/*
 * Scratch for one chunk: 2 MiB and zstd's own tables.  Taken and given back from any thread; there
 * are as many as were ever in use at once, and they stay.
 */
struct chunk_codec {
	struct chunk_codec *next;       /* among those that nobody uses */
	void *packer, *unpacker;        /* contexts of zstd, NULL until needed */
	char *shuffled, *stored;        /* NULL until needed */
};
struct chunk_codec *chunk_codec_take(void);
void chunk_codec_give(struct chunk_codec *c);
/* Room for a stored chunk of `full` elements. */
char *chunk_room(struct chunk_codec *c);
/*
 * The stored form of n elements and zeros up to `full`: byte shuffle, then zstd; or, where that is
 * no smaller, the elements as they are (then the result is full * elem).  It lies in c->stored.
 */
size_t chunk_pack(struct chunk_codec *c, const void *raw, long n, long full, size_t elem,
		  int level);
/*
 * The first n of the `full` elements of the stored chunk in c->stored; -1 where it is damaged or
 * would unpack to another size.  No more than full * elem bytes are ever written.
 */
int chunk_unpack(void *raw, struct chunk_codec *c, size_t bytes, long n, long full, size_t elem);

/*
 * HDF5's filter 2: byte b of element i goes to out[b * stride + i].  The inverse takes it back.
 * elem 1, 2, 4 or 8.
 */
void chunk_shuffle(char *out, const char *in, long n, long stride, size_t elem);
void chunk_unshuffle(char *out, const char *in, long n, long stride, size_t elem);

#endif
