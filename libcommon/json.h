#ifndef LIBCOMMON_JSON_H
#define LIBCOMMON_JSON_H

/*
 * JSON, RFC 8259 to the letter.
 *
 * Reading refuses what others let pass: duplicate keys, invalid UTF-8, lone
 * surrogates, NaN and Infinity, control characters in strings, trailing bytes
 * (JSON white space apart), nesting deeper than 512.  \u0000 is legal, so
 * strings carry their length.  Numbers stay text until somebody asks for a
 * type, so 2^64-1 and 1000000000000000019884624838656 survive.  The order of
 * members is kept.  Everything lives in the document's arena.
 *
 * Errors are EX_DATAERR and read "FILE:LINE: found X, wanted Y".
 */

#include "libcommon/die.h"
#include "libcommon/str.h"
#include "libcommon/xalloc.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { JSON_DEPTH = 512, JSON_OUT_DEPTH = 640 };

enum json_type {
	JSON_NULL, JSON_FALSE, JSON_TRUE, JSON_NUMBER, JSON_STRING, JSON_ARRAY, JSON_OBJECT
};

struct json {
	enum json_type type;
	int line;                       /* of its first byte, from 1 */
	size_t n;                       /* bytes of text, or members */
	union {
		const char *text;       /* number as written, or string decoded; NUL after n */
		struct json *item;      /* array */
		struct json_member *member; /* object */
	};
};

struct json_member {
	const char *key;                /* decoded, NUL after keylen */
	size_t keylen;
	struct json value;
};

struct json_doc {
	struct json root;
	const char *file;               /* for messages; in the arena */
	struct arena arena;
};

/* `text` is not kept.  line0 is the line number of its first line (1, or the
 * record's number in a JSONL file). */
int json_parse(struct json_doc *d, const char *text, size_t n, const char *file, int line0,
	       struct err *e) MUST_CHECK;
/* A whole file of at most `most` bytes (0: 1 GiB).  "-" is standard input. */
int json_read(struct json_doc *d, const char *path, size_t most, struct err *e) MUST_CHECK;
void json_release(struct json_doc *d);

/* The member, or NULL (also when o is no object or NULL).  O(1) for large objects. */
const struct json *json_get(const struct json *o, const char *key);
/* "a.b.c" from o downwards; NULL where the path ends early. */
const struct json *json_path(const struct json *o, const char *path);
bool json_is(const struct json *v, enum json_type t);   /* NULL is nothing */
bool json_is_bool(const struct json *v);
bool json_eq_str(const struct json *v, const char *s);
bool json_equal(const struct json *a, const struct json *b); /* numbers by text, members in any order */

/* Typed reads (a string with \u0000 inside is no C string: json_str refuses it, v->text and v->n have it).  `what` names the value in the message.  All but str_or and the like fail on a
 * NULL v ("FILE: what: missing"), on another type and on a value out of range. */
int json_int(const struct json_doc *d, const struct json *v, const char *what, long *out, struct err *e) MUST_CHECK;
int json_u64(const struct json_doc *d, const struct json *v, const char *what, uint64_t *out, struct err *e) MUST_CHECK;
int json_real(const struct json_doc *d, const struct json *v, const char *what, double *out, struct err *e) MUST_CHECK;
int json_bool(const struct json_doc *d, const struct json *v, const char *what, bool *out, struct err *e) MUST_CHECK;
int json_str(const struct json_doc *d, const struct json *v, const char *what, const char **out, struct err *e) MUST_CHECK;
/* The member `key` of o, or `def` where it is absent or null. */
int json_int_or(const struct json_doc *d, const struct json *o, const char *key, long def, long *out, struct err *e) MUST_CHECK;
int json_real_or(const struct json_doc *d, const struct json *o, const char *key, double def, double *out, struct err *e) MUST_CHECK;
int json_bool_or(const struct json_doc *d, const struct json *o, const char *key, bool def, bool *out, struct err *e) MUST_CHECK;
int json_str_or(const struct json_doc *d, const struct json *o, const char *key, const char *def, const char **out, struct err *e) MUST_CHECK;

/* "a string", "an object", ... for messages. */
const char *json_type_name(const struct json *v);

/*
 * Writing.  Values are appended to a string; commas, colons and (with indent
 * > 0) line breaks come by themselves.
 *
 *	struct json_out o = { .indent = 2 };
 *	json_begin(&o, '{'); json_key(&o, "step"); json_put_int(&o, 3); json_end(&o);
 */
struct json_out {
	struct str s;           /* owned */
	int indent;             /* 0: one line, ", " and ": " as Python's json.dumps; -1: no blanks at all */
	int depth;
	bool comma[JSON_OUT_DEPTH];
	char close[JSON_OUT_DEPTH];
	bool after_key;
};

void json_begin(struct json_out *o, char bracket);      /* '{' or '[' */
void json_end(struct json_out *o);
void json_key(struct json_out *o, const char *key);
void json_put_null(struct json_out *o);
void json_put_bool(struct json_out *o, bool v);
void json_put_int(struct json_out *o, long v);
void json_put_u64(struct json_out *o, uint64_t v);
void json_put_real(struct json_out *o, double v);       /* shortest that reads back as the same double, as Python's repr; NaN, inf: null */
void json_put_float(struct json_out *o, float v);       /* shortest that reads back as the same float */
void json_put_str(struct json_out *o, const char *s);   /* invalid UTF-8 becomes U+FFFD */
void json_put_strn(struct json_out *o, const char *s, size_t n);
void json_put(struct json_out *o, const struct json *v); /* a value that was read */
/* key and value in one go */
void json_add_int(struct json_out *o, const char *key, long v);
void json_add_real(struct json_out *o, const char *key, double v);
void json_add_bool(struct json_out *o, const char *key, bool v);
void json_add_str(struct json_out *o, const char *key, const char *s); /* NULL: null */
void json_out_release(struct json_out *o);

/* Shortest decimal that reads back as v, as Python's repr ("1e-05", "0.1", "3.0"); buf of 32. */
const char *real_repr(char buf[32], double v);
const char *float_repr(char buf[32], float v);

#endif
