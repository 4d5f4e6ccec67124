#include "kernels/model/model.h"

#include "kernels/model/moe.h"
#include "libcommon/hash.h"
#include "libcommon/rng.h"
#include "libcommon/xalloc.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

bool is_matrix(const struct model *m, const struct param *p)
{
	switch (p->kind) {
	case PARAM_Q: case PARAM_K: case PARAM_V: case PARAM_O:
	case PARAM_GATE: case PARAM_UP: case PARAM_DOWN: case PARAM_LM_HEAD:
	case PARAM_ROUTER: case PARAM_EXPERT_GATE: case PARAM_EXPERT_UP: case PARAM_EXPERT_DOWN:
	case PARAM_SHARED_GATE: case PARAM_SHARED_UP: case PARAM_SHARED_DOWN: case PARAM_SHARED_ROUTER:
		return true;
	case PARAM_EMBED:
		return m->table.config.tied;
	default:
		return false;
	}
}

long param_count(const struct param *p)
{
	struct box b = box_whole(p->shape, p->rank);

	return box_volume(&b);
}

static int supported(const struct model_config *c, enum dtype t, struct err *e)
{
	if (c->sliding_window)
		return err_set(e, EX_UNAVAILABLE, "sliding_window %ld: sliding-window attention is not built yet", c->sliding_window);
	if (c->head != HEAD_LM)
		return err_set(e, EX_UNAVAILABLE, "%s: only models with a language-model head can be run yet", c->architecture);
	if (c->mlp_bias)
		return err_set(e, EX_UNAVAILABLE, "mlp_bias true: MLP biases are not built yet");
	if (c->rope.kind == ROPE_DYNAMIC)
		return err_set(e, EX_UNAVAILABLE, "rope_type dynamic: a value would depend on the length of what follows it;"
			       " use linear, llama3 or yarn");
	if (t != DTYPE_F32 && t != DTYPE_BF16)
		bug("model type %s", dtype_name(t));
	return 0;
}

static int rope_tables(struct model *m, struct err *e)
{
	const struct model_config *c = &m->table.config;
	long half = c->head_dim / 2;
	double *f = xmalloc((size_t)half * sizeof(double)), scale;
	size_t bytes = (size_t)(m->positions * half) * sizeof(float);
	float *cs, *sn;

	if (rope_frequencies(f, &scale, c, e)) {
		free(f);
		return -1;
	}
	cs = xmalloc(bytes);
	sn = xmalloc(bytes);
	for (long p = 0; p < m->positions; p++)
		for (long j = 0; j < half; j++) {
			/* The angle is a float in the models' own code: rounding it here keeps long contexts equal. */
			float angle = (float)p * (float)f[j];

			cs[p * half + j] = (float)(cos((double)angle) * scale);
			sn[p * half + j] = (float)(sin((double)angle) * scale);
		}
	m->cos = m->k->alloc(bytes, "the RoPE table");
	m->sin = m->k->alloc(bytes, "the RoPE table");
	m->k->put(m->cos, cs, bytes);
	m->k->put(m->sin, sn, bytes);
	free(cs);
	free(sn);
	free(f);
	return 0;
}

long model_index(const struct model *m, enum param_kind kind, int layer)
{
	for (long i = 0; i < m->table.n; i++)
		if (m->table.p[i].kind == kind && m->table.p[i].layer == layer)
			return i;
	return -1;
}

struct weight *model_weight(const struct model *m, enum param_kind kind, int layer)
{
	long i = model_index(m, kind, layer);

	return i < 0 ? NULL : m->w + i;
}

struct weight *model_head(const struct model *m)
{
	return model_weight(m, m->table.config.tied ? PARAM_EMBED : PARAM_LM_HEAD, -1);
}

static void layer_weights(struct layer *l, const struct model *m, int i)
{
	static const enum param_kind kind[] = {
		PARAM_INPUT_NORM, PARAM_Q, PARAM_K, PARAM_V, PARAM_O, PARAM_Q_BIAS, PARAM_K_BIAS, PARAM_V_BIAS, PARAM_O_BIAS,
		PARAM_Q_NORM, PARAM_K_NORM, PARAM_POST_NORM, PARAM_GATE, PARAM_UP, PARAM_DOWN,
		PARAM_ROUTER, PARAM_SHARED_GATE, PARAM_SHARED_UP, PARAM_SHARED_DOWN, PARAM_SHARED_ROUTER
	};
	struct weight **at[] = {
		&l->norm1, &l->q, &l->k, &l->v, &l->o, &l->qb, &l->kb, &l->vb, &l->ob,
		&l->qn, &l->kn, &l->norm2, &l->gate, &l->up, &l->down,
		&l->router, &l->sgate, &l->sup, &l->sdown, &l->srouter
	};

	for (size_t j = 0; j < sizeof(at) / sizeof(*at); j++)
		*at[j] = model_weight(m, kind[j], i);
	l->index = i;
	if (!l->router)
		return;
	for (int j = 0; j < i; j++)
		l->moe_index += model_config_is_moe(&m->table.config, j);
	l->gate = model_weight(m, PARAM_EXPERT_GATE, i);
	l->up = model_weight(m, PARAM_EXPERT_UP, i);
	l->down = model_weight(m, PARAM_EXPERT_DOWN, i);
}

/* Once, since a search through the table for each layer of each token would take longer than a small model's arithmetic. */
static void find_layers(struct model *m)
{
	m->layer = xcalloc((size_t)m->table.config.layers, sizeof(*m->layer));
	for (int i = 0; i < m->table.config.layers; i++)
		layer_weights(m->layer + i, m, i);
}

static long extent_of(const struct model *m, enum param_kind kind, int d)
{
	for (long i = 0; i < m->table.n; i++)
		if (m->table.p[i].kind == kind && m->box[i].extent[d])
			return m->box[i].extent[d];
	return 0;
}

static void find_dims(struct model *m)
{
	const struct model_config *c = &m->table.config;
	const struct layout *l = &m->mesh->layout;
	long at = m->mesh->at.pp;
	struct dims *d = &m->here;

	d->first = at == 0;
	d->last = at == l->pp - 1;
	for (long i = 0; i < c->layers; i++)
		d->layers += layout_stage(l, i) == at;
	d->heads = extent_of(m, PARAM_Q, 0) / c->head_dim;
	d->kv_heads = extent_of(m, PARAM_K, 0) / c->head_dim;
	d->intermediate = extent_of(m, PARAM_GATE, 0);
	d->experts = extent_of(m, PARAM_EXPERT_GATE, 0);
	d->expert_intermediate = extent_of(m, PARAM_EXPERT_GATE, 1);
	d->shared_intermediate = extent_of(m, PARAM_SHARED_GATE, 0);
	for (long i = 0; i < m->table.n; i++)
		if (m->table.p[i].kind == PARAM_EMBED || m->table.p[i].kind == PARAM_LM_HEAD) {
			struct box b = param_box(m->table.p + i, l, &m->mesh->at);

			d->vocab_first = b.start[0];
			d->vocab = b.extent[0];
		}
	m->attention = (struct attention_shape){ d->heads, d->kv_heads, c->head_dim, (float)(1 / sqrt((double)c->head_dim)) };
}

int model_init(struct model *m, const struct model_config *c, const struct ops *k, struct mesh *mesh, enum dtype t, long positions,
	       unsigned flags, struct err *e)
{
	memset(m, 0, sizeof(*m));
	if (supported(c, t, e))
		return -1;
	param_table_init(&m->table, c);
	for (long i = 0; i < m->table.n; i++)
		if (m->table.p[i].kind == PARAM_ROUTER && (flags & MODEL_FREEZE_ROUTER))
			m->table.p[i].role = ROLE_FROZEN;
	m->k = k;
	m->mesh = mesh;
	m->own_mesh = !mesh;
	if (!mesh) {
		m->mesh = xcalloc(1, sizeof(*m->mesh));
		mesh_one(m->mesh, c->layers);
	}
	m->t = t;
	/* Passes split the rows of the residual stream over every TP group (tp.h). */
	m->flags = flags | (m->mesh->tp.size > 1 ? MODEL_SEQUENCE : 0);
	m->positions = positions > 0 && positions < c->max_position ? positions : c->max_position;
	if (rope_tables(m, e)) {
		model_release(m);
		return -1;
	}
	comm_split(&m->back, &m->mesh->pp, 0, m->mesh->pp.rank, "pp, gradients");
	weights_init(m);
	find_dims(m);
	find_layers(m);
	moe_init(m);
	return 0;
}

void model_release(struct model *m)
{
	if (m->back.size)
		comm_release(&m->back);
	moe_release(m);
	weights_release(m);
	free(m->layer);
	if (m->cos)
		m->k->release(m->cos);
	if (m->sin)
		m->k->release(m->sin);
	if (m->own_mesh) {
		mesh_release(m->mesh);
		free(m->mesh);
	}
	param_table_release(&m->table);
	memset(m, 0, sizeof(*m));
}

void param_init_random(float *out, const struct param *p, const struct model_config *c, uint64_t seed)
{
	struct rng_key key = rng_key(seed, RNG_INIT, hash64(p->name, strlen(p->name)));
	long n = param_count(p);
	float pair[2];

	switch (p->kind) {
	case PARAM_INPUT_NORM: case PARAM_POST_NORM: case PARAM_FINAL_NORM: case PARAM_Q_NORM: case PARAM_K_NORM:
		for (long i = 0; i < n; i++)
			out[i] = 1;
		return;
	case PARAM_Q_BIAS: case PARAM_K_BIAS: case PARAM_V_BIAS: case PARAM_O_BIAS:
	case PARAM_GATE_BIAS: case PARAM_UP_BIAS: case PARAM_DOWN_BIAS:
		memset(out, 0, (size_t)n * 4);
		return;
	default:
		break;
	}
	for (long i = 0; i < n; i++) {
		if (i % 2 == 0)
			rng_normal2(pair, key, (uint64_t)i, 0, 0);
		out[i] = pair[i % 2] * (float)c->initializer_range;
	}
}

const void *value_of(const struct weight *w)
{
	return w ? w->value : NULL;
}
