#include "libcommon/opt.h"

#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

#include "libcommon/str.h"
#include "libcommon/xalloc.h"
#include "tests/lib/tap.h"

/* opt_parse() ends the process on many ways, so each command line gets a child whose last line
 * of output says what was understood. */

struct options {
	const char *out;
	long tp;
	double rate;
	bool dry, keep;
	struct opt_list reward;
};

static struct options o;

static const struct opt table[] = {
	OPT_STR ('o', "out", &o.out, "DIR", "write the checkpoint here"),
	OPT_LONG( 0, "tp", &o.tp, "N", "tensor parallel size"),
	OPT_HEADING("learning:"),
	OPT_REAL('r', "learning-rate", &o.rate, "X", "a text so long that it does not fit into the one line which "
		 "is eighty columns wide"),
	OPT_FLAG('n', "dry-run", &o.dry, "only say what would be done"),
	OPT_FLAG( 0, "keep", &o.keep, "keep it"),
	OPT_LIST( 0, "reward", &o.reward, "NAME=WEIGHT", "a component; may be repeated"),
	OPT_END
};

static const struct tool with_recipe = { "demo", "one thing -> another", "CKPT [SCORED] [options]", table, true };
static const struct tool without = { "demo", "one thing -> another", "CKPT [SCORED] [options]", table, false };

static void describe(const char **args, int n)
{
	for (int i = 0; i < n; i++)
		printf("<%s>", args[i]);
	printf(" out=%s tp=%ld rate=%g dry=%d keep=%d", o.out ? o.out : "-", o.tp, o.rate, o.dry, o.keep);
	for (int i = 0; i < o.reward.n; i++)
		printf(" reward:%s", o.reward.v[i]);
	for (int i = 0; i < common.overrides.n; i++)
		printf(" set:%s", common.overrides.v[i]);
	for (int i = 0; i < common.unset.n; i++)
		printf(" unset:%s", common.unset.v[i]);
	printf(" v=%d", verbosity);
	if (common.recipe)
		printf(" recipe=%s", common.recipe);
	if (common.memory_bytes)
		printf(" memory=%ld", common.memory_bytes);
	exit(tool_exit(0));
}

static void child(const struct tool *t, char *words)
{
	char *argv[32] = { (char *)"/somewhere/demo" };
	const char *args[2];
	int argc = 1;

	for (char *w = strtok(words, " "); w; w = strtok(NULL, " "))
		argv[argc++] = !strcmp(w, "EMPTY") ? (char *)"" : w;
	o = (struct options){ .tp = 1, .rate = 1e-5, .keep = true };
	tool_init(argv[0]);
	describe(args, opt_parse(t, argc, argv, args, 1, 2));
}

/* Exit status; stdout and stderr together in *out. */
static int parse(struct str *out, const struct tool *t, const char *words)
{
	char *copy = xstrdup(words), buf[1024];
	int fd[2], st;
	ssize_t n;
	pid_t pid;

	str_release(out);
	fflush(stdout);
	if (pipe(fd))
		bug("pipe");
	pid = fork();
	if (!pid) {
		dup2(fd[1], 1);
		dup2(fd[1], 2);
		close(fd[0]);
		child(t, copy);
	}
	close(fd[1]);
	while ((n = read(fd[0], buf, sizeof(buf))) > 0)
		str_add(out, buf, (size_t)n);
	close(fd[0]);
	waitpid(pid, &st, 0);
	free(copy);
	return WIFEXITED(st) ? WEXITSTATUS(st) : 128 + WTERMSIG(st);
}

static struct str out;

static void understands(const char *words, const char *want)
{
	int rc = parse(&out, &with_recipe, words);

	is_str(out.s, want, "demo %s", words);
	ok(rc == 0, "status 0");
}

static void refuses(const char *words, const char *want)
{
	int rc = parse(&out, &with_recipe, words);

	if (out.s && out.len)
		str_cut(&out, out.len - 1);
	is_str(out.s, want, "demo %s", words);
	ok(rc == EX_USAGE, "status 64");
}

static void right(void)
{
	understands("a", "<a> out=- tp=1 rate=1e-05 dry=0 keep=1 v=0");
	understands("a b -o x --tp 4 -r 0.5 -n --no-keep", "<a><b> out=x tp=4 rate=0.5 dry=1 keep=0 v=0");
	understands("-ox --tp=-3 --learning-rate=1e-3 a", "<a> out=x tp=-3 rate=0.001 dry=0 keep=1 v=0");
	understands("a -nvv --reward exact=1 --reward=math=.5",
		    "<a> out=- tp=1 rate=1e-05 dry=1 keep=1 reward:exact=1 reward:math=.5 v=2");
	understands("a -vq", "<a> out=- tp=1 rate=1e-05 dry=0 keep=1 v=-1");
	understands("a --out EMPTY --out=-", "<a> out=- tp=1 rate=1e-05 dry=0 keep=1 v=0");
	understands("-", "<-> out=- tp=1 rate=1e-05 dry=0 keep=1 v=0");
	understands("-- -a --b", "<-a><--b> out=- tp=1 rate=1e-05 dry=0 keep=1 v=0");
	understands("a --memory 1.5G -c r.yaml", "<a> out=- tp=1 rate=1e-05 dry=0 keep=1 v=0 recipe=r.yaml memory=1610612736");
}

static void overrides(void)
{
	understands("a x.y=1 -n z_0.1= ++q=a=b +p=1 ~d.e ~f=1 --unset g.h",
		    "<a> out=- tp=1 rate=1e-05 dry=1 keep=1 set:x.y=1 set:z_0.1= set:++q=a=b set:+p=1 set:~d.e set:~f=1 "
		    "unset:g.h v=0");
	understands("a=b c=d", "<a=b> out=- tp=1 rate=1e-05 dry=0 keep=1 set:c=d v=0");
	understands("a run/x=1", "<a><run/x=1> out=- tp=1 rate=1e-05 dry=0 keep=1 v=0");
	understands("a =1", "<a><=1> out=- tp=1 rate=1e-05 dry=0 keep=1 v=0");
	understands("a -- b=1", "<a><b=1> out=- tp=1 rate=1e-05 dry=0 keep=1 v=0");
	refuses("a b=1 c", "demo: found the operand \"c\" behind a recipe key, wanted operands first");
	ok(parse(&out, &without, "a b c=1") == EX_USAGE && strstr(out.s, "found the operand \"c=1\", wanted at most 2"),
	   "without a recipe key=value is an operand");
	ok(parse(&out, &without, "a -c r.yaml") == EX_USAGE && strstr(out.s, "-c"), "and there is no -c");
	ok(parse(&out, &without, "a --unset k") == EX_USAGE && strstr(out.s, "--unset"), "nor --unset");
}

static void wrong(void)
{
	refuses("a --leaning-rate 3", "demo: found the option --leaning-rate, wanted one of those that --help lists; "
		"the nearest is --learning-rate");
	refuses("a --frobnicate=1", "demo: found the option --frobnicate, wanted one of those that --help lists");
	refuses("a -Z", "demo: found the option -Z, wanted one of those that --help lists");
	refuses("a --tp 3x", "demo: --tp: found \"3x\", wanted an integer");
	refuses("a --tp EMPTY", "demo: --tp: found \"\", wanted an integer");
	refuses("a --tp 9223372036854775808", "demo: --tp: found \"9223372036854775808\", wanted an integer");
	refuses("a -r 1,5", "demo: --learning-rate: found \"1,5\", wanted a number");
	refuses("a -r nan", "demo: --learning-rate: found \"nan\", wanted a number");
	refuses("a --dry-run=1", "demo: --dry-run: found the argument \"1\", wanted none");
	refuses("a --no-tp", "demo: found the option --no-tp, wanted one of those that --help lists");
	refuses("a --out", "demo: --out: found nothing behind it, wanted DIR");
	refuses("--", "demo: found 0 operands, wanted 1; usage: demo CKPT [SCORED] [options]");
	refuses("a b c", "demo: found the operand \"c\", wanted at most 2; usage: demo CKPT [SCORED] [options]");
	refuses("a --device gpu", "demo: --device: found \"gpu\", wanted cpu, cuda, cuda:N or auto");
	refuses("a --memory 0", "demo: --memory: found \"0\", wanted bytes as in 4096, 512MiB or 8G");
	refuses("a --threads -1", "demo: --threads: found -1, wanted 0 or more");
}

static void help(void)
{
	size_t widest = 0, at = 0;

	ok(parse(&out, &with_recipe, "--tp 4 --nonsense --help") == 0, "--help wins");
	ok(strstr(out.s, "usage: cairn demo CKPT [SCORED] [options]\n\none thing -> another\n\n"), "usage and purpose");
	ok(strstr(out.s, "\n      --tp N              tensor parallel size [1]\n"), "defaults, not what was given");
	ok(strstr(out.s, "\nlearning:\n  -r, --learning-rate X   a text so long that it does not fit into the one line\n"
		  "                          which is eighty columns wide [1e-05]\n"), "long texts are wrapped");
	ok(strstr(out.s, "\n      --reward NAME=WEIGHT\n                          a component; may be repeated\n"),
	   "long names get a line");
	ok(strstr(out.s, "keep it [on]") && strstr(out.s, "-c, --config RECIPE") && strstr(out.s, "[auto]"),
	   "flags and common options");
	for (size_t i = 0; i < out.len; i++) {
		if (out.s[i] == '\n') {
			widest = i - at > widest ? i - at : widest;
			at = i + 1;
		}
	}
	ok(widest <= 80, "no line is wider than 80 (%zu)", widest);
	ok(parse(&out, &without, "--help") == 0 && !strstr(out.s, "--config") && !strstr(out.s, "--unset"),
	   "no recipe, no -c");
	ok(parse(&out, &without, "--version") == 0 && !strncmp(out.s, "cairn demo ", 11) &&
	   strstr(out.s, cairn_version()) && strstr(out.s, "cuda"), "--version");
}

static void bytes(void)
{
	static const struct { const char *s; long want; } cases[] = {
		{ "0", 0 }, { "4096", 4096 }, { "9007199254740993", 9007199254740993 }, { "512MiB", 512L << 20 },
		{ "8G", 8L << 30 }, { "8g", 8L << 30 }, { "5GB", 5000000000 }, { "1.5e9", 1500000000 }, { "1.5K", 1536 },
		{ "2TiB", 2L << 40 }, { "7B", 7 }, { "9223372036854775807", INT64_MAX }, { "9223372036854775808", -1 },
		{ "8388608T", -1 }, { "", -1 }, { "G", -1 }, { "-1", -1 }, { " 1", -1 }, { "1 G", -1 }, { "0x10", -1 },
		{ "1e", -1 }, { "inf", -1 }, { "nan", -1 }, { "1GiBs", -1 }, { "1e400", -1 }, { "8P", -1 },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		ok(parse_bytes(cases[i].s) == cases[i].want, "\"%s\" is %ld bytes", cases[i].s, cases[i].want);
}

static void names(void)
{
	static const char *const list[] = { "train-step", "rollout", "reshard", "score", "tp", "temperature", NULL };
	static const char *const none[] = { NULL };

	is_str(nearest("rolout", list), "rollout", "a letter lost");
	is_str(nearest("rehsard", list), "reshard", "two exchanged");
	is_str(nearest("trainstep", list), "train-step", "a hyphen lost");
	is_str(nearest("temp", list), "temperature", "the first letters");
	is_str(nearest("pp", list), "tp", "one of two");
	ok(!nearest("x", list) && !nearest("", list) && !nearest("export", list), "nothing near");
	ok(!nearest("score", none), "no names");
}

static void command_line(void)
{
	char a0[] = "/x/y/rollout", a1[] = "a b", a2[] = "it's", a3[] = "key.path=v", a4[] = "", *argv[] = { a0, a1, a2, a3, a4 };
	char *line = opt_command_line(5, argv);

	is_str(line, "rollout 'a b' 'it'\\''s' key.path=v ''", "the command line for a shell");
	free(line);
	ok(program_dir()[0] == '/' && !access(program_dir(), X_OK), "our own directory");
}

int main(void)
{
	right();
	overrides();
	wrong();
	help();
	bytes();
	names();
	command_line();
	str_release(&out);
	return done();
}
