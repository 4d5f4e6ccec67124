#ifndef LIBCOMMON_MODEL_CONFIG_FAMILY_H
#define LIBCOMMON_MODEL_CONFIG_FAMILY_H

/* What a family (model_type) fixes, and what transformers takes where its config.json is silent. */

#include "libcommon/model_config.h"

struct family {
	const char *type, *architecture;
	long max_position;
	long kv_heads;                  /* 0: as many as heads */
	long head_dim;                  /* 0: hidden / heads */
	long sliding_window;            /* mistral's */
	long bos, eos;                  /* -1: none */
	bool reads_attention_bias, reads_mlp_bias, reads_use_sliding_window, reads_qkv_bias;
	bool qkv_bias;                  /* always, or where reads_qkv_bias and the key is missing */
	bool qk_norm;
	double rms_eps;                 /* 0: 1e-6 */
	double theta;                   /* 0: 10000 */
	/* Layers with experts; 0 where the family has none. */
	long experts, experts_per_token, expert_intermediate, shared_intermediate;
	bool norm_topk;                 /* always; else norm_topk_prob is read */
	bool reads_sparse;              /* moe_intermediate_size, decoder_sparse_step, mlp_only_layers, norm_topk_prob */
};

const struct family *family_find(const char *type);     /* or NULL */
#define FAMILY_LIST "llama, mistral, qwen2, qwen3, mixtral, qwen2_moe, qwen3_moe"

int moe_config_from_json(struct model_config *c, const struct family *f, const struct json_doc *d, const struct json *o,
			 struct err *e) MUST_CHECK;
void moe_config_to_json(struct json_out *o, const struct model_config *c, const struct family *f);
int moe_config_check(const struct model_config *c, const struct family *f, const char *file, struct err *e) MUST_CHECK;
/* found `v` of `key`, wanted least to most: EX_DATAERR */
int config_in_range(long v, long least, long most, const char *key, const char *file, struct err *e) MUST_CHECK;

#endif
