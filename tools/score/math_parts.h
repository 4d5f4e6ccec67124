#ifndef TOOLS_SCORE_MATH_PARTS_H
#define TOOLS_SCORE_MATH_PARTS_H

/*
 * The chapters of the math reward, in the order in which an answer passes them:
 *
 *	math_extract.c   response -> the stretch of text that is its answer
 *	math_box.c       the boxes among them
 *	math_normal.c    text -> one plain spelling of LaTeX
 *	math_parse.c     spelling -> tree of nodes
 *	math_list.c      ... of several numbers, with units and names
 *	math_value.c     tree -> value: exact rational, closed form, tuple, set, interval, union
 *	math_compare.c   value, value -> equal or not
 *
 * What exceeds a bound below is not parsed and is compared as text; nothing takes more than linear time in the response and
 * bounded time in the answer.
 */

#include "libcommon/str.h"
#include "libcommon/xalloc.h"

#include <gmp.h>
#include <stdbool.h>

enum {
	MATH_TAIL = 16 << 10,   /* bytes at the end of a response that are searched for unmarked answers */
	MATH_ANSWER = 4096,     /* bytes of an answer that is parsed */
	MATH_DEPTH = 64,        /* nesting */
	MATH_NODES = 2000,      /* of one tree */
	MATH_LIST = 256,        /* elements of one list */
	MATH_BITS = 4096        /* of a numerator or denominator */
};

enum math_mode {
	MATH_AUTO, MATH_BOXED, MATH_HASH, MATH_ANSWER_LINE, MATH_LAST_NUMBER, MATH_GSM8K_STRICT, MATH_CHOICE, MATH_MODES
};

struct math_options {
	enum math_mode mode;
	bool percent_lenient, single_answer, allow_bare_number, words, strict_think;
};

struct math_piece { const char *s; size_t n; };

/* -- tree ----------------------------------------------------------------------------------------------- */

enum math_kind {
	MATH_NUM, MATH_PI, MATH_E, MATH_I, MATH_INF,                    /* NUM: its digits in s */
	MATH_NEG, MATH_ADD, MATH_SUB, MATH_MUL, MATH_DIV, MATH_POW,
	MATH_PM, MATH_MP,                                               /* a may be NULL: +-b */
	MATH_ROOT,                                                      /* a; b: the degree, or NULL: 2 */
	MATH_FACT, MATH_BINOM, MATH_ABS, MATH_FLOOR, MATH_CEIL,
	MATH_FUNC,                                                      /* func of a; b: base of log, or NULL */
	MATH_PERCENT, MATH_DEGREE,
	MATH_UNIT,                                                      /* a with the unit s */
	MATH_NAMED,                                                     /* s = a */
	MATH_CHAIN,                                                     /* a = b, both numbers */
	MATH_TEXT,
	MATH_LIST_OF, MATH_TUPLE, MATH_SET, MATH_INTERVAL, MATH_UNION   /* kid[]; INTERVAL: two, and open[] */
};

enum math_func {
	FUNC_SIN, FUNC_COS, FUNC_TAN, FUNC_COT, FUNC_SEC, FUNC_CSC, FUNC_ARCSIN, FUNC_ARCCOS, FUNC_ARCTAN,
	FUNC_SINH, FUNC_COSH, FUNC_TANH, FUNC_LN, FUNC_LOG, FUNC_LG, FUNC_EXP
};

struct math_node {
	enum math_kind kind;
	enum math_func func;
	bool open[2];
	const char *s;                  /* NUL-terminated */
	struct math_node *a, *b;
	struct math_node **kid;
	int kids;
};

/* -- values --------------------------------------------------------------------------------------------- */

enum math_type { VALUE_NUMBER, VALUE_INF, VALUE_TEXT, VALUE_LIST, VALUE_TUPLE, VALUE_SET, VALUE_INTERVAL, VALUE_UNION };

struct math_value {
	enum math_type type;
	bool exact;             /* q holds it; re and im always do, rounded */
	bool decimal;           /* a decimal fraction took part: to be compared to six digits */
	bool percent;           /* value is already divided by 100 */
	bool open[2];           /* INTERVAL */
	int sign;               /* INF: +1, -1 */
	mpq_t q;
	long double re, im;
	const char *text;       /* TEXT: its key; else the unit, or NULL */
	const char *name;       /* x of x = 3, or NULL */
	struct math_value **kid;
	int kids;
	struct math_value *next;        /* all values of one work */
};

enum math_trouble { MATH_FINE, MATH_UNPARSED, MATH_TOO_LARGE, MATH_UNDEFINED };

/* Memory of one comparison, and where it went wrong. */
struct math_work {
	struct arena arena;
	const struct math_options *options;
	struct math_value *values;      /* those that own a q */
	long nodes;                     /* of the tree in hand */
	enum math_trouble trouble;
};

/* One side of a comparison. */
struct math_answer {
	struct math_piece raw;
	const char *plain;              /* normalised */
	const char *key;                /* for comparison as text */
	struct math_value *value;       /* NULL: text */
	enum math_trouble trouble;      /* why it is text */
	bool grouped;                   /* a comma was taken for a mark of thousands */
};

/* -- functions ------------------------------------------------------------------------------------------ */

/* False: none; *how then says why.  Else *found lies in s (which is not changed) and *how names the marker. */
bool math_extract(struct math_piece *found, const char **how, struct math_work *w, const char *s, size_t n);
/* The same by the last box alone.  1: found; 0: there is no box; -1: no answer, whatever else there is. */
int math_by_box(struct math_piece *found, const char **how, struct math_work *w, struct math_piece p);
struct math_piece math_trim(struct math_piece p);
size_t math_starts(struct math_piece p, const char *s);   /* the length of s, or 0 */
struct math_piece math_from(struct math_piece p, size_t at);     /* p without its first bytes */
/* The contents of the last closed \boxed or \fbox: 1; none at all: 0; only open ones: -1. */
int math_last_box(struct math_piece *found, const char *s, size_t n);

/* In w's arena.  groups: whether 1,234 is a number; *grouped: whether one was read so. */
const char *math_plain(struct math_work *w, struct math_piece p, bool groups, bool *grouped);
const char *math_key(struct math_work *w, const char *plain, size_t n);
/* A to J where the whole is such a letter, in brackets or not; prefix: also "(B) 12", "B: text".  Else 0. */
int math_letter(const char *plain, bool prefix);

/* NULL: not parsed (w->trouble). */
struct math_node *math_parse(struct math_work *w, const char *plain);
/* NULL: no value (w->trouble). */
struct math_value *math_evaluate(struct math_work *w, struct math_node *n);

/* Both numbers, and equal. */
bool math_same_number(const struct math_value *gold, const struct math_value *found);

/* All of the above. */
void math_read(struct math_answer *a, struct math_work *w, struct math_piece raw, bool groups);
bool math_equal(const struct math_answer *gold, const struct math_answer *found, const struct math_options *o);
void math_work_release(struct math_work *w);

#endif
