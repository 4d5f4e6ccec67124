/*
 * The control of `make fuzz`: a target linked with this holds a bug of the kind that the fuzzer is there for, a read beyond the
 * end of a block, behind three comparisons that only coverage leads through.  A fuzzer that does not find it finds nothing.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int __real_LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int __wrap_LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static volatile uint8_t seen;

static void bug(const uint8_t *data, size_t n)
{
	uint8_t *copy = malloc(n);

	if (copy) {
		memcpy(copy, data, n);
		seen = copy[n];
	}
	free(copy);
}

int __wrap_LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	for (size_t i = 0; i + 3 <= n; i++)
		if (data[i] == '~')
			if (data[i + 1] == '~')
				if (data[i + 2] == '~')
					bug(data, n);
	return __real_LLVMFuzzerTestOneInput(data, n);
}
