#include "tools/inspect/inspect.h"

#include "libcommon/xalloc.h"
#include "tools/shared/pieces.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What lies in one file. */
struct holding {
	const char *file;               /* borrowed from the manifest */
	long number;                    /* of the file among those of its kind */
	bool slot[SLOT_COUNT];
	unsigned char *layer;           /* owned; one a layer: anything of it is here */
	struct { long first, end; } experts;    /* rows of tensors of experts; end 0: none */
	char **other; long others, cap; /* owned, names borrowed: tensors outside of all layers */
	long boxes;
	double bytes;
};

/* "model.layers.7.mlp..." -> 7; -1: in no layer that the layout has. */
static long layer_of(const char *name, long layers)
{
	const char *at = strstr(name, "layers.");
	char *end;
	long n;

	if (!at || at[7] < '0' || at[7] > '9')
		return -1;
	n = strtol(at + 7, &end, 10);
	return *end == '.' && n < layers ? n : -1;
}

static void add_box(struct holding *h, const struct checkpoint_tensor *t, const struct box *b, long layers)
{
	long layer = layer_of(t->name, layers), i = 0;

	h->boxes++;
	h->bytes += (double)box_volume(b) * (double)dtype_size(t->dtype);
	h->slot[t->slot] = true;
	if (t->rank == 3 && strstr(t->name, ".experts.")) {
		long end = b->start[0] + b->extent[0];

		h->experts.first = !h->experts.end || b->start[0] < h->experts.first ? b->start[0] : h->experts.first;
		h->experts.end = end > h->experts.end ? end : h->experts.end;
	}
	if (layer >= 0) {
		h->layer[layer] = 1;
		return;
	}
	while (i < h->others && strcmp(h->other[i], t->name))
		i++;
	if (i < h->others)
		return;
	GROW(h->other, h->others, h->cap);
	h->other[h->others++] = (char *)t->name;
}

static int by_file(const void *name, const void *h)
{
	return strcmp(name, ((const struct holding *)h)->file);
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct holding *)a)->file, ((const struct holding *)b)->file);
}

/* Weights before optimizer state. */
static int by_kind(const void *a, const void *b)
{
	const struct holding *x = a, *y = b;
	int k = !strncmp(x->file, "optim", 5) - !strncmp(y->file, "optim", 5);

	return k ? k : by_name(a, b);
}

/* One for each shard. */
static struct holding *list(long *n, const struct checkpoint *c)
{
	const struct json *shards = json_get(&c->manifest.root, "shards");
	struct holding *h = xcalloc(shards->n + 1, sizeof(*h));

	*n = (long)shards->n;
	for (long i = 0; i < *n; i++) {
		const char *name = json_get(shards->item + i, "name")->text, *dash = strrchr(name, '-');

		h[i] = (struct holding){ .file = name, .number = dash ? strtol(dash + 1, NULL, 10) : 0 };
		h[i].layer = xcalloc((size_t)c->layout.layers + 1, 1);
	}
	qsort(h, (size_t)*n, sizeof(*h), by_name);
	for (long t = 0; t < c->n; t++) {
		for (long i = 0; i < checkpoint_boxes(c, t); i++) {
			struct box b;
			const char *file = checkpoint_box(&b, c, t, i);

			add_box(bsearch(file, h, (size_t)*n, sizeof(*h), by_file), &c->tensor[t], &b,
				c->layout.layers);
		}
	}
	qsort(h, (size_t)*n, sizeof(*h), by_kind);
	return h;
}

/* The ranks of a file: [first, end). */
static void ranks_of(long *first, long *end, const struct holding *h, const struct layout *l)
{
	long world = layout_world(l);

	*first = 0;
	while (*first < world && layout_file(l, *first) < h->number)
		++*first;
	*end = *first;
	while (*end < world && layout_file(l, *end) == h->number)
		++*end;
}

/* The end of the run of layers that begins at i. */
static long run_end(const struct holding *h, long i, long layers)
{
	while (i < layers && h->layer[i])
		i++;
	return i;
}

static void add_words(struct str *s, const struct holding *h, const struct layout *l)
{
	const char *between = "layers ";

	for (long i = 0; i < l->layers; i++) {
		long end = run_end(h, i, l->layers);

		if (end == i)
			continue;
		str_printf(s, end - i > 1 ? "%s%ld-%ld" : "%s%ld", between, i, end - 1);
		between = ", ";
		i = end;
	}
	if (h->experts.end)
		str_printf(s, "; experts %ld-%ld", h->experts.first, h->experts.end - 1);
	for (long i = 0; i < h->others; i++) {
		str_puts(s, s->len ? "; " : "");
		add_safe(s, h->other[i], strlen(h->other[i]), false);
	}
	if (!h->boxes)
		str_puts(s, "nothing");
}

static void print_words(const struct holding *h, const struct layout *l, bool experts)
{
	long first, end;
	struct str s = { 0 };

	ranks_of(&first, &end, h, l);
	printf("%s\n", h->file);
	for (long r = first; r < end; r++) {
		struct place p = layout_place(l, r);

		printf("  rank %ld: tp %ld, cp %ld, dp %ld, stage %ld", r, p.tp, p.cp, p.dp, p.pp);
		if (experts)
			printf("; of experts: etp %ld, ep %ld, edp %ld", p.etp, p.ep, p.edp);
		putchar('\n');
	}
	add_words(&s, h, l);
	printf("  %s: %ld boxes, %.1f MiB\n", s.s, h->boxes, h->bytes / 1048576);
	str_release(&s);
}

static void put_numbers(struct json_out *o, const char *key, long first, long end)
{
	json_key(o, key);
	json_begin(o, '[');
	json_put_int(o, first);
	json_put_int(o, end);
	json_end(o);
}

static void put_place(struct json_out *o, const struct layout *l, long rank)
{
	struct place p = layout_place(l, rank);

	json_begin(o, '{');
	json_add_int(o, "rank", rank);
	json_add_int(o, "tp", p.tp);
	json_add_int(o, "cp", p.cp);
	json_add_int(o, "dp", p.dp);
	json_add_int(o, "pp", p.pp);
	json_add_int(o, "etp", p.etp);
	json_add_int(o, "ep", p.ep);
	json_add_int(o, "edp", p.edp);
	json_end(o);
}

static void put_holding(struct json_out *o, const struct holding *h, const struct layout *l)
{
	long first, end;

	ranks_of(&first, &end, h, l);
	json_begin(o, '{');
	json_add_str(o, "file", h->file);
	json_key(o, "ranks");
	json_begin(o, '[');
	for (long r = first; r < end; r++)
		put_place(o, l, r);
	json_end(o);
	json_key(o, "slots");
	json_begin(o, '[');
	for (int s = 0; s < SLOT_COUNT; s++)
		if (h->slot[s])
			json_put_str(o, slot_name((enum slot)s));
	json_end(o);
	json_key(o, "layers");
	json_begin(o, '[');
	for (long i = 0; i < l->layers; i++)
		if (h->layer[i])
			json_put_int(o, i);
	json_end(o);
	if (h->experts.end)
		put_numbers(o, "experts", h->experts.first, h->experts.end - 1);
	json_key(o, "others");
	json_begin(o, '[');
	for (long i = 0; i < h->others; i++)
		json_put_str(o, h->other[i]);
	json_end(o);
	json_add_int(o, "boxes", h->boxes);
	json_add_int(o, "bytes", (long)h->bytes);
	json_end(o);
}

static void put_all(const struct checkpoint *c, const struct holding *h, long n, const char *words)
{
	struct json_out o = { 0 };

	json_begin(&o, '{');
	json_add_str(&o, "path", c->dir);
	json_add_str(&o, "words", words);
	json_key(&o, "layout");
	layout_to_json(&o, &c->layout);
	json_key(&o, "files");
	json_begin(&o, '[');
	for (long i = 0; i < n; i++)
		put_holding(&o, &h[i], &c->layout);
	json_end(&o);
	json_end(&o);
	print_facts(&o, true);
}

void print_layout(const char *dir, bool json)
{
	struct checkpoint c;
	struct err e = ERR_INIT;
	struct holding *h;
	bool experts = false;
	char *words;
	long n;

	if (checkpoint_open(&c, dir, &e))
		die_err(&e);
	h = list(&n, &c);
	words = layout_text(&c.layout);
	for (long i = 0; i < n; i++)
		experts |= h[i].experts.end > 0;
	if (json) {
		put_all(&c, h, n, words);
	} else {
		long world = layout_world(&c.layout);

		printf("%s: %ld rank%s, %ld file%s\n", words, world, world > 1 ? "s" : "", n, n > 1 ? "s" : "");
		for (long i = 0; i < n; i++)
			print_words(&h[i], &c.layout, experts);
	}
	for (long i = 0; i < n; i++) {
		free(h[i].layer);
		free(h[i].other);
	}
	free(h);
	free(words);
	checkpoint_close(&c);
}
