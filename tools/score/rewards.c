#include "tools/score/score.h"

#include "formats/dataset.h"
#include "libcommon/pool.h"
#include "libcommon/xalloc.h"
#include "tools/score/math.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* -- the gold answer ----------------------------------------------------------------------------------------- */

static const char *text_of(struct arena *a, const struct json *v)
{
	if (json_is(v, JSON_STRING) || json_is(v, JSON_NUMBER))
		return arena_strndup(a, v->text, v->n);
	return NULL;
}

static const char *last_assistant(struct arena *a, const struct json *messages)
{
	if (!json_is(messages, JSON_ARRAY))
		return NULL;
	for (size_t i = messages->n; i-- > 0;)
		if (json_eq_str(json_get(messages->item + i, "role"), "assistant"))
			return text_of(a, json_get(messages->item + i, "content"));
	return NULL;
}

const char *row_gold(struct arena *a, const char *row, size_t n, const char *answer_key)
{
	static const char *const keys[] = { "answer", "ground_truth", "expected_answer", "solution", "output", "response", "completion" };
	struct json_doc d;
	struct err e = ERR_INIT;
	const char *text = NULL;

	if (!row || json_parse(&d, row, n, "row", 1, &e))
		return NULL;
	if (answer_key)
		text = text_of(a, json_get(&d.root, answer_key) ? json_get(&d.root, answer_key) : json_path(&d.root, answer_key));
	else
		for (size_t i = 0; !text && i < sizeof(keys) / sizeof(*keys); i++)
			text = text_of(a, json_get(&d.root, keys[i]));
	if (!text && !answer_key)
		text = text_of(a, json_path(&d.root, "reward_model.ground_truth"));
	if (!text && !answer_key)
		text = last_assistant(a, json_get(&d.root, "messages"));
	json_release(&d);
	return text ? dataset_gold(a, text) : NULL;
}

/* -- which functions ------------------------------------------------------------------------------------------ */

static int judge_math(struct verdict *v, const struct reward *r, const struct question *q, struct err *e)
{
	struct math_result m = { 0 };

	if (!q->gold)
		return err_set(e, EX_DATAERR, "the row has no answer to compare with");
	if (math_reward(&m, q->s->text, q->s->text_bytes, q->gold, strlen(q->gold), r->params, e))
		return -1;
	*v = (struct verdict){ m.score, m.extracted, m.reason };
	return 0;
}

static const struct {
	const char *name;
	int (*judge)(struct verdict *, const struct reward *, const struct question *, struct err *);
	bool answer, pattern;
} functions[] = {
	{ "math", judge_math, true, false }, { "exact", judge_exact, true, false }, { "choice", judge_choice, true, false },
	{ "regex", judge_regex, true, true }, { "format", judge_format, false, true }, { "length", judge_length, false, false },
};
enum { FUNCTIONS = sizeof(functions) / sizeof(*functions) };

static void add_reward(struct rewards *w, const char *name, double weight, const struct json *params, const char *where)
{
	static const char *const names[] = { "math", "exact", "choice", "regex", "format", "length", NULL };
	int f = 0;

	while (f < FUNCTIONS && strcmp(functions[f].name, name))
		f++;
	if (f == FUNCTIONS)
		die(EX_CONFIG, "%s: reward %s: no such function; nearest is %s", where, name,
		    nearest(name, names) ? nearest(name, names) : "math, exact, choice, regex, format or length");
	if (!isfinite(weight))
		die(EX_CONFIG, "%s: reward %s: weight %g, wanted a finite number", where, name, weight);
	GROW(w->r, w->n, w->cap);
	w->r[w->n++] = (struct reward){ functions[f].name, weight, params, functions[f].judge, functions[f].answer, NULL, 0 };
	if (functions[f].pattern)
		reward_pattern_compile(&w->r[w->n - 1]);
}

static void add_word(struct rewards *w, const char *word)
{
	const char *eq = strchr(word, '=');
	char *name = eq ? xstrndup(word, (size_t)(eq - word)) : xstrdup(word), *end = NULL;
	double weight = eq ? strtod(eq + 1, &end) : 1;

	if (eq && (end == eq + 1 || *end))
		die(EX_USAGE, "--reward %s: wanted NAME or NAME=WEIGHT", word);
	if (!strcmp(name, "regex") || !strcmp(name, "format"))
		die(EX_USAGE, "--reward %s: its pattern stands in the recipe (env.NAME.reward_functions)", word);
	add_reward(w, name, weight, NULL, "--reward");
	free(name);
}

static void add_listed(struct rewards *w, const struct recipe *r, const char *key)
{
	const struct json *list = recipe_value(r, key);
	struct json_doc d = { .file = recipe_where(r, key) };
	struct err e = ERR_INIT;

	for (size_t i = 0; json_is(list, JSON_ARRAY) && i < list->n; i++) {
		const char *name;
		double weight;

		if (json_str(&d, json_get(list->item + i, "name"), "reward_functions: name", &name, &e) ||
		    json_real_or(&d, list->item + i, "weight", 1, &weight, &e)) {
			e.code = EX_CONFIG;
			die_err(&e);
		}
		add_reward(w, name, weight, list->item + i, d.file);
	}
}

void rewards_init(struct rewards *w, const struct recipe *r, enum split split, const struct opt_list *words, const char *exec)
{
	bool train = split == SPLIT_TRAIN;
	const char *env = recipe_str(r, train ? "data.train.env_name" : "data.validation.env_name");
	const char *key = recipe_str(r, train ? "data.train.answer_key" : "data.validation.answer_key");
	char name[3][160];

	memset(w, 0, sizeof(*w));
	env = env ? env : recipe_str(r, "data.default.env_name");
	env = env ? env : "math";
	snprintf(name[0], sizeof(name[0]), "env.%s.reward_functions", env);
	snprintf(name[1], sizeof(name[1]), "env.%s.exec", env);
	w->answer_key = key ? key : recipe_str(r, "data.default.answer_key");
	w->exec = exec ? exec : recipe_str(r, name[1]);
	snprintf(name[1], sizeof(name[1]), "env.%s.exec_workers", env);
	snprintf(name[2], sizeof(name[2]), "env.%s.exec_timeout", env);
	w->exec_workers = recipe_int(r, name[1]);
	w->exec_timeout = recipe_real(r, name[2]);
	for (int i = 0; i < words->n; i++)
		add_word(w, words->v[i]);
	if (!words->n)
		add_listed(w, r, name[0]);
	if (!w->n && !w->exec)
		add_reward(w, "math", 1, NULL, "default");
}

void rewards_release(struct rewards *w)
{
	for (int i = 0; i < w->n; i++)
		reward_pattern_free(w->r + i);
	free(w->r);
	memset(w, 0, sizeof(*w));
}

/* -- all samples ------------------------------------------------------------------------------------------------ */

struct job {
	struct rewards *w;
	struct samples *set;
	struct verdict *v;      /* [samples][functions] */
	struct arena *arena;    /* one a thread */
};

/* What goes wrong with one sample is that sample's: it stays unscored, with the reason. */
static void judge_part(void *arg, long i, int thread)
{
	struct job *j = arg;
	const struct sample *s = j->set->s + i;
	struct question q = { .s = s, .gold = row_gold(j->arena + thread, s->row, s->row_bytes, j->w->answer_key) };

	for (int f = 0; f < j->w->n; f++) {
		struct verdict *v = j->v + i * j->w->n + f;
		struct err e = ERR_INIT;

		if (j->w->r[f].judge(v, j->w->r + f, &q, &e)) {
			if (e.code == EX_UNAVAILABLE)
				die_err(&e);
			*v = (struct verdict){ .value = (double)NAN, .reason = xasprintf("%s: %s", j->w->r[f].name, e.msg) };
		}
	}
}

static void take_text(const char **text, size_t *bytes, struct samples *set, const char *from)
{
	if (*text || !from)
		return;
	*bytes = strlen(from);
	*text = samples_copy(set, from, *bytes);
}

static void total(struct job *j, long i, const struct verdict *exec)
{
	struct sample *s = j->set->s + i;
	int n = j->w->n + (exec ? 1 : 0);
	double *component = xmalloc((size_t)n * sizeof(double)), sum = 0;

	for (int f = 0; f < n; f++) {
		const struct verdict *v = f < j->w->n ? j->v + i * j->w->n + f : exec + i;
		double weight = f < j->w->n ? j->w->r[f].weight : 1;

		component[f] = v->value;
		sum += weight * v->value;
		take_text(&s->extracted, &s->extracted_bytes, j->set, v->extracted);
		take_text(&s->reason, &s->reason_bytes, j->set, v->reason);
	}
	s->rewards = samples_copy(j->set, component, (size_t)n * sizeof(double));
	s->has_reward = true;
	s->reward_valid = isfinite(sum);
	s->reward = s->reward_valid ? sum : (double)NAN;
	free(component);
}

void rewards_judge(struct rewards *w, struct samples *set, const char *journal)
{
	struct job j = { w, set, xcalloc((size_t)(set->n * w->n) + 1, sizeof(struct verdict)),
			 xcalloc((size_t)pool_threads(), sizeof(struct arena)) };
	struct verdict *exec = w->exec ? xcalloc((size_t)set->n, sizeof(*exec)) : NULL;

	for (long i = 0; i < set->n; i++)
		if (!set->s[i].text)
			die(EX_DATAERR, "sample (prompt %ld, %ld): no text, wanted the response to judge", set->s[i].prompt_id,
			    set->s[i].sample_index);
	for (int f = 0; f < w->n; f++)
		samples_name_reward(set, w->r[f].name);
	if (exec)
		samples_name_reward(set, "exec");
	pool_run(judge_part, &j, set->n);
	if (exec)
		exec_judge(exec, w, set, journal);
	for (long i = 0; i < set->n; i++)
		total(&j, i, exec);
	for (long i = 0; i < set->n * w->n; i++) {
		free(j.v[i].extracted);
		free(j.v[i].reason);
	}
	for (long i = 0; exec && i < set->n; i++) {
		free(exec[i].extracted);
		free(exec[i].reason);
	}
	for (int t = 0; t < pool_threads(); t++)
		arena_release(j.arena + t);
	free(j.arena);
	free(j.v);
	free(exec);
}
