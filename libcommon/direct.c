#include "libcommon/direct.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "libcommon/file.h"
#include "libcommon/outdir.h"
#include "libcommon/xalloc.h"

enum { EXT4_MAGIC = 0xef53, XFS_MAGIC = 0x58465342 };
/* Below that many bytes the cache is as good; so many are a trial; so many a second and thread are slow. */
enum { SMALL = 64 << 10, TRIAL = 32 << 20, SLOW = 200000000 };

void direct_open(struct direct *d, int fd, const char *path, int flags)
{
	struct statfs s;

	*d = DIRECT_NONE;
	if (fstatfs(fd, &s) || (s.f_type != EXT4_MAGIC && s.f_type != XFS_MAGIC))
		return;
	d->fd = open(path, flags | O_DIRECT | O_CLOEXEC);
}

void direct_close(struct direct *d)
{
	if (d->fd >= 0)
		close(d->fd);
	*d = DIRECT_NONE;
}

static uint64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void count(struct direct *d, size_t n, uint64_t since)
{
	uint64_t took = __atomic_add_fetch(&d->nanoseconds, now() - since, __ATOMIC_RELAXED);
	uint64_t bytes = __atomic_add_fetch(&d->bytes, n, __ATOMIC_RELAXED);

	if (bytes >= TRIAL && (double)bytes * 1e9 < (double)SLOW * (double)took)
		__atomic_store_n(&d->slow, true, __ATOMIC_RELAXED);
}

static bool wanted(const struct direct *d, size_t n, uint64_t offset)
{
	return d->fd >= 0 && n >= SMALL && offset % DIRECT_ALIGN == 0 &&
	       !__atomic_load_n(&d->slow, __ATOMIC_RELAXED);
}

static bool aligned(const void *p)
{
	return (uintptr_t)p % DIRECT_ALIGN == 0;
}

static void *bounce(size_t n)
{
	void *p;

	if (posix_memalign(&p, DIRECT_ALIGN, n))
		die(EX_UNAVAILABLE, "out of memory: %zu bytes wanted for a block of a file", n);
	return p;
}

/* Is it in the cache?  Then it is in buf. */
static bool cached(int fd, void *buf, size_t n, uint64_t offset)
{
	struct iovec v = { buf, n };

	return preadv2(fd, &v, 1, (off_t)offset, RWF_NOWAIT) == (ssize_t)n;
}

/* false: it is to be read in the ordinary way, which also says what is wrong. */
static bool read_past(struct direct *d, void *buf, size_t n, uint64_t offset)
{
	size_t whole = (n + DIRECT_ALIGN - 1) / DIRECT_ALIGN * DIRECT_ALIGN;
	bool own = whole == n && aligned(buf);
	void *p = own ? buf : bounce(whole);
	uint64_t since = now();
	ssize_t got = pread(d->fd, p, whole, (off_t)offset);
	bool ok = got >= (ssize_t)n;

	if (ok)
		count(d, n, since);
	if (ok && !own)
		memcpy(buf, p, n);
	if (!own)
		free(p);
	return ok;
}

int direct_pread(struct direct *d, int fd, const char *path, void *buf, size_t n, uint64_t offset,
		 struct err *e)
{
	if (wanted(d, n, offset) && offset <= INT64_MAX - n &&
	    (cached(fd, buf, n, offset) || read_past(d, buf, n, offset)))
		return 0;
	return file_pread(fd, path, buf, n, offset, e);
}

/* The bytes of it that were written. */
static size_t write_past(struct direct *d, const void *buf, size_t n, uint64_t offset)
{
	const void *p = buf;
	void *own = NULL;
	uint64_t since;
	ssize_t put;

	if (!aligned(buf))
		p = own = memcpy(bounce(n), buf, n);
	since = now();
	io_point("write");
	if (io_full()) {
		free(own);
		return 0;
	}
	put = pwrite(d->fd, p, n, (off_t)offset);
	if (put > 0)
		count(d, (size_t)put, since);
	free(own);
	return put > 0 ? (size_t)put : 0;
}

int direct_pwrite(struct direct *d, int fd, const char *path, const void *buf, size_t n,
		  uint64_t offset, struct err *e)
{
	size_t done = 0;

	if (wanted(d, n, offset))
		done = write_past(d, buf, n - n % DIRECT_ALIGN, offset);
	return done == n ? 0 : file_pwrite(fd, path, (const char *)buf + done, n - done,
					   offset + done, e);
}
