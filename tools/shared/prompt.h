#ifndef TOOLS_SHARED_PROMPT_H
#define TOOLS_SHARED_PROMPT_H

/* From a rendered conversation to tokens: rollout and supervised learning must agree on every one of them. */

#include "formats/chat_template.h"
#include "formats/tokenizer.h"
#include "libcommon/recipe.h"

/* The variables that templates see: special tokens of t, chat_template_kwargs of r; messages and the rest are the caller's. */
struct chat_render chat_variables(const struct tokenizer *t, const struct recipe *r);

/*
 * BOS in front of a rendered conversation: where the tokenizer itself puts one, data.add_bos is true, and the text does not
 * begin with its spelling.
 */
void encode_bos(struct token_list *ids, const struct tokenizer *t, const struct recipe *r, const char *text, size_t n);
/* Ids of text[from, to); control tokens are not recognised in SPAN_CONTENT spans (of the whole text). */
void encode_rendered(struct token_list *ids, const struct tokenizer *t, const char *text, size_t from, size_t to,
		     const struct chat_span *span, long nspans);

#endif
