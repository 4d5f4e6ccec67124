/*
 * The schedule of pipelines.  Run alone: its order, by a simulation of all stages.  Under mpirun (tests/kernels/parallel.sh): the
 * bubble of stages that sleep, and a model whose every layer is a stage against one rank.
 */
#include "kernels/model/pipeline.h"
#include "libcommon/pool.h"
#include "libcommon/xalloc.h"
#include "tests/lib/tap.h"

#include <time.h>

static struct comm world;

enum { MOST = 8, BATCHES = 4 * MOST };

/* -- the order ---------------------------------------------------------------------------------------- */

static long sizes(long *n, long p)
{
	n[0] = 1;
	n[1] = p - 1;
	n[2] = p;
	n[3] = 4 * p;
	return 4;
}

/* Every micro-batch once forward, then once backward, in order, and not more of them in flight than there may be. */
static bool order_holds(const struct pipeline_step *s, long steps, long n, long flight)
{
	long forward = 0, backward = 0, most = 0;

	for (long i = 0; i < steps; i++) {
		if (s[i].k != (s[i].backward ? backward : forward) || (s[i].backward && backward >= forward))
			return false;
		forward += !s[i].backward;
		backward += s[i].backward;
		most = forward - backward > most ? forward - backward : most;
	}
	return forward == n && backward == n && most == flight;
}

/* Stages that take 1 for a forward step and 2 for a backward one: the time until all are done; 0: they wait for ever. */
static long simulate(long p, long n)
{
	struct pipeline_step order[MOST][2 * BATCHES];
	long end[MOST][2][BATCHES], at[MOST] = { 0 }, now[MOST] = { 0 }, all = 0;
	bool moved = true;

	memset(end, 0, sizeof(end));
	for (long s = 0; s < p; s++)
		pipeline_order(order[s], s, p, n, true);
	while (moved) {
		moved = false;
		for (long s = 0; s < p; s++)
			while (at[s] < 2 * n) {
				struct pipeline_step *o = order[s] + at[s];
				long from = o->backward ? s + 1 : s - 1, start = 0;

				if (from >= 0 && from < p && !(start = end[from][o->backward][o->k]))
					break;
				start = start > now[s] ? start : now[s];
				now[s] = end[s][o->backward][o->k] = start + 1 + o->backward;
				at[s]++;
				moved = true;
			}
	}
	for (long s = 0; s < p; s++) {
		if (at[s] < 2 * n)
			return 0;
		all = now[s] > all ? now[s] : all;
	}
	return all;
}

static void check_order(void)
{
	struct pipeline_step s[2 * BATCHES], f[BATCHES];
	long n[4], bad = 0, late = 0, tried = 0;

	for (long p = 1; p <= MOST; p++)
		for (long i = 0; i < sizes(n, p); i++) {
			for (long stage = 0; stage < p; stage++, tried++) {
				long flight = pipeline_flight(stage, p, n[i], true);

				pipeline_order(s, stage, p, n[i], true);
				bad += !order_holds(s, 2 * n[i], n[i], flight) || flight > p - stage;
				pipeline_order(f, stage, p, n[i], false);
				for (long k = 0; k < n[i]; k++)
					bad += f[k].backward || f[k].k != k;
			}
			late += simulate(p, n[i]) != (n[i] ? 3 * (n[i] + p - 1) : 0);
		}
	ok(!bad, "%ld orders: every micro-batch once, min(p - s, n) in flight", tried);
	ok(!late, "1 to 8 stages end after (n + p - 1) steps, none waits for ever");
	pipeline_order(s, 0, 2, 3, true);
	ok(!s[0].backward && !s[1].backward && s[2].backward && !s[3].backward && s[4].backward && s[5].backward,
	   "the first of two stages, three micro-batches: F0 F1 B0 F2 B1 B2");
}

/* -- stages that sleep -------------------------------------------------------------------------------- */

struct sleeper { double slept; };

static double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void work(struct sleeper *s, int ms)
{
	double start = seconds();
	struct timespec t = { 0, ms * 1000000L };

	nanosleep(&t, NULL);
	s->slept += seconds() - start;
}

static void pass_on(long from, long to)
{
	struct comm_request q;
	static char message;

	if (from >= 0 && from < world.size) {
		comm_recv(&world, &q, &message, 1, (int)from);
		comm_wait(&world, &q);
	}
	if (to >= 0 && to < world.size) {
		comm_send(&world, &q, &message, 1, (int)to);
		comm_wait(&world, &q);
	}
}

static void sleep_forward(void *arg, long k, long slot)
{
	(void)k;
	(void)slot;
	pass_on(world.rank - 1, -1);
	work(arg, 25);
	pass_on(-1, world.rank + 1);
}

static void sleep_backward(void *arg, long k, long slot)
{
	(void)k;
	(void)slot;
	pass_on(world.rank + 1, -1);
	work(arg, 50);
	pass_on(-1, world.rank - 1);
}

/* Time beyond that of the work, over it; the least of some tries, since others use this machine too. */
static void check_bubble(long n)
{
	double best = 1e9, want = (world.size - 1.) / (double)n;

	for (int i = 0; i < 6 && !(best <= want * 1.1); i++) {
		struct sleeper s = { 0 };
		double start, bubble[2];

		comm_barrier(&world);
		start = seconds();
		pipeline_walk(&(struct pipeline_stage){ &s, sleep_forward, sleep_backward }, world.rank, world.size, n, true);
		comm_barrier(&world);
		bubble[0] = seconds() - start;
		bubble[1] = s.slept;
		comm_sum_f64(&world, bubble, 2);
		best = fmin(best, bubble[0] / bubble[1] - 1);
	}
	if (world.rank == 0)
		is_num(best / want, 1, 0.1, "%d stages, %ld micro-batches: the bubble is %.4f, (p - 1) / n is %.4f", world.size, n, best,
		       want);
}

/* -- a model ------------------------------------------------------------------------------------------ */

enum { VOCAB = 50, ROWS = 40 };

static int ids[BATCHES][ROWS], target[BATCHES][ROWS];
static long cu[BATCHES][4];

static uint64_t mix(uint64_t x)
{
	x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
	x = (x ^ x >> 27) * 0x94D049BB133111EBu;
	return x ^ x >> 31;
}

/* Three sequences of random lengths, one perhaps empty; a batch without any row among them. */
static void make_batches(void)
{
	for (uint64_t b = 0; b < BATCHES; b++) {
		for (uint64_t s = 0; s < 3; s++)
			cu[b][s + 1] = cu[b][s] + (b == 5 ? 0 : (long)(mix(b * 3 + s + 1) % 13));
		for (uint64_t r = 0; r < ROWS; r++) {
			ids[b][r] = (int)(mix(b * 100 + r + 7) % VOCAB);
			target[b][r] = r % 4 == 2 ? -1 : (int)(mix(b * 100 + r + 7777) % VOCAB);
		}
	}
}

struct run { float lp[BATCHES][ROWS]; long last; };

static void give_batch(void *arg, long k, struct batch *b, const int **t)
{
	(void)arg;
	*b = (struct batch){ cu[k][3], ids[k], cu[k][3] ? 3 : 0, cu[k] };
	*t = target[k];
}

static void give_loss(void *arg, long k, float *dlp, const float *lp)
{
	struct run *r = arg;

	r->last = k;
	for (long i = 0; i < cu[k][3]; i++) {
		r->lp[k][i] = lp[i];
		if (dlp)
			dlp[i] = target[k][i] < 0 ? 0 : (float)(mix((uint64_t)(k * 50 + i)) % 64) / 32 - 1;
	}
}

static void load(struct model *m, struct mesh *mesh)
{
	struct model_config c = { .model_type = "llama", .architecture = "LlamaForCausalLM", .vocab = VOCAB, .hidden = 12, .intermediate = 14,
				  .layers = 8, .heads = 2, .kv_heads = 1, .head_dim = 4, .max_position = 64, .rms_eps = 1e-6, .tied = true,
				  .initializer_range = 0.3, .rope = { .kind = ROPE_DEFAULT, .theta = 10000, .factor = 1 }, .bos = -1, .pad = -1 };
	struct err e = ERR_INIT;
	const struct ops *k = ops_find("cpu", NULL, &e);

	if (!k || model_init(m, &c, k, mesh, DTYPE_F32, 0, MODEL_TRAIN, &e))
		die_err(&e);
	for (long i = 0; i < m->table.n; i++) {
		struct box b = box_whole(m->table.p[i].shape, m->table.p[i].rank);
		float *w = xmalloc((size_t)box_volume(&b) * 4);

		param_init_random(w, m->table.p + i, &c, 3);
		if (model_holds(m, i))
			model_set(m, i, w, DTYPE_F32);
		free(w);
	}
}

static double gradients_off(const struct model *m, const struct model *one)
{
	double worst = 0, norm = model_grad_norm(one);

	for (long i = 0; i < m->table.n; i++) {
		struct box b = box_whole(m->table.p[i].shape, m->table.p[i].rank);
		size_t n = (size_t)box_volume(&b);
		float *g = xcalloc(n, 4);
		double off = 0, all = 0;

		if (m->w[i].grad)
			memcpy(g, m->w[i].grad, n * 4);
		comm_sum_f32(&m->mesh->world, g, n);
		for (size_t j = 0; j < n; j++) {
			off += ((double)g[j] - (double)one->w[i].grad[j]) * ((double)g[j] - (double)one->w[i].grad[j]);
			all += (double)one->w[i].grad[j] * (double)one->w[i].grad[j];
		}
		worst = fmax(worst, sqrt(off) / fmax(sqrt(all), 1e-3 * norm));
		free(g);
	}
	return worst;
}

static void check_model(struct pipeline *p, struct model *m, struct pipeline *q, struct model *one, long n, bool backward)
{
	struct run *want = xcalloc(1, sizeof(*want)), *got = xcalloc(1, sizeof(*got));
	struct pipeline_job job = { .n = n, .batch = give_batch, .loss = give_loss, .temperature = 0.9f, .backward = backward };
	float differ;

	model_zero_grad(m);
	model_zero_grad(one);
	job.arg = want;
	pipeline_run(q, &job);
	job.arg = got;
	pipeline_run(p, &job);
	differ = (float)(m->here.last && (memcmp(want->lp, got->lp, sizeof(want->lp)) || got->last != want->last));
	comm_max_f32(&m->mesh->world, &differ, 1);
	double off = backward ? gradients_off(m, one) : 0;
	if (m->mesh->world.rank == 0)
		ok(differ == 0 && off < 1e-6, "%d stages, %ld micro-batches%s: bits of one rank, gradients off by %.2g", m->mesh->pp.size, n,
		   backward ? "" : " forward", off);
	free(want);
	free(got);
}

static void check_stages(bool recompute)
{
	struct layout l;
	struct mesh mesh;
	struct model m, one;
	struct err e = ERR_INIT;
	long n[4];

	layout_init(&l, 8);
	layout_balance(&l, world.size);
	if (mesh_init(&mesh, &l, &world, &e))
		die_err(&e);
	load(&m, &mesh);
	load(&one, NULL);
	struct pipeline *p = pipeline_new(&m, ROWS, true, recompute), *q = pipeline_new(&one, ROWS, true, false);
	for (long i = 0; i < sizes(n, world.size); i++)
		check_model(p, &m, q, &one, n[i], i != 1);
	pipeline_free(p);
	pipeline_free(q);
	model_release(&m);
	model_release(&one);
	mesh_release(&mesh);
	layout_release(&l);
}

int main(int argc, char **argv)
{
	struct err e = ERR_INIT;
	int bad;

	tool_init("test_pipeline");
	if (comm_init(&world, &e))
		die_err(&e);
	pool_start(1);
	make_batches();
	if (argc > 1 && !strcmp(argv[1], "bubble")) {
		check_bubble(16);
	} else {
		if (world.rank == 0)
			check_order();
		check_stages(false);
		check_stages(true);
	}
	bad = world.rank == 0 ? done() : 0;
	comm_release(&world);
	return bad;
}
