#include "tools/shared/start.h"

#include "libcommon/file.h"
#include "libcommon/progress.h"
#include "libcommon/xalloc.h"
#include "tools/shared/timing.h"

#include <stdlib.h>
#include <string.h>

void load_checkpoint(struct checkpoint *c, const char *dir)
{
	double start = seconds_now();
	struct err e = ERR_INIT;

	if (checkpoint_open(c, dir, &e))
		die_err(&e);
	timing_add(TIMING_LOAD, start);
}

/* A side file as JSON; false where the checkpoint has none of that name. */
static bool side_json(struct json_doc *d, const struct checkpoint *c, const char *name)
{
	struct str text = { 0 };
	struct err e = ERR_INIT;
	char *path;

	if (!checkpoint_has_side(c, name))
		return false;
	path = path_join(c->dir, name);
	if (checkpoint_side_file(&text, c, name, &e) || json_parse(d, text.s, text.len, path, 1, &e))
		die_err(&e);
	str_release(&text);
	free(path);
	return true;
}

void load_config(struct model_config *out, const struct checkpoint *c)
{
	struct json_doc d;
	struct err e = ERR_INIT;

	if (!side_json(&d, c, "hf/config.json"))
		die(EX_DATAERR, "%s: no hf/config.json, wanted the model's config", c->dir);
	if (model_config_from_json(out, &d, &e))
		die_err(&e);
	json_release(&d);
}

/* The tensor of parameter p, with the shape that the config asks for. */
static long find_weight(const struct checkpoint *c, const struct param *p)
{
	long i = checkpoint_find(c, p->name, SLOT_WEIGHT);
	char found[160], wanted[160];

	if (i < 0)
		die(EX_DATAERR, "%s: %s: no such tensor, the model's config wants it", c->dir, p->name);
	if (!shape_equal(c->tensor[i].shape, c->tensor[i].rank, p->shape, p->rank))
		die(EX_DATAERR, "%s: %s: shape %s, wanted %s", c->dir, p->name,
		    shape_text(found, c->tensor[i].shape, c->tensor[i].rank), shape_text(wanted, p->shape, p->rank));
	return i;
}

/* A box of a slot in fp32. */
static float *read_slot(struct checkpoint *c, const struct param *p, enum slot slot, const struct box *b)
{
	long i = checkpoint_find(c, p->name, slot);
	struct err e = ERR_INIT;
	float *f;

	if (i < 0)
		die(EX_DATAERR, "%s: %s: no %s, though the checkpoint has optimizer state", c->dir, p->name, slot_name(slot));
	f = xmalloc((size_t)box_volume(b) * sizeof(float));
	if (checkpoint_read_f32(f, c, i, b, &e))
		die_err(&e);
	return f;
}

/* weight: the stored bits of m->box[i].  The own rows are a run of them. */
static void load_optimizer(struct model *m, struct checkpoint *c, long i, const void *weight, enum dtype dtype)
{
	const struct param *p = m->table.p + i;
	const struct weight *w = m->w + i;
	float *master, *avg, *sq;
	struct err e = ERR_INIT;

	if (!w->n)
		return;
	master = read_slot(c, p, SLOT_MASTER, &w->own);
	avg = read_slot(c, p, SLOT_EXP_AVG, &w->own);
	sq = read_slot(c, p, SLOT_EXP_AVG_SQ, &w->own);
	if (checkpoint_check_master(p->name, (const char *)weight + (size_t)w->first * dtype_size(dtype), dtype, master, w->first, w->n, &e))
		die_err(&e);
	model_set_optimizer(m, i, master, avg, sq);
	free(master);
	free(avg);
	free(sq);
}

static void load_weight(struct model *m, struct checkpoint *c, long i)
{
	const struct param *p = m->table.p + i;
	long w = find_weight(c, p);
	const struct checkpoint_tensor *t = c->tensor + w;
	bool state = (m->flags & MODEL_TRAIN) && c->has_optimizer && t->role == ROLE_PARAM && m->w[i].grad;
	struct err e = ERR_INIT;
	void *raw;

	if (!dtype_is_float(t->dtype))
		die(EX_DATAERR, "%s: %s: type %s, wanted a floating type", c->dir, t->name, dtype_name(t->dtype));
	if (!box_volume(m->box + i))
		return;
	raw = xmalloc((size_t)box_volume(m->box + i) * dtype_size(t->dtype));
	if (checkpoint_read(raw, c, w, m->box + i, &e))
		die_err(&e);
	if (state && m->t == DTYPE_F32 && t->dtype != DTYPE_F32) {
		/* What is computed with is the master itself. */
		float *master = read_slot(c, p, SLOT_MASTER, m->box + i);

		model_set(m, i, master, DTYPE_F32);
		free(master);
	} else {
		model_set(m, i, raw, t->dtype);
	}
	if (state)
		load_optimizer(m, c, i, raw, t->dtype);
	free(raw);
}

void load_model(struct model *m, struct checkpoint *c, const struct ops *k, struct mesh *mesh, enum dtype t, long positions,
		unsigned flags)
{
	struct model_config cfg;
	double start = seconds_now();
	struct err e = ERR_INIT;

	load_config(&cfg, c);
	if (model_init(m, &cfg, k, mesh, t, positions, flags, &e))
		die_err(&e);
	for (long i = 0; i < m->table.n; i++)
		load_weight(m, c, i);
	timing_add(TIMING_LOAD, start);
}

struct tokenizer *load_tokenizer(const struct checkpoint *c)
{
	struct tokenizer *t = NULL;
	struct blob b = { 0 };
	double start = seconds_now();
	struct err e = ERR_INIT;

	if (!c->has_tokenizer)
		die(EX_DATAERR, "%s: no tokenizer, wanted one to turn text into tokens", c->dir);
	if (checkpoint_read_tokenizer(&b, c, &e))
		die_err(&e);
	for (int i = 0; i < b.n; i++)
		if (!strcmp(b.part[i].name, "tokenizer"))
			if (tokenizer_unpack(&t, b.part[i].data, b.part[i].bytes, c->dir, &e))
				die_err(&e);
	if (!t)
		die(EX_DATAERR, "%s: tokenizer.h5: no part `tokenizer`", c->dir);
	blob_release(&b);
	timing_add(TIMING_LOAD, start);
	return t;
}

static struct chat_template *parse_template(const char *text, size_t n, const char *file)
{
	struct chat_template *t;
	struct err e = ERR_INIT;

	if (chat_template_parse(&t, text, n, file, &e))
		die_err(&e);
	return t;
}

/* What the recipe says: a name, a file, or the template itself (it holds a brace). */
static struct chat_template *recipe_template(const struct recipe *r, const char *said)
{
	struct chat_template *t;
	struct str text = { 0 };
	struct err e = ERR_INIT;

	if (strchr(said, '{'))
		return parse_template(said, strlen(said), recipe_where(r, "policy.tokenizer.chat_template"));
	if (!file_exists(said)) {
		if (chat_template_builtin(&t, said, &e))
			die_err(&e);
		return t;
	}
	if (file_read(&text, said, 1 << 20, &e))
		die_err(&e);
	t = parse_template(text.s ? text.s : "", text.len, said);
	str_release(&text);
	return t;
}

struct chat_template *load_chat_template(const struct checkpoint *c, const struct recipe *r)
{
	const char *said = recipe_str(r, "policy.tokenizer.chat_template");
	struct chat_template *t = NULL;
	struct blob b = { 0 };
	struct err e = ERR_INIT;
	char *path;

	if (said && strcmp(said, "default"))
		return recipe_template(r, said);
	if (!c->has_tokenizer)
		return NULL;
	if (checkpoint_read_tokenizer(&b, c, &e))
		die_err(&e);
	path = path_join(c->dir, "tokenizer.h5 chat_template");
	for (int i = 0; i < b.n; i++)
		if (!strcmp(b.part[i].name, "chat_template"))
			t = parse_template(b.part[i].data, b.part[i].bytes, path);
	blob_release(&b);
	free(path);
	return t;
}

void check_vocabulary(const struct tokenizer *t, const struct model_config *c)
{
	if (tokenizer_size(t) > c->vocab)
		die(EX_DATAERR, "the tokenizer has %ld ids, the model's vocabulary only %ld", tokenizer_size(t), c->vocab);
}

static void add_id(int **ids, long *n, long *cap, long id)
{
	for (long i = 0; i < *n; i++)
		if ((*ids)[i] == id)
			return;
	GROW(*ids, *n, *cap);
	(*ids)[(*n)++] = (int)id;
}

static void add_json_ids(int **ids, long *n, long *cap, const struct json *v)
{
	if (json_is(v, JSON_ARRAY))
		for (size_t i = 0; i < v->n; i++)
			add_json_ids(ids, n, cap, v->item + i);
	else if (json_is(v, JSON_NUMBER))
		add_id(ids, n, cap, strtol(v->text, NULL, 10));
}

long load_stop_ids(int **ids, const struct checkpoint *c, const struct model_config *cfg, const struct tokenizer *t,
		   const struct recipe *r)
{
	struct json_doc d;
	long n = 0, cap = 0, m = 0;
	const int *own = t ? tokenizer_eos(t, &m) : NULL;

	*ids = NULL;
	for (int i = 0; i < cfg->neos; i++)
		add_id(ids, &n, &cap, cfg->eos[i]);
	if (side_json(&d, c, "hf/generation_config.json")) {
		add_json_ids(ids, &n, &cap, json_get(&d.root, "eos_token_id"));
		json_release(&d);
	}
	for (long i = 0; i < m; i++)
		add_id(ids, &n, &cap, own[i]);
	add_json_ids(ids, &n, &cap, recipe_value(r, "policy.generation.stop_token_ids"));
	return n;
}
