#include "formats/hdf5_file.h"

#include <stdlib.h>
#include <string.h>

#include "formats/hdf5_types.h"
#include "libcommon/outdir.h"
#include "libcommon/xalloc.h"

enum { ALIGN = 4096, METADATA_MOST = 1 << 20 };

static void start_library(void)
{
	static bool started;

	if (started)
		return;
	/*
	 * Network file systems without locks would refuse the open; our directories are written
	 * once and by one.
	 */
	setenv("HDF5_USE_FILE_LOCKING", "FALSE", 1);
	/* At exit it would write again what could not be written, and crash. */
	H5dont_atexit();
	H5open();
	H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
	started = true;
}

static hid_t access_list(size_t metadata, hsize_t align)
{
	hid_t p = H5Pcreate(H5P_FILE_ACCESS);

	H5Pset_libver_bounds(p, H5F_LIBVER_V18, H5F_LIBVER_V110);
	H5Pset_fclose_degree(p, H5F_CLOSE_STRONG);
	H5Pset_alignment(p, align, align);
	if (metadata > ALIGN)
		H5Pset_meta_block_size(p, metadata < METADATA_MOST ? metadata : METADATA_MOST);
	return p;
}

static int create_aligned(struct hdf5_file *f, const char *path, size_t metadata, hsize_t align,
			  struct err *e)
{
	hid_t access, create;

	start_library();
	io_point("hdf5 create");
	access = access_list(metadata, align);
	create = H5Pcreate(H5P_FILE_CREATE);
	H5Pset_obj_track_times(create, 0);
	f->path = xstrdup(path);
	f->id = H5Fcreate(path, H5F_ACC_EXCL, create, access);
	H5Pclose(create);
	H5Pclose(access);
	if (f->id > 0)
		return 0;
	hdf5_failed(e, f, NULL, "cannot be made");
	hdf5_abandon(f);
	return -1;
}

int hdf5_create(struct hdf5_file *f, const char *path, size_t metadata, struct err *e)
{
	return create_aligned(f, path, metadata, ALIGN, e);
}

int hdf5_create_packed(struct hdf5_file *f, const char *path, size_t metadata, struct err *e)
{
	return create_aligned(f, path, metadata, 1, e);
}

int hdf5_open(struct hdf5_file *f, const char *path, struct err *e)
{
	hid_t access;

	start_library();
	access = access_list(0, ALIGN);
	f->path = xstrdup(path);
	f->id = H5Fopen(path, H5F_ACC_RDONLY, access);
	H5Pclose(access);
	if (f->id > 0)
		return 0;
	hdf5_failed(e, f, NULL, "cannot be opened");
	e->code = EX_DATAERR;
	hdf5_abandon(f);
	return -1;
}

int hdf5_close(struct hdf5_file *f, struct err *e)
{
	int rc = 0;

	io_point("hdf5 close");
	if (H5Fclose(f->id) < 0)
		rc = hdf5_failed(e, f, NULL, "cannot be written");
	f->id = 0;
	hdf5_abandon(f);
	return rc;
}

void hdf5_abandon(struct hdf5_file *f)
{
	if (f->id > 0)
		H5Fclose(f->id);
	free(f->path);
	*f = (struct hdf5_file){ 0 };
}

/* A new data set and, through `list`, where its bytes are. */
static hid_t make(struct hdf5_file *f, const char *name, hid_t type, hid_t space, hid_t list)
{
	return H5Dcreate2(f->id, name, type, space, H5P_DEFAULT, list, H5P_DEFAULT);
}

int hdf5_reserve(uint64_t *offset, struct hdf5_file *f, const char *name, enum dtype dtype,
		 const long *shape, int rank, struct err *e)
{
	hid_t type, space, list, set;
	haddr_t at;

	if (hdf5_make_groups(f, name, e))
		return -1;
	type = hdf5_type(dtype);
	space = hdf5_space(shape, rank);
	list = hdf5_dataset_list();
	H5Pset_alloc_time(list, H5D_ALLOC_TIME_EARLY);
	H5Pset_fill_time(list, H5D_FILL_TIME_NEVER);
	set = make(f, name, type, space, list);
	at = set < 0 ? HADDR_UNDEF : H5Dget_offset(set);
	*offset = (uint64_t)at;
	if (set >= 0)
		H5Dclose(set);
	H5Pclose(list);
	H5Sclose(space);
	H5Tclose(type);
	return at == HADDR_UNDEF ? hdf5_failed(e, f, name, "cannot be given room") : 0;
}

static int put(struct hdf5_file *f, const char *name, hid_t type, const long *shape, int rank,
	       const void *data, struct err *e)
{
	hid_t space = hdf5_space(shape, rank), list = hdf5_dataset_list(), set;
	int rc = -1;

	H5Pset_fill_time(list, H5D_FILL_TIME_NEVER);
	set = make(f, name, type, space, list);
	if (set >= 0 && H5Sget_simple_extent_npoints(space) == 0)
		rc = 0;
	else if (set >= 0 && H5Dwrite(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) >= 0)
		rc = 0;
	if (rc)
		hdf5_failed(e, f, name, "cannot be written");
	if (set >= 0)
		H5Dclose(set);
	H5Pclose(list);
	H5Sclose(space);
	return rc;
}

int hdf5_put(struct hdf5_file *f, const char *name, enum dtype dtype, const long *shape, int rank,
	     const void *data, struct err *e)
{
	hid_t type;
	int rc;

	if (hdf5_make_groups(f, name, e))
		return -1;
	io_point("hdf5 data set");
	type = hdf5_type(dtype);
	rc = put(f, name, type, shape, rank, data, e);
	H5Tclose(type);
	return rc;
}

int hdf5_put_boxes(struct hdf5_file *f, const char *name, const struct hdf5_box *b, long n,
		   struct err *e)
{
	hid_t type = hdf5_box_type();
	int rc = put(f, name, type, &n, 1, b, e);

	H5Tclose(type);
	return rc;
}

bool hdf5_has(const struct hdf5_file *f, const char *name)
{
	for (const char *s = strchr(name, '/'); s; s = strchr(s + 1, '/')) {
		char *group = xstrndup(name, (size_t)(s - name));
		htri_t there = H5Lexists(f->id, group, H5P_DEFAULT);

		free(group);
		if (there <= 0)
			return false;
	}
	return H5Lexists(f->id, name, H5P_DEFAULT) > 0;
}

/* Extents of a data set whose type, rank and storage are as wanted; its bytes. */
static int inspect(size_t *bytes, long *shape, struct hdf5_file *f, const char *name, hid_t set,
		   hid_t type, int rank, size_t most, struct err *e)
{
	hid_t have = H5Dget_type(set), space = H5Dget_space(set), list = H5Dget_create_plist(set);
	hsize_t dims[H5S_MAX_RANK];
	int r = H5Sget_simple_extent_ndims(space);
	bool same = H5Tequal(have, type) > 0,
	     dense = H5Pget_layout(list) == H5D_CONTIGUOUS && H5Pget_external_count(list) == 0;
	hssize_t points = H5Sget_simple_extent_npoints(space);
	size_t size = H5Tget_size(type);

	if (r >= 0)
		H5Sget_simple_extent_dims(space, dims, NULL);
	H5Pclose(list);
	H5Sclose(space);
	H5Tclose(have);
	if (!same || !dense || r != rank || points < 0)
		return err_set(e, EX_DATAERR,
			       "%s: %s: a data set of another %s, wanted contiguous of rank %d",
			       f->path, name,
			       !same	? "type"
			       : !dense ? "storage"
					: "rank",
			       rank);
	if ((uint64_t)points > most / size)
		return err_set(e, EX_DATAERR,
			       "%s: %s: %lld elements of %zu bytes, wanted at most %zu bytes",
			       f->path, name, (long long)points, size, most);
	for (int i = 0; i < rank; i++)
		shape[i] = (long)dims[i];
	*bytes = (size_t)points * size;
	return 0;
}

static int get(void **data, long *shape, struct hdf5_file *f, const char *name, hid_t type,
	       int rank, size_t most, struct err *e)
{
	hid_t set = hdf5_has(f, name) ? H5Dopen2(f->id, name, H5P_DEFAULT) : -1;
	size_t bytes;
	int rc = -1;

	*data = NULL;
	if (set < 0)
		return err_set(e, EX_DATAERR, "%s: %s: no such data set", f->path, name);
	if (inspect(&bytes, shape, f, name, set, type, rank, most, e))
		goto out;
	*data = xmalloc(bytes + 1);
	if (bytes && H5Dread(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, *data) < 0) {
		hdf5_failed(e, f, name, "cannot be read");
		free(*data);
		*data = NULL;
		goto out;
	}
	rc = 0;
out:
	H5Dclose(set);
	return rc;
}

int hdf5_get(void **data, long *shape, struct hdf5_file *f, const char *name, enum dtype dtype,
	     int rank, size_t most, struct err *e)
{
	hid_t type = hdf5_type(dtype);
	int rc = get(data, shape, f, name, type, rank, most, e);

	H5Tclose(type);
	return rc;
}

int hdf5_get_boxes(struct hdf5_box **b, long *n, struct hdf5_file *f, const char *name, size_t most,
		   struct err *e)
{
	hid_t type = hdf5_box_type();
	void *data;
	int rc = get(&data, n, f, name, type, 1, most, e);

	H5Tclose(type);
	*b = data;
	return rc;
}

struct walk {
	int (*fn)(void *arg, const char *name, struct err *e);
	void *arg;
	struct err *e;
};

static herr_t visit(hid_t group, const char *name, const H5L_info_t *info, void *arg)
{
	struct walk *w = arg;

	(void)group;
	(void)info;
	return w->fn(w->arg, name, w->e) ? 1 : 0;
}

int hdf5_each(struct hdf5_file *f, int (*fn)(void *arg, const char *name, struct err *e), void *arg,
	      struct err *e)
{
	struct walk w = { fn, arg, e };
	herr_t rc = H5Literate(f->id, H5_INDEX_NAME, H5_ITER_INC, NULL, visit, &w);

	if (rc < 0)
		return hdf5_failed(e, f, NULL, "its names cannot be listed");
	return rc ? -1 : 0;
}
