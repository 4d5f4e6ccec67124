#include "libcommon/model_config.h"

#include <math.h>

#include "libcommon/model_config_family.h"

bool model_config_is_moe(const struct model_config *c, long layer)
{
	const struct moe_config *m = &c->moe;

	return m->experts && (layer + 1) % m->step == 0 &&
	       !(m->mlp_only[layer / 64] >> layer % 64 & 1);
}

long model_config_moe_layers(const struct model_config *c)
{
	long n = 0;

	for (long i = 0; i < c->layers; i++)
		n += model_config_is_moe(c, i);
	return n;
}

/* num_experts and num_local_experts are one key in transformers: where both stand they agree. */
static int read_experts(long *out, const struct family *f, const struct json_doc *d,
			const struct json *o, struct err *e)
{
	long a, b;

	if (json_int_or(d, o, "num_experts", -1, &a, e) ||
	    json_int_or(d, o, "num_local_experts", a, &b, e))
		return -1;
	if (a >= 0 && a != b)
		return err_set(e, EX_DATAERR,
			       "%s: num_local_experts: found %ld, num_experts is %ld", d->file, b,
			       a);
	*out = json_get(o, "num_experts") || json_get(o, "num_local_experts") ? b : f->experts;
	return 0;
}

static int read_mlp_only(struct model_config *c, const struct json_doc *d, const struct json *o,
			 struct err *e)
{
	const struct json *list = json_get(o, "mlp_only_layers");
	long layer;

	if (!list || list->type == JSON_NULL)
		return 0;
	if (list->type != JSON_ARRAY)
		return err_set(e, EX_DATAERR, "%s:%d: mlp_only_layers: found %s, wanted an array",
			       d->file, list->line, json_type_name(list));
	for (size_t i = 0; i < list->n; i++) {
		if (json_int(d, &list->item[i], "mlp_only_layers", &layer, e) ||
		    config_in_range(layer, 0, LAYERS_MOST - 1, "mlp_only_layers", d->file, e))
			return -1;
		c->moe.mlp_only[layer / 64] |= 1UL << layer % 64;
	}
	return 0;
}

int moe_config_from_json(struct model_config *c, const struct family *f, const struct json_doc *d,
			 const struct json *o, struct err *e)
{
	struct moe_config *m = &c->moe;

	if (!f->experts)
		return 0;
	m->step = 1;
	m->norm_topk = f->norm_topk;
	m->intermediate = c->intermediate;
	if (read_experts(&m->experts, f, d, o, e) ||
	    json_int_or(d, o, "num_experts_per_tok", f->experts_per_token, &m->experts_per_token,
			e) ||
	    json_real_or(d, o, "router_aux_loss_coef", 0.001, &m->aux_loss_coef, e))
		return -1;
	if (f->reads_sparse && (json_int_or(d, o, "moe_intermediate_size", f->expert_intermediate,
					    &m->intermediate, e) ||
				json_int_or(d, o, "decoder_sparse_step", 1, &m->step, e) ||
				json_bool_or(d, o, "norm_topk_prob", false, &m->norm_topk, e) ||
				read_mlp_only(c, d, o, e)))
		return -1;
	if (f->shared_intermediate &&
	    json_int_or(d, o, "shared_expert_intermediate_size", f->shared_intermediate,
			&m->shared_intermediate, e))
		return -1;
	if (!m->experts)
		*m = (struct moe_config){ 0 };
	return 0;
}

static void put_sparse(struct json_out *o, const struct model_config *c)
{
	const struct moe_config *m = &c->moe;

	json_add_int(o, "moe_intermediate_size", m->intermediate);
	json_add_int(o, "decoder_sparse_step", m->step);
	json_add_bool(o, "norm_topk_prob", m->norm_topk);
	json_key(o, "mlp_only_layers");
	json_begin(o, '[');
	for (long i = 0; i < c->layers; i++)
		if (m->mlp_only[i / 64] >> i % 64 & 1)
			json_put_int(o, i);
	json_end(o);
}

/* A model without experts has an MLP in every layer: families that may leave them out say 0. */
void moe_config_to_json(struct json_out *o, const struct model_config *c, const struct family *f)
{
	const struct moe_config *m = &c->moe;

	if (!f->experts)
		return;
	json_add_int(o, f->reads_sparse ? "num_experts" : "num_local_experts", m->experts);
	if (!m->experts)
		return;
	json_add_int(o, "num_experts_per_tok", m->experts_per_token);
	json_add_real(o, "router_aux_loss_coef", m->aux_loss_coef);
	if (f->reads_sparse)
		put_sparse(o, c);
	if (f->shared_intermediate)
		json_add_int(o, "shared_expert_intermediate_size", m->shared_intermediate);
}

/* As in the check of the other sizes, the bounds keep the number of parameters within 63 bits. */
static int check_sizes(const struct model_config *c, const struct family *f, const char *file,
		       struct err *e)
{
	const struct moe_config *m = &c->moe;

	if (config_in_range(m->experts, f->reads_sparse ? 0 : 1, EXPERTS_MOST, "number of experts",
			    file, e))
		return -1;
	if (!m->experts)
		return 0;
	if (config_in_range(m->experts_per_token, 1, m->experts, "num_experts_per_tok", file, e) ||
	    config_in_range(m->intermediate, 1, 1L << 24, "moe_intermediate_size", file, e) ||
	    config_in_range(m->step, 1, LAYERS_MOST, "decoder_sparse_step", file, e))
		return -1;
	if (f->shared_intermediate && config_in_range(m->shared_intermediate, 1, 1L << 24,
						      "shared_expert_intermediate_size", file, e))
		return -1;
	if ((double)m->experts * (double)m->intermediate * (double)c->hidden * (double)c->layers >
	    0x1p58)
		return err_set(e, EX_DATAERR,
			       "%s: %ld experts of %ld x %ld in %ld layers: more parameters than "
			       "can be counted",
			       file, m->experts, m->intermediate, c->hidden, c->layers);
	return 0;
}

int moe_config_check(const struct model_config *c, const struct family *f, const char *file,
		     struct err *e)
{
	const struct moe_config *m = &c->moe;

	if (!f->experts) {
		if (m->experts)
			return err_set(e, EX_UNAVAILABLE, "%s: %s with experts is not supported",
				       file, f->type);
		return 0;
	}
	if (check_sizes(c, f, file, e))
		return -1;
	if (f->norm_topk && !m->norm_topk)
		return err_set(e, EX_UNAVAILABLE, "%s: %s without norm_topk_prob is not supported",
			       file, f->type);
	if (!f->reads_sparse && (m->intermediate != c->intermediate || m->step != 1))
		return err_set(e, EX_UNAVAILABLE,
			       "%s: %s has experts of intermediate_size in every layer", file,
			       f->type);
	if (!f->shared_intermediate && m->shared_intermediate)
		return err_set(e, EX_UNAVAILABLE, "%s: %s with a shared expert is not supported",
			       file, f->type);
	if (!(m->aux_loss_coef >= 0) || !isfinite(m->aux_loss_coef))
		return err_set(e, EX_DATAERR,
			       "%s: router_aux_loss_coef: found %g, wanted 0 or more", file,
			       m->aux_loss_coef);
	return 0;
}
