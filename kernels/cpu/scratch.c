#include "kernels/cpu/scratch.h"

#include "libcommon/xalloc.h"

enum { MOST_THREADS = 1024 };

static struct {
	void *p;
	size_t bytes;
} held[MOST_THREADS][SCRATCH_COUNT];

void *scratch(enum scratch use, int thread, size_t bytes)
{
	if (thread < 0 || thread >= MOST_THREADS)
		bug("thread %d", thread);
	if (held[thread][use].bytes < bytes) {
		big_free(held[thread][use].p);
		bytes += bytes / 4;
		held[thread][use].p = big_alloc(bytes, "working memory");
		held[thread][use].bytes = bytes;
	}
	return held[thread][use].p;
}
