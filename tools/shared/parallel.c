#include "tools/shared/start.h"

#include "libcommon/xalloc.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct comm *start_world(void)
{
	static struct comm world;
	struct err e = ERR_INIT;

	if (world.size)
		return &world;
	if (comm_init(&world, &e))
		die_err(&e);
	if (world.rank)
		verbosity = -1;
	return &world;
}

bool start_is_first(void)
{
	return start_world()->rank == 0;
}

static long size_of(const struct recipe *r, const char *megatron, const char *dtensor)
{
	if (recipe_bool(r, "policy.megatron_cfg.enabled"))
		return recipe_int(r, megatron);
	return dtensor && recipe_bool(r, "policy.dtensor_cfg.enabled") ? recipe_int(r, dtensor) : 1;
}

static long layers_said(const struct recipe *r, const char *key)
{
	return recipe_is_null(r, key) ? -1 : recipe_int(r, key);
}

/* Interleaved stages. */
static int turns(struct layout *l, const struct recipe *r, long pp, long n, bool said, struct err *e)
{
	const char *where = recipe_where(r, "policy.megatron_cfg.virtual_pipeline_model_parallel_size");

	if (pp == 1)
		return err_set(e, EX_USAGE, "%s: %ld turns through one pipeline stage: leave it out, or set pipeline_model_parallel_size",
			       where, n);
	if (said)
		return err_set(e, EX_USAGE, "%s: %ld turns, and layers of the first or last stage: set one of them", where, n);
	if (n > l->layers / pp)
		return err_set(e, EX_USAGE, "%s: %ld turns through %ld stages, but the model has %ld layers: at most %ld", where, n, pp,
			       l->layers, l->layers / pp);
	layout_interleave(l, pp, n);
	return 0;
}

/* Layers of the first and the last stage where the recipe says them; the others share what is left as evenly as can be. */
static int stages(struct layout *l, const struct recipe *r, long pp, struct err *e)
{
	static const char first_key[] = "policy.megatron_cfg.num_layers_in_first_pipeline_stage";
	static const char last_key[] = "policy.megatron_cfg.num_layers_in_last_pipeline_stage";
	long first = layers_said(r, first_key), last = layers_said(r, last_key);
	long more = layers_said(r, "policy.megatron_cfg.virtual_pipeline_model_parallel_size");
	long said = (first >= 0) + (last >= 0), left = l->layers - (first > 0 ? first : 0) - (last > 0 ? last : 0), layer = 0;

	if (pp > l->layers)
		return err_set(e, EX_USAGE, "%s: %ld stages, the model has %ld layers",
			       recipe_where(r, "policy.megatron_cfg.pipeline_model_parallel_size"), pp, l->layers);
	if (more > 1 && recipe_bool(r, "policy.megatron_cfg.enabled"))
		return turns(l, r, pp, more, said, e);
	layout_balance(l, pp);
	if (pp == 1 || !said)
		return 0;
	if (left < 0 || (pp == said && left > 0))
		return err_set(e, EX_USAGE, "%s: first and last stage have %ld of the model's %ld layers, %ld stages between them",
			       recipe_where(r, first >= 0 ? first_key : last_key), l->layers - left, l->layers, pp - said);
	for (long stage = 0; stage < pp; stage++) {
		long inner = stage - (first >= 0), n = pp == said ? 0 : left / (pp - said) + (inner < left % (pp - said));

		if (stage == 0 && first >= 0)
			n = first;
		else if (stage == pp - 1 && last >= 0)
			n = last;
		for (long i = 0; i < n; i++)
			l->stage_of_layer[layer++] = stage;
	}
	return 0;
}

int layout_from_recipe(struct layout *l, const struct recipe *r, const struct model_config *c, long world, bool forward,
		       struct err *e)
{
	long each;

	layout_init(l, c->layers);
	l->tp = size_of(r, "policy.megatron_cfg.tensor_model_parallel_size", "policy.dtensor_cfg.tensor_parallel_size");
	if (!forward)
		l->cp = size_of(r, "policy.megatron_cfg.context_parallel_size", "policy.dtensor_cfg.context_parallel_size");
	l->ep = size_of(r, "policy.megatron_cfg.expert_model_parallel_size", NULL);
	l->etp = size_of(r, "policy.megatron_cfg.expert_tensor_parallel_size", NULL);
	if (!forward && stages(l, r, size_of(r, "policy.megatron_cfg.pipeline_model_parallel_size", NULL), e))
		return -1;
	each = l->tp * l->cp * l->pp;
	l->dp = world / each;
	if (world % each || !l->dp) {
		char *text = layout_text(l);

		err_set(e, EX_USAGE, "%ld ranks, but %s wants a multiple of %ld: mpirun -n %ld", world, text, each,
			(world + each - 1) / each * each);
		free(text);
		return -1;
	}
	return layout_check(l, c, e);
}

static void make_mesh(struct mesh *m, const struct recipe *r, const struct model_config *c, bool forward)
{
	struct comm *world = start_world();
	struct layout l;
	struct err e = ERR_INIT;
	int rc = layout_from_recipe(&l, r, c, world->size, forward, &e);

	if (world->size == 1) {
		if (rc)
			log_info("one rank runs the whole model (the recipe's layout: %s)", e.msg);
		mesh_one(m, c->layers);
	} else if (rc || mesh_init(m, &l, world, &e)) {
		die_err(&e);
	}
	layout_release(&l);
}

void start_mesh(struct mesh *m, const struct recipe *r, const struct model_config *c)
{
	make_mesh(m, r, c, false);
}

void start_mesh_forward(struct mesh *m, const struct recipe *r, const struct model_config *c)
{
	make_mesh(m, r, c, true);
}

/* Of the ranks before `end`. */
static int ranks_here(int end)
{
	struct comm *world = start_world();
	char own[256] = "", (*all)[256] = xcalloc((size_t)world->size, sizeof(*all));
	int n = 0;

	gethostname(own, sizeof(own) - 1);
	comm_gather(world, all, own, sizeof(own));
	for (int i = 0; i < end; i++)
		n += !memcmp(all[i], own, sizeof(own));
	free(all);
	return n;
}

int start_ranks_here(void)
{
	return ranks_here(start_world()->size);
}

int start_rank_here(void)
{
	return ranks_here(start_world()->rank);
}
