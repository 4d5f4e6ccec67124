#include "tools/shared/config_edit.h"

#include <stdio.h>
#include <string.h>

#include "libcommon/json.h"

struct json_edit {
	const char *key;
	const char *text; /* the new value as JSON; NULL: the key goes */
	bool add;	  /* also where the object lacks the key */
};

static const struct json_edit *find(const struct json_edit *edit, int n, const char *key)
{
	for (int i = 0; i < n; i++)
		if (!strcmp(edit[i].key, key))
			return &edit[i];
	return NULL;
}

static void put_text(struct json_out *out, const char *text)
{
	struct json_doc d;
	struct err e = ERR_INIT;

	if (json_parse(&d, text, strlen(text), "an edit", 1, &e))
		bug("%s", e.msg);
	json_put(out, &d.root);
	json_release(&d);
}

static void put_object(struct json_out *out, const struct json *o, const struct json_edit *edit,
		       int n)
{
	json_begin(out, '{');
	for (size_t i = 0; i < o->n; i++) {
		const struct json_edit *found = find(edit, n, o->member[i].key);

		if (found && !found->text)
			continue;
		json_key(out, o->member[i].key);
		if (found)
			put_text(out, found->text);
		else
			json_put(out, &o->member[i].value);
	}
	for (int i = 0; i < n; i++)
		if (edit[i].add && edit[i].text && !json_get(o, edit[i].key)) {
			json_key(out, edit[i].key);
			put_text(out, edit[i].text);
		}
	json_end(out);
}

/* Indented as transformers does. */
static void put_edited(struct str *out, const struct json *o, const struct json_edit *edit, int n)
{
	struct json_out text = { .indent = 2 };

	put_object(&text, o, edit, n);
	str_add(out, text.s.s, text.s.len);
	str_putc(out, '\n');
	json_out_release(&text);
}

/* Does the object already say all this? */
static bool says(const struct json *o, const char *type, bool dequantised)
{
	const struct json *a = json_get(o, "dtype"), *b = json_get(o, "torch_dtype");

	return (a || b) && (!a || json_eq_str(a, type)) && (!b || json_eq_str(b, type)) &&
	       !(dequantised && json_get(o, "quantization_config"));
}

void config_edit_dtype(struct str *out, const char *text, size_t n, const char *file, enum dtype t,
		       bool dequantised)
{
	const char *type = dtype_name(t);
	const struct json *inner;
	struct json_doc d;
	struct err e = ERR_INIT;
	char quoted[32];

	if (json_parse(&d, text, n, file, 1, &e))
		die_err(&e);
	if (!json_is(&d.root, JSON_OBJECT))
		die(EX_DATAERR, "%s: found %s, wanted an object", file, json_type_name(&d.root));
	inner = json_get(&d.root, "text_config");
	if (says(&d.root, type, dequantised) &&
	    (!json_is(inner, JSON_OBJECT) || says(inner, type, dequantised))) {
		str_add(out, text, n);
		json_release(&d);
		return;
	}
	snprintf(quoted, sizeof(quoted), "\"%s\"", type);
	bool lacks = !json_get(&d.root, "dtype") && !json_get(&d.root, "torch_dtype");
	struct json_edit within[] = {
		{ "dtype", quoted, false },
		{ "torch_dtype", quoted, false },
		{ "quantization_config", NULL, false },
	};
	struct json_out changed = { .indent = 2 };
	struct json_edit edit[] = {
		{ "dtype", quoted, lacks },
		{ "torch_dtype", quoted, lacks },
		{ "quantization_config", NULL, false },
		{ "text_config", NULL, false },
	};

	if (json_is(inner, JSON_OBJECT)) {
		put_object(&changed, inner, within, dequantised ? 3 : 2);
		edit[3].text = changed.s.s;
	}
	if (!dequantised)
		edit[2] = edit[3];
	put_edited(out, &d.root, edit, 2 + dequantised + json_is(inner, JSON_OBJECT));
	json_out_release(&changed);
	json_release(&d);
}
