#include "formats/dataset.h"

#include <stdlib.h>

#include "libcommon/rng.h"

void dataset_order(long *out, long n, uint64_t seed, uint64_t epoch)
{
	rng_permutation(out, n, rng_key(seed, RNG_SHUFFLE, epoch));
}

void dataset_cursor_init(struct dataset_cursor *c, long n, bool shuffle, uint64_t seed)
{
	*c = (struct dataset_cursor){ .n = n, .shuffle = shuffle, .seed = seed };
}

long dataset_cursor_at(struct dataset_cursor *c, uint64_t position)
{
	uint64_t n = (uint64_t)c->n, epoch = position / n;

	if (!c->shuffle)
		return (long)(position % n);
	if (!c->order)
		c->order = xcalloc((size_t)c->n, sizeof(*c->order));
	if (!c->valid || c->epoch != epoch)
		dataset_order(c->order, c->n, c->seed, epoch);
	c->epoch = epoch;
	c->valid = true;
	return c->order[position % n];
}

void dataset_cursor_release(struct dataset_cursor *c)
{
	free(c->order);
	*c = (struct dataset_cursor){ .n = 0 };
}
