#include "formats/safetensors.h"

#include <stdlib.h>
#include <string.h>

#include "libcommon/file.h"
#include "libcommon/json.h"

#define INDEX "model.safetensors.index.json"

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct safetensors_item *)a)->entry->name,
		      ((const struct safetensors_item *)b)->entry->name);
}

static int by_str(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static int by_path(const void *key, const void *file)
{
	return strcmp(key, ((const struct safetensors *)file)->path);
}

static void add_item(struct safetensors_set *s, const struct safetensors *f,
		     const struct safetensors_entry *en)
{
	s->item[s->n++] = (struct safetensors_item){ f, en };
}

static void add_all(struct safetensors_set *s, const struct safetensors *f)
{
	s->item = xcalloc((size_t)f->n + 1, sizeof(*s->item));
	for (long i = 0; i < f->n; i++)
		add_item(s, f, &f->entry[i]);
}

static int open_single(struct safetensors_set *s, const char *path, struct err *e)
{
	s->file = xcalloc(1, sizeof(*s->file));
	s->nfiles = 1;
	if (safetensors_open(&s->file[0], path, e))
		return -1;
	add_all(s, &s->file[0]);
	return 0;
}

/* The file names of weight_map, each once, sorted. */
static int shard_names(char ***names, long *n, const struct json_doc *d, const struct json *map,
		       struct err *e)
{
	char **v = xcalloc(map->n + 1, sizeof(*v));
	long k = 0, m = 0;

	*names = v;
	*n = 0;
	for (size_t i = 0; i < map->n; i++) {
		const struct json *f = &map->member[i].value;

		if (!json_is(f, JSON_STRING))
			return err_set(e, EX_DATAERR,
				       "%s:%d: weight_map: %.100s: found %s, wanted a file name",
				       d->file, f->line, map->member[i].key, json_type_name(f));
		if (!f->n || strlen(f->text) != f->n || strchr(f->text, '/') ||
		    !strcmp(f->text, ".") || !strcmp(f->text, ".."))
			return err_set(e, EX_DATAERR,
				       "%s:%d: weight_map: %.100s: \"%.200s\" is no bare file name",
				       d->file, f->line, map->member[i].key, f->text);
		v[k++] = (char *)f->text;
	}
	qsort(v, (size_t)k, sizeof(*v), by_str);
	for (long i = 0; i < k; i++)
		if (!m || strcmp(v[m - 1], v[i]))
			v[m++] = v[i];
	*n = m;
	return 0;
}

static int open_shards(struct safetensors_set *s, const char *dir, char **names, long n,
		       const char *index, struct err *e)
{
	s->file = xcalloc((size_t)n + 1, sizeof(*s->file));
	for (long i = 0; i < n; i++) {
		char *path = path_join(dir, names[i]);
		int rc = safetensors_open(&s->file[i], path, e);

		free(path);
		if (rc)
			return e->code == EX_NOINPUT
				       ? err_prefix(e, "%s: a shard is missing", index)
				       : -1;
		s->nfiles++;
	}
	return 0;
}

static int check_once(const struct safetensors_set *s, struct err *e)
{
	struct safetensors_set all = { 0 };
	long total = 0;
	int rc = 0;

	for (long f = 0; f < s->nfiles; f++)
		total += s->file[f].n;
	all.item = xcalloc((size_t)total + 1, sizeof(*all.item));
	for (long f = 0; f < s->nfiles; f++)
		for (long i = 0; i < s->file[f].n; i++)
			add_item(&all, &s->file[f], &s->file[f].entry[i]);
	qsort(all.item, (size_t)all.n, sizeof(*all.item), by_name);
	for (long i = 1; !rc && i < all.n; i++)
		if (!by_name(&all.item[i - 1], &all.item[i]))
			rc = err_set(e, EX_DATAERR, "%s: %.100s: the same tensor is in %s too",
				     all.item[i].file->path, all.item[i].entry->name,
				     all.item[i - 1].file->path);
	free(all.item);
	return rc;
}

static int map_tensors(struct safetensors_set *s, const char *dir, const struct json_doc *d,
		       const struct json *map, struct err *e)
{
	s->item = xcalloc(map->n + 1, sizeof(*s->item));
	for (size_t i = 0; i < map->n; i++) {
		const struct json_member *m = &map->member[i];
		char *path = path_join(dir, m->value.text);
		const struct safetensors *f =
			bsearch(path, s->file, (size_t)s->nfiles, sizeof(*f), by_path);
		const struct safetensors_entry *en = f ? safetensors_find(f, m->key) : NULL;

		free(path);
		if (!en || strlen(m->key) != m->keylen)
			return err_set(e, EX_DATAERR, "%s:%d: weight_map: %.100s is not in %.200s",
				       d->file, m->value.line, m->key, m->value.text);
		add_item(s, f, en);
	}
	qsort(s->item, (size_t)s->n, sizeof(*s->item), by_name);
	return 0;
}

static void warn_unmapped(const struct safetensors_set *s)
{
	for (long f = 0; f < s->nfiles; f++)
		for (long i = 0; i < s->file[f].n; i++)
			if (!safetensors_set_find(s, s->file[f].entry[i].name))
				log_warn("%s: %.100s is not in the index and is left out",
					 s->file[f].path, s->file[f].entry[i].name);
}

static int open_index(struct safetensors_set *s, const char *dir, const char *index, struct err *e)
{
	struct json_doc d = { 0 };
	const struct json *map;
	char **names = NULL;
	long n = 0;
	int rc = -1;

	if (json_read(&d, index, 0, e))
		return -1;
	map = json_get(&d.root, "weight_map");
	if (!json_is(map, JSON_OBJECT)) {
		err_set(e, EX_DATAERR, "%s: weight_map: found %s, wanted an object", index,
			json_type_name(map));
		goto out;
	}
	if (shard_names(&names, &n, &d, map, e) || open_shards(s, dir, names, n, index, e) ||
	    check_once(s, e) || map_tensors(s, dir, &d, map, e))
		goto out;
	warn_unmapped(s);
	rc = 0;
out:
	free(names);
	json_release(&d);
	return rc;
}

static int open_folder(struct safetensors_set *s, const char *dir, struct err *e)
{
	char *index = path_join(dir, INDEX), *single = path_join(dir, "model.safetensors");
	int rc;

	if (file_exists(index))
		rc = open_index(s, dir, index, e);
	else if (file_exists(single))
		rc = open_single(s, single, e);
	else
		rc = err_set(e, EX_NOINPUT, "%s: no " INDEX " and no model.safetensors in it", dir);
	free(index);
	free(single);
	return rc;
}

int safetensors_set_open(struct safetensors_set *s, const char *path, struct err *e)
{
	int rc;

	*s = (struct safetensors_set){ .path = xstrdup(path) };
	rc = file_is_dir(path) ? open_folder(s, path, e) : open_single(s, path, e);
	if (rc)
		safetensors_set_close(s);
	return rc;
}

void safetensors_set_close(struct safetensors_set *s)
{
	for (long i = 0; i < s->nfiles; i++)
		safetensors_close(&s->file[i]);
	free(s->file);
	free(s->item);
	free(s->path);
	*s = (struct safetensors_set){ 0 };
}

const struct safetensors_item *safetensors_set_find(const struct safetensors_set *s,
						    const char *name)
{
	struct safetensors_entry en = { .name = name };
	struct safetensors_item key = { .entry = &en };

	return s->n ? bsearch(&key, s->item, (size_t)s->n, sizeof(key), by_name) : NULL;
}
