#include "libcommon/model_config.h"

#include <math.h>
#include <string.h>

#include "libcommon/model_config_family.h"
#include "libcommon/rope.h"

static const struct family families[] = {
	{ "llama", "LlamaForCausalLM", .max_position = 2048, .bos = 1, .eos = 2,
	  .reads_attention_bias = true, .reads_mlp_bias = true },
	{ "mistral", "MistralForCausalLM", .max_position = 131072, .kv_heads = 8,
	  .sliding_window = 4096, .bos = 1, .eos = 2 },
	{ "qwen2", "Qwen2ForCausalLM", .max_position = 32768, .kv_heads = 32, .bos = -1, .eos = -1,
	  .reads_use_sliding_window = true, .qkv_bias = true },
	{ "qwen3", "Qwen3ForCausalLM", .max_position = 32768, .kv_heads = 32, .head_dim = 128,
	  .bos = -1, .eos = -1, .reads_attention_bias = true, .reads_use_sliding_window = true,
	  .qk_norm = true },
	{ "mixtral", "MixtralForCausalLM", .max_position = 131072, .kv_heads = 8, .bos = 1, .eos = 2, .rms_eps = 1e-5,
	  .theta = 1e6, .experts = 8, .experts_per_token = 2, .norm_topk = true },
	{ "qwen2_moe", "Qwen2MoeForCausalLM", .max_position = 32768, .kv_heads = 16, .bos = -1, .eos = -1,
	  .reads_use_sliding_window = true, .reads_qkv_bias = true, .qkv_bias = true, .experts = 60, .experts_per_token = 4,
	  .expert_intermediate = 1408, .shared_intermediate = 5632, .reads_sparse = true },
	{ "qwen3_moe", "Qwen3MoeForCausalLM", .max_position = 32768, .kv_heads = 4, .bos = -1, .eos = -1,
	  .reads_attention_bias = true, .reads_use_sliding_window = true, .qk_norm = true, .experts = 128,
	  .experts_per_token = 8, .expert_intermediate = 768, .reads_sparse = true },
};

const struct family *family_find(const char *type)
{
	for (size_t i = 0; i < sizeof(families) / sizeof(*families); i++)
		if (!strcmp(type, families[i].type))
			return &families[i];
	return NULL;
}

int config_in_range(long v, long least, long most, const char *key, const char *file, struct err *e)
{
	if (v >= least && v <= most)
		return 0;
	return err_set(e, EX_DATAERR, "%s: %s: found %ld, wanted %ld to %ld", file, key, v, least,
		       most);
}

/* The bounds keep every product of dimensions, and their sum over the layers, within 63 bits. */
static int check_sizes(const struct model_config *c, const char *file, struct err *e)
{
	if (config_in_range(c->vocab, 1, 1L << 31, "vocab_size", file, e) ||
	    config_in_range(c->hidden, 1, 1L << 20, "hidden_size", file, e) ||
	    config_in_range(c->intermediate, 1, 1L << 24, "intermediate_size", file, e) ||
	    config_in_range(c->layers, 1, LAYERS_MOST, "num_hidden_layers", file, e) ||
	    config_in_range(c->heads, 1, 1L << 16, "num_attention_heads", file, e) ||
	    config_in_range(c->kv_heads, 1, c->heads, "num_key_value_heads", file, e) ||
	    config_in_range(c->head_dim, 1, 1L << 16, "head_dim", file, e) ||
	    config_in_range(c->heads * c->head_dim, 1, 1L << 24, "num_attention_heads * head_dim", file,
		     e) ||
	    config_in_range(c->max_position, 1, 1L << 31, "max_position_embeddings", file, e) ||
	    config_in_range(c->sliding_window, 0, 1L << 31, "sliding_window", file, e))
		return -1;
	if (c->heads % c->kv_heads)
		return err_set(e, EX_DATAERR,
			       "%s: num_key_value_heads: found %ld, wanted a divisor of "
			       "num_attention_heads %ld",
			       file, c->kv_heads, c->heads);
	if (c->head_dim % 2)
		return err_set(e, EX_DATAERR,
			       "%s: head_dim: found %ld, wanted an even number (RoPE turns pairs)",
			       file, c->head_dim);
	return 0;
}

static int check_ids(const struct model_config *c, const char *file, struct err *e)
{
	if (config_in_range(c->bos, -1, 1L << 31, "bos_token_id", file, e) ||
	    config_in_range(c->pad, -1, 1L << 31, "pad_token_id", file, e) ||
	    config_in_range(c->neos, 0, 16, "number of eos_token_id", file, e))
		return -1;
	for (int i = 0; i < c->neos; i++)
		if (config_in_range(c->eos[i], 0, 1L << 31, "eos_token_id", file, e))
			return -1;
	return 0;
}

/* Only what a config.json of the family can say again. */
static int check_family(const struct model_config *c, const char *file, struct err *e)
{
	const struct family *f = family_find(c->model_type);

	if (!f)
		return err_set(e, EX_UNAVAILABLE,
			       "%s: model_type \"%.31s\" is not supported, these are: " FAMILY_LIST,
			       file, c->model_type);
	bool qkv = f->reads_attention_bias ? c->o_bias : f->qkv_bias;
	if ((c->qkv_bias != qkv && !f->reads_qkv_bias) || (c->o_bias && !f->reads_attention_bias))
		return err_set(e, EX_UNAVAILABLE,
			       "%s: %s with%s biases on q, k, v and with%s one on o_proj is not "
			       "supported",
			       file, f->type, c->qkv_bias ? "" : "out", c->o_bias ? "" : "out");
	if (c->mlp_bias && !f->reads_mlp_bias)
		return err_set(e, EX_UNAVAILABLE, "%s: %s with biases in the MLP is not supported",
			       file, f->type);
	if (c->qk_norm != f->qk_norm)
		return err_set(e, EX_UNAVAILABLE, "%s: %s with%s norms on q and k is not supported",
			       file, f->type, c->qk_norm ? "" : "out");
	return 0;
}

int model_config_check(const struct model_config *c, const char *file, struct err *e)
{
	if (check_family(c, file, e) || check_sizes(c, file, e) || check_ids(c, file, e))
		return -1;
	if (!(c->rms_eps > 0) || !(c->rms_eps < 1))
		return err_set(e, EX_DATAERR,
			       "%s: rms_norm_eps: found %g, wanted more than 0 and less than 1",
			       file, c->rms_eps);
	if (!(c->initializer_range >= 0) || !isfinite(c->initializer_range))
		return err_set(e, EX_DATAERR, "%s: initializer_range: found %g, wanted 0 or more",
			       file, c->initializer_range);
	if (moe_config_check(c, family_find(c->model_type), file, e))
		return -1;
	return rope_check(&c->rope, file, e);
}

static long mlp_parameters(const struct model_config *c, long layer)
{
	const struct moe_config *m = &c->moe;
	long h = c->hidden;

	if (!model_config_is_moe(c, layer))
		return 3 * c->intermediate * h + (c->mlp_bias ? 2 * c->intermediate + h : 0);
	return m->experts * h + 3 * m->experts * m->intermediate * h + 3 * m->shared_intermediate * h +
	       (m->shared_intermediate ? h : 0);
}

long model_config_parameters(const struct model_config *c)
{
	long q = c->heads * c->head_dim, kv = c->kv_heads * c->head_dim, h = c->hidden;
	long layer = 2 * q * h + 2 * kv * h + 2 * h + (c->qkv_bias ? q + 2 * kv : 0) + (c->o_bias ? h : 0) +
		     (c->qk_norm ? 2 * c->head_dim : 0);
	long head = c->head == HEAD_LM && !c->tied ? c->vocab * h : c->head == HEAD_SCALAR ? h : 0;
	long n = c->vocab * h + c->layers * layer + h + head;

	for (long i = 0; i < c->layers; i++)
		n += mlp_parameters(c, i);
	return n;
}
