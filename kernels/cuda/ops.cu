#include "kernels/cuda/backend.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/cuda/host.h"
#include "kernels/cuda/ranks.h"

/* The table, and the library's own versions of what libcommon does for the program. */

static const struct cuda_host *host;

extern "C" {

void die(int code, const char *fmt, ...)
{
	char text[1024];
	va_list a;

	va_start(a, fmt);
	vsnprintf(text, sizeof(text), fmt, a);
	va_end(a);
	host->die(code, "%s", text);
	abort();
}

void bug_at(const char *file, int line, const char *fmt, ...)
{
	char text[1024];
	va_list a;

	va_start(a, fmt);
	vsnprintf(text, sizeof(text), fmt, a);
	va_end(a);
	host->bug_at(file, line, "%s", text);
	abort();
}

void log_info(const char *fmt, ...)
{
	char text[1024];
	va_list a;

	va_start(a, fmt);
	vsnprintf(text, sizeof(text), fmt, a);
	va_end(a);
	host->log_info("%s", text);
}

int err_set(struct err *e, int code, const char *fmt, ...)
{
	va_list a;

	e->code = code;
	va_start(a, fmt);
	vsnprintf(e->msg, sizeof(e->msg), fmt, a);
	va_end(a);
	return -1;
}

size_t dtype_size(enum dtype t)
{
	return t == DTYPE_F32 ? 4 : t == DTYPE_BF16 ? 2 : (bug("a type that kernels do not have"), 0);
}

}

enum slot {
#define SLOT_NUMBER(name) SLOT_##name,
	CUDA_OPS(SLOT_NUMBER)
	SLOTS
};

static const char *const slot_name[] = {
#define SLOT_NAME(name) #name,
	CUDA_OPS(SLOT_NAME)
};

/* What stands in a slot without an op: it has the op's type, and says which it is. */
template <int SLOT, class F> struct missing;
template <int SLOT, class R, class... A> struct missing<SLOT, R (*)(A...)> {
	static R call(A...)
	{
		die(EX_UNAVAILABLE, "%s is not built for cuda yet; use --device cpu", slot_name[SLOT]);
	}
};

static const char *fill(struct ops *o)
{
	const char *first = nullptr;

#define SLOT_FILL(name) \
	o->name = name##_cuda ? name##_cuda : missing<SLOT_##name, decltype(ops::name)>::call; \
	if (!name##_cuda && !first) \
		first = #name;
	CUDA_OPS(SLOT_FILL)
	return first;
}

extern "C" __attribute__((visibility("default")))
const struct ops *cairn_cuda_ops(const struct cuda_host *h, int device, bool whole, struct err *e)
{
	static struct ops o;
	static char arch[16];
	const char *lacks;

	host = h;
	lacks = fill(&o);
	if (lacks && whole) {
		err_set(e, EX_UNAVAILABLE, "%s is not built for cuda yet", lacks);
		return nullptr;
	}
	if (cuda_open(device, arch, sizeof(arch), e))
		return nullptr;
	o.name = "cuda";
	o.isa = arch;
	o.ranks = &cuda_ranks;
	return &o;
}
