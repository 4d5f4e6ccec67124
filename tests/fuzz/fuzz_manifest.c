/*
 * The manifest and the table of boxes from any bytes.  Checksums stop honest damage before it gets
 * here, so the target makes them right: what is tried is a forged directory, which must be refused
 * or read, never more.
 *
 *	input starting with 'B'   the rest is rows of /boxes in index.h5 of a good checkpoint
 *	input starting with 'S'   the rest is manifest.json of samples
 *	anything else             is manifest.json of a checkpoint; its checksum is replaced
 *
 * What opens is verified and read whole.  The seeds hold sizes and hashes of what libhdf5 1.10.8
 * writes here; with CAIRN_FUZZ_SEEDS=DIR the target writes them anew.
 */

#include "formats/checkpoint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/hdf5_file.h"
#include "formats/samples.h"
#include "libcommon/file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static char root[] = "/dev/shm/cairn-fuzz.XXXXXX", model[64], samples[64];
static struct str good, good_index;     /* manifest.json and index.h5 of the checkpoint */
static struct manifest_file index_was;
static uint64_t *blocks;
static long nblocks;

static void must(int rc, const struct err *e)
{
	if (!rc)
		return;
	fprintf(stderr, "%s\n", e->msg);
	abort();
}

static void clean(void)
{
	char cmd[128];

	snprintf(cmd, sizeof(cmd), "rm -rf %s", root);
	if (system(cmd))
		perror(cmd);
}

static void make_checkpoint(struct err *e)
{
	static const struct checkpoint_tensor t[] = {
		{ "a", SLOT_WEIGHT, ROLE_PARAM, DTYPE_BF16, 2, { 6, 5 } },
		{ "a", SLOT_MASTER, ROLE_PARAM, DTYPE_F32, 2, { 6, 5 } },
		{ "b", SLOT_WEIGHT, ROLE_FROZEN, DTYPE_F32, 0, { 0 } },
		{ "c", SLOT_WEIGHT, ROLE_CARRIED, DTYPE_I64, 3, { 2, 0, 3 } },
	};
	const struct checkpoint_piece p[] = {
		{ 0, 0, { 2, { 0, 0 }, { 4, 5 } } },
		{ 0, 1, { 2, { 4, 0 }, { 2, 5 } } },
		{ 1, 0, { 2, { 0, 0 }, { 6, 5 } } },
		{ 2, 1, { 0, { 0 }, { 0 } } },
	};
	struct checkpoint_meta m = { .head = "lm",
				     .optimizer = "adamw",
				     .history = { .program = "p", .version = "1" } };
	static const char zero[512];
	struct checkpoint_writer *w;

	must(checkpoint_create(&w, model, &m, t, 4, p, 4, NULL, e), e);
	for (int i = 0; i < 4; i++)
		must(checkpoint_put(w, i, NULL, zero, e), e);
	must(checkpoint_put_file(w, "hf/config.json", "{}", 2, e), e);
	must(checkpoint_commit(w, e), e);
}

static void make_samples(struct err *e)
{
	struct samples s = { 0 };
	struct samples_meta m = { .split = "train", .history = { .program = "p", .version = "1" } };
	struct sample *a = samples_append(&s);
	int32_t ids[3] = { 1, 2, 3 };
	float logprobs[2] = { -1, -2 };

	a->token_ids = samples_copy(&s, ids, sizeof(ids));
	a->logprobs = samples_copy(&s, logprobs, sizeof(logprobs));
	a->length = 3;
	a->prompt_length = 1;
	must(samples_write(samples, &s, &m, NULL, e), e);
	samples_release(&s);
}

static void write_file(const char *dir, const char *name, const char *first, const void *p,
		       size_t n)
{
	char path[512];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	f = fopen(path, "w");
	if (!f || fputs(first, f) < 0 || fwrite(p, 1, n, f) != n || fclose(f)) {
		perror(path);
		abort();
	}
}

static void write_seeds(const char *dir, const struct hdf5_box *b, long n)
{
	struct str t = { 0 };
	struct err e = ERR_INIT;
	char path[128];

	snprintf(path, sizeof(path), "%s/manifest.json", samples);
	must(file_read(&t, path, 0, &e), &e);
	write_file(dir, "model", "", good.s, good.len);
	write_file(dir, "samples", "S", t.s, t.len);
	write_file(dir, "boxes", "B", b, (size_t)n * sizeof(*b));
	str_release(&t);
}

static void start(void)
{
	struct err e = ERR_INIT;
	struct hdf5_file f = { 0 };
	struct json_doc d = { 0 };
	char path[128];
	struct hdf5_box *b = NULL;
	void *data = NULL;
	long n = 0;

	if (!mkdtemp(root))
		abort();
	atexit(clean);
	snprintf(model, sizeof(model), "%s/model", root);
	snprintf(samples, sizeof(samples), "%s/samples", root);
	make_checkpoint(&e);
	make_samples(&e);
	snprintf(path, sizeof(path), "%s/manifest.json", model);
	must(file_read(&good, path, 0, &e), &e);
	must(manifest_read(&d, model, "model", &e), &e);
	must(manifest_get_file(&index_was, &d, json_get(&d.root, "index"), &e), &e);
	json_release(&d);
	snprintf(path, sizeof(path), "%s/index.h5", model);
	must(file_read(&good_index, path, 0, &e), &e);
	must(hdf5_open(&f, path, &e) ||
		     hdf5_get(&data, &nblocks, &f, "blocks", DTYPE_U64, 1, 4096, &e) ||
		     hdf5_get_boxes(&b, &n, &f, "boxes", 4096, &e),
	     &e);
	blocks = data;
	hdf5_abandon(&f);
	if (getenv("CAIRN_FUZZ_SEEDS"))
		write_seeds(getenv("CAIRN_FUZZ_SEEDS"), b, n);
	free(b);
}

/* The text under the manifest's name, with a checksum that is right. */
static void write_manifest(const char *dir, const char *text, size_t n)
{
	static const char key[] = "\"checksum\": ";
	const char *at = memmem(text, n, key, strlen(key));
	struct str t = { 0 };
	char hex[33];

	str_add(&t, text, at ? (size_t)(at - text) + strlen(key) : n);
	str_printf(&t, "\"%s\"\n}\n", digest_hex(hex, hash128(t.s, t.len)));
	write_file(dir, "manifest.json", "", t.s, t.len);
	str_release(&t);
}

static void replace(struct str *t, const char *from, const char *to)
{
	char *at = strstr(t->s, from);
	struct str u = { 0 };

	if (!at)
		abort();
	str_add(&u, t->s, (size_t)(at - t->s));
	str_puts(&u, to);
	str_puts(&u, at + strlen(from));
	str_release(t);
	*t = u;
}

/* index.h5 with these rows, and a manifest that vouches for it. */
static void write_index(const void *rows, size_t n)
{
	struct err e = ERR_INIT;
	struct hdf5_file f = { 0 };
	struct hdf5_box *b = xmalloc(n + sizeof(*b));
	char path[128], from[80], to[80], hex[33];
	struct str t = { 0 };
	struct digest d = { 0, 0 };
	uint64_t bytes = 0;

	memcpy(b, rows, n);
	snprintf(path, sizeof(path), "%s/index.h5", model);
	unlink(path);
	must(hdf5_create(&f, path, 0, &e) ||
		     hdf5_put_boxes(&f, "boxes", b, (long)(n / sizeof(*b)), &e) ||
		     hdf5_put(&f, "blocks", DTYPE_U64, &nblocks, 1, blocks, &e) ||
		     hdf5_close(&f, &e),
	     &e);
	must(file_size(path, &bytes, &e) || hash128_file(&d, path, &e), &e);
	str_add(&t, good.s, good.len);
	snprintf(from, sizeof(from), "\"bytes\": %llu", (unsigned long long)index_was.bytes);
	snprintf(to, sizeof(to), "\"bytes\": %llu", (unsigned long long)bytes);
	replace(&t, from, to);
	replace(&t, digest_hex(hex, index_was.hash), digest_hex(to, d));
	write_manifest(model, t.s, t.len);
	str_release(&t);
	free(b);
}

static void read_model(void)
{
	struct err e = ERR_INIT;
	struct checkpoint c;

	if (checkpoint_open(&c, model, &e)) {
		if (!e.code || !*e.msg)
			abort();
		return;
	}
	for (long i = 0; i < c.n; i++) {
		struct tensor t = { .dtype = c.tensor[i].dtype, .rank = c.tensor[i].rank };
		void *out;

		memcpy(t.shape, c.tensor[i].shape, sizeof(t.shape));
		out = xmalloc(tensor_bytes(&t) + 1);
		if (checkpoint_read(out, &c, i, NULL, &e) && e.code != EX_DATAERR)
			abort();
		free(out);
	}
	if (checkpoint_verify(&c, true, &e) && !e.code)
		abort();
	checkpoint_close(&c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	static bool started;
	struct samples s = { 0 };
	struct err e = ERR_INIT;

	if (!started)
		start();
	started = true;
	if (n && data[0] == 'B') {
		write_index(data + 1, n - 1);
		read_model();
	} else if (n && data[0] == 'S') {
		write_manifest(samples, (const char *)data + 1, n - 1);
		if (samples_read(&s, samples, &e) && !e.code)
			abort();
		samples_release(&s);
	} else {
		write_file(model, "index.h5", "", good_index.s, good_index.len);
		write_manifest(model, (const char *)data, n);
		read_model();
	}
	return 0;
}
