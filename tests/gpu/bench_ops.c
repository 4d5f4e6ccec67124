/* bench_ops [--tiny]: each op of the CUDA backend beside its floor (tests/gpu/measure.h), with the
 * shapes of an 8B model. */
#include "tests/gpu/measure.h"

#include <math.h>
#include <stdarg.h>

static long T, H, I, HEADS, KV, D, V; /* rows; the model's sizes */

static char *name_of(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static char *name_of(const char *fmt, ...)
{
	static char text[128];
	va_list a;

	va_start(a, fmt);
	vsnprintf(text, sizeof(text), fmt, a);
	va_end(a);
	return text;
}

static void rows(void)
{
	void *x = values(T * H, DTYPE_BF16, 1), *y = values(T * H, DTYPE_BF16, 1),
	     *w = values(H, DTYPE_BF16, 1);
	float *rstd = k->alloc((size_t)T * 4, "rstd"), *dw = k->alloc((size_t)H * 4, "dw");
	double n = (double)(T * H);
	int *position = xmalloc((size_t)T * sizeof(int)), *ids = xmalloc((size_t)T * sizeof(int));
	float *table = values(T * D / 2, DTYPE_F32, 1),
	      *grad = k->alloc((size_t)(T * H) * 4, "a gradient");

	for (long i = 0; i < T; i++) {
		position[i] = (int)i;
		ids[i] = (int)(i * 37 % T);
	}
	report(name_of("rmsnorm forward %ld x %ld", T, H),
	       SECONDS(k->rmsnorm_fwd(y, rstd, x, w, T, H, 1e-5f, DTYPE_BF16)), 4 * n, 0);
	report(name_of("rmsnorm backward %ld x %ld", T, H),
	       SECONDS(k->rmsnorm_bwd(y, dw, x, x, w, rstd, T, H, true, DTYPE_BF16)), 8 * n, 0);
	report(name_of("residual add %ld x %ld", T, H), SECONDS(k->add(y, x, y, T * H, DTYPE_BF16)),
	       6 * n, 0);
	report(name_of("rope %ld x %ld", T, H),
	       SECONDS(k->rope(x, position, table, table, T, H / D, D, false, DTYPE_BF16)), 4 * n,
	       0);
	report(name_of("embedding %ld x %ld", T, H),
	       SECONDS(k->embed_fwd(y, x, ids, T, H, DTYPE_BF16)), 4 * n, 0);
	report(name_of("embedding backward %ld x %ld", T, H),
	       SECONDS(k->embed_bwd(grad, x, ids, T, H, DTYPE_BF16)), 10 * n, 0);
	k->release(x);
	k->release(y);
	k->release(w);
	k->release(rstd);
	k->release(dw);
	k->release(table);
	k->release(grad);
	free(position);
	free(ids);
	x = values(T * I, DTYPE_BF16, 1);
	y = values(T * I, DTYPE_BF16, 1);
	w = values(T * I, DTYPE_BF16, 1);
	report(name_of("swiglu %ld x %ld", T, I),
	       SECONDS(k->swiglu_fwd(w, x, y, T * I, DTYPE_BF16)), 6 * (double)(T * I), 0);
	report(name_of("swiglu backward %ld x %ld", T, I),
	       SECONDS(k->swiglu_bwd(w, y, w, x, y, T * I, DTYPE_BF16)), 10 * (double)(T * I), 0);
	k->release(x);
	k->release(y);
	k->release(w);
}

static void products(long n, long in)
{
	void *rows_of = values(n * in, DTYPE_BF16, 0.02f), *x = values(T * in, DTYPE_BF16, 1),
	     *y = values(T * n, DTYPE_BF16, 1);
	float *dw = k->alloc((size_t)(n * in) * 4, "dw");
	double flops = 2. * (double)T * (double)(n * in),
	       all = 2 * (double)(n * in + T * in + T * n);
	static const long few[] = {1, 4, 16, 64};
	struct matrix w;

	k->matrix_init(&w, DTYPE_BF16, n, in, 1, true);
	k->matrix_load(&w, rows_of);
	report(name_of("linear %ld x %ld to %ld", T, in, n),
	       SECONDS(k->linear_fwd(y, DTYPE_BF16, x, &w, NULL, T)), all, flops);
	report(name_of("dx %ld x %ld to %ld", T, n, in),
	       SECONDS(k->linear_dx(x, DTYPE_BF16, y, &w, T, false)), all, flops);
	report(name_of("dw %ld x %ld, %ld rows", n, in, T),
	       SECONDS(k->linear_dw(dw, NULL, y, x, T, n, in, DTYPE_BF16)),
	       all + 6 * (double)(n * in), flops);
	for (int i = 0; i < 4; i++) {
		double m = (double)few[i];

		if (few[i] <= T)
			report(name_of("linear %ld x %ld to %ld", few[i], in, n),
			       SECONDS(k->linear_fwd(y, DTYPE_BF16, x, &w, NULL, few[i])),
			       2 * ((double)(n * in) + m * (double)(n + in)),
			       2 * m * (double)(n * in));
	}
	report(name_of("weights made ready %ld x %ld", n, in), SECONDS(k->matrix_load(&w, rows_of)),
	       6 * (double)(n * in), 0);
	k->matrix_release(&w);
	k->release(rows_of);
	k->release(x);
	k->release(y);
	k->release(dw);
}

/* Sequences of `each` rows: half of the pairs of a square, 4 D flops a pair and head, 10 in the
 * backward pass. */
static void attention(long each, long d)
{
	struct attention_shape s = {HEADS, KV, d, (float)(1 / sqrt((double)d))};
	void *q = values(T * HEADS * d, DTYPE_BF16, 1), *key = values(T * KV * d, DTYPE_BF16, 1),
	     *v = values(T * KV * d, DTYPE_BF16, 1);
	void *out = values(T * HEADS * d, DTYPE_BF16, 1),
	     *dq = values(T * HEADS * d, DTYPE_BF16, 1);
	void *dk = values(T * KV * d, DTYPE_BF16, 1), *dv = values(T * KV * d, DTYPE_BF16, 1);
	float *lse = k->alloc((size_t)(T * HEADS) * 4, "lse");
	struct attention_piece *piece = xmalloc((size_t)(T / each) * sizeof(*piece));
	double pairs = (double)T * (double)(each + 1) / 2 * (double)(HEADS * d),
	       bytes = 2. * (double)(T * (2 * HEADS + 2 * KV) * d);

	for (long i = 0; i < T / each; i++)
		piece[i] = (struct attention_piece){i * each, each, i * each, each};
	report(name_of("attention, %ld of %ld, head %ld", T / each, each, d),
	       SECONDS(k->attention_fwd(out, lse, q, key, v, piece, T / each, &s, DTYPE_BF16)),
	       bytes, 4 * pairs);
	report(name_of("attention backward, %ld of %ld, head %ld", T / each, each, d),
	       SECONDS(k->attention_bwd(dq, dk, dv, DTYPE_BF16, out, out, lse, q, key, v, piece,
					T / each, &s, DTYPE_BF16)),
	       2 * bytes, 10 * pairs);
	k->release(q);
	k->release(key);
	k->release(v);
	k->release(out);
	k->release(dq);
	k->release(dk);
	k->release(dv);
	k->release(lse);
	free(piece);
}

static void cached(long seqs, long keys)
{
	struct attention_shape s = {HEADS, KV, D, (float)(1 / sqrt((double)D))};
	size_t page = k->kv_page_bytes(&s, DTYPE_BF16);
	long pages = (keys + ATTENTION_TILE - 1) / ATTENTION_TILE, n = seqs * pages;
	char *memory = values(n * (long)page / 2, DTYPE_BF16, 1);
	void **at = xmalloc((size_t)n * sizeof(*at)), *q = values(seqs * HEADS * D, DTYPE_BF16, 1),
	     *out = values(seqs * HEADS * D, DTYPE_BF16, 1);
	struct kv_row *row = xmalloc((size_t)seqs * sizeof(*row));

	for (long i = 0; i < n; i++)
		at[i] = memory + (size_t)i * page;
	for (long i = 0; i < seqs; i++)
		row[i] = (struct kv_row){at + i * pages, keys - 1};
	report(name_of("decode attention, %ld of %ld keys", seqs, keys),
	       SECONDS(k->attention_cached(out, q, row, seqs, &s, DTYPE_BF16)),
	       4. * (double)(seqs * keys * KV * D), 4. * (double)(seqs * keys * HEADS * D));
	k->release(memory);
	k->release(q);
	k->release(out);
	free(at);
	free(row);
}

static void head(void)
{
	long n = tiny ? 4 : 512, draws = tiny ? 2 : 64;
	float *z = values(n * V, DTYPE_F32, 4), *lp = xmalloc((size_t)n * 8), *lse = lp + n;
	void *dz = values(n * V, DTYPE_BF16, 1);
	int *target = xmalloc((size_t)n * sizeof(int));
	struct sample_row *how = xmalloc((size_t)draws * sizeof(*how));
	double bytes = 4. * (double)(n * V);

	for (long i = 0; i < n; i++)
		target[i] = (int)(i * 31 % V);
	report(name_of("log-probabilities %ld x %ld", n, V),
	       SECONDS(k->logprob(lp, lse, NULL, z, target, n, V, 1)), bytes, 0);
	report(name_of("log-probabilities backward %ld x %ld", n, V),
	       SECONDS(k->logprob_bwd(dz, lp, lse, z, target, n, V, 1, DTYPE_BF16)), 1.5 * bytes,
	       0);
	for (int i = 0; i < 3; i++) {
		for (long r = 0; r < draws; r++)
			how[r] = (struct sample_row){.u = 0.37f,
						     .temperature = i ? 1 : 0,
						     .top_p = i == 2 ? 0.9f : 1,
						     .top_k = i == 2 ? 50 : 0};
		report(name_of("sampling, %ld rows, %s", draws,
			       i == 0	? "greedy"
			       : i == 1 ? "temperature"
					: "top-k and top-p"),
		       SECONDS(k->sample(target, lp, z, how, NULL, draws, V)),
		       4. * (double)(draws * V), 0);
	}
	k->release(z);
	k->release(dz);
	free(lp);
	free(target);
	free(how);
}

static void optimizer(void)
{
	long n = tiny ? 5000 : 256l << 20;
	struct adamw h = {.lr = 1e-6f,
			  .beta1 = 0.9f,
			  .beta2 = 0.999f,
			  .eps = 1e-8f,
			  .weight_decay = 0.01f,
			  .bias1 = 0.1f,
			  .bias2 = 0.001f,
			  .grad_scale = 1,
			  .rest1 = 0.1f,
			  .rest2 = 0.001f};
	float *w = values(n, DTYPE_F32, 1), *m = values(n, DTYPE_F32, 1),
	      *v = k->alloc((size_t)n * 4, "v"), *g = values(n, DTYPE_F32, 1);
	uint16_t *low = k->alloc((size_t)n * 2, "low");

	report(name_of("AdamW of %ld", n), SECONDS(k->adamw(w, m, v, low, g, n, &h)),
	       30. * (double)n, 0);
	report(name_of("sum of squares of %ld", n), SECONDS(k->sumsq(g, n)), 4. * (double)n, 0);
	k->release(w);
	k->release(m);
	k->release(v);
	k->release(g);
	k->release(low);
}

static void experts(void)
{
	long E = tiny ? 4 : 64, top = tiny ? 2 : 8, width = tiny ? 40 : 1408, slots = T * top;
	struct routing s = {E, top, true};
	struct matrix *w = xcalloc((size_t)E, sizeof(*w));
	void *one = values(width * H, DTYPE_BF16, 0.02f), *x = values(T * H, DTYPE_BF16, 1),
	     *xs = values(slots * H, DTYPE_BF16, 1);
	void *y = values(slots * width, DTYPE_BF16, 1);
	float *z = values(T * E, DTYPE_F32, 1), *weight = values(slots, DTYPE_F32, 1),
	      *lse = values(T, DTYPE_F32, 1), *p = values(T * E, DTYPE_F32, 1);
	float *o = values(slots * H, DTYPE_F32, 1),
	      *dw = k->alloc((size_t)(E * width * H) * 4, "dw");
	int *id = k->alloc((size_t)slots * 12, "ids"), *from = id + slots, *place = from + slots;
	long *offset = xcalloc((size_t)E + 1, sizeof(long));
	double flops = 2. * (double)slots * (double)(width * H),
	       moved = 2 * (double)(slots * (H + width) + E * width * H);

	for (long e = 0; e < E; e++) {
		k->matrix_init(w + e, DTYPE_BF16, width, H, 1, true);
		k->matrix_load(w + e, one);
	}
	report(name_of("route %ld rows, %ld of %ld", T, top, E),
	       SECONDS(k->route(id, weight, p, lse, z, T, &s, false)),
	       8. * (double)(T * E) + 8. * (double)slots, 0);
	k->route(id, weight, p, lse, z, T, &s, false);
	report("sort slots", SECONDS(k->sort_slots(offset, from, place, id, T, &s)),
	       12. * (double)slots, 0);
	report("permute", SECONDS(k->permute(xs, x, from, slots, H, DTYPE_BF16)),
	       4. * (double)(slots * H), 0);
	report(name_of("experts %ld slots x %ld to %ld", slots, H, width),
	       SECONDS(k->grouped_fwd(y, DTYPE_BF16, xs, w, offset, E)), moved, flops);
	report("experts, dx", SECONDS(k->grouped_dx(xs, DTYPE_BF16, y, w, offset, E, false)), moved,
	       flops);
	report("experts, dw", SECONDS(k->grouped_dw(dw, y, xs, offset, E, width, H, DTYPE_BF16)),
	       moved + 6 * (double)(E * width * H), flops);
	report("combine",
	       SECONDS(k->combine(x, o, place, weight, NULL, NULL, T, top, H, DTYPE_BF16)),
	       (double)(slots * H * 4 + T * H * 2), 0);
	for (long e = 0; e < E; e++)
		k->matrix_release(w + e);
	k->release(one);
	k->release(x);
	k->release(xs);
	k->release(y);
	k->release(z);
	k->release(weight);
	k->release(lse);
	k->release(p);
	k->release(o);
	k->release(dw);
	k->release(id);
	free(w);
	free(offset);
}

int main(int argc, char **argv)
{
	measure_start(argc, argv);
	T = tiny ? 48 : 8192;
	H = tiny ? 64 : 4096;
	I = tiny ? 96 : 14336;
	HEADS = tiny ? 4 : 32;
	KV = tiny ? 2 : 8;
	D = tiny ? 16 : 128;
	V = tiny ? 300 : 128256;
	printf("copy\t\t%.3g TB/s\t\t\n", copy_rate / 1e12);
	printf("rate of products that floors stand on\t\t%.3g TFLOP/s\t\t\n", matrix_rate / 1e12);
	rows();
	products(H, H);
	products(I, H);
	products(H, I);
	attention(T, D);
	attention(T / 4, D);
	attention(T / 4, D / 2);
	cached(tiny ? 3 : 64, tiny ? 70 : 4096);
	cached(1, tiny ? 70 : 16384);
	head();
	optimizer();
	experts();
	return 0;
}
