#include "libcommon/recipe.h"

#include "libcommon/file.h"
#include "tests/lib/tap.h"

#include <sys/stat.h>
#include <time.h>

static void refused(int code, const char *text, const char *over, const char *says)
{
	const char *const list[] = { over };
	struct err e = ERR_INIT;
	struct recipe *r;
	int bad = recipe_parse(&r, text, strlen(text), "r.yaml", list, !!over, NULL, 0, &e);

	ok(bad && e.code == code && strstr(e.msg, says), "%d %s", code, says);
	if (!bad || e.code != code || !strstr(e.msg, says))
		printf("# %d %s\n", e.code, bad ? e.msg : "it loads");
	ok(!strchr(e.msg, '\n'), "in one line");
	if (!bad)
		recipe_free(r);
}

static void config(void)
{
	refused(78, "policy:\n  precison: float32\n", NULL, "r.yaml:2: unknown key 'policy.precison'; nearest is 'policy.precision'");
	refused(78, "policy: {max_new_token: 2}", NULL, "nearest is 'policy.generation.max_new_tokens'");
	refused(78, "lr: 1e-5", NULL, "nearest is 'policy.optimizer.kwargs.lr'");
	refused(78, "grpo: {num_generations: 2}", NULL, "nearest is 'grpo.num_generations_per_prompt'");
	refused(78, "policy.precision: float32\n", NULL, "r.yaml:1: unknown key 'policy.precision'");
	refused(78, "env: {math: {number_workers: 2}}", NULL, "nearest is 'env.*.num_workers'");
	refused(78, "", "grpo.sed=1", "command line: unknown key 'grpo.sed'; nearest is 'grpo.seed'");
	refused(78, "policy:\n  optimizer:\n    kwargs:\n      lr: -1e-5\n", NULL, "r.yaml:4: policy.optimizer.kwargs.lr: found -1e-5, wanted a number, 0 or more");
	refused(78, "grpo: {num_generations_per_prompt: 0}", NULL, "wanted a whole number, 1 or more");
	refused(78, "grpo: {num_generations_per_prompt: 1.5}", NULL, "found 1.5, wanted a whole number");
	refused(78, "grpo: {num_generations_per_prompt: '4'}", NULL, "found '4', wanted a whole number");
	refused(78, "grpo: {num_generations_per_prompt: null}", NULL, "found null, wanted a whole number");
	refused(78, "grpo: {normalize_rewards: 1}", NULL, "found 1, wanted true or false");
	refused(78, "policy: {model_name: 12}", NULL, "found 12, wanted a text");
	refused(78, "policy: {precision: float16}", NULL, "found 'float16', wanted one of bfloat16|float32");
	refused(78, "policy: {generation: {top_p: 0}}", NULL, "more than 0, at most 1");
	refused(78, "policy: {generation: 3}", NULL, "policy.generation: found 3, wanted a map of keys");
	refused(78, "data: {train: [{data_path: x}]}", NULL, "data.train: found a list, wanted a map of keys");
	refused(78, "policy:\n  megatron_cfg:\n    enabled: true\n    fp8_cfg: {enabled: true}\n", NULL, "r.yaml:4: policy.megatron_cfg.fp8_cfg.enabled: true is refused: train in FP8; not built");
	refused(78, "loss_fn: {use_kl_in_reward: true}", NULL, "is refused: put the KL term into the advantage; not built");
	refused(78, "ppo: {ppo_epochs: 1}", NULL, "ppo: a map is refused");
	refused(78, "policy:\n  model_name: ?" "??\n", NULL, "policy.model_name: still has to be given a value");
	refused(78, "data: {dataset_name: a, train: {dataset_name: b}}", NULL, "data.dataset_name is another name of data.train.dataset_name");
	refused(78, "grpo: {seed: 1}", "+grpo.seed=2", "already set at r.yaml:1");
	refused(78, "", "~grpo.sede", "nearest is 'grpo.seed'");
	refused(78, "", "policy.hf_config_overrides={a", "wanted `name: value` in the map");
	refused(78, "", "policy.hf_config_overrides={a:", "in the map");
	refused(78, "", "policy.model_name=\xff", "no UTF-8");
	refused(78, "", "grpo.seed", "wanted key=value");
	refused(78, "", "+++grpo.seed=1", "wanted key=value, +key=value, ++key=value or ~key");
	refused(78, "", "policy.generation.stop_strings=[a", "wanted , or ] in the list");
	refused(78, "", "policy.generation.stop_strings='a", "a quote that does not end");
	refused(78, "", "policy.generation.stop_strings=[a] b", "more after the value");
	refused(78, "policy: {generation: {stop_strings: [a]}}", "policy.generation.stop_strings.3=b", "the list has 1 entries");
}

static void interpolation(void)
{
	refused(78, "grpo: {seed: '${grpo.val_period}', val_period: '${grpo.seed}'}", NULL, "leads back to itself");
	refused(78, "policy: {generation: {vllm_kwargs: {a: '${policy.generation}'}}}", NULL, "leads back to itself");
	refused(78, "grpo: {seed: '${grpo.nothing}'}", NULL, "grpo.seed: ${grpo.nothing}: there is no such key");
	refused(78, "grpo: {seed: '${....x}'}", NULL, "more dots than there are maps");
	refused(78, "grpo: {seed: '${grpo.val_period'}", NULL, "a ${ that does not end");
	refused(78, "grpo: {seed: '${pow:1,2}'}", NULL, "wanted add, mul, div, max or oc.env");
	refused(78, "grpo: {seed: '${mul:1}'}", NULL, "${mul:...}: wanted two numbers");
	refused(78, "grpo: {seed: '${mul:1,a}'}", NULL, "wanted two numbers");
	refused(78, "grpo: {seed: '${div:1,0}'}", NULL, "division by zero");
	refused(78, "grpo: {seed: '${mul:9000000000,9000000000}'}", NULL, "does not fit into 64 bits");
	refused(78, "grpo: {seed: '${oc.env:CAIRN_NO_SUCH_VARIABLE}'}", NULL, "the variable is not set");
	refused(78, "policy: {optimizer: null, max_grad_norm: '${policy.optimizer.kwargs.lr}'}", NULL, "there is no such key");
}

static void yaml(void)
{
	refused(65, "a: [1, 2", NULL, "r.yaml:2: while parsing a flow sequence");
	refused(65, "a: 1\n  b: 2\n", NULL, "r.yaml:2:");
	refused(65, "- a\n- b\n", NULL, "wanted a map of keys");
	refused(65, "grpo: {seed: 1, seed: 2}", NULL, "key 'seed' is there twice");
	refused(65, "grpo: {seed: 1}\n---\ngrpo: {seed: 2}\n", NULL, "a second document");
	refused(65, "grpo: {seed: *x}", NULL, "alias *x has no anchor before it");
	refused(65, "grpo: &x {seed: *x}", NULL, "alias *x has no anchor before it");
	refused(65, "grpo: {seed: !!python/name:os.system 1}", NULL, "tag");
	refused(65, "grpo: {seed: !mine 1}", NULL, "tag !mine is not known");
	refused(65, "grpo: {seed: 99999999999999999999}", NULL, "wanted a finite number of at most 64 bits");
	refused(65, "grpo: {seed: .inf}", NULL, "wanted a finite number");
	refused(65, "policy: {max_grad_norm: 1e999}", NULL, "wanted a finite number");
	refused(65, "grpo: {? [a, b] : 1}", NULL, "a key that is no plain name");
	refused(65, "grpo: {<<: 3}", NULL, "`<<` wants a map or a list of maps");
	refused(65, "policy: {model_name: \"a\\0b\"}", NULL, "NUL");
	refused(65, "grpo: {_override_: 3}", NULL, "_override_ wants true or false");
	refused(65, "policy: {model_name: \"\xff\"}", NULL, "r.yaml:");
}

/* Input that grows: refused in little time and memory. */
static void growth(void)
{
	struct str t = { 0 };
	clock_t begin = clock();

	str_puts(&t, "a: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
	for (int i = 1; i < 9; i++) {
		str_printf(&t, "k%d: &a%d [", i, i);
		for (int k = 0; k < 10; k++)
			str_printf(&t, "%s*a%d", k ? ", " : "", i - 1);
		str_puts(&t, "]\n");
	}
	refused(65, t.s, NULL, "expand to more than 100000 values");

	str_cut(&t, 0);
	str_puts(&t, "logger: {wandb: {k0: 'xxxxxxxxxx'");
	for (int i = 1; i < 40; i++)
		str_printf(&t, ", k%d: '${.k%d}${.k%d}'", i, i - 1, i - 1);
	str_puts(&t, "}}");
	refused(78, t.s, NULL, "the text grows beyond 1 MiB");

	str_cut(&t, 0);
	str_puts(&t, "logger: {wandb: {k0: [1, 2]");
	for (int i = 1; i < 40; i++)
		str_printf(&t, ", k%d: ['${..k%d}', '${..k%d}']", i, i - 1, i - 1);
	str_puts(&t, "}}");
	refused(65, t.s, NULL, "");

	str_cut(&t, 0);
	str_puts(&t, "logger: {wandb: {k0: 1");
	for (int i = 1; i < 200; i++)
		str_printf(&t, ", k%d: '${.k%d}'", i, i + 1);
	str_puts(&t, "}}");
	refused(78, t.s, NULL, "more than 64 interpolations inside each other");

	str_cut(&t, 0);
	str_puts(&t, "grpo: ");
	for (int i = 0; i < 100000; i++)
		str_putc(&t, '[');
	refused(65, t.s, NULL, "nested deeper than 32");

	str_cut(&t, 0);
	str_puts(&t, "policy: {model_name: '");
	for (int i = 0; i < 5000; i++)
		str_puts(&t, "${add:1,");
	str_puts(&t, "'}");
	refused(78, t.s, NULL, "");

	str_cut(&t, 0);
	str_puts(&t, "logger: {wandb: {");
	for (int i = 0; i < 5000; i++)
		str_printf(&t, "k%d: 1, ", i);
	str_puts(&t, "}}");
	refused(65, t.s, NULL, "a map of more than 4096 keys");

	str_cut(&t, 0);
	while (t.len <= 1 << 20)
		str_puts(&t, "# nothing here\n");
	refused(65, t.s, NULL, "wanted at most 1048576");
	str_release(&t);
	ok((double)(clock() - begin) / CLOCKS_PER_SEC < 5, "all of that in seconds");
}

static void put(const char *name, const char *text)
{
	char *path = path_join(tap_tmp(), name);
	struct err e = ERR_INIT;

	if (file_write(path, text, strlen(text), &e))
		die_err(&e);
	free(path);
}

static void parents(void)
{
	struct err e = ERR_INIT;
	struct recipe *r;
	char *a, *b;

	put("a.yaml", "defaults: b.yaml\ngrpo: {seed: 1}\n");
	put("b.yaml", "defaults: [a.yaml]\n");
	put("c.yaml", "defaults: gone.yaml\n");
	put("d.yaml", "defaults: {x: 1}\n");
	a = path_join(tap_tmp(), "a.yaml");
	ok(recipe_load(&r, a, NULL, 0, NULL, 0, &e) && e.code == 78 && strstr(e.msg, "names itself as a parent") && strstr(e.msg, "b.yaml:1"),
	   "a circle of parents: %s", e.msg);
	free(a);
	b = path_join(tap_tmp(), "c.yaml");
	ok(recipe_load(&r, b, NULL, 0, NULL, 0, &e) && e.code == 66 && strstr(e.msg, "c.yaml:1: defaults: ") && strstr(e.msg, "gone.yaml"),
	   "a parent that is not there: %s", e.msg);
	free(b);
	b = path_join(tap_tmp(), "d.yaml");
	ok(recipe_load(&r, b, NULL, 0, NULL, 0, &e) && e.code == 78 && strstr(e.msg, "wanted a path or a list of paths"), "%s", e.msg);
	free(b);
}

int main(void)
{
	config();
	interpolation();
	yaml();
	growth();
	parents();
	return done();
}
