/*
 * bench_model [--tiny] SHAPE prefill|decode|train: one process a line or two (tests/gpu/measure.h).
 * SHAPE: 1b (Llama 3.2 1B), 8b (eight layers of Llama 3.1 8B, with its embeddings).  Random
 * weights; bfloat16.  Flops are those of the model: 2 a weight and token forward, 6 with backward
 * (embeddings that are only looked up do not count), and attention's 4 (12) a pair, head and
 * element of a causal half.
 */
#include "tests/gpu/measure.h"

#include "kernels/model/cache.h"
#include "libcommon/json.h"

static const char *shape_of(const char *name)
{
	if (tiny)
		return "{\"model_type\": \"llama\", \"vocab_size\": 300, \"hidden_size\": 64, "
		       "\"intermediate_size\": 96, \"num_hidden_layers\": 2,"
		       " \"num_attention_heads\": 4, \"num_key_value_heads\": 2, "
		       "\"max_position_embeddings\": 512, \"rms_norm_eps\": 1e-5,"
		       " \"rope_theta\": 10000.0, \"tie_word_embeddings\": false}";
	if (!strcmp(name, "1b"))
		return "{\"model_type\": \"llama\", \"vocab_size\": 128256, \"hidden_size\": 2048, "
		       "\"intermediate_size\": 8192,"
		       " \"num_hidden_layers\": 16, \"num_attention_heads\": 32, "
		       "\"num_key_value_heads\": 8, \"head_dim\": 64,"
		       " \"max_position_embeddings\": 8192, \"rms_norm_eps\": 1e-5, "
		       "\"rope_theta\": 500000.0, \"tie_word_embeddings\": true}";
	if (!strcmp(name, "8b"))
		return "{\"model_type\": \"llama\", \"vocab_size\": 128256, \"hidden_size\": 4096, "
		       "\"intermediate_size\": 14336,"
		       " \"num_hidden_layers\": 8, \"num_attention_heads\": 32, "
		       "\"num_key_value_heads\": 8, \"head_dim\": 128,"
		       " \"max_position_embeddings\": 8192, \"rms_norm_eps\": 1e-5, "
		       "\"rope_theta\": 500000.0, \"tie_word_embeddings\": false}";
	die(EX_USAGE, "%s: wanted 1b or 8b", name);
}

/* The same values again and again: what they are does not matter, drawing billions would take
 * minutes. */
static void fill(struct model *m)
{
	enum { PERIOD = 1 << 18 };
	float *some = xmalloc(PERIOD * 4);

	for (long i = 0; i < PERIOD; i++)
		some[i] = 0.04f * (rng_uniform(rng_key(1, RNG_TEST, 0), (uint64_t)i, 0, 0) - 0.5f);
	for (long i = 0; i < m->table.n; i++) {
		long n = box_volume(m->box + i);
		uint16_t *w = big_alloc((size_t)n * 2, "a parameter");

		for (long j = 0; j < n; j += PERIOD)
			dtype_convert(w + j, DTYPE_BF16, some, DTYPE_F32,
				      (size_t)(n - j < PERIOD ? n - j : PERIOD));
		model_set(m, i, w, DTYPE_BF16);
		big_free(w);
	}
	free(some);
}

static double weights(const struct model *m)
{
	double n = 0;

	for (long i = 0; i < m->table.n; i++)
		if (m->table.p[i].kind != PARAM_EMBED || m->table.config.tied)
			n += (double)box_volume(m->box + i);
	return n;
}

static double pairs(const struct model_config *c, long seqs, long length)
{
	return (double)seqs * (double)length * (double)(length + 1) / 2 *
	       (double)(c->heads * c->head_dim) * (double)c->layers;
}

static void say(const char *shape, const char *what, long seqs, long length, double seconds,
		double tokens, double bytes, double flops)
{
	char name[128];

	snprintf(name, sizeof(name), "%s, %s %ld x %ld: %.0f tokens/s", tiny ? "tiny" : shape, what,
		 seqs, length, tokens / seconds);
	report(name, seconds, bytes, flops);
}

static void extend(struct cache *c, struct cached *s, struct cache_row *row, long seqs, long first,
		   long n)
{
	for (long i = 0; i < seqs * n; i++)
		row[i] = (struct cache_row){s + i / n, (int)(i * 7 % 251), first + i % n,
					    i % n == n - 1};
	cache_extend(c, row, seqs * n);
}

/* Sequences whose prompts are run in one call, then token after token. */
static void generation(struct model *m, const char *shape, bool decode)
{
	long seqs = tiny     ? 3
		    : decode ? 64
			     : 4,
	     length = tiny     ? 40
		      : decode ? 1024
			       : 2048,
	     steps = tiny ? 2 : 32, at;
	long blocks = seqs * ((length + 8 * steps) / ATTENTION_TILE + 1),
	     chunk = decode && !tiny ? 8192 / seqs : length;
	struct cache *c = cache_new(m, blocks, seqs * chunk, seqs);
	struct cached *s = xcalloc((size_t)seqs, sizeof(*s));
	struct cache_row *row = xmalloc((size_t)(seqs * chunk) * sizeof(*row));
	double w = weights(m), kv = 0, t;
	int *id = xmalloc((size_t)seqs * sizeof(int));
	float *lp = xmalloc((size_t)seqs * sizeof(float));

	for (long i = 0; i < seqs; i++)
		if (!cache_reserve(c, s + i, length + 8 * steps))
			bug("blocks");
	for (at = 0; at < length; at += chunk)
		extend(c, s, row, seqs, at, chunk);
	wait_all();
	if (!decode) {
		t = SECONDS(extend(c, s, row, seqs, 0, length));
		say(shape, "prefill", seqs, length, t, (double)(seqs * length), 0,
		    2 * (w - (double)m->table.config.vocab * (double)m->table.config.hidden) *
				    (double)(seqs * length) +
			    4 * pairs(&m->table.config, seqs, length));
	} else {
		struct sample_row *how = xcalloc((size_t)seqs, sizeof(*how));

		for (long i = 0; i < seqs; i++)
			how[i] = (struct sample_row){.u = 0.5f, .temperature = 1, .top_p = 1};
		t = now();
		for (long i = 0; i < steps; i++, at++) {
			for (long j = 0; j < seqs; j++)
				row[j] = (struct cache_row){s + j, (int)(j * 7 % 251), at, true};
			m->k->sample(id, lp, cache_extend(c, row, seqs), how, NULL, seqs,
				     m->table.config.vocab);
			kv += 4. * (double)(seqs * at * m->table.config.kv_heads *
					    m->table.config.head_dim * m->table.config.layers);
		}
		t = (now() - t) / (double)steps;
		say(shape, "decode", seqs, length, t, (double)seqs, 2 * w + kv / (double)steps,
		    2 * w * (double)seqs);
		free(how);
	}
	for (long i = 0; i < seqs; i++)
		cache_drop(c, s + i);
	cache_free(c);
	free(s);
	free(row);
	free(id);
	free(lp);
}

static void step(struct model *m, struct pass *p, const struct batch *b, const int *target,
		 float *lp, float *dlp)
{
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

	model_zero_grad(m);
	pass_forward(p, b);
	pass_logprobs(p, lp, NULL, target, 1);
	pass_backward(p, dlp);
	model_reduce_grad(m);
	if (model_grad_norm(m) >= 0)
		model_adamw(m, &h);
}

static void train(struct model *m, const char *shape)
{
	long T = tiny ? 96 : 16384, seqs = tiny ? 2 : 4, each = T / seqs;
	int *ids = xmalloc((size_t)T * 2 * sizeof(int)), *target = ids + T;
	float *lp = xmalloc((size_t)T * 2 * sizeof(float)), *dlp = lp + T;
	long *cu = xmalloc((size_t)(seqs + 1) * sizeof(long));
	struct batch b = {.rows = T, .ids = ids, .nseq = seqs, .cu = cu};
	struct pass *p = pass_new(m, T, true, RECOMPUTE_NOTHING);

	for (long i = 0; i < T; i++) {
		ids[i] = (int)(i * 31 % 251);
		target[i] = (int)(i * 17 % 251);
		dlp[i] = -1.f / (float)T;
	}
	for (long i = 0; i <= seqs; i++)
		cu[i] = i * each;
	say(shape, "train-step", seqs, each, SECONDS(step(m, p, &b, target, lp, dlp)), (double)T, 0,
	    6 * weights(m) * (double)T + 12 * pairs(&m->table.config, seqs, each));
	pass_free(p);
	free(ids);
	free(lp);
	free(cu);
}

int main(int argc, char **argv)
{
	const char *shape = argc > 2 ? argv[argc - 2] : "", *what = argv[argc - 1], *text;
	struct model_config c;
	struct json_doc d;
	struct model m;
	struct err e = ERR_INIT;

	measure_start(argc, argv);
	text = shape_of(shape);
	if (json_parse(&d, text, strlen(text), "shape", 0, &e) ||
	    model_config_from_json(&c, &d, &e) ||
	    model_init(&m, &c, k, NULL, DTYPE_BF16, 0, strcmp(what, "train") ? 0 : MODEL_TRAIN, &e))
		die_err(&e);
	fill(&m);
	if (!strcmp(what, "train"))
		train(&m, shape);
	else
		generation(&m, shape, !strcmp(what, "decode"));
	model_release(&m);
	return 0;
}
