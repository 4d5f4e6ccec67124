#include "libcommon/recipe_node.h"

#include "libcommon/file.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Maps merge; lists, scalars and null replace; a null map is made anew by what comes after it. */
int node_merge(struct node_space *s, struct node **base, struct node *over, struct err *e)
{
	struct node *b = *base;

	if (!b || b->kind != NODE_MAP || over->kind != NODE_MAP || over->replace) {
		*base = over;
		return 0;
	}
	for (int i = 0; i < over->n; i++) {
		int at = node_find(b, over->key[i]);
		if (at < 0) {
			if (node_add(s, b, over->key[i], over->item[i], e))
				return -1;
		} else if (node_merge(s, &b->item[at], over->item[i], e)) {
			return -1;
		}
	}
	b->file = over->file;
	b->line = over->line;
	return 0;
}

int place_parse(struct place *p, struct node_space *s, const char *key, size_t len)
{
	const char *t = arena_strndup(&s->arena, key, len);
	char *dot;

	p->n = 0;
	for (;; t = dot + 1) {
		if (p->n == RECIPE_DEPTH)
			return -1;
		p->part[p->n++] = t;
		dot = strpbrk(t, ".[");
		bool index = dot && *dot == '[';
		if (dot)
			*dot = 0;
		if (index) {
			char *end = strchr(dot + 1, ']');
			if (!end || p->n == RECIPE_DEPTH || (end[1] && end[1] != '.' && end[1] != '['))
				return -1;
			*end = 0;
			p->part[p->n++] = dot + 1;
			if (!end[1])
				return p->part[p->n - 1][0] ? 0 : -1;
			dot = end + 1;
		}
		if (!*p->part[p->n - 1])
			return -1;
		if (!dot)
			return 0;
	}
}

const char *place_text(char *buf, size_t n, const struct place *p)
{
	size_t at = 0;

	buf[0] = 0;
	for (int i = 0; i < p->n && at < n; i++)
		at += (size_t)snprintf(buf + at, n - at, "%s%s", i ? "." : "", p->part[i]);
	return buf;
}

static int index_of(const struct node *v, const char *part)
{
	char *end;
	long i;

	if (v->kind == NODE_MAP)
		return node_find(v, part);
	if (v->kind != NODE_LIST || *part < '0' || *part > '9')
		return -1;
	i = strtol(part, &end, 10);
	return *end || i >= v->n ? -1 : (int)i;
}

struct node *place_find(struct node *root, const struct place *p, bool *null_above)
{
	struct node *v = root;

	*null_above = false;
	for (int i = 0; i < p->n; i++) {
		*null_above = v->kind == NODE_NULL;
		int at = index_of(v, p->part[i]);
		if (at < 0)
			return NULL;
		v = v->item[at];
	}
	return v;
}

int place_set(struct node_space *s, struct node *root, const struct place *p, struct node *v, struct err *e)
{
	char key[512];

	for (int i = 0; i < p->n; i++) {
		int at = index_of(root, p->part[i]);
		if (i == p->n - 1) {
			if (at >= 0)
				root->item[at] = v;
			else if (root->kind == NODE_MAP)
				return node_add(s, root, p->part[i], v, e);
			else
				break;
			return 0;
		}
		if (at < 0 && root->kind != NODE_MAP)
			break;
		if (at < 0 || root->item[at]->kind < NODE_LIST) {
			struct node *m = node_new(s, NODE_MAP, v->file, v->line, e);
			if (!m)
				return -1;
			if (at >= 0)
				root->item[at] = m;
			else if (node_add(s, root, p->part[i], m, e))
				return -1;
			root = m;
		} else {
			root = root->item[at];
		}
	}
	if (root->kind == NODE_LIST)
		return err_set(e, EX_CONFIG, "%s: %s: the list has %d entries", v->file ? v->file : "command line",
			       place_text(key, sizeof(key), p), root->n);
	return 0;
}

bool place_remove(struct node *root, const struct place *p)
{
	struct place up = *p;
	bool null_above;

	up.n--;
	struct node *map = place_find(root, &up, &null_above);
	int at = map ? index_of(map, p->part[p->n - 1]) : -1;
	if (at >= 0)
		node_remove(map, at);
	return at >= 0;
}

/* Spellings of NeMo-RL v0.3, of its evaluation recipes and of its data sets, and what they are called here.  A `*` stands for the same name
 * on both sides; the longest match counts. */
static const char *const renamed[][2] = {
	{ "data.dataset_name", "data.train.dataset_name" },
	{ "data.split", "data.train.split" },
	{ "data.train_data_path", "data.train.data_path" },
	{ "data.val_data_path", "data.validation.data_path" },
	{ "data.prompt_file", "data.default.prompt_file" },
	{ "data.system_prompt_file", "data.default.system_prompt_file" },
	{ "data.processor", "data.default.processor" },
	{ "data.env_name", "data.default.env_name" },
	{ "data.input_key", "data.default.prompt_key" },
	{ "data.output_key", "data.default.answer_key" },
	{ "data.chat_key", "data.default.messages_key" },
	{ "data.*.input_key", "data.*.prompt_key" },
	{ "data.*.output_key", "data.*.answer_key" },
	{ "data.*.chat_key", "data.*.messages_key" },
	{ "policy.activation_checkpointing_enabled", "policy.dtensor_cfg.activation_checkpointing" },
	{ "policy.fsdp_offload_enabled", "policy.dtensor_cfg.cpu_offload" },
	{ "generation.model_name", "policy.model_name" },
	{ "generation", "policy.generation" },
	{ "tokenizer", "policy.tokenizer" },
};
enum { RENAMED = sizeof(renamed) / sizeof(*renamed) };

/* Does p begin with the pattern?  Returns the number of components in it. */
static int begins(const struct place *p, const char *pattern, const char **star)
{
	int i = 0;

	for (;; i++) {
		size_t n = strcspn(pattern, ".");
		if (i == p->n)
			return 0;
		if (n == 1 && *pattern == '*')
			*star = p->part[i];
		else if (strlen(p->part[i]) != n || memcmp(p->part[i], pattern, n))
			return 0;
		pattern += n;
		if (!*pattern++)
			return i + 1;
	}
}

void place_rename(struct place *p, struct node_space *s)
{
	const char *star = NULL;
	struct place to;

	for (int i = 0; i < RENAMED; i++) {
		int n = begins(p, renamed[i][0], &star);
		if (!n)
			continue;
		if (place_parse(&to, s, renamed[i][1], strlen(renamed[i][1])))
			bug("%s", renamed[i][1]);
		for (int j = 0; j < to.n; j++)
			if (!strcmp(to.part[j], "*"))
				to.part[j] = star;
		for (int j = n; j < p->n; j++)
			to.part[to.n++] = p->part[j];
		*p = to;
		return;
	}
}

static int move(struct node_space *s, struct node *root, const struct place *from, struct err *e)
{
	struct place to = *from;
	bool null_above;
	char a[512], b[512], w[512];

	place_rename(&to, s);
	struct node *v = place_find(root, from, &null_above), *there = place_find(root, &to, &null_above);
	if (there && there->kind == NODE_MAP && v->kind == NODE_MAP) {
		place_remove(root, from);
		return node_merge(s, &there, v, e);
	}
	if (there)
		return err_set(e, EX_CONFIG, "%s: %s is another name of %s, which is also there", node_where(w, v),
			       place_text(a, sizeof(a), from), place_text(b, sizeof(b), &to));
	place_remove(root, from);
	return place_set(s, root, &to, v, e);
}

int recipe_rename(struct node_space *s, struct node *root, struct err *e)
{
	for (int i = 0; i < RENAMED; i++) {
		struct place p;
		bool null_above;
		int star = -1;

		if (place_parse(&p, s, renamed[i][0], strlen(renamed[i][0])))
			bug("%s", renamed[i][0]);
		for (int k = 0; k < p.n; k++)
			if (!strcmp(p.part[k], "*"))
				star = k;
		if (star < 0) {
			if (place_find(root, &p, &null_above) && move(s, root, &p, e))
				return -1;
			continue;
		}
		const struct node *data = node_get(root, p.part[0]);
		for (int k = 0; data && data->kind == NODE_MAP && k < data->n; k++) {
			p.part[star] = data->key[k];
			if (place_find(root, &p, &null_above) && move(s, root, &p, e))
				return -1;
		}
	}
	return 0;
}

/* The files being read, each named by the one above it: a file that is already there would go round in circles. */
struct chain {
	const struct chain *up;
	const char *path;
	struct stat st;
};

static char *beside(const char *path, const char *name)
{
	const char *slash = strrchr(path, '/');
	if (*name == '/' || (!slash && strcmp(name, "-")))
		return xstrdup(name);
	return !slash ? xasprintf("./%s", name) : xasprintf("%.*s/%s", (int)(slash - path), path, name);
}

static struct node *read_chain(struct node_space *s, struct chain *c, const char *text, size_t len, struct err *e);

static struct node *parent(struct node_space *s, const struct chain *up, const struct node *name, struct err *e)
{
	struct chain c = { .up = up };
	struct str text = { 0 };
	struct node *v = NULL;
	char where[512], show[64];

	if (name->kind != NODE_STR) {
		err_set(e, EX_CONFIG, "%s: defaults: %s, wanted a path or a list of paths", node_where(where, name), node_show(show, name));
		return NULL;
	}
	char *path = beside(up->path, name->text);
	c.path = arena_strndup(&s->arena, path, strlen(path));
	free(path);
	bool there = !stat(c.path, &c.st);
	for (const struct chain *k = up; there && k; k = k->up)
		if (k->st.st_ino == c.st.st_ino && k->st.st_dev == c.st.st_dev) {
			err_set(e, EX_CONFIG, "%s: defaults: %s names itself as a parent", node_where(where, name), c.path);
			return NULL;
		}
	if (!file_read(&text, c.path, RECIPE_FILE_MAX, e))
		v = read_chain(s, &c, text.s ? text.s : "", text.len, e);
	else
		err_prefix(e, "%s: defaults", node_where(where, name));
	str_release(&text);
	return v;
}

static struct node *read_chain(struct node_space *s, struct chain *c, const char *text, size_t len, struct err *e)
{
	struct node *base = NULL, *own;

	if (++s->files > RECIPE_FILES) {
		err_set(e, EX_DATAERR, "%s: more than %d files by way of defaults", c->path, RECIPE_FILES);
		return NULL;
	}
	own = recipe_yaml(s, text, len, c->path, e);
	if (!own)
		return NULL;
	int at = node_find(own, "defaults");
	if (at >= 0) {
		struct node one = { .kind = NODE_LIST, .n = 1, .item = &own->item[at] }, *names = own->item[at];
		if (names->kind != NODE_LIST)
			names = &one;
		for (int i = 0; i < names->n; i++) {
			struct node *p = parent(s, c, names->item[i], e);
			if (!p || node_merge(s, &base, p, e))
				return NULL;
		}
		node_remove(own, at);
	}
	if (recipe_rename(s, own, e) || node_merge(s, &base, own, e))
		return NULL;
	return base;
}

struct node *recipe_chain(struct node_space *s, const char *path, const char *text, size_t len, struct err *e)
{
	struct chain c = { .path = arena_strndup(&s->arena, path, strlen(path)) };

	if (stat(path, &c.st))
		c.st = (struct stat){ 0 };
	return read_chain(s, &c, text, len, e);
}
