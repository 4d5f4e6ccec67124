#include "formats/gguf.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct source {
	const struct gguf *g;
	const char *arch;
	char key[128];          /* of the last a_key() */
	struct err *e;
};

static const char *a_key(struct source *s, const char *name)
{
	snprintf(s->key, sizeof(s->key), "%s.%s", s->arch, name);
	return s->key;
}

static int refuse(struct source *s, const char *what)
{
	return err_set(s->e, EX_UNAVAILABLE, "%s: %s is not supported", s->g->path, what);
}

/* A size; files may give one for every layer, which must then all be the same. */
static int size_of(struct source *s, const char *name, long def, long *out)
{
	const struct gguf_kv *kv = gguf_find(s->g, a_key(s, name));
	const int32_t *v;

	if (!kv && def >= 0) {
		*out = def;
		return 0;
	}
	if (!kv || !kv->array)
		return gguf_int(s->g, s->key, out, s->e);
	if ((kv->type != GGUF_I32 && kv->type != GGUF_U32) || !kv->n)
		return err_set(s->e, EX_DATAERR, "%s: %s: wanted an integer or an array of them",
			       s->g->path, s->key);
	v = kv->items;
	for (size_t i = 1; i < kv->n; i++)
		if (v[i] != v[0])
			return err_set(
				s->e, EX_UNAVAILABLE,
				"%s: %s: a size that differs from layer to layer is not supported",
				s->g->path, s->key);
	*out = v[0];
	return 0;
}

static int read_sizes(struct model_config *c, struct source *s)
{
	const struct gguf_tensor *embed = gguf_tensor_find(s->g, "token_embd.weight");
	long value, rotary;

	if (!embed || embed->rank != 2)
		return err_set(s->e, EX_DATAERR, "%s: token_embd.weight is %s", s->g->path,
			       embed ? "no matrix" : "missing");
	if (size_of(s, "block_count", -1, &c->layers) ||
	    size_of(s, "context_length", -1, &c->max_position) ||
	    size_of(s, "embedding_length", -1, &c->hidden) ||
	    size_of(s, "feed_forward_length", -1, &c->intermediate) ||
	    size_of(s, "attention.head_count", -1, &c->heads) ||
	    size_of(s, "attention.head_count_kv", c->heads, &c->kv_heads) ||
	    size_of(s, "vocab_size", embed->shape[0], &c->vocab))
		return -1;
	if (c->heads <= 0)
		return err_set(s->e, EX_DATAERR, "%s: %s.attention.head_count is %ld", s->g->path,
			       s->arch, c->heads);
	if (size_of(s, "attention.key_length", c->hidden / c->heads, &c->head_dim) ||
	    size_of(s, "attention.value_length", c->head_dim, &value) ||
	    size_of(s, "rope.dimension_count", c->head_dim, &rotary) ||
	    size_of(s, "attention.sliding_window", 0, &c->sliding_window))
		return -1;
	if (c->vocab != embed->shape[0])
		return err_set(s->e, EX_DATAERR,
			       "%s: token_embd.weight has %ld rows, wanted %ld (%s.vocab_size)",
			       s->g->path, embed->shape[0], c->vocab, s->arch);
	if (value != c->head_dim)
		return refuse(s, "a value_length that is not key_length");
	if (rotary != c->head_dim)
		return refuse(s, "rotary embedding on a part of a head");
	c->dtype = CONFIG_F32;
	if (embed->type == GGML_BF16 || embed->type == GGML_F16)
		c->dtype = embed->type == GGML_F16 ? CONFIG_F16 : CONFIG_BF16;
	return 0;
}

/* A layer without a router has a plain MLP. */
static void find_plain_layers(struct model_config *c, const struct source *s)
{
	char name[64];

	for (long i = 0; i < c->layers; i++) {
		snprintf(name, sizeof(name), "blk.%ld.ffn_gate_inp.weight", i);
		if (!gguf_tensor_find(s->g, name))
			c->moe.mlp_only[i / 64] |= 1UL << i % 64;
	}
}

/* llama.cpp makes the weights of qwen3moe and mixtral sum to 1, not those of qwen2moe, unless the file says otherwise. */
static int read_experts(struct model_config *c, struct source *s)
{
	struct moe_config *m = &c->moe;
	bool shared = !strcmp(s->arch, "qwen2moe"), mixtral = !strcmp(s->arch, "llama");

	if (size_of(s, "expert_count", 0, &m->experts))
		return -1;
	if (!m->experts)
		return shared || !strcmp(s->arch, "qwen3moe") ? refuse(s, "an architecture of experts without any") : 0;
	if (!mixtral && !shared && strcmp(s->arch, "qwen3moe"))
		return refuse(s, "this architecture with a mixture of experts");
	if (c->layers < 1 || c->layers > LAYERS_MOST)
		return err_set(s->e, EX_DATAERR, "%s: %s.block_count is %ld", s->g->path, s->arch, c->layers);
	m->step = 1;
	m->aux_loss_coef = 0.001;
	if (size_of(s, "expert_used_count", -1, &m->experts_per_token) ||
	    size_of(s, "expert_feed_forward_length", mixtral ? c->intermediate : -1, &m->intermediate) ||
	    (shared && size_of(s, "expert_shared_feed_forward_length", -1, &m->shared_intermediate)) ||
	    gguf_bool_or(s->g, a_key(s, "expert_weights_norm"), !shared, &m->norm_topk, s->e))
		return -1;
	if (mixtral) {
		snprintf(c->model_type, sizeof(c->model_type), "mixtral");
		snprintf(c->architecture, sizeof(c->architecture), "MixtralForCausalLM");
		return 0;
	}
	find_plain_layers(c, s);
	return 0;
}

/* Features of other models that ride on the same architecture name. */
static int refuse_extras(struct source *s)
{
	static const char *const keys[] = {
		"attn_logit_softcapping", "final_logit_softcapping",
		"attention.scale", "logit_scale", "embedding_scale", "residual_scale",
		"attention.clamp_kqv", "attention.max_alibi_bias",
	};

	for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++) {
		double v;

		if (gguf_real_or(s->g, a_key(s, keys[i]), 0, &v, s->e))
			return -1;
		if (v != 0)
			return refuse(s, s->key);
	}
	return 0;
}

static void add_eos(struct model_config *c, long id)
{
	for (int i = 0; i < c->neos; i++)
		if (c->eos[i] == id)
			return;
	if (id >= 0)
		c->eos[c->neos++] = id;
}

static int read_special(struct model_config *c, struct source *s)
{
	long eos, eot, eom;

	if (gguf_int_or(s->g, "tokenizer.ggml.bos_token_id", -1, &c->bos, s->e) ||
	    gguf_int_or(s->g, "tokenizer.ggml.padding_token_id", -1, &c->pad, s->e) ||
	    gguf_int_or(s->g, "tokenizer.ggml.eos_token_id", -1, &eos, s->e) ||
	    gguf_int_or(s->g, "tokenizer.ggml.eot_token_id", -1, &eot, s->e) ||
	    gguf_int_or(s->g, "tokenizer.ggml.eom_token_id", -1, &eom, s->e))
		return -1;
	add_eos(c, eos);
	add_eos(c, eot);
	add_eos(c, eom);
	return 0;
}

/* -- RoPE -------------------------------------------------------------------------------- */

static int read_yarn(struct rope_config *r, struct source *s)
{
	/* Multipliers that Hugging Face's form of yarn does not have, and the values at which they
	 * do nothing. */
	static const struct {
		const char *key;
		double idle;
	} extra[] = {
		{ "rope.scaling.attn_factor", 1 },
		{ "rope.scaling.yarn_ext_factor", 1 },
		{ "rope.scaling.yarn_attn_factor", 1 },
		{ "rope.scaling.yarn_log_multiplier", 0 },
	};
	long original;

	r->kind = ROPE_YARN;
	r->truncate = true;
	if (size_of(s, "rope.scaling.original_context_length", -1, &original) ||
	    gguf_real_or(s->g, a_key(s, "rope.scaling.yarn_beta_fast"), 32, &r->beta_fast, s->e) ||
	    gguf_real_or(s->g, a_key(s, "rope.scaling.yarn_beta_slow"), 1, &r->beta_slow, s->e))
		return -1;
	r->original_max_position = (double)original;
	for (size_t i = 0; i < sizeof(extra) / sizeof(*extra); i++) {
		double v;

		if (gguf_real_or(s->g, a_key(s, extra[i].key), extra[i].idle, &v, s->e))
			return -1;
		if (v != extra[i].idle)
			return refuse(s, s->key);
	}
	return 0;
}

static double divisor(const struct rope_config *r, int i, int d)
{
	double wave = 2 * M_PI * pow(r->theta, 2.0 * i / d), s;

	if (wave < r->original_max_position / r->high_freq_factor)
		return 1;
	if (wave > r->original_max_position / r->low_freq_factor)
		return r->factor;
	s = (r->original_max_position / wave - r->low_freq_factor) /
	    (r->high_freq_factor - r->low_freq_factor);
	return 1 / ((1 - s) / r->factor + s);
}

static bool fits(const struct rope_config *r, const float *div, int d)
{
	if (!(r->high_freq_factor > r->low_freq_factor) || !(r->original_max_position > 0))
		return false;
	for (int i = 0; i < d / 2; i++)
		if (!(fabs(div[i] / divisor(r, i, d) - 1) <= 2e-6))
			return false;
	return true;
}

/*
 * On the slope between 1 and factor, s = (L / wave - low) / (high - low) is a line in 1 / wave, and
 * the divisor gives s back: s = (1 / divisor - 1 / factor) / (1 - 1 / factor).  Two points fix L
 * and high for low = 1 (the three are only known up to a common factor); rounded to what somebody
 * would have written, they must give every divisor.
 */
static bool solve(struct rope_config *r, const float *div, int d)
{
	double x[2] = { 0 }, s[2] = { 0 }, slope, at0;
	int n = 0;

	for (int i = 0; i < d / 2; i++) {
		if (div[i] <= 1 || !(div[i] < r->factor))
			continue;
		x[n] = 1 / (2 * M_PI * pow(r->theta, 2.0 * i / d));
		s[n] = (1 / (double)div[i] - 1 / r->factor) / (1 - 1 / r->factor);
		n = 1;
	}
	if (x[1] == 0)
		return false;
	slope = (s[0] - s[1]) / (x[0] - x[1]);
	at0 = s[0] - slope * x[0];
	r->low_freq_factor = 1;
	r->high_freq_factor = 1 + round(-1000 / at0) / 1000;
	r->original_max_position = round(-slope / at0);
	return fits(r, div, d);
}

static int find_llama3(struct rope_config *r, struct source *s, const float *div, long d,
		       long original)
{
	struct rope_config l = *r;
	long ones = 0;

	while (ones < d / 2 && div[ones] == 1)
		ones++;
	if (ones == d / 2)
		return 0;
	l.kind = ROPE_LLAMA3;
	l.factor = (double)div[d / 2 - 1];
	l.low_freq_factor = 1;
	l.high_freq_factor = 4;
	l.original_max_position = (double)original;
	if (!(l.factor > 1) || !(fits(&l, div, (int)d) || solve(&l, div, (int)d)))
		return refuse(s, "rope_freqs.weight that no llama3 scaling gives");
	*r = l;
	return 0;
}

static int read_divisors(struct rope_config *r, struct source *s, const struct gguf_tensor *t,
			 long d)
{
	long original;
	float *div;
	int rc;

	if (t->type != GGML_F32 || t->rank != 1 || t->shape[0] != d / 2)
		return err_set(s->e, EX_DATAERR, "%s: %s: wanted %ld values of F32", s->g->path,
			       t->name, d / 2);
	if (r->kind != ROPE_DEFAULT)
		return refuse(s, "rope_freqs.weight together with rope.scaling");
	if (size_of(s, "rope.scaling.original_context_length", 8192, &original))
		return -1;
	div = xmalloc(sizeof(*div) * (size_t)d);
	rc = gguf_read_f32(div, s->g, t, 0, 1, s->e);
	if (!rc)
		rc = find_llama3(r, s, div, d, original);
	free(div);
	return rc;
}

static int read_rope(struct model_config *c, struct source *s)
{
	const struct gguf_tensor *freqs = gguf_tensor_find(s->g, "rope_freqs.weight");
	struct rope_config *r = &c->rope;
	const char *type;
	double old;

	if (gguf_real_or(s->g, a_key(s, "rope.freq_base"), 10000, &r->theta, s->e) ||
	    gguf_real_or(s->g, a_key(s, "rope.scale_linear"), 1, &old, s->e) ||
	    gguf_real_or(s->g, a_key(s, "rope.scaling.factor"), old, &r->factor, s->e) ||
	    gguf_str_or(s->g, a_key(s, "rope.scaling.type"), old == 1 ? "none" : "linear", &type,
			s->e))
		return -1;
	if (!strcmp(type, "linear"))
		r->kind = r->factor == 1 ? ROPE_DEFAULT : ROPE_LINEAR;
	else if (!strcmp(type, "yarn")) {
		if (read_yarn(r, s))
			return -1;
	} else if (strcmp(type, "none"))
		return err_set(s->e, EX_UNAVAILABLE,
			       "%s: %s.rope.scaling.type \"%.40s\" is not supported", s->g->path,
			       s->arch, type);
	if (!(r->theta > 0) || !isfinite(r->theta) || !(r->factor > 0) || !isfinite(r->factor))
		return err_set(s->e, EX_DATAERR, "%s: rope base %g, factor %g", s->g->path,
			       r->theta, r->factor);
	return freqs ? read_divisors(r, s, freqs, c->head_dim) : 0;
}

/* -- all of it --------------------------------------------------------------------------- */

int gguf_model_config(struct model_config *c, const struct gguf *g, struct err *e)
{
	static const char *const known[][3] = {
		{ "llama", "llama", "LlamaForCausalLM" },
		{ "qwen2", "qwen2", "Qwen2ForCausalLM" },
		{ "qwen3", "qwen3", "Qwen3ForCausalLM" },
		{ "qwen2moe", "qwen2_moe", "Qwen2MoeForCausalLM" },
		{ "qwen3moe", "qwen3_moe", "Qwen3MoeForCausalLM" },
	};
	enum { KNOWN = sizeof(known) / sizeof(*known) };
	struct source s = { .g = g, .e = e };
	int k = 0;

	*c = (struct model_config){ .initializer_range = 0.02, .head = HEAD_LM };
	if (gguf_str(g, "general.architecture", &s.arch, e))
		return -1;
	while (k < KNOWN && strcmp(known[k][0], s.arch))
		k++;
	if (k == KNOWN)
		return err_set(
			e, EX_UNAVAILABLE,
			"%s: architecture \"%.40s\" is not supported (llama, qwen2, qwen3, qwen2moe and qwen3moe are)",
			g->path, s.arch);
	snprintf(c->model_type, sizeof(c->model_type), "%s", known[k][1]);
	snprintf(c->architecture, sizeof(c->architecture), "%s", known[k][2]);
	c->tied = !gguf_tensor_find(g, "output.weight");
	c->qkv_bias = gguf_tensor_find(g, "blk.0.attn_q.bias");
	c->o_bias = gguf_tensor_find(g, "blk.0.attn_output.bias");
	c->mlp_bias = gguf_tensor_find(g, "blk.0.ffn_down.bias");
	c->qk_norm = !strncmp(s.arch, "qwen3", 5);
	if (!gguf_find(g, a_key(&s, "attention.layer_norm_rms_epsilon")))
		return err_set(e, EX_DATAERR, "%s: key %s is missing", g->path, s.key);
	if (gguf_real_or(g, s.key, 0, &c->rms_eps, e) || read_sizes(c, &s) || read_experts(c, &s) ||
	    refuse_extras(&s) || read_special(c, &s))
		return -1;
	if (c->head_dim <= 0 || c->head_dim > 65536 || c->head_dim % 2)
		return err_set(e, EX_DATAERR, "%s: heads of %ld", g->path, c->head_dim);
	if (read_rope(c, &s))
		return -1;
	return model_config_check(c, g->path, e);
}

int gguf_hf_name(char out[128], const char *model_type, const char *name)
{
	static const char *const top[][2] = {
		{ "token_embd.weight", "model.embed_tokens.weight" },
		{ "output_norm.weight", "model.norm.weight" },
		{ "output.weight", "lm_head.weight" },
	};
	static const char *const block[][2] = {
		{ "attn_norm", "input_layernorm" },    { "attn_q", "self_attn.q_proj" },
		{ "attn_k", "self_attn.k_proj" },      { "attn_v", "self_attn.v_proj" },
		{ "attn_output", "self_attn.o_proj" }, { "attn_q_norm", "self_attn.q_norm" },
		{ "attn_k_norm", "self_attn.k_norm" }, { "ffn_norm", "post_attention_layernorm" },
		{ "ffn_gate", "mlp.gate_proj" },       { "ffn_up", "mlp.up_proj" },
		{ "ffn_down", "mlp.down_proj" },
		{ "ffn_gate_inp", "mlp.gate" },        { "ffn_gate_exps", "mlp.experts.gate_proj" },
		{ "ffn_up_exps", "mlp.experts.up_proj" }, { "ffn_down_exps", "mlp.experts.down_proj" },
		{ "ffn_gate_shexp", "mlp.shared_expert.gate_proj" },
		{ "ffn_up_shexp", "mlp.shared_expert.up_proj" },
		{ "ffn_down_shexp", "mlp.shared_expert.down_proj" },
		{ "ffn_gate_inp_shexp", "mlp.shared_expert_gate" },
	};
	static const char *const of_mixtral[][2] = {
		{ "mlp.gate", "block_sparse_moe.gate" },
		{ "mlp.experts.gate_proj", "block_sparse_moe.experts.w1" },
		{ "mlp.experts.up_proj", "block_sparse_moe.experts.w3" },
		{ "mlp.experts.down_proj", "block_sparse_moe.experts.w2" },
	};
	bool mixtral = !strcmp(model_type, "mixtral");
	size_t digits;

	if (!strcmp(name, "rope_freqs.weight"))
		return 1;
	for (size_t i = 0; i < sizeof(top) / sizeof(*top); i++)
		if (!strcmp(name, top[i][0])) {
			snprintf(out, 128, "%s", top[i][1]);
			return 0;
		}
	if (strncmp(name, "blk.", 4))
		return -1;
	digits = strspn(name + 4, "0123456789");
	if (!digits || digits > 6 || (digits > 1 && name[4] == '0') || name[4 + digits] != '.')
		return -1;
	for (size_t i = 0; i < sizeof(block) / sizeof(*block); i++) {
		const char *rest = name + 5 + digits;
		size_t n = strlen(block[i][0]);

		if (strncmp(rest, block[i][0], n) ||
		    (strcmp(rest + n, ".weight") && strcmp(rest + n, ".bias")))
			continue;
		const char *hf = block[i][1];

		for (int j = 0; mixtral && j < 4; j++)
			if (!strcmp(of_mixtral[j][0], hf)) {
				hf = of_mixtral[j][1];
				break;
			}
		snprintf(out, 128, "model.layers.%.*s.%s%s", (int)digits, name + 4, hf, rest + n);
		return 0;
	}
	return -1;
}

long gguf_permuted_heads(const struct model_config *c, const char *name)
{
	char hf[128];
	const char *last;

	if ((strcmp(c->model_type, "llama") && strcmp(c->model_type, "mixtral")) ||
	    gguf_hf_name(hf, c->model_type, name))
		return 0;
	last = strstr(hf, ".self_attn.");
	if (!last)
		return 0;
	last += 11;
	if (!strncmp(last, "q_proj.", 7))
		return c->heads;
	return strncmp(last, "k_proj.", 7) ? 0 : c->kv_heads;
}

void gguf_unpermute_qk(void *out, const void *in, long rows, long heads, size_t row_bytes)
{
	long d = heads > 0 ? rows / heads : 0, half = d / 2;

	if (heads <= 0 || d * heads != rows || d % 2)
		bug("%ld rows in %ld heads", rows, heads);
	for (long h = 0; h < heads; h++)
		for (long i = 0; i < half; i++)
			for (long j = 0; j < 2; j++)
				memcpy((char *)out + (size_t)(h * d + j * half + i) * row_bytes,
				       (const char *)in + (size_t)(h * d + 2 * i + j) * row_bytes,
				       row_bytes);
}
