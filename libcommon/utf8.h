#ifndef LIBCOMMON_UTF8_H
#define LIBCOMMON_UTF8_H

#include <stdbool.h>
#include <stddef.h>

/* Length of the UTF-8 sequence at p (n > 0 bytes are there), 1..4.  *good tells whether it is one
 * (Unicode table 3-7: no overlong form, no surrogate, nothing above U+10FFFF).  If not, the length
 * is that of the longest prefix of a good sequence, at least 1: what one U+FFFD stands for. */
size_t utf8_step(const char *p, size_t n, bool *good);
/* Writes 1..4 bytes; c is a scalar value. */
size_t utf8_put(char *p, unsigned c);

#endif
