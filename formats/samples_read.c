#include "formats/samples.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/hdf5_file.h"
#include "formats/samples_fields.h"
#include "libcommon/file.h"

/* Columns of one shard on their way into samples [first, first + n) of the set. */
struct shard_reader {
	struct hdf5_file f;
	struct samples *set;
	long first, n;
	long tokens, responses;
	uint64_t *response;             /* n + 1 offsets */
	size_t most;                    /* no column is larger than its file */
	struct err *e;
};

static struct sample *row_of(const struct shard_reader *r, long i)
{
	return &r->set->s[r->first + i];
}

/* A column of exactly that shape. */
static int get(void **data, struct shard_reader *r, const char *name, enum dtype dtype,
	       const long *shape, int rank)
{
	long have[TENSOR_RANK];
	char a[160], b[160];

	if (hdf5_get(data, have, &r->f, name, dtype, rank, r->most, r->e))
		return -1;
	if (shape_equal(have, rank, shape, rank))
		return 0;
	free(*data);
	*data = NULL;
	return err_set(r->e, EX_DATAERR, "%s: %s: shape %s, wanted %s", r->f.path, name,
		       shape_text(a, have, rank), shape_text(b, shape, rank));
}

/* Offsets: n + 1 of them, from 0 upwards. */
static int get_offsets(uint64_t **offset, struct shard_reader *r, const char *field, long n)
{
	char *name = xasprintf("%s_offset", field);
	long shape = n + 1;
	void *data = NULL;
	int rc = get(&data, r, name, DTYPE_U64, &shape, 1);
	uint64_t *o = data;

	for (long i = 0; i < n && !rc; i++)
		if (o[0] != 0 || o[i + 1] < o[i] || o[i + 1] > r->most)
			rc = err_set(
				r->e, EX_DATAERR,
				"%s: %s: record %ld: offsets %llu, %llu are not from 0 upwards",
				r->f.path, name, i, (unsigned long long)o[i],
				(unsigned long long)o[i + 1]);
	if (!rc && !n && o[0])
		rc = err_set(r->e, EX_DATAERR, "%s: %s: begins at %llu, wanted 0", r->f.path, name,
			     (unsigned long long)o[0]);
	if (rc)
		free(data);
	*offset = rc ? NULL : o;
	free(name);
	return rc;
}

/* One byte a row: does it have the field?  All do where nothing is written. */
static int get_present(uint8_t **present, struct shard_reader *r, const char *field)
{
	char *name = xasprintf("present/%s", field);
	void *data;
	int rc = 0;

	if (hdf5_has(&r->f, name)) {
		rc = get(&data, r, name, DTYPE_BOOL, &r->n, 1);
		*present = rc ? NULL : data;
	} else {
		*present = xmalloc((size_t)r->n + 1);
		memset(*present, 1, (size_t)r->n);
	}
	free(name);
	return rc;
}

static int take_number(struct sample *s, const struct number_field *f, const void *data, long i)
{
	void *p = field_at(s, f->at);
	const uint64_t *wide = data;
	const uint8_t *narrow = data;

	switch (f->kind) {
	case NUMBER_SPLIT:
		*(enum split *)p = (enum split)narrow[i];
		return narrow[i] > SPLIT_VALIDATION;
	case NUMBER_FINISH:
		*(enum finish *)p = (enum finish)narrow[i];
		return narrow[i] >= FINISH_COUNT;
	case NUMBER_BOOL:
		*(bool *)p = narrow[i] == 1;
		return narrow[i] > 1;
	case NUMBER_DIGEST:
		memcpy(p, wide + 2 * i, sizeof(struct digest));
		return 0;
	case NUMBER_LONG: case NUMBER_U64: case NUMBER_REAL: case NUMBER_HEX:
		memcpy(p, wide + i, sizeof(*wide));
		return 0;
	}
	return 1;
}

static int read_number(struct shard_reader *r, const struct number_field *f)
{
	static const enum dtype dtype[] = {
		[NUMBER_LONG] = DTYPE_I64,   [NUMBER_U64] = DTYPE_U64,	 [NUMBER_REAL] = DTYPE_F64,
		[NUMBER_DIGEST] = DTYPE_U64, [NUMBER_HEX] = DTYPE_U64,	 [NUMBER_SPLIT] = DTYPE_U8,
		[NUMBER_FINISH] = DTYPE_U8,  [NUMBER_BOOL] = DTYPE_BOOL,
	};
	long shape[2] = { r->n, 2 };
	void *data;
	int rc = 0;

	if (get(&data, r, f->name, dtype[f->kind], shape, f->kind == NUMBER_DIGEST ? 2 : 1))
		return -1;
	for (long i = 0; i < r->n && !rc; i++)
		if (take_number(row_of(r, i), f, data, i))
			rc = err_set(r->e, EX_DATAERR, "%s: record %ld: %s: found %d", r->f.path, i,
				     f->name, ((uint8_t *)data)[i]);
	free(data);
	return rc;
}

static int read_tokens(struct shard_reader *r)
{
	uint64_t *all;
	int32_t *ids;
	void *data;
	int rc = 0;

	if (get_offsets(&all, r, "token_ids", r->n))
		return -1;
	if (get_offsets(&r->response, r, "response", r->n)) {
		free(all);
		return -1;
	}
	r->tokens = (long)all[r->n];
	r->responses = (long)r->response[r->n];
	if (get(&data, r, "token_ids", DTYPE_I32, &r->tokens, 1)) {
		free(all);
		return -1;
	}
	ids = samples_copy(r->set, data, (size_t)r->tokens * sizeof(*ids));
	free(data);
	for (long i = 0; i < r->n && !rc; i++) {
		struct sample *s = row_of(r, i);
		long after = (long)(r->response[i + 1] - r->response[i]);

		s->token_ids = ids + all[i];
		s->length = (long)(all[i + 1] - all[i]);
		if (s->prompt_length < 0 || s->prompt_length > s->length ||
		    after != s->length - s->prompt_length)
			rc = err_set(
				r->e, EX_DATAERR,
				"%s: record %ld: %ld tokens with a prompt of %ld, but %ld entries of logprobs and the like",
				r->f.path, i, s->length, s->prompt_length, after);
	}
	free(all);
	return rc;
}

static int read_token_field(struct shard_reader *r, const struct token_field *f)
{
	uint8_t *present;
	void *data;
	float *flat;

	if (!hdf5_has(&r->f, f->name))
		return 0;
	if (get_present(&present, r, f->name))
		return -1;
	if (get(&data, r, f->name, DTYPE_F32, &r->responses, 1)) {
		free(present);
		return -1;
	}
	flat = samples_copy(r->set, data, (size_t)r->responses * sizeof(*flat));
	free(data);
	for (long i = 0; i < r->n; i++)
		if (present[i])
			*(float **)field_at(row_of(r, i), f->at) = flat + r->response[i];
	free(present);
	return 0;
}

static int read_mask(struct shard_reader *r)
{
	uint8_t *present, *flat;
	void *data;

	if (!hdf5_has(&r->f, "loss_mask"))
		return 0;
	if (get_present(&present, r, "loss_mask"))
		return -1;
	if (get(&data, r, "loss_mask", DTYPE_U8, &r->responses, 1)) {
		free(present);
		return -1;
	}
	flat = samples_copy(r->set, data, (size_t)r->responses);
	free(data);
	for (long i = 0; i < r->n; i++)
		if (present[i])
			row_of(r, i)->loss_mask = flat + r->response[i];
	free(present);
	return 0;
}

static int read_text(struct shard_reader *r, const struct text_field *f)
{
	uint64_t *offset = NULL;
	uint8_t *present = NULL;
	void *data = NULL;
	long bytes;
	int rc = -1;

	if (!hdf5_has(&r->f, f->name))
		return 0;
	if (get_present(&present, r, f->name) || get_offsets(&offset, r, f->name, r->n))
		goto out;
	bytes = (long)offset[r->n];
	if (get(&data, r, f->name, DTYPE_U8, &bytes, 1))
		goto out;
	for (long i = 0; i < r->n; i++) {
		size_t n = (size_t)(offset[i + 1] - offset[i]);

		if (!present[i])
			continue;
		*(const char **)field_at(row_of(r, i), f->at) =
			samples_copy(r->set, (char *)data + offset[i], n);
		*(size_t *)field_at(row_of(r, i), f->bytes_at) = n;
	}
	rc = 0;
out:
	free(data);
	free(offset);
	free(present);
	return rc;
}

static int read_rewards(struct shard_reader *r)
{
	long names = r->set->reward_names, shape[2] = { r->n, names };
	uint8_t *has = NULL, *parts = NULL;
	void *total = NULL, *valid = NULL, *each = NULL;
	int rc = -1;

	if (hdf5_has(&r->f, "reward") &&
	    (get_present(&has, r, "reward") || get(&total, r, "reward", DTYPE_F64, &r->n, 1) ||
	     get(&valid, r, "reward_valid", DTYPE_BOOL, &r->n, 1)))
		goto out;
	if (hdf5_has(&r->f, "rewards") &&
	    (get_present(&parts, r, "rewards") || get(&each, r, "rewards", DTYPE_F64, shape, 2)))
		goto out;
	for (long i = 0; i < r->n; i++) {
		struct sample *s = row_of(r, i);

		if (total && has[i]) {
			s->has_reward = true;
			s->reward_valid = ((uint8_t *)valid)[i] == 1;
			s->reward = ((double *)total)[i];
		}
		if (each && parts[i])
			s->rewards = samples_copy(r->set, (double *)each + i * names,
						  (size_t)names * sizeof(double));
	}
	rc = 0;
out:
	free(each);
	free(parts);
	free(valid);
	free(total);
	free(has);
	return rc;
}

static int read_turns(struct shard_reader *r)
{
	uint64_t *offset = NULL, *role_offset = NULL;
	void *span = NULL, *policy = NULL, *role = NULL;
	long shape[2] = { 0, 2 }, bytes;
	struct turn *t;
	int rc = -1;

	if (!hdf5_has(&r->f, "turns_offset"))
		return 0;
	if (get_offsets(&offset, r, "turns", r->n))
		return -1;
	shape[0] = (long)offset[r->n];
	if (get(&span, r, "turns/span", DTYPE_I32, shape, 2) ||
	    get(&policy, r, "turns/policy", DTYPE_U64, shape, 2) ||
	    get_offsets(&role_offset, r, "turns/role", shape[0]))
		goto out;
	bytes = (long)role_offset[shape[0]];
	if (get(&role, r, "turns/role", DTYPE_U8, &bytes, 1))
		goto out;
	t = arena_calloc(&r->set->arena, (size_t)shape[0] + 1, sizeof(*t));
	for (long k = 0; k < shape[0]; k++) {
		t[k].start = ((int32_t *)span)[2 * k];
		t[k].end = ((int32_t *)span)[2 * k + 1];
		t[k].policy = (struct digest){ ((uint64_t *)policy)[2 * k],
					       ((uint64_t *)policy)[2 * k + 1] };
		t[k].role = samples_copy(r->set, (char *)role + role_offset[k],
					 (size_t)(role_offset[k + 1] - role_offset[k]));
	}
	for (long i = 0; i < r->n; i++) {
		row_of(r, i)->turn = t + offset[i];
		row_of(r, i)->turns = (long)(offset[i + 1] - offset[i]);
	}
	rc = 0;
out:
	free(role);
	free(role_offset);
	free(policy);
	free(span);
	free(offset);
	return rc;
}

static int read_experts(struct shard_reader *r)
{
	long per = (long)r->set->expert_layers * r->set->expert_slots, at = 0;
	long shape[3] = { r->tokens, r->set->expert_layers, r->set->expert_slots };
	uint8_t *present;
	int32_t *flat;
	void *data;

	if (!hdf5_has(&r->f, "expert_ids"))
		return 0;
	if (get_present(&present, r, "expert_ids"))
		return -1;
	if (get(&data, r, "expert_ids", DTYPE_I32, shape, 3)) {
		free(present);
		return -1;
	}
	flat = samples_copy(r->set, data, (size_t)(r->tokens * per) * sizeof(*flat));
	free(data);
	for (long i = 0; i < r->n; i++) {
		if (present[i])
			row_of(r, i)->expert_ids = flat + at;
		at += row_of(r, i)->length * per;
	}
	free(present);
	return 0;
}

static int read_columns(struct shard_reader *r)
{
	for (long i = 0; i < r->n; i++)
		samples_append(r->set);
	for (int i = 0; i < NUMBER_FIELDS; i++)
		if (read_number(r, &number_fields[i]))
			return -1;
	if (read_tokens(r) || read_mask(r))
		return -1;
	for (int i = 0; i < TOKEN_FIELDS; i++)
		if (read_token_field(r, &token_fields[i]))
			return -1;
	for (int i = 0; i < TEXT_FIELDS; i++)
		if (read_text(r, &text_fields[i]))
			return -1;
	return read_rewards(r) || read_turns(r) || read_experts(r) ? -1 : 0;
}

static int read_shard(struct samples *s, const char *dir, const struct json_doc *d,
		      const struct json *v, struct err *e)
{
	struct shard_reader r = { .set = s, .first = s->n, .e = e };
	struct manifest_file f;
	char *path;
	int rc;

	if (manifest_get_file(&f, d, json_get(v, "file"), e) ||
	    json_int(d, json_get(v, "samples"), "samples", &r.n, e) ||
	    manifest_check_file(dir, &f, e))
		return -1;
	/* Each sample takes more than 100 bytes, so a count beyond the file's size cannot be. */
	if (r.n < 0 || (uint64_t)r.n > f.bytes)
		return err_set(e, EX_DATAERR, "%s: samples: found %ld", d->file, r.n);
	r.most = f.bytes;
	path = path_join(dir, f.name);
	rc = hdf5_open(&r.f, path, e) || read_columns(&r) ? -1 : 0;
	hdf5_abandon(&r.f);
	free(r.response);
	free(path);
	return rc;
}

/* The names of reward components, which must be those of what is held already. */
static int read_names(struct samples *s, const struct json_doc *d, struct err *e)
{
	const struct json *names = json_get(&d->root, "rewards");
	long layers, slots;

	if (!json_is(names, JSON_ARRAY) || names->n > 10000)
		return err_set(e, EX_DATAERR, "%s: rewards: found %s, wanted an array", d->file,
			       json_type_name(names));
	if (json_int(d, json_get(&d->root, "expert_layers"), "expert_layers", &layers, e) ||
	    json_int(d, json_get(&d->root, "expert_slots"), "expert_slots", &slots, e))
		return -1;
	if (layers < 0 || slots < 0 || layers > 100000 || slots > 10000)
		return err_set(e, EX_DATAERR, "%s: expert_layers, expert_slots: found %ld, %ld",
			       d->file, layers, slots);
	if (s->n && (s->reward_names != (int)names->n || s->expert_layers != layers ||
		     s->expert_slots != slots))
		return err_set(e, EX_DATAERR,
			       "%s: other rewards or experts than the samples before it", d->file);
	s->expert_layers = (int)layers;
	s->expert_slots = (int)slots;
	for (size_t i = 0; i < names->n; i++) {
		const char *name;

		if (json_str(d, &names->item[i], "rewards", &name, e))
			return -1;
		if (!s->n && s->reward_names <= (int)i)
			samples_name_reward(s, name);
		if (strcmp(s->reward_name[i], name))
			return err_set(
				e, EX_DATAERR,
				"%s: reward \"%s\", wanted \"%s\" as in the samples before it",
				d->file, name, s->reward_name[i]);
	}
	return 0;
}

static int check_side(const char *dir, const struct json_doc *d, struct err *e)
{
	const struct json *side = json_get(&d->root, "side");
	struct manifest_file f;

	for (size_t i = 0; json_is(side, JSON_ARRAY) && i < side->n; i++)
		if (manifest_get_file(&f, d, &side->item[i], e) || manifest_check_file(dir, &f, e))
			return -1;
	return history_check(d, json_get(&d->root, "history"), e);
}

static int read_all(struct samples *s, const char *dir, const struct json_doc *d, struct err *e)
{
	const struct json *shards = json_get(&d->root, "shards");
	long before = s->n, shift = 0;

	if (read_names(s, d, e) || check_side(dir, d, e))
		return -1;
	if (!json_is(shards, JSON_ARRAY))
		return err_set(e, EX_DATAERR, "%s: shards: found %s, wanted an array", d->file,
			       json_type_name(shards));
	for (long i = 0; i < before; i++)
		if (s->s[i].order >= shift)
			shift = s->s[i].order + 1;
	for (size_t i = 0; i < shards->n; i++)
		if (read_shard(s, dir, d, &shards->item[i], e))
			return -1;
	for (long i = before; i < s->n; i++)
		if (s->s[i].order >= 0 &&
		    __builtin_add_overflow(s->s[i].order, shift, &s->s[i].order))
			return err_set(e, EX_DATAERR, "%s: record %ld: order is too large", dir,
				       i - before);
	samples_sort(s);
	return samples_check(s, dir, e);
}

int samples_read(struct samples *s, const char *dir, struct err *e)
{
	struct json_doc d = { 0 };
	long before = s->n;

	if (manifest_read(&d, dir, "samples", e))
		return -1;
	if (read_all(s, dir, &d, e)) {
		json_release(&d);
		s->n = before;
		return -1;
	}
	json_release(&s->manifest);
	s->manifest = d;
	return 0;
}

int samples_verify(const char *dir, bool deep, struct err *e)
{
	struct samples s = { 0 };
	struct json_doc d = { 0 };
	const struct json *shards;
	struct manifest_file f;
	int rc = 0;

	if (deep) {
		rc = samples_read(&s, dir, e);
		samples_release(&s);
		return rc;
	}
	if (manifest_read(&d, dir, "samples", e))
		return -1;
	shards = json_get(&d.root, "shards");
	for (size_t i = 0; json_is(shards, JSON_ARRAY) && i < shards->n && !rc; i++)
		rc = manifest_get_file(&f, &d, json_get(&shards->item[i], "file"), e) ||
				     manifest_check_size(dir, &f, e)
			     ? -1
			     : 0;
	json_release(&d);
	return rc;
}

int samples_read_any(struct samples *s, const char *path, struct err *e)
{
	return file_is_dir(path) ? samples_read(s, path, e) : samples_read_jsonl(s, path, e);
}
