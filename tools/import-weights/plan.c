#include "tools/import-weights/source.h"

#include <stdlib.h>
#include <string.h>

static const char embed_name[] = "model.embed_tokens.weight", head_name[] = "lm_head.weight";
enum { COMPARED = 1 << 20 }; /* elements at a time */

static bool ends_with(const char *s, const char *end)
{
	size_t n = strlen(s), m = strlen(end);

	return n >= m && !strcmp(s + n - m, end);
}

static bool is_plain_float(enum dtype t)
{
	return t == DTYPE_F64 || t == DTYPE_F32 || t == DTYPE_BF16 || t == DTYPE_F16;
}

/* Weights that are quantised without a file type of their own become bfloat16, as FP8 models are
 * used. */
static enum dtype stored_type(const struct source_tensor *t, enum dtype wanted)
{
	if (wanted != DTYPE_NONE && is_plain_float(t->dtype))
		return wanted;
	return t->scale ? DTYPE_BF16 : t->dtype;
}

static const struct source_tensor *find_param(const struct source *s, const struct param *p)
{
	const struct source_tensor *t = source_find(s, p->name);
	char found[160], wanted[160];

	shape_text(wanted, p->shape, p->rank);
	if (!t && p->kind == PARAM_LM_HEAD)
		die(EX_DATAERR, "%s: %s: missing, wanted %s (tie_word_embeddings is not true)",
		    s->path, p->name, wanted);
	if (!t)
		die(EX_DATAERR, "%s: %s: missing, wanted %s", s->path, p->name, wanted);
	if (!shape_equal(t->shape, t->rank, p->shape, p->rank))
		die(EX_DATAERR, "%s: %s: shape %s, wanted %s", s->path, p->name,
		    shape_text(found, t->shape, t->rank), wanted);
	if (!is_plain_float(t->dtype))
		die(EX_DATAERR, "%s: %s: type %s, wanted float32, bfloat16 or float16%s", s->path,
		    p->name, dtype_name(t->dtype),
		    t->dtype == DTYPE_F8_E4M3 ? " (or a weight_scale_inv beside it and "
						"quantization_config in config.json)"
					      : "");
	return t;
}

/* Bit for bit, and of the same type. */
static bool same_bits(struct source *s, const struct source_tensor *a,
		      const struct source_tensor *b)
{
	size_t size = dtype_size(a->dtype);
	long n = source_volume(a), step = COMPARED;
	bool same = a->dtype == b->dtype && a->unit == b->unit &&
		    shape_equal(a->shape, a->rank, b->shape, b->rank);
	char *x, *y;

	if (!same)
		return false;
	if (a->unit > 1)
		step = a->unit > step ? a->unit : step / a->unit * a->unit;
	x = xmalloc((size_t)step * size);
	y = xmalloc((size_t)step * size);
	for (long at = 0; same && at < n; at += step) {
		long m = n - at < step ? n - at : step;

		source_read(x, s, a, at, m);
		source_read(y, s, b, at, m);
		same = !memcmp(x, y, (size_t)m * size);
	}
	free(x);
	free(y);
	return same;
}

static void check_tied_head(struct source *s, const struct source_tensor *head)
{
	if (!same_bits(s, head, source_find(s, embed_name)))
		die(EX_DATAERR, "%s: %s: not the same as %s, though tie_word_embeddings is true",
		    s->path, head_name, embed_name);
	log_warn("%s: %s is the embedding once more (tie_word_embeddings); stored once", s->path,
		 head_name);
}

/* What a model of this kind computes or has elsewhere. */
static bool is_dropped(const struct source *s, const struct source_tensor *t)
{
	return ends_with(t->name, "rotary_emb.inv_freq") ||
	       (s->config.tied && !strcmp(t->name, head_name));
}

static void note_dropped(struct source *s)
{
	const struct source_tensor *head = s->config.tied ? source_find(s, head_name) : NULL;
	long buffers = 0;

	for (long i = 0; i < s->n; i++)
		buffers += ends_with(s->t[i].name, "rotary_emb.inv_freq");
	if (buffers)
		log_warn("%s: %ld rotary_emb.inv_freq left out: config.json gives the frequencies",
			 s->path, buffers);
	if (head)
		check_tied_head(s, head);
}

static void refuse_extra(const struct source *s, long extra, const char *first)
{
	if (extra == 1)
		die(EX_DATAERR, "%s: %s: no weight of a %s model (--allow-extra carries it along)",
		    s->path, first, s->config.model_type);
	die(EX_DATAERR,
	    "%s: %s and %ld more: no weights of a %s model (--allow-extra carries them along)",
	    s->path, first, extra - 1, s->config.model_type);
}

long plan_import(struct planned **out, struct source *s, enum dtype dtype, bool allow_extra)
{
	struct planned *p = xcalloc((size_t)(s->n + s->table.n) + 1, sizeof(*p));
	long n = 0, extra = 0;
	const char *first = NULL;

	for (long i = 0; i < s->table.n; i++) {
		const struct source_tensor *t = find_param(s, &s->table.p[i]);

		p[n++] = (struct planned){ t, stored_type(t, dtype), ROLE_PARAM };
	}
	for (long i = 0; i < s->n; i++) {
		const struct source_tensor *t = &s->t[i];

		if (param_find(&s->table, t->name) || is_dropped(s, t))
			continue;
		if (!extra++)
			first = t->name;
		p[n++] = (struct planned){ t, stored_type(t, dtype), ROLE_CARRIED };
	}
	if (extra && !allow_extra)
		refuse_extra(s, extra, first);
	note_dropped(s);
	*out = p;
	return n;
}
