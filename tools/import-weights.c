/*
 * import-weights - Hugging Face folder, safetensors or GGUF -> checkpoint
 *
 * Weights go from the source to the checkpoint tensor by tensor, in blocks of rows, under the names
 * and with the shapes that the model's parameter table asks for: nothing is missing, nothing is
 * there that nobody asked for, nothing is filled in.  The side files of a Hugging Face folder are
 * kept byte for byte; of a GGUF file or a random start they are made.
 */

#include "tools/import-weights/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libcommon/pool.h"
#include "tools/shared/pieces.h"
#include "tools/shared/start.h"

static struct opts {
	const char *out, *dtype, *compress, *tokenizer, *chat_template, *init, *base;
	int level;                      /* of compression */
	long seed, tp, pp, ep, etp;
	bool allow_extra;
} o = { .dtype = "keep", .tp = 1, .pp = 1, .ep = 1, .etp = 1 };

static const struct opt table[] = {
	OPT_STR('o', "out", &o.out, "CKPT", "write the checkpoint here (required)"),
	OPT_STR(0, "dtype", &o.dtype, "TYPE", "store weights as bfloat16 or float32, or keep"),
	OPT_STR(0, "compress", &o.compress, "zstd[:LEVEL]", "store compressed, at a level of 1 to 19 (default 3)"),
	OPT_FLAG(0, "allow-extra", &o.allow_extra,
		 "carry tensors along that the model has no use for"),
	OPT_STR(0, "tokenizer", &o.tokenizer, "DIR",
		"another tokenizer: of a folder, bytes, or none"),
	OPT_STR(0, "chat-template", &o.chat_template, "FILE",
		"another template: a file, chatml, plain, or none"),
	OPT_HEADING("A random start:"),
	OPT_STR(0, "init", &o.init, "CONFIG", "a new model of this config.json, instead of SRC"),
	OPT_LONG(0, "seed", &o.seed, "N", "seed of the new model"),
	OPT_HEADING("Layout:"),
	OPT_LONG(0, "tp", &o.tp, "N", "tensor parallel size"),
	OPT_LONG(0, "pp", &o.pp, "N", "pipeline stages, of about as many layers each"),
	OPT_LONG(0, "ep", &o.ep, "N", "ranks that share the experts"),
	OPT_LONG(0, "etp", &o.etp, "N", "tensor parallel size of experts"),
	OPT_STR(0, "base", &o.base, "CKPT", "the model that an adapter belongs to"),
	OPT_END
};

static const struct tool tool = { "import-weights",
				  "Hugging Face folder, safetensors or GGUF -> checkpoint",
				  "SRC -o CKPT | --init CONFIG.json -o CKPT", table, false };

static void check_options(int nargs)
{
	struct err e = ERR_INIT;

	if (!o.out)
		die(EX_USAGE, "-o CKPT is missing: where the checkpoint shall be written");
	if (nargs && o.init)
		die(EX_USAGE, "found SRC and --init, wanted one of them");
	if (!nargs && !o.init)
		die(EX_USAGE, "SRC is missing: a Hugging Face folder, a .safetensors or a .gguf "
			      "file, or --init CONFIG.json");
	if (o.compress && checkpoint_compression(&o.level, o.compress, &e))
		die_err(&e);
	if (o.seed < 0)
		die(EX_USAGE, "--seed %ld: wanted 0 or more", o.seed);
	if (o.base)
		die(EX_UNAVAILABLE, "--base: importing adapters is not built");
}

/* DTYPE_NONE: as the source has it. */
static enum dtype wanted_type(void)
{
	enum dtype t = dtype_find(o.dtype);

	if (!strcmp(o.dtype, "keep"))
		return DTYPE_NONE;
	if (t != DTYPE_F32 && t != DTYPE_BF16)
		die(EX_USAGE, "--dtype %s: wanted keep, bfloat16 or float32", o.dtype);
	return t;
}

static void open_source(struct source *s, const char *path, enum dtype dtype)
{
	if (o.init) {
		s->path = o.init;
		source_tokenizer(s, o.tokenizer ? o.tokenizer : "bytes");
		source_open_init(s, o.init, (uint64_t)o.seed, dtype);
	} else {
		source_open(s, path, dtype);
		if (o.tokenizer)
			source_tokenizer(s, o.tokenizer);
	}
	if (o.chat_template)
		source_chat_template(s, o.chat_template);
	if (s->tokenizer)
		check_vocabulary(s->tokenizer, &s->config);
	else if (!o.tokenizer)
		log_warn("%s: no tokenizer; the checkpoint works with token ids only", s->path);
}

/* As many data-parallel ranks as the experts need; train-step writes in the layout of its own run. */
static void choose_layout(struct layout *l, const struct model_config *c)
{
	struct err e = ERR_INIT;

	layout_init(l, c->layers);
	l->tp = o.tp;
	l->ep = o.ep;
	l->etp = o.etp;
	if (o.pp >= 1 && o.pp <= c->layers)
		layout_balance(l, o.pp);
	l->pp = o.pp;
	layout_fit_dp(l);
	if (layout_check(l, c, &e))
		die_err(&e);
}

static struct checkpoint_writer *create(const struct source *s, const struct planned *p, long n,
					int argc, char **argv)
{
	struct history_input input = { s->kind == SOURCE_GGUF ? "gguf" : "config", s->input,
				       s->digest };
	struct checkpoint_meta meta = { .head = "lm", .compress = o.level };
	struct checkpoint_tensor *t = describe_planned(p, n);
	struct checkpoint_writer *w;
	struct checkpoint_piece *piece;
	struct param_table params;
	struct layout l;
	struct err e = ERR_INIT;
	long pieces;

	choose_layout(&l, &s->config);
	param_table_init(&params, &s->config);
	pieces = layout_pieces(&piece, t, n, &params, &l);
	meta.layout = &l;
	start_history(&meta.history, "import-weights", argc, argv, NULL, o.init ? &s->seed : NULL,
		      &input, 1, NULL);
	if (checkpoint_create(&w, o.out, &meta, t, n, piece, pieces, NULL, &e))
		die_err(&e);
	free(t);
	free(piece);
	param_table_release(&params);
	layout_release(&l);
	return w;
}

/* What lies there now, read back. */
static void report(void)
{
	struct checkpoint c;
	struct json_out line = { 0 };
	long parameters = 0;
	double bytes = 0;
	char hex[33];

	load_checkpoint(&c, o.out);
	for (long i = 0; i < c.n; i++) {
		struct box b = box_whole(c.tensor[i].shape, c.tensor[i].rank);

		if (c.tensor[i].role != ROLE_CARRIED)
			parameters += box_volume(&b);
		bytes += (double)box_volume(&b) * (double)dtype_size(c.tensor[i].dtype);
	}
	json_begin(&line, '{');
	json_add_str(&line, "checkpoint", o.out);
	json_add_str(&line, "weights_digest", digest_hex(hex, c.weights_digest));
	json_add_int(&line, "parameters", parameters);
	json_add_int(&line, "tensors", c.n);
	json_add_int(&line, "bytes", (long)bytes);
	json_end(&line);
	puts(line.s.s);
	json_out_release(&line);
	checkpoint_close(&c);
}

int main(int argc, char **argv)
{
	struct source s = { 0 };
	struct checkpoint_writer *w;
	struct planned *p;
	const char *args[1] = { NULL };
	enum dtype dtype;
	struct err e = ERR_INIT;
	long n;

	tool_init(argv[0]);
	check_options(opt_parse(&tool, argc, argv, args, 0, 1));
	dtype = wanted_type();
	pool_start((int)common.threads);
	open_source(&s, args[0], dtype);
	n = plan_import(&p, &s, dtype, o.allow_extra);
	w = create(&s, p, n, argc, argv);
	store_weights(w, &s, p, n);
	store_sides(w, &s);
	if (checkpoint_commit(w, &e))
		die_err(&e);
	report();
	free(p);
	source_close(&s);
	return tool_exit(EX_OK);
}
