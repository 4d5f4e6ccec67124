#include "libcommon/layout.h"

#include <stdio.h>

#include "libcommon/model_config.h"

enum { MOST_RANKS = 1 << 20 };

static int check_sizes(const struct layout *l, struct err *e)
{
	const struct { const char *name; long n;
	} size[] = { { "tp", l->tp }, { "pp", l->pp },	 { "ep", l->ep },
		     { "etp", l->etp }, { "dp", l->dp }, { "cp", l->cp } };
	long world = 1;

	for (size_t i = 0; i < sizeof(size) / sizeof(*size); i++)
		if (size[i].n < 1 || size[i].n > MOST_RANKS)
			return err_set(e, EX_USAGE, "%s %ld: wanted 1 to %d", size[i].name, size[i].n,
				       MOST_RANKS);
	if (__builtin_mul_overflow(l->tp, l->pp, &world) || __builtin_mul_overflow(world, l->dp, &world) ||
	    __builtin_mul_overflow(world, l->cp, &world) || world > MOST_RANKS)
		return err_set(e, EX_USAGE, "tp %ld x pp %ld x dp %ld x cp %ld are more than %d ranks",
			       l->tp, l->pp, l->dp, l->cp, MOST_RANKS);
	if (l->tp * l->cp * l->dp % (l->etp * l->ep)) {
		struct layout fits = *l;

		layout_fit_dp(&fits);
		return err_set(e, EX_USAGE,
			       "ep %ld x etp %ld do not divide the %ld ranks of a stage (tp %ld x cp "
			       "%ld x dp %ld): use a dp that is a multiple of %ld",
			       l->ep, l->etp, l->tp * l->cp * l->dp, l->tp, l->cp, l->dp, fits.dp);
	}
	return 0;
}

/* The largest divisor of n that is not more than `most`. */
static long divisor_below(long n, long most)
{
	while (n % most)
		most--;
	return most;
}

static int must_divide(const char *name, long parts, const char *what, long n, struct err *e)
{
	if (n % parts == 0)
		return 0;
	return err_set(e, EX_USAGE, "%s %ld does not divide the model's %s, %ld: use a divisor such as %ld",
		       name, parts, what, n, divisor_below(n, parts));
}

static int check_heads(const struct layout *l, const struct model_config *c, struct err *e)
{
	long both = divisor_below(c->heads, l->tp);

	if (must_divide("tp", l->tp, "attention heads", c->heads, e))
		return -1;
	if (c->kv_heads % l->tp == 0 || l->tp % c->kv_heads == 0)
		return 0;
	while (c->heads % both || (c->kv_heads % both && both % c->kv_heads))
		both--;
	return err_set(e, EX_USAGE,
		       "tp %ld and the model's %ld key-value heads: one must divide the other; use tp %ld",
		       l->tp, c->kv_heads, both);
}

static int check_layers(const struct layout *l, const struct model_config *c, struct err *e)
{
	if (l->layers != c->layers)
		return err_set(e, EX_USAGE, "a layout of %ld layers, but the model has %ld", l->layers,
			       c->layers);
	if (l->pp > c->layers)
		return err_set(e, EX_USAGE,
			       "pp %ld is more than the model's %ld layers: use at most pp %ld", l->pp,
			       c->layers, c->layers);
	if (l->pp > 1 && !l->stage_of_layer)
		return err_set(e, EX_USAGE, "pp %ld without the stages of the layers", l->pp);
	long bad = l->stage_of_layer ? layout_bad_stage(l) : -1;
	if (bad >= 0)
		return err_set(e, EX_USAGE, "layer %ld on stage %ld: wanted %ld to %ld, or a further turn through all stages", bad,
			       l->stage_of_layer[bad], bad ? l->stage_of_layer[bad - 1] : 0, l->pp - 1);
	return 0;
}

/* EP cuts the experts, ETP each of them. */
static int check_experts(const struct layout *l, const struct model_config *c, struct err *e)
{
	if (c->moe.experts)
		return must_divide("ep", l->ep, "experts", c->moe.experts, e) ||
				       must_divide("etp", l->etp, "MLP width of an expert", c->moe.intermediate, e) ?
			       -1 :
			       0;
	if (l->ep == 1 && l->etp == 1)
		return 0;
	return err_set(e, EX_USAGE, "ep %ld, etp %ld: the model has no experts; use ep 1 and etp 1", l->ep,
		       l->etp);
}

int layout_check(const struct layout *l, const struct model_config *c, struct err *e)
{
	if (check_sizes(l, e) || check_layers(l, c, e) || check_heads(l, c, e))
		return -1;
	if (model_config_moe_layers(c) < c->layers &&
	    must_divide("tp", l->tp, "MLP width (intermediate_size)", c->intermediate, e))
		return -1;
	if (c->moe.shared_intermediate &&
	    must_divide("tp", l->tp, "width of the shared expert", c->moe.shared_intermediate, e))
		return -1;
	return check_experts(l, c, e);
}
