#include "libcommon/rope.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const struct { const char *name; enum rope_kind kind; } kinds[] = {
	{ "default", ROPE_DEFAULT }, { "linear", ROPE_LINEAR }, { "dynamic", ROPE_DYNAMIC },
	{ "llama3", ROPE_LLAMA3 }, { "yarn", ROPE_YARN },
};
enum { KINDS = sizeof(kinds) / sizeof(*kinds) };

#define IN(k) (1u << (k))
#define AT(field) offsetof(struct rope_config, field)

/* The numbers that go with each kind.  `def` is NAN where the number must be given. */
static const struct rope_key {
	const char *key;
	size_t at;
	unsigned kinds;
	double def;
} keys[] = {
	{ "factor", AT(factor),
	  IN(ROPE_LINEAR) | IN(ROPE_DYNAMIC) | IN(ROPE_LLAMA3) | IN(ROPE_YARN), NAN },
	{ "low_freq_factor", AT(low_freq_factor), IN(ROPE_LLAMA3), NAN },
	{ "high_freq_factor", AT(high_freq_factor), IN(ROPE_LLAMA3), NAN },
	{ "original_max_position_embeddings", AT(original_max_position),
	  IN(ROPE_LLAMA3) | IN(ROPE_YARN), NAN },
	{ "beta_fast", AT(beta_fast), IN(ROPE_YARN), 32 },
	{ "beta_slow", AT(beta_slow), IN(ROPE_YARN), 1 },
	{ "attention_factor", AT(attention_factor), IN(ROPE_YARN), 0 },
	{ "mscale", AT(mscale), IN(ROPE_YARN), 0 },
	{ "mscale_all_dim", AT(mscale_all_dim), IN(ROPE_YARN), 0 },
};
enum { KEYS = sizeof(keys) / sizeof(*keys) };

static double *field(struct rope_config *r, int k)
{
	return (double *)((char *)r + keys[k].at);
}

static double number(const struct rope_config *r, int k)
{
	return *(const double *)((const char *)r + keys[k].at);
}

static const char *kind_name(enum rope_kind kind)
{
	int i = 0;

	while (kinds[i].kind != kind)
		i++;
	return kinds[i].name;
}

static bool given(const struct json *v)
{
	return v && v->type != JSON_NULL;
}

static int read_kind(struct rope_config *r, const struct json_doc *d, const struct json *o,
		     const char *where, struct err *e)
{
	static const char *const elsewhere[] = { "longrope", "su", "mrope", "proportional" };
	const char *name;

	if (json_str_or(d, o, given(json_get(o, "rope_type")) ? "rope_type" : "type", "default",
			&name, e))
		return -1;
	for (int i = 0; i < KINDS; i++)
		if (!strcmp(name, kinds[i].name)) {
			r->kind = kinds[i].kind;
			return 0;
		}
	for (size_t i = 0; i < sizeof(elsewhere) / sizeof(*elsewhere); i++)
		if (!strcmp(name, elsewhere[i]))
			return err_set(e, EX_UNAVAILABLE,
				       "%s:%d: %s: rope_type \"%s\" is not supported, these are: "
				       "default, linear, dynamic, llama3, yarn",
				       d->file, o->line, where, name);
	return err_set(e, EX_DATAERR,
		       "%s:%d: %s: rope_type \"%.40s\" is unknown, wanted default, linear, "
		       "dynamic, llama3 or yarn",
		       d->file, o->line, where, name);
}

/* YaRN alone may leave out its original length (then it is max_position) or have a null factor
 * (then it is their ratio). */
static double default_of(const struct rope_config *r, int k, const struct model_config *c)
{
	if (r->kind == ROPE_YARN && keys[k].at == AT(original_max_position))
		return (double)c->max_position;
	return keys[k].def;
}

static int read_number(double *x, const struct rope_config *r, int k, const struct json_doc *d,
		       const struct json *o, const char *where, const struct model_config *c,
		       struct err *e)
{
	const struct json *v = json_get(o, keys[k].key);
	bool derived = v && r->kind == ROPE_YARN && keys[k].at == AT(factor);
	char what[80];

	*x = default_of(r, k, c);
	snprintf(what, sizeof(what), "%s.%s", where, keys[k].key);
	if (given(v))
		return json_real(d, v, what, x, e);
	if (!isnan(*x) || derived)
		return 0;
	return err_set(e, EX_DATAERR, "%s:%d: %s: missing, rope_type %s needs it", d->file, o->line,
		       what, kind_name(r->kind));
}

static int read_scaling(struct rope_config *r, const struct json_doc *d, const struct json *o,
			const char *where, const struct model_config *c, struct err *e)
{
	if (o->type != JSON_OBJECT)
		return err_set(e, EX_DATAERR, "%s:%d: %s: found %s, wanted an object", d->file,
			       o->line, where, json_type_name(o));
	for (size_t i = 0; i < o->n; i++)
		if (o->member[i].value.type == JSON_OBJECT)
			return err_set(e, EX_UNAVAILABLE,
				       "%s:%d: %s.%.40s: frequencies that differ by layer are not "
				       "supported",
				       d->file, o->member[i].value.line, where, o->member[i].key);
	if (read_kind(r, d, o, where, e))
		return -1;
	for (int k = 0; k < KEYS; k++)
		if (keys[k].kinds & IN(r->kind) &&
		    read_number(field(r, k), r, k, d, o, where, c, e))
			return -1;
	if (isnan(r->factor))
		r->factor = (double)c->max_position / r->original_max_position;
	return r->kind == ROPE_YARN ? json_bool_or(d, o, "truncate", true, &r->truncate, e) : 0;
}

static int refuse_partial(const struct json_doc *d, const struct json *o, struct err *e)
{
	double part;

	if (json_real_or(d, o, "partial_rotary_factor", 1, &part, e))
		return -1;
	if (part == 1)
		return 0;
	return err_set(e, EX_UNAVAILABLE,
		       "%s: partial_rotary_factor %g is not supported, only 1 is", d->file, part);
}

static int differ(const struct json_doc *d, const char *a, double x, const char *b, double y,
		  struct err *e)
{
	char left[32], right[32];

	return err_set(e, EX_DATAERR, "%s: %s is %s but %s is %s: wanted the same in both places",
		       d->file, a, real_repr(left, x), b, real_repr(right, y));
}

/* theta stands in rope_parameters, in rope_scaling or beside them, the same wherever it stands. */
static int read_theta(double *theta, const struct json_doc *d, const struct json *o, struct err *e)
{
	static const char *const places[] = { "rope_theta", "rope_parameters.rope_theta",
					      "rope_scaling.rope_theta" };
	const char *first = NULL;

	for (int i = 0; i < 3; i++) {
		const struct json *v = json_path(o, places[i]);
		double x;

		if (!given(v))
			continue;
		if (json_real(d, v, places[i], &x, e))
			return -1;
		if (first && x != *theta)
			return differ(d, first, *theta, places[i], x, e);
		first = first ? first : places[i];
		*theta = x;
	}
	return 0;
}

static int same_scaling(const struct rope_config *a, const struct rope_config *b,
			const struct json_doc *d, struct err *e)
{
	if (a->kind != b->kind)
		return err_set(e, EX_DATAERR,
			       "%s: rope_parameters has rope_type %s but rope_scaling has %s: "
			       "wanted the same in both",
			       d->file, kind_name(a->kind), kind_name(b->kind));
	for (int k = 0; k < KEYS; k++)
		if (number(a, k) != number(b, k)) {
			char left[80], right[80];

			snprintf(left, sizeof(left), "rope_parameters.%s", keys[k].key);
			snprintf(right, sizeof(right), "rope_scaling.%s", keys[k].key);
			return differ(d, left, number(a, k), right, number(b, k), e);
		}
	if (a->truncate != b->truncate)
		return differ(d, "rope_parameters.truncate", a->truncate, "rope_scaling.truncate",
			      b->truncate, e);
	return 0;
}

int rope_from_json(struct model_config *c, const struct json_doc *d, const struct json *o,
		   struct err *e)
{
	static const char *const name[2] = { "rope_parameters", "rope_scaling" };
	const struct json *place[2] = { json_get(o, name[0]), json_get(o, name[1]) };
	struct rope_config r[2] = { { .factor = 1 }, { .factor = 1 } };
	double theta = c->rope.theta;

	if (refuse_partial(d, o, e) || read_theta(&theta, d, o, e))
		return -1;
	for (int i = 0; i < 2; i++)
		if (given(place[i]) && (read_scaling(&r[i], d, place[i], name[i], c, e) ||
					refuse_partial(d, place[i], e)))
			return -1;
	if (given(place[0]) && given(place[1]) && same_scaling(&r[0], &r[1], d, e))
		return -1;
	c->rope = given(place[0]) ? r[0] : r[1];
	c->rope.theta = theta;
	return rope_check(&c->rope, d->file, e);
}

static int must_exceed(double x, double least, const char *key, const char *file, struct err *e)
{
	if (x > least && isfinite(x))
		return 0;
	return err_set(e, EX_DATAERR, "%s: RoPE: %s is %g, wanted more than %g", file, key, x,
		       least);
}

int rope_check(const struct rope_config *r, const char *file, struct err *e)
{
	if (must_exceed(r->theta, r->kind == ROPE_YARN, "rope_theta", file, e))
		return -1;
	for (int k = 0; k < KEYS; k++) {
		bool optional = keys[k].def == 0 && number(r, k) == 0;

		if (keys[k].kinds & IN(r->kind) && !optional &&
		    must_exceed(number(r, k), 0, keys[k].key, file, e))
			return -1;
	}
	if (r->kind == ROPE_LLAMA3)
		return must_exceed(r->high_freq_factor, r->low_freq_factor, "high_freq_factor",
				   file, e);
	return 0;
}

static void put_numbers(struct json_out *o, const struct rope_config *r)
{
	json_add_str(o, "rope_type", kind_name(r->kind));
	for (int k = 0; k < KEYS; k++) {
		double x = number(r, k);

		if (!(keys[k].kinds & IN(r->kind)) || (keys[k].def == 0 && x == 0))
			continue;
		if (keys[k].at == AT(original_max_position) && x == floor(x) && x < 0x1p53)
			json_add_int(o, keys[k].key, (long)x);
		else
			json_add_real(o, keys[k].key, x);
	}
	if (r->kind == ROPE_YARN)
		json_add_bool(o, "truncate", r->truncate);
}

void rope_to_json(struct json_out *o, const struct rope_config *r)
{
	json_key(o, "rope_parameters");
	json_begin(o, '{');
	put_numbers(o, r);
	json_add_real(o, "rope_theta", r->theta);
	json_end(o);
	json_key(o, "rope_scaling");
	if (r->kind == ROPE_DEFAULT) {
		json_put_null(o);
	} else {
		json_begin(o, '{');
		put_numbers(o, r);
		json_end(o);
	}
	json_add_real(o, "rope_theta", r->theta);
}
