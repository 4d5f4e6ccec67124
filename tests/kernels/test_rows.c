/*
 * The row-wise ops: against their formulas in double, on odd sizes; backward passes against central differences
 * of the forward pass; the same bits for one thread and two, and for a row alone and in company.
 */
#include "kernels/cpu/rows.h"
#include "kernels/ops.h"
#include "libcommon/pool.h"
#include "libcommon/rng.h"
#include "tests/lib/tap.h"

enum { R = 7, C = 83, H = 3, D = 10, V = 2500 };

static float rnd(uint32_t what, long i)
{
	float p[2];

	rng_normal2(p, rng_key(3, RNG_TEST, what), (uint64_t)i, 0, 0);
	return p[0];
}

static void fill(float *x, long n, uint32_t what)
{
	for (long i = 0; i < n; i++)
		x[i] = rnd(what, i);
}

static double worst(const float *a, const double *b, long n)
{
	double d = 0, top = 1e-30;

	for (long i = 0; i < n; i++) {
		d = fmax(d, fabs((double)a[i] - b[i]));
		top = fmax(top, fabs(b[i]));
	}
	return d / top;
}

static void exponential(void)
{
	double bad = 0;

	for (long i = -1000000; i <= 880000; i++) {
		float x = (float)i * 1e-4f;
		double want = exp((double)x);

		bad = fmax(bad, fabs((double)exp_f32(x) - want) / (want + 1e-38));
	}
	ok(bad < 2.5e-7, "exp: relative error %g", bad);
	ok(exp_f32(0) == 1 && exp_f32(-INFINITY) == 0 && isnan(exp_f32(NAN)), "exp: 0, -inf and NaN");
}

static double norm_value(const double *x, const float *w, long c, double eps)
{
	double s = 0;

	for (long i = 0; i < C; i++)
		s += x[i] * x[i];
	return x[c] / sqrt(s / C + eps) * (double)w[c];
}

static void norm(double scale)
{
	float x[R * C], w[C], y[R * C], rstd[R], dy[R * C], dx[R * C], dw[C] = { 0 }, again[R * C];
	double want[R * C], gx[R * C], gw[C] = { 0 }, eps = 1e-5;

	fill(x, R * C, 1);
	fill(w, C, 2);
	fill(dy, R * C, 3);
	for (long i = 0; i < R * C; i++)
		x[i] *= (float)scale;
	for (long r = 0; r < R; r++) {
		double row[C];

		for (long c = 0; c < C; c++)
			row[c] = (double)x[r * C + c];
		for (long c = 0; c < C; c++)
			want[r * C + c] = norm_value(row, w, c, eps);
		for (long c = 0; c < C; c++) {
			double keep = row[c], h = 1e-5 * scale, up = 0, down = 0;

			row[c] = keep + h;
			for (long j = 0; j < C; j++)
				up += (double)dy[r * C + j] * norm_value(row, w, j, eps);
			row[c] = keep - h;
			for (long j = 0; j < C; j++)
				down += (double)dy[r * C + j] * norm_value(row, w, j, eps);
			row[c] = keep;
			gx[r * C + c] = (up - down) / (2 * h);
			gw[c] += (double)dy[r * C + c] * want[r * C + c] / (double)w[c];
		}
	}
	rmsnorm_fwd_cpu(y, rstd, x, w, R, C, (float)eps, DTYPE_F32);
	ok(worst(y, want, R * C) < 1e-6, "rmsnorm at scale %g", scale);
	rmsnorm_bwd_cpu(dx, dw, dy, x, w, rstd, R, C, false, DTYPE_F32);
	ok(worst(dx, gx, R * C) < 1e-5, "rmsnorm dx: %g", worst(dx, gx, R * C));
	ok(worst(dw, gw, C) < 1e-5, "rmsnorm dw: %g", worst(dw, gw, C));
	memcpy(again, y, sizeof(y));
	rmsnorm_bwd_cpu(again, NULL, dy, x, w, rstd, R, C, true, DTYPE_F32);
	for (long i = 0; i < R * C; i++)
		gx[i] += (double)y[i];
	ok(worst(again, gx, R * C) < 1e-5, "rmsnorm dx added");
	rmsnorm_fwd_cpu(again, NULL, x + 4 * C, w, 1, C, (float)eps, DTYPE_F32);
	ok(!memcmp(again, y + 4 * C, C * 4), "rmsnorm: a row alone has the same bits");
}

static void rope(void)
{
	float x[R * H * D], y[R * H * D], c[9 * D / 2], s[9 * D / 2];
	int pos[R] = { 0, 1, 2, 8, 0, 3, 5 };
	double want[R * H * D];

	fill(x, R * H * D, 4);
	for (int p = 0; p < 9; p++)
		for (int j = 0; j < D / 2; j++) {
			double a = p * pow(1e4, -2.0 * j / D);

			c[p * D / 2 + j] = (float)cos(a);
			s[p * D / 2 + j] = (float)sin(a);
		}
	for (int r = 0; r < R; r++)
		for (int h = 0; h < H; h++)
			for (int j = 0; j < D / 2; j++) {
				double a = pos[r] * pow(1e4, -2.0 * j / D);
				const float *v = x + (r * H + h) * D;

				want[(r * H + h) * D + j] = (double)v[j] * cos(a) - (double)v[j + D / 2] * sin(a);
				want[(r * H + h) * D + j + D / 2] = (double)v[j + D / 2] * cos(a) + (double)v[j] * sin(a);
			}
	memcpy(y, x, sizeof(x));
	rope_cpu(y, pos, c, s, R, H, D, false, DTYPE_F32);
	ok(worst(y, want, R * H * D) < 1e-6, "rope");
	rope_cpu(y, pos, c, s, R, H, D, true, DTYPE_F32);
	for (long i = 0; i < R * H * D; i++)
		want[i] = (double)x[i];
	ok(worst(y, want, R * H * D) < 1e-6, "rope there and back");
}

static double silu(double g)
{
	return g / (1 + exp(-g));
}

static void swiglu(void)
{
	enum { N = 2051 };
	static float g[N], u[N], y[N], dy[N], dg[N], du[N];
	static double want[N], wg[N], wu[N];

	fill(g, N, 5);
	fill(u, N, 6);
	fill(dy, N, 7);
	g[0] = -200;
	g[1] = 200;
	for (long i = 0; i < N; i++) {
		double a = (double)g[i], h = 1e-5;

		want[i] = silu(a) * (double)u[i];
		wg[i] = (silu(a + h) - silu(a - h)) / (2 * h) * (double)u[i] * (double)dy[i];
		wu[i] = silu(a) * (double)dy[i];
	}
	swiglu_fwd_cpu(y, g, u, N, DTYPE_F32);
	swiglu_bwd_cpu(dg, du, dy, g, u, N, DTYPE_F32);
	ok(worst(y, want, N) < 1e-6, "swiglu");
	ok(worst(dg, wg, N) < 1e-6 && worst(du, wu, N) < 1e-6, "swiglu backward");
	add_cpu(y, g, u, N, DTYPE_F32);
	ok(y[0] == g[0] + u[0] && y[N - 1] == g[N - 1] + u[N - 1], "add");
}

static void embed(void)
{
	float table[5 * C], y[R * C], dt[5 * C] = { 0 };
	double want[5 * C] = { 0 };
	int ids[R] = { 4, 0, 4, 2, 2, 4, 1 };
	bool same = true;

	fill(table, 5 * C, 8);
	embed_fwd_cpu(y, table, ids, R, C, DTYPE_F32);
	for (int r = 0; r < R; r++)
		same &= !memcmp(y + r * C, table + ids[r] * C, C * 4);
	ok(same, "embedding rows");
	embed_bwd_cpu(dt, y, ids, R, C, DTYPE_F32);
	for (int r = 0; r < R; r++)
		for (int c = 0; c < C; c++)
			want[ids[r] * C + c] += (double)y[r * C + c];
	ok(worst(dt, want, 5 * C) < 1e-6, "embedding gradient");
}

static double lp_of(const double *z, int target, double T, double *entropy)
{
	double s = 0, m = -INFINITY, e = 0, l;

	for (int v = 0; v < V; v++)
		m = fmax(m, z[v] / T);
	for (int v = 0; v < V; v++)
		s += exp(z[v] / T - m);
	l = m + log(s);
	for (int v = 0; v < V; v++)
		if (z[v] > -INFINITY)
			e -= exp(z[v] / T - l) * (z[v] / T - l);
	if (entropy)
		*entropy = e;
	return z[target] / T - l;
}

static void logprob(void)
{
	static float z[3 * V], dz[3 * V];
	static double zd[3 * V], want[3 * V];
	float lp[3], lse[3], ent[3], dlp[3] = { 0.7f, 0, -1.3f }, T = 0.7f;
	int target[3] = { 0, 1024, V - 1 };
	double bad = 0, bad_entropy = 0, e;

	fill(z, 3 * V, 9);
	z[5] = -INFINITY;
	for (long i = 0; i < 3 * V; i++)
		zd[i] = (double)(z[i] *= 4);
	logprob_cpu(lp, lse, ent, z, target, 3, V, T);
	for (int r = 0; r < 3; r++) {
		bad = fmax(bad, fabs((double)lp[r] - lp_of(zd + r * V, target[r], (double)T, &e)));
		bad_entropy = fmax(bad_entropy, fabs((double)ent[r] - e));
	}
	ok(bad < 3e-6, "log-probability: %g", bad);
	ok(bad_entropy < 2e-5, "entropy: %g", bad_entropy);
	logprob_bwd_cpu(dz, dlp, lse, z, target, 3, V, T, DTYPE_F32);
	for (int r = 0; r < 3; r++)
		for (int v = 0; v < V; v++)
			want[r * V + v] = (double)dlp[r] / (double)T *
				((v == target[r]) - exp(lp_of(zd + r * V, v, 1, NULL) * 0 + zd[r * V + v] / (double)T -
							(zd[r * V + target[r]] / (double)T - lp_of(zd + r * V, target[r], (double)T, NULL))));
	ok(worst(dz, want, 3 * V) < 1e-5, "log-probability backward: %g", worst(dz, want, 3 * V));
	float sure[2] = { 0, 1.09861229f };
	int one = 1;
	logprob_cpu(lp, lse, NULL, sure, &one, 1, 2, 0.5f);
	is_num(lp[0], -0.10536052, 1e-6, "logits [0, ln 3] at temperature 0.5");
	float negative[3] = { -1, -.5f, -2 };
	logprob_cpu(lp, lse, NULL, negative, &one, 1, 3, 1);
	is_num(lp[0], -0.60413061, 1e-6, "all logits negative, three ids");
	float broken[3][3] = { { NAN, 1, 3 }, { 1, INFINITY, 2 }, { -INFINITY, -INFINITY, -INFINITY } };
	for (int i = 0; i < 3; i++) {
		logprob_cpu(lp, lse, NULL, broken[i], &one, 1, 3, 1);
		ok(isnan(lp[0]), "no log-probability from broken row %d", i);
	}
}

static int draw(float *lp, const float *z, long n, struct sample_row how, const uint8_t *allowed)
{
	int id;

	sample_cpu(&id, lp, z, &how, allowed, 1, n);
	return id;
}

static void sampling(void)
{
	struct sample_row h = { .u = 0.5f, .temperature = 1, .top_p = 1 }, g = { .temperature = 0, .top_p = 1 };
	float z[5] = { 1, 3, 2, 0, 3 }, lp, p[5], all = 0;
	uint8_t not1[5] = { 1, 0, 1, 1, 1 };
	long count[5] = { 0 }, n = 20000;
	double chi = 0;

	ok(draw(&lp, (float[]){ 1, 2 }, 2, g, NULL) == 1, "greedy");
	is_num(lp, -0.31326169, 1e-6, "greedy: log-probability at temperature 1");
	h.temperature = 1e-8f;
	ok(draw(&lp, (float[]){ 1, 2 }, 2, h, NULL) == 1, "temperature 1e-8");
	ok(draw(&lp, (float[]){ 2, 2 }, 2, g, NULL) == 0, "ties: the lowest id");
	h.temperature = 1;
	ok(draw(&lp, (float[]){ NAN, 1, 3, 2 }, 4, h, NULL) == -1 && isnan(lp), "NaN: no token");
	ok(draw(&lp, (float[]){ 1, 3, INFINITY, 2 }, 4, h, NULL) == -1, "+inf: no token");
	ok(draw(&lp, (float[]){ -INFINITY, -INFINITY }, 2, h, NULL) == -1, "all -inf: no token");
	for (int i = 0; i < 5; i++)
		all += p[i] = expf(z[i]);
	for (long i = 0; i < n; i++) {
		h.u = rng_uniform(rng_key(5, RNG_TEST, 0), (uint64_t)i, 0, 0);
		count[draw(&lp, z, 5, h, NULL)]++;
	}
	for (int i = 0; i < 5; i++) {
		double want = (double)n * (double)(p[i] / all);
		chi += ((double)count[i] - want) * ((double)count[i] - want) / want;
	}
	ok(chi < 18.5, "frequencies follow the softmax: chi square %g with 4 degrees", chi);
	bool only = true, half = true, nucleus = true, floor = true, never = true;
	for (int i = 0; i < 200; i++) {
		float u = ((float)i + 0.5f) / 200;
		int id;

		id = draw(&lp, z, 5, (struct sample_row){ u, 1, 1, 0, 1 }, NULL);
		only &= id == 1;
		id = draw(&lp, z, 5, (struct sample_row){ u, 1, 0.75f, 0, 0 }, NULL);
		nucleus &= id == 1 || id == 4;
		id = draw(&lp, z, 5, (struct sample_row){ u, 1, 1, 0.3f, 0 }, NULL);
		floor &= id == 1 || id == 4 || id == 2;
		id = draw(&lp, z, 5, (struct sample_row){ u, 1, 1, 0, 0 }, not1);
		never &= id != 1;
		id = draw(&lp, (float[]){ -INFINITY, 0, 0 }, 3, (struct sample_row){ u, 1, 1, 0, 0 }, NULL);
		half &= id == (u < 0.5f ? 1 : 2);
	}
	ok(only, "top-k 1 keeps the lower of a tie");
	ok(nucleus, "top-p 0.75 keeps the two that reach it");
	ok(floor, "min-p 0.3 keeps three");
	ok(never, "an id that is not allowed is never drawn");
	ok(half, "-inf beside two equal: halves");
}

static void optimizer(void)
{
	float w = 1, m = 0, v = 0, g = 1, wd = 1, m2 = 0, v2 = 0, zero = 0, x[20011];
	uint16_t low = 0;
	double s = 0;

	for (int t = 1; t <= 10; t++) {
		struct adamw h = { 1e-3f, 0.9f, 0.999f, 1e-8f, 0, (float)(1 - pow(0.9, t)), (float)(1 - pow(0.999, t)), 1, 0.1f, 0.001f };

		adamw_cpu(&w, &m, &v, &low, &g, 1, &h);
	}
	is_num(w, 0.99, 1e-6, "AdamW: ten steps of a constant gradient");
	is_num(v / (1 - pow(0.999, 10)), 1, 5e-7, "AdamW: the second moment begins as in double");
	ok(bf16_to_f32(low) == 0.98828125f, "AdamW: the bf16 copy follows the master");
	struct adamw d = { 0.01f, 0.9f, 0.999f, 1e-8f, 0.1f, 0.1f, 0.001f, 1, 0.1f, 0.001f };
	adamw_cpu(&wd, &m2, &v2, NULL, &zero, 1, &d);
	is_num(wd, 0.999, 1e-7, "AdamW: decoupled decay");
	fill(x, 20011, 10);
	for (int i = 0; i < 20011; i++)
		s += (double)x[i] * (double)x[i];
	is_num(sumsq_cpu(x, 20011) / s, 1, 1e-12, "sum of squares");
}

static void bf16_rows(void)
{
	uint16_t x[R * C], y[R * C], w[C];
	float xf[R * C], wf[C], yf[R * C];
	bool same = true;

	for (long i = 0; i < R * C; i++)
		xf[i] = bf16_to_f32(x[i] = f32_to_bf16(rnd(11, i)));
	for (long i = 0; i < C; i++)
		wf[i] = bf16_to_f32(w[i] = f32_to_bf16(rnd(12, i)));
	rmsnorm_fwd_cpu(y, NULL, x, w, R, C, 1e-5f, DTYPE_BF16);
	rmsnorm_fwd_cpu(yf, NULL, xf, wf, R, C, 1e-5f, DTYPE_F32);
	for (long i = 0; i < R * C; i++)
		same &= y[i] == f32_to_bf16(yf[i]);
	ok(same, "bf16 rmsnorm is the fp32 one rounded once");
}

int main(void)
{
	exponential();
	for (int t = 1; t <= 2; t++) {
		pool_start(t);
		norm(1);
		norm(1e-2);
		rope();
		swiglu();
		embed();
		logprob();
		bf16_rows();
	}
	sampling();
	optimizer();
	return done();
}
