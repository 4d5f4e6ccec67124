#include "formats/dataset.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "formats/dataset_row.h"
#include "libcommon/file.h"

enum { PIECE = 1 << 18, LINE_MOST = 64 << 20 };

struct row_place {
	uint64_t offset;
	uint32_t bytes;
	int line;
	uint64_t hash; /* of the bytes, to see that they are still the same */
};

struct seen_id {
	uint64_t hash; /* 0: free */
	char *id; /* owned */
	int line;
};

struct dataset {
	char *path;
	struct dataset_opts o;
	char *template, *system; /* owned texts behind rules */
	struct row_rules rules;
	int fd; /* -1: all is in memory */
	struct str text; /* standard input */
	struct json_doc array; /* one JSON array */
	bool is_array;
	struct row_place *row;
	long *item; /* array: row i is item[i] */
	long n, cap, skipped;
	struct digest digest;
	enum dataset_kind kind;
	/* only while opening */
	struct seen_id *id;
	size_t ids, slots;
};

static struct seen_id *id_slot(struct dataset *d, uint64_t hash, const char *id)
{
	size_t i = hash & (d->slots - 1);

	while (d->id[i].hash && (d->id[i].hash != hash || strcmp(d->id[i].id, id)))
		i = (i + 1) & (d->slots - 1);
	return &d->id[i];
}

static void grow_ids(struct dataset *d)
{
	struct seen_id *old = d->id;
	size_t n = d->slots;

	d->slots = n ? 2 * n : 256;
	d->id = xcalloc(d->slots, sizeof(*d->id));
	for (size_t i = 0; i < n; i++) {
		if (old[i].hash)
			*id_slot(d, old[i].hash, old[i].id) = old[i];
	}
	free(old);
}

static int check_id(struct dataset *d, const struct dataset_row *row, struct err *e)
{
	struct seen_id *s;
	uint64_t hash;

	if (!row->id)
		return 0;
	if (2 * d->ids >= d->slots)
		grow_ids(d);
	hash = hash64(row->id, strlen(row->id)) | 1;
	s = id_slot(d, hash, row->id);
	if (s->hash)
		return err_set(e, EX_DATAERR,
			       "%s:%ld: found id \"%.100s\" again, which line %d has", d->path,
			       row->line, row->id, s->line);
	*s = (struct seen_id){ hash, xstrdup(row->id), (int)row->line };
	d->ids++;
	return 0;
}

static void forget_ids(struct dataset *d)
{
	for (size_t i = 0; i < d->slots; i++)
		free(d->id[i].id);
	free(d->id);
	d->id = NULL;
	d->slots = d->ids = 0;
}

/* The row is read as it will be later; what is wrong with it is said now. */
static int check_row(struct dataset *d, struct dataset_row *row, struct err *e)
{
	static const char *const name[] = { "prompts", "conversations", "preferences" };

	row->line = row->raw->line;
	if (row_interpret(row, &d->rules, e))
		return -1;
	if (d->n && row->kind != d->kind)
		return err_set(e, EX_DATAERR,
			       "%s:%ld: found a row of %s, wanted %s as in the rows before",
			       d->path, row->line, name[row->kind], name[d->kind]);
	if (check_id(d, row, e))
		return -1;
	d->kind = row->kind;
	return 0;
}

static bool skip_row(struct dataset *d, const struct err *e)
{
	if (!d->o.skip_bad || e->code != EX_DATAERR)
		return false;
	d->skipped++;
	return true;
}

static int add_line(struct dataset *d, const char *s, size_t n, uint64_t offset, long line,
		    struct err *e)
{
	struct dataset_row row = { .kind = 0 };
	int rc;

	if (line == 1 && n >= 3 && !memcmp(s, "\xEF\xBB\xBF", 3)) {
		s += 3;
		n -= 3;
		offset += 3;
	}
	while (n && strchr(" \t\r\n", s[n - 1]) && s[n - 1])
		n--;
	if (!n)
		return 0;
	if (line > INT32_MAX || n > LINE_MOST)
		return err_set(e, EX_DATAERR, "%s:%ld: found a line of more than %d MiB", d->path,
			       line, LINE_MOST >> 20);
	rc = json_parse(&row.doc, s, n, d->path, (int)line, e);
	if (!rc) {
		row.raw = &row.doc.root;
		rc = check_row(d, &row, e);
		dataset_row_release(&row);
	}
	if (rc)
		return skip_row(d, e) ? 0 : -1;
	GROW(d->row, d->n, d->cap);
	d->row[d->n++] = (struct row_place){ offset, (uint32_t)n, (int)line, hash64(s, n) };
	return 0;
}

struct splitter {
	struct str rest; /* the beginning of a line */
	uint64_t offset; /* of it */
	long line;
};

static int add_piece(struct dataset *d, struct splitter *w, const char *s, size_t n, struct err *e)
{
	while (n) {
		const char *nl = memchr(s, '\n', n);
		size_t k = nl ? (size_t)(nl - s) : n;

		if (w->rest.len + k > LINE_MOST)
			return err_set(e, EX_DATAERR, "%s:%ld: found a line of more than %d MiB",
				       d->path, w->line, LINE_MOST >> 20);
		if (!nl || w->rest.len)
			str_add(&w->rest, s, k);
		if (!nl)
			break;
		if (w->rest.len ? add_line(d, w->rest.s, w->rest.len, w->offset, w->line, e) :
				  add_line(d, s, k, w->offset, w->line, e))
			return -1;
		w->offset += (w->rest.len ? w->rest.len : k) + 1;
		str_cut(&w->rest, 0);
		w->line++;
		s += k + 1;
		n -= k + 1;
	}
	return 0;
}

static int read_lines(struct dataset *d, struct err *e)
{
	struct splitter w = { .line = 1 };
	XXH3_state_t *hash = XXH3_createState();
	char *buf = xmalloc(PIECE);
	XXH128_hash_t sum;
	ssize_t k = 0;
	int rc = 0;

	XXH3_128bits_reset(hash);
	while (!rc && (k = read(d->fd, buf, PIECE)) != 0) {
		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0) {
			rc = err_errno(e, EX_IOERR, "%s: cannot read", d->path);
			break;
		}
		XXH3_128bits_update(hash, buf, (size_t)k);
		rc = add_piece(d, &w, buf, (size_t)k, e);
	}
	if (!rc && w.rest.len)
		rc = add_line(d, w.rest.s, w.rest.len, w.offset, w.line, e);
	sum = XXH3_128bits_digest(hash);
	d->digest = (struct digest){ sum.high64, sum.low64 };
	XXH3_freeState(hash);
	str_release(&w.rest);
	free(buf);
	return rc;
}

static int read_memory(struct dataset *d, struct err *e)
{
	struct splitter w = { .line = 1 };
	int rc = add_piece(d, &w, d->text.s ? d->text.s : "", d->text.len, e);

	if (!rc && w.rest.len)
		rc = add_line(d, w.rest.s, w.rest.len, w.offset, w.line, e);
	str_release(&w.rest);
	d->digest = hash128(d->text.s, d->text.len);
	return rc;
}

static int read_array(struct dataset *d, const char *text, size_t n, struct err *e)
{
	bool bom = n >= 3 && !memcmp(text, "\xEF\xBB\xBF", 3);
	long cap = 0;

	d->digest = hash128(text, n);
	if (json_parse(&d->array, text + 3 * bom, n - 3 * bom, d->path, 1, e))
		return -1;
	d->is_array = true;
	if (d->array.root.type != JSON_ARRAY)
		return err_set(e, EX_DATAERR, "%s: found %s, wanted an array", d->path,
			       json_type_name(&d->array.root));
	for (size_t i = 0; i < d->array.root.n; i++) {
		struct dataset_row row = { .raw = &d->array.root.item[i] };
		int rc = check_row(d, &row, e);

		dataset_row_release(&row);
		if (rc && !skip_row(d, e))
			return -1;
		if (rc)
			continue;
		GROW(d->item, d->n, cap);
		d->item[d->n++] = (long)i;
	}
	return 0;
}

/* Does it begin with '[' ? */
static bool begins_array(const char *s, size_t n)
{
	size_t i = n >= 3 && !memcmp(s, "\xEF\xBB\xBF", 3) ? 3 : 0;

	while (i < n && (s[i] == ' ' || s[i] == '\t' || s[i] == '\r' || s[i] == '\n'))
		i++;
	return i < n && s[i] == '[';
}

static int read_all(struct dataset *d, struct err *e)
{
	enum { MOST = 1 << 30 };
	char head[4096];
	ssize_t n;

	if (!strcmp(d->path, "-")) {
		if (file_read(&d->text, "-", MOST, e))
			return -1;
		return begins_array(d->text.s, d->text.len) ?
			       read_array(d, d->text.s, d->text.len, e) :
			       read_memory(d, e);
	}
	d->fd = open(d->path, O_RDONLY | O_CLOEXEC);
	if (d->fd < 0)
		return err_errno(e, EX_NOINPUT, "%s: cannot open", d->path);
	n = pread(d->fd, head, sizeof(head), 0);
	if (n < 0 && errno == ESPIPE) {
		close(d->fd);
		d->fd = -1;
		if (file_read(&d->text, d->path, MOST, e))
			return -1;
		return begins_array(d->text.s, d->text.len) ?
			       read_array(d, d->text.s, d->text.len, e) :
			       read_memory(d, e);
	}
	if (n < 0)
		return err_errno(e, EX_IOERR, "%s: cannot read", d->path);
	if (!begins_array(head, (size_t)n))
		return read_lines(d, e);
	if (file_read(&d->text, d->path, MOST, e) || read_array(d, d->text.s, d->text.len, e))
		return -1;
	str_release(&d->text);
	return 0;
}

static int read_texts(struct dataset *d, struct err *e)
{
	enum { MOST = 1 << 20 };
	struct str s = { 0 };

	if (d->o.prompt_file) {
		if (file_read(&s, d->o.prompt_file, MOST, e))
			return str_release(&s), -1;
		str_putc(&s, 0);
		d->template = str_detach(&s);
		if (row_template(d->template, d->o.prompt_file, &d->rules.head, &d->rules.tail, e))
			return -1;
	}
	if (d->o.system_prompt_file) {
		if (file_read(&s, d->o.system_prompt_file, MOST, e))
			return str_release(&s), -1;
		str_putc(&s, 0);
		d->system = str_detach(&s);
		d->rules.system = d->system;
	}
	return 0;
}

int dataset_open(struct dataset **out, const char *path, const struct dataset_opts *o,
		 struct err *e)
{
	struct dataset *d = xcalloc(1, sizeof(*d));
	int rc;

	*out = NULL;
	d->path = xstrdup(path);
	d->o = *o;
	d->o.prompt_key = o->prompt_key ? xstrdup(o->prompt_key) : NULL;
	d->o.answer_key = o->answer_key ? xstrdup(o->answer_key) : NULL;
	d->o.messages_key = o->messages_key ? xstrdup(o->messages_key) : NULL;
	d->fd = -1;
	d->rules.o = &d->o;
	d->rules.file = d->path;
	rc = read_texts(d, e) || read_all(d, e) ? -1 : 0;
	if (!rc && !d->n)
		rc = d->skipped ? err_set(e, EX_DATAERR, "%s: all %ld rows are faulty", d->path,
					  d->skipped) :
				  err_set(e, EX_DATAERR, "%s: found no row, wanted one at least",
					  d->path);
	d->o.prompt_file = d->o.system_prompt_file = NULL;
	forget_ids(d);
	if (rc)
		dataset_close(d);
	else
		*out = d;
	return rc;
}

void dataset_close(struct dataset *d)
{
	if (!d)
		return;
	if (d->fd >= 0)
		close(d->fd);
	json_release(&d->array);
	str_release(&d->text);
	free((char *)d->o.prompt_key);
	free((char *)d->o.answer_key);
	free((char *)d->o.messages_key);
	free(d->template);
	free(d->system);
	free(d->row);
	free(d->item);
	free(d->path);
	free(d);
}

long dataset_count(const struct dataset *d)
{
	return d->n;
}

long dataset_skipped(const struct dataset *d)
{
	return d->skipped;
}

struct digest dataset_digest(const struct dataset *d)
{
	return d->digest;
}

enum dataset_kind dataset_kind(const struct dataset *d)
{
	return d->kind;
}

static int read_row(const struct dataset *d, const struct row_place *p, struct dataset_row *row,
		    struct err *e)
{
	char *own = NULL;
	const char *s;
	int rc = 0;

	if (d->fd >= 0) {
		own = xmalloc(p->bytes);
		s = own;
		rc = file_pread(d->fd, d->path, own, p->bytes, p->offset, e);
	} else {
		s = d->text.s + p->offset;
	}
	if (!rc && hash64(s, p->bytes) != p->hash)
		rc = err_set(e, EX_DATAERR, "%s:%d: the file was changed since it was opened",
			     d->path, p->line);
	if (!rc)
		rc = json_parse(&row->doc, s, p->bytes, d->path, p->line, e);
	free(own);
	row->raw = &row->doc.root;
	return rc;
}

int dataset_row(const struct dataset *d, long i, struct dataset_row *row, struct err *e)
{
	*row = (struct dataset_row){ .index = i };
	if (i < 0 || i >= d->n)
		bug("row %ld of %ld", i, d->n);
	if (d->is_array)
		row->raw = &d->array.root.item[d->item[i]];
	else if (read_row(d, &d->row[i], row, e))
		return -1;
	row->line = row->raw->line;
	if (!row_interpret(row, &d->rules, e))
		return 0;
	dataset_row_release(row);
	return -1;
}

void dataset_row_release(struct dataset_row *row)
{
	arena_release(&row->arena);
	json_release(&row->doc);
	*row = (struct dataset_row){ .index = -1 };
}
