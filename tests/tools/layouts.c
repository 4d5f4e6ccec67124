/*
 * layouts MODEL.json OUT [REFERENCE] [key=value ...]: one update of a model with random weights on sequences of random lengths
 * and masks, in the layout that the recipe keys say: gradients of every parameter, then weights after three updates, as numbers of
 * whole tensors in OUT.  With the OUT of another run as REFERENCE the worst distance between the two, and the tokens whose
 * log-probabilities differ from it in any bit.  One JSON object.
 */
#include "libcommon/file.h"
#include "libcommon/hash.h"
#include "libcommon/pool.h"
#include "libcommon/rng.h"
#include "libcommon/xalloc.h"
#include "tools/train-step/train.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SEQUENCES = 11, LONGEST = 61, STEPS = 3 };

struct run {
	const char *out, *reference;
	struct recipe *r;
	struct mesh mesh;
	struct model_config c;
	struct model m;
	struct trainer t;
	struct lesson lesson[SEQUENCES];
	float *recorded[SEQUENCES];
	long tokens;            /* after the prompts */
	long *first;            /* of each parameter among all numbers */
	long numbers;
	int fd;
};

static long size_of(const struct param *p)
{
	struct box b = box_whole(p->shape, p->rank);

	return box_volume(&b);
}

/* The file: log-probabilities, gradients, weights after the updates. */
static uint64_t place(const struct run *r, int part)
{
	return ((uint64_t)r->tokens + (uint64_t)part * (uint64_t)r->numbers) * sizeof(float);
}

static void make_weights(struct run *r)
{
	struct model *m = &r->m;

	for (long i = 0; i < m->table.n; i++) {
		const struct param *p = m->table.p + i;
		struct box whole = box_whole(p->shape, p->rank);
		float *w = xmalloc((size_t)box_volume(&whole) * sizeof(float)), *part;
		struct rng_key key = rng_key(3, RNG_INIT, hash64(p->name, strlen(p->name)));

		for (long k = 0; k < box_volume(&whole); k++)
			w[k] = (p->rank == 1 ? 1.0f : 0.0f) + 0.8f * (rng_uniform(key, (uint64_t)k, 0, 0) - 0.5f);
		part = xmalloc((size_t)box_volume(m->box + i) * sizeof(float) + 1);
		box_copy(part, m->box + i, w, &whole, m->box + i, sizeof(float));
		model_set(m, i, part, DTYPE_F32);
		free(part);
		free(w);
	}
}

/* A sequence of its number alone: some are one token long, some wholly masked, some learn only from their end. */
static void make_lesson(struct run *r, int i)
{
	struct rng_key key = rng_key(5, RNG_CHECK, (uint64_t)i);
	long n = 2 + (long)(rng_uniform(key, 0, 0, 0) * (LONGEST - 2)), prompt = 1 + (long)(rng_uniform(key, 1, 0, 0) * (float)(n - 1));
	long rest = n - prompt;
	int *ids = xcalloc((size_t)n, sizeof(int));
	float *a = xcalloc((size_t)rest, sizeof(float)), *w = xcalloc((size_t)rest, sizeof(float));
	uint8_t *mask = xcalloc((size_t)rest, 1);

	for (long k = 0; k < n; k++)
		ids[k] = (int)(rng_uniform(key, (uint64_t)k, 1, 0) * (float)r->c.vocab);
	for (long k = 0; k < rest; k++) {
		mask[k] = i % 5 == 3 ? 0 : i % 5 == 4 ? k > rest * 3 / 4 : rng_uniform(key, (uint64_t)k, 2, 0) < 0.8f;
		a[k] = rng_uniform(key, (uint64_t)k, 3, 0) - 0.4f;
		w[k] = mask[k] ? rng_uniform(key, (uint64_t)k, 4, 0) / 20 : 0;
	}
	r->recorded[i] = xcalloc((size_t)rest, sizeof(float));
	r->lesson[i] = (struct lesson){
		.s = { .ids = ids, .n = n, .prompt = prompt, .mask = mask },
		.x = { .n = rest, .prev = r->recorded[i], .gen = r->recorded[i], .advantage = a, .w_policy = w, .w_nll = w },
		.recorded = r->recorded[i],
	};
	r->tokens += rest;
}

/* What a policy of one rank says of the tokens, or said. */
static void know_logprobs(struct run *r)
{
	struct sequence q[SEQUENCES];
	struct err e = ERR_INIT;
	uint64_t at = 0;
	int fd;

	for (int i = 0; i < SEQUENCES; i++)
		q[i] = r->lesson[i].s;
	if (!r->reference) {
		packed_logprobs(&r->m, r->recorded, NULL, q, SEQUENCES, r->r, 1, "log-probabilities");
	} else {
		if ((fd = open(r->reference, O_RDONLY | O_CLOEXEC)) < 0)
			die(EX_NOINPUT, "%s: no such file", r->reference);
		for (int i = 0; i < SEQUENCES; i++) {
			size_t bytes = (size_t)r->lesson[i].x.n * sizeof(float);

			if (file_pread(fd, r->reference, r->recorded[i], bytes, at, &e))
				die_err(&e);
			at += bytes;
		}
		close(fd);
	}
	at = 0;
	for (int i = 0; i < SEQUENCES; i++) {
		size_t bytes = (size_t)r->lesson[i].x.n * sizeof(float);

		if (file_pwrite(r->fd, r->out, r->recorded[i], bytes, at, &e))
			die_err(&e);
		at += bytes;
	}
}

struct rows { const struct run *r; const float *x; uint64_t at; };

static void write_run(void *arg, long offset, long flat, long n)
{
	struct rows *w = arg;
	struct err e = ERR_INIT;

	if (file_pwrite(w->r->fd, w->r->out, w->x + offset, (size_t)n * sizeof(float), w->at + (uint64_t)flat * sizeof(float), &e))
		die_err(&e);
}

/* What this rank owns, of every parameter. */
static void write_part(const struct run *r, int part)
{
	for (long i = 0; i < r->m.table.n; i++) {
		const struct weight *w = r->m.w + i;
		struct rows rows = { r, part ? w->master : w->sum, place(r, part) + (uint64_t)r->first[i] * sizeof(float) };

		if (w->n)
			box_runs(&w->own, &w->own, r->m.table.p[i].shape, write_run, &rows);
	}
}

/* Ranks that hold the same box of a parameter must have the same bits in it. */
static long unlike_copies(struct run *r)
{
	struct held { struct box b; struct digest d; } own, *all = xcalloc((size_t)r->mesh.world.size, sizeof(*all));
	long unlike = 0;

	for (long i = 0; i < r->m.table.n; i++) {
		size_t bytes = (size_t)box_volume(r->m.box + i) * dtype_size(r->m.t);
		void *x = xmalloc(bytes + 1);

		memset(&own, 0, sizeof(own));
		own.b = r->m.box[i];
		if (bytes)
			model_get(&r->m, i, x);
		own.d = hash128(x, bytes);
		comm_gather(&r->mesh.world, all, &own, sizeof(own));
		for (int a = 0; a < r->mesh.world.size; a++)
			for (int b = 0; b < a; b++)
				unlike += !memcmp(&all[a].b, &all[b].b, sizeof(own.b)) && !digest_equal(all[a].d, all[b].d);
		free(x);
	}
	free(all);
	return unlike;
}

static float *read_part(const struct run *r, const char *path, int part)
{
	float *x = xmalloc((size_t)r->numbers * sizeof(float));
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct err e = ERR_INIT;

	if (fd < 0 || file_pread(fd, path, x, (size_t)r->numbers * sizeof(float), place(r, part), &e))
		die_err(&e);
	close(fd);
	return x;
}

static double norm_of(const float *x, const float *y, long n)
{
	double s = 0;

	for (long i = 0; i < n; i++) {
		double d = (double)x[i] - (y ? (double)y[i] : 0);

		s += d * d;
	}
	return sqrt(s);
}

/* The norm of the difference over the norm, but at least 1e-3 of the whole; the worst tensor. */
static double distance(const char **where, const struct run *r, int part)
{
	float *got = read_part(r, r->out, part), *want = read_part(r, r->reference, part);
	double floor = 1e-3 * norm_of(want, NULL, r->numbers), worst = -1;

	for (long i = 0; i < r->m.table.n; i++) {
		long n = size_of(r->m.table.p + i);
		double d = norm_of(got + r->first[i], want + r->first[i], n) / fmax(norm_of(want + r->first[i], NULL, n), floor);

		if (!(d <= worst)) {
			worst = isnan(d) ? INFINITY : d;
			*where = r->m.table.p[i].name;
		}
	}
	free(got);
	free(want);
	return worst;
}

static void say(struct run *r, const struct update_report *u, long unlike)
{
	struct json_out o = { 0 };
	const char *where = NULL;
	char *layout = layout_text(&r->mesh.layout);

	json_begin(&o, '{');
	json_add_str(&o, "layout", layout);
	json_add_real(&o, "loss", u->sums.policy + u->sums.nll);
	json_add_real(&o, "norm", u->grad_norm);
	json_add_int(&o, "tokens", u->tokens);
	json_add_int(&o, "compared", u->compared);
	json_add_int(&o, "different", u->bits_different);
	json_add_int(&o, "unlike_copies", unlike);
	if (r->reference) {
		json_add_real(&o, "gradients", distance(&where, r, 0));
		json_add_str(&o, "worst_gradient", where);
		json_add_real(&o, "weights", distance(&where, r, 1));
		json_add_str(&o, "worst_weight", where);
	}
	json_end(&o);
	puts(o.s.s);
	json_out_release(&o);
	free(layout);
}

static void train(struct run *r)
{
	struct update_report first, u;
	long unlike;

	trainer_init(&r->t, &r->m, r->r, "grpo", (struct counters){ 0 });
	train_update(&first, &r->t, r->lesson, SEQUENCES, false);
	write_part(r, 0);
	for (int i = 0; i < STEPS; i++) {
		train_update(&u, &r->t, r->lesson, SEQUENCES, true);
		trainer_end_step(&r->t, SEQUENCES, 0);
	}
	write_part(r, 1);
	unlike = unlike_copies(r);
	comm_barrier(&r->mesh.world);
	if (start_is_first())
		say(r, &first, unlike);
}

int main(int argc, char **argv)
{
	static struct run r;
	struct json_doc d;
	struct err e = ERR_INIT;
	const struct ops *k;
	int at = 3;

	tool_init(argv[0]);
	if (argc < 3)
		die(EX_USAGE, "usage: layouts MODEL.json OUT [REFERENCE] [key=value ...]");
	r.out = argv[2];
	if (argc > at && !strchr(argv[at], '='))
		r.reference = argv[at++];
	common.threads = 1;
	common.device = "cpu";
	common.overrides.v = (const char **)argv + at;
	common.overrides.n = argc - at;
	r.r = start_recipe();
	if (json_read(&d, argv[1], 0, &e) || model_config_from_json(&r.c, &d, &e))
		die_err(&e);
	k = start_ops();
	start_mesh(&r.mesh, r.r, &r.c);
	if (model_init(&r.m, &r.c, k, &r.mesh, dtype_find(recipe_str(r.r, "policy.precision")), 0,
		       MODEL_TRAIN, &e))
		die_err(&e);
	r.first = xcalloc((size_t)r.m.table.n + 1, sizeof(long));
	for (long i = 0; i < r.m.table.n; i++)
		r.numbers = r.first[i + 1] = r.first[i] + size_of(r.m.table.p + i);
	if ((r.fd = open(r.out, O_RDWR | O_CREAT | O_CLOEXEC, 0666)) < 0)
		die(EX_CANTCREAT, "%s: cannot be made", r.out);
	make_weights(&r);
	for (int i = 0; i < SEQUENCES; i++)
		make_lesson(&r, i);
	know_logprobs(&r);
	train(&r);
	return tool_exit(EX_OK);
}
