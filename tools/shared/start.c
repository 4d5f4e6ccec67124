#include "tools/shared/start.h"

#include "libcommon/pool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct recipe *start_recipe(void)
{
	struct recipe *r;
	struct err e = ERR_INIT;

	if (recipe_load(&r, common.recipe, common.overrides.v, common.overrides.n, common.unset.v, common.unset.n, &e))
		die_err(&e);
	return r;
}

const struct ops *start_ops(void)
{
	const struct ops *k;
	struct err e = ERR_INIT;

	if (common.threads < 0)
		die(EX_USAGE, "--threads %ld: wanted at least 1", common.threads);
	pool_start((int)common.threads);
	k = ops_find(common.device, common.isa, &e);
	if (!k)
		die_err(&e);
	return k;
}

enum dtype start_precision(const struct recipe *r, const struct checkpoint *c)
{
	const char *name = recipe_is_set(r, "policy.precision") ? recipe_str(r, "policy.precision") : c->precision;
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

const char *fingerprint_text(char buf[17], const struct ops *k)
{
	snprintf(buf, 17, "%016llx", (unsigned long long)ops_fingerprint(k));
	return buf;
}
