/*
 * Templates: whatever is given must parse or be refused, render or be refused, within the bounds;
 * spans must lie in the text, in order, and a second rendering must give the same bytes.
 *
 * clang -fsanitize=fuzzer,address,undefined ...; corpus in tests/fuzz/corpus/chat_template.
 */

#include "formats/chat_template.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char messages[] =
	"[{\"role\":\"system\",\"content\":\"be <b>\"},{\"role\":\"user\",\"content\":\" h\\u00e9, \\ud83d\\ude42\\n\"},"
	"{\"role\":\"assistant\",\"content\":[{\"type\":\"text\",\"text\":\"ok\"}],\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":{\"a\":1.5}}}]},"
	"{\"role\":\"tool\",\"content\":null}]";

static void check_spans(const struct str *s, const struct chat_span *span, long n)
{
	for (long i = 0; i < n; i++) {
		if (span[i].start >= span[i].end || span[i].end > s->len || span[i].message < -1 ||
		    span[i].message > 3)
			abort();
		if (i && span[i].kind == span[i - 1].kind && span[i].start < span[i - 1].end)
			abort();
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct json_doc doc;
	struct chat_template *t;
	struct chat_render r = { .bos_token = "<s>",
				 .eos_token = "</s>",
				 .add_generation_prompt = true };
	struct chat_span *span = NULL;
	struct str a = { 0 }, b = { 0 };
	struct err e = ERR_INIT, again = ERR_INIT;
	long n;
	int rc;

	if (!doc.file && json_parse(&doc, messages, strlen(messages), "messages", 1, &e))
		abort();
	r.messages = &doc.root;
	if (chat_template_parse(&t, (const char *)data, size, "fuzz", &e)) {
		if (e.code != EX_DATAERR || !*e.msg)
			abort();
		return 0;
	}
	rc = chat_template_render(t, &r, &a, &span, &n, &e);
	if (rc && (e.code != EX_DATAERR || !*e.msg || a.len))
		abort();
	if (!rc)
		check_spans(&a, span, n);
	if (size < 200 && (chat_template_render(t, &r, &b, NULL, NULL, &again) != rc ||
			   a.len != b.len || (a.len && memcmp(a.s, b.s, a.len))))
		abort();
	free(span);
	str_release(&a);
	str_release(&b);
	chat_template_free(t);
	return 0;
}
