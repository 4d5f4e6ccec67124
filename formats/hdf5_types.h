#ifndef FORMATS_HDF5_TYPES_H
#define FORMATS_HDF5_TYPES_H

/* Private to hdf5_*.c. */

#include <hdf5.h>

#include "formats/hdf5_file.h"

enum { HDF5_ZSTD = 32015 };             /* the number that The HDF Group gave this filter */
/*
 * The filter: one parameter, the level.  Chunks of our files pass it only in other programs; ours
 * pack and unpack by themselves (checkpoint_chunk.h).
 */
extern const H5Z_class2_t hdf5_zstd_class;

hid_t hdf5_type(enum dtype t);          /* the caller closes it */
hid_t hdf5_box_type(void);              /* of struct hdf5_box, the same in memory and in the file */
hid_t hdf5_space(const long *shape, int rank);
hid_t hdf5_dataset_list(void);          /* creation properties: contiguous, no times */
int hdf5_make_groups(struct hdf5_file *f, const char *name, struct err *e) MUST_CHECK;
/* EX_IOERR with HDF5's own reason behind it. */
int hdf5_failed(struct err *e, const struct hdf5_file *f, const char *name, const char *what);

#endif
