#include "libcommon/hash.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "libcommon/xalloc.h"

/* The library's form for the widest vectors of this CPU, where it was built with one. */
XXH64_hash_t XXH3_64bits_dispatch(const void *p, size_t n) __attribute__((weak));

uint64_t hash64(const void *p, size_t n)
{
	return XXH3_64bits_dispatch ? XXH3_64bits_dispatch(n ? p : "", n) : XXH3_64bits(n ? p : "", n);
}

struct digest hash128(const void *p, size_t n)
{
	XXH128_hash_t h = XXH3_128bits(n ? p : "", n);

	return (struct digest){ h.high64, h.low64 };
}

static int hash_fd(XXH3_state_t *state, int fd, const char *path, struct err *e)
{
	enum { PIECE = 1 << 18 };
	char *buf = xmalloc(PIECE);
	ssize_t n;

	while ((n = read(fd, buf, PIECE)) != 0) {
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			break;
		XXH3_128bits_update(state, buf, (size_t)n);
	}
	int status = n < 0 ? err_errno(e, EX_IOERR, "%s: cannot read", path) : 0;
	free(buf);
	return status;
}

int hash128_file(struct digest *d, const char *path, struct err *e)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return err_errno(e, EX_NOINPUT, "%s: cannot open", path);

	XXH3_state_t *state = XXH3_createState();
	if (!state)
		die(EX_UNAVAILABLE, "out of memory: the state of a checksum");
	XXH3_128bits_reset(state);
	int status = hash_fd(state, fd, path, e);
	XXH128_hash_t h = XXH3_128bits_digest(state);
	XXH3_freeState(state);
	close(fd);
	if (!status)
		*d = (struct digest){ h.high64, h.low64 };
	return status;
}

const char *digest_hex(char buf[33], struct digest d)
{
	snprintf(buf, 33, "%016llx%016llx", (unsigned long long)d.hi, (unsigned long long)d.lo);
	return buf;
}

static int hex_half(uint64_t *v, const char *s)
{
	*v = 0;
	for (int i = 0; i < 16; i++) {
		const char *digits = "0123456789abcdef0123456789ABCDEF";
		const char *at = s[i] ? strchr(digits, s[i]) : NULL;

		if (!at)
			return -1;
		*v = *v << 4 | (uint64_t)((at - digits) & 15);
	}
	return 0;
}

int digest_parse(struct digest *d, const char *hex)
{
	struct digest t;

	if (strnlen(hex, 33) != 32 || hex_half(&t.hi, hex) || hex_half(&t.lo, hex + 16))
		return -1;
	*d = t;
	return 0;
}

struct digest digest_add(struct digest a, struct digest b)
{
	struct digest s = { a.hi + b.hi, a.lo + b.lo };

	s.hi += s.lo < a.lo;
	return s;
}
