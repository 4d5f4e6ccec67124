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
	bool reads_attention_bias, reads_mlp_bias, reads_use_sliding_window;
	bool qkv_bias;                  /* always */
	bool qk_norm;
};

const struct family *family_find(const char *type);     /* or NULL */
#define FAMILY_LIST "llama, mistral, qwen2, qwen3"

#endif
