#include "formats/samples.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/samples_fields.h"
#include "libcommon/file.h"

/* -- writing ------------------------------------------------------------ */

static void put_float(struct json_out *o, float v)
{
	/* JSON has no infinity; a number beyond all floats reads back as one. */
	struct json huge = { .type = JSON_NUMBER, .text = v < 0 ? "-1e999" : "1e999" };

	huge.n = strlen(huge.text);
	if (__builtin_isinf(v))
		json_put(o, &huge);
	else
		json_put_float(o, v);
}

static void put_digest(struct json_out *o, const char *key, struct digest d)
{
	char hex[33];

	if (d.hi || d.lo)
		json_add_str(o, key, digest_hex(hex, d));
}

static void put_number(struct json_out *o, const struct sample *s, const struct number_field *f)
{
	const void *p = field_of(s, f->at);
	char hex[17];

	switch (f->kind) {
	case NUMBER_LONG:
		if (*(const long *)p >= 0 || (f->at != offsetof(struct sample, update) &&
					      f->at != offsetof(struct sample, unit)))
			json_add_int(o, f->name, *(const long *)p);
		break;
	case NUMBER_U64:
		json_key(o, f->name);
		json_put_u64(o, *(const uint64_t *)p);
		break;
	case NUMBER_REAL: json_add_real(o, f->name, *(const double *)p); break;
	case NUMBER_DIGEST: put_digest(o, f->name, *(const struct digest *)p); break;
	case NUMBER_HEX:
		snprintf(hex, sizeof(hex), "%016llx", *(const unsigned long long *)p);
		if (*(const uint64_t *)p)
			json_add_str(o, f->name, hex);
		break;
	case NUMBER_SPLIT:
		json_add_str(o, f->name,
			     *(const enum split *)p == SPLIT_TRAIN ? "train" : "validation");
		break;
	case NUMBER_FINISH:
		if (*(const enum finish *)p)
			json_add_str(o, f->name, finish_name(*(const enum finish *)p));
		break;
	case NUMBER_BOOL: json_add_bool(o, f->name, *(const bool *)p); break;
	}
}

static void put_tokens(struct json_out *o, const struct sample *s)
{
	json_key(o, "token_ids");
	json_begin(o, '[');
	for (long i = 0; i < s->length; i++)
		json_put_int(o, s->token_ids[i]);
	json_end(o);
	if (s->loss_mask) {
		json_key(o, "loss_mask");
		json_begin(o, '[');
		for (long i = 0; i < s->length - s->prompt_length; i++)
			json_put_int(o, s->loss_mask[i]);
		json_end(o);
	}
	for (int k = 0; k < TOKEN_FIELDS; k++) {
		const float *x = *(float *const *)field_of(s, token_fields[k].at);

		if (!x)
			continue;
		json_key(o, token_fields[k].name);
		json_begin(o, '[');
		for (long i = 0; i < s->length - s->prompt_length; i++)
			put_float(o, x[i]);
		json_end(o);
	}
}

static void put_texts(struct json_out *o, const struct sample *s)
{
	if (s->text) {
		json_key(o, "text");
		json_put_strn(o, s->text, s->text_bytes);
	}
	if (s->row) {
		struct json_doc d = { 0 };
		struct err e = ERR_INIT;

		json_key(o, "row");
		if (json_parse(&d, s->row, s->row_bytes, "row", 1, &e))
			json_put_strn(o, s->row, s->row_bytes);
		else {
			json_put(o, &d.root);
			json_release(&d);
		}
	}
	if (s->extracted) {
		json_key(o, "extracted");
		json_put_strn(o, s->extracted, s->extracted_bytes);
	}
	if (s->reason) {
		json_key(o, "reason");
		json_put_strn(o, s->reason, s->reason_bytes);
	}
}

static void put_rewards(struct json_out *o, const struct samples *set, const struct sample *s)
{
	if (s->rewards) {
		json_key(o, "rewards");
		json_begin(o, '{');
		for (int k = 0; k < set->reward_names; k++)
			json_add_real(o, set->reward_name[k], s->rewards[k]);
		json_end(o);
	}
	if (s->has_reward) {
		json_add_real(o, "reward", s->reward);
		json_add_bool(o, "reward_valid", s->reward_valid);
	}
}

static void put_turns(struct json_out *o, const struct sample *s)
{
	if (!s->turns)
		return;
	json_key(o, "turns");
	json_begin(o, '[');
	for (long k = 0; k < s->turns; k++) {
		json_begin(o, '{');
		json_add_int(o, "start", s->turn[k].start);
		json_add_int(o, "end", s->turn[k].end);
		json_add_str(o, "role", s->turn[k].role ? s->turn[k].role : "");
		put_digest(o, "policy", s->turn[k].policy);
		json_end(o);
	}
	json_end(o);
}

static void put_experts(struct json_out *o, const struct samples *set, const struct sample *s)
{
	const int32_t *x = s->expert_ids;

	if (!x)
		return;
	json_key(o, "expert_ids");
	json_begin(o, '[');
	for (long i = 0; i < s->length; i++) {
		json_begin(o, '[');
		for (int l = 0; l < set->expert_layers; l++) {
			json_begin(o, '[');
			for (int k = 0; k < set->expert_slots; k++)
				json_put_int(o, *x++);
			json_end(o);
		}
		json_end(o);
	}
	json_end(o);
}

void samples_put_jsonl(struct str *out, const struct samples *set, long i)
{
	const struct sample *s = &set->s[i];
	struct json_out o = { .indent = 0 };

	json_begin(&o, '{');
	for (int k = 0; k < NUMBER_FIELDS; k++)
		put_number(&o, s, &number_fields[k]);
	json_key(&o, "group");
	json_begin(&o, '[');
	json_put_int(&o, s->prompt_id);
	json_put_int(&o, s->visit);
	json_end(&o);
	put_tokens(&o, s);
	put_turns(&o, s);
	put_texts(&o, s);
	put_rewards(&o, set, s);
	put_experts(&o, set, s);
	json_end(&o);
	str_add(out, o.s.s, o.s.len);
	str_putc(out, '\n');
	json_out_release(&o);
}

int samples_write_jsonl(const char *path, const struct samples *s, struct err *e)
{
	bool std = !strcmp(path, "-");
	struct str all = { 0 };
	int rc = 0;

	for (long i = 0; i < s->n && !rc; i++) {
		samples_put_jsonl(&all, s, i);
		if (std) {
			if (fwrite(all.s, 1, all.len, stdout) != all.len)
				rc = err_errno(e, EX_IOERR, "standard output");
			str_cut(&all, 0);
		}
	}
	if (!std)
		rc = file_write(path, all.s ? all.s : "", all.len, e);
	str_release(&all);
	return rc;
}
