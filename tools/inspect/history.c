#include "tools/inspect/inspect.h"

#include "formats/manifest.h"
#include "libcommon/xalloc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FAR_BACK = 1000 };       /* entries printed at most */

static const char *text(const struct json *o, const char *key)
{
	const struct json *v = json_get(o, key);

	return json_is(v, JSON_STRING) ? v->text : "";
}

/* Arguments come from command lines: nothing in them may move a terminal's cursor. */
static void print_word(const char *s)
{
	for (; *s; s++)
		if ((unsigned char)*s < 0x20 || *s == 0x7f)
			printf("\\x%02x", (unsigned char)*s);
		else
			putchar(*s);
}

static void print_entry(const char *dir, const struct json *entry)
{
	const struct json *args = json_get(entry, "arguments");

	print_word(dir);
	printf("\n    ");
	print_word(text(entry, "program"));
	printf(" %s:", text(entry, "version"));
	for (size_t i = 0; json_is(args, JSON_ARRAY) && i < args->n; i++) {
		putchar(' ');
		print_word(args->item[i].text);
	}
	putchar('\n');
}

/* The first input with a path that is a directory with a manifest: the parent. */
static char *parent_of(const struct json *entry)
{
	const struct json *inputs = json_get(entry, "inputs");

	for (size_t i = 0; json_is(inputs, JSON_ARRAY) && i < inputs->n; i++) {
		const char *path = text(inputs->item + i, "path");

		if (*path && manifest_kind(path))
			return xstrdup(path);
	}
	return NULL;
}

void print_history(const char *dir)
{
	char *at = xstrdup(dir);

	for (int n = 0; at && n < FAR_BACK; n++) {
		const char *kind = manifest_kind(at);
		const struct json *entry;
		struct json_doc d;
		struct err e = ERR_INIT;
		char *next;

		if (!kind || manifest_read(&d, at, kind, &e)) {
			if (!n)
				die_err(&e);
			break;
		}
		entry = json_path(&d.root, "history.entry");
		print_entry(at, entry);
		next = parent_of(entry);
		if (!next && json_path(&d.root, "history.summary")) {
			struct json_out o = { 0 };

			json_put(&o, json_path(&d.root, "history.summary"));
			printf("before that: %s\n", o.s.s);
			json_out_release(&o);
		}
		json_release(&d);
		free(at);
		at = next;
	}
	free(at);
}
