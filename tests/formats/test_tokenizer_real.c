/*
 * Real tokenizers against the vectors that the reference engine made
 * (CAIRN_SHARED/data/tokenizers).
 */
#include "formats/tokenizer.h"
#include "libcommon/file.h"
#include "libcommon/json.h"
#include "libcommon/progress.h"
#include "libcommon/xalloc.h"
#include "tests/lib/tap.h"

static const char *shared;

static int gunzip(struct str *out, const char *folder, const char *name)
{
	char *cmd = xasprintf("gzip -dc '%s/data/tokenizers/%s/%s.gz' 2>/dev/null", shared, folder,
			      name),
	     buf[1 << 16];
	FILE *f = popen(cmd, "r");
	size_t n;

	free(cmd);
	while ((n = fread(buf, 1, sizeof(buf), f)) > 0)
		str_add(out, buf, n);
	return pclose(f);
}

static void show(const char *what, const int *id, long n)
{
	printf("# %s:", what);
	for (long i = 0; i < n && i < 60; i++)
		printf(" %d", id[i]);
	printf("\n");
}

/* Bit 0: other ids, bit 1: other text, bit 2: the stream gives other text. */
static int wrong(const struct tokenizer *t, const struct json *v)
{
	const struct json *text = json_get(v, "text"), *ids = json_get(v, "ids"),
			  *decoded = json_get(v, "decoded");
	struct token_list l = { 0 };
	struct token_stream s = { 0 };
	struct str back = { 0 }, streamed = { 0 };
	struct err e = ERR_INIT;
	int rc = 0;

	if (tokenizer_encode(t, text->text, text->n, 0, &l, &e))
		printf("# %s\n", e.msg);
	rc = l.n != (long)ids->n;
	for (long i = 0; i < l.n && !rc; i++)
		rc = l.id[i] != atoi(ids->item[i].text);
	if (rc)
		show("got", l.id, l.n);
	for (size_t i = 0; i < ids->n; i++)
		tokenizer_stream(t, &s, atoi(ids->item[i].text), false, &streamed);
	tokenizer_stream_end(&s, &streamed);
	l.n = 0;
	for (size_t i = 0; i < ids->n; i++)
		token_list_add(&l, atoi(ids->item[i].text));
	if (rc) {
		show("want", l.id, l.n);
		printf("# text: %.200s\n", text->text);
	}
	tokenizer_decode(t, l.id, l.n, false, &back);
	if (back.len != decoded->n || (back.len && memcmp(back.s, decoded->text, back.len)))
		rc |= 2;
	if (streamed.len != decoded->n ||
	    (streamed.len && memcmp(streamed.s, decoded->text, streamed.len)))
		rc |= 4;
	token_list_release(&l);
	str_release(&back);
	str_release(&streamed);
	return rc;
}

static void vectors(const struct tokenizer *t, const char *folder)
{
	struct str all = { 0 };
	long n = 0, bad[3] = { 0 };

	gunzip(&all, folder, "vectors.jsonl");
	for (char *line = all.s, *end; line && *line; line = end + 1) {
		struct json_doc d;
		struct err e = ERR_INIT;
		int rc;

		end = strchr(line, '\n');
		if (!end)
			break;
		if (json_parse(&d, line, (size_t)(end - line), "vectors", (int)++n, &e))
			die_err(&e);
		rc = wrong(t, &d.root);
		for (int k = 0; k < 3; k++)
			bad[k] += rc >> k & 1;
		json_release(&d);
	}
	ok(n >= 100, "%s: %ld vectors", folder, n);
	ok(!bad[0], "%s: ids differ in %ld of %ld", folder, bad[0], n);
	ok(!bad[1], "%s: decoded text differs in %ld of %ld", folder, bad[1], n);
	ok(!bad[2], "%s: streamed text differs in %ld of %ld", folder, bad[2], n);
	str_release(&all);
}

static struct tokenizer *load(const struct str *json, const struct str *config)
{
	struct tokenizer *t;
	struct err e = ERR_INIT;

	if (tokenizer_from_json_text(&t, json->s, json->len, config ? config->s : NULL,
				     config ? config->len : 0, "tokenizer.json", &e))
		die_err(&e);
	return t;
}

/* Packed and written tokenizers are the same tokenizer. */
static void copies(const struct tokenizer *t, const char *folder)
{
	struct str blob = { 0 }, json = { 0 }, config = { 0 };
	struct tokenizer *u, *w;
	struct err e = ERR_INIT;
	double start;

	if (tokenizer_pack(t, &blob, &e))
		die_err(&e);
	start = seconds_now();
	ok(!tokenizer_unpack(&u, blob.s, blob.len, "packed", &e), "%s: unpacks %s", folder, e.msg);
	printf("# %s: unpack of %zu bytes %.1f ms\n", folder, blob.len,
	       (seconds_now() - start) * 1e3);
	ok(digest_equal(tokenizer_digest(t), tokenizer_digest(u)), "%s: unpacked is the same",
	   folder);
	vectors(u, folder);
	if (tokenizer_write_json(t, &json, &config, &e))
		die_err(&e);
	w = load(&json, &config);
	ok(digest_equal(tokenizer_digest(t), tokenizer_digest(w)),
	   "%s: written and read is the same", folder);
	vectors(w, folder);
	tokenizer_free(u);
	tokenizer_free(w);
	str_release(&blob);
	str_release(&json);
	str_release(&config);
}

static void speed(const struct tokenizer *t, const char *folder)
{
	struct str all = { 0 };
	struct token_list l = { 0 };
	struct err e = ERR_INIT;
	double start;

	gunzip(&all, folder, "vectors.jsonl");
	start = seconds_now();
	if (tokenizer_encode(t, all.s, all.len, 0, &l, &e))
		die_err(&e);
	printf("# %s: %zu bytes to %ld ids, %.1f MB/s\n", folder, all.len, l.n,
	       (double)all.len / (seconds_now() - start) / 1e6);
	token_list_release(&l);
	str_release(&all);
}

static struct tokenizer *real(struct str *json, const char *folder)
{
	struct str config = { 0 };
	struct tokenizer *t;
	double start;

	gunzip(json, folder, "tokenizer.json");
	gunzip(&config, folder, "tokenizer_config.json");
	start = seconds_now();
	t = load(json, &config);
	printf("# %s: load of %zu bytes %.3f s\n", folder, json->len, seconds_now() - start);
	str_release(&config);
	vectors(t, folder);
	copies(t, folder);
	speed(t, folder);
	return t;
}

/* -- the same vocabulary as a GGUF file has it -- */

struct source {
	struct tokenizer_source s;
	const char **token, **merge;
	size_t *token_len, *merge_len;
	int *type;
	struct str *joined; /* merges, which the file may have as pairs */
	struct arena pads; /* spellings of ids that the vocabulary lacks */
};

static void put_token(struct source *g, long id, const struct json *text, int type)
{
	g->token[id] = text->text;
	g->token_len[id] = text->n;
	g->type[id] = type;
}

static void source_of(struct source *g, const struct json_doc *d)
{
	const struct json *vocab = json_path(&d->root, "model.vocab"),
			  *merges = json_path(&d->root, "model.merges");
	const struct json *added = json_get(&d->root, "added_tokens");
	long most = (long)(vocab->n + added->n) + 4096, n = 0;

	*g = (struct source){ .s = TOKENIZER_SOURCE_INIT };
	g->token = xcalloc((size_t)most, sizeof(*g->token));
	g->token_len = xcalloc((size_t)most, sizeof(*g->token_len));
	g->type = xcalloc((size_t)most, sizeof(*g->type));
	for (long i = 0; i < most; i++) {
		char *name = xasprintf("[PAD%ld]", i);

		g->token[i] = arena_strndup(&g->pads, name, strlen(name));
		g->token_len[i] = strlen(name);
		g->type[i] = 5;
		free(name);
	}
	for (size_t i = 0; i < vocab->n; i++) {
		struct json key = { .text = vocab->member[i].key, .n = vocab->member[i].keylen };
		long id = atol(vocab->member[i].value.text);

		put_token(g, id, &key, 1);
		n = id >= n ? id + 1 : n;
	}
	for (size_t i = 0; i < added->n; i++) {
		long id = atol(json_get(&added->item[i], "id")->text);

		put_token(g, id, json_get(&added->item[i], "content"),
			  json_is(json_get(&added->item[i], "special"), JSON_TRUE) ? 3 : 4);
		n = id >= n ? id + 1 : n;
	}
	g->merge = xcalloc(merges->n, sizeof(*g->merge));
	g->merge_len = xcalloc(merges->n, sizeof(*g->merge_len));
	g->joined = xcalloc(merges->n, sizeof(*g->joined));
	for (size_t i = 0; i < merges->n; i++) {
		const struct json *m = &merges->item[i];

		if (json_is(m, JSON_STRING)) {
			str_add(&g->joined[i], m->text, m->n);
		} else {
			str_add(&g->joined[i], m->item[0].text, m->item[0].n);
			str_putc(&g->joined[i], ' ');
			str_add(&g->joined[i], m->item[1].text, m->item[1].n);
		}
		g->merge[i] = g->joined[i].s;
		g->merge_len[i] = g->joined[i].len;
	}
	g->s.model = "gpt2";
	g->s.n = n;
	g->s.tokens = g->token;
	g->s.token_len = g->token_len;
	g->s.token_type = g->type;
	g->s.merges = g->merge;
	g->s.merge_len = g->merge_len;
	g->s.nmerges = (long)merges->n;
}

/* For check_written_tokenizers.py. */
static void keep(const char *folder, const char *end, const struct str *text)
{
	const char *out = getenv("TOKENIZER_OUT");
	char *path = xasprintf("%s/%s.gguf.%s", out ? out : "", folder, end);
	struct err e = ERR_INIT;

	if (out && file_write(path, text->s, text->len, &e))
		die_err(&e);
	free(path);
}

static void source_release(struct source *g)
{
	for (long i = 0; i < g->s.nmerges; i++)
		str_release(&g->joined[i]);
	arena_release(&g->pads);
	free(g->joined);
	free(g->merge);
	free(g->merge_len);
	free(g->token);
	free(g->token_len);
	free(g->type);
}

/*
 * No normaliser and no flags of added tokens are in such a file: the name of its pre-tokeniser
 * must be enough.
 */
static void gguf(const struct str *json, const char *folder, const char *pre)
{
	struct json_doc d;
	struct source g;
	struct tokenizer *t;
	struct err e = ERR_INIT;
	struct str out = { 0 }, config = { 0 };

	if (json_parse(&d, json->s, json->len, "tokenizer.json", 1, &e))
		die_err(&e);
	source_of(&g, &d);
	g.s.pre = pre;
	if (tokenizer_from_source(&t, &g.s, "source", &e))
		die_err(&e);
	printf("# %s as a GGUF file of pre %s has it\n", folder, pre);
	vectors(t, folder);
	if (tokenizer_write_json(t, &out, &config, &e))
		die_err(&e);
	keep(folder, "json", &out);
	keep(folder, "config.json", &config);
	str_release(&out);
	str_release(&config);
	tokenizer_free(t);
	source_release(&g);
	json_release(&d);
}

/* Replace the first `from` after `after` in *s. */
static void edit(struct str *s, const char *after, const char *from, size_t from_n, const char *to)
{
	char *at = strstr(s->s, after), *cut;
	struct str out = { 0 };

	cut = at ? strstr(at, from) : NULL;
	if (!cut)
		die(EX_SOFTWARE, "no %s after %s", from, after);
	str_add(&out, s->s, (size_t)(cut - s->s));
	str_puts(&out, to);
	str_puts(&out, cut + from_n);
	str_release(s);
	*s = out;
}

/* The value of a top-level key, which is an object or null, becomes `to`. */
static void set_member(struct str *s, const char *key, const char *to)
{
	char *at = strstr(s->s, key), *value = at + strlen(key), *p = value;
	int depth = 0;

	do {
		if (*p == '"')
			for (p++; *p != '"'; p++)
				p += *p == '\\';
		depth += *p == '{' || *p == '[';
		depth -= *p == '}' || *p == ']';
		p++;
	} while (depth || *p != ',');
	edit(s, key, value, (size_t)(p - value), to);
}

static void smol(const struct str *qwen, bool prefix)
{
	struct str json = { 0 };
	struct tokenizer *t;

	str_add(&json, qwen->s, qwen->len);
	set_member(&json, "\"normalizer\":", "null");
	set_member(
		&json, "\"pre_tokenizer\":",
		prefix ?
			"{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Digits\",\"individual_digits\":true},"
			"{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"trim_offsets\":true,\"use_regex\":true}]}" :
			"{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Digits\",\"individual_digits\":true},"
			"{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":true}]}");
	if (prefix) {
		edit(&json, "\"added_tokens\"", "\"lstrip\": false", 15, "\"lstrip\": true");
		edit(&json, "\"added_tokens\"", "\"rstrip\": false", 15, "\"rstrip\": true");
		edit(&json, "\"added_tokens\"", "\"single_word\": false", 20,
		     "\"single_word\": FALSE");
		edit(&json, "\"added_tokens\"", "\"single_word\": false", 20,
		     "\"single_word\": true");
		edit(&json, "\"added_tokens\"", "\"single_word\": FALSE", 20,
		     "\"single_word\": false");
	}
	t = load(&json, NULL);
	vectors(t, prefix ? "smolpfx" : "smol");
	tokenizer_free(t);
	str_release(&json);
}

static void golden(const struct tokenizer *t, const char *who, const char *text, const int *want,
		   long n)
{
	struct token_list l = { 0 };
	struct err e = ERR_INIT;
	bool same;

	if (tokenizer_encode(t, text, strlen(text), 0, &l, &e))
		die_err(&e);
	same = l.n == n && !memcmp(l.id, want, (size_t)n * sizeof(*want));
	ok(same, "%s: golden ids of %.*s", who, (int)strcspn(text, "\n"), text);
	if (!same)
		show("got", l.id, l.n);
	token_list_release(&l);
}
#define GOLDEN(t, who, text, ...) \
	golden(t, who, text, (const int[]){ __VA_ARGS__ }, \
	       sizeof((int[]){ __VA_ARGS__ }) / sizeof(int))

#define HELLO "Hello  world\n\n  x"
#define DIGITS "12345 3.14 1,000"
#define WORDS "I'm we'LL IT'S don't"
#define CAFE "caf\xc3\xa9 cafe\xcc\x81"
#define CHAT "<|im_start|>user\nhi<|im_end|>\n"
#define MATH "$\\frac{1}{2}$ = 0.5\\boxed{42}"

static void qwen3(const struct tokenizer *t)
{
	GOLDEN(t, "qwen3", HELLO, 9707, 220, 1879, 271, 220, 856);
	GOLDEN(t, "qwen3", DIGITS, 16, 17, 18, 19, 20, 220, 18, 13, 16, 19, 220, 16, 11, 15, 15,
	       15);
	GOLDEN(t, "qwen3", WORDS, 40, 2776, 582, 6, 4086, 8700, 13272, 1513, 944);
	GOLDEN(t, "qwen3", CAFE, 924, 58858, 51950);
	GOLDEN(t, "qwen3", CHAT, 151644, 872, 198, 6023, 151645, 198);
	GOLDEN(t, "qwen3", MATH, 58736, 37018, 90, 16, 15170, 17, 31716, 284, 220, 15, 13, 20, 59,
	       79075, 90, 19, 17, 92);
}

static void gptoss(const struct tokenizer *t)
{
	GOLDEN(t, "gptoss", HELLO, 13225, 220, 2375, 279, 220, 1215);
	GOLDEN(t, "gptoss", DIGITS, 7633, 2548, 220, 18, 13, 1265, 220, 16, 11, 1302);
	GOLDEN(t, "gptoss", WORDS, 15390, 581, 6, 7454, 8734, 31233, 4128);
	GOLDEN(t, "gptoss", CAFE, 66, 103112, 50672, 13430);
	GOLDEN(t, "gptoss", CHAT, 27, 91, 321, 10949, 91, 29, 1428, 198, 3686, 27, 91, 321, 13707,
	       91, 523);
	GOLDEN(t, "gptoss", MATH, 113002, 63757, 90, 16, 29124, 17, 61526, 314, 220, 15, 13, 20, 59,
	       172278, 90, 4689, 92);
}

static void deepseek(const struct tokenizer *t)
{
	GOLDEN(t, "deepseek", HELLO, 19923, 223, 2058, 271, 223, 1527);
	GOLDEN(t, "deepseek", DIGITS, 6895, 1883, 223, 21, 16, 929, 223, 19, 14, 1320);
	GOLDEN(t, "deepseek", WORDS, 43, 4571, 579, 9, 3699, 8606, 28138, 2090, 1664);
	GOLDEN(t, "deepseek", CAFE, 69, 2797, 619, 69292, 17793);
	GOLDEN(t, "deepseek", MATH, 22984, 4015, 93, 19, 3069, 20, 12222, 438, 223, 18, 16, 23, 62,
	       7353, 284, 93, 3180, 95);
	ok(tokenizer_adds_bos(t), "deepseek: add_bos_token of the config holds");
}

int main(void)
{
	struct str q = { 0 }, g = { 0 }, d = { 0 };
	struct tokenizer *t;

	shared = getenv("CAIRN_SHARED");
	if (!shared) {
		skip("CAIRN_SHARED is not set", "vectors of real tokenizers");
		return done();
	}
	t = real(&q, "qwen3");
	qwen3(t);
	tokenizer_free(t);
	smol(&q, false);
	smol(&q, true);
	gguf(&q, "qwen3", "qwen2");
	t = real(&g, "gptoss");
	gguf(&g, "gptoss", "gpt-4o");
	gptoss(t);
	tokenizer_free(t);
	t = real(&d, "deepseek_v3");
	gguf(&d, "deepseek_v3", "deepseek-v3");
	deepseek(t);
	tokenizer_free(t);
	str_release(&q);
	str_release(&g);
	str_release(&d);
	return done();
}
