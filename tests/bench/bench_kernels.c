/*
 * bench-kernels [ISA] [SECONDS] [THREADS] [NAME] - products and attention of the CPU backend beside
 * this machine's peak
 *
 * Other people's work on the same machine moves the peak within seconds, so each repetition is
 * bracketed by a peak loop (arithmetic in registers), and a share is rate / peak of that moment;
 * medians.  With one thread (0: all CPUs) it is processor time that counts, which being interrupted
 * does not lengthen.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/cpu/backend.h"
#include "kernels/cpu/isa.h"
#include "libcommon/pool.h"
#include "libcommon/xalloc.h"

static double seconds = 0.4;
static const char *only = "";

static double now(void)
{
	struct timespec t;

	clock_gettime(pool_threads() == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#if defined(__x86_64__)
#include <immintrin.h>

#define CHAINS 12
#define LOOP(type, zero, step) \
	do { \
		type c[CHAINS]; \
		for (int j = 0; j < CHAINS; j++) { \
			c[j] = zero; \
			__asm__ volatile("" : "+v"(c[j])); \
		} \
		for (long i = 0; i < n; i++) { \
			_Pragma("GCC unroll 12") for (int j = 0; j < CHAINS; j++) \
			{ \
				c[j] = step; \
			} \
		} \
		for (int j = 0; j < CHAINS; j++) \
			__asm__ volatile("" : : "v"(c[j])); \
	} while (0)

/* Flops of n rounds. */
__attribute__((target("avx512f,avx512bf16"))) static double peak_pairs(long n)
{
	__m512bh a = (__m512bh)_mm512_set1_epi32(0);

	LOOP(__m512, _mm512_setzero_ps(), _mm512_dpbf16_ps(c[j], a, a));
	return 64.0 * CHAINS * (double)n;
}

__attribute__((target("avx512f"))) static double peak_512(long n)
{
	__m512 a = _mm512_setzero_ps();

	LOOP(__m512, _mm512_setzero_ps(), _mm512_fmadd_ps(a, a, c[j]));
	return 32.0 * CHAINS * (double)n;
}

__attribute__((target("avx2,fma"))) static double peak_256(long n)
{
	__m256 a = _mm256_setzero_ps();

	LOOP(__m256, _mm256_setzero_ps(), _mm256_fmadd_ps(a, a, c[j]));
	return 16.0 * CHAINS * (double)n;
}

static double (*peak_loop(enum dtype t))(long)
{
	if (!strcmp(isa_name(), "avx512bf16") && t == DTYPE_BF16)
		return peak_pairs;
	return !strncmp(isa_name(), "avx512", 6) ? peak_512 : peak_256;
}
#else
static double peak_scalar(long n)
{
	volatile float c = 0;

	for (long i = 0; i < n; i++)
		c = c * 1.0f + 0.0f;
	return 2.0 * (double)n;
}

static double (*peak_loop(enum dtype t))(long)
{
	(void)t;
	return peak_scalar;
}
#endif

struct peak {
	double (*loop)(long);
	double flops[64];
};

static void peak_part(void *arg, long i, int thread)
{
	struct peak *p = arg;

	(void)thread;
	p->flops[i] = p->loop(40000);
}

static double peak(enum dtype t)
{
	struct peak p = { .loop = peak_loop(t) };
	double from = now(), all = 0;

	pool_run(peak_part, &p, pool_threads());
	from = now() - from;
	for (int i = 0; i < pool_threads(); i++)
		all += p.flops[i];
	return all / from;
}

static char *stream;
enum { STREAM = 256 << 20 };

static void stream_part(void *arg, long i, int thread)
{
	const uint64_t *p = (const uint64_t *)(void *)(stream + i * (STREAM / 64));
	uint64_t sum[8] = { 0 };

	(void)thread;
	for (long j = 0; j < STREAM / 64 / 8; j += 8)
		for (int l = 0; l < 8; l++)
			sum[l] ^= p[j + l];
	*(uint64_t *)arg = sum[0] ^ sum[1] ^ sum[2] ^ sum[3] ^ sum[4] ^ sum[5] ^ sum[6] ^ sum[7];
}

static double bandwidth(void)
{
	uint64_t sink;
	double from = now();

	pool_run(stream_part, &sink, 64);
	return STREAM / (now() - from);
}

struct job {
	const char *name;
	void (*run)(void *);
	void *arg;
	double flops, bytes;
	enum dtype t;
};

static int by_size(const void *a, const void *b)
{
	double d = *(const double *)a - *(const double *)b;

	return (d > 0) - (d < 0);
}

static void measure(const struct job *j)
{
	enum { MOST = 200 };
	double rate[MOST], share[MOST], end = now() + seconds, best = j->bytes ? bandwidth() : 0;
	int n = 0;

	if (strncmp(j->name, only, strlen(only)))
		return;
	j->run(j->arg);
	while (n < MOST && (n < 3 || now() < end)) {
		double before = j->bytes ? bandwidth() : peak(j->t), from = now(), spent, after;

		j->run(j->arg);
		spent = now() - from;
		after = j->bytes ? bandwidth() : peak(j->t);
		rate[n] = (j->bytes ? j->bytes : j->flops) / spent / 1e9;
		share[n] = rate[n] * 2e9 / (before + after);
		n++;
		best = after > best ? after : best;
	}
	qsort(rate, (size_t)n, sizeof(*rate), by_size);
	qsort(share, (size_t)n, sizeof(*share), by_size);
	printf("%-44s %8.1f %8.1f %s  %5.1f %%\n", j->name, rate[n / 2], rate[n - 1],
	       j->bytes ? "GB/s" : "GF/s", 100 * share[n / 2]);
	fflush(stdout);
}

struct linear {
	struct matrix w;
	void *x, *y;
	float *dw;
	long m;
};

static void run_fwd(void *arg)
{
	struct linear *l = arg;

	linear_fwd_cpu(l->y, l->w.t, l->x, &l->w, NULL, l->m);
}

static void run_dx(void *arg)
{
	struct linear *l = arg;

	linear_dx_cpu(l->x, l->w.t, l->y, &l->w, l->m, false);
}

static void run_dw(void *arg)
{
	struct linear *l = arg;

	linear_dw_cpu(l->dw, NULL, l->y, l->x, l->m, l->w.n, l->w.k, l->w.t);
}

static void run_load(void *arg)
{
	struct linear *l = arg;

	matrix_load_cpu(&l->w, l->dw);
}

static void *numbers(long n, enum dtype t)
{
	uint32_t seed = 1;
	void *p = big_alloc((size_t)n * dtype_size(t), "numbers");

	for (long i = 0; i < n; i++) {
		seed = seed * 1664525 + 1013904223;
		float f = (float)(seed >> 8) / (1 << 23) - 1;
		if (t == DTYPE_BF16)
			((uint16_t *)p)[i] = f32_to_bf16(f);
		else
			((float *)p)[i] = f;
	}
	return p;
}

static void linear(long n, long k, long chunks, enum dtype t)
{
	static const long rows[] = { 2048, 32, 8, 1 };
	struct linear l = { .x = numbers(2048 * k, t), .y = numbers(2048 * n, t) };
	void *w = numbers(n * k, t);
	char name[100];

	matrix_init_cpu(&l.w, t, n, k, chunks, true);
	matrix_load_cpu(&l.w, w);
	l.dw = big_alloc((size_t)(n * k) * 4, "dw");
	for (int i = 0; i < 4; i++) {
		double flops = 2.0 * (double)rows[i] * (double)n * (double)k;

		l.m = rows[i];
		snprintf(name, sizeof(name), "y  M=%ld K=%ld N=%ld chunks=%ld", l.m, k, n, chunks);
		measure(&(struct job){ name, run_fwd, &l, flops,
				       l.m < 8 ? (double)l.w.fwd_bytes : 0, t });
		if (i)
			continue;
		snprintf(name, sizeof(name), "dx M=%ld K=%ld N=%ld", l.m, k, n);
		measure(&(struct job){ name, run_dx, &l, flops, 0, t });
		snprintf(name, sizeof(name), "dw M=%ld K=%ld N=%ld", l.m, k, n);
		measure(&(struct job){ name, run_dw, &l, flops, 0, t });
	}
	snprintf(name, sizeof(name), "load both forms K=%ld N=%ld", k, n);
	measure(&(struct job){ name, run_load, &l, 0, (double)(l.w.fwd_bytes + l.w.bwd_bytes), t });
	matrix_release_cpu(&l.w);
	big_free(w);
	big_free(l.x);
	big_free(l.y);
	big_free(l.dw);
}

struct attention {
	struct attention_shape s;
	enum dtype t;
	void *q, *k, *v, *out, *dq, *dk, *dv;
	float *lse;
	const struct attention_piece *piece;
	long nseq;
	struct kv_row *row;
};

static void run_attention(void *arg)
{
	struct attention *a = arg;

	attention_fwd_cpu(a->out, a->lse, a->q, a->k, a->v, a->piece, a->nseq, &a->s, a->t);
}

static void run_attention_bwd(void *arg)
{
	struct attention *a = arg;

	attention_bwd_cpu(a->dq, a->dk, a->dv, a->t, a->q, a->out, a->lse, a->q, a->k, a->v, a->piece,
			  a->nseq, &a->s, a->t);
}

static void run_decode(void *arg)
{
	struct attention *a = arg;

	attention_cached_cpu(a->out, a->q, a->row, a->nseq, &a->s, a->t);
}

static void decode(struct attention *a, long context)
{
	long pages = (context + 63) / 64, bytes = (long)kv_page_bytes_cpu(&a->s, a->t);
	char *memory = big_alloc((size_t)(a->nseq * pages * bytes), "pages"), name[100];
	void **page = xmalloc((size_t)(a->nseq * pages) * sizeof(void *));

	a->row = xmalloc((size_t)a->nseq * sizeof(*a->row));
	for (long i = 0; i < a->nseq * pages; i++)
		page[i] = memory + i * bytes;
	for (long i = 0; i < a->nseq; i++)
		a->row[i] = (struct kv_row){ page + i * pages, context - 1 };
	snprintf(name, sizeof(name), "decode %ld x %ld, heads %ld/%ld of %ld", a->nseq, context,
		 a->s.heads, a->s.kv_heads, a->s.head_dim);
	measure(&(struct job){ name, run_decode, a, 0, (double)(a->nseq * pages * bytes), a->t });
	free(a->row);
	free(page);
	big_free(memory);
}

static void attention(long heads, long kv_heads, long d, enum dtype t)
{
	static const struct attention_piece one[] = { { 0, 2048, 0, 2048 } };
	static const struct attention_piece four[] = {
		{ 0, 512, 0, 512 }, { 512, 512, 512, 512 }, { 1024, 512, 1024, 512 }, { 1536, 512, 1536, 512 }
	};
	long n = 2048 * heads * d, nk = 2048 * kv_heads * d;
	struct attention a = {
		{ heads, kv_heads, d, 0.125f },
		t,
		numbers(n, t),
		numbers(nk, t),
		numbers(nk, t),
		numbers(n, t),
		numbers(n, t),
		numbers(nk, t),
		numbers(nk, t),
		big_alloc((size_t)(2048 * heads) * 4, "lse"),
		one,
		1,
		NULL,
	};
	char name[100];

	for (int i = 0; i < 2; i++) {
		double pairs = i ? 4 * 512.0 * 513 / 2 : 2048.0 * 2049 / 2,
		       flops = 4 * pairs * (double)(heads * d);

		a.piece = i ? four : one;
		a.nseq = i ? 4 : 1;
		snprintf(name, sizeof(name), "attention %ld x %d, heads %ld/%ld of %ld", a.nseq,
			 i ? 512 : 2048, heads, kv_heads, d);
		measure(&(struct job){ name, run_attention, &a, flops, 0, t });
		snprintf(name, sizeof(name), "backward  %ld x %d (as 2.5 forwards)", a.nseq,
			 i ? 512 : 2048);
		measure(&(struct job){ name, run_attention_bwd, &a, 2.5 * flops, 0, t });
	}
	a.nseq = 32;
	decode(&a, 512);
	a.nseq = 1;
	decode(&a, 16384);
}

int main(int argc, char **argv)
{
	struct err e = ERR_INIT;

	tool_init(argv[0]);
	if (isa_choose(argc > 1 ? argv[1] : NULL, &e))
		die_err(&e);
	if (argc > 2)
		seconds = atof(argv[2]);
	pool_start(argc > 3 ? atoi(argv[3]) : 0);
	if (argc > 4)
		only = argv[4];
	stream = big_alloc(STREAM, "stream");
	for (int i = 1; i >= 0; i--) {
		enum dtype t = i ? DTYPE_BF16 : DTYPE_F32;

		printf("%s %s, %d threads: peak %.0f GF/s, reading %.1f GB/s\n%-44s   median     "
		       "best       of peak\n",
		       isa_name(), dtype_name(t), pool_threads(), peak(t) / 1e9, bandwidth() / 1e9,
		       "");
		linear(576, 576, 8, t);
		linear(1536, 576, 1, t);
		linear(576, 1536, 8, t);
		linear(49152, 576, 1, t);
		attention(9, 3, 64, t);
	}
	return tool_exit(EX_OK);
}
