#include "tools/reshard/reshard.h"

#include <stdlib.h>
#include <string.h>

#include "tools/shared/pieces.h"

static int check_params(const struct param_table *table, const struct checkpoint *c, struct err *e)
{
	for (long i = 0; i < table->n; i++) {
		const struct param *p = &table->p[i];
		long k = checkpoint_find(c, p->name, SLOT_WEIGHT);
		char found[160], wanted[160];

		if (k < 0)
			return err_set(e, EX_DATAERR, "%s: %s: no such tensor, the model's config wants it", c->dir, p->name);
		if (!shape_equal(p->shape, p->rank, c->tensor[k].shape, c->tensor[k].rank))
			return err_set(e, EX_DATAERR, "%s: %s: shape %s, the model's config wants %s", c->dir, p->name,
				       shape_text(found, c->tensor[k].shape, c->tensor[k].rank), shape_text(wanted, p->shape, p->rank));
	}
	return 0;
}

int listing_init(struct listing *t, const struct checkpoint *c, const struct model_config *m, const struct layout *l,
		 bool weights_only, struct err *e)
{
	*t = (struct listing){ 0 };
	param_table_init(&t->table, m);
	if (check_params(&t->table, c, e)) {
		listing_release(t);
		return -1;
	}
	t->tensor = xcalloc((size_t)c->n + 1, sizeof(*t->tensor));
	for (long i = 0; i < c->n; i++)
		if (!weights_only || c->tensor[i].slot == SLOT_WEIGHT)
			t->tensor[t->n++] = c->tensor[i];
	t->pieces = layout_pieces(&t->piece, t->tensor, t->n, &t->table, l);
	return 0;
}

void listing_release(struct listing *t)
{
	param_table_release(&t->table);
	free(t->tensor);
	free(t->piece);
	*t = (struct listing){ 0 };
}
