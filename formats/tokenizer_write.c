#include "formats/tokenizer_json.h"

#include <string.h>

static void put_text(struct json_out *o, const char *key, struct text x)
{
	json_key(o, key);
	json_put_strn(o, x.s, x.n);
}

static void put_type(struct json_out *o, const char *type)
{
	json_begin(o, '{');
	json_add_str(o, "type", type);
}

static void put_pattern(struct json_out *o, const struct step *s)
{
	json_key(o, "pattern");
	json_begin(o, '{');
	put_text(o, s->regex ? "Regex" : "String", s->a);
	json_end(o);
}

static void put_metaspace(struct json_out *o, const struct step *s)
{
	put_type(o, "Metaspace");
	put_text(o, "replacement", s->a);
	json_add_str(o, "prepend_scheme", scheme_name[s->scheme]);
	json_add_bool(o, "split", s->individual);
}

static void put_step(struct json_out *o, const struct step *s)
{
	switch (s->kind) {
	case NORM_NFC:
		put_type(o, "NFC");
		break;
	case NORM_PREPEND:
		put_type(o, "Prepend");
		put_text(o, "prepend", s->a);
		break;
	case NORM_REPLACE:
	case DEC_REPLACE:
		put_type(o, "Replace");
		put_pattern(o, s);
		put_text(o, "content", s->b);
		break;
	case PRE_SPLIT:
		put_type(o, "Split");
		put_pattern(o, s);
		json_add_str(o, "behavior", behaviour_name[s->behaviour]);
		json_add_bool(o, "invert", s->invert);
		break;
	case PRE_DIGITS:
		put_type(o, "Digits");
		json_add_bool(o, "individual_digits", s->individual);
		break;
	case PRE_BYTE_LEVEL:
	case DEC_BYTE_LEVEL:
		put_type(o, "ByteLevel");
		json_add_bool(o, "add_prefix_space", s->prefix_space);
		json_add_bool(o, "trim_offsets", false);
		json_add_bool(o, "use_regex", s->use_regex);
		break;
	case PRE_METASPACE:
	case DEC_METASPACE:
		put_metaspace(o, s);
		break;
	case DEC_BYTE_FALLBACK:
		put_type(o, "ByteFallback");
		break;
	case DEC_FUSE:
		put_type(o, "Fuse");
		break;
	case DEC_STRIP:
		put_type(o, "Strip");
		put_text(o, "content", s->a);
		json_add_int(o, "start", s->start);
		json_add_int(o, "stop", s->stop);
		break;
	default:
		bug("step %d", s->kind);
	}
	json_end(o);
}

static void put_steps(struct json_out *o, const char *key, const char *list, const struct steps *s)
{
	json_key(o, key);
	if (!s->n) {
		json_put_null(o);
		return;
	}
	if (s->n == 1) {
		put_step(o, &s->v[0]);
		return;
	}
	put_type(o, "Sequence");
	json_key(o, list);
	json_begin(o, '[');
	for (int i = 0; i < s->n; i++)
		put_step(o, &s->v[i]);
	json_end(o);
	json_end(o);
}

static void put_added(struct json_out *o, const struct tokenizer *t)
{
	json_key(o, "added_tokens");
	json_begin(o, '[');
	for (long i = 0; i < t->nadded; i++) {
		const struct added_token *a = &t->added[i];

		json_begin(o, '{');
		json_add_int(o, "id", a->id);
		put_text(o, "content", a->content);
		json_add_bool(o, "single_word", a->single_word);
		json_add_bool(o, "lstrip", a->lstrip);
		json_add_bool(o, "rstrip", a->rstrip);
		json_add_bool(o, "normalized", a->normalized);
		json_add_bool(o, "special", a->special);
		json_end(o);
	}
	json_end(o);
}

/* -- post-processor -- */

static void put_special(struct json_out *o, const char *name, int type_id)
{
	json_begin(o, '{');
	json_key(o, "SpecialToken");
	json_begin(o, '{');
	json_add_str(o, "id", name);
	json_add_int(o, "type_id", type_id);
	json_end(o);
	json_end(o);
}

static void put_sequence(struct json_out *o, const char *name, int type_id)
{
	json_begin(o, '{');
	json_key(o, "Sequence");
	json_begin(o, '{');
	json_add_str(o, "id", name);
	json_add_int(o, "type_id", type_id);
	json_end(o);
	json_end(o);
}

static void put_template(struct json_out *o, const struct tokenizer *t, const char *key, bool two)
{
	json_key(o, key);
	json_begin(o, '[');
	for (int k = 0; k <= two; k++) {
		for (long i = 0; i < t->nbefore; i++)
			put_special(o, tokenizer_spelling(t, t->before[i]), k);
		put_sequence(o, k ? "B" : "A", k);
		for (long i = 0; i < t->nafter; i++)
			put_special(o, tokenizer_spelling(t, t->after[i]), k);
	}
	json_end(o);
}

static bool seen_before(const struct tokenizer *t, long k, int id)
{
	for (long i = 0; i < k; i++)
		if ((i < t->nbefore ? t->before[i] : t->after[i - t->nbefore]) == id)
			return true;
	return false;
}

static void put_post(struct json_out *o, const struct tokenizer *t)
{
	json_key(o, "post_processor");
	if (!t->nbefore && !t->nafter) {
		json_put_null(o);
		return;
	}
	put_type(o, "TemplateProcessing");
	put_template(o, t, "single", false);
	put_template(o, t, "pair", true);
	json_key(o, "special_tokens");
	json_begin(o, '{');
	for (long i = 0; i < t->nbefore + t->nafter; i++) {
		int id = i < t->nbefore ? t->before[i] : t->after[i - t->nbefore];
		const char *name = tokenizer_spelling(t, id);

		if (seen_before(t, i, id))
			continue;
		json_key(o, name);
		json_begin(o, '{');
		json_add_str(o, "id", name);
		json_key(o, "ids");
		json_begin(o, '[');
		json_put_int(o, id);
		json_end(o);
		json_key(o, "tokens");
		json_begin(o, '[');
		json_put_str(o, name);
		json_end(o);
		json_end(o);
	}
	json_end(o);
	json_end(o);
}

/* -- model -- */

static int put_vocab(struct json_out *o, const struct tokenizer *t, struct err *e)
{
	json_key(o, "vocab");
	json_begin(o, '{');
	for (long id = 0; id < t->size; id++) {
		struct text x = vocab_text(t, id);

		if (!(t->kind[id] & KIND_VOCAB))
			continue;
		if (memchr(x.s, 0, x.n))
			return err_set(
				e, EX_UNAVAILABLE,
				"token %ld has a NUL in its spelling; writing it is not built", id);
		json_add_int(o, x.s, id);
	}
	json_end(o);
	return 0;
}

static void put_merges(struct json_out *o, const struct tokenizer *t)
{
	json_key(o, "merges");
	json_begin(o, '[');
	for (long i = 0; i < t->nmerge; i++) {
		struct text a = vocab_text(t, t->merge[i].a), b = vocab_text(t, t->merge[i].b);

		json_begin(o, '[');
		json_put_strn(o, a.s, a.n);
		json_put_strn(o, b.s, b.n);
		json_end(o);
	}
	json_end(o);
}

static int put_model(struct json_out *o, const struct tokenizer *t, struct err *e)
{
	json_key(o, "model");
	put_type(o, "BPE");
	json_add_str(o, "dropout", NULL);
	json_add_str(o, "unk_token", t->unk >= 0 ? tokenizer_spelling(t, t->unk) : NULL);
	json_add_str(o, "continuing_subword_prefix", NULL);
	json_add_str(o, "end_of_word_suffix", NULL);
	json_add_bool(o, "fuse_unk", t->fuse_unk);
	json_add_bool(o, "byte_fallback", t->byte_fallback);
	json_add_bool(o, "ignore_merges", t->ignore_merges);
	if (put_vocab(o, t, e))
		return -1;
	put_merges(o, t);
	json_end(o);
	return 0;
}

static void put_config(struct json_out *o, const struct tokenizer *t)
{
	long n;
	const int *eos = tokenizer_eos(t, &n);

	json_begin(o, '{');
	json_add_str(o, "bos_token", tokenizer_spelling(t, t->bos));
	json_add_bool(o, "clean_up_tokenization_spaces", false);
	json_add_str(o, "eos_token", n ? tokenizer_spelling(t, eos[0]) : NULL);
	json_add_str(o, "pad_token", tokenizer_spelling(t, t->pad));
	json_add_str(o, "tokenizer_class", "PreTrainedTokenizerFast");
	json_add_str(o, "unk_token", tokenizer_spelling(t, tokenizer_unk(t)));
	json_end(o);
	str_putc(&o->s, '\n');
}

int tokenizer_write_json(const struct tokenizer *t, struct str *tokenizer_json,
			 struct str *tokenizer_config_json, struct err *e)
{
	struct json_out o = { .indent = 2 }, c = { .indent = 2 };
	int rc;

	json_begin(&o, '{');
	json_add_str(&o, "version", "1.0");
	json_add_str(&o, "truncation", NULL);
	json_add_str(&o, "padding", NULL);
	put_added(&o, t);
	put_steps(&o, "normalizer", "normalizers", &t->norm);
	put_steps(&o, "pre_tokenizer", "pretokenizers", &t->pre);
	put_post(&o, t);
	put_steps(&o, "decoder", "decoders", &t->dec);
	rc = put_model(&o, t, e);
	if (!rc) {
		json_end(&o);
		str_add(tokenizer_json, o.s.s, o.s.len);
		str_putc(tokenizer_json, '\n');
	}
	if (!rc && tokenizer_config_json) {
		put_config(&c, t);
		str_add(tokenizer_config_json, c.s.s, c.s.len);
	}
	json_out_release(&o);
	json_out_release(&c);
	return rc;
}
