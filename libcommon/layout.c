#include "libcommon/layout.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_LAYERS = 1 << 14, MOST_RANKS = 1 << 20 };

void layout_init(struct layout *l, long layers)
{
	*l = (struct layout){
		.tp = 1, .pp = 1, .ep = 1, .etp = 1, .dp = 1, .cp = 1, .layers = layers
	};
}

void layout_release(struct layout *l)
{
	free(l->stage_of_layer);
	l->stage_of_layer = NULL;
}

long layout_world(const struct layout *l)
{
	return l->tp * l->cp * l->dp * l->pp;
}

long layout_edp(const struct layout *l)
{
	return l->tp * l->cp * l->dp / (l->etp * l->ep);
}

struct place layout_place(const struct layout *l, long rank)
{
	if (rank < 0 || rank >= layout_world(l))
		bug("rank %ld of %ld", rank, layout_world(l));
	long dense = l->tp * l->cp, stage = dense * l->dp, at = rank % stage, expert = l->etp * l->ep;

	return (struct place){
		.tp = at % l->tp, .cp = at / l->tp % l->cp, .dp = at / dense, .pp = rank / stage,
		.etp = at % l->etp, .ep = at / l->etp % l->ep, .edp = at / expert,
	};
}

long layout_rank(const struct layout *l, const struct place *p)
{
	return p->tp + l->tp * (p->cp + l->cp * (p->dp + l->dp * p->pp));
}

long layout_expert_rank(const struct layout *l, const struct place *p)
{
	return p->etp + l->etp * (p->ep + l->ep * (p->edp + layout_edp(l) * p->pp));
}

long layout_stage(const struct layout *l, long layer)
{
	return l->stage_of_layer ? l->stage_of_layer[layer] : 0;
}

void layout_copy(struct layout *to, const struct layout *from)
{
	size_t n = (size_t)from->layers;

	*to = *from;
	if (!from->stage_of_layer)
		return;
	to->stage_of_layer = xcalloc(n + 1, sizeof(long));
	memcpy(to->stage_of_layer, from->stage_of_layer, n * sizeof(long));
}

bool layout_equal(const struct layout *a, const struct layout *b)
{
	if (a->tp != b->tp || a->pp != b->pp || a->ep != b->ep || a->etp != b->etp || a->dp != b->dp ||
	    a->cp != b->cp || a->layers != b->layers)
		return false;
	for (long i = 0; i < a->layers; i++)
		if (layout_stage(a, i) != layout_stage(b, i))
			return false;
	return true;
}

void layout_to_json(struct json_out *o, const struct layout *l)
{
	json_begin(o, '{');
	json_add_int(o, "tp", l->tp);
	json_add_int(o, "pp", l->pp);
	json_add_int(o, "ep", l->ep);
	json_add_int(o, "etp", l->etp);
	json_add_int(o, "dp", l->dp);
	json_add_int(o, "cp", l->cp);
	json_add_int(o, "layers", l->layers);
	json_key(o, "stage_of_layer");
	if (l->stage_of_layer) {
		json_begin(o, '[');
		for (long i = 0; i < l->layers; i++)
			json_put_int(o, l->stage_of_layer[i]);
		json_end(o);
	} else {
		json_put_null(o);
	}
	json_end(o);
}

static int read_stages(struct layout *l, const struct json_doc *d, const struct json *v,
		       struct err *e)
{
	if (!v || v->type == JSON_NULL) {
		if (l->pp == 1)
			return 0;
		return err_set(e, EX_DATAERR,
			       "%s: layout.stage_of_layer: missing, wanted one stage a layer where "
			       "pp is %ld",
			       d->file, l->pp);
	}
	if (v->type != JSON_ARRAY || (long)v->n != l->layers)
		return err_set(e, EX_DATAERR,
			       "%s:%d: layout.stage_of_layer: found %s of %zu, wanted an array of "
			       "%ld",
			       d->file, v->line, json_type_name(v), v->n, l->layers);
	l->stage_of_layer = xcalloc(v->n ? v->n : 1, sizeof(*l->stage_of_layer));
	for (size_t i = 0; i < v->n; i++)
		if (json_int(d, &v->item[i], "layout.stage_of_layer", &l->stage_of_layer[i], e))
			return -1;
	long bad = layout_bad_stage(l);
	if (bad >= 0) {
		long least = bad ? l->stage_of_layer[bad - 1] : 0;

		return err_set(e, EX_DATAERR,
			       "%s:%d: layout.stage_of_layer[%ld]: found %ld, wanted %ld to %ld, or a "
			       "further turn through all stages",
			       d->file, v->item[bad].line, bad, l->stage_of_layer[bad], least, l->pp - 1);
	}
	return 0;
}

static int read_layout(struct layout *l, const struct json_doc *d, const struct json *v,
		       struct err *e)
{
	const struct { const char *what; long *out, least, most;
	} sizes[] = {
		{ "layout.tp", &l->tp, 1, MOST_RANKS },
		{ "layout.pp", &l->pp, 1, MOST_RANKS },
		{ "layout.ep", &l->ep, 1, MOST_RANKS },
		{ "layout.etp", &l->etp, 1, MOST_RANKS },
		{ "layout.dp", &l->dp, 1, MOST_RANKS },
		{ "layout.cp", &l->cp, 1, MOST_RANKS },
		{ "layout.layers", &l->layers, 0, MOST_LAYERS },
	};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		const struct json *n = json_get(v, strchr(sizes[i].what, '.') + 1);

		if (json_int(d, n, sizes[i].what, sizes[i].out, e))
			return -1;
		if (*sizes[i].out < sizes[i].least || *sizes[i].out > sizes[i].most)
			return err_set(e, EX_DATAERR, "%s:%d: %s: found %ld, wanted %ld to %ld",
				       d->file, n->line, sizes[i].what, *sizes[i].out,
				       sizes[i].least, sizes[i].most);
	}
	/* Each mesh covers the ranks of a stage. */
	if (l->tp * l->cp * l->dp % (l->etp * l->ep))
		return err_set(e, EX_DATAERR,
			       "%s:%d: layout: etp * ep = %ld does not divide tp * cp * dp = %ld",
			       d->file, v->line, l->etp * l->ep, l->tp * l->cp * l->dp);
	return read_stages(l, d, json_get(v, "stage_of_layer"), e);
}

int layout_from_json(struct layout *l, const struct json_doc *d, const struct json *v,
		     struct err *e)
{
	layout_init(l, 0);
	if (!json_is(v, JSON_OBJECT))
		return err_set(e, EX_DATAERR, "%s: layout: found %s, wanted an object", d->file,
			       json_type_name(v));
	if (read_layout(l, d, v, e)) {
		layout_release(l);
		return -1;
	}
	return 0;
}
