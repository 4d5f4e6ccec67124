#include "tests/emu/inside.h"

#include <map>

#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>

/*
 * EMU_GUARD=1: what the host must not touch it cannot.  Memory of the device is then one range of
 * addresses that is open only while work of a stream runs; a program that reads or writes it
 * anywhere else ends with the address.
 */

static char *begin;
static size_t size, high; /* of the range; what was ever given */
static auto &idle = *new std::multimap<size_t, char *>();
static auto &bytes_of = *new std::map<char *, size_t>();
static int depth;

static void touched(int, siginfo_t *info, void *)
{
	char *p = (char *)info->si_addr;

	if (p >= begin && p < begin + size)
		emu_fail("the host touches memory of the device, %p", (void *)p);
	signal(SIGSEGV, SIG_DFL);
}

bool emu_guards(void)
{
	const char *s = getenv("EMU_GUARD");

	return s && *s == '1';
}

static void reserve(size_t most)
{
	static char stack[1 << 16];
	stack_t other = {};
	struct sigaction act = {};

	size = 2 * most;
	begin = (char *)mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
			     -1, 0);
	if (begin == MAP_FAILED)
		emu_fail("no range of %zu addresses", size);
	other.ss_sp = stack;
	other.ss_size = sizeof(stack);
	sigaltstack(&other, nullptr);
	act.sa_sigaction = touched;
	act.sa_flags = SA_SIGINFO | SA_ONSTACK;
	sigaction(SIGSEGV, &act, nullptr);
}

static void protect(int how)
{
	if (high && mprotect(begin, high, how))
		emu_fail("the guard of the device's memory");
}

void emu_open(void)
{
	if (!depth++)
		protect(PROT_READ | PROT_WRITE);
}

void emu_close(void)
{
	if (!--depth)
		protect(PROT_NONE);
}

void *emu_guarded(size_t bytes, size_t most)
{
	char *p = nullptr;

	bytes = (bytes + 4095) / 4096 * 4096;
	if (!begin)
		reserve(most);
	auto o = idle.lower_bound(bytes);
	if (o != idle.end() && o->first <= 2 * bytes) {
		bytes = o->first;
		p = o->second;
		idle.erase(o);
	} else if (high + bytes <= size) {
		p = begin + high;
		high += bytes;
	} else {
		return nullptr;
	}
	bytes_of[p] = bytes;
	protect(depth ? PROT_READ | PROT_WRITE : PROT_NONE);
	return p;
}

void emu_unguarded(void *p)
{
	idle.emplace(bytes_of[(char *)p], (char *)p);
	bytes_of.erase((char *)p);
}
