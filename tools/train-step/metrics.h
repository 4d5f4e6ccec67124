#ifndef TOOLS_TRAIN_STEP_METRICS_H
#define TOOLS_TRAIN_STEP_METRICS_H

/* The numbers of a step, under NeMo-RL's names.  Losses and counts are summed over the updates of a step, norms averaged. */

#include "tools/train-step/train.h"

struct step_metrics {
	struct update_report sum;
	double loss, grad_norm, lr, weight_decay;
	long updates, skipped, steps;
	struct router_report routers;   /* sums over the updates */
	bool per_layer;                 /* policy.megatron_cfg.moe_per_layer_logging */
	bool aux, z;                    /* routers have such a loss */
};

void metrics_add(struct step_metrics *m, const struct update_report *u, const struct trainer *t);
/* "train/..." members into an open object; b NULL: no reinforcement learning. */
void metrics_put(struct json_out *o, const struct step_metrics *m, const struct rl *b);

#endif
