#ifndef FORMATS_CHAT_TEMPLATE_H
#define FORMATS_CHAT_TEMPLATE_H

/*
 * Chat templates: Jinja as models ship it, rendered byte for byte as jinja2 does in the
 * environment that transformers sets up: trim_blocks, lstrip_blocks, one final newline of
 * the template dropped, loop controls, {% generation %}, raise_exception(), strftime_now(),
 * tojson as json.dumps(ensure_ascii=False), sandboxed, Undefined that prints as nothing and
 * has no attributes.
 *
 *	struct chat_template *t;
 *	struct chat_render r = { .messages = msgs, .add_generation_prompt = true };
 *	struct str text = { 0 };
 *	chat_template_parse(&t, source, n, "chat_template.jinja", &e);
 *	chat_template_render(t, &r, &text, &span, &nspan, &e);
 *
 * Statements: set (also the block form, and ns.x), for (else, if, recursive, unpacking, break,
 * continue), if, macro, call, filter, with, raw, generation.  Not supported, and said so by
 * name: include, import, extends, block.  formats/jinja_eval.h lists filters and tests.
 * Deliberately beyond the sandbox: list.append and list.pop work, and the tests startswith and
 * endswith exist.  strftime_now() reads `date`, never the clock: the same input, the same text.
 *
 * Bounds, all EX_DATAERR: 1 MiB of template, 200,000 nodes, nesting of 200 in the source and
 * of 1,000 at run time, 64 MiB of output, 256 MiB of values, 5,000,000 steps.
 *
 * Errors are EX_DATAERR and read "FILE:LINE: what"; raise_exception(m) gives "FILE:LINE: m".
 */

#include "libcommon/die.h"
#include "libcommon/json.h"
#include "libcommon/str.h"

#include <stdbool.h>
#include <stddef.h>

struct chat_template;

/* `text` is not kept; `file` names it in messages and is copied. */
int chat_template_parse(struct chat_template **t, const char *text, size_t n, const char *file,
			struct err *e) MUST_CHECK;
/* A template of our own, by name: "chatml", or "plain" (the contents, one after the other).
 * An unknown name is EX_CONFIG.  Nothing falls back to these by itself. */
int chat_template_builtin(struct chat_template **t, const char *name, struct err *e) MUST_CHECK;
const char *chat_template_builtin_text(const char *name);       /* its source, or NULL */
void chat_template_free(struct chat_template *t);

struct chat_render {
	const struct json *messages;    /* array of {role, content, ...} */
	const struct json *tools;       /* array, or NULL: none */
	const struct json *kwargs;      /* object of further variables (enable_thinking, ...), or NULL */
	const char *bos_token, *eos_token, *pad_token, *unk_token; /* NULL: undefined */
	bool add_generation_prompt;
	const char *date;               /* "26 Jul 2024", which is also what NULL means */
};

/*
 * Where bytes of the output come from.  SPAN_CONTENT: from a string of message `message` other
 * than its role (content, reasoning_content, names, tool calls), through trim, slices, +, split,
 * replace, case and tojson; message -1: from `tools`.  In such bytes a tokenizer recognises no
 * control token, so that text which spells one cannot forge a turn.  SPAN_GENERATION: made
 * inside {% generation %}; message is that of its first content, or -1.
 * Each kind is sorted and does not overlap itself; content comes first, then generation.
 */
enum chat_span_kind { SPAN_CONTENT, SPAN_GENERATION };

struct chat_span {
	size_t start, end;              /* bytes of the output */
	int message;
	enum chat_span_kind kind;
};

/* Appends to *out; spans are relative to where it began.  *spans is the caller's to free;
 * spans and nspans may both be NULL. */
int chat_template_render(const struct chat_template *t, const struct chat_render *r,
			 struct str *out, struct chat_span **spans, long *nspans, struct err *e) MUST_CHECK;

/*
 * What a loss on assistant messages counts (NeMo-RL): the bytes of each assistant message with
 * its template text and closing control token, or only of the last message if it is an assistant's
 * (only_last).  Message i owns what render(messages[0..i]) adds to render(messages[0..i-1]), where
 * both are prefixes of the whole; with r->add_generation_prompt the header that a generation
 * prompt gives belongs to the message before.  Where the template is not prefix-stable around a
 * message (Qwen3 drops old thoughts), its {% generation %} spans count, else its content with the
 * control token <...> or eos_token that follows at once.
 * *out gets the text of the whole, without a generation prompt.  Spans are SPAN_GENERATION, sorted.
 */
int chat_assistant_spans(const struct chat_template *t, const struct chat_render *r, bool only_last,
			 struct chat_span **spans, long *nspans, struct str *out, struct err *e) MUST_CHECK;

#endif
