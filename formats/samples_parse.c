#include "formats/samples.h"

#include <stdlib.h>
#include <string.h>

#include "formats/samples_fields.h"
#include "libcommon/file.h"

/* One line on its way into a sample. */
struct line {
	struct samples *set;
	struct sample *s;
	const struct json_doc *d;
	bool has_index;
	struct err *e;
};

static int wrong(const struct line *l, const struct json *v, const char *key, const char *wanted)
{
	bool scalar = json_is(v, JSON_NUMBER) || json_is(v, JSON_STRING);

	return err_set(l->e, EX_DATAERR, "%s:%d: %s: found %.80s, wanted %s", l->d->file, v->line,
		       key, scalar ? v->text : json_type_name(v), wanted);
}

static int parse_digest(struct digest *out, const struct line *l, const struct json *v,
			const char *key)
{
	if (!json_is(v, JSON_STRING) || v->n != 32 || digest_parse(out, v->text))
		return wrong(l, v, key, "32 hexadecimal digits");
	return 0;
}

static int parse_number(struct line *l, const struct json *v, const struct number_field *f)
{
	void *p = field_at(l->s, f->at);
	const char *text;
	char *end;

	if (json_is(v, JSON_NULL) && f->kind != NUMBER_REAL)
		return 0;
	switch (f->kind) {
	case NUMBER_LONG: return json_int(l->d, v, f->name, p, l->e);
	case NUMBER_U64: return json_u64(l->d, v, f->name, p, l->e);
	case NUMBER_REAL:
		if (!json_is(v, JSON_NULL))
			return json_real(l->d, v, f->name, p, l->e);
		*(double *)p = __builtin_nan("");
		return 0;
	case NUMBER_DIGEST: return parse_digest(p, l, v, f->name);
	case NUMBER_BOOL: return json_bool(l->d, v, f->name, p, l->e);
	case NUMBER_HEX: case NUMBER_SPLIT: case NUMBER_FINISH: break;
	}
	if (json_str(l->d, v, f->name, &text, l->e))
		return -1;
	if (f->kind == NUMBER_HEX) {
		*(uint64_t *)p = strtoull(text, &end, 16);
		return v->n == 16 && !*end && strspn(text, "0123456789abcdefABCDEF") == 16
			       ? 0
			       : wrong(l, v, f->name, "16 hexadecimal digits");
	}
	if (f->kind == NUMBER_SPLIT) {
		*(enum split *)p = !strcmp(text, "validation") ? SPLIT_VALIDATION : SPLIT_TRAIN;
		return !strcmp(text, "train") || !strcmp(text, "validation")
			       ? 0
			       : wrong(l, v, f->name, "\"train\" or \"validation\"");
	}
	for (int k = FINISH_NONE + 1; k < FINISH_COUNT; k++) {
		if (!strcmp(text, finish_name((enum finish)k))) {
			*(enum finish *)p = (enum finish)k;
			return 0;
		}
	}
	return wrong(l, v, f->name, "stop, stop_string, length, context, turns or nonfinite");
}

/* Straight to float: by way of double a number could round twice. */
static int parse_float(float *out, const struct line *l, const struct json *v, const char *key)
{
	if (json_is(v, JSON_NULL)) {
		*out = __builtin_nanf("");
		return 0;
	}
	if (!json_is(v, JSON_NUMBER))
		return wrong(l, v, key, "a number or null");
	*out = strtof(v->text, NULL);
	return 0;
}

static int parse_int32(int32_t *out, const struct line *l, const struct json *v, const char *key)
{
	long x;

	if (json_int(l->d, v, key, &x, l->e))
		return -1;
	if (x != (int32_t)x)
		return err_set(l->e, EX_DATAERR, "%s:%d: %s: found %ld, wanted 32 bits", l->d->file,
			       v->line, key, x);
	*out = (int32_t)x;
	return 0;
}

/* An array of exactly n; n < 0: of any length. */
static int want_array(const struct line *l, const struct json *v, const char *key, long n)
{
	if (!json_is(v, JSON_ARRAY))
		return wrong(l, v, key, "an array");
	if (n >= 0 && (long)v->n != n)
		return err_set(
			l->e, EX_DATAERR,
			"%s:%d: %s: %zu entries, wanted %ld: %ld token_ids less a prompt_length of %ld",
			l->d->file, v->line, key, v->n, n, l->s->length, l->s->prompt_length);
	return 0;
}

static int parse_floats(struct line *l, const struct json *v, const struct token_field *f)
{
	float *x;

	if (json_is(v, JSON_NULL))
		return 0;
	if (want_array(l, v, f->name, l->s->length - l->s->prompt_length))
		return -1;
	x = arena_calloc(&l->set->arena, v->n + 1, sizeof(*x));
	*(float **)field_at(l->s, f->at) = x;
	for (size_t i = 0; i < v->n; i++)
		if (parse_float(&x[i], l, &v->item[i], f->name))
			return -1;
	return 0;
}

static int parse_ids(struct line *l, const struct json *v)
{
	if (want_array(l, v, "token_ids", -1))
		return -1;
	l->s->length = (long)v->n;
	l->s->token_ids = arena_calloc(&l->set->arena, v->n + 1, sizeof(int32_t));
	for (size_t i = 0; i < v->n; i++)
		if (parse_int32(&l->s->token_ids[i], l, &v->item[i], "token_ids"))
			return -1;
	return 0;
}

static int parse_mask(struct line *l, const struct json *v)
{
	long n = l->s->length - l->s->prompt_length;

	l->s->loss_mask = arena_alloc(&l->set->arena, (size_t)n + 1);
	memset(l->s->loss_mask, 1, (size_t)n);
	if (!v || json_is(v, JSON_NULL))
		return 0;
	if (want_array(l, v, "loss_mask", n))
		return -1;
	for (long i = 0; i < n; i++) {
		int32_t x;

		if (json_is_bool(&v->item[i]))
			x = v->item[i].type == JSON_TRUE;
		else if (parse_int32(&x, l, &v->item[i], "loss_mask"))
			return -1;
		if (x < 0 || x > 1)
			return wrong(l, &v->item[i], "loss_mask", "0 or 1");
		l->s->loss_mask[i] = (uint8_t)x;
	}
	return 0;
}

static int parse_text(struct line *l, const struct json *v, const struct text_field *f)
{
	struct json_out o = { .indent = 0 };
	const char **text = field_at(l->s, f->at);
	size_t *bytes = field_at(l->s, f->bytes_at);

	if (json_is(v, JSON_NULL))
		return 0;
	if (!strcmp(f->name, "row")) {
		json_put(&o, v);
		*text = samples_copy(l->set, o.s.s, o.s.len);
		*bytes = o.s.len;
		json_out_release(&o);
		return 0;
	}
	if (!json_is(v, JSON_STRING))
		return wrong(l, v, f->name, "a string or null");
	*text = samples_copy(l->set, v->text, v->n);
	*bytes = v->n;
	return 0;
}

static int find_name(const struct samples *s, const char *name)
{
	for (int i = 0; i < s->reward_names; i++)
		if (!strcmp(s->reward_name[i], name))
			return i;
	return -1;
}

/*
 * The first record with rewards names the components; later ones may leave some out, but add none.
 */
static int parse_rewards(struct line *l, const struct json *v)
{
	if (json_is(v, JSON_NULL))
		return 0;
	if (!json_is(v, JSON_OBJECT))
		return wrong(l, v, "rewards", "an object");
	if (!l->set->reward_names)
		for (size_t i = 0; i < v->n; i++)
			samples_name_reward(l->set, v->member[i].key);
	l->s->rewards =
		arena_calloc(&l->set->arena, (size_t)l->set->reward_names + 1, sizeof(double));
	for (int i = 0; i < l->set->reward_names; i++)
		l->s->rewards[i] = __builtin_nan("");
	for (size_t i = 0; i < v->n; i++) {
		int k = find_name(l->set, v->member[i].key);

		if (k < 0)
			return err_set(l->e, EX_DATAERR,
				       "%s:%d: rewards: \"%s\" is not in the first record",
				       l->d->file, v->line, v->member[i].key);
		if (!json_is(&v->member[i].value, JSON_NULL) &&
		    json_real(l->d, &v->member[i].value, v->member[i].key, &l->s->rewards[k], l->e))
			return -1;
	}
	return 0;
}

static int parse_turns(struct line *l, const struct json *v)
{
	if (json_is(v, JSON_NULL))
		return 0;
	if (want_array(l, v, "turns", -1))
		return -1;
	l->s->turn = arena_calloc(&l->set->arena, v->n + 1, sizeof(struct turn));
	for (size_t i = 0; i < v->n; i++) {
		const struct json *o = &v->item[i], *policy = json_get(o, "policy");
		struct turn *t = &l->s->turn[i];
		const char *role;

		if (parse_int32(&t->start, l, json_get(o, "start"), "start") ||
		    parse_int32(&t->end, l, json_get(o, "end"), "end") ||
		    json_str_or(l->d, o, "role", "", &role, l->e) ||
		    (policy && parse_digest(&t->policy, l, policy, "policy")))
			return -1;
		t->role = samples_copy(l->set, role, strlen(role));
		l->s->turns++;
	}
	return 0;
}

static int parse_experts(struct line *l, const struct json *v)
{
	struct samples *set = l->set;
	int32_t *x;

	if (json_is(v, JSON_NULL))
		return 0;
	if (!json_is(v, JSON_ARRAY) || (long)v->n != l->s->length)
		return wrong(l, v, "expert_ids", "an array with an entry a token");
	if (v->n && !set->expert_layers && json_is(&v->item[0], JSON_ARRAY) && v->item[0].n &&
	    json_is(&v->item[0].item[0], JSON_ARRAY)) {
		set->expert_layers = (int)v->item[0].n;
		set->expert_slots = (int)v->item[0].item[0].n;
	}
	x = arena_calloc(&set->arena,
			 v->n * (size_t)set->expert_layers * (size_t)set->expert_slots + 1,
			 sizeof(*x));
	l->s->expert_ids = x;
	for (size_t i = 0; i < v->n; i++) {
		const struct json *t = &v->item[i];

		if (!json_is(t, JSON_ARRAY) || (int)t->n != set->expert_layers)
			return wrong(l, t, "expert_ids", "the same layers in every token");
		for (size_t k = 0; k < t->n; k++) {
			if (!json_is(&t->item[k], JSON_ARRAY) ||
			    (int)t->item[k].n != set->expert_slots)
				return wrong(l, &t->item[k], "expert_ids",
					     "the same slots in every layer");
			for (size_t j = 0; j < t->item[k].n; j++)
				if (parse_int32(x++, l, &t->item[k].item[j], "expert_ids"))
					return -1;
		}
	}
	return 0;
}

static int parse_group(struct line *l, const struct json *v)
{
	long id, visit;

	if (!json_is(v, JSON_ARRAY) || v->n != 2 ||
	    json_int(l->d, &v->item[0], "group", &id, l->e) ||
	    json_int(l->d, &v->item[1], "group", &visit, l->e) || id != l->s->prompt_id ||
	    visit != l->s->visit)
		return wrong(l, v, "group", "[prompt_id, visit] of the same record");
	return 0;
}

/* All keys but those that the others need, which were read before. */
static int parse_member(struct line *l, const struct json_member *m)
{
	for (int i = 0; i < NUMBER_FIELDS; i++)
		if (!strcmp(m->key, number_fields[i].name))
			return parse_number(l, &m->value, &number_fields[i]);
	for (int i = 0; i < TOKEN_FIELDS; i++)
		if (!strcmp(m->key, token_fields[i].name))
			return parse_floats(l, &m->value, &token_fields[i]);
	for (int i = 0; i < TEXT_FIELDS; i++)
		if (!strcmp(m->key, text_fields[i].name))
			return parse_text(l, &m->value, &text_fields[i]);
	if (!strcmp(m->key, "token_ids") || !strcmp(m->key, "loss_mask") ||
	    !strcmp(m->key, "group"))
		return 0;
	if (!strcmp(m->key, "rewards"))
		return parse_rewards(l, &m->value);
	if (!strcmp(m->key, "reward")) {
		l->s->has_reward = !json_is(&m->value, JSON_NULL);
		return l->s->has_reward ? json_real(l->d, &m->value, "reward", &l->s->reward, l->e)
					: 0;
	}
	if (!strcmp(m->key, "reward_valid"))
		return json_bool(l->d, &m->value, "reward_valid", &l->s->reward_valid, l->e);
	if (!strcmp(m->key, "turns"))
		return parse_turns(l, &m->value);
	if (!strcmp(m->key, "expert_ids"))
		return parse_experts(l, &m->value);
	return err_set(l->e, EX_DATAERR, "%s:%d: \"%.80s\" is no field of a sample", l->d->file,
		       m->value.line, m->key);
}

static int parse_line(struct samples *set, const struct json_doc *d, bool *has_index, struct err *e)
{
	struct line l = { .set = set, .s = samples_append(set), .d = d, .e = e };
	const struct json *o = &d->root, *group = json_get(o, "group");
	static const char *const required[] = { "prompt_id", "token_ids", "prompt_length" };
	const char *why;
	char buf[200];

	if (!json_is(o, JSON_OBJECT))
		return wrong(&l, o, "a sample", "an object");
	for (int i = 0; i < 3; i++)
		if (!json_get(o, required[i]))
			return err_set(e, EX_DATAERR, "%s:%d: %s: missing", d->file, o->line,
				       required[i]);
	if (json_int(d, json_get(o, "prompt_id"), "prompt_id", &l.s->prompt_id, e) ||
	    parse_ids(&l, json_get(o, "token_ids")) ||
	    json_int(d, json_get(o, "prompt_length"), "prompt_length", &l.s->prompt_length, e))
		return -1;
	if (l.s->prompt_length < 0 || l.s->prompt_length > l.s->length)
		return err_set(e, EX_DATAERR,
			       "%s:%d: prompt_length: found %ld, wanted 0 to the %ld of token_ids",
			       d->file, o->line, l.s->prompt_length, l.s->length);
	l.s->temperature = l.s->top_p = 1;
	l.s->reward_valid = true;
	if (parse_mask(&l, json_get(o, "loss_mask")))
		return -1;
	for (size_t i = 0; i < o->n; i++)
		if (parse_member(&l, &o->member[i]))
			return -1;
	if (group && parse_group(&l, group))
		return -1;
	l.s->reward_valid &= l.s->has_reward;
	*has_index = json_get(o, "sample_index") != NULL;
	why = sample_wrong(buf, set, l.s);
	return why ? err_set(e, EX_DATAERR, "%s:%d: %s", d->file, o->line, why) : 0;
}

static int by_group(const void *a, const void *b, void *arg)
{
	const struct sample *s = arg;
	long i = *(const long *)a, k = *(const long *)b;

	if (s[i].prompt_id != s[k].prompt_id)
		return s[i].prompt_id < s[k].prompt_id ? -1 : 1;
	if (s[i].visit != s[k].visit)
		return s[i].visit < s[k].visit ? -1 : 1;
	return (i > k) - (i < k);
}

/* Running numbers within each group for records that came without. */
static void number_rows(struct samples *s, const bool *has_index, long first)
{
	long n = s->n - first, *row = xmalloc((size_t)(n + 1) * sizeof(*row)), index = 0;

	for (long i = 0; i < n; i++)
		row[i] = i;
	qsort_r(row, (size_t)n, sizeof(*row), by_group, s->s + first);
	for (long i = 0; i < n; i++) {
		struct sample *x = &s->s[first + row[i]],
			      *before = i ? &s->s[first + row[i - 1]] : NULL;

		if (!before || before->prompt_id != x->prompt_id || before->visit != x->visit)
			index = 0;
		if (!has_index[row[i]])
			x->sample_index = index;
		index++;
	}
	free(row);
}

int samples_read_jsonl(struct samples *s, const char *path, struct err *e)
{
	struct str text = { 0 };
	long first = s->n, cap = 0;
	bool *has_index = NULL;
	size_t at = 0;
	int rc = file_read(&text, path, 0, e);

	for (int line = 1; at < text.len && !rc; line++) {
		const char *start = text.s + at, *nl = memchr(start, '\n', text.len - at);
		size_t n = nl ? (size_t)(nl - start) : text.len - at;
		struct json_doc d = { 0 };

		at += n + 1;
		if (strspn(start, " \t\r") >= n)
			continue;
		if (json_parse(&d, start, n, path, line, e)) {
			rc = -1;
			break;
		}
		GROW(has_index, s->n - first, cap);
		rc = parse_line(s, &d, &has_index[s->n - first], e);
		json_release(&d);
	}
	str_release(&text);
	if (!rc) {
		number_rows(s, has_index, first);
		samples_sort(s);
		rc = samples_check(s, path, e);
	}
	free(has_index);
	if (rc)
		s->n = first;
	return rc;
}
