/* Any bytes as a GGUF file: opened, and what opens is read whole and asked for its model and
 * tokenizer.  libFuzzer; corpus/gguf holds the seeds. */

#include "formats/gguf.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "formats/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void read_tensors(const struct gguf *g)
{
	for (long i = 0; i < g->n; i++) {
		const struct gguf_tensor *gt = &g->tensor[i];
		struct err e = ERR_INIT;
		struct tensor t;
		char name[128];
		void *buf;

		if (gguf_tensor_find(g, gt->name) != gt)
			abort();
		gguf_hf_name(name, "qwen2_moe", gt->name);
		if (gguf_describe(&t, g, gt, &e))
			continue;
		buf = xmalloc(tensor_bytes(&t));
		if (gguf_read(buf, g, gt, 0, gguf_rows(gt), &e))
			abort();
		free(buf);
	}
}

static void ask(struct gguf *g)
{
	struct tokenizer_source s;
	struct model_config c;
	struct err e = ERR_INIT;
	const char *text;

	if (gguf_model_config(&c, g, &e) && e.code != EX_DATAERR && e.code != EX_UNAVAILABLE)
		abort();
	if (gguf_tokenizer_source(&s, g, &e) && e.code != EX_DATAERR)
		abort();
	if (gguf_chat_template(&text, g, &e) && e.code != EX_DATAERR)
		abort();
	read_tensors(g);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	int fd = memfd_create("fuzz", MFD_CLOEXEC);
	struct err e = ERR_INIT;
	struct gguf g;
	char path[64];

	if (fd < 0 || write(fd, data, n) != (ssize_t)n)
		abort();
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (!gguf_open(&g, path, &e)) {
		ask(&g);
		gguf_close(&g);
	} else if (e.code != EX_DATAERR) {
		abort();
	}
	close(fd);
	return 0;
}
