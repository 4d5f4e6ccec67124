/*
 * The schedule of pipelines.  Run alone: its order, by a simulation of all stages.  Under mpirun
 * (tests/kernels/parallel.sh): the bubble of stages that sleep, and a model whose every layer is a
 * stage against one rank.
 */
#include "kernels/model/pipeline.h"
#include "libcommon/pool.h"
#include "libcommon/xalloc.h"
#include "tests/lib/tap.h"

#include <time.h>

static struct comm world;

enum { MOST = 8, BATCHES = 4 * MOST, TURNS = 3 };

/* -- the order ------------------------------------------------------------- */

static long sizes(long *n, long p)
{
	n[0] = 1;
	n[1] = p - 1;
	n[2] = p;
	n[3] = 4 * p;
	return 4;
}

/* Every micro-batch once forward in each turn, then once backward, in order. */
static bool order_holds(const struct pipeline_plan *p, const struct pipeline_step *s, long stage)
{
	long forward[TURNS] = { 0 }, backward[TURNS] = { 0 }, most[TURNS] = { 0 };

	for (long i = 0; i < p->turns * p->n * (p->backward ? 2 : 1); i++) {
		long t = s[i].turn;

		if (s[i].k != (s[i].backward ? backward : forward)[t] ||
		    (s[i].backward && backward[t] >= forward[t]))
			return false;
		(s[i].backward ? backward : forward)[t]++;
		if (forward[t] - backward[t] > most[t])
			most[t] = forward[t] - backward[t];
	}
	for (long t = 0; t < p->turns; t++)
		if (forward[t] != p->n || backward[t] != (p->backward ? p->n : 0) ||
		    (p->backward && most[t] != pipeline_flight(p, stage, t)))
			return false;
	return p->turns > 1 || !p->backward ||
	       most[0] == (p->stages - stage < p->n ? p->stages - stage : p->n);
}

/*
 * A backward step of one turn must have been taken by whom it was sent to before its slot is used
 * again.
 */
static bool slot_is_free(const struct pipeline_plan *p, const struct pipeline_step *o, long stage,
			 long place, long end[MOST * TURNS][2][BATCHES])
{
	long k = o->k - pipeline_flight(p, stage, o->turn);

	return o->backward || place == 0 || k < 0 || end[place - 1][1][k];
}

/*
 * Stages that take 1 for a forward step and 2 for a backward one: the time until all are done; 0:
 * they wait for ever.
 */
static long simulate(const struct pipeline_plan *p)
{
	static struct pipeline_step order[MOST][2 * BATCHES * TURNS];
	static long end[MOST * TURNS][2][BATCHES];
	long at[MOST] = { 0 }, now[MOST] = { 0 }, all = 0, steps = 2 * p->n * p->turns;
	bool moved = true;

	memset(end, 0, sizeof(end));
	for (long s = 0; s < p->stages; s++)
		pipeline_order(order[s], p, s);
	while (moved) {
		moved = false;
		for (long s = 0; s < p->stages; s++)
			while (at[s] < steps) {
				struct pipeline_step *o = order[s] + at[s];
				long place = o->turn * p->stages + s,
				     from = o->backward ? place + 1 : place - 1, start = 0;

				if (from >= 0 && from < p->stages * p->turns &&
				    !(start = end[from][o->backward][o->k]))
					break;
				if (!slot_is_free(p, o, s, place, end))
					break;
				start = start > now[s] ? start : now[s];
				now[s] = end[place][o->backward][o->k] = start + 1 + o->backward;
				at[s]++;
				moved = true;
			}
	}
	for (long s = 0; s < p->stages; s++) {
		if (at[s] < steps)
			return 0;
		all = now[s] > all ? now[s] : all;
	}
	return all;
}

static void check_order(void)
{
	static struct pipeline_step s[2 * BATCHES * TURNS];
	struct pipeline_plan p = { .stages = 2, .turns = 1, .n = 3, .backward = true };
	long n[4], bad = 0, late = 0, tried = 0;

	pipeline_order(s, &p, 0);
	ok(!s[0].backward && !s[1].backward && s[2].backward && !s[3].backward && s[4].backward &&
		   s[5].backward,
	   "the first of two stages, three micro-batches: F0 F1 B0 F2 B1 B2");
	for (p.stages = 1; p.stages <= MOST; p.stages++)
		for (p.turns = 1; p.turns <= (p.stages > 1 ? TURNS : 1); p.turns++)
			for (long i = 0; i < sizes(n, p.stages); i++) {
				p.n = n[i];
				if (p.turns > 1 && p.n % p.stages)
					continue;
				for (long stage = 0; stage < p.stages; stage++, tried++)
					for (p.backward = false;; p.backward = true) {
						pipeline_order(s, &p, stage);
						bad += !order_holds(&p, s, stage);
						if (p.backward)
							break;
					}
				late += simulate(&p) !=
					(p.n ? 3 * (p.n * p.turns + p.stages - 1) : 0);
			}
	ok(!bad, "%ld orders: every micro-batch once a turn, min(p - s, n) in flight", tried);
	ok(!late,
	   "1 to 8 stages in 1 to 3 turns end after (v n + p - 1) steps, none waits for ever");
}

/* -- stages that sleep ----------------------------------------------------- */

struct sleeper {
	double slept;
};

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

static void sleep_forward(void *arg, long k, long turn, long slot)
{
	(void)k;
	(void)turn;
	(void)slot;
	pass_on(world.rank - 1, -1);
	work(arg, 40);
	pass_on(-1, world.rank + 1);
}

static void sleep_backward(void *arg, long k, long turn, long slot)
{
	(void)k;
	(void)turn;
	(void)slot;
	pass_on(world.rank + 1, -1);
	work(arg, 80);
	pass_on(-1, world.rank - 1);
}

/*
 * Time beyond that of the work, over it; the least of some tries, since others use this machine
 * too.
 */
static void check_bubble(long n)
{
	double best = 1e9, want = (world.size - 1.) / (double)n;

	for (int i = 0; i < 6 && !(best <= want * 1.1); i++) {
		struct sleeper s = { 0 };
		double start, bubble[2];

		comm_barrier(&world);
		start = seconds();
		pipeline_walk(&(struct pipeline_stage){ &s, sleep_forward, sleep_backward },
			      &(struct pipeline_plan){ world.size, 1, n, true }, world.rank);
		comm_barrier(&world);
		bubble[0] = seconds() - start;
		bubble[1] = s.slept;
		comm_sum_f64(&world, bubble, 2);
		best = fmin(best, bubble[0] / bubble[1] - 1);
	}
	if (world.rank == 0)
		is_num(best / want, 1, 0.1,
		       "%d stages, %ld micro-batches: the bubble is %.4f, (p - 1) / n is %.4f",
		       world.size, n, best, want);
}

/* -- a model --------------------------------------------------------------- */

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

struct run {
	float lp[BATCHES][ROWS];
	long last;
};

static void give_batch(void *arg, long k, struct batch *b, const int **t)
{
	(void)arg;
	*b = (struct batch){
		.rows = cu[k][3], .ids = ids[k], .nseq = cu[k][3] ? 3 : 0, .cu = cu[k]
	};
	*t = target[k];
}

static void give_loss(void *arg, long k, float *dlp, const float *lp)
{
	struct run *r = arg;

	r->last = k;
	for (long i = 0; i < cu[k][3]; i++) {
		r->lp[k][i] = lp[i];
		if (dlp)
			dlp[i] = target[k][i] < 0
					 ? 0
					 : (float)(mix((uint64_t)(k * 50 + i)) % 64) / 32 - 1;
	}
}

static void load(struct model *m, struct mesh *mesh)
{
	struct model_config c = { .model_type = "llama",
				  .architecture = "LlamaForCausalLM",
				  .vocab = VOCAB,
				  .hidden = 12,
				  .intermediate = 14,
				  .layers = 8,
				  .heads = 2,
				  .kv_heads = 1,
				  .head_dim = 4,
				  .max_position = 64,
				  .rms_eps = 1e-6,
				  .tied = true,
				  .initializer_range = 0.3,
				  .rope = { .kind = ROPE_DEFAULT, .theta = 10000, .factor = 1 },
				  .bos = -1,
				  .pad = -1 };
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

		/* A tied embedding is summed over both ends by then. */
		if (m->w[i].grad && (m->here.first || m->table.p[i].kind != PARAM_EMBED))
			memcpy(g, m->w[i].grad, n * 4);
		comm_sum_f32(&m->mesh->world, g, n);
		for (size_t j = 0; j < n; j++) {
			off += ((double)g[j] - (double)one->w[i].grad[j]) *
			       ((double)g[j] - (double)one->w[i].grad[j]);
			all += (double)one->w[i].grad[j] * (double)one->w[i].grad[j];
		}
		worst = fmax(worst, sqrt(off) / fmax(sqrt(all), 1e-3 * norm));
		free(g);
	}
	return worst;
}

static void check_model(struct pipeline *p, struct model *m, struct pipeline *q, struct model *one,
			long n, bool backward)
{
	struct run *want = xcalloc(1, sizeof(*want)), *got = xcalloc(1, sizeof(*got));
	struct pipeline_job job = { .n = n,
				    .batch = give_batch,
				    .loss = give_loss,
				    .temperature = 0.9f,
				    .backward = backward };
	float differ;

	model_zero_grad(m);
	model_zero_grad(one);
	job.arg = want;
	pipeline_run(q, &job);
	job.arg = got;
	pipeline_run(p, &job);
	if (backward)
		model_reduce_grad(m);
	differ = (float)(m->here.last &&
			 (memcmp(want->lp, got->lp, sizeof(want->lp)) || got->last != want->last));
	comm_max_f32(&m->mesh->world, &differ, 1);
	double off = backward ? gradients_off(m, one) : 0;
	if (m->mesh->world.rank == 0)
		ok(differ == 0 && off < 1e-6,
		   "%d stages in %ld turns, %ld micro-batches%s: bits of one rank, gradients off "
		   "by %.2g",
		   m->mesh->pp.size, layout_turns(&m->mesh->layout), n, backward ? "" : " forward",
		   off);
	free(want);
	free(got);
}

static void check_stages(long turns, enum recompute recompute)
{
	struct layout l;
	struct mesh mesh;
	struct model m, one;
	struct err e = ERR_INIT;
	long n[4];

	layout_init(&l, 8);
	layout_interleave(&l, world.size, turns);
	if (mesh_init(&mesh, &l, &world, &e))
		die_err(&e);
	load(&m, &mesh);
	load(&one, NULL);
	struct pipeline *p = pipeline_new(&m, ROWS, true, recompute),
			*q = pipeline_new(&one, ROWS, true, false);
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
		check_stages(1, RECOMPUTE_NOTHING);
		check_stages(1, RECOMPUTE_LAYERS);
		for (long turns = 2; world.size > 1 && turns * world.size <= 8; turns++)
			check_stages(turns, (enum recompute)(turns % 3));
	}
	bad = world.rank == 0 ? done() : 0;
	comm_release(&world);
	return bad;
}
