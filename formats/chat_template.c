#include "formats/chat_template.h"

#include <stdlib.h>
#include <string.h>

#include "formats/jinja_eval.h"

struct chat_template {
	struct arena arena;
	const char *file;
	struct jnode *root;
};

int chat_template_parse(struct chat_template **out, const char *text, size_t n, const char *file,
			struct err *e)
{
	struct chat_template *t = xcalloc(1, sizeof(*t));
	struct jtokens tokens = { 0 };
	int rc = -1;

	*out = NULL;
	t->file = arena_strndup(&t->arena, file, strlen(file));
	if (n > JINJA_TEMPLATE)
		err_set(e, EX_DATAERR, "%s: a template of %zu bytes, wanted at most %d", file, n,
			JINJA_TEMPLATE);
	else if (!jinja_lex(&tokens, &t->arena, text, n, t->file, e))
		rc = jinja_parse(&t->root, &t->arena, &tokens, t->file, e);
	free(tokens.t);
	if (rc)
		chat_template_free(t);
	else
		*out = t;
	return rc;
}

const char *chat_template_builtin_text(const char *name)
{
	static const char chatml[] =
		"{% for m in messages %}"
		"{{ '<|im_start|>' + m['role'] + '\\n' }}{% generation %}"
		"{{ m['content'] + '<|im_end|>' }}{% endgeneration %}{{ '\\n' }}"
		"{% endfor %}"
		"{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";
	static const char plain[] = "{% for m in messages %}{{ m['content'] }}{% endfor %}";

	if (!strcmp(name, "chatml"))
		return chatml;
	return strcmp(name, "plain") ? NULL : plain;
}

int chat_template_builtin(struct chat_template **t, const char *name, struct err *e)
{
	const char *text = chat_template_builtin_text(name);

	*t = NULL;
	if (!text)
		return err_set(e, EX_CONFIG, "chat template \"%s\": wanted chatml or plain", name);
	return chat_template_parse(t, text, strlen(text), name, e);
}

void chat_template_free(struct chat_template *t)
{
	if (!t)
		return;
	arena_release(&t->arena);
	free(t);
}

/* The role names a turn and is the template's business; all other text of a message is content. */
static int message_value(struct jrender *r, struct jvalue *out, const struct json *m, size_t index)
{
	int32_t tag = TAG_MESSAGE + (int32_t)index;

	if (!json_is(m, JSON_OBJECT))
		return jfail(r, "message %zu: found %s, wanted an object", index,
			     json_type_name(m));
	if (jv_dict(r, out))
		return -1;
	for (size_t i = 0; i < m->n; i++) {
		const struct json_member *b = &m->member[i];
		struct jvalue v;

		if (jv_from_json(r, &v, &b->value, strcmp(b->key, "role") ? tag : TAG_TEMPLATE,
				 1) ||
		    jv_put(r, out->dict, jv_str(b->key, b->keylen, TAG_TEMPLATE), v))
			return -1;
	}
	return 0;
}

static int messages_value(struct jrender *r, struct jvalue *out, const struct json *messages)
{
	if (!json_is(messages, JSON_ARRAY))
		return jfail(r, "messages: found %s, wanted an array",
			     messages ? json_type_name(messages) : "nothing");
	if (messages->n >= TAG_GENERATION - TAG_MESSAGE)
		return jfail(r, "too many messages");
	if (jv_list(r, out, LIST_LIST))
		return -1;
	for (size_t i = 0; i < messages->n; i++) {
		struct jvalue m;

		if (message_value(r, &m, &messages->item[i], i) || jv_push(r, out, m))
			return -1;
	}
	return 0;
}

static int set_var(struct jrender *r, const char *name, struct jvalue v)
{
	return jv_put(r, &r->globals->vars, jv_lit(name), v);
}

static int set_token(struct jrender *r, const char *name, const char *text)
{
	return text ? set_var(r, name, jv_lit(text)) : 0;
}

static int set_context(struct jrender *r, const struct chat_render *c)
{
	struct jvalue v = jv_none();

	if (jinja_globals(r, r->globals) || set_token(r, "bos_token", c->bos_token) ||
	    set_token(r, "eos_token", c->eos_token) || set_token(r, "pad_token", c->pad_token) ||
	    set_token(r, "unk_token", c->unk_token) || set_var(r, "documents", v) ||
	    set_var(r, "add_generation_prompt", jv_bool(c->add_generation_prompt)))
		return -1;
	if (c->tools && c->tools->type != JSON_NULL && jv_from_json(r, &v, c->tools, TAG_TOOLS, 0))
		return -1;
	if (set_var(r, "tools", v) || messages_value(r, &v, c->messages) ||
	    set_var(r, "messages", v))
		return -1;
	if (c->kwargs && c->kwargs->type != JSON_OBJECT)
		return jfail(r, "template arguments: found %s, wanted an object",
			     json_type_name(c->kwargs));
	for (size_t i = 0; c->kwargs && i < c->kwargs->n; i++) {
		if (jv_from_json(r, &v, &c->kwargs->member[i].value, TAG_TEMPLATE, 0) ||
		    set_var(r, c->kwargs->member[i].key, v))
			return -1;
	}
	return 0;
}

static void span_add(struct chat_span **s, long *n, long *cap, struct chat_span v)
{
	GROW(*s, *n, *cap);
	(*s)[(*n)++] = v;
}

static void content_spans(const struct jbuf *b, struct chat_span **s, long *n, long *cap)
{
	size_t from = 0;

	for (long i = 0; i < b->nrun; from = b->run[i++].end) {
		int32_t tag = b->run[i].tag & ~TAG_GENERATION;
		struct chat_span *last = *n ? &(*s)[*n - 1] : NULL;

		if (tag == TAG_TEMPLATE)
			continue;
		if (last && last->end == from && last->message == tag - TAG_MESSAGE)
			last->end = b->run[i].end;
		else
			span_add(s, n, cap,
				 (struct chat_span){ from, b->run[i].end, tag - TAG_MESSAGE,
						     SPAN_CONTENT });
	}
}

static void generation_spans(const struct jbuf *b, struct chat_span **s, long *n, long *cap)
{
	bool open = false;
	size_t from = 0;

	for (long i = 0; i < b->nrun; from = b->run[i++].end) {
		int32_t tag = b->run[i].tag;

		if (!(tag & TAG_GENERATION)) {
			open = false;
			continue;
		}
		if (!open)
			span_add(s, n, cap, (struct chat_span){ from, from, -1, SPAN_GENERATION });
		open = true;
		(*s)[*n - 1].end = b->run[i].end;
		tag &= ~TAG_GENERATION;
		if ((*s)[*n - 1].message < 0 && tag >= TAG_MESSAGE)
			(*s)[*n - 1].message = tag - TAG_MESSAGE;
	}
}

static int render(const struct chat_template *t, const struct chat_render *c, struct jbuf *b,
		  struct err *e)
{
	struct jscope globals = { 0 }, top = { .up = &globals };
	struct jrender r = { .file = t->file,
			     .e = e,
			     .line = 1,
			     .out = b,
			     .globals = &globals,
			     .date = c->date ? c->date : "26 Jul 2024" };
	int rc;

	e->code = 0;
	jwork_reset();
	rc = set_context(&r, c) || jinja_run(&r, t->root, &top) < 0 ? -1 : 0;
	arena_release(&r.arena);
	return rc;
}

int chat_template_render(const struct chat_template *t, const struct chat_render *c,
			 struct str *out, struct chat_span **spans, long *nspans, struct err *e)
{
	struct jbuf b = { 0 };
	long cap = 0;
	int rc = render(t, c, &b, e);

	if (spans) {
		*spans = NULL;
		*nspans = 0;
	}
	if (!rc)
		str_add(out, b.s.s ? b.s.s : "", b.s.len);
	if (!rc && spans) {
		content_spans(&b, spans, nspans, &cap);
		generation_spans(&b, spans, nspans, &cap);
	}
	jbuf_release(&b);
	return rc;
}

/* Bytes that the first n messages give, if they are how the whole begins; else -1. */
static long prefix(const struct chat_template *t, const struct chat_render *c, size_t n,
		   bool prompt, const struct str *whole)
{
	struct json some = *c->messages;
	struct chat_render part = *c;
	struct str text = { 0 };
	struct err e = ERR_INIT;
	long len = -1;

	some.n = n;
	part.messages = &some;
	part.add_generation_prompt = prompt;
	/* A template may refuse a conversation that stops here: then it is not prefix-stable. */
	if (n == 0 && !prompt)
		len = 0;
	else if (!chat_template_render(t, &part, &text, NULL, NULL, &e) && text.len <= whole->len &&
		 !memcmp(text.s ? text.s : "", whole->s, text.len))
		len = (long)text.len;
	str_release(&text);
	return len;
}

/* Bytes of the control token that stands at `at`: eos_token, or <...> without white space. */
static size_t control_token(const struct str *s, size_t at, const char *eos)
{
	size_t k = eos ? strlen(eos) : 0, end = at + 1;

	if (k && s->len - at >= k && !memcmp(s->s + at, eos, k))
		return k;
	if (at >= s->len || s->s[at] != '<')
		return 0;
	while (end < s->len && end - at < 64 && !strchr("<> \t\r\n", s->s[end]))
		end++;
	return end < s->len && s->s[end] == '>' ? end + 1 - at : 0;
}

/* Spans of the message that the template itself tells us of. */
static void own_spans(const struct str *s, const struct chat_span *all, long nall, int message,
		      const char *eos, struct chat_span **spans, long *n, long *cap)
{
	bool generation = false;

	for (long i = 0; i < nall; i++)
		generation |= all[i].kind == SPAN_GENERATION && all[i].message == message;
	for (long i = 0; i < nall; i++) {
		struct chat_span v = all[i];

		if (v.message != message || v.kind != (generation ? SPAN_GENERATION : SPAN_CONTENT))
			continue;
		if (!generation)
			v.end += control_token(s, v.end, eos);
		v.kind = SPAN_GENERATION;
		span_add(spans, n, cap, v);
	}
}

int chat_assistant_spans(const struct chat_template *t, const struct chat_render *c, bool only_last,
			 struct chat_span **spans, long *nspans, struct str *out, struct err *e)
{
	struct chat_render whole = *c;
	struct chat_span *all;
	struct str text = { 0 };
	long nall, cap = 0;
	int n;

	*spans = NULL;
	*nspans = 0;
	whole.add_generation_prompt = false;
	if (chat_template_render(t, &whole, &text, &all, &nall, e))
		return -1;
	n = (int)c->messages->n;
	for (int i = only_last && n ? n - 1 : 0; i < n; i++) {
		long from, to;

		if (!json_eq_str(json_get(&c->messages->item[i], "role"), "assistant"))
			continue;
		from = prefix(t, c, (size_t)i, c->add_generation_prompt, &text);
		to = i + 1 == n ? (long)text.len : prefix(t, c, (size_t)i + 1, false, &text);
		if (from >= 0 && to >= from)
			span_add(
				spans, nspans, &cap,
				(struct chat_span){ (size_t)from, (size_t)to, i, SPAN_GENERATION });
		else
			own_spans(&text, all, nall, i, c->eos_token, spans, nspans, &cap);
	}
	str_add(out, text.s ? text.s : "", text.len);
	str_release(&text);
	free(all);
	return 0;
}
