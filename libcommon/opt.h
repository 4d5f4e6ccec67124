#ifndef LIBCOMMON_OPT_H
#define LIBCOMMON_OPT_H

/*
 * One static table per tool: parsing, --help and the manual-page check all come from it.
 *
 *	static const struct opt table[] = {
 *		OPT_STR ('o', "out", &o.out, "DIR", "write the checkpoint here"),
 *		OPT_LONG( 0,  "tp",  &o.tp,  "N",   "tensor parallel size"),
 *		OPT_END
 *	};
 *	static const struct tool tool = { "reshard", "checkpoint in one layout -> checkpoint in any other",
 *		"CKPT -o CKPT2 [options]", table, .takes_recipe = false };
 *	int nargs = opt_parse(&tool, argc, argv, args, 1, 1);
 *
 * The options of common_table are parsed beside the tool's own.  Operands come first: the first
 * `least` words always, and then every word that has not the form `key.path=value` (a key has letters,
 * digits, _ . only, perhaps +, ++ or ~ in front; `~key` may stand alone).  Words of that form are recipe
 * overrides, common.overrides, where takes_recipe is set, and no operand may follow one.  After `--`
 * every word is an operand.  Numbers parse whole or fail (64).  Unknown options: one line, 64, with the
 * nearest name.  --help prints to stdout and exits 0; defaults are read from the targets, so they cannot lie.
 * --version prints version and what is built in.
 */

#include "libcommon/die.h"

#include <stdbool.h>

enum opt_type { OPT_T_END, OPT_T_FLAG, OPT_T_LONG, OPT_T_REAL, OPT_T_STR, OPT_T_LIST, OPT_T_COUNT, OPT_T_HEADING };

struct opt_list {               /* an option that may be given more than once */
	const char **v;         /* owned; strings borrowed from argv */
	int n, cap;
};

struct opt {
	enum opt_type type;
	char letter;            /* 0: none */
	const char *name;
	void *target;           /* bool, long, double, const char *, struct opt_list, long (count) */
	const char *arg;        /* placeholder in the help */
	const char *help;
};

#define OPT_FLAG(l, n, t, h)     { OPT_T_FLAG, l, n, t, 0, h }  /* also --no-NAME */
#define OPT_LONG(l, n, t, a, h)  { OPT_T_LONG, l, n, t, a, h }
#define OPT_REAL(l, n, t, a, h)  { OPT_T_REAL, l, n, t, a, h }
#define OPT_STR(l, n, t, a, h)   { OPT_T_STR, l, n, t, a, h }
#define OPT_LIST(l, n, t, a, h)  { OPT_T_LIST, l, n, t, a, h }
#define OPT_COUNT(l, n, t, h)    { OPT_T_COUNT, l, n, t, 0, h } /* -vv is 2 */
#define OPT_HEADING(h)           { OPT_T_HEADING, 0, 0, 0, 0, h } /* a line of its own in the help */
#define OPT_END                  { 0 }

/* What every tool takes. */
struct common_opts {
	const char *device;     /* "auto", "cpu", "cuda", "cuda:N" */
	const char *isa;        /* NULL: best of the machine */
	const char *memory;     /* "8GiB" as written; 0 in memory_bytes: not given */
	long memory_bytes;
	long threads;           /* 0: all */
	bool quiet;
	long verbose;
	const char *recipe;     /* -c */
	struct opt_list overrides;      /* key=value words in order */
	struct opt_list unset;          /* --unset KEY */
};
extern struct common_opts common;
extern const struct opt common_table[]; /* parsed beside every tool's own table */

struct tool {
	const char *name;       /* the program, as in `cairn NAME` */
	const char *purpose;    /* one line; the NAME line of the manual page */
	const char *synopsis;   /* without the program's name */
	const struct opt *table;
	bool takes_recipe;      /* -c and key=value are allowed */
};

/* Parses argv; exits on --help, --version and usage errors.  Returns the number of operands, which
 * are in args[0..] (borrowed from argv); more than `most` is a usage error, fewer than `least` too. */
int opt_parse(const struct tool *t, int argc, char **argv, const char **args, int least, int most);

void opt_help(const struct tool *t);    /* to stdout, at most 80 columns */
void opt_version(const struct tool *t); /* likewise */
/* Whether the tool has this option of a table: -c and --unset need takes_recipe. */
bool opt_applies(const struct tool *t, const struct opt *o);

/* "512MiB", "8G" (8 * 2^30), "5GB" (5 * 10^9), "1.5e9", "4096" -> bytes; -1 on nonsense. */
long parse_bytes(const char *s);
/* The command line as a shell would read it back, for the history (secrets: none of our options
 * carries one).  The caller frees. */
char *opt_command_line(int argc, char **argv);
/* The name in NULL-terminated `names` nearest to `word` by edit distance, or NULL when none is near. */
const char *nearest(const char *word, const char *const *names);
const char *cairn_version(void);        /* "0.1.0" */
/* Directory of this binary, for finding siblings; borrowed. */
const char *program_dir(void);

#endif
