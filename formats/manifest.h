#ifndef FORMATS_MANIFEST_H
#define FORMATS_MANIFEST_H

/*
 * manifest.json: what every output directory (checkpoint, samples) says about itself, written last.
 * Its keys are in cairn-checkpoint(5) and cairn-samples(5).  It ends in a checksum of its own
 * bytes, so that no flipped byte goes unseen, and it holds the size and the hash of every other
 * file.  A forged manifest is out of scope.
 *
 * Here: the frame (format, version, least reader version, features, checksum), the list of files,
 * and the history.
 */

#include "libcommon/hash.h"
#include "libcommon/json.h"

enum {
	MANIFEST_VERSION = 1,           /* what we write and the newest that we read */
	FILE_NAME_MAX = 255
};

/* One earlier thing that a tool read. */
struct history_input {
	const char *what;               /* "checkpoint", "policy", "samples", "data", ... */
	const char *path;               /* as given; NULL: not a path */
	struct digest digest;
};

/* What this run of a tool did.  Everything is borrowed. */
struct history {
	const char *program;            /* "train-step" */
	const char *version;            /* CAIRN_VERSION */
	/* argc of them; values of words that look like secrets are replaced by "***" */
	const char *const *argument;
	int argc;
	/* the effective recipe (YAML), or NULL: none; its XXH3-128 is recorded */
	const char *recipe;
	const uint64_t *seed; int seeds;
	const struct history_input *input; int inputs;
	/* the value of "history" in the manifest of the main input, or NULL */
	const struct json *parent;
};

/*
 * The "history" object: {"entry", "digest", "parent", "summary"}.  digest = XXH3-128 of the entry's
 * text without blanks followed by the parent's digest (32 hex digits, or nothing); the summary
 * counts the runs of each program and keeps the first entry, so its size is bounded however long
 * the chain is.
 */
void history_put(struct json_out *o, const struct history *h);
int history_check(const struct json_doc *d, const struct json *history, struct err *e) MUST_CHECK;

/* A file of the directory. */
struct manifest_file {
	char name[FILE_NAME_MAX + 1];   /* relative, '/' between; no "..", no absolute path */
	uint64_t bytes;
	/* XXH3-128 of the whole file; of a shard: of its frame (checkpoint.h) */
	struct digest hash;
};

/*
 * Open the object and write format, version, reader, features; `kind` is "model" or "samples",
 * `feature` what a reader must know ("zstd", of models), or NULL.
 */
void manifest_begin(struct json_out *o, const char *kind, const char *feature);
void manifest_put_file(struct json_out *o, const struct manifest_file *f);
/*
 * Close the object with its checksum and write DIR/manifest.json (not durable: outdir_commit()
 * does that).
 */
int manifest_finish(struct json_out *o, const char *dir, struct err *e) MUST_CHECK;

/*
 * Read and check: checksum, format, version, features, kind.  Absent: EX_NOINPUT, with a sentence
 * when DIR.tmp is there.
 */
int manifest_read(struct json_doc *d, const char *dir, const char *kind, struct err *e) MUST_CHECK;
int manifest_parse(struct json_doc *d, const char *text, size_t n, const char *path,
		   const char *kind, struct err *e) MUST_CHECK;
int manifest_get_file(struct manifest_file *f, const struct json_doc *d, const struct json *v,
		      struct err *e) MUST_CHECK;
int manifest_get_digest(struct digest *out, const struct json_doc *d, const struct json *o,
			const char *key, struct err *e) MUST_CHECK;
/* "model" or "samples" of a directory that holds a manifest, by a glance at it; NULL: none. */
const char *manifest_kind(const char *dir);

/* Put a new file into `dir` (io_point() before each write), describing it in *f. */
int manifest_write_file(struct manifest_file *f, const char *dir, const char *name, const void *p,
			size_t n, struct err *e) MUST_CHECK;
/*
 * Size and hash of DIR/f->name are f's, or EX_DATAERR; absent: EX_DATAERR too (the manifest names
 * it).
 */
int manifest_check_size(const char *dir, const struct manifest_file *f, struct err *e) MUST_CHECK;
int manifest_check_file(const char *dir, const struct manifest_file *f, struct err *e) MUST_CHECK;

#endif
