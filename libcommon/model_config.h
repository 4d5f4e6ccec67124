#ifndef LIBCOMMON_MODEL_CONFIG_H
#define LIBCOMMON_MODEL_CONFIG_H

/*
 * The shape of a model: one decoder block with flags, filled from a Hugging Face config.json (families llama,
 * mistral, qwen2, qwen3, mixtral, qwen2_moe, qwen3_moe; transformers 4 and 5 spellings) or from GGUF metadata.  Unknown keys of
 * config.json are ignored, an unknown model_type or a feature that changes the result is refused by name (EX_UNAVAILABLE, 69).
 * Noise of training (attention_dropout, router_jitter_noise) is never made, whatever config.json says.
 */

#include "libcommon/json.h"

enum rope_kind { ROPE_DEFAULT, ROPE_LINEAR, ROPE_DYNAMIC, ROPE_LLAMA3, ROPE_YARN };
enum head_kind { HEAD_LM, HEAD_SCALAR, HEAD_NONE };
enum { LAYERS_MOST = 1 << 14, EXPERTS_MOST = 1 << 14 };

/*
 * Layers with experts.  Scores are softmax(router logits) over all experts; the experts_per_token highest are taken, of equals the
 * lower id; their scores are the weights, divided by their sum where norm_topk is true (mixtral: always).
 */
struct moe_config {
	long experts;                   /* E; 0: the model has none, and the rest is 0 */
	long experts_per_token;
	long intermediate;              /* of one expert: moe_intermediate_size, mixtral's intermediate_size */
	long shared_intermediate;       /* of the expert that every token visits (qwen2_moe); 0: none */
	bool norm_topk;
	long step;                      /* decoder_sparse_step: layers step - 1, 2 step - 1, ... have experts; 1 */
	uint64_t mlp_only[LAYERS_MOST / 64];    /* a bit a layer: has a plain MLP all the same (mlp_only_layers) */
	double aux_loss_coef;           /* router_aux_loss_coef; 0.001 */
};

struct rope_config {
	enum rope_kind kind;
	double theta;
	double factor;
	double low_freq_factor, high_freq_factor;       /* llama3 */
	double original_max_position;                   /* llama3, yarn */
	double beta_fast, beta_slow;                    /* yarn: 32, 1 */
	double attention_factor;                        /* yarn; 0: not given */
	double mscale, mscale_all_dim;                  /* yarn; 0: not given */
	bool truncate;                                  /* yarn; true */
};

struct model_config {
	char model_type[32];            /* "llama", "mistral", "qwen2", "qwen3", "mixtral", "qwen2_moe", "qwen3_moe" */
	char architecture[64];          /* "LlamaForCausalLM" */
	long vocab, hidden, intermediate, layers, heads, kv_heads, head_dim;
	long max_position;
	double rms_eps;
	bool tied;                      /* lm_head is embed_tokens */
	bool qkv_bias, o_bias, mlp_bias;
	bool qk_norm;                   /* RMSNorm over head_dim on q and k before RoPE (qwen3) */
	long sliding_window;            /* 0: none; anything else is refused by the kernels for now */
	double initializer_range;       /* 0.02 */
	struct rope_config rope;
	struct moe_config moe;
	enum head_kind head;
	enum { CONFIG_F32, CONFIG_BF16, CONFIG_F16 } dtype;     /* torch_dtype */
	long bos, pad;                  /* -1: none */
	long eos[16]; int neos;         /* from config.json */
};

int model_config_from_json(struct model_config *c, const struct json_doc *d, struct err *e) MUST_CHECK;
/* config.json text that transformers 4 and 5 read (rope in both spellings, dtype and torch_dtype). */
void model_config_to_json(struct json_out *o, const struct model_config *c);
/* Dimensions positive, heads % kv_heads == 0, even head_dim, ...: EX_DATAERR naming the key. */
int model_config_check(const struct model_config *c, const char *file, struct err *e) MUST_CHECK;
/* cos/sin frequencies of RoPE: inv_freq[head_dim / 2] in float64 and the attention factor A (1 unless yarn). Formulas: hf-formats, "RoPE". */
int rope_frequencies(double *inv_freq, double *attention_factor, const struct model_config *c, struct err *e) MUST_CHECK;
/* Dynamic NTK: the theta for a sequence of `length`; rope_frequencies() gives those up to max_position, where nothing changes. */
double rope_dynamic_theta(double theta, double factor, long max_position, long head_dim, long length);
long model_config_parameters(const struct model_config *c);     /* elements, tied once */
bool model_config_is_moe(const struct model_config *c, long layer);     /* has that layer experts? */
long model_config_moe_layers(const struct model_config *c);             /* how many have */

#endif
