#ifndef TOOLS_PLAN_PLAN_H
#define TOOLS_PLAN_PLAN_H

/*
 * The chapters of plan: what a cluster is (cluster.c), what a recipe asks of it (job.c), what a layout takes in memory (memory.c) and
 * time (time.c), which layouts there are (search.c), how they are told (print.c), what this machine can do (measure.c) and what lies
 * between its ranks (links.c).
 *
 * Units: bytes, seconds, FLOPs (a multiply-add is two), tokens.  Everything is double: numbers of this size are estimates.
 */

#include "libcommon/json.h"
#include "libcommon/layout.h"
#include "libcommon/model_config.h"
#include "libcommon/recipe.h"

enum { CLUSTER_SUMS = 13 };             /* groups of 1, 2, 4, ... 4,096 ranks */

struct cluster {
	const char *name;               /* of the preset, or "as given" */
	long gpus, gpus_per_node;
	double memory;                  /* of one GPU */
	double peak;                    /* FLOP/s of dense bfloat16 products */
	double bandwidth;               /* of its memory, bytes/s, as a copy reaches it */
	double node_link;               /* bytes/s a GPU sends to others of its node, one direction */
	double net_link;                /* bytes/s a GPU sends to other nodes */
	double latency;                 /* seconds of one collective step within a node; 5 times that between nodes */
	/*
	 * Measured, of a sum over 2^k neighbours: 2 (n - 1) / n of its bytes a second, the rate at which a ring would send; 0: not.
	 * It takes the place of a link for groups of that many ranks (of fewer than the next measured) in collectives.
	 */
	double sum_link[CLUSTER_SUMS];
	double storage;                 /* bytes/s of checkpoints, a node */
	double efficiency;              /* share of the peak that a large product reaches */
};

/* What the recipe wants of a step. */
struct job {
	struct model_config model;
	double mean_prompt, mean_response;      /* tokens of a sequence */
	double longest;                         /* policy.max_total_sequence_length */
	double samples;                         /* a step: prompts times generations */
	double batch;                           /* sequences of an optimizer update */
	double rows;                            /* tokens of a micro-batch at most */
	double weight_bytes;                    /* 2 or 4 an element */
	bool recompute_asked;                   /* the recipe sets activation checkpointing */
	bool reference;                         /* a KL term: a second pass without gradient */
	bool sft;                               /* no rollout */
};

struct memory {                         /* bytes on the worst rank */
	double weights, gradients, optimizer, activations, head, buffers, total;
	long stage;                     /* the worst one */
};

struct step_time {                      /* seconds of one optimizer update */
	double compute, bubble, tensor, expert, context, pipeline, data, optimizer, total;
	double share;                   /* of the peak: model FLOPs / (total x peak x GPUs) */
};

struct plan {
	struct layout layout;           /* owned */
	bool recompute;
	long micro_batches;             /* a DP rank and update */
	struct memory memory;
	struct step_time time;
};

/* A layout for sampling: TP within a node, the rest copies. */
struct rollout_plan {
	long tp, copies, at_once;       /* sequences in flight, a copy */
	double memory, prefill, decode, total;  /* bytes a GPU; seconds for all samples of a step */
};

/* "h100", "h200", "b200": by the data sheets and by measurements where there are any.  -1: unknown, names in *e. */
int cluster_preset(struct cluster *c, const char *name, struct err *e) MUST_CHECK;
/* A JSON object as --measure prints it; absent members stay. */
int cluster_read(struct cluster *c, const char *path, struct err *e) MUST_CHECK;
void cluster_put(struct json_out *o, const struct cluster *c);
/* This machine: matrix products, copies of memory (by one of `ranks` on it), writing to `dir` (NULL: not) until synced.  Some seconds. */
struct ops;
void cluster_measure(struct cluster *c, const char *dir, const struct ops *k, int ranks);
/*
 * Then, by all ranks of a launcher: links between two of a host and of two hosts, sums over 2, 4, 8, ... ranks.  A "GPU" is a rank: it
 * has its share of the host's memory, and the rates of products and copies while all ranks are at it.  Rank 0 has the result.
 */
struct comm;
void cluster_measure_links(struct cluster *c, struct comm *world);

void job_init(struct job *j, const struct recipe *r, double mean_prompt, double mean_response);

/* Elements of one layer that TP splits, that every rank holds, and of all its experts; of embedding and head together. */
double layer_split(const struct model_config *m, long layer);
double layer_whole(const struct model_config *m, long layer);
double layer_experts(const struct model_config *m, long layer);
/*
 * FLOPs of a forward pass, a token: a layer's products without its experts', those of the experts that a token visits, attention with
 * `keys` visible on average, the head.
 */
double layer_flops(const struct model_config *m, long layer);
double expert_flops(const struct model_config *m, long layer);
double attention_flops(const struct model_config *m, double keys);
double head_flops(const struct model_config *m);
/* Bytes a token and layer that a backward pass needs, all ranks together; with recompute only the layer's input. */
double layer_kept(const struct model_config *m, long layer, double weight_bytes, bool recompute);
double kv_bytes(const struct model_config *m, double weight_bytes);     /* of one token, all layers */
double model_elements(const struct model_config *m);

void plan_memory(struct memory *out, const struct layout *l, bool recompute, const struct job *j);
void plan_time(struct plan *p, const struct job *j, const struct cluster *c);
bool plan_rollout(struct rollout_plan *out, const struct job *j, const struct cluster *c);

struct plans { struct plan *plan; long n, cap, tried, impossible, too_large; double smallest; /* memory of the leanest that did not fit */ };
/* All layouts of the cluster that the model and the memory allow, best first. */
void plans_search(struct plans *out, const struct job *j, const struct cluster *c);
void plans_release(struct plans *p);

void print_plans(const struct plans *p, const struct rollout_plan *r, const struct job *j, const struct cluster *c, long n);
void print_yaml(const struct plan *p, const struct cluster *c);
void print_json(const struct plans *p, const struct rollout_plan *r, const struct job *j, const struct cluster *c, long n);
/* One line for each number of GPUs: best layout and the phases of a whole step. */
void print_simulation(const struct job *j, const struct cluster *c, long least, long most, bool json);

#endif
