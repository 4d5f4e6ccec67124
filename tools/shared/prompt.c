#include "tools/shared/prompt.h"

#include "libcommon/xalloc.h"

#include <stdlib.h>
#include <string.h>

struct chat_render chat_variables(const struct tokenizer *t, const struct recipe *r)
{
	const struct json *kwargs = recipe_value(r, "policy.tokenizer.chat_template_kwargs");
	long n;
	const int *eos = tokenizer_eos(t, &n);

	return (struct chat_render){
		.kwargs = json_is(kwargs, JSON_OBJECT) ? kwargs : NULL,
		.bos_token = tokenizer_spelling(t, tokenizer_bos(t)), .eos_token = n ? tokenizer_spelling(t, eos[0]) : NULL,
		.pad_token = tokenizer_spelling(t, tokenizer_pad(t)), .unk_token = tokenizer_spelling(t, tokenizer_unk(t)),
	};
}

void encode_bos(struct token_list *ids, const struct tokenizer *t, const struct recipe *r, const char *text, size_t n)
{
	const char *bos = tokenizer_spelling(t, tokenizer_bos(t));

	if (!bos || !tokenizer_adds_bos(t) || !recipe_bool(r, "data.add_bos"))
		return;
	if (n < strlen(bos) || memcmp(text, bos, strlen(bos)))
		token_list_add(ids, tokenizer_bos(t));
}

void encode_rendered(struct token_list *ids, const struct tokenizer *t, const char *text, size_t from, size_t to,
		     const struct chat_span *span, long nspans)
{
	struct token_span *own = xmalloc(((size_t)nspans + 1) * sizeof(*own));
	struct err e = ERR_INIT;
	long n = 0;

	for (long i = 0; i < nspans; i++) {
		size_t a = span[i].start > from ? span[i].start : from, b = span[i].end < to ? span[i].end : to;

		if (span[i].kind == SPAN_CONTENT && a < b)
			own[n++] = (struct token_span){ a - from, b - from };
	}
	if (tokenizer_encode_spans(t, text + from, to - from, own, n, 0, ids, &e))
		die_err(&e);
	free(own);
}
