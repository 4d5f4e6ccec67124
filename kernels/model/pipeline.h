#ifndef KERNELS_MODEL_PIPELINE_H
#define KERNELS_MODEL_PIPELINE_H

/*
 * Micro-batches through the stages of a pipeline, one forward and one backward in turn (1F1B).
 * Stage s of p first runs min(p - 1 - s, n) forward passes, then a forward and a backward one by
 * turns, then the backward passes that are left: it has at most min(p - s, n) passes in flight, and
 * waits (p - 1) / n of the time in which it works.  With one stage every forward pass is followed
 * by its backward pass.
 *
 * Interleaved.  Where the layers go through the stages in v turns (layout.h), a micro-batch is v
 * passes on each stage, and the wait is (p - 1) / (v n), for more messages and more passes in
 * flight.  Micro-batches go in groups of p: all of a group in turn 0, then in turn 1, ...;
 * gradients likewise from the last turn on.  Stage s runs 2 (p - 1 - s) + (v - 1) p forward passes
 * first.  The last group is filled with batches without rows, which take no time.
 *
 *	p = pipeline_new(m, max_rows, keep, recompute)
 *	pipeline_run(p, &job)
 *		every rank of the pipeline, with the same batches; with backward passes once before
 *		model_reduce_grad(), whose sums begin within it
 *
 * All ranks know every batch, so no message says how long another is.  Log-probabilities, and with
 * them losses, are made on the last stage alone; what is counted there the caller shares out.
 */

#include "kernels/model/model.h"

struct pipeline;

struct pipeline_job {
	void *arg;
	long n;                 /* micro-batches 0 .. n - 1; may be 0 */
	/*
	 * Once a turn.  b and target[b->rows] stay valid until the next call; loss(k) follows
	 * batch(k) of the last turn.
	 */
	void (*batch)(void *arg, long k, struct batch *b, const int **target);
	/*
	 * Of the last stage, on every rank of it: lp[rows] as pass_logprobs() gives it; dlp[rows]
	 * to be filled, NULL without backward.
	 */
	void (*loss)(void *arg, long k, float *dlp, const float *lp);
	float temperature;
	bool backward;          /* the pipeline was made with keep */
};

struct pipeline *pipeline_new(struct model *m, long max_rows, bool keep, enum recompute recompute);
void pipeline_free(struct pipeline *p);
/* What it will take, once it has run n micro-batches. */
size_t pipeline_bytes(const struct model *m, long max_rows, bool keep, enum recompute recompute,
		      long n);
void pipeline_run(struct pipeline *p, const struct pipeline_job *j);

/* -- the schedule by itself ------------------------------------------------ */

struct pipeline_plan {
	long stages, turns;
	long n;                 /* micro-batches; with several turns a multiple of stages */
	bool backward;
};

struct pipeline_step { bool backward; long k, turn; };

/* The steps of a stage in order: turns n, or with backward twice as many. */
void pipeline_order(struct pipeline_step *out, const struct pipeline_plan *p, long stage);
/* Most passes of a turn in flight. */
long pipeline_flight(const struct pipeline_plan *p, long stage, long turn);

/*
 * What a stage does for a step; slot: 0 .. pipeline_flight() - 1, a micro-batch's from its forward
 * to its backward step.
 */
struct pipeline_stage {
	void *arg;
	void (*forward)(void *arg, long k, long turn, long slot);
	void (*backward)(void *arg, long k, long turn, long slot);
};
void pipeline_walk(const struct pipeline_stage *s, const struct pipeline_plan *p, long stage);

#endif
