#include "tools/reshard/reshard.h"

#include <stdio.h>
#include <stdlib.h>

enum { LINES = 16 };    /* files that are listed */

struct file_sum { long boxes; double bytes; };

static const char *bytes_text(char buf[32], double n)
{
	static const char *const unit[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB" };
	int i = 0;

	for (; n >= 1024 && i < 5; i++)
		n /= 1024;
	snprintf(buf, 32, i ? "%.1f %s" : "%.0f %s", n, unit[i]);
	return buf;
}

/* By number, weights first; their numbers in *weights and *optimizer. */
static struct file_sum *sum_files(int *weights, int *optimizer, const struct listing *t)
{
	struct file_sum *f;

	*weights = *optimizer = 0;
	for (long i = 0; i < t->pieces; i++) {
		int *files = t->tensor[t->piece[i].tensor].slot == SLOT_WEIGHT ? weights : optimizer;

		if (t->piece[i].file >= *files)
			*files = t->piece[i].file + 1;
	}
	f = xcalloc((size_t)(*weights + *optimizer) + 1, sizeof(*f));
	for (long i = 0; i < t->pieces; i++) {
		const struct checkpoint_tensor *x = &t->tensor[t->piece[i].tensor];
		struct file_sum *s = &f[t->piece[i].file + (x->slot == SLOT_WEIGHT ? 0 : *weights)];

		s->boxes++;
		s->bytes += (double)box_volume(&t->piece[i].box) * (double)dtype_size(x->dtype);
	}
	return f;
}

static void print_table(const struct checkpoint *c, const struct listing *t, const struct layout *l, const struct move_totals *m,
			size_t memory)
{
	char a[32], b[32], *from = layout_text(&c->layout), *to = layout_text(l);
	int weights, optimizer;
	struct file_sum *f = sum_files(&weights, &optimizer, t);
	long old = 0;

	for (long i = 0; i < c->n; i++)
		old += checkpoint_boxes(c, i);
	fprintf(stderr, "from      %s, %ld boxes\n", from, old);
	fprintf(stderr, "to        %s, %ld boxes in %d files of weights and %d of optimizer state\n", to, t->pieces, weights, optimizer);
	fprintf(stderr, "read      %s in %ld runs\n", bytes_text(a, m->bytes_read), m->runs);
	fprintf(stderr, "written   %s: %ld blocks as they are, %ld gathered in %ld batches\n", bytes_text(a, m->bytes_written), m->copied,
		m->gathered, m->batches);
	fprintf(stderr, "memory    %s of buffers, bound %s\n", bytes_text(a, (double)m->memory), bytes_text(b, (double)memory));
	fprintf(stderr, "%-16s %8s %12s\n", "file", "boxes", "bytes");
	for (int i = 0; i < weights + optimizer && i < LINES; i++) {
		char *name = i < weights ? xasprintf("weights %04d", i) : xasprintf("optimizer %04d", i - weights);

		fprintf(stderr, "%-16s %8ld %12s\n", name, f[i].boxes, bytes_text(a, f[i].bytes));
		free(name);
	}
	if (weights + optimizer > LINES)
		fprintf(stderr, "and %d more\n", weights + optimizer - LINES);
	free(from);
	free(to);
	free(f);
}

void print_plan(const struct checkpoint *c, const struct listing *t, const struct layout *l, const struct move_totals *m,
		size_t memory)
{
	struct json_out o = { 0 };
	int weights, optimizer;

	free(sum_files(&weights, &optimizer, t));
	print_table(c, t, l, m, memory);
	json_begin(&o, '{');
	json_add_str(&o, "checkpoint", c->dir);
	json_key(&o, "from");
	layout_to_json(&o, &c->layout);
	json_key(&o, "layout");
	layout_to_json(&o, l);
	json_add_int(&o, "files", weights + optimizer);
	json_add_int(&o, "boxes", t->pieces);
	json_add_int(&o, "bytes_read", (long)m->bytes_read);
	json_add_int(&o, "runs", m->runs);
	json_add_int(&o, "bytes_written", (long)m->bytes_written);
	json_add_int(&o, "blocks_copied", m->copied);
	json_add_int(&o, "blocks_gathered", m->gathered);
	json_add_int(&o, "batches", m->batches);
	json_add_int(&o, "memory", (long)m->memory);
	json_end(&o);
	puts(o.s.s);
	json_out_release(&o);
}
