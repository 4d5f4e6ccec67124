#include "formats/samples.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "libcommon/file.h"
#include "libcommon/rng.h"
#include "tests/lib/tap.h"

static struct err e;

static char *at(const char *name)
{
	return path_join(tap_tmp(), name);
}

static float from_bits(uint32_t u)
{
	float f;

	memcpy(&f, &u, sizeof(f));
	return f;
}

static float *floats(struct samples *s, long n, uint32_t seed)
{
	float *x = samples_copy(s, "", 0);

	x = arena_calloc(&s->arena, (size_t)n + 1, sizeof(*x));
	for (long i = 0; i < n; i++) {
		seed = seed * 1664525 + 1013904223;
		x[i] = from_bits(seed);
		if (!isfinite(x[i]))
			x[i] = -0.0f;
	}
	return x;
}

/*
 * Row i of a set in which everything occurs: absent fields, empty strings, NULs, NaN, infinity,
 * subnormals, a prompt alone.
 */
static void add(struct samples *s, int i)
{
	static const char text[] = "na\xc3\xafve\0 \"x\"\n",
			  row[] = "{\"answer\": \"42\", \"n\": 1000000000000000000019}";
	struct sample *a = samples_append(s);
	long n;

	a->prompt_id = 100 - i / 2;
	a->sample_index = i % 2;
	a->visit = i / 4;
	a->order = i / 2;
	a->step = 7;
	a->split = i % 3 ? SPLIT_TRAIN : SPLIT_VALIDATION;
	a->seed = 18446744073709551615u - (uint64_t)i;
	a->policy = (struct digest){ 0x0123456789abcdef, (uint64_t)i };
	a->tokenizer_digest = (struct digest){ 5, 6 };
	a->fingerprint = 0xfedcba9876543210;
	a->temperature = 0.1 * i;
	a->top_p = 0.9;
	a->top_k = i;
	a->min_p = 1e-300;
	a->prompt_length = i % 5;
	a->length = a->prompt_length + i % 7;
	n = a->length - a->prompt_length;
	a->token_ids = arena_calloc(&s->arena, (size_t)a->length + 1, sizeof(int32_t));
	for (long k = 0; k < a->length; k++)
		a->token_ids[k] = (int32_t)(2147483647 - k * i);
	a->logprobs = floats(s, n, (uint32_t)i);
	if (n > 2) {
		a->logprobs[0] = from_bits(0x7fc00000);
		a->logprobs[1] = -INFINITY;
		a->logprobs[2] = from_bits(1);
	}
	a->loss_mask = arena_calloc(&s->arena, (size_t)n + 1, 1);
	for (long k = 0; k < n; k++)
		a->loss_mask[k] = (uint8_t)(k % 2);
	a->advantages = floats(s, n, (uint32_t)i + 50);
	a->loss_weights[LOSS_POLICY] = floats(s, n, (uint32_t)i + 90);
	if (i % 2)
		a->prev_logprobs = floats(s, n, (uint32_t)i + 70);
	a->finish_reason = (enum finish)(i % FINISH_COUNT);
	a->truncated = i % 2;
	a->text = samples_copy(s, text, i % 3 ? sizeof(text) - 1 : 0);
	a->text_bytes = i % 3 ? sizeof(text) - 1 : 0;
	a->row = samples_copy(s, row, sizeof(row) - 1);
	a->row_bytes = sizeof(row) - 1;
	if (i % 3 == 1) {
		a->extracted = samples_copy(s, "42", 2);
		a->extracted_bytes = 2;
	}
	if (i != 3) {
		a->rewards = arena_calloc(&s->arena, 2, sizeof(double));
		a->rewards[0] = i;
		a->rewards[1] = i % 2 ? NAN : 0.1;
		a->has_reward = true;
		a->reward_valid = i % 4 != 2;
		a->reward = i / 3.0;
	}
	if (a->length > 3) {
		a->turn = arena_calloc(&s->arena, 2, sizeof(*a->turn));
		a->turn[0] = (struct turn){ 0, (int)a->prompt_length, "user", { 0, 0 } };
		a->turn[1] = (struct turn){ (int)a->prompt_length, (int)a->length, "assistant",
					    a->policy };
		a->turns = 2;
	}
	a->expert_ids = arena_calloc(&s->arena, (size_t)a->length * 6 + 1, sizeof(int32_t));
	for (long k = 0; k < a->length * 6; k++)
		a->expert_ids[k] = (int32_t)(k * 3 + i);
	a->update = i % 4 - 1;
	a->unit = i / 2;
}

static void make(struct samples *s, int n)
{
	samples_name_reward(s, "math");
	samples_name_reward(s, "format");
	s->expert_layers = 3;
	s->expert_slots = 2;
	for (int i = 0; i < n; i++)
		add(s, (i * 7) % n);
}

static bool same_floats(const float *a, const float *b, long n)
{
	return !a == !b && (!a || !memcmp(a, b, (size_t)n * sizeof(*a)));
}

static bool same_text(const char *a, size_t na, const char *b, size_t nb)
{
	return !a == !b && na == nb && (!a || !memcmp(a, b, na));
}

static bool same_real(double a, double b)
{
	return a == b || (isnan(a) && isnan(b));
}

static bool same(const struct samples *s, const struct samples *t, long i)
{
	const struct sample *a = &s->s[i], *b = &t->s[i];
	long n = a->length - a->prompt_length;
	bool good = a->prompt_id == b->prompt_id && a->sample_index == b->sample_index &&
		    a->visit == b->visit && a->order == b->order && a->step == b->step &&
		    a->split == b->split && a->seed == b->seed &&
		    digest_equal(a->policy, b->policy) &&
		    digest_equal(a->tokenizer_digest, b->tokenizer_digest) &&
		    a->fingerprint == b->fingerprint && a->temperature == b->temperature &&
		    a->top_p == b->top_p && a->top_k == b->top_k && a->min_p == b->min_p &&
		    a->length == b->length && a->prompt_length == b->prompt_length &&
		    a->finish_reason == b->finish_reason && a->truncated == b->truncated &&
		    a->update == b->update && a->unit == b->unit && a->turns == b->turns &&
		    a->has_reward == b->has_reward && a->reward_valid == b->reward_valid &&
		    !a->rewards == !b->rewards;

	if (!good)
		return false;
	good = !memcmp(a->token_ids, b->token_ids, (size_t)a->length * sizeof(int32_t)) &&
	       same_floats(a->logprobs, b->logprobs, n) &&
	       same_floats(a->prev_logprobs, b->prev_logprobs, n) &&
	       same_floats(a->advantages, b->advantages, n) && !b->values &&
	       same_floats(a->loss_weights[LOSS_POLICY], b->loss_weights[LOSS_POLICY], n) &&
	       !b->loss_weights[LOSS_KL] && !memcmp(a->loss_mask, b->loss_mask, (size_t)n) &&
	       same_text(a->text, a->text_bytes, b->text, b->text_bytes) &&
	       same_text(a->row, a->row_bytes, b->row, b->row_bytes) &&
	       same_text(a->extracted, a->extracted_bytes, b->extracted, b->extracted_bytes) &&
	       !b->reason &&
	       !memcmp(a->expert_ids, b->expert_ids, (size_t)a->length * 6 * sizeof(int32_t));
	if (a->has_reward)
		good &= same_real(a->reward, b->reward) &&
			same_real(a->rewards[0], b->rewards[0]) &&
			same_real(a->rewards[1], b->rewards[1]);
	for (long k = 0; k < a->turns && good; k++)
		good = a->turn[k].start == b->turn[k].start && a->turn[k].end == b->turn[k].end &&
		       !strcmp(a->turn[k].role, b->turn[k].role) &&
		       digest_equal(a->turn[k].policy, b->turn[k].policy);
	return good;
}

static bool all_same(const struct samples *s, const struct samples *t)
{
	if (s->n != t->n)
		return false;
	for (long i = 0; i < s->n; i++) {
		if (!same(s, t, i)) {
			printf("# record %ld differs\n", i);
			return false;
		}
	}
	return true;
}

static const char *const argument[] = { "rollout", "ckpt" };
static struct samples_meta meta = {
	.step = 7,
	.split = "train",
	.policy = { 1, 2 },
	.tokenizer_digest = { 3, 4 },
	.fingerprint = "fedcba9876543210",
	.cursor = "{\"position\": 12}",
	.scoring = "{\"train_global_batch_size\": 4, \"algorithm\": \"grpo\"}",
	.metrics = "{\"a\": 1}\n",
	.history = { .program = "rollout",
		     .version = "0.1.0",
		     .argument = argument,
		     .argc = 2,
		     .recipe = "x: 1\n" },
};

enum { ROWS = 24 };

static int save(const char *dir)
{
	struct samples s = { 0 };
	int rc;

	e = (struct err){ 0 };
	make(&s, ROWS);
	rc = samples_write(dir, &s, &meta, NULL, &e);
	samples_release(&s);
	return rc;
}

static void test_round_trip(void)
{
	struct samples s = { 0 }, t = { 0 };
	char *dir = at("a"), *dir2 = at("b");
	bool sorted = true;

	make(&s, ROWS);
	ok(samples_write(dir, &s, &meta, NULL, &e) == 0, "samples are written: %s", e.msg);
	for (long i = 1; i < s.n; i++)
		sorted &= s.s[i - 1].order < s.s[i].order ||
			  (s.s[i - 1].order == s.s[i].order &&
			   s.s[i - 1].sample_index < s.s[i].sample_index);
	ok(sorted, "sorted by (visit order of the prompt, sample_index)");
	ok(samples_read(&t, dir, &e) == 0, "and read: %s", e.msg);
	ok(all_same(&s, &t), "every field of every record has the same bits");
	is_str(json_path(&t.manifest.root, "scoring.algorithm")->text, "grpo", "scoring");
	is_str(json_path(&t.manifest.root, "counts.samples")->text, "24", "counts");
	ok(save(dir2) == 0, "the same again: %s", e.msg);
	char *cmd = xasprintf("diff -r %s %s", dir, dir2);
	ok(system(cmd) == 0, "has the same bytes in every file");
	ok(save(dir) == -1 && e.code == EX_CANTCREAT, "a directory that exists is refused: %s",
	   e.msg);
	ok(samples_read(&t, dir2, &e) == -1 && e.code == EX_DATAERR && t.n == ROWS,
	   "the same samples twice: %s", e.msg);
	samples_release(&t);

	e = (struct err){ 0 };
	struct samples none = { 0 };
	char *dir3 = at("none");
	ok(samples_write(dir3, &none, &meta, NULL, &e) == 0 && samples_read(&t, dir3, &e) == 0 &&
		   t.n == 0,
	   "no samples at all: %s", e.msg);
	samples_release(&none);
	samples_release(&s);
	samples_release(&t);
	free(cmd);
	free(dir);
	free(dir2);
	free(dir3);
}

static void test_jsonl(void)
{
	struct samples s = { 0 }, t = { 0 };
	char *path = at("a.jsonl"), *path2 = at("b.jsonl");

	make(&s, ROWS);
	samples_sort(&s);
	/*
	 * JSON keeps no NaN payload but the usual one, and no text that is not UTF-8; neither
	 * occurs here.
	 */
	e = (struct err){ 0 };
	ok(samples_write_jsonl(path, &s, &e) == 0, "JSON lines are written: %s", e.msg);
	ok(samples_read_any(&t, path, &e) == 0, "and read: %s", e.msg);
	ok(all_same(&s, &t), "every field of every record has the same bits");
	ok(samples_write_jsonl(path2, &t, &e) == 0, "and once more");
	char *cmd = xasprintf("cmp %s %s", path, path2);
	ok(system(cmd) == 0, "gives the same text");
	free(cmd);
	if (system("command -v jq >/dev/null"))
		skip("no jq", "jq reads it");
	else {
		cmd = xasprintf(
			"test \"$(jq -r 'select(.prompt_id==99 and .sample_index==1) | .row.answer, .logprobs[0]' %s | tr '\\n' ' ')\" ="
			" '42 null '",
			path);
		ok(system(cmd) == 0, "jq reads it, NaN as null");
		free(cmd);
	}
	samples_release(&s);
	samples_release(&t);
	free(path);
	free(path2);
}

/* A line, and what must stand in the message; NULL: accepted. */
static void test_lines(void)
{
	static const struct { const char *line, *message;
	} t[] = {
		{ "{\"prompt_id\": 0, \"token_ids\": [0, 1], \"prompt_length\": 0, \"logprobs\": [-0.7, -0.9], \"text\": \"ab\"}",
		  NULL },
		{ "{\"prompt_id\": 0, \"token_ids\": [2], \"prompt_length\": 0, \"logprobs\": [-0.7, -0.9], \"text\": \"ab\"}",
		  "x.jsonl:2: logprobs: 2 entries, wanted 1" },
		{ "{\"prompt_id\": 0, \"token_ids\": [1, 2], \"prompt_length\": 3}",
		  "x.jsonl:2: prompt_length" },
		{ "{\"prompt_id\": 0, \"token_ids\": [1, -2], \"prompt_length\": 1}",
		  "x.jsonl:2: token_ids[1]" },
		{ "{\"prompt_id\": 0, \"token_ids\": [1, 4294967297], \"prompt_length\": 1}",
		  "x.jsonl:2: token_ids" },
		{ "{\"prompt_id\": 0, \"token_ids\": [1, 2.5], \"prompt_length\": 1}",
		  "x.jsonl:2: token_ids" },
		{ "{\"prompt_id\": 0, \"prompt_length\": 0}", "x.jsonl:2: token_ids: missing" },
		{ "{\"token_ids\": [1], \"prompt_length\": 0}", "x.jsonl:2: prompt_id: missing" },
		{ "{\"prompt_id\": 0, \"token_ids\": [1], \"prompt_length\": 0, \"logprob\": [1]}",
		  "\"logprob\" is no field" },
		{ "{\"prompt_id\": 0, \"token_ids\": [1], \"prompt_length\": 0, \"loss_mask\": [2]}",
		  "x.jsonl:2: loss_mask" },
		{ "{\"prompt_id\": 0, \"token_ids\": [1], \"prompt_length\": 0, \"loss_mask\": [1, 1]}",
		  "x.jsonl:2: loss_mask: 2 entries" },
		{ "{\"prompt_id\": 0, \"token_ids\": [1], \"prompt_length\": 0, \"finish_reason\": \"eos\"}",
		  "x.jsonl:2: finish_reason" },
		{ "{\"prompt_id\": 0, \"token_ids\": [1], \"prompt_length\": 0, \"split\": \"test\"}",
		  "x.jsonl:2: split" },
		{ "{\"prompt_id\": 0, \"token_ids\": [1], \"prompt_length\": 0, \"policy\": \"abc\"}",
		  "x.jsonl:2: policy" },
		{ "{\"prompt_id\": 0, \"token_ids\": [1], \"prompt_length\": 0, \"group\": [0, 1]}",
		  "x.jsonl:2: group" },
		{ "{\"prompt_id\": 0, \"token_ids\": [1], \"prompt_length\": 0, \"sample_index\": 0}",
		  "are the same sample" },
		{ "{\"prompt_id\": 0, \"token_ids\": [1], \"prompt_length\": 0, \"turns\": [{\"start\": 0, \"end\": 9}]}",
		  "turns[0]" },
		{ "{\"prompt_id\": 0, \"token_ids\": [1], \"prompt_length\": 0, \"rewards\": 1}",
		  "x.jsonl:2: rewards" },
		{ "{\"prompt_id\": 0, \"token_ids\": [1], \"prompt_length\": 0, \"values\": [NaN]}",
		  "x.jsonl:2" },
		{ "{\"prompt_id\": 0, \"token_ids\": [1], \"prompt_length\": 0", "x.jsonl:2" },
		{ "[1]", "x.jsonl:2" },
	};
	char *path = at("x.jsonl");

	for (size_t i = 0; i < sizeof(t) / sizeof(*t); i++) {
		struct samples s = { 0 };
		char *text = xasprintf(
			"{\"prompt_id\": 0, \"token_ids\": [7], \"prompt_length\": 0}\n%s\n\n",
			t[i].line);
		int rc;

		if (file_write(path, text, strlen(text), &e))
			bug("%s", e.msg);
		e = (struct err){ 0 };
		rc = samples_read_jsonl(&s, path, &e);
		if (t[i].message)
			ok(rc == -1 && e.code == EX_DATAERR && strstr(e.msg, t[i].message), "%s",
			   e.msg);
		else
			ok(rc == 0 && s.n == 2 && s.s[1].sample_index == 1 &&
				   s.s[1].token_ids[1] == 1 && s.s[1].loss_mask[1] == 1 &&
				   s.s[1].logprobs[1] == -0.9f && s.s[0].order == 0 &&
				   s.s[1].order == 0,
			   "ids as they stand: %s", e.msg);
		samples_release(&s);
		free(text);
	}
	free(path);
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
	static const char *const name[] = { "samples-0000.h5", "manifest.json", "metrics.json",
					    "recipe.yaml" };
	long mutants = getenv("CAIRN_MUTANTS") ? atol(getenv("CAIRN_MUTANTS")) : 600, refused = 0;
	char *dir = at("m");
	struct samples s = { 0 };
	uint64_t size;

	if (save(dir))
		bug("%s", e.msg);
	for (long i = 0; i < mutants; i++) {
		uint32_t r[4], counter[4] = { (uint32_t)i };
		char *path = path_join(dir, name[i % 4]);

		philox4x32(r, counter, rng_key(12, RNG_TEST, 4));
		if (file_size(path, &size, &e))
			bug("%s", e.msg);
		flip(path, r[0] % size, (int)(r[1] % 8));
		e = (struct err){ 0 };
		if (samples_read(&s, dir, &e) == -1 && e.code == EX_DATAERR && s.n == 0)
			refused++;
		else
			printf("# %s byte %llu: code %d %s\n", name[i % 4],
			       (unsigned long long)(r[0] % size), e.code, e.msg);
		flip(path, r[0] % size, (int)(r[1] % 8));
		free(path);
	}
	ok(refused == mutants, "%ld of %ld mutants refused with 65", refused, mutants);
	e = (struct err){ 0 };
	ok(samples_read(&s, dir, &e) == 0 && s.n == ROWS, "and the original is read again: %s",
	   e.msg);
	samples_release(&s);
	char *path = path_join(dir, name[0]);
	ok(!file_size(path, &size, &e) && !truncate(path, (off_t)size / 2) &&
		   samples_read(&s, dir, &e) == -1 && e.code == EX_DATAERR,
	   "half a shard: %s", e.msg);
	ok(!unlink(path) && samples_read(&s, dir, &e) == -1 && e.code == EX_DATAERR &&
		   strstr(e.msg, name[0]),
	   "no shard: %s", e.msg);
	ok(samples_verify(dir, false, &e) == -1, "verify says so too");
	samples_release(&s);
	free(path);
	free(dir);
}

static void test_bad_rows(void)
{
	struct samples s = { 0 };
	char *dir = at("bad");

	make(&s, 4);
	s.s[2].token_ids = arena_calloc(&s.arena, 9, sizeof(int32_t));
	s.s[2].length = 9;
	s.s[2].prompt_length = 10;
	ok(samples_write(dir, &s, &meta, NULL, &e) == -1 && strstr(e.msg, "record") &&
		   !file_exists(dir),
	   "a bad row is not written: %s", e.msg);
	samples_release(&s);
	free(dir);
}

static void test_order(void)
{
	struct samples s = { 0 };
	static const long id[] = { 9, 3, 9, 3, 5 };

	for (int i = 0; i < 5; i++) {
		struct sample *a = samples_append(&s);

		a->prompt_id = id[i];
		a->sample_index = 1 - i / 2;
	}
	s.s[4].sample_index = 0;
	samples_sort(&s);
	ok(s.s[0].prompt_id == 9 && s.s[0].sample_index == 0 && s.s[1].prompt_id == 9 &&
		   s.s[2].prompt_id == 3 && s.s[2].sample_index == 0 && s.s[4].prompt_id == 5,
	   "without an order, groups stand as they first appear");
	samples_release(&s);
}

static void test_kill(void)
{
	char *dir = at("killed"), *ref = at("a"), *cmd = xasprintf("diff -r %s %s", dir, ref),
	     *count = at("count"), value[32];
	struct str n = { 0 };
	long points, bad = 0, killed = 0;
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
	ok(points > 10 && system(cmd) == 0, "%ld points", points);
	for (long i = 1; i <= points; i++) {
		char *rm = xasprintf("rm -rf %s", dir);
		struct samples s = { 0 };
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
			bad += samples_read(&s, dir, &e) != 0;
		else
			bad += save(dir) != 0 || system(cmd);
		samples_release(&s);
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
	if (argc == 3 && !strcmp(argv[1], "--save"))
		return save(argv[2]) ? e.code : 0;
	test_round_trip();
	test_jsonl();
	test_lines();
	test_mutants();
	test_bad_rows();
	test_order();
	test_kill();
	return done();
}
