#include "kernels/ops.h"

#include "kernels/cpu/ops.h"

#include <string.h>

const struct ops *ops_find(const char *device, const char *isa, struct err *e)
{
	if (!device || !strcmp(device, "auto") || !strcmp(device, "cpu")) {
		const struct ops *k = ops_cpu(isa, e);

		if (k && (!device || !strcmp(device, "auto")))
			log_info("device auto: cpu, %s", k->isa);
		return k;
	}
	if (!strcmp(device, "cuda") || !strncmp(device, "cuda:", 5))
		err_set(e, EX_UNAVAILABLE, "--device %s: the CUDA backend is not built yet; use --device cpu", device);
	else
		err_set(e, EX_USAGE, "--device %s: wanted auto, cpu, cuda or cuda:N", device);
	return NULL;
}
