#include "tests/emu/inside.h"

#include <sys/mman.h>

/*
 * The registers that a call preserves go onto the stack that is left, and come from the one that is entered.  Floating-point control
 * is the same everywhere.
 */
asm(R"(
	.text
	.globl emu_switch
	.hidden emu_switch
	.type emu_switch, @function
emu_switch:
	pushq %rbp
	pushq %rbx
	pushq %r12
	pushq %r13
	pushq %r14
	pushq %r15
	movq %rsp, (%rdi)
	movq %rsi, %rsp
	popq %r15
	popq %r14
	popq %r13
	popq %r12
	popq %rbx
	popq %rbp
	ret
	.size emu_switch, . - emu_switch
)");

enum { GUARD = 4096, SAVED = 6 };

/* The lowest page is never there: a stack that is too small ends in a fault, not in a neighbour. */
void emu_stack_new(struct emu_thread *t)
{
	size_t bytes = SAN_STACK;
	char *p = (char *)mmap(nullptr, bytes + GUARD, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED || mprotect(p, GUARD, PROT_NONE))
		emu_fail("no memory for the stack of a thread");
	t->stack = p + GUARD;
	t->stack_bytes = bytes;
}

/* As emu_switch() leaves it, so that entering it returns into main. */
void emu_stack_begin(struct emu_thread *t, void (*main)(void))
{
	void **top = (void **)(t->stack + t->stack_bytes) - 2;

	san_show(t->stack, t->stack_bytes);
	*top = (void *)main;
	for (int i = 0; i < SAVED; i++)
		*--top = nullptr;
	t->sp = top;
}
