#ifndef FORMATS_TOKENIZER_STAGES_H
#define FORMATS_TOKENIZER_STAGES_H

/* The stages of encoding, in their order; for formats/tokenizer*.c only. */

#include "formats/tokenizer_parts.h"
#include "libcommon/utf8.h"

/*
 * -- tokenizer_text.c: characters, and the GPT-2 table of bytes and the characters that spell
 * them --
 */
uint32_t byte_char(unsigned char b);
int char_byte(uint32_t c);                      /* the byte that a character spells, or -1 */
/* first character and its length; 0 when it is none */
size_t utf8_get(uint32_t *c, const char *s, size_t n);
bool utf8_is_valid(const char *s, size_t n, size_t *bad); /* *bad: where it stops being so */
/* each maximal invalid part as U+FFFD */
void utf8_add_lossy(struct str *out, const char *s, size_t n);
bool is_space(uint32_t c);                      /* Unicode White_Space */
/* byte-level spelling to bytes; false: it is none, out as before */
bool spelling_bytes(struct str *out, const char *s, size_t n);
int byte_token(const char *s, size_t n);        /* the byte of "<0xHH>", or -1 */

/* -- tokenizer_regex.c -- */
struct pattern;
struct matcher;         /* what one call needs: match data, stack */
int pattern_new(struct pattern **out, const char *regex, size_t n, const char *file,
		struct err *e) MUST_CHECK;
void pattern_free(struct pattern *p);
void matcher_release(struct matcher *m);
/* First match at or after `from`: 1 with [*start, *end), 0 none, -1 too many steps. */
int pattern_find(const struct pattern *p, struct matcher **m, const char *s, size_t n, size_t from,
		 size_t *start, size_t *end, struct err *e) MUST_CHECK;
extern const char GPT2_PATTERN[], WORD_PATTERN[], WHITESPACE_PATTERN[], PUNCTUATION_PATTERN[];

/* -- tokenizer_added.c -- */
/* *out is NULL when there is nothing to match. */
int trie_new(struct trie **out, const struct tokenizer *t, bool normalized,
	     struct err *e) MUST_CHECK;
void trie_free(struct trie *tr);
/* A place where an added token is; [start, end) takes in the blanks that lstrip and rstrip
 * swallow. */
struct added_match {
	size_t start, end;
	int id;
};
/* All matches in s, leftmost and then longest.  A match touches no byte with mark[i] != 0 (mark
 * may be NULL).  tr may be NULL; the caller frees *v. */
void trie_match(const struct tokenizer *t, const struct trie *tr, struct matcher **m, const char *s,
		const char *mark, size_t n, struct added_match **v, long *nv);

/* -- tokenizer_norm.c -- */
/* Run the normaliser over s into out; mark (or NULL) says per byte whether it was somebody
 * else's, and is carried along. */
int normalize(const struct tokenizer *t, struct str *out, struct str *out_mark, const char *s,
	      const char *mark, size_t n, struct err *e) MUST_CHECK;
void nfc(struct str *out, struct str *out_mark, const char *s, const char *mark, size_t n);

/* -- tokenizer_pre.c -- */
struct piece {
	size_t start, end;
	bool first;             /* begins where the whole text begins */
};
struct pieces {
	struct str s;           /* what the pieces are ranges of */
	struct piece *v;
	long n, cap;
};
/* Split s into words for the model. */
int pretokenize(const struct tokenizer *t, struct pieces *out, struct matcher **m, const char *s,
		size_t n, bool first, struct err *e) MUST_CHECK;
void pieces_release(struct pieces *p);

/* -- tokenizer_bpe.c -- */
struct word_cache;
struct bpe {                    /* the room for one call; zero-initialise */
	struct symbol *sym;
	long symcap;
	struct candidate *heap;
	long heapn, heapcap;
	struct str spelt;
	struct word_cache *cache;
	bool no_special;        /* never produce a special id */
};
void bpe_release(struct bpe *b);
void bpe_use_cache(struct bpe *b, size_t text_bytes);
void bpe_word(const struct tokenizer *t, struct bpe *b, struct token_list *out, const char *s,
	      size_t n);

#endif
