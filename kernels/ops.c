#include "kernels/ops.h"

#include "kernels/cpu/ops.h"
#include "kernels/cuda/host.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int local_device;

void ops_local_device(int device)
{
	local_device = device;
}

/* The library lies beside the program, or where CAIRN_CUDA_SO says. */
static int cuda_path(char *path, size_t size, struct err *e)
{
	static const char file[] = "cairn-cuda.so";
	const char *given = getenv("CAIRN_CUDA_SO");
	ssize_t len;

	if (given && *given) {
		if (strlen(given) >= size)
			return err_set(e, EX_UNAVAILABLE, "CAIRN_CUDA_SO is longer than a path can be");
		strcpy(path, given);
	} else {
		len = readlink("/proc/self/exe", path, size - sizeof(file));
		while (len > 0 && path[len - 1] != '/')
			len--;
		strcpy(path + (len > 0 ? len : 0), file);
	}
	if (access(path, R_OK))
		return err_set(e, EX_UNAVAILABLE, "%s: %s; was this built with CUDA?", path, strerror(errno));
	return 0;
}

static const struct ops *ops_cuda(int device, bool whole, struct err *e)
{
	static const struct cuda_host host = { die, bug_at, log_info };
	char path[4096];
	cuda_open_ops open;
	void *so;

	if (cuda_path(path, sizeof(path), e))
		return NULL;
	so = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	open = so ? (cuda_open_ops)dlsym(so, CUDA_OPEN_OPS) : NULL;
	if (!open) {
		err_set(e, EX_UNAVAILABLE, "%s does not load: %s", path, dlerror());
		return NULL;
	}
	return open(&host, device, whole, e);
}

/* A device that can run every op, else the CPU. */
static const struct ops *ops_auto(const char *isa, struct err *e)
{
	struct err none = ERR_INIT;
	const struct ops *k = isa ? NULL : ops_cuda(local_device, true, &none);

	if (k) {
		log_info("device auto: cuda, %s", k->isa);
		return k;
	}
	k = ops_cpu(isa, e);
	if (k)
		log_info("device auto: cpu, %s%s%s", k->isa, isa ? "" : "; ", isa ? "" : none.msg);
	return k;
}

const struct ops *ops_find(const char *device, const char *isa, struct err *e)
{
	const struct ops *k;
	char *end = "";
	long n = local_device;

	if (!device || !strcmp(device, "auto"))
		return ops_auto(isa, e);
	if (!strcmp(device, "cpu"))
		return ops_cpu(isa, e);
	if (!strncmp(device, "cuda:", 5) && device[5] >= '0' && device[5] <= '9')
		n = strtol(device + 5, &end, 10);
	else if (strcmp(device, "cuda"))
		end = "?";
	if (*end || n > 1023) {
		err_set(e, EX_USAGE, "--device %s: wanted auto, cpu, cuda or cuda:N", device);
		return NULL;
	}
	if (isa) {
		err_set(e, EX_USAGE, "--isa %s is the CPU's, and --device %s is not", isa, device);
		return NULL;
	}
	k = ops_cuda((int)n, false, e);
	if (!k)
		err_prefix(e, "--device %s", device);
	return k;
}
