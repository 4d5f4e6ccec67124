#ifndef FORMATS_SAMPLES_H
#define FORMATS_SAMPLES_H

/*
 * Samples (cairn-samples(5)): what rollout and score write and train-step reads.  In memory one
 * struct a sample, its arrays in the set's arena; on disk columns in HDF5 shards, ragged ones flat
 * with offsets; as JSON lines the same names.  "What each field means" is the table in
 * cairn-samples(5).
 *
 *	struct samples s = { 0 };
 *	struct sample *a = samples_append(&s);                  all absent
 *	a->token_ids = samples_copy(&s, ids, n * sizeof *ids);
 *	a->length = n; a->prompt_length = p; ...
 *	samples_write("run/samples/step-000001", &s, &meta, comm, e);
 *
 * A pointer that is NULL, or a number with its own sign of absence, is an absent field.  Pointers
 * to a struct sample are good until the next append, those into its arrays until samples_release().
 */

#include "formats/manifest.h"
#include "libcommon/comm.h"

enum finish {
	FINISH_NONE,
	FINISH_STOP,
	FINISH_STOP_STRING,
	FINISH_LENGTH,
	FINISH_CONTEXT,
	FINISH_TURNS,
	FINISH_NONFINITE,
	FINISH_COUNT
};
const char *finish_name(enum finish f);         /* "stop", ...; FINISH_NONE: NULL */
enum split { SPLIT_TRAIN, SPLIT_VALIDATION };
/* A temperature is 0 (greedy) or lies between these: logits divided by it have to stay finite in float32. */
#define TEMPERATURE_LEAST 1e-6
#define TEMPERATURE_MOST 1e6

enum loss_term { LOSS_POLICY, LOSS_KL, LOSS_NLL, LOSS_VALUE, LOSS_TERMS };
const char *loss_term_name(enum loss_term t);   /* "policy", "kl", "nll", "value" */

/* tokens [start, end) of token_ids */
struct turn { int start, end; const char *role; struct digest policy; };

struct sample {
	long prompt_id, sample_index, visit;    /* group = (prompt_id, visit) */
	/* place of the prompt in the visit order of the step; sorts the set */
	long order;
	long step;
	enum split split;
	uint64_t seed;
	struct digest policy;                   /* weights_digest; all zero: unknown */
	struct digest tokenizer_digest;         /* all zero: unknown */
	uint64_t fingerprint;                   /* 0: unknown */
	double temperature, top_p, min_p;
	long top_k;                             /* 0: off */

	long length, prompt_length;             /* tokens in all; of them prompt */
	int32_t *token_ids;                     /* length */
	/* One entry a token after the prompt: length - prompt_length; NULL: absent. */
	float *logprobs, *prev_logprobs, *reference_logprobs, *teacher_logprobs, *values,
		*advantages;
	float *loss_weights[LOSS_TERMS];
	uint8_t *loss_mask;
	enum finish finish_reason;
	bool truncated;
	struct turn *turn; long turns;
	/* length x expert_layers x expert_slots of the set */
	int32_t *expert_ids;

	const char *text; size_t text_bytes;    /* UTF-8 or not; NULL: absent */
	const char *row; size_t row_bytes;      /* JSON text */
	const char *extracted; size_t extracted_bytes;
	const char *reason; size_t reason_bytes;
	/* by the set's reward_name; NaN: that component unscored; NULL: absent */
	double *rewards;
	double reward;                          /* meaningful when has_reward */
	bool has_reward, reward_valid;          /* scored at all; valid: counts for baselines */
	long update, unit;                      /* -1: absent */
};

struct samples {
	struct sample *s;               /* owned; n of them */
	long n, cap;
	char **reward_name; int reward_names;   /* in the arena */
	int expert_layers, expert_slots;        /* 0: none */
	struct arena arena;
	struct json_doc manifest;       /* after samples_read(): all that the manifest says */
};

struct sample *samples_append(struct samples *s);       /* zeroed, update and unit -1, order -1 */
/* into the arena, a NUL behind; NULL gives NULL */
void *samples_copy(struct samples *s, const void *p, size_t bytes);
/* before rewards arrays are made */
void samples_name_reward(struct samples *s, const char *name);
/*
 * By (order, sample_index), and one name for ties: (prompt_id, visit).  Order -1: by first
 * appearance of the group.
 */
void samples_sort(struct samples *s);
/*
 * Every row: 0 <= prompt_length <= length, ids >= 0, no pair (prompt_id, visit, sample_index)
 * twice, update < n, turns inside.  -1 names the record.
 */
int samples_check(const struct samples *s, const char *what, struct err *e) MUST_CHECK;
void samples_release(struct samples *s);                /* safe on zero */

struct samples_meta {                   /* everything is borrowed */
	long step;
	const char *split;              /* "train", "validation" */
	struct digest policy, tokenizer_digest;
	const char *fingerprint;        /* 16 hex digits or NULL */
	/* JSON text of the data cursor behind these samples, or NULL */
	const char *cursor;
	/*
	 * JSON object: train_global_batch_size, algorithm, temperature, every normalising key;
	 * NULL: not scored
	 */
	const char *scoring;
	const char *metrics;            /* bytes of metrics.json, or NULL */
	struct history history;
};

/*
 * A directory, whole or not at all.  Ranks of `comm` (NULL: one) each give their own part and write
 * one shard; sorted within.  The fields are made of what is there; EX_DATAERR if samples_check()
 * says no.
 */
int samples_write(const char *dir, struct samples *s, const struct samples_meta *m,
		  struct comm *comm, struct err *e) MUST_CHECK;
/*
 * Manifest and shards are verified before libhdf5 parses them; sorted; checked.  Appends to *s,
 * which may hold others already.
 */
int samples_read(struct samples *s, const char *dir, struct err *e) MUST_CHECK;
/* What the manifest alone tells. */
int samples_verify(const char *dir, bool deep, struct err *e) MUST_CHECK;

/*
 * One JSON object a line, the fields that are present; floats read back as the same bits, NaN is
 * null.
 */
void samples_put_jsonl(struct str *out, const struct samples *s, long i);
/* "-": stdout */
int samples_write_jsonl(const char *path, const struct samples *s, struct err *e) MUST_CHECK;
/*
 * The reverse, also for lines of other programs: token_ids, prompt_length and prompt_id are
 * required; sample_index defaults to the running number within the group, loss_mask to all ones.
 * An unknown key, a wrong type or arrays of different length are EX_DATAERR with FILE:LINE.  A
 * directory or a file: samples_read_any() looks.
 */
int samples_read_jsonl(struct samples *s, const char *path, struct err *e) MUST_CHECK;
int samples_read_any(struct samples *s, const char *path, struct err *e) MUST_CHECK;

#endif
