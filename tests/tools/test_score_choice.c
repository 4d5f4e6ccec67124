/* The letter that a response chooses, and golds of every row schema. */
#include "tools/score/score.h"

#include "tests/lib/tap.h"

static void chooses(const char *text, int want)
{
	int got = choice_letter(text, strlen(text));

	ok(got == want, "%.60s -> %c", text, want ? want : '-');
	if (got != want)
		printf("# got %c\n", got ? got : '-');
}

static double judged(const char *text, const char *gold, char **extracted)
{
	struct sample s = { .text = text, .text_bytes = strlen(text) };
	struct question q = { .s = &s, .gold = gold };
	struct reward r = { .name = "choice" };
	struct verdict v = { 0 };
	struct err e = ERR_INIT;

	if (judge_choice(&v, &r, &q, &e))
		return NAN;
	free(v.reason);
	if (extracted)
		*extracted = v.extracted;
	else
		free(v.extracted);
	return v.value;
}

static void gold(const char *row, const char *key, const char *want)
{
	struct arena a = { 0 };
	const char *got = row_gold(&a, row, strlen(row), key);

	is_str(got ? got : "(none)", want, "gold of %.70s", row);
	arena_release(&a);
}

int main(void)
{
	char *read = NULL;

	/* The last box counts, whatever wraps the letter. */
	is_num(judged("\\boxed{C} so \\boxed{\\text{E}}", "E", &read), 1, 0, "the last box, in a text wrapper");
	is_str(read, "E", "and it is said what was read");
	free(read);
	is_num(judged("\\boxed{C} so \\boxed{\\text{E}}", "C", NULL), 0, 0, "an earlier box does not count");
	is_num(judged("\\boxed{E: some words}", "E", NULL), 1, 0, "words behind the letter");
	is_num(judged("\\boxed{B}", "\\boxed{B}", NULL), 1, 0, "a gold in a box");
	is_num(judged("(b)", "B. second", NULL), 1, 0, "a gold with its text");
	ok(isnan(judged("B", "4", NULL)), "a gold without a letter leaves it unscored");

	chooses("The answer is B. I am sure.", 'B');
	chooses("A cat said that I am right", 0);
	chooses("Answer: **C**", 'C');
	chooses("first the answer is A, no: the answer is (D).", 'D');
	chooses("the answer is a number", 0);
	chooses("answer: b", 'B');
	chooses("$\\boxed{\\mathrm{(F)}}$", 'F');
	chooses("\\boxed{A} and \\boxed{B", 'A');
	chooses("\\boxed{\\text{A}", 0);
	chooses("\\boxed{12}", 0);
	chooses("C", 'C');
	chooses(" D) the fourth ", 'D');
	chooses("", 0);
	chooses("\\", 0);
	chooses("answer", 0);

	gold("{\"question\": \"?\", \"answer\": \"2+2=4 #### 1,234\"}", NULL, "1234");
	gold("{\"problem\": \"?\", \"solution\": \"so \\\\boxed{\\\\frac{1}{2}}\"}", NULL, "\\frac{1}{2}");
	gold("{\"prompt\": [], \"reward_model\": {\"ground_truth\": \"7\"}}", NULL, "7");
	gold("{\"messages\": [{\"role\": \"user\", \"content\": \"?\"}, {\"role\": \"assistant\", \"content\": \"9\"}]}", NULL, "9");
	gold("{\"answer\": \"1\", \"meta\": {\"gold\": 5}}", "meta.gold", "5");
	gold("{\"answer\": \"1\"}", "other", "(none)");
	gold("{\"prompt\": \"?\"}", NULL, "(none)");
	gold("no json", NULL, "(none)");
	return done();
}
