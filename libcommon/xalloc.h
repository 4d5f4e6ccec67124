#ifndef LIBCOMMON_XALLOC_H
#define LIBCOMMON_XALLOC_H

/*
 * Memory that is there or ends the program (69, naming the bytes).  For sizes
 * that a file dictates, bound the size first: what a hostile header asks for
 * must be refused as data (65), not tried.
 */

#include "libcommon/die.h"

#include <stddef.h>

void *xmalloc(size_t bytes);
void *xcalloc(size_t n, size_t size);           /* zeroed; n * size checked */
void *xrealloc(void *p, size_t bytes);
void *xrealloc_array(void *p, size_t n, size_t size);
char *xstrdup(const char *s);
char *xstrndup(const char *s, size_t n);        /* n bytes and a NUL; may hold NULs */
char *xasprintf(const char *fmt, ...) PRINTF(1, 2);

/* Make room for one more in an array of n with space for *cap. */
#define GROW(array, n, cap) do { \
	if ((n) >= (cap)) { \
		(cap) = (cap) ? (cap) * 2 : 16; \
		(array) = xrealloc_array((array), (size_t)(cap), sizeof(*(array))); \
	} \
} while (0)

/*
 * An arena: many small things that die together.  Zero-initialise; what it
 * hands out is aligned to 16 and lives until arena_release().
 */
struct arena {
	struct arena_block *block;
	size_t used;
};

void *arena_alloc(struct arena *a, size_t bytes);       /* not zeroed */
void *arena_calloc(struct arena *a, size_t n, size_t size);
char *arena_strndup(struct arena *a, const char *s, size_t n);
char *arena_printf(struct arena *a, const char *fmt, ...) PRINTF(2, 3);
void arena_release(struct arena *a);

/* Large buffers for arithmetic: 64-byte aligned at least, zeroed, huge pages asked
 * for, dies with 69 naming `what` and the bytes.  Free with big_free(). */
void *big_alloc(size_t bytes, const char *what);
/* For what is walked through once a step and lives as long as the program (weights, moments): ordinary pages.  Where a hypervisor
 * takes free memory back, a fresh huge page costs five times as much as the ordinary ones in it. */
void *big_alloc_streamed(size_t bytes, const char *what);
void big_free(void *p);
void big_zero(void *p, size_t bytes);                   /* by all threads */

#endif
