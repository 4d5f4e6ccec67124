#include "formats/checkpoint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/checkpoint_table.h"
#include "libcommon/file.h"

enum { TABLE_MOST = 1 << 30, SHARDS_MOST = 20000 };

static const struct json *member(const struct checkpoint *c, const char *key)
{
	return json_get(&c->manifest.root, key);
}

static int want_array(const struct json **a, const struct checkpoint *c, const char *key,
		      struct err *e)
{
	*a = member(c, key);
	if (!json_is(*a, JSON_ARRAY))
		return err_set(e, EX_DATAERR, "%s: %s: found %s, wanted an array", c->manifest.file,
			       key, json_type_name(*a));
	return 0;
}

/* A string or null (NULL). */
static int text_or_null(const char **out, const struct checkpoint *c, const char *key,
			struct err *e)
{
	*out = NULL;
	if (json_is(member(c, key), JSON_NULL))
		return 0;
	return json_str(&c->manifest, member(c, key), key, out, e);
}

static int not_built(const struct checkpoint *c, const char *key, struct err *e)
{
	if (!member(c, key) || json_is(member(c, key), JSON_NULL))
		return 0;
	return err_set(e, EX_UNAVAILABLE,
		       "%s: %s: this version does not read checkpoints that use it",
		       c->manifest.file, key);
}

static int read_counters(struct checkpoint *c, struct err *e)
{
	const struct json *o = member(c, "counters");
	struct { const char *key; long *to;
	} const n[] = {
		{ "step", &c->counters.step },
		{ "updates", &c->counters.updates },
		{ "schedule_step", &c->counters.schedule_step },
		{ "skipped", &c->counters.skipped },
		{ "consumed_samples", &c->counters.consumed_samples },
		{ "tokens", &c->counters.tokens },
	};

	for (size_t i = 0; i < sizeof(n) / sizeof(*n); i++) {
		if (json_int(&c->manifest, json_get(o, n[i].key), n[i].key, n[i].to, e))
			return -1;
		if (*n[i].to < 0)
			return err_set(e, EX_DATAERR,
				       "%s: counters.%s: found %ld, wanted 0 or more",
				       c->manifest.file, n[i].key, *n[i].to);
	}
	return 0;
}

static int read_compression(struct checkpoint *c, struct err *e)
{
	const struct json *o = member(c, "compression");
	const char *filter;
	long level;

	if (!o || json_is(o, JSON_NULL))
		return 0;
	if (json_str(&c->manifest, json_get(o, "filter"), "compression.filter", &filter, e) ||
	    json_int(&c->manifest, json_get(o, "level"), "compression.level", &level, e))
		return -1;
	if (strcmp(filter, "zstd"))
		return err_set(e, EX_UNAVAILABLE, "%s: compression.filter: %.40s is not known to this version",
			       c->manifest.file, filter);
	if (level < 1 || level > 19)
		return err_set(e, EX_DATAERR, "%s: compression.level: found %ld, wanted 1 to 19",
			       c->manifest.file, level);
	c->compress = c->table->compress = (int)level;
	return 0;
}

static int read_summary(struct checkpoint *c, struct err *e)
{
	const char *id;

	if (not_built(c, "base", e) || read_compression(c, e) || not_built(c, "scattered", e))
		return -1;
	if (json_str(&c->manifest, member(c, "id"), "id", &id, e) ||
	    text_or_null(&c->head, c, "head", e) ||
	    text_or_null(&c->optimizer, c, "optimizer", e) ||
	    text_or_null(&c->precision, c, "precision", e) ||
	    text_or_null(&c->fingerprint, c, "fingerprint", e) || read_counters(c, e))
		return -1;
	if (strlen(id) != 16 || !c->head)
		return err_set(e, EX_DATAERR,
			       "%s: id and head: wanted 16 hexadecimal digits and a name",
			       c->manifest.file);
	memcpy(c->id, id, 17);
	c->cursor = json_is(member(c, "cursor"), JSON_NULL) ? NULL : member(c, "cursor");
	c->history = member(c, "history");
	if (layout_from_json(&c->layout, &c->manifest, member(c, "layout"), e) ||
	    history_check(&c->manifest, c->history, e) ||
	    manifest_get_digest(&c->weights_digest, &c->manifest, &c->manifest.root,
				"weights_digest", e))
		return -1;
	c->has_optimizer = !json_is(member(c, "optimizer_digest"), JSON_NULL);
	if (c->has_optimizer && manifest_get_digest(&c->optimizer_digest, &c->manifest,
						    &c->manifest.root, "optimizer_digest", e))
		return -1;
	c->has_tokenizer = !json_is(member(c, "tokenizer"), JSON_NULL);
	if (c->has_tokenizer)
		return manifest_get_digest(&c->tokenizer_digest, &c->manifest,
					   member(c, "tokenizer"), "digest", e);
	return 0;
}

static int read_files(struct checkpoint *c, struct err *e)
{
	const struct json *side, *shards;
	struct checkpoint_table *t = c->table;

	if (want_array(&side, c, "side", e) || want_array(&shards, c, "shards", e))
		return -1;
	c->side = xcalloc(side->n + 1, sizeof(*c->side));
	for (; c->sides < (long)side->n; c->sides++)
		if (manifest_get_file(&c->side[c->sides], &c->manifest, &side->item[c->sides], e))
			return -1;
	if (!checkpoint_has_side(c, "hf/config.json"))
		return err_set(e, EX_DATAERR, "%s: it lists no hf/config.json", c->manifest.file);
	if (shards->n > SHARDS_MOST)
		return err_set(e, EX_DATAERR, "%s: %zu shards, wanted at most %d", c->manifest.file,
			       shards->n, SHARDS_MOST);
	t->shard = xcalloc(shards->n + 1, sizeof(*t->shard));
	for (; t->shards < (int)shards->n; t->shards++) {
		struct shard *s = &t->shard[t->shards];
		struct manifest_file f;

		s->fd = s->spill = -1;
		s->direct = DIRECT_NONE;
		if (manifest_get_file(&f, &c->manifest, &shards->item[t->shards], e))
			return -1;
		if (strlen(f.name) >= sizeof(s->name) || strchr(f.name, '/'))
			return err_set(e, EX_DATAERR, "%s: \"%s\" cannot be the name of a shard",
				       c->manifest.file, f.name);
		strcpy(s->name, f.name);
		s->optimizer = !strncmp(f.name, "optim-", 6);
		s->bytes = f.bytes;
		s->frame = f.hash;
	}
	return 0;
}

static int read_role(enum param_role *role, const struct checkpoint *c, const struct json *o,
		     struct err *e)
{
	const char *text;

	if (json_str(&c->manifest, json_get(o, "role"), "role", &text, e))
		return -1;
	for (int r = ROLE_PARAM; r <= ROLE_CARRIED; r++) {
		if (!strcmp(role_name((enum param_role)r), text)) {
			*role = (enum param_role)r;
			return 0;
		}
	}
	return err_set(e, EX_DATAERR, "%s:%d: role: found \"%.40s\"", c->manifest.file, o->line,
		       text);
}

static int read_dtype(enum dtype *dtype, const struct checkpoint *c, const struct json *o,
		      struct err *e)
{
	const char *text;

	if (json_str(&c->manifest, json_get(o, "dtype"), "dtype", &text, e))
		return -1;
	*dtype = dtype_find(text);
	if (*dtype == DTYPE_NONE)
		return err_set(e, EX_DATAERR, "%s:%d: dtype: found \"%.40s\"", c->manifest.file,
			       o->line, text);
	return 0;
}

static int read_weight(struct checkpoint *c, long i, const struct json *o, struct err *e)
{
	struct checkpoint_tensor *t = &c->tensor[i];
	const struct json *name = json_get(o, "name"), *shape = json_get(o, "shape");

	c->table->parameter[i] = i;
	if (json_str(&c->manifest, name, "name of a tensor", &t->name, e) ||
	    read_dtype(&t->dtype, c, o, e) || read_role(&t->role, c, o, e) ||
	    manifest_get_digest(&c->sum[i], &c->manifest, o, "sum", e))
		return -1;
	if (strlen(t->name) != name->n || !json_is(shape, JSON_ARRAY) || shape->n > TENSOR_RANK)
		return err_set(e, EX_DATAERR, "%s:%d: a tensor's name or shape cannot be",
			       c->manifest.file, o->line);
	t->rank = (int)shape->n;
	for (int k = 0; k < t->rank; k++)
		if (json_int(&c->manifest, &shape->item[k], "shape", &t->shape[k], e))
			return -1;
	return table_check_tensor(t, c->manifest.file, e);
}

/* How many optimizer tensors the manifest lists. */
static long count_slots(const struct json *tensors)
{
	long n = 0;

	for (size_t i = 0; i < tensors->n; i++) {
		const struct json *s = json_get(&tensors->item[i], "slots");

		n += json_is(s, JSON_OBJECT) ? (long)s->n : 0;
	}
	return n;
}

static int read_slot(struct checkpoint *c, const struct json *slots, long parameter, enum slot slot,
		     struct err *e)
{
	const struct json *o = json_get(slots, slot_name(slot));

	if (!o)
		return 0;
	c->tensor[c->n] = c->tensor[parameter];
	c->tensor[c->n].slot = slot;
	c->table->parameter[c->n] = parameter;
	if (read_dtype(&c->tensor[c->n].dtype, c, o, e) ||
	    manifest_get_digest(&c->sum[c->n], &c->manifest, o, "sum", e) ||
	    table_check_tensor(&c->tensor[c->n], c->manifest.file, e))
		return -1;
	c->n++;
	return 0;
}

static int read_tensors(struct checkpoint *c, struct err *e)
{
	const struct json *list;
	long n, all;

	if (want_array(&list, c, "tensors", e))
		return -1;
	n = (long)list->n;
	all = n + count_slots(list);
	c->tensor = xcalloc((size_t)all + 1, sizeof(*c->tensor));
	c->sum = xcalloc((size_t)all + 1, sizeof(*c->sum));
	c->table->parameter = xcalloc((size_t)all + 1, sizeof(long));
	for (; c->n < n; c->n++)
		if (read_weight(c, c->n, &list->item[c->n], e))
			return -1;
	for (int s = SLOT_WEIGHT + 1; s < SLOT_COUNT; s++)
		for (long i = 0; i < n; i++)
			if (read_slot(c, json_get(&list->item[i], "slots"), i, (enum slot)s, e))
				return -1;
	if (c->n != all)
		return err_set(e, EX_UNAVAILABLE,
			       "%s: tensors: an optimizer slot that this version does not know",
			       c->manifest.file);
	return table_sort(&c->table->sorted, c->tensor, c->n, c->manifest.file, e);
}

/* Row i belongs to tensor k, and every number in it is possible. */
static int check_box(const struct checkpoint *c, long k, long i, uint64_t block, const char *file,
		     struct err *e)
{
	const struct checkpoint_table *t = c->table;
	const struct checkpoint_tensor *x = &c->tensor[k];
	const struct hdf5_box *b = &t->box[i];
	struct box box = table_box(b, x->rank);

	if (b->tensor != (uint32_t)t->parameter[k] || b->slot != (uint32_t)x->slot ||
	    b->dtype != (uint32_t)x->dtype)
		return err_set(e, EX_DATAERR, "%s: %s: box %ld is of another tensor, slot or type",
			       file, x->name, i);
	if (b->file >= (uint32_t)t->shards ||
	    t->shard[b->file].optimizer != (x->slot != SLOT_WEIGHT))
		return err_set(e, EX_DATAERR,
			       "%s: %s: box %ld is in file %u, which is not one of its shards",
			       file, x->name, i, b->file);
	if (!box_inside(&box, x->shape, x->rank) || !box_volume(&box))
		return err_set(e, EX_DATAERR, "%s: %s: box %ld is empty or outside of the tensor",
			       file, x->name, i);
	if (b->bytes != (uint64_t)box_volume(&box) * dtype_size(x->dtype) || b->block != block)
		return err_set(e, EX_DATAERR, "%s: %s: box %ld has %llu bytes from block %llu",
			       file, x->name, i, (unsigned long long)b->bytes,
			       (unsigned long long)b->block);
	return 0;
}

static int check_boxes(struct checkpoint *c, const char *file, struct err *e)
{
	struct checkpoint_table *t = c->table;
	uint64_t block = 0;
	long i = 0;

	t->first = xcalloc((size_t)c->n + 1, sizeof(long));
	for (long k = 0; k < c->n; k++) {
		t->first[k] = i;
		for (; i < t->boxes && t->box[i].tensor == (uint32_t)t->parameter[k] &&
		       t->box[i].slot == c->tensor[k].slot;
		     i++) {
			if (check_box(c, k, i, block, file, e))
				return -1;
			block += (uint64_t)table_grid(t, &t->box[i]).blocks;
		}
	}
	t->first[c->n] = i;
	if (i != t->boxes || block != (uint64_t)t->blocks)
		return err_set(
			e, EX_DATAERR,
			"%s: box %ld of %ld is of no tensor in its order, or %llu blocks are not %ld",
			file, i, t->boxes, (unsigned long long)block, t->blocks);
	return 0;
}

/* Box i is stored in chunks: none is larger than its raw bytes; the others are checked by place. */
static int check_chunks(const struct checkpoint *c, long i, const char *file, struct err *e)
{
	const struct checkpoint_table *t = c->table;
	const struct hdf5_box *b = &t->box[i];
	struct grid g = table_grid(t, b);
	uint64_t most = (uint64_t)g.per * dtype_size((enum dtype)b->dtype);

	if (!g.chunked)
		return 0;
	for (long k = 0; k < g.blocks; k++) {
		const struct hdf5_chunk *x = &t->chunk[b->block + (uint64_t)k];

		if (!x->bytes || x->bytes > most)
			return err_set(e, EX_DATAERR,
				       "%s: box %ld: a chunk of %llu bytes, wanted 1 to %llu", file,
				       i, (unsigned long long)x->bytes, (unsigned long long)most);
	}
	return 0;
}

/* Where each block is stored: in a table of its own where there are chunks, else by the boxes. */
static int read_chunks(struct checkpoint *c, struct hdf5_file *f, struct err *e)
{
	struct checkpoint_table *t = c->table;
	long shape[2] = { 0 };
	void *chunks;

	if (!t->compress) {
		t->chunk = xcalloc((size_t)t->blocks + 1, sizeof(*t->chunk));
		return 0;
	}
	if (hdf5_get(&chunks, shape, f, "chunks", DTYPE_U64, 2, TABLE_MOST, e))
		return -1;
	t->chunk = chunks;
	if (shape[0] != t->blocks || shape[1] != 3)
		return err_set(e, EX_DATAERR, "%s: chunks: %ld by %ld numbers, wanted %ld by 3",
			       f->path, shape[0], shape[1], t->blocks);
	return 0;
}

/* The table of boxes, from an index that is verified before libhdf5 sees it. */
static int read_index(struct checkpoint *c, struct err *e)
{
	struct checkpoint_table *t = c->table;
	struct hdf5_file f = { 0 };
	struct manifest_file m;
	void *blocks = NULL;
	char *path;
	int rc;

	if (manifest_get_file(&m, &c->manifest, member(c, "index"), e) ||
	    manifest_check_file(c->dir, &m, e))
		return -1;
	path = path_join(c->dir, m.name);
	rc = hdf5_open(&f, path, e) ||
			     hdf5_get_boxes(&t->box, &t->boxes, &f, "boxes", TABLE_MOST, e) ||
			     hdf5_get(&blocks, &t->blocks, &f, "blocks", DTYPE_U64, 1, TABLE_MOST,
				      e)
		     ? -1
		     : 0;
	t->block = blocks;
	if (!rc)
		rc = read_chunks(c, &f, e);
	hdf5_abandon(&f);
	if (!rc)
		rc = check_boxes(c, path, e);
	for (long i = 0; i < t->boxes && !rc; i++)
		rc = check_chunks(c, i, path, e);
	if (!rc)
		rc = table_check_tiling(t, c->tensor, c->n, path, e) ||
		     table_index_shards(t, c->dir, e) ? -1 : 0;
	free(path);
	return rc;
}

/* Weights must be there; optimizer state may be looked for by those who use it. */
static int check_shards(const struct checkpoint *c, struct err *e)
{
	for (int i = 0; i < c->table->shards; i++) {
		const struct shard *s = &c->table->shard[i];
		struct manifest_file f = { .bytes = s->bytes };

		strcpy(f.name, s->name);
		if (!s->optimizer && manifest_check_size(c->dir, &f, e))
			return -1;
	}
	return 0;
}

int checkpoint_open(struct checkpoint *c, const char *dir, struct err *e)
{
	*c = (struct checkpoint){ .dir = xstrdup(dir),
				  .table = xcalloc(1, sizeof(struct checkpoint_table)) };
	if (manifest_read(&c->manifest, dir, "model", e) || read_summary(c, e) ||
	    read_files(c, e) || read_tensors(c, e) || read_index(c, e) || check_shards(c, e)) {
		checkpoint_close(c);
		return -1;
	}
	return 0;
}

void checkpoint_close(struct checkpoint *c)
{
	if (c->table)
		table_release(c->table);
	free(c->table);
	free(c->side);
	free(c->tensor);
	free(c->sum);
	free(c->dir);
	layout_release(&c->layout);
	json_release(&c->manifest);
	*c = (struct checkpoint){ 0 };
}

long checkpoint_find(const struct checkpoint *c, const char *name, enum slot slot)
{
	long i = table_find(c->table->sorted, c->tensor, c->n, name, slot);

	if (i < 0 && slot == SLOT_MASTER) {
		i = table_find(c->table->sorted, c->tensor, c->n, name, SLOT_WEIGHT);
		if (i >= 0 && c->tensor[i].dtype != DTYPE_F32)
			i = -1;
	}
	return i;
}

long checkpoint_boxes(const struct checkpoint *c, long tensor)
{
	return c->table->first[tensor + 1] - c->table->first[tensor];
}

const char *checkpoint_box(struct box *b, const struct checkpoint *c, long tensor, long i)
{
	const struct hdf5_box *x = &c->table->box[c->table->first[tensor] + i];

	*b = table_box(x, c->tensor[tensor].rank);
	return c->table->shard[x->file].name;
}
