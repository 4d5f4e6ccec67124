#include "kernels/cpu/isa.h"

#include "kernels/cpu/attention_kernel.h"
#include "kernels/cpu/linear_kernel.h"

bool isa_here(enum isa i)
{
	bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
	bool avx512 = avx2 && __builtin_cpu_supports("avx512f") &&
		      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
		      __builtin_cpu_supports("avx512dq");

	switch (i) {
	case ISA_AVX2:
		return avx2;
	case ISA_AVX512:
		return avx512;
	case ISA_AVX512BF16:
		return avx512 && __builtin_cpu_supports("avx512bf16");
	default:
		return i == ISA_PORTABLE;
	}
}

const struct linear_kernel *isa_linear(enum isa i)
{
	static const struct linear_kernel *const of[ISA_COUNT] = {
		&linear_portable,
		&linear_avx2,
		&linear_avx512,
		&linear_avx512bf16,
	};

	return of[i];
}

const struct attention_kernel *isa_attention(enum isa i)
{
	static const struct attention_kernel *const of[ISA_COUNT] = {
		&attention_portable,
		&attention_avx2,
		&attention_avx512,
		&attention_avx512bf16,
	};

	return of[i];
}
