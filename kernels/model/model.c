#include "kernels/model/model.h"

#include "kernels/model/inside.h"
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
		return true;
	case PARAM_EMBED:
		return m->table.config.tied;
	default:
		return false;
	}
}

long param_count(const struct param *p)
{
	long n = 1;

	for (int i = 0; i < p->rank; i++)
		n *= p->shape[i];
	return n;
}

static int supported(const struct model_config *c, enum dtype t, struct err *e)
{
	if (c->sliding_window)
		return err_set(e, EX_UNAVAILABLE, "sliding_window %ld: sliding-window attention is not built yet", c->sliding_window);
	if (c->head != HEAD_LM)
		return err_set(e, EX_UNAVAILABLE, "%s: only models with a language-model head can be run yet", c->architecture);
	if (c->mlp_bias)
		return err_set(e, EX_UNAVAILABLE, "mlp_bias true: MLP biases are not built yet");
	if (c->moe.experts)
		return err_set(e, EX_UNAVAILABLE, "%ld experts: mixtures of experts are not built yet", c->moe.experts);
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

static void weight_init(struct model *m, long i)
{
	const struct param *p = m->table.p + i;
	struct weight *w = m->w + i;
	size_t n = (size_t)param_count(p);
	bool train = m->flags & MODEL_TRAIN;

	if (is_matrix(m, p))
		m->k->matrix_init(&w->matrix, m->t, p->shape[0], p->shape[1], p->chunks, train);
	if (train || !is_matrix(m, p) || p->kind == PARAM_EMBED)
		w->value = m->k->alloc(n * dtype_size(m->t), p->name);
	if (!train || p->role != ROLE_PARAM)
		return;
	w->grad = m->k->alloc(n * 4, p->name);
	w->master = m->t == DTYPE_F32 ? w->value : m->k->alloc(n * 4, p->name);
	w->exp_avg = m->k->alloc(n * 4, p->name);
	w->exp_avg_sq = m->k->alloc(n * 4, p->name);
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
		PARAM_Q_NORM, PARAM_K_NORM, PARAM_POST_NORM, PARAM_GATE, PARAM_UP, PARAM_DOWN
	};
	struct weight **at[] = {
		&l->norm1, &l->q, &l->k, &l->v, &l->o, &l->qb, &l->kb, &l->vb, &l->ob,
		&l->qn, &l->kn, &l->norm2, &l->gate, &l->up, &l->down
	};

	for (size_t j = 0; j < sizeof(at) / sizeof(*at); j++)
		*at[j] = model_weight(m, kind[j], i);
}

/* Once, since a search through the table for each layer of each token would take longer than a small model's arithmetic. */
static void find_layers(struct model *m)
{
	m->layer = xcalloc((size_t)m->table.config.layers, sizeof(*m->layer));
	for (int i = 0; i < m->table.config.layers; i++)
		layer_weights(m->layer + i, m, i);
}

int model_init(struct model *m, const struct model_config *c, const struct ops *k, enum dtype t, long positions, unsigned flags,
	       struct err *e)
{
	memset(m, 0, sizeof(*m));
	if (supported(c, t, e))
		return -1;
	param_table_init(&m->table, c);
	m->k = k;
	m->t = t;
	m->flags = flags;
	m->positions = positions > 0 && positions < c->max_position ? positions : c->max_position;
	m->attention = (struct attention_shape){ c->heads, c->kv_heads, c->head_dim, (float)(1 / sqrt((double)c->head_dim)) };
	m->w = xcalloc((size_t)m->table.n, sizeof(*m->w));
	if (rope_tables(m, e)) {
		model_release(m);
		return -1;
	}
	for (long i = 0; i < m->table.n; i++)
		weight_init(m, i);
	find_layers(m);
	return 0;
}

void model_release(struct model *m)
{
	for (long i = 0; m->w && i < m->table.n; i++) {
		struct weight *w = m->w + i;

		if (w->master != w->value)
			m->k->release(w->master);
		m->k->release(w->value);
		m->k->release(w->grad);
		m->k->release(w->exp_avg);
		m->k->release(w->exp_avg_sq);
		if (w->matrix.n)
			m->k->matrix_release(&w->matrix);
	}
	free(m->w);
	free(m->layer);
	if (m->cos)
		m->k->release(m->cos);
	if (m->sin)
		m->k->release(m->sin);
	param_table_release(&m->table);
	memset(m, 0, sizeof(*m));
}

void model_set(struct model *m, long i, const void *values, enum dtype from)
{
	const struct param *p = m->table.p + i;
	struct weight *w = m->w + i;
	size_t n = (size_t)param_count(p), bytes = n * dtype_size(m->t);
	void *rounded = xmalloc(bytes), *loaded = w->value;

	dtype_convert(rounded, m->t, values, from, n);
	if (!loaded)
		loaded = m->k->alloc(bytes, p->name);
	m->k->put(loaded, rounded, bytes);
	if (w->matrix.n)
		m->k->matrix_load(&w->matrix, loaded);
	if (loaded != w->value)
		m->k->release(loaded);
	free(rounded);
	if (w->master && w->master != w->value) {
		float *f = xmalloc(n * 4);

		dtype_convert(f, DTYPE_F32, values, from, n);
		m->k->put(w->master, f, n * 4);
		free(f);
	}
}

void model_set_optimizer(struct model *m, long i, const float *master, const float *exp_avg, const float *exp_avg_sq)
{
	struct weight *w = m->w + i;
	size_t bytes = (size_t)param_count(m->table.p + i) * 4;

	if (master && w->master)
		m->k->put(w->master, master, bytes);
	if (exp_avg && w->exp_avg)
		m->k->put(w->exp_avg, exp_avg, bytes);
	if (exp_avg_sq && w->exp_avg_sq)
		m->k->put(w->exp_avg_sq, exp_avg_sq, bytes);
}

void model_get(const struct model *m, long i, void *out)
{
	m->k->get(out, m->w[i].value, (size_t)param_count(m->table.p + i) * dtype_size(m->t));
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
