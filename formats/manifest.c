#include "formats/manifest.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libcommon/file.h"
#include "libcommon/outdir.h"

enum {
	MANIFEST_MOST = 256 << 20,      /* bytes that we are willing to parse */
	HEX = 32,
	TAIL = 1 + HEX + 4              /* "HEX"\n}\n */
};

static const char our_format[] = "cairn", name_of_manifest[] = "manifest.json";

void manifest_begin(struct json_out *o, const char *kind, const char *feature)
{
	o->indent = 2;
	json_begin(o, '{');
	json_add_str(o, "format", our_format);
	json_add_int(o, "version", MANIFEST_VERSION);
	json_add_int(o, "reader", MANIFEST_VERSION);
	json_key(o, "features");
	json_begin(o, '[');
	if (feature)
		json_put_str(o, feature);
	json_end(o);
	json_add_str(o, "kind", kind);
}

void manifest_put_file(struct json_out *o, const struct manifest_file *f)
{
	char hex[HEX + 1];

	json_begin(o, '{');
	json_add_str(o, "name", f->name);
	json_key(o, "bytes");
	json_put_u64(o, f->bytes);
	json_add_str(o, "hash", digest_hex(hex, f->hash));
	json_end(o);
}

int manifest_finish(struct json_out *o, const char *dir, struct err *e)
{
	struct manifest_file f;
	char hex[HEX + 1];

	json_key(o, "checksum");
	json_put_str(o, digest_hex(hex, hash128(o->s.s, o->s.len)));
	json_end(o);
	str_putc(&o->s, '\n');
	return manifest_write_file(&f, dir, name_of_manifest, o->s.s, o->s.len, e);
}

static int check_sum(const char *text, size_t n, const char *path, struct err *e)
{
	char want[TAIL + 1], hex[HEX + 1];

	if (n <= TAIL)
		return err_set(e, EX_DATAERR, "%s: %zu bytes, wanted a manifest", path, n);
	snprintf(want, sizeof(want), "\"%s\"\n}\n", digest_hex(hex, hash128(text, n - TAIL)));
	if (memcmp(text + n - TAIL, want, TAIL))
		return err_set(
			e, EX_DATAERR,
			"%s: the checksum at its end does not match its bytes: truncated or altered (wanted %s)",
			path, hex);
	return 0;
}

/* Version and features: what is newer than this program is refused by name. */
static int check_version(const struct json_doc *d, struct err *e)
{
	const struct json *features = json_get(&d->root, "features");
	long version, reader;

	if (!json_eq_str(json_get(&d->root, "format"), our_format))
		return err_set(e, EX_DATAERR, "%s: format: wanted \"%s\"", d->file, our_format);
	if (json_int(d, json_get(&d->root, "version"), "version", &version, e) ||
	    json_int(d, json_get(&d->root, "reader"), "reader", &reader, e))
		return -1;
	if (version < 1 || reader < 1 || reader > version)
		return err_set(e, EX_DATAERR,
			       "%s: version %ld for readers from %ld: no such format", d->file,
			       version, reader);
	if (reader > MANIFEST_VERSION)
		return err_set(
			e, EX_UNAVAILABLE,
			"%s: version %ld needs a reader of version %ld; this one is %d: use a newer cairn",
			d->file, version, reader, MANIFEST_VERSION);
	if (!json_is(features, JSON_ARRAY))
		return err_set(e, EX_DATAERR, "%s: features: found %s, wanted an array", d->file,
			       json_type_name(features));
	for (size_t i = 0; i < features->n; i++)
		if (!json_eq_str(&features->item[i], "zstd") ||
		    !json_eq_str(json_get(&d->root, "kind"), "model"))
			return err_set(e, EX_UNAVAILABLE,
				       "%s: feature %s is not known to this version", d->file,
				       json_is(&features->item[i], JSON_STRING)
					       ? features->item[i].text
					       : "without a name");
	return 0;
}

int manifest_parse(struct json_doc *d, const char *text, size_t n, const char *path,
		   const char *kind, struct err *e)
{
	if (check_sum(text, n, path, e) || json_parse(d, text, n, path, 1, e))
		return -1;
	if (check_version(d, e))
		goto bad;
	if (!json_eq_str(json_get(&d->root, "kind"), kind)) {
		const struct json *k = json_get(&d->root, "kind");
		bool adapter = json_eq_str(k, "adapter");

		err_set(e, adapter ? EX_UNAVAILABLE : EX_DATAERR, "%s: kind: found %s, wanted %s%s",
			path, json_is(k, JSON_STRING) ? k->text : json_type_name(k), kind,
			adapter ? "; adapters are not built into this version" : "");
		goto bad;
	}
	return 0;
bad:
	json_release(d);
	*d = (struct json_doc){ 0 };
	return -1;
}

int manifest_read(struct json_doc *d, const char *dir, const char *kind, struct err *e)
{
	char *path = path_join(dir, name_of_manifest), *tmp = xasprintf("%s.tmp", dir);
	struct str text = { 0 };
	int rc = -1;

	if (file_exists(dir) && !file_is_dir(dir))
		err_set(e, EX_DATAERR, "%s: found a file, wanted the directory of a checkpoint or of samples", dir);
	else if (!file_exists(path))
		err_set(e, EX_NOINPUT, "%s: no manifest.json there%s", dir,
			file_is_dir(tmp)
				? "; its writer has not finished (DIR.tmp is left): run it again"
			: file_is_dir(dir) ? ", so it is no checkpoint and no set of samples"
					   : ": no such directory");
	else if (!file_read(&text, path, MANIFEST_MOST, e))
		rc = manifest_parse(d, text.s ? text.s : "", text.len, path, kind, e);
	str_release(&text);
	free(tmp);
	free(path);
	return rc;
}

/* A path inside the directory: no way up, no way out, no empty part. */
static bool is_inside(const char *name)
{
	const char *part = name;

	for (const char *s = name;; s++) {
		if (*s && *s != '/')
			continue;
		if (s == part || (s - part == 1 && *part == '.') ||
		    (s - part == 2 && part[0] == '.' && part[1] == '.'))
			return false;
		if (!*s)
			return true;
		part = s + 1;
	}
}

int manifest_get_file(struct manifest_file *f, const struct json_doc *d, const struct json *v,
		      struct err *e)
{
	const struct json *name = json_get(v, "name");
	const char *text;

	if (json_str(d, name, "name of a file", &text, e) ||
	    json_u64(d, json_get(v, "bytes"), "bytes of a file", &f->bytes, e) ||
	    manifest_get_digest(&f->hash, d, v, "hash", e))
		return -1;
	if (name->n > FILE_NAME_MAX || strlen(text) != name->n || !is_inside(text))
		return err_set(e, EX_DATAERR,
			       "%s:%d: file \"%.80s\": wanted a name inside the directory", d->file,
			       name->line, text);
	memcpy(f->name, text, name->n + 1);
	return 0;
}

int manifest_get_digest(struct digest *out, const struct json_doc *d, const struct json *o,
			const char *key, struct err *e)
{
	const char *text;

	if (json_str(d, json_get(o, key), key, &text, e))
		return -1;
	if (strlen(text) != HEX || digest_parse(out, text))
		return err_set(e, EX_DATAERR,
			       "%s: %s: found \"%.40s\", wanted %d hexadecimal digits", d->file,
			       key, text, HEX);
	return 0;
}

const char *manifest_kind(const char *dir)
{
	char *path = path_join(dir, name_of_manifest);
	const char *kind = NULL;
	struct str t = { 0 };
	struct err e = ERR_INIT;

	if (file_exists(path) && !file_read(&t, path, MANIFEST_MOST, &e)) {
		if (memmem(t.s, t.len, "\"kind\": \"samples\"", 17))
			kind = "samples";
		else if (memmem(t.s, t.len, "\"kind\": \"", 9))
			kind = "model";
	}
	str_release(&t);
	free(path);
	return kind;
}

int manifest_write_file(struct manifest_file *f, const char *dir, const char *name, const void *p,
			size_t n, struct err *e)
{
	char *path = path_join(dir, name);
	int fd, rc = -1;

	if (strlen(name) > FILE_NAME_MAX || !is_inside(name))
		bug("file name \"%s\"", name);
	*f = (struct manifest_file){ .bytes = n, .hash = hash128(p, n) };
	memcpy(f->name, name, strlen(name) + 1);
	io_point(name);
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	if (fd < 0)
		err_errno(e, EX_CANTCREAT, "%s", path);
	else if (!file_pwrite(fd, path, p, n, 0, e))
		rc = 0;
	if (fd >= 0 && close(fd) && !rc)
		rc = err_errno(e, EX_IOERR, "%s", path);
	free(path);
	return rc;
}

int manifest_check_size(const char *dir, const struct manifest_file *f, struct err *e)
{
	char *path = path_join(dir, f->name);
	struct stat st;
	int rc = 0;

	if (stat(path, &st) || !S_ISREG(st.st_mode))
		rc = err_set(e, EX_DATAERR, "%s: the manifest names this file, but it is not there",
			     path);
	else if ((uint64_t)st.st_size != f->bytes)
		rc = err_set(e, EX_DATAERR, "%s: %lld bytes, wanted %llu", path,
			     (long long)st.st_size, (unsigned long long)f->bytes);
	free(path);
	return rc;
}

int manifest_check_file(const char *dir, const struct manifest_file *f, struct err *e)
{
	char *path, have[33], want[33];
	struct digest d;
	int rc;

	if (manifest_check_size(dir, f, e))
		return -1;
	path = path_join(dir, f->name);
	rc = hash128_file(&d, path, e);
	if (!rc && !digest_equal(d, f->hash))
		rc = err_set(e, EX_DATAERR, "%s: checksum %s, wanted %s: damaged or of another run",
			     path, digest_hex(have, d), digest_hex(want, f->hash));
	free(path);
	return rc;
}
