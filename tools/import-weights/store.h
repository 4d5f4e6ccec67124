#ifndef TOOLS_IMPORT_WEIGHTS_STORE_H
#define TOOLS_IMPORT_WEIGHTS_STORE_H

/* From a source into a checkpoint that was created with the planned tensors, in bounded memory.
 * Ends the program on failure. */

#include "formats/checkpoint.h"
#include "tools/import-weights/source.h"

struct checkpoint_tensor *describe_planned(const struct planned *p,
					   long n); /* names are the source's; the caller frees */
void store_weights(struct checkpoint_writer *w, struct source *s, const struct planned *p, long n);
/* hf/, and tokenizer.h5 where there is a tokenizer. */
void store_sides(struct checkpoint_writer *w, const struct source *s);

#endif
