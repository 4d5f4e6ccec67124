#include "tools/export/hf.h"

#include <stdlib.h>
#include <string.h>

#include "formats/safetensors.h"
#include "libcommon/file.h"
#include "libcommon/param.h"
#include "libcommon/progress.h"
#include "tools/shared/config_edit.h"
#include "tools/shared/start.h"

struct writer {
	struct checkpoint *c;
	const struct tensor *t; /* what is written, and */
	const long *from;	/* the checkpoint's tensor of each */
	char *buf;		/* stored bits where they are converted */
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

static long list_tensors(struct tensor *t, long *from, const struct checkpoint *c, enum dtype dtype)
{
	long n = 0;

	for (long i = 0; i < c->n; i++) {
		const struct checkpoint_tensor *s = &c->tensor[i];

		if (s->slot != SLOT_WEIGHT)
			continue;
		t[n] = (struct tensor){ .name = (char *)s->name,
					.dtype = s->dtype,
					.rank = s->rank };
		memcpy(t[n].shape, s->shape, sizeof(s->shape));
		if (dtype != DTYPE_NONE && is_plain_float(s->dtype))
			t[n].dtype = dtype;
		from[n++] = i;
	}
	return n;
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

/* safetensors_bytes: pieces are of whole elements, since their size is a multiple of every
 * element's. */
static int next_bytes(void *out, void *arg, const struct tensor *t, uint64_t offset, size_t n,
		      struct err *e)
{
	struct writer *w = arg;
	long tensor = w->from[t - w->t];
	enum dtype stored = w->c->tensor[tensor].dtype;
	size_t size = dtype_size(t->dtype), count = n / size, bytes = count * dtype_size(stored);
	long first = (long)(offset / size);

	progress_add(&w->bar, (double)n);
	if (stored == t->dtype)
		return read_range(out, w->c, tensor, first, (long)count, e);
	if (bytes > w->cap)
		w->buf = xrealloc(w->buf, w->cap = bytes);
	if (read_range(w->buf, w->c, tensor, first, (long)count, e))
		return -1;
	dtype_convert(out, t->dtype, w->buf, stored, count);
	return 0;
}

static void write_weights(struct exported *x, const struct outdir *out, struct checkpoint *c,
			  enum dtype dtype, uint64_t max_shard)
{
	struct tensor *t = xcalloc((size_t)c->n + 1, sizeof(*t));
	long *from = xcalloc((size_t)c->n + 1, sizeof(*from));
	struct writer w = { .c = c, .t = t, .from = from };
	struct err e = ERR_INIT;

	x->tensors = list_tensors(t, from, c, dtype);
	for (long i = 0; i < x->tensors; i++) {
		x->bytes += tensor_bytes(&t[i]);
		x->parameters += c->tensor[from[i]].role == ROLE_CARRIED ? 0 : tensor_count(&t[i]);
	}
	progress_start(&w.bar, "export", (double)x->bytes, "B");
	if (safetensors_write_dir(out->tmp, t, x->tensors, max_shard, next_bytes, &w, &e))
		die_err(&e);
	progress_end(&w.bar);
	free(w.buf);
	free(from);
	free(t);
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
	param_table_release(&table);
	write_weights(x, out, c, dtype, max_shard);
	for (long i = 0; i < c->sides; i++)
		if (!strncmp(c->side[i].name, "hf/", 3))
			write_side(out, c, c->side[i].name, dtype);
}
