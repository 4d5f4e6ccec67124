/*
 * reshard - checkpoint in one layout -> checkpoint in any other
 *
 * Not built yet: it says so, with the status of a thing that is unavailable.
 */
#include "libcommon/die.h"
#include "libcommon/opt.h"

static const struct opt table[] = { OPT_END };

static const struct tool tool = { "reshard", "checkpoint in one layout -> checkpoint in any other", "CKPT -o CKPT2 [options]", table, false };

int main(int argc, char **argv)
{
	const char *args[1];

	tool_init(argv[0]);
	opt_parse(&tool, argc, argv, args, 0, 1);
	die(EX_UNAVAILABLE, "resharding between layouts is not built yet; every program loads any stored layout of one rank");
}
