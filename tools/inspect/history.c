#include "tools/inspect/inspect.h"

#include "libcommon/file.h"
#include "libcommon/xalloc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FAR_BACK = 100000 };     /* entries that are followed */

static const char *text(const struct json *o, const char *key)
{
	const struct json *v = json_get(o, key);

	return json_is(v, JSON_STRING) ? v->text : "";
}

/* As a shell would read it back. */
static void add_word(struct str *out, const char *s)
{
	bool plain = *s && !s[strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-+=:,@%")];

	if (plain) {
		str_puts(out, s);
		return;
	}
	str_putc(out, '\'');
	for (; *s; s++)
		if (*s == '\'')
			str_puts(out, "'\\''");
		else
			str_putc(out, *s);
	str_putc(out, '\'');
}

char *history_line(const struct json *entry)
{
	const struct json *args = json_get(entry, "arguments");
	struct str t = { 0 };

	str_printf(&t, "%s %s:", text(entry, "program"), text(entry, "version"));
	for (size_t i = 0; json_is(args, JSON_ARRAY) && i < args->n; i++)
		if (json_is(args->item + i, JSON_STRING)) {
			str_putc(&t, ' ');
			add_word(&t, args->item[i].text);
		}
	return str_detach(&t);
}

/* DIR/../../PART/NAME for a path that ends in PART/NAME: the same place in a run that has moved, or seen from another folder. */
static char *beside(const char *dir, const char *path)
{
	size_t n = strlen(path), slashes = 0;

	while (n && path[n - 1] == '/')
		n--;
	for (; n; n--) {
		slashes += path[n - 1] == '/';
		if (slashes == 2)
			break;
	}
	return xasprintf("%s/../../%s", dir, path + n);
}

/* 0 and the manifest of an output directory, whatever its kind. */
static int open_manifest(struct json_doc *d, const char *dir)
{
	const char *kind = manifest_kind(dir);
	struct err e = ERR_INIT;

	if (!kind)
		return -1;
	if (!manifest_read(d, dir, kind, &e) && !history_check(d, json_get(&d->root, "history"), &e))
		return 0;
	log_warn("%s", e.msg);
	return -1;
}

/* Is the input there, and is it still what was read?  Checkpoints are named by their weights, samples by their policy. */
static bool is_input(const char *dir, const char *digest)
{
	struct json_doc d;
	bool yes;

	if (open_manifest(&d, dir))
		return false;
	yes = json_eq_str(json_get(&d.root, "weights_digest"), digest) || json_eq_str(json_get(&d.root, "policy"), digest) ||
	      !strcmp(digest, "00000000000000000000000000000000");
	json_release(&d);
	return yes;
}

static char *find_input(const char *dir, const struct json *input)
{
	const char *path = text(input, "path");
	char *moved;

	if (!*path)
		return NULL;
	if (is_input(path, text(input, "digest")))
		return xstrdup(path);
	moved = beside(dir, path);
	if (is_input(moved, text(input, "digest")))
		return moved;
	free(moved);
	return NULL;
}

char *history_find(const char *dir, const struct json *entry, const char *what)
{
	const struct json *inputs = json_get(entry, "inputs");
	char *found = NULL;

	for (size_t i = 0; !found && json_is(inputs, JSON_ARRAY) && i < inputs->n; i++)
		if (!strcmp(text(inputs->item + i, "what"), what))
			found = find_input(dir, inputs->item + i);
	return found;
}

/* The input whose history has the digest that this one calls its parent. */
static char *find_parent(const char *dir, const struct json *history)
{
	const struct json *inputs = json_path(history, "entry.inputs");
	const char *parent = text(history, "parent");

	for (size_t i = 0; *parent && json_is(inputs, JSON_ARRAY) && i < inputs->n; i++) {
		char *path = find_input(dir, inputs->item + i);
		struct json_doc d;
		bool yes = false;

		if (path && !open_manifest(&d, path)) {
			yes = json_eq_str(json_path(&d.root, "history.digest"), parent);
			json_release(&d);
		}
		if (yes)
			return path;
		free(path);
	}
	return NULL;
}

static void put_inputs(struct json_out *o, const struct json *inputs)
{
	json_key(o, "inputs");
	json_begin(o, '[');
	for (size_t i = 0; json_is(inputs, JSON_ARRAY) && i < inputs->n; i++)
		json_put(o, inputs->item + i);
	json_end(o);
}

static void print_words(const char *label, const char *s)
{
	printf("  %-9s ", label);
	print_safe(s, strlen(s));
	putchar('\n');
}

static void print_entry(const char *dir, const struct json *entry, const char *digest)
{
	const struct json *inputs = json_get(entry, "inputs"), *seeds = json_get(entry, "seeds");
	char *line = history_line(entry);

	print_safe(dir, strlen(dir));
	putchar('\n');
	print_words("made by", line);
	if (*text(entry, "recipe"))
		print_words("recipe", text(entry, "recipe"));
	for (size_t i = 0; json_is(seeds, JSON_ARRAY) && i < seeds->n; i++)
		print_words("seed", seeds->item[i].text);
	for (size_t i = 0; json_is(inputs, JSON_ARRAY) && i < inputs->n; i++) {
		char *in = xasprintf("%s %s %s", text(inputs->item + i, "what"), text(inputs->item + i, "path"),
				     text(inputs->item + i, "digest"));

		print_words("read", in);
		free(in);
	}
	print_words("history", digest);
	free(line);
}

static void print_before(const struct json *history)
{
	const struct json *runs = json_path(history, "summary.runs"), *first = json_path(history, "summary.first");
	char *line = history_line(first);

	printf("in all:");
	for (size_t i = 0; json_is(runs, JSON_OBJECT) && i < runs->n; i++) {
		printf("%s ", i ? "," : "");
		print_safe(runs->member[i].key, runs->member[i].keylen);
		if (json_is(&runs->member[i].value, JSON_NUMBER))
			printf(" %s", runs->member[i].value.text);
	}
	if (json_is(first, JSON_OBJECT)) {
		printf("; the first: ");
		print_safe(line, strlen(line));
	}
	putchar('\n');
	free(line);
}

static void put_entry(struct json_out *o, const char *dir, const struct json *history)
{
	const struct json *entry = json_get(history, "entry");
	char *line = history_line(entry);

	json_begin(o, '{');
	json_add_str(o, "path", dir);
	json_add_str(o, "made_by", line);
	put_inputs(o, json_get(entry, "inputs"));
	json_key(o, "history");
	json_put(o, history);
	json_end(o);
	free(line);
}

/* One JSON object a line, or a paragraph each, from here back to the oldest that is still there. */
void print_history(const char *dir, bool json)
{
	const char *kind = manifest_kind(dir);
	struct json_doc d;
	struct err e = ERR_INIT;
	char *at = xstrdup(dir), *next;

	if (manifest_read(&d, dir, kind ? kind : "model", &e) || history_check(&d, json_get(&d.root, "history"), &e))
		die_err(&e);
	for (long n = 0; n < FAR_BACK; n++) {
		const struct json *history = json_get(&d.root, "history");
		struct json_out o = { 0 };

		if (json) {
			put_entry(&o, at, history);
			print_facts(&o, true);
		} else {
			print_entry(at, json_get(history, "entry"), text(history, "digest"));
		}
		next = find_parent(at, history);
		if (!next && !json && *text(history, "parent"))
			printf("its parent %s is no longer there\n", text(history, "parent"));
		if (!next && !json)
			print_before(history);
		free(at);
		at = next;
		json_release(&d);
		if (!next || open_manifest(&d, next))
			break;
	}
	free(at);
}
