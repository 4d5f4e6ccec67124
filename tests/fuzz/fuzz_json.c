/*
 * The JSON reader and writer: what is accepted must read back as equal, at every indent, and typed
 * reads of it must not fall over.
 *
 * clang -fsanitize=fuzzer,address,undefined ...; corpus in tests/fuzz/corpus/json.
 */

#include "libcommon/json.h"

#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void typed(const struct json_doc *d, const struct json *v)
{
	struct err e = ERR_INIT;
	const char *s;
	uint64_t u;
	double x;
	bool b;
	long i;
	int good = !json_int(d, v, "v", &i, &e) + !json_u64(d, v, "v", &u, &e) + !json_real(d, v, "v", &x, &e) +
		   !json_bool(d, v, "v", &b, &e) + !json_str(d, v, "v", &s, &e);

	if (good > 3)
		abort();
	for (size_t k = 0; v->type == JSON_ARRAY && k < v->n; k++)
		typed(d, &v->item[k]);
	for (size_t k = 0; v->type == JSON_OBJECT && k < v->n; k++) {
		if (!v->member[k].key[v->member[k].keylen] && json_get(v, v->member[k].key))
			typed(d, &v->member[k].value);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct err e = ERR_INIT;
	struct json_doc a, b;

	if (json_parse(&a, (const char *)data, size, "fuzz", 1, &e)) {
		if (e.code != EX_DATAERR || !*e.msg)
			abort();
		return 0;
	}
	typed(&a, &a.root);
	for (int indent = -1; indent <= 1; indent++) {
		struct json_out o = { .indent = indent };

		json_put(&o, &a.root);
		if (json_parse(&b, o.s.s, o.s.len, "again", 1, &e) || !json_equal(&a.root, &b.root))
			abort();
		json_release(&b);
		json_out_release(&o);
	}
	json_release(&a);
	return 0;
}
