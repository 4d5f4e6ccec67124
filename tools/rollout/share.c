#include "libcommon/xalloc.h"
#include "tools/rollout/rollout.h"

#include <stdlib.h>
#include <string.h>

void share_prompts(struct rollout *o)
{
	long dp = o->mesh.layout.dp;

	o->mine = xcalloc((size_t)o->prompts.n + 1, sizeof(*o->mine));
	for (long i = o->mesh.at.dp; i < o->prompts.n; i += dp)
		o->mine[o->mines++] = o->prompts.gen[i];
}

struct gen_result *share_room(const struct rollout *o)
{
	return xcalloc((size_t)(o->mines * o->how.samples) + 1, sizeof(struct gen_result));
}

/* What of a result is looked at once it is there. */
struct head { long n, cut; enum finish finish; long experts, prompt_experts; };

/* per: experts of a token that were written down; prompt: its tokens, for the first of its samples, else 0. */
static void pack(struct str *out, const struct gen_result *r, long per, long prompt)
{
	struct head h = { r->n, r->cut, r->finish, r->n * per, prompt * per };

	str_add(out, (const char *)&h, sizeof(h));
	str_add(out, (const char *)r->ids, (size_t)r->n * sizeof(*r->ids));
	str_add(out, (const char *)r->logprobs, (size_t)r->n * sizeof(*r->logprobs));
	str_add(out, (const char *)r->experts, (size_t)h.experts * sizeof(*r->experts));
	str_add(out, (const char *)r->prompt_experts, (size_t)h.prompt_experts * sizeof(*r->prompt_experts));
}

static const char *take(int **out, const char *at, long n)
{
	size_t bytes = (size_t)n * sizeof(**out);

	*out = n ? xmalloc(bytes) : NULL;
	if (n)
		memcpy(*out, at, bytes);
	return at + bytes;
}

static const char *unpack(struct gen_result *r, const char *at)
{
	struct head h;
	size_t ids, lp;

	memcpy(&h, at, sizeof(h));
	at += sizeof(h);
	ids = (size_t)h.n * sizeof(*r->ids);
	lp = (size_t)h.n * sizeof(*r->logprobs);
	*r = (struct gen_result){ .n = h.n, .cap = h.n, .cut = h.cut, .finish = h.finish };
	r->ids = xmalloc(ids + 1);
	r->logprobs = xmalloc(lp + 1);
	memcpy(r->ids, at, ids);
	memcpy(r->logprobs, at + ids, lp);
	at = take(&r->experts, at + ids + lp, h.experts);
	return take(&r->prompt_experts, at, h.prompt_experts);
}

void share_results(struct rollout *o, struct gen_result *own)
{
	struct comm *dp = &o->mesh.dp;
	long samples = o->how.samples, per = o->how.experts ? model_experts_per_row(&o->m) : 0;
	size_t *bytes, all = 0;
	struct str mine = { 0 };
	const char *at;
	char *got;

	if (dp->size == 1) {
		o->result = own;
		return;
	}
	for (long i = 0; i < o->mines * samples; i++)
		pack(&mine, own + i, per, i % samples ? 0 : o->mine[i / samples].length);
	bytes = xcalloc((size_t)dp->size, sizeof(*bytes));
	comm_gather(dp, bytes, &mine.len, sizeof(*bytes));
	for (int r = 0; r < dp->size; r++)
		all += bytes[r];
	at = got = xmalloc(all + 1);
	comm_gather_v(dp, got, mine.s, bytes);
	o->result = xcalloc((size_t)(o->prompts.n * samples) + 1, sizeof(*o->result));
	for (long r = 0; r < dp->size; r++)
		for (long p = r; p < o->prompts.n; p += dp->size)
			for (long s = 0; s < samples; s++)
				at = unpack(o->result + p * samples + s, at);
	gen_results_release(own, o->mines * samples);
	free(own);
	free(got);
	free(bytes);
	str_release(&mine);
}
