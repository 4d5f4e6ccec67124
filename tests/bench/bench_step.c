/*
 * bench-step [STEPS] [THREADS] [ROWS SEQUENCES] - where the time of a train-step goes: SmolLM2's shape in bfloat16, random
 * weights, two micro-batches of ROWS tokens in SEQUENCES equal sequences (1,024 in 4), no files
 *
 * Each op of the backend is called through a clock: seconds of processors, which other work on the machine lengthens less,
 * and seconds by the clock.  The first step touches memory and does not count.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/model/model.h"
#include "libcommon/hash.h"
#include "libcommon/json.h"
#include "libcommon/pool.h"
#include "libcommon/xalloc.h"

static const char shape[] =
	"{\"model_type\": \"llama\", \"vocab_size\": 49152, \"hidden_size\": 576, \"intermediate_size\": 1536,"
	" \"num_hidden_layers\": 30, \"num_attention_heads\": 9, \"num_key_value_heads\": 3, \"max_position_embeddings\": 8192,"
	" \"rms_norm_eps\": 1e-5, \"rope_theta\": 100000.0, \"tie_word_embeddings\": true}";

enum what { FWD, HEAD_FWD, DX, HEAD_DX, DW, HEAD_DW, ATT_FWD, ATT_BWD, NORMS, ROPE, SWIGLU, ADD, EMBED, LOGPROB, LOGPROB_BWD,
	    LOAD, ADAMW, SUMSQ, WHATS };
static const char *const names[WHATS] = {
	"y, layers", "y, head", "dx, layers", "dx, head", "dW, layers", "dW, head", "attention", "attention backward", "norms",
	"rope", "swiglu", "residual adds", "embedding", "logprob", "logprob backward", "packing weights", "AdamW", "norm of gradients",
};
static struct { double cpu, wall, flops; long calls; } spent[WHATS];
static const struct ops *inner;

static double now(clockid_t which)
{
	struct timespec t;

	clock_gettime(which, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#define TIMED(place, work, call) \
	do { \
		enum what w_ = (place); \
		double cpu_ = now(CLOCK_PROCESS_CPUTIME_ID), wall_ = now(CLOCK_MONOTONIC); \
		call; \
		spent[w_].cpu += now(CLOCK_PROCESS_CPUTIME_ID) - cpu_; \
		spent[w_].wall += now(CLOCK_MONOTONIC) - wall_; \
		spent[w_].flops += (work); \
		spent[w_].calls++; \
	} while (0)

static void fwd(void *y, enum dtype ty, const void *x, const struct matrix *w, const void *bias, long m)
{
	TIMED(ty == DTYPE_F32 ? HEAD_FWD : FWD, 2.0 * (double)(m * w->n * w->k), inner->linear_fwd(y, ty, x, w, bias, m));
}

static void dx(void *d, enum dtype tx, const void *dy, const struct matrix *w, long m, bool add)
{
	TIMED(w->n > 8192 ? HEAD_DX : DX, 2.0 * (double)(m * w->n * w->k), inner->linear_dx(d, tx, dy, w, m, add));
}

static void dw(float *d, float *dbias, const void *dy, const void *x, long m, long n, long k, enum dtype t)
{
	TIMED(n > 8192 ? HEAD_DW : DW, 2.0 * (double)(m * n * k), inner->linear_dw(d, dbias, dy, x, m, n, k, t));
}

static double pairs(const struct attention_piece *p, long n, const struct attention_shape *s)
{
	double all = 0;

	for (long i = 0; i < n; i++)
		all += (double)(p[i].n * (2 * p[i].keys - p[i].n + 1) / 2);
	return all * (double)(s->heads * s->head_dim);
}

static void att(void *out, float *lse, const void *q, const void *k, const void *v, const struct attention_piece *p, long n,
		const struct attention_shape *s, enum dtype t)
{
	TIMED(ATT_FWD, 4 * pairs(p, n, s), inner->attention_fwd(out, lse, q, k, v, p, n, s, t));
}

static void att_bwd(void *dq, void *dk, void *dv, enum dtype tkv, const void *dout, const void *out, const float *lse, const void *q,
		    const void *k, const void *v, const struct attention_piece *p, long n, const struct attention_shape *s, enum dtype t)
{
	TIMED(ATT_BWD, 10 * pairs(p, n, s), inner->attention_bwd(dq, dk, dv, tkv, dout, out, lse, q, k, v, p, n, s, t));
}

static void norm(void *y, float *rstd, const void *x, const void *w, long rows, long cols, float eps, enum dtype t)
{
	TIMED(NORMS, 0, inner->rmsnorm_fwd(y, rstd, x, w, rows, cols, eps, t));
}

static void norm_bwd(void *d, float *dweight, const void *dy, const void *x, const void *w, const float *rstd, long rows, long cols,
		     bool add, enum dtype t)
{
	TIMED(NORMS, 0, inner->rmsnorm_bwd(d, dweight, dy, x, w, rstd, rows, cols, add, t));
}

static void rope(void *x, const int *position, const float *c, const float *s, long rows, long heads, long d, bool inverse,
		 enum dtype t)
{
	TIMED(ROPE, 0, inner->rope(x, position, c, s, rows, heads, d, inverse, t));
}

static void swiglu(void *y, const void *g, const void *u, long n, enum dtype t)
{
	TIMED(SWIGLU, 0, inner->swiglu_fwd(y, g, u, n, t));
}

static void swiglu_bwd(void *dg, void *du, const void *dy, const void *g, const void *u, long n, enum dtype t)
{
	TIMED(SWIGLU, 0, inner->swiglu_bwd(dg, du, dy, g, u, n, t));
}

static void add(void *y, const void *a, const void *b, long n, enum dtype t)
{
	TIMED(ADD, 0, inner->add(y, a, b, n, t));
}

static void embed(void *y, const void *table, const int *ids, long rows, long hidden, enum dtype t)
{
	TIMED(EMBED, 0, inner->embed_fwd(y, table, ids, rows, hidden, t));
}

static void embed_bwd(float *d, const void *dy, const int *ids, long rows, long hidden, enum dtype t)
{
	TIMED(EMBED, 0, inner->embed_bwd(d, dy, ids, rows, hidden, t));
}

static void logprob(float *lp, float *lse, float *entropy, const float *z, const int *target, long rows, long V, float temperature)
{
	TIMED(LOGPROB, 0, inner->logprob(lp, lse, entropy, z, target, rows, V, temperature));
}

static void logprob_bwd(void *dz, const float *dlp, const float *lse, const float *z, const int *target, long rows, long V,
			float temperature, enum dtype t)
{
	TIMED(LOGPROB_BWD, 0, inner->logprob_bwd(dz, dlp, lse, z, target, rows, V, temperature, t));
}

static void matrix_load(struct matrix *w, const void *rows)
{
	TIMED(LOAD, 0, inner->matrix_load(w, rows));
}

static void adamw(float *w, float *m, float *v, uint16_t *low, const float *g, long n, const struct adamw *h)
{
	TIMED(ADAMW, 0, inner->adamw(w, m, v, low, g, n, h));
}

static double sumsq(const float *x, long n)
{
	double s;

	TIMED(SUMSQ, 0, s = inner->sumsq(x, n));
	return s;
}

static struct ops clocks(const struct ops *k)
{
	struct ops o = *k;

	inner = k;
	o.linear_fwd = fwd;
	o.linear_dx = dx;
	o.linear_dw = dw;
	o.attention_fwd = att;
	o.attention_bwd = att_bwd;
	o.rmsnorm_fwd = norm;
	o.rmsnorm_bwd = norm_bwd;
	o.rope = rope;
	o.swiglu_fwd = swiglu;
	o.swiglu_bwd = swiglu_bwd;
	o.add = add;
	o.embed_fwd = embed;
	o.embed_bwd = embed_bwd;
	o.logprob = logprob;
	o.logprob_bwd = logprob_bwd;
	o.matrix_load = matrix_load;
	o.adamw = adamw;
	o.sumsq = sumsq;
	return o;
}

static void fill(struct model *m)
{
	for (long i = 0; i < m->table.n; i++) {
		const struct param *p = m->table.p + i;
		float *w;
		long n = 1;

		for (int d = 0; d < p->rank; d++)
			n *= p->shape[d];
		w = big_alloc((size_t)n * 4, "a parameter");
		param_init_random(w, p, &m->table.config, 1);
		model_set(m, i, w, DTYPE_F32);
		big_free(w);
	}
}

static void step(struct model *m, struct pass *p, const struct batch *b, const int *target, float *lp, float *dlp)
{
	struct adamw h = { .lr = 1e-6f, .beta1 = 0.9f, .beta2 = 0.999f, .eps = 1e-8f, .weight_decay = 0.01f, .bias1 = 0.1f,
			   .bias2 = 0.001f, .grad_scale = 1, .rest1 = 0.1f, .rest2 = 0.001f };

	model_zero_grad(m);
	for (int i = 0; i < 2; i++) {
		pass_forward(p, b);
		pass_logprobs(p, lp, NULL, target, 1);
		pass_backward(p, dlp);
	}
	model_reduce_grad(m);
	if (model_grad_norm(m) > 0)
		model_adamw(m, &h);
}

static void report(double cpu, double wall, long steps, long rows)
{
	double known = 0;

	for (int i = 0; i < WHATS; i++)
		known += spent[i].cpu;
	printf("%-22s %8s %9s %9s %7s %9s\n", "a step", "calls", "cpu ms", "clock ms", "share", "GF/s cpu");
	for (int i = 0; i < WHATS; i++) {
		printf("%-22s %8ld %9.1f %9.1f %6.1f%%", names[i], spent[i].calls / steps, 1e3 * spent[i].cpu / (double)steps,
		       1e3 * spent[i].wall / (double)steps, 100 * spent[i].cpu / cpu);
		if (spent[i].flops > 0)
			printf(" %9.1f", spent[i].flops / spent[i].cpu / 1e9);
		printf("\n");
	}
	printf("%-22s %8s %9.1f %9s %6.1f%%\n", "the rest", "", 1e3 * (cpu - known) / (double)steps, "", 100 * (cpu - known) / cpu);
	printf("%.0f tokens/s by the clock, %.0f by time of processors\n", (double)(2 * rows * steps) / wall,
	       (double)(2 * rows * steps * pool_threads()) / cpu);
}

/* Two builds, or numbers of threads, that print the same have the same weights to the bit. */
static void print_digest(const struct model *m)
{
	struct digest all = { 0, 0 };
	char hex[33];

	for (long i = 0; i < m->table.n; i++)
		all = digest_add(all, digest_elements(m->w[i].master, (size_t)m->w[i].n, 4, 0, (uint64_t)i));
	printf("masters %s\n", digest_hex(hex, all));
}

int main(int argc, char **argv)
{
	long steps = argc > 1 ? atol(argv[1]) : 2, rows = argc > 4 ? atol(argv[3]) : 1024, nseq = argc > 4 ? atol(argv[4]) : 4;
	struct model_config c;
	struct json_doc d;
	struct model m;
	struct err e = ERR_INIT;
	struct ops k;
	const struct ops *cpu = ops_find("cpu", NULL, &e);
	int *ids = xmalloc((size_t)rows * sizeof(*ids)), *target = xmalloc((size_t)rows * sizeof(*target));
	float *lp = xmalloc((size_t)rows * sizeof(*lp)), *dlp = xmalloc((size_t)rows * sizeof(*dlp));
	long *cu = xmalloc((size_t)(nseq + 1) * sizeof(*cu));
	struct batch b = { .rows = rows, .ids = ids, .nseq = nseq, .cu = cu };
	double on_cpu = 0, wall = 0;
	struct pass *p;

	tool_init(argv[0]);
	pool_start(argc > 2 ? atoi(argv[2]) : 0);
	if (!cpu || json_parse(&d, shape, sizeof(shape) - 1, "shape", 0, &e) || model_config_from_json(&c, &d, &e))
		die_err(&e);
	k = clocks(cpu);
	if (model_init(&m, &c, &k, NULL, DTYPE_BF16, 0, MODEL_TRAIN, &e))
		die_err(&e);
	fill(&m);
	for (long i = 0; i < rows; i++) {
		ids[i] = (int)(i * i * 31 % 49152);
		target[i] = (int)(i * 17 % 49152);
		dlp[i] = -1.f / (float)(2 * rows);
	}
	for (long i = 0; i <= nseq; i++)
		cu[i] = rows * i / nseq;
	p = pass_new(&m, rows, true, false);
	for (long i = -1; i < steps; i++) {
		if (i == 0) {
			memset(spent, 0, sizeof(spent));
			on_cpu = now(CLOCK_PROCESS_CPUTIME_ID);
			wall = now(CLOCK_MONOTONIC);
		}
		step(&m, p, &b, target, lp, dlp);
	}
	report(now(CLOCK_PROCESS_CPUTIME_ID) - on_cpu, now(CLOCK_MONOTONIC) - wall, steps, rows);
	print_digest(&m);
	return tool_exit(EX_OK);
}
