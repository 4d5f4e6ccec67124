#include "kernels/cpu/slab.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "libcommon/xalloc.h"

enum { HUGE_PAGE = 2 << 20, MOST = 64 << 20 };

struct slab {
	struct slab *next;
	char *memory;
	size_t bytes, used;
	long pieces;
};

static struct slab *slabs;

/* Each new slab doubles what there is, so that a small model takes little and a large one few. */
static struct slab *slab_new(size_t bytes)
{
	struct slab *s = xcalloc(1, sizeof(*s));
	size_t size = slabs && slabs->bytes < MOST ? 2 * slabs->bytes : slabs ? MOST : HUGE_PAGE;

	if (size > MOST)
		size = MOST;
	s->bytes = size > bytes ? size : bytes;
	s->memory = big_alloc(s->bytes, "matrices");
	s->next = slabs;
	slabs = s;
	return s;
}

void *slab_alloc(size_t bytes)
{
	size_t want = (bytes + 63) / 64 * 64;
	struct slab *s = slabs;
	void *p;

	while (s && s->bytes - s->used < want)
		s = s->next;
	if (!s)
		s = slab_new(want);
	p = s->memory + s->used;
	s->used += want;
	s->pieces++;
	return p;
}

void slab_free(void *p)
{
	uintptr_t at = (uintptr_t)p;

	for (struct slab **s = &slabs, *gone; p && (gone = *s); s = &gone->next) {
		if (at < (uintptr_t)gone->memory || at >= (uintptr_t)gone->memory + gone->bytes)
			continue;
		if (--gone->pieces == 0) {
			*s = gone->next;
			big_free(gone->memory);
			free(gone);
		}
		return;
	}
	if (p)
		bug("slab_free() of memory that is in no slab");
}
