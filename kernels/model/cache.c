#include "kernels/model/cache.h"

#include "kernels/model/moe.h"
#include "libcommon/xalloc.h"

#include <stdlib.h>
#include <string.h>

struct cache {
	struct model *m;
	size_t page;                    /* bytes of a block in one layer */
	long blocks, nfree;
	char **layer;                   /* [layers]: all blocks of that layer */
	int *refs, *free_list;
	long max_rows, max_want;
	/* one pass over rows */
	char *memory, *x[2];
	struct acts acts;
	struct tp tp;           /* every rank has all rows, heads of its own, and in the end all logits */
	void *hidden, *head_x;
	float *z, *local_z, *stage_z;   /* [max_want, V] logits; with TP, of this rank's columns, and on their way */
	int *id, *position, *wanted;
	struct kv_row *row;
	void **page_of;                 /* page tables of all sequences in the call */
	long npage, page_cap;
	int *experts;                   /* borrowed: cache_note_experts() */
};

size_t cache_block_bytes(const struct model *m)
{
	return m->k->kv_page_bytes(&m->attention, m->t) * (size_t)m->table.config.layers;
}

/* What one pass over rows needs.  With memory NULL it only counts. */
static size_t carve(struct cache *c, const struct model *m, long max_rows, long max_want, char *memory)
{
	size_t h = line_up((size_t)(max_rows * m->table.config.hidden) * dtype_size(m->t)), at;
	size_t z = line_up((size_t)(max_want * m->table.config.vocab) * 4), cut = m->mesh->tp.size > 1 ? z : 0;
	size_t acts = acts_carve(memory ? &c->acts : NULL, m, max_rows, max_rows, false, memory ? memory + 4 * h : NULL);

	at = 4 * h + acts;
	if (memory) {
		c->x[0] = memory;
		c->x[1] = memory + h;
		c->hidden = memory + 2 * h;
		c->head_x = memory + 3 * h;
		c->z = (float *)(void *)(memory + at);
		c->local_z = cut ? (float *)(void *)(memory + at + z) : c->z;
		c->stage_z = (float *)(void *)(memory + at + z + cut);
	}
	at += z + 2 * cut;
	return at + tp_carve(memory ? &c->tp : NULL, m, max_rows, false, memory ? memory + at : NULL);
}

size_t cache_bytes(const struct model *m, long blocks, long max_rows, long max_want)
{
	return cache_block_bytes(m) * (size_t)blocks + carve(NULL, m, max_rows, max_want, NULL) + moe_bytes(m, max_rows);
}

struct cache *cache_new(struct model *m, long blocks, long max_rows, long max_want)
{
	struct cache *c = xcalloc(1, sizeof(*c));

	if (m->mesh->pp.size > 1)
		bug("a cache on one of %d pipeline stages", m->mesh->pp.size);
	c->m = m;
	c->page = m->k->kv_page_bytes(&m->attention, m->t);
	c->blocks = c->nfree = blocks;
	c->max_rows = max_rows;
	c->max_want = max_want;
	c->layer = xcalloc((size_t)m->here.layers, sizeof(*c->layer));
	for (long i = 0; i < m->here.layers; i++)
		c->layer[i] = m->k->alloc(c->page * (size_t)blocks, "the KV cache");
	c->refs = xcalloc((size_t)blocks, sizeof(int));
	c->free_list = xmalloc((size_t)blocks * sizeof(int));
	for (long i = 0; i < blocks; i++)
		c->free_list[i] = (int)(blocks - 1 - i);
	tp_init(&c->tp, m, false);
	c->memory = m->k->alloc(carve(c, m, max_rows, max_want, NULL), "activations");
	carve(c, m, max_rows, max_want, c->memory);
	c->id = xmalloc((size_t)max_rows * sizeof(int));
	c->position = xmalloc((size_t)max_rows * sizeof(int));
	c->wanted = xmalloc((size_t)max_rows * sizeof(int));
	c->row = xmalloc((size_t)max_rows * sizeof(*c->row));
	return c;
}

void cache_free(struct cache *c)
{
	for (long i = 0; i < c->m->table.config.layers; i++)
		c->m->k->release(c->layer[i]);
	c->m->k->release(c->memory);
	tp_release(&c->tp);
	free(c->layer);
	free(c->refs);
	free(c->free_list);
	free(c->id);
	free(c->position);
	free(c->wanted);
	free(c->row);
	free(c->page_of);
	free(c);
}

long cache_free_blocks(const struct cache *c)
{
	return c->nfree;
}

static int block_take(struct cache *c)
{
	int b = c->free_list[--c->nfree];

	c->refs[b] = 1;
	return b;
}

static void block_add(struct cached *s, int b)
{
	GROW(s->block, s->blocks, s->cap);
	s->block[s->blocks++] = b;
}

bool cache_reserve(struct cache *c, struct cached *s, long positions)
{
	long want = (positions + ATTENTION_TILE - 1) / ATTENTION_TILE;

	if (want - s->blocks > c->nfree)
		return false;
	while (s->blocks < want)
		block_add(s, block_take(c));
	return true;
}

bool cache_fork(struct cache *c, struct cached *child, const struct cached *parent, long length)
{
	long full = length / ATTENTION_TILE, layers = c->m->table.config.layers;

	if (length % ATTENTION_TILE && !c->nfree)
		return false;
	for (long i = 0; i < full; i++) {
		c->refs[parent->block[i]]++;
		block_add(child, parent->block[i]);
	}
	if (length % ATTENTION_TILE) {
		size_t to = (size_t)block_take(c), from = (size_t)parent->block[full];

		for (long l = 0; l < layers; l++)
			c->m->k->copy(c->layer[l] + to * c->page, c->layer[l] + from * c->page, c->page);
		block_add(child, (int)to);
	}
	return true;
}

void cache_drop(struct cache *c, struct cached *s)
{
	for (long i = s->blocks - 1; i >= 0; i--)
		if (--c->refs[s->block[i]] == 0)
			c->free_list[c->nfree++] = s->block[i];
	free(s->block);
	memset(s, 0, sizeof(*s));
}

/* Page tables of one layer: those of layer 0, moved by the distance of the layers. */
static void point_pages(struct cache *c, const struct cache_row *row, long n, long layer)
{
	long used = 0;

	for (long i = 0; i < n; i++) {
		const struct cached *s = row[i].seq;

		if (i && row[i - 1].seq == s) {
			c->row[i].page = c->row[i - 1].page;
			continue;
		}
		for (long b = 0; b < s->blocks; b++)
			c->page_of[used + b] = c->layer[layer] + (size_t)s->block[b] * c->page;
		c->row[i].page = c->page_of + used;
		used += s->blocks;
	}
}

static void take_rows(struct cache *c, const struct cache_row *row, long n)
{
	long pages = 0, wanted = 0;

	if (n > c->max_rows)
		bug("%ld rows, room for %ld", n, c->max_rows);
	for (long i = 0; i < n; i++) {
		if (row[i].position / ATTENTION_TILE >= row[i].seq->blocks || row[i].position >= c->m->positions)
			bug("position %ld of a sequence with %ld blocks", row[i].position, row[i].seq->blocks);
		wanted += row[i].want;
		c->id[i] = row[i].id;
		c->position[i] = (int)row[i].position;
		c->row[i].position = row[i].position;
		if (!i || row[i - 1].seq != row[i].seq)
			pages += row[i].seq->blocks;
	}
	if (wanted > c->max_want)
		bug("%ld rows of logits, room for %ld", wanted, c->max_want);
	if (pages > c->page_cap) {
		c->page_cap = pages * 2;
		c->page_of = xrealloc_array(c->page_of, (size_t)c->page_cap, sizeof(*c->page_of));
	}
}

static const float *wanted_logits(struct cache *c, const struct cache_row *row, long n)
{
	const struct model *m = c->m;
	size_t bytes = (size_t)m->table.config.hidden * dtype_size(m->t);
	long wanted = 0;

	for (long i = 0; i < n; i++)
		if (row[i].want)
			c->wanted[wanted++] = (int)i;
	m->k->rows_gather(c->head_x, c->hidden, c->wanted, wanted, bytes);
	if (wanted && m->here.vocab)
		m->k->linear_fwd(c->local_z, DTYPE_F32, c->head_x, &model_head(m)->matrix, NULL, wanted);
	return wanted ? tp_logits(&c->tp, c->z, c->local_z, c->stage_z, wanted) : c->z;
}

void cache_note_experts(struct cache *c, int *experts)
{
	c->experts = experts;
}

const float *cache_extend(struct cache *c, const struct cache_row *row, long n)
{
	struct model *m = c->m;
	const struct model_config *cfg = &m->table.config;
	struct acts *a = &c->acts;

	take_rows(c, row, n);
	tp_rows(&c->tp, n);
	tp_embed(&c->tp, c->x[0], model_weight(m, PARAM_EMBED, -1), c->id);
	moe_give(m, NULL, c->experts);
	for (long i = 0; i < cfg->layers; i++) {
		const struct layer *l = m->layer + i;

		a->x = c->x[i % 2];
		layer_before(m, l, a, &c->tp, c->position, false);
		point_pages(c, row, n, i);
		m->k->kv_put(c->row, a->k, a->v, n, &m->attention, m->t);
		m->k->attention_cached(a->att, a->q, c->row, n, &m->attention, m->t);
		layer_after(m, l, a, &c->tp, c->x[(i + 1) % 2], false);
	}
	m->k->rmsnorm_fwd(c->hidden, NULL, c->x[cfg->layers % 2], model_weight(m, PARAM_FINAL_NORM, -1)->value, n, cfg->hidden,
			  (float)cfg->rms_eps, m->t);
	return wanted_logits(c, row, n);
}
