#include "libcommon/recipe_node.h"

#include <float.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <string.h>

/*
 * The table as a tree of names, made once: looking at a key must not cost a walk through all of them, since a program has to start
 * in a tenth of a second.
 */
struct name {
	const char *text;
	size_t len;
	int row;                /* -1: only a section */
	struct name *below, *next;
};

static struct name *root_names;
static pthread_once_t names_once = PTHREAD_ONCE_INIT;

static struct name *child(struct name *first, const char *text, size_t len)
{
	while (first && (first->len != len || memcmp(first->text, text, len)))
		first = first->next;
	return first;
}

static void make_names(void)
{
	for (int i = 0; i < recipe_nkeys; i++) {
		struct name **at = &root_names, *v = NULL;
		for (const char *t = recipe_keys[i].path; *t; at = &v->below) {
			size_t len = strcspn(t, ".");
			v = child(*at, t, len);
			if (!v) {
				v = xcalloc(1, sizeof(*v));
				*v = (struct name){ t, len, -1, NULL, *at };
				*at = v;
			}
			t += len + (t[len] == '.');
		}
		if (v->row >= 0)
			bug("%s is in the table twice", recipe_keys[i].path);
		v->row = i;
	}
}

/* The child of that name, else the one that stands for any. */
static const struct name *step(const struct name *v, const char *part)
{
	struct name *first = v ? v->below : root_names, *next = child(first, part, strlen(part));
	return next ? next : child(first, "*", 1);
}

static int components(const char *path)
{
	int n = 1;
	for (; *path; path++)
		n += *path == '.';
	return n;
}

bool recipe_key_whole(const struct recipe_key *k, int n)
{
	return k && components(k->path) == n;
}

static bool is_open(const struct recipe_key *k)
{
	return k->type == RECIPE_MAP || k->type == RECIPE_LIST || k->type == RECIPE_ANY;
}

/* The row itself, else the innermost open map, list or anything that the place lies in. */
const struct recipe_key *recipe_key_at(const char *const *part, int n)
{
	const struct recipe_key *best = NULL;
	const struct name *v = NULL;

	pthread_once(&names_once, make_names);
	for (int i = 0; i < n; i++) {
		v = step(v, part[i]);
		if (!v)
			break;
		if (v->row >= 0 && (i == n - 1 || is_open(&recipe_keys[v->row])))
			best = &recipe_keys[v->row];
	}
	return best;
}

bool recipe_is_section(const char *const *part, int n)
{
	const struct name *v = NULL;

	pthread_once(&names_once, make_names);
	for (int i = 0; i < n; i++)
		if (!(v = step(v, part[i])))
			return false;
	return v && v->below;
}

const struct recipe_key *recipe_key_find(const char *key)
{
	struct node_space s = { 0 };
	const struct recipe_key *k = NULL;
	struct place p;

	if (!place_parse(&p, &s, key, strlen(key))) {
		place_rename(&p, &s);
		k = recipe_key_at(p.part, p.n);
	}
	arena_release(&s.arena);
	return k;
}

/* Edits (insert, delete, replace, swap of neighbours) from a to b, both cut to 63 bytes. */
static int distance(const char *a, size_t na, const char *b, size_t nb)
{
	int d[64][64];

	na = na > 63 ? 63 : na;
	nb = nb > 63 ? 63 : nb;
	for (size_t i = 0; i <= na; i++)
		for (size_t j = 0; j <= nb; j++) {
			if (!i || !j) {
				d[i][j] = (int)(i + j);
				continue;
			}
			int v = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
			if (d[i - 1][j] + 1 < v)
				v = d[i - 1][j] + 1;
			if (d[i][j - 1] + 1 < v)
				v = d[i][j - 1] + 1;
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && d[i - 2][j - 2] + 1 < v)
				v = d[i - 2][j - 2] + 1;
			d[i][j] = v;
		}
	return d[na][nb];
}

/* Component by component, counted from the end, so that a forgotten or a wrong section costs little: the leaf counts in full
 * and must be half right, a section that is missing counts 3. */
static int far(const char *path, const char *const *part, int n)
{
	const char *end = path + strlen(path);
	int sum = 0;

	for (;;) {
		const char *from = end;
		while (from > path && from[-1] != '.')
			from--;
		size_t len = (size_t)(end - from);
		if (!n) {
			sum += 3;
		} else {
			n--;
			if (!(len == 1 && *from == '*')) {
				size_t given = strlen(part[n]), less = given < len ? given : len;
				int d = distance(from, len, part[n], given);
				/* A name cut short, or with more behind or before it. */
				if (less > 2 && d > 2 && (!memcmp(from, part[n], less) ||
							  !memcmp(end - less, part[n] + given - less, less)))
					d = 2;
				bool leaf = end == path + strlen(path);

				if (leaf && 2 * d > (int)(given > len ? given : len))
					return INT_MAX;
				sum += d > 4 && !leaf ? 4 : d;
			}
		}
		if (from == path)
			return sum + 3 * n;
		end = from - 1;
	}
}

/* A key that is not used counts 2 more; of equal ones the shorter path. */
const struct recipe_key *recipe_key_nearest(const char *const *part, int n)
{
	const struct recipe_key *best = NULL;
	int least = (int)strlen(part[n - 1]) / 2 + 12;

	for (int i = 0; i < recipe_nkeys; i++) {
		const struct recipe_key *k = &recipe_keys[i];
		int d = far(k->path, part, n);

		if (d == INT_MAX)
			continue;
		d += k->state == RECIPE_USED ? 0 : 2;
		if (d < least || (best && d == least && strlen(k->path) < strlen(best->path))) {
			least = d;
			best = k;
		}
	}
	return best;
}

static int unknown(const struct node *v, const struct place *p, struct err *e)
{
	const struct recipe_key *near = recipe_key_nearest(p->part, p->n);
	char where[512], key[512];

	return err_set(e, EX_CONFIG, "%s: unknown key '%s'%s%s%s", node_where(where, v), place_text(key, sizeof(key), p),
		       near ? "; nearest is '" : "", near ? near->path : "", near ? "'" : "");
}

static int names(const struct node *v, struct place *p, struct err *e)
{
	char where[512], key[512], show[64];

	for (int i = 0; i < v->n; i++) {
		const struct node *k = v->item[i];
		p->part[p->n++] = v->key[i];
		const struct recipe_key *row = strchr(v->key[i], '.') ? NULL : recipe_key_at(p->part, p->n);
		if (!row && (strchr(v->key[i], '.') || !recipe_is_section(p->part, p->n)))
			return unknown(k, p, e);
		bool section = recipe_is_section(p->part, p->n);
		if (section && k->kind == NODE_MAP && (!row || recipe_key_whole(row, p->n))) {
			if (names(k, p, e))
				return -1;
		} else if (!row && k->kind != NODE_NULL && !(k->kind == NODE_STR && strstr(k->text, "${"))) {
			return err_set(e, EX_CONFIG, "%s: %s: found %s, wanted a map of keys", node_where(where, k),
				       place_text(key, sizeof(key), p), node_show(show, k));
		}
		p->n--;
	}
	return 0;
}

int recipe_check_names(const struct node *root, struct err *e)
{
	struct place p = { .n = 0 };
	return names(root, &p, e);
}

static int in_choice(const char *choice, const char *text)
{
	size_t n = strlen(text);
	for (const char *c = choice; c; c = strchr(c, '|') ? strchr(c, '|') + 1 : NULL)
		if (!strncmp(c, text, n) && (c[n] == '|' || !c[n]))
			return n > 0;
	return 0;
}

/* What the row wants, for messages: "a whole number, 1 or more". */
const char *recipe_wanted(char buf[256], const struct recipe_key *k)
{
	static const char *const kind[] = { "true or false", "a whole number", "a number", "a text", "a list", "a map", "a value" };
	size_t n = (size_t)snprintf(buf, 256, "%s", kind[k->type]);

	if (k->choice)
		n = (size_t)snprintf(buf, 256, "one of %s", k->choice);
	if (k->min == DBL_MIN)
		n += (size_t)snprintf(buf + n, 256 - n, ", more than 0");
	else if (k->min != k->max && k->min > -HUGE_VAL)
		n += (size_t)snprintf(buf + n, 256 - n, ", %g or more", k->min);
	if (k->min != k->max && k->max < HUGE_VAL)
		n += (size_t)snprintf(buf + n, 256 - n, ", at most %g", k->max);
	if (k->nullable)
		snprintf(buf + n, 256 - n, ", or null");
	return buf;
}

static bool right(const struct recipe_key *k, struct node *v)
{
	switch (k->type) {
	case RECIPE_BOOL: return v->kind == NODE_BOOL;
	case RECIPE_LIST: return v->kind == NODE_LIST;
	case RECIPE_MAP:  return v->kind == NODE_MAP;
	case RECIPE_ANY:  return true;
	case RECIPE_STR:
		if (v->soft && v->kind != NODE_NULL)
			v->kind = NODE_STR;
		return v->kind == NODE_STR && (!k->choice || in_choice(k->choice, v->text));
	case RECIPE_INT:
		if (v->kind == NODE_REAL && v->d == (double)(long)v->d && v->d > -9e15 && v->d < 9e15) {
			v->kind = NODE_INT;
			v->i = (long)v->d;
		}
		return v->kind == NODE_INT && (k->min == k->max || ((double)v->i >= k->min && (double)v->i <= k->max));
	case RECIPE_REAL:
		if (v->kind == NODE_INT) {
			v->kind = NODE_REAL;
			v->d = (double)v->i;
		}
		return v->kind == NODE_REAL && (k->min == k->max || (v->d >= k->min && v->d <= k->max));
	}
	return false;
}

int recipe_key_type(const struct recipe_key *k, struct node *v, const char *name, struct err *e)
{
	char where[512], show[64], want[256];

	if (v->kind == NODE_STR && !strcmp(v->text, "?\??"))
		return err_set(e, EX_CONFIG, "%s: %s: still has to be given a value", node_where(where, v), name);
	if ((v->kind == NODE_NULL && k->nullable) || right(k, v))
		return 0;
	return err_set(e, EX_CONFIG, "%s: %s: found %s, wanted %s", node_where(where, v), name, node_show(show, v), recipe_wanted(want, k));
}

/* A backend's section counts only when the backend is the one in use. */
static bool idle(const struct recipe *r, const char *path)
{
	const struct node *policy = node_get(r->user, "policy");
	const struct node *on = node_get(node_get(policy, "megatron_cfg"), "enabled");
	bool megatron = on && on->kind == NODE_BOOL && on->b;

	return (!strncmp(path, "policy.megatron_cfg.", 20) && !megatron) || (!strncmp(path, "policy.dtensor_cfg.", 19) && megatron);
}

/* Defaults that are interpolations get their type later. */
struct node *recipe_key_default(struct node_space *s, const struct recipe_key *k)
{
	struct err e = ERR_INIT;
	struct node *v = node_value(s, k->def, "default", &e);

	if (!v || (!strstr(k->def, "${") && recipe_key_type(k, v, k->path, &e)))
		bug("%s: its own default: %s", k->path, e.msg);
	return v;
}

static int refuse(const struct recipe *r, const struct recipe_key *k, const struct node *v, const char *name, struct err *e)
{
	struct node_space s = { 0 };
	char where[512], show[64];
	int bad = 0;

	if (k->state != RECIPE_REFUSED || idle(r, k->path))
		return 0;
	struct node *def = recipe_key_default(&s, k);
	if (!node_equal(def, v))
		bad = err_set(e, EX_CONFIG, "%s: %s: %s is refused: %s", node_where(where, v), name, node_show(show, v), k->meaning);
	arena_release(&s.arena);
	return bad;
}

static int values(struct recipe *r, struct node *v, struct place *p, bool user, struct err *e)
{
	char name[512];

	for (int i = 0; i < v->n; i++) {
		struct node *k = v->item[i];
		p->part[p->n++] = v->key[i];
		const struct recipe_key *row = recipe_key_at(p->part, p->n);
		bool section = recipe_is_section(p->part, p->n);
		if (section && k->kind == NODE_MAP) {
			if (values(r, k, p, user, e))
				return -1;
		} else if (recipe_key_whole(row, p->n)) {
			place_text(name, sizeof(name), p);
			if (recipe_key_type(row, k, name, e) || (user && refuse(r, row, k, name, e)))
				return -1;
		}
		p->n--;
	}
	return 0;
}

int recipe_check_values(struct recipe *r, struct err *e)
{
	struct place p = { .n = 0 };

	/* An interpolation of a section brings in names that nobody has looked at. */
	if (recipe_check_names(r->user, e) || values(r, r->user, &p, true, e))
		return -1;
	p.n = 0;
	if (values(r, r->defs, &p, false, e))
		bug("the table's defaults: %s", e->msg);
	return 0;
}

static void note(const struct node *v, struct place *p, struct str *t, int *n)
{
	char key[512];

	for (int i = 0; i < v->n; i++) {
		p->part[p->n++] = v->key[i];
		const struct recipe_key *row = recipe_key_at(p->part, p->n);
		if (recipe_is_section(p->part, p->n) && v->item[i]->kind == NODE_MAP)
			note(v->item[i], p, t, n);
		else if (row && row->state == RECIPE_NOTED && (*n)++ < 8)
			str_printf(t, "%s%s", *n > 1 ? ", " : "", place_text(key, sizeof(key), p));
		p->n--;
	}
}

void recipe_note(const struct recipe *r)
{
	struct place p = { .n = 0 };
	struct str t = { 0 };
	int n = 0;

	note(r->user, &p, &t, &n);
	if (n)
		log_info("recipe: %d keys have no effect here: %s%s", n, t.s, n > 8 ? ", ..." : "");
	str_release(&t);
}
