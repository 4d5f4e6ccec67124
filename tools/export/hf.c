#include "tools/export/hf.h"

#include <stdlib.h>
#include <string.h>

#include "formats/safetensors.h"
#include "libcommon/file.h"
#include "libcommon/param.h"
#include "libcommon/progress.h"
#include "tools/shared/config_edit.h"
#include "tools/shared/expert_names.h"
#include "tools/shared/start.h"

/* Where the elements of a written tensor lie in the checkpoint. */
struct origin {
	long tensor;
	long base; /* elements before the first */
	long second, run; /* fused: runs of `run` elements of `tensor` and this by turns; else -1 */
};

struct writer {
	struct checkpoint *c;
	const struct tensor *t; /* what is written, and */
	const struct origin *from;
	char *buf; /* stored bits where they are converted */
	size_t cap;
	struct progress bar;
};

static bool is_plain_float(enum dtype t)
{
	return t == DTYPE_F64 || t == DTYPE_F32 || t == DTYPE_BF16 || t == DTYPE_F16;
}

/* The table and the stored weights are the same set, but for what is carried along. */
static void check_weights(const struct checkpoint *c, const struct param_table *table)
{
	char found[160], wanted[160];

	for (long i = 0; i < table->n; i++) {
		const struct param *p = &table->p[i];
		long k = checkpoint_find(c, p->name, SLOT_WEIGHT);

		if (k < 0)
			die(EX_DATAERR, "%s: %s: no such tensor, the model's config wants it",
			    c->dir, p->name);
		if (!shape_equal(c->tensor[k].shape, c->tensor[k].rank, p->shape, p->rank))
			die(EX_DATAERR, "%s: %s: shape %s, wanted %s", c->dir, p->name,
			    shape_text(found, c->tensor[k].shape, c->tensor[k].rank),
			    shape_text(wanted, p->shape, p->rank));
	}
	for (long i = 0; i < c->n; i++)
		if (c->tensor[i].slot == SLOT_WEIGHT && c->tensor[i].role != ROLE_CARRIED &&
		    !param_find(table, c->tensor[i].name))
			die(EX_DATAERR, "%s: %s: no weight of a %s model", c->dir,
			    c->tensor[i].name, table->config.model_type);
}

struct list {
	struct tensor *t; /* owned, as are their names */
	struct origin *from; /* owned */
	long n, cap;
};

/* The name is taken over. */
static void add(struct list *l, char *name, const struct checkpoint *c, struct origin from,
		const long *shape, int rank, enum dtype dtype)
{
	enum dtype stored = c->tensor[from.tensor].dtype;
	struct tensor *t;

	if (l->n == l->cap) {
		l->cap = l->cap ? 2 * l->cap : 64;
		l->t = xrealloc_array(l->t, (size_t)l->cap, sizeof(*l->t));
		l->from = xrealloc_array(l->from, (size_t)l->cap, sizeof(*l->from));
	}
	t = &l->t[l->n];
	*t = (struct tensor){ .name = name, .dtype = stored, .rank = rank };
	memcpy(t->shape, shape, (size_t)rank * sizeof(*shape));
	if (dtype != DTYPE_NONE && is_plain_float(stored))
		t->dtype = dtype;
	l->from[l->n++] = from;
}

static void add_apart(struct list *l, const struct checkpoint *c, const struct param *p,
		      long tensor, enum dtype dtype)
{
	for (long e = 0; e < p->shape[0]; e++)
		add(l, expert_apart_name(p, e), c,
		    (struct origin){ tensor, e * p->shape[1] * p->shape[2], -1, 0 }, p->shape + 1,
		    p->rank - 1, dtype);
}

/* Gate and up are one tensor, written where the gate comes. */
static void add_fused(struct list *l, const struct checkpoint *c, const struct param *p,
		      long tensor, const struct expert_spelling *how, enum dtype dtype)
{
	long shape[3] = { p->shape[0], 2 * p->shape[1], p->shape[2] }, up;

	if (p->kind == PARAM_EXPERT_UP)
		return;
	if (p->kind == PARAM_EXPERT_DOWN) {
		add(l, expert_fused_name(p, how), c, (struct origin){ tensor, 0, -1, 0 }, p->shape,
		    p->rank, dtype);
		return;
	}
	/* In the table up_proj follows. */
	up = checkpoint_find(c, p[1].name, SLOT_WEIGHT);
	if (c->tensor[up].dtype != c->tensor[tensor].dtype)
		die(EX_DATAERR, "%s: %s: type %s, wanted that of %s", c->dir, p[1].name,
		    dtype_name(c->tensor[up].dtype), p->name);
	add(l, expert_fused_name(p, how), c,
	    (struct origin){ tensor, 0, up, p->shape[1] * p->shape[2] }, shape, 3, dtype);
}

static struct expert_spelling spelling_of(const struct checkpoint *c)
{
	struct expert_spelling s = { 0 };
	struct str text = { 0 };
	struct err e = ERR_INIT;

	if (checkpoint_has_side(c, EXPERT_SPELLING_FILE) &&
	    (checkpoint_side_file(&text, c, EXPERT_SPELLING_FILE, &e) ||
	     expert_spelling_get(&s, text.s ? text.s : "", text.len, &e))) {
		err_prefix(&e, "%s", c->dir);
		die_err(&e);
	}
	str_release(&text);
	return s;
}

static void list_tensors(struct list *l, const struct checkpoint *c,
			 const struct param_table *table, enum dtype dtype)
{
	struct expert_spelling how = spelling_of(c);

	for (long i = 0; i < c->n; i++) {
		const struct checkpoint_tensor *s = &c->tensor[i];
		const struct param *p = param_find(table, s->name);

		if (s->slot != SLOT_WEIGHT)
			continue;
		if (p && p->expert && how.fused)
			add_fused(l, c, p, i, &how, dtype);
		else if (p && p->expert)
			add_apart(l, c, p, i, dtype);
		else
			add(l, p ? expert_block_name(p, &how) : xstrdup(s->name), c,
			    (struct origin){ i, 0, -1, 0 }, s->shape, s->rank, dtype);
	}
}

static int read_range(char *out, struct checkpoint *c, long tensor, long first, long n,
		      struct err *e)
{
	const struct checkpoint_tensor *t = &c->tensor[tensor];
	struct box box[2 * TENSOR_RANK];
	int boxes = box_of_range(box, t->shape, t->rank, first, n);

	for (int i = 0; i < boxes; i++) {
		if (checkpoint_read(out, c, tensor, &box[i], e))
			return -1;
		out += (size_t)box_volume(&box[i]) * dtype_size(t->dtype);
	}
	return 0;
}

static int read_elements(char *out, struct checkpoint *c, const struct origin *o, long first,
			 long n, struct err *e)
{
	long take;

	if (o->second < 0)
		return read_range(out, c, o->tensor, o->base + first, n, e);
	for (; n; first += take, n -= take) {
		long run = first / o->run, at = first % o->run;

		take = o->run - at < n ? o->run - at : n;
		if (read_range(out, c, run % 2 ? o->second : o->tensor, run / 2 * o->run + at, take,
			       e))
			return -1;
		out += (size_t)take * dtype_size(c->tensor[o->tensor].dtype);
	}
	return 0;
}

/* safetensors_bytes: pieces are of whole elements, since their size is a multiple of every
 * element's. */
static int next_bytes(void *out, void *arg, const struct tensor *t, uint64_t offset, size_t n,
		      struct err *e)
{
	struct writer *w = arg;
	const struct origin *from = w->from + (t - w->t);
	enum dtype stored = w->c->tensor[from->tensor].dtype;
	size_t size = dtype_size(t->dtype), count = n / size, bytes = count * dtype_size(stored);
	long first = (long)(offset / size);

	progress_add(&w->bar, (double)n);
	if (stored == t->dtype)
		return read_elements(out, w->c, from, first, (long)count, e);
	if (bytes > w->cap)
		w->buf = xrealloc(w->buf, w->cap = bytes);
	if (read_elements(w->buf, w->c, from, first, (long)count, e))
		return -1;
	dtype_convert(out, t->dtype, w->buf, stored, count);
	return 0;
}

static void write_weights(struct exported *x, const struct outdir *out, struct checkpoint *c,
			  const struct param_table *table, enum dtype dtype, uint64_t max_shard)
{
	struct list l = { 0 };
	struct writer w = { .c = c };
	struct err e = ERR_INIT;

	list_tensors(&l, c, table, dtype);
	w.t = l.t;
	w.from = l.from;
	x->tensors = l.n;
	for (long i = 0; i < l.n; i++) {
		x->bytes += tensor_bytes(&l.t[i]);
		x->parameters += c->tensor[l.from[i].tensor].role == ROLE_CARRIED
					 ? 0
					 : tensor_count(&l.t[i]);
	}
	progress_start(&w.bar, "export", (double)x->bytes, "B");
	if (safetensors_write_dir(out->tmp, l.t, l.n, max_shard, next_bytes, &w, &e))
		die_err(&e);
	progress_end(&w.bar);
	for (long i = 0; i < l.n; i++)
		free(l.t[i].name);
	free(l.t);
	free(l.from);
	free(w.buf);
}

static void write_side(const struct outdir *out, const struct checkpoint *c, const char *name,
		       enum dtype dtype)
{
	struct str text = { 0 }, edited = { 0 };
	const char *bare = name + strlen("hf/");
	char *path = outdir_path(out, bare);
	struct err e = ERR_INIT;

	if (checkpoint_side_file(&text, c, name, &e))
		die_err(&e);
	if (!strcmp(bare, "config.json") && dtype != DTYPE_NONE) {
		config_edit_dtype(&edited, text.s, text.len, name, dtype, false);
		str_release(&text);
		text = edited;
	}
	if (file_write(path, text.s ? text.s : "", text.len, &e))
		die_err(&e);
	str_release(&text);
	free(path);
}

void export_hf(struct exported *x, const struct outdir *out, struct checkpoint *c, enum dtype dtype,
	       uint64_t max_shard)
{
	struct model_config config;
	struct param_table table;

	*x = (struct exported){ 0 };
	load_config(&config, c);
	param_table_init(&table, &config);
	check_weights(c, &table);
	write_weights(x, out, c, &table, dtype, max_shard);
	param_table_release(&table);
	for (long i = 0; i < c->sides; i++)
		if (!strncmp(c->side[i].name, "hf/", 3))
			write_side(out, c, c->side[i].name, dtype);
}
