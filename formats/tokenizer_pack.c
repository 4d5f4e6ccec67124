#include "formats/tokenizer_stages.h"

#include <stdlib.h>
#include <string.h>

/*
 * The ready form, little-endian:
 *
 *	"CAIRNTOK" u32 version
 *	u32 size; u8 kind[size]; u32 text_at[size + 1]; the spellings
 *	u32 merges; i32 (a, b, to) each
 *	u32 added tokens; each: i32 id, u8 flags, text
 *	three lists of steps: u32 n; each: u8 kind, behaviour, scheme, flags; i32 start,
 *		stop; text a, b
 *	u8 flags of the model; i32 unk, bos, pad, unk by name; lists of i32: eos, before, after
 *
 * where a text is u32 n and n bytes, and a list of i32 is u32 n and the values.
 */

enum { VERSION = 1 };
static const char MAGIC[] = "CAIRNTOK";

/* -- writing -- */

static void put_u32(struct str *b, uint32_t v)
{
	str_add(b, (const char *)&v, 4);
}

static void put_text(struct str *b, struct text x)
{
	put_u32(b, (uint32_t)x.n);
	str_add(b, x.s, x.n);
}

static void put_ints(struct str *b, const int *v, long n)
{
	put_u32(b, (uint32_t)n);
	str_add(b, (const char *)v, (size_t)n * 4);
}

static void put_steps(struct str *b, const struct steps *l)
{
	put_u32(b, (uint32_t)l->n);
	for (int i = 0; i < l->n; i++) {
		const struct step *s = &l->v[i];

		str_putc(b, (int)s->kind);
		str_putc(b, (int)s->behaviour);
		str_putc(b, (int)s->scheme);
		str_putc(b, s->regex | s->invert << 1 | s->individual << 2 | s->prefix_space << 3 |
				    s->use_regex << 4);
		put_u32(b, (uint32_t)s->start);
		put_u32(b, (uint32_t)s->stop);
		put_text(b, s->a);
		put_text(b, s->b);
	}
}

void tokenizer_pack_into(const struct tokenizer *t, struct str *b)
{
	str_add(b, MAGIC, 8);
	put_u32(b, VERSION);
	put_u32(b, (uint32_t)t->size);
	str_add(b, (const char *)t->kind, (size_t)t->size);
	str_add(b, (const char *)t->text_at, ((size_t)t->size + 1) * 4);
	str_add(b, t->texts, t->text_at[t->size]);
	put_u32(b, (uint32_t)t->nmerge);
	str_add(b, (const char *)t->merge, (size_t)t->nmerge * sizeof(*t->merge));
	put_u32(b, (uint32_t)t->nadded);
	for (long i = 0; i < t->nadded; i++) {
		const struct added_token *a = &t->added[i];

		put_u32(b, (uint32_t)a->id);
		str_putc(b, a->special | a->lstrip << 1 | a->rstrip << 2 | a->single_word << 3 |
				    a->normalized << 4);
		put_text(b, a->content);
	}
	put_steps(b, &t->norm);
	put_steps(b, &t->pre);
	put_steps(b, &t->dec);
	str_putc(b, t->byte_fallback | t->fuse_unk << 1 | t->ignore_merges << 2);
	put_u32(b, (uint32_t)t->unk);
	put_u32(b, (uint32_t)t->bos);
	put_u32(b, (uint32_t)t->pad);
	put_u32(b, (uint32_t)t->unk_name);
	put_ints(b, t->eos, t->neos);
	put_ints(b, t->before, t->nbefore);
	put_ints(b, t->after, t->nafter);
}

int tokenizer_pack(const struct tokenizer *t, struct str *blob, struct err *e)
{
	(void)e;
	tokenizer_pack_into(t, blob);
	return 0;
}

/* -- reading: after the first failure everything is 0 -- */

struct input {
	const char *p, *end;
	bool bad;
};

static const char *take(struct input *in, size_t n)
{
	const char *p = in->p;

	if (in->bad || (size_t)(in->end - in->p) < n) {
		in->bad = true;
		return NULL;
	}
	in->p += n;
	return p;
}

static uint32_t get_u32(struct input *in)
{
	const char *p = take(in, 4);
	uint32_t v = 0;

	if (p)
		memcpy(&v, p, 4);
	return v;
}

static unsigned get_u8(struct input *in)
{
	const char *p = take(in, 1);

	return p ? (unsigned char)*p : 0;
}

/* n elements of `size` bytes, copied to the heap; n has been read but not checked. */
static void *get_array(struct input *in, size_t n, size_t size)
{
	const char *p = take(in, n * size);
	void *v;

	if (!p)
		return NULL;
	v = xmalloc(n * size);
	memcpy(v, p, n * size);
	return v;
}

static struct text get_text(struct input *in, struct tokenizer *t)
{
	uint32_t n = get_u32(in);
	const char *p = take(in, n);
	size_t bad;

	if (!p || !utf8_is_valid(p, n, &bad)) {
		in->bad = true;
		return (struct text){ "", 0 };
	}
	return tok_text(t, p, n);
}

static void get_ints(struct input *in, int **v, long *n)
{
	uint32_t count = get_u32(in);

	*v = get_array(in, count, 4);
	*n = *v ? (long)count : 0;
}

static void get_vocab(struct input *in, struct tokenizer *t)
{
	uint32_t size = get_u32(in);
	size_t bad;

	t->kind = get_array(in, size, 1);
	t->text_at = get_array(in, (size_t)size + 1, 4);
	if (in->bad || t->text_at[0] || t->text_at[size] > TOK_MAX_TEXT) {
		in->bad = true;
		return;
	}
	t->texts = get_array(in, t->text_at[size], 1);
	if (in->bad)
		return;
	t->size = size;
	for (uint32_t i = 0; i < size; i++) {
		uint32_t a = t->text_at[i], b = t->text_at[i + 1];
		bool there = t->kind[i] & KIND_VOCAB;

		if (b > t->text_at[size] || b < a || (there && (a == b || t->texts[b - 1])) ||
		    t->kind[i] & ~KIND_VOCAB & ~KIND_ADDED & ~KIND_SPECIAL) {
			in->bad = true;
			return;
		}
		t->kind[i] &= KIND_VOCAB; /* the other bits follow from the added tokens */
	}
	in->bad |= !utf8_is_valid(t->texts, t->text_at[size], &bad);
}

static bool in_vocab(const struct tokenizer *t, int id)
{
	return id >= 0 && id < t->size && t->kind[id] & KIND_VOCAB;
}

static void get_merges(struct input *in, struct tokenizer *t)
{
	uint32_t n = get_u32(in);

	t->merge = get_array(in, n, sizeof(*t->merge));
	if (in->bad)
		return;
	t->nmerge = n;
	for (uint32_t i = 0; i < n; i++)
		if (!in_vocab(t, t->merge[i].a) || !in_vocab(t, t->merge[i].b) ||
		    !in_vocab(t, t->merge[i].to))
			in->bad = true;
}

static int get_added(struct input *in, struct tokenizer *t, const char *file, struct err *e)
{
	uint32_t n = get_u32(in);
	struct added_token *v = NULL;
	long cap = 0, k;
	int rc = 0;

	for (k = 0; k < n && !in->bad; k++) {
		unsigned f;

		GROW(v, k, cap);
		v[k].id = (int)get_u32(in);
		f = get_u8(in);
		v[k].special = f & 1;
		v[k].lstrip = f & 2;
		v[k].rstrip = f & 4;
		v[k].single_word = f & 8;
		v[k].normalized = f & 16;
		v[k].content = get_text(in, t);
	}
	if (!in->bad)
		rc = added_set(t, v, k, file, e);
	free(v);
	return rc;
}

static int get_steps(struct input *in, struct tokenizer *t, struct steps *l, enum step_kind first,
		     enum step_kind last, const char *file, struct err *e)
{
	uint32_t n = get_u32(in);

	for (uint32_t i = 0; i < n && !in->bad; i++) {
		unsigned kind = get_u8(in), behaviour = get_u8(in), scheme = get_u8(in),
			 f = get_u8(in);
		int start = (int)get_u32(in), stop = (int)get_u32(in);
		struct step *s;

		if (in->bad || kind < first || kind > last || behaviour >= BEHAVIOURS ||
		    scheme >= SCHEMES) {
			in->bad = true;
			return 0;
		}
		s = step_add(t, l, (enum step_kind)kind, file, e);
		if (!s)
			return -1;
		s->behaviour = (enum behaviour)behaviour;
		s->scheme = (enum scheme)scheme;
		s->regex = f & 1;
		s->invert = f & 2;
		s->individual = f & 4;
		s->prefix_space = f & 8;
		s->use_regex = f & 16;
		s->start = start;
		s->stop = stop;
		s->a = get_text(in, t);
		s->b = get_text(in, t);
	}
	return 0;
}

static int unpack(struct input *in, struct tokenizer *t, const char *file, struct err *e)
{
	const char *magic = take(in, 8);
	unsigned f;

	if (!magic || memcmp(magic, MAGIC, 8))
		return err_set(e, EX_DATAERR, "%s: not a packed tokenizer", file);
	if (get_u32(in) != VERSION)
		return err_set(e, EX_DATAERR, "%s: packed tokenizer of another version, want %d",
			       file, VERSION);
	get_vocab(in, t);
	get_merges(in, t);
	if (in->bad || vocab_index(t, file, e) || get_added(in, t, file, e) ||
	    get_steps(in, t, &t->norm, NORM_NFC, NORM_REPLACE, file, e) ||
	    get_steps(in, t, &t->pre, PRE_SPLIT, PRE_METASPACE, file, e) ||
	    get_steps(in, t, &t->dec, DEC_BYTE_LEVEL, DEC_METASPACE, file, e))
		return -1;
	f = get_u8(in);
	t->byte_fallback = f & 1;
	t->fuse_unk = f & 2;
	t->ignore_merges = f & 4;
	t->unk = (int)get_u32(in);
	t->bos = (int)get_u32(in);
	t->pad = (int)get_u32(in);
	t->unk_name = (int)get_u32(in);
	get_ints(in, &t->eos, &t->neos);
	get_ints(in, &t->before, &t->nbefore);
	get_ints(in, &t->after, &t->nafter);
	if (in->bad || in->p != in->end)
		return -1;
	return tokenizer_finish(t, file, e);
}

int tokenizer_unpack(struct tokenizer **out, const void *blob, size_t n, const char *file,
		     struct err *e)
{
	struct input in = { blob, (const char *)blob + n, false };
	struct tokenizer *t = tokenizer_new();

	e->code = 0;
	if (!unpack(&in, t, file, e)) {
		*out = t;
		return 0;
	}
	tokenizer_free(t);
	if (!e->code)
		err_set(e, EX_DATAERR, "%s: packed tokenizer of %zu bytes is damaged or cut short",
			file, n);
	return -1;
}
