/*
 * cairn - run a program of the toolkit
 *
 * `cairn NAME ARGS` becomes the program NAME: the one beside this binary or, when installed as
 * PREFIX/bin/cairn, PREFIX/libexec/cairn/NAME.  It adds nothing: the program's status is the
 * answer.
 */

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "libcommon/file.h"
#include "libcommon/opt.h"
#include "libcommon/xalloc.h"

static const char usage[] = "usage: cairn NAME [ARGS], cairn help [NAME], cairn --version";

/* A directory beside ours would also hold programs of the system, so libexec goes first. */
static char *programs_dir(void)
{
	char *installed = path_join(program_dir(), "../libexec/cairn");

	if (file_is_dir(installed))
		return installed;
	free(installed);
	return xstrdup(program_dir());
}

/* NULL where `name` is no program of ours: shared objects and a linker's leftovers have a dot. */
static char *program_path(const char *dir, const char *name)
{
	char *path;

	if (!*name || strpbrk(name, "/.") || !strcmp(name, "cairn"))
		return NULL;
	path = path_join(dir, name);
	if (!access(path, X_OK) && !file_is_dir(path))
		return path;
	free(path);
	return NULL;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Sorted, NULL behind the last; they live as long as we do. */
static char **list_programs(const char *dir)
{
	DIR *d = opendir(dir);
	struct dirent *entry;
	char **names = NULL;
	size_t n = 0, cap = 0;

	if (!d)
		die(EX_UNAVAILABLE, "%s: %s", dir, strerror(errno));
	while ((entry = readdir(d))) {
		char *path = program_path(dir, entry->d_name);

		if (path) {
			GROW(names, n, cap);
			names[n++] = xstrdup(entry->d_name);
		}
		free(path);
	}
	closedir(d);
	GROW(names, n, cap);
	names[n] = NULL;
	if (n)
		qsort(names, n, sizeof(*names), by_name);
	return names;
}

/* The standard output of `PATH --help`. */
static pid_t open_help(const char *path, FILE **out)
{
	int fd[2];
	pid_t pid;

	if (pipe(fd))
		die(EX_UNAVAILABLE, "a pipe: %s", strerror(errno));
	pid = fork();
	if (pid < 0)
		die(EX_UNAVAILABLE, "a process: %s", strerror(errno));
	if (!pid) {
		dup2(fd[1], STDOUT_FILENO);
		close(fd[0]);
		close(fd[1]);
		execl(path, path, "--help", (char *)NULL);
		_exit(EX_UNAVAILABLE);
	}
	close(fd[1]);
	*out = fdopen(fd[0], "r");
	return pid;
}

/* What a program is for stands behind the first empty line of its help. */
static void print_purpose(const char *path, const char *name)
{
	char line[256];
	bool blank = false;
	FILE *f;
	pid_t pid;

	printf("  %-16s", name);
	fflush(stdout);
	pid = open_help(path, &f);
	while (fgets(line, sizeof(line), f) && !blank) {
		blank = *line == '\n';
		if (blank && fgets(line, sizeof(line), f))
			printf("%.*s", (int)strcspn(line, "\n"), line);
	}
	putchar('\n');
	/* To the end, so that no program dies of a closed pipe. */
	while (fgets(line, sizeof(line), f))
		;
	fclose(f);
	waitpid(pid, NULL, 0);
}

static int list(const char *dir)
{
	printf("%s\n\n", usage);
	for (char **name = list_programs(dir); *name; name++)
		print_purpose(path_join(dir, *name), *name);
	printf("\n`cairn help NAME` tells more.\n");
	return tool_exit(EX_OK);
}

static char *find(const char *dir, const char *name)
{
	char *path = program_path(dir, name);
	const char *near;

	if (path)
		return path;
	near = nearest(name, (const char *const *)list_programs(dir));
	if (near)
		die(EX_USAGE, "found \"%s\", wanted the name of a program; the nearest is %s", name, near);
	die(EX_USAGE, "found \"%s\", wanted the name of a program; `cairn help` lists them", name);
}

_Noreturn static void run(char *path, char **argv)
{
	execv(path, argv);
	die(EX_UNAVAILABLE, "%s: %s", path, strerror(errno));
}

/* Of an installation, else of the tree; NULL where there is none. */
static char *man_page(const char *name)
{
	static const char *const places[] = { "../share/man/man1", "../docs/man1", "../docs" };
	const char *head = strcmp(name, "cairn") ? "cairn-" : "";

	for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++) {
		char *path = xasprintf("%s/%s/%s%s.1", program_dir(), places[i], head, name);

		if (file_exists(path))
			return path;
		free(path);
	}
	return NULL;
}

static int help(const char *dir, char *name)
{
	char option[] = "--help", *argv[] = { name, option, NULL };
	bool self = !strcmp(name, "cairn");
	char *path = self ? NULL : find(dir, name);
	char *page = isatty(STDOUT_FILENO) ? man_page(name) : NULL;

	/* Where man is not installed the program itself tells. */
	if (page)
		execlp("man", "man", page, (char *)NULL);
	if (self)
		return list(dir);
	run(path, argv);
}

int main(int argc, char **argv)
{
	const char *word = argc > 1 ? argv[1] : "help";
	char *dir;

	tool_init(argv[0]);
	dir = programs_dir();
	if (!strcmp(word, "help") || !strcmp(word, "--help"))
		return argc > 2 ? help(dir, argv[2]) : list(dir);
	if (!strcmp(word, "--version")) {
		printf("cairn %s\n", cairn_version());
		return tool_exit(EX_OK);
	}
	if (!strcmp(word, "--jobs"))
		die(EX_UNAVAILABLE, "--jobs: many commands in one process are not built; run one cairn for each");
	if (*word == '-')
		die(EX_USAGE, "found the option %s; %s", word, usage);
	run(find(dir, word), argv + 1);
}
