#ifndef FORMATS_TOKENIZER_PARTS_H
#define FORMATS_TOKENIZER_PARTS_H

/*
 * The inside of a tokenizer, shared by formats/tokenizer*.c only.
 *
 * A loader fills the description (texts, merges, added tokens, steps), by calling the builder
 * functions below, and then tokenizer_finish() builds what encoding needs: two hash tables, two
 * tries, compiled patterns.  The packed form holds the description only.
 */

#include "formats/tokenizer.h"
#include "libcommon/xalloc.h"

#include <stdint.h>

enum {
	TOK_MAX_HOLES = 1 << 20,        /* ids that a vocabulary may leave out */
	/* bytes of an added token: matching costs up to this per byte of text */
	TOK_MAX_ADDED = 1024,
	TOK_MAX_SPM = 512,              /* bytes of a SentencePiece token */
	TOK_MAX_STEPS = 64,             /* normaliser, pre-tokeniser or decoder steps */
	TOK_MAX_PATTERN = 1 << 16,      /* bytes of a pattern */
};
#define TOK_MAX_TEXT ((size_t)1 << 30)  /* bytes of a text, and of all spellings together */

struct text {
	const char *s;          /* NUL after n bytes */
	size_t n;
};

enum { KIND_VOCAB = 1, KIND_ADDED = 2, KIND_SPECIAL = 4 }; /* bits per id; 0: a hole */

struct added_token {
	struct text content;
	int id;
	bool special, lstrip, rstrip, single_word, normalized;
};

struct merge {
	int a, b, to;           /* rank = index */
};

/* One step of the normaliser, the pre-tokeniser or the decoder; which fields count depends on
 * kind. */
enum step_kind {
	NORM_NFC, NORM_PREPEND, NORM_REPLACE,                   /* prepend a; replace a by b */
	PRE_SPLIT, PRE_DIGITS, PRE_BYTE_LEVEL, PRE_METASPACE,   /* a: pattern, replacement */
	DEC_BYTE_LEVEL, DEC_REPLACE, DEC_BYTE_FALLBACK, DEC_FUSE, DEC_STRIP, DEC_METASPACE,
	STEP_KINDS
};
enum behaviour {
	ISOLATED,
	REMOVED,
	MERGED_WITH_PREVIOUS,
	MERGED_WITH_NEXT,
	CONTIGUOUS,
	BEHAVIOURS
};
enum scheme { SCHEME_ALWAYS, SCHEME_FIRST, SCHEME_NEVER, SCHEMES };

struct step {
	enum step_kind kind;
	enum behaviour behaviour;       /* PRE_SPLIT */
	enum scheme scheme;             /* Metaspace: where to prepend */
	bool regex;                     /* a is a pattern, not a literal */
	bool invert;                    /* PRE_SPLIT */
	bool individual;                /* PRE_DIGITS; PRE_METASPACE: split */
	bool prefix_space;              /* PRE_BYTE_LEVEL */
	bool use_regex;                 /* PRE_BYTE_LEVEL: split by GPT-2's pattern */
	int start, stop;                /* DEC_STRIP: at most so many a's at the ends */
	struct text a, b;
	struct pattern *pattern;        /* compiled by tokenizer_finish() */
};

struct steps {
	struct step *v;         /* in the arena */
	int n;
};

struct trie;

struct tokenizer {
	struct arena arena;
	/* the description */
	long size;
	uint8_t *kind;          /* [size] */
	char *texts;            /* spellings of the model's vocabulary, NUL after each */
	uint32_t *text_at;      /* [size + 1] */
	struct merge *merge;
	long nmerge;
	struct added_token *added; /* ascending ids */
	long nadded;
	struct steps norm, pre, dec;
	bool byte_fallback, fuse_unk, ignore_merges;
	/* the model's unknown token: what unencodable characters become, or -1 */
	int unk;
	int bos, pad, unk_name; /* by name only */
	int *eos;
	long neos;
	int *before, *after;    /* what the post-processor adds */
	long nbefore, nafter;
	/* made by tokenizer_finish() */
	/* of the tables; from the content, so that no file can aim at collisions */
	uint64_t text_seed, pair_seed;
	int *by_text;           /* id + 1 by spelling, open addressing */
	size_t text_mask;
	struct merge_slot { uint64_t key; uint32_t rank; int to; } *by_pair;
	size_t pair_mask;
	/* added tokens that are matched before and after the normaliser */
	struct trie *plain, *normal;
	struct pattern *word;   /* one word character, as single_word means it */
	bool byte_level;        /* the pre-tokeniser ends with ByteLevel */
	int byte_id[256];       /* byte_level: the token of a byte; else of <0xHH>; or -1 */
	bool all_bytes;         /* every byte_id is there */
};

/* -- tokenizer.c -- */
struct tokenizer *tokenizer_new(void);
struct text tok_text(struct tokenizer *t, const char *s, size_t n);     /* a copy in the arena */
/* n = 0 where the model has none */
struct text vocab_text(const struct tokenizer *t, long id);
const struct added_token *added_find(const struct tokenizer *t, long id); /* or NULL */
/* id in the model's vocabulary, or -1 */
int vocab_find(const struct tokenizer *t, const char *s, size_t n);
uint64_t mix64(uint64_t x);
/* Spellings for ids 0..size-1 (NULL: a hole) and their index; -1 when a spelling repeats. */
int vocab_set(struct tokenizer *t, const struct text *by_id, long size, const char *file,
	      struct err *e) MUST_CHECK;
int vocab_index(struct tokenizer *t, const char *file, struct err *e) MUST_CHECK;
/* Merges by ids and by spellings; "a" + "b" must be in the vocabulary. */
void merge_add(struct tokenizer *t, long *cap, int a, int b, int to);
int merge_add_text(struct tokenizer *t, long *cap, struct text a, struct text b, const char *file,
		   struct err *e) MUST_CHECK;
/* Takes n tokens in any order; ids may lie beyond the vocabulary. */
int added_set(struct tokenizer *t, const struct added_token *v, long n, const char *file,
	      struct err *e) MUST_CHECK;
struct step *step_add(struct tokenizer *t, struct steps *s, enum step_kind kind, const char *file,
		      struct err *e);
/* Check and build; to be called once, last. */
int tokenizer_finish(struct tokenizer *t, const char *file, struct err *e) MUST_CHECK;
void tokenizer_pack_into(const struct tokenizer *t, struct str *blob); /* tokenizer_pack.c */

#endif
