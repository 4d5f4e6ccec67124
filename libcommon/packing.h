#ifndef LIBCOMMON_PACKING_H
#define LIBCOMMON_PACKING_H

/*
 * Which sequences share a row.  Items have lengths and go into bins of one capacity; an item above it is EX_DATAERR.
 * Results never depend on the choice (design section 5), only speed does.
 *
 *	concatenative               in order, a new bin when the next does not fit
 *	first_fit_decreasing        longest first, into the first bin with room
 *	modified_first_fit_decreasing (Johnson and Garey, 1985): classes above 1/2, 1/3 and 1/6 of the capacity; a bin for each large item;
 *	    from the largest bin on, the largest medium that fits; from the smallest on, a pair of small ones; then whatever fits, largest
 *	    first; the rest by first fit decreasing
 *
 * Ties keep the order of the items.  Bins list their items in ascending order.
 */

#include "libcommon/die.h"

enum packing { PACK_CONCATENATIVE, PACK_FFD, PACK_MFFD };

struct bins {
	long n;                 /* bins */
	long *first;            /* owned: bin b has item[first[b]] .. item[first[b+1] - 1] */
	long *item;             /* owned */
};

int pack(struct bins *b, const long *length, long n, long capacity, enum packing how, struct err *e) MUST_CHECK;
void bins_release(struct bins *b);
/* The name in recipes, or -1. */
int packing_find(const char *name);

#endif
