#include "tools/reshard/reshard.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int take(long *to, const char *name, const char *text, struct err *e)
{
	char *end;

	if (!text)
		return 0;
	errno = 0;
	*to = strtol(text, &end, 10);
	if (errno || end == text || *end || *to < 1)
		return err_set(e, EX_USAGE, "--%s %s: wanted a number from 1 on", name, text);
	return 0;
}

int layout_from_words(struct layout *l, const struct layout_words *w, const struct model_config *c, struct err *e)
{
	long pp = 1;

	layout_init(l, c->layers);
	if (take(&l->tp, "tp", w->tp, e) || take(&pp, "pp", w->pp, e) || take(&l->ep, "ep", w->ep, e) ||
	    take(&l->etp, "etp", w->etp, e) || take(&l->cp, "cp", w->cp, e))
		return -1;
	if (w->stages) {
		if (layout_parse_stages(l, w->stages, e))
			return err_prefix(e, "--stages");
		if (w->pp && pp != l->pp)
			return err_set(e, EX_USAGE, "--pp %ld and --stages %s: that are %ld stages; leave --pp out", pp, w->stages, l->pp);
	} else if (pp > c->layers) {
		return err_set(e, EX_USAGE, "--pp %ld is more than the model's %ld layers: use at most %ld", pp, c->layers, c->layers);
	} else {
		layout_balance(l, pp);
	}
	layout_fit_dp(l);
	if (take(&l->dp, "dp", w->dp, e))
		return -1;
	return layout_check(l, c, e);
}

/* The first weight that only one of them has, or that has two shapes. */
static int same_model(const struct checkpoint *a, const struct checkpoint *b, struct err *e)
{
	for (long i = 0; i < a->n; i++) {
		const struct checkpoint_tensor *t = &a->tensor[i];
		long k = checkpoint_find(b, t->name, SLOT_WEIGHT);
		char x[160], y[160];

		if (t->slot != SLOT_WEIGHT || t->role == ROLE_CARRIED)
			continue;
		if (k < 0)
			return err_set(e, EX_DATAERR, "%s: another model than %s: it has no %s", b->dir, a->dir, t->name);
		if (!shape_equal(t->shape, t->rank, b->tensor[k].shape, b->tensor[k].rank))
			return err_set(e, EX_DATAERR, "%s: another model than %s: %s has shape %s, wanted %s", b->dir, a->dir, t->name,
				       shape_text(x, b->tensor[k].shape, b->tensor[k].rank), shape_text(y, t->shape, t->rank));
	}
	return 0;
}

int layout_of_other(struct layout *l, struct digest *weights, const char *dir, const struct checkpoint *c, const struct model_config *m, struct err *e)
{
	struct checkpoint other;
	int rc;

	if (checkpoint_open(&other, dir, e))
		return -1;
	*weights = other.weights_digest;
	rc = same_model(c, &other, e) || same_model(&other, c, e) ? -1 : 0;
	if (!rc) {
		layout_copy(l, &other.layout);
		/* One rank is written without the number of layers. */
		if (!l->stage_of_layer && l->pp == 1)
			l->layers = m->layers;
		rc = layout_check(l, m, e);
		if (rc) {
			err_prefix(e, "%s: layout", dir);
			e->code = EX_DATAERR;
			layout_release(l);
		}
	}
	checkpoint_close(&other);
	return rc;
}
