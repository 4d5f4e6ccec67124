/*
 * plan - choose a layout for a model and a cluster, and say why
 */
#include "tools/plan/plan.h"

#include "libcommon/file.h"
#include "libcommon/opt.h"
#include "tools/shared/start.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
	long gpus, per_node, top, most;
	double prompt, response;
	const char *memory, *cluster, *at;
	bool simulate, measure, json, yaml;
} o = { .gpus = LONG_MIN, .per_node = LONG_MIN, .top = 3, .most = 4096, .prompt = (double)NAN, .response = (double)NAN, .cluster = "h200", .at = "." };

static const struct opt table[] = {
	OPT_LONG(0, "gpus", &o.gpus, "N", "in all; else cluster.num_nodes times cluster.gpus_per_node of the recipe"),
	OPT_LONG(0, "gpus-per-node", &o.per_node, "N", "8 if not given"),
	OPT_STR(0, "gpu-memory", &o.memory, "BYTES", "of one GPU"),
	OPT_STR(0, "cluster", &o.cluster, "NAME|FILE", "h100, h200, b200, or a file as --measure prints it"),
	OPT_REAL(0, "mean-prompt", &o.prompt, "TOKENS", "of a prompt, on average (an eighth of the longest sequence)"),
	OPT_REAL(0, "mean-response", &o.response, "TOKENS", "of a response, on average (a quarter of the longest sequence)"),
	OPT_LONG(0, "top", &o.top, "N", "how many layouts to tell"),
	OPT_FLAG(0, "json", &o.json, "one JSON object (--simulate: one a line)"),
	OPT_FLAG(0, "yaml", &o.yaml, "only the best layout, as a piece of a recipe"),
	OPT_HEADING("Instead of one cluster:"),
	OPT_FLAG(0, "simulate", &o.simulate, "a whole step on 1, 2, 4, ... GPUs"),
	OPT_LONG(0, "most", &o.most, "N", "with --simulate: GPUs at most"),
	OPT_HEADING("Without a model:"),
	OPT_FLAG(0, "measure", &o.measure, "what this machine, or the ranks of a launcher, can do, as a cluster for --cluster"),
	OPT_STR(0, "at", &o.at, "DIR", "with --measure: where checkpoints will lie"),
	OPT_END
};

static const struct tool tool = {
	"plan", "choose a layout for a model and a cluster, and say why", "MODEL|CKPT [-c RECIPE] [options] [key=value ...] | --measure", table,
	true
};

/* A checkpoint, a folder with config.json, or the file itself. */
static void find_model(struct model_config *m, const char *path)
{
	char *manifest = path_join(path, "manifest.json"), *config = path_join(path, "config.json");
	struct err e = ERR_INIT;
	struct checkpoint c;
	struct json_doc d;

	if (file_exists(manifest)) {
		load_checkpoint(&c, path);
		load_config(m, &c);
		checkpoint_close(&c);
	} else {
		if (json_read(&d, file_exists(config) ? config : path, 1 << 24, &e) || model_config_from_json(m, &d, &e))
			die_err(&e);
		json_release(&d);
	}
	free(manifest);
	free(config);
}

static void find_cluster(struct cluster *c, const struct recipe *r)
{
	struct err e = ERR_INIT;

	if (file_exists(o.cluster)) {
		if (cluster_preset(c, "h200", &e) || cluster_read(c, o.cluster, &e))
			die_err(&e);
	} else if (cluster_preset(c, o.cluster, &e)) {
		die_err(&e);
	}
	if (o.memory) {
		c->memory = (double)parse_bytes(o.memory);
		if (c->memory <= 0)
			die(EX_USAGE, "--gpu-memory %s: wanted bytes, as 80e9 or 141GB", o.memory);
	}
	if (o.prompt < 0 || o.response < 0)
		die(EX_USAGE, "--mean-prompt and --mean-response want 0 tokens or more");
	if ((o.per_node < 1 && o.per_node != LONG_MIN) || (o.gpus < 1 && o.gpus != LONG_MIN) || o.top < 1 || o.most < 1)
		die(EX_USAGE, "--gpus, --gpus-per-node, --top and --most want at least 1");
	if (o.per_node != LONG_MIN)
		c->gpus_per_node = o.per_node;
	else if (recipe_is_set(r, "cluster.gpus_per_node"))
		c->gpus_per_node = recipe_int(r, "cluster.gpus_per_node");
	c->gpus = o.gpus != LONG_MIN ? o.gpus : recipe_int(r, "cluster.num_nodes") * c->gpus_per_node;
	if (c->gpus_per_node < 1 || c->gpus < 1 || c->gpus > 1 << 20)
		die(EX_USAGE, "%ld GPUs, %ld a node: wanted 1 to 1048576", c->gpus, c->gpus_per_node);
	if (c->gpus > c->gpus_per_node && c->gpus % c->gpus_per_node)
		die(EX_USAGE, "%ld GPUs are no whole number of nodes of %ld", c->gpus, c->gpus_per_node);
}

static int measure(void)
{
	struct json_out out = { 0 };
	struct comm *world = start_world();
	const struct ops *k = start_ops();
	struct cluster c;

	cluster_measure(&c, start_is_first() ? o.at : NULL, k, start_ranks_here());
	if (world->size > 1)
		cluster_measure_links(&c, world);
	if (!start_is_first())
		return tool_exit(EX_OK);
	cluster_put(&out, &c);
	puts(out.s.s);
	return tool_exit(EX_OK);
}

/* The answer is no: what is the nearest thing that would fit? */
static int nothing_fits(const struct plans *p, const struct job *j, const struct cluster *c)
{
	if (!p->too_large)
		log_warn("no layout of %ld GPUs: the model's heads and layers, or updates of %.0f sequences, do not allow so many; use fewer"
			 " GPUs or a larger policy.train_global_batch_size", c->gpus, j->batch);
	else
		log_warn("no layout of %ld GPUs fits: the leanest wants %.1f GB a GPU, there are %.1f; use more GPUs, a smaller"
			 " policy.sequence_packing.train_mb_tokens, or larger GPUs", c->gpus, p->smallest / 1e9, c->memory / 1e9);
	return tool_exit(1);
}

int main(int argc, char **argv)
{
	struct rollout_plan rollout = { 0 };
	struct recipe *r;
	struct cluster c;
	struct plans p;
	struct job j = { 0 };
	const char *args[1];
	int n;

	tool_init(argv[0]);
	n = opt_parse(&tool, argc, argv, args, 0, 1);
	if (o.measure)
		return measure();
	if (!n)
		die(EX_USAGE, "which model? a checkpoint, a Hugging Face folder or a config.json");
	r = start_recipe();
	find_model(&j.model, args[0]);
	find_cluster(&c, r);
	job_init(&j, r, o.prompt, o.response);
	if (o.simulate) {
		print_simulation(&j, &c, 1, o.most, o.json);
		return tool_exit(EX_OK);
	}
	plans_search(&p, &j, &c);
	if (!p.n)
		return nothing_fits(&p, &j, &c);
	if (!j.sft && !plan_rollout(&rollout, &j, &c) && !o.json && !o.yaml)
		log_warn("sampling: no layout within a node holds the model and one sequence");
	if (o.yaml)
		print_yaml(p.plan, &c);
	else if (o.json)
		print_json(&p, &rollout, &j, &c, o.top);
	else
		print_plans(&p, &rollout, &j, &c, o.top);
	plans_release(&p);
	recipe_free(r);
	return tool_exit(EX_OK);
}
