#include "libcommon/outdir.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "libcommon/file.h"
#include "libcommon/xalloc.h"
#include "tests/lib/tap.h"

/*
 * Every writer runs in a child of its own: io_point() reads its environment once, and a kill must
 * not take the test along.
 */

static char *at(const char *name)
{
	return path_join(tap_tmp(), name);
}

static bool there(const char *name)
{
	struct stat st;
	char *path = at(name);
	bool yes = !lstat(path, &st);

	free(path);
	return yes;
}

static void put(const char *name, const char *text)
{
	char *path = at(name);
	FILE *f = fopen(path, "w");

	if (!f || fputs(text, f) < 0 || fclose(f))
		bug("cannot write %s", path);
	free(path);
}

static void make_dir(const char *name)
{
	char *path = at(name);

	if (mkdir(path, 0777))
		bug("cannot make %s", path);
	free(path);
}

static bool holds(const char *name, const char *text)
{
	struct err e = ERR_INIT;
	struct str t = { 0 };
	char *path = at(name);
	bool yes = !file_read(&t, path, 0, &e) && !strcmp(t.s, text);

	str_release(&t);
	free(path);
	return yes;
}

static int write_in(struct outdir *o, const char *name, const char *text, struct err *e)
{
	char *path = outdir_path(o, name);
	int rc = file_write(path, text, strlen(text), e);

	free(path);
	return rc;
}

static int fill(struct outdir *o, struct err *e)
{
	return write_in(o, "weights", "stones", e) || outdir_mkdir(o, "hf", e) ||
	       write_in(o, "hf/config.json", "{}", e) || write_in(o, "manifest.json", "[1]", e);
}

static int write_whole(const char *dir)
{
	struct err e = ERR_INIT;
	struct outdir o;

	if (outdir_create(&o, dir, &e) || fill(&o, &e) || outdir_commit(&o, &e)) {
		outdir_abort(&o);
		return e.code;
	}
	return 0;
}

static int write_and_stop(const char *dir)
{
	struct err e = ERR_INIT;
	struct outdir o;

	if (outdir_create(&o, dir, &e) || fill(&o, &e))
		return e.code;
	raise(SIGSTOP);
	return outdir_commit(&o, &e) ? e.code : 0;
}

/* Leaves the output open: what exit() does with it is the question. */
static int write_half(const char *dir)
{
	static struct outdir o;
	struct err e = ERR_INIT;

	return outdir_create(&o, dir, &e) || fill(&o, &e) ? e.code : 0;
}

static int half_and_kill(const char *dir)
{
	int rc = write_half(dir);

	raise(SIGKILL);
	return rc;
}

static int half_and_term(const char *dir)
{
	int rc = write_half(dir);

	raise(SIGTERM);
	return rc;
}

static int half_and_hup_ignored(const char *dir)
{
	int rc;

	signal(SIGHUP, SIG_IGN);
	rc = write_half(dir);
	raise(SIGHUP);
	return rc ? rc : 7;
}

static int half_with_child(const char *dir)
{
	struct err e = ERR_INIT;
	struct outdir o;
	pid_t child;
	int rc;

	if (outdir_create(&o, dir, &e) || fill(&o, &e))
		return e.code;
	child = fork();
	if (!child)
		exit(0);
	waitpid(child, &rc, 0);
	return outdir_commit(&o, &e) ? e.code : 0;
}

static int make_and_abort(const char *dir)
{
	struct err e = ERR_INIT;
	struct outdir o;

	if (outdir_create(&o, dir, &e) || fill(&o, &e))
		return e.code;
	outdir_abort(&o);
	outdir_abort(&o);
	return 0;
}

/* Another makes DIR while we write. */
static int overtaken(const char *dir)
{
	struct err e = ERR_INIT;
	struct outdir o;

	if (outdir_create(&o, dir, &e) || fill(&o, &e) || mkdir(dir, 0777))
		return 1;
	if (!outdir_commit(&o, &e))
		return 2;
	outdir_abort(&o);
	return e.code;
}

static pid_t start(int (*f)(const char *), const char *name, const char *hook, const char *value)
{
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (!pid) {
		char *dir = at(name);
		int rc;

		if (hook)
			setenv(hook, value, 1);
		rc = f(dir);
		free(dir);
		exit(rc);
	}
	return pid;
}

/* Exit status, or 128 + signal. */
static int status_of(pid_t pid)
{
	int st;

	waitpid(pid, &st, 0);
	return WIFSIGNALED(st) ? 128 + WTERMSIG(st) : WEXITSTATUS(st);
}

static int run(int (*f)(const char *), const char *name)
{
	return status_of(start(f, name, NULL, NULL));
}

static bool whole(const char *dir)
{
	char *w = path_join(dir, "weights"), *c = path_join(dir, "hf/config.json");
	char *m = path_join(dir, "manifest.json"), *l = path_join(dir, "lock");
	bool yes = holds(w, "stones") && holds(c, "{}") && holds(m, "[1]") && !there(l);

	free(w);
	free(c);
	free(m);
	free(l);
	return yes;
}

static bool no_leftover(const char *dir)
{
	char *tmp = xasprintf("%s.tmp", dir), *lock = xasprintf("%s.tmp.lock", dir);
	bool yes = !there(tmp) && !there(lock);

	free(tmp);
	free(lock);
	return yes;
}

static void plain_case(void)
{
	struct stat st;
	char *dir = at("plain"), *file = at("plain/weights");

	umask(022);
	ok(run(write_whole, "plain") == 0 && whole("plain"), "a directory is written whole");
	ok(no_leftover("plain"), "and nothing lies beside it");
	ok(!stat(dir, &st) && (st.st_mode & 07777) == 0755, "its mode follows the umask");
	ok(!stat(file, &st) && (st.st_mode & 07777) == 0644, "and its files' mode");
	ok(run(write_whole, "plain") == EX_CANTCREAT, "an existing directory is refused with 73");
	make_dir("empty");
	ok(run(write_whole, "empty") == EX_CANTCREAT && no_leftover("empty"), "so is an empty one");
	ok(run(write_whole, "nowhere/x") == EX_CANTCREAT, "so is one without a parent");
	ok(run(write_whole, "slash//") == 0 && whole("slash"), "slashes at the end do not matter");
	ok(run(overtaken, "overtaken") == EX_CANTCREAT && no_leftover("overtaken"),
	   "the rename does not replace an empty directory that appeared meanwhile");
	ok(there("overtaken") && !there("overtaken/weights"), "which stays as it was");
	ok(run(make_and_abort, "aborted") == 0 && !there("aborted") && no_leftover("aborted"),
	   "abort removes everything, twice is once");
	free(dir);
	free(file);
}

/* A killed save leaves no half directory, and the redo succeeds over what is left. */
static void killed_anywhere(void)
{
	char *count = at("count");
	long n = 0, complete = 0, bad = 0;
	FILE *f;

	ok(status_of(start(write_whole, "counted", "CAIRN_TEST_COUNT", count)) == 0, "a counted run");
	f = fopen(count, "r");
	ok(f && fscanf(f, "%ld", &n) == 1 && n >= 15, "it passes %ld points", n);
	if (f)
		fclose(f);
	for (long i = 1; i <= n; i++) {
		char name[32], value[32];
		int first, second;
		bool done_first;

		snprintf(name, sizeof(name), "killed-%ld", i);
		snprintf(value, sizeof(value), "%ld", i);
		first = status_of(start(write_whole, name, "CAIRN_TEST_KILL", value));
		done_first = there(name);
		complete += done_first;
		bad += first != 128 + SIGKILL || (done_first && !whole(name));
		second = run(write_whole, name);
		bad += second != (done_first ? EX_CANTCREAT : 0) || !whole(name) || !no_leftover(name);
	}
	ok(bad == 0, "killed at each of them: nothing half, and the redo succeeds");
	ok(complete == 1, "only the kill after the rename leaves the directory (%ld)", complete);
	free(count);
}

static void second_writer(void)
{
	pid_t first = start(write_and_stop, "shared", NULL, NULL);
	int st;

	waitpid(first, &st, WUNTRACED);
	ok(WIFSTOPPED(st), "the first writer pauses");
	ok(run(write_whole, "shared") == EX_TEMPFAIL, "the second is told to try again (75)");
	kill(first, SIGCONT);
	ok(status_of(first) == 0 && whole("shared"), "the first finishes");
	ok(run(half_and_kill, "dead") == 128 + SIGKILL && there("dead.tmp/lock"), "a killed writer leaves its lock");
	ok(run(write_whole, "dead") == 0 && whole("dead"), "which the next one clears");
}

/* Field 22 of /proc/PID/stat, read in another way than the library does. */
static long start_of(long pid)
{
	char *path = xasprintf("/proc/%ld/stat", pid), *word;
	struct err e = ERR_INIT;
	struct str t = { 0 };
	long v;

	if (file_read(&t, path, 0, &e))
		bug("%s", e.msg);
	word = strtok(strrchr(t.s, ')') + 2, " ");
	for (int i = 3; i < 22; i++)
		word = strtok(NULL, " ");
	v = atol(word);
	str_release(&t);
	free(path);
	return v;
}

static void foreign(const char *dir, const char *host, long pid, long started)
{
	char *tmp = xasprintf("%s.tmp", dir), *lock = xasprintf("%s/lock", tmp), *part = xasprintf("%s/part", tmp);
	char *text = xasprintf("{\"host\": \"%s\", \"pid\": %ld, \"start\": %ld}\n", host, pid, started);

	make_dir(tmp);
	put(part, "half");
	put(lock, text);
	free(text);
	free(part);
	free(lock);
	free(tmp);
}

/* A file system without flock() has only the text of the lock; these directories nobody has locked. */
static void by_text_alone(void)
{
	char host[256] = "";
	long me = getpid(), started = start_of(me);
	siginfo_t info;
	pid_t zombie = fork();

	if (!zombie)
		_exit(0);
	gethostname(host, sizeof(host) - 1);
	foreign("alive", host, me, started);
	ok(run(write_whole, "alive") == EX_TEMPFAIL && there("alive.tmp/part"), "a living process keeps its own");
	foreign("reused", host, me, started + 1);
	ok(run(write_whole, "reused") == 0 && whole("reused"), "a number that was used again is another process");
	foreign("far", "no-such-host.example", 1, 1);
	ok(run(write_whole, "far") == EX_TEMPFAIL && there("far.tmp/part"), "another host's is left alone (75)");
	waitid(P_PID, (id_t)zombie, &info, WEXITED | WNOWAIT);
	foreign("zombie", host, zombie, start_of(zombie));
	ok(run(write_whole, "zombie") == 0 && whole("zombie"), "a zombie is dead");
	waitpid(zombie, NULL, 0);
	foreign("gone", host, zombie, 1);
	ok(run(write_whole, "gone") == 0 && whole("gone"), "so is one that is gone");
}

/* Several at once over a dead leftover, a bare directory or nothing: one wins, whole. */
static void racing(void)
{
	enum { ROUNDS = 30, WRITERS = 4 };
	int bad = 0;

	for (int r = 0; r < ROUNDS; r++) {
		char name[32], tmp[40];
		pid_t pid[WRITERS];
		int won = 0;

		snprintf(name, sizeof(name), "race-%d", r);
		snprintf(tmp, sizeof(tmp), "%s.tmp", name);
		if (r % 3 == 0)
			run(half_and_kill, name);
		if (r % 3 == 1)
			make_dir(tmp);
		for (int i = 0; i < WRITERS; i++)
			pid[i] = start(write_whole, name, NULL, NULL);
		for (int i = 0; i < WRITERS; i++) {
			int rc = status_of(pid[i]);

			won += rc == 0;
			bad += rc && rc != EX_TEMPFAIL && rc != EX_CANTCREAT;
		}
		bad += won != 1 || !whole(name) || !no_leftover(name);
	}
	ok(bad == 0, "of %d writers at once one wins, %d times", WRITERS, ROUNDS);
}

static void not_ours(void)
{
	char *target = at("target"), *link = at("link.tmp"), *in_file = at("links.tmp/file");
	char *in_dir = at("links.tmp/dir"), host[256] = "", *data = at("target/data");

	make_dir("foreign.tmp");
	put("foreign.tmp/thesis", "my own");
	ok(run(write_whole, "foreign") == EX_CANTCREAT && holds("foreign.tmp/thesis", "my own"),
	   "a DIR.tmp with files and no lock is not touched (73)");
	make_dir("bare.tmp");
	ok(run(write_whole, "bare") == 0 && whole("bare"), "an empty DIR.tmp is taken");
	make_dir("begun.tmp");
	put("begun.tmp/lock", "");
	ok(run(write_whole, "begun") == 0 && whole("begun"), "so is one with an empty lock");
	make_dir("target");
	put("target/data", "keep");
	ok(!symlink(target, link) && run(write_whole, "link") == EX_CANTCREAT && holds("target/data", "keep"),
	   "a link in the place of DIR.tmp is not followed");
	gethostname(host, sizeof(host) - 1);
	foreign("links", host, 1L << 30, 1);
	make_dir("links.tmp/sub");
	put("links.tmp/sub/file", "half");
	ok(!symlink(target, in_dir) && !symlink(data, in_file) && run(write_whole, "links") == 0 &&
	   holds("target/data", "keep"), "nor are links inside a leftover, which is removed with its directories");
	foreign("deep", host, 1L << 30, 1);
	make_dir("deep.tmp/a");
	make_dir("deep.tmp/a/b");
	ok(run(write_whole, "deep") == EX_CANTCREAT && there("deep.tmp/a/b"), "two levels down nothing is removed");
	free(target);
	free(link);
	free(in_file);
	free(in_dir);
	free(data);
}

static void ends(void)
{
	ok(run(write_half, "exit") == 0 && !there("exit") && no_leftover("exit"), "exit() removes what is not committed");
	ok(run(half_and_term, "term") == 128 + SIGTERM && !there("term") && no_leftover("term"),
	   "so does SIGTERM, and the status says it");
	ok(run(half_and_hup_ignored, "hup") == 7, "SIGHUP ignored, as by nohup, stays ignored");
	ok(run(half_with_child, "child") == 0 && whole("child"), "a child's exit() removes nothing");
}

int main(void)
{
	plain_case();
	killed_anywhere();
	second_writer();
	racing();
	by_text_alone();
	not_ours();
	ends();
	return done();
}
