#include "libcommon/model_config.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "libcommon/model_config_family.h"
#include "libcommon/rope.h"

struct reader {
	const struct json_doc *d;
	const struct json *o;   /* the model's: the root, or text_config in a multi-modal wrapper */
	const struct family *f;
	struct err *e;
};

static bool given(const struct json *v)
{
	return v && v->type != JSON_NULL;
}

/* A member of the model's object, or else of the root around it. */
static const struct json *get_around(const struct reader *r, const char *key)
{
	const struct json *v = json_get(r->o, key);

	return given(v) ? v : json_get(&r->d->root, key);
}

static int find_family(struct model_config *c, struct reader *r)
{
	const struct json *text = json_get(&r->d->root, "text_config");
	const char *type;

	r->o = json_is(text, JSON_OBJECT) ? text : &r->d->root;
	if (r->o->type != JSON_OBJECT)
		return err_set(r->e, EX_DATAERR, "%s:%d: found %s, wanted an object", r->d->file,
			       r->o->line, json_type_name(r->o));
	if (json_str(r->d, json_get(r->o, "model_type"), "model_type", &type, r->e))
		return -1;
	r->f = family_find(type);
	if (!r->f)
		return err_set(r->e, EX_UNAVAILABLE,
			       "%s:%d: model_type \"%.60s\" is not supported, these are: "
			       FAMILY_LIST,
			       r->d->file, json_get(r->o, "model_type")->line, type);
	snprintf(c->model_type, sizeof(c->model_type), "%s", r->f->type);
	snprintf(c->architecture, sizeof(c->architecture), "%s", r->f->architecture);
	return 0;
}

static bool ends_with(const char *s, const char *end)
{
	size_t n = strlen(s), m = strlen(end);

	return n >= m && !strcmp(s + n - m, end);
}

/* A wrapper's own architectures speak of the wrapper. */
static int check_architecture(const struct reader *r)
{
	const struct json *list = json_get(r->o, "architectures");
	const char *name;

	if (!given(list) || (list->type == JSON_ARRAY && list->n == 0))
		return 0;
	if (list->type != JSON_ARRAY)
		return err_set(r->e, EX_DATAERR, "%s:%d: architectures: found %s, wanted an array",
			       r->d->file, list->line, json_type_name(list));
	if (json_str(r->d, &list->item[0], "architectures[0]", &name, r->e))
		return -1;
	if (!strcasecmp(name, r->f->architecture))
		return 0;
	if (ends_with(name, "ForSequenceClassification"))
		return err_set(r->e, EX_UNAVAILABLE,
			       "%s:%d: architecture \"%.60s\": models with a scalar head are not "
			       "supported yet",
			       r->d->file, list->line, name);
	return err_set(r->e, EX_UNAVAILABLE,
		       "%s:%d: architecture \"%.60s\" is not supported for model_type %s, wanted "
		       "%s",
		       r->d->file, list->line, name, r->f->type, r->f->architecture);
}

static int refuse_activation(const struct reader *r)
{
	const char *act;

	if (json_str_or(r->d, r->o, "hidden_act", "silu", &act, r->e))
		return -1;
	if (!strcmp(act, "silu") || !strcmp(act, "swish"))
		return 0;
	return err_set(r->e, EX_UNAVAILABLE,
		       "%s:%d: hidden_act \"%.40s\" is not supported, only silu is", r->d->file,
		       json_get(r->o, "hidden_act")->line, act);
}

static int refuse_quantized(const struct reader *r)
{
	const struct json *q = get_around(r, "quantization_config");

	if (!given(q))
		return 0;
	return err_set(r->e, EX_UNAVAILABLE,
		       "%s:%d: quantization_config: quantized weights are not supported",
		       r->d->file, q->line);
}

/* Qwen: layers from max_window_layers on have a window, unless layer_types says which have. */
static int refuse_windows(const struct model_config *c, const struct reader *r)
{
	const struct json *types = json_get(r->o, "layer_types");
	const struct json *window = json_get(r->o, "sliding_window");
	bool use = false;
	long from = 0;

	for (size_t i = 0; json_is(types, JSON_ARRAY) && i < types->n; i++)
		if (!json_eq_str(&types->item[i], "full_attention"))
			return err_set(r->e, EX_UNAVAILABLE,
				       "%s:%d: layer_types[%zu] is not supported, only "
				       "\"full_attention\" is",
				       r->d->file, types->item[i].line, i);
	if (!r->f->reads_use_sliding_window || json_is(types, JSON_ARRAY))
		return 0;
	if (json_bool_or(r->d, r->o, "use_sliding_window", false, &use, r->e) ||
	    json_int_or(r->d, r->o, "max_window_layers", 28, &from, r->e))
		return -1;
	if (!use || json_is(window, JSON_NULL) || from >= c->layers)
		return 0;
	return err_set(r->e, EX_UNAVAILABLE,
		       "%s: use_sliding_window with max_window_layers %ld of %ld layers is not "
		       "supported",
		       r->d->file, from, c->layers);
}

static int read_window(struct model_config *c, const struct reader *r)
{
	const struct json *v = json_get(r->o, "sliding_window");

	c->sliding_window = v ? 0 : r->f->sliding_window;
	if (!given(v) || !r->f->sliding_window)
		return 0;
	if (json_int(r->d, v, "sliding_window", &c->sliding_window, r->e))
		return -1;
	if (c->sliding_window > 0)
		return 0;
	return err_set(r->e, EX_DATAERR,
		       "%s:%d: sliding_window: found %ld, wanted null or at least 1", r->d->file,
		       v->line, c->sliding_window);
}

static int read_sizes(struct model_config *c, const struct reader *r)
{
	const struct {
		const char *key;
		long *out;
	} needed[] = {
		{ "vocab_size", &c->vocab },
		{ "hidden_size", &c->hidden },
		{ "intermediate_size", &c->intermediate },
		{ "num_hidden_layers", &c->layers },
		{ "num_attention_heads", &c->heads },
	};

	for (size_t i = 0; i < sizeof(needed) / sizeof(*needed); i++)
		if (json_int(r->d, json_get(r->o, needed[i].key), needed[i].key, needed[i].out,
			     r->e))
			return -1;

	/* A null is "derive it"; only a missing key has the family's default. */
	bool kv_given = json_get(r->o, "num_key_value_heads");
	long kv = kv_given || !r->f->kv_heads ? c->heads : r->f->kv_heads;
	long dim = json_get(r->o, "head_dim") ? 0 : r->f->head_dim;
	if (json_int_or(r->d, r->o, "num_key_value_heads", kv, &c->kv_heads, r->e) ||
	    json_int_or(r->d, r->o, "head_dim", dim, &c->head_dim, r->e) ||
	    json_int_or(r->d, r->o, "max_position_embeddings", r->f->max_position, &c->max_position,
			r->e) ||
	    read_window(c, r))
		return -1;
	if (given(json_get(r->o, "head_dim")) || c->head_dim || c->heads <= 0)
		return 0;
	if (c->hidden % c->heads)
		return err_set(r->e, EX_DATAERR,
			       "%s: head_dim is missing and hidden_size %ld is no multiple of "
			       "num_attention_heads %ld",
			       r->d->file, c->hidden, c->heads);
	c->head_dim = c->hidden / c->heads;
	return 0;
}

static int read_flags(struct model_config *c, const struct reader *r)
{
	const struct json *tie = get_around(r, "tie_word_embeddings");
	bool bias = false;

	c->head = HEAD_LM;
	c->qkv_bias = r->f->qkv_bias;
	c->qk_norm = r->f->qk_norm;
	if (given(tie) && json_bool(r->d, tie, "tie_word_embeddings", &c->tied, r->e))
		return -1;
	if (r->f->reads_attention_bias) {
		if (json_bool_or(r->d, r->o, "attention_bias", false, &bias, r->e))
			return -1;
		c->qkv_bias = c->o_bias = bias;
	}
	if (r->f->reads_qkv_bias && json_bool_or(r->d, r->o, "qkv_bias", true, &c->qkv_bias, r->e))
		return -1;
	if (!r->f->reads_mlp_bias)
		return 0;
	return json_bool_or(r->d, r->o, "mlp_bias", false, &c->mlp_bias, r->e);
}

static const char *const dtypes[] = {
	[CONFIG_F32] = "float32", [CONFIG_BF16] = "bfloat16", [CONFIG_F16] = "float16"
};

static int read_dtype(struct model_config *c, const struct reader *r)
{
	const struct json *v = get_around(r, "dtype");
	const char *key = given(v) ? "dtype" : "torch_dtype", *name;

	v = given(v) ? v : get_around(r, "torch_dtype");
	c->dtype = CONFIG_F32;
	if (!given(v))
		return 0;
	if (json_str(r->d, v, key, &name, r->e))
		return -1;
	if (!strncmp(name, "torch.", 6))
		name += 6;
	for (int i = 0; i < 3; i++)
		if (!strcmp(name, dtypes[i])) {
			c->dtype = i;
			return 0;
		}
	return err_set(r->e, EX_UNAVAILABLE,
		       "%s:%d: %s \"%.40s\" is not supported, these are: float32, bfloat16, "
		       "float16",
		       r->d->file, v->line, key, name);
}

/* Some write -1 for "none". */
static int read_id(long *id, const struct reader *r, const char *key, long def)
{
	if (json_int_or(r->d, r->o, key, json_get(r->o, key) ? -1 : def, id, r->e))
		return -1;
	if (*id < 0)
		*id = -1;
	return 0;
}

static int read_eos(struct model_config *c, const struct reader *r)
{
	const struct json *v = json_get(r->o, "eos_token_id");

	if (!json_is(v, JSON_ARRAY)) {
		if (read_id(&c->eos[0], r, "eos_token_id", r->f->eos))
			return -1;
		c->neos = c->eos[0] >= 0;
		c->eos[0] = c->neos ? c->eos[0] : 0;
		return 0;
	}
	if (v->n > sizeof(c->eos) / sizeof(*c->eos))
		return err_set(r->e, EX_DATAERR,
			       "%s:%d: eos_token_id: found %zu of them, wanted at most 16",
			       r->d->file, v->line, v->n);
	for (size_t i = 0; i < v->n; i++)
		if (json_int(r->d, &v->item[i], "eos_token_id", &c->eos[c->neos++], r->e))
			return -1;
	return 0;
}

int model_config_from_json(struct model_config *c, const struct json_doc *d, struct err *e)
{
	struct reader r = { .d = d, .e = e };

	memset(c, 0, sizeof(*c));
	if (find_family(c, &r) || check_architecture(&r) || refuse_activation(&r) ||
	    refuse_quantized(&r) || read_sizes(c, &r) || read_flags(c, &r) ||
	    refuse_windows(c, &r) || read_dtype(c, &r))
		return -1;
	c->rope.theta = r.f->theta > 0 ? r.f->theta : 10000;
	if (json_real_or(d, r.o, "rms_norm_eps", r.f->rms_eps > 0 ? r.f->rms_eps : 1e-6, &c->rms_eps, e) ||
	    json_real_or(d, r.o, "initializer_range", 0.02, &c->initializer_range, e) ||
	    read_id(&c->bos, &r, "bos_token_id", r.f->bos) ||
	    read_id(&c->pad, &r, "pad_token_id", -1) || read_eos(c, &r) ||
	    rope_from_json(c, d, r.o, e) || moe_config_from_json(c, r.f, d, r.o, e))
		return -1;
	return model_config_check(c, d->file, e);
}

static void put_id(struct json_out *o, const char *key, long id)
{
	json_key(o, key);
	if (id < 0)
		json_put_null(o);
	else
		json_put_int(o, id);
}

static void put_eos(struct json_out *o, const struct model_config *c)
{
	if (c->neos <= 1) {
		put_id(o, "eos_token_id", c->neos ? c->eos[0] : -1);
		return;
	}
	json_key(o, "eos_token_id");
	json_begin(o, '[');
	for (int i = 0; i < c->neos; i++)
		json_put_int(o, c->eos[i]);
	json_end(o);
}

static void put_sizes(struct json_out *o, const struct model_config *c)
{
	json_add_int(o, "head_dim", c->head_dim);
	json_add_str(o, "hidden_act", "silu");
	json_add_int(o, "hidden_size", c->hidden);
	json_add_real(o, "initializer_range", c->initializer_range);
	json_add_int(o, "intermediate_size", c->intermediate);
	json_add_int(o, "max_position_embeddings", c->max_position);
	json_add_str(o, "model_type", c->model_type);
	json_add_int(o, "num_attention_heads", c->heads);
	json_add_int(o, "num_hidden_layers", c->layers);
	json_add_int(o, "num_key_value_heads", c->kv_heads);
	json_add_real(o, "rms_norm_eps", c->rms_eps);
}

static void put_family(struct json_out *o, const struct model_config *c, const struct family *f)
{
	if (f->reads_attention_bias)
		json_add_bool(o, "attention_bias", c->o_bias);
	if (f->reads_mlp_bias)
		json_add_bool(o, "mlp_bias", c->mlp_bias);
	if (f->reads_qkv_bias)
		json_add_bool(o, "qkv_bias", c->qkv_bias);
	if (f->reads_use_sliding_window)
		json_add_bool(o, "use_sliding_window", false);
	if (f->sliding_window)
		put_id(o, "sliding_window", c->sliding_window ? c->sliding_window : -1);
}

void model_config_to_json(struct json_out *o, const struct model_config *c)
{
	const struct family *f = family_find(c->model_type);

	if (!f)
		bug("model_type \"%s\" was not checked", c->model_type);
	json_begin(o, '{');
	json_key(o, "architectures");
	json_begin(o, '[');
	json_put_str(o, c->architecture);
	json_end(o);
	json_add_real(o, "attention_dropout", 0);
	put_id(o, "bos_token_id", c->bos);
	put_eos(o, c);
	put_id(o, "pad_token_id", c->pad);
	put_sizes(o, c);
	put_family(o, c, f);
	moe_config_to_json(o, c, f);
	rope_to_json(o, &c->rope);
	json_add_bool(o, "tie_word_embeddings", c->tied);
	json_add_str(o, "dtype", dtypes[c->dtype]);
	json_add_str(o, "torch_dtype", dtypes[c->dtype]);
	json_add_bool(o, "use_cache", true);
	json_add_int(o, "vocab_size", c->vocab);
	json_end(o);
}
