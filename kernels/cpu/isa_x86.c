#include "kernels/cpu/isa.h"

#include "kernels/cpu/attention_kernel.h"
#include "kernels/cpu/linear_kernel.h"

bool isa_here(enum isa i)
{
	return i == ISA_PORTABLE;
}

const struct linear_kernel *isa_linear(enum isa i)
{
	(void)i;
	return &linear_portable;
}

const struct attention_kernel *isa_attention(enum isa i)
{
	(void)i;
	return &attention_portable;
}
