#include "tools/import-weights/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/chat_template.h"
#include "libcommon/progress.h"
#include "tools/shared/expert_names.h"

enum { PIECE = 4 << 20 }; /* elements at a time, where a unit is not more */

struct checkpoint_tensor *describe_planned(const struct planned *p, long n)
{
	struct checkpoint_tensor *t = xcalloc((size_t)n + 1, sizeof(*t));

	for (long i = 0; i < n; i++) {
		t[i] = (struct checkpoint_tensor){
			.name = p[i].from->name,
			.slot = SLOT_WEIGHT,
			.role = p[i].role,
			.dtype = p[i].dtype,
			.rank = p[i].from->rank,
		};
		for (int k = 0; k < t[i].rank; k++)
			t[i].shape[k] = p[i].from->shape[k];
	}
	return t;
}

/* Elements of a read: whole units, and whole rows where several fit, so that a put is one box. */
static long piece_of(const struct source_tensor *t)
{
	long unit = t->unit > 1 ? t->unit : 1, volume = source_volume(t);

	if (unit == 1 && t->rank > 1 && t->shape[0] && volume / t->shape[0] <= PIECE)
		unit = volume / t->shape[0];
	return unit > PIECE ? unit : PIECE / unit * unit;
}

static void put_range(struct checkpoint_writer *w, long tensor, const struct planned *p,
		      const char *data, long first, long n)
{
	struct box box[2 * TENSOR_RANK];
	int boxes = box_of_range(box, p->from->shape, p->from->rank, first, n);
	struct err e = ERR_INIT;

	for (int i = 0; i < boxes; i++) {
		if (checkpoint_put(w, tensor, &box[i], data, &e))
			die_err(&e);
		data += (size_t)box_volume(&box[i]) * dtype_size(p->dtype);
	}
}

static void store_tensor(struct checkpoint_writer *w, struct source *s, const struct planned *p,
			 struct progress *bar)
{
	long volume = source_volume(p->from), step = piece_of(p->from),
	     tensor = checkpoint_index(w, p->from->name, SLOT_WEIGHT);
	bool convert = p->dtype != p->from->dtype;
	char *read, *put;

	if (step > volume)
		step = volume;
	read = xmalloc((size_t)step * dtype_size(p->from->dtype) + 1);
	put = convert ? xmalloc((size_t)step * dtype_size(p->dtype) + 1) : read;
	for (long at = 0; at < volume; at += step) {
		long n = volume - at < step ? volume - at : step;

		source_read(read, s, p->from, at, n);
		if (convert)
			dtype_convert(put, p->dtype, read, p->from->dtype, (size_t)n);
		put_range(w, tensor, p, put, at, n);
		progress_add(bar, (double)n * (double)dtype_size(p->dtype));
	}
	if (convert)
		free(put);
	free(read);
}

void store_weights(struct checkpoint_writer *w, struct source *s, const struct planned *p, long n)
{
	struct progress bar;
	double total = 0;

	for (long i = 0; i < n; i++)
		total += (double)source_volume(p[i].from) * (double)dtype_size(p[i].dtype);
	progress_start(&bar, "weights", total, "B");
	for (long i = 0; i < n; i++)
		store_tensor(w, s, &p[i], &bar);
	progress_end(&bar);
}

/* A template that we cannot read is kept for others; the programs that need it will refuse it. */
static void try_template(const struct source *s)
{
	struct chat_template *t;
	struct err e = ERR_INIT;

	if (chat_template_parse(&t, s->chat_template.s ? s->chat_template.s : "",
				s->chat_template.len, "chat template", &e))
		log_warn("%s: %s; rollout will want another (policy.tokenizer.chat_template)",
			 s->path, e.msg);
	else
		chat_template_free(t);
}

static void store_tokenizer(struct checkpoint_writer *w, const struct source *s)
{
	struct str packed = { 0 };
	struct blob_part part[2] = { { .name = (char *)"tokenizer" },
				     { .name = (char *)"chat_template" } };
	struct blob blob = { part, 1 + s->has_template };
	struct err e = ERR_INIT;

	if (tokenizer_pack(s->tokenizer, &packed, &e))
		die_err(&e);
	part[0].data = packed.s;
	part[0].bytes = packed.len;
	part[1].data = s->chat_template.s ? s->chat_template.s : (char *)"";
	part[1].bytes = s->chat_template.len;
	if (checkpoint_put_tokenizer(w, &blob, &e))
		die_err(&e);
	str_release(&packed);
}

void store_sides(struct checkpoint_writer *w, const struct source *s)
{
	struct err e = ERR_INIT;

	for (long i = 0; i < s->sides; i++) {
		const struct side *side = &s->side[i];
		char *name = xasprintf("hf/%s", side->name);

		if (checkpoint_put_file(w, name, side->text.s ? side->text.s : "", side->text.len,
					&e))
			die_err(&e);
		free(name);
	}
	if (s->spelling.len && checkpoint_put_file(w, EXPERT_SPELLING_FILE, s->spelling.s, s->spelling.len, &e))
		die_err(&e);
	if (s->has_template)
		try_template(s);
	if (s->tokenizer)
		store_tokenizer(w, s);
}
