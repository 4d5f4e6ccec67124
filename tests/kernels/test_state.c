/*
 * The state of a model over ranks: whose each gradient, master and moment is, what is summed over whom, and what counts once.  Alone, or
 * as several ranks (parallel.sh): every layout that has as many.
 */
#include "kernels/model/model.h"
#include "libcommon/json.h"
#include "libcommon/xalloc.h"
#include "tests/lib/tap.h"

#include <math.h>

static struct comm world;

/* Sizes are pairwise distinct; more TP ranks than kv heads are possible, and more ranks than blocks of the vocabulary. */
static void config(struct model_config *c, bool tied, bool experts)
{
	char *text = xasprintf("{\"model_type\": \"%s\", \"vocab_size\": 2500, \"hidden_size\": 24, \"intermediate_size\": 80,"
			       " \"num_hidden_layers\": 5, \"num_attention_heads\": 8, \"num_key_value_heads\": 2, \"head_dim\": 10,"
			       " \"max_position_embeddings\": 16, \"rms_norm_eps\": 1e-5, \"rope_theta\": 10000.0,"
			       " \"num_experts\": 12, \"num_experts_per_tok\": 3, \"moe_intermediate_size\": 36, \"tie_word_embeddings\": %s}",
			       experts ? "qwen3_moe" : "qwen3", tied ? "true" : "false");
	struct json_doc d;
	struct err e = ERR_INIT;

	if (json_parse(&d, text, strlen(text), "config", 1, &e) || model_config_from_json(c, &d, &e))
		die_err(&e);
	json_release(&d);
	free(text);
}

static double over_world(double x)
{
	comm_sum_f64(&world, &x, 1);
	return x;
}

static long size_of(const struct param *p)
{
	struct box b = box_whole(p->shape, p->rank);

	return box_volume(&b);
}

/* A number of its own for each element of each parameter, exact in float32 and in sums of eight. */
static float value_at(long param, long flat)
{
	return (float)((param * 131 + flat * 7) % 1009 - 500) / 1024;
}

struct fill { float *x; long param; };

static void fill_run(void *arg, long offset, long flat, long n)
{
	struct fill *f = arg;

	for (long i = 0; i < n; i++)
		f->x[offset + i] = value_at(f->param, flat + i);
}

static void set_all(struct model *m)
{
	for (long i = 0; i < m->table.n; i++) {
		struct fill f = { xcalloc((size_t)box_volume(m->box + i) + 1, sizeof(float)), i };

		if (box_volume(m->box + i))
			box_runs(m->box + i, m->box + i, m->table.p[i].shape, fill_run, &f);
		model_set(m, i, f.x, DTYPE_F32);
		free(f.x);
	}
}

static void fill_gradients(struct model *m, float v)
{
	for (long i = 0; i < m->table.n; i++)
		for (long k = 0; m->w[i].grad && k < box_volume(m->box + i); k++)
			m->w[i].grad[k] = v;
}

/* How many ranks have a part of a parameter's gradient, for the one at hand. */
static long parts_of(const struct model *m, long i)
{
	const struct param *p = m->table.p + i;
	const struct layout *l = &m->mesh->layout;
	long which, copies = param_copies(&which, p, l, &m->mesh->at), n = l->dp * l->cp;
	bool tied_ends = p->kind == PARAM_EMBED && m->table.config.tied && l->pp > 1;

	if (p->expert)
		return layout_edp(l) * copies;
	if (p->tp_axis >= 0)
		n *= copies; /* kv heads that ranks share */
	else if (p->tp_grad == GRAD_PARTIAL || (m->flags & MODEL_SEQUENCE))
		n *= l->tp;
	return n * (tied_ends ? 2 : 1);
}

/* Gradients of 1 on every rank: each sum is the number of those that have a part, the norm counts every element once. */
static void all_ones(struct model *m, const char *where)
{
	double squares = 0, wrong = 0, owned = 0, want = 0, norm;

	fill_gradients(m, 1);
	model_reduce_grad(m);
	norm = model_grad_norm(m);
	for (long i = 0; i < m->table.n; i++) {
		double n = (double)parts_of(m, i), all = 0;
		long which;

		param_copies(&which, m->table.p + i, &m->mesh->layout, &m->mesh->at);
		for (long k = 0; k < m->w[i].n; k++)
			wrong += (double)m->w[i].sum[k] != n;
		if (!which) {
			squares += (double)m->w[i].n * n * n;
			all = (double)m->w[i].n;
		}
		owned += all;
		want += (double)size_of(m->table.p + i);
	}
	ok(over_world(wrong) == 0, "%s: every sum is the number of ranks that have a part of it", where);
	ok(over_world(owned) == want, "%s: every element has one owner", where);
	is_num(norm, sqrt(over_world(squares)), 1e-12 * norm, "%s: the norm counts each once", where);
}

/* A gradient that is not finite on one rank is seen by all, under one name. */
static void not_finite(struct model *m, const char *where)
{
	enum param_kind kind = m->moe ? PARAM_EXPERT_DOWN : PARAM_DOWN;
	const char *name, *want = m->table.p[model_index(m, kind, 3)].name;
	double seen;

	fill_gradients(m, 0.5f);
	model_reduce_grad(m);
	ok(!model_bad_grad(m), "%s: finite gradients", where);
	fill_gradients(m, 0.5f);
	for (long i = 0; i < m->table.n; i++)
		if (m->table.p[i].kind == kind && m->table.p[i].layer == 3 && m->w[i].grad && m->mesh->at.dp == m->mesh->layout.dp - 1)
			m->w[i].grad[0] = NAN;
	model_reduce_grad(m);
	name = model_bad_grad(m);
	seen = !isfinite(model_grad_norm(m)) && name && !strcmp(name, want);
	ok(over_world(seen) == world.size, "%s: a NaN is seen by all ranks", where);
}

/* Adam's first step from gradients of one sign moves every element by lr, whoever owns it; lr 0 moves none, in no bit. */
static void updates(struct model *m, const char *where)
{
	struct adamw h = { .beta1 = 0.5f, .beta2 = 0.5f, .rest1 = 0.5f, .rest2 = 0.5f, .bias1 = 0.5f, .bias2 = 0.5f, .grad_scale = 1 };
	float lr[] = { 0, 0.25f };
	double still = 0, moved = 0;

	for (int step = 0; step < 2; step++) {
		fill_gradients(m, 4);
		model_reduce_grad(m);
		h.lr = lr[step];
		model_adamw(m, &h);
		for (long i = 0; i < m->table.n; i++) {
			long n = box_volume(m->box + i);
			struct fill f = { xcalloc((size_t)n + 1, sizeof(float)), i };
			float *got = xcalloc((size_t)n + 1, sizeof(float));

			if (n) {
				box_runs(m->box + i, m->box + i, m->table.p[i].shape, fill_run, &f);
				model_get(m, i, got);
			}
			for (long k = 0; k < n; k++) {
				still += !step && got[k] != f.x[k];
				moved += step && !(fabsf(f.x[k] - got[k] - 0.25f) < 0.1f);
			}
			free(f.x);
			free(got);
		}
	}
	ok(over_world(still) == 0, "%s: a step of no length changes no bit", where);
	ok(over_world(moved) == 0, "%s: a step reaches every element of every copy", where);
}

/* One element of a gradient, shared out among the ranks that have a part of it. */
struct put { float *grad; long flat; float v; };

static void put_run(void *arg, long offset, long flat, long n)
{
	struct put *p = arg;

	if (p->flat >= flat && p->flat < flat + n)
		p->grad[offset + p->flat - flat] = p->v;
}

static void put(struct model *m, long i, long flat, float v)
{
	struct put p = { m->w[i].grad, flat, v / (float)parts_of(m, i) };

	if (p.grad && box_volume(m->box + i))
		box_runs(m->box + i, m->box + i, m->table.p[i].shape, put_run, &p);
}

/* The sum of a parameter's first moments. */
static double moments(const struct model *m, long i)
{
	double sum = 0;
	long which;

	param_copies(&which, m->table.p + i, &m->mesh->layout, &m->mesh->at);
	for (long k = 0; k < m->w[i].n && !which; k++)
		sum += (double)m->w[i].exp_avg[k];
	return over_world(sum);
}

/* Reports B70 and B72: 3 and 4 on different ranks, and 12 that all have, are 13; 3 and 4 on two stages are 5, and clipped by it. */
static void norms(struct model *m, const char *where)
{
	struct adamw h = { .beta1 = 0.5f, .beta2 = 0.5f, .rest1 = 0.5f, .rest2 = 0.5f, .bias1 = 0.5f, .bias2 = 0.5f, .eps = 1e-8f };
	long cut = model_index(m, m->moe ? PARAM_EXPERT_DOWN : PARAM_Q, 0), norm = model_index(m, PARAM_INPUT_NORM, 0);
	long last = model_index(m, m->moe ? PARAM_EXPERT_DOWN : PARAM_Q, 4);

	fill_gradients(m, 0);
	put(m, cut, 0, 3);
	put(m, cut, size_of(m->table.p + cut) - 1, 4);
	put(m, norm, 0, 12);
	model_reduce_grad(m);
	is_num(model_grad_norm(m), 13, 1e-5, "%s: B70: 3, 4 and a copied 12 are 13", where);
	fill_gradients(m, 0);
	put(m, cut, 0, 3);
	put(m, last, 0, 4);
	model_reduce_grad(m);
	is_num(model_grad_norm(m), 5, 1e-5, "%s: B72: 3 in the first layer and 4 in the last are 5", where);
	h.grad_scale = (float)(1 / model_grad_norm(m));
	model_adamw(m, &h);
	is_num(moments(m, cut), 0.5 * 0.2 * 3, 1e-6, "%s: B72: which clips the one to a fifth", where);
	is_num(moments(m, last), 0.5 * 0.2 * 4, 1e-6, "%s: B72: and the other", where);
}

static void one_layout(const struct layout *l, bool tied, bool experts)
{
	struct model_config c;
	struct mesh mesh;
	struct model m;
	struct err e = ERR_INIT;
	char *text = layout_text(l), *where = xasprintf("%s%s%s", text, tied ? ", tied" : "", experts ? ", experts" : "");
	const struct ops *k = ops_find("cpu", NULL, &e);

	config(&c, tied, experts);
	if (!k || mesh_init(&mesh, l, &world, &e) || model_init(&m, &c, k, &mesh, DTYPE_F32, 0, MODEL_TRAIN, &e))
		die_err(&e);
	set_all(&m);
	norms(&m, where);
	all_ones(&m, where);
	not_finite(&m, where);
	updates(&m, where);
	model_release(&m);
	mesh_release(&mesh);
	free(text);
	free(where);
}

static void dense_and_experts(long tp, long pp, long cp)
{
	struct layout l;

	layout_init(&l, 5);
	layout_balance(&l, pp);
	l.tp = tp;
	l.cp = cp;
	l.dp = world.size / (tp * pp * cp);
	one_layout(&l, true, false);
	one_layout(&l, false, false);
	for (l.ep = 1; l.ep <= 4 && pp < 3; l.ep++)
		for (l.etp = 1; l.etp <= 2; l.etp++)
			if (tp * cp * l.dp % (l.ep * l.etp) == 0)
				one_layout(&l, l.ep % 2, true);
	layout_release(&l);
}

int main(void)
{
	struct err e = ERR_INIT;
	int bad;

	if (comm_init(&world, &e))
		die_err(&e);
	if (world.rank && !freopen("/dev/null", "w", stdout))
		die(EX_IOERR, "/dev/null");
	for (long tp = 1; tp <= 4; tp *= 2)
		for (long pp = 1; pp <= 5; pp++)
			for (long cp = 1; cp <= 2; cp++)
				if (world.size % (tp * pp * cp) == 0)
					dense_and_experts(tp, pp, cp);
	bad = done();
	comm_release(&world);
	return bad;
}
