#ifndef LIBCOMMON_JSON_INDEX_H
#define LIBCOMMON_JSON_INDEX_H

/*
 * Members of an object by key, for json*.c only.  An object of more than 16
 * members has an open-addressed table of uint32 (position + 1, 0: free) behind
 * its members; its size follows from their number.  The hash is keyed per
 * process, so that a file cannot be made to collide.
 */

#include "libcommon/json.h"

/* What the members of an object with n of them take, table included. */
size_t json_object_bytes(size_t n);
/* Fills the table.  Returns the second of two members with one key, or NULL. */
const struct json_member *json_index(struct json *o);
const struct json *json_get_n(const struct json *o, const char *key, size_t keylen);

#endif
