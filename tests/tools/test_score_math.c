/* The math reward against tests/data/math-answers.tsv, and against the shared table where CAIRN_SHARED names one. */

#include "tools/score/math.h"

#include "libcommon/xalloc.h"
#include "tests/lib/tap.h"

#include <pthread.h>
#include <stdbool.h>
#include <unistd.h>

/* 1 equal, 0 not, 2 unscored; -1: an error. */
static int verdict(const char *response, const char *gold, const char *options)
{
	struct math_result m;
	struct json_doc d;
	struct err e = ERR_INIT;
	int rc;

	if (options && json_parse(&d, options, strlen(options), "options", 1, &e))
		return -2;
	rc = math_reward(&m, response, strlen(response), gold, strlen(gold), options ? &d.root : NULL, &e);
	if (options)
		json_release(&d);
	if (rc)
		return -1;
	rc = isnan(m.score) ? 2 : m.score > 0;
	if (rc == 2 && !(m.reason && *m.reason))
		rc = -3;
	free(m.extracted);
	free(m.reason);
	return rc;
}

static int expected(const char *s)
{
	return !strcmp(s, "E") ? 1 : !strcmp(s, "N") ? 0 : 2;
}

/* Columns: gold, response, E | N | U, options or nothing. */
static void own_table(void)
{
	const char *root = getenv("CAIRN_ROOT");
	char *path = xasprintf("%s/tests/data/math-answers.tsv", root ? root : "."), line[4096];
	FILE *f = fopen(path, "r");
	int n = 0;

	ok(f, "%s opens", path);
	while (f && fgets(line, sizeof(line), f)) {
		char *field[4] = { line }, *p = line;

		line[strcspn(line, "\n")] = 0;
		if (*line == '#' || !*line)
			continue;
		for (int i = 1; i < 4; i++) {
			field[i] = p ? strchr(p, '\t') : NULL;
			if (field[i])
				*field[i]++ = 0;
			p = field[i];
		}
		n++;
		ok(field[2] && verdict(field[1], field[0], field[3]) == expected(field[2]), "%s | %s | %s %s", field[0], field[1],
		   field[2] ? field[2] : "", field[3] ? field[3] : "");
	}
	ok(n > 100, "%d rows", n);
	if (f)
		fclose(f);
	free(path);
}

/* Rows that need algebra with variables, relations or matrices. */
static bool out_of_scope(int id)
{
	static const int out[] = { 53, 61, 62, 64, 65, 79, 80, 98 };

	for (size_t i = 0; i < sizeof(out) / sizeof(*out); i++)
		if (out[i] == id)
			return true;
	return false;
}

static void shared_table(void)
{
	const char *shared = getenv("CAIRN_SHARED");
	char *path = xasprintf("%s/cases/math-answers.tsv", shared ? shared : ""), line[4096];
	FILE *f = shared ? fopen(path, "r") : NULL;

	if (!shared)
		skip("CAIRN_SHARED is not set", "the shared table");
	else
		ok(f, "%s opens", path);
	while (f && fgets(line, sizeof(line), f)) {
		char *gold, *response, *want, *p = line;
		int id = atoi(line);

		if (*line == '#' || !id)
			continue;
		strsep(&p, "\t");
		gold = strsep(&p, "\t");
		response = strsep(&p, "\t");
		want = strsep(&p, "\t\n");
		if (out_of_scope(id))
			skip("needs symbolic algebra", "row %d", id);
		else
			ok(want && verdict(response, gold, NULL) == expected(want), "row %d: %s | %s", id, gold, response);
	}
	if (f)
		fclose(f);
	free(path);
}


static void bad_options(void)
{
	struct math_result m;
	struct json_doc d;
	static const char *const bad[][2] = {
		{ "{\"mod\": \"auto\"}", "mod" }, { "{\"mode\": \"boxes\"}", "boxes" }, { "{\"words\": 1}", "words" }, { "[]", "array" },
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		struct err e = ERR_INIT;

		ok(!json_parse(&d, bad[i][0], strlen(bad[i][0]), "options", 1, &e), "%s", bad[i][0]);
		ok(math_reward(&m, "5", 1, "5", 1, &d.root, &e) && e.code == EX_CONFIG && strstr(e.msg, bad[i][1]), "%s: %s",
		   bad[i][0], e.msg);
		json_release(&d);
	}
}

/* -- what an attacker may write ------------------------------------------------------------------------------ */

static char *repeated(const char *head, const char *unit, int n, const char *tail)
{
	size_t h = strlen(head), u = strlen(unit), t = strlen(tail);
	char *s = xmalloc(h + u * (size_t)n + t + 1), *p = s;

	memcpy(p, head, h);
	p += h;
	for (int i = 0; i < n; i++, p += u)
		memcpy(p, unit, u);
	memcpy(p, tail, t + 1);
	return s;
}

static void bounded(const char *response, int want, const char *what)
{
	alarm(20);
	ok(verdict(response, "7", NULL) == want && verdict("7", response, NULL) >= 0 && verdict(response, response, NULL) >= 0,
	   "in bounded time: %s", what);
	alarm(0);
}

static void hostile(void)
{
	static const char *const texts[] = {
		"\\boxed{9^9^9^9}", "\\boxed{100000!}", "\\boxed{9^{9^{9}}}", "\\boxed{2^{-99999999999999999999}}",
		"\\boxed{1e999999999999999999}", "\\boxed{\\binom{1000000}{500000}}", "\\boxed{0.5^{4097}}",
		"\\boxed{((10^{1000})^{1000})^{1000}}", "\\boxed{\\sqrt[999999999]{2}}", "\\boxed{e^{e^{e^{e^{e}}}}}",
		"\\boxed{\\tan\\frac{\\pi}{2}}", "\\boxed{(1+i)^{4096}}", "\\boxed{600!!}", "\\boxed{3!!!!!!!!}", "\\boxed{\\ln(-1)}",
		"\\boxed{-}", "\\boxed{\\frac}", "\\boxed{\\sqrt[}", "\\boxed{^}", "\\boxed{\\", "\\boxed{\\{}", "\\boxed{x_}", "\\",
		"\\boxed", "$", "$$", "\\(", "####", "answer:", "answer is", "<answer></answer>", "\xff\xfe\x80", "\\boxed{\xef\xbc}",
	};
	static const struct { const char *head, *unit; int n; const char *tail; int want; } long_ones[] = {
		{ "", "\\boxed{", 100000, "", 0 }, { "", "\\boxed{7}", 50000, "", 1 }, { "", "\\boxed ", 50000, "7", 1 },
		{ "\\boxed{", "(", 4000, "}", 0 }, { "\\boxed{", "-", 4000, "7}", 0 }, { "\\boxed{", "1\\frac{", 600, "}", 0 },
		{ "\\boxed{", "1+", 2000, "1}", 0 }, { "\\boxed{", "1,", 2000, "1}", 0 }, { "\\boxed{", "\\{", 1000, "}", 0 },
		{ "\\boxed{", "2^", 2000, "2}", 0 }, { "\\boxed{", "9", 4000, "}", 0 }, { "\\boxed{0.", "9", 4000, "}", 0 },
		{ "\\boxed{", "\\sin ", 800, "7}", 0 }, { "\\boxed{", "|", 4000, "}", 0 }, { "\\boxed{", "\\pm 7,", 600, "7}", 0 },
		{ "", "answer is ", 100000, "7", 1 }, { "", "$x$ ", 100000, "7", 1 }, { "", "\\(", 100000, "7", 1 },
		{ "", "####\n", 100000, "7", 1 }, { "", "<think>", 50000, "7", 0 }, { "", "7", 200000, "", 0 },
		{ "", "\\[ ", 100000, "7", 1 }, { "", "{", 100000, "7", 1 }, { "", "1/", 100000, "7", 0 },
		{ "\\boxed{", "f(", 2000, "7}", 0 }, { "\\boxed{", "red,", 1000, "7}", 0 }, { "\\boxed{", "((1),", 400, "7}", 0 },
	};

	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++)
		bounded(texts[i], 0, texts[i]);
	for (size_t i = 0; i < sizeof(long_ones) / sizeof(*long_ones); i++) {
		char *s = repeated(long_ones[i].head, long_ones[i].unit, long_ones[i].n, long_ones[i].tail);
		char *what = xasprintf("%s%s x %d", long_ones[i].head, long_ones[i].unit, long_ones[i].n);

		what[strcspn(what, "\n")] = 0;
		bounded(s, long_ones[i].want, what);
		free(what);
		free(s);
	}
}

/* A marker far from the end, and an answer as long as a sentence. */
static void far_away(void)
{
	char *s = repeated("#### 42\n", "and so on ", 50, ""), *t = repeated("\\boxed{42}\n", "more words 1 ", 5000, "");
	char *u = repeated("so \\boxed{", "long words of an answer ", 7, "end}"), *gold = repeated("", "long words of an answer ", 7, "end");

	ok(verdict(s, "42", NULL) == 1, "#### 42 and 500 characters behind it");
	ok(verdict(t, "42", NULL) == 1, "a box and 65,000 characters behind it");
	ok(verdict(u, gold, NULL) == 1, "a boxed answer of %zu characters", strlen(gold));
	ok(verdict("\\boxed{9^{9^{9^9}}}", "9^{9^{9^{9}}}", NULL) == 1, "beyond the bounds: equal as text");
	ok(verdict("\\boxed{9^{9^{9^8}}}", "9^{9^{9^{9}}}", NULL) == 0, "beyond the bounds: not equal as text");
	ok(verdict("\\boxed{100000!}", "100000!", NULL) == 1, "a factorial beyond the bounds is text");
	free(s);
	free(t);
	free(u);
	free(gold);
}

/* -- threads --------------------------------------------------------------------------------------------------- */

enum { ROWS = 6, ROUNDS = 200, THREADS = 4 };

static const char *const rows[ROWS][2] = {
	{ "1/2", "\\boxed{\\frac{1}{2}}" }, { "3\\sqrt{13}", "the answer is $\\sqrt{117}$" }, { "72", "#### 72.0" },
	{ "12345678901234567890", "12345678901234567891" }, { "1,-2", "-2 and 1" }, { "\\frac{1}{0}", "5" },
};

static void *judge_rows(void *arg)
{
	int *got = arg;

	for (int k = 0; k < ROUNDS; k++)
		for (int i = 0; i < ROWS; i++)
			got[k * ROWS + i] = verdict(rows[i][1], rows[i][0], NULL);
	return NULL;
}

static void threads(void)
{
	static const int want[ROWS] = { 1, 1, 1, 0, 1, 2 };
	static int got[THREADS][ROUNDS * ROWS];
	pthread_t id[THREADS];
	int wrong = 0;

	for (int i = 0; i < THREADS; i++)
		if (pthread_create(id + i, NULL, judge_rows, got[i]))
			exit(1);
	for (int i = 0; i < THREADS; i++)
		pthread_join(id[i], NULL);
	for (int i = 0; i < THREADS; i++)
		for (int k = 0; k < ROUNDS * ROWS; k++)
			wrong += got[i][k] != want[k % ROWS];
	ok(!wrong, "%d threads, %d verdicts: %d wrong", THREADS, THREADS * ROUNDS * ROWS, wrong);
}

/* Lines of gold and response in, E, N or U a line out: for compare_math_verify.py. */
static int judge_lines(void)
{
	char text[8192];

	while (fgets(text, sizeof(text), stdin)) {
		char *response = text, *gold = strsep(&response, "\t\n");
		int got;

		if (!response)
			return 1;
		response[strcspn(response, "\n")] = 0;
		got = verdict(response, gold, NULL);
		puts(got == 1 ? "E" : got == 0 ? "N" : "U");
	}
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 2 && !strcmp(argv[1], "--judge"))
		return judge_lines();
	setvbuf(stdout, NULL, _IOLBF, 0);
	own_table();
	shared_table();
	bad_options();
	far_away();
	hostile();
	threads();
	return done();
}
