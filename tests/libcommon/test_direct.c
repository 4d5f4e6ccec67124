#include "libcommon/direct.h"

#include <fcntl.h>
#include <unistd.h>

#include "libcommon/file.h"
#include "libcommon/pool.h"
#include "libcommon/xalloc.h"
#include "tests/lib/tap.h"

enum { BYTES = 9 << 20, ROOM = BYTES + DIRECT_ALIGN, RANGES = 40 };

/* Ranges of a file, each from a multiple of DIRECT_ALIGN on, written and read by all threads. */
struct ranges {
	struct direct d;
	int fd;
	const char *path;
	char *from, *to;
	size_t at[RANGES], n[RANGES];
	int bad;
	struct err e;
};

static void plan(struct ranges *r)
{
	uint64_t x = 1;
	size_t at = 0;

	for (int i = 0; i < RANGES; i++) {
		x = x * 6364136223846793005u + 1442695040888963407u;
		r->at[i] = at;
		r->n[i] = i % 4 == 0 ? 64 << 10 : i % 4 == 1 ? 1 + (x >> 40) % 5000 : 1 + (x >> 40) % (400 << 10);
		at += (r->n[i] + DIRECT_ALIGN - 1) / DIRECT_ALIGN * DIRECT_ALIGN;
	}
	if (at > BYTES)
		bug("%zu bytes of ranges", at);
}

static void put(void *arg, long i, int thread)
{
	struct ranges *r = arg;

	(void)thread;
	if (direct_pwrite(&r->d, r->fd, r->path, r->from + r->at[i], r->n[i], r->at[i], &r->e))
		r->bad++;
}

static void get(void *arg, long i, int thread)
{
	struct ranges *r = arg;

	(void)thread;
	if (direct_pread(&r->d, r->fd, r->path, r->to + r->at[i], r->n[i], r->at[i], &r->e))
		r->bad++;
}

/* The file's bytes as another reader has them. */
static bool others_see(const struct ranges *r)
{
	struct str t = { 0 };
	bool same = !file_read(&t, r->path, 0, &(struct err)ERR_INIT);

	for (int i = 0; i < RANGES && same; i++)
		same = t.len >= r->at[i] + r->n[i] && !memcmp(t.s + r->at[i], r->from + r->at[i], r->n[i]);
	str_release(&t);
	return same;
}

static void there_and_back(const char *how, bool past, bool slow, int shift)
{
	char *path = path_join(tap_tmp(), how), *from = xmalloc(ROOM), *to = xcalloc(1, ROOM);
	struct ranges r = { .path = path, .from = from + shift, .to = to + shift };
	bool same = true;

	plan(&r);
	for (long i = 0; i < ROOM; i++)
		from[i] = (char)(i * 2654435761u >> 13);
	r.fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	r.d = DIRECT_NONE;
	if (past)
		direct_open(&r.d, r.fd, path, O_RDWR);
	r.d.slow = slow;
	pool_run(put, &r, RANGES);
	ok(!r.bad && others_see(&r), "%s: written, %d bytes off", how, shift);
	if (!slow && r.d.fd >= 0)
		ok(r.d.bytes > 0, "%s: past the cache", how);
	fsync(r.fd);
	posix_fadvise(r.fd, 0, 0, POSIX_FADV_DONTNEED);
	pool_run(get, &r, RANGES);
	for (int i = 0; i < RANGES; i++)
		same = same && !memcmp(r.from + r.at[i], r.to + r.at[i], r.n[i]);
	ok(!r.bad && same, "%s: read", how);
	direct_close(&r.d);
	ok(r.d.fd == -1, "%s: closed", how);
	close(r.fd);
	free(path), free(from), free(to);
}

static void short_file(void)
{
	char *path = path_join(tap_tmp(), "short"), *buf = xcalloc(1, 1 << 20);
	struct err e = ERR_INIT;
	struct direct d;
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	direct_open(&d, fd, path, O_RDWR);
	ok(!direct_pwrite(&d, fd, path, buf, 300001, 0, &e), "a file of 300,001 bytes");
	ok(direct_pread(&d, fd, path, buf, 300002, 0, &e) && e.code == EX_DATAERR &&
	   strstr(e.msg, "300001 bytes") && strstr(e.msg, "300002"), "a byte too much is refused: %s", e.msg);
	ok(direct_pread(&d, fd, path, buf, 1 << 20, 1ull << 63, &e) && e.code == EX_DATAERR,
	   "an offset that no file has");
	close(fd);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	direct_close(&d);
	direct_open(&d, fd, path, O_RDONLY);
	ok(direct_pwrite(&d, fd, path, buf, 1 << 20, 0, &e) && e.code == EX_IOERR, "a file for reading only: %s", e.msg);
	direct_close(&d);
	close(fd);
	free(path), free(buf);
}

int main(void)
{
	there_and_back("past the cache", true, false, 0);
	there_and_back("not aligned", true, false, 24);
	there_and_back("a slow disk", true, true, 0);
	there_and_back("through the cache", false, false, 8);
	short_file();
	return done();
}
