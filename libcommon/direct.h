#ifndef LIBCOMMON_DIRECT_H
#define LIBCOMMON_DIRECT_H

/*
 * Large reads and writes past the page cache (O_DIRECT), for files that are written once and read
 * by a few programs.  A page of the cache is a page that is found, cleared and copied to; a disk
 * that takes gigabytes a second is faster without.  The bytes are the same either way:
 *  - only on ext4 and XFS, which are known to do it well; elsewhere as file_pread, file_pwrite;
 *  - what the cache holds already is read from it;
 *  - a disk that proves slow goes back to the cache, for it serves the next reader.
 *
 * Memory and offsets need no alignment, but offsets at multiples of DIRECT_ALIGN go fast; what is
 * behind the last multiple of it goes through the cache, so that ranges in one file may be written
 * by several threads unless they share a page.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "libcommon/die.h"

enum { DIRECT_ALIGN = 4096 };

struct direct {
	int fd;                         /* -1: always through the cache */
	bool slow;                      /* it was tried, and is given up */
	uint64_t bytes, nanoseconds;    /* done so, and what it took, of all threads */
};

#define DIRECT_NONE ((struct direct){ .fd = -1 })

/* A second way into the file that fd is; `path` is its name, flags as for open(2).  Never fails. */
void direct_open(struct direct *d, int fd, const char *path, int flags);
void direct_close(struct direct *d);
/* file_pread(), file_pwrite() of the same file; from any thread. */
int direct_pread(struct direct *d, int fd, const char *path, void *buf, size_t n, uint64_t offset,
		 struct err *e) MUST_CHECK;
int direct_pwrite(struct direct *d, int fd, const char *path, const void *buf, size_t n,
		  uint64_t offset, struct err *e) MUST_CHECK;

#endif
