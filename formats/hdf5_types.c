#include "formats/hdf5_types.h"

#include <stdlib.h>
#include <string.h>

#include "libcommon/xalloc.h"

/* A binary float of HDF5: sign, exponent and mantissa by place and width. */
static hid_t small_float(int bits, int exponent, int bias)
{
	hid_t t = H5Tcopy(H5T_IEEE_F32LE);
	int mantissa = bits - 1 - exponent;

	H5Tset_fields(t, (size_t)bits - 1, (size_t)mantissa, (size_t)exponent, 0, (size_t)mantissa);
	H5Tset_precision(t, (size_t)bits);
	H5Tset_size(t, (size_t)bits / 8);
	H5Tset_ebias(t, (size_t)bias);
	return t;
}

/* As h5py writes numpy's bool. */
static hid_t boolean(void)
{
	hid_t t = H5Tenum_create(H5T_STD_I8LE);
	int8_t no = 0, yes = 1;

	H5Tenum_insert(t, "FALSE", &no);
	H5Tenum_insert(t, "TRUE", &yes);
	return t;
}

hid_t hdf5_type(enum dtype t)
{
	switch (t) {
	case DTYPE_F64: return H5Tcopy(H5T_IEEE_F64LE);
	case DTYPE_F32: return H5Tcopy(H5T_IEEE_F32LE);
	case DTYPE_F16: return small_float(16, 5, 15);
	case DTYPE_BF16: return small_float(16, 8, 127);
	case DTYPE_I64: return H5Tcopy(H5T_STD_I64LE);
	case DTYPE_I32: return H5Tcopy(H5T_STD_I32LE);
	case DTYPE_I16: return H5Tcopy(H5T_STD_I16LE);
	case DTYPE_I8: return H5Tcopy(H5T_STD_I8LE);
	case DTYPE_U64: return H5Tcopy(H5T_STD_U64LE);
	case DTYPE_U32: return H5Tcopy(H5T_STD_U32LE);
	case DTYPE_U16: return H5Tcopy(H5T_STD_U16LE);
	/* HDF5 knows no type without infinities, so 8-bit floats are shown as their bytes. */
	case DTYPE_F8_E4M3: case DTYPE_F8_E5M2: case DTYPE_F8_E8M0:
	case DTYPE_U8: return H5Tcopy(H5T_STD_U8LE);
	case DTYPE_BOOL: return boolean();
	case DTYPE_NONE: case DTYPE_COUNT: break;
	}
	bug("no HDF5 type for dtype %d", (int)t);
}

hid_t hdf5_box_type(void)
{
	hsize_t dims = TENSOR_RANK;
	hid_t t = H5Tcreate(H5T_COMPOUND, sizeof(struct hdf5_box));
	hid_t list = H5Tarray_create2(H5T_STD_I64LE, 1, &dims);

	H5Tinsert(t, "tensor", HOFFSET(struct hdf5_box, tensor), H5T_STD_U32LE);
	H5Tinsert(t, "slot", HOFFSET(struct hdf5_box, slot), H5T_STD_U32LE);
	H5Tinsert(t, "dtype", HOFFSET(struct hdf5_box, dtype), H5T_STD_U32LE);
	H5Tinsert(t, "file", HOFFSET(struct hdf5_box, file), H5T_STD_U32LE);
	H5Tinsert(t, "start", HOFFSET(struct hdf5_box, start), list);
	H5Tinsert(t, "extent", HOFFSET(struct hdf5_box, extent), list);
	H5Tinsert(t, "offset", HOFFSET(struct hdf5_box, offset), H5T_STD_U64LE);
	H5Tinsert(t, "bytes", HOFFSET(struct hdf5_box, bytes), H5T_STD_U64LE);
	H5Tinsert(t, "block", HOFFSET(struct hdf5_box, block), H5T_STD_U64LE);
	H5Tclose(list);
	return t;
}

hid_t hdf5_space(const long *shape, int rank)
{
	hsize_t dims[TENSOR_RANK];

	for (int i = 0; i < rank; i++)
		dims[i] = (hsize_t)shape[i];
	return rank ? H5Screate_simple(rank, dims, NULL) : H5Screate(H5S_SCALAR);
}

hid_t hdf5_dataset_list(void)
{
	hid_t p = H5Pcreate(H5P_DATASET_CREATE);

	H5Pset_obj_track_times(p, 0);
	return p;
}

int hdf5_make_groups(struct hdf5_file *f, const char *name, struct err *e)
{
	for (const char *s = strchr(name, '/'); s; s = strchr(s + 1, '/')) {
		char *group = xstrndup(name, (size_t)(s - name));
		hid_t p, g = 0;

		if (H5Lexists(f->id, group, H5P_DEFAULT) <= 0) {
			p = H5Pcreate(H5P_GROUP_CREATE);
			H5Pset_obj_track_times(p, 0);
			g = H5Gcreate2(f->id, group, H5P_DEFAULT, p, H5P_DEFAULT);
			H5Pclose(p);
			if (g > 0)
				H5Gclose(g);
		}
		free(group);
		if (g < 0)
			return hdf5_failed(e, f, name, "cannot make its group");
	}
	return 0;
}

static herr_t innermost(unsigned n, const H5E_error2_t *entry, void *arg)
{
	if (n == 0 && entry->desc)
		*(const char **)arg = entry->desc;
	return 0;
}

/* Where the system refused: its own words, in place of the library's list of pointers and times. */
static const char *of_system(const char *why)
{
	const char *no = strstr(why, "errno = ");
	long n = no ? strtol(no + 8, NULL, 10) : 0;

	return n > 0 ? strerror((int)n) : NULL;
}

int hdf5_failed(struct err *e, const struct hdf5_file *f, const char *name, const char *what)
{
	const char *why = "no reason given";

	H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, innermost, &why);
	if (of_system(why))
		return err_set(e, EX_IOERR, "%s: %s%s%s: %s", f->path, name ? name : "", name ? ": " : "",
			       what, of_system(why));
	return err_set(e, EX_IOERR, "%s: %s%s%s (HDF5: %s)", f->path, name ? name : "",
		       name ? ": " : "", what, why);
}
