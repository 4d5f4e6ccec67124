#include "tools/reshard/reshard.h"

#include <sys/stat.h>
#include <unistd.h>

#include "libcommon/file.h"
#include "libcommon/pool.h"
#include "tests/lib/tap.h"

/*
 * Resharding between random layouts of random models.  Every element says which tensor it is of and where it lies in it, so one that
 * came to a wrong place is seen, whatever the sums say.
 */

static uint64_t seed = 88172645463325252;

static long draw(long least, long most)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return least + (long)(seed % (uint64_t)(most - least + 1));
}

static char *root;
static long made, pairs, uneven, odd_dp, empty, packed, moe;

static char *fresh(void)
{
	return xasprintf("%s/%ld", root, made++);
}

static void discard(char *dir)
{
	char *cmd = xasprintf("rm -rf '%s'", dir);

	if (system(cmd))
		bug("%s", cmd);
	free(cmd);
	free(dir);
}

static struct model_config random_model(void)
{
	static const char *const type[] = { "llama", "qwen2", "qwen3" };
	struct model_config c = { .layers = draw(1, 4), .kv_heads = draw(1, 3), .head_dim = 2, .vocab = draw(1, 40),
				  .hidden = draw(1, 6), .intermediate = 6 * draw(1, 3), .tied = draw(0, 1), .head = HEAD_LM };

	strcpy(c.model_type, type[draw(0, 2)]);
	c.heads = c.kv_heads * draw(1, 4);
	c.qkv_bias = draw(0, 1);
	c.qk_norm = draw(0, 1);
	if (draw(0, 2) == 0) {
		strcpy(c.model_type, "qwen2_moe");
		c.moe = (struct moe_config){ .experts = 2 * draw(1, 4), .experts_per_token = 1, .intermediate = 6 * draw(1, 2),
					     .shared_intermediate = draw(0, 1) * 12, .step = draw(1, 2) };
		moe++;
	}
	return c;
}

/* Layers dealt to stages at random; some get none. */
static void random_stages(struct layout *l, long pp)
{
	layout_balance(l, pp);
	for (long i = 0; i < l->layers && pp > 1; i++) {
		long least = i ? l->stage_of_layer[i - 1] : 0;

		l->stage_of_layer[i] = draw(0, 1) ? least : draw(least, pp - 1);
	}
}

static void random_layout(struct layout *l, const struct model_config *c)
{
	struct err e = ERR_INIT;

	for (;;) {
		layout_init(l, c->layers);
		l->tp = draw(1, 4);
		random_stages(l, draw(1, c->layers));
		l->dp = (long[]){ 1, 2, 3, 5, 7 }[draw(0, 4)];
		l->cp = draw(0, 4) ? 1 : 2;
		if (c->moe.experts) {
			l->ep = draw(1, 4);
			l->etp = draw(1, 3);
		}
		if (layout_world(l) <= 30 && !layout_check(l, c, &e))
			return;
		layout_release(l);
	}
}

/* Weights of one type, slots of the trained ones; a tensor that the model does not know. */
static long random_tensors(struct checkpoint_tensor **out, const struct param_table *t)
{
	struct checkpoint_tensor *x = *out = xcalloc((size_t)t->n * 4 + 2, sizeof(*x));
	enum dtype w = draw(0, 1) ? DTYPE_BF16 : DTYPE_F32;
	bool optimizer = draw(0, 3) > 0;
	long n = 0, frozen = draw(0, 3);

	for (long i = 0; i < t->n; i++) {
		const struct param *p = &t->p[i];

		for (int slot = SLOT_WEIGHT; slot <= SLOT_EXP_AVG_SQ; slot++) {
			if (slot != SLOT_WEIGHT && (!optimizer || i == frozen))
				continue;
			if (slot == SLOT_MASTER && w == DTYPE_F32)
				continue;
			x[n] = (struct checkpoint_tensor){ .name = p->name, .slot = (enum slot)slot, .dtype = slot ? DTYPE_F32 : w,
							   .role = i == frozen ? ROLE_FROZEN : ROLE_PARAM, .rank = p->rank };
			memcpy(x[n++].shape, p->shape, sizeof(p->shape));
		}
	}
	if (draw(0, 1))
		x[n++] = (struct checkpoint_tensor){ .name = "extra", .dtype = DTYPE_U8, .role = ROLE_CARRIED, .rank = 2,
						     .shape = { draw(0, 5), draw(1, 9) } };
	return n;
}

/* float32: tensor and index as they are; narrower types: 16 or 8 bits of a product of both. */
static void fill(void *out, const struct checkpoint_tensor *t)
{
	uint32_t id = (uint32_t)hash64(t->name, strlen(t->name)) * 8 + (uint32_t)t->slot;
	struct box b = box_whole(t->shape, t->rank);
	long n = box_volume(&b);

	for (long i = 0; i < n; i++) {
		uint32_t v = id * 2654435761u + (uint32_t)i;

		if (t->dtype == DTYPE_F32)
			((uint32_t *)out)[i] = v;
		else if (t->dtype == DTYPE_BF16)
			((uint16_t *)out)[i] = (uint16_t)(v * 40503u >> 8);
		else
			((uint8_t *)out)[i] = (uint8_t)(v * 197 >> 3);
	}
}

static size_t bytes_of(const struct checkpoint_tensor *t)
{
	struct box b = box_whole(t->shape, t->rank);

	return (size_t)box_volume(&b) * dtype_size(t->dtype);
}

static const struct checkpoint_meta *meta(const struct layout *l, int compress)
{
	static struct checkpoint_meta m;

	m = (struct checkpoint_meta){ .head = "lm", .optimizer = "adamw", .counters = { 5, 4, 5, 1, 40, 999 },
				      .cursor = "{\"position\": 7}", .layout = l, .compress = compress,
				      .history = { .program = "test", .version = "0" } };
	return &m;
}

static struct checkpoint_writer *begin(const char *dir, const struct listing *t, const struct layout *l, int compress)
{
	struct checkpoint_writer *w;
	struct err e = ERR_INIT;

	if (checkpoint_create(&w, dir, meta(l, compress), t->tensor, t->n, t->piece, t->pieces, NULL, &e) ||
	    checkpoint_put_file(w, "hf/config.json", "{}", 2, &e))
		die_err(&e);
	return w;
}

/* The first checkpoint of a chain: put whole, cut by the same pieces. */
static char *write_first(const struct param_table *table, const struct layout *l, int compress)
{
	struct checkpoint_tensor *x;
	struct checkpoint_writer *w;
	struct err e = ERR_INIT;
	char *dir = fresh(), *whole = fresh();
	struct checkpoint c;
	struct listing t;
	long n = random_tensors(&x, table);

	if (checkpoint_create(&w, whole, meta(NULL, 0), x, n, NULL, 0, NULL, &e))
		die_err(&e);
	for (int pass = 0; pass < 2; pass++) {
		if (pass && (checkpoint_open(&c, whole, &e) || listing_init(&t, &c, &table->config, l, false, &e)))
			die_err(&e);
		if (pass)
			w = begin(dir, &t, l, compress);
		else if (checkpoint_put_file(w, "hf/config.json", "{}", 2, &e))
			die_err(&e);
		for (long i = 0; i < n; i++) {
			char *data = xmalloc(bytes_of(&x[i]) + 1);

			fill(data, &x[i]);
			if (checkpoint_put(w, checkpoint_index(w, x[i].name, x[i].slot), NULL, data, &e))
				die_err(&e);
			free(data);
		}
		if (checkpoint_commit(w, &e))
			die_err(&e);
	}
	listing_release(&t);
	checkpoint_close(&c);
	discard(whole);
	free(x);
	return dir;
}

/* Every tensor read back whole is what fill() says, and its boxes are those of the listing. */
static bool is_right(struct checkpoint *c)
{
	struct err e = ERR_INIT;
	bool good = true;

	for (long i = 0; i < c->n && good; i++) {
		size_t n = bytes_of(&c->tensor[i]);
		char *want = xmalloc(n + 1), *have = xmalloc(n + 1);

		fill(want, &c->tensor[i]);
		good = !checkpoint_read(have, c, i, NULL, &e) && !memcmp(want, have, n);
		if (!good)
			printf("# %s %s: %s\n", c->tensor[i].name, slot_name(c->tensor[i].slot), e.msg);
		free(want);
		free(have);
	}
	return good;
}

static char *reshard(const char *from, const struct model_config *m, const struct layout *l, int compress, size_t memory, bool *good)
{
	struct checkpoint c, back;
	struct checkpoint_move *move;
	struct checkpoint_writer *w;
	struct listing t;
	struct err e = ERR_INIT;
	char *dir = fresh();

	if (checkpoint_open(&c, from, &e) || listing_init(&t, &c, m, l, false, &e) ||
	    checkpoint_move_plan(&move, &c, t.tensor, t.n, t.piece, t.pieces, compress, 0, 1, memory, &e))
		die_err(&e);
	if (checkpoint_move_totals(move).memory > memory)
		*good = false;
	w = begin(dir, &t, l, compress);
	if (checkpoint_move_run(move, w, NULL, NULL, &e) || checkpoint_commit(w, &e) || checkpoint_open(&back, dir, &e))
		die_err(&e);
	*good &= is_right(&back) && digest_equal(back.weights_digest, c.weights_digest) && back.has_optimizer == c.has_optimizer &&
		 (!c.has_optimizer || digest_equal(back.optimizer_digest, c.optimizer_digest)) && layout_equal(&back.layout, l);
	checkpoint_move_free(move);
	checkpoint_close(&back);
	checkpoint_close(&c);
	listing_release(&t);
	return dir;
}

static bool same_id(const char *a, const char *b)
{
	struct checkpoint x, y;
	struct err e = ERR_INIT;
	bool same = true;

	if (checkpoint_open(&x, a, &e) || checkpoint_open(&y, b, &e))
		die_err(&e);
	/* The names of the shards, which hold the ID, their sizes and the hashes of their frames. */
	same = json_equal(json_get(&x.manifest.root, "shards"), json_get(&y.manifest.root, "shards"));
	for (size_t i = 0; same && i < json_get(&x.manifest.root, "shards")->n; i++) {
		const char *name = json_get(&json_get(&x.manifest.root, "shards")->item[i], "name")->text;
		char *p = path_join(a, name), *q = path_join(b, name);
		struct str s = { 0 }, t = { 0 };

		if (file_read(&s, p, 0, &e) || file_read(&t, q, 0, &e))
			die_err(&e);
		same = s.len == t.len && !memcmp(s.s, t.s, s.len);
		str_release(&s);
		str_release(&t);
		free(p);
		free(q);
	}
	checkpoint_close(&x);
	checkpoint_close(&y);
	return same;
}

static void count(const struct layout *l, const struct model_config *m)
{
	struct param_table t;
	struct place first = { 0 };
	long n[8] = { 0 };
	bool differ = false, none = false;

	for (long i = 0; i < l->layers; i++)
		n[layout_stage(l, i)]++;
	for (long k = 0; k < l->pp; k++) {
		differ |= n[k] != n[0];
		none |= !n[k];
	}
	param_table_init(&t, m);
	for (long i = 0; i < t.n; i++) {
		struct box b = param_box(&t.p[i], l, &first);

		none |= !box_volume(&b);
	}
	param_table_release(&t);
	pairs++;
	uneven += differ;
	odd_dp += l->dp % 2 && l->dp > 1;
	empty += none;
}

/* A -> B -> C -> A. */
static void chain(struct model_config m, size_t memory, int number)
{
	struct param_table table;
	struct layout l[3];
	int compress[3];
	char *dir[4];
	bool good = true;

	param_table_init(&table, &m);
	for (int i = 0; i < 3; i++) {
		random_layout(&l[i], &m);
		count(&l[i], &m);
		compress[i] = draw(0, 5) == 0;
		packed += compress[i];
	}
	dir[0] = write_first(&table, &l[0], compress[0]);
	for (int i = 1; i < 4; i++)
		dir[i] = reshard(dir[i - 1], &m, &l[i % 3], compress[i % 3], memory, &good);
	good &= same_id(dir[0], dir[3]);
	for (int i = 0; i < 4; i++)
		discard(dir[i]);
	for (int i = 0; i < 3 && !good; i++) {
		char *text = layout_text(&l[i]);

		printf("# layout %d: %s%s\n", i, text, compress[i] ? ", compressed" : "");
		free(text);
	}
	for (int i = 0; i < 3; i++)
		layout_release(&l[i]);
	param_table_release(&table);
	if (!good)
		ok(false, "chain %d", number);
}

/* Tensors of many blocks, with memory for a few of them. */
static struct model_config large_model(void)
{
	struct model_config c = { .model_type = "llama", .layers = 2, .kv_heads = 2, .heads = 4, .head_dim = 64, .vocab = 5000,
				  .hidden = 300, .intermediate = 1200, .head = HEAD_LM, .tied = true };

	if (draw(0, 1)) {
		strcpy(c.model_type, "qwen3_moe");
		c.moe = (struct moe_config){ .experts = 4, .experts_per_token = 1, .intermediate = 600, .step = 1 };
	}
	return c;
}

/* Two tensors whose data change places, with checksums that fit: only the digests know. */
static void swapped(void)
{
	struct model_config m = large_model();
	struct param_table table;
	struct checkpoint c;
	struct checkpoint_move *move;
	struct checkpoint_writer *w;
	struct layout l;
	struct listing t;
	struct err e = ERR_INIT;
	char *dir, *to = fresh();

	param_table_init(&table, &m);
	layout_init(&l, m.layers);
	dir = write_first(&table, &l, 0);
	if (checkpoint_open(&c, dir, &e))
		die_err(&e);
	long a = checkpoint_find(&c, "model.layers.0.input_layernorm.weight", SLOT_WEIGHT),
	     b = checkpoint_find(&c, "model.layers.1.input_layernorm.weight", SLOT_WEIGHT);
	struct digest sum = c.sum[a];
	c.sum[a] = c.sum[b];
	c.sum[b] = sum;
	if (listing_init(&t, &c, &m, &l, true, &e) ||
	    checkpoint_move_plan(&move, &c, t.tensor, t.n, t.piece, t.pieces, 0, 0, 1, 64 << 20, &e))
		die_err(&e);
	w = begin(to, &t, &l, 0);
	if (checkpoint_move_run(move, w, NULL, NULL, &e))
		die_err(&e);
	ok(checkpoint_commit(w, &e) == -1 && e.code == EX_DATAERR && strstr(e.msg, "input_layernorm"), "tensors that changed places: %s", e.msg);
	ok(!file_exists(to), "and nothing is there");
	checkpoint_move_free(move);
	listing_release(&t);
	checkpoint_close(&c);
	param_table_release(&table);
	free(to);
	discard(dir);
}

int main(int argc, char **argv)
{
	int chains = argc > 1 ? atoi(argv[1]) : 168;

	pool_start(2);
	/* In memory where there is such a place: thousands of small files are made durable. */
	root = xasprintf("/dev/shm/cairn-reshard.%d", (int)getpid());
	if (mkdir(root, 0777)) {
		free(root);
		root = xstrdup(tap_tmp());
	}
	swapped();
	for (int i = 0; i < chains; i++)
		chain(random_model(), 4 << 20, i);
	for (int i = 0; i < 6; i++)
		chain(large_model(), (size_t)draw(3, 7) << 20, chains + i);
	printf("# %ld pairs: %ld with uneven stages, %ld with a DP of 3, 5 or 7, %ld with empty boxes; %ld compressed; %ld models with experts\n",
	       pairs, uneven, odd_dp, empty, packed, moe);
	ok(pairs >= 500 || argc > 1, "%ld pairs of layouts, there and back: identical bits", pairs);
	ok(argc > 1 || (3 * uneven >= pairs && 3 * odd_dp >= pairs && empty > 50 && packed > 50 && moe > 30), "with what is rare among them");
	discard(root);
	return done();
}
