#ifndef FORMATS_JINJA_H
#define FORMATS_JINJA_H

/*
 * Values of the template engine, whose face is formats/chat_template.h.  They are small structs
 * that are copied; what they point to lives in the arena of one rendering.  jinja_tree.h is the
 * way from text to tree, jinja_eval.h the way from tree to output, jinja_text.h strings.
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

enum jtype {
	V_UNDEFINED, V_NONE, V_BOOL, V_INT, V_FLOAT, V_BIG, V_STR, V_LIST, V_DICT, V_NAMESPACE,
	V_LOOP, V_MACRO, V_METHOD, V_FUNCTION,
};

/* What Python calls a V_LIST, which decides how it prints and what it can do. */
enum jlist_kind {
	LIST_LIST, LIST_TUPLE, LIST_RANGE, LIST_KEYS, LIST_VALUES, LIST_ITEMS, LIST_GENERATOR,
};

struct jvalue {
	enum jtype type;
	int32_t tag; /* string: of all its bytes where tags is NULL */
	bool markup; /* string: escaped already */
	size_t n;    /* string: bytes */
	union {
		bool b;
		long i;
		double f;
		struct {
			const char *s;
			const int32_t *tags;
		}; /* string; V_BIG, V_UNDEFINED: s is text or name */
		struct jlist *list;
		struct jdict *dict; /* also V_NAMESPACE */
		struct jloop *loop;
		struct jmacro *macro;
		struct jmethod *method;
		int function; /* enum in jinja_call.c */
	};
};

struct jlist {
	struct jvalue *v;
	long n, cap;
	enum jlist_kind kind;
	long start, stop, step; /* range only */
	bool consumed;          /* a generator gives its items once */
};

struct jdict {
	struct jvalue *key, *value; /* in order of insertion */
	long n, cap;
};

/* Arithmetic first. */
enum jop {
	OP_ADD, OP_SUB, OP_MUL, OP_DIV, OP_FLOORDIV, OP_MOD, OP_POW, OP_EQ, OP_NE, OP_LT, OP_LE,
	OP_GT, OP_GE, OP_IN, OP_NOTIN,
};

/* A growing string that remembers tags. */
struct jrun {
	size_t end;
	int32_t tag;
};
struct jbuf {
	struct str s;     /* owned */
	struct jrun *run; /* owned; up to `end`, from the run before */
	long nrun, cap;
};

/* One rendering. */
struct jrender {
	struct arena arena;
	const char *file;
	struct err *e;
	int line; /* of the node in work */
	int depth;
	long steps;
	size_t bytes; /* taken from the arena */
	struct jbuf *out;
	struct jscope *globals;
	const char *date;
};

enum {
	JINJA_NESTING = 200, JINJA_DEPTH = 1000, JINJA_NODES = 200000, JINJA_TEMPLATE = 1 << 20,
	JINJA_STEPS = 5000000, JINJA_OUTPUT = 64 << 20, JINJA_VALUES = 256 << 20,
};

int jfail(struct jrender *r, const char *fmt, ...) PRINTF(2, 3); /* "FILE:LINE: ..."; -1 */
int jstep(struct jrender *r, long n) MUST_CHECK;
/* Work where no error can be returned: counted per thread, 16 to a step, and charged by the next
 * jstep().  False once that is going to fail: then stop, with whatever result. */
bool jwork(size_t n);
void jwork_reset(void);         /* before a rendering */
/* Memory for values; NULL with the error set over the bound. */
void *jalloc(struct jrender *r, size_t n, size_t size);

int jbuf_add(struct jrender *r, struct jbuf *b, const char *s, size_t n, int32_t tag,
	     const int32_t *tags) MUST_CHECK;
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
struct jvalue jv_str(const char *s, size_t n, int32_t tag); /* s is kept */
struct jvalue jv_lit(const char *s);
struct jvalue jv_sub(const struct jvalue *s, size_t at, size_t n); /* bytes of a string */
int jv_list(struct jrender *r, struct jvalue *out, enum jlist_kind kind) MUST_CHECK;
int jv_push(struct jrender *r, const struct jvalue *list, struct jvalue v) MUST_CHECK;
int jv_dict(struct jrender *r, struct jvalue *out) MUST_CHECK;
int jv_put(struct jrender *r, struct jdict *d, struct jvalue key, struct jvalue v) MUST_CHECK;
struct jvalue *jv_find(const struct jdict *d, const struct jvalue *key);
struct jvalue *jv_finds(const struct jdict *d, const char *key);
int jv_from_json(struct jrender *r, struct jvalue *out, const struct json *v, int32_t tag,
		 int depth) MUST_CHECK;

bool jv_true(const struct jvalue *v);
bool jv_number(const struct jvalue *v); /* bool, int, float */
double jv_real(const struct jvalue *v);
bool jv_eq(const struct jvalue *a, const struct jvalue *b);
bool jv_is(const struct jvalue *v, const char *s); /* a string with these bytes */
int jv_cmp(struct jrender *r, const struct jvalue *a, const struct jvalue *b, int *c) MUST_CHECK;
int jv_contains(struct jrender *r, const struct jvalue *box, const struct jvalue *v,
		bool *yes) MUST_CHECK;
/* The items, as a list. */
int jv_iter(struct jrender *r, const struct jvalue *v, struct jvalue *list) MUST_CHECK;
int jv_len(struct jrender *r, const struct jvalue *v, long *n) MUST_CHECK;
const char *jv_type(const struct jvalue *v); /* as Python names it */
/* str(v), repr(v), json.dumps(v); jv_string() is str(v) as a value. */
int jv_print(struct jrender *r, struct jbuf *b, const struct jvalue *v) MUST_CHECK;
int jv_repr(struct jrender *r, struct jbuf *b, const struct jvalue *v, int depth) MUST_CHECK;
int jv_json(struct jrender *r, struct jbuf *b, const struct jvalue *v, const struct jvalue *indent,
	    bool ascii, bool sort, const struct jvalue *separators, int depth) MUST_CHECK;
int jv_string(struct jrender *r, const struct jvalue *v, struct jvalue *out) MUST_CHECK;
int jv_arith(struct jrender *r, enum jop op, const struct jvalue *a, const struct jvalue *b,
	     struct jvalue *out) MUST_CHECK;

#endif
