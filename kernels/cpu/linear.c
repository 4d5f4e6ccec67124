#include "kernels/linear.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/backend.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/linear_kernel.h"
#include "kernels/cpu/moe.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/slab.h"
#include "libcommon/pool.h"
#include "libcommon/xalloc.h"

struct packing {
	struct matrix *w;
	const char *rows;
	long forward; /* panels of the forward form; those of the backward form follow */
};

static long panels_of(long n)
{
	return (n + PANEL - 1) / PANEL;
}

static size_t packed_bytes(long n, long steps)
{
	return (size_t)((n + LINE - 1) / LINE * LINE) * (size_t)steps * 4;
}

void matrix_init_cpu(struct matrix *w, enum dtype t, long n, long k, long chunks, bool backward)
{
	if ((t != DTYPE_F32 && t != DTYPE_BF16) || n <= 0 || k <= 0 || chunks <= 0 || k % chunks)
		bug("a matrix of %s [%ld, %ld] in %ld chunks", dtype_name(t), n, k, chunks);
	*w = (struct matrix){ .t = t, .n = n, .k = k, .chunks = chunks, .backward = backward };
	w->fwd_bytes = packed_bytes(n, chunks * steps_of(k / chunks, t));
	w->fwd = slab_alloc(w->fwd_bytes);
	if (backward) {
		w->bwd_bytes = packed_bytes(k, steps_of(n, t));
		w->bwd = slab_alloc(w->bwd_bytes);
	}
}

static void pack_part(void *arg, long j, int thread)
{
	const struct packing *a = arg;
	const struct matrix *w = a->w;
	long size = (long)dtype_size(w->t), per_chunk = w->k / w->chunks,
	     steps = steps_of(per_chunk, w->t);

	(void)thread;
	if (j < a->forward) {
		int width = panel_width(w->n, j);
		long cols = w->n - j * PANEL < PANEL ? w->n - j * PANEL : PANEL;
		uint32_t *d = (uint32_t *)w->fwd + j * PANEL * w->chunks * steps;

		for (long c = 0; c < w->chunks; c++, d += steps * width)
			pack_rows(d, width, a->rows + (j * PANEL * w->k + c * per_chunk) * size,
				  w->k, cols, per_chunk, w->t);
	} else {
		long i = (j - a->forward) * PANEL;

		pack_columns((uint32_t *)w->bwd + i * steps_of(w->n, w->t),
			     panel_width(w->k, j - a->forward), a->rows + i * size, w->k,
			     w->k - i < PANEL ? w->k - i : PANEL, w->n, w->t);
	}
}

void matrix_load_cpu(struct matrix *w, const void *rows)
{
	struct packing a = { w, rows, panels_of(w->n) };

	pool_run(pack_part, &a, a.forward + (w->backward ? panels_of(w->k) : 0));
}

void matrix_release_cpu(struct matrix *w)
{
	slab_free(w->fwd);
	slab_free(w->bwd);
	memset(w, 0, sizeof(*w));
}

static struct product forward_of(void *y, enum dtype ty, const void *x, const struct matrix *w, const void *bias, long m)
{
	if (ty != w->t && ty != DTYPE_F32)
		bug("linear_fwd from %s to %s", dtype_name(w->t), dtype_name(ty));
	return (struct product){ .kernel = linear_kernel(),
				 .t = w->t,
				 .ty = ty,
				 .x = x,
				 .ldx = w->k,
				 .w = w->fwd,
				 .m = m,
				 .n = w->n,
				 .k = w->k,
				 .chunks = w->chunks,
				 .y = y,
				 .ldy = w->n,
				 .bias = bias };
}

void linear_fwd_cpu(void *y, enum dtype ty, const void *x, const struct matrix *w, const void *bias,
		    long m)
{
	struct product p = forward_of(y, ty, x, w, bias, m);

	product_run(&p);
}

void linear_parts_cpu(float *y, const void *x, const struct matrix *w, long first, long all, long m)
{
	long leaves[2 * TREE_DEPTH], n = tree_parts(NULL, first, w->chunks, all);
	struct product p = { .kernel = linear_kernel(),
			     .t = w->t,
			     .ty = DTYPE_F32,
			     .x = x,
			     .ldx = w->k,
			     .w = w->fwd,
			     .m = m,
			     .n = w->n,
			     .panel_chunks = w->chunks,
			     .y = (char *)y,
			     .ldy = w->n };

	tree_parts(leaves, first, w->chunks, all);
	for (long i = 0; i < n; i++) {
		p.chunks = leaves[i];
		p.k = leaves[i] * (w->k / w->chunks);
		product_run(&p);
		p.x += p.k * (long)dtype_size(w->t);
		p.skip += leaves[i];
		p.y += m * w->n * 4;
	}
}

struct join {
	const struct linear_kernel *kernel;
	const float *parts;
	const long *leaves; /* of each part */
	long all, m, n;
	char *y;
	const char *bias;
	enum dtype t;
};

/* acc = the node over n leaves whose first part is `part`, at `at` of each part; returns the part behind it. */
static long join_node(const struct join *j, float *acc, long n, long part, long at, long cols)
{
	float right[PANEL];
	long h;

	if (j->leaves[part] == n) {
		memcpy(acc, j->parts + part * j->m * j->n + at, (size_t)cols * 4);
		return part + 1;
	}
	h = tree_split(n);
	part = join_node(j, acc, h, part, at, cols);
	part = join_node(j, right, n - h, part, at, cols);
	j->kernel->join(acc, right, cols);
	return part;
}

static void join_row(void *arg, long r, int thread)
{
	const struct join *j = arg;
	long size = (long)dtype_size(j->t);
	float acc[PANEL];

	(void)thread;
	for (long i = 0; i < j->n; i += PANEL) {
		long cols = j->n - i < PANEL ? j->n - i : PANEL;

		join_node(j, acc, j->all, 0, r * j->n + i, cols);
		j->kernel->finish(j->y + (r * j->n + i) * size, j->t, acc,
				  j->bias ? j->bias + i * size : NULL, j->t, cols, false);
	}
}

void linear_join_cpu(void *y, enum dtype t, const float *parts, const struct tree_cut *c,
		     const void *bias, long m, long n)
{
	long *leaves = scratch(SCRATCH_LIST, 0, (size_t)tree_leaves(c) * sizeof(*leaves)), at = 0;
	struct join j = { linear_kernel(), parts, leaves, tree_leaves(c), m, n, y, bias, t };

	for (long r = 0; r < c->ranks; r++)
		at += tree_parts(leaves + at, c->first[r], c->first[r + 1] - c->first[r], j.all);
	pool_run(join_row, &j, m);
}

static struct product backward_of(void *dx, enum dtype tx, const void *dy, const struct matrix *w, long m, bool add)
{
	if (!w->backward)
		bug("linear_dx with a matrix that is not ready for it");
	return (struct product){ .kernel = linear_kernel(),
				 .t = w->t,
				 .ty = tx,
				 .x = dy,
				 .ldx = w->n,
				 .w = w->bwd,
				 .m = m,
				 .n = w->k,
				 .k = w->n,
				 .chunks = 1,
				 .y = dx,
				 .ldy = w->k,
				 .how = add ? PRODUCT_ADD : PRODUCT_SET };
}

void linear_dx_cpu(void *dx, enum dtype tx, const void *dy, const struct matrix *w, long m, bool add)
{
	struct product p = backward_of(dx, tx, dy, w, m, add);

	product_run(&p);
}

void grouped_fwd_cpu(void *y, enum dtype ty, const void *x, const struct matrix *w, const long *offset, long experts)
{
	struct product *p = xmalloc((size_t)experts * sizeof(*p));

	for (long e = 0; e < experts; e++)
		p[e] = forward_of((char *)y + offset[e] * w[e].n * (long)dtype_size(ty), ty,
				  (const char *)x + offset[e] * w[e].k * (long)dtype_size(w[e].t), w + e, NULL, offset[e + 1] - offset[e]);
	product_run_all(p, experts);
	free(p);
}

void grouped_dx_cpu(void *dx, enum dtype tx, const void *dy, const struct matrix *w, const long *offset, long experts, bool add)
{
	struct product *p = xmalloc((size_t)experts * sizeof(*p));

	for (long e = 0; e < experts; e++)
		p[e] = backward_of((char *)dx + offset[e] * w[e].k * (long)dtype_size(tx), tx,
				   (const char *)dy + offset[e] * w[e].n * (long)dtype_size(w[e].t), w + e, offset[e + 1] - offset[e], add);
	product_run_all(p, experts);
	free(p);
}

enum { TOKENS = 2048, BIAS_COLUMNS = 64 }; /* TOKENS is even: a pair is never cut */

struct dw {
	const char *dy, *x;
	float *dbias;
	uint32_t *panels;
	long tokens, n, k;
	enum dtype t;
};

static void dw_pack_part(void *arg, long j, int thread)
{
	const struct dw *a = arg;
	long i = j * PANEL;

	(void)thread;
	pack_columns(a->panels + i * steps_of(a->tokens, a->t), panel_width(a->k, j),
		     a->x + i * (long)dtype_size(a->t), a->k, a->k - i < PANEL ? a->k - i : PANEL,
		     a->tokens, a->t);
}

static void dbias_part(void *arg, long j, int thread)
{
	const struct dw *a = arg;
	long i = j * BIAS_COLUMNS, n = a->n - i < BIAS_COLUMNS ? a->n - i : BIAS_COLUMNS;

	(void)thread;
	for (long r = 0; r < a->tokens; r++)
		for (long c = 0; c < n; c++)
			a->dbias[i + c] +=
				a->t == DTYPE_BF16
					? bf16_to_f32(((const uint16_t *)(const void *)
							       a->dy)[r * a->n + i + c])
					: ((const float *)(const void *)a->dy)[r * a->n + i + c];
}

void linear_dw_cpu(float *dw, float *dbias, const void *dy, const void *x, long m, long n, long k,
		   enum dtype t)
{
	long size = (long)dtype_size(t), most = m < TOKENS ? m : TOKENS;
	struct dw a = { .dy = dy, .x = x, .dbias = dbias, .n = n, .k = k, .t = t };

	if (m <= 0)
		return;
	a.panels = scratch(SCRATCH_SHARED, 0, packed_bytes(k, steps_of(most, t)));
	for (long r = 0; r < m; r += TOKENS, a.dy += TOKENS * n * size, a.x += TOKENS * k * size) {
		a.tokens = m - r < TOKENS ? m - r : TOKENS;
		struct product p = { .kernel = linear_kernel(),
				     .t = t,
				     .ty = DTYPE_F32,
				     .x = a.dy,
				     .ldx = n,
				     .across = true,
				     .w = a.panels,
				     .m = n,
				     .n = k,
				     .k = a.tokens,
				     .chunks = 1,
				     .y = (char *)dw,
				     .ldy = k,
				     .how = PRODUCT_CONTINUE };

		if (dw) {
			pool_run(dw_pack_part, &a, panels_of(k));
			product_run(&p);
		}
		if (dbias)
			pool_run(dbias_part, &a, (n + BIAS_COLUMNS - 1) / BIAS_COLUMNS);
	}
}
