#ifndef TOOLS_SHARED_START_H
#define TOOLS_SHARED_START_H

/*
 * How the programs that run a model begin: recipe, backend, checkpoint, model, tokenizer.  This is where files and
 * arithmetic meet.  Everything here ends the program on failure.
 */

#include "formats/chat_template.h"
#include "formats/checkpoint.h"
#include "formats/tokenizer.h"
#include "kernels/model/model.h"
#include "libcommon/opt.h"
#include "libcommon/recipe.h"

/* From -c, key=value words and --unset; notes are said at -v.  cairn.{device,isa,threads,memory} fill in for absent options. */
struct recipe *start_recipe(void);
/* Threads, then the backend of --device and --isa. */
const struct ops *start_ops(void);
/* All ranks of the launcher.  Other ranks than 0 show neither progress nor warnings. */
struct comm *start_world(void);
bool start_is_first(void);      /* rank 0: results are its to print and to write */
/*
 * The ranks as the recipe wants them (policy.megatron_cfg where it is enabled, else policy.dtensor_cfg); DP takes what the world has
 * left.  One rank runs every recipe alone, and says so at -v.  Otherwise EX_USAGE for a world of the wrong size or a layout that
 * the model can not have, with the sentence that tells what to change.
 */
void start_mesh(struct mesh *m, const struct recipe *r, const struct model_config *c);
/* The same for programs that only run the model: TP, EP and ETP are the recipe's, all other ranks are data-parallel. */
void start_mesh_forward(struct mesh *m, const struct recipe *r, const struct model_config *c);
/* The layout in l alone: what the recipe says about a world of that size. */
int layout_from_recipe(struct layout *l, const struct recipe *r, const struct model_config *c, long world, bool forward,
		       struct err *e) MUST_CHECK;
int start_ranks_here(void);     /* ranks on this host */
int start_rank_here(void);      /* those of them before this one */
/* MODEL_FREEZE_ROUTER where the recipe says so. */
unsigned start_freeze(const struct recipe *r);

/* policy.precision where it is not null; else what trained the checkpoint; else by its weights (float32 stays float32). */
enum dtype start_precision(const struct recipe *r, const struct checkpoint *c);

void load_checkpoint(struct checkpoint *c, const char *dir);
void load_config(struct model_config *out, const struct checkpoint *c);
/*
 * Weights, and with MODEL_TRAIN the optimizer's state where there is one: masters must round to the stored weights.  Each rank reads
 * the boxes that it has, whatever the stored layout.  mesh, positions and flags as in model_init().
 */
void load_model(struct model *m, struct checkpoint *c, const struct ops *k, struct mesh *mesh, enum dtype t, long positions,
		unsigned flags);
/* 65 where the checkpoint has none. */
struct tokenizer *load_tokenizer(const struct checkpoint *c);
/* policy.tokenizer.chat_template (text, a file, or a name of chat_template_builtin()), else the checkpoint's own; NULL: none. */
struct chat_template *load_chat_template(const struct checkpoint *c, const struct recipe *r);

/* A model has to know every id of its tokenizer: 65 otherwise. */
void check_vocabulary(const struct tokenizer *t, const struct model_config *c);

/*
 * What ends a sequence: eos of config.json, of generation_config.json and of the tokenizer, and policy.generation.stop_token_ids,
 * each once.  The caller frees.
 */
long load_stop_ids(int **ids, const struct checkpoint *c, const struct model_config *cfg, const struct tokenizer *t,
		   const struct recipe *r);

/* The history entry of this run; h borrows argv, r and the inputs.  seed: recorded once. */
void start_history(struct history *h, const char *name, int argc, char **argv, const struct recipe *r, const uint64_t *seed,
		   const struct history_input *input, int inputs, const struct json *parent);

/* XXH3-128 of the manifest of a directory, or of the file. */
struct digest input_digest(const char *path);

/* "0123456789abcdef" of ops_fingerprint(). */
const char *fingerprint_text(char buf[17], const struct ops *k);

#endif
