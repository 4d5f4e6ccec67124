#include "libcommon/recipe_node.h"

#include "libcommon/utf8.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct node *node_new(struct node_space *s, enum node_kind kind, const char *file, int line, struct err *e)
{
	if (++s->nodes > RECIPE_NODES) {
		err_set(e, EX_DATAERR, "%s:%d: aliases and interpolations expand to more than %d values",
			file ? file : "command line", line, RECIPE_NODES);
		return NULL;
	}
	struct node *v = arena_calloc(&s->arena, 1, sizeof(*v));
	v->kind = kind;
	v->file = file;
	v->line = line;
	return v;
}

static int text_room(struct node_space *s, size_t len, const char *file, int line, struct err *e)
{
	s->bytes += len;
	if (s->bytes > RECIPE_TEXT_MAX)
		return err_set(e, EX_DATAERR, "%s:%d: the values together have more than %d bytes",
			       file ? file : "command line", line, RECIPE_TEXT_MAX);
	return 0;
}

bool node_is_text(const char *t, size_t len)
{
	bool good = true;

	for (size_t i = 0; good && i < len; )
		i += utf8_step(t + i, len - i, &good);
	return good;
}

/* The YAML parser checks files; the command line and the environment come unchecked. */
struct node *node_string(struct node_space *s, const char *text, size_t len, const char *file, int line, struct err *e)
{
	struct node *v = node_new(s, NODE_STR, file, line, e);
	if (!v || text_room(s, len, file, line, e))
		return NULL;
	if (!node_is_text(text, len)) {
		err_set(e, EX_DATAERR, "%s:%d: a value that is no UTF-8", file ? file : "command line", line);
		return NULL;
	}
	v->text = arena_strndup(&s->arena, text, len);
	v->len = len;
	return v;
}

struct node *node_copy(struct node_space *s, const struct node *v, int depth, struct err *e)
{
	struct node *c = node_new(s, v->kind, v->file, v->line, e);
	if (!c)
		return NULL;
	if (depth > RECIPE_DEPTH) {
		err_set(e, EX_DATAERR, "%s:%d: nested deeper than %d", v->file ? v->file : "command line", v->line, RECIPE_DEPTH);
		return NULL;
	}
	if (text_room(s, v->len, v->file, v->line, e))
		return NULL;
	*c = *v;
	c->n = c->cap = 0;
	c->key = NULL;
	c->item = NULL;
	for (int i = 0; i < v->n; i++) {
		struct node *k = node_copy(s, v->item[i], depth + 1, e);
		if (!k || node_add(s, c, v->kind == NODE_MAP ? v->key[i] : NULL, k, e))
			return NULL;
	}
	return c;
}

int node_add(struct node_space *s, struct node *list, const char *key, struct node *v, struct err *e)
{
	if (key && list->n >= RECIPE_MEMBERS)
		return err_set(e, EX_DATAERR, "%s:%d: a map of more than %d keys", v->file ? v->file : "command line", v->line,
			       RECIPE_MEMBERS);
	if (list->n == list->cap) {
		int cap = list->cap ? list->cap * 2 : 8;
		struct node **item = arena_alloc(&s->arena, (size_t)cap * sizeof(*item));
		if (list->n)
			memcpy(item, list->item, (size_t)list->n * sizeof(*item));
		list->item = item;
		if (list->kind == NODE_MAP) {
			const char **k = arena_alloc(&s->arena, (size_t)cap * sizeof(*k));
			if (list->n)
				memcpy(k, list->key, (size_t)list->n * sizeof(*k));
			list->key = k;
		}
		list->cap = cap;
	}
	if (list->kind == NODE_MAP)
		list->key[list->n] = key;
	list->item[list->n++] = v;
	return 0;
}

int node_find(const struct node *map, const char *key)
{
	if (map && map->kind == NODE_MAP)
		for (int i = 0; i < map->n; i++)
			if (!strcmp(map->key[i], key))
				return i;
	return -1;
}

struct node *node_get(const struct node *map, const char *key)
{
	int i = node_find(map, key);
	return i < 0 ? NULL : map->item[i];
}

void node_remove(struct node *map, int i)
{
	for (int j = i + 1; j < map->n; j++) {
		map->item[j - 1] = map->item[j];
		if (map->kind == NODE_MAP)
			map->key[j - 1] = map->key[j];
	}
	map->n--;
}

int node_depth(const struct node *v)
{
	int most = 0;
	if (v->kind < NODE_LIST)
		return 0;
	for (int i = 0; i < v->n; i++) {
		int d = node_depth(v->item[i]);
		if (d > most)
			most = d;
	}
	return most + 1;
}

const char *node_where(char buf[512], const struct node *v)
{
	if (v->file)
		snprintf(buf, 512, "%s:%d", v->file, v->line);
	else
		snprintf(buf, 512, "command line");
	return buf;
}

const char *node_show(char buf[64], const struct node *v)
{
	static const char *const kind[] = { "null", 0, 0, 0, 0, "a list", "a map" };

	if (kind[v->kind])
		snprintf(buf, 64, "%s", kind[v->kind]);
	else if (v->kind != NODE_STR)
		snprintf(buf, 64, "%.40s", v->text);
	else
		snprintf(buf, 64, "'%.40s%s'", v->text, v->len > 40 ? "..." : "");
	for (char *c = buf; *c; c++)
		if ((unsigned char)*c < ' ')
			*c = ' ';
	return buf;
}

bool node_equal(const struct node *a, const struct node *b)
{
	if (a->kind != b->kind || a->n != b->n)
		return false;
	switch (a->kind) {
	case NODE_NULL: return true;
	case NODE_BOOL: return a->b == b->b;
	case NODE_INT:  return a->i == b->i;
	case NODE_REAL: return a->d == b->d;
	case NODE_STR:  return a->len == b->len && !memcmp(a->text, b->text, a->len);
	case NODE_LIST:
		for (int i = 0; i < a->n; i++)
			if (!node_equal(a->item[i], b->item[i]))
				return false;
		return true;
	case NODE_MAP:
		for (int i = 0; i < a->n; i++) {
			const struct node *o = node_get(b, a->key[i]);
			if (!o || !node_equal(a->item[i], o))
				return false;
		}
		return true;
	}
	return false;
}

/* How far [0-9_]* reaches. */
static size_t digits(const char *t, size_t i)
{
	while (isdigit((unsigned char)t[i]) || t[i] == '_')
		i++;
	return i;
}

/* OmegaConf's own rule for floats: 1e-8 and 1.e3 are, `.5`, `+.5` is not, an exponent after a leading dot needs a sign. */
static bool is_real(const char *t, size_t len)
{
	size_t i = t[0] == '-' || t[0] == '+', j;
	bool dot = false, sign = i > 0;

	if (t[i] == '.' && sign)
		return false;
	if (t[i] == '.') {
		j = digits(t, i + 1);
		if (!isdigit((unsigned char)t[i + 1]))
			return false;
		if (j == len)
			return true;
		if ((t[j] | 32) != 'e' || (t[j + 1] != '-' && t[j + 1] != '+') || !isdigit((unsigned char)t[j + 2]))
			return false;
		for (j += 2; isdigit((unsigned char)t[j]); j++)
			;
		return j == len;
	}
	if (!isdigit((unsigned char)t[i]))
		return false;
	i = digits(t, i);
	if (t[i] == '.') {
		dot = true;
		i = digits(t, i + 1);
	}
	if ((t[i] | 32) == 'e') {
		dot = true;
		i++;
		if (t[i] == '-' || t[i] == '+')
			i++;
		if (!isdigit((unsigned char)t[i]))
			return false;
		while (isdigit((unsigned char)t[i]))
			i++;
	}
	return dot && i == len;
}

/* YAML 1.1's whole numbers: decimal, 0x, 0b, octal with a leading 0, and base 60 (1:30).  Returns the base; 0: not one. */
static int int_base(const char *t, size_t len)
{
	size_t i = t[0] == '-' || t[0] == '+', from;
	bool sixty = false;

	if (!isdigit((unsigned char)t[i]))
		return 0;
	if (t[i] == '0' && (t[i + 1] == 'x' || t[i + 1] == 'b')) {
		const char *set = t[i + 1] == 'x' ? "0123456789abcdefABCDEF_" : "01_";
		from = i + 2;
		return len > from && strspn(t + from, set) == len - from ? (t[i + 1] == 'x' ? 16 : 2) : 0;
	}
	if (t[i] == '0')
		return len == i + 1 ? 10 : strspn(t + i + 1, "01234567_") == len - i - 1 ? 8 : 0;
	for (i = digits(t, i); t[i] == ':'; sixty = true) {
		i++;
		if (!isdigit((unsigned char)t[i]))
			return 0;
		if (t[i] <= '5' && isdigit((unsigned char)t[i + 1]))
			i++;
		i++;
	}
	return i == len ? (sixty ? 60 : 10) : 0;
}

static int int_value(long *out, const char *t, int base)
{
	char plain[80];
	size_t n = 0;
	long v = 0;
	bool minus = *t == '-';

	t += *t == '-' || *t == '+';
	if (base == 60) {
		long part = 0;
		for (;; t++) {
			if (isdigit((unsigned char)*t)) {
				if (__builtin_mul_overflow(part, 10L, &part) || __builtin_add_overflow(part, *t - '0', &part))
					return -1;
			} else if (*t == ':' || !*t) {
				if (__builtin_mul_overflow(v, 60L, &v) || __builtin_add_overflow(v, part, &v))
					return -1;
				part = 0;
				if (!*t)
					break;
			}
		}
		*out = minus ? -v : v;
		return 0;
	}
	if (minus)
		plain[n++] = '-';
	if (base == 16 || base == 2)
		t += 2;
	for (; *t; t++)
		if (*t != '_') {
			if (n + 1 >= sizeof(plain))
				return -1;
			plain[n++] = *t;
		}
	plain[n] = 0;
	errno = 0;
	*out = strtol(plain, NULL, base);
	return errno ? -1 : 0;
}

static bool one_of(const char *t, const char *words)
{
	size_t n = strlen(t);
	for (const char *w = words; n && (w = strstr(w, t)); w += n)
		if ((w == words || w[-1] == ' ') && (w[n] == ' ' || !w[n]))
			return true;
	return false;
}

static int real_value(struct node *v, const char *t)
{
	struct str plain = { 0 };

	for (; *t; t++)
		if (*t != '_')
			str_putc(&plain, *t);
	v->d = strtod(plain.s, NULL);
	str_release(&plain);
	return v->d - v->d == 0 ? 0 : -1;
}

struct node *node_scalar(struct node_space *s, const char *text, size_t len, const char *file, int line, struct err *e)
{
	struct node *v = node_string(s, text, len, file, line, e);
	if (!v)
		return NULL;
	const char *t = v->text;
	int base;

	if (!len || one_of(t, "~ null Null NULL"))
		v->kind = NODE_NULL;
	else if (one_of(t, "true True TRUE yes Yes YES on On ON"))
		v->kind = NODE_BOOL, v->b = true;
	else if (one_of(t, "false False FALSE no No NO off Off OFF"))
		v->kind = NODE_BOOL;
	else if (is_real(t, len)) {
		v->kind = NODE_REAL;
		if (real_value(v, t))
			goto range;
	} else if ((base = int_base(t, len))) {
		v->kind = NODE_INT;
		if (int_value(&v->i, t, base))
			goto range;
	} else if (one_of(t + (*t == '-' || *t == '+'), ".inf .Inf .INF") || one_of(t, ".nan .NaN .NAN"))
		goto range;
	return v;
range:
	if (!file)
		err_set(e, EX_CONFIG, "command line: found %.60s, wanted a finite number of at most 64 bits", t);
	else
		err_set(e, EX_DATAERR, "%s:%d: %.60s: wanted a finite number of at most 64 bits", file, line, t);
	return NULL;
}
