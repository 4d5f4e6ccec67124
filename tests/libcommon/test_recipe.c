#include "libcommon/recipe.h"

#include "libcommon/file.h"
#include "tests/lib/tap.h"

#define DATA "tests/data/recipe/"

/* A recipe from text and overrides; NULL with the message in e. */
static struct recipe *load(struct err *e, const char *text, const char *const *over, int n)
{
	struct recipe *r;

	*e = (struct err)ERR_INIT;
	return recipe_parse(&r, text, strlen(text), DATA "inline.yaml", over, n, NULL, 0, e) ? NULL : r;
}

static bool same_number(const struct json *a, const struct json *b)
{
	return a->type == JSON_NUMBER && b->type == JSON_NUMBER && strtod(a->text, NULL) == strtod(b->text, NULL);
}

/* Every leaf of `want` is in `got`; numbers by value.  Returns how many leaves there were. */
static int leaves(const struct json *got, const struct json *want, const char *path, int *bad)
{
	char name[512];
	int n = 0;

	if (want->type == JSON_OBJECT) {
		for (size_t i = 0; i < want->n; i++) {
			snprintf(name, sizeof(name), "%s.%s", path, want->member[i].key);
			n += leaves(json_get(got, want->member[i].key), &want->member[i].value, name, bad);
		}
		return n;
	}
	if (want->type == JSON_ARRAY && got && got->type == JSON_ARRAY && got->n == want->n) {
		for (size_t i = 0; i < want->n; i++)
			n += leaves(&got->item[i], &want->item[i], path, bad);
		return n;
	}
	if (!got || !(json_equal(got, want) || same_number(got, want))) {
		printf("# %s differs\n", path);
		++*bad;
	}
	return 1;
}

/* tests/libcommon/record_recipe.py: what OmegaConf makes of the same files. */
static void chain(void)
{
	struct recipe *r, *again;
	struct json_doc want;
	struct json_out o = { .indent = 0 };
	struct json_doc got;
	struct str yaml = { 0 }, yaml2 = { 0 };
	struct err e = ERR_INIT;
	int bad = 0, n;

	unsetenv("CAIRN_TEST_RECIPE_UNSET");
	ok(!recipe_load(&r, DATA "child.yaml", NULL, 0, NULL, 0, &e), "a chain of four files loads %s", e.msg);
	if (json_read(&want, DATA "chain.json", 0, &e))
		die_err(&e);
	recipe_write_json(&o, r);
	if (json_parse(&got, o.s.s, o.s.len, "effective", 1, &e))
		die_err(&e);
	n = leaves(&got.root, &want.root, "", &bad);
	ok(n > 35 && !bad, "%d leaves are as OmegaConf has them", n);

	ok(recipe_value(r, "policy.generation.vllm_kwargs")->n == json_path(&want.root, "policy.generation.vllm_kwargs")->n,
	   "_override_ leaves nothing of the parents");

	is_str(recipe_where(r, "grpo.num_generations_per_prompt"), DATA "child.yaml:5", "where a value comes from");
	is_str(recipe_where(r, "policy.generation.top_p"), DATA "sub/middle.yaml:4", "a parent's value");
	is_str(recipe_where(r, "policy.precision"), "default", "a default");
	ok(recipe_is_set(r, "policy.generation") && !recipe_is_set(r, "policy.precision"), "what was given");
	is_str(recipe_str(r, "policy.generation.vllm_cfg.kv_cache_dtype"), "auto", "the default is read");
	ok(recipe_is_null(r, "policy.scheduler") && recipe_is_set(r, "policy.scheduler"), "a null replaces a list");
	is_num(recipe_real(r, "policy.generation.val_top_p"), 0.5, 0, "a default that follows the user's value");
	ok(recipe_int(r, "policy.train_global_batch_size") == 48, "interpolated after inheritance");

	recipe_write_yaml(&yaml, r);
	ok(!recipe_parse(&again, yaml.s, yaml.len, "again.yaml", NULL, 0, NULL, 0, &e), "the effective recipe loads %s", e.msg);
	if (!again)
		die_err(&e);
	recipe_write_yaml(&yaml2, again);
	is_str(yaml2.s, yaml.s, "and is written the same");
	ok(digest_equal(recipe_digest(r), recipe_digest(again)), "with the same digest");
	recipe_free(r);
	recipe_free(again);
	json_release(&want);
	json_release(&got);
	json_out_release(&o);
	str_release(&yaml);
	str_release(&yaml2);
}

static const char *kind(char buf[64], const struct json *v)
{
	if (v->type == JSON_NUMBER && !strpbrk(v->text, ".e")) snprintf(buf, 64, "int\t%s", v->text);
	else if (v->type == JSON_NUMBER) snprintf(buf, 64, "real\t%s", v->text);
	else if (v->type == JSON_STRING) snprintf(buf, 64, "str\t%s", v->text);
	else snprintf(buf, 64, "%s", v->type == JSON_NULL ? "null\tnull" : v->type == JSON_TRUE ? "bool\ttrue" : "bool\tfalse");
	return buf;
}

static void scalars(void)
{
	FILE *f = fopen(DATA "scalars.tsv", "r");
	char line[256], text[300], buf[64];
	int n = 0, bad = 0;
	struct err e;

	if (!f)
		die(66, DATA "scalars.tsv");
	while (fgets(line, sizeof(line), f)) {
		line[strcspn(line, "\n")] = 0;
		char *want = strchr(line, '\t');
		*want++ = 0;
		if (!strcmp(line, "-") || !strcmp(line, "--"))
			continue;
		snprintf(text, sizeof(text), "logger: {wandb: {k: %s}}\n", line);
		if (strchr(line, ',') || strchr(line, ':'))
			snprintf(text, sizeof(text), "logger:\n  wandb:\n    k: %s\n", line);
		struct recipe *r = load(&e, text, NULL, 0);
		const char *got = r ? kind(buf, json_get(recipe_value(r, "logger.wandb"), "k")) : e.msg;
		double a = strtod(strchr(want, '\t') + 1, NULL), b = strchr(got, '\t') ? strtod(strchr(got, '\t') + 1, NULL) : 0;
		if (strcmp(got, want) && !(!strncmp(want, "real", 4) && !strncmp(got, "real", 4) && a == b)) {
			printf("# %s: got %s, want %s\n", line, got, want);
			bad++;
		}
		n++;
		recipe_free(r);
	}
	fclose(f);
	ok(n > 80 && !bad, "%d plain scalars resolve as in OmegaConf", n);
}

static void overrides(void)
{
	FILE *f = fopen(DATA "overrides.tsv", "r");
	char line[256], arg[300];
	int n = 0, bad = 0;
	struct err e;

	if (!f)
		die(66, DATA "overrides.tsv");
	while (fgets(line, sizeof(line), f)) {
		char *want = strchr(line, '\t');
		struct json_doc d;
		*want++ = 0;
		snprintf(arg, sizeof(arg), "++logger.wandb.k=%s", line);
		const char *over[] = { arg };
		struct recipe *r = load(&e, "", over, 1);
		if (json_parse(&d, want, strlen(want), "want", 1, &e))
			die_err(&e);
		const struct json *got = r ? json_get(recipe_value(r, "logger.wandb"), "k") : NULL;
		if (!got || !(json_equal(got, &d.root) || same_number(got, &d.root))) {
			printf("# %s: want %s# %s\n", arg, want, e.msg);
			bad++;
		}
		n++;
		json_release(&d);
		recipe_free(r);
	}
	fclose(f);
	ok(n > 20 && !bad, "%d values of overrides are as in Hydra", n);
}

static void command_line(void)
{
	const char *over[] = { "grpo.seed=7", "+grpo.val_period=3", "++policy.generation.stop_strings=[a,'b,c']", "~policy.scheduler",
			       "policy.generation.vllm_kwargs.x.y=2", "policy.optimizer.kwargs.betas.1=0.5", "generation.top_k=9",
			       "policy.max_grad_norm=${policy.optimizer.kwargs.lr}" };
	const char *unset[] = { "grpo.num_prompts_per_step" };
	const char *text = "grpo: {seed: 1, num_prompts_per_step: 5}\npolicy:\n  scheduler: {name: ConstantLR}\n"
			   "  optimizer: {kwargs: {betas: [0.1, 0.2], lr: 1}}\n";
	struct recipe *r;
	struct err e = ERR_INIT;

	ok(!recipe_parse(&r, text, strlen(text), "x.yaml", over, 8, unset, 1, &e), "all forms of overrides %s", e.msg);
	ok(recipe_int(r, "grpo.seed") == 7 && recipe_int(r, "grpo.val_period") == 3, "k=v and +k=v");
	is_str(recipe_where(r, "grpo.seed"), "command line", "where an override comes from");
	const struct json *v = recipe_value(r, "policy.generation.stop_strings");
	ok(v->n == 2 && !strcmp(v->item[1].text, "b,c"), "a list with quotes");
	ok(recipe_is_null(r, "policy.scheduler"), "~k leaves null where null is allowed");
	ok(recipe_int(r, "grpo.num_prompts_per_step") == 32, "and the default where it is not");
	ok(json_path(recipe_value(r, "policy.generation.vllm_kwargs"), "x.y") != NULL, "open maps take new names");
	is_str(recipe_value(r, "policy.optimizer.kwargs.betas")->item[1].text, "0.5", "one entry of a list");
	ok(recipe_int(r, "policy.generation.top_k") == 9, "an old spelling on the command line");
	is_num(recipe_real(r, "policy.max_grad_norm"), 1, 0, "an interpolation on the command line");
	recipe_free(r);
}

static void spellings(void)
{
	const char *text = "data: {dataset_name: x, prompt_file: p.txt, system_prompt_file: null, input_key: q, max_input_seq_length: 77,\n"
			   "  train: {output_key: a}}\nchkpt: &c {metric_name: val_reward}\ncheckpointing: *c\n";
	struct err e;
	struct recipe *r = load(&e, text, NULL, 0);

	ok(!r && strstr(e.msg, "inline.yaml:3: unknown key 'chkpt'"), "an anchor's own key must be known too: %s", e.msg);
	text = "data: {dataset_name: x, prompt_file: p.txt, system_prompt_file: null, input_key: q, max_input_seq_length: 77,\n"
	       "  train: {output_key: a}}\ncheckpointing: {metric_name: val_reward}\n"
	       "generation: {temperature: 0.25, val_temperature: '${.temperature}', max_new_tokens: '${generation.num_prompts_per_step}', num_prompts_per_step: 3}\n";
	r = load(&e, text, NULL, 0);
	ok(r != NULL, "spellings of v0.3 and of evaluation recipes load %s", e.msg);
	is_str(recipe_str(r, "data.train.dataset_name"), "x", "data.dataset_name");
	is_str(recipe_str(r, "data.default.prompt_file"), "p.txt", "data.prompt_file");
	is_str(recipe_str(r, "data.default.prompt_key"), "q", "data.input_key");
	is_str(recipe_str(r, "data.train.answer_key"), "a", "data.train.output_key");
	is_str(recipe_str(r, "checkpointing.metric_name"), "val:accuracy", "a metric without prefix");
	is_num(recipe_real(r, "policy.generation.val_temperature"), 0.25, 0, "generation.* and what refers to it");
	ok(recipe_int(r, "policy.generation.max_new_tokens") == 3, "a reference by its old name");
	recipe_free(r);
}

static void digests(void)
{
	static const struct { const char *text; bool same; } c[] = {
		{ "logger: {log_dir: elsewhere, wandb: {name: x}}\ncheckpointing: {checkpoint_dir: /b, keep_top_k: 9}\n", true },
		{ "cairn: {threads: 3, memory: 4GiB, device: cpu}\n", true },
		{ "policy: {generation: {vllm_kwargs: {a: 1}}}\n", true },
		{ "policy: {generation: {temperature: 1}}\n", true },
		{ "policy: {generation: {temperature: 0.9}}\n", false },
		{ "env: {math: {reward_functions: [{name: math, weight: 1}]}}\n", false },
		{ "env: {other: {reward_functions: [{name: math, weight: 1}]}}\n", false },
		{ "env: {math: {reward_functions: [{weight: 1, name: math}]}}\n", false },
	};
	struct digest d[8], base;
	struct err e;
	struct recipe *r = load(&e, "", NULL, 0);

	base = recipe_digest(r);
	recipe_free(r);
	for (int i = 0; i < 8; i++) {
		r = load(&e, c[i].text, NULL, 0);
		d[i] = recipe_digest(r);
		ok(digest_equal(d[i], base) == c[i].same, "digest %s: %.40s", c[i].same ? "stays" : "changes", c[i].text);
		recipe_free(r);
	}
	ok(!digest_equal(d[5], d[6]) && digest_equal(d[5], d[7]), "names count, the order of keys does not");
}

static void signs(void)
{
	const char *over[] = { "policy.model_name=-" };
	struct err e;
	struct recipe *r = load(&e, "policy: {tokenizer: {name: +}}\n", over, 1);

	is_str(r ? recipe_str(r, "policy.tokenizer.name") : e.msg, "+", "a lone sign is a text");
	is_str(r ? recipe_str(r, "policy.model_name") : e.msg, "-", "on the command line too");
	recipe_free(r);
}

static void environment(void)
{
	struct err e;

	setenv("CAIRN_TEST_RECIPE", "12", 1);
	struct recipe *r = load(&e, "grpo: {seed: '${oc.env:CAIRN_TEST_RECIPE}'}\npolicy: {model_name: '${oc.env:CAIRN_TEST_RECIPE}'}\n", NULL, 0);
	ok(r && recipe_int(r, "grpo.seed") == 12, "a number from the environment");
	is_str(r ? recipe_str(r, "policy.model_name") : e.msg, "12", "or a text, as the key wants it");
	recipe_free(r);
}

int main(void)
{
	struct err e = ERR_INIT;
	struct recipe *r;

	ok(!recipe_load(&r, NULL, NULL, 0, NULL, 0, &e), "defaults alone");
	ok(recipe_is_null(r, "policy.model_name") && recipe_is_null(r, "data.train.dataset_name"), "no hub names as defaults");
	ok(recipe_value(r, "env.anything.reward_functions")->type == JSON_NULL && recipe_int(r, "env.anything.exec_workers") == 1,
	   "defaults of keys with a wildcard");
	recipe_free(r);
	chain();
	scalars();
	overrides();
	command_line();
	spellings();
	digests();
	environment();
	signs();
	return done();
}
