/*
 * export - checkpoint -> Hugging Face folder
 *
 * Every weight of the checkpoint under its own name, in safetensors files, and beside them the side
 * files that came with the model, byte for byte.  The folder appears whole or not at all, and never
 * over one that is there.
 */

#include "tools/export/hf.h"

#include <stdio.h>
#include <string.h>

#include "libcommon/pool.h"
#include "tools/shared/start.h"

static struct opts {
	const char *out, *format, *dtype, *max_shard, *base;
} o = { .format = "hf", .dtype = "keep", .max_shard = "5GB" };

static const struct opt table[] = {
	OPT_STR('o', "out", &o.out, "DIR", "write the folder here (required)"),
	OPT_STR(0, "format", &o.format, "NAME", "hf; gguf is not built yet"),
	OPT_STR(0, "dtype", &o.dtype, "TYPE",
		"write weights as bfloat16, float16 or float32, or keep"),
	OPT_STR(0, "max-shard-size", &o.max_shard, "BYTES",
		"most bytes of weights in a file; 0: no limit"),
	OPT_STR(0, "base", &o.base, "CKPT", "the model that an adapter belongs to (not built yet)"),
	OPT_END
};

static const struct tool tool = { "export", "checkpoint -> Hugging Face folder",
				  "CKPT -o DIR [options]", table, false };

static bool ends_with(const char *s, const char *end)
{
	size_t n = strlen(s), m = strlen(end);

	return n >= m && !strcmp(s + n - m, end);
}

static void check_options(void)
{
	if (!o.out)
		die(EX_USAGE, "-o DIR is missing: where the folder shall be written");
	if (!strcmp(o.format, "gguf") || ends_with(o.out, ".gguf"))
		die(EX_UNAVAILABLE,
		    "--format gguf: writing GGUF is not built; export a Hugging Face folder");
	if (strcmp(o.format, "hf"))
		die(EX_USAGE, "--format %s: wanted hf or gguf", o.format);
	if (o.base)
		die(EX_UNAVAILABLE, "--base: exporting adapters is not built");
}

/* DTYPE_NONE: as they are stored. */
static enum dtype wanted_type(void)
{
	enum dtype t = dtype_find(o.dtype);

	if (!strcmp(o.dtype, "keep"))
		return DTYPE_NONE;
	if (t != DTYPE_F32 && t != DTYPE_BF16 && t != DTYPE_F16)
		die(EX_USAGE, "--dtype %s: wanted keep, bfloat16, float16 or float32", o.dtype);
	return t;
}

static uint64_t shard_size(void)
{
	long n = parse_bytes(o.max_shard);

	if (n < 0)
		die(EX_USAGE, "--max-shard-size %s: wanted a size such as 5GB, or 0", o.max_shard);
	return (uint64_t)n;
}

static void report(const struct checkpoint *c, const struct exported *x)
{
	struct json_out line = { 0 };
	char hex[33];

	json_begin(&line, '{');
	json_add_str(&line, "export", o.out);
	json_add_str(&line, "checkpoint", c->dir);
	json_add_str(&line, "weights_digest", digest_hex(hex, c->weights_digest));
	json_add_int(&line, "parameters", x->parameters);
	json_add_int(&line, "tensors", x->tensors);
	json_add_int(&line, "bytes", (long)x->bytes);
	json_end(&line);
	puts(line.s.s);
	json_out_release(&line);
}

int main(int argc, char **argv)
{
	struct checkpoint c;
	struct exported x;
	struct outdir out;
	const char *args[1];
	enum dtype dtype;
	uint64_t max_shard;
	struct err e = ERR_INIT;

	tool_init(argv[0]);
	opt_parse(&tool, argc, argv, args, 1, 1);
	check_options();
	dtype = wanted_type();
	max_shard = shard_size();
	pool_start((int)common.threads);
	load_checkpoint(&c, args[0]);
	if (outdir_create(&out, o.out, &e))
		die_err(&e);
	export_hf(&x, &out, &c, dtype, max_shard);
	if (outdir_commit(&out, &e))
		die_err(&e);
	report(&c, &x);
	checkpoint_close(&c);
	return tool_exit(EX_OK);
}
