#include "formats/tokenizer_stages.h"

#include <stdlib.h>
#include <string.h>

#include "formats/tokenizer_json.h"
#include "libcommon/file.h"

enum { JSON_MOST = 1 << 30, ADDED_MOST = 1 << 17, DECODER_MOST = 1 << 14 };

int not_built(const struct json_doc *d, const struct json *at, const char *what, const char *type,
	      struct err *e)
{
	return err_set(e, EX_UNAVAILABLE, "%s:%d: %s %.40s is not built", d->file, at->line, what,
		       type);
}

int bad_value(const struct json_doc *d, const struct json *at, const char *what, const char *wanted,
	      struct err *e)
{
	return err_set(e, EX_DATAERR, "%s:%d: %s: found %s, wanted %s", d->file, at ? at->line : 1,
		       what, at ? json_type_name(at) : "nothing", wanted);
}

int json_text(struct text *out, struct tokenizer *t, const struct json_doc *d, const struct json *v,
	      const char *what, struct err *e)
{
	if (!json_is(v, JSON_STRING))
		return bad_value(d, v, what, "a string", e);
	*out = tok_text(t, v->text, v->n);
	return 0;
}

/* -- model -- */

static int read_vocab(struct tokenizer *t, const struct json_doc *d, const struct json *v,
		      struct err *e)
{
	long size = 0;
	struct text *by_id;
	int rc = 0;

	if (!json_is(v, JSON_OBJECT))
		return bad_value(d, v, "model.vocab", "an object", e);
	by_id = xcalloc(v->n + TOK_MAX_HOLES, sizeof(*by_id));
	for (size_t i = 0; i < v->n && !rc; i++) {
		const struct json_member *m = &v->member[i];
		long id;

		rc = json_int(d, &m->value, "model.vocab", &id, e);
		if (!rc && (id < 0 || id >= (long)v->n + TOK_MAX_HOLES))
			rc = err_set(e, EX_DATAERR, "%s:%d: token \"%.40s\": id %ld, want 0 to %ld",
				     d->file, m->value.line, m->key, id,
				     (long)v->n + TOK_MAX_HOLES - 1);
		if (!rc && by_id[id].s)
			rc = err_set(e, EX_DATAERR,
				     "%s:%d: tokens \"%.40s\" and \"%.40s\" have one id %ld",
				     d->file, m->value.line, by_id[id].s, m->key, id);
		if (rc)
			break;
		by_id[id] = (struct text){ m->key, m->keylen };
		size = id >= size ? id + 1 : size;
	}
	if (!rc)
		rc = vocab_set(t, by_id, size, d->file, e);
	free(by_id);
	return rc;
}

/* "a b", or ["a", "b"] */
static int read_merge(struct text *a, struct text *b, const struct json_doc *d,
		      const struct json *v, struct err *e)
{
	const char *blank;

	if (json_is(v, JSON_ARRAY) && v->n == 2 && json_is(&v->item[0], JSON_STRING) &&
	    json_is(&v->item[1], JSON_STRING)) {
		*a = (struct text){ v->item[0].text, v->item[0].n };
		*b = (struct text){ v->item[1].text, v->item[1].n };
		return 0;
	}
	blank = json_is(v, JSON_STRING) ? memchr(v->text, ' ', v->n) : NULL;
	if (!blank || memchr(blank + 1, ' ', v->n - (size_t)(blank + 1 - v->text)))
		return bad_value(d, v, "model.merges", "\"a b\" or [\"a\", \"b\"]", e);
	*a = (struct text){ v->text, (size_t)(blank - v->text) };
	*b = (struct text){ blank + 1, v->n - a->n - 1 };
	return 0;
}

static int read_merges(struct tokenizer *t, const struct json_doc *d, const struct json *v,
		       struct err *e)
{
	long cap = 0;

	if (!json_is(v, JSON_ARRAY))
		return bad_value(d, v, "model.merges", "an array", e);
	for (size_t i = 0; i < v->n; i++) {
		struct text a, b;

		if (read_merge(&a, &b, d, &v->item[i], e) ||
		    merge_add_text(t, &cap, a, b, d->file, e))
			return -1;
	}
	return 0;
}

static bool empty(const struct json *v)
{
	return !v || json_is(v, JSON_NULL) || (json_is(v, JSON_STRING) && !v->n);
}

static int read_model(struct tokenizer *t, const struct json_doc *d, struct err *e)
{
	const struct json *m = json_get(&d->root, "model");
	const struct json *type = json_get(m, "type"), *dropout = json_get(m, "dropout");
	double p = 0;

	if (!json_is(m, JSON_OBJECT))
		return bad_value(d, m, "model", "an object", e);
	if (type && !json_is(type, JSON_STRING))
		return bad_value(d, type, "model.type", "\"BPE\"", e);
	if (type && !json_eq_str(type, "BPE"))
		return not_built(d, type, "a tokenizer model of type", type->text, e);
	if (dropout && !json_is(dropout, JSON_NULL) &&
	    json_real(d, dropout, "model.dropout", &p, e))
		return -1;
	if (p > 0)
		return not_built(d, dropout, "model.dropout", dropout->text, e);
	if (!empty(json_get(m, "continuing_subword_prefix")))
		return not_built(d, m, "model", "continuing_subword_prefix", e);
	if (!empty(json_get(m, "end_of_word_suffix")))
		return not_built(d, m, "model", "end_of_word_suffix", e);
	if (json_bool_or(d, m, "byte_fallback", false, &t->byte_fallback, e) ||
	    json_bool_or(d, m, "fuse_unk", false, &t->fuse_unk, e) ||
	    json_bool_or(d, m, "ignore_merges", false, &t->ignore_merges, e) ||
	    read_vocab(t, d, json_get(m, "vocab"), e))
		return -1;
	return read_merges(t, d, json_get(m, "merges"), e);
}

/* -- added tokens -- */

struct added_list {
	struct added_token *v;
	long n, cap;
};

static int read_added(struct added_token *a, struct tokenizer *t, const struct json_doc *d,
		      const struct json *v, struct err *e)
{
	memset(a, 0, sizeof(*a));
	if (!json_is(v, JSON_OBJECT))
		return bad_value(d, v, "added token", "an object", e);
	if (json_text(&a->content, t, d, json_get(v, "content"), "added token: content", e) ||
	    json_bool_or(d, v, "special", false, &a->special, e) ||
	    json_bool_or(d, v, "lstrip", false, &a->lstrip, e) ||
	    json_bool_or(d, v, "rstrip", false, &a->rstrip, e) ||
	    json_bool_or(d, v, "single_word", false, &a->single_word, e))
		return -1;
	return json_bool_or(d, v, "normalized", !a->special, &a->normalized, e);
}

static int set_id(struct added_token *a, long id, const struct json_doc *d, const struct json *v,
		  struct err *e)
{
	if (id < 0 || id > 1 << 30)
		return err_set(e, EX_DATAERR, "%s:%d: added token \"%.40s\": id %ld", d->file,
			       v->line, a->content.s, id);
	a->id = (int)id;
	return 0;
}

static int read_added_tokens(struct added_list *l, struct tokenizer *t, const struct json_doc *d,
			     struct err *e)
{
	const struct json *v = json_get(&d->root, "added_tokens");

	if (!v || json_is(v, JSON_NULL))
		return 0;
	if (!json_is(v, JSON_ARRAY))
		return bad_value(d, v, "added_tokens", "an array", e);
	if (v->n > ADDED_MOST)
		return err_set(e, EX_DATAERR, "%s:%d: %zu added_tokens, want at most %d", d->file,
			       v->line, v->n, ADDED_MOST);
	for (size_t i = 0; i < v->n; i++) {
		struct added_token a;
		long id;

		if (read_added(&a, t, d, &v->item[i], e) ||
		    json_int(d, json_get(&v->item[i], "id"), "added token: id", &id, e) ||
		    set_id(&a, id, d, &v->item[i], e))
			return -1;
		GROW(l->v, l->n, l->cap);
		l->v[l->n++] = a;
	}
	return 0;
}

static bool same_text(struct text a, struct text b)
{
	return a.n == b.n && !memcmp(a.s, b.s, a.n);
}

/* Old folders list tokens in tokenizer_config.json that tokenizer.json lacks. */
static int read_added_decoder(struct added_list *l, struct tokenizer *t, const struct json_doc *d,
			      struct err *e)
{
	const struct json *v = json_get(&d->root, "added_tokens_decoder");
	long had = l->n;

	if (!v || json_is(v, JSON_NULL))
		return 0;
	if (!json_is(v, JSON_OBJECT))
		return bad_value(d, v, "added_tokens_decoder", "an object", e);
	if (v->n > DECODER_MOST)
		return err_set(e, EX_DATAERR,
			       "%s:%d: added_tokens_decoder: %zu tokens, want at most %d", d->file,
			       v->line, v->n, DECODER_MOST);
	for (size_t i = 0; i < v->n; i++) {
		const struct json_member *m = &v->member[i];
		struct json key = {
			.type = JSON_NUMBER, .line = m->value.line, .n = m->keylen, .text = m->key
		};
		struct added_token a;
		bool there = false;
		long id;

		if (json_int(d, &key, "added_tokens_decoder: id", &id, e) ||
		    read_added(&a, t, d, &m->value, e) || set_id(&a, id, d, &m->value, e))
			return -1;
		for (long j = 0; j < had && !there; j++)
			there = l->v[j].id == a.id || same_text(l->v[j].content, a.content);
		if (there)
			continue;
		GROW(l->v, l->n, l->cap);
		l->v[l->n++] = a;
	}
	return 0;
}

/* -- post-processor -- */

static int add_template_ids(const struct json_doc *d, const struct json *post,
			    const struct json *name, int **ids, long *n, struct err *e)
{
	const struct json *entry = json_is(name, JSON_STRING) ?
					   json_get(json_get(post, "special_tokens"), name->text) :
					   NULL;
	const struct json *list = json_get(entry, "ids");

	if (!json_is(list, JSON_ARRAY))
		return bad_value(d, list ? list : name,
				 "TemplateProcessing: ids of a special token", "an array", e);
	*ids = xrealloc_array(*ids, (size_t)*n + list->n, sizeof(**ids));
	for (size_t i = 0; i < list->n; i++) {
		long id;

		if (json_int(d, &list->item[i], "TemplateProcessing: id", &id, e))
			return -1;
		if (id < 0 || id > INT32_MAX)
			return bad_value(d, &list->item[i], "TemplateProcessing: id", "an id", e);
		(*ids)[(*n)++] = (int)id;
	}
	return 0;
}

static int read_template(struct tokenizer *t, const struct json_doc *d, const struct json *post,
			 struct err *e)
{
	const struct json *single = json_get(post, "single");
	int sequences = 0;

	if (!json_is(single, JSON_ARRAY))
		return bad_value(d, single ? single : post, "TemplateProcessing: single",
				 "an array", e);
	if (t->before || t->after)
		return not_built(d, post, "a second", "TemplateProcessing", e);
	for (size_t i = 0; i < single->n; i++) {
		const struct json *special = json_path(&single->item[i], "SpecialToken.id");

		if (json_eq_str(json_path(&single->item[i], "Sequence.id"), "A"))
			sequences++;
		else if (!special)
			return bad_value(d, &single->item[i], "TemplateProcessing: single",
					 "Sequence A or a SpecialToken", e);
		else if (sequences ? add_template_ids(d, post, special, &t->after, &t->nafter, e) :
				     add_template_ids(d, post, special, &t->before, &t->nbefore, e))
			return -1;
	}
	if (sequences != 1)
		return bad_value(d, single, "TemplateProcessing: single", "the sequence A once", e);
	return 0;
}

static int read_post(struct tokenizer *t, const struct json_doc *d, const struct json *v,
		     struct err *e)
{
	const struct json *type = json_get(v, "type"), *list = json_get(v, "processors");

	if (!v || json_is(v, JSON_NULL) || json_eq_str(type, "ByteLevel"))
		return 0;
	if (json_eq_str(type, "TemplateProcessing"))
		return read_template(t, d, v, e);
	if (json_eq_str(type, "BertProcessing") || json_eq_str(type, "RobertaProcessing"))
		return not_built(d, v, "post_processor", type->text, e);
	if (!json_eq_str(type, "Sequence") || !json_is(list, JSON_ARRAY))
		return bad_value(d, v, "post_processor",
				 "TemplateProcessing, ByteLevel or Sequence", e);
	for (size_t i = 0; i < list->n; i++)
		if (read_post(t, d, &list->item[i], e))
			return -1;
	return 0;
}

/* -- tokenizer_config.json -- */

/* "<s>", or {"content": "<s>", ...}; -1 where there is none. */
static int named(const struct tokenizer *t, const struct json_doc *d, const char *key)
{
	const struct json *v = json_get(&d->root, key);

	if (json_is(v, JSON_OBJECT))
		v = json_get(v, "content");
	return json_is(v, JSON_STRING) ? tokenizer_id(t, v->text) : -1;
}

/* Make id the first (or last) of the ids, or remove it from there. */
static void want_edge(int **ids, long *n, int id, bool want, bool first)
{
	long at = first ? 0 : *n - 1;
	bool there = *n && (*ids)[at] == id;

	if (want == there)
		return;
	if (want) {
		*ids = xrealloc_array(*ids, (size_t)*n + 1, sizeof(**ids));
		if (first)
			memmove(*ids + 1, *ids, (size_t)*n * sizeof(**ids));
		(*ids)[first ? 0 : *n] = id;
		(*n)++;
		return;
	}
	if (first)
		memmove(*ids, *ids + 1, (size_t)(*n - 1) * sizeof(**ids));
	(*n)--;
}

static int read_names(struct tokenizer *t, const struct json_doc *c, struct err *e)
{
	const struct json *bos = json_get(&c->root, "add_bos_token"),
			  *eos = json_get(&c->root, "add_eos_token");
	int last = named(t, c, "eos_token");

	t->bos = named(t, c, "bos_token");
	t->pad = named(t, c, "pad_token");
	t->unk_name = named(t, c, "unk_token");
	if (last >= 0) {
		t->eos = xmalloc(sizeof(*t->eos));
		t->eos[0] = last;
		t->neos = 1;
	}
	if ((bos && !json_is(bos, JSON_NULL) && !json_is_bool(bos)) ||
	    (eos && !json_is(eos, JSON_NULL) && !json_is_bool(eos)))
		return bad_value(c, bos && !json_is_bool(bos) ? bos : eos,
				 "add_bos_token, add_eos_token", "true or false", e);
	if (json_is_bool(bos) && t->bos >= 0)
		want_edge(&t->before, &t->nbefore, t->bos, json_is(bos, JSON_TRUE), true);
	if (json_is_bool(eos) && last >= 0)
		want_edge(&t->after, &t->nafter, last, json_is(eos, JSON_TRUE), false);
	return 0;
}

/* -- all of it -- */

static int read_unk(struct tokenizer *t, const struct json_doc *d, struct err *e)
{
	const struct json *v = json_path(&d->root, "model.unk_token");

	if (!v || json_is(v, JSON_NULL))
		return 0;
	if (!json_is(v, JSON_STRING))
		return bad_value(d, v, "model.unk_token", "a string", e);
	t->unk = vocab_find(t, v->text, v->n);
	if (t->unk < 0)
		t->unk = tokenizer_id(t, v->text);
	if (t->unk < 0)
		return err_set(e, EX_DATAERR,
			       "%s:%d: model.unk_token \"%.40s\" is not in the vocabulary", d->file,
			       v->line, v->text);
	return 0;
}

static int read_all(struct tokenizer *t, const struct json_doc *d, const struct json_doc *config,
		    struct err *e)
{
	struct added_list added = { 0 };
	int rc = -1;

	if (!json_is(&d->root, JSON_OBJECT))
		return bad_value(d, &d->root, "tokenizer", "an object", e);
	if (config && !json_is(&config->root, JSON_OBJECT))
		return bad_value(config, &config->root, "tokenizer_config", "an object", e);
	if (!read_model(t, d, e) && !read_added_tokens(&added, t, d, e) &&
	    (!config || !read_added_decoder(&added, t, config, e)))
		rc = added_set(t, added.v, added.n, d->file, e);
	free(added.v);
	if (rc || read_unk(t, d, e) || read_normalizer(t, d, json_get(&d->root, "normalizer"), e) ||
	    read_pre_tokenizer(t, d, json_get(&d->root, "pre_tokenizer"), e) ||
	    read_decoder(t, d, json_get(&d->root, "decoder"), e) ||
	    read_post(t, d, json_get(&d->root, "post_processor"), e) ||
	    (config && read_names(t, config, e)))
		return -1;
	return tokenizer_finish(t, d->file, e);
}

static int from_docs(struct tokenizer **out, const struct json_doc *d,
		     const struct json_doc *config, struct err *e)
{
	struct tokenizer *t = tokenizer_new();

	if (read_all(t, d, config, e)) {
		tokenizer_free(t);
		return -1;
	}
	*out = t;
	return 0;
}

int tokenizer_open_json(struct tokenizer **out, const char *path, const char *config_path,
			struct err *e)
{
	struct json_doc d, c;
	bool has_config = config_path && file_exists(config_path);
	int rc;

	if (json_read(&d, path, JSON_MOST, e))
		return -1;
	if (has_config && json_read(&c, config_path, JSON_MOST, e)) {
		json_release(&d);
		return -1;
	}
	rc = from_docs(out, &d, has_config ? &c : NULL, e);
	json_release(&d);
	if (has_config)
		json_release(&c);
	return rc;
}

int tokenizer_from_json_text(struct tokenizer **out, const char *text, size_t n,
			     const char *config_text, size_t config_n, const char *file,
			     struct err *e)
{
	struct json_doc d, c;
	int rc;

	if (json_parse(&d, text, n, file, 1, e))
		return -1;
	if (config_text && json_parse(&c, config_text, config_n, "tokenizer_config.json", 1, e)) {
		json_release(&d);
		return -1;
	}
	rc = from_docs(out, &d, config_text ? &c : NULL, e);
	json_release(&d);
	if (config_text)
		json_release(&c);
	return rc;
}
