#include "formats/safetensors.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libcommon/file.h"
#include "tests/lib/tap.h"

static char *path(const char *name)
{
	return path_join(tap_tmp(), name);
}

static char *recorded(const char *name)
{
	const char *root = getenv("CAIRN_ROOT");

	return xasprintf("%s/tests/data/%s", root ? root : ".", name);
}

/* A file of the header's length (or `claim` where that is not 0), the header and n bytes of data.
 */
static char *make_raw(const char *name, const char *head, size_t len, uint64_t claim, size_t n)
{
	char *p = path(name), zero[256] = { 0 };
	FILE *f = fopen(p, "wb");
	uint64_t v = claim ? claim : len;

	if (!f || fwrite(&v, 8, 1, f) != 1 || fwrite(head, 1, len, f) != len ||
	    fwrite(zero, 1, n, f) != n || fclose(f))
		bug("%s", p);
	return p;
}

static char *make(const char *name, const char *head, size_t n)
{
	return make_raw(name, head, strlen(head), 0, n);
}

static void refused(char *p, const char *message, const char *what)
{
	struct safetensors s;
	struct err e = ERR_INIT;
	int rc = safetensors_open(&s, p, &e);

	ok(rc == -1 && e.code == EX_DATAERR && strstr(e.msg, message) && strstr(e.msg, p),
	   "refused: %s", what);
	if (!rc || !strstr(e.msg, message))
		printf("# rc %d code %d: %s (wanted: %s)\n", rc, e.code, rc ? e.msg : "", message);
	if (!rc)
		safetensors_close(&s);
	unlink(p);
	free(p);
}

static void accepted(char *p, long n, const char *what)
{
	struct safetensors s;
	struct err e = ERR_INIT;
	int rc = safetensors_open(&s, p, &e);

	ok(!rc && s.n == n, "accepted: %s", what);
	if (rc)
		printf("# %s\n", e.msg);
	else
		safetensors_close(&s);
	unlink(p);
	free(p);
}

#define T(name, dtype, shape, off)                                                                 \
	"\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" off "}"

static void bad_containers(void)
{
	static const char zero[7];
	char *p = path("short");
	FILE *f = fopen(p, "wb");

	if (!f || fwrite(zero, 1, 7, f) != 7 || fclose(f))
		bug("%s", p);
	refused(p, "7 bytes, too short", "less than 8 bytes");
	refused(make_raw("x", "{}", 2, 3, 0), "header of 3 bytes, wanted at most 2",
		"a header longer than the file");
	refused(make_raw("x", "{}", 2, 100000001, 0), "header of 100000001",
		"a header over 100,000,000 bytes");
	refused(make_raw("x", "{}", 2, UINT64_MAX, 0), "header of 18446744073709551615",
		"a header of 2^64-1 bytes");
	refused(make("x", "", 0), "x", "an empty header");
	refused(make("x", "{\"a\xff\":1}", 0), "UTF-8", "a header that is not UTF-8");
	refused(make("x", "{hello", 0), "x", "a header that is not JSON");
	refused(make("x", "{}x", 0), "x", "text behind the object");
	refused(make_raw("x", "{}\0\0", 4, 0, 0), "x", "NULs behind the object");
	refused(make("x", "[]", 0), "found an array, wanted an object", "an array at the top");
	refused(make("x", "{" T("a", "U8", "[1]", "[0,1]") "," T("a", "U8", "[1]", "[1,2]") "}", 2),
		"\"a\"", "a name twice");
	refused(make("x", "{" T("a\\u0000b", "U8", "[1]", "[0,1]") "}", 1), "NUL",
		"a NUL in a name");
	refused(make("x", "{\"__metadata__\":{\"format\":1}}", 0),
		"found a number, wanted a string", "metadata that is no string");
	refused(make("x", "{\"__metadata__\":[]}", 0), "__metadata__",
		"metadata that is no object");
}

static void bad_entries(void)
{
	refused(make("x", "{\"a\":3}", 0), "a: found a number, wanted an object",
		"a tensor that is no object");
	refused(make("x", "{\"a\":{\"shape\":[1],\"data_offsets\":[0,1]}}", 1), "a: dtype",
		"no dtype");
	refused(make("x", "{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,1]}}", 1), "a: shape",
		"no shape");
	refused(make("x", "{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", 1), "a: data_offsets",
		"no offsets");
	refused(make("x", "{" T("a", "F33", "[1]", "[0,1]") "}", 1), "a: dtype: found F33",
		"an unknown dtype");
	refused(make("x", "{" T("a", "U8", "[-1]", "[0,1]") "}", 1), "a: shape", "a negative size");
	refused(make("x", "{" T("a", "U8", "[1.0]", "[0,1]") "}", 1), "a: shape",
		"a size that is a float");
	refused(make("x", "{" T("a", "U8", "[\"1\"]", "[0,1]") "}", 1), "a: shape",
		"a size that is a string");
	refused(make("x", "{" T("a", "U8", "[18446744073709551616]", "[0,1]") "}", 1), "a: shape",
		"a size of 2^64");
	refused(make("x", "{" T("a", "U8", "[9223372036854775808]", "[0,1]") "}", 1), "too large",
		"a size of 2^63");
	refused(make("x", "{" T("a", "U8", "[4294967296,4294967296,4]", "[0,1]") "}", 1),
		"overflows", "a shape of 2^66");
	refused(make("x", "{" T("a", "F64", "[4294967296,1073741824]", "[0,1]") "}", 1),
		"overflows", "2^62 elements of 64 bits");
	refused(make("x", "{" T("a", "U8", "[4]", "[4,0]") "}", 4), "begin 4 is behind end 0",
		"offsets swapped");
	refused(make("x", "{" T("a", "U8", "[1]", "[0,1,2]") "}", 1), "a: data_offsets",
		"three offsets");
	refused(make("x", "{" T("a", "U8", "[1]", "[-1,0]") "}", 1), "a: data_offsets",
		"a negative offset");
	refused(make("x", "{" T("a", "F4", "[3]", "[0,1]") "}", 1), "no whole bytes",
		"three elements of F4");
	refused(make("x", "{" T("a", "F32", "[1000,1000]", "[0,4]") "}", 4),
		"a: data_offsets give 4 bytes, dtype and shape need 4000000",
		"a shape larger than its bytes");
	refused(make("x", "{" T("w", "F32", "[2]", "[0,8]") "," T("e", "F32", "[1]", "[8,8]") "}",
		     8),
		"e: data_offsets give 0 bytes, dtype and shape need 4", "an element without bytes");
}

static void bad_tilings(void)
{
	refused(make("x", "{" T("a", "U8", "[2]", "[0,2]") "," T("b", "U8", "[2]", "[3,5]") "}", 5),
		"b: data begins at 3, wanted 2", "a hole");
	refused(make("x", "{" T("a", "U8", "[2]", "[0,2]") "," T("b", "U8", "[2]", "[1,3]") "}", 3),
		"b: data begins at 1, wanted 2", "an overlap");
	refused(make("x", "{" T("a", "U8", "[2]", "[0,2]") "," T("b", "U8", "[2]", "[0,2]") "}", 2),
		"(overlap)", "the same bytes twice");
	refused(make("x", "{" T("a", "U8", "[2]", "[1,3]") "}", 3), "a: data begins at 1, wanted 0",
		"a first tensor not at 0");
	refused(make("x", "{" T("a", "U8", "[64]", "[0,64]") "}", 63),
		"declares 64 bytes of data, the file has 63", "a byte cut off");
	refused(make("x", "{" T("a", "U8", "[64]", "[0,64]") "}", 65),
		"declares 64 bytes of data, the file has 65", "a byte too many");
	refused(make("x", "{}", 1), "declares 0 bytes of data, the file has 1",
		"data without a tensor");
}

static void good_files(void)
{
	accepted(make("x", "{}", 0), 0, "an empty object");
	accepted(make("x", " \t\r\n{} \t\r\n", 0), 0, "white space on both sides");
	accepted(make("x", "{" T("s", "F32", "[]", "[0,4]") "}", 4), 1, "a scalar");
	accepted(make("x",
		      "{" T("w", "F32", "[2]", "[0,8]") "," T("e", "F32", "[0]",
							      "[8,8]") "," T("f", "F32", "[0,5]",
									     "[0,0]") "}",
		      8),
		 3, "tensors of no elements");
	accepted(make("x", "{" T("b", "U8", "[2]", "[3,5]") "," T("a", "U8", "[3]", "[0,3]") "}",
		      5),
		 2, "any order in the header");
	accepted(make("x", "{" T("a", "U8", "[1]", "[0,1]") "," T("b", "F32", "[1]", "[1,5]") "}",
		      5),
		 2, "unaligned data");
	accepted(make("x", "{" T("\\u00e9\\ud83d\\ude00", "U8", "[1]", "[0,1]") "}", 1), 1,
		 "an escaped name");
	accepted(
		make("x",
		     "{\"a\":{\"more\":[1],\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}",
		     1),
		1, "an unknown key");
	accepted(make("x", "{\"__metadata__\":{\"format\":\"pt\",\"a\":\"b\"}}", 0), 0, "metadata");
}

/* Types and ranks that struct tensor lacks: the file opens, the tensor is 69. */
static void unsupported(void)
{
	static const char *const types[] = { "F4",	    "F6_E2M3",	   "F6_E3M2",
					     "F8_E4M3FNUZ", "F8_E5M2FNUZ", "C64" };
	static const int bits[] = { 4, 6, 6, 8, 8, 64 };
	struct safetensors s;
	struct tensor t;
	char head[200], buf[64];

	for (int i = 0; i < 6; i++) {
		struct err e = ERR_INIT, r = ERR_INIT;
		char *p;

		snprintf(head, sizeof(head),
			 "{\"a\":{\"dtype\":\"%s\",\"shape\":[8],\"data_offsets\":[0,%d]}}",
			 types[i], bits[i]);
		p = make("x", head, (size_t)bits[i]);
		ok(!safetensors_open(&s, p, &e) && s.n == 1, "a file with %s opens", types[i]);
		ok(safetensors_describe(&t, &s, &s.entry[0], &e) == -1 &&
			   e.code == EX_UNAVAILABLE && strstr(e.msg, types[i]) &&
			   safetensors_read(buf, &s, &s.entry[0], 0, 1, &r) == -1 &&
			   r.code == EX_UNAVAILABLE,
		   "%s is refused by name", types[i]);
		safetensors_close(&s);
		free(p);
	}
	struct err e = ERR_INIT;
	char *p = make("x", "{" T("a", "U8", "[1,1,1,1,1,1,1,1,1]", "[0,1]") "}", 1);
	ok(!safetensors_open(&s, p, &e) && safetensors_describe(&t, &s, &s.entry[0], &e) == -1 &&
		   e.code == EX_UNAVAILABLE,
	   "nine dimensions: the file opens, the tensor is refused");
	safetensors_close(&s);
	free(p);
}

/* -- against the reference writer
 * ------------------------------------------------------------------ */

static int from_file(void *out, void *arg, const struct tensor *t, uint64_t offset, size_t n,
		     struct err *e)
{
	return safetensors_read(out, arg, safetensors_find(arg, t->name), offset, n, e);
}

static bool same_file(const char *a, const char *b)
{
	struct str x = { 0 }, y = { 0 };
	struct err e = ERR_INIT;
	bool same = !file_read(&x, a, 0, &e) && !file_read(&y, b, 0, &e) && x.len == y.len &&
		    !memcmp(x.s, y.s, x.len);

	str_release(&x);
	str_release(&y);
	return same;
}

static struct tensor *describe_all(const struct safetensors *s)
{
	struct tensor *t = xcalloc((size_t)s->n + 1, sizeof(*t));
	struct err e = ERR_INIT;

	for (long i = 0; i < s->n; i++)
		if (safetensors_describe(&t[i], s, &s->entry[i], &e))
			bug("%s", e.msg);
	return t;
}

static void reference(void)
{
	char *from = recorded("safetensors/all.safetensors"), *to = path("again.safetensors");
	const struct safetensors_entry *en;
	struct safetensors s;
	struct err e = ERR_INIT;
	struct tensor *t;
	struct stat st;

	ok(!safetensors_open(&s, from, &e) && s.n == 40, "the recorded file opens");
	is_str(s.format, "pt", "its format");
	en = safetensors_find(&s, "bf16.weight");
	ok(en && en->dtype == DTYPE_BF16 && en->rank == 2 && en->shape[0] == 3 &&
		   en->shape[1] == 5 && en->bytes == 30,
	   "a tensor of it");
	ok(safetensors_find(&s, "\xc3\xa9\xe4\xb8\xad\xf0\x9f\x98\x80") &&
		   !safetensors_find(&s, "bf16"),
	   "names are found");
	t = describe_all(&s);
	umask(027);
	ok(!safetensors_write(to, t, s.n, from_file, &s, &e) && same_file(from, to),
	   "written again: the same bytes");
	ok(!stat(to, &st) && (st.st_mode & 0777) == 0640, "its mode follows the umask");
	ok(safetensors_write(to, t, s.n, from_file, &s, &e) == -1 && e.code == EX_CANTCREAT,
	   "an existing file is not replaced");
	umask(022);
	unlink(to);
	for (long i = 0; i < s.n; i++) {
		t[i].data = xmalloc(tensor_bytes(&t[i]) + 1);
		if (safetensors_read(t[i].data, &s, &s.entry[i], 0, tensor_bytes(&t[i]), &e))
			bug("%s", e.msg);
	}
	ok(!safetensors_write(to, t, s.n, NULL, NULL, &e) && same_file(from, to),
	   "from memory: the same bytes");
	((char *)t[0].data)[0] ^= 1;
	unlink(to);
	ok(!safetensors_write(to, t, s.n, NULL, NULL, &e) && !same_file(from, to),
	   "one bit changed: other bytes");
	unlink(to);
	for (long i = 0; i < s.n; i++)
		free(t[i].data);
	free(t);
	safetensors_close(&s);
	free(from);
	free(to);
}

static int fails(void *out, void *arg, const struct tensor *t, uint64_t offset, size_t n,
		 struct err *e)
{
	(void)out, (void)arg, (void)offset, (void)n;
	return err_set(e, EX_IOERR, "%s: no", t->name);
}

static void writer_failures(void)
{
	struct tensor t = { .name = "a", .dtype = DTYPE_U8, .rank = 1, .shape = { 3 } };
	struct err e = ERR_INIT;
	char *p = path("failed.safetensors");

	ok(safetensors_write(p, &t, 1, fails, NULL, &e) == -1 && e.code == EX_IOERR &&
		   !file_exists(p),
	   "a failed write leaves no file");
	ok(safetensors_write("/nonexistent/x", &t, 1, fails, NULL, &e) == -1 && e.code != 0,
	   "no such directory");
	free(p);
}

/* -- folders
 * ----------------------------------------------------------------------------------------- */

static char *folder(const char *name)
{
	char *p = path(name);

	if (mkdir(p, 0755))
		bug("%s", p);
	return p;
}

static void put(const char *dir, const char *name, const char *text)
{
	char *p = path_join(dir, name);
	struct err e = ERR_INIT;

	if (file_write(p, text, strlen(text), &e))
		bug("%s", e.msg);
	free(p);
}

static void sharding(void)
{
	float x[3][2] = { { 1, 2 }, { 3, 4 }, { 5, 6 } }, y[2];
	struct tensor t[3];
	const char *const names[] = { "c", "a", "b" };
	struct safetensors_set s;
	struct err e = ERR_INIT;
	struct str index = { 0 };
	char *dir = folder("sharded"), *one = folder("one"), *p;

	for (int i = 0; i < 3; i++)
		t[i] = (struct tensor){ .name = (char *)names[i],
					.dtype = DTYPE_F32,
					.rank = 1,
					.shape = { 2 },
					.data = x[i] };
	ok(!safetensors_write_dir(dir, t, 3, 16, NULL, NULL, &e), "written in shards of 16 bytes");
	p = path_join(dir, "model.safetensors.index.json");
	ok(!file_read(&index, p, 0, &e), "an index is there");
	is_str(index.s,
	       "{\n  \"metadata\": {\n    \"total_size\": 24\n  },\n  \"weight_map\": {\n"
	       "    \"a\": \"model-00001-of-00002.safetensors\",\n    \"b\": \"model-00002-of-00002.safetensors\",\n"
	       "    \"c\": \"model-00001-of-00002.safetensors\"\n  }\n}\n",
	       "its text");
	free(p);
	str_release(&index);
	ok(!safetensors_set_open(&s, dir, &e) && s.n == 3 && s.nfiles == 2, "read as a set");
	ok(s.n == 3 && !strcmp(s.item[0].entry->name, "a") && !strcmp(s.item[2].entry->name, "c"),
	   "in order of names");
	ok(!safetensors_read(y, s.item[1].file, s.item[1].entry, 0, 8, &e) && y[0] == 5 &&
		   y[1] == 6,
	   "b has its own values");
	ok(!safetensors_read(y, s.item[2].file, s.item[2].entry, 4, 4, &e) && y[0] == 2,
	   "a part of a tensor");
	safetensors_set_close(&s);
	ok(!safetensors_write_dir(one, t, 3, 24, NULL, NULL, &e), "24 bytes: one file");
	p = path_join(one, "model.safetensors");
	ok(file_exists(p) && !safetensors_set_open(&s, one, &e) && s.n == 3 && s.nfiles == 1,
	   "it is model.safetensors");
	safetensors_set_close(&s);
	ok(!safetensors_set_open(&s, p, &e) && s.n == 3, "opened by its own name");
	safetensors_set_close(&s);
	free(p);
	free(dir);
	free(one);
}

static void big_tensor_has_its_own_shard(void)
{
	float x[8] = { 0 };
	struct tensor t[3];
	struct safetensors_set s;
	struct err e = ERR_INIT;
	char *dir = folder("big"), name[] = "a";

	for (int i = 0; i < 3; i++) {
		t[i] = (struct tensor){ .name = xstrdup(name),
					.dtype = DTYPE_F32,
					.rank = 1,
					.shape = { i == 1 ? 8 : 1 },
					.data = x };
		name[0]++;
	}
	ok(!safetensors_write_dir(dir, t, 3, 16, NULL, NULL, &e) &&
		   !safetensors_set_open(&s, dir, &e) && s.nfiles == 3 && s.file[1].n == 1 &&
		   s.file[1].entry[0].bytes == 32,
	   "a tensor over the limit has a shard of its own");
	safetensors_set_close(&s);
	for (int i = 0; i < 3; i++)
		free(t[i].name);
	free(dir);
}

static void set_refused(const char *dir, int code, const char *message, const char *what)
{
	struct safetensors_set s;
	struct err e = ERR_INIT;
	int rc = safetensors_set_open(&s, dir, &e);

	ok(rc == -1 && e.code == code && strstr(e.msg, message), "refused: %s", what);
	if (!rc || e.code != code || !strstr(e.msg, message))
		printf("# rc %d code %d: %s\n", rc, e.code, e.msg);
	if (!rc)
		safetensors_set_close(&s);
}

static void index_with(const char *dir, const char *map)
{
	char *text = xasprintf("{\"metadata\":{\"total_size\":1},\"weight_map\":%s}", map);

	put(dir, "model.safetensors.index.json", text);
	free(text);
}

static void bad_folders(void)
{
	char *dir = folder("bad"), *a, *b;
	struct safetensors_set s;
	struct err e = ERR_INIT;

	set_refused(dir, EX_NOINPUT, "no model.safetensors", "a folder without weights");
	set_refused("/nonexistent", EX_NOINPUT, "/nonexistent", "no such path");
	a = make("bad/a.safetensors",
		 "{" T("x", "U8", "[1]", "[0,1]") "," T("y", "U8", "[1]", "[1,2]") "}", 2);
	index_with(dir, "{\"x\":\"../a.safetensors\"}");
	set_refused(dir, EX_DATAERR, "no bare file name", "a path upwards in the index");
	index_with(dir, "{\"x\":\"/etc/passwd\"}");
	set_refused(dir, EX_DATAERR, "no bare file name", "an absolute path in the index");
	index_with(dir, "{\"x\":\"..\"}");
	set_refused(dir, EX_DATAERR, "no bare file name", "the folder above in the index");
	index_with(dir, "{\"x\":\"\"}");
	set_refused(dir, EX_DATAERR, "no bare file name", "an empty name in the index");
	index_with(dir, "{\"x\":3}");
	set_refused(dir, EX_DATAERR, "wanted a file name", "a number in the index");
	index_with(dir, "[]");
	set_refused(dir, EX_DATAERR, "weight_map", "an index that is no map");
	index_with(dir, "{\"x\":\"a.safetensors\",\"z\":\"b.safetensors\"}");
	set_refused(dir, EX_NOINPUT, "b.safetensors", "a shard that is absent");
	index_with(dir, "{\"x\":\"a.safetensors\",\"z\":\"a.safetensors\"}");
	set_refused(dir, EX_DATAERR, "z is not in a.safetensors", "a mapped tensor that is absent");
	b = make("bad/b.safetensors",
		 "{" T("z", "U8", "[1]", "[0,1]") "," T("y", "U8", "[1]", "[1,2]") "}", 2);
	index_with(dir, "{\"x\":\"a.safetensors\",\"z\":\"b.safetensors\"}");
	set_refused(dir, EX_DATAERR, "y: the same tensor is in", "a tensor in two shards");
	index_with(dir, "{\"x\":\"a.safetensors\"}");
	verbosity = -1;
	ok(!safetensors_set_open(&s, dir, &e) && s.n == 1 && !safetensors_set_find(&s, "y") &&
		   safetensors_set_find(&s, "x"),
	   "an unmapped tensor is left out");
	verbosity = 0;
	safetensors_set_close(&s);
	free(a);
	free(b);
	free(dir);
}

static void fp8(void)
{
	uint8_t w[3 * 130];
	float out[3 * 130], tight[2] = { 2, 4 }, padded[4] = { 2, 4, 9, 9 };
	struct err e = ERR_INIT;
	int bad = 0;

	memset(w, 0x38, sizeof(w));     /* 1.0 */
	ok(!safetensors_dequant_fp8(out, w, tight, 3, 130, 1, 2, 128, 128, "w", &e), "edge blocks");
	for (int i = 0; i < 390; i++)
		bad += out[i] != (i % 130 < 128 ? 2 : 4);
	ok(!bad, "have their own scales");
	ok(!safetensors_dequant_fp8(out, w, padded, 3, 130, 2, 2, 128, 128, "w", &e),
	   "a padded grid");
	for (int i = 0; i < 390; i++)
		bad += out[i] != (i % 130 < 128 ? 2 : 4);
	ok(!bad, "its padding is not looked at");
	ok(!safetensors_dequant_fp8(out, w, (float[]){ 2, 9, 4, 9 }, 130, 3, 2, 2, 128, 128, "w",
				    &e),
	   "a grid padded to the right");
	for (int i = 0; i < 390; i++)
		bad += out[i] != (i / 3 < 128 ? 2 : 4);
	ok(!bad, "rows have their own scales");
	ok(safetensors_dequant_fp8(out, w, tight, 3, 130, 1, 1, 128, 128, "w", &e) == -1 &&
		   e.code == EX_DATAERR && strstr(e.msg, "w: scales [1, 1], wanted [1, 2]"),
	   "a grid that is too small");
	w[0] = 0xc4;    /* -2^1 * 1.5 */
	w[131] = 1;     /* 2^-9 */
	ok(!safetensors_dequant_fp8(out, w, tight, 3, 130, 1, 2, 128, 128, "w", &e) &&
		   out[0] == -6 && out[131] == 2 * 0.001953125f,
	   "values by hand");
	ok(safetensors_dequant_fp8(out, w, tight, 3, 130, 1, 2, 0, 128, "w", &e) == -1,
	   "blocks of no rows");
}

int main(void)
{
	bad_containers();
	bad_entries();
	bad_tilings();
	good_files();
	unsupported();
	reference();
	writer_failures();
	sharding();
	big_tensor_has_its_own_shard();
	bad_folders();
	fp8();
	return done();
}
