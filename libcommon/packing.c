#include "libcommon/packing.h"

#include "libcommon/xalloc.h"

#include <stdlib.h>
#include <string.h>

int packing_find(const char *name)
{
	static const char *const names[] = { "concatenative", "first_fit_decreasing", "modified_first_fit_decreasing" };

	for (int i = 0; i < 3; i++)
		if (!strcmp(name, names[i]))
			return i;
	return -1;
}

struct packer {
	const long *length;
	long n, capacity;
	long *order;            /* items, longest first */
	long *bin;              /* of each item; -1: none yet */
	long *room;             /* left in each bin */
	long bins;
};

static const long *sort_length;

static int longer_first(const void *a, const void *b)
{
	long x = *(const long *)a, y = *(const long *)b;

	if (sort_length[x] != sort_length[y])
		return sort_length[x] > sort_length[y] ? -1 : 1;
	return x < y ? -1 : 1;
}

static void place(struct packer *p, long item, long bin)
{
	p->bin[item] = bin;
	p->room[bin] -= p->length[item];
}

static void open_bin(struct packer *p, long item)
{
	p->room[p->bins] = p->capacity;
	place(p, item, p->bins++);
}

static void first_fit(struct packer *p, long item)
{
	for (long b = 0; b < p->bins; b++)
		if (p->room[b] >= p->length[item]) {
			place(p, item, b);
			return;
		}
	open_bin(p, item);
}

static void concatenative(struct packer *p)
{
	for (long i = 0; i < p->n; i++)
		if (p->bins && p->room[p->bins - 1] >= p->length[i])
			place(p, i, p->bins - 1);
		else
			open_bin(p, i);
}

/* The largest item not yet placed, of length lo < l <= hi, or -1. */
static long largest(const struct packer *p, long lo, long hi)
{
	for (long i = 0; i < p->n; i++) {
		long item = p->order[i], l = p->length[item];

		if (p->bin[item] < 0 && l <= hi)
			return l > lo ? item : -1;
	}
	return -1;
}

static long smallest_small(const struct packer *p, long not_this)
{
	for (long i = p->n - 1; i >= 0; i--) {
		long item = p->order[i], l = p->length[item];

		if (p->bin[item] < 0 && item != not_this && l * 6 > p->capacity && l * 3 <= p->capacity)
			return item;
	}
	return -1;
}

static void modified(struct packer *p)
{
	long c = p->capacity, large, item;

	for (long i = 0; i < p->n && p->length[p->order[i]] * 2 > c; i++)
		open_bin(p, p->order[i]);
	large = p->bins;
	/* mediums: from the fullest bin, the largest that fits */
	for (long b = 0; b < large; b++)
		if ((item = largest(p, c / 3, p->room[b])) >= 0 && p->length[item] * 3 > c)
			place(p, item, b);
	/* pairs of smalls: from the emptiest bin without a medium */
	for (long b = large - 1; b >= 0; b--) {
		long one = smallest_small(p, -1), two = one < 0 ? -1 : smallest_small(p, one);

		if (two < 0 || p->length[one] + p->length[two] > p->room[b])
			continue;
		place(p, one, b);
		item = largest(p, c / 6, p->room[b] < c / 3 ? p->room[b] : c / 3);
		if (item >= 0)
			place(p, item, b);
	}
	for (long b = 0; b < large; b++)
		while ((item = largest(p, -1, p->room[b])) >= 0)
			place(p, item, b);
	for (long i = 0; i < p->n; i++)
		if (p->bin[p->order[i]] < 0)
			first_fit(p, p->order[i]);
}

static void list_bins(struct bins *b, const struct packer *p)
{
	b->n = p->bins;
	b->first = xcalloc((size_t)p->bins + 1, sizeof(long));
	b->item = xmalloc((size_t)p->n * sizeof(long));
	for (long i = 0; i < p->n; i++)
		b->first[p->bin[i] + 1]++;
	for (long k = 0; k < p->bins; k++)
		b->first[k + 1] += b->first[k];
	for (long i = 0; i < p->n; i++)
		b->item[b->first[p->bin[i]]++] = i;
	for (long k = p->bins; k > 0; k--)
		b->first[k] = b->first[k - 1];
	b->first[0] = 0;
}

int pack(struct bins *b, const long *length, long n, long capacity, enum packing how, struct err *e)
{
	struct packer p = { .length = length, .n = n, .capacity = capacity };

	memset(b, 0, sizeof(*b));
	for (long i = 0; i < n; i++)
		if (length[i] > capacity)
			return err_set(e, EX_DATAERR, "sequence %ld: %ld tokens, wanted at most %ld", i, length[i], capacity);
	p.order = xmalloc((size_t)n * sizeof(long));
	p.bin = xmalloc((size_t)n * sizeof(long));
	p.room = xmalloc((size_t)n * sizeof(long));
	for (long i = 0; i < n; i++) {
		p.order[i] = i;
		p.bin[i] = -1;
	}
	sort_length = length;
	qsort(p.order, (size_t)n, sizeof(long), longer_first);
	if (how == PACK_CONCATENATIVE)
		concatenative(&p);
	else if (how == PACK_MFFD)
		modified(&p);
	else
		for (long i = 0; i < n; i++)
			first_fit(&p, p.order[i]);
	list_bins(b, &p);
	free(p.order);
	free(p.bin);
	free(p.room);
	return 0;
}

void bins_release(struct bins *b)
{
	free(b->first);
	free(b->item);
	memset(b, 0, sizeof(*b));
}
