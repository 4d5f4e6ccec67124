/*
 * Small tokenizers of every kind against what the reference engine recorded
 * (record_tokenizers.py).
 */
#include "formats/tokenizer.h"
#include "libcommon/json.h"
#include "libcommon/xalloc.h"
#include "tests/lib/tap.h"

static const char *const member[] = { "added_tokens", "normalizer", "pre_tokenizer",
				      "post_processor", "decoder" };

/* tokenizer.json of a variant: its members, and the base's model with the variant's changes. */
static void compose(struct str *out, const struct json *base, const struct json *v)
{
	struct json_out o = { 0 };
	const struct json *change = json_get(v, "model");

	json_begin(&o, '{');
	for (int i = 0; i < 5; i++) {
		json_key(&o, member[i]);
		json_put(&o, json_get(v, member[i]));
	}
	json_key(&o, "model");
	json_begin(&o, '{');
	for (size_t i = 0; i < base->n; i++) {
		const struct json *other = json_get(change, base->member[i].key);

		json_key(&o, base->member[i].key);
		json_put(&o, other ? other : &base->member[i].value);
	}
	json_end(&o);
	json_end(&o);
	str_cut(out, 0);
	str_add(out, o.s.s, o.s.len);
	json_out_release(&o);
}

static bool same_ids(const struct token_list *l, const struct json *want)
{
	if (l->n != (long)want->n)
		return false;
	for (long i = 0; i < l->n; i++)
		if (l->id[i] != atoi(want->item[i].text))
			return false;
	return true;
}

static void show(const struct token_list *l, const struct json *want, const struct json *text)
{
	printf("# text:");
	for (size_t i = 0; i < text->n; i++)
		printf(" %02x", (unsigned char)text->text[i]);
	printf("\n# got: ");
	for (long i = 0; i < l->n; i++)
		printf(" %d", l->id[i]);
	printf("\n# want:");
	for (size_t i = 0; i < want->n; i++)
		printf(" %s", want->item[i].text);
	printf("\n");
}

static bool same_text(const struct str *got, const struct json *want)
{
	return got->len == want->n && !memcmp(got->len ? got->s : "", want->text, want->n);
}

/* Number of texts whose ids, and whose decoded text, differ. */
static void count_wrong(long *bad_ids, long *bad_text, const struct tokenizer *t,
			const struct json *texts, const struct json *v)
{
	const struct json *ids = json_get(v, "ids"), *decoded = json_get(v, "decoded");
	struct token_list l = { 0 };
	struct str s = { 0 };
	struct err e = ERR_INIT;

	*bad_ids = *bad_text = 0;
	for (size_t i = 0; i < texts->n; i++) {
		const struct json *text = &texts->item[i], *want = &decoded->item[i];

		l.n = 0;
		if (tokenizer_encode(t, text->text, text->n, 0, &l, &e))
			die_err(&e);
		if (!same_ids(&l, &ids->item[i])) {
			show(&l, &ids->item[i], text);
			++*bad_ids;
		}
		l.n = 0;
		for (size_t k = 0; k < ids->item[i].n; k++)
			token_list_add(&l, atoi(ids->item[i].item[k].text));
		str_cut(&s, 0);
		tokenizer_decode(t, l.id, l.n, false, &s);
		if (!same_text(&s, json_is(want, JSON_NULL) ? text : want)) {
			printf("# decoded: %s\n# want:    %s\n", s.s ? s.s : "",
			       json_is(want, JSON_NULL) ? text->text : want->text);
			++*bad_text;
		}
	}
	token_list_release(&l);
	str_release(&s);
}

static void check_full(const struct tokenizer *t, const struct json *texts, const struct json *v,
		       const char *name)
{
	const struct json *ids = &json_get(v, "ids")->item[13];
	struct token_list l = { 0 };
	struct str s = { 0 };
	struct err e = ERR_INIT;

	if (tokenizer_encode(t, texts->item[4].text, texts->item[4].n, TOK_SPECIALS, &l, &e))
		die_err(&e);
	ok(same_ids(&l, json_get(v, "full")), "%s: with the post-processor", name);
	l.n = 0;
	for (size_t k = 0; k < ids->n; k++)
		token_list_add(&l, atoi(ids->item[k].text));
	tokenizer_decode(t, l.id, l.n, true, &s);
	ok(same_text(&s, json_get(v, "skipped")), "%s: decoded without specials", name);
	token_list_release(&l);
	str_release(&s);
}

static void check(const struct tokenizer *t, const struct json *texts, const struct json *v,
		  const char *how)
{
	const char *name = json_get(v, "name")->text;
	long bad_ids, bad_text;

	count_wrong(&bad_ids, &bad_text, t, texts, v);
	ok(!bad_ids, "%s%s: ids of %zu texts", name, how, texts->n);
	ok(!bad_text, "%s%s: decoded texts", name, how);
}

static void variant(const struct json_doc *d, const struct json *v)
{
	const struct json *texts = json_get(&d->root, "texts");
	const struct json *base = json_get(json_get(&d->root, "bases"), json_get(v, "base")->text);
	struct str json = { 0 }, again = { 0 }, blob = { 0 };
	struct tokenizer *t, *u, *w;
	struct err e = ERR_INIT;

	compose(&json, base, v);
	if (tokenizer_from_json_text(&t, json.s, json.len, NULL, 0, "variant", &e))
		die_err(&e);
	check(t, texts, v, "");
	check_full(t, texts, v, json_get(v, "name")->text);
	if (tokenizer_write_json(t, &again, NULL, &e) ||
	    tokenizer_from_json_text(&u, again.s, again.len, NULL, 0, "written", &e) ||
	    tokenizer_pack(t, &blob, &e) || tokenizer_unpack(&w, blob.s, blob.len, "packed", &e))
		die_err(&e);
	check(u, texts, v, ", written and read");
	check(w, texts, v, ", packed and unpacked");
	ok(digest_equal(tokenizer_digest(t), tokenizer_digest(u)) &&
		   digest_equal(tokenizer_digest(t), tokenizer_digest(w)),
	   "%s: one digest", json_get(v, "name")->text);
	tokenizer_free(t);
	tokenizer_free(u);
	tokenizer_free(w);
	str_release(&json);
	str_release(&again);
	str_release(&blob);
}

int main(void)
{
	struct json_doc d;
	struct err e = ERR_INIT;
	const struct json *list;

	char *path = xasprintf("%s/tests/data/tokenizers.json",
			       getenv("CAIRN_ROOT") ? getenv("CAIRN_ROOT") : ".");

	if (json_read(&d, path, 0, &e))
		die_err(&e);
	free(path);
	list = json_get(&d.root, "variants");
	for (size_t i = 0; i < list->n; i++)
		variant(&d, &list->item[i]);
	json_release(&d);
	return done();
}
