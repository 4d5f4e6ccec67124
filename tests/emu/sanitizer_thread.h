#ifndef TESTS_EMU_SANITIZER_H
#define TESTS_EMU_SANITIZER_H

/*
 * ThreadSanitizer: a fiber is a thread of its, and a switch orders nothing (flag 1).  Order comes from san_release() and
 * san_acquire() alone, which the barriers call.
 */

#include <stddef.h>
#include <stdio.h>

extern "C" {
void *__tsan_get_current_fiber(void);
void *__tsan_create_fiber(unsigned);
void __tsan_switch_to_fiber(void *, unsigned);
void __tsan_set_fiber_name(void *, const char *);
void __tsan_acquire(void *);
void __tsan_release(void *);
void __tsan_read_range(void *, unsigned long);
void __tsan_write_range(void *, unsigned long);
}

enum { SAN_STACK = 256 << 10 };
struct san_fiber { void *fiber; };
static struct san_fiber san_main;

static inline void san_new(struct san_fiber *f, int id)
{
	char name[32];

	snprintf(name, sizeof(name), "CUDA thread %d", id);
	f->fiber = __tsan_create_fiber(0);
	__tsan_set_fiber_name(f->fiber, name);
}
static inline void san_leave(struct san_fiber *from, struct san_fiber *to, const void *, size_t, bool)
{
	if (from == &san_main)
		san_main.fiber = __tsan_get_current_fiber();
	__tsan_switch_to_fiber(to->fiber, 1);
}
static inline void san_arrive(struct san_fiber *) {}
static inline void san_begin(struct san_fiber *) {}
static inline void san_acquire(void *tag) { __tsan_acquire(tag); }
static inline void san_release(void *tag) { __tsan_release(tag); }
static inline void san_hide(const void *, size_t) {}
static inline void san_show(const void *, size_t) {}
static inline void san_reads(const void *p, size_t n) { __tsan_read_range((void *)p, n); }
static inline void san_writes(void *p, size_t n) { __tsan_write_range(p, n); }

#endif
