/*
 * tokenizer.json, tokenizer_config.json, a text and a packed tokenizer from any bytes.  The input
 * is a tokenizer.json; what follows its first NUL byte is the text (else the input is the text
 * too).  Input that begins with "CAIRNTOK" is packed.
 *
 * What must hold: no crash, and every tokenizer that loads packs, unpacks to the same digest,
 * encodes to ids it knows and decodes to UTF-8.
 */
#include "formats/tokenizer.h"
#include "libcommon/utf8.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must_be_utf8(const struct str *s)
{
	bool good;

	for (size_t i = 0; i < s->len; i += utf8_step(s->s + i, s->len - i, &good))
		if (utf8_step(s->s + i, s->len - i, &good), !good)
			abort();
}

static void use(const struct tokenizer *t, const char *text, size_t n, unsigned flags)
{
	struct token_span span = { n / 3, n / 2 };
	struct token_list l = { 0 };
	struct token_stream s = { 0 };
	struct str out = { 0 }, streamed = { 0 };
	struct err e = ERR_INIT;

	if (tokenizer_encode(t, text, n, flags, &l, &e) && e.code != EX_DATAERR)
		abort();
	if (tokenizer_encode_spans(t, text, n, &span, 1, flags, &l, &e) && e.code != EX_DATAERR)
		abort();
	for (long i = 0; i < l.n; i++) {
		if (!tokenizer_knows(t, l.id[i]))
			abort();
		tokenizer_stream(t, &s, l.id[i], true, &streamed);
	}
	tokenizer_stream_end(&s, &streamed);
	tokenizer_decode(t, l.id, l.n, false, &out);
	must_be_utf8(&out);
	must_be_utf8(&streamed);
	token_list_release(&l);
	str_release(&out);
	str_release(&streamed);
}

static void repack(const struct tokenizer *t)
{
	struct str blob = { 0 }, json = { 0 };
	struct tokenizer *u;
	struct err e = ERR_INIT;

	if (tokenizer_pack(t, &blob, &e) || tokenizer_unpack(&u, blob.s, blob.len, "again", &e) ||
	    !digest_equal(tokenizer_digest(t), tokenizer_digest(u)))
		abort();
	tokenizer_free(u);
	if (tokenizer_write_json(t, &json, NULL, &e) && e.code != EX_UNAVAILABLE)
		abort();
	str_release(&blob);
	str_release(&json);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *all = (const char *)data, *nul = size ? memchr(all, 0, size) : NULL;
	bool packed = size >= 8 && !memcmp(all, "CAIRNTOK", 8);
	size_t n = !packed && nul ? (size_t)(nul - all) : size;
	struct tokenizer *t;
	struct err e = ERR_INIT;
	int rc = packed ? tokenizer_unpack(&t, all, n, "packed", &e) :
			  tokenizer_from_json_text(&t, all, n, all, n, "json", &e);

	if (rc) {
		if (e.code != EX_DATAERR && e.code != EX_UNAVAILABLE)
			abort();
		return 0;
	}
	use(t, n < size ? nul + 1 : all, n < size ? size - n - 1 : size, TOK_SPECIALS);
	use(t, "ab ab<s> the 12\xc3\xa9", 17, TOK_NO_ADDED);
	repack(t);
	tokenizer_free(t);
	return 0;
}
