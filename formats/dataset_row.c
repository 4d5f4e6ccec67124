#include "formats/dataset_row.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libcommon/json_index.h"

/* What is at work on one row. */
struct maker {
	struct dataset_row *row;
	const struct row_rules *rules;
	struct arena *a;
	struct err *e;
};

static int fail(struct maker *m, const struct json *at, const char *fmt, ...) PRINTF(3, 4);

static int fail(struct maker *m, const struct json *at, const char *fmt, ...)
{
	char what[800];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(what, sizeof(what), fmt, ap);
	va_end(ap);
	return err_set(m->e, EX_DATAERR, "%s:%d: %s", m->rules->file,
		       at ? at->line : m->row->raw->line, what);
}

static struct json string(const char *text, size_t n, int line)
{
	struct json v = { .type = JSON_STRING, .line = line, .n = n };

	v.text = text;
	return v;
}

static struct json message(struct maker *m, const char *role, struct json content)
{
	struct json v = { .type = JSON_OBJECT, .line = content.line, .n = 2 };

	v.member = arena_calloc(m->a, 1, json_object_bytes(2));
	v.member[0] = (struct json_member){ "role", 4, string(role, strlen(role), content.line) };
	v.member[1] = (struct json_member){ "content", 7, content };
	return v;
}

/* n items of `from`, from item `at` on, with room for one more. */
static struct json *slice(struct maker *m, const struct json *from, size_t at, size_t n)
{
	struct json *v = arena_calloc(m->a, 1, sizeof(*v));

	v->type = JSON_ARRAY;
	v->line = from ? from->line : m->row->raw->line;
	v->n = n;
	v->item = arena_alloc(m->a, (n + 1) * sizeof(struct json));
	if (n)
		memcpy(v->item, from->item + at, n * sizeof(struct json));
	return v;
}

static struct json *one_message(struct maker *m, const char *role, const struct json *content)
{
	struct json *v = slice(m, NULL, 0, 0);

	v->line = content->line;
	v->item[v->n++] = message(m, role, *content);
	return v;
}

/* Text of a string, a number or a message's list of parts; NULL for anything else. */
static const char *text_of(struct maker *m, const struct json *v)
{
	struct str s = { 0 };
	const char *text;

	if (json_is(v, JSON_STRING) || json_is(v, JSON_NUMBER))
		return v->text;
	if (!json_is(v, JSON_ARRAY))
		return NULL;
	for (size_t i = 0; i < v->n; i++) {
		const struct json *t = json_get(&v->item[i], "text");

		if (json_is(t, JSON_STRING))
			str_add(&s, t->text, t->n);
	}
	text = arena_strndup(m->a, s.s ? s.s : "", s.len);
	str_release(&s);
	return text;
}

/* Texts travel as C strings from here on. */
static int no_nul(struct maker *m, const struct json *v)
{
	if (json_is(v, JSON_STRING) && memchr(v->text, 0, v->n))
		return fail(m, v, "found a NUL in a text, wanted none");
	return 0;
}

static int check_message(struct maker *m, const struct json *v)
{
	const struct json *role = json_get(v, "role"), *content = json_get(v, "content");

	if (v->type != JSON_OBJECT)
		return fail(m, v, "found %s, wanted a message, an object with role and content",
			    json_type_name(v));
	if (!json_is(role, JSON_STRING))
		return fail(m, v, "role: found %s, wanted a string", json_type_name(role));
	for (size_t i = 0; i < role->n; i++) {
		if (!isalnum((unsigned char)role->text[i]) && role->text[i] != '_' &&
		    role->text[i] != '-')
			return fail(
				m, role,
				"role: found a character that is no letter, digit, _ or -, wanted a plain word");
	}
	if (role->n < 1 || role->n > 32)
		return fail(m, role, "role: found %zu bytes, wanted 1 to 32", role->n);
	if ((!content || content->type == JSON_NULL) && json_eq_str(role, "assistant") &&
	    json_get(v, "tool_calls"))
		return 0;
	if (!json_is(content, JSON_STRING) && !json_is(content, JSON_ARRAY))
		return fail(m, v, "content of the %s: found %s, wanted a string or a list of parts",
			    role->text, json_type_name(content));
	for (size_t i = 0; content->type == JSON_ARRAY && i < content->n; i++) {
		if (content->item[i].type != JSON_OBJECT)
			return fail(m, &content->item[i],
				    "a part of the content: found %s, wanted an object",
				    json_type_name(&content->item[i]));
		if (no_nul(m, json_get(&content->item[i], "text")))
			return -1;
	}
	return no_nul(m, content);
}

static int check_messages(struct maker *m, const struct json *list, const char *what)
{
	if (!json_is(list, JSON_ARRAY))
		return fail(m, list, "%s: found %s, wanted a list of messages", what,
			    json_type_name(list));
	if (!list->n)
		return fail(m, list, "%s: found an empty list, wanted messages", what);
	for (size_t i = 0; i < list->n; i++) {
		if (check_message(m, &list->item[i]))
			return -1;
	}
	return 0;
}

static bool has_role(const struct json *message, const char *role)
{
	return json_eq_str(json_get(message, "role"), role);
}

static const struct json *last(const struct json *list)
{
	return list->n ? &list->item[list->n - 1] : NULL;
}

static bool is_blank(const char *s)
{
	return !s[strspn(s, " \t\r\n")];
}

static const struct json *first_of(const struct json *o, const char *const *keys)
{
	for (; *keys; keys++) {
		const struct json *v = json_get(o, *keys);

		if (v && v->type != JSON_NULL)
			return v;
	}
	return NULL;
}

static int apply_template(struct maker *m, struct json *user)
{
	const struct json *content = json_get(user, "content");
	struct json_member *copy;
	char *text;

	if (content->type != JSON_STRING)
		return fail(m, content,
			    "found a prompt of parts, wanted a string for the prompt template");
	text = arena_printf(m->a, "%s%s%s", m->rules->head, content->text, m->rules->tail);
	copy = arena_alloc(m->a, json_object_bytes(user->n));
	memcpy(copy, user->member, json_object_bytes(user->n));
	user->member = copy;
	for (size_t i = 0; i < user->n; i++) {
		if (!strcmp(copy[i].key, "content"))
			copy[i].value = string(text, strlen(text), content->line);
	}
	return 0;
}

/* The prompt is messages[0..n) of the list. */
static int set_prompt(struct maker *m, const struct json *list, size_t n)
{
	bool add = m->rules->system && !(list->n && has_role(&list->item[0], "system"));
	struct json *v = slice(m, list, 0, n), *user = NULL;

	for (size_t i = 0; i < n; i++) {
		if (has_role(&v->item[i], "user"))
			user = &v->item[i];
	}
	if (user) {
		m->row->prompt = text_of(m, json_get(user, "content"));
		if (is_blank(m->row->prompt))
			return fail(m, user, "found an empty prompt, wanted text");
		if (m->rules->head && apply_template(m, user))
			return -1;
	} else if (m->row->kind != DATASET_CHAT) {
		return fail(m, list, "found a prompt without a user message, wanted one");
	}
	if (add) {
		memmove(v->item + 1, v->item, n * sizeof(*v->item));
		v->item[0] =
			message(m, "system",
				string(m->rules->system, strlen(m->rules->system), list->line));
		v->n++;
	}
	m->row->messages = v;
	return 0;
}

static int set_prompt_value(struct maker *m, const struct json *prompt, const char *what)
{
	if (json_is(prompt, JSON_STRING))
		return no_nul(m, prompt) ? -1 : set_prompt(m, one_message(m, "user", prompt), 1);
	return check_messages(m, prompt, what) ? -1 : set_prompt(m, prompt, prompt->n);
}

/* messages and one more, of the assistant. */
static void set_conversation(struct maker *m, const struct json *answer)
{
	struct json *v = slice(m, m->row->messages, 0, m->row->messages->n);

	v->item[v->n++] = *answer;
	m->row->conversation = v;
}

static int set_gold(struct maker *m, const struct json *gold)
{
	const char *text = json_is(gold, JSON_ARRAY) ? NULL : text_of(m, gold);

	if (text && no_nul(m, gold))
		return -1;
	if (!text)
		return fail(m, gold, "the answer: found %s, wanted a string or a number",
			    json_type_name(gold));
	m->row->answer = dataset_gold(m->a, text);
	return 0;
}

/* The member, or the path a.b, that answer_key names. */
static const struct json *keyed(const struct json *o, const char *key)
{
	const struct json *v = json_get(o, key);

	return v ? v : json_path(o, key);
}

static int explicit_gold(struct maker *m, const char *const *keys)
{
	const char *key = m->rules->o->answer_key;
	const struct json *v = key ? keyed(m->row->raw, key) : first_of(m->row->raw, keys);

	if (key && !v)
		return fail(m, NULL, "found no member \"%s\", wanted the answer", key);
	return v ? set_gold(m, v) : 0;
}

static int from_messages(struct maker *m, const struct json *list)
{
	static const char *const keys[] = { "answer", "ground_truth", "expected_answer", NULL };
	const struct json *end;
	bool chat;

	if (check_messages(m, list, "messages"))
		return -1;
	end = last(list);
	chat = has_role(end, "assistant");
	m->row->kind = chat ? DATASET_CHAT : DATASET_PROMPT;
	if (set_prompt(m, list, list->n - chat) || explicit_gold(m, keys))
		return -1;
	if (!chat)
		return 0;
	set_conversation(m, end);
	m->row->response = text_of(m, json_get(end, "content"));
	if (!m->row->answer && m->row->response)
		m->row->answer = dataset_gold(m->a, m->row->response);
	return 0;
}

static int from_verl(struct maker *m)
{
	const struct json *prompt = json_get(m->row->raw, "prompt");
	const char *key = m->rules->o->answer_key;
	const struct json *gold =
		key ? keyed(m->row->raw, key) : json_path(m->row->raw, "reward_model.ground_truth");

	if (!gold)
		return fail(m, NULL, "found no %s, wanted the answer",
			    key ? key : "reward_model.ground_truth");
	return set_prompt_value(m, prompt, "prompt") || set_gold(m, gold) ? -1 : 0;
}

static struct dataset_completion *add_completion(struct maker *m, const struct json *messages,
						 long rank)
{
	struct dataset_row *r = m->row;
	struct dataset_completion *all =
		arena_calloc(m->a, (size_t)r->ncompletions + 1, sizeof(*all));
	int at = r->ncompletions;

	/* Best first, and of equals the one that came first. */
	while (at > 0 && r->completion[at - 1].rank > rank)
		at--;
	if (at)
		memcpy(all, r->completion, (size_t)at * sizeof(*all));
	if (at < r->ncompletions)
		memcpy(all + at + 1, r->completion + at,
		       (size_t)(r->ncompletions - at) * sizeof(*all));
	all[at] = (struct dataset_completion){ rank, messages };
	r->completion = all;
	r->ncompletions++;
	return &all[at];
}

/* A completion that is a string or messages, as messages. */
static const struct json *completion(struct maker *m, const struct json *v, const char *what)
{
	if (json_is(v, JSON_STRING))
		return no_nul(m, v) ? NULL : one_message(m, "assistant", v);
	return check_messages(m, v, what) ? NULL : v;
}

/* chosen and rejected begin with the prompt. */
static int implicit_prompt(struct maker *m, const struct json *chosen, const struct json *rejected)
{
	size_t n = 0;

	if (check_messages(m, chosen, "chosen") || check_messages(m, rejected, "rejected"))
		return -1;
	while (n < chosen->n && n < rejected->n && json_equal(&chosen->item[n], &rejected->item[n]))
		n++;
	if (n == chosen->n || n == rejected->n)
		return fail(m, chosen,
			    "found a completion that begins the other, wanted two that differ");
	if (!n)
		return fail(m, chosen,
			    "found no prompt and no common beginning of chosen and rejected");
	add_completion(m, slice(m, chosen, n, chosen->n - n), 0);
	add_completion(m, slice(m, rejected, n, rejected->n - n), 1);
	return set_prompt(m, chosen, n);
}

static int from_pair(struct maker *m, const struct json *chosen, const struct json *rejected)
{
	const char *key = m->rules->o->prompt_key ? m->rules->o->prompt_key : "prompt";
	const struct json *prompt = json_get(m->row->raw, key), *c, *r;

	if (!prompt && !m->rules->o->prompt_key)
		return implicit_prompt(m, chosen, rejected);
	if (set_prompt_value(m, prompt, key) || !(c = completion(m, chosen, "chosen")) ||
	    !(r = completion(m, rejected, "rejected")))
		return -1;
	add_completion(m, c, 0);
	add_completion(m, r, 1);
	return 0;
}

static int from_ranked(struct maker *m, const struct json *context, const struct json *list)
{
	if (!json_is(list, JSON_ARRAY) || list->n < 1)
		return fail(m, list, "completions: found %s, wanted a list of {rank, completion}",
			    json_type_name(list));
	if (list->n > 256)
		return fail(m, list, "found %zu completions, wanted at most 256", list->n);
	if (set_prompt_value(m, context, "context"))
		return -1;
	for (size_t i = 0; i < list->n; i++) {
		const struct json *rank = json_get(&list->item[i], "rank"), *c;
		char *end = NULL;
		long n = json_is(rank, JSON_NUMBER) ? strtol(rank->text, &end, 10) : 0;

		if (!end || *end)
			return fail(m, &list->item[i], "rank: found %s, wanted an integer",
				    rank && end ? rank->text : json_type_name(rank));
		if (!(c = completion(m, json_get(&list->item[i], "completion"), "completion")))
			return -1;
		add_completion(m, c, n);
	}
	return 0;
}

static int from_label(struct maker *m, const struct json *label)
{
	const struct json *c;

	if (set_prompt_value(m, json_get(m->row->raw, "prompt"), "prompt") ||
	    !(c = completion(m, json_get(m->row->raw, "completion"), "completion")))
		return -1;
	add_completion(m, c, label->type == JSON_FALSE);
	return 0;
}

/* instruction with input beside it: the input follows the instruction. */
static const struct json *instruction(struct maker *m, const struct json *prompt)
{
	const struct json *task = json_get(m->row->raw, "instruction"),
			  *input = json_get(m->row->raw, "input");
	struct json *both;

	if (prompt != input || !json_is(task, JSON_STRING) || !json_is(input, JSON_STRING))
		return prompt;
	if (is_blank(input->text))
		return task;
	both = arena_calloc(m->a, 1, sizeof(*both));
	*both = string(arena_printf(m->a, "%s\n\n%s", task->text, input->text),
		       task->n + 2 + input->n, task->line);
	return both;
}

static int from_text(struct maker *m)
{
	static const char *const prompts[] = { "prompt", "question",    "problem",
					       "input",  "instruction", NULL };
	static const char *const answers[] = { "solution",     "output", "response",
					       "completion",   "answer", "expected_answer",
					       "ground_truth", NULL };
	static const char *const golds[] = { "answer", "expected_answer", "ground_truth", NULL };
	const struct dataset_opts *o = m->rules->o;
	const struct json *raw = m->row->raw;
	const struct json *prompt = o->prompt_key ? json_get(raw, o->prompt_key) :
						    instruction(m, first_of(raw, prompts));
	const struct json *answer =
		o->answer_key ? keyed(raw, o->answer_key) : first_of(raw, answers);

	if (!prompt)
		return o->prompt_key ?
			       fail(m, NULL, "found no member \"%s\", wanted the prompt",
				    o->prompt_key) :
			       fail(m, NULL,
				    "found no messages, prompt, question, problem, input or "
				    "instruction, wanted a row of a known schema");
	if (set_prompt_value(m, prompt, "the prompt") || explicit_gold(m, golds))
		return -1;
	if (!answer)
		return 0;
	if (no_nul(m, answer))
		return -1;
	m->row->response = text_of(m, answer);
	if (!m->row->response || json_is(answer, JSON_ARRAY))
		return fail(m, answer, "the answer: found %s, wanted a string or a number",
			    json_type_name(answer));
	if (!m->row->answer)
		m->row->answer = dataset_gold(m->a, m->row->response);
	set_conversation(m, &one_message(m, "assistant",
					 &(struct json){ .type = JSON_STRING,
							 .line = answer->line,
							 .n = strlen(m->row->response),
							 .text = m->row->response })
				     ->item[0]);
	return 0;
}

static int by_schema(struct maker *m)
{
	const struct dataset_opts *o = m->rules->o;
	const struct json *raw = m->row->raw, *chosen = json_get(raw, "chosen"),
			  *rejected = json_get(raw, "rejected");
	const struct json *messages = json_get(raw, o->messages_key ? o->messages_key : "messages");

	m->row->kind = DATASET_PROMPT;
	if (o->messages_key && !messages)
		return fail(m, NULL, "found no member \"%s\", wanted messages", o->messages_key);
	if (messages && !(o->prompt_key && !o->messages_key))
		return from_messages(m, messages);
	if (!o->prompt_key && json_is(json_get(raw, "prompt"), JSON_ARRAY) &&
	    json_is(json_get(raw, "reward_model"), JSON_OBJECT))
		return from_verl(m);
	m->row->kind = DATASET_PREFERENCE;
	if (chosen && rejected)
		return from_pair(m, chosen, rejected);
	if (json_get(raw, "context") && json_get(raw, "completions"))
		return from_ranked(m, json_get(raw, "context"), json_get(raw, "completions"));
	if (json_get(raw, "completion") && json_is_bool(json_get(raw, "label")))
		return from_label(m, json_get(raw, "label"));
	m->row->kind = DATASET_PROMPT;
	return from_text(m);
}

int row_interpret(struct dataset_row *row, const struct row_rules *rules, struct err *e)
{
	struct maker m = { row, rules, &row->arena, e };
	const struct json *id, *tools;

	if (row->raw->type != JSON_OBJECT)
		return fail(&m, NULL, "found %s, wanted an object", json_type_name(row->raw));
	id = json_get(row->raw, "id");
	id = id ? id : json_get(row->raw, "prompt_id");
	if (id && id->type != JSON_STRING && id->type != JSON_NUMBER && id->type != JSON_NULL)
		return fail(&m, id, "id: found %s, wanted a string or a number",
			    json_type_name(id));
	row->id = json_is(id, JSON_STRING) || json_is(id, JSON_NUMBER) ? id->text : NULL;
	tools = json_get(row->raw, "tools");
	if (tools && tools->type != JSON_ARRAY && tools->type != JSON_NULL)
		return fail(&m, tools, "tools: found %s, wanted a list", json_type_name(tools));
	row->tools = json_is(tools, JSON_ARRAY) ? tools : NULL;
	return by_schema(&m);
}

int row_template(char *text, const char *file, const char **head, const char **tail, struct err *e)
{
	char *d = text;

	*head = text;
	*tail = NULL;
	for (const char *s = text; *s; s++) {
		if ((*s == '{' || *s == '}') && s[1] == *s) {
			*d++ = *s++;
		} else if (*s == '{' && s[1] == '}' && !*tail) {
			*d++ = 0;
			*tail = d;
			s++;
		} else if (*s == '{' || *s == '}') {
			return err_set(
				e, EX_DATAERR,
				"%s: found \"%.8s\", wanted {} once, for the prompt; {{ and }} are braces",
				file, s);
		} else {
			*d++ = *s;
		}
	}
	*d = 0;
	return *tail ? 0 :
		       err_set(e, EX_DATAERR, "%s: found no {}, wanted it where the prompt goes",
			       file);
}
