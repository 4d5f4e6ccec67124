/*
 * reshard - checkpoint in one layout -> checkpoint in any other
 *
 * Not built yet: it says so, with the status of a thing that is unavailable.
 */
#include "libcommon/die.h"
#include "libcommon/opt.h"

static struct {
	const char *out, *stages, *like, *compress;
	long tp, pp, ep, etp, dp;
	bool weights_only;
} o = { .tp = 1, .pp = 1, .ep = 1, .etp = 1, .dp = 1 };

static const struct opt table[] = {
	OPT_STR('o', "out", &o.out, "CKPT2", "write the checkpoint here"),
	OPT_LONG(0, "tp", &o.tp, "N", "tensor parallel size"),
	OPT_LONG(0, "pp", &o.pp, "N", "pipeline parallel size"),
	OPT_LONG(0, "ep", &o.ep, "N", "expert parallel size"),
	OPT_LONG(0, "etp", &o.etp, "N", "tensor parallel size of experts"),
	OPT_LONG(0, "dp", &o.dp, "N", "ranks that share the optimizer's state"),
	OPT_STR(0, "stages", &o.stages, "N,N,...", "layers of each pipeline stage"),
	OPT_STR(0, "like", &o.like, "CKPT", "the layout of this checkpoint"),
	OPT_STR(0, "compress", &o.compress, "zstd[:LEVEL]", "store compressed"),
	OPT_FLAG(0, "weights-only", &o.weights_only, "leave the optimizer's state behind"),
	OPT_END
};

static const struct tool tool = { "reshard", "checkpoint in one layout -> checkpoint in any other", "CKPT -o CKPT2 [options]", table, false };

int main(int argc, char **argv)
{
	const char *args[1];

	tool_init(argv[0]);
	opt_parse(&tool, argc, argv, args, 1, 1);
	die(EX_UNAVAILABLE, "resharding between layouts is not built yet; every program loads any stored layout of one rank");
}
