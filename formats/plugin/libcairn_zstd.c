/*
 * The filter zstd (32015) as a plugin, so that h5dump, h5py and every other program of HDF5 can
 * read compressed checkpoints: it finds it in the folder that HDF5_PLUGIN_PATH names.  It needs
 * nothing of HDF5's library, since the program that loads it brings its own.
 */

#include <H5PLextern.h>

#include "formats/hdf5_types.h"

H5PL_type_t H5PLget_plugin_type(void)
{
	return H5PL_TYPE_FILTER;
}

const void *H5PLget_plugin_info(void)
{
	return &hdf5_zstd_class;
}
