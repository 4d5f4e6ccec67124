/*
 * A model over ranks against the same model on one: log-probabilities to the bit, gradients of
 * every parameter.  Run alone it is one rank; tests/kernels/parallel.sh runs it under mpirun, where
 * each case whose layout has as many ranks is tried.  With `context` it is one sequence of 16,384
 * tokens over a CP group of all ranks (tests/rows/parallel.sh).
 */
#include "kernels/model/cache.h"
#include "kernels/model/model.h"
#include "libcommon/mesh.h"
#include "libcommon/pool.h"
#include "libcommon/xalloc.h"
#include "tests/lib/tap.h"

static struct comm world;

enum { MOST_ROWS = 16384, MOST_SEQ = 20 };

#define all_ok(good, ...) do { \
	float bad_ = !(good); \
	comm_max_f32(&world, &bad_, 1); \
	if (world.rank == 0) \
		ok(bad_ == 0, __VA_ARGS__); \
} while (0)

static struct model_config shape(long hidden, long inter, long layers, long heads, long kv, long d)
{
	struct model_config c = { .vocab = 3301,
				  .hidden = hidden,
				  .intermediate = inter,
				  .layers = layers,
				  .heads = heads,
				  .kv_heads = kv,
				  .head_dim = d,
				  .max_position = 512,
				  .rms_eps = 1e-6,
				  .initializer_range = 0.02,
				  .head = HEAD_LM,
				  .rope = { .kind = ROPE_DEFAULT, .theta = 10000, .factor = 1 },
				  .bos = -1,
				  .pad = -1 };

	strcpy(c.model_type, "llama");
	strcpy(c.architecture, "LlamaForCausalLM");
	return c;
}

enum { NORMED, BIASED, PLAIN, LONG, EXPERTS, SHARED };

/* Sizes are pairwise distinct, and the vocabulary has four blocks, the last short. */
static struct model_config config(int which)
{
	struct model_config c;

	if (which == NORMED) {
		c = shape(28, 40, 3, 12, 2, 6);
		c.qk_norm = true;
	} else if (which == BIASED) {
		c = shape(20, 48, 3, 6, 3, 10);
		c.qkv_bias = c.o_bias = c.tied = true;
	} else if (which == PLAIN) {
		c = shape(36, 56, 5, 16, 8, 4);
	} else if (which == EXPERTS) {
		c = shape(28, 40, 3, 12, 2, 6);
		c.moe = (struct moe_config){ .experts = 6,
					     .experts_per_token = 3,
					     .intermediate = 24,
					     .norm_topk = true,
					     .step = 1 };
	} else if (which == SHARED) {
		/*
		 * The second layer has no experts; there are more of them than rows of some batches
		 * can visit.
		 */
		c = shape(20, 48, 3, 6, 3, 10);
		c.moe = (struct moe_config){ .experts = 40,
					     .experts_per_token = 2,
					     .intermediate = 16,
					     .shared_intermediate = 42,
					     .step = 1,
					     .mlp_only = { 2 } };
	} else {
		c = shape(96, 256, 3, 4, 2, 16);
		c.max_position = MOST_ROWS;
		c.vocab = 259;
	}
	return c;
}

static const struct {
	int model;
	long tp, cp, pp;
	const char *stages;
	bool same;
	long ep, etp;
} cases[] = {
	{ NORMED, 1, 1, 1, NULL, true, 1, 1 },
	{ BIASED, 1, 1, 1, NULL, true, 1, 1 },
	{ NORMED, 2, 1, 1, NULL, true, 1, 1 },
	{ PLAIN, 2, 1, 1, NULL, true, 1, 1 },
	{ BIASED, 1, 2, 1, NULL, true, 1, 1 },
	{ BIASED, 1, 1, 2, "1,2", true, 1, 1 },
	{ NORMED, 1, 1, 2, "2,1", true, 1, 1 },
	{ NORMED, 1, 2, 1, NULL, true, 1, 1 },
	{ BIASED, 3, 1, 1, NULL, true, 1, 1 },
	{ NORMED, 1, 3, 1, NULL, true, 1, 1 },
	{ PLAIN, 1, 1, 3, "3,0,2", true, 1, 1 },
	/* more ranks than kv heads: one more chunk a rank than one rank has */
	{ NORMED, 4, 1, 1, NULL, false, 1, 1 },
	{ PLAIN, 4, 1, 1, NULL, true, 1, 1 },
	{ NORMED, 2, 2, 1, NULL, true, 1, 1 },
	{ NORMED, 2, 1, 2, "1,2", true, 1, 1 },
	{ BIASED, 1, 2, 2, "2,1", true, 1, 1 },
	{ PLAIN, 2, 1, 2, "1,4", true, 1, 1 },
	{ BIASED, 3, 2, 1, NULL, true, 1, 1 },
	{ PLAIN, 2, 3, 1, NULL, true, 1, 1 },
	{ BIASED, 3, 1, 2, "1,2", true, 1, 1 },
	{ PLAIN, 1, 2, 3, "1,1,3", true, 1, 1 },
	/* experts: on every rank; over EP; over ETP; over both; a shared one over TP */
	{ EXPERTS, 1, 1, 1, NULL, true, 1, 1 },
	{ SHARED, 1, 1, 1, NULL, true, 1, 1 },
	{ EXPERTS, 2, 1, 1, NULL, true, 1, 1 },
	{ EXPERTS, 2, 1, 1, NULL, true, 2, 1 },
	{ EXPERTS, 1, 2, 1, NULL, true, 2, 1 },
	{ EXPERTS, 2, 1, 1, NULL, true, 1, 2 },
	{ SHARED, 1, 2, 1, NULL, true, 1, 2 },
	{ SHARED, 1, 1, 2, "1,2", true, 1, 1 },
	{ SHARED, 3, 1, 1, NULL, true, 1, 1 },
	{ EXPERTS, 1, 3, 1, NULL, true, 3, 1 },
	{ EXPERTS, 1, 3, 1, NULL, true, 1, 3 },
	{ SHARED, 1, 4, 1, NULL, true, 4, 1 },
	{ EXPERTS, 2, 2, 1, NULL, true, 2, 2 },
	{ SHARED, 1, 4, 1, NULL, true, 2, 2 },
	{ EXPERTS, 2, 2, 1, NULL, true, 2, 1 },
	{ EXPERTS, 2, 1, 2, "1,2", true, 2, 1 },
	{ SHARED, 3, 2, 1, NULL, true, 2, 1 },
	{ EXPERTS, 2, 3, 1, NULL, true, 3, 2 },
	{ SHARED, 1, 4, 2, "2,1", true, 2, 2 },
	{ EXPERTS, 2, 2, 2, "1,2", true, 2, 2 },
	{ PLAIN, 8, 1, 1, NULL, true, 1, 1 },
	{ PLAIN, 2, 2, 2, "2,3", true, 1, 1 },
	{ PLAIN, 4, 1, 2, "4,1", true, 1, 1 },
};

static int ids[MOST_ROWS], target[MOST_ROWS];
static long cu[MOST_SEQ + 1];
static float dlp[MOST_ROWS];
static struct batch batch = { .ids = ids, .cu = cu };

static uint64_t mix(uint64_t x)
{
	x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
	x = (x ^ x >> 27) * 0x94D049BB133111EBu;
	return x ^ x >> 31;
}

/* In [-1, 1). */
static float any(uint64_t what, long i)
{
	return (float)((double)(mix(what * 0x9E3779B97F4A7C15u + (uint64_t)i) >> 40) / 8388608.0 -
		       1);
}

static void make_batch(const long *lengths, long n, int vocab)
{
	batch.nseq = n;
	for (long i = 0; i < n; i++)
		cu[i + 1] = cu[i] + lengths[i];
	batch.rows = cu[n];
	for (long r = 0; r < batch.rows; r++) {
		ids[r] = (int)(mix((uint64_t)r + 17) % (uint64_t)vocab);
		target[r] = r % 5 == 3 ? -1 : (int)(mix((uint64_t)r + 1717) % (uint64_t)vocab);
		dlp[r] = target[r] < 0 ? 0 : any(99, r);
	}
	target[batch.rows / 2] = vocab - 1;
	ids[batch.rows / 3] = vocab / 3;
}

static void mixed_batch(void)
{
	static const long lengths[] = { 1, 7, 1, 66, 2, 131, 3, 5 };

	make_batch(lengths, 8, 3301);
}

/*
 * Every length from 1 on to beyond two rows a chunk of the most CP ranks; nothing counts but the
 * first rows, which few ranks have.
 */
static void short_batch(void)
{
	long lengths[MOST_SEQ];

	for (long i = 0; i < 17; i++)
		lengths[i] = i + 1;
	make_batch(lengths, 17, 3301);
	for (long i = 0; i < 17; i++)
		for (long r = cu[i] + 1 + i / 8; r < cu[i + 1]; r++)
			dlp[r] = 0;
}

static float *values(const struct model *m, long i)
{
	const struct param *p = m->table.p + i;
	struct box b = box_whole(p->shape, p->rank);
	long n = box_volume(&b);
	float *w = xmalloc((size_t)n * 4);

	for (long j = 0; j < n; j++)
		w[j] = strstr(p->name, "norm") ? 1 + 0.25f * any((uint64_t)i + 1, j)
					       : 0.4f * any((uint64_t)i + 1, j);
	return w;
}

/* Each number of the box within the whole. */
static void walk(float *box, float *whole, const struct param *p, const struct box *b, bool to_box)
{
	long start[3] = { 0 }, extent[3] = { 1, 1, 1 }, size[3] = { 1, 1, 1 };

	for (int d = 0; d < p->rank; d++) {
		start[3 - p->rank + d] = b->start[d];
		extent[3 - p->rank + d] = b->extent[d];
		size[3 - p->rank + d] = p->shape[d];
	}
	for (long x = 0; x < extent[0]; x++)
		for (long y = 0; y < extent[1]; y++)
			for (long z = 0; z < extent[2]; z++) {
				float *at = whole +
					    ((start[0] + x) * size[1] + start[1] + y) * size[2] +
					    start[2] + z;
				float *here = box + (x * extent[1] + y) * extent[2] + z;

				if (to_box)
					*here = *at;
				else
					*at += *here;
			}
}

static void load(struct model *m, int which, struct mesh *mesh, enum dtype t, unsigned flags)
{
	struct model_config c = config(which);
	struct err e = ERR_INIT;
	const struct ops *k = ops_find("cpu", getenv("TEST_ISA"), &e);

	if (!k || model_init(m, &c, k, mesh, t, 0, flags, &e))
		die_err(&e);
	for (long i = 0; i < m->table.n; i++) {
		float *whole = values(m, i), *box = xmalloc((size_t)box_volume(m->box + i) * 4 + 4);

		walk(box, whole, m->table.p + i, m->box + i, true);
		model_set(m, i, box, DTYPE_F32);
		free(whole);
		free(box);
	}
}

struct result {
	float lp[MOST_ROWS], entropy[MOST_ROWS];
};

static void run(struct result *r, struct model *m, bool backward, enum recompute recompute,
		float temperature)
{
	struct pass *p = pass_new(m, batch.rows + 9, backward, recompute);

	pass_forward(p, &batch);
	pass_logprobs(p, r->lp, r->entropy, target, temperature);
	if (backward) {
		model_zero_grad(m);
		pass_backward(p, dlp);
	}
	pass_free(p);
}

/*
 * The gradient of parameter i over all ranks of the world: every rank has a part of it, in its box.
 */
static float *whole_gradient(const struct model *m, long i, struct comm *c)
{
	const struct param *p = m->table.p + i;
	struct box b = box_whole(p->shape, p->rank);
	size_t n = (size_t)box_volume(&b);
	float *g = xcalloc(n, 4);

	if (m->w[i].grad)
		walk(m->w[i].grad, g, p, m->box + i, false);
	comm_sum_f32(c, g, n);
	return g;
}

static long bits_differ(const struct result *a, const struct result *b)
{
	long n = 0;

	for (long r = 0; r < batch.rows; r++)
		if (target[r] >= 0)
			n += memcmp(a->lp + r, b->lp + r, 4) ||
			     memcmp(a->entropy + r, b->entropy + r, 4);
		else
			n += !isnan(a->lp[r]) || !isnan(b->lp[r]);
	return n;
}

static double largest(const struct result *a, const struct result *b)
{
	double d = 0;

	for (long r = 0; r < batch.rows; r++)
		if (target[r] >= 0)
			d = fmax(d, fabs((double)a->lp[r] - (double)b->lp[r]));
	return d;
}

static void check_gradients(struct model *m, struct model *one, double bound, const char *name)
{
	struct comm alone = { .size = 1 };
	double worst = 0, norm = model_grad_norm(one);
	const char *where = "none";

	for (long i = 0; i < m->table.n; i++) {
		float *want = whole_gradient(one, i, &alone), *got = whole_gradient(m, i, &world);
		struct box b = box_whole(m->table.p[i].shape, m->table.p[i].rank);
		double off = 0, all = 0;

		for (long j = 0; j < box_volume(&b); j++) {
			off += ((double)got[j] - (double)want[j]) *
			       ((double)got[j] - (double)want[j]);
			all += (double)want[j] * (double)want[j];
		}
		off = sqrt(off) / fmax(sqrt(all), 1e-3 * norm);
		if (!(off <= worst)) {
			worst = off;
			where = m->table.p[i].name;
		}
		free(want);
		free(got);
	}
	all_ok(worst < bound, "%s: gradients of all parameters (worst %.2g, %s)", name, worst,
	       where);
}

/* The rows of two sequences through the cache, some at a time, every rank with all rows. */
static void check_cache(struct model *m, const struct result *want, float temperature,
			const char *name)
{
	struct cache *c = cache_new(m, 12, 16, 16);
	long differ = 0, V = m->table.config.vocab;
	static const long step[] = { 1, 3, 16 };

	for (long s = 0; s < batch.nseq; s++) {
		struct cached seq = { 0 };

		for (long at = cu[s], n; at < cu[s + 1]; at += n) {
			struct cache_row row[16];

			n = cu[s + 1] - at < step[s % 3] ? cu[s + 1] - at : step[s % 3];
			for (long i = 0; i < n; i++)
				row[i] = (struct cache_row){ &seq, ids[at + i], at + i - cu[s],
							     true };
			if (!cache_reserve(c, &seq, at + n - cu[s]))
				die(EX_SOFTWARE, "cache full");
			const float *z = cache_extend(c, row, n);
			for (long i = 0; i < n; i++) {
				float lp, lse;

				if (target[at + i] < 0)
					continue;
				m->k->logprob(&lp, &lse, NULL, z + i * V, target + at + i, 1, V,
					      temperature);
				differ += memcmp(&lp, want->lp + at + i, 4) != 0;
			}
		}
		cache_drop(c, &seq);
	}
	all_ok(!differ, "%s: the KV cache: %ld log-probabilities differ", name, differ);
	cache_free(c);
}

/* Over all ranks. */
static double most(double x)
{
	float f = (float)x;

	comm_max_f32(&world, &f, 1);
	return f;
}

static void try_case(size_t i, enum dtype t)
{
	struct layout l;
	struct mesh mesh;
	struct model one, m;
	struct result want, got;
	struct err e = ERR_INIT;
	struct model_config c = config(cases[i].model);
	char name[100];
	double differ, off;
	bool last;

	layout_init(&l, c.layers);
	l.tp = cases[i].tp;
	l.cp = cases[i].cp;
	l.ep = cases[i].ep;
	l.etp = cases[i].etp;
	if (cases[i].stages && layout_parse_stages(&l, cases[i].stages, &e))
		die_err(&e);
	if (layout_world(&l) != world.size) {
		layout_release(&l);
		return;
	}
	if (layout_check(&l, &c, &e) || mesh_init(&mesh, &l, &world, &e))
		die_err(&e);
	snprintf(name, sizeof(name), "model %d, %s, tp %ld cp %ld pp %ld ep %ld etp %ld",
		 cases[i].model, dtype_name(t), l.tp, l.cp, l.pp, l.ep, l.etp);
	load(&one, cases[i].model, NULL, t, MODEL_TRAIN);
	load(&m, cases[i].model, &mesh, t, MODEL_TRAIN);
	run(&want, &one, true, false, 0.7f);
	run(&got, &m, true, (enum recompute)(i % 3), 0.7f);
	last = m.here.last;
	differ = most(last ? (double)bits_differ(&want, &got) : 0);
	off = most(last ? largest(&want, &got) : 0);
	/*
	 * The control: where ranks are more than chunks the order of summation is another, and
	 * float32 shows it.
	 */
	all_ok(cases[i].same ? !differ && !off : t == DTYPE_BF16 || (differ > 0 && off < 1e-4),
	       "%s: log-probabilities and entropies: %.0f differ, by at most %.2g", name, differ,
	       off);
	check_gradients(&m, &one, t == DTYPE_F32 ? 1e-5 : 5e-2, name);
	if (l.pp == 1 && l.cp == 1) {
		if (!cases[i].same)
			run(&want, &m, false, false, 0.7f);
		check_cache(&m, &want, 0.7f, name);
	}
	model_release(&m);
	model_release(&one);
	mesh_release(&mesh);
	layout_release(&l);
}

/*
 * One long sequence over all ranks: what a rank needs for it against its share of what one rank
 * needs; gradients.
 */
static void context(void)
{
	static const long lengths[] = { MOST_ROWS };
	struct layout l;
	struct mesh mesh;
	struct model one, m;
	static struct result want, got;
	struct err e = ERR_INIT;
	double share, here;

	make_batch(lengths, 1, 259);
	layout_init(&l, 3);
	l.cp = world.size;
	if (mesh_init(&mesh, &l, &world, &e))
		die_err(&e);
	load(&one, LONG, NULL, DTYPE_F32, MODEL_TRAIN);
	load(&m, LONG, &mesh, DTYPE_F32, MODEL_TRAIN);
	share = (double)pass_bytes(&one, batch.rows, true, false) / world.size;
	here = (double)pass_bytes(&m, batch.rows, true, false);
	all_ok(here / share < 1.35,
	       "%ld tokens on %d ranks: activations of a rank over the share of one rank's: %.3f",
	       batch.rows, world.size, here / share);
	model_zero_grad(&one);
	if (world.rank == 0)
		run(&want, &one, true, false, 1);
	for (long i = 0; i < one.table.n; i++) {
		struct box b = box_whole(one.table.p[i].shape, one.table.p[i].rank);

		comm_broadcast(&world, one.w[i].grad, (size_t)box_volume(&b) * 4, 0);
	}
	comm_broadcast(&world, &want, sizeof(want), 0);
	run(&got, &m, true, false, 1);
	all_ok(!bits_differ(&want, &got), "%ld tokens: bits of all log-probabilities", batch.rows);
	check_gradients(&m, &one, 1e-5, "a long sequence");
	model_release(&m);
	model_release(&one);
	mesh_release(&mesh);
	layout_release(&l);
}

int main(int argc, char **argv)
{
	struct err e = ERR_INIT;
	int bad;

	tool_init("test_parallel_model");
	if (comm_init(&world, &e))
		die_err(&e);
	pool_start(1);
	if (argc > 1 && !strcmp(argv[1], "context")) {
		context();
		bad = world.rank == 0 ? done() : 0;
		comm_release(&world);
		return bad;
	}
	mixed_batch();
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		try_case(i, DTYPE_F32);
		try_case(i, DTYPE_BF16);
	}
	short_batch();
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		if (cases[i].cp > 1)
			try_case(i, DTYPE_F32);
	bad = world.rank == 0 ? done() : 0;
	comm_release(&world);
	return bad;
}
