#include "libcommon/model_config.h"

#include <sys/stat.h>

#include "tests/lib/tap.h"

static const char
	*folder; /* where `test_model_config write DIR` leaves what model_config_to_json() made */

static int parse(struct model_config *c, const char *text, struct err *e)
{
	struct json_doc d;
	int rc = -2;

	*e = (struct err)ERR_INIT;
	if (json_parse(&d, text, strlen(text), "config.json", 1, e) == 0)
		rc = model_config_from_json(c, &d, e);
	json_release(&d);
	return rc;
}

/* "{TINY, more}" is a small model of some type; `more` begins with a comma or is empty. */
#define TINY(type) \
	"{\"model_type\":\"" type "\",\"vocab_size\":16,\"hidden_size\":8,\"intermediate_size\":" \
				  "16," \
	"\"num_hidden_layers\":2,\"num_attention_heads\":2,\"num_key_value_heads\":1"
/* Without the number of heads. */
#define SIZES(type) \
	"{\"model_type\":\"" type "\",\"vocab_size\":16,\"hidden_size\":8,\"intermediate_size\":" \
				  "16,\"num_hidden_layers\":2"

static struct model_config accepted(const char *text, const char *name)
{
	struct model_config c;
	struct err e;
	int rc = parse(&c, text, &e);

	ok(rc == 0, "%s%s%s", name, rc ? ": " : "", e.msg);
	return c;
}

static void refused(int code, const char *text, const char *part)
{
	struct model_config c;
	struct err e;
	int rc = parse(&c, text, &e);

	ok(rc == -1 && e.code == code && strstr(e.msg, part) && strstr(e.msg, "config.json"),
	   "%d: %s", e.code, e.msg);
}

static const char smollm2[] = "{\"architectures\":[\"LlamaForCausalLM\"],\"attention_bias\":false,"
			      "\"attention_dropout\":0.0,\"bos_token_id\":1,"
			      "\"eos_token_id\":2,\"hidden_act\":\"silu\",\"hidden_size\":576,"
			      "\"initializer_range\":0.041666666666666664,"
			      "\"intermediate_size\":1536,\"is_llama_config\":true,\"max_position_"
			      "embeddings\":8192,\"mlp_bias\":false,"
			      "\"model_type\":\"llama\",\"num_attention_heads\":9,\"num_hidden_"
			      "layers\":30,\"num_key_value_heads\":3,\"pad_token_id\":2,"
			      "\"pretraining_tp\":1,\"rms_norm_eps\":1e-05,\"rope_interleaved\":"
			      "false,\"rope_scaling\":null,\"rope_theta\":100000,"
			      "\"tie_word_embeddings\":true,\"torch_dtype\":\"bfloat16\",\"use_"
			      "cache\":true,\"vocab_size\":49152}";

static void families(void)
{
	struct model_config c = accepted(smollm2, "SmolLM2-135M");

	ok(c.vocab == 49152 && c.hidden == 576 && c.intermediate == 1536 && c.layers == 30 &&
		   c.heads == 9 && c.kv_heads == 3 && c.head_dim == 64 && c.max_position == 8192 &&
		   c.tied && c.dtype == CONFIG_BF16 && c.bos == 1 && c.pad == 2 && c.neos == 1 &&
		   c.eos[0] == 2 && c.rms_eps == 1e-5 && c.rope.theta == 1e5 && !c.qkv_bias &&
		   !c.qk_norm,
	   "its fields");
	ok(model_config_parameters(&c) == 134515008, "its 134515008 parameters");

	c = accepted(TINY("llama") "}", "llama");
	ok(!c.tied && !c.qkv_bias && c.head_dim == 4 && c.max_position == 2048 &&
		   c.rms_eps == 1e-6 && c.initializer_range == 0.02 && c.bos == 1 &&
		   c.eos[0] == 2 && c.neos == 1 && c.pad == -1 && c.rope.theta == 1e4 &&
		   c.dtype == CONFIG_F32,
	   "llama's defaults");
	c = accepted(TINY("llama") ",\"attention_bias\":true,\"mlp_bias\":true,\"bos_token_id\":"
				   "null,\"eos_token_id\":null}",
		     "with biases");
	ok(c.qkv_bias && c.o_bias && c.mlp_bias && c.bos == -1 && c.neos == 0, "and without ids");
	c = accepted(SIZES("llama") ",\"num_attention_heads\":4}", "no number of kv heads");
	ok(c.kv_heads == 4, "is that of the heads");
	c = accepted(TINY("mistral") ",\"sliding_window\":null,\"attention_bias\":true}", "mistra"
											  "l");
	ok(c.sliding_window == 0 && !c.qkv_bias && !c.tied, "without a window");
	c = accepted(TINY("mistral") "}", "mistral, window not named");
	ok(c.sliding_window == 4096, "has 4096");
	c = accepted(TINY("qwen2") ",\"use_sliding_window\":false,\"sliding_window\":32768,\"eos_"
				   "token_id\":[3,5]}",
		     "qwen2");
	ok(c.qkv_bias && !c.o_bias && !c.qk_norm && c.sliding_window == 0 && c.neos == 2 &&
		   c.eos[1] == 5 && c.bos == -1,
	   "qwen2's flags");
	c = accepted(TINY("qwen3") "}", "qwen3");
	ok(!c.qkv_bias && c.qk_norm && c.head_dim == 128, "qwen3's flags and head_dim");
	c = accepted(TINY("qwen3") ",\"attention_bias\":true,\"head_dim\":6,\"dtype\":\"float16\","
				   "\"torch_dtype\":\"bfloat16\"}",
		     "qwen3 again");
	ok(c.qkv_bias && c.o_bias && c.head_dim == 6 && c.dtype == CONFIG_F16, "attention_bias; "
									       "dtype before "
									       "torch_dtype");
	c = accepted("{\"model_type\":\"llava\",\"architectures\":["
		     "\"LlavaForConditionalGeneration\"],\"tie_word_embeddings\":true,"
		     "\"torch_dtype\":\"bfloat16\",\"text_config\":" TINY("llama") "}}",
		     "a text model in a wrapper");
	ok(c.vocab == 16 && c.tied && c.dtype == CONFIG_BF16, "with the wrapper's tie and dtype");
}

/* Field reports B11 and B17, as far as a config goes. */
static void reports(void)
{
	struct model_config c;

	c = accepted(TINY("llama") ",\"tie_word_embeddings\":false}", "B11 (i)");
	ok(!c.tied && model_config_parameters(&c) == 1448, "B11: untied, 1448 parameters");
	c = accepted(TINY("llama") ",\"tie_word_embeddings\":true}", "B11 (ii)");
	ok(c.tied && model_config_parameters(&c) == 1320, "B11: tied, 128 fewer");
	c = accepted(TINY("llama") "}", "B11 (iii)");
	ok(!c.tied, "B11: llama's default is untied");
	c = accepted(TINY("llama") ",\"head_dim\":6}", "B17");
	ok(c.head_dim == 6 && c.heads * c.head_dim == 12, "B17: heads * head_dim need not be "
							  "hidden");
	c = accepted(TINY("llama") "}", "B17 without head_dim");
	ok(c.head_dim == 4, "B17: head_dim is hidden / heads");
}

static void refusals(void)
{
	refused(EX_UNAVAILABLE, TINY("gemma2") "}",
		"gemma2\" is not supported, these are: llama, mistral, qwen2, qwen3");
	refused(EX_DATAERR, "{\"vocab_size\":16}", "model_type: missing");
	refused(EX_DATAERR, "[1]", "wanted an object");
	refused(EX_UNAVAILABLE, TINY("llama") ",\"hidden_act\":\"gelu\"}", "hidden_act \"gelu\"");
	refused(EX_UNAVAILABLE,
		TINY("llama") ",\"quantization_config\":{\"quant_method\":\"fp8\"}}",
		"quantization_config");
	refused(EX_UNAVAILABLE,
		TINY("llama") ",\"architectures\":[\"LlamaForSequenceClassification\"]}",
		"scalar head");
	refused(EX_UNAVAILABLE, TINY("llama") ",\"architectures\":[\"LlamaModel\"]}",
		"wanted LlamaForCausalLM");
	refused(EX_UNAVAILABLE,
		TINY("qwen2") ",\"use_sliding_window\":true,\"max_window_layers\":1}",
		"use_sliding_window");
	refused(EX_UNAVAILABLE,
		TINY("qwen3") ",\"layer_types\":[\"full_attention\",\"sliding_attention\"]}",
		"layer_types[1]");
	refused(EX_UNAVAILABLE, TINY("llama") ",\"partial_rotary_factor\":0.5}",
		"partial_rotary_factor 0.5");
	refused(EX_UNAVAILABLE,
		TINY("llama") ",\"rope_scaling\":{\"rope_type\":\"longrope\",\"factor\":2}}",
		"longrope");
	refused(EX_DATAERR, TINY("llama") ",\"rope_scaling\":{\"rope_type\":\"spiral\"}}",
		"\"spiral\" is unknown");
	refused(EX_UNAVAILABLE, TINY("llama") ",\"torch_dtype\":\"float8\"}", "float8");
	refused(EX_UNAVAILABLE, TINY("llama") ",\"rope_parameters\":{\"full_attention\":{}}}",
		"by layer");
	refused(EX_DATAERR, SIZES("llama") ",\"num_attention_heads\":3}",
		"no multiple of num_attention_heads 3");
	refused(EX_DATAERR, SIZES("llama") ",\"num_attention_heads\":4,\"num_key_value_heads\":3}",
		"num_key_value_heads: found 3");
	refused(EX_DATAERR, SIZES("llama") ",\"num_attention_heads\":0}",
		"num_attention_heads: found 0");
	refused(EX_DATAERR, SIZES("llama") ",\"num_attention_heads\":-2}",
		"num_attention_heads: found -2");
	refused(EX_DATAERR, SIZES("llama") "}", "num_attention_heads: missing");
	refused(EX_DATAERR, SIZES("llama") ",\"num_attention_heads\":\"2\"}",
		"num_attention_heads");
	refused(EX_DATAERR, SIZES("llama") ",\"num_attention_heads\":9223372036854775807}",
		"num_attention_heads");
	refused(EX_DATAERR, TINY("llama") ",\"head_dim\":5}",
		"head_dim: found 5, wanted an even number");
	refused(EX_DATAERR, TINY("llama") ",\"head_dim\":0}", "head_dim: found 0");
	refused(EX_DATAERR, TINY("llama") ",\"rms_norm_eps\":0}", "rms_norm_eps");
	refused(EX_DATAERR, TINY("llama") ",\"rope_theta\":-1}", "rope_theta");
	refused(EX_DATAERR, TINY("mistral") ",\"sliding_window\":0}", "sliding_window");
	refused(EX_DATAERR,
		TINY("llama") ",\"eos_token_id\":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17]}",
		"found 17");
	refused(EX_DATAERR, TINY("llama") ",\"eos_token_id\":[-1]}", "eos_token_id");
	refused(EX_DATAERR, TINY("llama") ",\"rope_scaling\":{\"rope_type\":\"linear\"}}",
		"rope_scaling.factor: missing");
	refused(EX_DATAERR, TINY("llama") ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":0}}",
		"factor is 0");
	refused(EX_DATAERR, TINY("llama") ",\"rope_scaling\":7}", "rope_scaling: found a number");
	refused(EX_DATAERR,
		TINY("llama") ",\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_"
			      "factor\":4,"
			      "\"high_freq_factor\":4,\"original_max_position_embeddings\":64}}",
		"high_freq_factor is 4");
	/* Field report B15, third part. */
	refused(EX_DATAERR,
		TINY("llama") ",\"rope_theta\":10000,\"rope_parameters\":{\"rope_type\":"
			      "\"default\",\"rope_theta\":500000}}",
		"rope_theta is 10000.0 but rope_parameters.rope_theta is 500000.0");
	refused(EX_DATAERR,
		TINY("llama") ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":2},"
			      "\"rope_parameters\":{\"rope_type\":\"linear\",\"factor\":4}}",
		"rope_parameters.factor is 4.0 but rope_scaling.factor is 2.0");
	refused(EX_DATAERR,
		TINY("llama") ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":2},"
			      "\"rope_parameters\":{\"rope_type\":\"default\"}}",
		"rope_type default but rope_scaling has linear");
}

static void refused_experts(void)
{
	refused(65, TINY("mixtral") ",\"num_local_experts\":0}", "number of experts: found 0");
	refused(65, TINY("mixtral") ",\"num_local_experts\":4,\"num_experts_per_tok\":5}", "num_experts_per_tok: found 5");
	refused(65, TINY("qwen3_moe") ",\"num_experts\":4,\"num_local_experts\":5}", "num_local_experts: found 5, num_experts is 4");
	refused(65, TINY("qwen3_moe") ",\"decoder_sparse_step\":0}", "decoder_sparse_step: found 0");
	refused(65, TINY("qwen3_moe") ",\"mlp_only_layers\":[1,20000]}", "mlp_only_layers: found 20000");
	refused(65, TINY("qwen3_moe") ",\"mlp_only_layers\":3}", "mlp_only_layers: found");
	refused(65, TINY("qwen2_moe") ",\"moe_intermediate_size\":-1}", "moe_intermediate_size: found -1");
	refused(65, TINY("qwen2_moe") ",\"shared_expert_intermediate_size\":0}", "shared_expert_intermediate_size: found 0");
	refused(65, TINY("qwen2_moe") ",\"num_experts\":100000}", "number of experts: found 100000");
	refused(65, TINY("qwen2_moe") ",\"router_aux_loss_coef\":-1}", "router_aux_loss_coef");
}

static void experts(void)
{
	struct model_config c = accepted(TINY("qwen2_moe") "}", "qwen2_moe with its defaults");

	ok(c.moe.experts == 60 && c.moe.experts_per_token == 4 && c.moe.intermediate == 1408 && c.moe.shared_intermediate == 5632 &&
	   !c.moe.norm_topk && c.moe.step == 1 && c.qkv_bias && !c.qk_norm, "which are these");
	c = accepted(TINY("mixtral") "}", "mixtral with its defaults");
	ok(c.moe.experts == 8 && c.moe.experts_per_token == 2 && c.moe.intermediate == 16 && c.moe.norm_topk && c.rms_eps == 1e-5 &&
	   c.rope.theta == 1e6, "which are these");
	c = accepted(TINY("qwen3_moe") ",\"num_local_experts\":6,\"decoder_sparse_step\":2,\"mlp_only_layers\":null,"
		     "\"norm_topk_prob\":true,\"num_experts_per_tok\":2}", "qwen3_moe as transformers 5 may spell it");
	ok(c.moe.experts == 6 && c.moe.norm_topk && !model_config_is_moe(&c, 0) && model_config_is_moe(&c, 1), "every second layer");
	c = accepted(TINY("qwen3_moe") ",\"num_experts\":0}", "num_experts 0");
	ok(!model_config_moe_layers(&c), "is a model without experts");
}

static void leave(const char *name, const struct json_out *o)
{
	char path[4096];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	mkdir(path, 0777);
	snprintf(path, sizeof(path), "%s/%s/config.json", folder, name);
	f = fopen(path, "w");
	ok(f && fwrite(o->s.s, 1, o->s.len, f) == o->s.len && fclose(f) == 0, "%s", path);
}

static void same_again(const char *text, const char *name)
{
	struct model_config a, b;
	struct json_out o = { .indent = 2 };
	struct err e;

	if (parse(&a, text, &e)) {
		ok(0, "%s: %s", name, e.msg);
		return;
	}
	model_config_to_json(&o, &a);
	if (folder)
		leave(name, &o);
	int rc = parse(&b, o.s.s, &e);
	ok(rc == 0 && !memcmp(&a, &b, sizeof(a)), "%s: config, json, config %s", name, e.msg);
	json_out_release(&o);
}

static void identity(void)
{
	same_again(smollm2, "SmolLM2");
	same_again(TINY("llama") ",\"attention_bias\":true,\"mlp_bias\":true,\"bos_token_id\":null,"
				 "\"eos_token_id\":[3,1,2],\"head_dim\":6}",
		   "llama");
	same_again(TINY("llama") ",\"eos_token_id\":null,\"tie_word_embeddings\":true,"
				 "\"initializer_range\":0.1,\"dtype\":\"float16\"}",
		   "llama, no eos");
	same_again(TINY("mistral") ",\"sliding_window\":64,\"rms_norm_eps\":3e-06}", "mistral");
	same_again(TINY("mistral") ",\"sliding_window\":null}", "mistral without a window");
	same_again(TINY("qwen2") ",\"pad_token_id\":7,\"sliding_window\":64,\"use_sliding_window\":"
				 "true}",
		   "qwen2, windows from a layer it has not");
	same_again(TINY("qwen3") ",\"attention_bias\":true,\"max_position_embeddings\":77}", "qwen"
											     "3");
	same_again(TINY("llama") ",\"rope_theta\":1234.5,\"rope_scaling\":{\"type\":\"linear\","
				 "\"factor\":2.5}}",
		   "linear");
	same_again(TINY("llama") ",\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":2}}", "dynami"
											   "c");
	same_again(TINY("llama") ",\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8,\"low_"
				 "freq_factor\":1,\"high_freq_factor\":4,"
				 "\"original_max_position_embeddings\":64}}",
		   "llama3");
	same_again(TINY("qwen2") ",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4.0,\"original_"
				 "max_position_embeddings\":32768}}",
		   "yarn");
	same_again(TINY("qwen2") ",\"rope_parameters\":{\"rope_type\":\"yarn\",\"factor\":4,\"beta_"
				 "fast\":30,\"beta_slow\":2,\"mscale\":0.7,"
				 "\"mscale_all_dim\":0.8,\"attention_factor\":1.5,\"truncate\":"
				 "false,\"rope_theta\":1e6}}",
		   "yarn, everything said");
	same_again(TINY("mixtral") ",\"num_local_experts\":5,\"router_aux_loss_coef\":0.5}", "mixtral");
	same_again(TINY("qwen2_moe") ",\"num_experts\":6,\"decoder_sparse_step\":2,\"mlp_only_layers\":[0,1],\"qkv_bias\":false,"
		   "\"norm_topk_prob\":true,\"shared_expert_intermediate_size\":12}", "qwen2_moe");
	same_again(TINY("qwen3_moe") ",\"num_experts\":9,\"moe_intermediate_size\":5,\"num_experts_per_tok\":9}", "qwen3_moe");
	same_again(TINY("qwen3_moe") ",\"num_experts\":0}", "qwen3_moe without experts");
}

struct want { int i; double f; };

static double frequencies(double *f, const char *rope, long d, const char *more)
{
	struct model_config c;
	char text[1000];
	struct err e;
	double a = 0;

	snprintf(text, sizeof(text), TINY("llama") ",\"head_dim\":%ld,%s%s}", d, rope, more);
	if (parse(&c, text, &e) || rope_frequencies(f, &a, &c, &e))
		ok(0, "%s: %s", rope, e.msg);
	return a;
}

static void are(const char *name, const double *f, const struct want *w, int n)
{
	for (int k = 0; k < n; k++)
		is_num(f[w[k].i] / w[k].f, 1, 2e-9, "%s: frequency %d is %.9g", name, w[k].i,
		       w[k].f);
}
#define ARE(name, f, ...) \
	are(name, f, (const struct want[]){ __VA_ARGS__ }, \
	    sizeof((const struct want[]){ __VA_ARGS__ }) / sizeof(struct want))

#define LLAMA3(factor, length) \
	"\"rope_theta\":5e5,\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":" factor \
	",\"low_freq_factor\":1,\"high_freq_factor\":4,\"original_max_position_" \
	"embeddings\":" length "}"

/* Nine digits, from the formulas in float64. */
static void rope(void)
{
	double f[64], a;

	a = frequencies(f, "\"rope_theta\":1e5", 64, "");
	ARE("default", f, { 0, 1 }, { 1, 0.697830585 }, { 16, 0.00316227766 },
	    { 31, 1.43301257e-05 });
	is_num(a, 1, 0, "A is 1");
	frequencies(f, LLAMA3("8", "8192"), 128, "");
	ARE("llama3 of 128", f, { 28, 0.00321144599 }, { 29, 0.00216657076 }, { 30, 0.00137189357 },
	    { 31, 0.000856751413 }, { 32, 0.000524846161 }, { 34, 0.000178507813 },
	    { 35, 9.55621235e-05 }, { 36, 7.78465527e-05 }, { 63, 3.06892599e-07 });
	frequencies(f, LLAMA3("32", "8192"), 64, "");
	ARE("llama3 of 64", f, { 14, 0.00321144599 }, { 15, 0.00129054793 }, { 16, 0.000429556797 },
	    { 17, 9.7082878e-05 }, { 18, 1.94616382e-05 });
	a = frequencies(f, "\"rope_theta\":1e6,\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4,"
			"\"original_max_position_embeddings\":32768}", 128, "");
	ARE("yarn", f, { 23, 0.00697830585 }, { 24, 0.00537532149 }, { 30, 0.00106436098 },
	    { 39, 6.49039432e-05 }, { 40, 4.44569853e-05 });
	is_num(a, 1.13862944, 5e-9, "yarn: A");
	frequencies(f,
		    "\"rope_theta\":1e6,\"max_position_embeddings\":131072,\"rope_parameters\":{"
		    "\"rope_type\":\"yarn\",\"factor\":null,"
		    "\"original_max_position_embeddings\":32768}",
		    128, "");
	ARE("yarn, null factor", f, { 30, 0.00106436098 });
	a = frequencies(f,
			"\"rope_theta\":150000,\"max_position_embeddings\":131072,\"rope_scaling\":"
			"{\"rope_type\":\"yarn\","
			"\"factor\":32.0,\"beta_fast\":32.0,\"beta_slow\":1.0,\"truncate\":false,"
			"\"original_max_position_embeddings\":4096}",
			64, "");
	ARE("yarn, not truncated", f, { 9, 0.0317056962 }, { 12, 0.00679495949 },
	    { 17, 0.000129318701 }, { 18, 3.83088124e-05 });
	is_num(a, 1.34657359, 5e-9, "yarn, not truncated: A");
	a = frequencies(f,
			"\"rope_scaling\":{\"type\":\"yarn\",\"factor\":40,\"mscale\":1.0,\"mscale_"
			"all_dim\":0.5,"
			"\"original_max_position_embeddings\":4096}",
			64, "");
	is_num(a, (0.1 * log(40) + 1) / (0.05 * log(40) + 1), 1e-15, "yarn: A from mscale");
	a = frequencies(f,
			"\"rope_scaling\":{\"type\":\"yarn\",\"factor\":40,\"attention_factor\":1."
			"25,"
			"\"original_max_position_embeddings\":4096}",
			64, "");
	is_num(a, 1.25, 0, "yarn: A as given");

	double theta = rope_dynamic_theta(1e4, 2, 2048, 64, 4096);
	is_num(theta, 31082.2367, 5e-5, "dynamic: theta for 4096 tokens");
	char text[100];
	snprintf(text, sizeof(text), "\"rope_theta\":%.17g", theta);
	frequencies(f, text, 64, "");
	ARE("dynamic", f, { 1, 0.723784022 }, { 16, 0.00567209986 });
	frequencies(f, "\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":2}", 64, "");
	ARE("dynamic, as trained", f, { 1, pow(1e4, -1.0 / 32) }, { 31, pow(1e4, -31.0 / 32) });
	ok(rope_dynamic_theta(1e4, 2, 2048, 64, 2048) == 1e4, "dynamic: nothing changes up to "
							      "max_position");
}

/* Field reports B14 and B15. */
static void rope_reports(void)
{
	double f[4];

	frequencies(f,
		    "\"rope_theta\":10000,\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8,"
		    "\"low_freq_factor\":1,"
		    "\"high_freq_factor\":4,\"original_max_position_embeddings\":64}",
		    8, "");
	is_num(f[0], 1, 1e-6, "B14: 1");
	is_num(f[1] / 0.01304226, 1, 1e-6, "B14: 0.01304226");
	is_num(f[2] / 0.00125, 1, 1e-6, "B14: 0.00125");
	is_num(f[3] / 0.000125, 1, 1e-6, "B14: 0.000125");
	frequencies(f, "\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":500000}", 8,
		    "");
	is_num(f[1], 0.03760603, 5e-9, "B15: theta in rope_parameters");
	frequencies(f, "\"rope_theta\":10000,\"rope_scaling\":{\"type\":\"linear\",\"factor\":2}",
		    8, "");
	is_num(cos(2 * f[0]), 0.54030231, 5e-9, "B15: linear scaling, old spelling");
	frequencies(f,
		    "\"rope_theta\":10000,\"rope_scaling\":{\"type\":\"linear\",\"factor\":2},"
		    "\"rope_parameters\":{\"rope_type\":\"linear\",\"factor\":2.0,\"rope_theta\":"
		    "1e4}",
		    8, "");
	is_num(f[0], 0.5, 0, "B15: both places, the same");
}

/* What transformers makes of configs that it wrote itself; from record_config.py.  It computes in
 * float32. */
static void one_of_transformers(const struct json_doc *d, const struct json *v, int i)
{
	struct json_doc alone = { .root = *json_get(v, "config"), .file = d->file };
	const struct json *want = json_get(v, "inv_freq");
	double f[64], a, x, off = 0;
	struct model_config c;
	struct err e = ERR_INIT;
	long n = 0;

	if (model_config_from_json(&c, &alone, &e) || rope_frequencies(f, &a, &c, &e) ||
	    json_int(d, json_get(v, "parameters"), "parameters", &n, &e) ||
	    json_real(d, json_get(v, "attention_factor"), "A", &x, &e)) {
		ok(0, "config %d: %s", i, e.msg);
		return;
	}
	ok(model_config_parameters(&c) == n, "config %d, %s: %ld parameters", i, c.model_type, n);
	is_num(a, x, 1e-6, "config %d: attention factor %g", i, x);
	ok((long)want->n == c.head_dim / 2, "config %d: %zu frequencies", i, want->n);
	for (size_t k = 0; k < want->n && (long)k < c.head_dim / 2; k++)
		off = json_real(d, &want->item[k], "inv_freq", &x, &e)
			      ? INFINITY
			      : fmax(off, fabs(f[k] / x - 1));
	ok(off < 2e-6, "config %d: within %.1e of theirs", i, off);
}

static void transformers(void)
{
	char path[4096];
	const char *root = getenv("CAIRN_ROOT");
	struct json_doc d;
	struct err e = ERR_INIT;

	snprintf(path, sizeof(path), "%s/tests/data/model_config.json", root ? root : ".");
	if (json_read(&d, path, 0, &e)) {
		ok(0, "%s", e.msg);
		return;
	}
	ok(d.root.n >= 9, "%zu configs by transformers", d.root.n);
	for (size_t i = 0; i < d.root.n; i++)
		one_of_transformers(&d, &d.root.item[i], (int)i);
	json_release(&d);
}

int main(int argc, char **argv)
{
	if (argc == 3 && !strcmp(argv[1], "write")) {
		folder = argv[2];
		identity();
		return done();
	}
	families();
	transformers();
	reports();
	refusals();
	experts();
	refused_experts();
	identity();
	rope();
	rope_reports();
	return done();
}
