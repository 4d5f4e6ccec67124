#include "libcommon/recipe_node.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/*
 * ${a.b} from the root, ${.x} beside the value, ${..x} one map further up, ${name:argument, ...} with add, mul, div, max and oc.env;
 * arguments may hold interpolations.  A string that is one interpolation takes the value's type; within more text it becomes text.
 * Each value is resolved once, in place.  What the user wrote is looked for in what the user gave, then in the defaults.
 */
struct interp {
	struct recipe *r;
	struct err *e;
	int depth;              /* of expansions inside each other */
};

/* The place of the value being resolved. */
struct site {
	const struct place *at;
	const struct node *v;
	bool user;              /* written by the user: a key below a null is not there, whatever the defaults say */
};

static int resolve(struct interp *in, struct node *v, struct place *at, bool user);

static struct node *bad(struct interp *in, const struct site *site, const char *fmt, const char *arg)
{
	char where[512], key[512];
	struct str t = { 0 };

	str_printf(&t, fmt, arg);
	err_set(in->e, EX_CONFIG, "%s: %s: %s", node_where(where, site->v), place_text(key, sizeof(key), site->at), t.s);
	str_release(&t);
	return NULL;
}

static struct node *refer(struct interp *in, const struct site *site, const char *name, size_t len)
{
	struct node_space *s = &in->r->space;
	const char *text = arena_strndup(&s->arena, name, len);
	size_t dots = strspn(text, ".");
	struct place p, rest;
	bool null_above, user = true;

	if (place_parse(&rest, s, text + dots, len - dots))
		return bad(in, site, "${%.100s}: wanted a key", text);
	p = *site->at;
	p.n = dots ? site->at->n - (int)dots : 0;
	if (p.n < 0 || p.n + rest.n > RECIPE_DEPTH)
		return bad(in, site, "${%.100s}: more dots than there are maps around it", text);
	for (int i = 0; i < rest.n; i++)
		p.part[p.n++] = rest.part[i];
	place_rename(&p, s);

	struct node *v = place_find(in->r->user, &p, &null_above);
	if (!v && (!null_above || !site->user)) {
		user = false;
		v = place_find(in->r->defs, &p, &null_above);
	}
	if (!v)
		return bad(in, site, "${%.100s}: there is no such key", text);
	if (resolve(in, v, &p, user))
		return NULL;
	return node_copy(s, v, site->at->n, in->e);
}

static struct node *number(struct interp *in, const struct site *site, bool real, long i, double d)
{
	struct node *v = node_new(&in->r->space, real ? NODE_REAL : NODE_INT, site->v->file, site->v->line, in->e);
	char text[32];

	if (!v)
		return NULL;
	v->d = d;
	v->i = i;
	if (real && !(d - d == 0))
		return bad(in, site, "%s", "the result is not a finite number");
	if (real)
		real_repr(text, d);
	else
		snprintf(text, sizeof(text), "%ld", i);
	v->len = strlen(text);
	v->text = arena_strndup(&in->r->space.arena, text, v->len);
	return v;
}

static struct node *arithmetic(struct interp *in, const struct site *site, const char *name, struct node **arg, int n)
{
	bool real = false, over = false;
	double x[2];
	long i = 0;

	for (int k = 0; k < n; k++)
		if (arg[k]->kind != NODE_INT && arg[k]->kind != NODE_REAL)
			return bad(in, site, "${%s:...}: wanted two numbers", name);
	if (n != 2)
		return bad(in, site, "${%s:...}: wanted two numbers", name);
	for (int k = 0; k < 2; k++) {
		x[k] = arg[k]->kind == NODE_INT ? (double)arg[k]->i : arg[k]->d;
		real = real || arg[k]->kind == NODE_REAL;
	}
	if (!strcmp(name, "div"))
		return x[1] != 0 ? number(in, site, true, 0, x[0] / x[1]) : bad(in, site, "${%s:...}: division by zero", name);
	if (!strcmp(name, "max"))
		return arg[x[1] > x[0]];
	if (!strcmp(name, "add"))
		over = !real && __builtin_add_overflow(arg[0]->i, arg[1]->i, &i);
	else
		over = !real && __builtin_mul_overflow(arg[0]->i, arg[1]->i, &i);
	if (over)
		return bad(in, site, "${%s:...}: the result does not fit into 64 bits", name);
	return number(in, site, real, i, *name == 'a' ? x[0] + x[1] : x[0] * x[1]);
}

static struct node *environment(struct interp *in, const struct site *site, struct node **arg, int n)
{
	const char *text;

	if (n < 1 || n > 2 || !arg[0]->len)
		return bad(in, site, "${%s:...}: wanted a variable and perhaps a default", "oc.env");
	text = getenv(arg[0]->text);
	if (!text && n == 2)
		return arg[1];
	if (!text)
		return bad(in, site, "${oc.env:%.100s}: the variable is not set and there is no default", arg[0]->text);
	struct node *v = node_scalar(&in->r->space, text, strlen(text), site->v->file, site->v->line, in->e);
	if (v)
		v->soft = true;
	return v;
}

/* Where the ${ at t ends: at its own brace, not at one inside. */
static const char *closing(const char *t)
{
	int depth = 0;

	for (; *t; t++) {
		if (t[0] == '$' && t[1] == '{')
			depth++, t++;
		else if (*t == '}' && !--depth)
			return t;
	}
	return NULL;
}

static struct node *expand(struct interp *in, const struct site *site, const char *text, size_t len);

/* One argument: blanks around it do not count, quotes keep it a string. */
static struct node *argument(struct interp *in, const struct site *site, const char *t, size_t len)
{
	while (len && isspace((unsigned char)*t))
		t++, len--;
	while (len && isspace((unsigned char)t[len - 1]))
		len--;
	if (len > 1 && (*t == '"' || *t == '\'') && t[len - 1] == *t)
		return node_string(&in->r->space, t + 1, len - 2, site->v->file, site->v->line, in->e);
	if (memmem(t, len, "${", 2))
		return expand(in, site, t, len);
	return node_scalar(&in->r->space, t, len, site->v->file, site->v->line, in->e);
}

static struct node *call(struct interp *in, const struct site *site, const char *t, size_t len)
{
	static const char *const known[] = { "add", "mul", "div", "max", "oc.env" };
	const char *colon = memchr(t, ':', len), *end = t + len, *from = colon + 1;
	const char *name = arena_strndup(&in->r->space.arena, t, (size_t)(colon - t));
	struct node *arg[3];
	int n = 0, depth = 0, k = 0;

	while (k < 5 && strcmp(known[k], name))
		k++;
	if (k == 5)
		return bad(in, site, "${%.60s:...}: wanted add, mul, div, max or oc.env", name);
	for (const char *c = from; c <= end; c++) {
		if (c < end && c[0] == '$' && c[1] == '{')
			depth++;
		else if (c < end && *c == '}')
			depth--;
		if (c < end && (depth || *c != ','))
			continue;
		if (n == 3)
			break;
		if (!(arg[n] = argument(in, site, from, (size_t)(c - from))))
			return NULL;
		n++;
		from = c + 1;
	}
	return k < 4 ? arithmetic(in, site, name, arg, n) : environment(in, site, arg, n);
}

static struct node *one(struct interp *in, const struct site *site, const char *t, size_t len)
{
	const char *colon = memchr(t, ':', len), *inner = memmem(t, len, "${", 2);

	if (colon && (!inner || colon < inner))
		return call(in, site, t, len);
	if (!inner)
		return refer(in, site, t, len);
	/* ${a.${b}}: the name itself is put together first. */
	struct node *name = expand(in, site, t, len);
	return name ? name->kind == NODE_STR ? refer(in, site, name->text, name->len) : bad(in, site, "%s", "wanted a key in ${}") : NULL;
}

static int add_text(struct interp *in, struct str *t, const struct site *site, const struct node *v)
{
	switch (v->kind) {
	case NODE_NULL: str_puts(t, "None"); break;
	case NODE_BOOL: str_puts(t, v->b ? "True" : "False"); break;
	case NODE_LIST: case NODE_MAP:
		return bad(in, site, "%s", "a list or a map within a text") ? 0 : -1;
	case NODE_REAL: {
		char text[32];
		str_puts(t, real_repr(text, v->d));
		break;
	}
	case NODE_INT: str_printf(t, "%ld", v->i); break;
	default: str_add(t, v->text, v->len);
	}
	if (t->len > RECIPE_FILE_MAX)
		return bad(in, site, "%s", "the text grows beyond 1 MiB") ? 0 : -1;
	return 0;
}

static struct node *pieces(struct interp *in, const struct site *site, const char *text, size_t len)
{
	struct node_space *s = &in->r->space;
	const char *copy = arena_strndup(&s->arena, text, len), *t = copy;
	struct node *v = NULL;
	struct str out = { 0 };

	s->bytes += len;
	while (*t) {
		if (t[0] == '\\' && t[1] == '$' && t[2] == '{') {
			str_puts(&out, "${");
			t += 3;
			continue;
		}
		if (t[0] != '$' || t[1] != '{') {
			str_putc(&out, *t++);
			continue;
		}
		const char *end = closing(t);
		if (!end) {
			v = bad(in, site, "%s", "a ${ that does not end");
			goto out;
		}
		v = one(in, site, t + 2, (size_t)(end - t - 2));
		if (!v || (t == copy && !end[1]))
			goto out;
		if (add_text(in, &out, site, v)) {
			v = NULL;
			goto out;
		}
		t = end + 1;
	}
	v = node_string(s, out.s ? out.s : "", out.len, site->v->file, site->v->line, in->e);
out:
	str_release(&out);
	return v;
}

static struct node *expand(struct interp *in, const struct site *site, const char *text, size_t len)
{
	if (++in->depth > RECIPE_REFERENCES)
		return bad(in, site, "%s", "more than 64 interpolations inside each other");
	struct node *v = pieces(in, site, text, len);
	in->depth--;
	return v;
}

static int resolve_text(struct interp *in, struct node *v, const struct place *at, bool user)
{
	struct site site = { .at = at, .v = v, .user = user };
	char where[512], key[512];

	if (v->busy)
		return err_set(in->e, EX_CONFIG, "%s: %s: the interpolation leads back to itself", node_where(where, v),
			       place_text(key, sizeof(key), at));
	if (v->done || !memmem(v->text, v->len, "${", 2))
		return 0;
	v->busy = true;
	struct node *got = expand(in, &site, v->text, v->len);
	if (!got)
		return -1;
	struct node was = *v;
	*v = *got;
	v->file = was.file;
	v->line = was.line;
	v->busy = false;
	v->done = true;
	return 0;
}

static int resolve(struct interp *in, struct node *v, struct place *at, bool user)
{
	char where[512], key[512];

	if (v->kind == NODE_STR)
		return resolve_text(in, v, at, user);
	if (v->kind < NODE_LIST)
		return 0;
	if (v->busy)
		return err_set(in->e, EX_CONFIG, "%s: %s: the interpolation leads back to itself", node_where(where, v),
			       place_text(key, sizeof(key), at));
	v->busy = true;
	for (int i = 0; i < v->n; i++) {
		char number_[16];
		snprintf(number_, sizeof(number_), "%d", i);
		if (at->n >= RECIPE_DEPTH)
			return err_set(in->e, EX_DATAERR, "%s: nested deeper than %d", node_where(where, v), RECIPE_DEPTH);
		at->part[at->n++] = v->kind == NODE_MAP ? v->key[i] : number_;
		int bad_ = resolve(in, v->item[i], at, user);
		at->n--;
		if (bad_)
			return -1;
	}
	v->busy = false;
	return 0;
}

int recipe_resolve(struct recipe *r, struct err *e)
{
	struct interp in = { .r = r, .e = e };
	struct place at = { .n = 0 };

	if (resolve(&in, r->user, &at, true))
		return -1;
	return resolve(&in, r->defs, &at, false);
}
