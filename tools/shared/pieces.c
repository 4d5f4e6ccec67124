#include "tools/shared/pieces.h"

#include <stdlib.h>

struct piece_list { struct checkpoint_piece *piece; long n, cap; };

static void add(struct piece_list *s, long tensor, int file, const struct box *b)
{
	GROW(s->piece, s->n, s->cap);
	s->piece[s->n++] = (struct checkpoint_piece){ tensor, file, *b };
}

int layout_file(const struct layout *l, long rank)
{
	long world = layout_world(l);

	return (int)(world <= PIECE_FILES ? rank : rank * PIECE_FILES / world);
}

static void add_shards(struct piece_list *out, const struct shard_pieces *s, const long *of, enum slot slot, const struct layout *l)
{
	for (long i = 0; i < s->n; i++) {
		long tensor = of[s->piece[i].param * SLOT_COUNT + (long)slot];

		if (tensor >= 0)
			add(out, tensor, layout_file(l, s->piece[i].rank), &s->piece[i].box);
	}
}

long layout_pieces(struct checkpoint_piece **out, const struct checkpoint_tensor *tensor, long n, struct param_table *table,
		   const struct layout *l)
{
	long *of = xmalloc((size_t)(table->n * SLOT_COUNT + 1) * sizeof(*of));
	struct piece_list list = { 0 };
	struct shard_pieces s;

	for (long i = 0; i < table->n * SLOT_COUNT; i++)
		of[i] = -1;
	for (long i = 0; i < table->n; i++)
		table->p[i].role = ROLE_FROZEN;
	for (long i = 0; i < n; i++) {
		const struct param *p = param_find(table, tensor[i].name);
		struct box whole = box_whole(tensor[i].shape, tensor[i].rank);

		if (p) {
			of[(p - table->p) * SLOT_COUNT + (long)tensor[i].slot] = i;
			if (tensor[i].slot != SLOT_WEIGHT)
				table->p[p - table->p].role = ROLE_PARAM;
		} else if (box_volume(&whole)) {
			add(&list, i, 0, &whole);
		}
	}
	shard_weights(&s, table, l);
	add_shards(&list, &s, of, SLOT_WEIGHT, l);
	shard_pieces_release(&s);
	shard_optimizer(&s, table, l);
	for (int slot = SLOT_WEIGHT + 1; slot < SLOT_COUNT; slot++)
		add_shards(&list, &s, of, (enum slot)slot, l);
	shard_pieces_release(&s);
	free(of);
	*out = list.piece;
	return list.n;
}
