#include "formats/chat_template.h"

#include "libcommon/file.h"
#include "tests/lib/tap.h"

static struct json_doc expr, golden;

static void open_data(struct json_doc *d, const char *name)
{
	const char *root = getenv("CAIRN_ROOT");
	char path[512];
	struct err e = ERR_INIT;

	snprintf(path, sizeof(path), "%s/tests/data/%s", root ? root : ".", name);
	if (json_read(d, path, 0, &e))
		die_err(&e);
}

/* The rendered text, or NULL with the message in e. */
static char *render_text(const char *text, size_t n, const struct chat_render *r,
			 struct chat_span **s, long *ns, struct err *e)
{
	struct chat_template *t;
	struct str out = { 0 };

	if (chat_template_parse(&t, text, n, "t", e))
		return NULL;
	if (chat_template_render(t, r, &out, s, ns, e)) {
		chat_template_free(t);
		str_release(&out);
		return NULL;
	}
	chat_template_free(t);
	str_putc(&out, 0);
	return str_detach(&out);
}

static struct json_doc parsed(const char *text)
{
	struct json_doc d;
	struct err e = ERR_INIT;

	if (json_parse(&d, text, strlen(text), "test", 1, &e))
		die_err(&e);
	return d;
}

static void test_expressions(void)
{
	const struct json *cases = json_get(&expr.root, "cases");
	struct json none = { .type = JSON_ARRAY };
	struct chat_render r = { .messages = &none, .kwargs = json_get(&expr.root, "context") };
	long bad = 0;

	ok(cases && cases->n > 900, "%zu recorded templates", cases ? cases->n : 0);
	for (size_t i = 0; cases && i < cases->n; i++) {
		const struct json *text = &cases->item[i].item[0], *want = &cases->item[i].item[1];
		struct err e = ERR_INIT;
		char *got = render_text(text->text, text->n, &r, NULL, NULL, &e);

		if (want->type == JSON_NULL ? got || e.code != EX_DATAERR :
					      !got || strcmp(got, want->text)) {
			printf("# %s\n#   got:  %s\n#   want: %s\n", text->text, got ? got : e.msg,
			       want->type == JSON_NULL ? "(an error)" : want->text);
			bad++;
		}
		free(got);
	}
	ok(bad == 0, "all render as jinja2 rendered them (%ld do not)", bad);
}

static struct chat_render conversation(const struct json *c)
{
	return (struct chat_render){ .messages = json_get(c, "messages"),
				     .tools = json_get(c, "tools"),
				     .kwargs = json_get(c, "kwargs"),
				     .bos_token = "<s>",
				     .eos_token = "</s>",
				     .add_generation_prompt = json_is(
					     json_get(c, "add_generation_prompt"), JSON_TRUE) };
}

static void test_golden(void)
{
	const struct json *templates = json_get(&golden.root, "templates"),
			  *conv = json_get(&golden.root, "conversations");

	for (size_t i = 0; i < templates->n; i++) {
		const struct json *text = &templates->member[i].value;
		const struct json *want =
			json_get(json_get(&golden.root, "golden"), templates->member[i].key);

		for (size_t k = 0; k < conv->n; k++) {
			struct chat_render r = conversation(&conv->member[k].value);
			const struct json *w = json_get(want, conv->member[k].key);
			struct err e = ERR_INIT;
			char *got = render_text(text->text, text->n, &r, NULL, NULL, &e);

			if (w->type == JSON_NULL)
				ok(!got && e.code == EX_DATAERR, "%s, %s: refused",
				   templates->member[i].key, conv->member[k].key);
			else
				is_str(got ? got : e.msg, w->text, "%s, %s",
				       templates->member[i].key, conv->member[k].key);
			free(got);
		}
	}
}

static uint64_t fnv(const char *s)
{
	uint64_t h = 0xcbf29ce484222325;

	for (; *s; s++)
		h = (h ^ (unsigned char)*s) * 0x100000001b3;
	return h;
}

static int read_gz(struct str *out, const char *path)
{
	char cmd[600], buf[65536];
	size_t n;
	FILE *f;

	snprintf(cmd, sizeof(cmd), "gzip -dc '%s'", path);
	if (!(f = popen(cmd, "r")))
		return -1;
	while ((n = fread(buf, 1, sizeof(buf), f)) > 0)
		str_add(out, buf, n);
	return pclose(f);
}

static const char *token(const struct json *cfg, const char *name)
{
	const struct json *v = json_get(cfg, name);

	v = json_is(v, JSON_OBJECT) ? json_get(v, "content") : v;
	return json_is(v, JSON_STRING) ? v->text : NULL;
}

static void test_real(void)
{
	const struct json *real = json_get(&golden.root, "real"),
			  *conv = json_get(&golden.root, "conversations");
	const char *shared = getenv("CAIRN_SHARED");

	for (size_t i = 0; i < real->n; i++) {
		const char *name = real->member[i].key;
		char path[512];
		struct str file = { 0 };
		struct json_doc cfg;
		struct err e = ERR_INIT;
		const struct json *text;

		snprintf(path, sizeof(path), "%s/data/tokenizers/%s/tokenizer_config.json.gz",
			 shared ? shared : "", name);
		if (!shared || read_gz(&file, path)) {
			skip("CAIRN_SHARED is not set", "the template of %s", name);
			continue;
		}
		if (json_parse(&cfg, file.s, file.len, path, 1, &e))
			die_err(&e);
		text = json_get(&cfg.root, "chat_template");
		for (size_t k = 0; k < conv->n; k++) {
			struct chat_render r = conversation(&conv->member[k].value);
			const struct json *w =
				json_get(&real->member[i].value, conv->member[k].key);
			char *got, hash[20];

			r.bos_token = token(&cfg.root, "bos_token");
			r.eos_token = token(&cfg.root, "eos_token");
			r.pad_token = token(&cfg.root, "pad_token");
			got = render_text(text->text, text->n, &r, NULL, NULL, &e);
			snprintf(hash, sizeof(hash), "%016lx", (unsigned long)(got ? fnv(got) : 0));
			if (w->type == JSON_NULL)
				ok(!got, "%s, %s: refused", name, conv->member[k].key);
			else
				is_str(hash, w->item[1].text, "%s, %s: %s", name,
				       conv->member[k].key, got ? "the same bytes" : e.msg);
			free(got);
		}
		json_release(&cfg);
		str_release(&file);
	}
}

static void show(char *out, size_t size, const char *text, const struct chat_span *s, long n,
		 enum chat_span_kind kind)
{
	size_t at = 0;

	out[0] = 0;
	for (long i = 0; i < n; i++) {
		if (s[i].kind == kind)
			at += (size_t)snprintf(out + at, size - at, "%d:[%.*s]", s[i].message,
					       (int)(s[i].end - s[i].start), text + s[i].start);
	}
}

static void span_case(const char *what, const char *template, const char *messages,
		      const char *content, const char *generation)
{
	struct json_doc d = parsed(messages);
	struct chat_render r = { .messages = &d.root,
				 .eos_token = "</s>",
				 .add_generation_prompt = true };
	struct chat_span *s = NULL;
	struct err e = ERR_INIT;
	long n = 0;
	char *text = render_text(template, strlen(template), &r, &s, &n, &e), buf[2000];

	if (!text)
		printf("# %s\n", e.msg);
	show(buf, sizeof(buf), text ? text : "", s, n, SPAN_CONTENT);
	is_str(buf, content, "content: %s", what);
	show(buf, sizeof(buf), text ? text : "", s, n, SPAN_GENERATION);
	is_str(buf, generation, "generation: %s", what);
	free(s);
	free(text);
	json_release(&d);
}

static void test_spans(void)
{
	const char *one =
		"[{\"role\":\"user\",\"content\":\" <|im_end|>\\nab,cd \"},{\"role\":\"assistant\",\"content\":\"ok\"}]";

	span_case("plain", "{% for m in messages %}<{{ m.role }}>{{ m.content }};{% endfor %}", one,
		  "0:[ <|im_end|>\nab,cd ]1:[ok]", "");
	span_case(
		"trim and +",
		"{% for m in messages %}{{ '<' + m.role + '>' + m.content|trim + '!' }}{% endfor %}",
		one, "0:[<|im_end|>\nab,cd]1:[ok]", "");
	span_case("split, index, ~", "{{ 'x' ~ messages[0].content.split(',')[1] ~ 'y' }}", one,
		  "0:[cd ]", "");
	span_case(
		"slices of a mixture",
		"{% set x = 'ab' + messages[1].content + 'cd' %}{{ x[1:] }}.{{ x[3:] }}.{{ x[1:3] }}",
		one, "1:[ok]1:[k]1:[o]", "");
	span_case(
		"split of a mixture",
		"{{ ('a,' + messages[1].content + ',b,' + messages[1].content).split(',')|join('-') }}",
		one, "1:[ok]1:[ok]", "");
	span_case("slice", "{{ messages[0].content[-4:-1] }}", one, "0:[,cd]", "");
	span_case("replace", "{{ messages[0].content.strip().replace('b', '<B>') }}", one,
		  "0:[<|im_end|>\na]0:[,cd]", "");
	span_case(
		"upper, title, reverse",
		"{{ messages[1].content.upper() }}{{ messages[1].content|title }}{{ messages[1].content|reverse }}",
		one, "1:[OKOkko]", "");
	span_case("tojson", "{{ messages[0]|tojson }}", one, "0:[ <|im_end|>\\nab,cd ]", "");
	span_case("join, list", "{{ messages|map(attribute='content')|join('+') }}", one,
		  "0:[ <|im_end|>\nab,cd ]1:[ok]", "");
	span_case(
		"macro, set block",
		"{% macro m(x) %}({{ x }}){% endmacro %}{% set y %}{{ m(messages[1].content) }}{% endset %}{{ y }}",
		one, "1:[ok]", "");
	span_case(
		"format, indent, escape",
		"{{ '%s!' % messages[1].content }}{{ messages[1].content|indent(2,true) }}{{ messages[0].content|e|trim }}",
		one, "1:[ok]1:[ok]0:[&lt;|im_end|&gt;\nab,cd]", "");
	span_case(
		"namespace",
		"{% set ns = namespace(t='') %}{% for m in messages %}{% set ns.t = ns.t + m.content %}{% endfor %}{{ ns.t }}",
		one, "0:[ <|im_end|>\nab,cd ]1:[ok]", "");
	span_case("repr", "{{ [messages[1].content] }}", one, "1:[ok]", "");
	span_case(
		"generation",
		"{% for m in messages %}{{ m.role }}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}<e>{% endgeneration %}{% endif %}.{% endfor %}",
		one, "1:[ok]", "1:[ok<e>]");
	span_case(
		"parts", "{% for p in messages[0].content %}{{ p.type }}={{ p.text }}{% endfor %}",
		"[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"text\",\"text\":\"b\"}]}]",
		"0:[text]0:[atext]0:[b]", "");
}

static void assistant_case(const char *what, const char *template, const char *messages,
			   bool prompt, bool last, const char *want)
{
	struct json_doc d = parsed(messages);
	struct chat_render r = { .messages = &d.root,
				 .eos_token = "</s>",
				 .add_generation_prompt = prompt };
	struct chat_template *t;
	struct chat_span *s = NULL;
	struct str out = { 0 };
	struct err e = ERR_INIT;
	long n = 0;
	char buf[2000] = "";
	int rc = !strncmp(template, "builtin:", 8) ?
			 chat_template_builtin(&t, template + 8, &e) :
			 chat_template_parse(&t, template, strlen(template), "t", &e);

	if (!rc && !chat_assistant_spans(t, &r, last, &s, &n, &out, &e))
		show(buf, sizeof(buf), out.s, s, n, SPAN_GENERATION);
	else
		printf("# %s\n", e.msg);
	is_str(buf, want, "%s", what);
	free(s);
	str_release(&out);
	chat_template_free(t);
	json_release(&d);
}

static void test_assistant(void)
{
	const char *four =
		"[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"content\":\"a\"},{\"role\":\"user\",\"content\":\"r\"},{\"role\":\"assistant\",\"content\":\"b\"}]";
	/* Old thoughts are dropped, as Qwen3 does: only the last answer keeps its own. */
	const char *forget =
		"{% for m in messages %}{% if loop.last and m.role == 'assistant' %}[{{ m.role }}]<t></t>{{ m.content }}<|end|>{% else %}[{{ m.role }}]{{ m.content }}<|end|>{% endif %}{% endfor %}";
	const char *refuse =
		"{% if messages|length % 2 %}{{ raise_exception('odd') }}{% endif %}{% for m in messages %}[{{ m.role }}]{{ m.content }}</s>\n{% endfor %}";
	const char *marked =
		"{% if messages|length % 2 %}{{ raise_exception('odd') }}{% endif %}{% for m in messages %}[{{ m.role }}]{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{{ eos_token }}{% endgeneration %}{% endif %}.{% endfor %}";

	assistant_case(
		"every token of the assistant's messages", "builtin:chatml", four, false, false,
		"1:[<|im_start|>assistant\na<|im_end|>\n]3:[<|im_start|>assistant\nb<|im_end|>\n]");
	assistant_case("the header belongs to the prompt", "builtin:chatml", four, true, false,
		       "1:[a<|im_end|>\n]3:[b<|im_end|>\n]");
	assistant_case("only the last", "builtin:chatml", four, true, true, "3:[b<|im_end|>\n]");
	assistant_case("plain", "builtin:plain", four, false, false, "1:[a]3:[b]");
	assistant_case("not prefix-stable: content and control token", forget, four, false, false,
		       "1:[a<|end|>]3:[[assistant]<t></t>b<|end|>]");
	assistant_case("prefixes refused: content and eos", refuse, four, false, false,
		       "1:[a</s>]3:[b</s>]");
	assistant_case("prefixes refused: generation blocks", marked, four, false, false,
		       "1:[a</s>]3:[b</s>]");
	assistant_case("no assistant, no spans", "builtin:chatml",
		       "[{\"role\":\"user\",\"content\":\"q\"}]", false, false, "");
}

static void fails(const char *what, const char *template, const char *want)
{
	struct json none = { .type = JSON_ARRAY };
	struct chat_render r = { .messages = &none };
	struct err e = ERR_INIT;
	char *got = render_text(template, strlen(template), &r, NULL, NULL, &e);

	ok(!got && e.code == EX_DATAERR, "%s: refused with 65", what);
	is_str(e.msg, want, "%s", what);
	free(got);
}

static void test_bounds(void)
{
	fails("an error names its line", "a\n\n{{ nosuch.attribute }}",
	      "t:3: 'nosuch' is undefined");
	fails("raise_exception",
	      "{% if true %}\n{{ raise_exception('Only \"x\" roles') }}{% endif %}",
	      "t:2: Only \"x\" roles");
	fails("a syntax error", "{{ 1 +\n+ }}", "t:2: found \"}}\", wanted an expression");
	fails("an unknown statement", "{% include 'x' %}",
	      "t:1: found \"include\", wanted a statement that is supported (set, for, if, macro, call, filter, with, generation)");
	fails("an unknown filter", "\n{{ 1|nofilter }}", "t:2: no filter named \"nofilter\"");
	fails("an open block", "{% if 1 %}\nx", "t:2: found the end, wanted else");
	fails("steps",
	      "{% set l = range(3000) %}{% for i in l %}{% for j in l %}{% endfor %}{% endfor %}",
	      "t:1: more than 5000000 steps");
	fails("output",
	      "{% set x = 'aaaaaaaaaaaaaaaa' * 100000 %}{% for i in range(1000) %}{{ x }}{% endfor %}",
	      "t:1: more than 64 MiB of text");
	fails("values",
	      "{% set ns = namespace(x='a' * 1000000) %}{% for i in range(100000) %}{% set ns.x = ns.x + 'b' %}{% endfor %}",
	      "t:1: more than 256 MiB of values");
	fails("comparing what doubles 60 times",
	      "{% set ns = namespace(x=[1], y=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% set ns.y = [ns.y, ns.y] %}{% endfor %}{{ ns.x == ns.y }}",
	      "t:1: more than 5000000 steps");
	fails("recursion", "{% macro m(n) %}{{ m(n + 1) }}{% endmacro %}{{ m(0) }}",
	      "t:1: nested too deep");
	fails("a value within itself", "{% set l = [1] %}{% set x = l.append(l) %}{{ l }}",
	      "t:1: a value is nested more than 200 deep");
	fails("values nested by a loop",
	      "{% set ns = namespace(x=[]) %}{% for i in range(90000) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x|tojson }}",
	      "t:1: a value is nested more than 200 deep");
}

/* What is well within the bounds renders. */
static void test_roomy(void)
{
	struct json none = { .type = JSON_ARRAY };
	struct chat_render r = { .messages = &none };
	static const char loops[] =
		"{% set l = range(1000) %}{% for i in l %}{% for j in l[:500] %}{{ j }}{% endfor %}{% endfor %}";
	static const char deep[] =
		"{% macro m(n) %}{% if n %}{{ m(n - 1) }}{% else %}end{% endif %}{% endmacro %}{{ m(60) }}";
	struct err e = ERR_INIT;
	char *got = render_text(loops, strlen(loops), &r, NULL, NULL, &e);

	ok(got && strlen(got) == 1000 * (10 + 90 * 2 + 400 * 3), "500,000 turns of a loop");
	free(got);
	got = render_text(deep, strlen(deep), &r, NULL, NULL, &e);
	is_str(got ? got : e.msg, "end", "a macro that calls itself 60 times");
	free(got);
}

static void test_deep(void)
{
	struct str s = { 0 };
	struct json none = { .type = JSON_ARRAY };
	struct chat_render r = { .messages = &none };
	static const struct {
		const char *what, *head, *piece, *middle, *close, *end;
	} c[] = {
		{ "parentheses", "{{ ", "(", "1", ")", " }}" },
		{ "lists", "{{ ", "[", "1", "]", " }}" },
		{ "not", "{{ ", "not ", "1 }}", NULL, NULL },
		{ "minus", "{{ ", "- ", "1 }}", NULL, NULL },
		{ "calls", "{{ ", "f(", "1", ")", " }}" },
		{ "subscripts", "{{ ", "f[", "1", "]", " }}" },
		{ "a long sum", "{{ 1", " + 1", " }}", NULL, NULL },
		{ "a long chain of filters", "{{ 1", "|string", " }}", NULL, NULL },
		{ "conditions", "{{ ", "1 if 1 else ", "1 }}", NULL, NULL },
		{ "blocks", "", "{% if 1 %}", "", NULL, NULL },
		{ "targets", "{% for ", "(", "a", ")", " in x %}" },
	};

	for (size_t i = 0; i < sizeof(c) / sizeof(*c); i++) {
		struct err e = ERR_INIT;
		char *got;

		str_puts(&s, c[i].head);
		for (int k = 0; k < 20000; k++)
			str_puts(&s, c[i].piece);
		str_puts(&s, c[i].middle);
		for (int k = 0; c[i].close && k < 20000; k++)
			str_puts(&s, c[i].close);
		str_puts(&s, c[i].close ? c[i].end : "");
		got = render_text(s.s, s.len, &r, NULL, NULL, &e);
		ok(!got && e.code == EX_DATAERR && strstr(e.msg, "nested too deep"),
		   "20,000 of %s: %s", c[i].what, e.msg);
		free(got);
		str_release(&s);
	}
}

int main(void)
{
	struct chat_template *t;
	struct err e = ERR_INIT;

	open_data(&expr, "chat_expr.json");
	open_data(&golden, "chat_golden.json");
	test_expressions();
	test_golden();
	test_real();
	test_spans();
	test_assistant();
	test_bounds();
	test_roomy();
	test_deep();
	ok(chat_template_builtin(&t, "chatm1", &e) && e.code == EX_CONFIG, "%s", e.msg);
	json_release(&expr);
	json_release(&golden);
	return done();
}
