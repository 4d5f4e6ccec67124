#ifndef TOOLS_IMPORT_WEIGHTS_EXPERTS_H
#define TOOLS_IMPORT_WEIGHTS_EXPERTS_H

/* The experts of a Hugging Face folder, in any spelling (tools/shared/expert_names.h), as one
 * tensor a projection and layer. */

#include "tools/import-weights/source.h"
#include "tools/shared/expert_names.h"

/* Adds them to s, and what spelling to remember.  Returns which items of s->set they are made of;
 * the caller frees. */
bool *experts_list(struct source *s);

#endif
