#ifndef FORMATS_TOKENIZER_H
#define FORMATS_TOKENIZER_H

/*
 * Tokenizers: text to ids and back, with the ids that the `tokenizers` engine gives for the same
 * tokenizer.json.
 *
 *	text -> split on added tokens -> normaliser -> split on normalised added tokens
 *	     -> pre-tokeniser stages -> byte-pair encoding of each piece -> post-processor
 *
 * A tokenizer comes from tokenizer.json (BPE models: byte-level, and SentencePiece style with
 * byte fallback), from what a GGUF file says, from the packed form in a checkpoint, or is the
 * byte vocabulary.  What a file asks for is done or refused: no pre-tokeniser, normaliser or
 * decoder is ever replaced by another one.  A type that exists elsewhere but is not built here is
 * EX_UNAVAILABLE, anything else that is wrong is EX_DATAERR, and the message names the file.
 *
 * A tokenizer does not change once it is made: all functions on a const one may run in several
 * threads at once.
 */

#include "libcommon/die.h"
#include "libcommon/hash.h"
#include "libcommon/str.h"

#include <stdbool.h>
#include <stddef.h>

struct tokenizer;

struct token_list {
	int *id;                /* owned */
	long n, cap;
};

void token_list_add(struct token_list *l, int id);
void token_list_release(struct token_list *l);

/* -- making one; on success the caller frees *out -- */
/* The config may be NULL or absent; it gives bos, eos, pad and unk, add_bos_token and
 * add_eos_token (an explicit value wins over the post-processor), and added tokens that
 * tokenizer.json lacks. */
int tokenizer_open_json(struct tokenizer **out, const char *tokenizer_json_path,
			const char *tokenizer_config_path, struct err *e) MUST_CHECK;
/* The same from memory; config_text may be NULL.  `file` names the source in messages. */
int tokenizer_from_json_text(struct tokenizer **out, const char *text, size_t n,
			     const char *config_text, size_t config_n, const char *file,
			     struct err *e) MUST_CHECK;

/* What the tokenizer.ggml.* keys of a GGUF file say; everything is borrowed.  Start from
 * TOKENIZER_SOURCE_INIT. */
struct tokenizer_source {
	const char *model;              /* "gpt2" (byte-level BPE) or "llama" (SentencePiece) */
	/* "qwen2", "llama-bpe", "smollm", ...; only for gpt2; unknown names are refused */
	const char *pre;
	long n;                         /* tokens; id = index */
	const char *const *tokens;
	const size_t *token_len;
	/* 1 normal 2 unknown 3 control 4 user-defined 5 unused 6 byte; NULL: all normal */
	const int *token_type;
	const float *scores;            /* only for llama */
	const char *const *merges;      /* "a b"; only for gpt2 */
	const size_t *merge_len;
	long nmerges;
	long bos, eos, eot, unk, pad;   /* ids, or -1 */
	/* 0, 1, or -1: llama 1 0 1; gpt2 0 0 0, BOS with llama-bpe and tekken */
	int add_bos, add_eos, add_space_prefix;
};
#define TOKENIZER_SOURCE_INIT { .bos = -1, .eos = -1, .eot = -1, .unk = -1, .pad = -1, \
				.add_bos = -1, .add_eos = -1, .add_space_prefix = -1 }

int tokenizer_from_source(struct tokenizer **out, const struct tokenizer_source *s,
			  const char *file, struct err *e) MUST_CHECK;

/* The byte vocabulary: ids 0..255 are the bytes, 256 <|bos|>, 257 <|eos|>, 258 <|pad|>.  BOS is
 * put in front. */
int tokenizer_bytes(struct tokenizer **out);

void tokenizer_free(struct tokenizer *t);       /* NULL is fine */

/* -- text to ids -- */
enum {
	/* what the post-processor adds; a BOS that the text begins with is not doubled */
	TOK_SPECIALS = 1,
	/* spellings of added tokens are ordinary text, and no special id comes out */
	TOK_NO_ADDED = 2,
};

/* Bytes [start, end) of a text that somebody else wrote: what a user put into a chat template. */
struct token_span {
	size_t start, end;
};

/* Append the ids of text, which may hold NULs and must be UTF-8 (else EX_DATAERR with the
 * offset).  A pattern that needs more steps than is sane for its text is EX_DATAERR. */
int tokenizer_encode(const struct tokenizer *t, const char *text, size_t n, unsigned flags,
		     struct token_list *out, struct err *e) MUST_CHECK;
/* The same, but added tokens are not recognised where they touch a span; elsewhere they are.  The
 * text is otherwise one string: spans cut no pieces.  Spans ascend and do not overlap. */
int tokenizer_encode_spans(const struct tokenizer *t, const char *text, size_t n,
			   const struct token_span *spans, long nspans, unsigned flags,
			   struct token_list *out, struct err *e) MUST_CHECK;

/* -- ids to text -- */
/* Append the text; always valid UTF-8 (U+FFFD stands for what is not).  Ids the tokenizer lacks
 * give nothing; an id below 0 or another nonsense does too.  Returns 0. */
int tokenizer_decode(const struct tokenizer *t, const int *ids, long n, bool skip_special,
		     struct str *out);

/* Append the bytes of one token in the middle of a text; they may be part of a character. */
void tokenizer_piece(const struct tokenizer *t, int id, struct str *out);

/* Decoding as tokens arrive: every call appends what is complete, never part of a character.
 * Zero-initialise. */
struct token_stream {
	unsigned char held[4];  /* an unfinished character */
	int nheld;
	bool began;
};

void tokenizer_stream(const struct tokenizer *t, struct token_stream *s, int id, bool skip_special,
		      struct str *out);
/* an unfinished character becomes U+FFFD */
void tokenizer_stream_end(struct token_stream *s, struct str *out);

/* -- what it knows -- */
long tokenizer_size(const struct tokenizer *t); /* largest id + 1 */
/* false for holes and beyond the end: never sampled */
bool tokenizer_knows(const struct tokenizer *t, long id);
bool tokenizer_is_special(const struct tokenizer *t, long id);
int tokenizer_bos(const struct tokenizer *t);   /* -1: none */
int tokenizer_pad(const struct tokenizer *t);
int tokenizer_unk(const struct tokenizer *t);
const int *tokenizer_eos(const struct tokenizer *t, long *n); /* eos, and GGUF's eot; may be none */
/* The id of a token spelt as in tokenizer.json (added tokens first), or -1. */
int tokenizer_id(const struct tokenizer *t, const char *spelling);
/* Its spelling there, for templates (bos_token, eos_token, ...), or NULL; NUL-terminated, lives
 * with the tokenizer. */
const char *tokenizer_spelling(const struct tokenizer *t, long id);
bool tokenizer_adds_bos(const struct tokenizer *t); /* does TOK_SPECIALS put BOS in front? */
/* Of everything that decides an id or a text: equal digests, equal tokenizers. */
struct digest tokenizer_digest(const struct tokenizer *t);

/* -- writing -- */
/* Append tokenizer.json and tokenizer_config.json (may be NULL) that give the same ids in
 * tokenizers and transformers. */
int tokenizer_write_json(const struct tokenizer *t, struct str *tokenizer_json,
			 struct str *tokenizer_config_json, struct err *e) MUST_CHECK;

/* The ready form: flat little-endian arrays; unpacking checks every bound and takes a few
 * milliseconds. */
int tokenizer_pack(const struct tokenizer *t, struct str *blob, struct err *e) MUST_CHECK;
int tokenizer_unpack(struct tokenizer **out, const void *blob, size_t n, const char *file,
		     struct err *e) MUST_CHECK;

#endif
