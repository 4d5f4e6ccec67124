#include "tools/import-weights/experts.h"

#include <stdlib.h>
#include <string.h>

/* An item of the folder as a whole; its name stays the folder's. */
static struct source_tensor of_item(const struct source *s, const struct safetensors_item *item,
				    const struct safetensors_item *scale)
{
	struct tensor t;
	struct source_tensor x = {
		.name = (char *)item->entry->name, .item = item, .scale = scale, .unit = 1
	};
	struct err e = ERR_INIT;

	if (safetensors_describe(&t, item->file, item->entry, &e))
		die_err(&e);
	x.dtype = scale ? DTYPE_F32 : t.dtype;
	x.rank = t.rank;
	memcpy(x.shape, t.shape, sizeof(x.shape));
	if (scale)
		source_check_fp8(s, &t, scale);
	return x;
}

static void check_shape(const struct source *s, const struct source_tensor *t, const char *name,
			const long *shape, int rank)
{
	char found[160], wanted[160];

	if (!shape_equal(t->shape, t->rank, shape, rank))
		die(EX_DATAERR, "%s: %s: shape %s, wanted %s", s->path, name,
		    shape_text(found, t->shape, t->rank), shape_text(wanted, shape, rank));
}

/* The tensor of all experts, in as many parts as it has experts. */
static struct source_tensor *add_whole(struct source *s, const struct param *p, enum dtype t)
{
	struct source_tensor *x = source_add(s, p->name, t, p->shape, p->rank);

	x->parts = p->shape[0];
	x->part = xcalloc((size_t)x->parts, sizeof(*x->part));
	return x;
}

static void take(bool *taken, const struct source *s, const struct safetensors_item *item)
{
	taken[item - s->set.item] = true;
}

/* One item an expert. */
static bool add_apart(struct source *s, const struct param *p, bool *taken)
{
	char *name = expert_apart_name(p, 0);
	const struct safetensors_item *item = safetensors_set_find(&s->set, name);
	struct source_tensor *x = NULL;

	for (long i = 0; item; i++) {
		const struct safetensors_item *scale = source_scale_of(s, name);
		struct source_tensor one = of_item(s, item, scale);

		check_shape(s, &one, name, p->shape + 1, p->rank - 1);
		x = x ? x : add_whole(s, p, one.dtype);
		if (one.dtype != x->dtype || !!one.scale != !!(i ? x->part[0].scale : one.scale))
			die(EX_DATAERR, "%s: %s: not of the type of expert 0, %s", s->path, name,
			    dtype_name(x->dtype));
		x->part[i] = one;
		take(taken, s, item);
		free(name);
		name = NULL;
		if (i + 1 == x->parts)
			break;
		name = expert_apart_name(p, i + 1);
		item = safetensors_set_find(&s->set, name);
		if (!item)
			die(EX_DATAERR, "%s: %s: missing, wanted %ld experts", s->path, name,
			    x->parts);
	}
	free(name);
	if (!x)
		return false;
	x->scale = x->part[0].scale;
	x->unit = x->scale ? source_volume(x) / x->parts : 1;
	return true;
}

/* Of [E, 2 I, H] the upper or lower half of each expert; of the third projection everything. */
static bool add_fused(struct source *s, const struct param *p, const struct expert_spelling *how,
		      bool *taken)
{
	char *name = expert_fused_name(p, how);
	const struct safetensors_item *item = safetensors_set_find(&s->set, name);
	bool down = p->kind == PARAM_EXPERT_DOWN;
	struct source_tensor all, *x;

	if (item) {
		long shape[TENSOR_RANK] = { p->shape[0], down ? p->shape[1] : 2 * p->shape[1],
					    p->shape[2] };
		long one = p->shape[1] * p->shape[2];

		all = of_item(s, item, NULL);
		check_shape(s, &all, name, shape, 3);
		x = add_whole(s, p, all.dtype);
		for (long i = 0; i < x->parts; i++) {
			x->part[i] = all;
			x->part[i].base =
				down ? i * one : (2 * i + (p->kind == PARAM_EXPERT_UP)) * one;
		}
		take(taken, s, item);
	}
	free(name);
	return item;
}

/* mixtral's router where its experts are fused under the names of the others. */
static void add_router(struct source *s, const struct param *p, bool *taken)
{
	static const struct expert_spelling how = { true, true };
	char *name = expert_block_name(p, &how);
	const struct safetensors_item *item =
		strcmp(name, p->name) ? safetensors_set_find(&s->set, name) : NULL;
	struct source_tensor one;

	if (item) {
		one = of_item(s, item, NULL);
		source_add(s, p->name, one.dtype, one.shape, one.rank)->item = item;
		take(taken, s, item);
	}
	free(name);
}

bool *experts_list(struct source *s)
{
	static const struct expert_spelling spellings[] = { { true, false }, { true, true } };
	bool *taken = xcalloc((size_t)s->set.n + 1, sizeof(*taken));
	int used = -1;

	for (long i = 0; i < s->table.n; i++) {
		const struct param *p = s->table.p + i;
		int how = -1;

		if (p->kind == PARAM_ROUTER)
			add_router(s, p, taken);
		if (!p->expert || safetensors_set_find(&s->set, p->name) || add_apart(s, p, taken))
			continue;
		for (int j = 0; j < 2 && how < 0; j++)
			if (add_fused(s, p, spellings + j, taken))
				how = j;
		if (how >= 0 && used >= 0 && how != used)
			die(EX_DATAERR, "%s: %s: its experts are spelt otherwise than those before",
			    s->path, p->name);
		used = how >= 0 ? how : used;
	}
	if (used >= 0)
		expert_spelling_put(&s->spelling, spellings + used);
	return taken;
}
