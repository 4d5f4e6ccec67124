#include "formats/checkpoint.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zstd.h>

#include "formats/checkpoint_chunk.h"
#include "libcommon/file.h"
#include "libcommon/pool.h"
#include "libcommon/rng.h"
#include "tests/lib/tap.h"

/*
 * Every type above and below 4 KiB, rows that share a chunk, matrices of which one does not fit in
 * a chunk, a row that does not, no dimensions, no elements, optimizer state.
 */
enum { TYPES = DTYPE_COUNT - 1, TENSORS = 2 * TYPES + 9 };
static struct checkpoint_tensor model[TENSORS];
static char *bits[TENSORS];
static struct err e;
static struct checkpoint_meta meta = { .head = "lm",
				       .optimizer = "adamw",
				       .history = { .program = "test", .version = "0" } };

static long volume(int t)
{
	struct box b = box_whole(model[t].shape, model[t].rank);

	return box_volume(&b);
}

static size_t size_of(int t)
{
	return (size_t)volume(t) * dtype_size(model[t].dtype);
}

static void add(int *n, const char *name, enum slot slot, enum dtype dtype, int rank, long a, long b,
		long c)
{
	model[(*n)++] = (struct checkpoint_tensor){ xstrdup(name), slot, ROLE_PARAM, dtype, rank,
						    { a, b, c } };
}

static void make_model(void)
{
	int n = 0;

	for (int d = 1; d <= TYPES; d++) {
		char *large = xasprintf("large.%s", dtype_name((enum dtype)d)),
		     *small = xasprintf("small.%s", dtype_name((enum dtype)d));

		add(&n, large, SLOT_WEIGHT, (enum dtype)d, 2, 67, 129, 0);
		add(&n, small, SLOT_WEIGHT, (enum dtype)d, 2, 3, 7, 0);
		free(large);
		free(small);
	}
	add(&n, "experts", SLOT_WEIGHT, DTYPE_BF16, 3, 3, 700, 801);
	add(&n, "noise", SLOT_WEIGHT, DTYPE_F32, 2, 700, 801, 0);
	add(&n, "wide", SLOT_WEIGHT, DTYPE_F32, 2, 3, 300000, 0);
	add(&n, "long", SLOT_WEIGHT, DTYPE_F64, 1, 400001, 0, 0);
	add(&n, "scalar", SLOT_WEIGHT, DTYPE_F32, 0, 0, 0, 0);
	add(&n, "empty", SLOT_WEIGHT, DTYPE_BF16, 2, 0, 5, 0);
	add(&n, "exact", SLOT_WEIGHT, DTYPE_U8, 1, CHUNK_LEAST, 0, 0);
	add(&n, "experts", SLOT_MASTER, DTYPE_F32, 3, 3, 700, 801);
	add(&n, "experts", SLOT_EXP_AVG, DTYPE_F32, 3, 3, 700, 801);
	if (n != TENSORS)
		bug("%d tensors", n);
}

/* Weights as trained ones are (the high bytes have few values), but `noise` cannot be packed. */
static void make_bits(void)
{
	for (int t = 0; t < TENSORS; t++) {
		size_t elem = dtype_size(model[t].dtype);
		uint32_t state = (uint32_t)t * 7919 + 1;

		bits[t] = xmalloc(size_of(t) + 1);
		for (size_t i = 0; i < size_of(t); i++) {
			bool high = i % elem == elem - 1 && strcmp(model[t].name, "noise");

			state = state * 1664525 + 1013904223;
			bits[t][i] = model[t].dtype == DTYPE_BOOL ? (char)(state >> 31) :
				     high ? (char)(0x3c + (state >> 30)) : (char)(state >> 24);
		}
	}
}

static int put_config(struct checkpoint_writer *w)
{
	return checkpoint_put_file(w, "hf/config.json", "{}", 2, &e);
}

static int save(const char *dir, int level, const struct checkpoint_piece *piece, long pieces,
		bool backwards)
{
	struct checkpoint_writer *w;
	struct checkpoint_meta m = meta;

	e = (struct err){ 0 };
	m.compress = level;
	if (checkpoint_create(&w, dir, &m, model, TENSORS, piece, pieces, NULL, &e))
		return -1;
	for (int i = 0; i < TENSORS; i++) {
		int t = backwards ? TENSORS - 1 - i : i;

		if (checkpoint_put(w, t, NULL, bits[t], &e))
			return -1;
	}
	return put_config(w) ? -1 : checkpoint_commit(w, &e);
}

static char *at(const char *name)
{
	return path_join(tap_tmp(), name);
}

static int load_all(const char *dir)
{
	struct checkpoint c;
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
	checkpoint_close(&c);
	return bad;
}

static bool shell(const char *format, const char *a, const char *b)
{
	char *cmd = xasprintf(format, a, b);
	int rc = system(cmd);

	free(cmd);
	return rc == 0;
}

/* Worked by hand: 1 MiB is 524288 elements of 2 bytes and 262144 of 4. */
static void test_grid(void)
{
	static const struct {
		enum dtype dtype;
		long extent[4], chunk[4], blocks, last_first, last_n;
	} w[] = {
		/* 600 rows of 4 KiB: 256 a chunk at most, so 3 chunks of 200 */
		{ DTYPE_BF16, { 600, 2048 }, { 200, 2048 }, 3, 819200, 409600 },
		/* a matrix of 1121400 bytes has 2 chunks of 350 rows (654 would fit) */
		{ DTYPE_BF16, { 3, 700, 801 }, { 1, 350, 801 }, 6, 1401750, 280350 },
		/* 257 rows of 4 KiB: two chunks of 129, the last one short by one */
		{ DTYPE_F32, { 257, 1024 }, { 129, 1024 }, 2, 132096, 131072 },
		/* a row over 1 MiB is cut in two */
		{ DTYPE_F32, { 3, 300000 }, { 1, 150000 }, 6, 750000, 150000 },
		{ DTYPE_U8, { 4096 }, { 4096 }, 1, 0, 4096 },
		{ DTYPE_F32, { 2, 2, 262144 }, { 1, 1, 262144 }, 4, 786432, 262144 },
	};

	for (size_t i = 0; i < sizeof(w) / sizeof(*w); i++) {
		struct hdf5_box b = { .dtype = w[i].dtype };
		struct grid g;
		long n = 1, first, sum = 0, next = 0;
		bool good = true;

		for (int k = 0; k < 4 && w[i].extent[k]; k++)
			n *= b.extent[k] = w[i].extent[k];
		b.bytes = (uint64_t)n * dtype_size(w[i].dtype);
		g = grid_of(&b, true);
		ok(g.chunked && g.blocks == w[i].blocks &&
			   !memcmp(g.chunk, w[i].chunk, sizeof(w[i].chunk)),
		   "case %zu: %ld chunks of %ld, %ld, %ld", i, g.blocks, g.chunk[0], g.chunk[1],
		   g.chunk[2]);
		for (long k = 0; k < g.blocks; k++) {
			sum += grid_range(&first, &g, k);
			good &= first == next && grid_block(&g, first) == k &&
				grid_block(&g, sum - 1) == k;
			next = sum;
		}
		ok(good && sum == n, "they follow each other");
		sum = grid_range(&first, &g, g.blocks - 1);
		ok(first == w[i].last_first && sum == w[i].last_n, "the last is [%ld, + %ld)", first,
		   sum);
	}
	struct hdf5_box small = { .dtype = DTYPE_U8, .extent = { 4095 }, .bytes = 4095 };
	ok(!grid_of(&small, true).chunked, "below 4 KiB nothing is cut");
}

static void test_shuffle(void)
{
	static const long length[] = { 1, 2, 15, 16, 17, 31, 33, 1000, 4099 };
	char in[8 * 4100], want[8 * 4200], got[8 * 4200], back[8 * 4100];
	int bad = 0;

	for (size_t i = 0; i < sizeof(in); i++)
		in[i] = (char)(i * 2654435761u >> 13);
	for (size_t elem = 1; elem <= 8; elem *= 2) {
		for (size_t l = 0; l < sizeof(length) / sizeof(*length); l++) {
			for (long pad = 0; pad < 40; pad += 39) {
				long n = length[l], stride = n + pad;

				memset(want, 1, sizeof(want));
				memset(got, 1, sizeof(got));
				memset(back, 1, sizeof(back));
				for (long i = 0; i < n; i++)
					for (size_t b = 0; b < elem; b++)
						want[(long)b * stride + i] = in[(size_t)i * elem + b];
				chunk_shuffle(got, in, n, stride, elem);
				bad += memcmp(want, got, sizeof(want)) != 0;
				chunk_unshuffle(back, got, n, stride, elem);
				bad += memcmp(back, in, (size_t)n * elem) != 0;
				bad += back[(size_t)n * elem] != 1;
			}
		}
	}
	ok(bad == 0, "shuffle and its inverse are those of the definition");
}

static void test_round_trip(void)
{
	static const int level[] = { 1, 3, 19 };
	char *plain = at("plain"), *dir, *again = at("again"), *back = at("back"), *one = at("one");
	struct checkpoint c, p;

	ok(save(plain, 0, NULL, 0, false) == 0 && load_all(plain) == 0, "plain: %s", e.msg);
	for (int i = 0; i < 3; i++) {
		char name[16];

		snprintf(name, sizeof(name), "zstd%d", level[i]);
		dir = at(name);
		ok(save(dir, level[i], NULL, 0, false) == 0, "level %d: %s", level[i], e.msg);
		ok(load_all(dir) == 0, "every type comes back bit for bit: %s", e.msg);
		if (checkpoint_open(&c, dir, &e) || checkpoint_open(&p, plain, &e))
			bug("%s", e.msg);
		ok(c.compress == level[i] && p.compress == 0, "it tells its level");
		ok(digest_equal(c.weights_digest, p.weights_digest) &&
			   digest_equal(c.optimizer_digest, p.optimizer_digest),
		   "the digests are those of the plain one");
		ok(strcmp(c.id, p.id), "the ID is another");
		ok(json_get(&c.manifest.root, "features")->n == 1 &&
			   json_eq_str(&json_get(&c.manifest.root, "features")->item[0], "zstd"),
		   "a reader must know the feature zstd");
		checkpoint_close(&c);
		checkpoint_close(&p);
		free(dir);
	}
	dir = at("zstd3");
	ok(shell("test $(du -sb %s | cut -f1) -lt $(( $(du -sb %s | cut -f1) * 9 / 10 ))", dir, plain),
	   "it is smaller");
	ok(shell("test $(ls %s | wc -l) = 5 && ! ls -a %s | grep -E 'raw|packed'", dir, dir),
	   "no file is left over");
	ok(save(again, 3, NULL, 0, false) == 0 && shell("diff -r %s %s", dir, again),
	   "the same again gives the same bytes");
	ok(save(back, 3, NULL, 0, true) == 0 && shell("diff -r %s %s", dir, back),
	   "and so do puts in another order");
	pool_start(1);
	ok(save(one, 3, NULL, 0, false) == 0 && shell("diff -r %s %s", dir, one),
	   "and one thread in place of two");
	pool_start(2);
	free(plain);
	free(dir);
	free(again);
	free(back);
	free(one);
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

static char *part_of(const struct checkpoint_piece *p)
{
	int t = (int)p->tensor;
	struct box whole = box_whole(model[t].shape, model[t].rank);
	size_t elem = dtype_size(model[t].dtype);
	char *part = xmalloc((size_t)box_volume(&p->box) * elem);

	box_copy(part, &p->box, bits[t], &whole, &p->box, elem);
	return part;
}

/* Chunks arrive in parts, in two orders, and are read by other boxes than are stored. */
static void test_boxes(void)
{
	struct checkpoint_piece *stored = xcalloc(TENSORS * 40, sizeof(*stored)),
				*other = xcalloc(TENSORS * 40, sizeof(*other));
	struct checkpoint_meta m = meta;

	m.compress = 1;
	for (int round = 0; round < 4; round++) {
		char *dir[2];
		long n = 0, k = 0;
		struct checkpoint c;
		int bad = 0;

		for (int t = 0; t < TENSORS; t++) {
			n += cut(stored + n, t, round * 5, 1 + round,
				 rng_key((uint64_t)round, RNG_TEST, 1));
			k += cut(other + k, t, 2 + round * 3, 1,
				 rng_key((uint64_t)round, RNG_TEST, 2));
		}
		for (int order = 0; order < 2; order++) {
			struct checkpoint_writer *w;

			dir[order] = xasprintf("%s/boxes%d%d", tap_tmp(), round, order);
			e = (struct err){ 0 };
			bad = checkpoint_create(&w, dir[order], &m, model, TENSORS, stored, n, NULL,
						&e);
			for (long i = 0; i < k && !bad; i++) {
				struct checkpoint_piece *p = &other[order ? k - 1 - i : i];
				char *part = part_of(p);

				bad = checkpoint_put(w, p->tensor, &p->box, part, &e);
				free(part);
			}
			ok(!bad && !put_config(w) && !checkpoint_commit(w, &e) &&
				   load_all(dir[order]) == 0,
			   "%ld boxes put as %ld: %s", n, k, e.msg);
		}
		ok(shell("diff -r %s %s", dir[0], dir[1]), "in either order the same bytes");
		ok(checkpoint_open(&c, dir[0], &e) == 0, "open: %s", e.msg);
		for (long i = 0; i < k && !bad; i++) {
			int t = (int)other[i].tensor;
			char *want = part_of(&other[i]), *got = part_of(&other[i]);
			size_t bytes = (size_t)box_volume(&other[i].box) * dtype_size(model[t].dtype);

			memset(got, 0, bytes);
			bad = checkpoint_read(got, &c,
					      checkpoint_find(&c, model[t].name, model[t].slot),
					      &other[i].box, &e) ||
			      memcmp(got, want, bytes);
			free(want);
			free(got);
		}
		ok(!bad, "and %ld other boxes come back", k);
		checkpoint_close(&c);
		free(dir[0]);
		free(dir[1]);
	}
	free(stored);
	free(other);
}

/* What HDF5 itself reads through the plugin is what it reads without compression. */
static void test_foreign_readers(void)
{
	char exe[4000] = "", *plugin, *no = at("no-plugin");
	int bad = 0;

	if (system("command -v h5dump >/dev/null")) {
		skip("no hdf5-tools", "h5dump");
		return;
	}
	if (readlink("/proc/self/exe", exe, sizeof(exe) - 1) < 0)
		bug("no /proc");
	*strrchr(exe, '/') = 0;
	plugin = xasprintf("%s/../../lib/cairn/hdf5", exe);
	for (int t = 0; t < TENSORS; t++) {
		const char *group = model[t].slot == SLOT_WEIGHT ? "weights" :
				    model[t].slot == SLOT_MASTER ? "optimizer/master" :
								   "optimizer/exp_avg";
		const char *some = volume(t) > 10000 ? model[t].rank == 3 ? "-s 2,347,0 -c 1,5,801" :
						       model[t].rank == 2 ? "-s 2,100 -c 1,701" :
									    "-s 199000 -c 2000" :
						       "";
		char *cmd = xasprintf(
			"cd / && for d in plain zstd3 boxes30; do HDF5_PLUGIN_PATH=%s h5dump -d '/%s/%s' %s %s/$d/index.h5 2>&1 | tail -n +2 >%s/$d.txt; done; cd %s && grep -q '(.*):' plain.txt && ! grep -q unable plain.txt && cmp plain.txt zstd3.txt && cmp plain.txt boxes30.txt",
			plugin, group, model[t].name, some, tap_tmp(), tap_tmp(), tap_tmp());

		if (volume(t) && system(cmd)) {
			bad++;
			printf("# %s (%s)\n", model[t].name, slot_name(model[t].slot));
		}
		free(cmd);
	}
	ok(bad == 0, "h5dump through the plugin shows what it shows of the plain checkpoint");
	mkdir(no, 0777);
	ok(!shell("cd / && HDF5_PLUGIN_PATH=%s h5dump -d /weights/large.bfloat16 %s/zstd3/index.h5 >/dev/null 2>&1",
		  no, tap_tmp()),
	   "and without it cannot");
	free(plugin);
	free(no);
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

/* CAIRN_MUTANTS=2000 makes the long form.  Two thirds fall into the shards, whose bytes are packed. */
static void test_mutants(void)
{
	char *dir = at("mutant"), *name[100];
	long mutants = getenv("CAIRN_MUTANTS") ? atol(getenv("CAIRN_MUTANTS")) : 300, refused = 0,
	     named = 0, files;
	struct rng_key key = rng_key(12, RNG_TEST, 3);

	if (!shell("cp -r %s/boxes20 %s", tap_tmp(), dir))
		bug("cp");
	files = list_files(name, dir, ".");
	for (long i = 0; i < mutants; i++) {
		uint32_t r[4], counter[4] = { (uint32_t)i };
		char *path;
		uint64_t size, byte;

		philox4x32(r, counter, key);
		path = path_join(dir, name[i % files]);
		if (file_size(path, &size, &e))
			bug("%s", e.msg);
		byte = (r[0] | (uint64_t)r[1] << 32) % size;
		flip(path, byte, (int)(r[2] % 8));
		if (load_all(dir) == -1 && e.code == EX_DATAERR && strstr(e.msg, name[i % files]))
			refused++;
		else
			printf("# %s byte %llu bit %u: code %d %s\n", name[i % files],
			       (unsigned long long)byte, r[2] % 8, e.code, e.msg);
		named += strstr(e.msg, "(weight)") || strstr(e.msg, "(master)") ||
			 strstr(e.msg, "(exp_avg)");
		flip(path, byte, (int)(r[2] % 8));
		free(path);
	}
	ok(refused == mutants, "%ld of %ld mutants of %ld files refused with 65, naming the file",
	   refused, mutants, files);
	ok(named > mutants / 2, "%ld of them name the tensor", named);
	ok(load_all(dir) == 0, "and the original loads again: %s", e.msg);
	for (long i = 0; i < files; i++)
		free(name[i]);
	free(dir);
}

/* Stored bytes that vouch for themselves but hold something else. */
static void test_hostile_chunks(void)
{
	enum { FULL = 1 << 18, BOMB = 200 << 20 };
	struct chunk_codec *c = chunk_codec_take();
	char *raw = xcalloc(FULL + 1, 4), *out = xcalloc(FULL + 1, 4), *room = chunk_room(c), *zeros;
	struct rusage before, after;
	size_t bytes, small;

	for (long i = 0; i < FULL; i++)
		raw[4 * i + 3] = (char)(i % 3);
	bytes = chunk_pack(c, raw, FULL, FULL, 4, 3);
	ok(bytes < FULL && !chunk_unpack(out, c, bytes, FULL, FULL, 4) &&
		   !memcmp(raw, out, FULL * 4),
	   "a chunk of 1 MiB in %zu bytes", bytes);
	ok(chunk_unpack(out, c, bytes - 1, FULL, FULL, 4) == -1, "one byte short");
	ok(chunk_unpack(out, c, bytes, FULL - 1, FULL - 1, 4) == -1, "one element too many");
	ok(chunk_unpack(out, c, bytes, FULL / 2, FULL / 2, 4) == -1, "twice the elements");
	small = chunk_pack(c, raw, FULL - 4, FULL - 4, 4, 3);
	ok(chunk_unpack(out, c, small, FULL, FULL, 4) == -1, "four elements too few");
	memset(room, 'x', 1000);
	ok(chunk_unpack(out, c, 1000, FULL, FULL, 4) == -1, "no zstd at all");
	zeros = xcalloc(1, BOMB);
	small = ZSTD_compress(room, CHECKPOINT_BLOCK, zeros, BOMB, 1);
	free(zeros);
	getrusage(RUSAGE_SELF, &before);
	ok(chunk_unpack(out, c, small, FULL, FULL, 4) == -1, "200 MiB in %zu bytes", small);
	getrusage(RUSAGE_SELF, &after);
	ok(after.ru_maxrss - before.ru_maxrss < 1024, "in no more memory");
	chunk_codec_give(c);
	free(raw);
	free(out);
}

static void test_words(void)
{
	static const char *const bad[] = { "lz4",     "zstd:",   "zstd:0",  "zstd:20", "zstd:99",
					   "zstd:-1", "zstd:3x", "zstd3",   "",        "zst",
					   "zstd: 3", "zstd:+3", "zstd:99999999999999999999" };
	int level = 0, taken = 0;

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		taken += checkpoint_compression(&level, bad[i], &e) == 0 || e.code != EX_USAGE;
	ok(taken == 0 && level == 0, "what is no compression: %s", e.msg);
	ok(!checkpoint_compression(&level, "zstd", &e) && level == 3, "zstd is level 3");
	ok(!checkpoint_compression(&level, "zstd:1", &e) && level == 1, "zstd:1");
	ok(!checkpoint_compression(&level, "zstd:19", &e) && level == 19, "zstd:19");
}

/* Killed at writes, fsyncs and renames: never half a checkpoint, and the next attempt goes through. */
static void test_kill(void)
{
	char *dir = at("killed"), *ref = at("zstd3"), *count = at("count"), value[32];
	struct str n = { 0 };
	long points, bad = 0, killed = 0;
	int status;
	pid_t pid;

	setenv("CAIRN_TEST_COUNT", count, 1);
	if (!(pid = fork()))
		execl("/proc/self/exe", "test", "--save", dir, NULL);
	waitpid(pid, &status, 0);
	unsetenv("CAIRN_TEST_COUNT");
	if (file_read(&n, count, 0, &e))
		bug("%s", e.msg);
	points = atol(n.s);
	str_release(&n);
	ok(points > 20 && shell("diff -r %s %s", dir, ref),
	   "%ld moments to be killed at; another process writes the same bytes", points);
	for (long i = 1; i <= points; i += points / 12) {
		if (!shell("rm -rf %s", dir, NULL))
			bug("rm");
		snprintf(value, sizeof(value), "%ld", i);
		setenv("CAIRN_TEST_KILL", value, 1);
		if (!(pid = fork()))
			execl("/proc/self/exe", "test", "--save", dir, NULL);
		waitpid(pid, &status, 0);
		unsetenv("CAIRN_TEST_KILL");
		killed += WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
		if (file_exists(dir)) {
			bad += load_all(dir) != 0;
			continue;
		}
		if (!(pid = fork()))
			execl("/proc/self/exe", "test", "--save", dir, NULL);
		waitpid(pid, &status, 0);
		bad += !WIFEXITED(status) || WEXITSTATUS(status) || !shell("diff -r %s %s", dir, ref);
	}
	ok(bad == 0 && killed > 5, "killed %ld times: whole or absent, and done on the second try",
	   killed);
	free(dir);
	free(ref);
	free(count);
}

int main(int argc, char **argv)
{
	pool_start(2);
	make_model();
	make_bits();
	if (argc == 3 && !strcmp(argv[1], "--save"))
		return save(argv[2], 3, NULL, 0, false) ? e.code : 0;
	test_words();
	test_grid();
	test_shuffle();
	test_hostile_chunks();
	test_round_trip();
	test_boxes();
	test_foreign_readers();
	test_mutants();
	test_kill();
	for (int t = 0; t < TENSORS; t++) {
		free((char *)model[t].name);
		free(bits[t]);
	}
	return done();
}
