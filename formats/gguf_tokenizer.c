#include "formats/gguf.h"

#include "formats/tokenizer.h"

static void spread(const char *const **text, const size_t **len, struct gguf *g,
		   const struct gguf_string *s, size_t n)
{
	const char **t = arena_alloc(&g->arena, (n + 1) * sizeof(*t));
	size_t *l = arena_alloc(&g->arena, (n + 1) * sizeof(*l));

	for (size_t i = 0; i < n; i++) {
		t[i] = s[i].s;
		l[i] = s[i].n;
	}
	*text = t;
	*len = l;
}

/* An array that has one item a token, or is absent. */
static int per_token(const struct gguf *g, const char *key, enum gguf_value type,
		     const void **items, size_t tokens, struct err *e)
{
	size_t n;

	if (gguf_array(g, key, type, items, &n, e))
		return -1;
	if (*items && n != tokens)
		return err_set(e, EX_DATAERR, "%s: %s: %zu items for %zu tokens", g->path, key, n,
			       tokens);
	return 0;
}

static int flag(const struct gguf *g, const char *key, int *out, struct err *e)
{
	bool v = false;

	if (gguf_bool_or(g, key, false, &v, e))
		return -1;
	*out = gguf_find(g, key) ? v : -1;
	return 0;
}

int gguf_tokenizer_source(struct tokenizer_source *s, struct gguf *g, struct err *e)
{
	const void *tokens, *merges, *types, *scores;
	size_t n, nmerges;

	*s = (struct tokenizer_source)TOKENIZER_SOURCE_INIT;
	if (gguf_str(g, "tokenizer.ggml.model", &s->model, e) ||
	    gguf_str_or(g, "tokenizer.ggml.pre", NULL, &s->pre, e) ||
	    gguf_array(g, "tokenizer.ggml.tokens", GGUF_STRING, &tokens, &n, e) ||
	    gguf_array(g, "tokenizer.ggml.merges", GGUF_STRING, &merges, &nmerges, e) ||
	    per_token(g, "tokenizer.ggml.token_type", GGUF_I32, &types, n, e) ||
	    per_token(g, "tokenizer.ggml.scores", GGUF_F32, &scores, n, e))
		return -1;
	if (!n)
		return err_set(e, EX_DATAERR, "%s: tokenizer.ggml.tokens is missing or empty",
			       g->path);
	spread(&s->tokens, &s->token_len, g, tokens, n);
	s->n = (long)n;
	s->token_type = types;
	s->scores = scores;
	if (merges)
		spread(&s->merges, &s->merge_len, g, merges, nmerges);
	s->nmerges = (long)nmerges;
	if (gguf_int_or(g, "tokenizer.ggml.bos_token_id", -1, &s->bos, e) ||
	    gguf_int_or(g, "tokenizer.ggml.eos_token_id", -1, &s->eos, e) ||
	    gguf_int_or(g, "tokenizer.ggml.eot_token_id", -1, &s->eot, e) ||
	    gguf_int_or(g, "tokenizer.ggml.unknown_token_id", -1, &s->unk, e) ||
	    gguf_int_or(g, "tokenizer.ggml.padding_token_id", -1, &s->pad, e))
		return -1;
	if (flag(g, "tokenizer.ggml.add_bos_token", &s->add_bos, e) ||
	    flag(g, "tokenizer.ggml.add_eos_token", &s->add_eos, e))
		return -1;
	return flag(g, "tokenizer.ggml.add_space_prefix", &s->add_space_prefix, e);
}

int gguf_chat_template(const char **text, const struct gguf *g, struct err *e)
{
	return gguf_str_or(g, "tokenizer.chat_template", NULL, text, e);
}
