#include "formats/checkpoint_move.h"

#include <stdlib.h>
#include <string.h>

#include "formats/checkpoint_move_private.h"
#include "libcommon/pool.h"

/*
 * Blocks that are read at a stretch by one thread, and bytes of a batch: enough to keep every
 * thread busy, little enough to be used again while it is near.
 */
enum { RUN = 8, BATCH = 128 << 20, EACH_BOX = 32 << 20, COPIES = 256 };

/* -- targets ------------------------------------------------------------ */

static int find_source(long *source, const struct checkpoint *from, const struct checkpoint_tensor *t,
		       struct err *e)
{
	long i = table_find(from->table->sorted, from->tensor, from->n, t->name, t->slot);
	const struct checkpoint_tensor *s = &from->tensor[i < 0 ? 0 : i];

	if (i < 0)
		return err_set(e, EX_DATAERR, "%s: %s (%s): no such tensor", from->dir, t->name,
			       slot_name(t->slot));
	if (s->dtype != t->dtype || !shape_equal(s->shape, s->rank, t->shape, t->rank))
		return err_set(e, EX_DATAERR, "%s: %s (%s): of another type or shape than wanted", from->dir,
			       t->name, slot_name(t->slot));
	*source = i;
	return 0;
}

/* Where the tensor's first box lies. */
static uint64_t place_of(const struct checkpoint *c, long tensor)
{
	long i = c->table->first[tensor];

	return i < c->table->first[tensor + 1] ? (uint64_t)c->table->box[i].file << 48 | c->table->box[i].offset >> 12 : 0;
}

static int by_place(const void *a, const void *b, void *arg)
{
	const struct move_target *x = a, *y = b;
	uint64_t p = place_of(arg, x->source), q = place_of(arg, y->source);

	if (p != q)
		return p < q ? -1 : 1;
	if (x->source != y->source)
		return x->source < y->source ? -1 : 1;
	return x->nth < y->nth ? -1 : x->nth > y->nth;
}

static struct grid grid_of_piece(const struct checkpoint_tensor *t, const struct box *b, bool compressed)
{
	struct hdf5_box x = { .dtype = t->dtype, .bytes = (uint64_t)box_volume(b) * dtype_size(t->dtype) };

	if (!x.bytes)
		bug("%s: an empty piece", t->name);
	for (int i = 0; i < b->rank; i++)
		x.extent[i] = b->extent[i];
	return grid_of(&x, compressed);
}

static int take_targets(struct checkpoint_move *m, const struct checkpoint_tensor *tensors, long n,
			const struct checkpoint_piece *piece, long pieces, bool compressed, int rank,
			int ranks, struct err *e)
{
	long *source = xcalloc((size_t)n + 1, sizeof(*source)), *nth = xcalloc((size_t)n + 1, sizeof(*nth));
	int rc = 0;

	m->target = xcalloc((size_t)pieces + 1, sizeof(*m->target));
	for (long i = 0; i < n && !rc; i++)
		rc = find_source(&source[i], m->from, &tensors[i], e);
	for (long i = 0; i < pieces && !rc; i++) {
		long t = piece[i].tensor;
		struct move_target *x = &m->target[m->targets];

		*x = (struct move_target){ .tensor = t, .nth = nth[t]++, .source = source[t], .box = piece[i].box };
		x->grid = grid_of_piece(&tensors[t], &x->box, compressed);
		m->targets += piece[i].file % ranks == rank;
	}
	free(source);
	free(nth);
	if (!rc)
		qsort_r(m->target, (size_t)m->targets, sizeof(*m->target), by_place, m->from);
	return rc;
}

/* -- batches ------------------------------------------------------------ */

static struct move_batch *open_batch(struct checkpoint_move *m)
{
	GROW(m->batch, m->batches, m->batch_cap);
	m->batch[m->batches] = (struct move_batch){ .copy = m->copies, .span = m->spans };
	return &m->batch[m->batches++];
}

static struct move_batch *last_batch(struct checkpoint_move *m)
{
	return m->batches ? &m->batch[m->batches - 1] : open_batch(m);
}

static void add_copy(struct checkpoint_move *m, struct move_copy c)
{
	struct move_batch *b = last_batch(m);

	if (b->copies >= COPIES)
		b = open_batch(m);
	GROW(m->copy, m->copies, m->copy_cap);
	m->copy[m->copies++] = c;
	b->copies++;
	m->totals.copied += c.n;
}

static void add_block(struct checkpoint_move *m, long target, long block, size_t bytes)
{
	struct move_batch *b = last_batch(m);
	struct move_span *s;

	if (b->bytes + bytes > m->memory)
		b = open_batch(m);
	s = b->spans ? &m->span[m->spans - 1] : NULL;
	if (!s || s->target != target || s->first + s->n != block) {
		GROW(m->span, m->spans, m->span_cap);
		m->span[m->spans++] = (struct move_span){ target, block, 0, b->bytes };
		s = &m->span[m->spans - 1];
		b->spans++;
	}
	s->n++;
	b->bytes += bytes;
	m->largest = b->bytes > m->largest ? b->bytes : m->largest;
	m->totals.gathered++;
}

/* -- which blocks are the same in both ---------------------------------- */

static bool same_rows(const struct box *a, const struct box *b)
{
	for (int i = 1; i < a->rank; i++)
		if (a->start[i] != b->start[i] || a->extent[i] != b->extent[i])
			return false;
	return true;
}

/*
 * from[k]: the old block with the elements of block k of the target, *box its box; -1: there is none.
 * Two boxes that differ in the first dimension only hold the same elements in the same order.
 */
static void find_same(long *from, long *box, const struct checkpoint_move *m, const struct move_target *x)
{
	const struct checkpoint_table *t = m->from->table;
	const struct checkpoint_tensor *s = &m->from->tensor[x->source];
	long volume = box_volume(&x->box);

	for (long k = 0; k < x->grid.blocks; k++)
		from[k] = -1;
	for (long i = t->first[x->source]; i < t->first[x->source + 1]; i++) {
		struct box old = table_box(&t->box[i], s->rank), both;
		struct grid g = table_grid(t, &t->box[i]);
		long row = s->rank ? volume / x->box.extent[0] : 1, shift = 0, end;

		if (!same_rows(&old, &x->box) || !box_intersect(&both, &old, &x->box))
			continue;
		end = box_volume(&old);
		/* The target's element 0 is the old box's element `shift`, which may lie before it. */
		if (s->rank)
			shift = (x->box.start[0] - old.start[0]) * row;
		for (long k = shift < 0 ? grid_block(&x->grid, -shift) : 0; k < x->grid.blocks; k++) {
			long at, has, n = grid_range(&at, &x->grid, k), b;

			at += shift;
			if (at < 0)
				continue;
			if (at + n > end)
				break;
			b = grid_block(&g, at);
			if (grid_range(&has, &g, b) != n || has != at)
				continue;
			from[k] = b;
			box[k] = i;
		}
	}
}

static void add_copies(struct checkpoint_move *m, long target, const long *from, const long *box)
{
	long blocks = m->target[target].grid.blocks;

	for (long k = 0; k < blocks;) {
		long n = 1;

		if (from[k] < 0) {
			k++;
			continue;
		}
		while (n < RUN && k + n < blocks && from[k + n] == from[k] + n && box[k + n] == box[k])
			n++;
		add_copy(m, (struct move_copy){ target, k, n, box[k], from[k] });
		k += n;
	}
}

/* -- one tensor --------------------------------------------------------- */

/* The blocks of one tensor's targets [first, end) that are gathered, in order of their rows. */
struct block_at { long row, target, block; };

static int by_row(const void *a, const void *b)
{
	const struct block_at *x = a, *y = b;

	if (x->row != y->row)
		return x->row < y->row ? -1 : 1;
	if (x->target != y->target)
		return x->target < y->target ? -1 : 1;
	return x->block < y->block ? -1 : x->block > y->block;
}

/* Row bands: what one band has of each box goes into the same batch. */
static void band(struct block_at *at, long n, size_t bytes, size_t most, long rows)
{
	long bands = (long)(bytes / most) + 1, each = (rows + bands - 1) / bands;

	for (long i = 0; i < n; i++)
		at[i].row = at[i].row / (each ? each : 1);
	qsort(at, (size_t)n, sizeof(*at), by_row);
}

static void plan_tensor(struct checkpoint_move *m, long first, long end)
{
	const struct checkpoint_tensor *s = &m->from->tensor[m->target[first].source];
	long blocks = 0, n = 0, old = checkpoint_boxes(m->from, m->target[first].source);
	long *from, *box;
	struct block_at *at;
	size_t bytes = 0, most = (size_t)(old > 1 << 12 ? 1 << 12 : old) * EACH_BOX;

	for (long i = first; i < end; i++)
		blocks += m->target[i].grid.blocks;
	at = xcalloc((size_t)blocks + 1, sizeof(*at));
	from = xcalloc((size_t)blocks + 1, sizeof(*from));
	box = xcalloc((size_t)blocks + 1, sizeof(*box));
	for (long i = first; i < end; i++) {
		const struct move_target *x = &m->target[i];
		long row = s->rank ? box_volume(&x->box) / x->box.extent[0] : 1;

		find_same(from, box, m, x);
		add_copies(m, i, from, box);
		for (long k = 0; k < x->grid.blocks; k++) {
			if (from[k] >= 0)
				continue;
			at[n++] = (struct block_at){ (s->rank ? x->box.start[0] : 0) + block_first(x, k) / row, i, k };
			bytes += block_bytes(m, x, k);
		}
	}
	most = most < BATCH ? BATCH : most;
	most = most < m->memory ? most : m->memory;
	if (bytes > most)
		band(at, n, bytes, most, s->rank ? s->shape[0] : 1);
	if (n && last_batch(m)->bytes && (last_batch(m)->bytes + bytes > BATCH || bytes > most))
		open_batch(m);
	for (long i = 0; i < n; i++) {
		if (i && at[i].row != at[i - 1].row && bytes > most && last_batch(m)->bytes > most / 2)
			open_batch(m);
		add_block(m, at[i].target, at[i].block, block_bytes(m, &m->target[at[i].target], at[i].block));
	}
	free(at);
	free(from);
	free(box);
}

static void count(struct checkpoint_move *m)
{
	struct move_totals *t = &m->totals;

	t->boxes = m->targets;
	t->batches = m->batches;
	for (long i = 0; i < m->targets; i++)
		for (long k = 0; k < m->target[i].grid.blocks; k++)
			t->bytes_written += (double)block_bytes(m, &m->target[i], k);
	for (long i = 0; i < m->copies; i++) {
		const struct hdf5_box *b = &m->from->table->box[m->copy[i].box];

		for (long k = 0; k < m->copy[i].n; k++)
			t->bytes_read += (double)m->from->table->chunk[b->block + (uint64_t)(m->copy[i].from + k)].bytes;
	}
	for (long i = 0; i < m->copies; i++)
		t->runs += !i || m->copy[i].box != m->copy[i - 1].box || m->copy[i].from != m->copy[i - 1].from + m->copy[i - 1].n;
	for (long i = 0; i < m->batches; i++) {
		struct move_work k;

		move_work_init(&k, m, &m->batch[i]);
		for (long r = 0; r < k.reads; r++) {
			const struct hdf5_box *b = &m->from->table->box[k.read[r].box];
			const struct hdf5_chunk *c = &m->from->table->chunk[b->block + (uint64_t)k.read[r].first];

			for (long j = 0; j < k.read[r].n; j++)
				t->bytes_read += (double)c[j].bytes;
			t->runs += !r || k.read[r].box != k.read[r - 1].box ||
				   k.read[r].first != k.read[r - 1].first + k.read[r - 1].n;
		}
		move_work_release(&k);
	}
	t->memory = m->largest + (size_t)pool_threads() * CHECKPOINT_BLOCK;
}

int checkpoint_move_plan(struct checkpoint_move **out, struct checkpoint *from,
			 const struct checkpoint_tensor *tensors, long n,
			 const struct checkpoint_piece *piece, long pieces, int compress, int rank,
			 int ranks, size_t memory, struct err *e)
{
	struct checkpoint_move *m = *out = xcalloc(1, sizeof(*m));
	size_t least = ((size_t)pool_threads() + 1) * CHECKPOINT_BLOCK;

	m->from = from;
	if (memory < least)
		err_set(e, EX_USAGE, "%zu bytes of memory for buffers, wanted at least %zu", memory, least);
	if (memory < least || take_targets(m, tensors, n, piece, pieces, compress > 0, rank, ranks, e)) {
		checkpoint_move_free(m);
		*out = NULL;
		return -1;
	}
	m->memory = memory - (size_t)pool_threads() * CHECKPOINT_BLOCK;
	for (long i = 0, end; i < m->targets; i = end) {
		for (end = i + 1; end < m->targets && m->target[end].source == m->target[i].source;)
			end++;
		plan_tensor(m, i, end);
	}
	count(m);
	return 0;
}

struct move_totals checkpoint_move_totals(const struct checkpoint_move *m)
{
	return m->totals;
}

void checkpoint_move_free(struct checkpoint_move *m)
{
	if (!m)
		return;
	free(m->target);
	free(m->copy);
	free(m->span);
	free(m->batch);
	free(m);
}
