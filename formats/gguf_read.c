#include "formats/gguf.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "libcommon/file.h"
#include "libcommon/json.h"

static const char *const value_names[GGUF_VALUES] = {
	"u8",	"i8",	  "u16",   "i16", "u32", "i32", "f32",
	"bool", "string", "array", "u64", "i64", "f64",
};

static int mismatch(const struct gguf *g, const struct gguf_kv *kv, const char *want, struct err *e)
{
	return err_set(e, EX_DATAERR, "%s: %.100s: found %s%s, wanted %s", g->path, kv->key,
		       kv->array ? "an array of " : "", value_names[kv->type], want);
}

#define ITEM(type) (*(const type *)kv->items)

int gguf_int_or(const struct gguf *g, const char *key, long def, long *out, struct err *e)
{
	const struct gguf_kv *kv = gguf_find(g, key);

	*out = def;
	if (!kv)
		return 0;
	if (kv->array)
		return mismatch(g, kv, "an integer", e);
	switch (kv->type) {
	case GGUF_U8: *out = ITEM(uint8_t); return 0;
	case GGUF_I8: *out = ITEM(int8_t); return 0;
	case GGUF_U16: *out = ITEM(uint16_t); return 0;
	case GGUF_I16: *out = ITEM(int16_t); return 0;
	case GGUF_U32: *out = ITEM(uint32_t); return 0;
	case GGUF_I32: *out = ITEM(int32_t); return 0;
	case GGUF_I64: *out = ITEM(int64_t); return 0;
	case GGUF_U64:
		if (ITEM(uint64_t) > INT64_MAX)
			return mismatch(g, kv, "an integer below 2^63", e);
		*out = (long)ITEM(uint64_t);
		return 0;
	default: return mismatch(g, kv, "an integer", e);
	}
}

static int need(const struct gguf *g, const char *key, struct err *e)
{
	return gguf_find(g, key) ? 0
				 : err_set(e, EX_DATAERR, "%s: key %s is missing", g->path, key);
}

int gguf_int(const struct gguf *g, const char *key, long *out, struct err *e)
{
	return need(g, key, e) ? -1 : gguf_int_or(g, key, 0, out, e);
}

int gguf_str(const struct gguf *g, const char *key, const char **out, struct err *e)
{
	return need(g, key, e) ? -1 : gguf_str_or(g, key, NULL, out, e);
}

int gguf_real_or(const struct gguf *g, const char *key, double def, double *out, struct err *e)
{
	const struct gguf_kv *kv = gguf_find(g, key);
	char buf[32];

	*out = def;
	if (!kv)
		return 0;
	if (kv->array || (kv->type != GGUF_F32 && kv->type != GGUF_F64))
		return mismatch(g, kv, "a real number", e);
	*out = kv->type == GGUF_F32 ? (double)ITEM(float) : ITEM(double);
	if (!isfinite(*out))
		return mismatch(g, kv, "a finite number", e);
	if (kv->type == GGUF_F32)
		*out = strtod(float_repr(buf, ITEM(float)), NULL);
	return 0;
}

int gguf_bool_or(const struct gguf *g, const char *key, bool def, bool *out, struct err *e)
{
	const struct gguf_kv *kv = gguf_find(g, key);

	*out = def;
	if (!kv)
		return 0;
	if (kv->array || kv->type != GGUF_BOOL)
		return mismatch(g, kv, "a bool", e);
	*out = ITEM(uint8_t);
	return 0;
}

int gguf_str_or(const struct gguf *g, const char *key, const char *def, const char **out,
		struct err *e)
{
	const struct gguf_kv *kv = gguf_find(g, key);
	const struct gguf_string *s;

	*out = def;
	if (!kv)
		return 0;
	if (kv->array || kv->type != GGUF_STRING)
		return mismatch(g, kv, "a string", e);
	s = kv->items;
	if (strlen(s->s) != s->n)
		return err_set(e, EX_DATAERR, "%s: %.100s: the string holds a NUL", g->path, key);
	*out = s->s;
	return 0;
}

int gguf_array(const struct gguf *g, const char *key, enum gguf_value type, const void **items,
	       size_t *n, struct err *e)
{
	const struct gguf_kv *kv = gguf_find(g, key);

	*items = NULL;
	*n = 0;
	if (!kv)
		return 0;
	if (!kv->array || kv->type != type)
		return err_set(e, EX_DATAERR, "%s: %.100s: found %s%s, wanted an array of %s",
			       g->path, key, kv->array ? "an array of " : "", value_names[kv->type],
			       value_names[type]);
	*items = kv->items;
	*n = kv->n;
	return 0;
}

/* -- tensors ------------------------------------------------------------------------------------
 */

static enum dtype plain_dtype(int type)
{
	switch (type) {
	case GGML_F32: return DTYPE_F32;
	case GGML_F16: return DTYPE_F16;
	case GGML_BF16: return DTYPE_BF16;
	case GGML_F64: return DTYPE_F64;
	case GGML_I8: return DTYPE_I8;
	case GGML_I16: return DTYPE_I16;
	case GGML_I32: return DTYPE_I32;
	case GGML_I64: return DTYPE_I64;
	default: return DTYPE_NONE;
	}
}

static int unsupported(const struct gguf *g, const struct gguf_tensor *gt, struct err *e)
{
	return err_set(e, EX_UNAVAILABLE, "%s: %s: tensors of type %s are not supported", g->path,
		       gt->name, gguf_type_name(gt->type));
}

int gguf_describe(struct tensor *t, const struct gguf *g, const struct gguf_tensor *gt,
		  struct err *e)
{
	enum dtype d = plain_dtype(gt->type);

	if (d == DTYPE_NONE && !gguf_can_dequant(gt->type))
		return unsupported(g, gt, e);
	*t = (struct tensor){ .name = (char *)gt->name,
			      .dtype = d == DTYPE_NONE ? DTYPE_F32 : d,
			      .rank = gt->rank };
	memcpy(t->shape, gt->shape, sizeof(gt->shape));
	return 0;
}

static long row_length(const struct gguf_tensor *gt)
{
	return gt->rank ? gt->shape[gt->rank - 1] : 1;
}

long gguf_rows(const struct gguf_tensor *gt)
{
	long n = 1;

	for (int i = 0; i + 1 < gt->rank; i++)
		n *= gt->shape[i];
	return n;
}

/* The stored bytes of some rows. */
static int read_stored(void *out, const struct gguf *g, const struct gguf_tensor *gt, long first,
		       long rows, struct err *e)
{
	size_t row = gt->bytes / (size_t)gguf_rows(gt);

	if (first < 0 || rows < 0 || rows > gguf_rows(gt) - first)
		bug("%s: %s: rows %ld + %ld of %ld", g->path, gt->name, first, rows, gguf_rows(gt));
	if (file_pread(g->part[gt->part].fd, g->part[gt->part].path, out, row * (size_t)rows,
		       gt->offset + row * (size_t)first, e))
		return err_prefix(e, "%s", gt->name);
	return 0;
}

int gguf_read_f32(float *out, const struct gguf *g, const struct gguf_tensor *gt, long first,
		  long rows, struct err *e)
{
	size_t row = gt->bytes / (size_t)gguf_rows(gt);
	long cols = row_length(gt), step = (4L << 20) / (long)row + 1;
	void *buf;
	int rc = 0;

	if (!gguf_can_dequant(gt->type))
		return unsupported(g, gt, e);
	buf = xmalloc(row * (size_t)(step < rows ? step : rows) + 1);
	for (long i = 0; !rc && i < rows; i += step) {
		long n = rows - i < step ? rows - i : step;

		rc = read_stored(buf, g, gt, first + i, n, e);
		if (!rc)
			gguf_dequant(out + i * cols, buf, gt->type, n * cols);
	}
	free(buf);
	return rc;
}

int gguf_read(void *out, const struct gguf *g, const struct gguf_tensor *gt, long first, long rows,
	      struct err *e)
{
	if (plain_dtype(gt->type) != DTYPE_NONE)
		return read_stored(out, g, gt, first, rows, e);
	return gguf_read_f32(out, g, gt, first, rows, e);
}
