#include "formats/tokenizer_json.h"

#include <string.h>

const char *const behaviour_name[BEHAVIOURS] = { "Isolated", "Removed", "MergedWithPrevious",
						 "MergedWithNext", "Contiguous" };
const char *const scheme_name[SCHEMES] = { "always", "first", "never" };

/* Steps that the engine has and we have not; anything else that we do not know is bad data. */
static const char *const elsewhere[] = { "BertNormalizer",
					 "Strip",
					 "StripAccents",
					 "NFD",
					 "NFKC",
					 "NFKD",
					 "Nmt",
					 "Lowercase",
					 "Precompiled",
					 "ByteLevel",
					 "BertPreTokenizer",
					 "UnicodeScripts",
					 "FixedLength",
					 "RandomChunkSplit",
					 "BPEDecoder",
					 "WordPiece",
					 "CTC",
					 NULL };

static int unknown_step(const struct json_doc *d, const struct json *v, const char *what,
			struct err *e)
{
	const struct json *type = json_get(v, "type");

	if (!json_is(type, JSON_STRING))
		return bad_value(d, v, what, "an object with a type", e);
	for (int i = 0; elsewhere[i]; i++)
		if (json_eq_str(type, elsewhere[i]))
			return not_built(d, type, what, type->text, e);
	return err_set(e, EX_DATAERR, "%s:%d: %s: unknown type \"%.40s\"", d->file, type->line,
		       what, type->text);
}

typedef int (*reader)(struct tokenizer *, const struct json_doc *, const struct json *,
		      struct err *);

static int each(struct tokenizer *t, const struct json_doc *d, const struct json *list,
		const char *what, reader read, struct err *e)
{
	if (!json_is(list, JSON_ARRAY))
		return bad_value(d, list, what, "an array", e);
	for (size_t i = 0; i < list->n; i++)
		if (read(t, d, &list->item[i], e))
			return -1;
	return 0;
}

/* {"String": "..."} or {"Regex": "..."} */
static int read_pattern(struct step *s, struct tokenizer *t, const struct json_doc *d,
			const struct json *v, struct err *e)
{
	const struct json *p = json_get(v, "pattern");
	const struct json *string = json_get(p, "String"), *regex = json_get(p, "Regex");

	if (!string == !regex)
		return bad_value(d, p ? p : v, "pattern", "a String or a Regex", e);
	s->regex = regex != NULL;
	if (json_text(&s->a, t, d, regex ? regex : string, "pattern", e))
		return -1;
	return s->a.n ? 0 : bad_value(d, p, "pattern", "something to match", e);
}

static int read_replace(struct steps *l, enum step_kind kind, struct tokenizer *t,
			const struct json_doc *d, const struct json *v, struct err *e)
{
	struct step *s = step_add(t, l, kind, d->file, e);

	if (!s || read_pattern(s, t, d, v, e))
		return -1;
	if (s->regex)
		return not_built(d, v, "a Replace by", "Regex", e);
	return json_text(&s->b, t, d, json_get(v, "content"), "content", e);
}

/* -- normalizer -- */

int read_normalizer(struct tokenizer *t, const struct json_doc *d, const struct json *v,
		    struct err *e)
{
	const struct json *type = json_get(v, "type");
	struct step *s;

	if (!v || json_is(v, JSON_NULL))
		return 0;
	if (json_eq_str(type, "Sequence"))
		return each(t, d, json_get(v, "normalizers"), "normalizers", read_normalizer, e);
	if (json_eq_str(type, "NFC"))
		return step_add(t, &t->norm, NORM_NFC, d->file, e) ? 0 : -1;
	if (json_eq_str(type, "Replace"))
		return read_replace(&t->norm, NORM_REPLACE, t, d, v, e);
	if (!json_eq_str(type, "Prepend"))
		return unknown_step(d, v, "normalizer", e);
	s = step_add(t, &t->norm, NORM_PREPEND, d->file, e);
	return s ? json_text(&s->a, t, d, json_get(v, "prepend"), "prepend", e) : -1;
}

/* -- pre_tokenizer -- */

static int read_name(int *out, const struct json_doc *d, const struct json *v, const char *what,
		     const char *const *names, int n, struct err *e)
{
	for (*out = 0; *out < n; (*out)++)
		if (json_eq_str(v, names[*out]))
			return 0;
	return err_set(e, EX_DATAERR, "%s:%d: unknown %s \"%.40s\"", d->file, v ? v->line : 1, what,
		       json_is(v, JSON_STRING) ? v->text : json_type_name(v));
}

static int read_split(struct tokenizer *t, const struct json_doc *d, const struct json *v,
		      struct err *e)
{
	struct step *s = step_add(t, &t->pre, PRE_SPLIT, d->file, e);
	int how;

	if (!s || read_pattern(s, t, d, v, e) ||
	    json_bool_or(d, v, "invert", false, &s->invert, e) ||
	    read_name(&how, d, json_get(v, "behavior"), "behavior", behaviour_name, BEHAVIOURS, e))
		return -1;
	s->behaviour = (enum behaviour)how;
	return 0;
}

/* Files before prepend_scheme said add_prefix_space. */
static int read_scheme(struct step *s, const struct json_doc *d, const struct json *v,
		       struct err *e)
{
	const struct json *scheme = json_get(v, "prepend_scheme");
	bool prefix;
	int which;

	if (json_bool_or(d, v, "add_prefix_space", true, &prefix, e))
		return -1;
	which = prefix ? SCHEME_ALWAYS : SCHEME_NEVER;
	if (scheme && read_name(&which, d, scheme, "prepend_scheme", scheme_name, SCHEMES, e))
		return -1;
	s->scheme = (enum scheme)which;
	return 0;
}

static int read_metaspace(struct steps *l, enum step_kind kind, struct tokenizer *t,
			  const struct json_doc *d, const struct json *v, struct err *e)
{
	struct step *s = step_add(t, l, kind, d->file, e);
	uint32_t c;

	if (!s || json_text(&s->a, t, d, json_get(v, "replacement"), "replacement", e) ||
	    read_scheme(s, d, v, e) || json_bool_or(d, v, "split", true, &s->individual, e))
		return -1;
	if (!s->a.n || utf8_get(&c, s->a.s, s->a.n) != s->a.n)
		return bad_value(d, v, "replacement", "one character", e);
	return 0;
}

/* Pre-tokenisers that are a Split by another name. */
static int read_named_split(struct tokenizer *t, const struct json_doc *d, const struct json *v,
			    struct err *e)
{
	const struct json *type = json_get(v, "type"), *how = json_get(v, "behavior");
	struct step *s = step_add(t, &t->pre, PRE_SPLIT, d->file, e);
	int which = ISOLATED;

	if (!s)
		return -1;
	s->behaviour = REMOVED;
	s->regex = true;
	if (json_eq_str(type, "Whitespace")) {
		s->a = tok_text(t, WHITESPACE_PATTERN, strlen(WHITESPACE_PATTERN));
		s->invert = true;
		return 0;
	}
	if (json_eq_str(type, "WhitespaceSplit")) {
		s->a = tok_text(t, "\\s", 2);
		return 0;
	}
	if (json_eq_str(type, "CharDelimiterSplit")) {
		s->regex = false;
		if (json_text(&s->a, t, d, json_get(v, "delimiter"), "delimiter", e))
			return -1;
		return s->a.n ? 0 : bad_value(d, v, "delimiter", "a character", e);
	}
	s->a = tok_text(t, PUNCTUATION_PATTERN, strlen(PUNCTUATION_PATTERN));
	if (how && read_name(&which, d, how, "behavior", behaviour_name, BEHAVIOURS, e))
		return -1;
	s->behaviour = (enum behaviour)which;
	return 0;
}

int read_pre_tokenizer(struct tokenizer *t, const struct json_doc *d, const struct json *v,
		       struct err *e)
{
	const struct json *type = json_get(v, "type");
	struct step *s;

	if (!v || json_is(v, JSON_NULL))
		return 0;
	if (json_eq_str(type, "Sequence"))
		return each(t, d, json_get(v, "pretokenizers"), "pretokenizers", read_pre_tokenizer,
			    e);
	if (json_eq_str(type, "Split"))
		return read_split(t, d, v, e);
	if (json_eq_str(type, "Metaspace"))
		return read_metaspace(&t->pre, PRE_METASPACE, t, d, v, e);
	if (json_eq_str(type, "Whitespace") || json_eq_str(type, "WhitespaceSplit") ||
	    json_eq_str(type, "Punctuation") || json_eq_str(type, "CharDelimiterSplit"))
		return read_named_split(t, d, v, e);
	if (json_eq_str(type, "Digits")) {
		s = step_add(t, &t->pre, PRE_DIGITS, d->file, e);
		return s ? json_bool_or(d, v, "individual_digits", false, &s->individual, e) : -1;
	}
	if (!json_eq_str(type, "ByteLevel"))
		return unknown_step(d, v, "pre_tokenizer", e);
	s = step_add(t, &t->pre, PRE_BYTE_LEVEL, d->file, e);
	if (!s || json_bool_or(d, v, "add_prefix_space", true, &s->prefix_space, e))
		return -1;
	return json_bool_or(d, v, "use_regex", true, &s->use_regex, e);
}

/* -- decoder -- */

static int read_strip(struct tokenizer *t, const struct json_doc *d, const struct json *v,
		      struct err *e)
{
	struct step *s = step_add(t, &t->dec, DEC_STRIP, d->file, e);
	long start, stop;

	if (!s || json_text(&s->a, t, d, json_get(v, "content"), "content", e) ||
	    json_int_or(d, v, "start", 0, &start, e) || json_int_or(d, v, "stop", 0, &stop, e))
		return -1;
	if (start < 0 || stop < 0 || start > INT32_MAX || stop > INT32_MAX)
		return bad_value(d, v, "start, stop", "counts", e);
	s->start = (int)start;
	s->stop = (int)stop;
	return 0;
}

/* Without a decoder tokens are joined by blanks, with an empty list of them by nothing. */
static int read_decoders(struct tokenizer *t, const struct json_doc *d, const struct json *list,
			 struct err *e)
{
	if (json_is(list, JSON_ARRAY) && !list->n)
		return step_add(t, &t->dec, DEC_FUSE, d->file, e) ? 0 : -1;
	return each(t, d, list, "decoders", read_decoder, e);
}

int read_decoder(struct tokenizer *t, const struct json_doc *d, const struct json *v, struct err *e)
{
	const struct json *type = json_get(v, "type");

	if (!v || json_is(v, JSON_NULL))
		return 0;
	if (json_eq_str(type, "Sequence"))
		return read_decoders(t, d, json_get(v, "decoders"), e);
	if (json_eq_str(type, "ByteLevel"))
		return step_add(t, &t->dec, DEC_BYTE_LEVEL, d->file, e) ? 0 : -1;
	if (json_eq_str(type, "ByteFallback"))
		return step_add(t, &t->dec, DEC_BYTE_FALLBACK, d->file, e) ? 0 : -1;
	if (json_eq_str(type, "Fuse"))
		return step_add(t, &t->dec, DEC_FUSE, d->file, e) ? 0 : -1;
	if (json_eq_str(type, "Replace"))
		return read_replace(&t->dec, DEC_REPLACE, t, d, v, e);
	if (json_eq_str(type, "Metaspace"))
		return read_metaspace(&t->dec, DEC_METASPACE, t, d, v, e);
	if (json_eq_str(type, "Strip"))
		return read_strip(t, d, v, e);
	return unknown_step(d, v, "decoder", e);
}
