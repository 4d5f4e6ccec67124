#include "libcommon/xalloc.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "libcommon/pool.h"

#define ADVICE "; free some, or ask for fewer or shorter sequences at once"

static void *got(void *p, size_t bytes)
{
	if (!p && bytes)
		die(EX_UNAVAILABLE, "out of memory: %zu bytes wanted" ADVICE, bytes);
	return p;
}

static size_t times(size_t n, size_t size)
{
	size_t bytes;

	if (__builtin_mul_overflow(n, size, &bytes))
		die(EX_UNAVAILABLE, "out of memory: %zu times %zu bytes wanted", n, size);
	return bytes;
}

void *xmalloc(size_t bytes)
{
	return got(malloc(bytes ? bytes : 1), bytes ? bytes : 1);
}

void *xcalloc(size_t n, size_t size)
{
	size_t bytes = times(n, size);

	return got(calloc(1, bytes ? bytes : 1), bytes ? bytes : 1);
}

void *xrealloc(void *p, size_t bytes)
{
	return got(realloc(p, bytes ? bytes : 1), bytes ? bytes : 1);
}

void *xrealloc_array(void *p, size_t n, size_t size)
{
	return xrealloc(p, times(n, size));
}

char *xstrdup(const char *s)
{
	return xstrndup(s, strlen(s));
}

char *xstrndup(const char *s, size_t n)
{
	char *p = xmalloc(n + 1);

	memcpy(p, s, n);
	p[n] = 0;
	return p;
}

char *xasprintf(const char *fmt, ...)
{
	va_list ap;
	char *s;
	int n;

	va_start(ap, fmt);
	n = vasprintf(&s, fmt, ap);
	va_end(ap);
	return got(n < 0 ? NULL : s, 1);
}

struct arena_block {
	struct arena_block *next;
	size_t size;            /* of data */
	_Alignas(16) char data[];
};

void *arena_alloc(struct arena *a, size_t bytes)
{
	size_t want = (bytes + 15) & ~(size_t)15;
	struct arena_block *b = a->block;
	void *p;

	if (want < bytes)
		die(EX_UNAVAILABLE, "out of memory: %zu bytes wanted", bytes);
	if (!b || b->size - a->used < want) {
		size_t size = b ? b->size * 2 : 4096;

		if (size > 1 << 20)
			size = 1 << 20;
		if (size < want)
			size = want;
		b = xmalloc(sizeof(*b) + size);
		b->size = size;
		b->next = a->block;
		a->block = b;
		a->used = 0;
	}
	p = b->data + a->used;
	a->used += want;
	return p;
}

void *arena_calloc(struct arena *a, size_t n, size_t size)
{
	size_t bytes = times(n, size);

	return memset(arena_alloc(a, bytes), 0, bytes);
}

char *arena_strndup(struct arena *a, const char *s, size_t n)
{
	char *p = arena_alloc(a, n + 1);

	memcpy(p, s, n);
	p[n] = 0;
	return p;
}

char *arena_printf(struct arena *a, const char *fmt, ...)
{
	va_list ap;
	char *p;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	p = arena_alloc(a, (size_t)n + 1);
	va_start(ap, fmt);
	vsnprintf(p, (size_t)n + 1, fmt, ap);
	va_end(ap);
	return p;
}

void arena_release(struct arena *a)
{
	for (struct arena_block *b = a->block, *next; b; b = next) {
		next = b->next;
		free(b);
	}
	memset(a, 0, sizeof(*a));
}

enum { HUGE_PAGE = 2 << 20 };

enum { ZERO_PIECE = 4 << 20 };

struct zeroing { char *p; size_t bytes; };

static void zero_part(void *arg, long i, int thread)
{
	const struct zeroing *z = arg;
	size_t at = (size_t)i * ZERO_PIECE;

	(void)thread;
	memset(z->p + at, 0, z->bytes - at < ZERO_PIECE ? z->bytes - at : ZERO_PIECE);
}

void big_zero(void *p, size_t bytes)
{
	struct zeroing z = { p, bytes };

	if (bytes)
		pool_run(zero_part, &z, (long)((bytes + ZERO_PIECE - 1) / ZERO_PIECE));
}

/* In front of the memory that is given away, 64 bytes before it. */
struct big { void *base; size_t mapped; };

enum { FRONT = 64 };

/* A mapping is zero and stays untouched: the first touch of a page is dear, and is left to who fills it. */
static void *map(size_t bytes, bool huge)
{
	size_t want = (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE, all = want + HUGE_PAGE;
	char *base = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *p;

	if (base == MAP_FAILED)
		return NULL;
	p = base + HUGE_PAGE - (uintptr_t)base % HUGE_PAGE;
	madvise(p, want, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
	*(struct big *)(void *)(p - FRONT) = (struct big){ base, all };
	return p;
}

static void *take_small(size_t bytes)
{
	void *base;

	if (posix_memalign(&base, FRONT, FRONT + bytes))
		return NULL;
	memset(base, 0, FRONT + bytes);
	*(struct big *)base = (struct big){ base, 0 };
	return (char *)base + FRONT;
}

static void *take(size_t bytes, const char *what, bool huge)
{
	void *p = NULL;

	if (bytes < HUGE_PAGE)
		p = take_small(bytes);
	else if (bytes <= SIZE_MAX - 3 * (size_t)HUGE_PAGE)
		p = map(bytes, huge);
	if (!p)
		die(EX_UNAVAILABLE, "out of memory: %zu bytes wanted for %s" ADVICE, bytes, what);
	return p;
}

void *big_alloc(size_t bytes, const char *what)
{
	return take(bytes, what, true);
}

void *big_alloc_streamed(size_t bytes, const char *what)
{
	return take(bytes, what, false);
}

void big_free(void *p)
{
	const struct big *b;

	if (!p)
		return;
	b = (const struct big *)(const void *)((const char *)p - FRONT);
	if (b->mapped)
		munmap(b->base, b->mapped);
	else
		free(b->base);
}
