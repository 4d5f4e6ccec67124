/*
 * A SentencePiece vocabulary as a GGUF file has it, against SentencePiece itself
 * (record_sentencepiece.py).
 */
#include "formats/tokenizer.h"
#include "libcommon/json.h"
#include "libcommon/xalloc.h"
#include "tests/lib/tap.h"

struct arrays {
	const char **token;
	size_t *len;
	float *score;
	int *type;
	long n;
};

static void fill(struct arrays *a, const struct json *root)
{
	const struct json *tokens = json_get(root, "tokens");

	a->n = (long)tokens->n;
	a->token = xcalloc(tokens->n, sizeof(*a->token));
	a->len = xcalloc(tokens->n, sizeof(*a->len));
	a->score = xcalloc(tokens->n, sizeof(*a->score));
	a->type = xcalloc(tokens->n, sizeof(*a->type));
	for (long i = 0; i < a->n; i++) {
		a->token[i] = tokens->item[i].text;
		a->len[i] = tokens->item[i].n;
		a->score[i] = (float)atof(json_get(root, "scores")->item[i].text);
		a->type[i] = atoi(json_get(root, "types")->item[i].text);
	}
}

static void release(struct arrays *a)
{
	free(a->token);
	free(a->len);
	free(a->score);
	free(a->type);
}

static bool same(const struct token_list *l, const struct json *want)
{
	bool good = l->n == (long)want->n;

	for (long i = 0; i < l->n && good; i++)
		good = l->id[i] == atoi(want->item[i].text);
	return good;
}

static void show(const struct token_list *l, const struct json *want)
{
	printf("# got: ");
	for (long i = 0; i < l->n; i++)
		printf(" %d", l->id[i]);
	printf("\n# want:");
	for (size_t i = 0; i < want->n; i++)
		printf(" %s", want->item[i].text);
	printf("\n");
}

static void check(const struct tokenizer *t, const struct json *root, const char *how)
{
	const struct json *texts = json_get(root, "texts"), *ids = json_get(root, "ids");
	struct token_list l = { 0 };
	struct str back = { 0 };
	struct err e = ERR_INIT;
	long wrong = 0, lost = 0;

	for (size_t i = 0; i < texts->n; i++) {
		const struct json *text = &texts->item[i];

		l.n = 0;
		if (tokenizer_encode(t, text->text, text->n, 0, &l, &e))
			die_err(&e);
		if (!same(&l, &ids->item[i])) {
			printf("# text: %s\n", text->text);
			show(&l, &ids->item[i]);
			wrong++;
		}
		str_cut(&back, 0);
		tokenizer_decode(t, l.id, l.n, false, &back);
		if (!strstr(text->text, "\xe2\x96\x81"))
			lost += back.len != text->n ||
				memcmp(back.len ? back.s : "", text->text, text->n);
	}
	ok(!wrong, "%s: SentencePiece's ids in %zu texts, %ld differ", how, texts->n, wrong);
	ok(!lost, "%s: texts come back, %ld differ", how, lost);
	token_list_release(&l);
	str_release(&back);
}

int main(void)
{
	char *path = xasprintf("%s/tests/data/sentencepiece.json",
			       getenv("CAIRN_ROOT") ? getenv("CAIRN_ROOT") : ".");
	struct tokenizer_source s = TOKENIZER_SOURCE_INIT;
	struct arrays a = { 0 };
	struct str json = { 0 };
	struct tokenizer *t, *u;
	struct json_doc d;
	struct err e = ERR_INIT;

	if (json_read(&d, path, 0, &e))
		die_err(&e);
	fill(&a, &d.root);
	s.model = "llama";
	s.n = a.n;
	s.tokens = a.token;
	s.token_len = a.len;
	s.scores = a.score;
	s.token_type = a.type;
	s.unk = 0;
	s.bos = 1;
	s.eos = 2;
	if (tokenizer_from_source(&t, &s, path, &e))
		die_err(&e);
	check(t, &d.root, "from the file");
	if (tokenizer_write_json(t, &json, NULL, &e) ||
	    tokenizer_from_json_text(&u, json.s, json.len, NULL, 0, "written", &e))
		die_err(&e);
	check(u, &d.root, "written and read");
	tokenizer_free(t);
	tokenizer_free(u);
	str_release(&json);
	release(&a);
	json_release(&d);
	free(path);
	return done();
}
