#include "libcommon/json.h"

#include <fcntl.h>
#include <unistd.h>

#include "libcommon/file.h"
#include "tests/lib/tap.h"

static struct err e;

/* Reads text and writes it again, without blanks; NULL where it was refused. */
static const char *again(const char *text, size_t n, int indent)
{
	static struct json_out o;
	struct json_doc d;

	e = (struct err)ERR_INIT;
	json_out_release(&o);
	if (json_parse(&d, text, n, "f.json", 1, &e))
		return NULL;
	o.indent = indent;
	json_put(&o, &d.root);
	json_release(&d);
	return o.s.s;
}

static void accepts(const char *text, const char *want)
{
	is_str(again(text, strlen(text), -1), want, "accepts %s", want);
}

static void refuses(const char *text, size_t n, const char *what, const char *message)
{
	const char *got = again(text, n, -1);

	ok(!got && e.code == EX_DATAERR && strstr(e.msg, message), "refuses %s", what);
	if (got || !strstr(e.msg, message))
		printf("# got:  %s\n# want: %s\n", got ? got : e.msg, message);
}

#define REFUSES(text, what, message) refuses(text, sizeof(text) - 1, what, message)

static void values(void)
{
	accepts("null", "null");
	accepts(" \t\r\n true \n", "true");
	accepts("[false , [ ] , { } ]", "[false,[],{}]");
	accepts("-0", "-0");
	accepts("0.50e+07", "0.50e+07");
	accepts("1E400", "1E400");
	accepts("[18446744073709551615,1000000000000000019884624838656]",
		"[18446744073709551615,1000000000000000019884624838656]");
	accepts("{\"b\":1,\"a\":2}", "{\"b\":1,\"a\":2}");
	accepts("{\"\":0}", "{\"\":0}");
	accepts("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", "\"\\\"\\\\/\\b\\f\\n\\r\\t\"");
	accepts("\"\\u00e9\\u4e2D\\ud83d\\ude00\"", "\"\xc3\xa9\xe4\xb8\xad\xf0\x9f\x98\x80\"");
	accepts("\"\\u0000\\u001f\x7f\"", "\"\\u0000\\u001f\x7f\"");
	accepts("\"\xf4\x8f\xbf\xbf\xef\xbf\xbf\"", "\"\xf4\x8f\xbf\xbf\xef\xbf\xbf\"");
	accepts("\"0123456789abcdef\\n0123456\xc3\xa9" "89\"", "\"0123456789abcdef\\n0123456\xc3\xa9" "89\"");
}

static void refusals(void)
{
	REFUSES("", "nothing", "f.json:1: found the end of the text, wanted a value");
	REFUSES("[1,\n2,\n\n}", "a wrong bracket", "f.json:4: found '}', wanted a value");
	REFUSES("[1 2]", "a missing comma", "found '2', wanted ',' or ']'");
	REFUSES("[1,]", "a comma before ]", "found ']', wanted a value");
	REFUSES("{\"a\":1,}", "a comma before }", "found '}', wanted a key");
	REFUSES("{a:1}", "a bare key", "found 'a', wanted a key");
	REFUSES("{\"a\" 1}", "a missing colon", "found '1', wanted ':'");
	REFUSES("{\"a\":1", "an open object", "the end of the text");
	REFUSES("[", "an open array", "the end of the text");
	REFUSES("\"abc", "an open string", "the end of the text");
	REFUSES("1 x", "trailing bytes", "found 'x', wanted nothing after the value");
	REFUSES("{}\0", "a trailing NUL", "found byte 0x00");
	REFUSES("\xef\xbb\xbf{}", "a byte order mark", "found byte 0xef");
	REFUSES("NaN", "NaN", "found 'N'");
	REFUSES("[-Infinity]", "-Infinity", "found 'I', wanted a digit");
	REFUSES("+1", "a plus sign", "found '+'");
	REFUSES("01", "a leading zero", "leading zero");
	REFUSES("-", "a minus alone", "wanted a digit");
	REFUSES("1.", "a point without digits", "wanted a digit");
	REFUSES(".5", "a point first", "found '.'");
	REFUSES("1e", "an exponent without digits", "wanted a digit");
	REFUSES("tru", "half a word", "wanted a value");
	REFUSES("'a'", "single quotes", "wanted a value");
	REFUSES("/* */ 1", "a comment", "wanted a value");
	REFUSES("\"a\nb\"", "a line feed in a string", "found byte 0x0a, wanted control characters written");
	REFUSES("\"0123456789\t012345\"", "a tabulator far inside a string", "found byte 0x09");
	REFUSES("\"\\x41\"", "an unknown escape", "after a backslash");
	REFUSES("\"\\u12g4\"", "a wrong \\u", "four hexadecimal digits");
	REFUSES("\"\\u12", "a cut \\u", "the end of the text");
	REFUSES("\"\\ud800\"", "a high surrogate alone", "a high surrogate alone");
	REFUSES("\"\\ud800\\u0041\"", "a high surrogate and a letter", "a high surrogate alone");
	REFUSES("\"\\udc00\"", "a low surrogate alone", "a low surrogate alone");
	REFUSES("\"\x80\"", "a lone continuation byte", "wanted valid UTF-8");
	REFUSES("\"\xc0\xaf\"", "an overlong form", "wanted valid UTF-8");
	REFUSES("\"\xe0\x80\xaf\"", "an overlong form of three", "wanted valid UTF-8");
	REFUSES("\"\xed\xa0\x80\"", "a surrogate in UTF-8", "wanted valid UTF-8");
	REFUSES("\"\xf4\x90\x80\x80\"", "a character above U+10FFFF", "wanted valid UTF-8");
	REFUSES("\"0123456789\xe4\xb8\"", "a cut character", "wanted valid UTF-8");
	REFUSES("{\"a\":1,\n\"\\u0061\":2}", "a key twice", "f.json:2: found the key \"a\" twice");
}

static char *nested(int depth)
{
	char *s = malloc(2 * (size_t)depth + 1);

	memset(s, '[', (size_t)depth);
	memset(s + depth, ']', (size_t)depth);
	s[2 * depth] = 0;
	return s;
}

static void depth(void)
{
	char *deep = nested(512), *too_deep = nested(513), *huge = nested(1000000);

	ok(again(deep, strlen(deep), -1), "accepts a depth of 512");
	is_str(again(deep, strlen(deep), -1), deep, "and writes it");
	refuses(too_deep, strlen(too_deep), "a depth of 513", "deeper than 512");
	refuses(huge, strlen(huge), "a depth of a million", "deeper than 512");
	free(deep);
	free(too_deep);
	free(huge);
}

static void large_object(int n, bool twice)
{
	struct json_out o = { 0 };
	struct json_doc d;
	char key[32];
	int good = 0;
	long v;

	json_begin(&o, '{');
	for (int i = 0; i < n; i++) {
		snprintf(key, sizeof(key), "key %d", i);
		json_add_int(&o, key, i);
	}
	if (twice)
		json_add_int(&o, "key 3", 0);
	json_end(&o);
	e = (struct err)ERR_INIT;
	if (json_parse(&d, o.s.s, o.s.len, "large", 1, &e)) {
		ok(twice && strstr(e.msg, "\"key 3\" twice"), "%d members: a key twice is refused", n);
		json_out_release(&o);
		return;
	}
	for (int i = 0; i < n; i++) {
		snprintf(key, sizeof(key), "key %d", i);
		good += !json_int(&d, json_get(&d.root, key), key, &v, &e) && v == i &&
			!strcmp(d.root.member[i].key, key);
	}
	ok(!twice && good == n && !json_get(&d.root, "key") && !json_get(&d.root, ""), "%d members: all found, in order",
	   n);
	json_release(&d);
	json_out_release(&o);
}

static void typed_reads(void)
{
	static const char text[] =
		"{\"i\": -9223372036854775808,\n\"u\": 18446744073709551615, \"r\": 1e-5, \"far\": 1e400, \"b\": true,\n"
		"\"s\": \"text\", \"nul\": \"a\\u0000b\", \"n\": null, \"o\": {\"p\": {\"q\": [1, 2]}}}";
	struct json_doc d;
	const struct json *r;
	const char *s;
	uint64_t u;
	double x;
	bool b;
	long i;

	ok(!json_parse(&d, text, sizeof(text) - 1, "t.json", 10, &e), "a document");
	r = &d.root;
	ok(!json_int(&d, json_get(r, "i"), "i", &i, &e) && i == INT64_MIN, "the least integer");
	ok(json_int(&d, json_get(r, "u"), "u", &i, &e) && e.code == EX_DATAERR, "2^64-1 is no long");
	is_str(e.msg, "t.json:11: u: found 18446744073709551615, wanted an integer of 64 bits", "and the message says so");
	ok(!json_u64(&d, json_get(r, "u"), "u", &u, &e) && u == UINT64_MAX, "but a uint64");
	ok(json_u64(&d, json_get(r, "i"), "i", &u, &e), "a negative number is none");
	ok(json_int(&d, json_get(r, "r"), "r", &i, &e), "1e-5 is no integer");
	ok(!json_real(&d, json_get(r, "r"), "r", &x, &e) && x == 1e-5, "but a real");
	ok(json_real(&d, json_get(r, "far"), "far", &x, &e), "1e400 is out of range");
	is_str(e.msg, "t.json:11: far: found 1e400, wanted a number in the range of a double", "and the message says so");
	ok(!json_bool(&d, json_get(r, "b"), "b", &b, &e) && b, "a bool");
	ok(json_bool(&d, json_get(r, "s"), "s", &b, &e), "a string is no bool");
	is_str(e.msg, "t.json:12: s: found \"text\", wanted true or false", "with its line");
	ok(!json_str(&d, json_get(r, "s"), "s", &s, &e) && !strcmp(s, "text"), "a string");
	ok(json_str(&d, json_get(r, "nul"), "nul", &s, &e), "a string with \\u0000 is no C string");
	ok(json_get(r, "nul")->n == 3 && !memcmp(json_get(r, "nul")->text, "a\0b", 4), "but is there whole");
	ok(json_str(&d, json_get(r, "o"), "o", &s, &e), "an object is no string");
	is_str(e.msg, "t.json:12: o: found an object, wanted a string", "and is called by its name");
	ok(json_int(&d, json_get(r, "none"), "none", &i, &e), "a missing member");
	is_str(e.msg, "t.json: none: missing", "is said to be missing");
	ok(!json_int_or(&d, r, "none", 7, &i, &e) && i == 7, "default for an absent member");
	ok(!json_int_or(&d, r, "n", 8, &i, &e) && i == 8, "and for null");
	ok(json_int_or(&d, r, "s", 8, &i, &e), "but not for another type");
	ok(!json_real_or(&d, NULL, "x", 2, &x, &e) && x == 2, "no object at all: the default");
	ok(!json_bool_or(&d, r, "b", false, &b, &e) && b, "a bool that is there");
	ok(!json_str_or(&d, r, "n", NULL, &s, &e) && !s, "NULL as a default");
	ok(json_path(r, "o.p.q") && json_path(r, "o.p.q")->n == 2, "a path");
	ok(!json_path(r, "o.x.q") && !json_path(r, "s.x") && !json_path(r, ""), "a path that ends early");
	ok(json_eq_str(json_get(r, "s"), "text") && !json_eq_str(json_get(r, "nul"), "a"), "strings compare whole");
	json_release(&d);
}

static bool equal(const char *a, const char *b)
{
	struct json_doc x, y;
	bool yes;

	if (json_parse(&x, a, strlen(a), "a", 1, &e) || json_parse(&y, b, strlen(b), "b", 1, &e))
		return false;
	yes = json_equal(&x.root, &y.root);
	json_release(&x);
	json_release(&y);
	return yes;
}

static void equality(void)
{
	ok(equal("{\"a\":[1,null],\"b\":{}}", "{\"b\":{},\"a\":[1,null]}"), "members in any order");
	ok(!equal("[1,2]", "[2,1]"), "items in order");
	ok(!equal("1", "1.0"), "numbers by their text");
	ok(!equal("{\"a\":1}", "{\"b\":1}") && !equal("{}", "[]") && !equal("\"1\"", "1"), "what differs");
}

static void writing(void)
{
	struct json_out o = { .indent = 2 };
	static const char text[] = "{\"a\": [1, {}], \"b\": [], \"c\": \"\\u00e9\"}";

	is_str(again(text, sizeof(text) - 1, 0), "{\"a\": [1, {}], \"b\": [], \"c\": \"\xc3\xa9\"}",
	       "one line, as Python's json.dumps(ensure_ascii=False)");
	is_str(again(text, sizeof(text) - 1, 2),
	       "{\n  \"a\": [\n    1,\n    {}\n  ],\n  \"b\": [],\n  \"c\": \"\xc3\xa9\"\n}", "indented, as Python's");
	json_begin(&o, '[');
	json_put_real(&o, 0.1);
	json_put_real(&o, NAN);
	json_put_float(&o, 0.1f);
	json_put_float(&o, -INFINITY);
	json_put_u64(&o, UINT64_MAX);
	json_put_strn(&o, "a\0\xe4\xb8z\xff", 6);
	json_begin(&o, '{');
	json_add_str(&o, "s", NULL);
	json_add_bool(&o, "t", true);
	json_add_real(&o, "r", 3);
	json_end(&o);
	json_end(&o);
	is_str(o.s.s, "[\n  0.1,\n  null,\n  0.1,\n  null,\n  18446744073709551615,\n"
	       "  \"a\\u0000\xef\xbf\xbdz\xef\xbf\xbd\",\n"
	       "  {\n    \"s\": null,\n    \"t\": true,\n    \"r\": 3.0\n  }\n]", "every kind of value");
	json_out_release(&o);
}

static void recorded_reprs(void)
{
	const char *root = getenv("CAIRN_ROOT");
	char *path = path_join(root ? root : ".", "tests/data/repr.tsv"), type, want[64], buf[32];
	FILE *f = fopen(path, "r");
	unsigned long bits;
	int n = 0, bad = 0;

	while (f && fscanf(f, "%c\t%lx\t%63s\n", &type, &bits, want) == 3) {
		uint32_t low = (uint32_t)bits;
		double d;
		float s;

		memcpy(&d, &bits, sizeof(d));
		memcpy(&s, &low, sizeof(s));
		if (strcmp(type == 'd' ? real_repr(buf, d) : float_repr(buf, s), want)) {
			printf("# %c %lx: got %s, want %s\n", type, bits, buf, want);
			bad++;
		}
		n++;
	}
	ok(n > 1500 && !bad, "%d numbers are spelled as Python and numpy spell them", n);
	if (f)
		fclose(f);
	free(path);
}

static void from_file(void)
{
	char *path = path_join(tap_tmp(), "x.json");
	struct json_doc d;
	int fd;

	ok(!file_write(path, "{\"a\":\n[1,}", 10, &e) && json_read(&d, path, 0, &e), "a wrong file");
	ok(strstr(e.msg, "x.json:2: found '}'") && e.code == EX_DATAERR, "names itself and its line");
	ok(!file_write(path, "[1, 2]", 6, &e) && !json_read(&d, path, 6, &e) && d.root.n == 2, "a right one");
	is_str(d.file, path, "the document knows its file");
	json_release(&d);
	ok(json_read(&d, path, 5, &e) && e.code == EX_DATAERR, "larger than allowed");
	fd = open(path, O_RDONLY);
	ok(fd >= 0 && dup2(fd, 0) == 0 && !json_read(&d, "-", 0, &e) && d.root.n == 2, "standard input");
	json_release(&d);
	ok(json_read(&d, "/nonexistent/x.json", 0, &e) && e.code == EX_NOINPUT, "an absent file");
	json_release(&d);
	free(path);
}

int main(void)
{
	values();
	refusals();
	depth();
	for (int n = 15; n <= 18; n++)
		large_object(n, false);
	large_object(16, true);
	large_object(17, true);
	large_object(200000, false);
	large_object(200000, true);
	typed_reads();
	equality();
	writing();
	recorded_reprs();
	from_file();
	return done();
}
