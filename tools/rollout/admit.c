#include "tools/rollout/batch.h"

#include "libcommon/xalloc.h"

#include <stdlib.h>
#include <string.h>

static long blocks_of(long positions)
{
	return (positions + ATTENTION_TILE - 1) / ATTENTION_TILE;
}

long response_budget(const struct gen_how *h, long length)
{
	long left = h->context - length;

	return h->max_new < left ? h->max_new : left;
}

/* The last token of a response is never run. */
static long whole_blocks(const struct gen_how *h, long length)
{
	return blocks_of(length + response_budget(h, length) - 1);
}

/* What the next sample takes: the last one of a group takes over the prompt's own blocks, others share the full ones. */
static long sample_blocks(const struct gen_how *h, long length, long left)
{
	return whole_blocks(h, length) - (left > 1 ? length / ATTENTION_TILE : blocks_of(length));
}

long admission_blocks(const struct gen_how *h, long length)
{
	return blocks_of(length) + sample_blocks(h, length, h->samples);
}

long gen_least_blocks(const struct gen_prompt *p, long n, const struct gen_how *h)
{
	long most = 0;

	for (long i = 0; i < n; i++) {
		long need = admission_blocks(h, p[i].length);

		most = need > most ? need : most;
	}
	return most;
}

static long least(long a, long b)
{
	return a < b ? a : b;
}

void gen_fit(struct gen_size *s, const struct gen_prompt *p, long n, const struct gen_how *h)
{
	long rows = 0, whole = 0, prefix = 0, use;

	for (long i = 0; i < n; i++) {
		long w = whole_blocks(h, p[i].length);

		rows += p[i].length;
		whole = w > whole ? w : whole;
		prefix = blocks_of(p[i].length) > prefix ? blocks_of(p[i].length) : prefix;
	}
	s->slots = least(s->slots, n * h->samples);
	s->chunk = least(s->chunk, rows);
	/* Every slot at its longest, and the prompts of as many groups as there can be beside them. */
	use = s->slots * whole + (h->samples > 1 ? least(s->slots, n) * prefix : 0);
	if (!s->blocks || s->blocks > use)
		s->blocks = use;
}

static void promise(struct batch_state *b, struct group *g, long blocks)
{
	b->promised += blocks - g->promised;
	g->promised = blocks;
}

static long group_needs(const struct batch_state *b, const struct group *g)
{
	return sample_blocks(b->h, b->p[g->prompt].length, b->h->samples - g->started);
}

static long samples_waiting(const struct batch_state *b)
{
	long n = 0;

	for (long i = 0; i < b->groups; i++)
		n += b->h->samples - b->group[i].started;
	return n;
}

void admit_groups(struct batch_state *b)
{
	while (b->next < b->n && b->groups < b->slots && b->lives + samples_waiting(b) < b->slots) {
		struct group g = { .prompt = b->next };
		long length = b->p[g.prompt].length;

		if (cache_free_blocks(b->cache) - b->promised < admission_blocks(b->h, length))
			return;
		if (!cache_reserve(b->cache, &g.prefix, length))
			bug("%ld free blocks, none for %ld positions", cache_free_blocks(b->cache), length);
		promise(b, &g, group_needs(b, &g));
		if (b->experts)
			g.experts = xmalloc((size_t)(length * b->experts) * sizeof(int));
		b->group[b->groups++] = g;
		b->next++;
	}
}

static void take_blocks(struct batch_state *b, struct live *l, struct group *g)
{
	long length = b->p[g->prompt].length, last = g->started + 1 == b->h->samples;

	if (last) {
		l->seq = g->prefix;
		memset(&g->prefix, 0, sizeof(g->prefix));
	} else if (!cache_fork(b->cache, &l->seq, &g->prefix, length)) {
		bug("no block to share a prompt of %ld tokens", length);
	}
	if (!cache_reserve(b->cache, &l->seq, length + response_budget(b->h, length) - 1))
		bug("no blocks for a sample of a prompt of %ld tokens", length);
}

struct live *start_sample(struct batch_state *b, struct group *g)
{
	long need = group_needs(b, g), spare = cache_free_blocks(b->cache) - b->promised;
	struct live *l = b->live + b->lives;

	if (b->lives == b->slots || (spare < need && g->promised < need))
		return NULL;
	if (spare < need)
		promise(b, g, 0);
	*l = (struct live){ .prompt = g->prompt, .sample = g->started,
			    .r = b->out + g->prompt * b->h->samples + g->started };
	if (!g->started) {
		l->r->prompt_experts = g->experts;
		g->experts = NULL;
	}
	take_blocks(b, l, g);
	b->lives++;
	g->started++;
	if (g->started == b->h->samples || g->promised > group_needs(b, g))
		promise(b, g, g->started == b->h->samples ? 0 : group_needs(b, g));
	return l;
}

void group_end(struct batch_state *b, struct group *g)
{
	long i = g - b->group;

	promise(b, g, 0);
	cache_drop(b->cache, &g->prefix);
	b->m->k->release(g->logits);
	free(g->experts);
	memmove(g, g + 1, (size_t)(b->groups - i - 1) * sizeof(*g));
	b->groups--;
}

void drop_sample(struct batch_state *b, struct live *l)
{
	cache_drop(b->cache, &l->seq);
	for (long i = 0; i < b->groups; i++) {
		struct group *g = b->group + i;

		if (g->prompt == l->prompt && g->started < b->h->samples && !g->promised)
			promise(b, g, group_needs(b, g));
	}
	*l = b->live[--b->lives];
}
