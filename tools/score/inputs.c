#include "tools/score/score.h"

#include "libcommon/file.h"
#include "libcommon/progress.h"
#include "libcommon/rng.h"
#include "libcommon/xalloc.h"
#include "tools/shared/timing.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* What an earlier score or another program made of these samples goes: it is made anew. */
static void forget_scores(struct sample *s)
{
	s->prev_logprobs = s->reference_logprobs = s->advantages = NULL;
	memset(s->loss_weights, 0, sizeof(s->loss_weights));
	s->rewards = NULL;
	s->has_reward = s->reward_valid = false;
	s->extracted = s->reason = NULL;
	s->extracted_bytes = s->reason_bytes = 0;
	s->update = s->unit = -1;
	s->truncated |= s->finish_reason == FINISH_LENGTH || s->finish_reason == FINISH_CONTEXT;
}

static int by_group(const void *a, const void *b, void *arg)
{
	const struct sample *s = arg, *x = s + *(const long *)a, *y = s + *(const long *)b;

	if (x->prompt_id != y->prompt_id)
		return x->prompt_id < y->prompt_id ? -1 : 1;
	if (x->visit != y->visit)
		return x->visit < y->visit ? -1 : 1;
	return (x > y) - (x < y);
}

/* A group shares a baseline, so its samples have to stand together. */
static void check_groups(const struct samples *set)
{
	long *row = xmalloc((size_t)set->n * sizeof(long)), first = 0, size = 0;

	for (long i = 0; i < set->n; i++)
		row[i] = i;
	qsort_r(row, (size_t)set->n, sizeof(*row), by_group, set->s);
	for (long i = 1; i <= set->n; i++) {
		const struct sample *a = set->s + row[i - 1],
				    *b = i < set->n ? set->s + row[i] : NULL;

		if (b && a->prompt_id == b->prompt_id && a->visit == b->visit) {
			if (row[i] != row[i - 1] + 1)
				die(EX_DATAERR,
				    "prompt %ld, visit %ld: its samples have different places in the order of the prompts",
				    a->prompt_id, a->visit);
			continue;
		}
		if (size && i - first != size)
			size = -1;
		else if (!size)
			size = i - first;
		first = i;
	}
	if (size < 0)
		log_info(
			"the groups have different numbers of samples; each is compared with its own");
	free(row);
}

static void check_alike(const struct samples *set)
{
	const struct sample *a = set->s;
	char one[33], two[33];

	for (long i = 1; i < set->n; i++) {
		const struct sample *b = set->s + i;

		if (a->step != b->step || a->split != b->split)
			die(EX_DATAERR,
			    "samples of steps %ld and %ld, or of two splits, wanted one step",
			    a->step, b->step);
		if (!digest_equal(a->policy, b->policy))
			die(EX_DATAERR,
			    "sample (prompt %ld, %ld): sampled by policy %s, others by %s; wanted one",
			    b->prompt_id, b->sample_index, digest_hex(one, b->policy),
			    digest_hex(two, a->policy));
	}
}

void score_read(struct samples *set, const char *const *path, int n)
{
	double start = seconds_now();
	struct err e = ERR_INIT;
	long next = 0;

	for (int i = 0; i < n; i++) {
		long from = set->n, most = -1;

		set->reward_names = 0;
		if (samples_read_any(set, path[i], &e))
			die_err(&e);
		for (long k = from; k < set->n; k++) {
			struct sample *a = set->s + k;

			forget_scores(a);
			if (a->order >= LONG_MAX - next)
				die(EX_DATAERR,
				    "%s: sample (prompt %ld, %ld): order: found %ld, wanted less",
				    path[i], a->prompt_id, a->sample_index, a->order);
			a->order += next;
			if (a->order > most)
				most = a->order;
		}
		next = most >= next ? most + 1 : next;
	}
	set->reward_names = 0;
	if (!set->n)
		die(EX_DATAERR, "%s: no samples", path[0]);
	samples_sort(set);
	if (samples_check(set, path[0], &e))
		die_err(&e);
	check_alike(set);
	check_groups(set);
	timing_add(TIMING_LOAD, start);
}

void score_shuffle(struct samples *set, long seed)
{
	long *who = xmalloc((size_t)set->n * sizeof(long)),
	     *from = xmalloc((size_t)set->n * sizeof(long)), n = 0;
	double *r = xmalloc((size_t)set->n * sizeof(double));

	for (long i = 0; i < set->n; i++)
		if (set->s[i].reward_valid)
			who[n++] = i;
	rng_permutation(from, n, rng_key((uint64_t)seed, RNG_SHUFFLE, (uint64_t)set->s[0].step));
	for (long i = 0; i < n; i++)
		r[i] = set->s[who[from[i]]].reward;
	for (long i = 0; i < n; i++)
		set->s[who[i]].reward = r[i];
	free(who);
	free(from);
	free(r);
}
