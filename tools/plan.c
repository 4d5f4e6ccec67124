/*
 * plan - choose a layout for a model and a cluster, and say why
 *
 * Not built yet: it says so, with the status of a thing that is unavailable.
 */
#include "libcommon/die.h"
#include "libcommon/opt.h"

static const struct opt table[] = { OPT_END };

static const struct tool tool = { "plan", "choose a layout for a model and a cluster, and say why", "MODEL|CKPT [-c RECIPE] [options]", table, true };

int main(int argc, char **argv)
{
	const char *args[1];

	tool_init(argv[0]);
	opt_parse(&tool, argc, argv, args, 1, 1);
	die(EX_UNAVAILABLE, "planning layouts is not built yet: there is one layout, one rank");
}
