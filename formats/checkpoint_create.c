#include "formats/checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/checkpoint_table.h"
#include "libcommon/file.h"

enum { HEADER_BYTES = 512 };            /* what HDF5 needs for one data set, about */

int writer_agree(const struct checkpoint_writer *w, int rc, struct err *e)
{
	return w->comm ? comm_agree(w->comm, rc, e) : rc;
}

/*
 * Weights as given, then the optimizer's slots in the order of their weights; `place` leads from
 * the caller's order to ours.
 */
static int take_tensors(struct checkpoint_writer *w, const struct checkpoint_tensor *tensor, long n,
			const char *dir, struct err *e)
{
	struct checkpoint_tensor *copy = arena_calloc(&w->arena, (size_t)n + 1, sizeof(*copy));
	long *parameter = w->table.parameter = xcalloc((size_t)n + 1, sizeof(long));

	w->place = xcalloc((size_t)n + 1, sizeof(long));
	w->tensor = xcalloc((size_t)n + 1, sizeof(*w->tensor));
	w->sum = xcalloc((size_t)n + 1, sizeof(*w->sum));
	w->caller = copy;
	w->n = n;
	for (long i = 0; i < n; i++) {
		if (table_check_tensor(&tensor[i], dir, e))
			return -1;
		copy[i] = tensor[i];
		copy[i].name = arena_strndup(&w->arena, tensor[i].name, strlen(tensor[i].name));
	}
	if (table_sort(&w->given, copy, n, dir, e))
		return -1;
	long at = 0, weights = 0;
	for (int slot = 0; slot < SLOT_COUNT; slot++) {
		for (long i = 0; i < n; i++) {
			if (copy[i].slot != (enum slot)slot)
				continue;
			parameter[at] =
				slot ? parameter[w->place[table_find(w->given, copy, n,
								     copy[i].name, SLOT_WEIGHT)]]
				     : weights++;
			w->place[i] = at;
			w->tensor[at++] = copy[i];
		}
	}
	return table_sort(&w->table.sorted, w->tensor, n, dir, e);
}

/* The largest file number + 1 of weights or of optimizer state. */
static int count_files(const struct checkpoint_tensor *tensor, const struct checkpoint_piece *piece,
		       long pieces, bool optimizer)
{
	int files = 0;

	for (long i = 0; i < pieces; i++) {
		if (piece[i].file < 0 || piece[i].file >= 10000)
			bug("file number %d", piece[i].file);
		if ((tensor[piece[i].tensor].slot != SLOT_WEIGHT) == optimizer &&
		    piece[i].file >= files)
			files = piece[i].file + 1;
	}
	return files;
}

static void make_shards(struct checkpoint_table *t, int weights, int optim)
{
	t->shards = weights + optim;
	t->shard = xcalloc((size_t)t->shards + 1, sizeof(*t->shard));
	for (int i = 0; i < t->shards; i++) {
		struct shard *s = &t->shard[i];

		s->fd = s->spill = -1;
		s->direct = DIRECT_NONE;
		s->optimizer = i >= weights;
		s->number = s->optimizer ? i - weights : i;
		s->bytes = SHARD_ELSEWHERE;
		snprintf(s->name, sizeof(s->name), "%s-%04d.h5", s->optimizer ? "optim" : "weights",
			 s->number);
	}
}

static struct hdf5_box describe(const struct checkpoint_tensor *t, const struct box *b,
				long parameter, int file)
{
	struct hdf5_box x = {
		.tensor = (uint32_t)parameter,
		.slot = t->slot,
		.dtype = t->dtype,
		.file = (uint32_t)file,
		.bytes = (uint64_t)box_volume(b) * dtype_size(t->dtype),
	};

	for (int i = 0; i < b->rank; i++) {
		x.start[i] = b->start[i];
		x.extent[i] = b->extent[i];
	}
	return x;
}

static int check_spread(const struct checkpoint_table *t, long tensor, const char *name,
			struct err *e)
{
	unsigned char *seen = xcalloc((size_t)t->shards + 1, 1);
	int files = 0;

	for (long i = t->first[tensor]; i < t->first[tensor + 1]; i++) {
		files += !seen[t->box[i].file];
		seen[t->box[i].file] = 1;
	}
	free(seen);
	if (files > SHARDS_OF_TENSOR)
		return err_set(e, EX_UNAVAILABLE, "%s: in %d files, wanted at most %d", name, files,
			       SHARDS_OF_TENSOR);
	return 0;
}

/* The table without offsets: boxes by tensor, each tensor's in the order given. */
static int take_pieces(struct checkpoint_writer *w, const struct checkpoint_piece *piece,
		       long pieces, const char *dir, struct err *e)
{
	struct checkpoint_table *t = &w->table;
	int weights = count_files(w->caller, piece, pieces, false);
	long *next = xcalloc((size_t)w->n + 1, sizeof(*next));
	int rc = 0;

	make_shards(t, weights, count_files(w->caller, piece, pieces, true));
	t->first = xcalloc((size_t)w->n + 1, sizeof(long));
	t->box = xcalloc((size_t)pieces + 1, sizeof(*t->box));
	t->boxes = pieces;
	for (long i = 0; i < pieces; i++)
		t->first[w->place[piece[i].tensor] + 1]++;
	for (long i = 0; i < w->n; i++) {
		t->first[i + 1] += t->first[i];
		next[i] = t->first[i];
	}
	for (long i = 0; i < pieces; i++) {
		long k = w->place[piece[i].tensor];
		const struct checkpoint_tensor *x = &w->tensor[k];

		if (!box_inside(&piece[i].box, x->shape, x->rank) || !box_volume(&piece[i].box))
			bug("%s: a piece that is empty or outside of its tensor", x->name);
		t->box[next[k]++] = describe(x, &piece[i].box, t->parameter[k],
					     piece[i].file + (x->slot ? weights : 0));
	}
	free(next);
	for (long i = 0; i < t->boxes; i++) {
		t->box[i].block = (uint64_t)t->blocks;
		t->blocks += table_grid(t, &t->box[i]).blocks;
	}
	t->block = xcalloc((size_t)t->blocks + 1, sizeof(*t->block));
	t->chunk = xcalloc((size_t)t->blocks + 1, sizeof(*t->chunk));
	if (t->compress) {
		w->raw = xcalloc((size_t)t->boxes + 1, sizeof(*w->raw));
		w->filled = xcalloc((size_t)t->blocks + 1, sizeof(*w->filled));
	}
	w->state = xcalloc((size_t)t->blocks + 1, 1);
	w->put = xcalloc((size_t)t->boxes + 1, sizeof(long));
	if (table_check_tiling(t, w->tensor, w->n, dir, e)) {
		e->code = EX_SOFTWARE;
		return -1;
	}
	for (long i = 0; i < w->n && !rc; i++)
		rc = check_spread(t, i, w->tensor[i].name, e);
	return rc;
}

/* Every tensor whole, in file 0. */
static int take_whole(struct checkpoint_writer *w, const char *dir, struct err *e)
{
	struct checkpoint_piece *piece = xcalloc((size_t)w->n + 1, sizeof(*piece));
	long pieces = 0;
	int rc;

	for (long i = 0; i < w->n; i++)
		if (table_volume(&w->caller[i]))
			piece[pieces++] = (struct checkpoint_piece){
				i, 0, box_whole(w->caller[i].shape, w->caller[i].rank)
			};
	rc = take_pieces(w, piece, pieces, dir, e);
	free(piece);
	return rc;
}

static int make_shard(struct checkpoint_writer *w, int number, struct err *e)
{
	struct checkpoint_table *t = &w->table;
	struct shard *s = &t->shard[number];
	char *path = path_join(w->dir, s->name);
	struct hdf5_file f = { 0 };
	long mine = 0;
	int rc;

	for (long i = 0; i < t->boxes; i++)
		mine += t->box[i].file == (uint32_t)number;
	rc = hdf5_create(&f, path, (size_t)(mine + 4) * HEADER_BYTES, e);
	for (long k = 0; k < w->n && !rc; k++) {
		for (long i = t->first[k]; i < t->first[k + 1] && !rc; i++) {
			struct box b = table_box(&t->box[i], w->tensor[k].rank);
			char *name;

			if (t->box[i].file != (uint32_t)number)
				continue;
			name = table_dataset(&w->tensor[k], &t->box[i]);
			rc = hdf5_reserve(&t->box[i].offset, &f, name, w->tensor[k].dtype, b.extent,
					  b.rank, e);
			free(name);
		}
	}
	if (!rc)
		rc = hdf5_close(&f, e);
	hdf5_abandon(&f);
	if (!rc && (s->fd = open(path, O_RDWR | O_CLOEXEC)) < 0)
		rc = err_errno(e, EX_IOERR, "%s", path);
	if (!rc)
		rc = file_size(path, &s->bytes, e);
	if (!rc)
		direct_open(&s->direct, s->fd, path, O_RDWR);
	free(path);
	return rc;
}

/* Rank 0 makes the directory and tells the others where it is. */
static int make_directory(struct checkpoint_writer *w, const char *dir, struct err *e)
{
	char path[4096] = "";
	int rc = 0;

	if (writer_rank(w) == 0) {
		rc = outdir_create(&w->out, dir, e);
		if (!rc && strlen(w->out.tmp) >= sizeof(path))
			rc = err_set(e, EX_CANTCREAT, "%s: the path is too long", dir);
		if (!rc)
			strcpy(path, w->out.tmp);
	}
	if (writer_agree(w, rc, e))
		return -1;
	if (writer_size(w) > 1)
		comm_broadcast(w->comm, path, sizeof(path), 0);
	w->dir = xstrdup(path);
	return writer_rank(w) ? 0 : outdir_mkdir(&w->out, "hf", e);
}

static int put_json_text(struct json_out *o, const char *key, const char *text, struct err *e)
{
	struct json_doc d = { 0 };

	json_key(o, key);
	if (!text) {
		json_put_null(o);
		return 0;
	}
	if (json_parse(&d, text, strlen(text), key, 1, e))
		return -1;
	json_put(o, &d.root);
	json_release(&d);
	return 0;
}

/* What the manifest says that does not depend on a number in the tensors. */
static int begin_manifest(struct json_out *o, const struct checkpoint_meta *m, struct err *e)
{
	struct layout one = { 0 };

	manifest_begin(o, "model", m->compress ? "zstd" : NULL);
	json_add_str(o, "head", m->head);
	json_add_str(o, "optimizer", m->optimizer);
	json_add_str(o, "precision", m->precision);
	json_add_str(o, "fingerprint", m->fingerprint);
	json_key(o, "counters");
	json_begin(o, '{');
	json_add_int(o, "step", m->counters.step);
	json_add_int(o, "updates", m->counters.updates);
	json_add_int(o, "schedule_step", m->counters.schedule_step);
	json_add_int(o, "skipped", m->counters.skipped);
	json_add_int(o, "consumed_samples", m->counters.consumed_samples);
	json_add_int(o, "tokens", m->counters.tokens);
	json_end(o);
	if (put_json_text(o, "cursor", m->cursor, e))
		return -1;
	json_key(o, "layout");
	if (!m->layout)
		layout_init(&one, 0);
	layout_to_json(o, m->layout ? m->layout : &one);
	layout_release(&one);
	json_key(o, "history");
	history_put(o, &m->history);
	/* What this version does not do; a reader refuses another value than null. */
	json_add_str(o, "base", NULL);
	if (m->compress) {
		json_key(o, "compression");
		json_begin(o, '{');
		json_add_str(o, "filter", "zstd");
		json_add_int(o, "level", m->compress);
		json_end(o);
	} else
		json_add_str(o, "compression", NULL);
	json_add_str(o, "scattered", NULL);
	return 0;
}

int checkpoint_compression(int *level, const char *text, struct err *e)
{
	const char *n = text + 4;
	char *end;
	long v = 3;

	if (strncmp(text, "zstd", 4) || (*n && *n != ':'))
		return err_set(e, EX_USAGE,
			       "--compress %.40s: wanted zstd or zstd:LEVEL; no other is built", text);
	if (*n) {
		v = strtol(n + 1, &end, 10);
		if (n[1] < '0' || n[1] > '9' || *end || v < 1 || v > 19)
			return err_set(e, EX_USAGE, "--compress %.40s: wanted a level of 1 to 19",
				       text);
	}
	*level = (int)v;
	return 0;
}

int checkpoint_create(struct checkpoint_writer **out, const char *dir,
		      const struct checkpoint_meta *m, const struct checkpoint_tensor *tensors,
		      long n, const struct checkpoint_piece *piece, long pieces, struct comm *comm,
		      struct err *e)
{
	struct checkpoint_writer *w = xcalloc(1, sizeof(*w));
	const char *recipe = m->history.recipe;
	int rc;

	*out = NULL;
	w->comm = comm;
	if (m->compress < 0 || m->compress > 19)
		bug("level %d of compression", m->compress);
	w->table.compress = m->compress;
	w->out.lock = -1;
	if (take_tensors(w, tensors, n, dir, e) || begin_manifest(&w->manifest, m, e) ||
	    (piece ? take_pieces(w, piece, pieces, dir, e) : take_whole(w, dir, e)) ||
	    make_directory(w, dir, e))
		goto bad;
	rc = recipe ? checkpoint_put_file(w, "recipe.yaml", recipe, strlen(recipe), e) : 0;
	for (int i = 0; i < w->table.shards && !rc; i++)
		if (writer_owns(w, &w->table.shard[i]))
			rc = m->compress ? writer_open_spill(w, i, e) : make_shard(w, i, e);
	if (writer_agree(w, rc, e))
		goto bad;
	*out = w;
	return 0;
bad:
	checkpoint_abort(w);
	return -1;
}

long checkpoint_index(const struct checkpoint_writer *w, const char *name, enum slot slot)
{
	long i = table_find(w->given, w->caller, w->n, name, slot);

	if (i < 0)
		bug("%s: the checkpoint was not created with its %s", name, slot_name(slot));
	return i;
}

void writer_free(struct checkpoint_writer *w)
{
	table_release(&w->table);
	json_out_release(&w->manifest);
	arena_release(&w->arena);
	free(w->dir);
	free(w->tensor);
	free(w->place);
	free(w->given);
	free(w->state);
	free(w->raw);
	free(w->filled);
	free(w->put);
	free(w->sum);
	free(w->side);
	free(w);
}

void checkpoint_abort(struct checkpoint_writer *w)
{
	if (!w)
		return;
	outdir_abort(&w->out);
	writer_free(w);
}
