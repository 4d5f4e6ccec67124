#include "libcommon/opt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libcommon/json.h"
#include "libcommon/str.h"

enum { WIDTH = 80, LEFT = 26 };

/* Words of `text` from column `at` on, later lines indented to `indent`. */
static void wrap(struct str *out, const char *text, int at, int indent)
{
	bool first = true;

	while (*(text += strspn(text, " "))) {
		int n = (int)strcspn(text, " ");

		if (!first && at + 1 + n > WIDTH) {
			str_printf(out, "\n%*s", indent, "");
			at = indent;
			first = true;
		}
		str_printf(out, "%s%.*s", first ? "" : " ", n, text);
		at += n + !first;
		first = false;
		text += n;
	}
	str_putc(out, '\n');
}

static void add_default(struct str *t, const struct opt *o)
{
	char buf[32];

	if (!o->target)
		return;
	if (o->type == OPT_T_FLAG && *(const bool *)o->target)
		str_puts(t, " [on]");
	if (o->type == OPT_T_LONG && *(const long *)o->target)
		str_printf(t, " [%ld]", *(const long *)o->target);
	if (o->type == OPT_T_REAL && *(const double *)o->target != 0) {
		real_repr(buf, *(const double *)o->target);
		if (strlen(buf) > 2 && !strcmp(buf + strlen(buf) - 2, ".0"))
			buf[strlen(buf) - 2] = 0;
		str_printf(t, " [%s]", buf);
	}
	if (o->type == OPT_T_STR && *(const char *const *)o->target)
		str_printf(t, " [%s]", *(const char *const *)o->target);
}

static void option(struct str *out, const struct opt *o)
{
	struct str left = { 0 }, right = { 0 };

	if (o->letter)
		str_printf(&left, "  -%c, --%s", o->letter, o->name);
	else
		str_printf(&left, "      --%s", o->name);
	if (o->arg)
		str_printf(&left, " %s", o->arg);
	str_puts(&right, o->help);
	add_default(&right, o);
	str_puts(out, left.s);
	if (left.len + 2 > LEFT)
		str_printf(out, "\n%*s", LEFT, "");
	else
		str_printf(out, "%*s", LEFT - (int)left.len, "");
	wrap(out, right.s, LEFT, LEFT);
	str_release(&left);
	str_release(&right);
}

static void options(struct str *out, const struct tool *t, const struct opt *table)
{
	for (const struct opt *o = table; o && o->type != OPT_T_END; o++) {
		if (o->type == OPT_T_HEADING)
			str_printf(out, "\n%s\n", o->help);
		else if (opt_applies(t, o))
			option(out, o);
	}
}

void opt_help(const struct tool *t)
{
	struct str out = { 0 };
	int n;

	str_printf(&out, "usage: cairn %s ", t->name);
	n = (int)out.len;
	wrap(&out, t->synopsis, n, n);
	str_putc(&out, '\n');
	wrap(&out, t->purpose, 0, 0);
	str_putc(&out, '\n');
	options(&out, t, t->table);
	if (t->table && t->table->type != OPT_T_END)
		str_putc(&out, '\n');
	options(&out, t, common_table);
	if (t->takes_recipe)
		str_puts(&out, "\nWords KEY.PATH=VALUE behind the operands override keys of the recipe.\n");
	fwrite(out.s, 1, out.len, stdout);
	str_release(&out);
}
