#ifndef TESTS_TOOLS_HF_FOLDER_H
#define TESTS_TOOLS_HF_FOLDER_H

/* For tests of programs that read and write Hugging Face folders: one in memory, to be changed and
 * written, and the programs run. */

#include "formats/safetensors.h"
#include "libcommon/file.h"
#include "libcommon/json.h"
#include "libcommon/xalloc.h"
#include "tests/lib/tap.h"

#include <stdarg.h>
#include <sys/stat.h>
#include <sys/wait.h>

enum { FOLDER_TENSORS = 64 };

struct folder {
	char *config;
	struct tensor t[FOLDER_TENSORS];
	long n;
};

static struct str tool_out, tool_err; /* of the last program run */

__attribute__((unused)) static char *read_text(const char *path)
{
	struct str s = { 0 };
	struct err e = ERR_INIT;

	if (file_read(&s, path, 0, &e))
		die_err(&e);
	str_add(&s, "", 0);
	return s.s;
}

/* Run bin/COMMAND in the test's directory; its exit status. */
PRINTF(1, 2) static int tool_run(const char *fmt, ...)
{
	const char *bin = getenv("BIN");
	struct str line = { 0 };
	struct err e = ERR_INIT;
	char *words, *out = path_join(tap_tmp(), "stdout"), *err = path_join(tap_tmp(), "stderr");
	va_list ap;
	int rc;

	va_start(ap, fmt);
	if (vasprintf(&words, fmt, ap) < 0)
		die(EX_SOFTWARE, "vasprintf");
	va_end(ap);
	str_printf(&line, "%s/%s >%s 2>%s", bin ? bin : "bin", words, out, err);
	rc = system(line.s);
	str_cut(&tool_out, 0);
	str_cut(&tool_err, 0);
	if (file_read(&tool_out, out, 0, &e) || file_read(&tool_err, err, 0, &e))
		die_err(&e);
	str_add(&tool_out, "", 0);
	str_add(&tool_err, "", 0);
	str_release(&line);
	free(words);
	free(out);
	free(err);
	return WIFEXITED(rc) ? WEXITSTATUS(rc) : 128 + WTERMSIG(rc);
}

static bool said(const char *part)
{
	bool is = strstr(tool_err.s, part);

	if (!is)
		printf("# no \"%s\" in: %s\n", part, tool_err.s);
	return is;
}

/* A path in the test's directory; never freed. */
static char *at(const char *name)
{
	return path_join(tap_tmp(), name);
}

static struct tensor *folder_add(struct folder *f, const char *name, enum dtype dtype, int rank,
				 long a, long b, const void *data)
{
	struct tensor *t = &f->t[f->n++];

	if (f->n > FOLDER_TENSORS)
		die(EX_SOFTWARE, "too many tensors");
	*t = (struct tensor){
		.name = xstrdup(name), .dtype = dtype, .rank = rank, .shape = { a, b }
	};
	t->data = xcalloc(tensor_bytes(t) + 1, 1);
	if (data)
		memcpy(t->data, data, tensor_bytes(t));
	return t;
}

static struct tensor *folder_find(struct folder *f, const char *name)
{
	for (long i = 0; i < f->n; i++)
		if (!strcmp(f->t[i].name, name))
			return &f->t[i];
	die(EX_SOFTWARE, "%s: no such tensor", name);
}

__attribute__((unused)) static void folder_drop(struct folder *f, const char *name)
{
	*folder_find(f, name) = f->t[--f->n];
}

/* The weights of a .safetensors file or a folder. */
static void folder_weights(struct folder *f, const char *path)
{
	struct safetensors_set s;
	struct err e = ERR_INIT;

	if (safetensors_set_open(&s, path, &e))
		die_err(&e);
	for (long i = 0; i < s.n; i++) {
		const struct safetensors_entry *en = s.item[i].entry;
		struct tensor *t = folder_add(f, en->name, en->dtype, en->rank, en->shape[0],
					      en->rank > 1 ? en->shape[1] : 0, NULL);

		if (safetensors_read(t->data, s.item[i].file, en, 0, en->bytes, &e))
			die_err(&e);
	}
	safetensors_set_close(&s);
}

static void folder_load(struct folder *f, const char *dir)
{
	*f = (struct folder){ .config = read_text(path_join(dir, "config.json")) };
	folder_weights(f, dir);
}

/* The part `from` of config.json becomes `to`. */
__attribute__((unused)) static void folder_config(struct folder *f, const char *from,
						  const char *to)
{
	char *where = strstr(f->config, from);

	if (!where)
		die(EX_SOFTWARE, "config.json has no %s", from);
	f->config = xasprintf("%.*s%s%s", (int)(where - f->config), f->config, to,
			      where + strlen(from));
}

/* A new folder of that name in the test's directory: config.json and model.safetensors; its path.
 */
__attribute__((unused)) static char *folder_write(const struct folder *f, const char *name)
{
	char *dir = at(name);
	struct err e = ERR_INIT;

	if (mkdir(dir, 0777) ||
	    file_write(path_join(dir, "config.json"), f->config, strlen(f->config), &e) ||
	    safetensors_write(path_join(dir, "model.safetensors"), f->t, f->n, NULL, NULL, &e))
		die(EX_IOERR, "%s: %s", dir, e.msg);
	return dir;
}

/* Same names, types, shapes and bytes. */
__attribute__((unused)) static bool folder_same(struct folder *a, struct folder *b)
{
	bool same = a->n == b->n;

	for (long i = 0; same && i < a->n; i++) {
		const struct tensor *x = &a->t[i], *y = folder_find(b, x->name);

		same = x->dtype == y->dtype && shape_equal(x->shape, x->rank, y->shape, y->rank) &&
		       !memcmp(x->data, y->data, tensor_bytes(x));
		if (!same)
			printf("# %s differs\n", x->name);
	}
	return same;
}

#endif
