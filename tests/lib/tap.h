#ifndef TESTS_LIB_TAP_H
#define TESTS_LIB_TAP_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int tap_n, tap_bad;

/* One line a check, in the Test Anything Protocol. */
#define ok(cond, ...) do { \
	int c_ = !!(cond); \
	tap_bad += !c_; \
	printf("%sok %d - ", c_ ? "" : "not ", ++tap_n); \
	printf(__VA_ARGS__); \
	printf("%s\n", c_ ? "" : "  # " __FILE__ ": " #cond); \
} while (0)
#define is_str(got, want, ...) do { \
	const char *g_ = (got), *w_ = (want); \
	ok(g_ && w_ && !strcmp(g_, w_), __VA_ARGS__); \
	if (!g_ || !w_ || strcmp(g_, w_)) printf("# got:  %s\n# want: %s\n", g_ ? g_ : "(null)", w_ ? w_ : "(null)"); \
} while (0)
#define is_num(got, want, tol, ...) do { \
	double g_ = (got), w_ = (want); \
	ok(fabs(g_ - w_) <= (tol), __VA_ARGS__); \
	if (!(fabs(g_ - w_) <= (tol))) printf("# got %.9g, want %.9g\n", g_, w_); \
} while (0)
#define skip(why, ...) do { printf("ok %d - ", ++tap_n); printf(__VA_ARGS__); printf(" # SKIP %s\n", why); } while (0)
static inline int done(void) { printf("1..%d\n", tap_n); return !!tap_bad; }

/* A directory for this test's files; removed by the runner. */
static inline const char *tap_tmp(void)
{
	static char own[] = "/tmp/cairn-test.XXXXXX";
	static const char *dir;

	if (!dir) dir = getenv("TEST_TMP");
	if (!dir) dir = mkdtemp(own);
	return dir;
}

#endif
