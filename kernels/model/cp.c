#include "kernels/model/cp.h"

#include "libcommon/xalloc.h"

#include <stdlib.h>
#include <string.h>

void cp_init(struct cp *c, struct comm *group, long max_rows)
{
	size_t rows = (size_t)max_rows + 1;

	*c = (struct cp){ .c = group };
	c->first = xcalloc((size_t)group->size + 1, sizeof(*c->first));
	c->row = xmalloc(rows * sizeof(*c->row));
	c->position = xmalloc(rows * sizeof(*c->position));
	c->piece = xmalloc((group->size > 1 ? 3 : 1) * rows * sizeof(*c->piece));
	c->bytes = xcalloc((size_t)group->size, sizeof(*c->bytes));
}

void cp_release(struct cp *c)
{
	free(c->first);
	free(c->row);
	free(c->position);
	free(c->piece);
	free(c->bytes);
}

/* Where chunk i of a sequence of n begins; `turn` rows were dealt one by one before it. */
static long chunk_first(long i, long n, long size, long turn)
{
	long chunks = 2 * size, extra = n % chunks, first = n / chunks * i;

	for (long j = 0; j < extra; j++) {
		long rank = (turn + j) % size, chunk = j < size ? rank : chunks - 1 - rank;

		first += chunk < i;
	}
	return first;
}

/*
 * Rank r's rows of a sequence, `turn` rows dealt before it, from row[at] on; own: it is this rank.
 */
static long add_chunks(struct cp *c, const struct batch *b, long s, long r, long turn, long at,
		       bool own)
{
	long size = c->c->size, n = b->cu[s + 1] - b->cu[s];

	for (int half = 0; half < (size == 1 ? 1 : 2); half++) {
		long i = half ? 2 * size - 1 - r : r, first = chunk_first(i, n, size, turn);
		long end = size == 1 ? n : chunk_first(i + 1, n, size, turn);

		if (own && end > first)
			c->piece[c->pieces++] = (struct attention_piece){ at - c->begin,
									  end - first, b->cu[s],
									  end };
		for (long p = first; p < end; p++, at++) {
			c->row[at] = (int)(b->cu[s] + p);
			if (own)
				c->position[at - c->begin] = (int)p;
		}
	}
	/* All keys have gradients to be added up, also those behind this rank's rows. */
	if (own && size > 1)
		c->piece[c->pieces++] = (struct attention_piece){ at - c->begin, 0, b->cu[s], n };
	return at;
}

void cp_plan(struct cp *c, const struct batch *b)
{
	long at = 0;

	c->rows = b->rows;
	c->pieces = 0;
	for (long r = 0; r < c->c->size; r++) {
		long turn = 0;

		c->first[r] = at;
		if (r == c->c->rank)
			c->begin = at;
		for (long s = 0; s < b->nseq; s++) {
			at = add_chunks(c, b, s, r, turn, at, r == c->c->rank);
			turn += (b->cu[s + 1] - b->cu[s]) % (2 * c->c->size);
		}
	}
	c->first[c->c->size] = at;
	c->own = c->first[c->c->rank + 1] - c->begin;
}

static void count_bytes(struct cp *c, size_t row_bytes)
{
	for (long r = 0; r < c->c->size; r++)
		c->bytes[r] = (size_t)(c->first[r + 1] - c->first[r]) * row_bytes;
}

const void *cp_gather(struct cp *c, const struct ops *k, void *all, const void *mine, void *stage,
		      size_t row_bytes)
{
	if (c->c->size == 1)
		return mine;
	count_bytes(c, row_bytes);
	comm_dev_gather_v(c->c, stage, mine, c->bytes);
	k->rows_scatter(all, stage, c->row, c->rows, row_bytes);
	return all;
}

void cp_numbers(struct cp *c, float *all, const float *mine, float *stage)
{
	if (c->c->size == 1) {
		memcpy(all, mine, (size_t)c->rows * sizeof(float));
		return;
	}
	count_bytes(c, sizeof(float));
	comm_gather_v(c->c, stage, mine, c->bytes);
	for (long i = 0; i < c->rows; i++)
		all[c->row[i]] = stage[i];
}

void cp_scatter_sum(struct cp *c, const struct ops *k, float *out, const float *in, float *stage,
		    long n)
{
	for (long r = 0; r < c->c->size; r++)
		c->bytes[r] = (size_t)((c->first[r + 1] - c->first[r]) * n);
	k->rows_gather(stage, in, c->row, c->rows, (size_t)n * sizeof(float));
	comm_dev_scatter_sum_f32(c->c, out, stage, c->bytes);
}

void cp_pick(const struct cp *c, void *mine, const void *all, size_t row_bytes)
{
	for (long i = 0; i < c->own; i++)
		memcpy((char *)mine + (size_t)i * row_bytes,
		       (const char *)all + (size_t)c->row[c->begin + i] * row_bytes, row_bytes);
}
