/* import-weights and export on real folders and on folders with one thing wrong, against what
 * transformers computed. */
#include "tests/tools/hf_folder.h"
#include "tools/shared/start.h"

#include "libcommon/pool.h"

static struct json_doc recorded;
static const char *const names[] = { "llama", "qwen2", "qwen3" };

static char *data_dir(const char *name)
{
	return xasprintf("tests/data/hf-tiny-%s", name);
}

/* Logits of the last of the recorded ids. */
static float *logits(const char *ckpt, const char *name, long *vocab)
{
	const struct json *ids = json_get(json_get(&recorded.root, name), "ids");
	const struct ops *k;
	struct checkpoint c;
	struct model m;
	struct pass *p;
	struct err e = ERR_INIT;
	int id[16];
	long n = (long)ids->n, cu[2] = { 0, n };
	float *z;

	for (long i = 0; i < n; i++)
		id[i] = atoi(ids->item[i].text);
	k = ops_find("cpu", NULL, &e);
	load_checkpoint(&c, ckpt);
	load_model(&m, &c, k, NULL, DTYPE_F32, 0, 0);
	*vocab = m.table.config.vocab;
	z = xcalloc((size_t)*vocab, sizeof(*z));
	p = pass_new(&m, n, false, false);
	pass_forward(p, &(struct batch){ .rows = n, .ids = id, .nseq = 1, .cu = cu });
	pass_logits(p, z, n - 1, 1);
	pass_free(p);
	model_release(&m);
	checkpoint_close(&c);
	return z;
}

static void check_logits(const char *ckpt, const char *name)
{
	const struct json *want = json_path(json_get(&recorded.root, name), "logits");
	double largest = 0, worst = 0;
	long vocab;
	float *z = logits(ckpt, name, &vocab);

	for (long i = 0; i < vocab; i++) {
		double w = strtod(want->item[i].text, NULL);

		largest = fmax(largest, fabs(w));
		worst = fmax(worst, fabs(w - (double)z[i]));
	}
	ok((long)want->n == vocab && worst <= 1e-5 * largest,
	   "%s: the logits of transformers (%.1e of %.2f)", name, worst, largest);
	free(z);
}

static void check_tokenizer(const char *ckpt, const char *name)
{
	const struct json *r = json_get(&recorded.root, name), *want = json_get(r, "text_ids"),
			  *text = json_get(r, "text");
	struct token_list got = { 0 };
	struct checkpoint c;
	struct tokenizer *t;
	struct err e = ERR_INIT;
	bool same;

	load_checkpoint(&c, ckpt);
	t = load_tokenizer(&c);
	if (tokenizer_encode(t, text->text, text->n, TOK_SPECIALS, &got, &e))
		die_err(&e);
	same = got.n == (long)want->n;
	for (long i = 0; same && i < got.n; i++)
		same = got.id[i] == atoi(want->item[i].text);
	ok(same, "%s: the ids of transformers", name);
	tokenizer_free(t);
	token_list_release(&got);
	checkpoint_close(&c);
}

static struct digest digest_of(const char *ckpt)
{
	struct checkpoint c;
	struct digest d;

	load_checkpoint(&c, ckpt);
	d = c.weights_digest;
	checkpoint_close(&c);
	return d;
}

static bool same_file(const char *a, const char *b, const char *name)
{
	return !strcmp(read_text(path_join(a, name)), read_text(path_join(b, name)));
}

static void test_round_trip(const char *name)
{
	static const char *const sides[] = {
		"config.json",		 "generation_config.json", "tokenizer.json",
		"tokenizer_config.json", "chat_template.jinja",
	};
	char *src = data_dir(name), *ckpt = at(xasprintf("%s.ckpt", name)),
	     *back = at(xasprintf("%s.back", name));
	struct folder a, b;
	bool same = true;

	ok(!tool_run("import-weights %s -o %s", src, ckpt) && !*tool_err.s,
	   "%s: imported, in silence", name);
	ok(strstr(tool_out.s, "\"weights_digest\": \"") &&
		   strchr(tool_out.s, '\n') == tool_out.s + strlen(tool_out.s) - 1,
	   "%s: one line tells of it", name);
	check_logits(ckpt, name);
	check_tokenizer(ckpt, name);
	ok(!tool_run("export %s -o %s", ckpt, back) && !*tool_err.s, "%s: exported", name);
	folder_load(&a, src);
	folder_load(&b, back);
	ok(folder_same(&a, &b), "%s: tensors, names and types come back", name);
	for (int i = 0; i < 5; i++)
		same = same && same_file(src, back, sides[i]);
	ok(same, "%s: side files come back byte for byte", name);

	/* The control: one bit. */
	((unsigned char *)folder_find(&a, "model.norm.weight")->data)[2] ^= 1;
	ok(!folder_same(&a, &b), "%s: a changed weight shows in the comparison", name);
	src = folder_write(&a, xasprintf("%s.changed", name));
	ok(!tool_run("import-weights %s -o %s.2", src, ckpt) && said("no tokenizer"),
	   "%s: without a tokenizer, with a warning", name);
	ok(!digest_equal(digest_of(ckpt), digest_of(xasprintf("%s.2", ckpt))),
	   "%s: and in the digest", name);
}

/* B11 */
static void test_missing_head(void)
{
	struct folder f;
	char *dir;

	folder_load(&f, data_dir("llama"));
	folder_drop(&f, "lm_head.weight");
	dir = folder_write(&f, "headless");
	ok(tool_run("import-weights %s -o %s.ckpt", dir, dir) == 65 &&
		   said("lm_head.weight: missing"),
	   "untied without lm_head: an error");
	ok(!file_exists(at("headless.ckpt")) && !file_exists(at("headless.ckpt.tmp")),
	   "and no checkpoint");
	folder_config(&f, "\"tie_word_embeddings\": false,", "");
	dir = folder_write(&f, "headless2");
	ok(tool_run("import-weights %s -o %s.ckpt", dir, dir) == 65 && said("lm_head.weight"),
	   "llama without the key: untied");
	folder_config(&f, "\"model_type\"", "\"tie_word_embeddings\": true, \"model_type\"");
	dir = folder_write(&f, "headless3");
	ok(!tool_run("import-weights %s -o %s.ckpt", dir, dir), "tied: accepted");
	long vocab;
	float *z = logits(at("headless3.ckpt"), "llama", &vocab), sum = 0;
	for (long i = 0; i < vocab; i++)
		sum += fabsf(z[i]);
	ok(sum > 0 && isfinite(sum), "and the head is the embedding");
	free(z);
}

/* B13 */
static void test_redundant_head(void)
{
	struct folder f, back = { 0 };
	struct tensor *head;
	char *dir;

	folder_load(&f, data_dir("qwen2"));
	head = folder_add(&f, "lm_head.weight", DTYPE_BF16, 2, 281, 24,
			  folder_find(&f, "model.embed_tokens.weight")->data);
	dir = folder_write(&f, "twice");
	ok(!tool_run("import-weights %s -o %s.ckpt", dir, dir) &&
		   said("lm_head.weight is the embedding"),
	   "tied with the same lm_head: accepted");
	ok(digest_equal(digest_of(at("twice.ckpt")), digest_of(at("qwen2.ckpt"))), "stored once");
	ok(!tool_run("export %s.ckpt -o %s.back --max-shard-size 16KB", dir, dir),
	   "exported in shards");
	folder_weights(&back, at("twice.back"));
	f.n--;
	ok(folder_same(&f, &back), "without lm_head");
	ok(!strstr(read_text(at("twice.back/model.safetensors.index.json")), "lm_head"),
	   "the index does not list it");
	f.n++;
	((unsigned char *)head->data)[281 * 24 * 2 - 1] ^= 1;
	dir = folder_write(&f, "other");
	ok(tool_run("import-weights %s -o %s.ckpt", dir, dir) == 65 &&
		   said("lm_head.weight: not the same as"),
	   "tied with another lm_head: an error");
}

/* B17, B19 */
static void test_geometry(void)
{
	struct folder f, back = { 0 };
	float *a, *b;
	long vocab;
	char *dir;

	folder_load(&f, data_dir("llama"));
	folder_config(&f, "\"head_dim\": 6,", "");
	dir = folder_write(&f, "no-head-dim");
	ok(tool_run("import-weights %s -o %s.ckpt", dir, dir) == 65 &&
		   said("q_proj.weight: shape [18, 12], wanted [12, 12]"),
	   "without head_dim the shape is wrong, and named");

	folder_load(&f, data_dir("qwen2"));
	ok(f.n == 26 && !strstr(f.config, "attention_bias"),
	   "26 tensors, a config without attention_bias");
	folder_weights(&back, at("qwen2.back"));
	ok(back.n == 26, "26 come out");
	uint16_t *bias = folder_find(&f, "model.layers.0.self_attn.k_proj.bias")->data;
	for (int i = 0; i < 12; i++)
		bias[i] = f32_to_bf16(5);
	dir = folder_write(&f, "bias5");
	tool_run("import-weights %s -o %s.ckpt", dir, dir);
	memset(bias, 0, 24);
	dir = folder_write(&f, "bias0");
	tool_run("import-weights %s -o %s.ckpt", dir, dir);
	a = logits(at("bias5.ckpt"), "qwen2", &vocab);
	b = logits(at("bias0.ckpt"), "qwen2", &vocab);
	ok(memcmp(a, b, (size_t)vocab * sizeof(*a)), "a bias of 5 on k changes the logits");
	folder_drop(&f, "model.layers.1.self_attn.v_proj.bias");
	dir = folder_write(&f, "bias-gone");
	ok(tool_run("import-weights %s -o %s.ckpt", dir, dir) == 65 &&
		   said("model.layers.1.self_attn.v_proj.bias: missing, wanted [12]"),
	   "a bias that is missing is named");
}

/* B20, B07, B82 (tensor names) */
static void test_extras(void)
{
	static const float nines[3] = { 9, 9, 9 };
	static const int64_t ints[2] = { 1L << 40, -7 };
	struct folder f, back = { 0 };
	char *dir, name[301];

	folder_load(&f, data_dir("llama"));
	folder_add(&f, "model.layers.0.self_attn.rotary_emb.inv_freq", DTYPE_F32, 1, 3, 0, nines);
	dir = folder_write(&f, "inv");
	ok(!tool_run("import-weights %s -o %s.ckpt", dir, dir) &&
		   said("1 rotary_emb.inv_freq left out"),
	   "inv_freq: accepted with a note");
	ok(digest_equal(digest_of(at("inv.ckpt")), digest_of(at("llama.ckpt"))),
	   "the model is the same");
	f.n--;

	memset(name, 'n', 300);
	name[300] = 0;
	folder_add(&f, "foo.weight", DTYPE_I64, 1, 2, 0, ints);
	folder_add(&f, "empty", DTYPE_F32, 1, 0, 0, NULL);
	folder_add(&f, "empty2", DTYPE_F32, 2, 0, 5, NULL);
	folder_add(&f, name, DTYPE_F32, 1, 3, 0, nines);
	dir = folder_write(&f, "extra");
	ok(tool_run("import-weights %s -o %s.ckpt", dir, dir) == 65 &&
		   said("3 more: no weights of a llama model"),
	   "foreign tensors: an error");
	ok(!tool_run("import-weights %s -o %s.ckpt --allow-extra", dir, dir) &&
		   !strstr(tool_err.s, "HDF5"),
	   "--allow-extra: accepted");
	ok(strstr(tool_out.s, "\"parameters\": 9876") && strstr(tool_out.s, "\"tensors\": 25"),
	   "they are no parameters");
	check_logits(at("extra.ckpt"), "llama");
	ok(!tool_run("export %s.ckpt -o %s.back --dtype bfloat16", dir, dir), "exported");
	folder_weights(&back, at("extra.back"));
	ok(back.n == f.n && folder_find(&back, "empty")->rank == 1 &&
		   folder_find(&back, "empty")->shape[0] == 0,
	   "empty: [0]");
	ok(folder_find(&back, "empty2")->rank == 2 && folder_find(&back, "empty2")->shape[1] == 5,
	   "empty2: [0, 5]");
	ok(folder_find(&back, "foo.weight")->dtype == DTYPE_I64 &&
		   !memcmp(folder_find(&back, "foo.weight")->data, ints, 16),
	   "integers are not converted");
	ok(folder_find(&back, name)->dtype == DTYPE_BF16 &&
		   *(uint16_t *)folder_find(&back, name)->data == f32_to_bf16(9),
	   "a name of 300 characters");
}

static bool says(const char *dir, const char *key, const char *value)
{
	struct json_doc d;
	struct err e = ERR_INIT;
	bool is;

	if (json_read(&d, path_join(dir, "config.json"), 0, &e))
		die_err(&e);
	is = value ? json_eq_str(json_get(&d.root, key), value) : !json_get(&d.root, key);
	json_release(&d);
	return is;
}

/* B23 */
static void test_types(void)
{
	struct folder f, back = { 0 };
	uint32_t in[12] = { 0x3f808000, 0x3f818000, 0x7f800001 };
	const uint16_t *out;
	bool all = true;
	char *dir;

	ok(!tool_run("export %s -o %s --dtype float32", at("qwen2.ckpt"), at("wide")),
	   "bfloat16 as float32");
	folder_weights(&back, at("wide"));
	for (long i = 0; i < back.n; i++)
		all = all && back.t[i].dtype == DTYPE_F32;
	ok(all && says(at("wide"), "dtype", "float32"), "every tensor and the config");
	ok(!tool_run("import-weights %s -o %s --dtype bfloat16", at("wide"), at("narrow.ckpt")) &&
		   digest_equal(digest_of(at("narrow.ckpt")), digest_of(at("qwen2.ckpt"))),
	   "and back to bfloat16: the same bits");

	folder_load(&f, data_dir("llama"));
	folder_config(&f, "\"dtype\": \"float32\"",
		      "\"dtype\": \"float32\", \"torch_dtype\": \"float32\"");
	memcpy(folder_find(&f, "model.norm.weight")->data, in, sizeof(in));
	dir = folder_write(&f, "rounding");
	ok(!tool_run("import-weights %s -o %s.ckpt", dir, dir) &&
		   !tool_run("export %s.ckpt -o %s.back --dtype bfloat16", dir, dir),
	   "float32 as bfloat16");
	back.n = 0;
	folder_weights(&back, at("rounding.back"));
	out = folder_find(&back, "model.norm.weight")->data;
	ok(out[0] == 0x3f80 && out[1] == 0x3f82, "ties to even: %04x %04x", out[0], out[1]);
	ok((out[2] & 0x7f80) == 0x7f80 && (out[2] & 0x7f), "a NaN stays one: %04x", out[2]);
	ok(says(at("rounding.back"), "dtype", "bfloat16") &&
		   says(at("rounding.back"), "torch_dtype", "bfloat16"),
	   "both spellings in the config");
	ok(!tool_run("export %s.ckpt -o %s.same --dtype float32", dir, dir) &&
		   same_file(dir, at("rounding.same"), "config.json"),
	   "a type that is there already leaves the config's bytes alone");
}

/* A llama of hidden size 130 and intermediate size 3: FP8 blocks have edges both ways. */
static void make_fp8(struct folder *f, int srows, int scols, const float *scale)
{
	static const char *const norms[] = { "model.norm.weight",
					     "model.layers.0.input_layernorm.weight",
					     "model.layers.0.post_attention_layernorm.weight" };
	unsigned char ones[3 * 130];
	const float down[2] = { 2, 4 };

	*f = (struct folder){
		.config =
			xstrdup("{\"model_type\": \"llama\", \"hidden_size\": 130, "
				"\"intermediate_size\": 3, \"num_hidden_layers\": 1,\n"
				" \"num_attention_heads\": 1, \"head_dim\": 2, \"vocab_size\": 10, "
				"\"tie_word_embeddings\": true, \"torch_dtype\": \"bfloat16\",\n"
				" \"quantization_config\": {\"quant_method\": \"fp8\", "
				"\"weight_block_size\": [128, 128]}}")
	};
	memset(ones, 0x38, sizeof(ones));
	for (int i = 0; i < 3; i++)
		folder_add(f, norms[i], DTYPE_BF16, 1, 130, 0, NULL);
	folder_add(f, "model.embed_tokens.weight", DTYPE_BF16, 2, 10, 130, NULL);
	folder_add(f, "model.layers.0.self_attn.q_proj.weight", DTYPE_BF16, 2, 2, 130, NULL);
	folder_add(f, "model.layers.0.self_attn.k_proj.weight", DTYPE_BF16, 2, 2, 130, NULL);
	folder_add(f, "model.layers.0.self_attn.v_proj.weight", DTYPE_BF16, 2, 2, 130, NULL);
	folder_add(f, "model.layers.0.self_attn.o_proj.weight", DTYPE_BF16, 2, 130, 2, NULL);
	folder_add(f, "model.layers.0.mlp.up_proj.weight", DTYPE_BF16, 2, 3, 130, NULL);
	folder_add(f, "model.layers.0.mlp.gate_proj.weight", DTYPE_F8_E4M3, 2, 3, 130, ones);
	folder_add(f, "model.layers.0.mlp.gate_proj.weight_scale_inv", DTYPE_F32, 2, srows, scols,
		   scale);
	folder_add(f, "model.layers.0.mlp.down_proj.weight", DTYPE_F8_E4M3, 2, 130, 3, ones);
	folder_add(f, "model.layers.0.mlp.down_proj.weight_scale_inv", DTYPE_F32, 2, 2, 1, down);
}

static bool is_dequantised(const char *dir, enum dtype type)
{
	struct folder f = { 0 };
	const struct tensor *gate, *down;
	bool good;

	folder_weights(&f, dir);
	gate = folder_find(&f, "model.layers.0.mlp.gate_proj.weight");
	down = folder_find(&f, "model.layers.0.mlp.down_proj.weight");
	good = f.n == 11 && gate->dtype == type && down->dtype == type;
	for (int i = 0; good && i < 390; i++) {
		float a, b;

		dtype_convert(&a, DTYPE_F32, (char *)gate->data + i * (int)dtype_size(type), type,
			      1);
		dtype_convert(&b, DTYPE_F32, (char *)down->data + i * (int)dtype_size(type), type,
			      1);
		good = a == (i % 130 < 128 ? 2.0f : 4.0f) && b == (i / 3 < 128 ? 2.0f : 4.0f);
	}
	return good;
}

/* B22 */
static void test_fp8(void)
{
	struct folder f;
	char *dir;

	make_fp8(&f, 1, 2, (const float[]){ 2, 4 });
	dir = folder_write(&f, "fp8");
	ok(!tool_run("import-weights %s -o %s.ckpt", dir, dir) &&
		   !tool_run("export %s.ckpt -o %s.back", dir, dir),
	   "FP8 with scales: imported");
	ok(is_dequantised(at("fp8.back"), DTYPE_BF16),
	   "as bfloat16, every block with its own scale");
	ok(says(at("fp8.back"), "quantization_config", NULL) &&
		   says(at("fp8.back"), "torch_dtype", "bfloat16"),
	   "the config says so");
	ok(!tool_run("import-weights %s -o %s.ckpt32 --dtype float32", dir, dir) &&
		   !tool_run("export %s.ckpt32 -o %s.back32", dir, dir) &&
		   is_dequantised(at("fp8.back32"), DTYPE_F32) &&
		   says(at("fp8.back32"), "torch_dtype", "float32"),
	   "or as float32");
	make_fp8(&f, 2, 2, (const float[]){ 2, 4, 9, 9 });
	dir = folder_write(&f, "fp8-padded");
	ok(!tool_run("import-weights %s -o %s.ckpt", dir, dir) &&
		   !tool_run("export %s.ckpt -o %s.back", dir, dir) &&
		   is_dequantised(at("fp8-padded.back"), DTYPE_BF16),
	   "scales beyond the matrix never appear");
	make_fp8(&f, 1, 1, (const float[]){ 2 });
	dir = folder_write(&f, "fp8-short");
	ok(tool_run("import-weights %s -o %s.ckpt", dir, dir) == 65 && said("gate_proj"),
	   "too few scales: an error");
	folder_drop(&f, "model.layers.0.mlp.gate_proj.weight_scale_inv");
	dir = folder_write(&f, "fp8-bare");
	ok(tool_run("import-weights %s -o %s.ckpt", dir, dir) == 65 &&
		   said("gate_proj.weight: type float8_e4m3fn"),
	   "no scales: an error");
	folder_config(&f, "\"fp8\"", "\"gptq\"");
	dir = folder_write(&f, "gptq");
	ok(tool_run("import-weights %s -o %s.ckpt", dir, dir) == 69 && said("quant_method"),
	   "another quantisation: not built");
}

/* A matrix that is read in several pieces: 258 rows of blocks, each with its own scales. */
static void test_large_fp8(void)
{
	enum { ROWS = 33000, COLS = 130, BLOCKS = 258 };
	static const char *const mlp[] = { "up", "gate", "down" };
	struct folder f, back = { 0 };
	float scale[2 * BLOCKS], got;
	const struct tensor *gate;
	bool good = true;
	char *dir, name[80];

	make_fp8(&f, 1, 2, (const float[]){ 2, 4 });
	folder_config(&f, "\"intermediate_size\": 3,", "\"intermediate_size\": 33000,");
	for (int i = 0; i < 2 * BLOCKS; i++)
		scale[i] = ldexpf(i % 2 ? 3 : 1, i / 2 % 5);
	folder_drop(&f, "model.layers.0.mlp.gate_proj.weight_scale_inv");
	folder_drop(&f, "model.layers.0.mlp.down_proj.weight_scale_inv");
	for (int i = 0; i < 3; i++) {
		bool down = i == 2;

		snprintf(name, sizeof(name), "model.layers.0.mlp.%s_proj.weight", mlp[i]);
		folder_drop(&f, name);
		memset(folder_add(&f, name, DTYPE_F8_E4M3, 2, down ? COLS : ROWS,
				  down ? ROWS : COLS, NULL)
			       ->data,
		       0x38, ROWS * COLS);
		strcat(name, "_scale_inv");
		folder_add(&f, name, DTYPE_F32, 2, down ? 2 : BLOCKS, down ? BLOCKS : 2, scale);
	}
	dir = folder_write(&f, "fp8-large");
	ok(!tool_run("import-weights %s -o %s.ckpt", dir, dir) &&
		   !tool_run("export %s.ckpt -o %s.back", dir, dir),
	   "a large matrix of FP8");
	folder_weights(&back, at("fp8-large.back"));
	gate = folder_find(&back, "model.layers.0.mlp.gate_proj.weight");
	for (long i = 0; i < ROWS; i++)
		for (long j = 0; j < COLS; j += 64) {
			got = bf16_to_f32(((const uint16_t *)gate->data)[i * COLS + j]);
			good = good && got == scale[i / 128 * 2 + j / 128];
		}
	ok(good, "each block with its own scale in every piece");
}

static void test_gguf(void)
{
	struct folder want = { 0 }, got = { 0 };

	ok(!tool_run("import-weights tests/data/gguf/model.gguf -o %s", at("gguf.ckpt")) &&
		   !tool_run("export %s -o %s", at("gguf.ckpt"), at("gguf.back")),
	   "GGUF to a Hugging Face folder");
	folder_weights(&want, "tests/data/gguf/model.safetensors");
	folder_weights(&got, at("gguf.back"));
	ok(folder_same(&want, &got),
	   "the weights that the GGUF was made from, q and k in their own order");
	is_str(read_text(at("gguf.back/chat_template.jinja")), "{{ messages }}\n",
	       "the chat template");
	ok(says(at("gguf.back"), "model_type", "llama") &&
		   file_exists(at("gguf.back/tokenizer.json")),
	   "config and tokenizer");
	got.n = 0;
	ok(!tool_run("import-weights tests/data/gguf/model.gguf -o %s --dtype float32",
		     at("gguf32.ckpt")) &&
		   !tool_run("export %s -o %s --dtype float16", at("gguf32.ckpt"),
			     at("gguf16.back")),
	   "through float32 and back");
	folder_weights(&got, at("gguf16.back"));
	ok(!memcmp(folder_find(&got, "model.embed_tokens.weight")->data,
		   folder_find(&want, "model.embed_tokens.weight")->data, 18 * 8 * 2),
	   "widened and narrowed without loss");
}

/* What the checkpoint's template makes of one message "hi". */
static char *rendered(const char *ckpt)
{
	struct chat_render r = { 0 };
	struct chat_template *t;
	struct checkpoint c;
	struct json_doc d;
	struct blob b = { 0 };
	struct str text = { 0 };
	struct err e = ERR_INIT;

	load_checkpoint(&c, ckpt);
	if (checkpoint_read_tokenizer(&b, &c, &e) ||
	    json_parse(&d, "[{\"content\": \"hi\"}]", 19, "", 1, &e))
		die_err(&e);
	r.messages = &d.root;
	for (int i = 0; i < b.n; i++) {
		if (strcmp(b.part[i].name, "chat_template"))
			continue;
		if (chat_template_parse(&t, b.part[i].data, b.part[i].bytes, ckpt, &e) ||
		    chat_template_render(t, &r, &text, NULL, NULL, &e))
			die_err(&e);
		chat_template_free(t);
	}
	str_add(&text, "", 0);
	blob_release(&b);
	checkpoint_close(&c);
	return text.s;
}

/* Import a folder with these templates; the checkpoint. */
static char *import_template(const char *name, const char *config, const char *jinja,
			     const char *option)
{
	struct folder f;
	struct err e = ERR_INIT;
	char *dir;

	folder_load(&f, data_dir("llama"));
	dir = folder_write(&f, name);
	if (file_copy("tests/data/hf-tiny-llama/tokenizer.json", path_join(dir, "tokenizer.json"),
		      &e) ||
	    file_write(path_join(dir, "tokenizer_config.json"), config, strlen(config), &e) ||
	    (jinja && file_write(path_join(dir, "chat_template.jinja"), jinja, strlen(jinja), &e)))
		die_err(&e);
	if (tool_run("import-weights %s -o %s.ckpt %s", dir, dir, option))
		die(EX_SOFTWARE, "%s", tool_err.s);
	return xasprintf("%s.ckpt", dir);
}

static char *with_template(const char *name, const char *config, const char *jinja,
			   const char *option)
{
	return rendered(import_template(name, config, jinja, option));
}

static void test_templates(void)
{
	static const char string[] = "{\"chat_template\": \"S{{ messages[0].content }}\"}";
	static const char list[] =
		"{\"chat_template\": [{\"name\": \"tool_use\", \"template\": \"T\"},"
		" {\"name\": \"default\", \"template\": \"D{{ messages[0].content }}\"}]}";

	is_str(with_template("t1", string, NULL, ""), "Shi",
	       "the template of tokenizer_config.json");
	is_str(with_template("t2", list, NULL, ""), "Dhi", "of several, the default one");
	is_str(with_template("t3", string, "J{{ messages[0].content }}", ""), "Jhi",
	       "chat_template.jinja goes first");
	is_str(with_template("t4", "{}", NULL, ""), "", "none");
	is_str(with_template("t5", string, NULL, "--chat-template none"), "", "none, as asked");
	is_str(with_template("t6", string, "J", "--chat-template plain"), "hi",
	       "another one, as asked");
	import_template("t7", "{}", "{% broken", "");
	ok(said("chat template:1: "), "one that cannot be read is warned of");
}

static void check_answer(struct checkpoint *c, struct model *m, const struct tokenizer *t,
			 const struct chat_template *chat, const struct json *r)
{
	const struct json *want = json_get(r, "ids"), *logit = json_get(r, "logits"),
			  *question = json_get(r, "question");
	struct json_out messages = { 0 };
	struct token_list ids = { 0 };
	struct json_doc d;
	struct str text = { 0 };
	struct err e = ERR_INIT;
	struct pass *p;
	double worst = 0, largest = strtod(json_get(r, "largest")->text, NULL);
	long vocab = m->table.config.vocab, cu[2] = { 0 }, top = 0;
	float *z = xcalloc((size_t)vocab, sizeof(*z));
	bool same;

	json_begin(&messages, '[');
	json_begin(&messages, '{');
	json_add_str(&messages, "role", "user");
	json_add_str(&messages, "content", question->text);
	json_end(&messages);
	json_end(&messages);
	if (json_parse(&d, messages.s.s, messages.s.len, c->dir, 1, &e) ||
	    chat_template_render(
		    chat,
		    &(struct chat_render){ .messages = &d.root, .add_generation_prompt = true },
		    &text, NULL, NULL, &e) ||
	    tokenizer_encode(t, text.s, text.len, 0, &ids, &e))
		die_err(&e);
	is_str(text.s, json_get(r, "text")->text, "the text");
	same = ids.n == (long)want->n;
	for (long i = 0; same && i < ids.n; i++)
		same = ids.id[i] == atoi(want->item[i].text);
	ok(same, "the ids");
	cu[1] = ids.n;
	p = pass_new(m, ids.n, false, false);
	pass_forward(p, &(struct batch){ .rows = ids.n, .ids = ids.id, .nseq = 1, .cu = cu });
	pass_logits(p, z, ids.n - 1, 1);
	for (long i = 0; i < vocab; i++)
		top = z[i] > z[top] ? i : top;
	for (size_t i = 0; i < logit->n; i++)
		worst = fmax(worst, fabs(strtod(logit->member[i].value.text, NULL) -
					 (double)z[atol(logit->member[i].key)]));
	ok(worst <= 1e-5 * largest && top == atol(json_get(r, "top")->text),
	   "the logits (%.1e of %.2f)", worst, largest);
	pass_free(p);
	free(z);
}

/* A real model: from GGUF, what transformers' own reader of GGUF gives (record_smollm2.py). */
static void test_smollm2(void)
{
	const char *gguf = getenv("CAIRN_SMOLLM2_GGUF");
	struct chat_template *chat = NULL;
	struct tokenizer *t;
	struct checkpoint c;
	struct json_doc d;
	struct model m;
	struct blob b = { 0 };
	struct err e = ERR_INIT;

	if (!gguf) {
		skip("CAIRN_SMOLLM2_GGUF is not set", "SmolLM2 from GGUF against transformers");
		return;
	}
	ok(!tool_run("import-weights %s -o %s", gguf, at("smol.ckpt")), "SmolLM2 from GGUF");
	load_checkpoint(&c, at("smol.ckpt"));
	load_model(&m, &c, ops_find("cpu", NULL, &e), NULL, DTYPE_F32, 0, 0);
	t = load_tokenizer(&c);
	if (json_read(&d, "tests/data/smollm2.json", 0, &e) ||
	    checkpoint_read_tokenizer(&b, &c, &e))
		die_err(&e);
	for (int i = 0; i < b.n; i++)
		if (!strcmp(b.part[i].name, "chat_template") &&
		    chat_template_parse(&chat, b.part[i].data, b.part[i].bytes, c.dir, &e))
			die_err(&e);
	for (size_t i = 0; i < d.root.n; i++)
		check_answer(&c, &m, t, chat, &d.root.item[i]);
	model_release(&m);
}

int main(void)
{
	struct err e = ERR_INIT;

	pool_start(1);
	if (json_read(&recorded, "tests/data/hf-tiny.json", 0, &e))
		die_err(&e);
	for (int i = 0; i < 3; i++)
		test_round_trip(names[i]);
	test_missing_head();
	test_redundant_head();
	test_geometry();
	test_extras();
	test_types();
	test_fp8();
	test_large_fp8();
	test_gguf();
	test_templates();
	test_smollm2();
	return done();
}
