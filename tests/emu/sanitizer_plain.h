#ifndef TESTS_EMU_SANITIZER_H
#define TESTS_EMU_SANITIZER_H

/* No sanitizer: nothing to tell. */

#include <stddef.h>

enum { SAN_STACK = 128 << 10 };
struct san_fiber { void *unused; };
static struct san_fiber san_main __attribute__((unused));

static inline void san_new(struct san_fiber *, int) {}
static inline void san_leave(struct san_fiber *, struct san_fiber *, const void *, size_t, bool) {}
static inline void san_arrive(struct san_fiber *) {}
static inline void san_begin(struct san_fiber *) {}
static inline void san_acquire(void *) {}
static inline void san_release(void *) {}
static inline void san_hide(const void *, size_t) {}
static inline void san_show(const void *, size_t) {}
static inline void san_reads(const void *, size_t) {}
static inline void san_writes(void *, size_t) {}

#endif
