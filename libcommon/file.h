#ifndef LIBCOMMON_FILE_H
#define LIBCOMMON_FILE_H

/* Files, whole.  Every message names the path. */

#include "libcommon/die.h"
#include "libcommon/str.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Append the file to *t; more than `most` bytes (0: no limit) is EX_DATAERR.  "-" is stdin. */
int file_read(struct str *t, const char *path, size_t most, struct err *e) MUST_CHECK;
/* Exactly n bytes at an offset; fewer is EX_DATAERR with both sizes.  Cut into pieces below 2 GiB. */
int file_pread(int fd, const char *path, void *buf, size_t n, uint64_t offset, struct err *e) MUST_CHECK;
int file_pwrite(int fd, const char *path, const void *buf, size_t n, uint64_t offset, struct err *e) MUST_CHECK;
int file_size(const char *path, uint64_t *size, struct err *e) MUST_CHECK;
bool file_exists(const char *path);
bool file_is_dir(const char *path);
/* Create or replace `path`, whole or not at all: temporary beside it, fsync, rename.  Mode 0666 & ~umask,
 * or that of the plain file which was there; a link stays.  Anything else there is EX_CANTCREAT. */
int file_write(const char *path, const void *buf, size_t n, struct err *e) MUST_CHECK;
/* Copy bytes (copy_file_range or read/write), new file (one that exists: EX_CANTCREAT), mode
 * 0666 & ~umask, fsynced. */
int file_copy(const char *from, const char *to, struct err *e) MUST_CHECK;
int file_sync_dir(const char *dir, struct err *e) MUST_CHECK;
/* "a" + "b" -> "a/b"; the caller frees. */
char *path_join(const char *dir, const char *name);

#endif
