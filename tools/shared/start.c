#include "tools/shared/start.h"

#include "libcommon/comm.h"
#include "libcommon/file.h"
#include "libcommon/pool.h"
#include "libcommon/xalloc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What the recipe says of the machine holds where the command line is silent. */
static void take_machine(const struct recipe *r)
{
	if (!strcmp(common.device, "auto"))
		common.device = recipe_str(r, "cairn.device");
	if (!common.isa)
		common.isa = recipe_str(r, "cairn.isa");
	if (!common.threads)
		common.threads = recipe_int(r, "cairn.threads");
	if (common.memory || recipe_is_null(r, "cairn.memory"))
		return;
	common.memory = recipe_str(r, "cairn.memory");
	common.memory_bytes = parse_bytes(common.memory);
	if (common.memory_bytes <= 0)
		die(EX_CONFIG, "%s: cairn.memory: found \"%s\", wanted bytes as in 4096, 512MiB or 8G", recipe_where(r, "cairn.memory"),
		    common.memory);
}

struct recipe *start_recipe(void)
{
	struct recipe *r;
	struct err e = ERR_INIT;

	if (recipe_load(&r, common.recipe, common.overrides.v, common.overrides.n, common.unset.v, common.unset.n, &e))
		die_err(&e);
	take_machine(r);
	return r;
}

/* Ranks of a host take its GPUs by turns; one that sees a single GPU has been given that. */
static void take_local_device(void)
{
	const char *seen = getenv("CUDA_VISIBLE_DEVICES");

	ops_local_device(seen && *seen && !strchr(seen, ',') ? 0 : start_rank_here());
}

/* All ranks run on the same kind of device. */
static void check_backend(struct comm *world, const struct ops *k)
{
	char (*all)[16] = xcalloc((size_t)world->size, sizeof(*all)), own[16] = "";

	strncpy(own, k->name, sizeof(own) - 1);
	comm_gather(world, all, own, sizeof(own));
	for (int i = 1; i < world->size; i++)
		if (strcmp(all[i], all[0]))
			die(EX_UNAVAILABLE, "--device %s: rank 0 would run on %s, rank %d on %s; say which", common.device, all[0], i,
			    all[i]);
	free(all);
}

const struct ops *start_ops(void)
{
	const struct ops *k;
	struct err e = ERR_INIT;
	struct comm *world = start_world();

	if (common.threads < 0)
		die(EX_USAGE, "--threads %ld: wanted at least 1", common.threads);
	pool_start((int)common.threads);
	take_local_device();
	k = ops_find(common.device, common.isa, &e);
	if (!k)
		die_err(&e);
	check_backend(world, k);
	if (comm_use_device(world, k->ranks, &e))
		die_err(&e);
	return k;
}

enum dtype start_precision(const struct recipe *r, const struct checkpoint *c)
{
	const char *name = recipe_is_null(r, "policy.precision") ? c->precision : recipe_str(r, "policy.precision");
	enum dtype t;

	if (!name) {
		for (long i = 0; i < c->n; i++)
			if (c->tensor[i].slot == SLOT_WEIGHT && c->tensor[i].dtype != DTYPE_F32)
				return DTYPE_BF16;
		return DTYPE_F32;
	}
	t = dtype_find(name);
	if (t != DTYPE_F32 && t != DTYPE_BF16)
		die(EX_CONFIG, "policy.precision %s: wanted bfloat16 or float32", name);
	return t;
}

unsigned start_freeze(const struct recipe *r)
{
	return recipe_bool(r, "policy.megatron_cfg.enabled") && recipe_bool(r, "policy.megatron_cfg.freeze_moe_router") ?
		       MODEL_FREEZE_ROUTER : 0;
}

void start_history(struct history *h, const char *name, int argc, char **argv, const struct recipe *r, const uint64_t *seed,
		   const struct history_input *input, int inputs, const struct json *parent)
{
	struct str yaml = { 0 };

	if (r)
		recipe_write_yaml(&yaml, r);
	*h = (struct history){
		.program = name, .version = cairn_version(), .argument = (const char *const *)argv + 1, .argc = argc - 1,
		.recipe = r ? str_detach(&yaml) : NULL, .seed = seed, .seeds = seed ? 1 : 0, .input = input, .inputs = inputs,
		.parent = parent,
	};
}

struct digest input_digest(const char *path)
{
	char *file = file_is_dir(path) ? path_join(path, "manifest.json") : xstrdup(path);
	struct err e = ERR_INIT;
	struct digest d;

	if (hash128_file(&d, file, &e))
		die_err(&e);
	free(file);
	return d;
}

const char *fingerprint_text(char buf[17], const struct ops *k)
{
	snprintf(buf, 17, "%016llx", (unsigned long long)ops_fingerprint(k));
	return buf;
}
