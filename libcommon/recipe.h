#ifndef LIBCOMMON_RECIPE_H
#define LIBCOMMON_RECIPE_H

/*
 * Recipes: one YAML file (and its parents) plus overrides -> one effective tree of values, checked against a static table of
 * every known key.  The schema is NeMo-RL's; `cairn:` holds keys of our own.  recipe(5), docs/cairn-recipe.5, tells the rules.
 *
 *	recipe_load(&r, "grpo.yaml", overrides, n, NULL, 0, e)
 *	recipe_int(r, "grpo.num_generations_per_prompt")
 *	recipe_str(r, "env.math.exec")              where the table has `env.*.exec`
 *
 * Order: table defaults < parents named by `defaults:` < the file < overrides `k=v`, `+k=v`, `++k=v`, `~k`
 * < keys to unset (`~k` and unset leave null where the table allows null, else the default); then interpolation; then the check.  A key that the user never gave reads as its default in the
 * table; a default may itself be an interpolation (`${.temperature}`) and then follows the user's values.
 *
 * A message is `FILE:LINE: KEY: found, wanted`, EX_CONFIG (78); YAML that is malformed or beyond the limits (1 MiB a file,
 * depth 32, 100,000 nodes after aliases, 64 files) is EX_DATAERR (65); a file that is not there is EX_NOINPUT (66).
 */

#include "libcommon/die.h"
#include "libcommon/hash.h"
#include "libcommon/json.h"
#include "libcommon/str.h"

#include <stdbool.h>
#include <stdio.h>

struct recipe;

enum recipe_type { RECIPE_BOOL, RECIPE_INT, RECIPE_REAL, RECIPE_STR, RECIPE_LIST, RECIPE_MAP, RECIPE_ANY };
enum recipe_state {
	RECIPE_USED,
	RECIPE_NOTED,           /* accepted, without effect here; said once at -v */
	RECIPE_REFUSED          /* a value other than the default would change the result, and we do not do it: EX_CONFIG */
};

/* One line of the table.  A `*` in the path stands for one name; a last `**` for anything below. */
struct recipe_key {
	const char *path;
	enum recipe_type type;
	const char *def;        /* YAML text, as a recipe would say it; "null" where there is none */
	bool nullable;
	double min, max;        /* of a number; both 0: no bound */
	const char *choice;     /* of a string: "a|b|c"; NULL: any */
	const char *unit;       /* "" where it has none */
	const char *tools;      /* that read it: "rollout train-step"; "" for none */
	enum recipe_state state;
	const char *meaning;    /* refused keys: also why */
};

extern const struct recipe_key recipe_keys[];   /* sorted by section as in the manual page */
extern const int recipe_nkeys;

/* path NULL: defaults only.  overrides: n strings as typed.  unset: keys to take away, as `~k` does.  Owned by the caller. */
int recipe_load(struct recipe **r, const char *path, const char *const *overrides, int n,
		const char *const *unset, int nunset, struct err *e) MUST_CHECK;
/* The same from memory; `name` stands for the file in messages, and parents are relative to its folder. */
int recipe_parse(struct recipe **r, const char *text, size_t len, const char *name, const char *const *overrides, int n,
		 const char *const *unset, int nunset, struct err *e) MUST_CHECK;
void recipe_free(struct recipe *r);             /* safe on NULL */

/*
 * Typed reads by dotted key.  The key must match the table and the type be the table's (bug() otherwise); recipe_int and the like of
 * a null are bug(): ask recipe_is_null() where the table says nullable.  Strings live as long as the recipe.
 */
long recipe_int(const struct recipe *r, const char *key);
double recipe_real(const struct recipe *r, const char *key);
bool recipe_bool(const struct recipe *r, const char *key);
const char *recipe_str(const struct recipe *r, const char *key); /* NULL for null */
bool recipe_is_null(const struct recipe *r, const char *key);
bool recipe_is_set(const struct recipe *r, const char *key); /* by the user; of a section: any key below it */
/* Any value as JSON, never NULL: an absent key gives its default (a null where it has none).  Also of a whole section. */
const struct json *recipe_value(const struct recipe *r, const char *key);
/* "FILE:LINE", "command line" or "default". */
const char *recipe_where(const struct recipe *r, const char *key);
/* What can not be known from one key alone: fill *e with "WHERE: KEY: text", EX_CONFIG; returns -1. */
int recipe_error(const struct recipe *r, const char *key, struct err *e, const char *fmt, ...) PRINTF(4, 5);

/* grpo, sft, dpo, rm or eval: the section that the user gave, grpo where there is none; two of them are EX_CONFIG. */
int recipe_algorithm(const char **name, const struct recipe *r, struct err *e) MUST_CHECK;

/* The effective recipe: what was given, and the defaults of keys that have an effect; interpolations are values here. */
int recipe_write_yaml(struct str *out, const struct recipe *r); /* loads again to the same recipe and digest */
int recipe_write_json(struct json_out *out, const struct recipe *r);
/* XXH3-128 of what has an effect: one `path: JSON` line a used key, in the order of the table and then of names; checkpointing.*, logger.*,
 * cluster.*, cairn.{device,isa,threads,memory} and the sizes of parallelism left out, so that a moved run keeps its digest. */
struct digest recipe_digest(const struct recipe *r);

/* The table's entry of a key as lines for a reader.  Unknown: EX_CONFIG with the nearest key. */
int recipe_explain(struct str *out, const char *key, struct err *e) MUST_CHECK;
enum recipe_format { RECIPE_TEXT, RECIPE_MDOC /* a whole page */, RECIPE_TSV };
void recipe_print_table(FILE *f, enum recipe_format format);
/* The line of the table that a dotted key means (aliases of v0.3 followed), or NULL. */
const struct recipe_key *recipe_key_find(const char *key);

#endif
