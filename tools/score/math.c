#include "tools/score/math.h"

#include <math.h>
#include <string.h>

#include "tools/score/math_parts.h"

static const char *const modes[MATH_MODES] = {
	"auto", "boxed", "hash", "answer_line", "last_number", "gsm8k_strict", "choice",
};

/* name and weight are the recipe's own. */
static const char *const keys[] = {
	"name", "weight", "mode", "percent_lenient", "single_answer", "allow_bare_number", "words", "strict_think",
};

static int read_mode(struct math_options *o, const struct json_doc *d, const struct json *options, struct err *e)
{
	const char *mode;
	int m = 0;

	if (json_str_or(d, options, "mode", "auto", &mode, e))
		return -1;
	while (m < MATH_MODES && strcmp(modes[m], mode))
		m++;
	if (m == MATH_MODES)
		return err_set(e, EX_CONFIG, "reward math: mode %s, wanted auto, boxed, hash, answer_line, last_number, gsm8k_strict or choice", mode);
	o->mode = (enum math_mode)m;
	return 0;
}

static int check_keys(const struct json *options, struct err *e)
{
	for (size_t i = 0; options && i < options->n; i++) {
		size_t k = 0;

		while (k < sizeof(keys) / sizeof(*keys) && strcmp(keys[k], options->member[i].key))
			k++;
		if (k == sizeof(keys) / sizeof(*keys))
			return err_set(e, EX_CONFIG, "reward math: no parameter %s; there are mode, percent_lenient, single_answer, "
				       "allow_bare_number, words and strict_think", options->member[i].key);
	}
	return 0;
}

static int read_options(struct math_options *o, const struct json *options, struct err *e)
{
	struct json_doc d = { .file = "reward math" };

	if (options && options->type != JSON_OBJECT)
		return err_set(e, EX_CONFIG, "reward math: found %s, wanted an object of parameters", json_type_name(options));
	if (check_keys(options, e) || read_mode(o, &d, options, e) ||
	    json_bool_or(&d, options, "percent_lenient", true, &o->percent_lenient, e) ||
	    json_bool_or(&d, options, "single_answer", false, &o->single_answer, e) ||
	    json_bool_or(&d, options, "allow_bare_number", true, &o->allow_bare_number, e) ||
	    json_bool_or(&d, options, "words", false, &o->words, e) ||
	    json_bool_or(&d, options, "strict_think", true, &o->strict_think, e)) {
		e->code = EX_CONFIG;
		return -1;
	}
	return 0;
}

void math_read(struct math_answer *a, struct math_work *w, struct math_piece raw, bool groups)
{
	struct math_piece inner = raw;
	struct math_node *n;

	memset(a, 0, sizeof(*a));
	a->raw = raw = math_trim(raw);
	for (int depth = 0; depth < MATH_DEPTH && raw.n <= MATH_ANSWER && math_last_box(&inner, raw.s, raw.n) > 0; depth++)
		raw = inner;
	w->trouble = MATH_FINE;
	a->plain = math_plain(w, raw, groups, &a->grouped);
	a->key = math_key(w, a->plain, strlen(a->plain));
	n = raw.n <= MATH_ANSWER ? math_parse(w, a->plain) : NULL;
	a->value = n ? math_evaluate(w, n) : NULL;
	a->trouble = raw.n > MATH_ANSWER ? MATH_TOO_LARGE : w->trouble;
}

/* A gold answer with its marker: \boxed{5}, or a solution that ends in #### 5. */
static struct math_piece bare_gold(const char *s, size_t n)
{
	struct math_piece p = math_trim((struct math_piece){ s, n });

	for (size_t i = p.n; i-- > 0;)
		if (p.n - i >= 4 && !memcmp(p.s + i, "####", 4))
			return math_trim((struct math_piece){ p.s + i + 4, p.n - i - 4 });
	return p;
}

static void unscored(struct math_result *m, const char *why)
{
	m->score = (double)NAN;
	m->reason = xstrdup(why);
}

static bool same_without_commas(struct math_piece a, struct math_piece b)
{
	size_t i = 0, k = 0;

	for (;;) {
		while (i < a.n && a.s[i] == ',')
			i++;
		while (k < b.n && b.s[k] == ',')
			k++;
		if (i == a.n || k == b.n)
			return i == a.n && k == b.n;
		if (a.s[i++] != b.s[k++])
			return false;
	}
}

/* Where commas may be read both ways, the response gets the reading that the gold answer has. */
static bool equal(struct math_work *w, const struct math_answer *gold, struct math_piece found)
{
	struct math_answer a;

	math_read(&a, w, found, true);
	if (math_equal(gold, &a, w->options))
		return true;
	if (!a.grouped || !gold->value || !gold->value->kid)
		return false;
	math_read(&a, w, found, false);
	return math_equal(gold, &a, w->options);
}

static void judge(struct math_result *m, struct math_work *w, struct math_piece response, struct math_piece bare)
{
	struct math_answer gold;
	struct math_piece found = { "", 0 };
	const char *how = "";
	bool same;

	math_read(&gold, w, bare, true);
	if (!*gold.plain) {
		unscored(m, "the gold answer is empty");
		return;
	}
	if (gold.trouble == MATH_UNDEFINED) {
		unscored(m, "the gold answer has no value");
		return;
	}
	m->score = 0;
	if (!math_extract(&found, &how, w, response.s, response.n)) {
		m->reason = xstrdup(how);
		return;
	}
	same = w->options->mode == MATH_GSM8K_STRICT ? same_without_commas(found, bare) : equal(w, &gold, found);
	m->score = same;
	m->extracted = xstrndup(found.s, found.n < MATH_ANSWER ? found.n : MATH_ANSWER);
	m->reason = xasprintf("%s: %s", how, same ? "equal" : "not equal");
}

int math_reward(struct math_result *m, const char *response, size_t n, const char *gold, size_t gold_n,
		const struct json *options, struct err *e)
{
	struct math_options o;
	struct math_work w = { .options = &o };

	memset(m, 0, sizeof(*m));
	if (read_options(&o, options, e))
		return -1;
	judge(m, &w, (struct math_piece){ response, n }, bare_gold(gold, gold_n));
	math_work_release(&w);
	return 0;
}
