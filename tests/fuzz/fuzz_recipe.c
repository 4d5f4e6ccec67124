/*
 * The recipe loader on any bytes: YAML, then after a line `%%` one override a line.  What loads must be written and load again to the
 * same text and digest.  Parents are files, so inputs that name them are left alone.
 */
#include "libcommon/recipe.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void again(const struct recipe *r)
{
	struct str a = { 0 }, b = { 0 };
	struct err e = ERR_INIT;
	struct recipe *q;

	recipe_write_yaml(&a, r);
	/* Defaults and escapes may carry the text over what a file may have. */
	if (a.len <= 1 << 20) {
		if (recipe_parse(&q, a.s, a.len, "again", NULL, 0, NULL, 0, &e))
			bug("does not load again: %s\n%s", e.msg, a.s);
		recipe_write_yaml(&b, q);
		if (strcmp(a.s, b.s) || !digest_equal(recipe_digest(r), recipe_digest(q)))
			bug("is not the same again:\n%s\n%s", a.s, b.s);
		recipe_free(q);
	}
	str_release(&a);
	str_release(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *over[16];
	struct err e = ERR_INIT;
	struct recipe *r;
	char *text;
	size_t len;
	int n = 0;

	if (memmem(data, size, "defaults", 8))
		return 0;
	text = xstrndup((const char *)data, size);
	char *mark = memmem(text, size, "\n%%\n", 4);
	len = mark ? (size_t)(mark - text) + 1 : size;
	for (char *line = mark ? mark + 4 : NULL; line && *line && n < 16; ) {
		char *end = strchr(line, '\n');
		over[n++] = line;
		if (end)
			*end = 0;
		line = end ? end + 1 : NULL;
	}
	if (!recipe_parse(&r, text, len, "fuzz", over, n, NULL, 0, &e)) {
		again(r);
		recipe_free(r);
	} else if (!e.code || !*e.msg || strchr(e.msg, '\n')) {
		bug("refused without one line of reason: '%s'", e.msg);
	}
	free(text);
	return 0;
}
