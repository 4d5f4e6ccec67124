#include "formats/manifest.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* A chain that counts more programs than this is no chain of ours; the rest is counted together. */
enum { PROGRAMS_MOST = 64 };

static const char hidden[] = "***";

/* "--api-key", "env.x.hf_token": does the last word of the name say that its value is a secret? */
static bool is_secret(const char *name, size_t n)
{
	static const char *const word[] = { "token",	   "secret",	 "password",
					    "passwd",	   "passphrase", "credential",
					    "credentials", "key",	 "apikey" };

	for (size_t i = 0; i < sizeof(word) / sizeof(*word); i++) {
		size_t len = strlen(word[i]);

		if (n < len || strncasecmp(name + n - len, word[i], len))
			continue;
		if (n == len || strchr("-_.", name[n - len - 1]))
			return true;
	}
	return false;
}

static void put_arguments(struct json_out *o, const struct history *h)
{
	bool hide = false;

	json_begin(o, '[');
	for (int i = 0; i < h->argc; i++) {
		const char *a = h->argument[i], *eq = strchr(a, '=');
		struct str s = { 0 };

		if (hide) {
			json_put_str(o, hidden);
			hide = false;
		} else if (eq && is_secret(a, (size_t)(eq - a))) {
			str_add(&s, a, (size_t)(eq - a) + 1);
			str_puts(&s, hidden);
			json_put_str(o, s.s);
			str_release(&s);
		} else {
			hide = !eq && !strncmp(a, "--", 2) && is_secret(a, strlen(a));
			json_put_str(o, a);
		}
	}
	json_end(o);
}

static void put_entry(struct json_out *o, const struct history *h)
{
	char hex[33];

	json_begin(o, '{');
	json_add_str(o, "program", h->program);
	json_add_str(o, "version", h->version);
	json_key(o, "arguments");
	put_arguments(o, h);
	json_add_str(o, "recipe",
		     h->recipe ? digest_hex(hex, hash128(h->recipe, strlen(h->recipe))) : NULL);
	json_key(o, "seeds");
	json_begin(o, '[');
	for (int i = 0; i < h->seeds; i++)
		json_put_u64(o, h->seed[i]);
	json_end(o);
	json_key(o, "inputs");
	json_begin(o, '[');
	for (int i = 0; i < h->inputs; i++) {
		json_begin(o, '{');
		json_add_str(o, "what", h->input[i].what);
		json_add_str(o, "path", h->input[i].path);
		json_add_str(o, "digest", digest_hex(hex, h->input[i].digest));
		json_end(o);
	}
	json_end(o);
	json_end(o);
}

/* XXH3-128 of the entry without blanks and the parent's digest in hexadecimal. */
static struct digest entry_digest(struct json_out *text, const char *parent)
{
	struct digest d;

	if (parent)
		str_puts(&text->s, parent);
	d = hash128(text->s.s, text->s.len);
	json_out_release(text);
	return d;
}

/* Counts of runs by program, this one's included, in the order of their first run. */
static void put_runs(struct json_out *o, const struct history *h, const struct json *runs)
{
	bool counted = false;
	long other = 0;

	json_begin(o, '{');
	for (size_t i = 0; json_is(runs, JSON_OBJECT) && i < runs->n; i++) {
		const struct json_member *m = &runs->member[i];
		long n = json_is(&m->value, JSON_NUMBER) ? strtol(m->value.text, NULL, 10) : 0;

		if (!strcmp(m->key, h->program)) {
			n++;
			counted = true;
		}
		if (i < PROGRAMS_MOST && strcmp(m->key, "other"))
			json_add_int(o, m->key, n);
		else
			other += n;
	}
	if (!counted)
		json_add_int(o, h->program, 1);
	if (other)
		json_add_int(o, "other", other);
	json_end(o);
}

void history_put(struct json_out *o, const struct history *h)
{
	const struct json *pd = json_get(h->parent, "digest"),
			  *first = json_path(h->parent, "summary.first");
	const char *parent = json_is(pd, JSON_STRING) ? pd->text : NULL;
	struct json_out text = { .indent = -1 };
	char hex[33];

	put_entry(&text, h);
	json_begin(o, '{');
	json_key(o, "entry");
	put_entry(o, h);
	json_add_str(o, "digest", digest_hex(hex, entry_digest(&text, parent)));
	json_add_str(o, "parent", parent);
	json_key(o, "summary");
	json_begin(o, '{');
	json_key(o, "runs");
	put_runs(o, h, json_path(h->parent, "summary.runs"));
	if (!json_is(first, JSON_OBJECT))
		first = json_get(h->parent, "entry");
	json_key(o, "first");
	if (json_is(first, JSON_OBJECT))
		json_put(o, first);
	else
		json_put_null(o);
	json_end(o);
	json_end(o);
}

int history_check(const struct json_doc *d, const struct json *history, struct err *e)
{
	const struct json *entry = json_get(history, "entry"), *pd = json_get(history, "parent");
	struct json_out text = { .indent = -1 };
	struct digest want;
	char hex[33];

	if (!json_is(entry, JSON_OBJECT))
		return err_set(e, EX_DATAERR, "%s: history.entry: found %s, wanted an object",
			       d->file, json_type_name(entry));
	if (manifest_get_digest(&want, d, history, "digest", e))
		return -1;
	json_put(&text, entry);
	digest_hex(hex, entry_digest(&text, json_is(pd, JSON_STRING) ? pd->text : NULL));
	if (!json_eq_str(json_get(history, "digest"), hex))
		return err_set(e, EX_DATAERR, "%s: history.digest: found %s, wanted %s", d->file,
			       json_get(history, "digest")->text, hex);
	return 0;
}
