#include "formats/checkpoint.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "libcommon/file.h"
#include "libcommon/pool.h"
#include "libcommon/rng.h"
#include "tests/lib/tap.h"

/*
 * A small model with every awkward thing: names of 300 characters, rank 0, no elements, several
 * types, more than one block.
 */
enum { TENSORS = 13, LONG_NAME = 300 };
static char long_name[LONG_NAME + 1];
static struct checkpoint_tensor model[TENSORS] = {
	{ "model.embed_tokens.weight", SLOT_WEIGHT, ROLE_PARAM, DTYPE_BF16, 2, { 37, 24 } },
	{ "model.layers.0.mlp.up_proj.weight",
	  SLOT_WEIGHT,
	  ROLE_PARAM,
	  DTYPE_F32,
	  2,
	  { 700, 801 } },
	{ long_name, SLOT_WEIGHT, ROLE_FROZEN, DTYPE_F16, 1, { 5 } },
	{ "scalar", SLOT_WEIGHT, ROLE_BUFFER, DTYPE_F32, 0, { 0 } },
	{ "empty", SLOT_WEIGHT, ROLE_CARRIED, DTYPE_BF16, 2, { 0, 5 } },
	{ "mask", SLOT_WEIGHT, ROLE_CARRIED, DTYPE_BOOL, 1, { 9 } },
	{ "ids", SLOT_WEIGHT, ROLE_CARRIED, DTYPE_I64, 3, { 3, 5, 7 } },
	{ "fp8%b", SLOT_WEIGHT, ROLE_CARRIED, DTYPE_F8_E4M3, 2, { 4, 6 } },
	{ "model.embed_tokens.weight", SLOT_MASTER, ROLE_PARAM, DTYPE_F32, 2, { 37, 24 } },
	{ "model.embed_tokens.weight", SLOT_EXP_AVG, ROLE_PARAM, DTYPE_F32, 2, { 37, 24 } },
	{ "model.embed_tokens.weight", SLOT_EXP_AVG_SQ, ROLE_PARAM, DTYPE_F32, 2, { 37, 24 } },
	{ "model.layers.0.mlp.up_proj.weight",
	  SLOT_EXP_AVG,
	  ROLE_PARAM,
	  DTYPE_F32,
	  2,
	  { 700, 801 } },
	{ "model.layers.0.mlp.up_proj.weight",
	  SLOT_EXP_AVG_SQ,
	  ROLE_PARAM,
	  DTYPE_F32,
	  2,
	  { 700, 801 } },
};
static char *bits[TENSORS];
static struct err e;

static long volume(int t)
{
	struct box b = box_whole(model[t].shape, model[t].rank);

	return box_volume(&b);
}

static size_t size_of(int t)
{
	return (size_t)volume(t) * dtype_size(model[t].dtype);
}

static void make_bits(void)
{
	memset(long_name, 'n', LONG_NAME);
	for (int t = 0; t < TENSORS; t++) {
		uint32_t state = (uint32_t)t * 7919 + 1;

		bits[t] = xmalloc(size_of(t) + 1);
		for (size_t i = 0; i < size_of(t); i++) {
			state = state * 1664525 + 1013904223;
			bits[t][i] = model[t].dtype == DTYPE_BOOL ? (char)(state >> 31)
								  : (char)(state >> 24);
		}
	}
	/* A signalling NaN with a payload, a negative zero, a subnormal. */
	memcpy(bits[1], (uint32_t[]){ 0x7f812345, 0x80000000, 0x00000007, 0x3fc00000 }, 16);
	memcpy(bits[0], (uint16_t[]){ 0x7f81, 0x8000, 0x0001, 0x3fc0 }, 8);
}

static const char *const argument[] = { "train-step",	   "ckpt",
					"--hf-token",	   "abc",
					"env.api_key=xyz", "policy.tokenizer.name=t" };
static const uint64_t seed = 18446744073709551615u;
static struct checkpoint_meta meta = {
	.head = "lm",
	.optimizer = "adamw",
	.precision = "bfloat16",
	.counters = { 3, 2, 3, 1, 96, 12345 },
	.cursor = "{\"epoch\": 1, \"position\": 7}",
	.fingerprint = "00112233445566ff",
	.history = { .program = "train-step",
		     .version = "0.1.0",
		     .argument = argument,
		     .argc = 6,
		     .recipe = "a: 1\n",
		     .seed = &seed,
		     .seeds = 1 },
};

static char *config;            /* 100,000 bytes */

static int put_rest(struct checkpoint_writer *w)
{
	struct blob_part part[2] = { { (char *)"pack", (void *)"\0\1\2tok", 6 },
				     { (char *)"zero", (void *)"", 0 } };
	struct blob blob = { part, 2 };

	return checkpoint_put_file(w, "hf/config.json", config, 100000, &e) ||
	       checkpoint_put_file(w, "metrics.json", "{}\n", 3, &e) ||
	       checkpoint_put_tokenizer(w, &blob, &e);
}

static int save(const char *dir, const struct checkpoint_piece *piece, long pieces, bool backwards)
{
	struct checkpoint_writer *w;

	e = (struct err){ 0 };
	if (checkpoint_create(&w, dir, &meta, model, TENSORS, piece, pieces, NULL, &e))
		return -1;
	for (int i = 0; i < TENSORS; i++) {
		int t = backwards ? TENSORS - 1 - i : i;

		if (checkpoint_put(w, checkpoint_index(w, model[t].name, model[t].slot), NULL,
				   bits[t], &e))
			return -1;
	}
	return put_rest(w) ? -1 : checkpoint_commit(w, &e);
}

static char *at(const char *name)
{
	return path_join(tap_tmp(), name);
}

/* All tensors come back as the bits that went in; a second open state is not kept. */
static int load_all(const char *dir)
{
	struct checkpoint c;
	struct blob blob;
	int bad = 0;

	e = (struct err){ 0 };
	if (checkpoint_open(&c, dir, &e))
		return -1;
	for (int t = 0; t < TENSORS && bad >= 0; t++) {
		long i = checkpoint_find(&c, model[t].name, model[t].slot);
		char *out = xmalloc(size_of(t) + 1);

		if (i < 0 || checkpoint_read(out, &c, i, NULL, &e))
			bad = -1;
		else
			bad += memcmp(out, bits[t], size_of(t)) != 0;
		free(out);
	}
	if (bad >= 0 && checkpoint_verify(&c, true, &e))
		bad = -1;
	if (bad >= 0) {
		if (checkpoint_read_tokenizer(&blob, &c, &e))
			bad = -1;
		else {
			bad += blob.n != 2 || blob.part[0].bytes != 6 ||
			       memcmp(blob.part[0].data, "\0\1\2tok", 6) || blob.part[1].bytes;
			blob_release(&blob);
		}
	}
	checkpoint_close(&c);
	return bad;
}

static void test_round_trip(void)
{
	char *dir = at("a"), *dir2 = at("b"), *dir3 = at("c");
	struct checkpoint c;
	struct str text = { 0 };

	ok(save(dir, NULL, 0, false) == 0, "a checkpoint is written: %s", e.msg);
	ok(load_all(dir) == 0, "and comes back bit for bit: %s", e.msg);
	ok(checkpoint_open(&c, dir, &e) == 0, "it opens: %s", e.msg);
	ok(c.counters.step == 3 && c.counters.updates == 2 && c.counters.schedule_step == 3 &&
		   c.counters.skipped == 1 && c.counters.consumed_samples == 96 &&
		   c.counters.tokens == 12345,
	   "counters");
	is_str(c.head, "lm", "head");
	is_str(c.optimizer, "adamw", "optimizer");
	is_str(c.fingerprint, "00112233445566ff", "fingerprint");
	ok(json_get(c.cursor, "position") != NULL, "cursor");
	ok(checkpoint_side_file(&text, &c, "hf/config.json", &e) == 0 && text.len == 100000 &&
		   !memcmp(text.s, config, text.len),
	   "config of 100,000 bytes");
	str_release(&text);
	ok(checkpoint_side_file(&text, &c, "recipe.yaml", &e) == 0 && text.len == 5 &&
		   !memcmp(text.s, "a: 1\n", 5),
	   "recipe");
	str_release(&text);
	ok(checkpoint_find(&c, long_name, SLOT_WEIGHT) >= 0 &&
		   checkpoint_find(&c, long_name, SLOT_MASTER) < 0,
	   "a name of 300 characters");
	ok(checkpoint_find(&c, model[1].name, SLOT_MASTER) ==
		   checkpoint_find(&c, model[1].name, SLOT_WEIGHT),
	   "float32 weights are their own master");
	const struct json *args = json_path(c.history, "entry.arguments");
	is_str(args->item[3].text, "***", "the secret behind an option is hidden");
	is_str(args->item[4].text, "env.api_key=***", "the secret in an override is hidden");
	is_str(args->item[5].text, "policy.tokenizer.name=t", "a tokenizer is no secret");
	is_str(json_path(c.history, "entry.seeds")->item[0].text, "18446744073709551615",
	       "seeds of 64 bits");
	checkpoint_close(&c);
	ok(save(dir, NULL, 0, false) == -1 && e.code == EX_CANTCREAT,
	   "a directory that exists is refused: %s", e.msg);
	ok(save(dir2, NULL, 0, false) == 0 && save(dir3, NULL, 0, true) == 0,
	   "the same again, and in another order of puts");
	char *cmd = xasprintf("diff -r %s %s && diff -r %s %s", dir, dir2, dir, dir3);
	ok(system(cmd) == 0, "every file has the same bytes");
	free(cmd);
	free(dir);
	free(dir2);
	free(dir3);
}

/* Cut a box in two at random places until there are enough, then deal the pieces to files. */
static long cut(struct checkpoint_piece *out, int t, int parts, int files, struct rng_key key)
{
	long n = 1;

	if (!volume(t))
		return 0;
	out[0] = (struct checkpoint_piece){ t, 0, box_whole(model[t].shape, model[t].rank) };
	for (int i = 0; i < parts && model[t].rank; i++) {
		uint32_t r[4], counter[4] = { (uint32_t)t, (uint32_t)i };
		struct box *b, other;
		int d;

		philox4x32(r, counter, key);
		b = &out[r[0] % (uint32_t)n].box;
		d = (int)(r[1] % (uint32_t)model[t].rank);
		if (b->extent[d] < 2)
			continue;
		other = *b;
		long left = 1 + (long)(r[2] % (uint32_t)(b->extent[d] - 1));
		b->extent[d] = left;
		other.start[d] += left;
		other.extent[d] -= left;
		out[n++].box = other;
	}
	for (long i = 0; i < n; i++) {
		out[i].tensor = t;
		out[i].file = (int)((i * 7 + t) % files);
	}
	return n;
}

static struct digest weights_of(const char *dir, struct digest *optimizer)
{
	struct checkpoint c;
	struct digest d = { 0, 0 };

	*optimizer = d;
	if (!checkpoint_open(&c, dir, &e)) {
		d = c.weights_digest;
		*optimizer = c.optimizer_digest;
		checkpoint_close(&c);
	}
	return d;
}

/* N boxes to M boxes: put by other boxes than are stored, read by others again. */
static void test_boxes(void)
{
	struct checkpoint_piece *stored = xcalloc(TENSORS * 40, sizeof(*stored)),
				*other = xcalloc(TENSORS * 40, sizeof(*other));
	struct digest want, want_optimizer, got, got_optimizer;
	char *whole = at("a");

	want = weights_of(whole, &want_optimizer);
	for (int round = 0; round < 6; round++) {
		char name[32], *dir;
		long n = 0, m = 0;
		struct checkpoint_writer *w;
		struct checkpoint c;
		int bad = 0;

		for (int t = 0; t < TENSORS; t++) {
			n += cut(stored + n, t, 2 + round * 6, 1 + round,
				 rng_key((uint64_t)round, RNG_TEST, 1));
			m += cut(other + m, t, 1 + round * 3, 1,
				 rng_key((uint64_t)round, RNG_TEST, 2));
		}
		snprintf(name, sizeof(name), "box%d", round);
		dir = at(name);
		e = (struct err){ 0 };
		if (checkpoint_create(&w, dir, &meta, model, TENSORS, stored, n, NULL, &e)) {
			ok(0, "create: %s", e.msg);
			return;
		}
		for (long i = 0; i < m; i++) {
			int t = (int)other[i].tensor;
			struct box whole_box = box_whole(model[t].shape, model[t].rank);
			char *part = xmalloc((size_t)box_volume(&other[i].box) *
					     dtype_size(model[t].dtype));

			box_copy(part, &other[i].box, bits[t], &whole_box, &other[i].box,
				 dtype_size(model[t].dtype));
			bad |= checkpoint_put(w, t, &other[i].box, part, &e);
			free(part);
		}
		bad |= put_rest(w);
		ok(!bad && checkpoint_commit(w, &e) == 0, "%ld boxes put as %ld: %s", n, m, e.msg);
		got = weights_of(dir, &got_optimizer);
		ok(digest_equal(got, want) && digest_equal(got_optimizer, want_optimizer),
		   "the digests are those of whole tensors");
		ok(load_all(dir) == 0, "whole tensors come back: %s", e.msg);
		ok(checkpoint_open(&c, dir, &e) == 0, "open: %s", e.msg);
		for (long i = 0; i < m && !bad; i++) {
			int t = (int)other[i].tensor;
			struct box whole_box = box_whole(model[t].shape, model[t].rank);
			size_t bytes =
				(size_t)box_volume(&other[i].box) * dtype_size(model[t].dtype);
			char *part = xmalloc(bytes), *ref = xmalloc(bytes);

			box_copy(ref, &other[i].box, bits[t], &whole_box, &other[i].box,
				 dtype_size(model[t].dtype));
			bad |= checkpoint_read(part, &c,
					       checkpoint_find(&c, model[t].name, model[t].slot),
					       &other[i].box, &e);
			bad |= memcmp(part, ref, bytes) != 0;
			free(part);
			free(ref);
		}
		ok(!bad, "and so do %ld other boxes", m);
		checkpoint_close(&c);
		free(dir);
	}
	free(stored);
	free(other);
	free(whole);
}

static void test_widening(void)
{
	char *dir = at("a");
	struct checkpoint c;
	float *out = xmalloc((size_t)volume(0) * sizeof(float)), small[24];
	struct box b = { 2, { 0, 0 }, { 1, 24 } };
	double wide = 0;
	int bad = 0;

	if (checkpoint_open(&c, dir, &e))
		ok(0, "%s", e.msg);
	ok(checkpoint_read_f32(out, &c, checkpoint_find(&c, model[0].name, SLOT_WEIGHT), NULL,
			       &e) == 0,
	   "bfloat16 widened");
	for (long i = 0; i < volume(0); i++) {
		float want = bf16_to_f32(((uint16_t *)bits[0])[i]);

		bad += !(out[i] == want || (isnan(out[i]) && isnan(want)));
	}
	ok(bad == 0 && out[3] == 1.5f, "every value");
	ok(checkpoint_read_f32(small, &c, checkpoint_find(&c, model[0].name, SLOT_WEIGHT), &b,
			       &e) == 0 &&
		   small[3] == 1.5f,
	   "one row");
	ok(checkpoint_read_f32((float *)&wide, &c, checkpoint_find(&c, "mask", SLOT_WEIGHT), NULL,
			       &e) == -1 &&
		   e.code == EX_DATAERR,
	   "a boolean is not widened: %s", e.msg);
	checkpoint_close(&c);

	uint16_t w[4] = { 0x3fc0, 0x7fc1, 0x8000, 0x3f81 };
	float master[4] = { 1.5f, NAN, -0.0f, 1.0078125f };
	ok(checkpoint_check_master("w", w, DTYPE_BF16, master, 0, 4, &e) == 0,
	   "masters that round to the weights");
	master[3] = 1.0f;
	ok(checkpoint_check_master("w", w, DTYPE_BF16, master, 100, 4, &e) == -1 &&
		   strstr(e.msg, "element 103"),
	   "one that does not: %s", e.msg);
	free(out);
	free(dir);
}

/* The pattern that must stand in the output of a command. */
static bool prints(const char *cmd, const char *pattern)
{
	char buf[4096];
	FILE *p = popen(cmd, "r");
	size_t n = fread(buf, 1, sizeof(buf) - 1, p);

	buf[n] = 0;
	pclose(p);
	if (!strstr(buf, pattern))
		printf("# %s: %s\n", cmd, buf);
	return strstr(buf, pattern) != NULL;
}

static void test_foreign_readers(void)
{
	static const char *const of[] = { "a", "box3" };

	if (system("command -v h5dump >/dev/null && command -v h5ls >/dev/null")) {
		skip("no hdf5-tools", "h5ls and h5dump");
		return;
	}
	for (int i = 0; i < 2; i++) {
		char *cmd = xasprintf(
			"cd / && h5dump -d /weights/model.embed_tokens.weight -s 0,1 -c 1,3 %s/%s/index.h5",
			tap_tmp(), of[i]);

		ok(prints(cmd, "-0, 9.18355e-41, 1.5") || prints(cmd, "-0, 9.1835e-41, 1.5"),
		   "h5dump shows bfloat16 of %s", of[i]);
		free(cmd);
		cmd = xasprintf(
			"cd / && h5dump -d /weights/model.layers.0.mlp.up_proj.weight -s 0,1 -c 1,3 %s/%s/index.h5",
			tap_tmp(), of[i]);
		ok(prints(cmd, "-0, 9.80909e-45, 1.5"), "h5dump shows float32 of %s", of[i]);
		free(cmd);
		cmd = xasprintf("h5ls %s/%s/index.h5/optimizer/exp_avg", tap_tmp(), of[i]);
		ok(prints(cmd, "model.layers.0.mlp.up_proj.weight Dataset {700, 801}"),
		   "h5ls shows optimizer state of %s", of[i]);
		free(cmd);
		cmd = xasprintf("h5dump -d /weights/mask %s/%s/index.h5", tap_tmp(), of[i]);
		ok(prints(cmd, "TRUE"), "h5dump shows booleans of %s", of[i]);
		free(cmd);
		cmd = xasprintf("h5ls -d %s/%s/index.h5/weights/fp8%%b | tail -1 | tr -s ' '",
				tap_tmp(), of[i]);
		char want[32];
		snprintf(want, sizeof(want), "%d, %d", (unsigned char)bits[7][22],
			 (unsigned char)bits[7][23]);
		ok(prints(cmd, want), "a per cent sign in a name leads to the right data set (%s)",
		   of[i]);
		free(cmd);
	}
	char *cmd = xasprintf("h5dump -d /weights/scalar %s/a/index.h5", tap_tmp());
	ok(prints(cmd, "SCALAR"), "h5dump shows a scalar");
	free(cmd);
	cmd = xasprintf(
		"cp -r %s/box3 %s/hole && rm %s/hole/weights-*-0001.h5 && h5dump -d /weights/%s %s/hole/index.h5",
		tap_tmp(), tap_tmp(), tap_tmp(), long_name, tap_tmp());
	ok(prints(cmd, "nan"), "where a shard is missing a foreign reader sees NaN");
	free(cmd);
}

static void copy_dir(const char *from, const char *to)
{
	char *cmd = xasprintf("rm -rf %s && cp -r %s %s", to, from, to);

	if (system(cmd))
		bug("%s", cmd);
	free(cmd);
}

static long list_files(char **name, const char *dir, const char *sub)
{
	char *path = path_join(dir, sub);
	DIR *d = opendir(path);
	struct dirent *x;
	long n = 0;

	while ((x = readdir(d))) {
		char *rel = *sub == '.' ? xstrdup(x->d_name) : path_join(sub, x->d_name);

		if (x->d_name[0] == '.')
			free(rel);
		else if (x->d_type == DT_DIR) {
			n += list_files(name + n, dir, rel);
			free(rel);
		} else
			name[n++] = rel;
	}
	closedir(d);
	free(path);
	return n;
}

static void flip(const char *path, uint64_t offset, int bit)
{
	int fd = open(path, O_RDWR);
	unsigned char x;

	if (pread(fd, &x, 1, (off_t)offset) != 1)
		bug("%s", path);
	x ^= (unsigned char)(1 << bit);
	if (pwrite(fd, &x, 1, (off_t)offset) != 1)
		bug("%s", path);
	close(fd);
}

/* CAIRN_MUTANTS=2000 makes the long form. */
static void test_mutants(void)
{
	char *from = at("box2"), *dir = at("mutant"), *name[100];
	long files = list_files(name, from, "."),
	     mutants = getenv("CAIRN_MUTANTS") ? atol(getenv("CAIRN_MUTANTS")) : 400, refused = 0;
	struct rng_key key = rng_key(11, RNG_TEST, 3);

	copy_dir(from, dir);
	ok(load_all(dir) == 0, "a copy loads: %s", e.msg);
	for (long i = 0; i < mutants; i++) {
		uint32_t r[4], counter[4] = { (uint32_t)i };
		char *path;
		uint64_t size;

		philox4x32(r, counter, key);
		path = path_join(dir, name[i % files]);
		if (file_size(path, &size, &e))
			bug("%s", e.msg);
		flip(path, (r[0] | (uint64_t)r[1] << 32) % size, (int)(r[2] % 8));
		e = (struct err){ 0 };
		if (load_all(dir) == -1 && e.code == EX_DATAERR && strstr(e.msg, "mutant"))
			refused++;
		else
			printf("# %s byte %llu bit %u: code %d %s\n", name[i % files],
			       (unsigned long long)((r[0] | (uint64_t)r[1] << 32) % size), r[2] % 8,
			       e.code, e.msg);
		flip(path, (r[0] | (uint64_t)r[1] << 32) % size, (int)(r[2] % 8));
		free(path);
	}
	ok(refused == mutants, "%ld of %ld mutants of %ld files refused with 65, naming the file",
	   refused, mutants, files);
	ok(load_all(dir) == 0, "and the original loads again: %s", e.msg);
	for (long i = 0; i < files; i++)
		free(name[i]);
	free(from);
	free(dir);
}

static const char *shard_like(const char *dir, const char *pattern)
{
	static char path[4096];
	char *cmd = xasprintf("ls %s | grep -E '%s' | head -1", dir, pattern), file[300] = "";
	FILE *p = popen(cmd, "r");

	if (!fgets(file, sizeof(file), p))
		bug("%s", cmd);
	pclose(p);
	free(cmd);
	file[strcspn(file, "\n")] = 0;
	snprintf(path, sizeof(path), "%s/%s", dir, file);
	return path;
}

static void test_damage(void)
{
	char *from = at("box2"), *dir = at("damage"), *other = at("box1"), *foreign, *cmd;
	const char *victim;
	uint64_t size;
	struct stat st;

	copy_dir(from, dir);
	victim = shard_like(dir, "weights-.*-0001");
	if (truncate(victim, stat(victim, &st) ? 0 : st.st_size / 2))
		bug("truncate");
	ok(load_all(dir) == -1 && e.code == EX_DATAERR && strstr(e.msg, "-0001.h5"),
	   "half a shard: %s", e.msg);
	copy_dir(from, dir);
	unlink(victim);
	ok(load_all(dir) == -1 && e.code == EX_DATAERR && strstr(e.msg, "-0001.h5"), "no shard: %s",
	   e.msg);
	copy_dir(from, dir);
	unlink(shard_like(dir, "optim-.*-0001"));
	ok(load_all(dir) == -1 && e.code == EX_DATAERR &&
		   strstr(e.msg, "model.embed_tokens.weight (master)"),
	   "no optimizer shard, named by tensor: %s", e.msg);
	copy_dir(from, dir);
	foreign = xstrdup(shard_like(other, "weights-.*-0000"));
	cmd = xasprintf("cp %s %s", foreign, shard_like(dir, "weights-.*-0000"));
	ok(system(cmd) == 0 && load_all(dir) == -1 && e.code == EX_DATAERR,
	   "another checkpoint's shard: %s", e.msg);
	copy_dir(from, dir);
	victim = shard_like(dir, "index.h5");
	ok(!file_size(victim, &size, &e) && !truncate(victim, (off_t)size / 2) &&
		   load_all(dir) == -1 && e.code == EX_DATAERR,
	   "half an index: %s", e.msg);
	copy_dir(from, dir);
	unlink(shard_like(dir, "manifest.json"));
	ok(load_all(dir) == -1 && e.code == EX_NOINPUT, "no manifest: %s", e.msg);
	free(foreign);
	free(cmd);
	free(from);
	free(dir);
	free(other);
}

/* Another text of the manifest with a right checksum. */
static int parse_edited(const char *dir, const char *find, const char *replace)
{
	char *path = path_join(dir, "manifest.json"), *hit, hex[33];
	struct str t = { 0 }, u = { 0 };
	struct json_doc d = { 0 };
	int rc;

	if (file_read(&t, path, 0, &e) || !(hit = strstr(t.s, find)))
		bug("%s: no %s", path, find);
	str_add(&u, t.s, (size_t)(hit - t.s));
	str_puts(&u, replace);
	str_puts(&u, hit + strlen(find));
	str_cut(&u, u.len - 37);
	hit = xstrndup(u.s, u.len);
	str_printf(&u, "\"%s\"\n}\n", digest_hex(hex, hash128(hit, u.len)));
	e = (struct err){ 0 };
	rc = manifest_parse(&d, u.s, u.len, path, "model", &e);
	if (!rc)
		json_release(&d);
	str_release(&t);
	str_release(&u);
	free(hit);
	free(path);
	return rc;
}

static void test_versions(void)
{
	char *dir = at("a");

	ok(parse_edited(dir, "\"version\": 1", "\"version\": 9") == 0,
	   "a newer version that this reader may read: %s", e.msg);
	ok(parse_edited(dir, "\"reader\": 1", "\"reader\": 0") == -1 && e.code == EX_DATAERR,
	   "reader 0: %s", e.msg);
	ok(parse_edited(dir, "\"version\": 1,\n  \"reader\": 1",
			"\"version\": 2,\n  \"reader\": 2") == -1 &&
		   e.code == EX_UNAVAILABLE,
	   "a version that needs a newer reader: %s", e.msg);
	ok(parse_edited(dir, "\"features\": []", "\"features\": [\"warp\"]") == -1 &&
		   e.code == EX_UNAVAILABLE && strstr(e.msg, "warp"),
	   "an unknown feature is refused by name: %s", e.msg);
	ok(parse_edited(dir, "\"kind\": \"model\"", "\"kind\": \"adapter\"") == -1 &&
		   e.code == EX_UNAVAILABLE,
	   "an adapter: %s", e.msg);
	ok(parse_edited(dir, "\"format\": \"cairn\"", "\"format\": \"other\"") == -1 &&
		   e.code == EX_DATAERR,
	   "another format: %s", e.msg);
	free(dir);
}

static void test_refusals(void)
{
	static const char *const name[] = { "", ".", "..", "a/b" };
	struct checkpoint_writer *w;
	char *dir = at("refused");

	for (int i = 0; i < 4; i++) {
		struct checkpoint_tensor t = {
			name[i], SLOT_WEIGHT, ROLE_PARAM, DTYPE_F32, 1, { 2 }
		};

		ok(checkpoint_create(&w, dir, &meta, &t, 1, NULL, 0, NULL, &e) == -1 &&
			   e.code == EX_DATAERR,
		   "name \"%s\": %s", name[i], e.msg);
	}
	struct checkpoint_tensor two[2] = { { "a", SLOT_WEIGHT, ROLE_PARAM, DTYPE_F32, 1, { 2 } },
					    { "a", SLOT_WEIGHT, ROLE_PARAM, DTYPE_F32, 1, { 2 } } };
	ok(checkpoint_create(&w, dir, &meta, two, 2, NULL, 0, NULL, &e) == -1 &&
		   e.code == EX_DATAERR,
	   "twice: %s", e.msg);
	two[1].slot = SLOT_MASTER;
	two[1].shape[0] = 3;
	ok(checkpoint_create(&w, dir, &meta, two, 2, NULL, 0, NULL, &e) == -1,
	   "a master of another shape: %s", e.msg);
	struct checkpoint_piece hole[1] = { { 0, 0, { 1, { 0 }, { 1 } } } };
	ok(checkpoint_create(&w, dir, &meta, two, 1, hole, 1, NULL, &e) == -1 && strstr(e.msg, "a"),
	   "pieces with a hole: %s", e.msg);
	ok(!file_exists(dir), "nothing is left");
	free(dir);
}

static void test_copy_and_history(void)
{
	char *from = at("a"), *dir = at("child"), *cmd;
	const char *const except[] = { "hf/nothing.json", NULL };
	struct checkpoint c, d;
	struct checkpoint_writer *w;
	struct checkpoint_meta m = meta;
	int bad = 0;

	e = (struct err){ 0 };
	if (checkpoint_open(&c, from, &e))
		ok(0, "%s", e.msg);
	m.history.parent = c.history;
	bad |= checkpoint_create(&w, dir, &m, model, TENSORS, NULL, 0, NULL, &e);
	for (int t = 0; t < TENSORS && !bad; t++)
		bad |= checkpoint_put(w, t, NULL, bits[t], &e);
	bad = bad || checkpoint_copy_side(w, &c, except, &e) || checkpoint_commit(w, &e);
	ok(!bad, "side files of the parent: %s", e.msg);
	cmd = xasprintf("diff -r %s/hf %s/hf && cmp %s/tokenizer.h5 %s/tokenizer.h5", from, dir,
			from, dir);
	ok(system(cmd) == 0, "byte for byte");
	ok(checkpoint_open(&d, dir, &e) == 0, "the child opens: %s", e.msg);
	is_str(json_get(d.history, "parent")->text, json_get(c.history, "digest")->text,
	       "its history names its parent's");
	is_str(json_path(d.history, "summary.runs")->member[0].value.text, "2", "runs are counted");
	ok(json_equal(json_path(d.history, "summary.first"), json_get(c.history, "entry")),
	   "the first entry is kept");
	checkpoint_close(&d);
	checkpoint_close(&c);

	/* 10,000 generations stay small. */
	struct json_doc doc[2] = { { .file = NULL } };
	size_t size = 0;
	m.history.parent = NULL;
	for (int i = 0; i < 10000; i++) {
		struct json_out o = { .indent = 0 };

		history_put(&o, &m.history);
		size = o.s.len;
		json_release(&doc[i & 1]);
		doc[i & 1] = (struct json_doc){ .file = NULL };
		if (json_parse(&doc[i & 1], o.s.s, o.s.len, "history", 1, &e) ||
		    history_check(&doc[i & 1], &doc[i & 1].root, &e))
			bug("%s", e.msg);
		m.history.parent = &doc[i & 1].root;
		json_out_release(&o);
	}
	is_str(json_path(m.history.parent, "summary.runs")->member[0].value.text, "10000",
	       "10,000 generations");
	ok(size < 2000, "in %zu bytes", size);
	json_release(&doc[0]);
	json_release(&doc[1]);
	free(cmd);
	free(from);
	free(dir);
}

/*
 * Killed at its n-th write, fsync or rename, for every n: never half a checkpoint, and the next
 * attempt goes through.
 */
static void test_kill(void)
{
	char *dir = at("killed"), *ref = at("a"), *cmd = xasprintf("diff -r %s %s", dir, ref),
	     *count = at("count"), value[32];
	struct str n = { 0 };
	long points, bad = 0, killed = 0, step;
	pid_t pid;

	setenv("CAIRN_TEST_COUNT", count, 1);
	if (!(pid = fork()))
		execl("/proc/self/exe", "test", "--save", dir, NULL);
	waitpid(pid, NULL, 0);
	unsetenv("CAIRN_TEST_COUNT");
	if (file_read(&n, count, 0, &e))
		bug("%s", e.msg);
	points = atol(n.s);
	str_release(&n);
	ok(points > 20 && system(cmd) == 0,
	   "%ld writes, fsyncs and renames; another process writes the same bytes", points);
	step = getenv("CAIRN_KILL_ALL") ? 1 : 1 + points / 40;
	for (long i = 1; i <= points; i += step) {
		char *rm = xasprintf("rm -rf %s", dir);
		int status;

		if (system(rm))
			bug("%s", rm);
		free(rm);
		snprintf(value, sizeof(value), "%ld", i);
		setenv("CAIRN_TEST_KILL", value, 1);
		if (!(pid = fork()))
			execl("/proc/self/exe", "test", "--save", dir, NULL);
		waitpid(pid, &status, 0);
		unsetenv("CAIRN_TEST_KILL");
		killed += WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
		if (file_exists(dir))
			bad += load_all(dir) != 0;
		else if (!(pid = fork()))
			execl("/proc/self/exe", "test", "--save", dir, NULL);
		else {
			waitpid(pid, &status, 0);
			bad += !WIFEXITED(status) || WEXITSTATUS(status) || system(cmd);
		}
	}
	ok(bad == 0 && killed > 0, "killed %ld times: whole or absent, and done on the second try",
	   killed);
	free(dir);
	free(ref);
	free(cmd);
	free(count);
}

int main(int argc, char **argv)
{
	pool_start(2);
	make_bits();
	config = xmalloc(100001);
	memset(config, ' ', 100000);
	memcpy(config, "{}", 2);
	if (argc == 3 && !strcmp(argv[1], "--save"))
		return save(argv[2], NULL, 0, false) ? e.code : 0;
	test_round_trip();
	test_boxes();
	test_widening();
	test_foreign_readers();
	test_mutants();
	test_damage();
	test_versions();
	test_refusals();
	test_copy_and_history();
	test_kill();
	for (int t = 0; t < TENSORS; t++)
		free(bits[t]);
	free(config);
	return done();
}
