#include "kernels/cpu/rows.h"

#include "libcommon/pool.h"

struct embed {
	float *dtable;
	const void *dy;
	const int *ids;
	long rows, hidden;
	enum dtype t;
};

struct move {
	char *to;
	const char *from;
	const int *index;
	size_t bytes;
	bool scatter;
};

static void move_part(void *arg, long r, int thread)
{
	const struct move *o = arg;
	long other = o->index[r], to = o->scatter ? other : r, from = o->scatter ? r : other;

	(void)thread;
	memcpy(o->to + (size_t)to * o->bytes, o->from + (size_t)from * o->bytes, o->bytes);
}

void rows_gather_cpu(void *to, const void *from, const int *index, long rows, size_t bytes)
{
	struct move o = { to, from, index, bytes, false };

	pool_run(move_part, &o, rows);
}

void rows_scatter_cpu(void *to, const void *from, const int *index, long rows, size_t bytes)
{
	struct move o = { to, from, index, bytes, true };

	pool_run(move_part, &o, rows);
}

void embed_fwd_cpu(void *y, const void *table, const int *ids, long rows, long hidden, enum dtype t)
{
	rows_gather_cpu(y, table, ids, rows, (size_t)hidden * dtype_size(t));
}

void permute_cpu(void *y, const void *x, const int *from, long rows, long cols, enum dtype t)
{
	rows_gather_cpu(y, x, from, rows, (size_t)cols * dtype_size(t));
}

WIDE static void add_row(float *d, const float *s, long n)
{
	for (long i = 0; i < n; i++)
		d[i] += s[i];
}

enum { COLUMNS = 256 };

/* A part is a range of columns: each sum runs over the rows in their order. */
static void bwd_part(void *arg, long part, int thread)
{
	struct embed *o = arg;
	long c = part * COLUMNS, n = o->hidden - c < COLUMNS ? o->hidden - c : COLUMNS;
	float buf[COLUMNS];

	(void)thread;
	for (long r = 0; r < o->rows; r++)
		add_row(o->dtable + (long)o->ids[r] * o->hidden + c,
			as_f32(buf, row_at(o->dy, r * o->hidden + c, o->t), n, o->t), n);
}

void embed_bwd_cpu(float *dtable, const void *dy, const int *ids, long rows, long hidden, enum dtype t)
{
	struct embed o = { .dtable = dtable, .dy = dy, .ids = ids, .rows = rows, .hidden = hidden, .t = t };

	pool_run(bwd_part, &o, (hidden + COLUMNS - 1) / COLUMNS);
}
