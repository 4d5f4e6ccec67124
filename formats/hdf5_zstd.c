#include "formats/hdf5_types.h"

#include <stdlib.h>
#include <zstd.h>

/* Chunks of HDF5 are smaller than 4 GiB. */
#define CHUNK_MOST UINT32_MAX

static size_t compress(size_t n, void **buf, size_t *room, int level)
{
	size_t most = ZSTD_compressBound(n), bytes;
	void *out = malloc(most);

	bytes = out ? ZSTD_compress(out, most, *buf, n, level) : 0;
	if (!out || ZSTD_isError(bytes)) {
		free(out);
		return 0;
	}
	free(*buf);
	*buf = out;
	*room = most;
	return bytes;
}

static size_t decompress(size_t n, void **buf, size_t *room)
{
	unsigned long long want = ZSTD_getFrameContentSize(*buf, n);
	void *out;

	if (want == ZSTD_CONTENTSIZE_UNKNOWN || want == ZSTD_CONTENTSIZE_ERROR || !want ||
	    want > CHUNK_MOST || !(out = malloc(want)))
		return 0;
	if (ZSTD_decompress(out, want, *buf, n) != want) {
		free(out);
		return 0;
	}
	free(*buf);
	*buf = out;
	*room = want;
	return want;
}

/* The library's buffers are malloc()'s; 0 says that it failed. */
static size_t filter(unsigned flags, size_t parameters, const unsigned parameter[], size_t n,
		     size_t *room, void **buf)
{
	if (flags & H5Z_FLAG_REVERSE)
		return decompress(n, buf, room);
	return compress(n, buf, room, parameters ? (int)parameter[0] : ZSTD_CLEVEL_DEFAULT);
}

const H5Z_class2_t hdf5_zstd_class = {
	H5Z_CLASS_T_VERS, HDF5_ZSTD, 1, 1, "Zstandard compression: http://www.zstd.net", NULL, NULL,
	filter
};
