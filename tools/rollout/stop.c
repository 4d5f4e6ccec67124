#include "tools/rollout/stop.h"

#include <stdlib.h>
#include <string.h>

bool stop_is_id(const struct stops *s, int id)
{
	for (long i = 0; i < s->ids; i++)
		if (s->id[i] == id)
			return true;
	return false;
}

bool stop_text_add(struct stop_text *x, size_t *cut, const struct stops *s, int id)
{
	size_t had = x->text.len, best = SIZE_MAX;

	if (!s->strings)
		return false;
	tokenizer_stream(s->t, &x->stream, id, false, &x->text);
	for (long i = 0; i < s->strings && x->text.len > had; i++) {
		size_t n = strlen(s->string[i]), from = had >= n ? had - n + 1 : 0;
		const char *at = memmem(x->text.s + from, x->text.len - from, s->string[i], n);

		if (at && (size_t)(at - x->text.s) < best)
			best = (size_t)(at - x->text.s);
	}
	*cut = best;
	return best != SIZE_MAX;
}

void stop_text_release(struct stop_text *x)
{
	str_release(&x->text);
}

/* The cut counts bytes with control tokens spelt out: both texts are made side by side until it is reached. */
void response_text(struct str *out, const struct tokenizer *t, const int *ids, long n, long cut)
{
	struct token_stream whole = { 0 }, plain = { 0 };
	struct str spelt = { 0 };
	size_t start = out->len;

	for (long i = 0; i < n; i++) {
		size_t before = out->len, reached = spelt.len;

		tokenizer_stream(t, &plain, ids[i], true, out);
		if (cut < 0)
			continue;
		tokenizer_stream(t, &whole, ids[i], false, &spelt);
		if ((size_t)cut < spelt.len) {
			size_t keep = before + ((size_t)cut - reached);

			str_cut(out, keep < out->len ? keep : out->len);
			break;
		}
	}
	if (cut < 0)
		tokenizer_stream_end(&plain, out);
	if (out->len == start)
		str_add(out, "", 0);
	str_release(&spelt);
}
