#include "libcommon/param.h"

#include <stdlib.h>
#include <string.h>

/* One kind of parameter.  Letters name the dimensions: see dimension(). */
struct kind {
	const char *name;       /* within the layer or the model */
	const char *shape;      /* a letter a dimension */
	int tp_axis;
	char unit; /* a letter again; 'q' = the heads of one group, 'k' = one head, 'i' = a chunk of I, 'v' = PARAM_VOCAB_UNIT, '1' */
	enum grad_state tp_grad;
	char chunks;            /* 'o': by kv heads, 'd': by intermediate, '1' */
};

static const struct kind kinds[] = {
	[PARAM_EMBED] = { "model.embed_tokens.weight", "VH", 0, 'v', GRAD_SHARDED, '1' },
	[PARAM_INPUT_NORM] = { "input_layernorm.weight", "H", -1, '1', GRAD_SAME, '1' },
	[PARAM_Q] = { "self_attn.q_proj.weight", "QH", 0, 'q', GRAD_SHARDED, '1' },
	[PARAM_K] = { "self_attn.k_proj.weight", "KH", 0, 'k', GRAD_SHARDED, '1' },
	[PARAM_V] = { "self_attn.v_proj.weight", "KH", 0, 'k', GRAD_SHARDED, '1' },
	[PARAM_O] = { "self_attn.o_proj.weight", "HQ", 1, 'q', GRAD_SHARDED, 'o' },
	[PARAM_Q_BIAS] = { "self_attn.q_proj.bias", "Q", 0, 'q', GRAD_SHARDED, '1' },
	[PARAM_K_BIAS] = { "self_attn.k_proj.bias", "K", 0, 'k', GRAD_SHARDED, '1' },
	[PARAM_V_BIAS] = { "self_attn.v_proj.bias", "K", 0, 'k', GRAD_SHARDED, '1' },
	[PARAM_O_BIAS] = { "self_attn.o_proj.bias", "H", -1, '1', GRAD_SAME, '1' },
	/* A rank of a TP group sees its own heads only: these gradients are parts of a sum. */
	[PARAM_Q_NORM] = { "self_attn.q_norm.weight", "D", -1, '1', GRAD_PARTIAL, '1' },
	[PARAM_K_NORM] = { "self_attn.k_norm.weight", "D", -1, '1', GRAD_PARTIAL, '1' },
	[PARAM_POST_NORM] = { "post_attention_layernorm.weight", "H", -1, '1', GRAD_SAME, '1' },
	[PARAM_GATE] = { "mlp.gate_proj.weight", "IH", 0, 'i', GRAD_SHARDED, '1' },
	[PARAM_UP] = { "mlp.up_proj.weight", "IH", 0, 'i', GRAD_SHARDED, '1' },
	[PARAM_DOWN] = { "mlp.down_proj.weight", "HI", 1, 'i', GRAD_SHARDED, 'd' },
	[PARAM_GATE_BIAS] = { "mlp.gate_proj.bias", "I", 0, 'i', GRAD_SHARDED, '1' },
	[PARAM_UP_BIAS] = { "mlp.up_proj.bias", "I", 0, 'i', GRAD_SHARDED, '1' },
	[PARAM_DOWN_BIAS] = { "mlp.down_proj.bias", "H", -1, '1', GRAD_SAME, '1' },
	[PARAM_ROUTER] = { "mlp.gate.weight", "EH", -1, '1', GRAD_SAME, '1' },
	[PARAM_EXPERT_GATE] = { "mlp.experts.gate_proj.weight", "EXH", 1, 'x', GRAD_SHARDED, '1' },
	[PARAM_EXPERT_UP] = { "mlp.experts.up_proj.weight", "EXH", 1, 'x', GRAD_SHARDED, '1' },
	[PARAM_EXPERT_DOWN] = { "mlp.experts.down_proj.weight", "EHX", 2, 'x', GRAD_SHARDED, 'e' },
	[PARAM_SHARED_GATE] = { "mlp.shared_expert.gate_proj.weight", "SH", 0, 's', GRAD_SHARDED, '1' },
	[PARAM_SHARED_UP] = { "mlp.shared_expert.up_proj.weight", "SH", 0, 's', GRAD_SHARDED, '1' },
	[PARAM_SHARED_DOWN] = { "mlp.shared_expert.down_proj.weight", "HS", 1, 's', GRAD_SHARDED, 'f' },
	[PARAM_SHARED_ROUTER] = { "mlp.shared_expert_gate.weight", "1H", -1, '1', GRAD_SAME, '1' },
	[PARAM_FINAL_NORM] = { "model.norm.weight", "H", -1, '1', GRAD_SAME, '1' },
	[PARAM_LM_HEAD] = { "lm_head.weight", "VH", 0, 'v', GRAD_SHARDED, '1' },
	[PARAM_SCORE] = { "score.weight", "1H", -1, '1', GRAD_SAME, '1' },
};

static const char *name_of(const struct model_config *c, enum param_kind kind)
{
	if (!strcmp(c->model_type, "mixtral"))
		switch (kind) {
		case PARAM_ROUTER: return "block_sparse_moe.gate.weight";
		case PARAM_EXPERT_GATE: return "block_sparse_moe.experts.w1.weight";
		case PARAM_EXPERT_UP: return "block_sparse_moe.experts.w3.weight";
		case PARAM_EXPERT_DOWN: return "block_sparse_moe.experts.w2.weight";
		default: break;
		}
	return kinds[kind].name;
}

/* The largest number up to 8 that divides n. */
static long divisor(long n)
{
	long d = 8;

	while (n % d)
		d--;
	return d;
}

static long chunks(const struct model_config *c, char letter)
{
	switch (letter) {
	case 'o':
		return c->kv_heads % 8 ? c->kv_heads : 8;
	case 'd':
		return divisor(c->intermediate);
	case 'e':
		return divisor(c->moe.intermediate);
	case 'f':
		return divisor(c->moe.shared_intermediate);
	default:
		return 1;
	}
}

static long dimension(const struct model_config *c, char letter)
{
	switch (letter) {
	case '1': return 1;
	case 'V': return c->vocab;
	case 'H': return c->hidden;
	case 'I': return c->intermediate;
	case 'D': return c->head_dim;
	case 'Q': return c->heads * c->head_dim;
	case 'K': return c->kv_heads * c->head_dim;
	case 'q': return c->heads / c->kv_heads * c->head_dim;
	case 'k': return c->head_dim;
	case 'i': return c->intermediate / chunks(c, 'd');
	case 'v': return PARAM_VOCAB_UNIT;
	case 'E': return c->moe.experts;
	case 'X': return c->moe.intermediate;
	case 'S': return c->moe.shared_intermediate;
	case 'x': return c->moe.intermediate / chunks(c, 'e');
	case 's': return c->moe.shared_intermediate / chunks(c, 'f');
	default: bug("no dimension '%c'", letter);
	}
}

static bool is_there(const struct model_config *c, enum param_kind kind, int layer)
{
	bool moe = layer >= 0 && model_config_is_moe(c, layer);

	switch (kind) {
	case PARAM_Q_BIAS: case PARAM_K_BIAS: case PARAM_V_BIAS: return c->qkv_bias;
	case PARAM_O_BIAS: return c->o_bias;
	case PARAM_Q_NORM: case PARAM_K_NORM: return c->qk_norm;
	case PARAM_GATE: case PARAM_UP: case PARAM_DOWN: return !moe;
	case PARAM_GATE_BIAS: case PARAM_UP_BIAS: case PARAM_DOWN_BIAS: return c->mlp_bias && !moe;
	case PARAM_ROUTER: case PARAM_EXPERT_GATE: case PARAM_EXPERT_UP: case PARAM_EXPERT_DOWN: return moe;
	case PARAM_SHARED_GATE: case PARAM_SHARED_UP: case PARAM_SHARED_DOWN: case PARAM_SHARED_ROUTER:
		return moe && c->moe.shared_intermediate;
	case PARAM_LM_HEAD: return c->head == HEAD_LM && !c->tied;
	case PARAM_SCORE: return c->head == HEAD_SCALAR;
	default: return true;
	}
}

static long fine(const struct model_config *c, const struct kind *k)
{
	switch (k->unit) {
	case 'q': return c->head_dim;
	case 'k': return 0;
	case 'i': case 'x': case 's': return 1;
	default: return dimension(c, k->unit);
	}
}

static void add(struct param_table *t, enum param_kind kind, int layer)
{
	const struct kind *k = &kinds[kind];
	struct param *p = &t->p[t->n];

	if (!is_there(&t->config, kind, layer))
		return;
	t->n++;
	*p = (struct param){
		.name = layer < 0 ? xstrdup(k->name)
				  : xasprintf("model.layers.%d.%s", layer, name_of(&t->config, kind)),
		.kind = kind,
		.role = ROLE_PARAM,
		.layer = layer,
		.rank = (int)strlen(k->shape),
		.expert = strlen(k->shape) == 3,
		.tp_axis = k->tp_axis,
		.tp_unit = dimension(&t->config, k->unit),
		.tp_fine = fine(&t->config, k),
		.tp_grad = k->tp_grad,
		.chunks = chunks(&t->config, k->chunks),
		.decay = strlen(k->shape) >= 2,
	};
	for (int i = 0; i < p->rank; i++)
		p->shape[i] = dimension(&t->config, k->shape[i]);
}

void param_table_init(struct param_table *t, const struct model_config *c)
{
	*t = (struct param_table){ .config = *c };
	t->p = xcalloc((size_t)c->layers * (PARAM_SHARED_ROUTER - PARAM_INPUT_NORM + 1) + 4,
		       sizeof(*t->p));
	t->layer_at = xcalloc((size_t)c->layers + 1, sizeof(*t->layer_at));
	add(t, PARAM_EMBED, -1);
	for (int layer = 0; layer < c->layers; layer++) {
		t->layer_at[layer] = t->n;
		for (int kind = PARAM_INPUT_NORM; kind <= PARAM_SHARED_ROUTER; kind++)
			add(t, (enum param_kind)kind, layer);
	}
	t->layer_at[c->layers] = t->n;
	add(t, PARAM_FINAL_NORM, -1);
	add(t, PARAM_LM_HEAD, -1);
	add(t, PARAM_SCORE, -1);
}

void param_table_release(struct param_table *t)
{
	for (long i = 0; i < t->n; i++)
		free(t->p[i].name);
	free(t->p);
	free(t->layer_at);
	t->p = NULL;
	t->layer_at = NULL;
	t->n = 0;
}

/* "model.layers.N." in the form that we write, or -1: then it is looked for among the few outside
 * the layers. */
static long layer_of(const char *name)
{
	static const char start[] = "model.layers.";
	char *end;

	if (strncmp(name, start, sizeof(start) - 1))
		return -1;
	long layer = strtol(name + sizeof(start) - 1, &end, 10);
	return *end == '.' ? layer : -1;
}

const struct param *param_find(const struct param_table *t, const char *name)
{
	long layer = layer_of(name), first = 0, n = t->n;

	if (layer >= 0 && t->config.layers > 0) {
		if (layer >= t->config.layers)
			return NULL;
		first = t->layer_at[layer];
		n = t->layer_at[layer + 1] - first;
	}
	for (long i = first; i < first + n; i++)
		if (!strcmp(t->p[i].name, name))
			return &t->p[i];
	return NULL;
}

const char *role_name(enum param_role r)
{
	static const char *const names[] = { "param", "frozen", "buffer", "carried" };

	if ((int)r < 0 || (int)r > ROLE_CARRIED)
		bug("no role has number %d", (int)r);
	return names[r];
}

long param_stage(const struct param *p, const struct layout *l)
{
	if (p->layer >= 0)
		return layout_stage(l, p->layer);
	return p->kind == PARAM_EMBED ? 0 : l->pp - 1;
}

/* Part i of n of dimension d, on whole units; the last unit may be short. */
static void cut(struct box *b, int d, long unit, long i, long n)
{
	long size = b->extent[d], units = (size + unit - 1) / unit;
	long first = units * i / n * unit, end = units * (i + 1) / n * unit;

	first = first < size ? first : size;
	b->start[d] = first;
	b->extent[d] = (end < size ? end : size) - first;
}

static void cut_tp(struct box *b, const struct param *p, long i, long n)
{
	long units = p->shape[p->tp_axis] / p->tp_unit;

	if (units >= n)
		cut(b, p->tp_axis, p->tp_unit, i, n);
	else if (p->tp_fine)
		cut(b, p->tp_axis, p->tp_fine, i, n);
	else
		cut(b, p->tp_axis, p->tp_unit, units * i / n, units);
}

struct box param_box(const struct param *p, const struct layout *l, const struct place *at)
{
	struct box b = box_whole(p->shape, p->rank);

	if (p->expert)
		cut(&b, 0, 1, at->ep, l->ep);
	if (p->tp_axis >= 0)
		cut_tp(&b, p, p->expert ? at->etp : at->tp, p->expert ? l->etp : l->tp);
	return b;
}

long param_copies(long *which, const struct param *p, const struct layout *l, const struct place *at)
{
	long n = p->expert ? l->etp : l->tp, i = p->expert ? at->etp : at->tp;
	long units = p->tp_axis < 0 ? 1 : p->shape[p->tp_axis] / p->tp_unit;

	if (p->tp_axis < 0 || (units < n && !p->tp_fine)) {
		long u = units * i / n, first = (u * n + units - 1) / units, end = ((u + 1) * n + units - 1) / units;

		*which = i - first;
		return end - first;
	}
	*which = 0;
	return 1;
}
