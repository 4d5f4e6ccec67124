#include "kernels/cpu/isa.h"

#include <string.h>

static const char *const names[ISA_COUNT] = { "portable", "avx2", "avx512", "avx512bf16" };
static int chosen = -1;

static enum isa best(void)
{
	int i = ISA_COUNT - 1;

	while (!isa_here((enum isa)i))
		i--;
	return (enum isa)i;
}

int isa_choose(const char *name, struct err *e)
{
	if (!name) {
		chosen = (int)best();
		return 0;
	}
	for (int i = 0; i < ISA_COUNT; i++) {
		if (strcmp(name, names[i]))
			continue;
		if (!isa_here((enum isa)i))
			return err_set(e, EX_UNAVAILABLE,
				       "instruction set '%s': not in this CPU, whose best is '%s'",
				       name, names[best()]);
		chosen = i;
		return 0;
	}
	return err_set(e, EX_USAGE,
		       "instruction set '%s': wanted avx512bf16, avx512, avx2 or portable", name);
}

static enum isa now(void)
{
	if (chosen < 0)
		chosen = (int)best();
	return (enum isa)chosen;
}

const char *isa_name(void)
{
	return names[now()];
}

const struct linear_kernel *linear_kernel(void)
{
	return isa_linear(now());
}

const struct attention_kernel *attention_kernel(void)
{
	return isa_attention(now());
}
