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

int main(void)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	own_table();
	shared_table();
	return done();
}
