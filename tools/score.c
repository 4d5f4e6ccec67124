/*
 * score - samples + rewards -> scored samples
 *
 * Gives every sample its reward, the log-probabilities that the algorithm needs, its advantage, and
 * for every token the weight that it has in the loss, with all normalisation in it.
 */
#include "tools/score/score.h"

#include "libcommon/file.h"
#include "libcommon/progress.h"
#include "libcommon/xalloc.h"
#include "tools/shared/scoring.h"
#include "tools/shared/timing.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct {
	const char *out, *policy, *reference, *teacher, *exec;
	struct opt_list reward;
	long shuffle;
} o = { .shuffle = -1 };

static const struct opt table[] = {
	OPT_STR('o', "out", &o.out, "DIR", "write the scored samples here (required)"),
	OPT_LIST(0, "reward", &o.reward, "NAME=WEIGHT",
		 "math, exact, choice or length, instead of the recipe's; may be repeated"),
	OPT_STR(0, "policy", &o.policy, "CKPT", "the checkpoint that training starts from"),
	OPT_STR(0, "reference", &o.reference, "CKPT", "the frozen policy of the KL term"),
	OPT_STR(0, "teacher", &o.teacher, "CKPT", "of a distillation (not built yet)"),
	OPT_STR(0, "exec", &o.exec, "CMD",
		"a verifier of your own: samples in, rewards out, in JSON lines"),
	OPT_LONG(0, "shuffle-rewards", &o.shuffle, "SEED",
		 "deal the rewards out anew among the samples: a control"),
	OPT_END
};

static const struct tool tool = { "score", "samples + rewards -> scored samples",
				  "SAMPLES... -o SCORED [-c RECIPE] [key=value ...]", table, true };

enum { MOST_INPUTS = 64 };

struct totals {
	double reward, gen, prompt;
	long valid, right, judged, ended, truncated, groups, solved;
};

/* Right: the first component that judges the answer is 1. */
static int is_right(const struct sample *s, const struct rewards *w)
{
	for (int f = 0; f < w->n; f++)
		if (w->r[f].answer)
			return isnan(s->rewards[f]) ? -1 : s->rewards[f] == 1;
	return s->reward_valid ? s->reward == 1 : -1;
}

static struct totals count(const struct samples *set, const struct rewards *w)
{
	struct totals t = { 0 };
	bool solved = false;

	for (long i = 0; i < set->n; i++) {
		const struct sample *s = set->s + i;
		int right = is_right(s, w);

		if (s->reward_valid) {
			t.reward += s->reward;
			t.valid++;
		}
		t.judged += right >= 0;
		t.right += right == 1;
		t.ended += !s->truncated;
		t.truncated += s->truncated;
		t.gen += (double)(s->length - s->prompt_length);
		t.prompt += (double)s->prompt_length;
		if (!i || set->s[i - 1].prompt_id != s->prompt_id ||
		    set->s[i - 1].visit != s->visit) {
			t.solved += solved;
			t.groups++;
			solved = false;
		}
		solved |= right == 1;
	}
	t.solved += solved;
	return t;
}

static void put(struct json_out *out, const char *split, const char *key, double v)
{
	char name[128];

	snprintf(name, sizeof(name), "%s/%s", split, key);
	json_add_real(out, name, v);
}

static char *metrics_of(const struct samples *set, const struct rewards *w,
			const struct learning *l)
{
	const char *split = set->s[0].split == SPLIT_VALIDATION ? "validation" : "train";
	struct totals t = count(set, w);
	struct json_out out = { 0 };
	double n = (double)set->n;

	json_begin(&out, '{');
	json_add_int(&out, "step", set->s[0].step);
	put(&out, split, "reward", t.reward / (double)t.valid);
	put(&out, split, "accuracy", (double)t.right / (double)t.judged);
	put(&out, split, "pass@samples_per_prompt", (double)t.solved / (double)t.groups);
	put(&out, split, "fraction_of_samples_properly_ended", (double)t.ended / n);
	put(&out, split, split[0] == 'v' ? "avg_length" : "generation_lengths", t.gen / n);
	put(&out, split, "prompt_lengths", t.prompt / n);
	put(&out, split, "num_problems_in_batch", (double)t.groups);
	put(&out, split, "num_samples", n);
	put(&out, split, "unscored", n - (double)t.valid);
	for (int f = 0; f < set->reward_names; f++) {
		char key[96];
		double sum = 0;
		long m = 0;

		for (long i = 0; i < set->n; i++)
			if (!isnan(set->s[i].rewards[f])) {
				sum += set->s[i].rewards[f];
				m++;
			}
		snprintf(key, sizeof(key), "reward/%s", set->reward_name[f]);
		put(&out, split, key, sum / (double)m);
	}
	if (l) {
		put(&out, split, "groups_without_spread", (double)l->flat_groups);
		put(&out, split, "num_mask_sample_filtered", (double)l->filtered);
		put(&out, split, "num_masked_seqs_by_logprob_error", (double)l->masked_by_error);
		put(&out, split, "sampling_importance_ratio", l->importance);
		put(&out, split, "is_oob_tokens", (double)l->outside);
	}
	json_end(&out);
	return str_detach(&out.s);
}

/* Over the limit nothing is written: training on what is left would be another experiment. */
static void check_unscored(const struct samples *set, const struct recipe *r, const char *journal)
{
	double most = recipe_real(r, "cairn.max_unscored");
	long bad = 0, first = -1;

	for (long i = set->n - 1; i >= 0; i--)
		if (!set->s[i].reward_valid) {
			bad++;
			first = i;
		}
	if ((double)bad > most * (double)set->n)
		die(EX_DATAERR,
		    "%ld of %ld samples are unscored, more than cairn.max_unscored %g; the first: prompt %ld, %ld: %.*s%s%s",
		    bad, set->n, most, set->s[first].prompt_id, set->s[first].sample_index,
		    (int)set->s[first].reason_bytes,
		    set->s[first].reason ? set->s[first].reason : "no reason",
		    journal ? "; answers so far are kept in " : "", journal ? journal : "");
	if (bad)
		log_warn("%ld of %ld samples are unscored; the first: prompt %ld, %ld: %.*s", bad,
			 set->n, set->s[first].prompt_id, set->s[first].sample_index,
			 (int)set->s[first].reason_bytes,
			 set->s[first].reason ? set->s[first].reason : "");
}

/* scoring_put() and what else went into the rewards. */
static void put_scoring(struct json_out *out, const struct recipe *r, const struct rewards *w,
			double temperature)
{
	struct json_out base = { 0 };
	struct json_doc d;
	struct err e = ERR_INIT;

	scoring_put(&base, r, "grpo", temperature);
	if (json_parse(&d, base.s.s, base.s.len, "scoring", 1, &e))
		bug("%s", e.msg);
	json_begin(out, '{');
	for (size_t i = 0; i < d.root.n; i++) {
		json_key(out, d.root.member[i].key);
		json_put(out, &d.root.member[i].value);
	}
	json_key(out, "rewards");
	json_begin(out, '[');
	for (int i = 0; i < w->n + (w->exec != NULL); i++) {
		json_begin(out, '{');
		json_add_str(out, "name", i < w->n ? w->r[i].name : "exec");
		json_add_real(out, "weight", i < w->n ? w->r[i].weight : 1);
		json_end(out);
	}
	json_end(out);
	if (o.shuffle >= 0)
		json_add_int(out, "shuffle_rewards", o.shuffle);
	json_end(out);
	json_release(&d);
	json_out_release(&base);
}

/* Everything that was read, by what it is. */
static int list_inputs(struct history_input *in, const char **args, int nargs)
{
	const char *models[2][2] = { { "policy", o.policy }, { "reference", o.reference } };
	int n = 0;

	for (int i = 0; i < nargs; i++)
		in[n++] = (struct history_input){ "samples", args[i], input_digest(args[i]) };
	for (int i = 0; i < 2; i++) {
		struct checkpoint c;

		if (!models[i][1])
			continue;
		load_checkpoint(&c, models[i][1]);
		in[n++] = (struct history_input){ models[i][0], models[i][1], c.weights_digest };
		checkpoint_close(&c);
	}
	return n;
}

static void write_scored(struct samples *set, const struct recipe *r, const struct ops *k,
			 const struct rewards *w, const char *metrics, const char **args, int nargs,
			 int argc, char **argv)
{
	const struct json *cursor = json_get(&set->manifest.root, "cursor"),
			  *parent = json_get(&set->manifest.root, "history");
	struct history_input in[MOST_INPUTS + 2];
	struct json_out scoring = { 0 }, text = { 0 };
	struct samples_meta m = { .step = set->s[0].step,
				  .split = set->s[0].split == SPLIT_VALIDATION ? "validation"
									       : "train",
				  .policy = set->s[0].policy,
				  .tokenizer_digest = set->s[0].tokenizer_digest,
				  .metrics = metrics };
	uint64_t seed = (uint64_t)recipe_int(r, "grpo.seed");
	struct err e = ERR_INIT;
	char print[17];
	double start = seconds_now();
	int inputs = list_inputs(in, args, nargs);

	if (m.split[0] == 't') {
		put_scoring(&scoring, r, w, set->s[0].temperature);
		m.scoring = scoring.s.s;
	}
	if (json_is(cursor, JSON_OBJECT)) {
		json_put(&text, cursor);
		m.cursor = text.s.s;
	}
	if (k)
		m.fingerprint = fingerprint_text(print, k);
	start_history(&m.history, tool.name, argc, argv, r, &seed, in, inputs,
		      json_is(parent, JSON_OBJECT) ? parent : NULL);
	if (samples_write(o.out, set, &m, NULL, &e))
		die_err(&e);
	timing_add(TIMING_SAVE, start);
}

/* What each answer is worth. */
static void judge(struct rewards *w, struct samples *set, const struct recipe *r, const char *journal)
{
	rewards_init(w, r, set->s[0].split, &o.reward, o.exec);
	rewards_judge(w, set, journal);
	check_unscored(set, r, w->exec ? journal : NULL);
	if (o.shuffle >= 0)
		score_shuffle(set, o.shuffle);
}

int main(int argc, char **argv)
{
	const char *args[MOST_INPUTS];
	struct samples set = { 0 };
	struct learning l;
	struct rewards w;
	int nargs;

	tool_init(argv[0]);
	nargs = opt_parse(&tool, argc, argv, args, 1, MOST_INPUTS);
	if (!o.out)
		die(EX_USAGE, "-o DIR is missing: where to write the scored samples");
	if (o.teacher)
		die(EX_UNAVAILABLE, "--teacher: distillation is not built yet");
	if (file_exists(o.out))
		die(EX_CANTCREAT,
		    "%s exists; remove it, or name another place for the scored samples", o.out);
	struct recipe *r = start_recipe();
	const struct ops *k = start_ops();
	bool alone = start_world()->size == 1, first = start_is_first();

	score_read(&set, args, nargs);
	bool train = set.s[0].split == SPLIT_TRAIN;
	char *journal = xasprintf("%s.journal", o.out);

	/* The first rank judges; the others only run models with it, and are not to wait for verifiers. */
	if (alone)
		judge(&w, &set, r, journal);
	if (train) {
		score_prev(&set, o.policy, r, k);
		if (recipe_real(r, "loss_fn.reference_policy_kl_penalty") > 0)
			score_reference(&set, o.reference, r, k);
	}
	if (!first)
		return tool_exit(EX_OK);
	if (!alone)
		judge(&w, &set, r, journal);
	if (train)
		score_learning(&l, &set, r);
	char *metrics = metrics_of(&set, &w, train ? &l : NULL);

	write_scored(&set, r, k, &w, metrics, args, nargs, argc, argv);
	if (w.exec)
		unlink(journal);
	timing_print(metrics);
	rewards_release(&w);
	return tool_exit(EX_OK);
}
