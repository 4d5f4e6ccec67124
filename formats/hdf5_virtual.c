#include "formats/hdf5_file.h"

#include <stdlib.h>
#include <string.h>

#include "formats/hdf5_types.h"
#include "libcommon/outdir.h"
#include "libcommon/str.h"
#include "libcommon/xalloc.h"

/* What a reader sees where a shard is missing: a quiet NaN, or all bits set. */
static void fill_bits(unsigned char bits[8], enum dtype t)
{
	static const uint64_t nan64 = 0x7ff8000000000000;
	static const uint32_t nan32 = 0x7fc00000;
	static const uint16_t nan16 = 0x7e00, nanb16 = 0x7fc0;

	memset(bits, 0xff, 8);
	switch (t) {
	case DTYPE_F64: memcpy(bits, &nan64, sizeof(nan64)); break;
	case DTYPE_F32: memcpy(bits, &nan32, sizeof(nan32)); break;
	case DTYPE_F16: memcpy(bits, &nan16, sizeof(nan16)); break;
	case DTYPE_BF16: memcpy(bits, &nanb16, sizeof(nanb16)); break;
	default: break;
	}
}

/* HDF5 reads %b in the names of sources as a block number; %% is the percent sign. */
static char *escape(const char *name)
{
	struct str s = { 0 };

	for (; *name; name++) {
		if (*name == '%')
			str_putc(&s, '%');
		str_putc(&s, *name);
	}
	return str_detach(&s);
}

static int map(hid_t list, hid_t whole, const struct hdf5_source *src)
{
	char *name = escape(src->name);
	hid_t space = hdf5_space(src->box.extent, src->box.rank);
	hsize_t start[TENSOR_RANK], count[TENSOR_RANK];
	herr_t rc;

	for (int i = 0; i < src->box.rank; i++) {
		start[i] = (hsize_t)src->box.start[i];
		count[i] = (hsize_t)src->box.extent[i];
	}
	rc = H5Sselect_hyperslab(whole, H5S_SELECT_SET, start, NULL, count, NULL);
	if (rc >= 0)
		rc = H5Pset_virtual(list, whole, src->file, name, space);
	H5Sclose(space);
	free(name);
	return rc < 0 ? -1 : 0;
}

int hdf5_put_virtual(struct hdf5_file *f, const char *name, enum dtype dtype, const long *shape,
		     int rank, const struct hdf5_source *src, long n, struct err *e)
{
	unsigned char fill[8];
	hid_t type, space, list, set = -1;
	int rc = 0;

	if (hdf5_make_groups(f, name, e))
		return -1;
	/* A virtual data set needs a dimension; a scalar has one box, so a link shows it whole. */
	if (rank == 0 && n == 1)
		return H5Lcreate_external(src->file, src->name, f->id, name, H5P_DEFAULT,
					  H5P_DEFAULT) < 0
			       ? hdf5_failed(e, f, name, "cannot be linked")
			       : 0;
	type = hdf5_type(dtype);
	space = hdf5_space(shape, rank);
	list = hdf5_dataset_list();
	fill_bits(fill, dtype);
	H5Pset_fill_value(list, type, fill);
	for (long i = 0; i < n && !rc; i++)
		rc = map(list, space, &src[i]);
	H5Sselect_all(space);
	if (!rc)
		set = H5Dcreate2(f->id, name, type, space, H5P_DEFAULT, list, H5P_DEFAULT);
	if (set < 0)
		rc = hdf5_failed(e, f, name, "cannot be made");
	else
		H5Dclose(set);
	H5Pclose(list);
	H5Sclose(space);
	H5Tclose(type);
	return rc;
}
