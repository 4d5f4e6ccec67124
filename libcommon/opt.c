#include "libcommon/opt.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libcommon/xalloc.h"

struct common_opts common = { .device = "auto" };

const struct opt common_table[] = {
	OPT_STR ('c', "config",  &common.recipe, "RECIPE", "the recipe (YAML)"),
	OPT_LIST( 0,  "unset",   &common.unset,  "KEY",    "remove a key of the recipe; may be repeated"),
	OPT_STR ( 0,  "device",  &common.device, "DEV",    "cpu, cuda, cuda:N or auto"),
	OPT_STR ( 0,  "isa",     &common.isa,    "NAME",   "instruction set of the CPU kernels; without it the best"),
	OPT_STR ( 0,  "memory",  &common.memory, "BYTES",  "use at most so much memory, as 8G or 512MiB"),
	OPT_LONG( 0,  "threads", &common.threads, "N",     "CPU threads; 0 or absent: all"),
	OPT_FLAG('q', "quiet",   &common.quiet,            "no warnings"),
	OPT_COUNT('v', "verbose", &common.verbose,         "say more; twice: still more"),
	OPT_FLAG( 0,  "help",    NULL,                     "print this and stop"),
	OPT_FLAG( 0,  "version", NULL,                     "print the version and what is built in, and stop"),
	OPT_END
};

/* Where the parser is in argv. */
struct words {
	const struct tool *tool;
	char **argv;
	int argc, i;
	const char **args;
	int n, least, most;
	bool override_seen;
};

bool opt_applies(const struct tool *t, const struct opt *o)
{
	return t->takes_recipe || (o->target != &common.recipe && o->target != &common.unset);
}

static bool matches(const struct opt *o, int letter, const char *name, size_t n)
{
	if (o->type == OPT_T_HEADING)
		return false;
	return letter ? o->letter == letter : strlen(o->name) == n && !strncmp(o->name, name, n);
}

/* By letter, or where that is 0 by the first n bytes of name. */
static const struct opt *find(const struct tool *t, int letter, const char *name, size_t n)
{
	const struct opt *tables[] = { t->table, common_table };

	for (int i = 0; i < 2; i++)
		for (const struct opt *o = tables[i]; o && o->type != OPT_T_END; o++)
			if (matches(o, letter, name, n) && opt_applies(t, o))
				return o;
	return NULL;
}

_Noreturn static void unknown(const struct tool *t, const char *word)
{
	const struct opt *tables[] = { t->table, common_table };
	const char **names = NULL, *near;
	char *name = xstrndup(word + 2, strcspn(word + 2, "="));
	int n = 0, cap = 0;

	for (int i = 0; i < 2; i++)
		for (const struct opt *o = tables[i]; o && o->type != OPT_T_END; o++)
			if (o->type != OPT_T_HEADING && opt_applies(t, o)) {
				GROW(names, n, cap);
				names[n++] = o->name;
			}
	GROW(names, n, cap);
	names[n] = NULL;
	near = nearest(name, names);
	if (near)
		die(EX_USAGE, "found the option --%s, wanted one of those that --help lists; the nearest is --%s", name,
		    near);
	die(EX_USAGE, "found the option --%s, wanted one of those that --help lists", name);
}

static void set_long(const struct opt *o, const char *s)
{
	char *end;
	long v;

	errno = 0;
	v = strtol(s, &end, 10);
	if (isspace((unsigned char)*s) || end == s || *end || errno)
		die(EX_USAGE, "--%s: found \"%s\", wanted an integer", o->name, s);
	*(long *)o->target = v;
}

static void set_real(const struct opt *o, const char *s)
{
	char *end;
	double v = strtod(s, &end);

	if (isspace((unsigned char)*s) || end == s || *end || !isfinite(v))
		die(EX_USAGE, "--%s: found \"%s\", wanted a number", o->name, s);
	*(double *)o->target = v;
}

static void list_add(struct opt_list *l, const char *s)
{
	GROW(l->v, l->n, l->cap);
	l->v[l->n++] = s;
}

static void set(const struct opt *o, const char *s)
{
	switch (o->type) {
	case OPT_T_LONG:
		set_long(o, s);
		break;
	case OPT_T_REAL:
		set_real(o, s);
		break;
	case OPT_T_STR:
		*(const char **)o->target = s;
		break;
	case OPT_T_LIST:
		list_add(o->target, s);
		break;
	case OPT_T_FLAG:
		*(bool *)o->target = true;
		break;
	case OPT_T_COUNT:
		++*(long *)o->target;
		break;
	default:
		bug("option --%s has type %d", o->name, o->type);
	}
}

static bool takes_argument(const struct opt *o)
{
	return o->type != OPT_T_FLAG && o->type != OPT_T_COUNT;
}

static const char *argument(struct words *w, const struct opt *o)
{
	if (w->i >= w->argc)
		die(EX_USAGE, "--%s: found nothing behind it, wanted %s", o->name, o->arg);
	return w->argv[w->i++];
}

static void long_option(struct words *w, const char *word)
{
	size_t n = strcspn(word + 2, "=");
	const char *value = word[2 + n] ? word + 3 + n : NULL;
	const struct opt *o = find(w->tool, 0, word + 2, n);

	if (!o && !value && !strncmp(word, "--no-", 5)) {
		o = find(w->tool, 0, word + 5, n - 3);
		if (o && o->type == OPT_T_FLAG && o->target) {
			*(bool *)o->target = false;
			return;
		}
		o = NULL;
	}
	if (!o)
		unknown(w->tool, word);
	if (value && !takes_argument(o))
		die(EX_USAGE, "--%s: found the argument \"%s\", wanted none", o->name, value);
	if (!value && takes_argument(o))
		value = argument(w, o);
	set(o, value);
}

static void letters(struct words *w, const char *word)
{
	for (const char *p = word + 1; *p; p++) {
		const struct opt *o = find(w->tool, *p, NULL, 0);

		if (!o)
			die(EX_USAGE, "found the option -%c, wanted one of those that --help lists", *p);
		if (takes_argument(o)) {
			set(o, p[1] ? p + 1 : argument(w, o));
			return;
		}
		set(o, NULL);
	}
}

static bool is_override(const char *s)
{
	bool drop = *s == '~';
	size_t n;

	s += drop ? 1 : strspn(s, "+") > 2 ? 0 : strspn(s, "+");
	if (!isalpha((unsigned char)*s) && *s != '_')
		return false;
	n = strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.");
	return s[n] == '=' || (drop && !s[n]);
}

static void operand(struct words *w, const char *word)
{
	if (w->override_seen)
		die(EX_USAGE, "found the operand \"%s\" behind a recipe key, wanted operands first", word);
	if (w->n == w->most)
		die(EX_USAGE, "found the operand \"%s\", wanted at most %d; usage: %s %s", word, w->most,
		    w->tool->name, w->tool->synopsis);
	w->args[w->n++] = word;
}

static void word_or_option(struct words *w, const char *word)
{
	if (word[0] == '-' && word[1] == '-') {
		long_option(w, word);
	} else if (word[0] == '-' && word[1]) {
		letters(w, word);
	} else if (w->tool->takes_recipe && w->n >= w->least && is_override(word)) {
		list_add(&common.overrides, word);
		w->override_seen = true;
	} else {
		operand(w, word);
	}
}

/* Before anything is set, so that the defaults in the help are the defaults. */
static void help_and_version(const struct tool *t, int argc, char **argv)
{
	for (int i = 1; i < argc && strcmp(argv[i], "--"); i++) {
		if (!strcmp(argv[i], "--help")) {
			opt_help(t);
			exit(tool_exit(EX_OK));
		}
		if (!strcmp(argv[i], "--version")) {
			opt_version(t);
			exit(tool_exit(EX_OK));
		}
	}
}

static bool is_device(const char *s)
{
	if (!strcmp(s, "cpu") || !strcmp(s, "auto") || !strcmp(s, "cuda"))
		return true;
	return !strncmp(s, "cuda:", 5) && s[5] && strspn(s + 5, "0123456789") == strlen(s + 5) && strlen(s) < 9;
}

static void settle_common(void)
{
	verbosity = common.quiet ? -1 : (int)(common.verbose < 9 ? common.verbose : 9);
	if (!is_device(common.device))
		die(EX_USAGE, "--device: found \"%s\", wanted cpu, cuda, cuda:N or auto", common.device);
	if (common.threads < 0)
		die(EX_USAGE, "--threads: found %ld, wanted 0 or more", common.threads);
	if (common.memory) {
		common.memory_bytes = parse_bytes(common.memory);
		if (common.memory_bytes <= 0)
			die(EX_USAGE, "--memory: found \"%s\", wanted bytes as in 4096, 512MiB or 8G", common.memory);
	}
}

int opt_parse(const struct tool *t, int argc, char **argv, const char **args, int least, int most)
{
	struct words w = { .tool = t, .argv = argv, .argc = argc, .i = 1, .args = args, .least = least, .most = most };

	help_and_version(t, argc, argv);
	while (w.i < argc) {
		const char *word = argv[w.i++];

		if (!strcmp(word, "--"))
			break;
		word_or_option(&w, word);
	}
	while (w.i < argc)
		operand(&w, argv[w.i++]);
	settle_common();
	if (w.n < least)
		die(EX_USAGE, "found %d operand%s, wanted %d; usage: %s %s", w.n, w.n == 1 ? "" : "s", least, t->name,
		    t->synopsis);
	return w.n;
}
