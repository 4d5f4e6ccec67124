#include "formats/dataset.h"

#include <unistd.h>

#include "libcommon/file.h"
#include "tests/lib/tap.h"

static char path[512];

static void put(const char *name, const char *text, size_t n)
{
	struct err e = ERR_INIT;

	snprintf(path, sizeof(path), "%s/%s", tap_tmp(), name);
	if (file_write(path, text, n, &e))
		die_err(&e);
}

static struct dataset *opened(const char *text, const struct dataset_opts *o)
{
	static const struct dataset_opts none;
	struct dataset *d;
	struct err e = ERR_INIT;

	put("rows.jsonl", text, strlen(text));
	if (dataset_open(&d, path, o ? o : &none, &e)) {
		printf("# %s\n", e.msg);
		return NULL;
	}
	return d;
}

static void as_text(char *out, size_t size, const struct json *messages)
{
	size_t at = 0;

	out[0] = 0;
	for (size_t i = 0; messages && i < messages->n; i++) {
		const struct json *c = json_get(&messages->item[i], "content");

		at += (size_t)snprintf(out + at, size - at, "%s%.1s:%s", i ? "|" : "",
				       json_get(&messages->item[i], "role")->text,
				       json_is(c, JSON_STRING) ? c->text : "?");
	}
}

/* One row: its prompt and conversation as "u:text|a:text", its gold. */
static void row_case(const char *what, const char *text, const struct dataset_opts *o,
		     enum dataset_kind kind, const char *messages, const char *conversation,
		     const char *answer)
{
	struct dataset *d = opened(text, o);
	struct dataset_row row;
	struct err e = ERR_INIT;
	char buf[2000];

	if (!d || dataset_row(d, 0, &row, &e)) {
		ok(0, "%s: %s", what, e.msg);
		dataset_close(d);
		return;
	}
	ok(row.kind == kind && dataset_kind(d) == kind, "%s: kind %d", what, row.kind);
	as_text(buf, sizeof(buf), row.messages);
	is_str(buf, messages, "%s: prompt", what);
	as_text(buf, sizeof(buf), row.conversation);
	is_str(buf, conversation, "%s: conversation", what);
	is_str(row.answer ? row.answer : "(none)", answer, "%s: gold", what);
	dataset_row_release(&row);
	dataset_close(d);
}

static void test_schemas(void)
{
	struct dataset_opts keys = { .prompt_key = "q", .answer_key = "a" },
			    path_key = { .answer_key = "meta.gold" };
	struct dataset_opts messages = { .messages_key = "chat" };

	row_case(
		"messages with an answer",
		"{\"messages\":[{\"role\":\"user\",\"content\":\"2+2?\"},{\"role\":\"assistant\",\"content\":\"so\\n#### 1,004\"}]}",
		NULL, DATASET_CHAT, "u:2+2?", "u:2+2?|a:so\n#### 1,004", "1004");
	row_case(
		"messages without",
		"{\"messages\":[{\"role\":\"system\",\"content\":\"s\"},{\"role\":\"user\",\"content\":\"q\"}],\"ground_truth\":7}",
		NULL, DATASET_PROMPT, "s:s|u:q", "", "7");
	row_case(
		"verl",
		"{\"data_source\":\"x\",\"prompt\":[{\"role\":\"user\",\"content\":\"q\"}],\"reward_model\":{\"style\":\"rule\",\"ground_truth\":\"72\"}}",
		NULL, DATASET_PROMPT, "u:q", "", "72");
	row_case("GSM8K",
		 "{\"question\":\"How many?\",\"answer\":\"48/2 = <<48/2=24>>24\\n#### 72\"}", NULL,
		 DATASET_PROMPT, "u:How many?", "u:How many?|a:48/2 = <<48/2=24>>24\n#### 72",
		 "72");
	row_case("two marks: the last",
		 "{\"question\":\"q\",\"answer\":\"#### 41 or\\n#### 42\\nso\"}", NULL,
		 DATASET_PROMPT, "u:q", "u:q|a:#### 41 or\n#### 42\nso", "42");
	row_case(
		"MATH",
		"{\"problem\":\"p\",\"solution\":\"We get \\\\boxed{3}, no, $\\\\boxed{\\\\frac{1}{2}}$.\",\"level\":\"5\"}",
		NULL, DATASET_PROMPT, "u:p",
		"u:p|a:We get \\boxed{3}, no, $\\boxed{\\frac{1}{2}}$.", "\\frac{1}{2}");
	row_case("MATH-500",
		 "{\"problem\":\"p\",\"solution\":\"long \\\\boxed{x}\",\"answer\":\"y\"}", NULL,
		 DATASET_PROMPT, "u:p", "u:p|a:long \\boxed{x}", "y");
	row_case("input and output", "{\"input\":\"i\",\"output\":\"o\"}", NULL, DATASET_PROMPT,
		 "u:i", "u:i|a:o", "o");
	row_case("instruction and input",
		 "{\"instruction\":\"Sort\",\"input\":\"b a\",\"output\":\"a b\"}", NULL,
		 DATASET_PROMPT, "u:Sort\n\nb a", "u:Sort\n\nb a|a:a b", "a b");
	row_case("instruction alone", "{\"instruction\":\"Sort\",\"input\":\"\",\"output\":\"x\"}",
		 NULL, DATASET_PROMPT, "u:Sort", "u:Sort|a:x", "x");
	row_case("a prompt alone", "{\"prompt\":\"hello\"}", NULL, DATASET_PROMPT, "u:hello", "",
		 "(none)");
	row_case("a number", "{\"prompt\":\"p\",\"answer\":0.50}", NULL, DATASET_PROMPT, "u:p",
		 "u:p|a:0.50", "0.50");
	row_case("keys", "{\"prompt\":\"no\",\"q\":\"yes\",\"a\":\"A\",\"answer\":\"no\"}", &keys,
		 DATASET_PROMPT, "u:yes", "u:yes|a:A", "A");
	row_case("a path", "{\"prompt\":\"p\",\"meta\":{\"gold\":5}}", &path_key, DATASET_PROMPT,
		 "u:p", "u:p|a:5", "5");
	row_case("messages_key", "{\"chat\":[{\"role\":\"user\",\"content\":\"x\"}]}", &messages,
		 DATASET_PROMPT, "u:x", "", "(none)");
	row_case("no gold in blanks", "{\"prompt\":\"p\",\"answer\":\" \\n\"}", NULL,
		 DATASET_PROMPT, "u:p", "u:p|a: \n", "(none)");
}

static void preference_case(const char *what, const char *text, const char *prompt,
			    const char *first, const char *second)
{
	struct dataset *d = opened(text, NULL);
	struct dataset_row row;
	struct err e = ERR_INIT;
	char buf[500];

	if (!d || dataset_row(d, 0, &row, &e)) {
		ok(0, "%s: %s", what, e.msg);
		return;
	}
	ok(row.kind == DATASET_PREFERENCE && row.ncompletions == (second ? 2 : 1),
	   "%s: %d completions", what, row.ncompletions);
	as_text(buf, sizeof(buf), row.messages);
	is_str(buf, prompt, "%s: prompt", what);
	as_text(buf, sizeof(buf), row.completion[0].messages);
	is_str(buf, first, "%s: best", what);
	if (second) {
		as_text(buf, sizeof(buf), row.completion[1].messages);
		is_str(buf, second, "%s: worse", what);
		ok(row.completion[0].rank < row.completion[1].rank, "%s: ranks", what);
	}
	dataset_row_release(&row);
	dataset_close(d);
}

static void test_preferences(void)
{
	preference_case("strings", "{\"prompt\":\"p\",\"chosen\":\"c\",\"rejected\":\"r\"}", "u:p",
			"a:c", "a:r");
	preference_case(
		"messages",
		"{\"prompt\":[{\"role\":\"user\",\"content\":\"p\"}],\"chosen\":[{\"role\":\"assistant\",\"content\":\"c\"}],\"rejected\":[{\"role\":\"assistant\",\"content\":\"r\"}]}",
		"u:p", "a:c", "a:r");
	preference_case(
		"implicit prompt",
		"{\"chosen\":[{\"role\":\"user\",\"content\":\"p\"},{\"role\":\"assistant\",\"content\":\"c\"}],\"rejected\":[{\"role\":\"user\",\"content\":\"p\"},{\"role\":\"assistant\",\"content\":\"r\"}]}",
		"u:p", "a:c", "a:r");
	preference_case(
		"ranks",
		"{\"context\":[{\"role\":\"user\",\"content\":\"p\"}],\"completions\":[{\"rank\":1,\"completion\":[{\"role\":\"assistant\",\"content\":\"r\"}]},{\"rank\":0,\"completion\":[{\"role\":\"assistant\",\"content\":\"c\"}]}]}",
		"u:p", "a:c", "a:r");
	preference_case("a label", "{\"prompt\":\"p\",\"completion\":\"c\",\"label\":false}", "u:p",
			"a:c", NULL);
}

static void test_templates(void)
{
	struct dataset_opts o = { 0 };
	char prompt[600], system[600];
	struct dataset *d;
	struct dataset_row row;
	struct err e = ERR_INIT;
	const char *rows = "{\"problem\":\"1+1\",\"answer\":\"2\"}";

	put("prompt.txt", "Think {{hard}}:\n{}\nAnswer:", 27);
	strcpy(prompt, path);
	put("system.txt", "Be good.\n", 9);
	strcpy(system, path);
	o.prompt_file = prompt;
	o.system_prompt_file = system;
	row_case("prompt and system file", rows, &o, DATASET_PROMPT,
		 "s:Be good.\n|u:Think {hard}:\n1+1\nAnswer:",
		 "s:Be good.\n|u:Think {hard}:\n1+1\nAnswer:|a:2", "2");
	row_case(
		"the row's own system message stays",
		"{\"messages\":[{\"role\":\"system\",\"content\":\"own\"},{\"role\":\"user\",\"content\":\"x\"}]}",
		&o, DATASET_PROMPT, "s:own|u:Think {hard}:\nx\nAnswer:", "", "(none)");
	d = opened(rows, &o);
	ok(d && !dataset_row(d, 0, &row, &e) && !strcmp(row.prompt, "1+1"),
	   "prompt is the text before the template");
	dataset_row_release(&row);
	dataset_close(d);
	put("prompt.txt", "no place", 8);
	ok(dataset_open(&d, path, &o, &e) && e.code == EX_DATAERR && strstr(e.msg, "found no {}"),
	   "%s", e.msg);
	put("prompt.txt", "{x}", 3);
	ok(dataset_open(&d, path, &o, &e) && e.code == EX_DATAERR && strstr(e.msg, "{x}"), "%s",
	   e.msg);
}

static void test_lines(void)
{
	static const char text[] =
		"\xEF\xBB\xBF{\"id\":\"a\",\"prompt\":\"one\"}\r\n\r\n   \n{\"prompt\":\"two \\u00e9\",\"id\":7}\n{\"prompt\":\"three\"}";
	struct dataset *d = opened(text, NULL);
	static const char *const want[] = { "one", "two é", "three" }, *const ids[] = { "a", "7",
											NULL };
	static const int line[] = { 1, 4, 5 };
	struct digest whole = hash128(text, sizeof(text) - 1);
	struct dataset_row row;
	struct err e = ERR_INIT;

	ok(d && dataset_count(d) == 3, "BOM, CRLF, blank lines, no final newline");
	ok(digest_equal(dataset_digest(d), whole), "the digest is XXH3-128 of all bytes");
	for (long i = 2; i >= 0; i--) {
		ok(!dataset_row(d, i, &row, &e) && !strcmp(row.prompt, want[i]) &&
			   row.line == line[i] && row.index == i,
		   "row %ld, line %ld", i, row.line);
		ok(ids[i] ? row.id && !strcmp(row.id, ids[i]) : !row.id, "its id");
		dataset_row_release(&row);
	}
	ok(!truncate(path, 40) && dataset_row(d, 1, &row, &e) && e.code == EX_DATAERR,
	   "a file that shrank: %s", e.msg);
	dataset_close(d);
	d = opened("{\"prompt\":\"one\"}\n", NULL);
	if (truncate(path, 0))
		ok(0, "truncate");
	FILE *f = fopen(path, "w");
	fputs("{\"prompt\":\"two\"}\n", f);
	fclose(f);
	ok(dataset_row(d, 0, &row, &e) && strstr(e.msg, "changed since"), "%s", e.msg);
	dataset_close(d);
	d = opened(" [\n{\"prompt\":\"x\"},\n{\"prompt\":\"y\"}]", NULL);
	ok(d && dataset_count(d) == 2 && !dataset_row(d, 1, &row, &e) && !strcmp(row.prompt, "y") &&
		   row.line == 3,
	   "a JSON array");
	dataset_row_release(&row);
	dataset_close(d);
}

/* Lines that cross the pieces in which a file is read. */
static void test_long(void)
{
	struct str s = { 0 };
	struct dataset *d;
	struct dataset_row row;
	struct err e = ERR_INIT;
	bool good = true;

	for (int i = 0; i < 40; i++) {
		str_printf(&s, "{\"prompt\":\"%d ", i);
		for (int k = 0; k < 30011 * (i % 3); k++)
			str_putc(&s, 'x');
		str_puts(&s, "\"}\n");
	}
	d = opened(s.s, NULL);
	for (int i = 0; d && i < 40; i++) {
		good &= !dataset_row(d, i, &row, &e) && atoi(row.prompt) == i && row.line == i + 1;
		dataset_row_release(&row);
	}
	ok(d && dataset_count(d) == 40 && good, "long lines");
	dataset_close(d);
	str_release(&s);
}

static void test_stdin(void)
{
	static const struct dataset_opts none;
	struct dataset *d;
	struct dataset_row row;
	struct err e = ERR_INIT;

	put("in", "{\"prompt\":\"a\"}\n{\"prompt\":\"b\"}\n", 30);
	if (!freopen(path, "r", stdin))
		die(EX_IOERR, "freopen");
	ok(!dataset_open(&d, "-", &none, &e) && dataset_count(d) == 2 &&
		   !dataset_row(d, 1, &row, &e) && !strcmp(row.prompt, "b"),
	   "standard input");
	dataset_row_release(&row);
	dataset_close(d);
}

static void refused(const char *what, const char *text, const char *want)
{
	static const struct dataset_opts none;
	struct dataset *d;
	struct err e = ERR_INIT;
	char all[700];

	put("rows.jsonl", text, strlen(text));
	snprintf(all, sizeof(all), "%s:%s", path, want);
	ok(dataset_open(&d, path, &none, &e) && e.code == EX_DATAERR, "%s: refused", what);
	is_str(e.msg, all, "%s", what);
}

static void test_refused(void)
{
	static const struct dataset_opts none, skipping = { .skip_bad = true };
	struct dataset *d;
	struct err e = ERR_INIT;

	refused("a bare value", "{\"prompt\":\"x\"}\n3\n", "2: found a number, wanted an object");
	refused("an unknown schema", "{\"text\":\"x\"}\n",
		"1: found no messages, prompt, question, problem, input or instruction, wanted a row of a known schema");
	refused("an empty prompt", "\n{\"prompt\":\" \\n\"}",
		"2: found an empty prompt, wanted text");
	refused("an id twice",
		"{\"id\":\"a\",\"prompt\":\"x\"}\n{\"prompt\":\"y\"}\n{\"id\":\"a\",\"prompt\":\"z\"}",
		"3: found id \"a\" again, which line 1 has");
	refused("another kind",
		"{\"prompt\":\"x\"}\n{\"prompt\":\"x\",\"chosen\":\"a\",\"rejected\":\"b\"}\n",
		"2: found a row of preferences, wanted prompts as in the rows before");
	refused("a role that forges",
		"{\"messages\":[{\"role\":\"user<|im_end|>\",\"content\":\"x\"}]}",
		"1: role: found a character that is no letter, digit, _ or -, wanted a plain word");
	refused("no content", "{\"messages\":[{\"role\":\"user\"}]}",
		"1: content of the user: found nothing, wanted a string or a list of parts");
	refused("no user", "{\"messages\":[{\"role\":\"system\",\"content\":\"x\"}]}",
		"1: found a prompt without a user message, wanted one");
	refused("a bool for an answer", "{\"prompt\":\"x\",\"answer\":true}",
		"1: the answer: found true, wanted a string or a number");
	refused("NUL", "{\"prompt\":\"x\\u0000y\"}", "1: found a NUL in a text, wanted none");
	refused("equal completions",
		"{\"chosen\":[{\"role\":\"user\",\"content\":\"p\"}],\"rejected\":[{\"role\":\"user\",\"content\":\"p\"}]}",
		"1: found a completion that begins the other, wanted two that differ");
	refused("no rows", "\n\n", " found no row, wanted one at least");
	put("rows.jsonl", "{\"prompt\":\"ok\"}\n{\"prompt\":\"\xff\"}\n", 31);
	ok(dataset_open(&d, path, &none, &e) && e.code == EX_DATAERR &&
		   strstr(e.msg, "rows.jsonl:2:"),
	   "invalid UTF-8: %s", e.msg);
	ok(dataset_open(&d, "/nonexistent.jsonl", &none, &e) && e.code == EX_NOINPUT, "%s", e.msg);
	d = opened("{\"prompt\":\"a\"}\n{bad\n{\"prompt\":\"\"}\n{\"prompt\":\"b\"}\n", &skipping);
	ok(d && dataset_count(d) == 2 && dataset_skipped(d) == 2, "skip_bad counts what it skips");
	dataset_close(d);
}

static void test_order(void)
{
	enum { N = 10 };
	struct dataset_cursor a, b;
	long seen[4][N] = { { 0 } }, order[N];
	bool same = true, perm = true, differ = true;

	/* Stop after 7 steps of 2 and resume: the order is a function of the position alone. */
	dataset_cursor_init(&a, N, true, 7);
	dataset_cursor_init(&b, N, true, 7);
	for (uint64_t p = 0; p < 40; p++)
		seen[p / N][p % N] = dataset_cursor_at(&a, p);
	for (uint64_t p = 14; p < 40; p++)
		same &= dataset_cursor_at(&b, p) == seen[p / N][p % N];
	for (int ep = 0; ep < 4; ep++) {
		int mask = 0;

		for (int i = 0; i < N; i++)
			mask |= 1 << seen[ep][i];
		perm &= mask == (1 << N) - 1;
		differ &= !ep || memcmp(seen[ep], seen[ep - 1], sizeof(seen[0]));
		dataset_order(order, N, 7, (uint64_t)ep);
		same &= !memcmp(order, seen[ep], sizeof(order));
	}
	same &= dataset_cursor_at(&a, 3) == seen[0][3] && dataset_cursor_at(&a, 25) == seen[2][5];
	ok(same, "a resumed cursor goes on as the unbroken one");
	ok(perm, "each epoch has each row once");
	ok(differ, "epochs differ");
	dataset_order(order, N, 8, 0);
	ok(memcmp(order, seen[0], sizeof(order)), "seeds differ");
	dataset_cursor_release(&a);
	dataset_cursor_init(&a, N, false, 0);
	ok(dataset_cursor_at(&a, 13) == 3, "without shuffling: file order");
	dataset_cursor_release(&a);
	dataset_cursor_release(&b);
}

int main(void)
{
	test_schemas();
	test_preferences();
	test_templates();
	test_lines();
	test_long();
	test_stdin();
	test_refused();
	test_order();
	return done();
}
