/*
 * The table against itself, against the names of NeMo-RL's three base recipes (tests/data/recipe/keys.txt, from record_recipe.py), and
 * against its manual page.  `test_recipe_keys --print` writes that page: make docs.
 */
#include "libcommon/recipe.h"

#include "libcommon/file.h"
#include "tests/lib/tap.h"

static void names(void)
{
	FILE *f = fopen("tests/data/recipe/keys.txt", "r");
	char line[256];
	int n = 0, bad = 0;

	if (!f)
		die(66, "tests/data/recipe/keys.txt");
	while (fgets(line, sizeof(line), f)) {
		line[strcspn(line, "\n")] = 0;
		struct str t = { 0 };
		struct err e = ERR_INIT;
		/* Some are whole sections there: data.validation: null. */
		if (recipe_explain(&t, line, &e)) {
			printf("# %s is not in the table\n", line);
			bad++;
		}
		n++;
		str_release(&t);
	}
	fclose(f);
	ok(n > 330 && !bad, "%d keys of NeMo-RL's base recipes are known", n);
	ok(!recipe_key_find("policy.precison") && !recipe_key_find("policy") && !recipe_key_find("") && !recipe_key_find("a..b"),
	   "others are not");
	/* What users' recipes say beside the base ones. */
	static const char *const more[] = {
		"policy.dtensor_cfg.expert_parallel_size", "policy.generation.vllm_cfg.skip_tokenizer_init", "loss_fn.kl_type",
		"policy.generation.vllm_cfg.env_vars.NRL_REFIT_NUM_BUFFERS", "policy.generation.sglang_cfg.sglang_router_config.x",
		"policy.megatron_cfg.moe_aux_loss_coeff", "data.validation.repeat", "env.should_use_nemo_gym", "metadata.owner",
	};
	for (size_t i = 0; i < sizeof(more) / sizeof(*more); i++)
		ok(recipe_key_find(more[i]), "%s is known", more[i]);
	is_str(recipe_key_find("env.math.exec")->path, "env.*.exec", "a wildcard");
	is_str(recipe_key_find("logger.wandb.entity")->path, "logger.wandb", "below an open map");
	is_str(recipe_key_find("logger.wandb.project")->path, "logger.wandb.project", "but a key of its own comes first");
	is_str(recipe_key_find("data.prompt_file")->path, "data.default.prompt_file", "an old spelling");
}

static void table(void)
{
	int bad = 0, same = 0, state[3] = { 0 };

	for (int i = 0; i < recipe_nkeys; i++) {
		const struct recipe_key *k = &recipe_keys[i];
		state[k->state]++;
		bad += !*k->meaning || !k->def || !k->unit || !k->tools || (k->state == RECIPE_USED) != (*k->tools != 0);
		for (int j = 0; j < i; j++)
			same += !strcmp(k->path, recipe_keys[j].path);
	}
	ok(recipe_nkeys > 420 && !bad && !same, "%d keys: %d used, by some tool, %d noted, %d refused; none twice", recipe_nkeys,
	   state[0], state[1], state[2]);
}

static void explain(void)
{
	struct str t = { 0 };
	struct err e = ERR_INIT;

	ok(!recipe_explain(&t, "policy.max_grad_norm", &e), "explain a key");
	is_str(t.s, "policy.max_grad_norm\n  meaning: bound of the global gradient norm; 0 or null: none\n"
	       "  type:    a number, 0 or more, or null\n  default: 1.0\n  read by: train-step\n  state:   used\n", "all of it");
	str_cut(&t, 0);
	ok(!recipe_explain(&t, "data.dataset_name", &e) && strstr(t.s, "is another name of data.train.dataset_name"), "an old spelling");
	str_cut(&t, 0);
	ok(!recipe_explain(&t, "policy.optimizer", &e) && strstr(t.s, "policy.optimizer.kwargs.lr: peak"), "a section");
	ok(recipe_explain(&t, "policy.max_grad_nrom", &e) && e.code == 78 && strstr(e.msg, "nearest is 'policy.max_grad_norm'"), "%s", e.msg);
	ok(recipe_explain(&t, "", &e) && e.code == 78, "%s", e.msg);
	str_release(&t);
}

static void page(void)
{
	struct str want = { 0 };
	struct err e = ERR_INIT;
	char *text = NULL;
	size_t n = 0;
	FILE *f = open_memstream(&text, &n);

	recipe_print_table(f, RECIPE_MDOC);
	fclose(f);
	if (file_read(&want, "docs/cairn-recipe-keys.5", 0, &e))
		die_err(&e);
	ok(want.len == n && !memcmp(want.s, text, n), "docs/cairn-recipe-keys.5 is what the table says (make docs)");
	free(text);
	str_release(&want);
}

int main(int argc, char **argv)
{
	if (argc > 1 && !strcmp(argv[1], "--print")) {
		recipe_print_table(stdout, RECIPE_MDOC);
		return 0;
	}
	names();
	table();
	explain();
	page();
	return done();
}
