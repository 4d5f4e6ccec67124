#ifndef LIBCOMMON_STR_H
#define LIBCOMMON_STR_H

/* A string that grows.  Zero is the empty string; s is NUL-terminated once
 * anything was added, and may hold NULs. */

#include "libcommon/die.h"

#include <stddef.h>

struct str {
	char *s;        /* owned */
	size_t len, cap;
};

void str_add(struct str *t, const char *bytes, size_t n);
void str_puts(struct str *t, const char *s);
void str_putc(struct str *t, int c);
void str_printf(struct str *t, const char *fmt, ...) PRINTF(2, 3);
void str_cut(struct str *t, size_t len);        /* keep the first len bytes */
char *str_detach(struct str *t);                /* the caller frees; t is empty again */
void str_release(struct str *t);

#endif
