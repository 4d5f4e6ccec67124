#include "libcommon/file.h"

#include <fcntl.h>
#include <stdint.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libcommon/xalloc.h"
#include "tests/lib/tap.h"

static struct err e;

static char *at(const char *name)
{
	return path_join(tap_tmp(), name);
}

static int mode_of(const char *path)
{
	struct stat st;

	return stat(path, &st) ? -1 : (int)(st.st_mode & 07777);
}

static bool holds(const char *path, const char *text)
{
	struct str t = { 0 };
	bool yes = !file_read(&t, path, 0, &e) && !strcmp(t.s, text);

	str_release(&t);
	return yes;
}

/* How many names in the test's directory: temporaries must not stay. */
static int names(void)
{
	char *command = xasprintf("ls -A '%s' | wc -l", tap_tmp());
	FILE *f = popen(command, "r");
	int n = -1;

	if (!f || fscanf(f, "%d", &n) != 1)
		bug("cannot count names");
	pclose(f);
	free(command);
	return n;
}

static void modes(void)
{
	char *a = at("a"), *b = at("b"), *c = at("c"), *d = at("d");

	umask(022);
	ok(!file_write(a, "one", 3, &e) && mode_of(a) == 0644, "umask 022: mode 0644");
	ok(!file_copy(a, c, &e) && mode_of(c) == 0644, "a copy too");
	ok(!chmod(a, 0640) && !file_write(a, "two", 3, &e) && mode_of(a) == 0640 && holds(a, "two"),
	   "a file of 0640 that is replaced keeps 0640");
	umask(027);
	ok(!file_write(b, "one", 3, &e) && mode_of(b) == 0640, "umask 027: mode 0640");
	ok(!file_copy(a, d, &e) && mode_of(d) == 0640, "a copy too");
	ok(umask(022) == 027, "the umask is untouched");
	ok(names() == 4, "no temporary is left");
	free(a);
	free(b);
	free(c);
	free(d);
}

static void replacing(void)
{
	char *dir = at("dir"), *link = at("link"), *aim = at("aim"), *fifo = at("fifo"), *lost = at("no/such/x");
	struct stat st;
	int before;

	ok(!mkdir(dir, 0777) && file_write(dir, "x", 1, &e) && e.code == EX_CANTCREAT, "a directory is not replaced (73)");
	ok(!mkfifo(fifo, 0666) && file_write(fifo, "x", 1, &e) && e.code == EX_CANTCREAT &&
	   strstr(e.msg, fifo), "nor is anything else that is no file");
	ok(!file_write(aim, "old", 3, &e) && !symlink("aim", link) && !file_write(link, "new", 3, &e) &&
	   holds(aim, "new") && !lstat(link, &st) && S_ISLNK(st.st_mode), "a link stays and its file is replaced");
	ok(file_write(lost, "x", 1, &e) && e.code == EX_CANTCREAT, "a missing parent is 73");
	before = names();
	ok(file_copy(aim, link, &e) && e.code == EX_CANTCREAT && holds(aim, "new"), "a copy replaces nothing");
	ok(file_copy(lost, lost, &e) && e.code == EX_NOINPUT, "a copy of nothing is 66");
	ok(names() == before, "and leaves nothing");
	ok(!file_write(aim, "", 0, &e) && holds(aim, ""), "an empty file");
	free(dir);
	free(link);
	free(aim);
	free(fifo);
	free(lost);
}

static void reading(void)
{
	char *path = at("text"), *big = at("big"), *copy = at("copy"), buf[8] = "", message[512];
	struct str t = { 0 };
	uint64_t size;
	int fd;

	ok(!file_write(path, "a\0bcd", 5, &e), "five bytes");
	str_puts(&t, "x");
	ok(!file_read(&t, path, 5, &e) && t.len == 6 && !memcmp(t.s, "xa\0bcd", 7), "are read behind what was there");
	ok(file_read(&t, path, 4, &e) && e.code == EX_DATAERR, "but not where four are allowed (65)");
	ok(file_read(&t, tap_tmp(), 0, &e) && e.code == EX_DATAERR && strstr(e.msg, "directory"), "a directory is no file");
	ok(file_read(&t, "/dev/zero", 100000, &e) && e.code == EX_DATAERR, "an endless file ends at its limit");
	str_release(&t);
	ok(!file_read(&t, "/proc/self/stat", 0, &e) && t.len > 20, "a file whose size says 0");
	ok(!file_size(path, &size, &e) && size == 5, "the size");
	ok(file_size("/no/such", &size, &e) && e.code == EX_NOINPUT, "of nothing");
	ok(file_exists(path) && !file_exists("/no/such") && file_is_dir(tap_tmp()) && !file_is_dir(path), "what exists");
	fd = open(path, O_RDONLY);
	ok(!file_pread(fd, path, buf, 3, 2, &e) && !memcmp(buf, "bcd", 3), "pread");
	snprintf(message, sizeof(message), "%s: found 2 bytes at offset 3, wanted 4", path);
	ok(file_pread(fd, path, buf, 4, 3, &e) && e.code == EX_DATAERR, "pread behind the end is 65");
	is_str(e.msg, message, "with both sizes");
	ok(file_pread(fd, path, buf, 4, UINT64_MAX - 1, &e) && e.code == EX_DATAERR, "an offset that no file has");
	ok(file_pwrite(fd, path, buf, 4, 0, &e) && e.code == EX_IOERR, "a write that fails is 74");
	close(fd);
	fd = open(big, O_RDWR | O_CREAT, 0666);
	ok(!file_pwrite(fd, big, "end", 3, 3 << 20, &e) && !file_copy(big, copy, &e) && !file_size(copy, &size, &e) &&
	   size == (3 << 20) + 3, "a copy of megabytes");
	close(fd);
	fd = open(copy, O_RDONLY);
	ok(!file_pread(fd, copy, buf, 4, (3 << 20) - 1, &e) && !memcmp(buf, "\0end", 4), "ends as the original does");
	close(fd);
	unlink(copy);
	ok(!file_copy("/proc/self/stat", copy, &e) && !file_size(copy, &size, &e) && size > 20,
	   "a copy where the file systems cannot do it");
	str_release(&t);
	free(path);
	free(big);
	free(copy);
}

static void joining(void)
{
	char *a = path_join("a", "b"), *b = path_join("a/", "b"), *c = path_join("", "b");

	is_str(a, "a/b", "a path");
	is_str(b, "a/b", "with a slash already there");
	is_str(c, "b", "in no directory");
	free(a);
	free(b);
	free(c);
}

int main(void)
{
	modes();
	replacing();
	reading();
	joining();
	return done();
}
