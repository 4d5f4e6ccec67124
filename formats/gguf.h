#ifndef FORMATS_GGUF_H
#define FORMATS_GGUF_H

/*
 * GGUF, versions 2 and 3, read only, little-endian:
 *
 *	"GGUF" | u32 version | u64 tensors | u64 kvs | kv... | tensor info... | pad | data
 *
 * Checked at open as the reference loader does, every violation EX_DATAERR in one line: keys and
 * tensor names unique and not empty; lengths within the file; value types known, no array in an
 * array, bools 0 or 1; general.alignment a u32 power of two; at most 4 dimensions, none of them 0,
 * no overflow; whole blocks in a row; offsets consecutive with padding; data inside the file.  A
 * split model (NAME-00001-of-00003.gguf) is opened by its first part.
 */

#include "libcommon/model_config.h"
#include "libcommon/tensor.h"
#include "libcommon/xalloc.h"

struct tokenizer_source;

enum gguf_value {
	GGUF_U8, GGUF_I8, GGUF_U16, GGUF_I16, GGUF_U32, GGUF_I32, GGUF_F32, GGUF_BOOL, GGUF_STRING,
	GGUF_ARRAY, GGUF_U64, GGUF_I64, GGUF_F64, GGUF_VALUES
};

enum gguf_type {
	GGML_F32 = 0, GGML_F16 = 1, GGML_Q4_0 = 2, GGML_Q4_1 = 3, GGML_Q5_0 = 6, GGML_Q5_1 = 7,
	GGML_Q8_0 = 8, GGML_Q4_K = 12, GGML_Q5_K = 13, GGML_Q6_K = 14, GGML_I8 = 24, GGML_I16 = 25,
	GGML_I32 = 26, GGML_I64 = 27, GGML_F64 = 28, GGML_BF16 = 30, GGML_TYPES = 42
};

struct gguf_string { const char *s; size_t n; };        /* NUL after n, and may hold NULs */

struct gguf_kv {
	const char *key;
	enum gguf_value type;   /* of the value, or of the array's items */
	bool array;
	size_t n;               /* items; 1 for a value */
	const void *items;      /* n of them as stored (bool: uint8_t), or struct gguf_string */
};

struct gguf_tensor {
	const char *name;
	int type;               /* enum gguf_type, or one of those that we know by name only */
	int rank;
	long shape[4];          /* outermost first, as Hugging Face: the file's reversed */
	int part;
	uint64_t offset;        /* in the part's file */
	uint64_t bytes;
};

struct gguf_part { char *path; int fd; };

struct gguf {
	const char *path;               /* of the first part */
	struct gguf_part *part; int parts;
	struct gguf_kv *kv; long nkv;   /* of the first part, in file order */
	struct gguf_tensor *tensor; long n; /* of all parts, in file order */
	long *by_name;                  /* indices into tensor, sorted by name */
	struct arena arena;             /* of all that the fields above point to */
};

int gguf_open(struct gguf *g, const char *path, struct err *e) MUST_CHECK;
void gguf_close(struct gguf *g);        /* safe on zero */

/*
 * Typed reads, as json.h's: fail (EX_DATAERR) on another kind of value and out of range; plain
 * forms also where the key is absent, _or forms give `def` then.  Integers of every width are
 * integers; bool and integer are not exchanged.  Strings hold no NUL.  A real is finite, and an f32
 * is read as the decimal that its writer saw: 1e-05, not 9.99999974738e-06.
 */
const struct gguf_kv *gguf_find(const struct gguf *g, const char *key); /* or NULL */
int gguf_int(const struct gguf *g, const char *key, long *out, struct err *e) MUST_CHECK;
int gguf_str(const struct gguf *g, const char *key, const char **out, struct err *e) MUST_CHECK;
int gguf_int_or(const struct gguf *g, const char *key, long def, long *out,
		struct err *e) MUST_CHECK;
int gguf_real_or(const struct gguf *g, const char *key, double def, double *out,
		 struct err *e) MUST_CHECK;
int gguf_bool_or(const struct gguf *g, const char *key, bool def, bool *out,
		 struct err *e) MUST_CHECK;
int gguf_str_or(const struct gguf *g, const char *key, const char *def, const char **out,
		struct err *e) MUST_CHECK;
/* An array of that type; absent: *items NULL and *n 0. */
int gguf_array(const struct gguf *g, const char *key, enum gguf_value type, const void **items,
	       size_t *n, struct err *e) MUST_CHECK;

const struct gguf_tensor *gguf_tensor_find(const struct gguf *g, const char *name); /* or NULL */
const char *gguf_type_name(int type);   /* "Q4_K", ...; NULL: no such type */
void gguf_block(long *elements, size_t *bytes, int type); /* one block; the type has a name */
bool gguf_can_dequant(int type);        /* F32, F16, BF16 and the quantised types of gguf_type */
/* What gguf_read() gives: F32 where the file is quantised, else the file's own type.  A type that
 * we cannot decode is 69, by name. */
int gguf_describe(struct tensor *t, const struct gguf *g, const struct gguf_tensor *gt,
		  struct err *e) MUST_CHECK;
/* Rows first .. first + rows - 1 in the type of gguf_describe(); a row is the last dimension, a
 * vector has one. */
int gguf_read(void *out, const struct gguf *g, const struct gguf_tensor *gt, long first, long rows,
	      struct err *e) MUST_CHECK;
/* The same widened to float; another type than those of gguf_can_dequant() is 69. */
int gguf_read_f32(float *out, const struct gguf *g, const struct gguf_tensor *gt, long first,
		  long rows, struct err *e) MUST_CHECK;
long gguf_rows(const struct gguf_tensor *gt);

/* n elements (whole blocks) of a float or quantised type to float, each value in the reference's
 * order of operations, so that the bits are gguf-py's.  bug() on another type. */
void gguf_dequant(float *out, const void *blocks, int type, long n);

/* -- what the model means (gguf_model.c) ------------------------------------------------------ */

/*
 * Metadata to config, for general.architecture llama (Llama, SmolLM2, Mistral; with experts Mixtral),
 * qwen2, qwen3, qwen2moe, qwen3moe; anything else, and a feature that changes the result (partial
 * rotary, long-rope, sizes that differ by layer), is 69 by name.  A layer has experts where it has a
 * router, blk.N.ffn_gate_inp.weight.  rope_freqs.weight becomes llama3 parameters (the usual
 * set, or one with low_freq_factor 1) if these give all its divisors back to 2e-6, else 69.
 */
int gguf_model_config(struct model_config *c, const struct gguf *g, struct err *e) MUST_CHECK;
/* "blk.3.attn_q.weight" -> "model.layers.3.self_attn.q_proj.weight", as that model_type has it; all
 * experts of a layer are one tensor.  0; 1: known, but no weight (rope_freqs.weight); -1: unknown. */
int gguf_hf_name(char out[128], const char *model_type, const char *name);
/*
 * Architecture llama stores the rows of q and k with each head's rotary pairs side by side; undo
 * it: out[h, j d/2 + i] = in[h, 2 i + j], d = rows / heads.  heads: of q, or kv heads for k.  Not
 * in place.
 */
void gguf_unpermute_qk(void *out, const void *in, long rows, long heads, size_t row_bytes);
/* How many heads the rows of this tensor (its GGUF name) are so permuted for in a model of
 * gguf_model_config(); 0: they are not. */
long gguf_permuted_heads(const struct model_config *c, const char *name);
/* The tokenizer.ggml.* keys for formats/tokenizer.h; what it points to lives with *g.  No tokenizer
 * in the file is EX_DATAERR. */
int gguf_tokenizer_source(struct tokenizer_source *s, struct gguf *g, struct err *e) MUST_CHECK;
/* tokenizer.chat_template, or NULL. */
int gguf_chat_template(const char **text, const struct gguf *g, struct err *e) MUST_CHECK;

#endif
