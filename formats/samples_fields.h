#ifndef FORMATS_SAMPLES_FIELDS_H
#define FORMATS_SAMPLES_FIELDS_H

/*
 * Private to samples*.c: the fields of a sample by name, so that files and JSON lines are made
 * from one list.
 */

#include "formats/samples.h"

#include "libcommon/tensor.h"

/* How a number that every sample has lies in struct sample. */
enum number_kind {
	NUMBER_LONG,
	NUMBER_U64,
	NUMBER_REAL,
	NUMBER_DIGEST,
	NUMBER_HEX,
	NUMBER_SPLIT,
	NUMBER_FINISH,
	NUMBER_BOOL
};

struct number_field {
	const char *name;
	enum number_kind kind;
	size_t at;              /* offset in struct sample */
};

/* One float32 for every token after the prompt. */
struct token_field {
	const char *name;
	size_t at;              /* offset of the float * */
};

struct text_field {
	const char *name;
	size_t at, bytes_at;    /* offsets of the pointer and of its length */
};

enum { NUMBER_FIELDS = 19, TOKEN_FIELDS = 10, TEXT_FIELDS = 4 };
extern const struct number_field number_fields[NUMBER_FIELDS];
extern const struct token_field token_fields[TOKEN_FIELDS];
extern const struct text_field text_fields[TEXT_FIELDS];

static inline void *field_at(struct sample *s, size_t at) { return (char *)s + at; }
static inline const void *field_of(const struct sample *s, size_t at)
{
	return (const char *)s + at;
}

/* What is wrong with one row, or NULL; the words live in buf. */
const char *sample_wrong(char buf[200], const struct samples *set, const struct sample *s);

#endif
