#include "formats/samples.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/hdf5_file.h"
#include "formats/samples_fields.h"
#include "libcommon/file.h"
#include "libcommon/outdir.h"

/* Columns of one shard.  The first error stays; later puts do nothing. */
struct columns {
	struct hdf5_file f;
	const struct samples *s;
	long tokens, responses;         /* tokens in all, and after the prompts */
	struct err *e;
	int rc;
};

static void put(struct columns *c, const char *name, enum dtype dtype, const long *shape, int rank,
		const void *data)
{
	if (!c->rc)
		c->rc = hdf5_put(&c->f, name, dtype, shape, rank, data, c->e);
}

static void put_named(struct columns *c, const char *prefix, const char *name, const char *suffix,
		      enum dtype dtype, long n, const void *data)
{
	char *full = xasprintf("%s%s%s", prefix, name, suffix);

	put(c, full, dtype, &n, 1, data);
	free(full);
}

static void put_number(struct columns *c, const struct number_field *f)
{
	long n = c->s->n, shape[2] = { n, 2 };
	uint64_t *wide = xmalloc((size_t)(2 * n + 1) * sizeof(*wide));
	uint8_t *narrow = xmalloc((size_t)n + 1);

	for (long i = 0; i < n; i++) {
		const void *p = field_of(&c->s->s[i], f->at);

		switch (f->kind) {
		case NUMBER_SPLIT: narrow[i] = (uint8_t)*(const enum split *)p; break;
		case NUMBER_FINISH: narrow[i] = (uint8_t)*(const enum finish *)p; break;
		case NUMBER_BOOL: narrow[i] = *(const bool *)p; break;
		case NUMBER_DIGEST: memcpy(wide + 2 * i, p, sizeof(struct digest)); break;
		case NUMBER_LONG:
		case NUMBER_U64:
		case NUMBER_REAL:
		case NUMBER_HEX: memcpy(wide + i, p, sizeof(*wide)); break;
		}
	}
	switch (f->kind) {
	case NUMBER_SPLIT: case NUMBER_FINISH: put(c, f->name, DTYPE_U8, &n, 1, narrow); break;
	case NUMBER_BOOL: put(c, f->name, DTYPE_BOOL, &n, 1, narrow); break;
	case NUMBER_DIGEST: put(c, f->name, DTYPE_U64, shape, 2, wide); break;
	case NUMBER_LONG: put(c, f->name, DTYPE_I64, &n, 1, wide); break;
	case NUMBER_U64: case NUMBER_HEX: put(c, f->name, DTYPE_U64, &n, 1, wide); break;
	case NUMBER_REAL: put(c, f->name, DTYPE_F64, &n, 1, wide); break;
	}
	free(narrow);
	free(wide);
}

static void put_groups(struct columns *c)
{
	long shape[2] = { c->s->n, 2 },
	     *group = xmalloc((size_t)(2 * c->s->n + 1) * sizeof(*group));

	for (long i = 0; i < c->s->n; i++) {
		group[2 * i] = c->s->s[i].prompt_id;
		group[2 * i + 1] = c->s->s[i].visit;
	}
	put(c, "group", DTYPE_I64, shape, 2, group);
	free(group);
}

/*
 * Which rows have an optional field; nothing is written when all have it.  Returns how many have
 * it.
 */
static long put_present(struct columns *c, const char *name, const uint8_t *present)
{
	long have = 0;

	for (long i = 0; i < c->s->n; i++)
		have += present[i];
	if (have && have < c->s->n)
		put_named(c, "present/", name, "", DTYPE_BOOL, c->s->n, present);
	return have;
}

static long response(const struct sample *s)
{
	return s->length - s->prompt_length;
}

static void put_tokens(struct columns *c)
{
	long n = c->s->n;
	uint64_t *all = xcalloc((size_t)n + 1, sizeof(*all)),
		 *after = xcalloc((size_t)n + 1, sizeof(*after));
	int32_t *ids;

	for (long i = 0; i < n; i++) {
		all[i + 1] = all[i] + (uint64_t)c->s->s[i].length;
		after[i + 1] = after[i] + (uint64_t)response(&c->s->s[i]);
	}
	c->tokens = (long)all[n];
	c->responses = (long)after[n];
	ids = xmalloc((size_t)c->tokens * sizeof(*ids) + 1);
	for (long i = 0; i < n; i++)
		if (c->s->s[i].length)
			memcpy(ids + all[i], c->s->s[i].token_ids,
			       (size_t)c->s->s[i].length * sizeof(*ids));
	put(c, "token_ids", DTYPE_I32, &c->tokens, 1, ids);
	put_named(c, "token_ids", "", "_offset", DTYPE_U64, n + 1, all);
	put_named(c, "response", "", "_offset", DTYPE_U64, n + 1, after);
	free(ids);
	free(after);
	free(all);
}

/*
 * Rows without the field are filled with NaN (mask: 0), so that all such fields share the offsets.
 */
static void put_token_field(struct columns *c, const struct token_field *f)
{
	float *flat = xmalloc((size_t)c->responses * sizeof(*flat) + 1);
	uint8_t *present = xcalloc((size_t)c->s->n + 1, 1);
	long at = 0;

	for (long i = 0; i < c->s->n; i++) {
		const struct sample *s = &c->s->s[i];
		const float *x = *(float *const *)field_of(s, f->at);

		present[i] = x != NULL;
		for (long k = 0; k < response(s); k++, at++) {
			if (x)
				memcpy(&flat[at], &x[k], sizeof(float));
			else
				flat[at] = __builtin_nanf("");
		}
	}
	if (put_present(c, f->name, present))
		put(c, f->name, DTYPE_F32, &c->responses, 1, flat);
	free(present);
	free(flat);
}

static void put_mask(struct columns *c)
{
	uint8_t *flat = xcalloc((size_t)c->responses + 1, 1),
		*present = xcalloc((size_t)c->s->n + 1, 1);
	long at = 0;

	for (long i = 0; i < c->s->n; i++) {
		const struct sample *s = &c->s->s[i];

		present[i] = s->loss_mask != NULL;
		if (s->loss_mask)
			memcpy(flat + at, s->loss_mask, (size_t)response(s));
		at += response(s);
	}
	if (put_present(c, "loss_mask", present))
		put(c, "loss_mask", DTYPE_U8, &c->responses, 1, flat);
	free(present);
	free(flat);
}

static void put_text(struct columns *c, const struct text_field *f)
{
	uint64_t *offset = xcalloc((size_t)c->s->n + 1, sizeof(*offset));
	uint8_t *present = xcalloc((size_t)c->s->n + 1, 1);
	struct str flat = { 0 };

	for (long i = 0; i < c->s->n; i++) {
		const char *text = *(const char *const *)field_of(&c->s->s[i], f->at);

		present[i] = text != NULL;
		if (text)
			str_add(&flat, text, *(const size_t *)field_of(&c->s->s[i], f->bytes_at));
		offset[i + 1] = flat.len;
	}
	if (put_present(c, f->name, present)) {
		put_named(c, f->name, "", "", DTYPE_U8, (long)flat.len, flat.s);
		put_named(c, f->name, "", "_offset", DTYPE_U64, c->s->n + 1, offset);
	}
	str_release(&flat);
	free(present);
	free(offset);
}

static void put_rewards(struct columns *c)
{
	long n = c->s->n, names = c->s->reward_names, shape[2] = { n, names };
	double *total = xmalloc((size_t)(n + 1) * sizeof(*total)),
	       *each = xmalloc((size_t)(n * names + 1) * sizeof(*each));
	uint8_t *has = xcalloc((size_t)n + 1, 1), *valid = xcalloc((size_t)n + 1, 1),
		*parts = xcalloc((size_t)n + 1, 1);

	for (long i = 0; i < n; i++) {
		const struct sample *s = &c->s->s[i];

		has[i] = s->has_reward;
		valid[i] = s->reward_valid;
		parts[i] = s->rewards != NULL;
		total[i] = s->has_reward ? s->reward : __builtin_nan("");
		for (long k = 0; k < names; k++)
			each[i * names + k] = s->rewards ? s->rewards[k] : __builtin_nan("");
	}
	if (put_present(c, "reward", has)) {
		put(c, "reward", DTYPE_F64, &n, 1, total);
		put(c, "reward_valid", DTYPE_BOOL, &n, 1, valid);
	}
	if (put_present(c, "rewards", parts))
		put(c, "rewards", DTYPE_F64, shape, 2, each);
	free(parts);
	free(valid);
	free(has);
	free(each);
	free(total);
}

static void put_turns(struct columns *c)
{
	long n = c->s->n, turns = 0, shape[2] = { 0, 2 };
	uint64_t *offset = xcalloc((size_t)n + 1, sizeof(*offset)), *role_offset, *policy;
	struct str roles = { 0 };
	int32_t *span;

	for (long i = 0; i < n; i++)
		offset[i + 1] = offset[i] + (uint64_t)c->s->s[i].turns;
	shape[0] = (long)offset[n];
	span = xmalloc(offset[n] * 2 * sizeof(*span) + 1);
	policy = xmalloc(offset[n] * 2 * sizeof(*policy) + 1);
	role_offset = xcalloc(offset[n] + 1, sizeof(*role_offset));
	for (long i = 0; i < n; i++) {
		for (long k = 0; k < c->s->s[i].turns; k++, turns++) {
			const struct turn *t = &c->s->s[i].turn[k];

			span[2 * turns] = t->start;
			span[2 * turns + 1] = t->end;
			policy[2 * turns] = t->policy.hi;
			policy[2 * turns + 1] = t->policy.lo;
			str_puts(&roles, t->role ? t->role : "");
			role_offset[turns + 1] = roles.len;
		}
	}
	if (turns) {
		put_named(c, "turns", "", "_offset", DTYPE_U64, n + 1, offset);
		put(c, "turns/span", DTYPE_I32, shape, 2, span);
		put(c, "turns/policy", DTYPE_U64, shape, 2, policy);
		put_named(c, "turns/role", "", "", DTYPE_U8, (long)roles.len, roles.s);
		put_named(c, "turns/role", "", "_offset", DTYPE_U64, turns + 1, role_offset);
	}
	str_release(&roles);
	free(role_offset);
	free(policy);
	free(span);
	free(offset);
}

static void put_experts(struct columns *c)
{
	long per = (long)c->s->expert_layers * c->s->expert_slots, at = 0;
	long shape[3] = { c->tokens, c->s->expert_layers, c->s->expert_slots };
	int32_t *flat = xmalloc((size_t)(c->tokens * per) * sizeof(*flat) + 1);
	uint8_t *present = xcalloc((size_t)c->s->n + 1, 1);

	for (long i = 0; i < c->s->n; i++) {
		const struct sample *s = &c->s->s[i];

		present[i] = s->expert_ids != NULL;
		for (long k = 0; k < s->length * per; k++)
			flat[at++] = s->expert_ids ? s->expert_ids[k] : -1;
	}
	if (put_present(c, "expert_ids", present))
		put(c, "expert_ids", DTYPE_I32, shape, 3, flat);
	free(present);
	free(flat);
}

struct part {                   /* what a rank tells about its shard */
	struct manifest_file file;
	long samples, tokens, responses;
};

static int write_shard(struct part *p, const char *dir, int rank, const struct samples *s,
		       struct err *e)
{
	struct columns c = { .s = s, .e = e };
	char *path;

	snprintf(p->file.name, sizeof(p->file.name), "samples-%04d.h5", rank);
	path = path_join(dir, p->file.name);
	c.rc = hdf5_create(&c.f, path, 16 << 10, e);
	for (int i = 0; i < NUMBER_FIELDS; i++)
		put_number(&c, &number_fields[i]);
	put_groups(&c);
	put_tokens(&c);
	for (int i = 0; i < TOKEN_FIELDS; i++)
		put_token_field(&c, &token_fields[i]);
	put_mask(&c);
	for (int i = 0; i < TEXT_FIELDS; i++)
		put_text(&c, &text_fields[i]);
	put_rewards(&c);
	put_turns(&c);
	put_experts(&c);
	if (!c.rc)
		c.rc = hdf5_close(&c.f, e);
	hdf5_abandon(&c.f);
	if (!c.rc)
		c.rc = file_size(path, &p->file.bytes, e);
	if (!c.rc)
		c.rc = hash128_file(&p->file.hash, path, e);
	p->samples = s->n;
	p->tokens = c.tokens;
	p->responses = c.responses;
	free(path);
	return c.rc;
}

static int put_json_text(struct json_out *o, const char *key, const char *text, struct err *e)
{
	struct json_doc d = { 0 };

	json_key(o, key);
	if (!text) {
		json_put_null(o);
		return 0;
	}
	if (json_parse(&d, text, strlen(text), key, 1, e))
		return -1;
	json_put(o, &d.root);
	json_release(&d);
	return 0;
}

static void put_shards(struct json_out *o, const struct part *p, int parts)
{
	long samples = 0, tokens = 0, responses = 0;

	for (int i = 0; i < parts; i++) {
		samples += p[i].samples;
		tokens += p[i].tokens;
		responses += p[i].responses;
	}
	json_key(o, "counts");
	json_begin(o, '{');
	json_add_int(o, "samples", samples);
	json_add_int(o, "tokens", tokens);
	json_add_int(o, "response_tokens", responses);
	json_end(o);
	json_key(o, "shards");
	json_begin(o, '[');
	for (int i = 0; i < parts; i++) {
		json_begin(o, '{');
		json_add_int(o, "samples", p[i].samples);
		json_key(o, "file");
		manifest_put_file(o, &p[i].file);
		json_end(o);
	}
	json_end(o);
}

static int put_side(struct json_out *o, const char *dir, const struct samples_meta *m,
		    struct err *e)
{
	struct {
		const char *name, *text;
	} const side[] = { { "metrics.json", m->metrics }, { "recipe.yaml", m->history.recipe } };
	struct manifest_file f;

	json_key(o, "side");
	json_begin(o, '[');
	for (int i = 0; i < 2; i++) {
		if (!side[i].text)
			continue;
		if (manifest_write_file(&f, dir, side[i].name, side[i].text, strlen(side[i].text),
					e))
			return -1;
		manifest_put_file(o, &f);
	}
	json_end(o);
	return 0;
}

static int write_manifest(const char *dir, const struct samples *s, const struct samples_meta *m,
			  const struct part *p, int parts, struct err *e)
{
	struct json_out o = { 0 };
	char hex[33];
	int rc;

	manifest_begin(&o, "samples", NULL);
	json_add_int(&o, "step", m->step);
	json_add_str(&o, "split", m->split);
	json_add_str(&o, "policy", digest_hex(hex, m->policy));
	json_add_str(&o, "tokenizer_digest", digest_hex(hex, m->tokenizer_digest));
	json_add_str(&o, "fingerprint", m->fingerprint);
	rc = put_json_text(&o, "cursor", m->cursor, e) ||
			     put_json_text(&o, "scoring", m->scoring, e)
		     ? -1
		     : 0;
	json_key(&o, "rewards");
	json_begin(&o, '[');
	for (int i = 0; i < s->reward_names; i++)
		json_put_str(&o, s->reward_name[i]);
	json_end(&o);
	json_add_int(&o, "expert_layers", s->expert_layers);
	json_add_int(&o, "expert_slots", s->expert_slots);
	json_key(&o, "history");
	history_put(&o, &m->history);
	put_shards(&o, p, parts);
	if (!rc)
		rc = put_side(&o, dir, m, e) || manifest_finish(&o, dir, e) ? -1 : 0;
	json_out_release(&o);
	return rc;
}

static int agree(struct comm *comm, int rc, struct err *e)
{
	return comm ? comm_agree(comm, rc, e) : rc;
}

int samples_write(const char *dir, struct samples *s, const struct samples_meta *m,
		  struct comm *comm, struct err *e)
{
	int rank = comm ? comm->rank : 0, ranks = comm ? comm->size : 1, rc;
	struct outdir o = { .lock = -1 };
	struct part *all = xcalloc((size_t)ranks, sizeof(*all)), mine = { 0 };
	char path[4096] = "";

	samples_sort(s);
	rc = samples_check(s, dir, e);
	if (!rc && !rank)
		rc = outdir_create(&o, dir, e);
	if (!rc && !rank && strlen(o.tmp) >= sizeof(path))
		rc = err_set(e, EX_CANTCREAT, "%s: the path is too long", dir);
	if (agree(comm, rc, e))
		goto bad;
	if (!rank)
		strcpy(path, o.tmp);
	if (ranks > 1)
		comm_broadcast(comm, path, sizeof(path), 0);
	rc = write_shard(&mine, path, rank, s, e);
	if (agree(comm, rc, e))
		goto bad;
	if (ranks > 1)
		comm_gather(comm, all, &mine, sizeof(mine));
	else
		all[0] = mine;
	if (!rank)
		rc = write_manifest(path, s, m, all, ranks, e) || outdir_commit(&o, e) ? -1 : 0;
	if (agree(comm, rc, e))
		goto bad;
	free(all);
	return 0;
bad:
	outdir_abort(&o);
	free(all);
	return -1;
}
