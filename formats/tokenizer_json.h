#ifndef FORMATS_TOKENIZER_JSON_H
#define FORMATS_TOKENIZER_JSON_H

/* The parts of reading tokenizer.json; for formats/tokenizer_json*.c only. */

#include "formats/tokenizer_stages.h"
#include "libcommon/json.h"

/* Messages; all return -1. */
int not_built(const struct json_doc *d, const struct json *at, const char *what, const char *type,
	      struct err *e);
int bad_value(const struct json_doc *d, const struct json *at, const char *what, const char *wanted,
	      struct err *e);
/* A string's copy in the tokenizer's arena. */
int json_text(struct text *out, struct tokenizer *t, const struct json_doc *d, const struct json *v,
	      const char *what, struct err *e) MUST_CHECK;

/* Each takes the member of that name (NULL and null: nothing) and adds its steps. */
int read_normalizer(struct tokenizer *t, const struct json_doc *d, const struct json *v,
		    struct err *e) MUST_CHECK;
int read_pre_tokenizer(struct tokenizer *t, const struct json_doc *d, const struct json *v,
		       struct err *e) MUST_CHECK;
int read_decoder(struct tokenizer *t, const struct json_doc *d, const struct json *v,
		 struct err *e) MUST_CHECK;

/* Names of enum behaviour and enum scheme in tokenizer.json. */
extern const char *const behaviour_name[BEHAVIOURS], *const scheme_name[SCHEMES];

#endif
