#include "kernels/cpu/rows.h"

#include "libcommon/pool.h"

struct embed {
	void *y;
	float *dtable;
	const void *table, *dy;
	const int *ids;
	long rows, hidden;
	enum dtype t;
};

static void fwd_part(void *arg, long r, int thread)
{
	struct embed *o = arg;

	(void)thread;
	memcpy(row_at_mut(o->y, r * o->hidden, o->t), row_at(o->table, (long)o->ids[r] * o->hidden, o->t),
	       (size_t)o->hidden * dtype_size(o->t));
}

void embed_fwd_cpu(void *y, const void *table, const int *ids, long rows, long hidden, enum dtype t)
{
	struct embed o = { .y = y, .table = table, .ids = ids, .rows = rows, .hidden = hidden, .t = t };

	pool_run(fwd_part, &o, rows);
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
