#include "tools/rollout/generate.h"

#include "libcommon/xalloc.h"
#include "tools/rollout/batch.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MEET_EVERY = 256 };      /* steps */

struct step {                   /* rows of one step, and what is drawn from their logits */
	struct cache_row *row;
	long rows, cap, chunk;
	int *experts, **to;             /* of each row, and where they are kept; NULL: they are not wanted */
	struct sample_row *how;
	int *id;
	float *lp;
};

static struct sample_row draw_of(const struct batch_state *b, long prompt, long sample, long position)
{
	const struct gen_how *h = b->h;
	const struct gen_prompt *p = b->p + prompt;

	return (struct sample_row){ .u = rng_uniform(p->key, p->id, (uint32_t)sample, (uint32_t)position),
				    .temperature = h->temperature, .top_p = h->top_p, .min_p = h->min_p, .top_k = h->top_k };
}

static void append(struct gen_result *r, int id, float lp, long experts)
{
	if (r->n == r->cap) {
		r->cap = r->cap ? r->cap * 2 : 32;
		r->ids = xrealloc_array(r->ids, (size_t)r->cap, sizeof(*r->ids));
		r->logprobs = xrealloc_array(r->logprobs, (size_t)r->cap, sizeof(*r->logprobs));
		if (experts)
			r->experts = xrealloc_array(r->experts, (size_t)r->cap, (size_t)experts * sizeof(int));
	}
	for (long i = 0; i < experts; i++)
		r->experts[r->n * experts + i] = -1;
	r->ids[r->n] = id;
	r->logprobs[r->n++] = lp;
}

/* A token for r; how it ended, or FINISH_NONE.  An end token wins over every limit that it meets. */
static enum finish accept(struct gen_result *r, const struct batch_state *b, long prompt_length, int id, float lp)
{
	const struct gen_how *h = b->h;
	size_t cut;

	if (id < 0 || isnan(lp))
		return FINISH_NONFINITE;
	append(r, id, lp, b->experts);
	if (stop_is_id(&h->stop, id))
		return FINISH_STOP;
	if (stop_text_add(&r->text, &cut, &h->stop, id)) {
		r->cut = (long)cut;
		return FINISH_STOP_STRING;
	}
	if (r->n < response_budget(h, prompt_length))
		return FINISH_NONE;
	return r->n == h->max_new ? FINISH_LENGTH : FINISH_CONTEXT;
}

/* Hand a drawn token to a living sequence; false when that was its last. */
static bool go_on(struct batch_state *b, struct live *l, int id, float lp)
{
	l->r->finish = accept(l->r, b, b->p[l->prompt].length, id, lp);
	b->tokens += id >= 0;
	if (l->r->finish == FINISH_NONE)
		return true;
	stop_text_release(&l->r->text);
	drop_sample(b, l);
	b->finished++;
	return false;
}

/* One row of each living sequence, then prompts, oldest first, as far as the chunk goes. */
static void gather(struct step *s, struct batch_state *b)
{
	s->rows = 0;
	for (long i = 0; i < b->lives; i++) {
		struct live *l = b->live + i;

		if (s->to)
			s->to[s->rows] = l->r->experts + (l->r->n - 1) * b->experts;
		s->row[s->rows++] = (struct cache_row){ &l->seq, l->r->ids[l->r->n - 1],
							b->p[l->prompt].length + l->r->n - 1, true };
	}
	for (long i = 0, left = s->chunk; i < b->groups && left; i++) {
		struct group *g = b->group + i;
		const struct gen_prompt *p = b->p + g->prompt;

		for (; left && g->run < p->length; left--, g->run++) {
			if (s->to)
				s->to[s->rows] = g->experts + g->run * b->experts;
			s->row[s->rows++] = (struct cache_row){ &g->prefix, p->ids[g->run], g->run, g->run + 1 == p->length };
		}
	}
}

/* Keep the last logits of prompts that are whole now; they follow those of the living. */
static void keep_logits(struct batch_state *b, const float *z)
{
	size_t vocab = (size_t)b->m->table.config.vocab;

	for (long i = 0; i < b->groups; i++) {
		struct group *g = b->group + i;

		if (g->logits || g->run < b->p[g->prompt].length)
			continue;
		g->logits = b->m->k->alloc(vocab * sizeof(float), "logits of a prompt");
		b->m->k->copy(g->logits, z, vocab * sizeof(float));
		z += vocab;
	}
}

/* Backwards, because a sequence that ends gives its place to the last one. */
static void draw_living(struct step *s, struct batch_state *b, const float *z, long n)
{
	for (long i = 0; i < n; i++) {
		struct live *l = b->live + i;

		s->how[i] = draw_of(b, l->prompt, l->sample, b->p[l->prompt].length + l->r->n);
	}
	b->m->k->sample(s->id, s->lp, z, s->how, b->h->allowed, n, b->m->table.config.vocab);
	for (long i = n - 1; i >= 0; i--)
		go_on(b, b->live + i, s->id[i], s->lp[i]);
}

/* First tokens, from the logits that a group shares.  Where the oldest has to wait, the others wait behind it. */
static void start_samples(struct batch_state *b)
{
	for (long i = 0; i < b->groups;) {
		struct group *g = b->group + i;
		struct live *l;
		struct sample_row how;
		int id;
		float lp;

		if (!g->logits) {
			i++;
			continue;
		}
		l = start_sample(b, g);
		if (!l)
			return;
		how = draw_of(b, l->prompt, l->sample, b->p[l->prompt].length);
		b->m->k->sample(&id, &lp, g->logits, &how, b->h->allowed, 1, b->m->table.config.vocab);
		go_on(b, l, id, lp);
		if (g->started == b->h->samples)
			group_end(b, g);
	}
}

static bool is_busy(const struct batch_state *b)
{
	return b->next < b->n || b->groups || b->lives;
}

static bool all_take_part(const struct batch_state *b)
{
	return b->m->mesh->ep.size * b->m->mesh->etp.size > 1;
}

/*
 * Ranks meet now and then, so that one with nothing left does not wait for the whole rollout of another at once, which
 * would look like a rank that hangs; where experts lie over data-parallel ranks they meet before every step, in which all take part.
 */
static bool goes_on(struct batch_state *b)
{
	struct comm *stage = &b->m->mesh->stage;
	float busy = is_busy(b);

	if (stage->size == 1)
		return is_busy(b);
	if (b->meetings++ % (all_take_part(b) ? 1 : MEET_EVERY))
		return true;
	comm_max_f32(stage, &busy, 1);
	return busy > 0;
}

static void run_step(struct step *s, struct batch_state *b)
{
	long living = b->lives;
	const float *z;

	admit_groups(b);
	gather(s, b);
	if (!s->rows && is_busy(b))
		bug("%ld prompts wait and nothing can run", b->n - b->next + b->groups);
	z = cache_extend(b->cache, s->row, s->rows);
	for (long i = 0; s->to && i < s->rows; i++)
		memcpy(s->to[i], s->experts + i * b->experts, (size_t)b->experts * sizeof(int));
	keep_logits(b, z + living * b->m->table.config.vocab);
	draw_living(s, b, z, living);
	start_samples(b);
}

static void step_init(struct step *s, struct batch_state *b, const struct gen_size *size)
{
	size_t rows = (size_t)(size->slots + size->chunk);

	if (b->experts) {
		s->experts = xmalloc(rows * (size_t)b->experts * sizeof(*s->experts));
		s->to = xmalloc(rows * sizeof(*s->to));
		cache_note_experts(b->cache, s->experts);
	}
	s->chunk = size->chunk;
	s->row = xmalloc((size_t)(size->slots + size->chunk) * sizeof(*s->row));
	s->how = xmalloc((size_t)size->slots * sizeof(*s->how));
	s->id = xmalloc((size_t)size->slots * sizeof(*s->id));
	s->lp = xmalloc((size_t)size->slots * sizeof(*s->lp));
}

static void step_release(struct step *s)
{
	free(s->experts);
	free(s->to);
	free(s->row);
	free(s->how);
	free(s->id);
	free(s->lp);
}

void generate(struct gen_result *out, struct model *m, const struct gen_prompt *p, long n, const struct gen_how *h,
	      const struct gen_size *size, gen_tick *tick, void *arg)
{
	struct batch_state b = { .m = m, .p = p, .n = n, .h = h, .out = out, .slots = size->slots,
				 .experts = h->experts ? model_experts_per_row(m) : 0 };
	struct step s = { 0 };

	for (long i = 0; i < n * h->samples; i++)
		out[i].cut = -1;
	if (!goes_on(&b))
		return;
	if (n && size->blocks < gen_least_blocks(p, n, h))
		bug("%ld blocks, wanted %ld", size->blocks, gen_least_blocks(p, n, h));
	b.cache = cache_new(m, size->blocks, size->slots + size->chunk, size->slots);
	b.group = xcalloc((size_t)size->slots, sizeof(*b.group));
	b.live = xcalloc((size_t)size->slots, sizeof(*b.live));
	step_init(&s, &b, size);
	while (goes_on(&b)) {
		if (is_busy(&b) || all_take_part(&b))
			run_step(&s, &b);
		if (tick)
			tick(arg, b.finished, b.tokens);
	}
	if (b.promised || cache_free_blocks(b.cache) != size->blocks)
		bug("%ld blocks never came back, %ld promised", size->blocks - cache_free_blocks(b.cache), b.promised);
	cache_free(b.cache);
	free(b.group);
	free(b.live);
	step_release(&s);
}

void gen_results_release(struct gen_result *r, long n)
{
	for (long i = 0; i < n; i++) {
		free(r[i].ids);
		free(r[i].logprobs);
		free(r[i].experts);
		free(r[i].prompt_experts);
		stop_text_release(&r[i].text);
	}
}
