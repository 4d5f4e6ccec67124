/*
 * reshard - checkpoint in one layout -> checkpoint in any other
 *
 * Every tensor is the same afterwards, bit for bit, weights and optimizer state alike; only the boxes that it is stored in are
 * others.  All reads and writes are planned first, then done in bounded memory, every block verified on its way in.
 */
#include "tools/reshard/reshard.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libcommon/comm.h"
#include "libcommon/pool.h"
#include "libcommon/progress.h"
#include "tools/shared/start.h"

enum { OWN = 40 << 20, LEAST = 64 << 20 };      /* memory of the program itself, and of all of it */

static struct {
	const char *out, *like, *compress;
	struct layout_words layout;
	bool weights_only, dry_run;
	int level;                      /* of compression */
	struct digest like_digest;
} o;

static const struct opt table[] = {
	OPT_STR('o', "out", &o.out, "CKPT2", "write the checkpoint here (required)"),
	OPT_STR(0, "tp", &o.layout.tp, "N", "tensor parallel size; absent: 1"),
	OPT_STR(0, "pp", &o.layout.pp, "N", "pipeline stages, of about as many layers each; absent: 1"),
	OPT_STR(0, "ep", &o.layout.ep, "N", "ranks that share the experts; absent: 1"),
	OPT_STR(0, "etp", &o.layout.etp, "N", "tensor parallel size of experts; absent: 1"),
	OPT_STR(0, "dp", &o.layout.dp, "N", "data parallel size, which cuts the optimizer's state; absent: 1, or what ep and etp need"),
	OPT_STR(0, "cp", &o.layout.cp, "N", "context parallel size, which cuts it too; absent: 1"),
	OPT_STR(0, "stages", &o.layout.stages, "N,N,...", "layers of each pipeline stage, in place of --pp"),
	OPT_STR(0, "like", &o.like, "CKPT3", "the layout of this checkpoint of the same model"),
	OPT_STR(0, "compress", &o.compress, "zstd[:LEVEL]", "store compressed, at a level of 1 to 19 (default 3); absent: not compressed"),
	OPT_FLAG(0, "weights-only", &o.weights_only, "leave optimizer state, counters and cursor behind"),
	OPT_FLAG(0, "dry-run", &o.dry_run, "print the plan and write nothing"),
	OPT_END
};

static const struct tool tool = { "reshard", "checkpoint in one layout -> checkpoint in any other", "CKPT -o CKPT2 [options]", table, false };

static void check_options(void)
{
	const struct layout_words *w = &o.layout;
	struct err e = ERR_INIT;

	if (!o.out && !o.dry_run)
		die(EX_USAGE, "-o CKPT2 is missing: where the checkpoint shall be written");
	if (o.like && (w->tp || w->pp || w->ep || w->etp || w->dp || w->cp || w->stages))
		die(EX_USAGE, "found --like and sizes of a layout, wanted one of them");
	if (o.compress && checkpoint_compression(&o.level, o.compress, &e))
		die_err(&e);
	if (common.threads < 0)
		die(EX_USAGE, "--threads %ld: wanted at least 1", common.threads);
}

/* Bytes for buffers. */
static size_t buffer_memory(void)
{
	size_t all = common.memory_bytes ? (size_t)common.memory_bytes : (size_t)1 << 30;

	if (all < (size_t)LEAST)
		die(EX_USAGE, "--memory %s: wanted at least 64MiB", common.memory);
	return all - (size_t)OWN;
}

static void choose_layout(struct layout *l, const struct checkpoint *c, const struct model_config *m)
{
	struct err e = ERR_INIT;

	if (o.like ? layout_of_other(l, &o.like_digest, o.like, c, m, &e) : layout_from_words(l, &o.layout, m, &e))
		die_err(&e);
}

/* What the source says of itself, but for the training that --weights-only leaves behind. */
static void describe(struct checkpoint_meta *meta, struct str *cursor, struct str *recipe, const struct checkpoint *c,
		     const struct layout *l)
{
	struct json_out text = { .indent = -1 };
	struct err e = ERR_INIT;

	*meta = (struct checkpoint_meta){ .head = c->head, .precision = c->precision, .layout = l, .compress = o.level };
	if (!o.weights_only) {
		meta->optimizer = c->optimizer;
		meta->counters = c->counters;
		meta->fingerprint = c->fingerprint;
		if (c->cursor)
			json_put(&text, c->cursor);
	}
	if (text.s.len)
		meta->cursor = text.s.s;
	*cursor = text.s;
	if (checkpoint_has_side(c, "recipe.yaml") && checkpoint_side_file(recipe, c, "recipe.yaml", &e))
		die_err(&e);
}

static void stop(struct checkpoint_writer *w, const struct err *e)
{
	checkpoint_abort(w);
	die_err(e);
}

static void put_sides(struct checkpoint_writer *w, const struct checkpoint *c)
{
	static const char metrics[] = "metrics.json";
	struct str text = { 0 };
	struct err e = ERR_INIT;

	if (checkpoint_copy_side(w, c, NULL, &e))
		stop(w, &e);
	if (o.weights_only || !checkpoint_has_side(c, metrics))
		return;
	if (checkpoint_side_file(&text, c, metrics, &e) || checkpoint_put_file(w, metrics, text.s ? text.s : "", text.len, &e))
		stop(w, &e);
	str_release(&text);
}

static void moved(void *bar, double bytes)
{
	progress_add(bar, bytes);
}

static void move(struct checkpoint_writer *w, struct checkpoint_move *m, double total)
{
	struct progress bar;
	struct err e = ERR_INIT;
	double start = seconds_now();

	progress_start(&bar, "reshard", total, "B");
	if (checkpoint_move_run(m, w, moved, &bar, &e)) {
		progress_end(&bar);
		stop(w, &e);
	}
	progress_end(&bar);
	log_info("%.0f MB moved in %.2f s", total / 1e6, seconds_now() - start);
}

static void report(const struct listing *t)
{
	struct json_out line = { 0 };
	struct checkpoint c;
	char hex[33];
	long bytes = 0;

	for (long i = 0; i < t->pieces; i++)
		bytes += box_volume(&t->piece[i].box) * (long)dtype_size(t->tensor[t->piece[i].tensor].dtype);
	load_checkpoint(&c, o.out);
	json_begin(&line, '{');
	json_add_str(&line, "checkpoint", o.out);
	json_add_str(&line, "weights_digest", digest_hex(hex, c.weights_digest));
	json_add_str(&line, "optimizer_digest", c.has_optimizer ? digest_hex(hex, c.optimizer_digest) : NULL);
	json_key(&line, "layout");
	layout_to_json(&line, &c.layout);
	json_add_int(&line, "boxes", t->pieces);
	json_add_int(&line, "bytes", bytes);
	json_end(&line);
	puts(line.s.s);
	json_out_release(&line);
	checkpoint_close(&c);
}

static void write_checkpoint(struct checkpoint *c, struct checkpoint_move *m, const struct listing *t, const struct layout *l,
			     struct comm *comm, int argc, char **argv)
{
	struct history_input input[2] = { { "checkpoint", c->dir, c->weights_digest } };
	struct move_totals totals = checkpoint_move_totals(m);
	struct str cursor = { 0 }, recipe = { 0 };
	struct checkpoint_meta meta;
	struct checkpoint_writer *w;
	struct err e = ERR_INIT;

	describe(&meta, &cursor, &recipe, c, l);
	if (o.like)
		input[1] = (struct history_input){ "like", o.like, o.like_digest };
	start_history(&meta.history, "reshard", argc, argv, NULL, NULL, input, 1 + !!o.like, c->history);
	meta.history.recipe = recipe.s;
	if (checkpoint_create(&w, o.out, &meta, t->tensor, t->n, t->piece, t->pieces, comm, &e))
		die_err(&e);
	move(w, m, totals.bytes_written);
	put_sides(w, c);
	if (checkpoint_commit(w, &e))
		die_err(&e);
	if (!comm || !comm->rank)
		report(t);
	str_release(&cursor);
	str_release(&recipe);
}

int main(int argc, char **argv)
{
	struct model_config config;
	struct checkpoint_move *m;
	struct checkpoint c;
	struct listing t;
	struct layout l;
	struct comm world;
	struct err e = ERR_INIT;
	const char *args[1];

	tool_init(argv[0]);
	opt_parse(&tool, argc, argv, args, 1, 1);
	check_options();
	if (comm_init(&world, &e))
		die_err(&e);
	pool_start((int)common.threads);
	load_checkpoint(&c, args[0]);
	load_config(&config, &c);
	choose_layout(&l, &c, &config);
	if (listing_init(&t, &c, &config, &l, o.weights_only, &e) ||
	    checkpoint_move_plan(&m, &c, t.tensor, t.n, t.piece, t.pieces, o.level,
				 o.dry_run ? 0 : world.rank, o.dry_run ? 1 : world.size, buffer_memory(), &e))
		die_err(&e);
	if (o.dry_run) {
		struct move_totals totals = checkpoint_move_totals(m);

		if (!world.rank)
			print_plan(&c, &t, &l, &totals, buffer_memory() + OWN);
	} else {
		write_checkpoint(&c, m, &t, &l, world.size > 1 ? &world : NULL, argc, argv);
	}
	checkpoint_move_free(m);
	listing_release(&t);
	layout_release(&l);
	checkpoint_close(&c);
	comm_release(&world);
	return tool_exit(EX_OK);
}
