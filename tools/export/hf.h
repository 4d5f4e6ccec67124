#ifndef TOOLS_EXPORT_HF_H
#define TOOLS_EXPORT_HF_H

/* A checkpoint as a Hugging Face folder.  Ends the program on failure; the caller commits the
 * directory. */

#include "formats/checkpoint.h"
#include "libcommon/outdir.h"
#include "libcommon/tensor.h"

struct exported {
	long tensors, parameters;
	uint64_t bytes;
}; /* bytes of tensor data */

/*
 * model*.safetensors and the side files.  The weights must be what hf/config.json asks for.  dtype:
 * floating weights become that (DTYPE_NONE: as they are), and config.json says so; max_shard: bytes
 * of tensor data in a file, 0: no limit.
 */
void export_hf(struct exported *x, const struct outdir *out, struct checkpoint *c, enum dtype dtype,
	       uint64_t max_shard);

#endif
