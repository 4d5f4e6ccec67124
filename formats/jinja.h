#ifndef FORMATS_JINJA_H
#define FORMATS_JINJA_H

/*
 * Inside of the template engine (formats/chat_template.h is its face): text -> tokens ->
 * tree -> output.  Everything of a template lives in its arena, everything of one rendering
 * in another, and values are small structs that are copied.
 *
 * Filters: abs attr capitalize count default d dictsort e escape first float format indent int
 * items join last length list lower map max min reject rejectattr replace reverse round safe
 * select selectattr sort string sum title tojson trim unique upper wordcount.
 * Tests: boolean callable defined divisibleby endswith eq equalto == escaped even false filter
 * float ge >= gt > in integer iterable le <= lower lt < mapping ne != none number odd sameas
 * sequence startswith string test true undefined upper.
 *
 * Every string carries where its bytes came from: one tag for all of it, or one per byte.
 */

#include "libcommon/die.h"
#include "libcommon/json.h"
#include "libcommon/str.h"
#include "libcommon/xalloc.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Tags: 0 the template's own text, 1 tools, i + 2 message i; and a bit for {% generation %}. */
enum { TAG_TEMPLATE = 0, TAG_TOOLS = 1, TAG_MESSAGE = 2, TAG_GENERATION = 1 << 30 };

/* -- tree ------------------------------------------------------------------------------------ */
enum jnode_type {
	/* statements */
	J_TEXT, J_PRINT, J_IF, J_FOR, J_SET, J_SETBLOCK, J_MACRO, J_CALL, J_FILTERBLOCK, J_WITH,
	J_BREAK, J_CONTINUE, J_GENERATION,
	/* expressions */
	J_CONST, J_NAME, J_LIST, J_TUPLE, J_DICT, J_GETATTR, J_GETITEM, J_SLICE, J_INVOKE, J_FILTER,
	J_TEST, J_COND, J_NOT, J_AND, J_OR, J_NEG, J_POS, J_BINARY, J_CONCAT, J_COMPARE,
};

enum jop { OP_ADD, OP_SUB, OP_MUL, OP_DIV, OP_FLOORDIV, OP_MOD, OP_POW, OP_EQ, OP_NE, OP_LT, OP_LE, OP_GT, OP_GE, OP_IN, OP_NOTIN };

enum jtype { V_UNDEFINED, V_NONE, V_BOOL, V_INT, V_FLOAT, V_BIG, V_STR, V_LIST, V_DICT, V_NAMESPACE, V_LOOP, V_MACRO, V_METHOD, V_FUNCTION };

/* What Python calls a V_LIST, which decides how it prints and what it can do. */
enum jlist_kind { LIST_LIST, LIST_TUPLE, LIST_RANGE, LIST_KEYS, LIST_VALUES, LIST_ITEMS, LIST_GENERATOR };

struct jvalue {
	enum jtype type;
	int32_t tag;                    /* string: of all its bytes where tags is NULL */
	bool markup;                    /* string: escaped already */
	size_t n;                       /* string: bytes */
	union {
		bool b;
		long i;
		double f;
		struct { const char *s; const int32_t *tags; }; /* string; V_BIG, V_UNDEFINED: s is text or name */
		struct jlist *list;
		struct jdict *dict;     /* also V_NAMESPACE */
		struct jloop *loop;
		struct jmacro *macro;
		struct jmethod *method;
		int function;           /* enum in jinja_call.c */
	};
};

struct jlist {
	struct jvalue *v;
	long n, cap;
	enum jlist_kind kind;
	long start, stop, step;         /* range only */
	bool consumed;                  /* a generator gives its items once */
};

struct jdict {
	struct jvalue *key, *value;     /* in order of insertion */
	long n, cap;
};

struct jnode {
	enum jnode_type type;
	enum jop op;
	int line;
	bool flag;                      /* for: recursive; test: negated */
	struct jnode *a, *b, *c;        /* see jinja_parse.c for each type */
	struct jnode **list;            /* body, items, arguments */
	long n;
	const char **key;               /* names: keywords of arguments (NULL: by place), macro parameters */
	struct jnode **list2;           /* else body; defaults */
	long n2;
	const char *name;
	struct jvalue value;            /* constant or text */
};

/* -- lexer ----------------------------------------------------------------------------------- */
enum jtok_type { T_TEXT, T_VAR_BEGIN, T_VAR_END, T_BLOCK_BEGIN, T_BLOCK_END, T_NAME, T_STRING, T_INT, T_FLOAT, T_OP, T_EOF };

struct jtok {
	enum jtok_type type;
	int line;
	const char *s;                  /* text, name, string decoded, operator; NUL after n */
	size_t n;
	long i;
	double f;
};

struct jtokens { struct jtok *t; long n, cap; };       /* t is malloced */

int jinja_lex(struct jtokens *out, struct arena *a, const char *text, size_t n, const char *file, struct err *e) MUST_CHECK;
/* A body of statements, as a J_WITH without bindings. */
int jinja_parse(struct jnode **root, struct arena *a, const struct jtokens *t, const char *file, struct err *e) MUST_CHECK;

/* -- values (jinja_value.c) -------------------------------------------------------------------- */
/* A growing string that remembers tags. */
struct jrun { size_t end; int32_t tag; };
struct jbuf {
	struct str s;                   /* owned */
	struct jrun *run;               /* owned; up to `end`, from the run before */
	long nrun, cap;
};

/* One rendering. */
struct jrender {
	struct arena arena;
	const char *file;
	struct err *e;
	int line;                       /* of the node in work */
	int depth;
	long steps;
	size_t bytes;                   /* taken from the arena */
	struct jbuf *out;
	struct jscope *globals;
	const char *date;
};

enum { JINJA_NESTING = 200, JINJA_DEPTH = 1000, JINJA_NODES = 200000, JINJA_TEMPLATE = 1 << 20, JINJA_STEPS = 5000000,
	JINJA_OUTPUT = 64 << 20, JINJA_VALUES = 256 << 20 };

int jfail(struct jrender *r, const char *fmt, ...) PRINTF(2, 3);        /* "FILE:LINE: ..."; -1 */
int jstep(struct jrender *r, long n) MUST_CHECK;
/* Memory for values; NULL with the error set over the bound. */
void *jalloc(struct jrender *r, size_t n, size_t size);

int jbuf_add(struct jrender *r, struct jbuf *b, const char *s, size_t n, int32_t tag, const int32_t *tags) MUST_CHECK;
int jbuf_addv(struct jrender *r, struct jbuf *b, const struct jvalue *str) MUST_CHECK;
int jbuf_puts(struct jrender *r, struct jbuf *b, const char *s) MUST_CHECK;
/* The buffer as a value; releases the buffer. */
int jbuf_value(struct jrender *r, struct jbuf *b, struct jvalue *out) MUST_CHECK;
void jbuf_release(struct jbuf *b);

struct jvalue jv_undefined(const char *name);
struct jvalue jv_none(void);
struct jvalue jv_bool(bool b);
struct jvalue jv_int(long i);
struct jvalue jv_float(double f);
struct jvalue jv_str(const char *s, size_t n, int32_t tag);     /* s is kept */
struct jvalue jv_lit(const char *s);
struct jvalue jv_sub(const struct jvalue *s, size_t at, size_t n); /* bytes of a string */
int jv_list(struct jrender *r, struct jvalue *out, enum jlist_kind kind) MUST_CHECK;
int jv_push(struct jrender *r, const struct jvalue *list, struct jvalue v) MUST_CHECK;
int jv_dict(struct jrender *r, struct jvalue *out) MUST_CHECK;
int jv_put(struct jrender *r, struct jdict *d, struct jvalue key, struct jvalue v) MUST_CHECK;
struct jvalue *jv_find(const struct jdict *d, const struct jvalue *key);
struct jvalue *jv_finds(const struct jdict *d, const char *key);
int jv_from_json(struct jrender *r, struct jvalue *out, const struct json *v, int32_t tag, int depth) MUST_CHECK;

bool jv_true(const struct jvalue *v);
bool jv_number(const struct jvalue *v);                 /* bool, int, float */
double jv_real(const struct jvalue *v);
bool jv_eq(const struct jvalue *a, const struct jvalue *b);
bool jv_is(const struct jvalue *v, const char *s);      /* a string with these bytes */
int jv_cmp(struct jrender *r, const struct jvalue *a, const struct jvalue *b, int *c) MUST_CHECK;
int jv_contains(struct jrender *r, const struct jvalue *box, const struct jvalue *v, bool *yes) MUST_CHECK;
int jv_iter(struct jrender *r, const struct jvalue *v, struct jvalue *list) MUST_CHECK; /* items; a list */
int jv_len(struct jrender *r, const struct jvalue *v, long *n) MUST_CHECK;
const char *jv_type(const struct jvalue *v);            /* as Python names it */
/* str(v), repr(v), json.dumps(v) */
int jv_print(struct jrender *r, struct jbuf *b, const struct jvalue *v) MUST_CHECK;
int jv_repr(struct jrender *r, struct jbuf *b, const struct jvalue *v, int depth) MUST_CHECK;
int jv_json(struct jrender *r, struct jbuf *b, const struct jvalue *v, const struct jvalue *indent, bool ascii, bool sort, const struct jvalue *separators, int depth) MUST_CHECK;
int jv_string(struct jrender *r, const struct jvalue *v, struct jvalue *out) MUST_CHECK; /* str(v) */
int jv_arith(struct jrender *r, enum jop op, const struct jvalue *a, const struct jvalue *b, struct jvalue *out) MUST_CHECK;

/* -- text (jinja_text.c): code points in UTF-8 ---------------------------------------------------- */
enum jcase { CASE_UPPER, CASE_LOWER, CASE_TITLE, CASE_FILTER_TITLE, CASE_CAPITALIZE };
long utf8_count(const char *s, size_t n);
size_t utf8_offset(const char *s, size_t n, long index); /* bytes before code point `index` */
size_t jinja_utf8_get(const char *s, size_t n, int32_t *c);    /* bytes of the first one; invalid: 1, U+FFFD */
bool uni_space(int32_t c);                               /* as str.isspace */
int jtext_case(struct jrender *r, const struct jvalue *s, enum jcase how, struct jvalue *out) MUST_CHECK;
struct jvalue jtext_strip(const struct jvalue *s, const struct jvalue *chars, bool left, bool right);
int jtext_replace(struct jrender *r, const struct jvalue *s, const struct jvalue *from, const struct jvalue *to, long count, struct jvalue *out) MUST_CHECK;
int jtext_split(struct jrender *r, const struct jvalue *s, const struct jvalue *sep, long max, bool right, struct jvalue *out) MUST_CHECK;
int jtext_escape(struct jrender *r, const struct jvalue *s, struct jvalue *out) MUST_CHECK;
int jtext_indent(struct jrender *r, const struct jvalue *s, const struct jvalue *width, bool first, bool blank, struct jvalue *out) MUST_CHECK;
int jtext_format(struct jrender *r, const struct jvalue *fmt, const struct jvalue *args, struct jvalue *out) MUST_CHECK;
int jtext_reverse(struct jrender *r, const struct jvalue *s, struct jvalue *out) MUST_CHECK;
size_t jtext_break(const char *s, size_t n);             /* bytes of the line break at s, 0: none; as str.splitlines */
bool jtext_class(int32_t c, const char *what);           /* digit, alpha, alnum */
int jtext_date(struct jrender *r, const struct jvalue *fmt, struct jvalue *out) MUST_CHECK; /* strftime of r->date */
bool jtext_all_case(const struct jvalue *s, bool upper);
long jtext_find(const struct jvalue *s, const struct jvalue *what, bool last); /* byte offset or -1 */

/* -- evaluation ---------------------------------------------------------------------------------- */
/* Arguments of a call, evaluated. */
struct jargs {
	struct jvalue *v;
	const char **key;               /* NULL for those given by place, which come first */
	long n;
	struct jvalue caller;           /* of {% call %}; else undefined */
};

struct jscope {
	struct jscope *up;
	struct jdict vars;
	bool kept;                      /* a macro refers to it */
};

struct jmacro {
	const struct jnode *node;
	struct jscope *scope;           /* where it was defined */
};

struct jloop {
	const struct jnode *node;
	struct jscope *scope;           /* around the loop */
	struct jlist *items;
	long index;                     /* from 0 */
	int depth;
	struct jvalue changed;          /* last arguments of loop.changed() */
	bool has_changed;
};

/* self.name, waiting for its call */
struct jmethod {
	struct jvalue self;
	const char *name;
};

/* jinja_eval.c */
int jinja_run(struct jrender *r, const struct jnode *root, struct jscope *s) MUST_CHECK;
int jinja_eval(struct jrender *r, const struct jnode *n, struct jscope *s, struct jvalue *out) MUST_CHECK;
int jinja_macro_call(struct jrender *r, struct jmacro *m, const struct jargs *a, struct jvalue *out) MUST_CHECK;
int jinja_loop_call(struct jrender *r, struct jloop *l, const struct jvalue *items, struct jvalue *out) MUST_CHECK;
int jinja_loop_attr(struct jrender *r, struct jloop *l, const char *name, struct jvalue *out); /* 1: no such attribute */
/* jinja_call.c: attributes, methods, functions */
int jinja_getattr(struct jrender *r, const struct jvalue *o, const char *name, struct jvalue *out) MUST_CHECK;
int jinja_getitem(struct jrender *r, const struct jvalue *o, const struct jvalue *key, struct jvalue *out) MUST_CHECK;
int jinja_slice(struct jrender *r, const struct jvalue *o, const struct jvalue part[3], struct jvalue *out) MUST_CHECK;
int jinja_call(struct jrender *r, const struct jvalue *f, const struct jargs *a, struct jvalue *out) MUST_CHECK;
int jinja_globals(struct jrender *r, struct jscope *s) MUST_CHECK;
/* The argument at place i or with that key, or NULL. */
const struct jvalue *jarg(const struct jargs *a, long i, const char *key);
int jarg_int(struct jrender *r, const struct jargs *a, long i, const char *key, long def, long *out) MUST_CHECK;
/* jinja_filter.c, jinja_test.c */
int jinja_filter(struct jrender *r, const char *name, const struct jvalue *v, const struct jargs *a, struct jvalue *out) MUST_CHECK;
int jinja_test(struct jrender *r, const char *name, const struct jvalue *v, const struct jargs *a, bool *out) MUST_CHECK;
bool jinja_has_filter(const char *name);
bool jinja_has_test(const char *name);

#endif
