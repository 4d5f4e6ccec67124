/*
 * The whole model against what transformers and PyTorch computed (record_models.py), and against itself: packed or alone,
 * kept or recomputed, cached or not, one thread or two.
 */
#include "kernels/loss_weights.h"
#include "kernels/model/cache.h"
#include "kernels/model/model.h"
#include "kernels/model/router.h"
#include "libcommon/file.h"
#include "libcommon/pool.h"
#include "libcommon/xalloc.h"
#include "tests/lib/tap.h"

static const char *const NAMES[] = { "llama", "llama_tied", "llama_bias_llama3", "llama_linear", "llama_yarn", "mistral",
				     "qwen2_tied", "qwen3", "qwen3_small", "mixtral", "qwen2_moe", "qwen3_moe" };
static const int IDS[12] = { 3, 17, 8, 28, 0, 11, 5, 9, 2, 22, 14, 1 };
static const int TARGET[12] = { 17, 8, 28, 0, 11, 5, -1, 2, 22, 14, 1, -1 };
static const long CU[3] = { 0, 7, 12 };
static const struct batch BATCH = { .rows = 12, .ids = IDS, .nseq = 2, .cu = CU };

static uint64_t mix(uint64_t x)
{
	x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
	x = (x ^ x >> 27) * 0x94D049BB133111EBu;
	return x ^ x >> 31;
}

/* weight() of record_models.py */
static void weight_value(float *out, const char *name, long n, double scale)
{
	uint64_t h = 14695981039346656037u;

	for (const char *c = name; *c; c++)
		h = (h ^ (uint8_t)*c) * 1099511628211u;
	for (long i = 0; i < n; i++) {
		double x = (double)(mix((uint64_t)i * 0x9E3779B97F4A7C15u + h) >> 40) / 8388608.0 - 1;

		if (strstr(name, "norm"))
			x = 1 + 0.25 * x;
		else
			x *= strcmp(name, "model.embed_tokens.weight") ? 0.5 : scale;
		out[i] = (float)x;
	}
}

static long count(const struct param *p)
{
	long n = 1;

	for (int i = 0; i < p->rank; i++)
		n *= p->shape[i];
	return n;
}

static void load(struct model *m, const char *name, enum dtype t, unsigned flags)
{
	char *path = xasprintf("tests/data/models/%s.json", name);
	struct model_config c;
	struct json_doc d;
	struct err e = ERR_INIT;
	const struct ops *k = ops_find("cpu", getenv("TEST_ISA"), &e);

	if (!k || json_read(&d, path, 0, &e) || model_config_from_json(&c, &d, &e) || model_init(m, &c, k, NULL, t, 0, flags, &e))
		die_err(&e);
	for (long i = 0; i < m->table.n; i++) {
		long n = count(m->table.p + i);
		float *w = xmalloc((size_t)n * 4);

		weight_value(w, m->table.p[i].name, n, strcmp(name, "qwen3_small") ? 0.5 : 1e-2);
		model_set(m, i, w, DTYPE_F32);
		free(w);
	}
	json_release(&d);
	free(path);
}

struct recorded { struct str file; };

static const float *find(const struct recorded *r, const char *name, long want)
{
	const char *p = r->file.s, *end = p + r->file.len;
	uint32_t len, n;

	while (p < end) {
		memcpy(&len, p, 4);
		memcpy(&n, p + 4 + len, 4);
		if (len == strlen(name) && !memcmp(p + 4, name, len)) {
			static float copy[8192];

			if (n != (uint32_t)want)
				die(EX_DATAERR, "%s: %u values, want %ld", name, n, want);
			memcpy(copy, p + 8 + len, (size_t)n * 4);
			return copy;
		}
		p += 8 + len + (size_t)n * 4;
	}
	die(EX_DATAERR, "nothing recorded for %s", name);
}

/* Norm of the difference over the norm of what is wanted, but at least `floor`. */
static double distance(const float *got, const float *want, long n, double floor)
{
	double d = 0, s = 0;

	for (long i = 0; i < n; i++) {
		d += ((double)got[i] - (double)want[i]) * ((double)got[i] - (double)want[i]);
		s += (double)want[i] * (double)want[i];
	}
	return sqrt(d) / fmax(sqrt(s), floor);
}

static double largest(const float *got, const float *want, long n)
{
	double d = 0, s = 0;

	for (long i = 0; i < n; i++) {
		d = fmax(d, fabs((double)got[i] - (double)want[i]));
		s = fmax(s, fabs((double)want[i]));
	}
	return d / s;
}

/* The weights of record_models.py's loss, on rows that have a target. */
static void loss_gradient(float *dlp)
{
	int i = 0;

	for (int r = 0; r < 12; r++)
		dlp[r] = TARGET[r] < 0 ? 0 : (float)((i * 7) % 11 - 3) / 16;
	for (int r = 0; r < 12; r++)
		if (TARGET[r] >= 0)
			dlp[r] = (float)((i++ * 7) % 11 - 3) / 16;
}

static void check_gradients(struct model *m, const struct recorded *r, const char *name, enum recompute recompute)
{
	static const char *const how[] = { "", ", layers run again", ", norms and products made again" };
	struct pass *p = pass_new(m, 12, true, recompute);
	float lp[12], dlp[12], norm = *find(r, "grad_norm", 1);
	double worst = 0;
	const char *where = "";

	loss_gradient(dlp);
	model_zero_grad(m);
	pass_forward(p, &BATCH);
	pass_logprobs(p, lp, NULL, TARGET, 1);
	pass_backward(p, dlp);
	for (long i = 0; i < m->table.n; i++) {
		char *key = xasprintf("grad.%s", m->table.p[i].name);
		long n = count(m->table.p + i);
		double d = distance(m->w[i].grad, find(r, key, n), n, 1e-3 * (double)norm);

		if (!(d <= worst)) {
			worst = d;
			where = m->table.p[i].name;
		}
		free(key);
	}
	ok(worst < 1e-4, "%s: gradients of all %ld parameters%s: worst %.2g (%s)", name, m->table.n,
	   how[recompute], worst, where);
	is_num(model_grad_norm(m) / (double)norm, 1, 1e-5, "%s: gradient norm", name);
	ok(!model_bad_grad(m), "%s: all gradients finite", name);
	pass_free(p);
}

/* Where only the losses of the routers have a gradient. */
static void check_router_losses(struct model *m, const struct recorded *r, const char *name)
{
	long layers = model_config_moe_layers(&m->table.config), at = 0, visits = 0;
	float lp[12], none[12] = { 0 }, want[8];
	struct router_report report;
	double worst = 0, off = 0, own = 0;

	if (!layers)
		return;
	memcpy(want, find(r, "router_losses", 2 * layers), (size_t)layers * 2 * sizeof(float));
	for (int recompute = 0; recompute < 2; recompute++) { /* the second is looked at */
		struct pass *p = pass_new(m, 12, true, recompute);

		model_zero_grad(m);
		router_begin(m, 0.5, 0.25, 12);
		pass_forward(p, &BATCH);
		pass_logprobs(p, lp, NULL, TARGET, 1);
		pass_backward(p, none);
		pass_free(p);
	}
	for (long i = 0; i < m->table.n; i++) {
		const struct param *p = m->table.p + i;
		char *key = xasprintf("router.%s", p->name);
		long n = count(p);

		if (p->kind == PARAM_ROUTER || p->kind == PARAM_EMBED || (p->kind == PARAM_Q && p->layer == 0))
			worst = fmax(worst, distance(m->w[i].grad, find(r, key, n), n, 1e-3));
		else if (p->kind == PARAM_EXPERT_DOWN && p->layer == m->table.config.layers - 1)
			for (long j = 0; j < n; j++)
				own += fabs((double)m->w[i].grad[j]);
		free(key);
	}
	ok(worst < 1e-4, "%s: gradients of load balancing and z loss: worst %.2g", name, worst);
	ok(own == 0, "%s: which the experts of the last layer have no part in", name);
	router_report(&report, m);
	for (long i = 0; i < report.layers; i++) {
		for (long e = 0; e < report.experts; e++)
			visits += (long)report.visits[i * report.experts + e];
		if (!model_config_is_moe(&m->table.config, i))
			continue;
		off = fmax(off, fabs(report.aux[i] - (double)want[at]) + fabs(report.z[i] - (double)want[at + 1]));
		at += 2;
	}
	ok(off < 1e-5 && at == 2 * layers, "%s: and their values: %.2g", name, off);
	ok(visits == 12 * layers * m->table.config.moe.experts_per_token, "%s: every visit is counted once", name);
	router_report_release(&report);
	router_begin(m, 0, 0, 0);
}

/* From the recorded gradients: the first step divides each by its own size, which makes the noise of a tiny one large. */
static void check_step(struct model *m, const struct recorded *r, const char *name)
{
	double norm = (double)*find(r, "grad_norm", 1), worst = 0;
	struct adamw h = { 1e-2f, 0.9f, 0.95f, 1e-8f, 0.1f, 0.1f, 0.05f, (float)(norm > 1 ? 1 / (norm + 1e-6) : 1),
			   0.1f, 0.05f };

	for (long i = 0; i < m->table.n; i++) {
		char *key = xasprintf("grad.%s", m->table.p[i].name);
		long n = count(m->table.p + i);

		memcpy(m->w[i].grad, find(r, key, n), (size_t)n * 4);
		free(key);
	}

	h.bias1 = (float)(1 - 0.9);
	h.bias2 = (float)(1 - 0.95);
	model_adamw(m, &h);
	for (long i = 0; i < m->table.n; i++) {
		char *key = xasprintf("step.%s", m->table.p[i].name);
		long n = count(m->table.p + i);

		worst = fmax(worst, distance(m->w[i].master, find(r, key, n), n, 1e-3));
		free(key);
	}
	ok(worst < 1e-6, "%s: weights after one AdamW step: %.2g", name, worst);
}

static void parity(const char *name)
{
	char *path = xasprintf("tests/data/models/%s.bin", name);
	struct recorded r = { { 0 } };
	struct err e = ERR_INIT;
	struct model m;
	struct pass *p;
	float *z = xmalloc(12 * 29 * 4), lp[12], want[10], got[10];
	int n = 0;

	if (file_read(&r.file, path, 0, &e))
		die_err(&e);
	load(&m, name, DTYPE_F32, MODEL_TRAIN);
	p = pass_new(&m, 12, false, false);
	pass_forward(p, &BATCH);
	pass_logits(p, z, 0, 12);
	ok(largest(z, find(&r, "logits.0", 7 * 29), 7 * 29) < 1e-5, "%s: logits of the first sequence: %.2g", name,
	   largest(z, find(&r, "logits.0", 7 * 29), 7 * 29));
	ok(largest(z + 7 * 29, find(&r, "logits.1", 5 * 29), 5 * 29) < 1e-5, "%s: logits of the second, packed behind it", name);
	pass_logprobs(p, lp, NULL, TARGET, 1);
	memcpy(want, find(&r, "logprobs", 10), sizeof(want));
	for (int i = 0; i < 12; i++)
		if (TARGET[i] >= 0)
			got[n++] = lp[i];
	ok(largest(got, want, 10) < 1e-5, "%s: log-probabilities", name);
	pass_free(p);
	for (enum recompute how = RECOMPUTE_NOTHING; how <= RECOMPUTE_CHEAP; how++)
		check_gradients(&m, &r, name, how);
	ok(pass_bytes(&m, 12, true, RECOMPUTE_CHEAP) < pass_bytes(&m, 12, true, RECOMPUTE_NOTHING), "%s: and less is kept", name);
	check_router_losses(&m, &r, name);
	check_step(&m, &r, name);
	model_release(&m);
	str_release(&r.file);
	free(path);
	free(z);
}

/* The log-probabilities of the batch, from a packed pass. */
static void packed(struct model *m, float *lp)
{
	struct pass *p = pass_new(m, 12, false, false);

	pass_forward(p, &BATCH);
	pass_logprobs(p, lp, NULL, TARGET, 0.7f);
	pass_free(p);
}

static void alone(struct model *m, float *lp)
{
	for (int s = 0; s < 2; s++) {
		long cu[2] = { 0, CU[s + 1] - CU[s] };
		struct batch b = { .rows = cu[1], .ids = IDS + CU[s], .nseq = 1, .cu = cu };
		struct pass *p = pass_new(m, cu[1], false, false);

		pass_forward(p, &b);
		pass_logprobs(p, lp + CU[s], NULL, TARGET + CU[s], 0.7f);
		pass_free(p);
	}
}

/* Both sequences grow together, `step` rows at a time.  experts[12, per]: where those of each row are kept; NULL: nowhere. */
static void cached(struct model *m, float *lp, long step, int *experts)
{
	struct cache *c = cache_new(m, 4, 12, 12);
	struct cached seq[2] = { 0 };
	long V = m->table.config.vocab, per = model_experts_per_row(m);
	int *now = xmalloc((size_t)(12 * per + 1) * sizeof(int));

	cache_note_experts(c, experts ? now : NULL);
	for (long at = 0; at < 7; at += step) {
		struct cache_row row[12];
		long n = 0, from[12];

		for (int s = 1; s >= 0; s--)
			for (long i = at; i < at + step && CU[s] + i < CU[s + 1]; i++) {
				if (!cache_reserve(c, seq + s, i + 1))
					die(EX_SOFTWARE, "cache full");
				row[n] = (struct cache_row){ seq + s, IDS[CU[s] + i], i, true };
				from[n++] = CU[s] + i;
			}
		const float *z = cache_extend(c, row, n);
		for (long i = 0; i < n; i++) {
			float lse;

			if (experts)
				memcpy(experts + from[i] * per, now + i * per, (size_t)per * sizeof(int));
			lp[from[i]] = NAN;
			if (TARGET[from[i]] >= 0)
				m->k->logprob(lp + from[i], &lse, NULL, z + i * V, TARGET + from[i], 1, V, 0.7f);
		}
	}
	cache_drop(c, seq);
	cache_drop(c, seq + 1);
	ok(cache_free_blocks(c) == 4, "all blocks come back");
	cache_free(c);
	free(now);
}

static bool same_bits(const float *a, const float *b)
{
	for (int r = 0; r < 12; r++)
		if (TARGET[r] >= 0 && memcmp(a + r, b + r, 4))
			return false;
	return true;
}

static void invariance(const char *name, enum dtype t)
{
	struct model m;
	float a[12], b[12];

	load(&m, name, t, 0);
	pool_start(1);
	packed(&m, a);
	pool_start(2);
	packed(&m, b);
	ok(same_bits(a, b), "%s %s: one thread, two threads: the same bits", name, dtype_name(t));
	alone(&m, b);
	ok(same_bits(a, b), "%s %s: packed, alone: the same bits", name, dtype_name(t));
	for (long step = 1; step <= 7; step += 3) {
		cached(&m, b, step, NULL);
		ok(same_bits(a, b), "%s %s: cached, %ld at a time: the same bits", name, dtype_name(t), step);
	}
	model_release(&m);
}

/* The log-probabilities of the batch through experts that are given, and, if wanted, the gradients. */
static void replayed(struct model *m, float *lp, const int *experts, bool backward, bool recompute)
{
	struct pass *p = pass_new(m, 12, backward, recompute);
	struct batch b = BATCH;
	float dlp[12];

	b.experts = experts;
	loss_gradient(dlp);
	pass_forward(p, &b);
	pass_logprobs(p, lp, NULL, TARGET, 0.7f);
	if (backward) {
		model_zero_grad(m);
		pass_backward(p, dlp);
	}
	pass_free(p);
}

static float *all_gradients(struct model *m)
{
	size_t n[2] = { (size_t)m->flat[0].a.total, (size_t)m->flat[1].a.total };
	float *g = xmalloc((n[0] + n[1]) * sizeof(float));

	memcpy(g, m->flat[0].grad, n[0] * sizeof(float));
	memcpy(g + n[0], m->flat[1].grad, n[1] * sizeof(float));
	return g;
}

/* What the cache wrote down, given to a pass, changes no bit; the same of other rows does. */
static void replay(const char *name, enum dtype t)
{
	struct model m;
	float a[12], b[12], *natural, *given;
	int *experts, *moved;
	long per, total;

	load(&m, name, t, MODEL_TRAIN);
	per = model_experts_per_row(&m);
	total = m.flat[0].a.total + m.flat[1].a.total;
	experts = xmalloc((size_t)(12 * per) * sizeof(int));
	moved = xmalloc((size_t)(12 * per) * sizeof(int));
	cached(&m, a, 3, experts);
	replayed(&m, b, experts, false, false);
	ok(same_bits(a, b), "%s %s: experts of the cache in a pass: the same bits", name, dtype_name(t));
	replayed(&m, b, NULL, true, false);
	natural = all_gradients(&m);
	replayed(&m, b, experts, true, true);
	given = all_gradients(&m);
	ok(same_bits(a, b) && !memcmp(natural, given, (size_t)total * sizeof(float)),
	   "%s %s: and of the gradients, recomputed", name, dtype_name(t));
	for (long r = 0; r < 12; r++)
		memcpy(moved + r * per, experts + (r + 1) % 12 * per, (size_t)per * sizeof(int));
	replayed(&m, b, moved, false, false);
	ok(!same_bits(a, b), "%s %s: those of the next row instead show", name, dtype_name(t));
	for (long i = 0; i < 12 * per; i++)
		moved[i] = -1;
	replayed(&m, b, moved, false, false);
	ok(same_bits(a, b), "%s %s: rows without experts of their own choose", name, dtype_name(t));
	free(natural);
	free(given);
	free(experts);
	free(moved);
	model_release(&m);
}

/* The control: a weight whose last bit differs must show. */
static void control(void)
{
	struct model m;
	float a[12], b[12], w[29 * 12];
	long i;

	load(&m, "llama", DTYPE_F32, 0);
	packed(&m, a);
	i = model_index(&m, PARAM_LM_HEAD, -1);
	weight_value(w, m.table.p[i].name, count(m.table.p + i), 0.5);
	w[17 * 12 + 5] = nextafterf(w[17 * 12 + 5], 9); /* of a target's row */
	model_set(&m, i, w, DTYPE_F32);
	packed(&m, b);
	ok(!same_bits(a, b), "one flipped weight bit shows");
	model_release(&m);
}

static void bf16_training(const char *name)
{
	struct model m;
	struct adamw h = { 1e-3f, 0.9f, 0.999f, 1e-8f, 0, 0.1f, 0.001f, 1, 0.1f, 0.001f };
	float lp[12], dlp[12], before, after;
	struct pass *p;

	load(&m, name, DTYPE_BF16, MODEL_TRAIN);
	p = pass_new(&m, 12, true, false);
	loss_gradient(dlp);
	for (int r = 0; r < 12; r++)
		dlp[r] = dlp[r] == 0 && TARGET[r] < 0 ? 0 : -0.1f;
	pass_forward(p, &BATCH);
	pass_logprobs(p, lp, NULL, TARGET, 1);
	before = lp[0] + lp[7];
	model_zero_grad(&m);
	pass_backward(p, dlp);
	model_adamw(&m, &h);
	pass_forward(p, &BATCH);
	pass_logprobs(p, lp, NULL, TARGET, 1);
	after = lp[0] + lp[7];
	ok(after > before, "bf16, %s: a step along -sum lp raises the log-probabilities (%g to %g)", name, (double)before, (double)after);
	ok(m.w[1].master != m.w[1].value, "bf16: masters are apart");
	pass_free(p);
	model_release(&m);
}

int main(void)
{
	for (size_t i = 0; i < sizeof(NAMES) / sizeof(*NAMES); i++)
		parity(NAMES[i]);
	for (int t = 0; t < 2; t++) {
		invariance("llama_yarn", t ? DTYPE_BF16 : DTYPE_F32);
		invariance("qwen3", t ? DTYPE_BF16 : DTYPE_F32);
		invariance("qwen2_tied", t ? DTYPE_BF16 : DTYPE_F32);
		invariance("mixtral", t ? DTYPE_BF16 : DTYPE_F32);
		invariance("qwen2_moe", t ? DTYPE_BF16 : DTYPE_F32);
		invariance("qwen3_moe", t ? DTYPE_BF16 : DTYPE_F32);
	}
	replay("mixtral", DTYPE_F32);
	replay("qwen2_moe", DTYPE_BF16);
	replay("qwen3_moe", DTYPE_F32);
	control();
	bf16_training("qwen3");
	bf16_training("qwen2_moe");
	return done();
}
