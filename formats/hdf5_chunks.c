#include "formats/hdf5_file.h"

#include <stdlib.h>

#include "formats/hdf5_types.h"
#include "libcommon/outdir.h"
#include "libcommon/xalloc.h"

enum { BOTH_FILTERS = 3 };      /* the bits of a chunk that passed neither */

/* With the filter at hand HDF5 looks for no plugin. */
static void register_zstd(void)
{
	static bool done;

	if (!done && H5Zfilter_avail(HDF5_ZSTD) <= 0)
		H5Zregister(&hdf5_zstd_class);
	done = true;
}

/* Where chunk i of a row-major grid begins. */
static void place(hsize_t *at, long i, const long *shape, const long *chunk, int rank)
{
	for (int k = rank - 1; k >= 0; k--) {
		long n = (shape[k] + chunk[k] - 1) / chunk[k];

		at[k] = (hsize_t)(i % n * chunk[k]);
		i /= n;
	}
}

static hid_t make(struct hdf5_file *f, const char *name, hid_t type, const long *shape,
		  const long *chunk, int rank, int level)
{
	hid_t space = hdf5_space(shape, rank), list = hdf5_dataset_list(), set = -1;
	hsize_t dims[TENSOR_RANK];
	unsigned parameter = (unsigned)level;

	for (int i = 0; i < rank; i++)
		dims[i] = (hsize_t)chunk[i];
	H5Pset_fill_time(list, H5D_FILL_TIME_NEVER);
	if (H5Pset_chunk(list, rank, dims) >= 0 && H5Pset_shuffle(list) >= 0 &&
	    H5Pset_filter(list, HDF5_ZSTD, H5Z_FLAG_OPTIONAL, 1, &parameter) >= 0)
		set = H5Dcreate2(f->id, name, type, space, H5P_DEFAULT, list, H5P_DEFAULT);
	H5Pclose(list);
	H5Sclose(space);
	return set;
}

static int find_chunks(struct hdf5_chunk *c, long n, struct hdf5_file *f, const char *name,
		       hid_t set, const long *shape, const long *chunk, int rank, struct err *e)
{
	hid_t space = H5Dget_space(set);
	int rc = 0;

	for (long i = 0; i < n && !rc; i++) {
		hsize_t want[TENSOR_RANK], have[TENSOR_RANK], bytes = 0;
		haddr_t at = HADDR_UNDEF;
		unsigned mask;
		bool same;

		place(want, i, shape, chunk, rank);
		same = H5Dget_chunk_info(set, space, (hsize_t)i, have, &mask, &at, &bytes) >= 0 &&
		       at != HADDR_UNDEF && bytes == c[i].bytes;
		for (int k = 0; k < rank && same; k++)
			same = have[k] == want[k];
		if (!same)
			rc = hdf5_failed(e, f, name, "a chunk is not where it was put");
		c[i].offset = at;
	}
	H5Sclose(space);
	return rc;
}

int hdf5_put_chunks(struct hdf5_chunk *c, long n, struct hdf5_file *f, const char *name,
		    enum dtype dtype, const long *shape, const long *chunk, int rank, int level,
		    int (*get)(void *arg, const void **data, long i, struct err *e), void *arg,
		    struct err *e)
{
	size_t whole = dtype_size(dtype);
	hid_t type, set;
	int rc = 0;

	register_zstd();
	if (hdf5_make_groups(f, name, e))
		return -1;
	for (int i = 0; i < rank; i++)
		whole *= (size_t)chunk[i];
	type = hdf5_type(dtype);
	set = make(f, name, type, shape, chunk, rank, level);
	H5Tclose(type);
	if (set < 0)
		return hdf5_failed(e, f, name, "cannot be made");
	for (long i = 0; i < n && !rc; i++) {
		hsize_t at[TENSOR_RANK];
		const void *data;

		place(at, i, shape, chunk, rank);
		rc = get(arg, &data, i, e);
		io_point("hdf5 chunk");
		if (!rc && H5Dwrite_chunk(set, H5P_DEFAULT, c[i].bytes == whole ? BOTH_FILTERS : 0,
					  at, c[i].bytes, data) < 0)
			rc = hdf5_failed(e, f, name, "cannot be written");
	}
	if (!rc)
		rc = find_chunks(c, n, f, name, set, shape, chunk, rank, e);
	H5Dclose(set);
	return rc;
}
