#include "formats/gguf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/safetensors.h"
#include "formats/tokenizer.h"
#include "libcommon/file.h"
#include "libcommon/hash.h"
#include "tests/lib/tap.h"

/* -- building files
 * -------------------------------------------------------------------------------- */

struct build {
	struct str kv, info, data;
	uint64_t nkv, n;
};

static void u32(struct str *s, uint32_t v) { str_add(s, (char *)&v, 4); }
static void u64(struct str *s, uint64_t v) { str_add(s, (char *)&v, 8); }

static void text(struct str *s, const char *t)
{
	u64(s, strlen(t));
	str_puts(s, t);
}

static void key(struct build *b, const char *name, uint32_t type)
{
	text(&b->kv, name);
	u32(&b->kv, type);
	b->nkv++;
}

static void k_u32(struct build *b, const char *name, uint32_t v)
{
	key(b, name, GGUF_U32);
	u32(&b->kv, v);
}
static void k_f32(struct build *b, const char *name, float v)
{
	key(b, name, GGUF_F32);
	str_add(&b->kv, (char *)&v, 4);
}
static void k_str(struct build *b, const char *name, const char *v)
{
	key(b, name, GGUF_STRING);
	text(&b->kv, v);
}

static void array(struct build *b, const char *name, uint32_t type, uint64_t n)
{
	key(b, name, GGUF_ARRAY);
	u32(&b->kv, type);
	u64(&b->kv, n);
}

/* The head of a tensor; its bytes are the caller's. */
static void info(struct build *b, const char *name, uint32_t rank, const uint64_t *ne,
		 uint32_t type, uint64_t offset)
{
	text(&b->info, name);
	u32(&b->info, rank);
	for (uint32_t i = 0; i < rank; i++)
		u64(&b->info, ne[i]);
	u32(&b->info, type);
	u64(&b->info, offset);
	b->n++;
}

static void f32_tensor(struct build *b, const char *name, uint64_t cols, uint64_t rows,
		       const float *x)
{
	uint64_t ne[2] = { cols, rows };

	while (b->data.len % 32)
		str_putc(&b->data, 0);
	info(b, name, rows ? 2 : 1, ne, GGML_F32, b->data.len);
	for (uint64_t i = 0; i < cols * (rows ? rows : 1); i++) {
		float v = x ? x[i] : 0;

		str_add(&b->data, (char *)&v, 4);
	}
}

static char *finish(struct build *b, uint32_t version)
{
	char *p = path_join(tap_tmp(), "x.gguf");
	struct str s = { 0 };
	struct err e = ERR_INIT;

	str_puts(&s, "GGUF");
	u32(&s, version);
	u64(&s, b->n);
	u64(&s, b->nkv);
	str_add(&s, b->kv.s, b->kv.len);
	str_add(&s, b->info.s, b->info.len);
	while (b->n && s.len % 32)
		str_putc(&s, 0);
	str_add(&s, b->data.s, b->data.len);
	if (file_write(p, s.s, s.len, &e))
		bug("%s", e.msg);
	str_release(&s);
	str_release(&b->kv);
	str_release(&b->info);
	str_release(&b->data);
	*b = (struct build){ 0 };
	return p;
}

static void check_refused(char *p, const char *message, const char *what)
{
	struct gguf g;
	struct err e = ERR_INIT;
	int rc = gguf_open(&g, p, &e);

	ok(rc == -1 && e.code == EX_DATAERR && strstr(e.msg, message) && strstr(e.msg, p),
	   "refused: %s", what);
	if (!rc || !strstr(e.msg, message))
		printf("# rc %d code %d: %s\n", rc, e.code, rc ? e.msg : "");
	if (!rc)
		gguf_close(&g);
	free(p);
}

static void refused(struct build *b, const char *message, const char *what)
{
	check_refused(finish(b, 3), message, what);
}

static void raw_refused(const char *bytes, size_t n, const char *message, const char *what)
{
	char *p = path_join(tap_tmp(), "x.gguf");
	struct err e = ERR_INIT;

	if (file_write(p, bytes, n, &e))
		bug("%s", e.msg);
	check_refused(p, message, what);
}

/* -- hostile files
 * ---------------------------------------------------------------------------------- */

static void bad_heads(void)
{
	struct build b = { 0 };

	raw_refused("", 0, "ends in its header", "an empty file");
	raw_refused("GGU", 3, "ends in its header", "three bytes");
	raw_refused("GGML\3\0\0\0", 8, "no GGUF file", "another magic");
	raw_refused("GGUF\0\0\0\3", 8, "big-endian", "a big-endian file");
	raw_refused("GGUF\3\0\0\0", 8, "ends in its header", "no counts");
	check_refused(finish(&b, 1), "version 1", "version 1");
	check_refused(finish(&b, 4), "version 4", "version 4");
	check_refused(finish(&b, 0), "version 0", "version 0");
	b.nkv = UINT64_MAX;
	refused(&b, "18446744073709551615 keys", "2^64-1 keys");
	b.n = 1UL << 60;
	refused(&b, "tensors in a file of", "2^60 tensors");
}

static void bad_keys(void)
{
	struct build b = { 0 };

	k_u32(&b, "a", 1);
	k_u32(&b, "a", 1);
	refused(&b, "key a comes twice", "a key twice");
	k_u32(&b, "", 1);
	refused(&b, "a key of 0 bytes", "an empty key");
	key(&b, "a", 13);
	u64(&b.kv, 0);
	refused(&b, "a: value of type 13", "an unknown type of value");
	array(&b, "a", GGUF_ARRAY, 1);
	u64(&b.kv, 0);
	refused(&b, "a: array of type 9", "an array in an array");
	array(&b, "a", 77, 1);
	u64(&b.kv, 0);
	refused(&b, "a: array of type 77", "an array of an unknown type");
	array(&b, "a", GGUF_U64, 1UL << 61);
	refused(&b, "a: 2305843009213693952 items", "2^61 items of 8 bytes");
	array(&b, "a", GGUF_STRING, 1UL << 40);
	refused(&b, "items, ", "2^40 strings");
	key(&b, "a", GGUF_STRING);
	u64(&b.kv, UINT64_MAX);
	refused(&b, "a: string of 18446744073709551615 bytes", "a string of 2^64-1 bytes");
	u64(&b.kv, 1UL << 32);
	b.nkv = 1;
	str_puts(&b.kv, "12345");
	refused(&b, "string of 4294967296 bytes", "a key of 4 GiB");
	key(&b, "a", GGUF_BOOL);
	str_putc(&b.kv, 2);
	refused(&b, "a: a bool is 2", "a bool of 2");
	key(&b, "a", GGUF_U32);
	str_putc(&b.kv, 2);
	refused(&b, "a: 1 items, 1 bytes are left", "a value that is cut");
}

static void bad_alignments(void)
{
	struct build b = { 0 };

	k_str(&b, "general.alignment", "32");
	refused(&b, "general.alignment is no u32", "an alignment that is a string");
	array(&b, "general.alignment", GGUF_U32, 1);
	u32(&b.kv, 32);
	refused(&b, "general.alignment is no u32", "an alignment that is an array");
	k_u32(&b, "general.alignment", 0);
	refused(&b, "general.alignment is 0", "an alignment of 0");
	k_u32(&b, "general.alignment", 24);
	refused(&b, "general.alignment is 24, wanted a power of two", "an alignment of 24");
}

static void bad_tensors(void)
{
	struct build b = { 0 };
	uint64_t zero[2] = { 1, 0 }, big[4] = { 1UL << 32, 1UL << 32, 4, 1 },
		 minus[1] = { UINT64_MAX }, two[1] = { 2 }, half[1] = { 33 };
	uint64_t huge[1] = { 1UL << 40 };

	info(&b, "a", 2, zero, GGML_F32, 0);
	refused(&b, "a: dimension 1 is 0", "a dimension of 0");
	info(&b, "a", 3, big, GGML_F32, 0);
	refused(&b, "too large", "a shape of 2^66");
	info(&b, "a", 1, minus, GGML_F32, 0);
	refused(&b, "a: dimension 0", "a dimension of -1");
	info(&b, "a", 5, (uint64_t[]){ 1, 1, 1, 1, 1 }, GGML_F32, 0);
	refused(&b, "a: 5 dimensions", "five dimensions");
	info(&b, "a", 1, two, 99, 0);
	refused(&b, "a: type 99", "an unknown type");
	info(&b, "a", 1, two, 4, 0);
	refused(&b, "a: type 4", "a type that was taken back");
	info(&b, "a", 1, half, GGML_Q8_0, 0);
	refused(&b, "a: rows of 33, wanted whole blocks of 32 for Q8_0", "rows of part blocks");
	info(&b, "", 1, two, GGML_F32, 0);
	refused(&b, "a tensor name of 0 bytes", "an empty name");
	info(&b, "0123456789012345678901234567890123456789012345678901234567890123", 1, two,
	     GGML_F32, 0);
	refused(&b, "a tensor name of 64 bytes", "a name of 64 bytes");
	info(&b, "a", 1, two, GGML_F32, 32);
	refused(&b, "a: data at 32, wanted 0", "a first tensor not at 0");
	f32_tensor(&b, "a", 2, 0, NULL);
	f32_tensor(&b, "a", 2, 0, NULL);
	refused(&b, "tensor a comes twice", "a tensor twice");
	f32_tensor(&b, "a", 2, 0, NULL);
	info(&b, "b", 1, two, GGML_F32, 8);
	refused(&b, "b: data at 8, wanted 32", "a tensor without padding");
	info(&b, "a", 1, two, GGML_F32, 0);
	str_add(&b.data, "1234567", 7);
	refused(&b, "a: 8 bytes at", "a tensor with a byte cut off");
	info(&b, "a", 1, huge, GGML_F32, 0);
	refused(&b, "the file has", "a tensor of 4 TiB");
}

/* Every prefix of a good file is refused or harmless; every byte changed to another likewise. */
static void mangled(const char *file)
{
	struct str s = { 0 };
	struct err e = ERR_INIT;
	char *p = path_join(tap_tmp(), "x.gguf");
	long opened = 0, head;
	struct gguf g;

	if (file_read(&s, file, 0, &e) || gguf_open(&g, file, &e))
		bug("%s", e.msg);
	head = (long)g.tensor[0].offset;
	gguf_close(&g);
	for (long i = 0; i < head; i += 3) {
		if (file_write(p, s.s, (size_t)i, &e))
			bug("%s", e.msg);
		opened += !gguf_open(&g, p, &e);
	}
	ok(!opened, "no file that ends in its head opens");
	for (long i = 0; i < head; i += 2) {
		s.s[i] ^= (char)(1 << i / 2 % 8);
		if (file_write(p, s.s, s.len, &e))
			bug("%s", e.msg);
		s.s[i] ^= (char)(1 << i / 2 % 8);
		if (!gguf_open(&g, p, &e)) {
			opened++;
			gguf_close(&g);
		} else if (e.code != EX_DATAERR && e.code != EX_NOINPUT) {
			ok(0, "byte %ld: %s", i, e.msg);
		}
	}
	ok(opened < head / 2, "bits flipped in the head: %ld of %ld open", opened, head / 2);
	str_release(&s);
	free(p);
}

/* -- values
 * ------------------------------------------------------------------------------------------ */

static void values(void)
{
	struct build b = { 0 };
	struct gguf g;
	struct err e = ERR_INIT;
	const char *t;
	const void *items;
	double r;
	long n;
	bool yes;
	size_t count;
	char *p;

	key(&b, "u8", GGUF_U8); str_putc(&b.kv, 200);
	key(&b, "i8", GGUF_I8); str_putc(&b.kv, -3);
	key(&b, "i16", GGUF_I16); str_add(&b.kv, "\xfe\xff", 2);
	k_u32(&b, "u32", 4000000000u);
	key(&b, "u64", GGUF_U64); u64(&b.kv, UINT64_MAX);
	key(&b, "i64", GGUF_I64); u64(&b.kv, (uint64_t)-5);
	key(&b, "yes", GGUF_BOOL); str_putc(&b.kv, 1);
	k_f32(&b, "eps", 1e-5f);
	k_f32(&b, "nan", NAN);
	k_str(&b, "text", "abc");
	key(&b, "nul", GGUF_STRING); u64(&b.kv, 3); str_add(&b.kv, "a\0b", 3);
	array(&b, "list", GGUF_I32, 2); u32(&b.kv, 7); u32(&b.kv, (uint32_t)-8);
	array(&b, "none", GGUF_STRING, 0);
	p = finish(&b, 2);
	ok(!gguf_open(&g, p, &e) && g.nkv == 13 && !g.n, "a file of values, version 2");
	ok(!gguf_int(&g, "u8", &n, &e) && n == 200 && !gguf_int(&g, "i8", &n, &e) && n == -3 &&
		   !gguf_int(&g, "i16", &n, &e) && n == -2,
	   "small integers");
	ok(!gguf_int(&g, "u32", &n, &e) && n == 4000000000 && !gguf_int(&g, "i64", &n, &e) &&
		   n == -5,
	   "large integers");
	ok(gguf_int(&g, "u64", &n, &e) == -1 && e.code == EX_DATAERR, "2^64-1 is out of range");
	ok(gguf_int(&g, "absent", &n, &e) == -1 && strstr(e.msg, "absent is missing"),
	   "an absent key");
	ok(!gguf_int_or(&g, "absent", 9, &n, &e) && n == 9, "a default");
	ok(gguf_int_or(&g, "text", 9, &n, &e) == -1 && gguf_int_or(&g, "yes", 9, &n, &e) == -1 &&
		   gguf_int_or(&g, "list", 9, &n, &e) == -1,
	   "a default does not hide another type");
	ok(!gguf_real_or(&g, "eps", 0, &r, &e) && r == 1e-5, "1e-05 is the decimal");
	ok(gguf_real_or(&g, "nan", 0, &r, &e) == -1 && gguf_real_or(&g, "u8", 0, &r, &e) == -1,
	   "NaN and integers are no reals");
	ok(!gguf_bool_or(&g, "yes", false, &yes, &e) && yes &&
		   gguf_bool_or(&g, "u8", false, &yes, &e) == -1,
	   "bools");
	ok(!gguf_str(&g, "text", &t, &e) && !strcmp(t, "abc") && gguf_str(&g, "nul", &t, &e) == -1,
	   "strings");
	ok(!gguf_array(&g, "list", GGUF_I32, &items, &count, &e) && count == 2 &&
		   ((const int32_t *)items)[1] == -8,
	   "an array");
	ok(gguf_array(&g, "list", GGUF_U32, &items, &count, &e) == -1 &&
		   gguf_array(&g, "u8", GGUF_U8, &items, &count, &e) == -1 &&
		   !gguf_array(&g, "absent", GGUF_U8, &items, &count, &e) && !items &&
		   !gguf_array(&g, "none", GGUF_STRING, &items, &count, &e) && items && !count,
	   "arrays of another type, absent, empty");
	gguf_close(&g);
	free(p);
}

/* -- against gguf-py
 * ---------------------------------------------------------------------------------- */

static char *recorded(const char *name)
{
	const char *root = getenv("CAIRN_ROOT");

	return xasprintf("%s/tests/data/gguf/%s", root ? root : ".", name);
}

static float *load(const struct gguf *g, const struct gguf_tensor *t, long *n)
{
	struct tensor d = { 0 };
	struct err e = ERR_INIT;
	float *x;

	if (!t || gguf_describe(&d, g, t, &e))
		bug("%s", t ? e.msg : "no such tensor");
	*n = tensor_count(&d);
	x = xmalloc((size_t)*n * sizeof(float));
	if (gguf_read_f32(x, g, t, 0, gguf_rows(t), &e))
		bug("%s", e.msg);
	return x;
}

static void formats(const struct gguf *g)
{
	static const char *const types[] = { "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0",
					     "Q4_K", "Q5_K", "Q6_K", "F16",  "BF16" };

	for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++) {
		const struct gguf_tensor *t = gguf_tensor_find(g, types[i]);
		char name[16];
		float *x, *y;
		long n, m;

		snprintf(name, sizeof(name), "%s.f32", types[i]);
		x = load(g, t, &n);
		y = load(g, gguf_tensor_find(g, name), &m);
		ok(n == m && n > 20 && !strcmp(gguf_type_name(t->type), types[i]) &&
			   !memcmp(x, y, (size_t)n * 4),
		   "%s: %ld values, the same bits as gguf-py", types[i], n);
		free(x);
		free(y);
	}
}

static void hand_vectors(void)
{
	uint8_t b[34] = { 0x00, 0x38, 0x1f };
	float y[32];

	gguf_dequant(y, b, GGML_Q4_0, 32);
	ok(y[0] == 3.5f && y[16] == -3.5f, "Q4_0 by hand");
	memcpy(b, (uint8_t[]){ 0x00, 0x38, 0x00, 0xbc, 0x1f }, 5);
	gguf_dequant(y, b, GGML_Q4_1, 32);
	ok(y[0] == 6.5f && y[16] == -0.5f, "Q4_1 by hand");
	memcpy(b, (uint8_t[]){ 0x00, 0x3c, 1, 0, 0, 0, 3 }, 7);
	gguf_dequant(y, b, GGML_Q5_0, 32);
	ok(y[0] == 3 && y[16] == -16, "Q5_0 by hand");
	memcpy(b, (uint8_t[]){ 0x00, 0x34, 0x80 }, 3);
	gguf_dequant(y, b, GGML_Q8_0, 32);
	ok(y[0] == -32, "Q8_0 by hand");
}

static void reading(void)
{
	char *p = recorded("quants.gguf"), name[16] = "Q6_K";
	const struct gguf_tensor *t;
	struct gguf g;
	struct tensor d;
	struct err e = ERR_INIT;
	float *x, row[64];
	uint16_t half[7];
	long n;

	ok(!gguf_open(&g, p, &e) && g.n == 24, "what gguf-py wrote opens");
	formats(&g);
	t = gguf_tensor_find(&g, "Q4_0");
	ok(t && t->rank == 2 && t->shape[0] == 3 && t->shape[1] == 64 && t->bytes == 6 * 18,
	   "a shape, outermost first");
	x = load(&g, t, &n);
	ok(!gguf_read(row, &g, t, 1, 1, &e) && !memcmp(row, x + 64, sizeof(row)) &&
		   memcmp(row, x, sizeof(row)),
	   "one row of it");
	free(x);
	t = gguf_tensor_find(&g, "BF16");
	ok(!gguf_describe(&d, &g, t, &e) && d.dtype == DTYPE_BF16 && d.shape[0] == 3 &&
		   d.shape[1] == 7 && !gguf_read(half, &g, t, 2, 1, &e),
	   "BF16 comes as it is stored");
	t = gguf_tensor_find(&g, "Q3_K");
	ok(gguf_describe(&d, &g, t, &e) == -1 && e.code == EX_UNAVAILABLE && strstr(e.msg, "Q3_K"),
	   "Q3_K is refused by name");
	ok(gguf_read_f32(row, &g, t, 0, 1, &e) == -1 && e.code == EX_UNAVAILABLE, "and not read");
	ok(!gguf_tensor_find(&g, "Q4") && !strcmp(gguf_tensor_find(&g, name)->name, name),
	   "names are found");
	gguf_close(&g);
	free(p);
}

static void splits(void)
{
	char *p = recorded("split-00001-of-00002.gguf"),
	     *second = recorded("split-00002-of-00002.gguf"), *other;
	struct gguf g;
	struct err e = ERR_INIT;
	float x[3];

	ok(!gguf_open(&g, p, &e) && g.n == 3 && g.parts == 2,
	   "a split model opens by its first part");
	ok(!gguf_read_f32(x, &g, gguf_tensor_find(&g, "t2"), 0, 1, &e) && x[0] == 2 && x[2] == 4,
	   "a tensor of the second part");
	gguf_close(&g);
	ok(gguf_open(&g, second, &e) == -1 && e.code == EX_DATAERR &&
		   strstr(e.msg, "part 2 of 2, wanted part 1"),
	   "not by its second");
	other = path_join(tap_tmp(), "m-00001-of-00002.gguf");
	ok(!file_copy(p, other, &e) && gguf_open(&g, other, &e) == -1 && e.code == EX_NOINPUT &&
		   strstr(e.msg, "m-00002-of-00002.gguf"),
	   "a missing part is named");
	free(other);
	other = path_join(tap_tmp(), "m.gguf");
	ok(!file_copy(p, other, &e) && gguf_open(&g, other, &e) == -1 && e.code == EX_DATAERR &&
		   strstr(e.msg, "-00001-of-00002.gguf"),
	   "a first part under another name");
	free(other);
	free(p);
	free(second);
}

/* -- models
 * -------------------------------------------------------------------------------------------- */

static void same_weights(const struct gguf *g, const struct model_config *c)
{
	char *p = recorded("model.safetensors"), name[128];
	struct safetensors s;
	struct err e = ERR_INIT;
	int bad = 0, permuted = 0;

	if (safetensors_open(&s, p, &e))
		bug("%s", e.msg);
	for (long i = 0; i < g->n; i++) {
		const struct gguf_tensor *t = &g->tensor[i];
		const struct safetensors_entry *en =
			gguf_hf_name(name, c->model_type, t->name) ? NULL : safetensors_find(&s, name);
		long heads = gguf_permuted_heads(c, t->name), rows = gguf_rows(t);
		char *a, *b, *want;

		if (!en || en->bytes != t->bytes) {
			bad++;
			continue;
		}
		a = xmalloc(t->bytes);
		b = xmalloc(t->bytes);
		want = xmalloc(t->bytes);
		if (gguf_read(a, g, t, 0, rows, &e) ||
		    safetensors_read(want, &s, en, 0, en->bytes, &e))
			bug("%s", e.msg);
		if (heads) {
			gguf_unpermute_qk(b, a, rows, heads, t->bytes / (size_t)rows);
			permuted += memcmp(a, want, t->bytes) != 0;
		}
		bad += memcmp(heads ? b : a, want, t->bytes) != 0;
		free(a);
		free(b);
		free(want);
	}
	ok(s.n == g->n && !bad && permuted == 4,
	   "every tensor under its Hugging Face name, q and k in its order");
	safetensors_close(&s);
	free(p);
}

static void model(void)
{
	char *p = recorded("model.gguf");
	struct gguf g;
	struct model_config c;
	struct tokenizer_source s;
	struct err e = ERR_INIT;
	const char *template;

	ok(!gguf_open(&g, p, &e), "a model as the converter writes it opens");
	ok(!gguf_model_config(&c, &g, &e), "its config");
	is_str(c.model_type, "llama", "model_type");
	is_str(c.architecture, "LlamaForCausalLM", "architecture");
	ok(c.layers == 2 && c.hidden == 8 && c.intermediate == 20 && c.heads == 4 &&
		   c.kv_heads == 2 && c.head_dim == 6 && c.vocab == 18 && c.max_position == 64,
	   "sizes");
	ok(c.rms_eps == 1e-5 && c.rope.theta == 1e5 && c.rope.kind == ROPE_DEFAULT,
	   "epsilon and rope");
	ok(c.tied && !c.qkv_bias && !c.qk_norm && c.dtype == CONFIG_F16 && c.head == HEAD_LM,
	   "flags");
	ok(c.bos == 1 && c.neos == 1 && c.eos[0] == 0 && c.pad == -1, "special ids, each once");
	same_weights(&g, &c);
	ok(!gguf_tokenizer_source(&s, &g, &e) && !strcmp(s.model, "gpt2") &&
		   !strcmp(s.pre, "smollm") && s.n == 18 && s.nmerges == 2,
	   "a tokenizer");
	ok(!strcmp(s.tokens[17], "\xc4\xa0"
				 "ab") &&
		   s.token_len[17] == 4 && s.token_type[1] == 3 && !strcmp(s.merges[0], "a b") &&
		   s.merge_len[1] == 5 && !s.scores,
	   "its tokens and merges");
	ok(s.bos == 1 && s.eos == 0 && s.eot == 0 && s.unk == -1 && s.add_bos == 0 &&
		   s.add_eos == -1 && s.add_space_prefix == -1,
	   "its ids and flags");
	ok(!gguf_chat_template(&template, &g, &e) && !strcmp(template, "{{ messages }}\n"),
	   "a chat template");
	gguf_close(&g);
	mangled(p);
	free(p);
}

/* A small model with the given architecture; add what it should differ in before finish(). */
static void base(struct build *b, const char *arch, long d)
{
	static const struct { const char *key; int n;
	} keys[] = {
		{ "block_count", 1 },
		{ "context_length", 64 },
		{ "embedding_length", 4 },
		{ "feed_forward_length", 6 },
		{ "attention.head_count", 2 },
		{ "attention.key_length", 0 },
		{ "attention.value_length", 0 },
	};
	char name[64];

	k_str(b, "general.architecture", arch);
	for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++) {
		snprintf(name, sizeof(name), "%s.%s", arch, keys[i].key);
		k_u32(b, name, keys[i].n ? (uint32_t)keys[i].n : (uint32_t)d);
	}
	snprintf(name, sizeof(name), "%s.attention.layer_norm_rms_epsilon", arch);
	k_f32(b, name, 1e-6f);
	f32_tensor(b, "token_embd.weight", 4, 5, NULL);
}

static int config(struct model_config *c, struct build *b, struct err *e)
{
	char *p = finish(b, 3);
	struct gguf g;
	int rc;

	if (gguf_open(&g, p, e))
		bug("%s", e->msg);
	rc = gguf_model_config(c, &g, e);
	gguf_close(&g);
	free(p);
	return rc;
}

static void config_refused(struct build *b, int code, const char *message, const char *what)
{
	struct model_config c;
	struct err e = ERR_INIT;
	int rc = config(&c, b, &e);

	ok(rc == -1 && e.code == code && strstr(e.msg, message), "refused: %s", what);
	if (!rc || e.code != code || !strstr(e.msg, message))
		printf("# rc %d code %d: %s\n", rc, e.code, e.msg);
}

static void configs(void)
{
	struct build b = { 0 };
	struct model_config c;
	struct err e = ERR_INIT;

	base(&b, "qwen2", 2);
	f32_tensor(&b, "blk.0.attn_q.bias", 4, 0, NULL);
	f32_tensor(&b, "output.weight", 4, 5, NULL);
	ok(!config(&c, &b, &e) && !strcmp(c.model_type, "qwen2") && c.qkv_bias && !c.tied &&
		   c.kv_heads == 2 && c.rope.theta == 1e4,
	   "qwen2: biases, its own head, defaults");
	base(&b, "qwen3", 8);
	array(&b, "qwen3.attention.head_count_kv", GGUF_I32, 1);
	u32(&b.kv, 1);
	k_f32(&b, "qwen3.rope.freq_base", 1e6f);
	ok(!config(&c, &b, &e) && c.qk_norm && !c.qkv_bias && c.head_dim == 8 && c.kv_heads == 1 &&
		   c.rope.theta == 1e6 && c.tied,
	   "qwen3: q and k norms, wide heads, a size given per layer");
	base(&b, "llama", 2);
	k_str(&b, "llama.rope.scaling.type", "linear");
	k_f32(&b, "llama.rope.scaling.factor", 4);
	ok(!config(&c, &b, &e) && c.rope.kind == ROPE_LINEAR && c.rope.factor == 4,
	   "linear scaling");
	base(&b, "qwen3", 2);
	k_str(&b, "qwen3.rope.scaling.type", "yarn");
	k_f32(&b, "qwen3.rope.scaling.factor", 4);
	k_u32(&b, "qwen3.rope.scaling.original_context_length", 32);
	ok(!config(&c, &b, &e) && c.rope.kind == ROPE_YARN && c.rope.factor == 4 &&
		   c.rope.original_max_position == 32 && c.rope.beta_fast == 32 &&
		   c.rope.beta_slow == 1 && c.rope.truncate,
	   "yarn");
	config_refused((base(&b, "gemma3", 2), &b), EX_UNAVAILABLE, "\"gemma3\"",
		       "another architecture");
	base(&b, "llama", 2);
	k_u32(&b, "llama.expert_count", 8);
	config_refused(&b, EX_DATAERR, "expert_used_count", "experts of which no one says how many a token visits");
	base(&b, "llama", 2);
	k_u32(&b, "llama.expert_count", 8);
	k_u32(&b, "llama.expert_used_count", 9);
	config_refused(&b, EX_DATAERR, "num_experts_per_tok: found 9", "more of them than there are");
	base(&b, "llama", 2);
	k_u32(&b, "llama.expert_count", 8);
	k_u32(&b, "llama.expert_used_count", 2);
	ok(!config(&c, &b, &e) && !strcmp(c.model_type, "mixtral") && c.moe.experts == 8 && c.moe.experts_per_token == 2 &&
	   c.moe.intermediate == c.intermediate && c.moe.norm_topk && model_config_moe_layers(&c) == c.layers, "llama with experts is mixtral");
	base(&b, "qwen2", 2);
	k_u32(&b, "qwen2.expert_count", 8);
	config_refused(&b, EX_UNAVAILABLE, "a mixture of experts", "experts where there are none");
	base(&b, "llama", 4);
	k_u32(&b, "llama.rope.dimension_count", 2);
	config_refused(&b, EX_UNAVAILABLE, "part of a head", "partial rotary embedding");
	base(&b, "llama", 2);
	k_str(&b, "llama.rope.scaling.type", "longrope");
	config_refused(&b, EX_UNAVAILABLE, "longrope", "longrope");
	base(&b, "llama", 2);
	k_f32(&b, "llama.logit_scale", 0.5f);
	config_refused(&b, EX_UNAVAILABLE, "logit_scale", "a scale of the logits");
	base(&b, "llama", 2);
	array(&b, "llama.attention.head_count_kv", GGUF_I32, 2);
	u32(&b.kv, 1);
	u32(&b.kv, 2);
	config_refused(&b, EX_UNAVAILABLE, "differs from layer to layer",
		       "sizes that differ by layer");
	base(&b, "llama", 2);
	k_u32(&b, "llama.vocab_size", 6);
	config_refused(&b, EX_DATAERR, "5 rows, wanted 6",
		       "a vocabulary that is not the embedding's");
	base(&b, "llama", 2);
	k_str(&b, "llama.attention.head_count_kv", "two");
	config_refused(&b, EX_DATAERR, "found string, wanted an integer",
		       "a size that is a string");
	k_str(&b, "general.architecture", "llama");
	config_refused(&b, EX_DATAERR, "layer_norm_rms_epsilon is missing", "no epsilon");
	config_refused(&b, EX_DATAERR, "general.architecture is missing", "no architecture");
}

/* rope_freqs as recorded: name, head size and base of the model, and what must come of it. */
static void rope(const char *name, long d, float theta, double factor, double high, double original)
{
	char *p = recorded("quants.gguf"), what[64];
	struct build b = { 0 };
	struct model_config c;
	struct gguf g;
	struct err e = ERR_INIT;
	float *x;
	long n;

	if (gguf_open(&g, p, &e))
		bug("%s", e.msg);
	x = load(&g, gguf_tensor_find(&g, name), &n);
	base(&b, "llama", d);
	k_f32(&b, "llama.rope.freq_base", theta);
	f32_tensor(&b, "rope_freqs.weight", (uint64_t)n, 0, x);
	snprintf(what, sizeof(what), "%s", name);
	ok(!config(&c, &b, &e) && c.rope.kind == ROPE_LLAMA3 && c.rope.factor == factor &&
		   c.rope.low_freq_factor == 1 && c.rope.high_freq_factor == high &&
		   c.rope.original_max_position == original,
	   "%s is llama3 scaling", what);
	printf("# factor %g low %g high %g original %g %s\n", c.rope.factor, c.rope.low_freq_factor,
	       c.rope.high_freq_factor, c.rope.original_max_position, e.msg);
	for (long i = 0; i < n; i++)
		if (x[i] > 1 && x[i] < factor) {
			x[i] *= 1.0001f;
			break;
		}
	base(&b, "llama", d);
	k_f32(&b, "llama.rope.freq_base", theta);
	f32_tensor(&b, "rope_freqs.weight", (uint64_t)n, 0, x);
	config_refused(&b, EX_UNAVAILABLE, "rope_freqs.weight that no llama3 scaling gives",
		       "one divisor off by 1e-4");
	free(x);
	gguf_close(&g);
	free(p);
}

static void names(void)
{
	char out[128];

	ok(!gguf_hf_name(out, "qwen3", "blk.12.attn_q_norm.weight") &&
		   !strcmp(out, "model.layers.12.self_attn.q_norm.weight"),
	   "q_norm");
	ok(!gguf_hf_name(out, "qwen3", "blk.0.attn_k.bias") &&
		   !strcmp(out, "model.layers.0.self_attn.k_proj.bias"),
	   "k bias");
	ok(!gguf_hf_name(out, "qwen3", "output.weight") && !strcmp(out, "lm_head.weight"), "lm_head");
	ok(gguf_hf_name(out, "qwen3", "rope_freqs.weight") == 1, "rope_freqs is no weight");
	ok(!gguf_hf_name(out, "qwen3_moe", "blk.3.ffn_gate_exps.weight") &&
		   !strcmp(out, "model.layers.3.mlp.experts.gate_proj.weight") &&
		   !gguf_hf_name(out, "mixtral", "blk.3.ffn_down_exps.weight") &&
		   !strcmp(out, "model.layers.3.block_sparse_moe.experts.w2.weight") &&
		   !gguf_hf_name(out, "mixtral", "blk.3.ffn_gate_inp.weight") &&
		   !strcmp(out, "model.layers.3.block_sparse_moe.gate.weight"), "experts, by family");
	ok(gguf_hf_name(out, "qwen3", "blk.0.ffn_gate_exp.weight") == -1 &&
		   gguf_hf_name(out, "qwen3", "blk.x.attn_q.weight") == -1 &&
		   gguf_hf_name(out, "qwen3", "blk.00.attn_q.weight") == -1 &&
		   gguf_hf_name(out, "qwen3", "blk.0.attn_q") == -1 &&
		   gguf_hf_name(out, "qwen3", "foo.weight") == -1 &&
		   gguf_hf_name(out, "qwen3", "blk.99999999999999999999.attn_q.weight") == -1,
	   "names that are none");
}

static void unpermute(void)
{
	/* two heads of four rows, one byte a row: in[h, 2 i + j] is out[h, j 2 + i] */
	char out[9] = "";

	gguf_unpermute_qk(out, "acbdeghi", 8, 2, 1);
	is_str(out, "abcdehgi", "rows of two heads by hand");
}

/* The real file, where CAIRN_SMOLLM2_GGUF names it; prints a digest of every tensor for a
 * comparison. */
static void smollm2(void)
{
	const char *p = getenv("CAIRN_SMOLLM2_GGUF");
	long mix[GGML_TYPES] = { 0 }, n;
	struct gguf g;
	struct model_config c;
	struct tokenizer_source s;
	struct err e = ERR_INIT;
	char hex[33], name[128];

	if (!p) {
		skip("CAIRN_SMOLLM2_GGUF is not set", "SmolLM2-135M-Instruct");
		return;
	}
	ok(!gguf_open(&g, p, &e) && g.n == 272, "SmolLM2 opens: %s", e.msg);
	ok(!gguf_model_config(&c, &g, &e) && c.vocab == 49152 && c.hidden == 576 &&
		   c.intermediate == 1536 && c.layers == 30 && c.heads == 9 && c.kv_heads == 3 &&
		   c.head_dim == 64 && c.rope.theta == 1e5 && c.rms_eps == 1e-5 && c.tied,
	   "its config: %s", e.msg);
	ok(!gguf_tokenizer_source(&s, &g, &e) && s.n == 49152 && s.nmerges == 48900 &&
		   s.add_bos == 0,
	   "its tokenizer: %s", e.msg);
	for (long i = 0; i < g.n; i++) {
		float *x = load(&g, &g.tensor[i], &n);

		mix[g.tensor[i].type]++;
		if (gguf_hf_name(name, c.model_type, g.tensor[i].name))
			ok(0, "%s has no Hugging Face name", g.tensor[i].name);
		if (getenv("CAIRN_DIGESTS"))
			printf("# %s %s\n", digest_hex(hex, hash128(x, (size_t)n * 4)),
			       g.tensor[i].name);
		free(x);
	}
	ok(mix[GGML_F32] == 61 && mix[GGML_Q4_1] == 210 && mix[GGML_Q8_0] == 1,
	   "61 tensors of F32, 210 of Q4_1, 1 of Q8_0");
	gguf_close(&g);
}

int main(void)
{
	bad_heads();
	bad_keys();
	bad_alignments();
	bad_tensors();
	values();
	hand_vectors();
	reading();
	splits();
	names();
	unpermute();
	model();
	configs();
	rope("rope31", 128, 500000, 8, 4, 8192);
	rope("rope32", 64, 500000, 32, 4, 8192);
	rope("rope_odd", 64, 10000, 16, 3, 1024);
	smollm2();
	return done();
}
