#ifndef FORMATS_DATASET_H
#define FORMATS_DATASET_H

/*
 * Data sets: JSON lines (UTF-8, one object a line; blank lines, CRLF and a leading BOM are
 * fine) or one JSON array of objects.  Row schemas, tried in this order:
 *
 *	messages      {"messages": [{role, content}, ...], "tools": [...]}
 *	              gold: answer | ground_truth | expected_answer, else the last assistant message
 *	verl          {"prompt": [{role, content}], "reward_model": {"ground_truth": ...}}
 *	preference    {"prompt", "chosen", "rejected"} of strings or messages, prompt perhaps implicit;
 *	              {"context": [...], "completions": [{"rank", "completion": [...]}]};
 *	              {"prompt", "completion", "label": bool}
 *	text          prompt | question | problem | input | instruction, with
 *	              answer | solution | output | response | completion | expected_answer | ground_truth
 *
 * A prompt that is a list of messages is accepted wherever a string is.  Keys given in the options
 * are wanted as they are and nothing is guessed.  Gold answers: after the last "####" of a GSM8K
 * rationale, commas dropped; the last \boxed{...} of a MATH solution; else the text as it stands.
 * `instruction` with `input` beside it (Alpaca) is one prompt, the input after an empty line.  A
 * row that begins with a system message keeps it, whatever system_prompt_file says.
 *
 *	struct dataset *d;
 *	dataset_open(&d, "train.jsonl", &(struct dataset_opts){ 0 }, &e);
 *	for (long i = 0; i < dataset_count(d); i++) {
 *		struct dataset_row row;
 *		if (dataset_row(d, i, &row, &e)) ...
 *		dataset_row_release(&row);
 *	}
 *	dataset_close(d);
 *
 * Opening reads the file once, checks every row and keeps offsets; a row is read again on demand.
 * Errors are EX_DATAERR, "FILE:LINE: found X, wanted Y": no object, no known schema, another kind
 * than the rows before, an empty prompt, an explicit id (`id` or `prompt_id`) twice, invalid UTF-8,
 * a role that is no plain word, a line over 64 MiB, no row at all, a file changed since opened.
 */

#include "libcommon/die.h"
#include "libcommon/hash.h"
#include "libcommon/json.h"

#include <stdbool.h>
#include <stdint.h>

struct dataset;

struct dataset_opts {
	const char *prompt_key, *answer_key, *messages_key; /* NULL: by the table above */
	const char *prompt_file;        /* template: {} is the prompt, {{ }} are braces; NULL: none */
	const char *system_prompt_file; /* its bytes become a system message; NULL: none */
	bool skip_bad;                  /* count faulty rows instead of failing; dataset_skipped() */
};

enum dataset_kind {
	DATASET_PROMPT,         /* a prompt, perhaps with an answer: RL, or SFT on `response` */
	DATASET_CHAT,           /* a conversation with an assistant message: SFT, or RL on its gold */
	DATASET_PREFERENCE,     /* a prompt and ranked completions */
};

struct dataset_completion {
	long rank;                      /* 0 is best */
	const struct json *messages;    /* what follows the prompt */
};

/* Everything lives in the row and dies with dataset_row_release(). */
struct dataset_row {
	enum dataset_kind kind;
	long index, line;               /* row number from 0; line from 1 */
	const char *id;                 /* explicit id as text, or NULL */
	const struct json *messages;    /* the prompt, with system message and template applied */
	const struct json *conversation; /* messages and the assistant's answer, or NULL */
	const struct json *tools;       /* array or NULL */
	const char *prompt;             /* text of the last user message before the template was applied */
	const char *response;           /* the answer as written (a whole rationale), or NULL */
	const char *answer;             /* the gold taken from it, or NULL */
	struct dataset_completion *completion; /* best rank first; n of them */
	int ncompletions;
	const struct json *raw;         /* the row as it stands in the file */
	struct json_doc doc;            /* owns raw */
	struct arena arena;             /* owns the rest */
};

int dataset_open(struct dataset **d, const char *path, const struct dataset_opts *o,
		 struct err *e) MUST_CHECK;
void dataset_close(struct dataset *d);
long dataset_count(const struct dataset *d);
long dataset_skipped(const struct dataset *d);
struct digest dataset_digest(const struct dataset *d);          /* XXH3-128 of the file's bytes */
enum dataset_kind dataset_kind(const struct dataset *d);        /* the same for all rows */
/* Safe from several threads at once. */
int dataset_row(const struct dataset *d, long i, struct dataset_row *row, struct err *e) MUST_CHECK;
void dataset_row_release(struct dataset_row *row);

/* The order of n rows in an epoch: a permutation that depends on (n, seed, epoch) alone, so that a
 * cursor (epoch, position) says where a run stands. */
void dataset_order(long *out, long n, uint64_t seed, uint64_t epoch);
/* The row at draw `position` (rows drawn since the run began), without state: epoch = position / n.
 * The cursor holds one epoch's order between calls. */
struct dataset_cursor {
	long *order, n;                 /* owned */
	uint64_t seed, epoch;
	bool shuffle, valid;
};
void dataset_cursor_init(struct dataset_cursor *c, long n, bool shuffle, uint64_t seed);
long dataset_cursor_at(struct dataset_cursor *c, uint64_t position);
void dataset_cursor_release(struct dataset_cursor *c);

/* The gold rules alone; the result is in `a`, NULL where there is nothing. */
const char *dataset_gold(struct arena *a, const char *response);

#endif
