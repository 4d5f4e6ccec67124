#include "tools/inspect/inspect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void print_value(const struct recipe *r, const char *key)
{
	const struct recipe_key *k = recipe_key_find(key);
	/* A name of v0.3 stands for the key that it became. */
	const struct json *v = recipe_value(r, k && !strchr(k->path, '*') ? k->path : key);
	struct json_out o = { 0 };
	char buf[32];

	if (json_is(v, JSON_NULL))
		return;
	if (json_is(v, JSON_STRING)) {
		print_raw(v->text, v->n);
	} else if (k && k->type == RECIPE_REAL && json_is(v, JSON_NUMBER)) {
		printf("%s\n", real_repr(buf, strtod(v->text, NULL)));
	} else {
		json_put(&o, v);
		print_json_text(o.s.s, o.s.len);
		putchar('\n');
		json_out_release(&o);
	}
}

/* Whether the table has this key, or keys below it; ends the program with the nearest one where it has not. */
static void check_key(const char *key)
{
	struct str text = { 0 };
	struct err e = ERR_INIT;

	if (recipe_explain(&text, key, &e))
		die_err(&e);
	str_release(&text);
}

void print_recipe(const char *path, const char *get, bool json)
{
	struct recipe *r;
	struct str text = { 0 };
	struct json_out o = { 0 };
	struct err e = ERR_INIT;

	if (get)
		check_key(get);
	if (recipe_load(&r, path, common.overrides.v, common.overrides.n, common.unset.v, common.unset.n, &e))
		die_err(&e);
	if (get) {
		print_value(r, get);
	} else if (json) {
		if (recipe_write_json(&o, r))
			bug("the effective recipe cannot be written");
		print_facts(&o, true);
	} else {
		if (recipe_write_yaml(&text, r))
			bug("the effective recipe cannot be written");
		fwrite(text.s ? text.s : "", 1, text.len, stdout);
		str_release(&text);
	}
	recipe_free(r);
}

void explain_key(const char *key)
{
	struct str text = { 0 };
	struct err e = ERR_INIT;

	if (recipe_explain(&text, key, &e))
		die_err(&e);
	print_safe(text.s, text.len);
	str_release(&text);
}
