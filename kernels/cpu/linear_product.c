#include "kernels/cpu/linear_kernel.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/scratch.h"
#include "libcommon/pool.h"
#include "libcommon/xalloc.h"

/* Only speed depends on these. */
enum {
	MANY_STEPS = 128,       /* steps of a panel that all row tiles take in turn: 24 KiB, in L1 */
	FEW_STEPS = 72,         /* the same for few rows, beside which the next piece is fetched */
	OUTER_STEPS = 1024,     /* bounds the part of x that a thread keeps in L2 */
	X_WORDS = 1 << 16,      /* ... with the rows of a block */
	AHEAD = 8192,           /* bytes to fetch ahead where a panel is read once */
	TILE_PAD = 64           /* keeps tiles of a packed x out of each other's cache sets */
};

struct grid {
	const struct product *p;
	long chunk_k, chunk_steps;
	long rows, blocks, groups, panels; /* rows of a block; blocks of rows; groups of panels */
};

/* Chunks c0 .. c1-1, and of each the steps s0 .. s1-1; more than one chunk only if whole. */
struct piece {
	long c0, c1, s0, s1;
};

/* Where the tiles find x for a piece. */
struct view {
	const char *p;
	long rs, ks;	    /* bytes from row to row, step to step, */
	long tile, element; /* tile to tile, k to k */
};

static long least(long a, long b)
{
	return a < b ? a : b;
}

static long up(long a, long b)
{
	return (a + b - 1) / b;
}

static bool next_piece(const struct grid *g, struct piece *q)
{
	if (q->c1 && q->s1 < g->chunk_steps) {
		q->s0 = q->s1;
		q->s1 = least(q->s0 + OUTER_STEPS, g->chunk_steps);
		return true;
	}
	if (q->c1 == g->p->chunks)
		return false;
	q->c0 = q->c1;
	q->c1 = least(q->c0 + (g->chunk_steps < OUTER_STEPS ? OUTER_STEPS / g->chunk_steps : 1),
		      g->p->chunks);
	q->s0 = 0;
	q->s1 = least(OUTER_STEPS, g->chunk_steps);
	return true;
}

/* The rows of a transposed x in tiles [step][TILE] of words, or of floats for one k after the
 * other. */
static void pack_across(char *d, const struct product *p, long m0, long rows, long k0, long k1,
			bool wide)
{
	long size = (long)dtype_size(p->t), step = TILE * 4, tile = (k1 - k0) * step + TILE_PAD;

	if (!wide && p->t == DTYPE_BF16) {
		pack_tiles((uint32_t *)(void *)d, (up(k1 - k0, 2) * step + TILE_PAD) / 4,
			   (const uint16_t *)(const void *)p->x + k0 * p->ldx + m0, p->ldx, rows, k1 - k0);
		return;
	}
	for (long i = 0; i < rows; i += TILE) {
		const char *s = p->x + (k0 * p->ldx + m0 + i) * size;
		long n = least(TILE, rows - i);

		if (!wide) {
			pack_columns((uint32_t *)(void *)(d + i / TILE * tile), TILE, s, p->ldx, n,
				     k1 - k0, p->t);
			continue;
		}
		for (long k = 0; k < k1 - k0; k++)
			for (long l = 0; l < n; l++)
				((float *)(void *)(d + i / TILE * tile + k * step))[l] =
					bf16_to_f32(((const uint16_t *)(const void *)s)[k * p->ldx + l]);
	}
}

static struct view view_of(const struct grid *g, const struct piece *q, long m0, long rows,
			   int thread)
{
	const struct product *p = g->p;
	long size = (long)dtype_size(p->t), per = p->t == DTYPE_BF16 ? 2 : 1;
	long k0 = q->c0 * g->chunk_k + q->s0 * per;
	long k1 = q->s1 == g->chunk_steps ? q->c1 * g->chunk_k : q->c0 * g->chunk_k + q->s1 * per;
	bool wide = p->t == DTYPE_BF16 && !p->kernel->pairs;
	const char *x = p->x + (m0 * p->ldx + k0) * size;
	struct view v = { x, p->ldx * size, per * size, TILE * p->ldx * size, size };
	long steps = wide ? k1 - k0 : steps_of(k1 - k0, p->t);

	if (p->across) {
		char *d = scratch(SCRATCH_X, thread,
				  (size_t)(up(rows, TILE) * (steps * TILE * 4 + TILE_PAD)));

		pack_across(d, p, m0, rows, k0, k1, wide);
		return (struct view){ d, 4, TILE * 4 * (wide ? 2 : 1), steps * TILE * 4 + TILE_PAD,
				      p->t == DTYPE_BF16 && !wide ? TILE * 2 : TILE * 4 };
	}
	if (wide) {
		float *d = scratch(SCRATCH_X, thread, (size_t)(rows * (k1 - k0)) * 4);

		for (long i = 0; i < rows; i++)
			p->kernel->widen(d + i * (k1 - k0), (const void *)(x + i * p->ldx * size),
					 k1 - k0);
		return (struct view){ (const char *)d, (k1 - k0) * 4, 8, TILE * (k1 - k0) * 4, 4 };
	}
	return v;
}

/* Steps s0 .. s1-1 of chunk c for one panel and all rows of the block; w is the chunk of the
 * panel. */
static void panel_steps(const struct grid *g, const struct piece *q, const struct view *v, long c,
			const uint32_t *w, int width, float *y, long ldy, long rows)
{
	const struct product *p = g->p;
	long tiles = up(rows, TILE), all = q->s1 - q->s0, per = p->t == DTYPE_BF16 ? 2 : 1;
	long block = tiles == 1 ? all : up(all, up(all, rows <= 8 * TILE ? FEW_STEPS : MANY_STEPS));
	void (*tile)(const struct tile_args *) =
		p->t == DTYPE_BF16 ? p->kernel->tile_bf16 : p->kernel->tile_f32;
	/* k of the chunk's start within the view */
	long base = (c - q->c0) * g->chunk_k - q->s0 * per;

	for (long s = q->s0; s < q->s1; s += block) {
		long steps = least(block, q->s1 - s), bytes = 4 * width * steps;
		int odd = per == 2 && (g->chunk_k & 1) && s + steps == g->chunk_steps;
		struct tile_args a = { .ldy = ldy,
				       .rs = v->rs,
				       .ks = v->ks,
				       .w = w + s * width,
				       .ldw = width,
				       .steps = steps - odd,
				       .odd = odd,
				       .cols = width,
				       .zero = s == 0 && p->how != PRODUCT_CONTINUE,
				       .by = rows == 1 ? 0 : 4 * width / tiles };

		for (long i = 0; i < tiles; i++) {
			a.y = y + i * TILE * ldy;
			a.x = v->p + i * v->tile + (base + s * per) * v->element;
			a.rows = (int)least(TILE, rows - i * TILE);
			a.ahead = (const char *)a.w +
				  (tiles == 1 ? AHEAD : bytes + i * bytes / tiles);
			tile(&a);
		}
	}
}

/* The fixed tree as a stack: chunk c stands at depth popcount(c), and ends every subtree that
 * its trailing ones say. */
static void join_chunks(const struct product *p, float *stack, long depth, long c, long ldy,
			long rows, int width)
{
	long d = __builtin_popcountl((unsigned long)c);
	bool last = c + 1 == p->chunks;

	for (long bit = 1; d > 0 && (last || c & bit); bit *= 2, d--)
		for (long i = 0; i < rows; i++)
			p->kernel->join(stack + (d - 1) * depth + i * ldy,
					stack + d * depth + i * ldy, width);
}

static void start_panel(const struct product *p, float *acc, long ldy, long m0, long rows, long n0,
			long cols)
{
	const float *y = (const float *)(const void *)p->y + m0 * p->ldy + n0;

	for (long i = 0; i < rows; i++)
		memcpy(acc + i * ldy, y + i * p->ldy, (size_t)cols * 4);
}

static void finish_panel(const struct product *p, const float *acc, long ldy, long m0, long rows,
			 long n0, long cols)
{
	long size = (long)dtype_size(p->ty);
	const char *bias = p->bias ? p->bias + n0 * (long)dtype_size(p->t) : NULL;

	for (long i = 0; i < rows; i++)
		p->kernel->finish(p->y + ((m0 + i) * p->ldy + n0) * size, p->ty, acc + i * ldy,
				  bias, p->t, cols, p->how == PRODUCT_ADD);
}

/* Sums that continue in fp32 are kept where they are: whole lines of one chain, nothing to round or to join. */
static bool in_place(const struct product *p, long cols)
{
	return p->how == PRODUCT_CONTINUE && p->chunks == 1 && !p->bias && cols % LINE == 0;
}

static void product_part(void *arg, long part, int thread)
{
	const struct grid *g = arg;
	const struct product *p = g->p;
	long m0 = part % g->blocks * g->rows, rows = least(g->rows, p->m - m0),
	     group = part / g->blocks;
	long j0 = g->panels * group / g->groups, j1 = g->panels * (group + 1) / g->groups;
	long all = (p->panel_chunks ? p->panel_chunks : p->chunks) * g->chunk_steps,
	     levels = 64 - __builtin_clzl((unsigned long)p->chunks);
	bool once = g->chunk_steps <= OUTER_STEPS && p->chunks <= OUTER_STEPS / g->chunk_steps;
	long ldy = once ? PANEL : (j1 - j0) * PANEL, depth = rows * ldy;
	float *y = scratch(SCRATCH_Y, thread, (size_t)(levels * depth) * 4);
	struct piece q = { 0, 0, 0, 0 };

	while (next_piece(g, &q)) {
		struct view v = view_of(g, &q, m0, rows, thread);

		for (long j = j0; j < j1; j++) {
			int width = panel_width(p->n, j);
			long cols = least(PANEL, p->n - j * PANEL);
			bool here = in_place(p, cols);
			float *stack = here ? (float *)(void *)p->y + m0 * p->ldy + j * PANEL
					    : y + (once ? 0 : (j - j0) * PANEL);
			long ld = here ? p->ldy : ldy;

			if (p->how == PRODUCT_CONTINUE && !here && !q.c0 && !q.s0)
				start_panel(p, stack, ldy, m0, rows, j * PANEL, cols);
			for (long c = q.c0; c < q.c1; c++) {
				panel_steps(g, &q, &v, c,
					    p->w + j * PANEL * all + (p->skip + c) * g->chunk_steps * width,
					    width,
					    stack + __builtin_popcountl((unsigned long)c) * depth,
					    ld, rows);
				if (q.s1 == g->chunk_steps)
					join_chunks(p, stack, depth, c, ldy, rows, width);
			}
			if (!here && q.c1 == p->chunks && q.s1 == g->chunk_steps)
				finish_panel(p, stack, ldy, m0, rows, j * PANEL, cols);
		}
	}
}

/* Groups of panels for so many blocks of rows: enough parts to be dealt evenly, none of them
 * idle at the end. */
static long groups_for(long panels, long blocks, long threads)
{
	long best = 1, cost = 0;

	for (long n = 1; n <= panels && n * blocks <= 4 * threads; n++) {
		long now = up(panels, n) * up(n * blocks, threads);

		if (n == 1 || now <= cost) {
			best = n;
			cost = now;
		}
	}
	return best;
}

/* false: nothing to do.  threads: of those that it has to itself. */
static bool grid_of(struct grid *g, const struct product *p, long threads)
{
	long most;

	if (p->m <= 0 || p->n <= 0)
		return false;
	*g = (struct grid){ .p = p, .chunk_k = p->k / p->chunks, .panels = up(p->n, PANEL) };
	g->chunk_steps = steps_of(g->chunk_k, p->t);
	most = X_WORDS / least(g->chunk_steps * p->chunks, OUTER_STEPS) & ~(TILE - 1L);
	g->blocks = up(p->m, most < 4 * TILE ? 4 * TILE : most > 64 * TILE ? 64 * TILE : most);
	g->rows = up(up(p->m, g->blocks), TILE) * TILE;
	g->blocks = up(p->m, g->rows);
	g->groups = groups_for(g->panels, g->blocks, threads);
	return true;
}

void product_run(const struct product *p)
{
	struct grid g;

	if (grid_of(&g, p, pool_threads()))
		pool_run(product_part, &g, g.blocks * g.groups);
}

struct grids {
	struct grid *g;
	long *first;            /* [n + 1] parts of each begin here */
	long n;
};

static void grids_part(void *arg, long part, int thread)
{
	const struct grids *a = arg;
	long low = 0, high = a->n;

	while (high - low > 1) {
		long mid = (low + high) / 2;

		if (a->first[mid] <= part)
			low = mid;
		else
			high = mid;
	}
	product_part(a->g + low, part - a->first[low], thread);
}

void product_run_all(const struct product *p, long n)
{
	struct grids a = { xmalloc((size_t)n * sizeof(*a.g)), xcalloc((size_t)n + 1, sizeof(*a.first)), 0 };
	long busy = 0, share;

	for (long i = 0; i < n; i++)
		busy += p[i].m > 0;
	share = busy ? up(pool_threads(), busy) : 1;
	for (long i = 0; i < n; i++)
		if (grid_of(a.g + a.n, p + i, share)) {
			a.first[a.n + 1] = a.first[a.n] + a.g[a.n].blocks * a.g[a.n].groups;
			a.n++;
		}
	pool_run(grids_part, &a, a.first[a.n]);
	free(a.g);
	free(a.first);
}
