#include "formats/samples.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/samples_fields.h"

#define AT(member) offsetof(struct sample, member)

const struct number_field number_fields[NUMBER_FIELDS] = {
	{ "prompt_id", NUMBER_LONG, AT(prompt_id) },
	{ "sample_index", NUMBER_LONG, AT(sample_index) },
	{ "visit", NUMBER_LONG, AT(visit) },
	{ "order", NUMBER_LONG, AT(order) },
	{ "step", NUMBER_LONG, AT(step) },
	{ "split", NUMBER_SPLIT, AT(split) },
	{ "seed", NUMBER_U64, AT(seed) },
	{ "policy", NUMBER_DIGEST, AT(policy) },
	{ "tokenizer_digest", NUMBER_DIGEST, AT(tokenizer_digest) },
	{ "fingerprint", NUMBER_HEX, AT(fingerprint) },
	{ "temperature", NUMBER_REAL, AT(temperature) },
	{ "top_p", NUMBER_REAL, AT(top_p) },
	{ "top_k", NUMBER_LONG, AT(top_k) },
	{ "min_p", NUMBER_REAL, AT(min_p) },
	{ "prompt_length", NUMBER_LONG, AT(prompt_length) },
	{ "finish_reason", NUMBER_FINISH, AT(finish_reason) },
	{ "truncated", NUMBER_BOOL, AT(truncated) },
	{ "update", NUMBER_LONG, AT(update) },
	{ "unit", NUMBER_LONG, AT(unit) },
};

const struct token_field token_fields[TOKEN_FIELDS] = {
	{ "logprobs", AT(logprobs) },
	{ "prev_logprobs", AT(prev_logprobs) },
	{ "reference_logprobs", AT(reference_logprobs) },
	{ "teacher_logprobs", AT(teacher_logprobs) },
	{ "values", AT(values) },
	{ "advantages", AT(advantages) },
	{ "loss_weights/policy", AT(loss_weights[LOSS_POLICY]) },
	{ "loss_weights/kl", AT(loss_weights[LOSS_KL]) },
	{ "loss_weights/nll", AT(loss_weights[LOSS_NLL]) },
	{ "loss_weights/value", AT(loss_weights[LOSS_VALUE]) },
};

const struct text_field text_fields[TEXT_FIELDS] = {
	{ "text", AT(text), AT(text_bytes) },
	{ "row", AT(row), AT(row_bytes) },
	{ "extracted", AT(extracted), AT(extracted_bytes) },
	{ "reason", AT(reason), AT(reason_bytes) },
};

const char *finish_name(enum finish f)
{
	static const char *const name[FINISH_COUNT] = { NULL,	   "stop",  "stop_string", "length",
							"context", "turns", "nonfinite" };

	if ((unsigned)f >= FINISH_COUNT)
		bug("finish reason %d", (int)f);
	return name[f];
}

const char *loss_term_name(enum loss_term t)
{
	static const char *const name[LOSS_TERMS] = { "policy", "kl", "nll", "value" };

	if ((unsigned)t >= LOSS_TERMS)
		bug("loss term %d", (int)t);
	return name[t];
}

struct sample *samples_append(struct samples *s)
{
	GROW(s->s, s->n, s->cap);
	s->s[s->n] = (struct sample){ .order = -1, .update = -1, .unit = -1 };
	return &s->s[s->n++];
}

void *samples_copy(struct samples *s, const void *p, size_t bytes)
{
	char *copy;

	if (!p)
		return NULL;
	copy = arena_alloc(&s->arena, bytes + 1);
	memcpy(copy, p, bytes);
	copy[bytes] = 0;
	return copy;
}

void samples_name_reward(struct samples *s, const char *name)
{
	char **list = arena_calloc(&s->arena, (size_t)s->reward_names + 1, sizeof(*list));

	if (s->reward_names)
		memcpy(list, s->reward_name, (size_t)s->reward_names * sizeof(*list));
	list[s->reward_names++] = arena_strndup(&s->arena, name, strlen(name));
	s->reward_name = list;
}

void samples_release(struct samples *s)
{
	free(s->s);
	arena_release(&s->arena);
	json_release(&s->manifest);
	*s = (struct samples){ 0 };
}

static int compare_group(const struct sample *a, const struct sample *b)
{
	if (a->prompt_id != b->prompt_id)
		return a->prompt_id < b->prompt_id ? -1 : 1;
	return (a->visit > b->visit) - (a->visit < b->visit);
}

/* Rows of one group together, in the order they stand in. */
static int by_group(const void *a, const void *b, void *arg)
{
	const struct sample *s = arg;
	long x = *(const long *)a, y = *(const long *)b;
	int c = compare_group(&s[x], &s[y]);

	return c ? c : (x > y) - (x < y);
}

struct first { long row, group; };

static int by_row(const void *a, const void *b)
{
	long x = ((const struct first *)a)->row, y = ((const struct first *)b)->row;

	return (x > y) - (x < y);
}

/* Rows without an order take the places behind the others, group by group as they first appear. */
static void give_order(struct samples *s)
{
	long *row = xmalloc((size_t)(s->n + 1) * sizeof(*row)),
	     *group = xmalloc((size_t)(s->n + 1) * sizeof(*group)), groups = 0, next = 0;
	struct first *first = xmalloc((size_t)(s->n + 1) * sizeof(*first));
	long *place;

	for (long i = 0; i < s->n; i++) {
		row[i] = i;
		if (s->s[i].order >= next)
			next = s->s[i].order + 1;
	}
	qsort_r(row, (size_t)s->n, sizeof(*row), by_group, s->s);
	for (long i = 0; i < s->n; i++) {
		if (!i || compare_group(&s->s[row[i - 1]], &s->s[row[i]])) {
			first[groups] = (struct first){ row[i], groups };
			groups++;
		}
		group[row[i]] = groups - 1;
	}
	qsort(first, (size_t)groups, sizeof(*first), by_row);
	place = xmalloc((size_t)(groups + 1) * sizeof(*place));
	for (long g = 0; g < groups; g++)
		place[first[g].group] = next + g;
	for (long i = 0; i < s->n; i++)
		if (s->s[i].order < 0)
			s->s[i].order = place[group[i]];
	free(place);
	free(first);
	free(group);
	free(row);
}

static int by_order(const void *a, const void *b)
{
	const struct sample *x = a, *y = b;
	int c;

	if (x->order != y->order)
		return x->order < y->order ? -1 : 1;
	c = compare_group(x, y);
	return c ? c : (x->sample_index > y->sample_index) - (x->sample_index < y->sample_index);
}

void samples_sort(struct samples *s)
{
	for (long i = 0; i < s->n; i++) {
		if (s->s[i].order < 0) {
			give_order(s);
			break;
		}
	}
	if (s->n)
		qsort(s->s, (size_t)s->n, sizeof(*s->s), by_order);
}

const char *sample_wrong(char buf[200], const struct samples *set, const struct sample *s)
{
	if (s->prompt_length < 0 || s->prompt_length > s->length)
		snprintf(buf, 200, "prompt_length: found %ld, wanted 0 to the %ld of token_ids",
			 s->prompt_length, s->length);
	else if (s->length && !s->token_ids)
		snprintf(buf, 200, "token_ids: missing");
	else if (s->prompt_id < 0 || s->sample_index < 0 || s->visit < 0)
		snprintf(buf, 200,
			 "prompt_id, sample_index, visit: found %ld, %ld, %ld, wanted 0 or more",
			 s->prompt_id, s->sample_index, s->visit);
	else if (s->update < -1 || s->unit < -1)
		snprintf(buf, 200, "update, unit: found %ld, %ld, wanted 0 or more", s->update,
			 s->unit);
	else if (s->temperature != 0 &&
		 !(s->temperature >= TEMPERATURE_LEAST && s->temperature <= TEMPERATURE_MOST))
		snprintf(buf, 200, "temperature: found %g, wanted 0, or %g to %g", s->temperature,
			 TEMPERATURE_LEAST, TEMPERATURE_MOST);
	else if (s->rewards && !set->reward_names)
		snprintf(buf, 200, "rewards: values without names");
	else if (s->expert_ids && s->length && (set->expert_layers < 1 || set->expert_slots < 1))
		snprintf(buf, 200, "expert_ids: without layers and slots");
	else {
		for (long i = 0; i < s->length; i++) {
			if (s->token_ids[i] < 0) {
				snprintf(buf, 200, "token_ids[%ld]: found %d, wanted 0 or more", i,
					 s->token_ids[i]);
				return buf;
			}
		}
		for (long i = 0; s->loss_mask && i < s->length - s->prompt_length; i++) {
			if (s->loss_mask[i] > 1) {
				snprintf(buf, 200, "loss_mask[%ld]: found %d, wanted 0 or 1", i,
					 s->loss_mask[i]);
				return buf;
			}
		}
		for (long i = 0; i < s->turns; i++) {
			if (s->turn[i].start < 0 || s->turn[i].start > s->turn[i].end ||
			    s->turn[i].end > s->length) {
				snprintf(buf, 200,
					 "turns[%ld]: found [%d, %d), wanted a part of %ld tokens",
					 i, s->turn[i].start, s->turn[i].end, s->length);
				return buf;
			}
		}
		return NULL;
	}
	return buf;
}

static int by_name_of_row(const void *a, const void *b, void *arg)
{
	const struct sample *s = arg, *x = &s[*(const long *)a], *y = &s[*(const long *)b];
	int c = compare_group(x, y);

	return c ? c : (x->sample_index > y->sample_index) - (x->sample_index < y->sample_index);
}

static int check_unique(const struct samples *s, const char *what, struct err *e)
{
	long *row = xmalloc((size_t)(s->n + 1) * sizeof(*row));
	int rc = 0;

	for (long i = 0; i < s->n; i++)
		row[i] = i;
	qsort_r(row, (size_t)s->n, sizeof(*row), by_name_of_row, s->s);
	for (long i = 1; i < s->n && !rc; i++)
		if (!by_name_of_row(&row[i - 1], &row[i], s->s))
			rc = err_set(
				e, EX_DATAERR,
				"%s: records %ld and %ld are the same sample (prompt_id %ld, visit %ld, sample_index %ld)",
				what, row[i - 1], row[i], s->s[row[i]].prompt_id,
				s->s[row[i]].visit, s->s[row[i]].sample_index);
	free(row);
	return rc;
}

int samples_check(const struct samples *s, const char *what, struct err *e)
{
	char buf[200];

	for (long i = 0; i < s->n; i++) {
		const char *wrong = sample_wrong(buf, s, &s->s[i]);

		if (wrong)
			return err_set(e, EX_DATAERR, "%s: record %ld: %s", what, i, wrong);
	}
	return check_unique(s, what, e);
}
