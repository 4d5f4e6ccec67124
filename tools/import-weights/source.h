#ifndef TOOLS_IMPORT_WEIGHTS_SOURCE_H
#define TOOLS_IMPORT_WEIGHTS_SOURCE_H

/*
 * Where weights come from: a Hugging Face folder or .safetensors file, a GGUF file, or a random
 * start.  Opening one reads what is small (config, tokenizer, the list of tensors); values come
 * piece by piece.  Everything here ends the program on failure.
 */

#include "formats/gguf.h"
#include "formats/safetensors.h"
#include "formats/tokenizer.h"
#include "libcommon/hash.h"
#include "libcommon/param.h"

enum source_kind { SOURCE_HF, SOURCE_GGUF, SOURCE_INIT };

struct source_tensor {
	char *name;	  /* owned; Hugging Face's */
	enum dtype dtype; /* of what source_read() gives */
	int rank;
	long shape[TENSOR_RANK];
	long unit; /* elements; reads are of whole units, the last one may be short */
	const struct safetensors_item *item;  /* SOURCE_HF */
	const struct safetensors_item *scale; /* SOURCE_HF: of block-scaled FP8, or NULL */
	long base;		     /* SOURCE_HF: elements of the item before this one's first */
	struct source_tensor *part;  /* SOURCE_HF: of experts, one each, end to end; owned */
	long parts;
	const struct gguf_tensor *gguf;	      /* SOURCE_GGUF */
	long heads; /* SOURCE_GGUF: rows are permuted for so many heads; 0: they are not */
	const struct param *param; /* SOURCE_INIT */
};

struct side {
	char *name; /* owned; within hf/ */
	struct str text;
};

struct source {
	enum source_kind kind;
	const char *path; /* borrowed */
	struct model_config config;
	struct param_table table; /* of config */
	struct source_tensor *t;
	long n, cap;
	struct side *side;
	long sides, side_cap;
	struct tokenizer *tokenizer; /* NULL: none */
	struct str chat_template;    /* empty: none */
	bool has_template;
	bool dequantised; /* quantization_config was carried out */
	char *input; /* owned; the file whose digest goes into the history */
	struct digest digest;
	struct safetensors_set set;  /* SOURCE_HF */
	struct str spelling;	     /* SOURCE_HF: experts.json, or empty */
	long block_rows, block_cols; /* of quantization_config; 0: none */
	struct gguf gguf;	     /* SOURCE_GGUF */
	uint64_t seed;		     /* SOURCE_INIT */
};

/* SRC that ends in .gguf, else Hugging Face's.  dtype: what weights shall become, DTYPE_NONE: as
 * they are. */
void source_open(struct source *s, const char *path, enum dtype dtype);
void source_open_hf(struct source *s, const char *path, enum dtype dtype);
void source_open_gguf(struct source *s, const char *path, enum dtype dtype);
/* A config.json, which may be short; its tokenizer (source_tokenizer()) is there already and gives
 * what it leaves out. */
void source_open_init(struct source *s, const char *path, uint64_t seed, enum dtype dtype);
/* The tokenizer of a folder, with its files and its chat template, or "bytes", or "none". */
void source_tokenizer(struct source *s, const char *from);
/* "chatml", "plain", "none" or a file; over what the source has. */
void source_chat_template(struct source *s, const char *from);
void source_close(struct source *s);

/* Elements [first, first + n) in C order, in t->dtype. */
void source_read(void *out, struct source *s, const struct source_tensor *t, long first, long n);
/* By name, once all are added; before source_find(), which gives NULL where there is none. */
void source_sort(struct source *s);
const struct source_tensor *source_find(const struct source *s, const char *name);
struct source_tensor *source_add(struct source *s, const char *name, enum dtype dtype,
				 const long *shape, int rank);
long source_volume(const struct source_tensor *t);
/* The scales of a weight, or NULL; and what both must be. */
const struct safetensors_item *source_scale_of(const struct source *s, const char *name);
void source_check_fp8(const struct source *s, const struct tensor *t, const struct safetensors_item *scale);

/* Side files: the text is taken over; one of the same name is replaced. */
void source_put_side(struct source *s, const char *name, struct str *text);
void source_drop_side(struct source *s, const char *name);
const struct side *source_side(const struct source *s, const char *name); /* or NULL */
/* config.json, generation_config.json of s->config: for sources that have none. */
void source_make_configs(struct source *s);

struct planned {
	const struct source_tensor *from;
	enum dtype dtype; /* stored */
	enum param_role role;
};

/*
 * Every tensor of the parameter table with its shape, in table order, then what else the source
 * holds (carried; an error without allow_extra).  Left out with a note: rotary_emb.inv_freq, and
 * lm_head.weight of a tied model where it is the embedding bit for bit.  Returns their number; the
 * caller frees.
 */
long plan_import(struct planned **out, struct source *s, enum dtype dtype, bool allow_extra);

#endif
