/* Any bytes as a safetensors file: opened, and what opens is read whole.  libFuzzer;
 * corpus/safetensors holds the seeds. */

#include "formats/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void read_tensors(const struct safetensors *s)
{
	for (long i = 0; i < s->n; i++) {
		const struct safetensors_entry *en = &s->entry[i];
		struct err e = ERR_INIT;
		struct tensor t;
		void *buf;

		if (safetensors_find(s, en->name) != en)
			abort();
		if (safetensors_describe(&t, s, en, &e))
			continue;
		if (tensor_bytes(&t) != en->bytes)
			abort();
		buf = xmalloc(en->bytes + 1);
		if (safetensors_read(buf, s, en, 0, en->bytes, &e))
			abort();
		free(buf);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	int fd = memfd_create("fuzz", MFD_CLOEXEC);
	struct err e = ERR_INIT;
	struct safetensors s;
	char path[64];

	if (fd < 0 || write(fd, data, n) != (ssize_t)n)
		abort();
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (!safetensors_open(&s, path, &e)) {
		read_tensors(&s);
		safetensors_close(&s);
	} else if (e.code != EX_DATAERR) {
		abort();
	}
	close(fd);
	return 0;
}
