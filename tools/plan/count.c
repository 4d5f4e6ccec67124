#include "tools/plan/plan.h"

/* What a model has and does, counted.  Formulas: a weight of n outputs and k inputs has n k elements and takes 2 n k FLOPs a token. */

static double attention_elements(const struct model_config *m)
{
	double h = (double)m->hidden, d = (double)m->head_dim;

	return h * d * (2 * (double)m->heads + 2 * (double)m->kv_heads);
}

static bool sparse(const struct model_config *m, long layer)
{
	return model_config_is_moe(m, layer);
}

double layer_split(const struct model_config *m, long layer)
{
	double mlp = sparse(m, layer) ? (double)m->moe.shared_intermediate : (double)m->intermediate;

	return attention_elements(m) + 3 * (double)m->hidden * mlp;
}

double layer_whole(const struct model_config *m, long layer)
{
	double norms = 2 * (double)m->hidden + (m->qk_norm ? 2 * (double)m->head_dim : 0);
	double router = sparse(m, layer) ? (double)(m->moe.experts * m->hidden) : 0;
	double gate = sparse(m, layer) && m->moe.shared_intermediate ? (double)m->hidden : 0;

	return norms + router + gate;
}

double layer_experts(const struct model_config *m, long layer)
{
	return sparse(m, layer) ? 3 * (double)m->hidden * (double)m->moe.intermediate * (double)m->moe.experts : 0;
}

double model_elements(const struct model_config *m)
{
	double n = (double)m->vocab * (double)m->hidden * (m->tied ? 1 : 2) + (double)m->hidden;

	for (long i = 0; i < m->layers; i++)
		n += layer_split(m, i) + layer_whole(m, i) + layer_experts(m, i);
	return n;
}

double layer_flops(const struct model_config *m, long layer)
{
	return 2 * (layer_split(m, layer) + layer_whole(m, layer));
}

double expert_flops(const struct model_config *m, long layer)
{
	return sparse(m, layer) ? 6 * (double)m->hidden * (double)m->moe.intermediate * (double)m->moe.experts_per_token : 0;
}

double attention_flops(const struct model_config *m, double keys)
{
	return 4 * keys * (double)(m->heads * m->head_dim);
}

double head_flops(const struct model_config *m)
{
	return 2 * (double)(m->vocab * m->hidden);
}

double kv_bytes(const struct model_config *m, double weight_bytes)
{
	return 2 * weight_bytes * (double)(m->kv_heads * m->head_dim * m->layers);
}

/*
 * The layer's input, two normed inputs and the middle (4 h); q and the attention's result (2 a d); k and v (2 g d); gate, up and their
 * product (3 f); the log sum of each head (a, float32).  An expert's rows have their own input and output (2 h) and 3 f_e.
 */
double layer_kept(const struct model_config *m, long layer, double wb, bool recompute)
{
	double h = (double)m->hidden, a = (double)m->heads, d = (double)m->head_dim, g = (double)m->kv_heads;
	double qk = m->qk_norm ? (a + g) * d : 0, f = 3 * (double)m->intermediate;

	if (recompute)
		return wb * h;
	if (sparse(m, layer))
		f = (double)m->moe.experts_per_token * (2 * h + 3 * (double)m->moe.intermediate) +
		    3 * (double)m->moe.shared_intermediate + 2 * (double)m->moe.experts;
	return wb * (4 * h + 2 * a * d + 2 * g * d + qk + f) + 4 * a;
}
