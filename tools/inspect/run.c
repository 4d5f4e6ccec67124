#include "tools/inspect/inspect.h"

#include "libcommon/xalloc.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TABLE_ROWS = 20 };

/* What a reader looks at first; the first key that a step has. */
static const struct column { const char *shown, *key[3]; } columns[] = {
	{ "reward", { "train/reward" } },
	{ "loss", { "train/loss" } },
	{ "grad_norm", { "train/grad_norm" } },
	{ "lr", { "train/lr" } },
	{ "length", { "train/generation_lengths", "train/mean_gen_tokens_per_sample" } },
	{ "val accuracy", { "validation/accuracy" } },
	{ "val length", { "validation/avg_length" } },
	{ "val loss", { "validation/val_loss" } },
};
enum { COLUMNS = sizeof(columns) / sizeof(*columns) };

static void step_metrics(struct json_doc *d, const struct run *u, long step)
{
	struct json_out o = { 0 };
	struct err e = ERR_INIT;

	run_put_metrics(&o, u, step);
	if (json_parse(d, o.s.s, o.s.len, "metrics", 1, &e))
		die_err(&e);
	json_out_release(&o);
}

/* The number as it was written, or NULL. */
static const char *column_text(const struct json_doc *d, const struct column *c)
{
	for (int k = 0; k < 3 && c->key[k]; k++) {
		const struct json *v = json_get(&d->root, c->key[k]);

		if (json_is(v, JSON_NUMBER))
			return v->text;
	}
	return NULL;
}

/* Without a metric to go by the newest is the best. */
long run_best(const struct run *u)
{
	bool higher = !u->recipe || recipe_bool(u->recipe, "checkpointing.higher_is_better");
	bool newest = u->recipe && recipe_is_null(u->recipe, "checkpointing.metric_name");
	double top = NAN;
	long best = -1;

	if (newest)
		return u->kept.n ? u->kept.v[u->kept.n - 1] : -1;
	for (long i = 0; i < u->kept.n; i++) {
		double v = run_metric(u, u->kept.v[i]);

		if (isnan(v) || (best >= 0 && (higher ? v < top : v > top)))
			continue;
		best = u->kept.v[i];
		top = v;
	}
	return best;
}

void run_print_jsonl(const struct run *u)
{
	for (long i = 0; i < u->all.n; i++) {
		struct json_out o = { 0 };

		run_put_metrics(&o, u, u->all.v[i]);
		print_facts(&o, true);
	}
}

/* Of the newest checkpoint: samples of a step that is not trained yet are no news. */
void run_print_line(const struct run *u)
{
	const struct steps *s = u->kept.n ? &u->kept : &u->all;
	struct json_doc d;

	if (!s->n)
		die(1, "%s: no step yet", u->dir);
	step_metrics(&d, u, s->v[s->n - 1]);
	printf("step %ld", s->v[s->n - 1]);
	for (int i = 0; i < COLUMNS; i++)
		if (column_text(&d, columns + i))
			printf("  %s %s", columns[i].shown, column_text(&d, columns + i));
	putchar('\n');
	json_release(&d);
}

static void print_table(const struct run *u)
{
	long n = u->all.n < TABLE_ROWS ? u->all.n : TABLE_ROWS, *step = u->all.v + u->all.n - n;
	struct json_doc *d = xcalloc((size_t)n + 1, sizeof(*d));
	int wide[COLUMNS] = { 0 };

	for (long i = 0; i < n; i++) {
		step_metrics(&d[i], u, step[i]);
		for (int c = 0; c < COLUMNS; c++) {
			const char *t = column_text(&d[i], columns + c);

			if (t && (int)strlen(t) > wide[c])
				wide[c] = (int)strlen(t);
		}
	}
	printf("%8s", "step");
	for (int c = 0; c < COLUMNS; c++) {
		if (wide[c] && wide[c] < (int)strlen(columns[c].shown))
			wide[c] = (int)strlen(columns[c].shown);
		if (wide[c])
			printf("  %*s", wide[c], columns[c].shown);
	}
	putchar('\n');
	for (long i = 0; i < n; i++) {
		printf("%8ld", step[i]);
		for (int c = 0; c < COLUMNS; c++) {
			const char *t = column_text(&d[i], columns + c);

			if (wide[c])
				printf("  %*s", wide[c], t ? t : "");
		}
		putchar('\n');
		json_release(&d[i]);
	}
	free(d);
}

static void put_step(struct json_out *o, const char *key, long step)
{
	json_key(o, key);
	if (step < 0)
		json_put_null(o);
	else
		json_put_int(o, step);
}

void run_print(const struct run *u, bool json)
{
	struct json_out o = { 0 };
	long from = u->all.n > TABLE_ROWS ? u->all.n - TABLE_ROWS : 0;

	json_begin(&o, '{');
	json_add_str(&o, "kind", "run");
	json_add_str(&o, "path", u->dir);
	json_add_int(&o, "steps", u->all.n);
	put_step(&o, "latest", u->kept.n ? u->kept.v[u->kept.n - 1] : -1);
	put_step(&o, "best", run_best(u));
	json_add_str(&o, "metric", u->recipe ? recipe_str(u->recipe, "checkpointing.metric_name") : NULL);
	json_key(&o, "checkpoints");
	json_begin(&o, '[');
	for (long i = 0; i < u->kept.n; i++)
		json_put_int(&o, u->kept.v[i]);
	json_end(&o);
	if (json) {
		json_key(&o, "last");
		json_begin(&o, '[');
		for (long i = from; i < u->all.n; i++)
			run_put_metrics(&o, u, u->all.v[i]);
		json_end(&o);
	}
	json_end(&o);
	print_facts(&o, json);
	if (!json && u->all.n)
		print_table(u);
}
