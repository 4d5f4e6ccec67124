#include "libcommon/json_index.h"

#include <string.h>
#include <sys/auxv.h>
#include <xxhash.h>

enum { SMALL = 16 };

static size_t slots(size_t n)
{
	size_t s = 32;

	while (s < n * 2)
		s *= 2;
	return s;
}

static size_t hash(const char *key, size_t n)
{
	static uint64_t seed;

	if (!seed) {
		const void *random = (const void *)getauxval(AT_RANDOM);

		seed = 1;
		if (random)
			memcpy(&seed, random, sizeof(seed));
		seed |= 1;
	}
	return (size_t)XXH3_64bits_withSeed(key, n, seed);
}

size_t json_object_bytes(size_t n)
{
	return n * sizeof(struct json_member) + (n > SMALL ? slots(n) * sizeof(uint32_t) : 0);
}

static bool same(const struct json_member *m, const char *key, size_t n)
{
	return m->keylen == n && !memcmp(m->key, key, n);
}

/* The slot that holds the key, or the free one where it belongs. */
static uint32_t *probe(const struct json *o, const char *key, size_t n)
{
	uint32_t *table = (uint32_t *)(o->member + o->n);
	size_t mask = slots(o->n) - 1, i = hash(key, n) & mask;

	while (table[i] && !same(&o->member[table[i] - 1], key, n))
		i = (i + 1) & mask;
	return &table[i];
}

static const struct json_member *index_large(struct json *o)
{
	memset(o->member + o->n, 0, slots(o->n) * sizeof(uint32_t));
	for (size_t i = 0; i < o->n; i++) {
		struct json_member *m = &o->member[i];
		uint32_t *slot = probe(o, m->key, m->keylen);

		if (*slot)
			return m;
		*slot = (uint32_t)i + 1;
	}
	return NULL;
}

const struct json_member *json_index(struct json *o)
{
	if (o->n > SMALL)
		return index_large(o);
	for (size_t i = 1; i < o->n; i++)
		for (size_t j = 0; j < i; j++)
			if (same(&o->member[j], o->member[i].key, o->member[i].keylen))
				return &o->member[i];
	return NULL;
}

const struct json *json_get_n(const struct json *o, const char *key, size_t keylen)
{
	if (!json_is(o, JSON_OBJECT))
		return NULL;
	if (o->n > SMALL) {
		uint32_t *slot = probe(o, key, keylen);

		return *slot ? &o->member[*slot - 1].value : NULL;
	}
	for (size_t i = 0; i < o->n; i++)
		if (same(&o->member[i], key, keylen))
			return &o->member[i].value;
	return NULL;
}
