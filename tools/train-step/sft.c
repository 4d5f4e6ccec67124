#include "tools/train-step/train.h"

#include "kernels/loss_weights.h"
#include "libcommon/xalloc.h"
#include "tools/shared/prompt.h"

#include <stdlib.h>
#include <string.h>

/* data.train.KEY, or data.default.KEY. */
static const char *data_key(const struct recipe *r, const char *key)
{
	char name[64];

	snprintf(name, sizeof(name), "data.train.%s", key);
	if (recipe_str(r, name))
		return recipe_str(r, name);
	snprintf(name, sizeof(name), "data.default.%s", key);
	return recipe_str(r, name);
}

void sft_open(struct sft *s, const char *path, const struct checkpoint *c, const struct recipe *r, const struct model_config *cfg)
{
	struct dataset_opts o = {
		.prompt_key = data_key(r, "prompt_key"), .answer_key = data_key(r, "answer_key"),
		.messages_key = data_key(r, "messages_key"), .prompt_file = data_key(r, "prompt_file"),
		.system_prompt_file = data_key(r, "system_prompt_file"),
	};
	long longest = recipe_int(r, "policy.max_total_sequence_length");
	struct err e = ERR_INIT;

	memset(s, 0, sizeof(*s));
	if (dataset_open(&s->d, path, &o, &e))
		die_err(&e);
	if (dataset_kind(s->d) == DATASET_PREFERENCE)
		die(EX_UNAVAILABLE, "%s: preference pairs, wanted conversations or prompts with answers: DPO is not built yet", path);
	s->r = r;
	s->path = path;
	s->tok = load_tokenizer(c);
	check_vocabulary(s->tok, cfg);
	s->tmpl = load_chat_template(c, r);
	if (!s->tmpl)
		die(EX_DATAERR, "%s: no chat template, and policy.tokenizer.chat_template names none (chatml, plain, or a file)", c->dir);
	s->batch = recipe_int(r, "policy.train_global_batch_size");
	s->max_length = longest < cfg->max_position ? longest : cfg->max_position;
	dataset_cursor_init(&s->cursor, dataset_count(s->d), recipe_bool(r, "data.shuffle"), (uint64_t)recipe_int(r, "sft.seed"));
}

void sft_resume(struct sft *s, const struct checkpoint *c)
{
	struct digest was, is = dataset_digest(s->d);
	struct err e = ERR_INIT;
	char a[33], b[33];
	uint64_t at;

	/* A cursor in prompts is a rollout's: supervised learning then begins at the start. */
	if (!c->cursor || !json_eq_str(json_get(c->cursor, "unit"), "rows"))
		return;
	if (manifest_get_digest(&was, &c->manifest, c->cursor, "data", &e) ||
	    json_u64(&c->manifest, json_get(c->cursor, "position"), "position", &at, &e))
		die_err(&e);
	if (!digest_equal(was, is)) {
		log_warn("%s: data %s, the checkpoint's cursor is for %s: starting at its first row", s->path, digest_hex(a, is),
			 digest_hex(b, was));
		return;
	}
	s->position = at;
}

/*
 * The conversation is cut where the loss begins and ends, and each piece is encoded alone: the pieces before an answer are then
 * the very tokens that a rollout gives as its prompt.
 */
static void encode(const struct sft *s, const struct str *text, const struct chat_span *mark, long marks,
		   const struct chat_span *span, long nspans, struct token_list *out, struct str *mask)
{
	size_t at = 0;

	encode_bos(out, s->tok, s->r, text->s, text->len);
	for (long i = 0; i <= marks; i++) {
		size_t start = i < marks ? mark[i].start : text->len, end = i < marks ? mark[i].end : text->len;

		if (start > at)
			encode_rendered(out, s->tok, text->s, at, start, span, nspans);
		while (mask->len < (size_t)out->n)
			str_putc(mask, 0);
		if (end > start)
			encode_rendered(out, s->tok, text->s, start, end, span, nspans);
		while (mask->len < (size_t)out->n)
			str_putc(mask, 1);
		at = end;
	}
}

static void add_eos(const struct sft *s, struct token_list *out, struct str *mask)
{
	long n;
	const int *eos = tokenizer_eos(s->tok, &n);

	if (!recipe_bool(s->r, "data.add_eos") || !n || !out->n || !mask->s[mask->len - 1])
		return;
	for (long i = 0; i < n; i++)
		if (out->id[out->n - 1] == eos[i])
			return;
	token_list_add(out, eos[0]);
	str_putc(mask, 1);
}

/* Line ends behind the last answer are the template's, not the answer's: the mark that ends it comes last (NeMo-RL). */
static void strip_line_ends(struct str *text, struct chat_span *mark, long marks)
{
	struct chat_span *last = marks ? mark + marks - 1 : NULL;

	while (last && text->len > last->start && text->s[text->len - 1] == '\n')
		text->len--;
	if (last && last->end > text->len)
		last->end = text->len;
}

static void make_lesson(struct sft *s, long row, struct lesson *l, struct weighed *w)
{
	struct chat_span *mark = NULL, *span = NULL;
	struct str text = { 0 }, plain = { 0 }, mask = { 0 };
	struct token_list ids = { 0 };
	struct dataset_row d;
	struct err e = ERR_INIT;
	long marks = 0, spans = 0;

	if (dataset_row(s->d, row, &d, &e))
		die_err(&e);
	if (!d.conversation)
		die(EX_DATAERR, "%s: row %ld (line %ld): no answer to learn, wanted messages that end with the assistant's, or a prompt "
		    "with its answer", s->path, d.index, d.line);
	struct chat_render how = chat_variables(s->tok, s->r);
	how.messages = d.conversation;
	how.tools = d.tools;
	how.add_generation_prompt = true; /* its header is given in a rollout, so it is not learnt */
	if (chat_assistant_spans(s->tmpl, &how, recipe_bool(s->r, "sft.only_unmask_final"), &mark, &marks, &text, &e))
		die_err(&e);
	strip_line_ends(&text, mark, marks);
	how.add_generation_prompt = false;
	if (chat_template_render(s->tmpl, &how, &plain, &span, &spans, &e))
		die_err(&e);
	encode(s, &text, mark, marks, span, spans, &ids, &mask);
	add_eos(s, &ids, &mask);
	*w = (struct weighed){ .keep = ids.n > 1 && ids.n <= s->max_length };
	if (!w->keep)
		s->dropped++;
	/* The first token has nothing before it, so it counts as prompt. */
	l->s = (struct sequence){ .n = w->keep ? ids.n : 0, .prompt = 1, .ids = ids.id };
	w->n = w->keep ? ids.n - 1 : 0;
	if (w->keep) {
		uint8_t *own = xmalloc((size_t)w->n);

		memcpy(own, mask.s + 1, (size_t)w->n);
		l->s.mask = w->mask = own;
		w->w = xcalloc((size_t)w->n, sizeof(float));
		l->x = (struct loss_tokens){ .n = w->n, .w_nll = w->w };
	} else {
		free(ids.id);
	}
	free(mark);
	free(span);
	str_release(&text);
	str_release(&plain);
	str_release(&mask);
	dataset_row_release(&d);
}

static void drop_lessons(struct sft *s)
{
	for (long i = 0; i < s->n; i++) {
		free((void *)s->lesson[i].s.ids);
		free((void *)s->lesson[i].s.mask);
		free((void *)s->lesson[i].x.w_nll);
	}
	s->n = 0;
}

static void make_lessons(struct sft *s, const long *row, long n)
{
	long kept = 0;

	drop_lessons(s);
	s->lesson = xrealloc_array(s->lesson, (size_t)n, sizeof(*s->lesson));
	s->weighed = xrealloc_array(s->weighed, (size_t)n, sizeof(*s->weighed));
	for (long i = 0; i < n; i++) {
		memset(s->lesson + kept, 0, sizeof(*s->lesson));
		make_lesson(s, row[i], s->lesson + kept, s->weighed + kept);
		kept += s->weighed[kept].keep;
	}
	s->n = kept;
	loss_weights(s->weighed, kept, true);
}

void sft_next(struct sft *s)
{
	long *row = xmalloc((size_t)s->batch * sizeof(long));

	for (long i = 0; i < s->batch; i++)
		row[i] = dataset_cursor_at(&s->cursor, s->position++);
	make_lessons(s, row, s->batch);
	free(row);
}

void sft_rows(struct sft *s, long first, long n)
{
	long *row = xmalloc((size_t)n * sizeof(long));

	for (long i = 0; i < n; i++)
		row[i] = first + i;
	make_lessons(s, row, n);
	free(row);
}

void sft_tell_dropped(const struct sft *s, long rows)
{
	if (s->dropped == rows && rows >= dataset_count(s->d))
		die(EX_DATAERR, "%s: all %ld rows have more than %ld tokens, wanted some that fit", s->path, dataset_count(s->d), s->max_length);
	if (s->dropped)
		log_warn("%s: %ld of %ld rows are left out: more than %ld tokens", s->path, s->dropped, rows, s->max_length);
}

char *sft_cursor(const struct sft *s)
{
	char hex[33];

	return xasprintf("{\"data\": \"%s\", \"unit\": \"rows\", \"position\": %llu}", digest_hex(hex, dataset_digest(s->d)), (unsigned long long)s->position);
}

void sft_release(struct sft *s)
{
	drop_lessons(s);
	free(s->lesson);
	free(s->weighed);
	dataset_cursor_release(&s->cursor);
	dataset_close(s->d);
	tokenizer_free(s->tok);
	chat_template_free(s->tmpl);
	memset(s, 0, sizeof(*s));
}
