#ifndef TESTS_EMU_SANITIZER_H
#define TESTS_EMU_SANITIZER_H

/* AddressSanitizer: it has to know the stack that runs, and what of shared memory a launch has. */

#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#include <stddef.h>

enum { SAN_STACK = 512 << 10 };
struct san_fiber { void *fake; const void *bottom; size_t size; };
static struct san_fiber san_main;

static inline void san_new(struct san_fiber *, int) {}
static inline void san_leave(struct san_fiber *from, struct san_fiber *to, const void *stack, size_t bytes, bool gone)
{
	bool home = to == &san_main;

	__sanitizer_start_switch_fiber(gone ? nullptr : &from->fake, home ? san_main.bottom : stack, home ? san_main.size : bytes);
}
static inline void san_arrive(struct san_fiber *me)
{
	__sanitizer_finish_switch_fiber(me->fake, nullptr, nullptr);
}
/* The first fiber of a launch learns where the stack of main() is. */
static inline void san_begin(struct san_fiber *)
{
	const void *bottom;
	size_t size;

	__sanitizer_finish_switch_fiber(nullptr, &bottom, &size);
	if (!san_main.bottom) {
		san_main.bottom = bottom;
		san_main.size = size;
	}
}
static inline void san_acquire(void *) {}
static inline void san_release(void *) {}
static inline void san_hide(const void *p, size_t n) { ASAN_POISON_MEMORY_REGION(p, n); }
static inline void san_show(const void *p, size_t n) { ASAN_UNPOISON_MEMORY_REGION(p, n); }
static inline void san_reads(const void *p, size_t n)
{
	if (n && (((volatile const char *)p)[0], ((volatile const char *)p)[n - 1]))
		return;
}
static inline void san_writes(void *p, size_t n) { san_reads(p, n); }

#endif
